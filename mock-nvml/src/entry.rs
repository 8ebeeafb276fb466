//! Every function that a driver generation exports, with what the oracle recorded of it.

use std::sync::OnceLock;

use mock_device::generation;

use crate::library;

/// An answer of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Code(u32),
    /// The real library died of SIGSEGV.
    Crash,
    Unknown,
}

/// What was answered to a device and NULLs, and to NULLs.
pub struct Answers {
    pub with_device: Recorded,
    pub all_null: Recorded,
    /// NULLs before nvmlInit, by generation, the oldest first.
    before: [Recorded; generation::NUMBERS + 1],
}

macro_rules! entries {
    ($($name:ident { $first:expr, $last:expr, $before:expr, [$device:expr, $null:expr] })*) => {
        /// One exported function.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "C names stay exact")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Entry { $($name,)* }

        const NAMES: &[&str] = &[$(stringify!($name),)*];
        const ANSWERS: &[Answers] =
            &[$(Answers { with_device: $device, all_null: $null, before: $before },)*];
    };
}
macro_rules! stubs {
    ($($name:ident)*) => {};
}
include!(concat!(env!("OUT_DIR"), "/entries.rs"));

impl Entry {
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    pub fn recorded(self) -> &'static Answers {
        &ANSWERS[self as usize]
    }

    /// What this machine's driver answers to NULLs before nvmlInit.
    pub fn before_init(self) -> Recorded {
        static COLUMN: OnceLock<usize> = OnceLock::new();
        let column = COLUMN.get_or_init(|| {
            let numbers = generation::numbers();
            let number = library::world().map(|world| generation::number(&world.machine().driver));
            let of_this = numbers.iter().position(|known| Some(*known) == number);
            of_this.unwrap_or(numbers.len() - 1)
        });
        self.recorded().before[*column]
    }
}
