//! Names and descriptions of result codes, as drivers 555 and 580 give them.

use std::ffi::CStr;

use abi::cuda::*;

use crate::boundary::{Answer, Out};
use crate::entry;

include!(concat!(env!("OUT_DIR"), "/errors.rs"));

pub fn name(error: CUresult, string: Out<*const c_char>) -> Answer {
    tell(error, string, |row| row.2)
}

pub fn string(error: CUresult, string: Out<*const c_char>) -> Answer {
    tell(error, string, |row| row.3)
}

type Row = (u32, u16, &'static CStr, &'static CStr);

fn tell(error: CUresult, string: Out<*const c_char>, column: fn(&Row) -> &'static CStr) -> Answer {
    let string = string.or_crash();
    let row = TABLE
        .binary_search_by_key(&error.0, |row| row.0)
        .map(|at| &TABLE[at]);
    match row {
        Ok(row) if row.1 <= entry::generation().number => {
            string.set(column(row).as_ptr());
            Ok(())
        }
        _ => {
            string.set(std::ptr::null());
            Err(CUresult::ERROR_INVALID_VALUE)
        }
    }
}
