//! The exports. They write what a client looks at, and nothing else.

use std::ffi::{c_char, c_int, c_void};

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

/// # Safety
/// `pointer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(pointer: *mut u64, _: usize, _: *mut c_void) -> u32 {
    // SAFETY: the caller's obligation.
    unsafe { pointer.write(0x7000) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(_: u64, _: *mut c_void) -> u32 {
    0
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
