//! The dynamic loader's own functions, found without asking it: we export `dlsym`, so the name would find us.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::elf;

pub type DlSym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub type DlVSym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type DlError = unsafe extern "C" fn() -> *mut c_char;

/// A function of libc, looked up once. Before glibc 2.34 they lived in libdl.
struct Function {
    name: &'static CStr,
    address: AtomicUsize,
}

static DLSYM: Function = Function::named(c"dlsym");
static DLVSYM: Function = Function::named(c"dlvsym");
static DLOPEN: Function = Function::named(c"dlopen");
static DLERROR: Function = Function::named(c"dlerror");

impl Function {
    const fn named(name: &'static CStr) -> Function {
        Function {
            name,
            address: AtomicUsize::new(0),
        }
    }

    fn address(&self) -> Option<usize> {
        let known = self.address.load(Ordering::Acquire);
        if known != 0 {
            return Some(known);
        }
        let mut found = None;
        for library in [c"libc.so.6", c"libdl.so.2"] {
            elf::each(&mut |object| {
                if object.soname() == Some(library) {
                    found = object.symbol(self.name);
                    return true;
                }
                false
            });
            if let Some(found) = found {
                self.address.store(found, Ordering::Release);
                return Some(found);
            }
        }
        None
    }
}

pub fn dlsym() -> Option<usize> {
    DLSYM.address()
}

pub fn dlvsym() -> Option<usize> {
    DLVSYM.address()
}

/// `dlsym(handle, name)`, seen by the loader as coming from here.
pub fn symbol(handle: *mut c_void, name: &CStr) -> Option<usize> {
    let dlsym = DLSYM.address()?;
    // SAFETY: libc's dlsym; the handle is one of the loader's and the name ends with a NUL.
    let found = unsafe { core::mem::transmute::<usize, DlSym>(dlsym)(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}

/// Opens a library, or with RTLD_NOLOAD finds it.
pub fn open(path: &CStr, flags: c_int) -> Option<*mut c_void> {
    let dlopen = DLOPEN.address()?;
    // SAFETY: libc's dlopen with a path that ends with a NUL.
    let handle = unsafe { core::mem::transmute::<usize, DlOpen>(dlopen)(path.as_ptr(), flags) };
    if handle.is_null() {
        forget_error();
    }
    (!handle.is_null()).then_some(handle)
}

/// Our own look-ups leave no message for the caller's next `dlerror`.
pub fn forget_error() {
    if let Some(dlerror) = DLERROR.address() {
        // SAFETY: libc's dlerror takes nothing.
        unsafe { core::mem::transmute::<usize, DlError>(dlerror)() };
    }
}

/// Leaves the message that a failed look-up of `name` leaves.
pub fn fail(name: &CStr) {
    if let Some(libc) = open(c"libc.so.6", libc::RTLD_LAZY | libc::RTLD_NOLOAD) {
        let _ = symbol(libc, name);
    }
}
