//! The settings' variables that the process began with, kept by this library's constructor: what the program makes of its environment before its first
//! call is not believed (R50 of `fixtures/defects.txt`). A process that has none of them is left without a copy.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Where the copy lies, null before [`begin`], and how many bytes it has.
static COPY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// What was kept: `NAME=value` each, ended by a NUL. None before this library's constructor has run, or where the kernel had no memory for it.
pub fn kept() -> Option<&'static [u8]> {
    let copy = COPY.load(Ordering::Acquire);
    // SAFETY: written before its address was stored, and never again; not null.
    (!copy.is_null())
        .then(|| unsafe { core::slice::from_raw_parts(copy, LENGTH.load(Ordering::Relaxed)) })
}

/// At this library's constructor. Calls nothing of libc's but mmap, and that only where there is a setting. The kernel puts a new process's
/// environment behind its arguments, where it is found whatever `environ` is by now.
///
/// # Safety
/// `arguments` are the `count` of the process's main, as the kernel laid them out.
pub unsafe fn begin(count: c_int, arguments: *const *const c_char) {
    let Ok(count) = usize::try_from(count) else {
        return;
    };
    // SAFETY: the caller's; a null ends the arguments, and another what lies behind them.
    let entries = || unsafe {
        let behind = arguments.wrapping_add(count);
        let is_laid_out = !arguments.is_null() && (*behind).is_null();
        (1..)
            .take_while(move |_| is_laid_out)
            .map(move |at| *behind.wrapping_add(at))
            .take_while(|entry| !entry.is_null())
            .map(|entry| CStr::from_ptr(entry).to_bytes_with_nul())
            .filter(|entry| budget::settings::concerns(entry))
    };
    let length = entries().map(<[u8]>::len).sum::<usize>();
    if length == 0 {
        COPY.store(core::ptr::NonNull::dangling().as_ptr(), Ordering::Release);
        return;
    }
    // SAFETY: new pages.
    let pages = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if pages == libc::MAP_FAILED {
        return;
    }
    // SAFETY: as long as all entries together.
    let copy = unsafe { core::slice::from_raw_parts_mut(pages.cast::<u8>(), length) };
    let mut rest = &mut *copy;
    for entry in entries() {
        // Another thread may have changed them since they were counted.
        let Some((place, behind)) = rest.split_at_mut_checked(entry.len()) else {
            break;
        };
        place.copy_from_slice(entry);
        rest = behind;
    }
    LENGTH.store(length, Ordering::Relaxed);
    COPY.store(pages.cast(), Ordering::Release);
}
