//! `dlsym` and `dlvsym`: what a name means to the caller, with the drivers' functions exchanged for our hooks.
//!
//! The entries are naked: whatever is none of our business is a jump to the real function, which then sees the true caller (S4).
//! Until a name of our table is asked for nothing here allocates, locks or touches thread-local storage.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use seeds::{Seed, planted};

use super::drivers::Library;
use super::elf::LinkMap;
use super::entries::{self, Entry};
use super::{elf, loader, precede, rebind};
use crate::context;
use crate::nvml;
use crate::process::{Standing, standing};
use crate::report::{self, Once};
use crate::scope::{Objects, Scope};
use crate::variants;

const RTLD_DEFAULT: usize = 0;
const RTLD_NEXT: usize = usize::MAX;

/// What an entry does: jump to `target` with the arguments untouched, or, if that is 0, return `answer`.
#[repr(C)]
pub struct Decision {
    target: usize,
    answer: usize,
}

impl Decision {
    fn answer(answer: usize) -> Decision {
        Decision { target: 0, answer }
    }
}

/// At this library's constructor.
pub fn begin() {
    // Before: what an object's own data stand for is bound to our exports then, as it is where no driver precedes us.
    precede::take_over();
    Library::Cuda.bind_started();
    Library::Nvml.bind_started();
    rebind::rebind();
    if Library::Cuda.is_bound() {
        context::is_at_hand();
    }
    if planted(Seed::S5) && loader::open(c"libcuda.so.1", libc::RTLD_LAZY).is_none() {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(127) };
    }
}

/// # Safety
/// Called by the naked entry with the caller's own arguments of `dlsym` and its return address.
unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> Decision {
    let Some(real) = behind(&loader::DLSYM, caller) else {
        return Decision::answer(0);
    };
    let forward = Decision {
        target: real,
        answer: 0,
    };
    let special = matches!(handle as usize, RTLD_NEXT | RTLD_DEFAULT);
    if name.is_null() {
        return forward;
    }
    // SAFETY: a non-null name is a C string by dlsym's contract.
    let name = unsafe { CStr::from_ptr(name) };
    note_use(name);
    let Some(entry) = entries::exported(name) else {
        if planted(Seed::S3) && name.to_bytes().starts_with(b"cu") {
            return Decision::answer(0);
        }
        if planted(Seed::S4) && special {
            return Decision::answer(loader::symbol(real, handle, name).unwrap_or(0));
        }
        if is_ours(name) {
            if special {
                return own_in_scope(handle, name, caller, None).map_or(forward, Decision::answer);
            }
            let found = loader::symbol(real, handle, name).unwrap_or(0);
            return Decision::answer(own_or(found));
        }
        if entries::is_unknown_variant(name) {
            let found = match special {
                true => in_scope(handle as usize == RTLD_NEXT, name, Some(caller))
                    .map(|found| found.definition),
                false => loader::symbol(real, handle, name),
            };
            return if is_withheld(found.unwrap_or(0), name) {
                Decision::answer(0)
            } else {
                forward
            };
        }
        return forward;
    };
    if special && planted(Seed::R8) {
        return forward;
    }
    if special {
        return Decision::answer(decide(
            handle as usize == RTLD_NEXT,
            entry,
            name,
            Some(caller),
        ));
    }
    Decision::answer(exchange(
        handle,
        entry,
        name,
        loader::symbol(real, handle, name).unwrap_or(0),
        caller,
    ))
}

