//! A process's way to one device: what [`Throttle`] orders is done here, for whatever API the work comes by.

use crate::throttle::WATCHED;
use crate::word::Word;
use crate::{
    Belief, Costs, Key, Launch, Launched, Measured, Nanos, Order, Rules, Share, Shared, Slot,
    Sound, Throttle, Told,
};

/// Most turns are over by then.
const SPUN: Nanos = Nanos::micros(500);
const NAPS: Nanos = Nanos::micros(50);
/// Of the time from a mark in an idle stream to the end of the kernel behind it, what NVML does not count (an H200 under 50 %: kernels of 10 us were held to 45.9
/// with all of it paid, which is 1.1 us; a mark comes 3.5 us before the work behind it).
const FETCH: Nanos = Nanos::micros(1);
/// A launch between two marks takes longer than one among others by so many eighths of the time between two marks with nothing between them (an H200: 3.5 us for an
/// empty kernel, 1.4 each of many, 1.3 from mark to mark), and this at most.
const SLOWED: u64 = 13;
const MOST_SLOWED: Nanos = Nanos::micros(4);

/// A launch that is over before the mark behind it is set may take anything up to then, and the host sets it as fast as it happens to be: it is taken for as long as
/// was believed, or for this, at least, which is what NVML counts for the shortest (an H200: 31 % for 142,000 a second; by the marks 0.8 us each for seconds, and 4.7
/// for seconds).
const QUICK: Nanos = Nanos(2_200);

/// Whoever waits behind others of its process looks whether they are done when the first of them does, and after these times; and goes before them where the first has
/// not asked for so long.
const BEHIND: [Nanos; 2] = [Nanos::micros(200), Nanos::millis(5)];
const GONE: Nanos = Nanos::millis(20);

/// A mark in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Before a lease's first launch.
    Opened,
    /// Before its last launch, if that is another.
    Last,
    /// After its last launch.
    Closed,
    /// Now and then: right behind that one.
    Behind,
}

/// What can be asked of marks that were set.
pub trait Marks {
    /// Whether the device has reached a lease's mark; `None` where nobody can say.
    fn reached(&self, place: u64, slot: Slot, mark: Mark) -> Option<bool>;
    /// From one mark to another, of the same lease or of two, both reached. `None` where the other was reached earlier, too.
    fn between(&self, place: u64, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos>;
    /// Whether the launch's stream has nothing before it that a mark would wait for; `None` where nobody can say.
    fn is_idle(&self) -> Option<bool> {
        None
    }
    /// Whether the launch may wait for something else than the device before it begins.
    fn waits(&self) -> bool {
        false
    }
    /// Which stream or queue the launch is for, by a number of the site's own.
    fn stream(&self) -> u64 {
        0
    }
}

/// Where a launch happens: the clock, the waiting and the marks of the library that it comes by.
pub trait Site: Marks {
    /// Keeps the process's other threads out until it is dropped. Never held while anything is waited for or launched.
    type Turn;

    fn turn(&self) -> Self::Turn;
    fn now(&self) -> Nanos;
    fn sleep_until(&self, until: Nanos);
    /// Sets a lease's mark behind what the launch's stream holds so far. Answers by which number it can be asked for, 0 where it could not be set.
    /// Two marks can be compared where their numbers are the same. [`Mark::Behind`] may be refused for good.
    fn set(&self, slot: Slot, mark: Mark) -> u64;
    /// How busy the device was by the driver's figures after the one of that time. `None` where nobody can say. It may take milliseconds.
    fn told(&self, since: u64) -> Option<Told>;
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

/// How a lease's last launch was made, or the mark that ended it.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Where its mark is.
    pub place: u64,
    /// It is a mark alone.
    pub ended: bool,
    /// How long the mark before the launch had been reached when the launch was made; or not 0, if the stream was idle at the mark that ended it.
    pub gap: Nanos,
    /// From the launch's return until the mark behind it was set.
    pub tail: Nanos,
    /// There is a mark behind its mark.
    pub gauged: bool,
}

/// All zeros is nothing yet.
#[derive(Default)]
#[repr(C)]
pub struct Lane<R: Rules = Sound> {
    throttle: Throttle<R>,
    costs: Costs,
    line: Line,
}

/// The threads of a process that wait for the budget go one after another, whoever began to wait first: else who wakes first takes every lease, and the others
/// wait for hundreds of milliseconds. Asked and told by one thread at a time.
#[derive(Default)]
#[repr(C)]
struct Line {
    /// When the first of them began to wait, when it last asked, and until when it sleeps. Zero: nobody waits.
    first: Word,
    asked: Word,
    until: Word,
}

impl Line {
    /// Whether who waits since then is the first, at a time.
    fn is_first(&self, since: Nanos, now: Nanos) -> bool {
        let first = self.first.get();
        let is_gone = now > self.asked.get().plus(GONE);
        if first != Nanos::ZERO && first < since && !is_gone {
            return false;
        }
        self.first.set(since);
        self.asked.set(now);
        true
    }

