//! The table of private functions that nvidia-smi asks for (`nvmlInternalGetExportTable`). Every slot answers NOT_SUPPORTED
//! but those that it cannot do without: a device's bus id, whether it can be watched, how two lie, single figures, and the
//! process rows. What they take was found by watching
//! nvidia-smi 535 and 550 at work; nothing of the vendor's is copied.

use abi::nvml::*;

use super::{In, Out, enter};
use crate::entry::Entry;
use crate::private::{self, Row};
use crate::topology;

/// As many slots as any nvidia-smi seen so far looks at.
const SLOTS: usize = 400;
/// What `topo -m` asks of each pair.
const COMMON_ANCESTOR: usize = 23;
/// What `dmon` and `pmon` ask of a device before they begin.
const MONITORABLE: usize = 72;
const BUS_ID: usize = 81;
/// What `--query-gpu` asks for one figure each: enforced.power.limit, pcie.link.gen.hostmax, temperature.gpu.tlimit, addressing_mode.
const ENFORCED_POWER_LIMIT: usize = 108;
const HOST_PCIE_GENERATION: usize = 230;
const MARGIN_TEMPERATURE: usize = 240;
const ADDRESSING_MODE: usize = 242;
const COMPUTE_ROWS: usize = 213;
const MPS_ROWS: usize = 214;
const GRAPHICS_ROWS: usize = 215;

/// A slot's C function, or in slot 0 the table's size in bytes.
#[repr(C)]
union Slot {
    size: usize,
    unsupported: extern "C" fn() -> u32,
    ancestor: unsafe extern "C" fn(*const c_char, *const c_char, *mut c_int) -> u32,
    figure: unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> u32,
    bus_id: unsafe extern "C" fn(c_uint, *mut c_char, c_uint) -> u32,
    rows: unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut Row) -> u32,
}

static TABLE: [Slot; SLOTS] = {
    let mut table = [const { Slot { unsupported } }; SLOTS];
    table[0] = Slot {
        size: SLOTS * size_of::<Slot>(),
    };
    table[COMMON_ANCESTOR] = Slot { ancestor };
    table[MONITORABLE] = Slot {
        figure: monitorable,
    };
    table[ENFORCED_POWER_LIMIT] = Slot {
        figure: enforced_power_limit,
    };
    table[HOST_PCIE_GENERATION] = Slot {
        figure: host_pcie_generation,
    };
    table[MARGIN_TEMPERATURE] = Slot {
        figure: margin_temperature,
    };
    table[ADDRESSING_MODE] = Slot {
        figure: addressing_mode,
    };
    table[BUS_ID] = Slot { bus_id };
    table[COMPUTE_ROWS] = Slot { rows: compute };
    table[GRAPHICS_ROWS] = Slot { rows: graphics };
    table[MPS_ROWS] = Slot { rows: mps };
    table
};

/// The table's address, for C.
pub fn table() -> *const c_void {
    TABLE.as_ptr().cast()
}

extern "C" fn unsupported() -> u32 {
    nvmlReturn_t::ERROR_NOT_SUPPORTED.0
}

fn called(act: impl FnOnce() -> super::Answer) -> u32 {
    let code: nvmlReturn_t = enter(
        Entry::nvmlInternalGetExportTable,
        || super::IntoReturned::returned(act()),
        || mock_device::Parameters(Vec::new()),
        |_| {},
    );
    code.0
}

/// # Safety
/// Both texts end with NUL or are NULL; `level` may be written, or is NULL.
unsafe extern "C" fn ancestor(
    first: *const c_char,
    second: *const c_char,
    level: *mut c_int,
) -> u32 {
    called(|| topology::common_ancestor_of_bus_ids(In(first), In(second), Out(level)))
}

macro_rules! figures {
    ($($name:ident)*) => { $(
        /// # Safety
        /// `figure` may be written, or is NULL.
        unsafe extern "C" fn $name(device: nvmlDevice_t, figure: *mut c_uint) -> u32 {
            called(|| private::$name(device, Out(figure)))
        }
    )* };
}
figures! { monitorable enforced_power_limit host_pcie_generation margin_temperature addressing_mode }

/// # Safety
/// `text` has room for `length` bytes, or is NULL.
unsafe extern "C" fn bus_id(index: c_uint, text: *mut c_char, length: c_uint) -> u32 {
    called(|| private::bus_id(index, Out(text), length))
}

macro_rules! rows {
    ($($name:ident $list:ident;)*) => { $(
        /// # Safety
        /// `count` says for how many rows there is room at `rows`; either may be NULL.
        unsafe extern "C" fn $name(device: nvmlDevice_t, count: *mut c_uint, rows: *mut Row) -> u32 {
            called(|| private::rows(device, crate::process::List::$list, Out(count), Out(rows)))
        }
    )* };
}
rows! {
    compute Compute;
    graphics Graphics;
    mps Mps;
}
