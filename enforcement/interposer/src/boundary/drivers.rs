//! The drivers behind us: found by DT_SONAME, bound once, kept for ever (FINDINGS 21).

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::entries::{ENTRIES, Entry, NAMES};
use super::{elf, loader};

/// Which driver an entry point belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Cuda,
    Nvml,
}

/// Base address of the bound object, and whether there is one.
struct Driver {
    bound: AtomicUsize,
    base: AtomicUsize,
}

static DRIVERS: [Driver; 2] = [const {
    Driver {
        bound: AtomicUsize::new(0),
        base: AtomicUsize::new(0),
    }
}; 2];
static NEXT: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// One bit per address class that a bound driver's entry point falls into: most answers of a look-up are none of ours, and one
/// load says so.
static ADDRESSES: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Word and bit of an address. Functions lie 16 bytes apart or more.
fn class(address: usize) -> (usize, u64) {
    let class = (address >> 4) ^ (address >> 14);
    ((class >> 6) & 15, 1 << (class & 63))
}

impl Library {
    pub const fn soname(self) -> &'static CStr {
        match self {
            Library::Cuda => c"libcuda.so.1",
            Library::Nvml => c"libnvidia-ml.so.1",
        }
    }

    pub fn of(soname: Option<&CStr>) -> Option<Library> {
        [Library::Cuda, Library::Nvml]
            .into_iter()
            .find(|library| soname == Some(library.soname()))
    }

    /// The address of an entry point in the driver, 0 where the driver lacks it or there is no driver yet.
    ///
    /// Threads may race here: all read the same object and store the same addresses.
    #[inline]
    pub fn next(self, entry: Entry) -> usize {
        let known = NEXT[entry as usize].load(Ordering::Acquire);
        if known != 0 {
            known
        } else {
            self.next_slowly(entry)
        }
    }

    #[cold]
    fn next_slowly(self, entry: Entry) -> usize {
        if self.bind_any() {
            NEXT[entry as usize].load(Ordering::Acquire)
        } else {
            0
        }
    }

    /// Binds the first object of this name, if none is bound. Answers whether one is.
    pub fn bind_any(self) -> bool {
        self.is_bound() || {
            let mut found = false;
            elf::each(&mut |object| {
                found = Library::of(object.soname()) == Some(self);
                if found {
                    self.store(object);
                }
                found
            });
            if found {
                self.pin();
            }
            found
        }
    }

    /// Binds the object at `base` if none is bound yet. Answers whether it is the bound one.
    pub fn bind(self, base: usize) -> bool {
        if !self.is_bound() {
            elf::each(&mut |object| {
                let found = object.base == base;
                if found {
                    self.store(object);
                }
                found
            });
            self.pin();
        }
        self.is_bound() && DRIVERS[self as usize].base.load(Ordering::Relaxed) == base
    }

    /// Whether the address can be an entry point of the bound driver at all. What was looked up in a driver that is not bound
    /// yet always can.
    pub fn may_have(self, address: usize) -> bool {
        let (word, bit) = class(address);
        !self.is_bound() || ADDRESSES[word].load(Ordering::Relaxed) & bit != 0
    }

    pub fn is_bound(self) -> bool {
        DRIVERS[self as usize].bound.load(Ordering::Acquire) != 0
    }

    fn store(self, object: &elf::Object<'_>) {
        let driver = &DRIVERS[self as usize];
        // The first thread's object wins; a second one of the same name stays unbound.
        let base = object.base;
        if driver
            .base
            .compare_exchange(0, base, Ordering::AcqRel, Ordering::Acquire)
            .is_err_and(|other| other != base)
        {
            return;
        }
        for (next, (name, library)) in NEXT.iter().zip(NAMES) {
            if library == self {
                let address = object.symbol(name).unwrap_or(0);
                let (word, bit) = class(address);
                ADDRESSES[word].fetch_or(bit, Ordering::Relaxed);
                next.store(address, Ordering::Release);
            }
        }
        driver.bound.store(1, Ordering::Release);
    }

    /// The addresses outlive a dlclose by the program.
    fn pin(self) {
        loader::open(
            self.soname(),
            libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
        );
    }
}
