//! Drivers that stand before us (R61 of `fixtures/defects.txt`): `LD_PRELOAD` names one before this library, or names one where this library comes by
//! /etc/ld.so.preload, whose entries the loader puts behind those of the variable. What is linked against it would be bound to it, and never meets a hook.
//!
//! So such a driver's own table of symbols is made to lead to our exports, which is where the loader looks for all that is yet to be bound: what it binds
//! lazily, and what it opens later, whatever the scope. What it has bound before this library's constructor is bound again. A driver that stands
//! behind us is left as it is. Open: what constructors that run before ours have called, or have kept an address of.

use seeds::{Seed, planted};

use super::drivers::Library;
use super::elf::{self, Object};
use super::entries;
use super::{loader, sign};
use crate::process::{Standing, standing};
use crate::report::{self, Once};

/// At this library's constructor. Ends the process, with one line, where such a driver's table cannot be written and there is a budget that it would be a
/// way past.
pub fn take_over() {
    if planted(Seed::R61) {
        return;
    }
    let own = loader::own().map(core::ptr::from_ref);
    elf::each(&mut |driver| {
        if driver.is(own) {
            return true;
        }
        if let Some(library) = Library::of(driver) {
            // It is asked where its functions are before the table says otherwise.
            library.bind(driver.base);
            bind_anew(driver);
            if !redirect(driver, library) && !matches!(standing(), Standing::Forward) {
                end(driver);
            }
        }
        false
    });
}

/// Each place that the loader has filled with a driver's function of a hook's name leads to the hook.
fn bind_anew(driver: &Object<'_>) {
    elf::each(&mut |object| {
        if Library::of(object).is_none() && !sign::is_ours(object) {
            object.relocations(&mut |relocation| {
                let Some(entry) = entries::exported(relocation.name) else {
                    return;
                };
                let bound = driver.symbol(relocation.name);
                let word = |address: usize| address.wrapping_add(relocation.addend);
                if !relocation.copies && bound.map(word) == Some(elf::word(relocation.place)) {
                    object.store(relocation.place, word(entries::export_address(entry)));
                }
            });
        }
        false
    });
}

/// The driver's names of hooks lead to the hooks. Answers whether they do.
fn redirect(driver: &Object<'_>, library: Library) -> bool {
    (0..entries::HOOKS)
        .filter(|hook| entries::library_at(*hook) == library)
        .all(|hook| driver.redirect(entries::name_at(hook), entries::export_at(hook)))
}

/// Nothing could hold this process to its budget.
fn end(driver: &Object<'_>) -> ! {
    report::once(
        Once::Precedes,
        format_args!(
            "{}: stands before this library (LD_PRELOAD), and its functions cannot be exchanged; the program, which would have no budget, is ended",
            driver.map.name().to_str().unwrap_or("a driver"),
        ),
    );
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(127) }
}
