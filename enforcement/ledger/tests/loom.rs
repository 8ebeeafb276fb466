//! Models of the real account code under loom: every interleaving and every order that the memory model allows, up to a number of
//! preemptions. The three seeded bugs must be found, or the models would be worth nothing.

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}
/// Where the real code has the kernel's clock.
mod region {
    pub mod clock {
        pub use std::time::Instant as Moment;
    }
}
#[path = "../src/account.rs"]
#[expect(dead_code, reason = "the models drive a part of it")]
mod account;
#[path = "../src/objects.rs"]
#[expect(dead_code, reason = "no object is shared in the models")]
mod objects;
#[path = "../src/word.rs"]
mod word;

use account::{Account, Attempt, Line, Protocol, Sound};
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicU64, Ordering};
use word::{Budget, LEASE_UNIT};

const SLOTS: usize = 3;
const UNIT: u64 = LEASE_UNIT;

struct NoFence;
impl Protocol for NoFence {
    const FENCE: bool = false;
}

struct HighWaterFirst;
impl Protocol for HighWaterFirst {
    const HIGH_WATER_AFTER_FENCE: bool = false;
}

struct BudgetFirst;
impl Protocol for BudgetFirst {
    const BUDGET_AFTER_FENCE: bool = false;
}

/// One device of a small ledger.
struct Device {
    lines: [Line; SLOTS],
    high: AtomicU64,
    budget: AtomicU64,
}

impl Device {
    fn new(budget: u64, seated: usize) -> Arc<Device> {
        Arc::new(Device {
            lines: core::array::from_fn(|_| Line {
                word: AtomicU64::new(0),
                pending: AtomicU64::new(0),
                releases: AtomicU64::new(0),
                beyond: AtomicU64::new(0),
                unlisted: AtomicU64::new(0),
                listed: AtomicU64::new(0),
            }),
            high: AtomicU64::new(seated as u64),
            budget: AtomicU64::new(Budget::first(Some(budget)).0),
        })
    }

    fn account<P: Protocol>(&self) -> Account<'_, P> {
        Account::new(&self.lines, &self.high, &self.budget)
    }

    /// What was granted, leases included.
    fn charged(&self) -> u64 {
        (0..SLOTS)
            .map(|slot| self.account::<Sound>().word(slot).charged())
            .sum()
    }
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// Whether the promise that `body` answers for is kept in every execution.
fn always(preemptions: usize, body: impl Fn() -> bool + Sync + Send + 'static) -> bool {
    // Not loom's: it gathers over all executions.
    let kept = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let gathered = std::sync::Arc::clone(&kept);
    model(preemptions, move || {
        if !body() {
            gathered.store(false, Ordering::Relaxed);
        }
    });
    kept.load(Ordering::Relaxed)
}

/// Two seated processes ask for two thirds of the budget each.
fn rivals<P: Protocol>() -> bool {
    let device = Device::new(3 * UNIT, 2);
    let rival = {
        let device = Arc::clone(&device);
        thread::spawn(move || device.account::<P>().contend(1, 2 * UNIT, 0) == Attempt::Granted)
    };
    let mine = device.account::<P>().contend(0, 2 * UNIT, 0) == Attempt::Granted;
    let theirs = rival.join().unwrap();
    !(mine && theirs) && device.charged() <= 3 * UNIT
}

/// A newcomer takes the slot above the high-water mark while another asks.
fn newcomer<P: Protocol>() -> bool {
    let device = Device::new(3 * UNIT, 1);
    let newcomer = {
        let device = Arc::clone(&device);
        thread::spawn(move || {
            Account::<P>::join(&device.high, 1);
            device.account::<P>().contend(1, 2 * UNIT, 0) == Attempt::Granted
        })
    };
    let mine = device.account::<P>().contend(0, 2 * UNIT, 0) == Attempt::Granted;
    let theirs = newcomer.join().unwrap();
    !(mine && theirs)
}

/// The owner lowers the budget and is told what is in use: a later sum of charges never exceeds both.
fn owner<P: Protocol>() -> bool {
    let device = Device::new(4 * UNIT, 1);
    let owner = {
        let device = Arc::clone(&device);
        thread::spawn(move || device.account::<P>().set_budget(Some(UNIT)))
    };
    let _ = device.account::<P>().contend(0, 2 * UNIT, 0);
    let told = owner.join().unwrap();
    device.account::<Sound>().survey().used <= told.max(UNIT)
}

#[test]
fn two_requests_that_do_not_fit_together_are_never_both_granted() {
    assert!(always(3, rivals::<Sound>));
}

#[test]
fn a_newcomer_above_the_mark_is_never_missed() {
    assert!(always(3, newcomer::<Sound>));
}

#[test]
fn a_lowered_budget_is_seen_or_its_owner_sees_the_request() {
    assert!(always(3, owner::<Sound>));
}

#[test]
fn the_seed_without_the_fence_is_caught() {
    assert!(!always(3, rivals::<NoFence>));
}

#[test]
fn the_seed_that_reads_the_mark_before_announcing_is_caught() {
    assert!(!always(3, newcomer::<HighWaterFirst>));
}

#[test]
fn the_seed_that_reads_the_budget_before_the_fence_is_caught() {
    assert!(!always(3, owner::<BudgetFirst>));
}

