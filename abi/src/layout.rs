//! Structures that know how they are laid out, and constants that know their names, so that a C compiler can be asked whether it agrees.

/// What this crate believes of one C structure or union.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub rust: &'static str,
    /// A C expression for the type; empty for a member that C cannot name.
    pub c: &'static str,
    /// Bytes.
    pub size: usize,
    /// Field, its offset in bytes. A field that is a Rust keyword ends in `_`; `anon` has no name in C.
    pub fields: &'static [(&'static str, usize)],
    /// Each field's type as the table spells it, and its size in bytes.
    pub types: &'static [(&'static str, usize)],
}

macro_rules! structures {
    ($( $kind:ident $name:ident $c:literal { $( $field:ident : $ty:ty ),* $(,)? } )*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name { $( pub $field: $ty, )* }

            impl $name {
                /// All bytes zero, as C programs begin with.
                #[must_use]
                pub const fn zeroed() -> Self {
                    // SAFETY: every field of these tables is a number, a raw pointer, an optional function, or an
                    // array, structure or union of such: zero bytes are a value of each.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        /// One row per structure and union of this module.
        pub const LAYOUTS: &[$crate::layout::Layout] = &[$(
            $crate::layout::Layout {
                rust: stringify!($name),
                c: $c,
                size: size_of::<$name>(),
                fields: &[$( (stringify!($field), std::mem::offset_of!($name, $field)), )*],
                types: &[$( (stringify!($ty), size_of::<$ty>()), )*],
            },
        )*];
    };
}
pub(crate) use structures;

macro_rules! enumerations {
    (@alias type $kind:ident $c:ty) => { pub type $kind = $c; };
    (@alias of $kind:ident $c:ty) => {};
    ($( $how:ident $kind:ident: $c:ty { $( $name:ident = $value:expr, )* } )*) => {
        $(
            enumerations!(@alias $how $kind $c);
            $( pub const $name: $c = $value; )*
        )*

        /// Every constant of this module, by its C name.
        pub const CONSTANTS: &[(&str, i64)] = &[$( $( (stringify!($name), $name as i64), )* )*];
    };
}
pub(crate) use enumerations;
