//! cuGetProcAddress and cuGetExportTable.

use std::ffi::CStr;
use std::sync::{Once, OnceLock};

use abi::cuda::*;
use mock_device::{Api, Uuid};

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
    let Some(runs) = runs_of(name.to_bytes()) else {
        return Found::Unknown;
    };
    let has = |run: &Run| run.by_flags[column].filter(|symbol| !is_absent(*symbol));
    let upto = runs.partition_point(|run| run.from.cast_unsigned() <= version.cast_unsigned());
    match runs[..upto].iter().rev().find_map(has) {
        Some(symbol) => Found::Symbol(symbol),
        None if runs[upto..].iter().any(|run| has(run).is_some()) => Found::Newer,
        None => Found::Unknown,
    }
}

/// Where a name of the table may stand: open addressing, empty where it says `VACANT`.
const SLOTS: usize = 2048;
const VACANT: u16 = u16::MAX;

static INDEX: [u16; SLOTS] = {
    assert!(TABLE.len() * 2 < SLOTS);
    let mut index = [VACANT; SLOTS];
    let mut at = 0;
    while at < TABLE.len() {
        let mut slot = slot_of(TABLE[at].base.as_bytes());
        while index[slot] != VACANT {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = at as u16;
        at += 1;
    }
    index
};

/// Names differ in length and in their ends: two words say enough.
const fn slot_of(name: &[u8]) -> usize {
    let hash = (word(name, name.len().saturating_sub(8)) ^ (name.len() as u64))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ word(name, name.len() / 2);
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as usize % SLOTS
}

/// Eight bytes from there on, or as many as there are.
const fn word(name: &[u8], from: usize) -> u64 {
    if let Some((eight, _)) = name.split_at(from).1.split_first_chunk::<8>() {
        return u64::from_le_bytes(*eight);
    }
    let (mut word, mut at) = (0, from);
    while at < name.len() {
        word = word << 8 | name[at] as u64;
        at += 1;
    }
    word
}

fn runs_of(name: &[u8]) -> Option<&'static [Run]> {
    let mut slot = slot_of(name);
    loop {
        let row = TABLE.get(usize::from(INDEX[slot]))?;
        if row.base.as_bytes() == name {
            return Some(row.runs);
        }
        slot = (slot + 1) % SLOTS;
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

/// No table is known here: the mock does not pose as the vendor's driver. The CUDA runtime (libcudart) begins with one, and tells its
/// program of an invalid argument; why, and what works instead, is said on stderr once a process (docs/holes.md, K2).
pub fn export_table(table: Out<*const c_void>, id: In<CUuuid>) -> Answer {
    static SAID: Once = Once::new();
    let id = id.required()?;
    table.required()?.set(std::ptr::null());
    SAID.call_once(|| {
        let id = Uuid(id.bytes).to_string();
        eprintln!(
            "mock-libcuda: cuGetExportTable of {}: this simulated driver has none of the private tables by which the CUDA runtime (libcudart) \
             begins; a program that needs it gets cudaErrorInvalidValue or an error of its initialisation. What works here: the driver API \
             (libcuda), NVML and Vulkan; the runtime needs a real driver (--driver real)",
            id.trim_start_matches("GPU-")
        );
    });
    Err(CUresult::ERROR_INVALID_VALUE)
}
