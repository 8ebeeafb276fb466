//! Arguments behind pointers that another thread changes while the driver is asked.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use abi::cuda::{CUDA_ARRAY_DESCRIPTOR, CUarray, CUmemAllocationProp, CUmemLocation, CUresult};

use super::super::race::while_changed;
use super::{Cuda, MISSING};

const ON_DEVICE: i32 = 1;
const ON_HOST_NODE: i32 = 3;
/// CU_AD_FORMAT_UNSIGNED_INT32.
const WORDS: i32 = 3;
impl Cuda {
    /// cuMemCreate of so many bytes, whose location is by turns the host and a device: how many bytes of the device were granted, `enough` at most.
    pub fn create_memory_at_a_changing_place(&self, bytes: u64, enough: u64) -> u64 {
        let mut prop = CUmemAllocationProp {
            type_: 1,
            requestedHandleTypes: 0,
            location: CUmemLocation {
                type_: ON_DEVICE,
                id: 0,
            },
            win32HandleMetaData: null_mut(),
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let prop = &raw mut prop;
        // SAFETY: the structure outlives both threads, and this side changes the word as an atomic alone.
        let place = unsafe { AtomicI32::from_ptr((&raw mut (*prop).location.type_).cast()) };
        let mut taken = 0;
        while_changed(
            |host| {
                let kind = if host { ON_HOST_NODE } else { ON_DEVICE };
                place.store(kind, Ordering::Relaxed);
            },
            || {
                let mut made = 0;
                let code = call!(self.cuMemCreate(&mut made, bytes as usize, prop, 0));
                if code == CUresult::SUCCESS {
                    // SAFETY: plain numbers and a pointer, for which all zeros is a value.
                    let mut told: CUmemAllocationProp = unsafe { std::mem::zeroed() };
                    let _ = call!(self.cuMemGetAllocationPropertiesFromHandle(&mut told, made));
                    if told.location.type_ as i32 == ON_DEVICE {
                        taken += bytes;
                    } else {
                        let _ = call!(self.cuMemRelease(made));
                    }
                }
                taken < enough && code != MISSING
            },
        );
        taken
    }

    /// cuArrayCreate_v2 of 4,096 rows that are by turns 64 and 65,536 words wide: how many bytes the wide ones have, `enough` at most.
    pub fn create_arrays_of_a_changing_width(&self, enough: u64) -> u64 {
        const WIDE: usize = 65_536;
        const ROWS: usize = 4_096;
        let mut descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: WIDE,
            Height: ROWS,
            Format: WORDS as _,
            NumChannels: 1,
        };
        let descriptor = &raw mut descriptor;
        // SAFETY: as above.
        let width = unsafe { AtomicUsize::from_ptr(&raw mut (*descriptor).Width) };
        let mut taken = 0;
        while_changed(
            |narrow| width.store(if narrow { 64 } else { WIDE }, Ordering::Relaxed),
            || {
                let mut made = CUarray::NULL;
                let code = call!(self.cuArrayCreate_v2(&mut made, descriptor));
                if code == CUresult::SUCCESS {
                    // SAFETY: plain numbers.
                    let mut told: CUDA_ARRAY_DESCRIPTOR = unsafe { std::mem::zeroed() };
                    let _ = call!(self.cuArrayGetDescriptor_v2(&mut told, made));
                    if told.Width == WIDE {
                        taken += (WIDE * ROWS * 4) as u64;
                    } else {
                        let _ = call!(self.cuArrayDestroy(made));
                    }
                }
                taken < enough && code != MISSING
            },
        );
        taken
    }
}
