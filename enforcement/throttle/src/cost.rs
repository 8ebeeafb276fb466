//! What a launch of a function takes on the device, learned from those that were measured.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Nanos;

/// A power of two.
const ENTRIES: usize = 2048;
/// Places that a key may be in.
const REACH: usize = 8;
/// Low bits of a belief: how many measurements it rests on.
const COUNTED: u64 = 0xff;
/// Measurements among which one was probably not slowed by other processes.
const ROUND: u64 = 64;
/// Of how many measurements a belief is the mean, about: of a function whose launches differ, and of others.
const UNEVEN: u64 = 16;
const EVEN: u64 = 4;
/// A function's launches differ where the longest takes so many quarters of what is believed: then the belief is the mean of more.
const QUARTERS: u64 = 6;
/// A lease is counted by the longest where that is so many times what is believed, and so many nanoseconds at least: what takes less is measured by itself at a price
/// that shows, and now and then any launch is put off by something.
const DIFFERS: u64 = 4;
const WORTH: u64 = 100_000;
/// By this part the longest is forgotten with each measurement, and, faster, one that nothing has followed that took as long: other tenants' turns fall into a
/// launch now and then (two GPTs of a budget of 50 each, H200: 91 % of what they do without, 97 before a single one was counted by).
const FADES: u64 = 256;
const PASSES: u64 = 32;

/// What is launched: a function with its size, or a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// A size, so that those that differ by less than an eighth are one.
fn coarse(size: u64) -> u64 {
    let exponent = size.leading_zeros();
    (size << (exponent & 63)) >> 60 | u64::from(exponent) << 4
}

impl Key {
    /// A function launched in `blocks` blocks of `threads`. Sizes that differ by less than an eighth share one key.
    #[inline]
    pub fn kernel(function: u64, blocks: u64, threads: u64) -> Key {
        Key::mixed(function ^ coarse(blocks).rotate_right(12) ^ coarse(threads).rotate_right(24))
    }

    /// A graph that was made ready to be launched.
    #[inline]
    pub fn graph(exec: u64) -> Key {
        Key::mixed(!exec)
    }

    /// A memset of so many bytes in elements of a size, in one row or in rows that lie apart: by pages as a kernel is by blocks, because the
    /// smallest all take as long. No function has so low an address.
    #[inline]
    pub fn memset(element: u64, in_rows: bool, bytes: u64) -> Key {
        Key::kernel(element << 1 | u64::from(in_rows), bytes.div_ceil(4096), 1)
    }

    /// So many command buffers for a queue at once: what they hold is not looked at, and they are recorded anew all the time.
    #[inline]
    pub fn batch(queue: u64, buffers: u64) -> Key {
        Key::mixed(queue.rotate_left(24) ^ buffers)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn from_word(word: u64) -> Key {
        Key(word)
    }

    /// Each bit of the word changes each of the result's, as likely as not: where a key stands is told from its low bits, and one function may be launched
    /// in hundreds of sizes.
    #[inline]
    fn mixed(word: u64) -> Key {
        // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Zero is an empty entry.
        Key((word ^ (word >> 31)) | 1)
    }
}

/// What is known of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// Never measured.
    Unknown,
    Takes(Nanos),
}

/// The lease that a measurement is of, where launches that differ are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// It was charged by belief: then it matters what the longest takes.
    pub guessed: bool,
    /// Nobody but the tenant has the device, as far as the driver tells: what took long was the launch.
    pub alone: bool,
}

impl Belief {
    /// Nothing where nothing is known.
    pub fn time(self) -> Nanos {
        match self {
            Belief::Takes(time) => time,
            Belief::Unknown => Nanos::ZERO,
        }
    }
}

/// A process's table. All zeros knows nothing. Threads may race: a measurement is lost, at worst.
#[repr(C)]
pub struct Costs {
    entries: [Entry; ENTRIES],
}

#[repr(C)]
struct Entry {
    key: AtomicU64,
    /// Nanoseconds above the count of measurements.
    belief: AtomicU64,
    /// The least of the measurements since the last round began, and of the round before.
    least: AtomicU64,
    before: AtomicU64,
    /// The mean of those near it.
    calm: AtomicU64,
    /// The longest of the measurements that was not the only one, which fades. Zero where leases were never charged by belief.
    most: AtomicU64,
    /// The longest lately.
    once: AtomicU64,
}

