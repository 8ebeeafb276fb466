//! Memory of our own where the program has none left: a failed malloc ends a Rust library's process, and a guest ends nobody's.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::System;

/// Bytes: what beginning and some calls at once ask for. Pages that are never touched take nothing.
const RESERVE: usize = 256 << 10;

/// Blocks end at multiples of so many bytes, so that between two that ask for no more than that alignment nothing is left that would not come back.
const STEP: usize = 16;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; RESERVE]>);

/// Blocks one behind the other. A block that is the last comes back by itself, the others with the last that lives: calls ask for little, for as long as
/// they take.
struct Reserve {
    memory: Memory,
    /// Bytes up to the last block's end, and in the upper half how many blocks live.
    taken: AtomicU64,
}

// SAFETY: each byte is one living block's at most.
unsafe impl Sync for Reserve {}

/// The program's malloc, and where that has nothing a reserve, which is the library's own. For a library's `#[global_allocator]`.
pub struct Heap;

static KEPT: Reserve = Reserve::new();

const fn word(blocks: usize, end: usize) -> u64 {
    (blocks as u64) << 32 | end as u64
}

const fn parts(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, word as u32 as usize)
}

impl Reserve {
    const fn new() -> Reserve {
        Reserve {
            memory: Memory(UnsafeCell::new([0; RESERVE])),
            taken: AtomicU64::new(0),
        }
    }

    fn begin(&self) -> *mut u8 {
        self.memory.0.get().cast()
    }

    fn holds(&self, memory: *mut u8) -> bool {
        (memory as usize).wrapping_sub(self.begin() as usize) < RESERVE
    }

    /// Null where it has no room. The bytes are whatever was there before.
    fn take(&self, layout: Layout) -> *mut u8 {
        let begin = self.begin();
        let place =
            |end: usize| (begin as usize + end).next_multiple_of(layout.align()) - begin as usize;
        let taken = |before| {
            let (blocks, end) = parts(before);
            let size = layout.size().checked_next_multiple_of(STEP)?;
            let end = place(end).checked_add(size)?;
            (end <= RESERVE).then(|| word(blocks + 1, end))
        };
        let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
        self.taken
            .fetch_update(done, failed, taken)
            .map_or(core::ptr::null_mut(), |before| {
                begin.wrapping_add(place(parts(before).1))
            })
    }

    fn give_back(&self, block: *mut u8, size: usize) {
        let place = block as usize - self.begin() as usize;
        let size = size.next_multiple_of(STEP);
        let left = |before| {
            let (blocks, end) = parts(before);
            let end = if end == place + size { place } else { end };
            Some(match blocks.saturating_sub(1) {
                0 => 0,
                living => word(living, end),
            })
        };
        let _ = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
    }
}

// SAFETY: System's blocks go back to System; the reserve's are one living block's each, aligned and within it, and zeroed where that is asked for.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { System.alloc(layout) };
        match memory.is_null() {
            true => KEPT.take(layout),
            false => memory,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = KEPT.take(layout);
        if !memory.is_null() {
            // SAFETY: the block is that long.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match KEPT.holds(memory) {
            true => KEPT.give_back(memory, layout.size()),
            // SAFETY: the caller's, of System's memory.
            false => unsafe { System.dealloc(memory, layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !KEPT.holds(memory) {
            // SAFETY: the caller's, of System's memory.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return core::ptr::null_mut();
        };
        let moved = KEPT.take(wanted);
        if !moved.is_null() {
            // SAFETY: both are that long, and the new block was nobody's.
            unsafe {
                memory.copy_to_nonoverlapping(moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size: usize) -> Layout {
        Layout::from_size_align(size, 16).expect("a layout")
    }

    #[test]
    fn what_comes_back_is_there_again_however_often_it_is_asked_for() {
        let reserve = Reserve::new();
        let kept = reserve.take(of(100));
        for _ in 0..10_000 {
            let (first, second) = (reserve.take(of(1000)), reserve.take(of(3)));
            assert!(!first.is_null() && !second.is_null());
            assert!(
                first as usize >= kept as usize + 100 && second as usize >= first as usize + 1000
            );
            reserve.give_back(second, 3);
            reserve.give_back(first, 1000);
        }
        // The other way round all is there again with the last that lives.
        for _ in 0..100 {
            let (first, second) = (reserve.take(of(1000)), reserve.take(of(3)));
            reserve.give_back(first, 1000);
            reserve.give_back(second, 3);
        }
        reserve.give_back(kept, 100);
        assert_eq!(parts(reserve.taken.load(Ordering::Relaxed)), (0, 0));
        assert!(!reserve.take(of(RESERVE)).is_null());
        assert!(reserve.take(of(1)).is_null(), "more than there is");
    }
}
