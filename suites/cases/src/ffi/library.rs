//! Opening shared libraries and looking names up, in each of the ways that programs do.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::ptr::NonNull;

use abi::cuda::CUresult;
use libloading::os::unix as dl;

/// An opened library. Never closed: drivers do not bear it.
#[derive(Clone, Copy)]
pub struct Library {
    handle: *mut c_void,
}

// SAFETY: a handle of dlopen may be used from any thread; it is never closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Who sees the symbols of a library that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Local,
    Global,
}

/// An address that a look-up answered. Only compared and handed back to a typed client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(NonNull<c_void>);

impl Address {
    pub(super) fn from_raw(address: *mut c_void) -> Option<Self> {
        NonNull::new(address).map(Self)
    }

    /// To be found among what is mapped; means nothing beyond this process.
    pub(super) fn number(self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// # Safety
    /// `F` is the type of the function that lies at this address.
    pub(super) unsafe fn as_function<F: Copy>(self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: a function pointer has the size of this address (checked above); the type is the caller's obligation.
        unsafe { std::mem::transmute_copy(&self.0) }
    }
}

// Addresses differ from run to run: messages must not.
impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an address")
    }
}

/// Where a look-up starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// RTLD_DEFAULT.
    Default,
    /// RTLD_NEXT, from the executable.
    Next,
}

impl Scope {
    fn handle(self) -> *mut c_void {
        match self {
            Self::Default => libc::RTLD_DEFAULT,
            Self::Next => libc::RTLD_NEXT,
        }
    }
}

/// A library that is not there, in the dynamic loader's words.
#[derive(Debug)]
pub struct Absent {
    pub name: String,
    pub reason: String,
}

impl fmt::Display for Absent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} cannot be opened: {}", self.name, self.reason)
    }
}

impl std::error::Error for Absent {}

impl Library {
    pub fn open(name: &str, visibility: Visibility) -> Result<Self, Absent> {
        let scope = match visibility {
            Visibility::Local => dl::RTLD_LOCAL,
            Visibility::Global => dl::RTLD_GLOBAL,
        };
        // SAFETY: the drivers' constructors are what every client runs too.
        let library = unsafe { dl::Library::open(Some(name), dl::RTLD_NOW | scope) };
        match library {
            Ok(library) => Ok(Self {
                handle: library.into_raw(),
            }),
            Err(error) => Err(Absent {
                name: name.to_owned(),
                reason: error.to_string(),
            }),
        }
    }