fn is_uneven(mean: u64, most: u64) -> bool {
    most > mean.saturating_mul(QUARTERS) / 4
}

impl Entry {
    /// What is believed, and what a launch may take: of launches that differ as long as the longest.
    fn believed(&self) -> Option<(Nanos, Nanos)> {
        let mean = self.belief.load(Ordering::Relaxed) >> 8;
        let most = self.most.load(Ordering::Relaxed);
        let differs = most > mean.saturating_mul(DIFFERS).max(WORTH);
        (mean != 0).then_some((Nanos(mean), Nanos(if differs { most } else { mean })))
    }

    /// What a launch takes that others do not slow: the least of many measurements, and a little more.
    fn near(&self) -> core::ops::RangeInclusive<u64> {
        let least = self
            .least
            .load(Ordering::Relaxed)
            .min(self.before.load(Ordering::Relaxed));
        least..=least.saturating_add(least / 20)
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            entries: [const {
                Entry {
                    key: AtomicU64::new(0),
                    belief: AtomicU64::new(0),
                    least: AtomicU64::new(0),
                    before: AtomicU64::new(0),
                    calm: AtomicU64::new(0),
                    most: AtomicU64::new(0),
                    once: AtomicU64::new(0),
                }
            }; ENTRIES],
        }
    }
}

impl Costs {
    /// What a launch may take.
    #[inline]
    pub fn of(&self, key: Key) -> Belief {
        for place in 0..REACH {
            let entry = self.entry(key, place);
            if entry.key.load(Ordering::Relaxed) == key.0 {
                return match entry.believed() {
                    None => Belief::Unknown,
                    Some((_, most)) => Belief::Takes(most),
                };
            }
        }
        Belief::Unknown
    }

    /// Whether launches differ that are charged by belief.
    pub fn is_uneven(&self, key: Key) -> bool {
        self.known(key).is_some_and(|entry| {
            let mean = entry.belief.load(Ordering::Relaxed) >> 8;
            is_uneven(mean, entry.most.load(Ordering::Relaxed))
        })
    }

    /// What launches take together, as believed, that may take so long.
    pub fn mean(&self, key: Key, may_take: Nanos) -> Nanos {
        match self.known(key).and_then(Entry::believed) {
            Some((mean, most)) => may_take.scaled(mean.0, most.0),
            None => may_take,
        }
    }

    /// One launch was measured. The belief follows: at once at first, by a quarter of the difference later, or by less where launches differ. What may be too little is
    /// no part of the least.
    pub fn learn(&self, key: Key, took: Nanos, is_exact: bool, seen: Option<Seen>) {
        let entry = self.place_of(key);
        let old = entry.belief.load(Ordering::Relaxed);
        let (count, believed) = (old & COUNTED, old >> 8);
        // Never 0: a launch that takes nothing would never be measured again.
        let took = took.0.clamp(1, u64::MAX >> 16);
        let most = entry.most.load(Ordering::Relaxed);
        let most = match seen {
            Some(seen) if seen.guessed || most != 0 => {
                let once = entry.once.load(Ordering::Relaxed);
                let longest = took.max(once - once / PASSES);
                entry.once.store(longest, Ordering::Relaxed);
                let took = if seen.alone { took } else { took.min(once) };
                took.max(most - most / FADES).max(1)
            }
            _ => most,
        };
        entry.most.store(most, Ordering::Relaxed);
        let uneven = is_uneven(believed, most);
        let weight = (count + 1).min(if uneven { UNEVEN } else { EVEN });
        let next = (believed - believed / weight + took.div_ceil(weight)).max(1);
        // After its last round a count begins that round again.
        let more = if count == COUNTED {
            COUNTED + 1 - ROUND
        } else {
            count + 1
        };
        if !is_exact {
            // A round begins with what is exact.
            let count = if count % ROUND == 0 { count } else { more };
            entry.belief.store(next << 8 | count, Ordering::Relaxed);
            return;
        }
        let least = entry.least.load(Ordering::Relaxed);
        if count % ROUND == 0 {
            entry
                .before
                .store(if count == 0 { took } else { least }, Ordering::Relaxed);
            entry.least.store(took, Ordering::Relaxed);
        } else {
            entry.least.store(least.min(took), Ordering::Relaxed);
        }
        let near = entry.near();
        let calm = entry.calm.load(Ordering::Relaxed);
        if near.contains(&took) {
            let calm = if near.contains(&calm) {
                calm - calm / 8 + took / 8
            } else {
                took
            };
            entry.calm.store(calm, Ordering::Relaxed);
        }
        entry.belief.store(next << 8 | more, Ordering::Relaxed);
    }

