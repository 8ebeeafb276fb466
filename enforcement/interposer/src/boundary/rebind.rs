//! Data of a program's own that is named like a driver's function (C13 of `fixtures/defects.txt`): libraries that look the driver up themselves have
//! pointers called `cuInit`, `cuMemAlloc_v2` …, and the loader binds their own references to those names to our exports, which stand before
//! them. Writing such a pointer would be writing our text. So where an object defines one of our names as data, what was bound to us instead is bound to
//! it again: in the objects that a program begins with before its main, in those that it opens later at the first look-up of a CUDA or NVML name after
//! that, which is what fills such pointers. What an object reads of them before it has looked anything up is not covered; the proxies have no such limit.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use seeds::{Seed, planted};

use super::elf::{self, LinkMap, Object, Relocation};
use super::entries::{self, HOOKS};
use super::{loader, sign};

/// The objects that there were at the last look. Used with the loader's lock held.
struct Seen {
    count: AtomicUsize,
    /// Of which objects they were; 0, as of none, before the first look.
    print: AtomicUsize,
    /// Not 0: one of them had data of such a name.
    any: AtomicUsize,
}

static SEEN: Seen = Seen {
    count: AtomicUsize::new(0),
    print: AtomicUsize::new(0),
    any: AtomicUsize::new(0),
};

/// A place of an object that was bound anew, and what it was bound to. Objects come back at the same addresses when they are closed and opened again, and
/// then their places are as the loader left them. Used with the loader's lock held.
struct Restored {
    dynamic: AtomicUsize,
    place: AtomicUsize,
    word: AtomicUsize,
}

/// One for each object. Where there are more, each look-up is followed by a look.
static RESTORED: [Restored; 64] = [const {
    Restored {
        dynamic: AtomicUsize::new(0),
        place: AtomicUsize::new(0),
        word: AtomicUsize::new(0),
    }
}; 64];

