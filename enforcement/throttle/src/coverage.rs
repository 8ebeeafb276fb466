//! Which part of a device's recent time is paid for: the union of all processes' intervals, without an owner.
//!
//! One word per millisecond, a ring: which millisecond it is about, and a bit for each thirty-second part of it that has work. Whoever reports an
//! interval sets its bits, and pays for those that were not set. So time in which two processes have work is paid once, in whatever order
//! they report; a process killed in between has set some bits for nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Nanos;

const GRAIN: u64 = 1_000_000;
/// A power of two.
pub const GRAINS: usize = 256;
/// Parts of a grain, a bit each.
const PARTS: u64 = 32;
const PART: u64 = GRAIN / PARTS;

/// Enters `busy` time spread evenly over `start` to `end`; what of it was not there yet. Exact but for a part at either end, on average.
pub fn enter(grains: &[AtomicU64], start: Nanos, end: Nanos, busy: Nanos) -> Nanos {
    let length = end.less(start).0;
    let busy = busy.0.min(length);
    if length == 0 || grains.is_empty() {
        return Nanos::ZERO;
    }
    // A part is whichever interval's that its middle lies in.
    let part_of = |time: u64| (time + PART / 2) / PART;
    let (first, last) = (part_of(start.0), part_of(end.0));
    // What is older than the ring is nobody's to compare with.
    let oldest = (last / PARTS).saturating_sub(grains.len() as u64 - 1) * PARTS;
    let remembered = first.max(oldest);
    // Of how many parts before this one there was work. What is less than a part in all is one now and then.
    let chance = u128::from(start.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % length);
    let work = |upto: u64| {
        ((u128::from(busy) * u128::from(upto - first) + chance) / u128::from(length)) as u64
    };
    let mut counted = work(remembered);
    let mut from = remembered;
    while from < last {
        let to = ((from / PARTS + 1) * PARTS).min(last);
        let more = work(to) - work(from);
        counted += fill(grains, from / PARTS, (from % PARTS, to - from), more);
        from = to;
    }
    Nanos(counted * PART)
}

/// Sets `more` of so many bits from the first on. How many of them were not set.
fn fill(grains: &[AtomicU64], grain: u64, (first, count): (u64, u64), more: u64) -> u64 {
    let word = &grains[grain as usize % grains.len()];
    let tag = grain as u32;
    let mask = ((1_u64 << count) - 1) << first;
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let ahead = ((old >> PARTS) as u32).wrapping_sub(tag);
        if ahead != 0 && ahead < 1 << 20 {
            // Reported so late that its place is taken.
            return more;
        }
        let set = if ahead == 0 { old & 0xffff_ffff } else { 0 };
        // All of them, or as many as there is room for.
        let mut fresh = mask & !set;
        while u64::from(fresh.count_ones()) > more {
            fresh &= fresh - 1;
        }
        if fresh == 0 {
            return 0;
        }
        let new = u64::from(tag) << PARTS | set | fresh;
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return u64::from(fresh.count_ones()),
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
                prop_assert!(counted <= *length + PART);
                // One word may hold anything.
                prop_assert!(at > 0 || counted + GRAIN + PART >= *length);
                total += counted;
                least = least.min(start.0);
                most = most.max(end.0);
            }
            // What had left the ring may be counted again.
            if most - least < GRAIN * (GRAINS as u64 - 1) {
                let grains = most.div_ceil(GRAIN) - least / GRAIN;
                // The word that holds anything may say that it is of a later millisecond: then each report pays for its own anew.
                let again = reports.len() as u64 - 1;
                prop_assert!(total <= (grains + again) * GRAIN);
            }
        }
    }
}
