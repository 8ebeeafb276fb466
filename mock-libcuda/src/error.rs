//! Names and descriptions of result codes, as driver 555 gives them.

use std::ffi::CStr;

use abi::cuda::*;

use crate::boundary::{Answer, Out};

include!(concat!(env!("OUT_DIR"), "/errors.rs"));

pub fn name(error: CUresult, string: Out<*const c_char>) -> Answer {
    tell(error, string, |row| row.1)
}

pub fn string(error: CUresult, string: Out<*const c_char>) -> Answer {
    tell(error, string, |row| row.2)
}

type Row = (u32, &'static CStr, &'static CStr);

fn tell(error: CUresult, string: Out<*const c_char>, column: fn(&Row) -> &'static CStr) -> Answer {
    let string = string.or_crash();
    match TABLE.binary_search_by_key(&error.0, |row| row.0) {
        Ok(at) => {
            string.set(column(&TABLE[at]).as_ptr());
            Ok(())
        }
        Err(_) => {
            string.set(std::ptr::null());
            Err(CUresult::ERROR_INVALID_VALUE)
        }
    }
}
