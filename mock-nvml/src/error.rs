//! nvmlErrorString.

use std::ffi::CStr;

use abi::nvml::*;

include!(concat!(env!("OUT_DIR"), "/errors.rs"));

pub fn string(result: nvmlReturn_t) -> &'static CStr {
    text(result)
}

/// A code that is none has a text too.
pub fn text(result: nvmlReturn_t) -> &'static CStr {
    match TABLE.binary_search_by_key(&result.0, |row| row.0) {
        Ok(at) => TABLE[at].2,
        Err(_) => c"Unknown Error",
    }
}
