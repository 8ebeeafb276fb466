//! The functions of the core, in C's terms.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

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

/// Pointers that are named like the driver's functions, as libraries have them that look the driver up by themselves (C13).
#[allow(non_upper_case_globals, reason = "C names stay exact")]
mod pointers {
    use core::sync::atomic::AtomicUsize;

    #[unsafe(no_mangle)]
    pub static cuInit: AtomicUsize = AtomicUsize::new(0);
    #[unsafe(no_mangle)]
    pub static cuMemAllocManaged: AtomicUsize = AtomicUsize::new(0);
}

/// Where a reference by name leads, as the loader has bound it: a compiler of C that makes a library takes no other way.
macro_rules! bound {
    ($name:ident) => {{
        let place: *mut usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads a word that the loader has filled.
        unsafe {
            core::arch::asm!("mov {}, qword ptr [rip + {}@GOTPCREL]", out(reg) place, sym pointers::$name);
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("adrp {0}, :got:{1}", "ldr {0}, [{0}, #:got_lo12:{1}]", out(reg) place, sym pointers::$name);
        }
        place
    }};
}

/// Fills the pointers by the loader's look-up and calls through them; what cuMemAllocManaged answers to `bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn core_fill(bytes: u64) -> u32 {
    fill(bytes).err().unwrap_or(CUresult::SUCCESS).0
}

fn fill(bytes: u64) -> Result<(), CUresult> {
    // SAFETY: as in `take`.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err(NOT_FOUND);
    }
    let init: usize = function(library, c"cuInit")?;
    let pointer_to_init = bound!(cuInit);
    // SAFETY: a pointer of this library's own, if it is bound to that.
    unsafe { pointer_to_init.write(init) };
    let allocate: usize = function(library, c"cuMemAllocManaged")?;
    let pointer_to_allocate = bound!(cuMemAllocManaged);
    // SAFETY: as above.
    unsafe { pointer_to_allocate.write(allocate) };
    let set_current: fns::cuCtxSetCurrent = function(library, c"cuCtxSetCurrent")?;
    let retain: fns::cuDevicePrimaryCtxRetain = function(library, c"cuDevicePrimaryCtxRetain")?;
    // SAFETY: what was written there just now: the driver's functions of these names.
    let (init, allocate) = unsafe {
        (
            core::mem::transmute::<usize, fns::cuInit>(pointer_to_init.read()),
            core::mem::transmute::<usize, fns::cuMemAllocManaged>(pointer_to_allocate.read()),
        )
    };
    let (mut context, mut pointer): (CUcontext, CUdeviceptr) = (CUcontext::NULL, 0);
    /// CU_MEM_ATTACH_GLOBAL.
    const GLOBAL: u32 = 1;
    // SAFETY: the driver's functions, with places of our own.
    unsafe {
        told(init(0))?;
        told(retain(&raw mut context, 0))?;
        told(set_current(context))?;
        told(allocate(&raw mut pointer, bytes as usize, GLOBAL))
    }
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

/// Where each clock stands by its number, in nanoseconds, as by libfaketime (P17); 0 where it goes.
static STANDS_AT: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn kernels(clock: libc::clockid_t, now: *mut libc::timespec) -> c_int {
    // SAFETY: the kernel refuses what is no place for a timespec.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, now) as c_int }
}

/// From here on every clock of libc's stands still, for whoever finds its function in this library.
#[unsafe(no_mangle)]
pub extern "C" fn core_stop_clock() {
    for (clock, stands_at) in (0..).zip(&STANDS_AT) {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if kernels(clock, &raw mut now) == 0 {
            let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
            stands_at.store(now, Ordering::SeqCst);
        }
    }
}

/// The kernel's, until [`core_stop_clock`] is called.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, now: *mut libc::timespec) -> c_int {
    let answer = kernels(clock, now);
    let stands_at = usize::try_from(clock)
        .ok()
        .and_then(|clock| STANDS_AT.get(clock))
        .map_or(0, |stands_at| stands_at.load(Ordering::SeqCst));
    if answer == 0 && stands_at != 0 {
        let stands_at = libc::timespec {
            tv_sec: (stands_at / 1_000_000_000) as libc::time_t,
            tv_nsec: (stands_at % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the caller's place, which the kernel has written.
        unsafe { now.write(stands_at) };
    }
    answer
}

/// Where a reference to cuMemAlloc_v2 leads that the loader binds by name, as in a library that was linked against libcuda; 0 where no object of the process
/// exports one. Weak: this library does without.
fn linked_allocate() -> usize {
    let address: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a word that the loader has filled.
    unsafe {
        core::arch::asm!(".weak cuMemAlloc_v2", "mov {}, qword ptr [rip + cuMemAlloc_v2@GOTPCREL]", out(reg) address);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(".weak cuMemAlloc_v2", "adrp {0}, :got:cuMemAlloc_v2", "ldr {0}, [{0}, #:got_lo12:cuMemAlloc_v2]", out(reg) address);
    }
    address
}

/// Takes `bytes` in the current context by the reference that the loader has bound: what cuMemAlloc_v2 answers.
#[unsafe(no_mangle)]
pub extern "C" fn core_take_linked(bytes: u64) -> u32 {
    let address = linked_allocate();
    if address == 0 {
        return NOT_FOUND.0;
    }
    let mut pointer: CUdeviceptr = 0;
    // SAFETY: what exports this name in a process of the suite is libcuda or stands before it, and has its type.
    unsafe {
        let allocate: fns::cuMemAlloc_v2 = core::mem::transmute(address);
        allocate(&raw mut pointer, bytes as usize).0
    }
}
