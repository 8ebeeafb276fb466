//! The exports. They write what a client looks at, and nothing else.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::work::work;

/// # Safety
/// `pointer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut u64, _: usize) -> u32 {
    // SAFETY: the caller's obligation.
    unsafe { pointer.write(0x7000) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(_: u64) -> u32 {
    0
}

/// Addresses are given one after another; the last one is given again once it is freed.
static NEXT: AtomicU64 = AtomicU64::new(0x7f00_0000_0000);
const STEP: u64 = 512;

/// # Safety
/// `pointer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(pointer: *mut u64, size: usize, _: *mut c_void) -> u32 {
    work(size as u64);
    let address = NEXT.load(Ordering::Relaxed);
    NEXT.store(address + STEP, Ordering::Relaxed);
    // SAFETY: the caller's obligation.
    unsafe { pointer.write(address) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: u64, _: *mut c_void) -> u32 {
    work(address);
    if address + STEP == NEXT.load(Ordering::Relaxed) {
        NEXT.store(address, Ordering::Relaxed);
    }
    0
}

/// How much allocations and frees work from now on.
#[unsafe(no_mangle)]
pub extern "C" fn null_driver_works(steps: u32, lines: u32) {
    crate::work::set(steps, lines);
}

/// # Safety
/// `found` and `status` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    _: *const c_char,
    found: *mut *mut c_void,
    _: c_int,
    _: u64,
    status: *mut c_int,
) -> u32 {
    // SAFETY: the caller's obligation.
    unsafe {
        found.write(cuMemFree_v2 as *mut c_void);
        status.write(0);
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetFlags(_: *mut u32) -> u32 {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: u32) -> u32 {
    0
}

static RETAINED: AtomicU32 = AtomicU32::new(0);

/// A row: a name, its parameters of which the first are out, what each is told.
macro_rules! told {
    ($($name:ident($($out:ident: $ty:ty = $value:expr),* $(; $($rest:ty),*)?);)*) => { $(
        /// # Safety
        /// The out-parameters may be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($out: *mut $ty,)* $($(_: $rest),*)?) -> u32 {
            // SAFETY: the caller's obligation.
            unsafe { $($out.write($value);)* }
            0
        }
    )* };
}
told! {
    cuDeviceGetCount(count: c_int = 1);
    cuDeviceTotalMem_v2(total: usize = 150 << 30; c_int);
    cuCtxGetCurrent(context: usize = 0x1000);
    cuCtxGetDevice(device: c_int = 0);
    cuDeviceGetDefaultMemPool(pool: usize = 0x3000; c_int);
    cuMemGetInfo_v2(free: usize = 100 << 30, total: usize = 150 << 30);
}

/// # Safety
/// `flags` and `active` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    _: c_int,
    flags: *mut u32,
    active: *mut u32,
) -> u32 {
    // SAFETY: the caller's obligation.
    unsafe {
        flags.write(0);
        active.write(RETAINED.load(Ordering::Relaxed));
    }
    0
}

/// # Safety
/// `context` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _: c_int) -> u32 {
    RETAINED.store(1, Ordering::Relaxed);
    // SAFETY: the caller's obligation.
    unsafe { context.write(0x1000) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(_: usize) -> u32 {
    0
}

/// # Safety
/// `value` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, _: c_int, _: c_int) -> u32 {
    // SAFETY: the caller's obligation.
    unsafe { value.write(128) };
    0
}

/// A pool has always reserved so much.
///
/// # Safety
/// `value` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(_: usize, _: c_int, value: *mut u64) -> u32 {
    // SAFETY: the caller's obligation.
    unsafe { value.write(64 << 20) };
    0
}