#[test]
fn three_requests_never_pass_the_budget() {
    // Three threads: with two preemptions it passes too, in ten times the time.
    model(1, || {
        let device = Device::new(5 * UNIT, 3);
        let others: Vec<_> = (1..3)
            .map(|slot| {
                let device = Arc::clone(&device);
                thread::spawn(move || device.account::<Sound>().contend(slot, 2 * UNIT, 0))
            })
            .collect();
        let _ = device.account::<Sound>().contend(0, 2 * UNIT, 0);
        for other in others {
            other.join().unwrap();
        }
        assert!(device.charged() <= 5 * UNIT);
        assert_eq!(device.account::<Sound>().survey().pending, 0);
    });
}

/// Slot 1 takes from its lease and gives back while slot 0 steals it for itself.
#[test]
fn a_lease_is_taken_by_its_owner_or_by_a_thief_never_by_both() {
    model(2, || {
        let device = Device::new(4 * UNIT, 2);
        assert_eq!(
            device.account::<Sound>().contend(1, UNIT, 2 * UNIT),
            Attempt::Granted
        );
        let holder = {
            let device = Arc::clone(&device);
            thread::spawn(move || device.account::<Sound>().take(1, 2 * UNIT))
        };
        let stolen = device.account::<Sound>().contend(0, 2 * UNIT, 0) == Attempt::Granted;
        let taken = holder.join().unwrap();
        assert!(!(stolen && taken), "granted twice");
        assert!(device.charged() <= 4 * UNIT);
    });
}

/// The whole attempt, leases, steals and retreats included.
#[test]
fn attempts_with_leases_never_pass_the_budget() {
    model(2, || {
        // An eighth of what is free is a lease of some units.
        let device = Device::new(40 * UNIT, 2);
        let other = {
            let device = Arc::clone(&device);
            thread::spawn(move || {
                let account = device.account::<Sound>();
                if account.attempt(1, UNIT) == Attempt::Granted {
                    account.release(1, UNIT);
                }
                account.take(1, 2 * UNIT)
            })
        };
        let mine = device.account::<Sound>().attempt(0, 39 * UNIT) == Attempt::Granted;
        let taken = other.join().unwrap();
        assert!(device.charged() <= 40 * UNIT);
        assert!(!(mine && taken), "granted twice");
        assert_eq!(device.account::<Sound>().survey().pending, 0);
    });
}

/// A process that is killed after any of its steps leaves at least what it was granted in its line, until it is buried.
#[test]
fn a_grant_is_in_the_sum_at_every_instant() {
    model(3, || {
        let device = Device::new(4 * UNIT, 1);
        assert_eq!(
            device.account::<Sound>().contend(0, 2 * UNIT, 0),
            Attempt::Granted
        );
        let twin = {
            let device = Arc::clone(&device);
            thread::spawn(move || device.account::<Sound>().contend(0, 2 * UNIT, 0))
        };
        let first = device.account::<Sound>().survey().total();
        let second = device.account::<Sound>().survey().total();
        // Once announced it never leaves, though it moves.
        assert!(first >= 2 * UNIT && second >= first.min(4 * UNIT));
        twin.join().unwrap();
    });
}

/// Two threads of one process share its line.
#[test]
fn threads_of_one_slot_never_pass_the_budget_and_lose_nothing() {
    model(2, || {
        let device = Device::new(3 * UNIT, 2);
        let twin = {
            let device = Arc::clone(&device);
            thread::spawn(move || {
                let granted = device.account::<Sound>().contend(0, 2 * UNIT, 0) == Attempt::Granted;
                if granted {
                    device.account::<Sound>().release(0, 2 * UNIT);
                }
            })
        };
        let mine = device.account::<Sound>().contend(0, 2 * UNIT, 0) == Attempt::Granted;
        twin.join().unwrap();
        assert!(device.charged() <= 3 * UNIT);
        assert_eq!(
            device.account::<Sound>().word(0).used(),
            if mine { 2 * UNIT } else { 0 }
        );
    });
}

/// A lease given back or marked under the old budget is void once the owner has returned.
#[test]
fn no_lease_outlives_a_lowered_budget() {
    model(2, || {
        let device = Device::new(8 * UNIT, 1);
        let holder = {
            let device = Arc::clone(&device);
            thread::spawn(move || {
                let granted =
                    device.account::<Sound>().contend(0, 2 * UNIT, UNIT) == Attempt::Granted;
                if granted {
                    device.account::<Sound>().release(0, UNIT);
                }
            })
        };
        device.account::<Sound>().set_budget(Some(0));
        holder.join().unwrap();
        assert!(
            !device.account::<Sound>().take(0, UNIT),
            "granted from a void lease"
        );
        let _ = device.high.load(Ordering::Relaxed);
    });
}

/// Nor one that was granted, or given back, while somebody was charged unasked beyond the budget.
#[test]
fn no_lease_outlives_a_charge_beyond_the_budget() {
    model(2, || {
        let device = Device::new(4 * UNIT, 2);
        let holder = {
            let device = Arc::clone(&device);
            thread::spawn(move || {
                let account = device.account::<Sound>();
                if account.contend(0, 2 * UNIT, UNIT) == Attempt::Granted {
                    account.release(0, UNIT);
                }
            })
        };
        assert!(device.account::<Sound>().overdraw(1, 4 * UNIT));
        holder.join().unwrap();
        assert!(
            !device.account::<Sound>().take(0, UNIT),
            "granted beside a charge beyond the budget"
        );
    });
}
