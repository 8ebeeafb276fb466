//! What a program's own objects have under a driver's names: libraries that look the driver up themselves have pointers called `cuInit`, `cuMemAlloc_v2` …
//! (C13 of `fixtures/defects.txt`), shims, stubs and test doubles have functions of these names, and objects refer weakly to what no driver has.
//! The loader binds all references to those names to our exports, which stand before them: writing such a pointer would be writing our text, and a call
//! would pass a shim by. So a reference that means another object's definition, were we not there, is bound to that; one that means a driver's stays ours;
//! a weak one that means nobody's is NULL.
//!
//! And what is opened with RTLD_DEEPBIND finds its own needs before us: a driver's functions and libc's look-ups that it is bound to are exchanged for ours
//! (R8).
//!
//! This is done for the objects that a program begins with at our constructor, and for those that it opens later at the first look-up of any name after
//! that. What such a later object does before (its constructors, or a thread that is in its code already) is not covered; the proxies have no such limit.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use seeds::{Seed, planted};

use super::drivers::Library;
use super::elf::{self, Object, Relocation};
use super::entries::{self, HOOKS};
use super::lookup::{self, MOST, References};
use super::{loader, sign};

/// The objects that were looked at, in the loader's order, by their entries there. Used with the loader's lock held.
struct Seen {
    count: AtomicUsize,
    maps: [AtomicUsize; MOST],
}

static SEEN: Seen = Seen {
    count: AtomicUsize::new(0),
    maps: [const { AtomicUsize::new(0) }; MOST],
};

/// By hook: an object that is no driver has a definition of its name. Used with the loader's lock held.
static DEFINED: [AtomicBool; HOOKS] = [const { AtomicBool::new(false) }; HOOKS];

/// Binds what objects that have come meanwhile refer to, and forgets those that are gone: another may come to lie where one was. Before this library's
/// constructor has run it does nothing.
pub fn rebind() {
    if loader::started() != 0 && !planted(Seed::C13) {
        loader::locked(&mut rebind_locked);
    }
}

fn rebind_locked() {
    if !loader::is_at_rest() {
        return;
    }
    // What comes stands behind the others: those that were seen and are still there come first.
    let (mut loaded, mut left) = (0, 0..SEEN.count.load(Ordering::Relaxed));
    let mut first = None;
    elf::each_map(&mut |map| {
        let entry = core::ptr::from_ref(map) as usize;
        let is_seen = left.any(|at| SEEN.maps[at].load(Ordering::Relaxed) == entry);
        // A dlopen whose malloc is the program's, which looks names up: the rest is for the next look (attack 27).
        // SAFETY: an entry of the loader's, whose lock is held.
        let is_ready = || unsafe { Object::of(map) }.is_none_or(|object| object.is_relocated());
        if !is_seen && !is_ready() {
            return true;
        }
        if !is_seen && first.is_none() {
            first = Some(loaded);
        }
        SEEN.maps[loaded].store(entry, Ordering::Relaxed);
        loaded += 1;
        loaded == MOST
    });
    SEEN.count.store(loaded, Ordering::Relaxed);
    if let Some(first) = first {
        bind_from(first, loaded);
    }
}

/// Looks at the objects from this one on, up to this one.
fn bind_from(first: usize, end: usize) {
    References::with(first, &mut |references| {
        let end = references.count().min(end);
        let mut any_defined = false;
        for at in first..end {
            if let Some(object) = references.object(at).filter(is_a_programs) {
                any_defined |= note_definitions(&object);
            }
        }
        for at in first..end {
            let defines_any = |object: &Object<'_>| (0..HOOKS).any(|hook| defines(object, hook));
            let refers = |object: &Object<'_>| {
                object.may_refer(&is_meant) || any_defined && defines_any(object)
            };
            let object = references.object(at).filter(is_a_programs).filter(refers);
            if let Some(object) = object {
                object.relocations(&mut |relocation| {
                    bind_deeply(at, &object, relocation);
                    bind(references, at, &object, relocation);
                });
            }
        }
    });
}

