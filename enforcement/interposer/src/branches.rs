//! Executable graphs' own memory where no row of the driver's tells it (R32 of `fixtures/defects.txt`): a context keeps as much as its executable
//! graphs ever needed together, and gives it to those that are made after others are gone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use abi::cuda::CUgraphExec;
use budget::Bytes;
use ledger::KeptErrno;

use crate::process::Tenant;

/// What is charged for executable graphs without a row.
#[derive(Default)]
pub struct Branches(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// By handle: its context, and the most that it needs.
    executables: HashMap<u64, (u64, Bytes)>,
    contexts: HashMap<u64, Held>,
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
        self.executables.insert(executable, (context, bytes));
        let held = self.contexts.entry(context).or_default();
        held.needed = held.needed.saturating_add(bytes);
        let more = held.needed.saturating_sub(held.charged);
        held.charged = held.charged.saturating_add(more);
        more
    }

    fn end(&mut self, executable: u64) -> Option<(u64, Bytes)> {
        let (context, bytes) = self.executables.remove(&executable)?;
        if let Some(held) = self.contexts.get_mut(&context) {
            held.needed = held.needed.saturating_sub(bytes);
        }
        Some((context, bytes))
    }

    fn end_context(&mut self, context: u64) {
        self.contexts.remove(&context);
        self.executables.retain(|_, (of, _)| *of != context);
    }
}

impl Tenant {
    /// An executable graph of a context needs at most so much: answers what the context is to be charged beyond what it is charged already.
    pub fn begin_branches(self, context: u64, executable: CUgraphExec, bytes: Bytes) -> Bytes {
        self.branches(|book| book.begin(context, executable.0 as u64, bytes))
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
}
