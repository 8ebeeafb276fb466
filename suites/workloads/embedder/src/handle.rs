//! What contexts, allocators, regions and dispatches are called. Names of two runtimes in one process never meet, and none
//! is given out twice.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that nobody else got; 0 is nobody's.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An application's device and queue, or the runtime's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(u64);

/// What a context's memory, modules and dispatches belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocatorId {
    context: ContextId,
    number: u64,
}

/// What a [`Buffer`](crate::Buffer) stands for on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId {
    allocator: AllocatorId,
    number: u64,
}

/// A launch that was not yet waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DispatchId {
    allocator: AllocatorId,
    number: u64,
}

impl ContextId {
    /// Nobody: what a C caller would pass as NULL.
    pub const NULL: Self = Self(0);

    pub(crate) fn new() -> Self {
        Self(next())
    }
}

impl AllocatorId {
    /// Nobody's.
    pub const NULL: Self = Self {
        context: ContextId::NULL,
        number: 0,
    };

    pub(crate) fn new(context: ContextId) -> Self {
        Self {
            context,
            number: next(),
        }
    }

    #[must_use]
    pub fn context(self) -> ContextId {
        self.context
    }
}

impl RegionId {
    /// No region's.
    pub(crate) const NONE: Self = Self {
        allocator: AllocatorId::NULL,
        number: 0,
    };

    pub(crate) fn new(allocator: AllocatorId) -> Self {
        Self {
            allocator,
            number: next(),
        }
    }

    #[must_use]
    pub fn allocator(self) -> AllocatorId {
        self.allocator
    }
}

impl DispatchId {
    pub(crate) fn new(allocator: AllocatorId) -> Self {
        Self {
            allocator,
            number: next(),
        }
    }

    #[must_use]
    pub fn allocator(self) -> AllocatorId {
        self.allocator
    }
}

macro_rules! shown {
    ($($kind:ident: $text:literal, $number:tt;)+) => {
        $(impl fmt::Display for $kind {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!($text, " {}"), self.$number)
            }
        })+
    };
}
shown! {
    ContextId: "context", 0;
    AllocatorId: "allocator", number;
    RegionId: "region", number;
    DispatchId: "dispatch", number;
}
