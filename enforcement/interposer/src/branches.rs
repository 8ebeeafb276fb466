//! Executable graphs' own memory where no row of the driver's tells it (R32 of `fixtures/defects.txt`): a context keeps as much as its executable
//! graphs ever needed together, and gives it to those that are made after others are gone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use abi::cuda::CUgraphExec;
use budget::Bytes;
use ledger::KeptErrno;

use crate::devices::Owner;
use crate::process::Tenant;

/// What is charged for executable graphs without a row.
#[derive(Default)]
pub struct Branches(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// By handle.
    executables: HashMap<u64, Executable>,
    contexts: HashMap<u64, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Executable {
    context: u64,
    /// As it was made.
    made: Bytes,
    /// The most that it needs, whatever has replaced it or a child of it since.
    most: Bytes,
}

/// Of one context.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    needed: Bytes,
    charged: Bytes,
}

impl Book {
    /// An executable graph needs so much from now on. Answers what its context is to be charged more.
    fn begin(&mut self, context: u64, executable: u64, bytes: Bytes) -> Bytes {
        let _ = self.end(executable);
        self.enter(
            executable,
            Executable {
                context,
                made: bytes,
                most: bytes,
            },
        )
    }

    /// It needs so much beside what it was made with, which it keeps, as of the most that it needed before. Answers the same.
    fn exchange(&mut self, context: u64, executable: u64, bytes: Bytes) -> Bytes {
        let Some(known) = self.executables.get(&executable).copied() else {
            return self.begin(context, executable, bytes);
        };
        let _ = self.end(executable);
        let most = known.most.max(known.made.saturating_add(bytes));
        self.enter(executable, Executable { most, ..known })
    }

    fn enter(&mut self, executable: u64, known: Executable) -> Bytes {
        self.executables.insert(executable, known);
        let held = self.contexts.entry(known.context).or_default();
        held.needed = held.needed.saturating_add(known.most);
        let more = held.needed.saturating_sub(held.charged);
        held.charged = held.charged.saturating_add(more);
        more
    }

    fn end(&mut self, executable: u64) -> Option<(u64, Bytes)> {
        let Executable { context, most, .. } = self.executables.remove(&executable)?;
        if let Some(held) = self.contexts.get_mut(&context) {
            held.needed = held.needed.saturating_sub(most);
        }
        Some((context, most))
    }

    fn end_context(&mut self, context: u64) {
        self.contexts.remove(&context);
        self.executables.retain(|_, known| known.context != context);
    }
}

impl Tenant {
    /// An executable graph of a context needs at most so much: answers what the context is to be charged beyond what it is charged already.
    pub fn begin_branches(self, context: u64, executable: CUgraphExec, bytes: Bytes) -> Bytes {
        self.branches(|book| book.begin(context, executable.0 as u64, bytes))
    }

    /// A graph has replaced it, or a child of it, which needs so much beside what it was made with: the same.
    pub fn exchange_branches(self, context: u64, executable: CUgraphExec, bytes: Bytes) -> Bytes {
        self.branches(|book| book.exchange(context, executable.0 as u64, bytes))
    }

    /// The context that an executable graph was made in, if it was charged here.
    pub fn owner_of_branches(self, executable: CUgraphExec) -> Option<Owner> {
        self.memory.branches.get()?;
        let executable = executable.0 as u64;
        let known = self.branches(|book| book.executables.get(&executable).copied());
        known.map(|known| self.owner_of(known.context))
    }

    /// It is about to go: answers its context and what it needed, if that was charged here.
    pub fn end_branches(self, executable: CUgraphExec) -> Option<(u64, Bytes)> {
        self.memory.branches.get()?;
        self.branches(|book| book.end(executable.0 as u64))
    }

    /// A context is gone, and its executable graphs' memory with it.
    pub fn end_branches_of(self, context: u64) {
        if self.memory.branches.get().is_some() {
            self.branches(|book| book.end_context(context));
        }
    }

    fn branches<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        let branches = self.memory.branches.get_or_default();
        act(&mut branches.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_charged_for_the_most_that_was_needed_together() {
        let mut book = Book::default();
        let two = Bytes::mib(2);
        let charged: Vec<Bytes> = [1, 2, 2].map(|exec| book.begin(7, exec, two)).into();
        assert_eq!(charged, [two, two, Bytes::ZERO]);
        assert_eq!((book.end(1), book.end(1)), (Some((7, two)), None));
        assert_eq!(book.begin(7, 3, two), Bytes::ZERO);
        assert_eq!(book.begin(7, 3, Bytes::mib(6)), Bytes::mib(4));
        assert_eq!(book.begin(8, 4, two), two);
        book.end_context(7);
        assert_eq!(book.begin(7, 3, two), two);
    }

    #[test]
    fn what_replaces_an_executable_graph_leaves_it_what_it_was_made_with() {
        let mut book = Book::default();
        let mib = Bytes::mib;
        assert_eq!(book.begin(7, 1, mib(100)), mib(100));
        assert_eq!(book.exchange(7, 1, mib(4)), mib(4));
        // Again, and by less.
        assert_eq!(
            [4, 2].map(|more| book.exchange(7, 1, mib(more))),
            [Bytes::ZERO; 2]
        );
        assert_eq!(book.begin(7, 2, mib(100)), mib(100));
        assert_eq!(book.end(1), Some((7, mib(104))));
    }
}
