//! What modules and libraries were charged: variables with blocks of their own, which live as long as they do, and a library's smaller ones
//! at the most that they hold of blocks that they share. The rest of what they take is the driver's figure (`truth`).
//!
//! A module is one context's. A library is everybody's: each context has its variables from the first use on, which may be a
//! launch, so each is charged for them from the library's load, or from its own beginning.

use ledger::KeptErrno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use budget::Bytes;

use crate::contexts::Context;
use crate::memory::devices_of;
use crate::process::Tenant;

/// What is loaded.
#[derive(Default)]
pub struct Modules(Mutex<Book>);

#[derive(Default)]
struct Book {
    modules: HashMap<u64, Part>,
    libraries: HashMap<u64, Library>,
}

/// What a context has of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub context: u64,
    pub ordinal: u32,
    pub bytes: Bytes,
}

/// A library's variables, and who is charged for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Library {
    pub own: Bytes,
    pub parts: Vec<Part>,
}

impl Book {
    fn end_context(&mut self, context: u64) -> Vec<Part> {
        let modules = self
            .modules
            .extract_if(|_, part| part.context == context)
            .map(|(_, part)| part);
        let mut ended: Vec<Part> = modules.collect();
        for library in self.libraries.values_mut() {
            ended.extend(library.parts.extract_if(.., |part| part.context == context));
        }
        ended
    }

    fn begin_context(&mut self, context: u64, ordinal: u32) {
        for library in self.libraries.values_mut() {
            library.parts.push(Part {
                context,
                ordinal,
                bytes: library.own,
            });
        }
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

    pub fn enter_library(self, handle: u64, library: Library) {
        self.modules(|book| book.libraries.insert(handle, library));
    }

    pub fn take_library(self, handle: u64) -> Option<Library> {
        self.modules(|book| book.libraries.remove(&handle))
    }

    /// What the libraries that are loaded will take of a new context.
    pub fn libraries_need(self) -> Bytes {
        if self.memory.modules.get().is_none() {
            return Bytes::ZERO;
        }
        self.modules(|book| {
            let libraries = book.libraries.values();
            libraries.fold(Bytes::ZERO, |sum, library| sum.saturating_add(library.own))
        })
    }

    /// A context was made, and charged what `libraries_need`.
    pub fn begin_modules(self, context: Context) {
        if self.memory.modules.get().is_some() {
            self.modules(|book| book.begin_context(context.handle, context.ordinal));
        }
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
            self.release(devices_of(self, part.ordinal), part.bytes);
        }
    }

    /// What a device's contexts are charged for libraries, which may not be there yet.
    pub fn awaited(self, ordinal: u32) -> Bytes {
        if self.memory.modules.get().is_none() {
            return Bytes::ZERO;
        }
        self.modules(|book| {
            let parts = book.libraries.values().flat_map(|library| &library.parts);
            parts
                .filter(|part| part.ordinal == ordinal)
                .fold(Bytes::ZERO, |sum, part| sum.saturating_add(part.bytes))
        })
    }

    fn modules<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        let modules = &self.memory.modules;
        let modules = modules
            .get()
            .unwrap_or_else(|| modules.set(Modules::default()));
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
        }
    }

    #[test]
    fn a_context_takes_its_modules_along_and_its_part_of_libraries() {
        let mut book = Book::default();
        book.modules.extend([(1, part(7)), (2, part(8))]);
        let library = Library {
            own: Bytes::mib(2),
            parts: vec![part(7)],
        };
        book.libraries.insert(3, library);
        book.begin_context(8, 0);
        assert_eq!(book.end_context(7), [part(7), part(7)]);
        assert_eq!(book.libraries[&3].parts, [part(8)]);
        assert_eq!(book.modules.len(), 1);
    }
}