    /// Opened with RTLD_DEEPBIND: it finds its own needs before the program's, a preload's included.
    pub fn open_bound_deeply(path: &std::path::Path) -> Result<Self, Absent> {
        let name = path.display().to_string();
        opened(&name, |name| {
            // SAFETY: the name ends in NUL; the library's constructors are harmless.
            unsafe { libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_DEEPBIND) }
        })
    }

    /// Opened in a namespace of its own, with copies of all that it needs.
    pub fn open_apart(name: &str) -> Result<Self, Absent> {
        opened(name, |name| {
            // SAFETY: the name ends in NUL; drivers bear being loaded twice.
            unsafe { libc::dlmopen(libc::LM_ID_NEWLM, name, libc::RTLD_NOW) }
        })
    }

    /// Has a plugin's core take device memory: what it took, and the code that ended it.
    pub fn take(self, step: u64, most: u64) -> Option<(u64, CUresult)> {
        // SAFETY: the type of that export of the plugin's.
        let take: unsafe extern "C" fn(u64, u64, *mut u64) -> u32 =
            unsafe { self.function("core_take") }?;
        let mut taken = 0;
        // SAFETY: a place of our own.
        let code = unsafe { take(step, most, &raw mut taken) };
        Some((taken, CUresult(code)))
    }

    /// Has a plugin's core call cuMemAlloc_v2 as what is linked against libcuda does: its answer.
    pub fn take_linked(self, bytes: u64) -> Option<CUresult> {
        // SAFETY: the type of that export of the plugin's.
        let take: unsafe extern "C" fn(u64) -> u32 = unsafe { self.function("core_take_linked") }?;
        // SAFETY: takes a number.
        Some(CUresult(unsafe { take(bytes) }))
    }

    /// Has a plugin's core call through pointers of its own that are named like the driver's functions: what cuMemAllocManaged answers.
    pub fn fill(self, bytes: u64) -> Option<CUresult> {
        // SAFETY: the type of that export of the plugin's.
        let fill: unsafe extern "C" fn(u64) -> u32 = unsafe { self.function("core_fill") }?;
        // SAFETY: takes a number.
        Some(CUresult(unsafe { fill(bytes) }))
    }

    /// Has a plugin that is preloaded let every clock of libc's stand still; `false` where it cannot.
    pub fn stop_clock(self) -> bool {
        // SAFETY: the type of that export of the plugin's.
        let stop: Option<unsafe extern "C" fn()> = unsafe { self.function("core_stop_clock") };
        // SAFETY: takes nothing.
        stop.map(|stop| unsafe { stop() }).is_some()
    }

    /// What a plugin's core finds by RTLD_NEXT from its own place.
    pub fn next(self, name: &str) -> Option<Address> {
        // SAFETY: the type of that export of the plugin's.
        let next: unsafe extern "C" fn(*const c_char) -> *mut c_void =
            unsafe { self.function("core_next") }?;
        // SAFETY: the name ends in NUL.
        with_name(name, |name| unsafe { next(name) })
    }

    /// `dlsym` by handle.
    pub fn address(self, name: &str) -> Option<Address> {
        // SAFETY: the handle is open and the name ends in NUL.
        with_name(name, |name| unsafe { libc::dlsym(self.handle, name) })
    }

    /// By handle, by a dlsym that was looked up itself.
    pub fn address_by(self, dlsym: Address, name: &str) -> Option<Address> {
        // SAFETY: every address that is looked up as dlsym's has its type.
        let dlsym: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
            unsafe { dlsym.as_function() };
        // SAFETY: the handle is open and the name ends in NUL.
        with_name(name, |name| unsafe { dlsym(self.handle, name) })
    }

    /// `dlvsym` by handle. The drivers have no symbol versions, so any version matches.
    pub fn versioned_address(self, name: &str, version: &CStr) -> Option<Address> {
        with_name(name, |name| {
            // SAFETY: the handle is open, both strings end in NUL.
            unsafe { libc::dlvsym(self.handle, name, version.as_ptr()) }
        })
    }

    /// The typed function of that name.
    ///
    /// # Safety
    /// `F` is the type of the function that the library exports under this name.
    pub(super) unsafe fn function<F: Copy>(self, name: &str) -> Option<F> {
        // SAFETY: the type is the caller's obligation.
        self.address(name)
            .map(|address| unsafe { address.as_function() })
    }
}

/// `dlsym` without a handle.
pub fn look_up(scope: Scope, name: &str) -> Option<Address> {
    // SAFETY: a pseudo-handle and a name that ends in NUL.
    with_name(name, |name| unsafe { libc::dlsym(scope.handle(), name) })
}

/// `dlvsym` without a handle.
pub fn look_up_version(scope: Scope, name: &str, version: &CStr) -> Option<Address> {
    // SAFETY: a pseudo-handle and strings that end in NUL.
    with_name(name, |name| unsafe {
        libc::dlvsym(scope.handle(), name, version.as_ptr())
    })
}

/// Whether the last look-up of this thread left a message behind; takes it.
pub fn take_error() -> bool {
    // SAFETY: dlerror has no preconditions.
    !unsafe { libc::dlerror() }.is_null()
}

fn opened(name: &str, open: impl FnOnce(*const c_char) -> *mut c_void) -> Result<Library, Absent> {
    let absent = |reason: &str| Absent {
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    let text = CString::new(name).map_err(|_| absent("its name holds a NUL"))?;
    let handle = open(text.as_ptr());
    if !handle.is_null() {
        return Ok(Library { handle });
    }
    // SAFETY: dlerror has no preconditions; its answer is a string until the thread's next call of the loader.
    let reason = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            CString::default()
        } else {
            CStr::from_ptr(text).to_owned()
        }
    };
    Err(absent(&reason.to_string_lossy()))
}

fn with_name(name: &str, find: impl FnOnce(*const c_char) -> *mut c_void) -> Option<Address> {
    let name = CString::new(name).ok()?;
    Address::from_raw(find(name.as_ptr()))
}
