//! A process's way to one device: what [`Throttle`] orders is done here, for whatever API the work comes by.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::throttle::WATCHED;
use crate::{Costs, Key, Launched, Measured, Nanos, Order, Share, Shared, Throttle};

/// Most turns are over by then.
const SPUN: Nanos = Nanos::micros(500);
const NAPS: Nanos = Nanos::micros(50);

/// A mark in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Before a lease's first launch.
    Opened,
    /// Before its last launch, if that is another.
    Last,
    /// After its last launch.
    Closed,
}

/// Where a launch happens: the clock, the waiting and the marks of the library that it comes by.
pub trait Site {
    /// Keeps the process's other threads out until it is dropped. Never held while anything is waited for or launched.
    type Turn;

    fn turn(&self) -> Self::Turn;
    fn now(&self) -> Nanos;
    fn sleep_until(&self, until: Nanos);
    /// Sets a mark behind what the launch's stream holds so far. Answers by which number it can be asked for, 0 where it could not be set.
    /// Two marks can be compared where their numbers are the same.
    fn set(&self, mark: Mark) -> u64;
    /// Whether the launch's stream has nothing before it that a mark would wait for.
    fn is_idle(&self) -> bool;
    /// Whether the device has reached a mark; `None` where nobody can say.
    fn reached(&self, place: u64, mark: Mark) -> Option<bool>;
    /// From one mark to another, both reached.
    fn between(&self, place: u64, from: Mark, to: Mark) -> Option<Nanos>;
}

/// Whose time a launch takes.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    pub shared: Shared<'a>,
    pub share: Share,
}

/// What became of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paced {
    /// It is paid for, and the caller's to make.
    Covered,
    /// It was made.
    Made,
}

/// All zeros is nothing yet.
#[derive(Default)]
#[repr(C)]
pub struct Lane {
    throttle: Throttle,
    costs: Costs,
    /// The lease's last launch was its first, too; or there was none, and a mark alone ended it.
    alone: AtomicU32,
    ended: AtomicU32,
    /// Where the lease was opened and closed.
    opened_in: AtomicU64,
    closed_in: AtomicU64,
    /// How long the mark before the last launch had been reached when the launch was made.
    gap: AtomicU64,
}

impl Lane {
    /// Whether the lease covers a launch: what most launches cost.
    #[inline]
    pub fn pass(&self, key: Key) -> bool {
        self.throttle.pass(self.costs.of(key))
    }

    /// Waits until a launch that did not pass may happen. If marks belong around it, `call` makes it and answers whether it was.
    pub fn pace<S: Site>(
        &self,
        site: &S,
        budget: &Budget<'_>,
        key: Key,
        call: &mut dyn FnMut() -> bool,
    ) -> Paced {
        loop {
            match self.order(site, budget, key) {
                Order::Go => return Paced::Covered,
                Order::Wait(until) => site.sleep_until(until),
                Order::Look => {}
                Order::End => self.end(site, budget),
                Order::Mark { opens, closes } => {
                    self.mark(site, budget, (opens, closes), call);
                    return Paced::Made;
                }
            }
            if self.pass(key) {
                return Paced::Covered;
            }
        }
    }

    fn order<S: Site>(&self, site: &S, budget: &Budget<'_>, key: Key) -> Order {
        let _turn = site.turn();
        let cost = self.costs.of(key);
        let order = self
            .throttle
            .submit(&budget.shared, budget.share, site.now(), key, cost);
        match order {
            Order::Look => self.look(site, budget),
            order => order,
        }
    }

