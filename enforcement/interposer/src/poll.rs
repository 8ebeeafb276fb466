//! A look at the driver's figures now and then, on the way of a call that asks for no memory.
//!
//! A look follows what is asked of us, so a process that only gives the device work would never be looked at again, whatever else it takes by
//! calls that no hook knows. So launches, memsets and waits compare a counter of the processor's with the time of the next look: two loads and
//! a subtraction. A look is due after 10⁸ ticks (20 to 100 ms; 50 ms where the counter tells its frequency), and not before a hundred times what the
//! last one took, or twenty of these times if that is sooner, so that looks cost a hundredth of the time, and a tenth where each is slow. No thread, no clock of libc's.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use ledger::{Cancelability, KeptErrno};
use std::panic::{AssertUnwindSafe, catch_unwind};

use budget::Bytes;
use budget::charge::BLOCK;
use seeds::{Seed, planted};
use throttle::Nanos;

use crate::boundary::arena::{self, Lock};
use crate::boundary::{thread, time};
use crate::devices::current_context;
use crate::outcome::Refused;
use crate::process::{Standing, Tenant, standing};

/// When the next look is due, by the processor's counter. All zeros: the first call that comes along sets it.
#[repr(C)]
pub struct Poll {
    next: AtomicU64,
    /// Threads that were seen to use streams of their own, by a hash of their pointers. A thread that is pushed out by another is looked at again.
    threads: [AtomicUsize; THREADS],
    coming: Coming,
}

/// Threads whose first call on a stream of their own is under way, or whose look, by the kernel's numbers.
#[repr(C)]
struct Coming {
    /// Held while one is judged.
    judging: Lock,
    /// So many places from the first have been used.
    used: AtomicU32,
    places: [AtomicU32; MOST_COMING],
}

const THREADS: usize = 4096;
/// Places of the table in which a thread may stand.
const WAYS: usize = 4;

/// How long a thread's first call waits, where the budget has no room for a stream for each of those that are under way.
const PATIENCE: Nanos = Nanos::millis(100);
/// So many of them are under way at most where it has none: some may be copies that last.
const MOST_WITHOUT_ROOM: u64 = 4;
/// So many of them are counted.
const MOST_COMING: usize = 1024;

/// So many times longer than a look lasts nobody looks again,
const SPACING: u64 = 100;
/// unless that were longer than so many intervals: one slow look (a thread that lost its core, a busy NVML) is no reason to see nothing for ten seconds.
const INTERVALS: u64 = 20;
/// But so many times longer in any case.
const LEAST_SPACING: u64 = 10;

/// Ticks from the end of a look that took so many to the next.
pub fn pause_after(took: u64) -> u64 {
    let longest = time::look_interval().saturating_mul(INTERVALS);
    let least = took.saturating_mul(LEAST_SPACING);
    took.saturating_mul(SPACING).min(longest.max(least))
}

/// Looks at the driver's figures, if it is time to.
#[inline(always)]
pub fn poll() {
    if let Some(memory) = arena::enforcing()
        && time::ticks() >= memory.poll.next.load(Ordering::Relaxed)
    {
        memory.poll.run();
    }
}

/// After a call that may have used the thread's own default stream: the driver makes one for each thread, of 560 KiB on an H200 (R18 of
/// `fixtures/defects.txt`), so the first such call of a thread is followed by a look. A thread in the place of one that is gone is taken for it, and
/// its stream may be taken over by a third: what it then makes is found when the time for a look has come, as on the way of a launch.
#[inline(always)]
pub fn meet_thread() {
    poll();
    if let Some(memory) = arena::enforcing() {
        let own = thread::pointer();
        let place = place_of(own);
        if memory.poll.threads[place].load(Ordering::Relaxed) != own {
            memory.poll.meet(own, place);
        }
    }
}

/// Whether the calling thread has not been seen to use its own default stream yet.
#[inline(always)]
pub fn is_unmet() -> bool {
    arena::enforcing().is_some_and(|memory| {
        let own = thread::pointer();
        let place = place_of(own);
        memory.poll.threads[place].load(Ordering::Relaxed) != own
            && memory.poll.is_unmet(own, place)
    })
}

