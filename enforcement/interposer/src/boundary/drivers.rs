//! The drivers behind us: found by DT_SONAME, bound once, kept for ever (decision 21): libcuda from the first success of cuInit on, NVML from our first
//! use of it. A program may try several of a name until one can be initialised, and close the others: until then another that is looked up in takes the
//! place of the bound one.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use seeds::{Seed, planted};

use super::entries::{ENTRIES, Entry, HOOKS, library_at, name_at};
use super::{elf, loader, sign};
use crate::process;

/// Which driver an entry point belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Cuda,
    Nvml,
}

/// Base address of the bound object, and whether there is one; and whether it stays loaded and bound whatever the program does.
struct Driver {
    bound: AtomicUsize,
    base: AtomicUsize,
    kept: AtomicUsize,
    /// It is never unmapped any more.
    pinned: AtomicUsize,
}

static DRIVERS: [Driver; 2] = [const {
    Driver {
        bound: AtomicUsize::new(0),
        base: AtomicUsize::new(0),
        kept: AtomicUsize::new(0),
        pinned: AtomicUsize::new(0),
    }
}; 2];
static NEXT: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// The hooks by their drivers' addresses, open addressing: a hook's number + 1, 0 where nothing is. Most answers of a look-up are
/// none of ours, and a load or two say so.
static BY_ADDRESS: [AtomicU16; PLACES] = [const { AtomicU16::new(0) }; PLACES];
const PLACES: usize = (4 * HOOKS).next_power_of_two();
/// Where a hook was entered that another may take the place of.
const LEFT: u16 = u16::MAX;