    /// Whether the device is done with the closed lease, and what it took.
    fn look<S: Site>(&self, site: &S, budget: &Budget<'_>) -> Order {
        let Budget { shared, share } = budget;
        let place = self.closed_in.load(Ordering::Relaxed);
        if site.reached(place, Mark::Closed) == Some(false) {
            return Order::Wait(self.throttle.unfinished(shared, *share, site.now()));
        }
        let gap = Nanos(self.gap.load(Ordering::Relaxed));
        let alone = self.alone.load(Ordering::Relaxed) != 0;
        let ended = self.ended.load(Ordering::Relaxed) != 0;
        let whole = if self.opened_in.load(Ordering::Relaxed) == place {
            site.between(place, Mark::Opened, Mark::Closed)
        } else {
            None
        };
        let last = match (alone, ended) {
            (true, _) => whole,
            (false, true) => None,
            (false, false) => site.between(place, Mark::Last, Mark::Closed),
        };
        let last = last.map(|last| last.less(gap));
        let measured = Measured {
            lease: if alone { last } else { whole },
            last,
            gap,
        };
        self.throttle
            .finished(shared, *share, &self.costs, site.now(), measured);
        Order::Look
    }

    /// A mark alone ends the lease.
    fn end<S: Site>(&self, site: &S, budget: &Budget<'_>) {
        let place = site.set(Mark::Closed);
        let idle = site.reached(place, Mark::Closed) == Some(true);
        let launched = if place == 0 {
            Launched::Unmarked
        } else {
            Launched::Marked
        };
        self.closed(site, budget, place, [0, 1, u64::from(idle)], launched);
    }

    /// Makes a launch between marks.
    fn mark<S: Site>(
        &self,
        site: &S,
        budget: &Budget<'_>,
        (opens, closes): (bool, bool),
        call: &mut dyn FnMut() -> bool,
    ) {
        let before = if opens { Mark::Opened } else { Mark::Last };
        // Copies, or what another stream has to do first, are no turns of others.
        let lease = if opens {
            self.throttle.awaits_turn().filter(|_| site.is_idle())
        } else {
            None
        };
        let place = site.set(before);
        if opens {
            self.opened_in.store(place, Ordering::Relaxed);
        }
        if !closes {
            if call() {
                self.watch(site, place, lease);
            }
            return;
        }
        let begun = site.now();
        let was_made = call();
        let made = site.now();
        // An idle stream reaches a mark at once, and what it then waits for is the launch.
        let idle = site.reached(place, before) == Some(true);
        let gap = if idle { made.less(begun).0.max(1) } else { 0 };
        let launched = match was_made {
            true if site.set(Mark::Closed) == place && place != 0 => Launched::Marked,
            true => Launched::Unmarked,
            false => Launched::Failed,
        };
        self.closed(site, budget, place, [u64::from(opens), 0, gap], launched);
        if was_made {
            self.watch(site, place, lease);
        }
    }

    /// What turning to this process takes stands in no mark, and an application may look long after the end. So a launch that opens a lease
    /// after those of other processes returns when the device has turned, or is found not to in time.
    fn watch<S: Site>(&self, site: &S, place: u64, lease: Option<Nanos>) {
        let made = site.now();
        let Some(lease) = lease.filter(|_| place != 0) else {
            return;
        };
        // When it was last seen not to have turned: a thread that loses its core in between has seen nothing.
        let mut took = Nanos::ZERO;
        while self.throttle.awaits_turn() == Some(lease) {
            let asked = site.now().less(made);
            match site.reached(place, Mark::Opened) {
                Some(false) if asked > WATCHED => return,
                Some(false) => took = asked,
                Some(true) => {
                    let _turn = site.turn();
                    self.throttle.turned(lease, took);
                    return;
                }
                None => return,
            }
            if took > SPUN {
                site.sleep_until(made.plus(took).plus(NAPS));
            }
        }
    }

    fn closed<S: Site>(
        &self,
        site: &S,
        budget: &Budget<'_>,
        place: u64,
        [alone, ended, gap]: [u64; 3],
        launched: Launched,
    ) {
        let _turn = site.turn();
        self.alone.store(alone as u32, Ordering::Relaxed);
        self.ended.store(ended as u32, Ordering::Relaxed);
        self.gap.store(gap, Ordering::Relaxed);
        self.closed_in.store(place, Ordering::Relaxed);
        self.throttle
            .launched(&budget.shared, budget.share, site.now(), launched);
    }
}