#[inline(always)]
fn place_of(thread: usize) -> usize {
    (thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % THREADS
}

impl Poll {
    fn ways(&self, place: usize) -> impl Iterator<Item = &AtomicUsize> {
        (0..WAYS).map(move |way| &self.threads[(place + way) % THREADS])
    }

    #[cold]
    #[inline(never)]
    fn is_unmet(&self, own: usize, place: usize) -> bool {
        self.ways(place)
            .all(|known| known.load(Ordering::Relaxed) != own)
    }

    #[cold]
    #[inline(never)]
    fn meet(&self, own: usize, place: usize) {
        let mut free = None;
        for known in self.ways(place) {
            match known.load(Ordering::Relaxed) {
                0 => free = free.or(Some(known)),
                thread if thread == own => return,
                _ => {}
            }
        }
        let before = Cancelability::withhold();
        let place = free.unwrap_or(&self.threads[place]);
        let _ = catch_unwind(AssertUnwindSafe(|| look_for_new(place, own)));
        before.restore();
    }

    #[cold]
    #[inline(never)]
    fn run(&self) {
        let before = time::ticks();
        let due = self.next.load(Ordering::Relaxed);
        let interval = time::look_interval();
        // One thread looks; the others see that the time is not yet.
        let mine = self.next.compare_exchange(
            due,
            before.saturating_add(interval),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_err() || due == 0 {
            return;
        }
        let cancelability = Cancelability::withhold();
        // No panic crosses C, and this is beside every call.
        let _ = catch_unwind(look_in_passing);
        let after = time::ticks();
        let pause = pause_after(after.saturating_sub(before));
        self.next
            .store(after.saturating_add(pause.max(interval)), Ordering::Relaxed);
        cancelability.restore();
    }
}

/// A thread's first call on its own default stream, noted in `place`.
#[inline(never)]
fn look_for_new(place: &AtomicUsize, own: usize) {
    // Before a context there is no stream.
    let Standing::Enforce(tenant) = standing() else {
        return;
    };
    let Ok(device) = tenant.current_device() else {
        return;
    };
    place.store(own, Ordering::Relaxed);
    if !tenant.look_at(device) && !planted(Seed::R18b) {
        // Where no row tells it is charged as a stream that a call makes, until its context ends.
        let begun = tenant.memory.contexts.begin_stream(current_context());
        begun.into_iter().for_each(|begun| {
            begun.commit(|more| _ = tenant.charge_anyway(device.indices, more));
        });
    }
    tenant.memory.poll.coming.end();
}

impl Coming {
    fn places(&self) -> &[AtomicU32] {
        let used = self.used.load(Ordering::Acquire) as usize;
        &self.places[..used.min(MOST_COMING)]
    }

    /// How many there are beside the calling thread.
    fn others(&self) -> u64 {
        let own = arena::thread();
        let is_other = |place: &&AtomicU32| ![0, own].contains(&place.load(Ordering::Acquire));
        self.places().iter().filter(is_other).count() as u64
    }

    /// The calling thread is one, by who holds `judging`. Beyond what is counted it is none.
    fn begin(&self) {
        self.end();
        let is_free = |place: &AtomicU32| place.load(Ordering::Acquire) == 0;
        if let Some(at) = self.places.iter().position(is_free) {
            self.places[at].store(arena::thread(), Ordering::Release);
            self.used.fetch_max(at as u32 + 1, Ordering::AcqRel);
        }
    }

    fn end(&self) {
        let own = arena::thread();
        self.forget(|thread| thread == own);
    }

    /// One that was cancelled in its call comes no more.
    fn forget_gone(&self) {
        let _errno = KeptErrno::keep();
        self.forget(|thread| !thread::is_alive(thread));
    }

    fn forget(&self, is_meant: impl Fn(u32) -> bool) {
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        for place in self.places() {
            let thread = place.load(Ordering::Acquire);
            if thread != 0 && is_meant(thread) {
                let _ = place.compare_exchange(thread, 0, order, failed);
            }
        }
    }
}

impl Tenant {
    /// Before a call that would be a thread's first on its own default stream, for which the driver takes memory. Over the budget it is refused, as where a
    /// device is full; where there is no room for the streams of all such calls that are under way it waits for their looks (R18 of
    /// `fixtures/defects.txt`). A look follows, by [`meet_thread`].
    pub fn let_thread_in(self) -> Result<(), Refused> {
        let Ok(device) = self.current_device() else {
            return Ok(());
        };
        let coming = &self.memory.poll.coming;
        let end = time::now().plus(PATIENCE);
        loop {
            self.room_for_unasked()?;
            let judging = coming.judging.hold();
            let others = coming.others();
            let bytes = BLOCK.0.saturating_mul(others + 1);
            let refusal = self.refusal_of(device.indices, Bytes(bytes));
            let Some(refusal) = refusal.filter(|_| others != 0) else {
                coming.begin();
                return Ok(());
            };
            coming.forget_gone();
            let waits = time::now() < end;
            if !waits && others < MOST_WITHOUT_ROOM {
                coming.begin();
                return Ok(());
            }
            drop(judging);
            if !waits {
                return Err(Refused::Ledger(refusal));
            }
            time::sleep_until(time::now().plus(Nanos::millis(1)));
        }
    }
}

#[inline(never)]
fn look_in_passing() {
    if let Standing::Enforce(tenant) = standing() {
        tenant.look_in_passing();
    }
}