    /// What `busy` time of such launches would have been, had none been slowed by other processes.
    pub fn alone(&self, key: Key, busy: Nanos) -> Nanos {
        let Some(entry) = self.known(key) else {
            return busy;
        };
        let believed = entry.belief.load(Ordering::Relaxed) >> 8;
        let near = entry.near();
        // Nothing exact was measured.
        if *near.start() == 0 {
            return busy;
        }
        let calm = entry
            .calm
            .load(Ordering::Relaxed)
            .clamp(*near.start(), *near.end());
        busy.scaled(calm.min(believed), believed)
    }

    fn known(&self, key: Key) -> Option<&Entry> {
        (0..REACH)
            .map(|place| self.entry(key, place))
            .find(|entry| entry.key.load(Ordering::Relaxed) == key.0)
    }

    fn place_of(&self, key: Key) -> &Entry {
        if let Some(entry) = self.known(key) {
            return entry;
        }
        let empty = (0..REACH)
            .map(|place| self.entry(key, place))
            .find(|entry| entry.key.load(Ordering::Relaxed) == 0);
        // The one that was measured least gives way.
        let entry = empty.unwrap_or_else(|| {
            (0..REACH)
                .map(|place| self.entry(key, place))
                .min_by_key(|entry| entry.belief.load(Ordering::Relaxed) & COUNTED)
                .unwrap_or(&self.entries[0])
        });
        entry.belief.store(0, Ordering::Relaxed);
        entry.most.store(0, Ordering::Relaxed);
        entry.once.store(0, Ordering::Relaxed);
        entry.key.store(key.0, Ordering::Relaxed);
        entry
    }