    /// The first sleeps until then.
    fn wait(&self, since: Nanos, until: Nanos) {
        if self.first.get() == since {
            self.until.set(until);
        }
    }

    /// Until when the others do.
    fn behind(&self, now: Nanos) -> Nanos {
        let [least, most] = BEHIND.map(|pause| now.plus(pause));
        self.until.get().clamp(least, most)
    }

    fn leave(&self, since: Nanos) {
        if self.first.get() == since {
            self.first.set(Nanos::ZERO);
        }
    }
}

impl<R: Rules> Lane<R> {
    /// Whether the lease covers a launch: what most launches cost.
    #[inline]
    pub fn pass(&self, key: Key) -> bool {
        self.throttle.pass(self.costs.of(key))
    }

    /// What the next launch is behind may wait for something else than the device's work.
    #[inline]
    pub fn note_wait(&self) {
        self.throttle.note_wait();
    }

    /// Waits until a launch that did not pass may happen. If marks belong around it, `call` makes it and answers whether it was.
    pub fn pace<S: Site>(
        &self,
        site: &S,
        budget: &Budget<'_>,
        key: Key,
        call: &mut dyn FnMut() -> bool,
    ) -> Paced {
        self.ask_device(site, budget);
        let since = site.now();
        loop {
            let order = {
                let _turn = site.turn();
                let now = site.now();
                let order = match self.line.is_first(since, now) {
                    true => self.order(site, budget, now, key),
                    false => Order::Wait(self.line.behind(now)),
                };
                match order {
                    Order::Wait(until) => self.line.wait(since, until),
                    _ => self.line.leave(since),
                }
                order
            };
            match order {
                Order::Go => return Paced::Covered,
                Order::Wait(until) => {
                    site.sleep_until(until);
                    self.ask_device(site, budget);
                }
                Order::End(slot) => self.end(site, budget, slot),
                Order::Mark {
                    slot,
                    opens,
                    closes,
                } => {
                    self.mark(site, budget, slot, (opens, closes), call);
                    return Paced::Made;
                }
            }
            if self.pass(key) {
                let _turn = site.turn();
                self.line.leave(since);
                return Paced::Covered;
            }
        }
    }

    /// Now and then the device is asked how busy it was.
    fn ask_device<S: Site>(&self, site: &S, budget: &Budget<'_>) {
        let asked = site.now();
        let since = {
            let _turn = site.turn();
            self.is_to_ask(budget, asked)
        };
        if let Some(since) = since {
            let told = site.told(since);
            let _turn = site.turn();
            self.hear(budget, (asked, site.now()), told);
        }
    }

    /// See [`Throttle::is_to_ask`].
    pub fn is_to_ask(&self, budget: &Budget<'_>, now: Nanos) -> Option<u64> {
        self.throttle.is_to_ask(&budget.shared, now)
    }

    /// See [`Throttle::hear`].
    pub fn hear(&self, budget: &Budget<'_>, when: (Nanos, Nanos), told: Option<Told>) {
        self.throttle.hear(&budget.shared, budget.share, when, told);
    }

    /// What is to be done with a launch that did not pass. To be called by one thread at a time.
    pub fn order(&self, marks: &impl Marks, budget: &Budget<'_>, now: Nanos, key: Key) -> Order {
        let Budget { shared, share } = budget;
        self.look(marks, budget, now);
        let launch = Launch {
            key,
            cost: self.costs.of(key),
            mean: &|time| self.costs.mean(key, time),
            is_idle: &|| marks.is_idle(),
            waits: marks.waits(),
            stream: marks.stream(),
        };
        self.throttle.submit(shared, *share, now, &launch)
    }

    /// What the device is done with is paid for, and what is in marks that are gone by the time of now. To be called by one thread at a time: before marks go, and when
    /// what stands before them is over.
    pub fn look(&self, marks: &impl Marks, budget: &Budget<'_>, now: Nanos) {
        for slot in self.throttle.in_flight() {
            self.ask(marks, budget, now, slot);
        }
    }

