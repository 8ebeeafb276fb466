//! Some hundred nanoseconds of a driver's time: a chain of numbers that decides branches, and stores to many lines.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const TABLE: usize = 4096;
const RING: usize = 1 << 17;
/// Words of a cache line.
const LINE: usize = 8;

static STEPS: AtomicU32 = AtomicU32::new(0);
static LINES: AtomicU32 = AtomicU32::new(0);
static STATE: AtomicU64 = AtomicU64::new(88_172_645_463_325_252);
static PLACE: AtomicU64 = AtomicU64::new(0);
static WORDS: [AtomicU64; TABLE] = [const { AtomicU64::new(0) }; TABLE];
static STORES: [AtomicU64; RING] = [const { AtomicU64::new(0) }; RING];

/// From now on a call takes so many steps, each with a branch that cannot be foretold, and then stores to so many lines.
pub fn set(steps: u32, lines: u32) {
    STEPS.store(steps, Ordering::Relaxed);
    LINES.store(lines, Ordering::Relaxed);
}

#[inline(never)]
pub fn work(key: u64) {
    let mut state = STATE.load(Ordering::Relaxed) ^ key;
    for _ in 0..STEPS.load(Ordering::Relaxed) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let word = &WORDS[(state >> 40) as usize % TABLE];
        let held = word.load(Ordering::Relaxed);
        if held & 8 == 0 {
            word.store(held ^ (state & 15), Ordering::Relaxed);
        } else {
            word.store(held.wrapping_add(state >> 60), Ordering::Relaxed);
        }
    }
    STATE.store(state, Ordering::Relaxed);
    let place = PLACE.load(Ordering::Relaxed) as usize;
    let lines = LINES.load(Ordering::Relaxed) as usize;
    for line in 0..lines {
        STORES[(place + line * LINE) % RING].store(state, Ordering::Relaxed);
    }
    PLACE.store((place + lines * LINE) as u64, Ordering::Relaxed);
}