/// # Safety
/// As `decide_dlsym`, for `dlvsym`. The drivers' symbols have no versions, so a version changes nothing about them.
unsafe extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Decision {
    let Some(real) = behind(&loader::DLVSYM, caller) else {
        return Decision::answer(0);
    };
    let forward = Decision {
        target: real,
        answer: 0,
    };
    if name.is_null() {
        return forward;
    }
    // SAFETY: as in `decide_dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    note_use(name);
    let special = matches!(handle as usize, RTLD_NEXT | RTLD_DEFAULT);
    let entry = entries::exported(name);
    let own = is_ours(name);
    if special {
        return match entry {
            None if own => {
                let by = Some((real, version));
                own_in_scope(handle, name, caller, by).map_or(forward, Decision::answer)
            }
            Some(entry) => Decision::answer(decide(
                handle as usize == RTLD_NEXT,
                entry,
                name,
                Some(caller),
            )),
            None if entries::is_unknown_variant(name) => {
                let found = in_scope(handle as usize == RTLD_NEXT, name, Some(caller));
                match is_withheld(found.map_or(0, |found| found.definition), name) {
                    true => Decision::answer(0),
                    false => forward,
                }
            }
            None => forward,
        };
    }
    let unknown = entry.is_none() && !own && entries::is_unknown_variant(name);
    if entry.is_none() && !own && !unknown {
        return forward;
    }
    // SAFETY: the real dlvsym with the caller's own arguments.
    let found = unsafe {
        core::mem::transmute::<usize, loader::DlVSym>(real)(handle, name.as_ptr(), version)
    } as usize;
    Decision::answer(match entry {
        Some(entry) => exchange(handle, entry, name, found, caller),
        None if unknown && is_withheld(found, name) => 0,
        None => own_or(found),
    })
}

/// Whether what was found under the name of an unknown version is a driver's, and is not to be had. Then the loader has said that there is none.
fn is_withheld(found: usize, name: &CStr) -> bool {
    let withheld = found != 0 && driver_at(found).is_some() && variants::is_withheld(name);
    if withheld {
        loader::fail(name);
    }
    withheld
}

/// The driver that an address lies in, and its base.
pub fn driver_at(address: usize) -> Option<(Library, usize)> {
    let mut driver = None;
    loader::locked(&mut || {
        // SAFETY: an entry of the loader's, whose lock is held.
        let object = loader::map_at(address).and_then(|map| unsafe { elf::Object::of(&*map) });
        driver = object.and_then(|object| Some((Library::of(&object)?, object.base)));
    });
    driver
}

/// Whoever looks up a name of NVML's is going to call it, and counts on its own inits; and whoever looks up any may be about to call what it has opened.
fn note_use(name: &CStr) {
    if begins(name, b"nvml") {
        nvml::is_asked_for();
    }
    rebind::rebind();
}

/// Byte by byte: most names end the comparison at the first, and the length of none has to be known.
fn begins(name: &CStr, with: &[u8]) -> bool {
    let mut each = with.iter().enumerate();
    // SAFETY: each byte is read only where those before it were not the string's end.
    each.all(|(at, byte)| unsafe { name.as_ptr().add(at).read() } as u8 == *byte)
}

fn is_ours(name: &CStr) -> bool {
    own(name).is_some()
}

/// Of libc's functions that we stand before, by name: libc's and our own.
pub fn own(name: &CStr) -> Option<(&'static loader::LookUp, usize)> {
    if name == c"dlsym" {
        Some((&loader::DLSYM, dlsym as *const () as usize))
    } else if name == c"dlvsym" {
        Some((&loader::DLVSYM, dlvsym as *const () as usize))
    } else if name == c"dlclose" {
        Some((&loader::DLCLOSE, dlclose as *const () as usize))
    } else {
        None
    }
}

/// An explicit look-up of libc's dlsym or dlclose itself answers ours, which behaves the same.
fn own_or(found: usize) -> usize {
    let names = [c"dlsym", c"dlvsym", c"dlclose"];
    let mut ours = names.into_iter().filter_map(own);
    ours.find(|(libcs, _)| libcs.is(found))
        .map_or(found, |(_, ours)| ours)
}

/// Ours, where RTLD_NEXT or RTLD_DEFAULT means libc's: what stands behind us, as every library does, finds libc's by RTLD_NEXT, and a version passes our
/// export by, which has none (R49 of `fixtures/defects.txt`). `by` is a dlvsym and the version that is wanted; one that there is not is the loader's to refuse.
fn own_in_scope(
    handle: *mut c_void,
    name: &CStr,
    caller: usize,
    by: Option<(usize, *const c_char)>,
) -> Option<usize> {
    if planted(Seed::R49) {
        return None;
    }
    let found = in_scope(handle as usize == RTLD_NEXT, name, Some(caller))?.definition;
    let found = match by {
        None => found,
        // Of a version, which a program's own look-up of that name need not have: looked up as from here.
        Some((dlvsym, version)) => {
            // SAFETY: a dlvsym and the caller's handle and version.
            let found = unsafe {
                core::mem::transmute::<usize, loader::DlVSym>(dlvsym)(
                    handle,
                    name.as_ptr(),
                    version,
                )
            };
            if found.is_null() {
                loader::forget_error();
                return None;
            }
            found as usize
        }
    };
    let own = own_or(found);
    (own != found).then_some(own)
}

