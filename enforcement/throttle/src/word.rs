//! What a process keeps: numbers that one thread at a time writes and any may read.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Nanos;

#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    pub fn get(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    pub fn set(&self, value: Nanos) {
        self.0.store(value.0, Ordering::Relaxed);
    }

    pub fn add(&self, value: Nanos) {
        self.set(self.get().plus(value));
    }

    /// Whether it is not 0.
    pub fn is_set(&self) -> bool {
        self.get() != Nanos::ZERO
    }

    pub fn note(&self, whether: bool) {
        self.set(Nanos(u64::from(whether)));
    }
}
