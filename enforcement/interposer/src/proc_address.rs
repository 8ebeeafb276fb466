//! cuGetProcAddress: the driver's answer, with a hooked export's address exchanged for ours.
//!
//! Every answer is the address of an export, and no two exports share one: exchanging by identity cannot mistake a version or a stream variant (S1).
//! So what is answered under the name of a hooked function and is no hook's is a version that we do not know.

use core::ffi::{c_char, c_int, c_void};

use abi::cuda::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};

use seeds::{Seed, planted};

use crate::boundary::cross::{In, Out};
use crate::boundary::drivers::Library;
use crate::boundary::entries::{Entry, export_address, has_hook, hook_of, next};
use crate::outcome::Outcome;
use crate::variants;

/// CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND.
const NOT_FOUND: CUdriverProcAddressQueryResult = 1;

/// A version that no function came after.
const NEWEST: c_int = 99_000;

pub fn get(
    symbol: In<'_, c_char>,
    pfn: Out<'_, *mut c_void>,
    version: c_int,
    flags: cuuint64_t,
) -> Outcome<CUresult> {
    let before = pfn.read();
    let code = next::cuGetProcAddress(symbol, pfn, version, flags);
    if !exchanged(code, symbol, pfn) {
        // Of what it does not find it leaves the out-param alone.
        before.into_iter().for_each(|before| pfn.write(before));
        return Outcome::Done(CUresult::ERROR_NOT_FOUND);
    }
    Outcome::Done(code)
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
    let code = next::cuGetProcAddress_v2(symbol, pfn, version, flags, status);
    if !exchanged(code, symbol, pfn) {
        pfn.write(core::ptr::null_mut());
        status.write(NOT_FOUND);
    }
    if planted(Seed::S2) && code == CUresult::ERROR_NOT_FOUND {
        pfn.write(export_address(Entry::cuMemAlloc_v2) as *mut c_void);
        return Outcome::Done(CUresult::SUCCESS);
    }
    Outcome::Done(code)
}

/// Answers whether the program is to have what the driver found, which is exchanged for its hook.
fn exchanged(code: CUresult, symbol: In<'_, c_char>, pfn: Out<'_, *mut c_void>) -> bool {
    let found = pfn
        .read()
        .filter(|found| code == CUresult::SUCCESS && !found.is_null());
    let Some(found) = found else {
        return true;
    };
    if let Some(hook) = hook_of(Library::Cuda, found as usize) {
        pfn.write(hook as *mut c_void);
        return true;
    }
    let name = symbol.text();
    !name.is_some_and(|name| has_hook(name.to_bytes()) && variants::is_withheld(name))
}