/// The look-up that the caller's goes on to: the next behind us. A library that has one of its own there calls ours for the one behind itself, and goes
/// on to libc's.
fn behind(look_up: &loader::LookUp, caller: usize) -> Option<usize> {
    let (next, last) = (look_up.next()?, look_up.last()?);
    if next == last {
        return Some(next);
    }
    let mut has_its_own = false;
    loader::locked(&mut || {
        // SAFETY: an entry of the loader's, whose lock is held.
        let object = loader::map_at(caller).and_then(|map| unsafe { elf::Object::of(&*map) });
        has_its_own = object.is_some_and(|object| object.exports_name(look_up.name()));
    });
    Some(if has_its_own { last } else { next })
}

/// The real answer to a look-up by handle, exchanged if it is the bound driver's function.
fn exchange(handle: *mut c_void, entry: Entry, name: &CStr, found: usize, caller: usize) -> usize {
    if found == 0 {
        return if planted(Seed::S2) {
            entries::export_address(entry)
        } else {
            0
        };
    }
    let hook = entries::export_address(entry);
    if found == hook {
        // The handle's scope begins with the program and us. Who opened us by name asks for us, everyone else for what lies behind; and a library
        // between us and libc that has a dlsym of its own has asked us for it.
        return if is_ourselves(handle) || loader::own_symbol(handle, name) != Some(hook) {
            hook
        } else {
            decide(false, entry, name, None)
        };
    }
    let library = entries::library(entry);
    if !library.is_bound() || library.is_loose() && library.next(entry) != found {
        match driver_at(found) {
            Some((of, base)) if of == library => library.bind(base),
            _ => return found,
        };
    }
    if library.next(entry) == found {
        entries::answer(entry, found)
    } else {
        unless_of_a_second_driver(name, found, Some(caller))
    }
}

/// A function that has a hook's name and is not what the hook calls. In an object that is a driver by its name it would be a way past the hook (R40 of
/// `fixtures/defects.txt`): one driver of a name is hooked, and no other is to be had under a budget. The loader has said then that there is none.
/// The hooked one itself may look behind itself: a recorder or a shim has a driver's name, and calls the driver in its turn.
fn unless_of_a_second_driver(name: &CStr, found: usize, caller: Option<usize>) -> usize {
    let is_hooked =
        |driver: Option<(Library, usize)>| driver.is_some_and(|(library, base)| library.bind(base));
    let driver = driver_at(found);
    if driver.is_none()
        || is_hooked(driver)
        || caller.is_some_and(|caller| is_hooked(driver_at(caller)))
        || planted(Seed::R40)
        || matches!(standing(), Standing::Forward)
    {
        return found;
    }
    let mut path = [0; 512];
    report::once(
        Once::SecondDriver,
        format_args!(
            "{}: a second driver of this name in one process; its {} is answered as not found",
            path_of(found, &mut path),
            name.to_str().unwrap_or("functions"),
        ),
    );
    loader::fail(name);
    0
}

/// The path of the object that an address lies in, as far as there is room for it.
fn path_of(address: usize, room: &mut [u8; 512]) -> &str {
    let mut length = 0;
    loader::locked(&mut || {
        // SAFETY: an entry of the loader's, whose lock is held.
        let path = loader::map_at(address).map_or(c"", |map| unsafe { (*map).name() });
        length = path.to_bytes().len().min(room.len());
        room[..length].copy_from_slice(&path.to_bytes()[..length]);
    });
    core::str::from_utf8(&room[..length]).unwrap_or("a library")
}

