//! `dlsym` and `dlvsym`: what a name means to the caller, with the drivers' functions exchanged for our hooks.
//!
//! The entries are naked: whatever is none of our business is a jump to the real function, which then sees the true caller (S4 of DEFECTS).
//! Until a name of our table is asked for nothing here allocates, locks or touches thread-local storage.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use seeds::{Seed, planted};

use super::drivers::Library;
use super::entries::{self, Entry};
use super::{elf, loader, rebind};
use crate::nvml;
use crate::scope::{Object, Scope};
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

/// Objects that were loaded before the first constructor ran, 0 until then.
static STARTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_start() {
    STARTED.store(count_objects(), Ordering::Relaxed);
    rebind::rebind();
    if planted(Seed::S5) && loader::open(c"libcuda.so.1", libc::RTLD_LAZY).is_none() {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(127) };
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_START: extern "C" fn() = note_start;

fn count_objects() -> usize {
    let mut count = 0;
    elf::each(&mut |_| {
        count += 1;
        false
    });
    count
}

/// # Safety
/// Called by the naked entry with the caller's own arguments of `dlsym` and its return address.
unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> Decision {
    let Some(real) = loader::dlsym() else {
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
            return Decision::answer(loader::symbol(handle, name).unwrap_or(0));
        }
        if !special && (name == c"dlsym" || name == c"dlvsym") {
            return Decision::answer(own_lookup(loader::symbol(handle, name).unwrap_or(0)));
        }
        if entries::is_unknown_variant(name) {
            let found = match special {
                true => in_scope(handle as usize == RTLD_NEXT, name, Some(caller))
                    .and_then(|found| found.definition),
                false => loader::symbol(handle, name),
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
        loader::symbol(handle, name).unwrap_or(0),
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
    let Some(real) = loader::dlvsym() else {
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
    let own = name == c"dlsym" || name == c"dlvsym";
    if special {
        return match entry {
            Some(entry) => Decision::answer(decide(
                handle as usize == RTLD_NEXT,
                entry,
                name,
                Some(caller),
            )),
            None if entries::is_unknown_variant(name) => {
                let found = in_scope(handle as usize == RTLD_NEXT, name, Some(caller));
                match is_withheld(found.and_then(|found| found.definition).unwrap_or(0), name) {
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
        Some(entry) => exchange(handle, entry, name, found),
        None if unknown && is_withheld(found, name) => 0,
        None => own_lookup(found),
    })
}

/// Whether what was found under the name of an unknown version is a driver's, and is not to be had. Then the loader has said that there is none.
fn is_withheld(found: usize, name: &CStr) -> bool {
    let mut of_driver = false;
    elf::each(&mut |object| {
        let holds = found != 0 && object.contains(found);
        of_driver |= holds && Library::of(object).is_some();
        holds
    });
    let withheld = of_driver && variants::is_withheld(name);
    if withheld {
        loader::fail(name);
    }
    withheld
}

/// Whoever looks up a name of NVML's is going to call it, and counts on its own inits; and whoever looks up one of a driver's may be about to write
/// it to data of that name.
fn note_use(name: &CStr) {
    let is_nvml = begins(name, b"nvml");
    if is_nvml {
        nvml::is_asked_for();
    }
    if is_nvml || begins(name, b"cu") {
        rebind::rebind();
    }
}

/// Byte by byte: most names end the comparison at the first, and the length of none has to be known.
fn begins(name: &CStr, with: &[u8]) -> bool {
    let mut each = with.iter().enumerate();
    // SAFETY: each byte is read only where those before it were not the string's end.
    each.all(|(at, byte)| unsafe { name.as_ptr().add(at).read() } as u8 == *byte)
}

/// An explicit look-up of dlsym itself answers ours, which behaves the same.
fn own_lookup(found: usize) -> usize {
    match found {
        0 => 0,
        found if Some(found) == loader::dlsym() => dlsym as *const () as usize,
        found if Some(found) == loader::dlvsym() => dlvsym as *const () as usize,
        found => found,
    }
}

/// The real answer to a look-up by handle, exchanged if it is the bound driver's function.
fn exchange(handle: *mut c_void, entry: Entry, name: &CStr, found: usize) -> usize {
    if found == 0 {
        return if planted(Seed::S2) {
            entries::export_address(entry)
        } else {
            0
        };
    }
    let hook = entries::export_address(entry);
    if found == hook {
        // The handle's scope begins with the program and us. Who opened us by name asks for us, everyone else for what lies behind.
        return if is_ourselves(handle) {
            hook
        } else {
            decide(false, entry, name, None)
        };
    }
    let library = entries::library(entry);
    if !library.is_bound() {
        let mut driver = None;
        elf::each(&mut |object| {
            let found = object.contains(found);
            if found && Library::of(object) == Some(library) {
                driver = Some(object.base);
            }
            found
        });
        if driver.is_none_or(|base| !library.bind(base)) {
            return found;
        }
    }
    if library.next(entry) == found {
        entries::answer(entry, found)
    } else {
        found
    }
}

fn is_ourselves(handle: *mut c_void) -> bool {
    // SAFETY: the loader just accepted the handle, and its handles are `struct link_map` pointers, whose first public field is the base address.
    let base = unsafe { *handle.cast::<usize>() };
    let mut ours = 0;
    elf::each(&mut |object| {
        let found = object.contains(note_start as *const () as usize);
        if found {
            ours = object.base;
        }
        found
    });
    base == ours
}

/// RTLD_NEXT or RTLD_DEFAULT for a name of our table: our hook if the driver is meant, another object's definition, or nothing.
fn decide(next: bool, entry: Entry, name: &CStr, caller: Option<usize>) -> usize {
    let Some(found) = in_scope(next, name, caller) else {
        loader::fail(name);
        return 0;
    };
    let library = entries::library(entry);
    let is_driver = library.bind(found.base);
    let definition = found.definition.unwrap_or(0);
    if is_driver {
        entries::answer(entry, definition)
    } else {
        definition
    }
}

/// The object whose definition of a name RTLD_NEXT or RTLD_DEFAULT means.
fn in_scope(next: bool, name: &CStr, caller: Option<usize>) -> Option<Object> {
    let (objects, caller, probes) = survey(name, caller);
    let mut objects = objects;
    let started = match STARTED.load(Ordering::Relaxed) {
        0 => objects.len(),
        started => started.min(objects.len()),
    };
    for (at, object) in objects.iter_mut().enumerate() {
        object.global = at < started || probes[at].iter().any(|probe| probe.is_visible());
    }
    loader::forget_error();
    let scope = Scope {
        objects: &objects,
        started,
    };
    match (next, caller) {
        (true, Some(caller)) => scope.next(caller),
        (true, None) => None,
        (false, caller) => scope.default(caller),
    }
    .cloned()
}

/// A function of a later object, to ask the loader whether everybody sees that object.
struct Probe {
    name: std::ffi::CString,
    range: core::ops::Range<usize>,
}

impl Probe {
    fn is_visible(&self) -> bool {
        loader::symbol(core::ptr::null_mut(), &self.name)
            .is_some_and(|found| self.range.contains(&found))
    }
}

/// All objects, which of them the caller is, and probes for those that define the name. Nothing is asked of the loader while it lists them.
fn survey(name: &CStr, caller: Option<usize>) -> (Vec<Object>, Option<usize>, Vec<Vec<Probe>>) {
    const PROBES: usize = 16;
    let (mut objects, mut probes, mut at) = (Vec::new(), Vec::new(), None);
    let started = STARTED.load(Ordering::Relaxed);
    elf::each(&mut |object| {
        if caller.is_some_and(|caller| object.contains(caller)) {
            at = Some(objects.len());
        }
        let definition = object.symbol(name);
        let ask = definition.is_some() && started != 0 && objects.len() >= started;
        probes.push(if ask {
            object
                .exports()
                .filter(|name| entries::exported(name).is_none())
                .take(PROBES)
                .map(|name| Probe {
                    name: name.to_owned(),
                    range: object.range(),
                })
                .collect()
        } else {
            Vec::new()
        });
        objects.push(Object {
            base: object.base,
            path: object.name().to_bytes().to_vec(),
            soname: object
                .soname()
                .map(|name| name.to_bytes().to_vec())
                .unwrap_or_default(),
            needed: object
                .needed()
                .map(|name| name.to_bytes().to_vec())
                .collect(),
            definition,
            global: false,
            ourselves: object.contains(note_start as *const () as usize),
        });
        false
    });
    (objects, at, probes)
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