impl Restored {
    fn of(object: &Object<'_>) -> Option<&'static Restored> {
        let dynamic = object.map.dynamic() as usize;
        RESTORED
            .iter()
            .find(|row| [0, dynamic].contains(&row.dynamic.load(Ordering::Relaxed)))
    }

    fn is_used(&self) -> bool {
        self.dynamic.load(Ordering::Relaxed) != 0
    }

    fn is_intact(&self) -> bool {
        let place = self.place.load(Ordering::Relaxed);
        let of = loader::map_at(self.dynamic.load(Ordering::Relaxed));
        of.is_some()
            && of == loader::map_at(place)
            && elf::word(place) == self.word.load(Ordering::Relaxed)
    }

    /// Whether nothing that was bound anew is as the loader left it, as far as there is room to know.
    fn all_are_intact() -> bool {
        let mut used = RESTORED.iter().take_while(|row| row.is_used());
        used.all(Restored::is_intact) && !RESTORED[RESTORED.len() - 1].is_used()
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

    fn are_seen(&self, any: bool) {
        SEEN.count.store(self.count, Ordering::Relaxed);
        SEEN.print.store(self.print, Ordering::Relaxed);
        SEEN.any.store(usize::from(any), Ordering::Relaxed);
    }
}

/// Of each hook's name where the first object that has data of that name has it, and the first behind the program itself. Used with the loader's lock
/// held; not on the stack, which may be a signal's of 8 KiB.
struct Data {
    first: [AtomicUsize; HOOKS],
    behind: [AtomicUsize; HOOKS],
}

static DATA: Data = Data {
    first: [const { AtomicUsize::new(0) }; HOOKS],
    behind: [const { AtomicUsize::new(0) }; HOOKS],
};

/// At this library's constructor. An object may refer to functions weakly and do without those that are NULL, as those are that its driver has not, or
/// that no driver has that it is linked to. The loader has bound them to our exports; where nobody else exports a name the reference is put back
/// (attack 25). Those of objects that come later stay bound.
pub fn loosen() {
    elf::each(&mut |object| {
        let is_ours = |name: &CStr| entries::exported(name).is_some();
        if !sign::is_ours(object) && object.may_do_without(&is_ours) {
            object.relocations(&mut |relocation| {
                if relocation.is_weak && !relocation.is_called && !relocation.copies {
                    put_back(object, relocation);
                }
            });
        }
        false
    });
}

fn put_back(object: &Object<'_>, relocation: &Relocation<'_>) {
    let Some(entry) = entries::exported(relocation.name) else {
        return;
    };
    let bound = entries::export_address(entry).wrapping_add(relocation.addend);
    if elf::word(relocation.place) != bound {
        return;
    }
    let mut is_defined = false;
    elf::each(&mut |other| {
        is_defined = !sign::is_ours(other) && other.exports_name(relocation.name);
        is_defined
    });
    if !is_defined {
        object.store(relocation.place, relocation.addend);
    }
}

/// Binds what objects have come meanwhile refer to.
pub fn rebind() {
    if !planted(Seed::C13) {
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
    let is_intact = Restored::all_are_intact();
    if loaded == seen && is_intact {
        return;
    }
    let had_any = SEEN.any.load(Ordering::Relaxed) != 0;
    if before == seen && !had_any && is_intact && !has_data_from(seen.count) {
        // Those that have come stand behind the others.
        loaded.are_seen(false);
        return;
    }
    let any = rebind_all();
    loaded.are_seen(any);
}

/// Whether one of the objects from this one on has data of a hook's name.
fn has_data_from(first: usize) -> bool {
    let (mut any, mut at) = (false, 0);
    elf::each_map(&mut |map| {
        // SAFETY: an entry of the loader's, whose lock is held.
        let object = (at >= first).then(|| unsafe { elf::Object::of(map) });
        any = object.flatten().is_some_and(|object| {
            !sign::is_ours(&object)
                && (0..HOOKS).any(|hook| object.data(entries::name_at(hook)).is_some())
        });
        at += 1;
        any
    });
    any
}

/// Looks at all objects. Answers whether any has data of such a name.
fn rebind_all() -> bool {
    for word in DATA.first.iter().chain(&DATA.behind) {
        word.store(0, Ordering::Relaxed);
    }
    let (mut any, mut at) = (false, 0);
    elf::each(&mut |object| {
        if !sign::is_ours(object) {
            for hook in 0..HOOKS {
                let Some(address) = object.data(entries::name_at(hook)) else {
                    continue;
                };
                any = true;
                for (word, counts) in [(&DATA.first[hook], true), (&DATA.behind[hook], at > 0)] {
                    if counts && word.load(Ordering::Relaxed) == 0 {
                        word.store(address, Ordering::Relaxed);
                    }
                }
            }
        }
        at += 1;
        false
    });
    if any {
        elf::each(&mut |object| {
            if !sign::is_ours(object) {
                object.relocations(&mut |relocation| restore(object, relocation));
            }
            false
        });
    }
    any
}

/// Binds one place to the data that it means, if it was bound to our export of that name.
fn restore(object: &Object<'_>, relocation: &Relocation<'_>) {
    if relocation.is_called {
        return;
    }
    let Some(entry) = entries::exported(relocation.name) else {
        return;
    };
    let (hook, export) = (entry as usize, entries::export_address(entry));
    if relocation.copies {
        // The program has it, with what lies at the beginning of our function in it.
        let source = DATA.behind[hook].load(Ordering::Relaxed);
        if source != 0 && elf::word(relocation.place) == elf::word(export) {
            object.store(relocation.place, elf::word(source));
        }
        return;
    }
    let own = object.data(relocation.name);
    let meant = match own {
        Some(own) => own,
        None if relocation.may_be_data => DATA.first[hook].load(Ordering::Relaxed),
        None => 0,
    };
    let bound = export.wrapping_add(relocation.addend);
    if meant != 0 && elf::word(relocation.place) == bound {
        let word = meant.wrapping_add(relocation.addend);
        object.store(relocation.place, word);
        if let Some(row) = Restored::of(object) {
            row.place.store(relocation.place, Ordering::Relaxed);
            row.word.store(word, Ordering::Relaxed);
            row.dynamic
                .store(object.map.dynamic() as usize, Ordering::Relaxed);
        }
    }
}
