//! What modules and libraries were charged: variables with blocks of their own, which live as long as they do, and a library's smaller ones
//! at the most that they hold of blocks that they share. The rest of what they take is the driver's figure (`truth`).
//!
//! A module is one context's. A library is everybody's: each context has its variables from the first use on, which may be a
//! launch, so each is charged for them from the library's load, or from its own beginning. Of its managed variables there is one each, whose pages may
//! come to any device, so each device with a context is charged for them once.

use ledger::KeptErrno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use budget::Bytes;

use crate::contexts::Context;
use crate::devices::Owner;
use crate::memory::devices_of;
use crate::process::Tenant;
use seeds::{Seed, planted};

/// What is loaded.
#[derive(Default)]
pub struct Modules(Mutex<Book>);

#[derive(Default)]
struct Book {
    modules: HashMap<u64, Part>,
    /// By handle, or by [`LEAVING`] and a number while the driver is asked to unload it: its handle may be another's before that returns.
    libraries: HashMap<u64, Library>,
    /// How many the driver was asked to unload.
    left: u64,
}

/// In the number of a library that is being unloaded; in no handle, which is an address.
const LEAVING: u64 = 1 << 63;

/// What a context has of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub context: u64,
    pub ordinal: u32,
    /// With what is managed.
    pub bytes: Bytes,
    /// Of managed variables.
    pub managed: Bytes,
}

/// No context: a device's part of what is managed outlives its contexts.
const NO_CONTEXT: u64 = 0;

/// A library's variables, and who is charged for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Library {
    pub own: Bytes,
    pub managed: Bytes,
    pub parts: Vec<Part>,
    /// The contexts that the driver has brought it into.
    pub brought: Vec<u64>,
}

impl Library {
    /// Whether a device has no part of its managed variables yet.
    fn awaits_managed(&self, ordinal: u32) -> bool {
        let known = |part: &Part| part.context == NO_CONTEXT && part.ordinal == ordinal;
        self.managed != Bytes::ZERO && !self.parts.iter().any(known)
    }

    /// Adds a context's part, and its device's. Answers how much of them is managed.
    pub fn begin_context(&mut self, context: u64, ordinal: u32) -> Bytes {
        let own = Part {
            context,
            ordinal,
            bytes: self.own,
            managed: Bytes::ZERO,
        };
        let managed = Part {
            context: NO_CONTEXT,
            bytes: self.managed,
            managed: self.managed,
            ..own
        };
        let is_first = self.awaits_managed(ordinal);
        self.parts.push(own);
        self.parts.extend(is_first.then_some(managed));
        if is_first { self.managed } else { Bytes::ZERO }
    }

    /// The devices that are charged for its managed variables.
    pub fn ordinals_of_managed(&self) -> impl Iterator<Item = u32> {
        let parts = self.parts.iter();
        let managed = parts.filter(|part| part.managed != Bytes::ZERO);
        managed.map(|part| part.ordinal)
    }
}

impl Book {
    fn begin_to_unload(&mut self, handle: u64) -> Option<u64> {
        let library = self.libraries.remove(&handle)?;
        self.left += 1;
        let number = LEAVING | self.left;
        self.libraries.insert(number, library);
        Some(number)
    }

    fn loaded(&self) -> impl Iterator<Item = u64> {
        let handles = self.libraries.keys().copied();
        handles.filter(|handle| handle & LEAVING == 0)
    }

    fn end_context(&mut self, context: u64) -> Vec<Part> {
        let modules = self
            .modules
            .extract_if(|_, part| part.context == context)
            .map(|(_, part)| part);
        let mut ended: Vec<Part> = modules.collect();
        for library in self.libraries.values_mut() {
            ended.extend(library.parts.extract_if(.., |part| part.context == context));
            library.brought.retain(|brought| *brought != context);
        }
        ended
    }

    fn begin_context(&mut self, context: u64, ordinal: u32) -> Bytes {
        let libraries = self.libraries.values_mut();
        let managed = libraries.map(|library| library.begin_context(context, ordinal));
        managed.fold(Bytes::ZERO, Bytes::saturating_add)
    }
}

impl Tenant {
    pub fn enter_module(self, handle: u64, part: Part) {
        self.modules(|book| book.modules.insert(handle, part));
    }

    /// Takes the record of a module out while the driver is asked to unload it.
    pub fn take_module(self, handle: u64) -> Option<Part> {
        self.modules(|book| book.modules.remove(&handle))
    }

    /// The context that a module was loaded in.
    pub fn owner_of_module(self, handle: u64) -> Option<Owner> {
        let part = self.modules(|book| book.modules.get(&handle).copied());
        part.map(|part| self.owner_of(part.context))
    }

    /// What has come on record after its context had ended is gone with that.
    pub fn end_late_module(self, owner: Owner, handle: u64) {
        if self.has_ended(owner)
            && let Some(part) = self.take_module(handle)
        {
            self.release_parts(&[part]);
        }
    }

    pub fn enter_library(self, handle: u64, library: Library) {
        self.modules(|book| book.libraries.insert(handle, library));
    }

    /// The driver is asked to unload a library: contexts that come between have a part of it all the same. Answers the number to take it out by.
    pub fn begin_to_unload(self, handle: u64) -> Option<u64> {
        self.modules(|book| book.begin_to_unload(handle))
    }

    /// Takes a library out that the driver was asked to unload.
    pub fn take_library(self, number: u64) -> Option<Library> {
        self.modules(|book| book.libraries.remove(&number))
    }

