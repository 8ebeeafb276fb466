//! Words that one thread writes: on the way of an allocation a locked instruction waits for all that the driver has just stored.
//!
//! The first threads that come here get a number each, for good. What a number owns, in a tally or in the table of records, is written by
//! its thread alone, with plain stores, and read by all; threads without a number use what all may write.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::boundary::thread;

/// Threads that can have a number.
const NUMBERED: usize = 7;

/// All zeros is nobody.
#[repr(C, align(64))]
pub struct Threads([AtomicUsize; NUMBERED]);

/// A thread's number; [`NUMBERED`] for all that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(usize);

#[cfg(test)]
pub const FIRST: Number = Number(0);

impl Number {
    /// Which of so many things that have an owner each is this thread's.
    #[inline(always)]
    pub fn of(self, count: usize) -> Option<usize> {
        (self.0 < count).then_some(self.0)
    }
}

impl Threads {
    /// The calling thread's number. A thread that ends keeps its own, for the next thread in its place.
    #[inline(always)]
    pub fn number(&self) -> Number {
        let own = thread::pointer();
        if self.0[0].load(Ordering::Relaxed) == own {
            return Number(0);
        }
        self.other_number(own)
    }

    #[inline(never)]
    fn other_number(&self, own: usize) -> Number {
        let mine = |owner: &AtomicUsize| match owner.load(Ordering::Relaxed) {
            // Only this thread writes its own pointer: another may have been quicker, this one not.
            0 => {
                let taken = owner.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed);
                taken.is_ok()
            }
            owner => owner == own,
        };
        Number(self.0.iter().position(mine).unwrap_or(NUMBERED))
    }
}

/// Bytes that are taken and given back, by any thread. All zeros is none.
#[repr(C)]
pub struct Tally {
    /// All that was ever taken.
    taken: AtomicU64,
    /// By the number of the thread that did it, and the last by all that have none.
    sums: [Sums; NUMBERED + 1],
}

#[repr(C)]
struct Sums {
    /// Of what was taken, by requests that have been answered.
    passed: AtomicU64,
    /// All that was ever given back.
    given: AtomicU64,
}

impl Tally {
    /// Takes, and answers all that was ever taken. Whoever reads what this is compared with after it, and whoever changes that before
    /// it reads `on_the_way`, do not miss each other both.
    #[inline(always)]
    pub fn take(&self, bytes: u64) -> u64 {
        self.taken
            .fetch_add(bytes, Ordering::SeqCst)
            .wrapping_add(bytes)
    }

    /// The request that took them has been answered, whatever the answer.
    #[inline(always)]
    pub fn pass(&self, thread: Number, bytes: u64) {
        self.add(thread, bytes, |sums| &sums.passed);
    }

    #[inline(always)]
    pub fn give(&self, thread: Number, bytes: u64) {
        self.add(thread, bytes, |sums| &sums.given);
    }

    #[inline(always)]
    fn add(&self, thread: Number, bytes: u64, which: impl Fn(&Sums) -> &AtomicU64) {
        let word = which(&self.sums[thread.0.min(NUMBERED)]);
        if thread.0 < NUMBERED {
            let sum = word.load(Ordering::Relaxed).wrapping_add(bytes);
            word.store(sum, Ordering::Release);
        } else {
            word.fetch_add(bytes, Ordering::Release);
        }
    }

    /// All that was ever taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    /// Whether a request that has taken may not have been answered yet.
    pub fn on_the_way(&self) -> bool {
        // In this order: what was answered was taken before.
        let passed = self.sum(|sums| &sums.passed);
        self.taken() != passed
    }

    /// What is held. A thread that gives back at this moment may not have done so yet.
    pub fn held(&self) -> u64 {
        // In this order: what is given back was taken before.
        let given = self.sum(|sums| &sums.given);
        self.taken().wrapping_sub(given)
    }

    /// Nothing is held any longer, whoever took it.
    pub fn clear(&self) {
        let others = &self.sums[NUMBERED];
        others.given.fetch_add(self.held(), Ordering::AcqRel);
    }

    fn sum(&self, which: impl Fn(&Sums) -> &AtomicU64) -> u64 {
        self.sums.iter().fold(0, |sum: u64, one| {
            sum.wrapping_add(which(one).load(Ordering::Acquire))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        let none = || Sums {
            passed: AtomicU64::new(0),
            given: AtomicU64::new(0),
        };
        Tally {
            taken: AtomicU64::new(0),
            sums: core::array::from_fn(|_| none()),
        }
    }

    #[test]
    fn each_thread_has_a_number_of_its_own_and_keeps_it() {
        let threads = Threads([const { AtomicUsize::new(0) }; NUMBERED]);
        let all_here = std::sync::Barrier::new(NUMBERED + 2);
        let numbers: Vec<_> = std::thread::scope(|scope| {
            let number = || {
                let number = threads.number();
                // None ends before all have come: its pointer would come again.
                all_here.wait();
                (number == threads.number()).then_some(number)
            };
            let asked: Vec<_> = (0..NUMBERED + 2).map(|_| scope.spawn(number)).collect();
            let told = asked.into_iter().map(|thread| thread.join());
            told.map(|number| number.expect("no panic").expect("the same again"))
                .collect()
        });
        for number in 0..NUMBERED {
            let has = numbers.iter().filter(|one| **one == Number(number));
            assert_eq!(has.count(), 1);
        }
        let without = numbers.iter().filter(|one| **one == Number(NUMBERED));
        assert_eq!(without.count(), 2);
    }

    #[test]
    fn what_is_given_back_is_held_no_longer() {
        let tally = tally();
        assert_eq!(tally.take(5), 5);
        tally.give(Number(3), 2);
        tally.give(Number(NUMBERED), 1);
        assert_eq!(tally.take(4), 9);
        assert_eq!(tally.held(), 6);
        tally.clear();
        assert_eq!((tally.held(), tally.take(1), tally.held()), (0, 10, 1));
    }

    #[test]
    fn a_request_is_on_the_way_until_it_is_answered() {
        let tally = tally();
        assert!(!tally.on_the_way());
        tally.take(5);
        tally.give(Number(0), 5);
        assert!(tally.on_the_way());
        tally.pass(Number(NUMBERED), 5);
        assert!(!tally.on_the_way());
    }

    #[test]
    fn threads_lose_nothing() {
        let (tally, threads) = (tally(), Threads([const { AtomicUsize::new(0) }; NUMBERED]));
        std::thread::scope(|scope| {
            for _ in 0..NUMBERED + 2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        tally.take(3);
                        tally.pass(threads.number(), 3);
                        tally.give(threads.number(), 2);
                    }
                });
            }
        });
        assert_eq!(tally.held(), (NUMBERED as u64 + 2) * 20_000);
        assert!(!tally.on_the_way());
    }
}
