//! Memory of our own where the program has none left: a failed malloc ends a Rust library's process, and a guest ends nobody's.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::System;

/// Bytes: what beginning and some refusals ask for. Pages that are never touched take nothing.
const RESERVE: usize = 256 << 10;

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

// SAFETY: each byte is handed out once.
unsafe impl Sync for Reserve {}

static MEMORY: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The program's malloc, and where that has nothing the reserve, of which nothing comes back.
struct Heap;

#[cfg(not(test))]
#[global_allocator]
static HEAP: Heap = Heap;

fn reserved(layout: Layout) -> *mut u8 {
    let start = MEMORY.0.get() as usize;
    let place = |taken: usize| (start + taken).next_multiple_of(layout.align()) - start;
    let end = |taken| {
        let end = place(taken).checked_add(layout.size())?;
        (end <= RESERVE).then_some(end)
    };
    TAKEN
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, end)
        .map_or(core::ptr::null_mut(), |taken| {
            MEMORY.0.get().cast::<u8>().wrapping_add(place(taken))
        })
}

fn is_reserved(memory: *mut u8) -> bool {
    (memory as usize).wrapping_sub(MEMORY.0.get() as usize) < RESERVE
}

// SAFETY: System's blocks go back to System; the reserve's are handed out once, aligned and within it, and start as zeros.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { System.alloc(layout) };
        match memory.is_null() {
            true => reserved(layout),
            false => memory,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { System.alloc_zeroed(layout) };
        match memory.is_null() {
            true => reserved(layout),
            false => memory,
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_reserved(memory) {
            // SAFETY: the caller's, of System's memory.
            unsafe { System.dealloc(memory, layout) };
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_reserved(memory) {
            // SAFETY: the caller's, of System's memory.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return core::ptr::null_mut();
        };
        let moved = reserved(wanted);
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