    /// Whether the device is done with a lease, and what it took.
    fn ask(&self, marks: &impl Marks, budget: &Budget<'_>, now: Nanos, slot: Slot) {
        let Budget { shared, share } = budget;
        let lease = self.throttle.lease(slot);
        let (opened, place) = (lease.opened_in.get().0, lease.closed_in.get().0);
        if !lease.is_closed() || marks.reached(place, slot, Mark::Closed) == Some(false) {
            let begun = || marks.reached(opened, slot, Mark::Opened) != Some(false);
            self.throttle.unfinished(shared, *share, now, slot, begun);
            return;
        }
        let between = |from, to| marks.between(place, (slot, from), (slot, to));
        let (gap, tail) = (lease.gap.get(), lease.tail.get());
        let alone = lease.alone.is_set();
        let whole = match opened == place {
            true => between(Mark::Opened, Mark::Closed),
            false => None,
        };
        let last = match (lease.ended.is_set(), alone) {
            (true, _) => None,
            (false, true) => whole,
            (false, false) => between(Mark::Last, Mark::Closed),
        };
        let fetch = if gap > Nanos::ZERO {
            FETCH
        } else {
            Nanos::ZERO
        };
        if lease.gauged.is_set()
            && let Some(took) = between(Mark::Closed, Mark::Behind)
        {
            self.throttle.gauge(slot, took);
        }
        let slowed = self.throttle.gauged().scaled(SLOWED, 8).min(MOST_SLOWED);
        // The first time that a call takes long its launch may have run within it.
        let believed = self.costs.of(lease.key());
        let is_first = believed == Belief::Unknown;
        let without = |more: Nanos| {
            last.map(|whole| {
                let last = whole.less(gap);
                let least = if is_first { whole } else { last };
                last.less(fetch.plus(more)).max(least.scaled(1, 4))
            })
        };
        // What marks take is part of what the device does for the lease.
        let lease = match alone && last.is_some() {
            true => without(Nanos::ZERO),
            false => whole,
        };
        // It was over before the mark behind it was set.
        let is_over = last.is_some_and(|whole| whole.less(gap) <= tail.plus(FETCH.scaled(2, 1)));
        let last = without(slowed).map(|took| match gap > Nanos::ZERO {
            true if !R::HOSTS_MARKS_ARE_KNOWN => took,
            true if is_over && !is_first => took.min(believed.time()).max(QUICK),
            true => took.max(QUICK),
            false => took,
        });
        let end = whole.and_then(|span| {
            let apart = |earlier, later| {
                marks.between(place, (earlier, Mark::Closed), (later, Mark::Closed))
            };
            self.throttle.end_by_marks(now, (slot, span), apart)
        });
        let measured = Measured {
            lease,
            last,
            gap,
            end,
        };
        self.throttle
            .finished(shared, *share, &self.costs, now, (slot, measured));
    }

    /// A lease's first mark was set there.
    pub fn opened(&self, slot: Slot, place: u64) {
        self.throttle.lease(slot).opened_in.set(Nanos(place));
    }

    /// Which of the process's leases stands there.
    pub fn number(&self, slot: Slot) -> Nanos {
        self.throttle.lease(slot).number.get()
    }

    /// The lease of that number was closed. To be called by one thread at a time.
    pub fn closed(
        &self,
        budget: &Budget<'_>,
        now: Nanos,
        (slot, number): (Slot, Nanos),
        end: End,
        launched: Launched,
    ) {
        if self.number(slot) == number {
            let lease = self.throttle.lease(slot);
            lease.ended.note(end.ended);
            lease.gap.set(end.gap);
            lease.tail.set(end.tail);
            lease.gauged.note(end.gauged);
            lease.closed_in.set(Nanos(end.place));
        }
        self.throttle
            .launched(&budget.shared, budget.share, now, (slot, number), launched);
    }

    /// See [`Throttle::awaits_turn`].
    pub fn awaits_turn(&self, slot: Slot) -> Option<Nanos> {
        self.throttle.awaits_turn(slot)
    }

    /// See [`Throttle::turned`].
    pub fn turned(&self, slot: Slot, lease: Nanos, took: Nanos) {
        self.throttle.turned(slot, lease, took);
    }

