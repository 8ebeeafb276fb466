//! How a case says that the promise was broken, or that it cannot be judged here.

use std::fmt;

/// Why a case's body ended early. Every `std::error::Error` converts to [`Failure::Broken`], so `?` works throughout.
#[derive(Debug)]
pub enum Failure {
    /// The promise was not kept, with what was seen.
    Broken(String),
    /// This machine or target cannot show it, with the reason.
    Skip(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(seen) => out.write_str(seen),
            Self::Skip(reason) => write!(out, "skipped: {reason}"),
        }
    }
}

// Not itself an Error: the blanket conversion below would then overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Fails the case unless the condition holds: `ensure!(granted <= budget, "{granted} granted of {budget}")`.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::Broken(format!($($message)+)));
        }
    };
}

/// Fails the case unless both are equal, and shows them: `ensure_eq!(answer, CUresult::SUCCESS, "cuInit")`.
#[macro_export]
macro_rules! ensure_eq {
    ($seen:expr, $promised:expr, $($message:tt)+) => {
        match (&$seen, &$promised) {
            (seen, promised) if seen == promised => {}
            (seen, promised) => {
                let what = format!($($message)+);
                return Err($crate::Failure::Broken(format!("{what}: {seen:?}, promised {promised:?}")));
            }
        }
    };
}

/// Ends the case as failed.
#[macro_export]
macro_rules! fail {
    ($($message:tt)+) => { return Err($crate::Failure::Broken(format!($($message)+))) };
}

/// Ends the case as skipped, with the reason.
#[macro_export]
macro_rules! skip {
    ($($message:tt)+) => { return Err($crate::Failure::Skip(format!($($message)+))) };
}
