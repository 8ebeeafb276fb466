//! Data of a program's own that is named like a driver's function (C13 of `fixtures/defects.txt`): libraries that look the driver up themselves have
//! pointers called `cuInit`, `cuMemAlloc_v2` …, and the loader binds their own references to those names to our exports, which stand before
//! them. Writing such a pointer would be writing our text. So where an object defines one of our names as data, what was bound to us instead is bound to
//! it again: in the objects that a program begins with before its main, in those that it opens later at the first look-up of a CUDA or NVML name after
//! that, which is what fills such pointers. What an object reads of them before it has looked anything up is not covered; the proxies have no such limit.

use core::sync::atomic::{AtomicU64, Ordering};

use seeds::{Seed, planted};

use super::elf::{self, Object, Relocation};
use super::entries::{self, HOOKS};
use super::sign;

/// What the loader had loaded at the last look, 0 before the first.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Of each hook's name where the first object that has data of that name has it, and the first behind the program itself.
struct Data {
    first: [usize; HOOKS],
    behind: [usize; HOOKS],
}

/// Binds what objects have come meanwhile refer to.
pub fn rebind() {
    let loaded = elf::generation();
    if planted(Seed::C13) || SEEN.swap(loaded, Ordering::AcqRel) == loaded {
        return;
    }
    let mut data = Data {
        first: [0; HOOKS],
        behind: [0; HOOKS],
    };
    let (mut any, mut at) = (false, 0);
    elf::each(&mut |object| {
        if !sign::is_ours(object) {
            for hook in 0..HOOKS {
                let Some(address) = object.data(entries::name_at(hook)) else {
                    continue;
                };
                any = true;
                if data.first[hook] == 0 {
                    data.first[hook] = address;
                }
                if data.behind[hook] == 0 && at > 0 {
                    data.behind[hook] = address;
                }
            }
        }
        at += 1;
        false
    });
    if any {
        elf::each(&mut |object| {
            if !sign::is_ours(object) {
                object.relocations(&mut |relocation| restore(object, &data, relocation));
            }
            false
        });
    }
}

/// Binds one place to the data that it means, if it was bound to our export of that name.
fn restore(object: &Object<'_>, data: &Data, relocation: &Relocation<'_>) {
    let Some(entry) = entries::exported(relocation.name) else {
        return;
    };
    let (hook, export) = (entry as usize, entries::export_address(entry));
    if relocation.copies {
        // The program has it, with what lies at the beginning of our function in it.
        let source = data.behind[hook];
        if source != 0 && elf::word(relocation.place) == elf::word(export) {
            object.store(relocation.place, elf::word(source));
        }
        return;
    }
    let own = object.data(relocation.name);
    let meant = match own {
        Some(own) => own,
        None if relocation.may_be_data => data.first[hook],
        None => 0,
    };
    let bound = export.wrapping_add(relocation.addend);
    if meant != 0 && elf::word(relocation.place) == bound {
        object.store(relocation.place, meant.wrapping_add(relocation.addend));
    }
}
