//! cuGetProcAddress and cuGetExportTable.

use std::ffi::CStr;
use std::sync::OnceLock;

use abi::cuda::*;
use mock_device::Api;

use crate::boundary::{self, Answer, In, Out, crash};
use crate::driver;
use crate::entry::{self, Entry};

/// A base name and what it is at which version.
pub struct Name {
    base: &'static str,
    runs: &'static [Run],
}

pub struct Run {
    from: i32,
    /// For flags 0 (default), 1 (legacy stream), 2 (per-thread default stream); `None` is newer than asked.
    by_flags: [Option<Entry>; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Symbol(Entry),
    /// Known, but newer than the version asked for.
    Newer,
    Unknown,
    /// Flags that there are not, or a version above the driver's own.
    Refused,
}

mod table {
    use super::{Entry, Name, Run};
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

/// A driver answers with the runs whose symbols it has, and knows a name of which it has any: true of every recorded one.
/// It takes a negative version for one above all others.
fn find(name: &CStr, version: i32, flags: u64) -> Found {
    let Some(column) = [0, 1, 2, 2]
        .get(flags as usize)
        .copied()
        .filter(|_| flags < 4)
    else {
        return Found::Refused;
    };
    if entry::generation().refuses_newer && newer_than_driver(version) {
        return Found::Refused;
    }
    let name = name.to_bytes();
    let Ok(at) = TABLE.binary_search_by(|row| row.base.as_bytes().cmp(name)) else {
        return Found::Unknown;
    };
    let runs = TABLE[at].runs;
    let has = |run: &Run| run.by_flags[column].filter(|symbol| !is_absent(*symbol));
    let upto = runs.partition_point(|run| run.from.cast_unsigned() <= version.cast_unsigned());
    match runs[..upto].iter().rev().find_map(has) {
        Some(symbol) => Found::Symbol(symbol),
        None if runs[upto..].iter().any(|run| has(run).is_some()) => Found::Newer,
        None => Found::Unknown,
    }
}

fn newer_than_driver(version: i32) -> bool {
    driver::world().is_some_and(|world| version > world.machine().driver.cuda_version)
}

/// What this machine's driver does not have: the exports of other generations, and what the fault plan took away.
fn is_absent(entry: Entry) -> bool {
    static MISSING: OnceLock<Vec<&'static str>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let symbols = driver::world().map_or(&[][..], |world| world.missing_symbols(Api::Cuda));
        symbols.iter().map(String::as_str).collect()
    });
    !entry.exported() || (!missing.is_empty() && missing.contains(&entry.name()))
}

/// No table is known here: the mock does not pose as the vendor's driver.
pub fn export_table(table: Out<*const c_void>, id: In<CUuuid>) -> Answer {
    id.required()?;
    table.required()?.set(std::ptr::null());
    Err(CUresult::ERROR_INVALID_VALUE)
}
