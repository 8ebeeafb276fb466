//! Texts out of a child process, and out of the library.

use std::ffi::{CStr, c_char};

use crate::boundary::{Ended, in_child};

/// Runs `act` in a fork child and brings its lines back. A child that dies leaves one line that says so.
pub fn told(act: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let ended = in_child(|| {
        std::fs::write(file.path(), act().join("\n")).expect("written");
        0
    });
    let told = std::fs::read_to_string(file.path()).expect("written");
    let mut lines: Vec<String> = told.lines().map(str::to_owned).collect();
    if ended != Ended::Answered(0) {
        lines.push(format!("the child ended: {ended:?}"));
    }
    lines
}

/// A text that the library under test gave.
pub fn text_at(address: u64) -> Option<String> {
    if address == 0 {
        return None;
    }
    // SAFETY: the caller got the address as that of a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(address as *const c_char) };
    Some(text.to_string_lossy().into_owned())
}
