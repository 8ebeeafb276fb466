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
    /// All that was ever given back, as far as anybody has looked.
    seen: AtomicU64,
    /// By the number of the thread that gave it back.
    given: [AtomicU64; NUMBERED],
    /// By threads that have none.
    given_by_others: AtomicU64,
}

impl Tally {
    /// Takes, and answers what is held at most: what was given back since anybody looked is in it. Whoever reads what this is compared with
    /// after it, and whoever changes that before it reads `held`, do not miss each other both.
    #[inline]
    pub fn take(&self, bytes: u64) -> u64 {
        // Loaded first: the locked instruction waits for it otherwise.
        let seen = self.seen.load(Ordering::Relaxed);
        self.taken
            .fetch_add(bytes, Ordering::SeqCst)
            .wrapping_add(bytes)
            .wrapping_sub(seen)
    }

    #[inline]
    pub fn give(&self, thread: Number, bytes: u64) {
        match self.given.get(thread.0) {
            Some(own) => {
                let given = own.load(Ordering::Relaxed).wrapping_add(bytes);
                own.store(given, Ordering::Release);
            }
            None => {
                self.given_by_others.fetch_add(bytes, Ordering::Release);
            }
        }
    }

    /// What is held. A thread that gives back at this moment may not have done so yet.
    pub fn held(&self) -> u64 {
        // In this order: what is given back was taken before.
        let given = self.given();
        self.taken.load(Ordering::SeqCst).wrapping_sub(given)
    }

    /// Nothing is held any longer, whoever took it.
    pub fn clear(&self) {
        self.taken.store(self.given(), Ordering::SeqCst);
    }

    fn given(&self) -> u64 {
        let given = self.given.iter().chain([&self.given_by_others]);
        let given = given.fold(0, |sum: u64, one| {
            sum.wrapping_add(one.load(Ordering::Acquire))
        });
        self.seen.fetch_max(given, Ordering::Relaxed);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        Tally {
            taken: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            given: [const { AtomicU64::new(0) }; NUMBERED],
            given_by_others: AtomicU64::new(0),
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
    fn what_is_given_back_is_seen_when_somebody_looks() {
        let tally = tally();
        assert_eq!(tally.take(5), 5);
        tally.give(Number(3), 2);
        tally.give(Number(NUMBERED), 1);
        assert_eq!(tally.take(4), 9);
        assert_eq!(tally.held(), 6);
        assert_eq!(tally.take(4), 10);
        tally.clear();
        assert_eq!((tally.held(), tally.take(1)), (0, 1));
    }

    #[test]
    fn threads_lose_nothing() {
        let (tally, threads) = (tally(), Threads([const { AtomicUsize::new(0) }; NUMBERED]));
        std::thread::scope(|scope| {
            for _ in 0..NUMBERED + 2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        tally.take(3);
                        tally.give(threads.number(), 2);
                    }
                });
            }
        });
        assert_eq!(tally.held(), (NUMBERED as u64 + 2) * 20_000);
    }
}