fn is_meant(name: &CStr) -> bool {
    lookup::own(name).is_some() || entries::exported(name).is_some()
}

fn is_a_programs(object: &Object<'_>) -> bool {
    Library::of(object).is_none() && !sign::is_ours(object)
}

fn defines(object: &Object<'_>, hook: usize) -> bool {
    object.exports_hashed(entries::name_at(hook), entries::hash_at(hook))
}

/// Answers whether it defines any.
fn note_definitions(object: &Object<'_>) -> bool {
    let mut any = false;
    for (hook, is_defined) in DEFINED.iter().enumerate() {
        if defines(object, hook) {
            is_defined.store(true, Ordering::Relaxed);
            any = true;
        }
    }
    any
}

/// Binds one place of what was opened later to ours, if the loader has bound it to what stands behind us: a driver's function, or libc's look-up. One that is
/// yet to be bound is bound at once, where everybody else means ours.
fn bind_deeply(at: usize, object: &Object<'_>, relocation: &Relocation<'_>) {
    if at < loader::started() || relocation.copies || planted(Seed::R8) {
        return;
    }
    let word = elf::word(relocation.place).wrapping_sub(relocation.addend);
    let (own, stands_behind) = match lookup::own(relocation.name) {
        Some((look_up, own)) => (own, look_up.last() == Some(word)),
        None => {
            let Some(entry) = entries::exported(relocation.name) else {
                return;
            };
            let own = entries::export_address(entry);
            let driver = lookup::driver_at(word).filter(|_| word != own);
            let of = entries::library(entry);
            (
                own,
                driver.is_some_and(|(library, base)| library == of && of.bind(base)),
            )
        }
    };
    let is_to_come = || is_unbound(object, relocation, word) && is_first(relocation.name, own);
    if stands_behind || is_to_come() {
        object.store(relocation.place, own.wrapping_add(relocation.addend));
    }
}

/// Whether the loader is yet to bind a place: a call goes there by way of the object's own text, and not to a definition of its own.
fn is_unbound(object: &Object<'_>, relocation: &Relocation<'_>, word: usize) -> bool {
    relocation.is_called
        && object.is(loader::map_at(word))
        && object.symbol(relocation.name) != Some(word)
}

/// Whether ours is the first of its name, which the loader would find.
fn is_first(name: &CStr, own: usize) -> bool {
    loader::own_symbol(core::ptr::null_mut(), name) == Some(own)
}

/// Binds one place to what it means, if the loader has bound it to our export of that name, or is yet to.
fn bind(
    references: &mut References<'_>,
    at: usize,
    object: &Object<'_>,
    relocation: &Relocation<'_>,
) {
    let Some(entry) = entries::exported(relocation.name) else {
        return;
    };
    let is_defined = DEFINED[entry as usize].load(Ordering::Relaxed);
    let may_be_none = relocation.is_weak && !relocation.is_called && !relocation.copies;
    if !is_defined && !may_be_none {
        return;
    }
    let (export, word) = (entries::export_address(entry), elf::word(relocation.place));
    let Some((definer, definition)) = references.meant(at, relocation.name) else {
        if may_be_none && word == export.wrapping_add(relocation.addend) {
            object.store(relocation.place, relocation.addend);
        }
        return;
    };
    let is_own = definer.is(Some(object.map));
    let is_data = definer.data(relocation.name).is_some();
    if !is_a_programs(&definer) || is_data && !relocation.may_be_data && !is_own {
        return;
    }
    if relocation.copies {
        // The program has it, with what lies at the beginning of our function in it.
        if is_data && word == elf::word(export) {
            object.store(relocation.place, elf::word(definition));
        }
        return;
    }
    let meant = definition.wrapping_add(relocation.addend);
    let is_ours = word == export.wrapping_add(relocation.addend);
    if word != meant && (is_ours || is_unbound(object, relocation, word)) {
        if !is_own {
            references.keep(&definer);
        }
        object.store(relocation.place, meant);
    }
}
