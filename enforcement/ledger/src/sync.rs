//! The atomics that `word` and `account` are written over. The loom models put loom's in their place.

pub use core::sync::atomic::{AtomicU64, Ordering, fence};
