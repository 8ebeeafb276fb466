//! The tables that cases and roles are written in.

/// Declares the `CASES` of a file.
///
/// ```
/// use harness::{cases, ensure};
///
/// cases! {
///     /// A tenant is told its own budget.
///     tells_the_budget { kind: Budget, defects: ["T4"], entry_points: ["cuMemGetInfo_v2"], budget: "0=4GiB" } (session) {
///         ensure!(session.budget(0).is_some(), "a budget was set");
///         Ok(())
///     }
/// }
/// assert_eq!(CASES[0].promise_line(), "A tenant is told its own budget.");
/// ```
///
/// Every field of [`Case`](crate::Case) may stand in the braces; names of [`Kind`](crate::Kind),
/// [`Libraries`](crate::Libraries), [`Absent`](crate::Absent) and [`RealDriver`](crate::RealDriver) need no path,
/// lists are written `[…]`. What is left out is [`Case::BLANK`](crate::Case::BLANK)'s.
#[macro_export]
macro_rules! cases {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident { $($field:ident : $value:expr),* $(,)? } ($session:ident) $body:block
    )*) => {
        pub const CASES: &[$crate::Case] = &[$(
            $crate::Case {
                name: stringify!($name),
                module: module_path!(),
                promise: concat!($($doc, "\n"),+),
                $($field: $crate::case_field!($field, $value),)*
                body: $name,
                ..$crate::Case::BLANK
            },
        )*];
        $(
            $(#[doc = $doc])+
            fn $name($session: &mut $crate::Session) -> Result<(), $crate::Failure> $body
        )*
    };
}

/// Declares the `ROLES` of a file: what its cases' other processes do.
///
/// ```
/// harness::roles! {
///     /// Says each argument back.
///     says_back(_session, parent) {
///         for argument in parent.args().to_vec() {
///             parent.say(&argument)?;
///         }
///         Ok(())
///     }
/// }
/// assert_eq!(ROLES[0].name, "says_back");
/// ```
#[macro_export]
macro_rules! roles {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident ($session:ident, $parent:ident) $body:block
    )*) => {
        pub const ROLES: &[$crate::Role] = &[$( $crate::Role { name: stringify!($name), body: $name }, )*];
        $(
            $(#[doc = $doc])+
            fn $name($session: &mut $crate::Session, $parent: &mut $crate::Parent) -> Result<(), $crate::Failure> $body
        )*
    };
}

/// One field's value: lists become slices, the vocabulary needs no path.
#[doc(hidden)]
#[macro_export]
macro_rules! case_field {
    (defects, $value:expr) => {
        &$value
    };
    (entry_points, $value:expr) => {
        &$value
    };
    (needs, $value:expr) => {
        &$value
    };
    (env, $value:expr) => {
        &$value
    };
    (invalid_use, $value:expr) => {
        &$value
    };
    (absent, $value:expr) => {{
        #[allow(unused_imports, reason = "a vocabulary: a row uses one word of it")]
        use $crate::case::Absent::*;
        &$value
    }};
    (kind, $value:expr) => {{
        use $crate::case::Kind::*;
        $value
    }};
    (libraries, $value:expr) => {{
        use $crate::case::Libraries::*;
        $value
    }};
    (on_real, $value:expr) => {{
        use $crate::case::RealDriver::*;
        $value
    }};
    ($field:ident, $value:expr) => {
        $value
    };
}
