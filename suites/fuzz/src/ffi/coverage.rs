//! Counters of a library that was built with `-C llvm-args=-sanitizer-coverage-inline-8bit-counters`: where it has been.
//!
//! Such a library tells its counters by a function that the sanitizers' runtimes have, and this program has here. A library without them tells nothing.

use std::ptr;
use std::sync::Mutex;

struct Counters {
    first: *mut u8,
    count: usize,
}

// SAFETY: counters live as long as their library, which is never unloaded; races on them lose counts and nothing else.
unsafe impl Send for Counters {}

static LIBRARIES: Mutex<Vec<Counters>> = Mutex::new(Vec::new());

/// # Safety
/// As LLVM's instrumentation calls it: the bounds of a library's counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(first: *mut u8, last: *mut u8) {
    let count = (last as usize).saturating_sub(first as usize);
    if let Ok(mut libraries) = LIBRARIES.lock() {
        libraries.push(Counters { first, count });
    }
}

/// # Safety
/// As LLVM's instrumentation calls it. Which counter is which instruction nobody asks here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_pcs_init(_: *const usize, _: *const usize) {}

/// What was seen so far: a bit for each counter's order of magnitude.
#[derive(Default)]
pub struct Seen {
    bits: Vec<u8>,
}

impl Seen {
    /// Enters what was counted since the last time, and begins anew. Whether any of it is new.
    pub fn enter(&mut self) -> bool {
        let Ok(libraries) = LIBRARIES.lock() else {
            return false;
        };
        let mut new = false;
        let mut at = 0;
        self.bits
            .resize(libraries.iter().map(|one| one.count).sum(), 0);
        for counters in libraries.iter() {
            for nth in 0..counters.count {
                // SAFETY: within the bounds that the library told.
                let count = unsafe { ptr::replace(counters.first.add(nth), 0) };
                if count != 0 {
                    let bit = 1 << count.ilog2().min(7);
                    new |= self.bits[at] & bit == 0;
                    self.bits[at] |= bit;
                }
                at += 1;
            }
        }
        new
    }

    /// Places that were reached, of how many.
    pub fn reached(&self) -> (usize, usize) {
        let reached = self.bits.iter().filter(|&&bits| bits != 0).count();
        (reached, self.bits.len())
    }
}
