//! Arguments that another thread changes while a driver is asked, whichever driver that is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECONDS: u64 = 3;

/// Asks until it is `enough` or the time is over, while another thread changes what is asked for: by turns the one and the other, each for ever longer.
pub fn while_changed(change: impl Fn(bool) + Sync, mut ask: impl FnMut() -> bool) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0_u32.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                change(turn & 1 == 0);
                (0..turn % 64).for_each(|_| std::hint::spin_loop());
            }
        });
        let end = Instant::now() + Duration::from_secs(SECONDS);
        while ask() && Instant::now() < end {}
        over.store(true, Ordering::Relaxed);
    });
}