    /// What the libraries that are loaded will take of a new context on a device, and how much of that is managed.
    pub fn libraries_need(self, ordinal: u32) -> (Bytes, Bytes) {
        if self.memory.modules.get().is_none() {
            return (Bytes::ZERO, Bytes::ZERO);
        }
        self.modules(|book| {
            let sum = |each: &dyn Fn(&Library) -> Bytes| {
                let libraries = book.libraries.values().map(each);
                libraries.fold(Bytes::ZERO, Bytes::saturating_add)
            };
            let managed = sum(&|library| match library.awaits_managed(ordinal) {
                true => library.managed,
                false => Bytes::ZERO,
            });
            let own = sum(&|library| library.own);
            (own.saturating_add(managed), managed)
        })
    }

    /// The libraries that are loaded.
    pub fn libraries(self) -> Vec<u64> {
        match self.memory.modules.get() {
            Some(_) => self.modules(|book| book.loaded().collect()),
            None => Vec::new(),
        }
    }

    /// A context was made, and charged what `libraries_need`. Answers what they have of it: less, where one was unloaded since.
    pub fn begin_modules(self, context: Context) -> Bytes {
        if self.memory.modules.get().is_none() {
            return Bytes::ZERO;
        }
        let (own, managed) = self.modules(|book| {
            let own = book.libraries.values().map(|library| library.own);
            let own = own.fold(Bytes::ZERO, Bytes::saturating_add);
            (own, book.begin_context(context.handle, context.ordinal))
        });
        self.manage(devices_of(self, context.ordinal), managed);
        own.saturating_add(managed)
    }

    /// A context is gone, and its modules with it.
    pub fn end_modules(self, context: u64) {
        if self.memory.modules.get().is_some() {
            let ended = self.modules(|book| book.end_context(context));
            self.release_parts(&ended);
        }
    }

    pub fn release_parts(self, parts: &[Part]) {
        for part in parts {
            let devices = devices_of(self, part.ordinal);
            self.unmanage(devices, part.managed);
            self.release(devices, part.bytes);
        }
    }

    /// The driver has a library in a context from now on.
    pub fn note_brought(self, library: u64, context: u64) {
        self.modules(|book| {
            if let Some(library) = book.libraries.get_mut(&library)
                && !planted(Seed::R139)
            {
                library.brought.push(context);
            }
        });
    }

    /// What a device's contexts are charged for libraries that may not be there yet; in no row is what is managed.
    pub fn awaited(self, ordinal: u32) -> Bytes {
        if self.memory.modules.get().is_none() {
            return Bytes::ZERO;
        }
        self.modules(|book| {
            let awaited = |library: &Library| {
                let parts = library.parts.iter().filter(|part| {
                    part.ordinal == ordinal && !library.brought.contains(&part.context)
                });
                parts.fold(Bytes::ZERO, |sum, part| {
                    sum.saturating_add(part.bytes.saturating_sub(part.managed))
                })
            };
            let libraries = book.libraries.values().map(awaited);
            libraries.fold(Bytes::ZERO, Bytes::saturating_add)
        })
    }

    fn modules<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        let modules = self.memory.modules.get_or_default();
        act(&mut modules.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(context: u64) -> Part {
        Part {
            context,
            ordinal: 0,
            bytes: Bytes::mib(2),
            managed: Bytes::ZERO,
        }
    }

    #[test]
    fn a_context_takes_its_modules_along_and_its_part_of_libraries() {
        let mut book = Book::default();
        book.modules.extend([(1, part(7)), (2, part(8))]);
        let library = Library {
            own: Bytes::mib(2),
            parts: vec![part(7)],
            ..Library::default()
        };
        book.libraries.insert(3, library);
        assert_eq!(book.begin_context(8, 0), Bytes::ZERO);
        assert_eq!(book.end_context(7), [part(7), part(7)]);
        assert_eq!(book.libraries[&3].parts, [part(8)]);
        assert_eq!(book.modules.len(), 1);
    }

    #[test]
    fn a_library_that_is_being_unloaded_is_charged_to_each_context_until_it_is_gone() {
        let mut book = Book::default();
        let library = Library {
            own: Bytes::mib(2),
            ..Library::default()
        };
        book.libraries.insert(3, library.clone());
        let leaving = book.begin_to_unload(3).expect("a library");
        book.libraries.insert(3, library);
        assert_eq!(
            book.loaded().collect::<Vec<_>>(),
            [3],
            "another of its handle"
        );
        book.begin_context(7, 0);
        assert_eq!(book.libraries[&leaving].parts, [part(7)]);
        assert_eq!(book.begin_to_unload(4), None);
    }

    #[test]
    fn each_device_has_a_part_of_what_is_managed_that_outlives_its_contexts() {
        let mut book = Book::default();
        let library = Library {
            managed: Bytes::gib(1),
            ..Library::default()
        };
        book.libraries.insert(3, library);
        assert_eq!(book.begin_context(7, 0), Bytes::gib(1));
        assert_eq!(book.begin_context(8, 0), Bytes::ZERO);
        assert_eq!(book.begin_context(9, 1), Bytes::gib(1));
        assert_eq!(book.end_context(7).len(), 1);
        assert_eq!(book.begin_context(7, 0), Bytes::ZERO);
        assert!(book.libraries[&3].ordinals_of_managed().eq([0, 1]));
    }
}
