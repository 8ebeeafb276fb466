//! Threads by the order in which they made their first call: 1, 2, …

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread's number. Where its storage is gone already (a destructor calls), it counts as the first.
pub(crate) fn number() -> u32 {
    let given = |number: &Cell<u32>| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    };
    NUMBER.try_with(given).unwrap_or(1)
}
