//! Every function that driver 580 exports, with what the oracle recorded of it.

use abi::cuda::CUresult;

/// The answer to ten zero arguments on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Code(u32),
    /// The real driver died of SIGSEGV.
    Crash,
    NotCalled,
}

macro_rules! entries {
    ($($name:ident { $before:expr, $after:expr })*) => {
        /// One exported function.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "C names stay exact")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Entry { $($name,)* }

        const NAMES: &[&str] = &[$(stringify!($name),)*];
        const BEFORE: &[Recorded] = &[$($before,)*];
        const AFTER: &[Recorded] = &[$($after,)*];
    };
}
macro_rules! stubs {
    ($($name:ident)*) => {};
}
macro_rules! data {
    ($($name:ident)*) => {};
}
include!(concat!(env!("OUT_DIR"), "/entries.rs"));

impl Entry {
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    pub fn before_init(self) -> Recorded {
        BEFORE[self as usize]
    }

    pub fn initialised(self) -> Recorded {
        AFTER[self as usize]
    }

    /// Whether the driver looks at its own initialisation before it looks at the arguments.
    pub fn refuses_before_init(self) -> bool {
        BEFORE[self as usize] == Recorded::Code(CUresult::ERROR_NOT_INITIALIZED.0)
    }
}
