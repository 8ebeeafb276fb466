//! Turns a list of C signatures into function-pointer types and a look-up macro.
//!
//! The generated macro hands one named signature to a callback macro that is in scope at the call:
//! `cuda_signature!(cuInit => row!(tokens))` expands to `row!{ (tokens) cuInit(flags: c_uint) -> CUresult }`.
//! `cuda_signatures!(table)` hands over all rows at once.
//! Types are spelled as this crate spells them, so a caller glob-imports the module that they come from.

macro_rules! signatures {
    // `$d` is a literal dollar sign: the generated macro needs its own.
    ($d:tt $lookup:ident $each:ident; $( $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty; )*) => {
        /// The C function-pointer type of each entry point, by its exported name.
        #[allow(non_camel_case_types, reason = "C names stay exact")]
        pub mod fns {
            use super::*;
            $( pub type $name = unsafe extern "C" fn($($ty),*) -> $ret; )*
        }

        /// The names of all rows, in table order.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// Hands the signature of a named entry point to a callback macro.
        #[macro_export]
        macro_rules! $lookup {
            $( ($name => $d callback:ident ! ( $d($d context:tt)* )) => {
                $d callback! { ($d($d context)*) $name ( $($arg : $ty),* ) -> $ret }
            }; )*
        }

        /// Hands the signatures of all entry points to a callback macro.
        #[macro_export]
        macro_rules! $each {
            ($d callback:ident) => { $d callback! { $( $name ( $($arg : $ty),* ) -> $ret; )* } };
        }
    };
}
pub(crate) use signatures;
