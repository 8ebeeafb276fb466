//! What a test needs and this machine lacks. One file that every test program with such needs includes.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::ffi::OsString;
use std::fmt::Display;

/// Set where everything has to be there (`.ci/run`).
const REQUIRED: &str = "RINGFENCE_REQUIRE_CLIENTS";

/// Says that a test is skipped for want of this; where all of it is required, that is the test's failure. libtest shows
/// what a passing test says to nobody, so that only this makes a skip heard.
pub fn skip(what: impl Display) {
    let required = std::env::var_os(REQUIRED).is_some_and(|value| value != "0");
    assert!(!required, "{what}; {REQUIRED} is set: run suites/setup");
    eprintln!("SKIPPED: {what}; run suites/setup");
}

/// That setting, for a child whose environment is otherwise its own.
pub fn passed_on() -> Option<(&'static str, OsString)> {
    Some((REQUIRED, std::env::var_os(REQUIRED)?))
}
