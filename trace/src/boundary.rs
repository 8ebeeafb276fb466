//! All the unsafe of this crate: what lies behind a client's pointers.

use std::ffi::{CStr, c_char};

/// What a successful call left in an out-parameter.
pub(crate) fn read<T: Copy>(at: *const T, ok: bool) -> Option<T> {
    if at.is_null() || !ok {
        return None;
    }
    // SAFETY: not NULL, and the call that just succeeded was allowed to write it.
    Some(unsafe { at.read_unaligned() })
}

/// A client's text, cut where a trace would drown in it.
pub(crate) fn text(at: *const c_char) -> Option<String> {
    const SHOWN: usize = 120;
    if at.is_null() {
        return None;
    }
    // SAFETY: not NULL; the C contract is a NUL-terminated string that lives as long as the call.
    let text = unsafe { CStr::from_ptr(at) }.to_string_lossy();
    Some(text.chars().take(SHOWN).collect())
}

/// The number in a value of 1 to 8 bytes: enumerations and handles of types that nobody named.
pub(crate) fn number<T: Copy>(value: T) -> Option<u64> {
    // SAFETY: the value is initialised and of exactly this size.
    unsafe {
        let at: *const T = &raw const value;
        Some(match size_of::<T>() {
            1 => at.cast::<u8>().read_unaligned().into(),
            2 => at.cast::<u16>().read_unaligned().into(),
            4 => at.cast::<u32>().read_unaligned().into(),
            8 => at.cast::<u64>().read_unaligned(),
            _ => return None,
        })
    }
}

/// What was leaked for the life of the process.
pub(crate) fn leaked<T>(at: *mut T) -> Option<&'static T> {
    // SAFETY: NULL, or from Box::leak: never freed and never written again.
    unsafe { at.as_ref() }
}
