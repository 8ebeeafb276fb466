//! The table of private functions that nvidia-smi asks for (`nvmlInternalGetExportTable`). Every slot answers NOT_SUPPORTED
//! but those that it cannot do without: a device's bus id, and the process rows. What they take was found by watching
//! nvidia-smi 535 and 550 at work; nothing of the vendor's is copied.

use abi::nvml::*;

use super::{Out, enter};
use crate::entry::Entry;
use crate::private::{self, Row};

/// As many slots as any nvidia-smi seen so far looks at.
const SLOTS: usize = 400;
const BUS_ID: usize = 81;
const COMPUTE_ROWS: usize = 213;
const MPS_ROWS: usize = 214;
const GRAPHICS_ROWS: usize = 215;

/// A slot's C function, or in slot 0 the table's size in bytes.
#[repr(C)]
union Slot {
    size: usize,
    unsupported: extern "C" fn() -> u32,
    bus_id: unsafe extern "C" fn(c_uint, *mut c_char, c_uint) -> u32,
    rows: unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut Row) -> u32,
}

static TABLE: [Slot; SLOTS] = {
    let mut table = [const { Slot { unsupported } }; SLOTS];
    table[0] = Slot {
        size: SLOTS * size_of::<Slot>(),
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
