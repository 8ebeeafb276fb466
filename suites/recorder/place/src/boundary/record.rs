//! One call: asked of the driver, then written down.

use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use abi::cuda::CUresult;
use abi::nvml::nvmlReturn_t;
use trace::{Arguments, Shown};

use super::next::Driver;
use crate::settings::settings;

/// What an entry point answers.
pub trait Code: Copy {
    /// As a line shows it; 0 is a success.
    fn code(self) -> u64;
    /// Where the driver lacks a name that a copy of the recorder should have been made without.
    const ABSENT: Self;
}

impl Code for CUresult {
    const ABSENT: Self = Self::ERROR_NOT_FOUND;
    fn code(self) -> u64 {
        self.0.into()
    }
}

impl Code for nvmlReturn_t {
    const ABSENT: Self = Self::ERROR_FUNCTION_NOT_FOUND;
    fn code(self) -> u64 {
        self.0.into()
    }
}

/// nvmlErrorString: a text whatever is asked.
impl Code for *const c_char {
    const ABSENT: Self = core::ptr::null();
    fn code(self) -> u64 {
        0
    }
}

thread_local! {
    /// Whether this thread is in a call: what is called meanwhile comes from the driver.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Asks the driver and records the call. Not inlined, and told its own entry, so that no two exports are merged.
#[inline(never)]
pub fn record<R: Code>(
    driver: &Driver,
    entry: usize,
    call: impl FnOnce(usize) -> R,
    arguments: impl FnOnce(&mut Arguments),
) -> R {
    let next = driver.next[entry].load(Ordering::Acquire);
    if next == 0 {
        return R::ABSENT;
    }
    let nested = INSIDE
        .try_with(|inside| inside.replace(true))
        .unwrap_or(true);
    if nested {
        return call(next);
    }
    let answer = call(next);
    let (name, code) = (driver.name(entry), answer.code());
    write(
        driver.api,
        name,
        (&Shown::Unsigned(code), code == 0),
        (driver.ends)(name),
        arguments,
    );
    let _ = INSIDE.try_with(|inside| inside.set(false));
    answer
}

/// Writes the line of one finished call. Nothing of it reaches the guest: a line that cannot be made is lost.
pub fn write(
    api: &str,
    entry: &str,
    answer: (&Shown, bool),
    ends: bool,
    arguments: impl FnOnce(&mut Arguments),
) {
    let settings = settings();
    let Some(file) = &settings.file else {
        return;
    };
    // SAFETY: errno is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        trace::arguments::answered(api, entry, answer, ends, arguments, |record| {
            file.write(settings.role.as_deref(), record);
        });
    }));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// After a look-up by name: the driver's function that lies in `at` becomes ours.
///
/// # Safety
/// `symbol` and `at` are the caller's arguments of a look-up that has just succeeded.
pub unsafe fn exchange(driver: &Driver, symbol: *const c_char, at: *mut *mut c_void) {
    if symbol.is_null() || at.is_null() {
        return;
    }
    // SAFETY: by the obligation above: a C string, and a place that the driver has just written.
    unsafe {
        let name = core::ffi::CStr::from_ptr(symbol).to_str().unwrap_or("\0");
        *at = driver.ours(name, *at);
    }
}