    #[inline]
    fn entry(&self, key: Key, place: usize) -> &Entry {
        &self.entries[((key.0 >> 1) as usize).wrapping_add(place) % ENTRIES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GUESSED: Option<Seen> = Some(Seen {
        guessed: true,
        alone: true,
    });
    const BESIDE: Option<Seen> = Some(Seen {
        guessed: true,
        alone: false,
    });
    const MEASURED: Option<Seen> = Some(Seen {
        guessed: false,
        alone: false,
    });

    #[test]
    fn the_first_measurement_is_believed_and_later_ones_are_followed() {
        let costs = Costs::default();
        let key = Key::kernel(0x7000_1000, 64, 1);
        assert_eq!(costs.of(key), Belief::Unknown);
        costs.learn(key, Nanos::micros(100), true, None);
        assert_eq!(costs.of(key), Belief::Takes(Nanos::micros(100)));
        for _ in 0..40 {
            costs.learn(key, Nanos::millis(5), true, None);
        }
        let Belief::Takes(taken) = costs.of(key) else {
            panic!("known")
        };
        assert!(
            taken > Nanos::micros(4_900) && taken < Nanos::micros(5_100),
            "{taken:?}"
        );
    }

    /// Of launches that differ a lease is counted by the longest and charged by the mean, as long as its launches were charged by belief; those that take little are
    /// counted by their mean.
    #[test]
    fn launches_that_differ_are_counted_by_the_longest() {
        let costs = Costs::default();
        let keys = [1, 2, 3].map(|function| Key::kernel(function << 8, 64, 1));
        let [guessed, measured, short] = keys;
        for round in 0..400 {
            let long = round % 20 == 7;
            let took = Nanos::micros(if long { 3_000 } else { 10 });
            costs.learn(guessed, took, true, GUESSED);
            costs.learn(measured, took, true, MEASURED);
            let took = Nanos::micros(if long { 60 } else { 3 });
            costs.learn(short, took, true, GUESSED);
        }
        let time = |key| costs.of(key).time();
        assert!(time(guessed) > Nanos::micros(2_800), "{:?}", time(guessed));
        let mean = costs.mean(guessed, time(guessed));
        assert!(
            mean > Nanos::micros(60) && mean < Nanos::micros(400),
            "{mean:?}"
        );
        assert!(costs.is_uneven(guessed) && costs.is_uneven(short));
        assert!(!costs.is_uneven(measured));
        assert_eq!(costs.mean(measured, Nanos::micros(700)), Nanos::micros(700));
        assert!(time(short) < Nanos::micros(40), "{:?}", time(short));
        for _ in 0..2_000 {
            costs.learn(guessed, Nanos::micros(10), true, GUESSED);
        }
        assert!(time(guessed) < Nanos::micros(12), "{:?}", time(guessed));
    }

    #[test]
    fn one_launch_that_something_put_off_is_not_what_launches_take() {
        let costs = Costs::default();
        let key = Key::kernel(0x7000_1000, 64, 1);
        for launch in 0..1_000 {
            let put_off = launch % 200 == 150;
            let took = Nanos::micros(if put_off { 2_400 } else { 10 });
            costs.learn(key, took, true, BESIDE);
            let mean = costs.mean(key, costs.of(key).time());
            assert_eq!(costs.of(key), Belief::Takes(mean), "{launch}");
        }
    }

    #[test]
    fn what_may_be_too_little_is_not_the_least() {
        let costs = Costs::default();
        let key = Key::kernel(0x7000_1000, 64, 1);
        let (real, busy) = (Nanos::micros(100), Nanos::millis(1));
        costs.learn(key, Nanos::micros(10), false, None);
        assert_eq!(costs.alone(key, busy), busy);
        for at in 0..300 {
            costs.learn(key, real, true, None);
            if at % 7 == 0 {
                costs.learn(key, Nanos::micros(3), false, None);
                costs.learn(key, real.scaled(2, 1), true, None);
            }
        }
        let Belief::Takes(believed) = costs.of(key) else {
            panic!("known")
        };
        // Of ten such launches, as long as they are believed to take.
        let alone = costs.alone(key, believed.scaled(10, 1));
        assert!(
            alone >= busy.less(Nanos::micros(10)) && alone <= busy.scaled(11, 10),
            "{alone:?}"
        );
    }

    #[test]
    fn functions_sizes_and_graphs_are_told_apart() {
        let keys = [
            Key::kernel(4096, 1, 1),
            Key::kernel(4096, 2, 1),
            Key::kernel(8192, 1, 1),
            Key::graph(4096),
            Key::kernel(4096, 1 << 20, 1),
            Key::kernel(4096, 0, 1),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(key), "{key:?}");
        }
        assert_eq!(Key::kernel(4096, 1000, 1), Key::kernel(4096, 1010, 1));
    }

    /// PyTorch's element-wise kernels come in as many sizes as a model has layers (an H200: two thirds of a GPT-2's launches were measured anew each time).
    #[test]
    fn a_function_in_many_sizes_is_remembered_in_all_of_them() {
        let costs = Costs::default();
        let keys: Vec<Key> = (0..40_u64)
            .flat_map(|size| (0..8).map(move |function| (0x7f3a_0000_1000 + (function << 8), size)))
            .map(|(function, size)| Key::kernel(function, 3 << (size % 20), 64 << (size / 20)))
            .collect();
        for key in &keys {
            costs.learn(*key, Nanos::micros(3), true, None);
        }
        let forgotten = keys.iter().filter(|key| costs.of(**key) == Belief::Unknown);
        assert_eq!(forgotten.count(), 0, "of {}", keys.len());
    }

    proptest! {
        #[test]
        fn a_belief_lies_between_what_was_measured(times in proptest::collection::vec(1_u64..1 << 40, 1..50), others in 0_u64..5000) {
            let costs = Costs::default();
            (0..others).for_each(|other| costs.learn(Key::kernel(other << 8, 1, 1), Nanos(7), true, None));
            let key = Key::graph(1);
            times.iter().for_each(|time| costs.learn(key, Nanos(*time), true, None));
            let Belief::Takes(taken) = costs.of(key) else { panic!("known") };
            prop_assert!(taken.0 + 64 >= *times.iter().min().unwrap() && taken.0 <= *times.iter().max().unwrap() + 64);
        }
    }
}
