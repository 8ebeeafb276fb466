//! The drivers behind us: found by DT_SONAME, bound once, kept for ever (FINDINGS 21).

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::entries::{ENTRIES, Entry, HOOKS, NAMES};
use super::{elf, loader, sign};
use crate::process;

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

    /// Which driver an object is. A proxy of ours has a driver's name and is none.
    pub fn of(object: &elf::Object<'_>) -> Option<Library> {
        let soname = object.soname()?;
        [Library::Cuda, Library::Nvml]
            .into_iter()
            .find(|library| soname == library.soname())
            .filter(|_| !sign::is_ours(object))
    }

    /// The driver in whose place this build of the library stands; none where it is preloaded.
    const STANDS_FOR: Option<Library> = if cfg!(stands_for = "libcuda") {
        Some(Library::Cuda)
    } else if cfg!(stands_for = "libnvml") {
        Some(Library::Nvml)
    } else {
        None
    };

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
        self.is_bound() || self.bind_where(&|_| true)
    }

    /// Binds the object at `base` if none is bound yet. Answers whether it is the bound one.
    pub fn bind(self, base: usize) -> bool {
        if !self.is_bound() {
            self.bind_where(&|object| object.base == base);
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

    /// Binds the first driver of this name for which `wanted` holds. Answers whether there is one.
    fn bind_where(self, wanted: &dyn Fn(&elf::Object<'_>) -> bool) -> bool {
        let leader = (Library::STANDS_FOR == Some(self))
            .then(|| sign::leader(self.first_hook()))
            .flatten();
        let (mut found, mut path) = (false, [0; libc::PATH_MAX as usize]);
        elf::each(&mut |object| {
            found = Library::of(object) == Some(self) && wanted(object);
            if found {
                self.store(object, leader);
                object.copy_name(&mut path);
            }
            found
        });
        // The addresses outlive a dlclose by the program. By path: by its name alone the loader may find a proxy of ours.
        if found && let Ok(path) = CStr::from_bytes_until_nul(&path) {
            loader::open(
                path,
                libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
            );
        }
        found
    }

    /// A hook that every build exports which has this driver's hooks at all.
    fn first_hook(self) -> &'static CStr {
        NAMES
            .iter()
            .find(|(_, library)| *library == self)
            .map_or(c"", |(name, _)| name)
    }

    fn store(self, object: &elf::Object<'_>, leader: Option<usize>) {
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
        if let Some(leader) = leader {
            self.hand_over(leader);
        }
        driver.bound.store(1, Ordering::Release);
    }

    /// Another of our libraries keeps account in this process: its hooks are what comes next.
    fn hand_over(self, leader: usize) {
        process::hand_over();
        elf::each(&mut |object| {
            if object.base != leader {
                return false;
            }
            for (next, (name, library)) in NEXT.iter().zip(NAMES).take(HOOKS) {
                if library == self && next.load(Ordering::Relaxed) != 0 {
                    next.store(object.symbol(name).unwrap_or(0), Ordering::Release);
                }
            }
            true
        });
    }
}