/// The loader's handles are pointers to its entries.
fn is_ourselves(handle: *mut c_void) -> bool {
    loader::own().is_some_and(|own| core::ptr::eq(own, handle.cast()))
}

/// RTLD_NEXT or RTLD_DEFAULT for a name of our table: our hook if the driver is meant, another object's definition, or nothing.
fn decide(next: bool, entry: Entry, name: &CStr, caller: Option<usize>) -> usize {
    let Some(found) = in_scope(next, name, caller) else {
        loader::fail(name);
        return 0;
    };
    if entries::library(entry).bind(found.base) {
        entries::answer(entry, found.definition)
    } else {
        unless_of_a_second_driver(name, found.definition, caller)
    }
}

/// What RTLD_NEXT or RTLD_DEFAULT means.
#[derive(Clone, Copy)]
struct Found {
    base: usize,
    definition: usize,
}

/// The definition of a name that RTLD_NEXT or RTLD_DEFAULT means, were we not there. Nothing is allocated on the way: a program's malloc may fail, or
/// be waiting for the loader.
fn in_scope(next: bool, name: &CStr, caller: Option<usize>) -> Option<Found> {
    let mut found = None;
    loader::locked(&mut || {
        Tables::with(&mut |tables| {
            let view = Loaded::list(&mut tables.rows, name);
            let caller = caller.and_then(|caller| view.index_of(loader::map_at(caller)));
            let mut scope = Scope {
                objects: &view,
                started: match loader::started() {
                    0 => view.rows.len(),
                    started => started.min(view.rows.len()),
                },
                order: &mut tables.order,
            };
            let at = match (next, caller) {
                (true, Some(caller)) => scope.next(caller),
                (true, None) => None,
                (false, caller) => scope.default(caller),
            };
            found = at.and_then(|at| {
                Some(Found {
                    base: view.object(at)?.base,
                    definition: view.definition(at)?,
                })
            });
        });
        loader::forget_error();
    });
    found
}

/// As many objects are looked through; what is loaded behind them is not seen. What a process has not is room that no page stands for.
pub const MOST: usize = 1 << 15;

#[derive(Clone, Copy)]
struct Row {
    map: *const LinkMap,
    soname: Option<&'static CStr>,
}

/// Room for a look-up. Zeros are what it begins with.
struct Tables {
    rows: [Row; MOST],
    order: [u16; MOST],
    bringers: [u16; MOST],
}

/// The room, and which thread has it. Another thread than the one that asks cannot: who has it holds the loader's lock, or did so in the parent when
/// this process was forked.
struct Room {
    owner: AtomicUsize,
    tables: UnsafeCell<MaybeUninit<Tables>>,
}

// SAFETY: used by who holds the loader's lock alone, one look-up at a time: `Tables::with`.
unsafe impl Sync for Room {}

static ROOM: Room = Room {
    owner: AtomicUsize::new(0),
    tables: UnsafeCell::new(MaybeUninit::zeroed()),
};

impl Tables {
    /// Works with the room. A signal's handler that interrupts this very thread at it gets some of the kernel's, or goes without.
    fn with(work: &mut dyn FnMut(&mut Tables)) {
        let me = loader::thread();
        if ROOM.owner.load(Ordering::Relaxed) != me {
            ROOM.owner.store(me, Ordering::Relaxed);
            // SAFETY: nobody else has it, as said above; zeros are a valid value, and so is what was left in it.
            work(unsafe { (*ROOM.tables.get()).assume_init_mut() });
            ROOM.owner.store(0, Ordering::Relaxed);
            return;
        }
        // SAFETY: new pages of zeros, given back below.
        let pages = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size_of::<Tables>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if pages != libc::MAP_FAILED {
            // SAFETY: as above; long enough, and zeros are a valid value.
            unsafe {
                work(&mut *pages.cast());
                libc::munmap(pages, size_of::<Tables>());
            }
        }
    }
}

/// The objects that there are, as far as a look-up of one name is concerned. Valid while the loader's lock is held.
struct Loaded<'a> {
    rows: &'a [Row],
    name: &'a CStr,
    /// The object of the first definition behind us that the loader sees.
    behind: Option<*const LinkMap>,
}

