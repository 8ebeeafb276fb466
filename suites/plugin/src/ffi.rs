//! The functions of the core, in C's terms.

use core::ffi::{CStr, c_char, c_void};

use abi::cuda::{CUcontext, CUdeviceptr, CUresult, fns};

/// What no driver answers: libcuda, or one of its functions, was not found.
const NOT_FOUND: CUresult = CUresult(u32::MAX);

/// A function of libcuda by this core's own look-up.
fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F, CUresult> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is open, the name ends with a NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(NOT_FOUND);
    }
    // SAFETY: callers pair each name with its own type.
    Ok(unsafe { core::mem::transmute_copy(&found) })
}

fn told(code: CUresult) -> Result<(), CUresult> {
    if code == CUresult::SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}

/// Takes `step` bytes at a time on the first device until refused or `most` are held; the code of the refusal.
fn take(step: u64, most: u64, taken: &mut u64) -> Result<(), CUresult> {
    // SAFETY: the driver's constructors are what every client runs.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err(NOT_FOUND);
    }
    let init: fns::cuInit = function(library, c"cuInit")?;
    let retain: fns::cuDevicePrimaryCtxRetain = function(library, c"cuDevicePrimaryCtxRetain")?;
    let set_current: fns::cuCtxSetCurrent = function(library, c"cuCtxSetCurrent")?;
    let allocate: fns::cuMemAlloc_v2 = function(library, c"cuMemAlloc_v2")?;
    let mut context = CUcontext::NULL;
    // SAFETY: the driver's functions of these names, with places of our own.
    unsafe {
        told(init(0))?;
        told(retain(&raw mut context, 0))?;
        told(set_current(context))?;
    }
    while *taken < most {
        let mut pointer: CUdeviceptr = 0;
        // SAFETY: as above.
        told(unsafe { allocate(&raw mut pointer, step as usize) })?;
        *taken += step;
    }
    Ok(())
}

/// Takes memory as `take` does and keeps it; answers the code that ended it, SUCCESS where `most` was reached.
///
/// # Safety
/// `taken` points to a place for the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn core_take(step: u64, most: u64, taken: *mut u64) -> u32 {
    let mut bytes = 0;
    let code = take(step, most, &mut bytes)
        .err()
        .unwrap_or(CUresult::SUCCESS);
    // SAFETY: the caller's place.
    unsafe { taken.write(bytes) };
    code.0
}

/// What RTLD_NEXT finds from this library's place in the order of objects.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn core_next(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
    // Not the last thing done here: a jump would leave the caller's return address in our place.
    core::hint::black_box(found)
}
