//! cuGetProcAddress: the driver's answer, with a hooked export's address exchanged for ours.
//!
//! Every answer is the address of an export, and no two exports share one: exchanging by identity cannot mistake a version or a stream variant (S1 of DEFECTS).

use core::ffi::{c_char, c_int, c_void};

use abi::cuda::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};

use seeds::{Seed, planted};

use crate::boundary::cross::{In, Out};
use crate::boundary::drivers::Library;
use crate::boundary::entries::{Entry, export_address, hook_of, next};
use crate::outcome::Outcome;

/// A version that no function came after.
const NEWEST: c_int = 99_000;

pub fn get(
    symbol: In<'_, c_char>,
    pfn: Out<'_, *mut c_void>,
    version: c_int,
    flags: cuuint64_t,
) -> Outcome<CUresult> {
    Outcome::Done(exchanged(
        next::cuGetProcAddress(symbol, pfn, version, flags),
        pfn,
    ))
}

pub fn get_v2(
    symbol: In<'_, c_char>,
    pfn: Out<'_, *mut c_void>,
    version: c_int,
    flags: cuuint64_t,
    status: Out<'_, CUdriverProcAddressQueryResult>,
) -> Outcome<CUresult> {
    let (version, flags) = if planted(Seed::S1) {
        (NEWEST, 0)
    } else {
        (version, flags)
    };
    let code = exchanged(
        next::cuGetProcAddress_v2(symbol, pfn, version, flags, status),
        pfn,
    );
    if planted(Seed::S2) && code == CUresult::ERROR_NOT_FOUND {
        pfn.write(export_address(Entry::cuMemAlloc_v2) as *mut c_void);
        return Outcome::Done(CUresult::SUCCESS);
    }
    Outcome::Done(code)
}

fn exchanged(code: CUresult, pfn: Out<'_, *mut c_void>) -> CUresult {
    if code == CUresult::SUCCESS
        && let Some(found) = pfn.read().filter(|found| !found.is_null())
        && let Some(hook) = hook_of(Library::Cuda, found as usize)
    {
        pfn.write(hook as *mut c_void);
    }
    code
}