/// Fills a row for each object, of those too that have no symbols. Answers how many there are.
fn list(rows: &mut [Row]) -> usize {
    let mut count = 0;
    elf::each_map(&mut |map| {
        // SAFETY: it is used while the loader's lock is held alone.
        let soname = unsafe {
            let object = elf::Object::of(map);
            let soname = object.and_then(|object| object.soname());
            core::mem::transmute::<Option<&CStr>, Option<&'static CStr>>(soname)
        };
        rows[count] = Row { map, soname };
        count += 1;
        count == rows.len()
    });
    count
}

/// What objects' own references mean, were we not there. Valid while the loader's lock is held.
pub struct References<'a> {
    rows: &'a [Row],
    order: &'a mut [u16],
    bringers: &'a mut [u16],
    /// What is opened from this object on brings what it needs with it.
    first: usize,
    /// The object that was opened last of those that were asked for, and how many of `order` it brought.
    opened: Option<(usize, usize)>,
    /// The object that was kept last.
    kept: *const LinkMap,
}

impl References<'_> {
    /// Works with them. The loader's lock is held.
    pub fn with(first: usize, work: &mut dyn FnMut(&mut References<'_>)) {
        Tables::with(&mut |tables| {
            let count = list(&mut tables.rows);
            work(&mut References {
                rows: &tables.rows[..count],
                order: &mut tables.order,
                bringers: &mut tables.bringers,
                first: first.max(loader::started()),
                opened: None,
                kept: core::ptr::null(),
            });
        });
        loader::forget_error();
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    pub fn object(&self, at: usize) -> Option<elf::Object<'static>> {
        // SAFETY: the loader's entries, whose lock is held.
        unsafe { elf::Object::of(&*self.rows[at].map) }
    }

    /// What this object's reference to a name means: the object that defines it, and the address.
    pub fn meant(&mut self, at: usize, name: &CStr) -> Option<(elf::Object<'static>, usize)> {
        // A driver that stands before us leads here by itself.
        let own = loader::own().map_or(core::ptr::null(), core::ptr::from_ref);
        let before = self.rows.iter().take_while(|row| row.map != own);
        // SAFETY: as in `object`.
        let mut before = before.filter_map(|row| unsafe { elf::Object::of(&*row.map) });
        let driver =
            before.find(|object| Library::of(object).is_some() && object.exports_name(name));
        if let Some(driver) = driver {
            return Some((driver, driver.symbol(name)?));
        }
        if let Some(global) = loader::own_symbol(RTLD_NEXT as *mut c_void, name) {
            let map = loader::map_at(global)?;
            // SAFETY: as in `object`.
            return Some((unsafe { elf::Object::of(&*map) }?, global));
        }
        let members = self.opened_with(at);
        self.order[..members].iter().find_map(|at| {
            let object = self.object(usize::from(*at))?;
            Some((object, object.symbol(name)?))
        })
    }

    /// The objects that this one was opened with, into `order`: how many.
    fn opened_with(&mut self, at: usize) -> usize {
        let view = Loaded {
            rows: self.rows,
            name: c"",
            behind: None,
        };
        let mut scope = Scope {
            objects: &view,
            started: loader::started(),
            order: &mut *self.order,
        };
        if self.opened.is_none() {
            scope.bringers(self.first, self.bringers);
        }
        let bringer = usize::from(self.bringers[at]);
        let members = match self.opened {
            Some((opened, members)) if opened == bringer => members,
            _ if bringer < self.rows.len() => scope.closure(bringer),
            _ => 0,
        };
        self.opened = Some((bringer, members));
        members
    }

    /// Something is bound to an object that the loader knows no dependency on: it is never unmapped.
    pub fn keep(&mut self, object: &elf::Object<'_>) {
        if !core::ptr::eq(self.kept, object.map) {
            self.kept = object.map;
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            loader::open(object.map.name(), flags);
        }
    }
}

