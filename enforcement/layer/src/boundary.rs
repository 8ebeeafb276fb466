//! Where C comes in and goes out. Everything unsafe of this library is here and in the modules below.
#![expect(unsafe_code, reason = "the boundary")]

floor::provide!(never_unmapped);

#[cfg(not(test))]
#[global_allocator]
static HEAP: floor::Heap = floor::Heap;

pub mod chain;
pub mod commands;
pub mod hooks;
mod makers;
pub mod marks;
pub mod negotiate;
pub mod next;
pub mod nvml;
pub mod os;
pub mod resolve;
mod rows;
pub mod structures;
pub mod submissions;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ash::vk::Handle;
use ledger::Cancelability;
use throttle::Lane;

use crate::table::Key;

/// No panic crosses into C: it becomes `fallback`. Nor is the thread cancelled meanwhile (C12 of `fixtures/defects.txt`).
fn guard<T: Copy>(fallback: T, body: impl FnOnce() -> T) -> T {
    let before = Cancelability::withhold();
    let answer = catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback);
    before.restore();
    answer
}

/// A lane of nothing yet, made where it stays: it is larger than some threads' stacks (attack 35).
pub fn fresh_lane() -> Box<Lane> {
    // SAFETY: all zeros is nothing yet.
    unsafe { Box::new_zeroed().assume_init() }
}

/// The dispatch key of an instance, a physical device, a device or a queue. `None` for a null handle.
///
/// # Safety
/// A dispatchable handle that is not null points to an object whose first word is the loader's dispatch pointer.
unsafe fn key<H: Handle>(handle: H) -> Option<Key> {
    let object = std::ptr::with_exposed_provenance::<usize>(handle.as_raw() as usize);
    // SAFETY: the caller's obligation.
    (!object.is_null()).then(|| Key(unsafe { object.read() }))
}