/// Where the search for an address goes: every place, from its own on. Functions lie 16 bytes apart or more.
fn places(address: usize) -> impl Iterator<Item = &'static AtomicU16> {
    let first = (address >> 4) ^ (address >> 14);
    (0..PLACES).map(move |step| &BY_ADDRESS[(first + step) % PLACES])
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
        // Some builds name themselves by their file alone.
        let file = || CStr::from_bytes_with_nul(file_name(object.map.name())).ok();
        let soname = object.soname().or_else(file)?;
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

    /// Whether this build sees every look-up by `dlsym`: only a preload does.
    pub const fn hears_look_ups() -> bool {
        Library::STANDS_FOR.is_none()
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

    // Once, and not in each of the hooks that are all alike here.
    #[cold]
    #[inline(never)]
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

    /// Binds the object at `base` if none is bound yet that is kept. Answers whether it is the bound one.
    pub fn bind(self, base: usize) -> bool {
        let driver = &DRIVERS[self as usize];
        let is_it = || self.is_bound() && driver.base.load(Ordering::Relaxed) == base;
        if is_it() {
            return true;
        }
        if self.is_bound() && self.is_loose() {
            self.let_go();
        }
        if !self.is_bound() {
            self.bind_where(&|object| object.base == base);
        }
        is_it()
    }

    /// At this library's constructor: a driver that the program is linked to, or that is preloaded, is there and stays. Later the loader's lock may be with a
    /// thread that waits for whoever asks first (attack 25: a library's constructor that waits for a thread).
    pub fn bind_started(self) {
        if self.bind_any() {
            DRIVERS[self as usize].kept.store(1, Ordering::Release);
        }
    }

    /// Whether another driver may take the place of the bound one.
    pub fn is_loose(self) -> bool {
        DRIVERS[self as usize].kept.load(Ordering::Acquire) == 0
    }

    /// The bound driver can be initialised: none takes its place any more, and its addresses outlive a dlclose by the program. A preload sees to that when the
    /// program closes anything, and asks the loader for nothing here: its lock may be with somebody who waits for the caller (attack 27).
    pub fn keep(self) {
        if self.is_bound() {
            DRIVERS[self as usize].kept.store(1, Ordering::Release);
            if !Library::hears_look_ups() {
                self.pin();
            }
        }
    }

    /// Before the program closes a library.
    #[cfg(not(proxy))]
    pub fn is_about_to_be_closed(self) {
        if self.is_bound() && !self.is_loose() {
            self.pin();
        }
    }

    fn pin(self) {
        let driver = &DRIVERS[self as usize];
        if driver.pinned.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        let base = driver.base.load(Ordering::Relaxed);
        elf::each(&mut |object| {
            let found = object.base == base;
            if found {
                // By path: by its name alone the loader may find a proxy of ours.
                loader::open(
                    object.map.name(),
                    libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
                );
            }
            found
        });
    }

    /// The program has closed a library: unbinds a driver that was never initialised and is gone, whose addresses would be called (attack 27).
    #[cfg(not(proxy))]
    pub fn let_go_of_closed(self) {
        if !self.is_bound() || !self.is_loose() {
            return;
        }
        let base = DRIVERS[self as usize].base.load(Ordering::Relaxed);
        let mut is_there = false;
        elf::each(&mut |object| {
            is_there = object.base == base && Library::of(object) == Some(self);
            is_there
        });
        if !is_there {
            self.let_go();
        }
    }

    /// Unbinds one of which nothing stands: it was never initialised.
    fn let_go(self) {
        let driver = &DRIVERS[self as usize];
        driver.bound.store(0, Ordering::Release);
        for entry in (0..ENTRIES).filter(|entry| library_at(*entry) == self) {
            NEXT[entry].store(0, Ordering::Release);
        }
        for place in &BY_ADDRESS {
            let hook = place.load(Ordering::Acquire);
            let is_its = |hook: u16| library_at(usize::from(hook) - 1) == self;
            if hook != 0 && hook != LEFT && is_its(hook) {
                place.store(LEFT, Ordering::Release);
            }
        }
        driver.base.store(0, Ordering::Release);
    }

    /// The hook of what lies at this address in the driver: its number in the table.
    pub fn hook_at(self, address: usize) -> Option<usize> {
        if !self.bind_any() {
            return None;
        }
        places(address)
            .map_while(|place| usize::from(place.load(Ordering::Acquire)).checked_sub(1))
            .find(|hook| *hook < HOOKS && NEXT[*hook].load(Ordering::Relaxed) == address)
            .filter(|hook| library_at(*hook) == self)
    }

    pub fn is_bound(self) -> bool {
        DRIVERS[self as usize].bound.load(Ordering::Acquire) != 0
    }

    /// Whether an object of this name is there, bound or not.
    pub fn is_there(self) -> bool {
        let mut found = self.is_bound();
        if !found {
            elf::each(&mut |object| {
                found = Library::of(object) == Some(self);
                found
            });
        }
        found
    }

    /// Where the loader found the bound object.
    fn path(self) -> Option<PathBuf> {
        let mut path = None;
        let base = DRIVERS[self as usize].base.load(Ordering::Relaxed);
        elf::each(&mut |object| {
            let found = self.is_bound() && object.base == base;
            if found {
                let name = OsStr::from_bytes(object.map.name().to_bytes());
                path = Some(PathBuf::from(name));
            }
            found
        });
        path
    }

    /// NVML's file beside the bound libcuda's: in the folder where that really lies, or else where the loader found it, which may be that of a proxy's links.
    /// The two come from one driver; a variable of the program's (LD_LIBRARY_PATH) may lead to any other.
    fn nvml_beside_cuda() -> Option<PathBuf> {
        let cuda = Library::Cuda.path()?;
        let places = [fs::canonicalize(&cuda).ok(), Some(cuda)];
        let folders = places.iter().flatten().filter_map(|cuda| cuda.parent());
        let names = ["libnvidia-ml.so.1", "libnvidia-ml.driver.so"];
        folders
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|nvml| nvml.is_file())
    }

    /// Binds NVML if none is bound, and opens it where there is none: first the bound libcuda's own. Answers whether one is.
    pub fn open_nvml() -> bool {
        let nvml = Library::Nvml;
        // The program may have closed one that it looked something up in by a way that we do not see.
        #[cfg(not(proxy))]
        nvml.let_go_of_closed();
        if !nvml.is_bound() && !planted(Seed::R62) && !sign::is_among_proxies() {
            let beside = Library::nvml_beside_cuda();
            let path = beside.and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
            let opened = path.and_then(|path| loader::open(&path, libc::RTLD_LAZY));
            if let Some(handle) = opened {
                nvml.bind_where(&|object| core::ptr::eq(object.map, handle.cast()));
            }
        }
        nvml.bind_any() || loader::open(nvml.soname(), libc::RTLD_LAZY).is_some() && nvml.bind_any()
    }

    /// Whether the bound NVML is another file than the one beside the bound libcuda, where there is one.
    pub fn is_nvml_foreign() -> bool {
        let is_same = |beside: PathBuf| {
            let files = [Some(beside), Library::Nvml.path()];
            let [beside, bound] = files.map(|path| fs::metadata(path?).ok());
            beside.zip(bound).is_some_and(|(beside, bound)| {
                (beside.dev(), beside.ino()) == (bound.dev(), bound.ino())
            })
        };
        let beside = Library::nvml_beside_cuda();
        !planted(Seed::R62) && beside.is_some_and(|beside| !is_same(beside))
    }

    /// Binds the first driver of this name for which `wanted` holds. Answers whether there is one.
    fn bind_where(self, wanted: &dyn Fn(&elf::Object<'_>) -> bool) -> bool {
        let leader = (Library::STANDS_FOR == Some(self))
            .then(|| sign::leader(self.first_hook()))
            .flatten();
        let mut found = false;
        elf::each(&mut |object| {
            found = Library::of(object) == Some(self) && wanted(object);
            if found {
                self.store(object, leader);
            }
            found
        });
        found
    }

    /// A hook that every build exports which has this driver's hooks at all.
    fn first_hook(self) -> &'static CStr {
        (0..HOOKS)
            .find(|hook| library_at(*hook) == self)
            .map_or(c"", name_at)
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
        for entry in (0..ENTRIES).filter(|entry| library_at(*entry) == self) {
            let address = object.symbol(name_at(entry)).unwrap_or(0);
            NEXT[entry].store(address, Ordering::Release);
            if entry < HOOKS && address != 0 {
                enter(address, entry as u16 + 1);
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
            for (entry, next) in NEXT.iter().enumerate().take(HOOKS) {
                if library_at(entry) == self && next.load(Ordering::Relaxed) != 0 {
                    let address = object.symbol(name_at(entry)).unwrap_or(0);
                    next.store(address, Ordering::Release);
                }
            }
            true
        });
    }
}

/// The last part of a path, with its NUL.
fn file_name(path: &CStr) -> &[u8] {
    let bytes = path.to_bytes_with_nul();
    let folder = bytes.iter().rposition(|byte| *byte == b'/');
    folder.map_or(bytes, |slash| &bytes[slash + 1..])
}

/// Puts a hook where its address is searched. Threads that race enter the same.
fn enter(address: usize, number: u16) {
    for place in places(address) {
        for free in [0, LEFT] {
            match place.compare_exchange(free, number, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) if other == number => return,
                Err(_) => {}
            }
        }
    }
}
