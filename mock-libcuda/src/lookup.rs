//! cuGetProcAddress and cuGetExportTable.

use std::ffi::CStr;

use abi::cuda::*;
use mock_device::Api;

use crate::boundary::{self, Answer, In, Out, crash};
use crate::driver;
use crate::entry::Entry;

/// A base name and what it is at which version.
pub struct Name {
    base: &'static str,
    runs: &'static [Run],
}

pub struct Run {
    from: i32,
    /// For flags 0 (default), 1 (legacy stream), 2 (per-thread default stream).
    by_flags: [Found; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Symbol(Entry),
    /// Known, but newer than the version asked for.
    Newer,
    Unknown,
    /// A version above the driver's own.
    Refused,
}

mod table {
    use super::{Entry, Found, Name, Run};
    include!(concat!(env!("OUT_DIR"), "/lookup.rs"));
}
use table::TABLE;

const STATUS_FOUND: i32 = 0;
const STATUS_UNKNOWN: i32 = 1;
const STATUS_NEWER: i32 = 2;

pub fn proc_address_v2(
    symbol: In<c_char>,
    pfn: Out<*mut c_void>,
    version: c_int,
    flags: cuuint64_t,
    status: Out<CUdriverProcAddressQueryResult>,
) -> Answer {
    let (Some(name), false) = (symbol.text(), pfn.is_null()) else {
        crash()
    };
    let (pointer, code) = match find(name, version, flags) {
        Found::Symbol(entry) => (boundary::address(entry).pointer(), STATUS_FOUND),
        Found::Newer => (std::ptr::null_mut(), STATUS_NEWER),
        Found::Unknown => (std::ptr::null_mut(), STATUS_UNKNOWN),
        Found::Refused => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    pfn.required()?.set(pointer);
    if let Some(status) = status.optional() {
        status.set(code);
    }
    Ok(())
}

pub fn proc_address(
    symbol: In<c_char>,
    pfn: Out<*mut c_void>,
    version: c_int,
    flags: cuuint64_t,
) -> Answer {
    let (Some(name), false) = (symbol.text(), pfn.is_null()) else {
        crash()
    };
    match find(name, version, flags) {
        Found::Symbol(entry) => {
            pfn.required()?.set(boundary::address(entry).pointer());
            Ok(())
        }
        Found::Newer | Found::Unknown => Err(CUresult::ERROR_NOT_FOUND),
        Found::Refused => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

fn find(name: &CStr, version: i32, flags: u64) -> Found {
    let Some(column) = [0, 1, 2, 2]
        .get(flags as usize)
        .copied()
        .filter(|_| flags < 4)
    else {
        return Found::Refused;
    };
    let name = name.to_bytes();
    let runs = match TABLE.binary_search_by(|row| row.base.as_bytes().cmp(name)) {
        Ok(at) => TABLE[at].runs,
        Err(_) if newer_than_driver(version) => return Found::Refused,
        Err(_) => return Found::Unknown,
    };
    let upto = runs.partition_point(|run| run.from <= version);
    // A symbol that the fault plan took away answers like a driver that does not have it: with the one before it, and
    // like an unknown name where there is none.
    let mut passed_over = false;
    for run in runs[..upto].iter().rev() {
        match run.by_flags[column] {
            Found::Symbol(entry) if missing(entry) => passed_over = true,
            Found::Newer if passed_over => return Found::Unknown,
            found => return found,
        }
    }
    if passed_over {
        Found::Unknown
    } else {
        Found::Newer
    }
}

fn newer_than_driver(version: i32) -> bool {
    driver::world().is_some_and(|world| version > world.machine().driver.cuda_version)
}

fn missing(entry: Entry) -> bool {
    driver::world().is_some_and(|world| {
        world
            .missing_symbols(Api::Cuda)
            .iter()
            .any(|gone| gone == entry.name())
    })
}

/// No table is known here: the mock does not pose as the vendor's driver.
pub fn export_table(table: Out<*const c_void>, id: In<CUuuid>) -> Answer {
    id.required()?;
    table.required()?.set(std::ptr::null());
    Err(CUresult::ERROR_INVALID_VALUE)
}