impl<'a> Loaded<'a> {
    fn list(rows: &'a mut [Row], name: &'a CStr) -> Loaded<'a> {
        let count = list(rows);
        let behind = loader::own_symbol(RTLD_NEXT as *mut c_void, name);
        Loaded {
            rows: &rows[..count],
            name,
            behind: behind.and_then(loader::map_at),
        }
    }

    fn index_of(&self, map: Option<*const LinkMap>) -> Option<usize> {
        let map = map?;
        self.rows.iter().position(|row| core::ptr::eq(row.map, map))
    }

    fn object(&self, at: usize) -> Option<elf::Object<'_>> {
        // SAFETY: the loader's entries, whose lock is held.
        unsafe { elf::Object::of(&*self.rows[at].map) }
    }
}

impl Objects for Loaded<'_> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn definition(&self, at: usize) -> Option<usize> {
        self.object(at)?.symbol(self.name)
    }

    /// Of what was opened later the loader is asked: for the name itself as seen from us, who stand before all drivers, or, where another has
    /// the name too, for some other of the object's names.
    fn is_global(&self, at: usize) -> bool {
        const PROBES: usize = 16;
        let Some(object) = self.object(at) else {
            return false;
        };
        if at < loader::started() || loader::started() == 0 || object.is(self.behind) {
            return true;
        }
        object
            .exports()
            .filter(|name| entries::exported(name).is_none())
            .take(PROBES)
            .any(|name| {
                let found = loader::own_symbol(core::ptr::null_mut(), name);
                object.is(found.and_then(loader::map_at))
            })
    }

    fn is_ourselves(&self, at: usize) -> bool {
        loader::own().is_some_and(|own| core::ptr::eq(own, self.rows[at].map))
    }

    fn is_called(&self, at: usize, name: &[u8]) -> bool {
        let row = &self.rows[at];
        if row.soname.is_some_and(|soname| soname.to_bytes() == name) {
            return true;
        }
        // SAFETY: the loader's entries, whose lock is held.
        let path = unsafe { (*row.map).name() }.to_bytes();
        !path.is_empty() && (path == name || path.rsplit(|byte| *byte == b'/').next() == Some(name))
    }

    fn needed(&self, at: usize, visit: &mut dyn FnMut(&[u8])) {
        if let Some(object) = self.object(at) {
            object.needed().for_each(|name| visit(name.to_bytes()));
        }
    }
}

/// Closes a library for `caller`: what is opened next may come to lie where something was.
///
/// # Safety
/// As libc's.
unsafe extern "C" fn close(handle: *mut c_void, caller: usize) -> core::ffi::c_int {
    let Some(real) = behind(&loader::DLCLOSE, caller) else {
        return -1;
    };
    let drivers = [Library::Cuda, Library::Nvml];
    drivers
        .iter()
        .for_each(|driver| driver.is_about_to_be_closed());
    // SAFETY: a dlclose with the caller's own handle.
    let code = unsafe { core::mem::transmute::<usize, loader::DlClose>(real)(handle) };
    // Where it failed the caller's dlerror tells why.
    if code == 0 {
        drivers.iter().for_each(|driver| driver.let_go_of_closed());
        rebind::rebind();
    }
    code
}

/// `dlclose` as the program sees it.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> core::ffi::c_int {
    core::arch::naked_asm!("endbr64", "mov rsi, [rsp]", "jmp {close}", close = sym close)
}

/// `dlclose` as the program sees it.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> core::ffi::c_int {
    // bti c; the caller is the second argument.
    core::arch::naked_asm!("hint #34", "mov x1, x30", "b {close}", close = sym close)
}

/// `dlsym` as the program sees it.
///
/// # Safety
/// As libc's: `handle` is one of the loader's and `name` a C string.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "mov r11, rax",
        "mov rax, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        decide = sym decide_dlsym,
    )
}

/// `dlvsym` as the program sees it.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
        "call {decide}",
        "mov r11, rax",
        "mov rax, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        decide = sym decide_dlvsym,
    )
}

/// `dlsym` as the program sees it.
///
/// # Safety
/// As libc's: `handle` is one of the loader's and `name` a C string.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34", // bti c
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x2, x30",
        "bl {decide}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        decide = sym decide_dlsym,
    )
}

/// `dlvsym` as the program sees it.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34", // bti c
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x3, x30",
        "bl {decide}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        decide = sym decide_dlvsym,
    )
}
