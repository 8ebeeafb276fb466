//! Every function that driver 580 exports, with what the oracle recorded of it.

/// An answer of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Code(u32),
    /// The real library died of SIGSEGV.
    Crash,
    NotCalled,
}

/// A device and NULLs, all NULLs, NULLs before nvmlInit.
pub struct Answers {
    pub with_device: Recorded,
    pub all_null: Recorded,
    pub before_init: Recorded,
}

macro_rules! entries {
    ($($name:ident { $device:expr, $null:expr, $before:expr })*) => {
        /// One exported function.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "C names stay exact")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Entry { $($name,)* }

        const NAMES: &[&str] = &[$(stringify!($name),)*];
        const ANSWERS: &[Answers] =
            &[$(Answers { with_device: $device, all_null: $null, before_init: $before },)*];
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
}