    /// A mark alone ends the lease.
    fn end<S: Site>(&self, site: &S, budget: &Budget<'_>, slot: Slot) {
        let number = self.number(slot);
        let place = site.set(slot, Mark::Closed);
        let idle = site.reached(place, slot, Mark::Closed) == Some(true);
        let launched = if place == 0 {
            Launched::Unmarked
        } else {
            Launched::Marked
        };
        let end = End {
            place,
            ended: true,
            gap: Nanos(u64::from(idle)),
            tail: Nanos::ZERO,
            gauged: false,
        };
        let _turn = site.turn();
        self.closed(budget, site.now(), (slot, number), end, launched);
    }

    /// Makes a launch between marks.
    fn mark<S: Site>(
        &self,
        site: &S,
        budget: &Budget<'_>,
        slot: Slot,
        (opens, closes): (bool, bool),
        call: &mut dyn FnMut() -> bool,
    ) {
        let number = self.number(slot);
        let before = if opens { Mark::Opened } else { Mark::Last };
        // Copies, or what another stream has to do first, are no turns of others.
        let lease = if opens {
            self.awaits_turn(slot)
                .filter(|_| !site.waits() && site.is_idle() != Some(false))
        } else {
            None
        };
        let place = site.set(slot, before);
        if opens {
            self.opened(slot, place);
        }
        if !closes {
            if call() {
                self.watch(site, slot, place, lease);
            }
            return;
        }
        let begun = site.now();
        let was_made = call();
        let made = site.now();
        // An idle stream reaches a mark at once, and what it then waits for is the launch. What waits for something else tells nothing of that: its mark may be within it,
        // and is reached when it is done.
        let idle = !site.waits() && site.reached(place, slot, before) == Some(true);
        let gap = if idle { made.less(begun).0.max(1) } else { 0 };
        let mut gauged = false;
        let is_marked = site.set(slot, Mark::Closed) == place && place != 0;
        let tail = site.now().less(made);
        let launched = match (is_marked, was_made) {
            (true, _) => Launched::Marked,
            (false, true) => Launched::Unmarked,
            (false, false) => Launched::Failed,
        };
        if is_marked && was_made {
            gauged = self.throttle.is_to_gauge(slot) && site.set(slot, Mark::Behind) == place;
        }
        let end = End {
            place,
            // What the driver refused is no launch: its mark ends the lease alone.
            ended: !was_made,
            gap: Nanos(gap),
            tail,
            gauged,
        };
        {
            let _turn = site.turn();
            self.closed(budget, site.now(), (slot, number), end, launched);
        }
        if was_made {
            self.watch(site, slot, place, lease);
        }
    }

    /// What turning to this process takes stands in no mark, and an application may look long after the end. So a launch that opens a lease
    /// after those of other processes returns when the device has turned, or is found not to in time.
    fn watch<S: Site>(&self, site: &S, slot: Slot, place: u64, lease: Option<Nanos>) {
        let made = site.now();
        let Some(lease) = lease.filter(|_| place != 0) else {
            return;
        };
        // When it was last seen not to have turned: a thread that loses its core in between has seen nothing.
        let mut took = Nanos::ZERO;
        while self.awaits_turn(slot) == Some(lease) {
            let asked = site.now().less(made);
            match site.reached(place, slot, Mark::Opened) {
                Some(false) if asked > WATCHED => return,
                Some(false) => took = asked,
                Some(true) => {
                    let _turn = site.turn();
                    self.turned(slot, lease, took);
                    return;
                }
                None => return,
            }
            if took > SPUN {
                site.sleep_until(made.plus(took).plus(NAPS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_began_to_wait_first_goes_first() {
        let line = Line::default();
        let [early, late] = [10, 20].map(Nanos::micros);
        assert!(line.is_first(late, Nanos::micros(21)));
        assert!(line.is_first(early, Nanos::micros(22)));
        assert!(!line.is_first(late, Nanos::micros(23)));
        line.leave(late);
        assert!(!line.is_first(late, Nanos::micros(24)));
        line.leave(early);
        assert!(line.is_first(late, Nanos::micros(25)));
    }

    #[test]
    fn who_does_not_come_back_keeps_nobody_waiting() {
        let line = Line::default();
        let [gone, other] = [10, 20].map(Nanos::micros);
        assert!(line.is_first(gone, gone));
        assert!(!line.is_first(other, gone.plus(GONE)));
        assert!(line.is_first(other, gone.plus(GONE).plus(Nanos(1))));
    }
}
