//! Which of the last quarter second is paid for already: the union of the processes' intervals, without an owner.
//!
//! One word per millisecond, a ring: which millisecond it is about, and how much of it has work. Whoever reports an interval adds to
//! its milliseconds and pays for what there was room for. So time in which two processes have work is paid once, in whatever order
//! they report; a process killed in between has filled some milliseconds for nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Nanos;

const GRAIN: u64 = 1_000_000;
/// A power of two.
pub const GRAINS: usize = 256;
/// Bits for the filled part of a grain.
const FILL: u32 = 24;
const FILL_MASK: u64 = (1 << FILL) - 1;

/// Enters `busy` time spread evenly over `start` to `end`; what of it was not there yet.
pub fn enter(grains: &[AtomicU64], start: Nanos, end: Nanos, busy: Nanos) -> Nanos {
    let length = end.less(start).0;
    let busy = busy.0.min(length);
    if length == 0 || grains.is_empty() {
        return Nanos::ZERO;
    }
    // What is older than the ring is nobody's to compare with.
    let remembered = start
        .0
        .max(end.0.saturating_sub(GRAIN * (grains.len() as u64 - 1)));
    let part =
        |upto: u64| (u128::from(busy) * u128::from(upto - start.0) / u128::from(length)) as u64;
    let mut counted = part(remembered);
    let mut from = remembered;
    while from < end.0 {
        let to = ((from / GRAIN + 1) * GRAIN).min(end.0);
        counted += fill(grains, from / GRAIN, part(to) - part(from));
        from = to;
    }
    Nanos(counted)
}

fn fill(grains: &[AtomicU64], grain: u64, more: u64) -> u64 {
    let word = &grains[grain as usize % grains.len()];
    let tag = grain << FILL;
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let newer = (old >> FILL) > (tag >> FILL) && (old >> FILL) - (tag >> FILL) < 1 << 20;
        if newer {
            // Reported so late that its place is taken.
            return more;
        }
        let filled = if old & !FILL_MASK == tag {
            (old & FILL_MASK).min(GRAIN)
        } else {
            0
        };
        let counted = more.min(GRAIN - filled);
        if counted == 0 {
            return 0;
        }
        match word.compare_exchange_weak(
            old,
            tag | (filled + counted),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => return counted,
            Err(seen) => old = seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring() -> Vec<AtomicU64> {
        (0..GRAINS).map(|_| AtomicU64::new(0)).collect()
    }

    fn ms(from: u64, to: u64) -> (Nanos, Nanos) {
        (Nanos::millis(from), Nanos::millis(to))
    }

    #[test]
    fn what_two_report_is_counted_once_in_either_order() {
        for order in [
            [ms(1000, 1100), ms(1050, 1150)],
            [ms(1050, 1150), ms(1000, 1100)],
        ] {
            let ring = ring();
            let sum: u64 = order
                .iter()
                .map(|(s, e)| enter(&ring, *s, *e, e.less(*s)).0)
                .sum();
            assert_eq!(Nanos(sum), Nanos::millis(150));
        }
    }

    #[test]
    fn thin_reports_add_up_until_the_time_is_full() {
        let ring = ring();
        let (start, end) = ms(1000, 1010);
        let shares: Vec<u64> = (0..4)
            .map(|_| enter(&ring, start, end, Nanos::millis(4)).0)
            .collect();
        assert_eq!(shares, [4_000_000, 4_000_000, 2_000_000, 0]);
    }

    proptest! {
        #[test]
        fn no_more_is_counted_than_time_passes_and_a_lone_report_is_counted_in_full(
            reports in proptest::collection::vec((0_u64..200_000_000, 1_u64..100_000_000), 1..20), garbage in any::<u64>(),
        ) {
            let ring = ring();
            ring[7].store(garbage, Ordering::Relaxed);
            let base = 50_000_000_000;
            let mut total = 0;
            let (mut least, mut most) = (u64::MAX, 0);
            for (at, (start, length)) in reports.iter().enumerate() {
                let (start, end) = (Nanos(base + start), Nanos(base + start + length));
                let counted = enter(&ring, start, end, Nanos(*length)).0;
                prop_assert!(counted <= *length);
                // One word may hold anything.
                prop_assert!(at > 0 || counted + GRAIN >= *length);
                total += counted;
                least = least.min(start.0);
                most = most.max(end.0);
            }
            // What had left the ring may be counted again.
            if most - least < GRAIN * (GRAINS as u64 - 1) {
                prop_assert!(total <= (most.div_ceil(GRAIN) - least / GRAIN) * GRAIN);
            }
        }
    }
}
