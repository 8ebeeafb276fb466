//! What a program's own objects have under a driver's names: libraries that look the driver up themselves have pointers called `cuInit`, `cuMemAlloc_v2` …
//! (C13 of `fixtures/defects.txt`), shims, stubs and test doubles have functions of these names, and objects refer weakly to what no driver has (attack 26).
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
use super::elf::{self, LinkMap, Object, Relocation};
use super::entries::{self, HOOKS};
use super::lookup::{self, References};
use super::{loader, sign};

/// The objects that there were at the last look. Used with the loader's lock held.
struct Seen {
    count: AtomicUsize,
    /// Of which objects they were; 0, as of none, before the first look.
    print: AtomicUsize,
}

static SEEN: Seen = Seen {
    count: AtomicUsize::new(0),
    print: AtomicUsize::new(0),
};

/// By hook: an object that is no driver has a definition of its name. Used with the loader's lock held, as is what follows.
static DEFINED: [AtomicBool; HOOKS] = [const { AtomicBool::new(false) }; HOOKS];
static ANY_DEFINED: AtomicBool = AtomicBool::new(false);

/// A place of an object that was bound anew, and what it was bound to. Objects come back at the same addresses when they are closed and opened again, and
/// then their places are as the loader left them.
struct Restored {
    dynamic: AtomicUsize,
    place: AtomicUsize,
    word: AtomicUsize,
}

/// One for each object. Where there are more, the others that come back so stay as the loader left them.
static RESTORED: [Restored; 256] = [const {
    Restored {
        dynamic: AtomicUsize::new(0),
        place: AtomicUsize::new(0),
        word: AtomicUsize::new(0),
    }
}; 256];

impl Restored {
    fn keep(object: &Object<'_>, place: usize, word: usize) {
        let dynamic = object.map.dynamic() as usize;
        let is_its = |row: &&Restored| [0, dynamic].contains(&row.dynamic.load(Ordering::Relaxed));
        if let Some(row) = RESTORED.iter().find(is_its) {
            row.place.store(place, Ordering::Relaxed);
            row.word.store(word, Ordering::Relaxed);
            row.dynamic.store(dynamic, Ordering::Relaxed);
        }
    }

    fn kept() -> impl Iterator<Item = &'static Restored> {
        let is_used = |row: &&Restored| row.dynamic.load(Ordering::Relaxed) != 0;
        RESTORED.iter().take_while(is_used)
    }

    /// Whether nothing that was bound anew is as the loader left it. All its objects are loaded.
    fn are_intact() -> bool {
        Restored::kept().all(|row| {
            elf::word(row.place.load(Ordering::Relaxed)) == row.word.load(Ordering::Relaxed)
        })
    }

    fn forget() {
        Restored::kept().for_each(|row| row.dynamic.store(0, Ordering::Relaxed));
    }
}

/// A set of loaded objects in their order. Another set is another print, but for chance.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Objects {
    count: usize,
    print: usize,
}

impl Objects {
    const NONE: Objects = Objects { count: 0, print: 1 };

    fn add(&mut self, map: &LinkMap) {
        let fold = |print: usize, word: usize| {
            print.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word
        };
        let print = fold(self.print, core::ptr::from_ref(map) as usize);
        self.print = fold(print, map.dynamic() as usize);
        self.count += 1;
    }

    fn seen() -> Objects {
        Objects {
            count: SEEN.count.load(Ordering::Relaxed),
            print: SEEN.print.load(Ordering::Relaxed),
        }
    }

    fn are_seen(self) {
        SEEN.count.store(self.count, Ordering::Relaxed);
        SEEN.print.store(self.print, Ordering::Relaxed);
    }
}

/// Binds what objects that have come meanwhile refer to. Before this library's constructor has run it does nothing.
pub fn rebind() {
    if loader::started() != 0 && !planted(Seed::C13) {
        loader::locked(&mut rebind_locked);
    }
}

fn rebind_locked() {
    let seen = Objects::seen();
    // The list's entries alone: a process may have a thousand objects, and looks up hundreds of names.
    let (mut loaded, mut before) = (Objects::NONE, Objects::NONE);
    elf::each_map(&mut |map| {
        loaded.add(map);
        if loaded.count == seen.count {
            before = loaded;
        }
        false
    });
    // Those that have come stand behind the others, unless one was closed.
    if before == seen && Restored::are_intact() {
        if loaded != seen {
            bind_from(seen.count);
        }
    } else {
        Restored::forget();
        for word in DEFINED.iter().chain([&ANY_DEFINED]) {
            word.store(false, Ordering::Relaxed);
        }
        bind_from(0);
    }
    loaded.are_seen();
}

/// Looks at the objects from this one on.
fn bind_from(first: usize) {
    References::with(first, &mut |references| {
        for at in first..references.count() {
            if let Some(object) = references.object(at).filter(is_a_programs) {
                note_definitions(&object);
            }
        }
        for at in first..references.count() {
            let refers = |object: &Object<'_>| {
                ANY_DEFINED.load(Ordering::Relaxed) || object.may_refer(&is_meant)
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

fn note_definitions(object: &Object<'_>) {
    for (hook, is_defined) in DEFINED.iter().enumerate() {
        if object.exports_name(entries::name_at(hook)) {
            is_defined.store(true, Ordering::Relaxed);
            ANY_DEFINED.store(true, Ordering::Relaxed);
        }
    }
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
        object.store(relocation.place, meant);
    }
    if word == meant || is_ours {
        Restored::keep(object, relocation.place, meant);
    }
}
