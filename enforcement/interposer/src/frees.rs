//! Streams in whose order something was freed, and waiting for them before a request is refused.
//!
//! A pool keeps what is freed until somebody has waited for the free: a trim gives nothing of it back (H200, 580.159.04), and the
//! driver's own way out of a full device is to wait. So is ours, for a time: a stream that never comes to its end must not hold up
//! a request for ever. A stream is waited for by an event of ours that is looked at, because a wait of the driver's could not be
//! given up; and only while it lives, because a handle that is gone ends the process.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use abi::cuda::{CUcontext, CUevent, CUresult, CUstream};
use budget::DeviceSet;
use ledger::KeptErrno;
use throttle::Nanos;

use crate::boundary::arena::{self, Held, Lock};
use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::boundary::time;
use crate::capture::{Relaxed, is_outside};
use crate::deferred::Freed;
use crate::devices::current_context;
use crate::marks::Entered;
use crate::process::Tenant;
use seeds::{Seed, planted};

/// Streams that are remembered: more than a device has memory for. What is freed in more of them is waited for by the program alone.
const ROOM: usize = 1 << 14;
/// How long a request waits for what may make room for it, rather than be refused.
pub const PATIENCE: Nanos = Nanos(10_000_000_000);
/// Between two looks.
pub const SHORTEST: Nanos = Nanos(50_000);
pub const LONGEST: Nanos = Nanos(1_000_000);
/// CU_STREAM_LEGACY, which is behind all streams that it and they wait for each other.
pub const LEGACY: u64 = 1;
/// The last of the handles that stand for default streams.
pub const DEFAULT: u64 = 2;

/// All zeros is no stream.
#[repr(C)]
pub struct Frees {
    /// Held while the driver is asked about a stream, so that it is not destroyed meanwhile, and while the table changes.
    lock: Lock,
    turn: Turn,
    /// Waits that came to an end.
    rounds: AtomicU64,
    /// Seats that anybody ever sat in lie below.
    high: AtomicUsize,
    seats: [Seat; ROOM],
}

#[repr(C)]
struct Seat {
    /// 0 where nobody sits.
    context: AtomicU64,
    stream: AtomicU64,
    /// Our event in it, made when it is first waited for.
    event: AtomicU64,
    /// Not 0: something was freed in it that we have not waited for ([`FREED`], [`AWAITED`]).
    dirty: AtomicU32,
    /// Not 0: it was waited for in vain. It is looked at once from then on.
    stuck: AtomicU32,
    /// The context's device; of a green context no table knows it.
    ordinal: AtomicU32,
}

const FREED: u32 = 1;
/// All that was freed in it is before our event, which a request waits for, unless a signal's handler jumped out of its wait.
const AWAITED: u32 = 2;

/// That of the one request that waits, by its thread's number and until when it does. It is no lock: a wait takes seconds, in which a signal's handler
/// may ask for memory on that same thread, or jump out of the wait. Two that wait at once do each other no harm.
#[repr(C)]
struct Turn {
    /// 0 where nobody waits.
    thread: AtomicU32,
    until: AtomicU64,
}

/// The turn, until dropped.
struct Taken<'a> {
    turn: &'a Turn,
    thread: u32,
}

/// By whose wait the driver knows that what is before an event is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    Ours,
    /// The program has just waited for a stream or an event.
    Program,
}

/// How a stream stands to our event in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    Reached,
    NotYet,
    /// It is captured, or gone, or the driver does not say.
    Unknown,
}

impl Tenant {
    /// Something was freed in a stream's order. `last` is the stream of the last such free beside it, by whose word most frees end here.
    #[inline]
    pub fn freed_in(self, stream: CUstream, last: &AtomicU64) {
        let stream = match stream.0 as u64 {
            ..=DEFAULT => LEGACY,
            stream => stream,
        };
        if last.load(Ordering::Relaxed) != stream {
            // The word first: whoever takes the mark away clears the word after it.
            last.store(stream, Ordering::SeqCst);
            self.remember(stream);
        }
    }

    #[cold]
    fn remember(self, stream: u64) {
        let mut context = CUcontext::NULL;
        let context = match stream {
            LEGACY => current_context(),
            _ => match next::cuStreamGetCtx(handle(stream), Out::to(&mut context)) {
                CUresult::SUCCESS => context.0 as u64,
                _ => return,
            },
        };
        if context == 0 {
            return;
        }
        if let Some(ordinal) = self.memory.contexts.ordinal_of(context) {
            return self.seat_in_charged(context, stream, ordinal);
        }
        let _entered = (!planted(Seed::R26b)).then(|| Entered::into(context));
        let device = _entered.as_ref().and_then(|_| self.current_device().ok());
        let held = self.memory.frees.lock.hold();
        self.seat(
            &held,
            context,
            stream,
            device.map_or(u32::MAX, |device| device.ordinal),
        );
    }

    /// A stream of a context that the table had, unless another thread has ended that since: nobody would take the seat away again, and no event can be set
    /// there, so that destroyed pools would wait for it for ever (R100 of `fixtures/defects.txt`).
    fn seat_in_charged(self, context: u64, stream: u64, ordinal: u32) {
        let held = self.memory.frees.lock.hold();
        if self.memory.contexts.ordinal_of(context).is_some() || planted(Seed::R100) {
            self.seat(&held, context, stream, ordinal);
        }
    }

    fn seat(self, _held: &Held<'_>, context: u64, stream: u64, ordinal: u32) {
        let frees = &self.memory.frees;
        let known = frees.seats().iter().find(|seat| seat.is(context, stream));
        let free = || {
            let place = frees.seats.iter().position(|seat| seat.is(0, 0))?;
            frees.high.fetch_max(place + 1, Ordering::AcqRel);
            frees.seats.get(place)
        };
        if let Some(seat) = known.or_else(free) {
            seat.stream.store(stream, Ordering::Relaxed);
            seat.ordinal.store(ordinal, Ordering::Relaxed);
            seat.context.store(context, Ordering::Release);
            seat.dirty.store(FREED, Ordering::SeqCst);
        }
    }

    /// Before the driver destroys a stream: from here on nobody names it.
    pub fn forget_stream(self, stream: CUstream) {
        let stream = stream.0 as u64;
        if stream > DEFAULT {
            self.keep_what_it_owes(stream);
            self.forget_stream_of_frees(stream);
            self.forget_frees(|seat| seat.stream.load(Ordering::Relaxed) == stream);
        }
    }

    /// The same of all of a context's, before it is destroyed.
    pub fn forget_streams_of(self, context: u64) {
        if context != 0 {
            self.forget_events_of(context);
            self.forget_frees(|seat| seat.context.load(Ordering::Relaxed) == context);
        }
    }

    /// A context is gone, and nobody knows it any more: what another thread seated while it ended goes too. Its events are no handles any more.
    pub fn forget_late_streams_of(self, context: u64) {
        if planted(Seed::R100) {
            return;
        }
        let is_meant = |seat: &Seat| seat.context.load(Ordering::Relaxed) == context;
        self.forget_seats(is_meant, |_| {});
    }

    /// Before a green context is destroyed: its streams are no handles from then on, but come to what was freed in them all the same (H200, 580.159.04),
    /// which the end of its primary context ends at the latest.
    pub fn forget_streams_of_green(self, green: u64, primary: u64) {
        if green == 0 || planted(Seed::R26b) {
            return;
        }
        let mut owing = self.owing();
        owing.retain(|(context, _)| *context == green);
        for (context, stream) in owing {
            self.defer_in(context, stream, Freed::OfSomePool);
        }
        self.give_frees_to(green, primary);
        self.forget_frees(|seat| seat.context.load(Ordering::Relaxed) == green);
    }

    /// What pools were freed in a stream and nobody has waited for outlives it: a pool that is destroyed may owe to it.
    fn keep_what_it_owes(self, stream: u64) {
        let owing = self.owing().into_iter().find(|(_, of)| *of == stream);
        if let Some((context, stream)) = owing {
            let _ = self.end_deferred();
            self.defer_in(context, stream, Freed::OfSomePool);
        }
    }

    /// Before a pool is destroyed: what was freed of it in any stream that nobody has waited for.
    #[cold]
    pub fn defer_frees_of_pool(self, place: u32) {
        for (context, stream) in self.owing() {
            self.defer_in(context, stream, Freed::OfPool(place));
        }
        self.owe_until(place, self.last_number());
    }

    /// The streams, with their contexts, in which something was freed that nobody has waited for.
    fn owing(self) -> Vec<(u64, u64)> {
        let _errno = KeptErrno::keep();
        let frees = &self.memory.frees;
        // Another thread may be about to clear a seat, word by word.
        let _held = frees.lock.hold();
        let dirty = |seat: &&Seat| {
            seat.context.load(Ordering::Acquire) != 0 && seat.dirty.load(Ordering::SeqCst) != 0
        };
        let seats = frees.seats().iter().filter(dirty);
        seats
            .map(|seat| {
                let context = seat.context.load(Ordering::Acquire);
                (context, seat.stream.load(Ordering::Relaxed))
            })
            .collect()
    }

    fn forget_frees(self, is_meant: impl Fn(&Seat) -> bool) {
        self.forget_seats(is_meant, destroy_event);
    }

    fn forget_seats(self, is_meant: impl Fn(&Seat) -> bool, end_event: fn(u64)) {
        let frees = &self.memory.frees;
        let _held = frees.lock.hold();
        let mut any = false;
        for seat in frees.seats().iter().filter(|seat| is_meant(seat)) {
            any = true;
            end_event(seat.event.load(Ordering::Relaxed));
            for word in [&seat.context, &seat.stream, &seat.event] {
                word.store(0, Ordering::Release);
            }
            seat.dirty.store(0, Ordering::Relaxed);
            seat.stuck.store(0, Ordering::Relaxed);
        }
        // Handles recur.
        if any {
            self.forget_last_frees();
        }
    }

    /// No capture begins while the driver is asked about a stream, which might end it.
    pub fn hold_streams(self) -> Held<'static> {
        self.memory.frees.lock.hold()
    }

    /// Waits until the streams of these devices have come to what was freed in them. Answers whether any has, here or in another
    /// thread meanwhile.
    #[cold]
    pub fn await_frees(self, devices: DeviceSet, end: Nanos) -> bool {
        let frees = &self.memory.frees;
        let round = frees.rounds.load(Ordering::Acquire);
        let turn = frees.turn.take(end);
        let mut reached = frees.rounds.load(Ordering::Acquire) != round;
        if turn.is_none() {
            return reached;
        }
        self.seat_default_streams(devices);
        let meant = |seat: &&Seat| {
            seat.context.load(Ordering::Acquire) != 0
                && self.is_of(seat.ordinal.load(Ordering::Relaxed), devices)
        };
        let mut awaited: Vec<&Seat> = frees
            .seats()
            .iter()
            .filter(meant)
            .filter(|seat| seat.is_to_be_awaited())
            .collect();
        self.forget_last_frees();
        // All events before the first wait: the streams come to theirs side by side.
        awaited.retain(|seat| {
            let set = self.set_event(seat);
            if !set {
                seat.dirty.store(FREED, Ordering::SeqCst);
            }
            set
        });
        for seat in awaited {
            if self.await_event(seat, end) {
                reached = true;
                seat.is_awaited_no_more();
            } else {
                seat.dirty.store(FREED, Ordering::SeqCst);
            }
        }
        if reached {
            frees.rounds.fetch_add(1, Ordering::AcqRel);
        }
        reached
    }

    /// Each context has a default stream of its own, and a pool remembers of its last free only that it was in one of them.
    fn seat_default_streams(self, devices: DeviceSet) {
        let freed = |seat: &Seat| {
            seat.stream.load(Ordering::Relaxed) == LEGACY && seat.dirty.load(Ordering::SeqCst) != 0
        };
        if self.memory.frees.seats().iter().any(freed) {
            for context in self.memory.contexts.list() {
                if self.is_of(context.ordinal, devices) {
                    self.seat_in_charged(context.handle, LEGACY, context.ordinal);
                }
            }
        }
    }

    pub fn is_of(self, ordinal: u32, devices: DeviceSet) -> bool {
        self.device(ordinal)
            .is_some_and(|device| device.indices.iter().any(|index| devices.contains(index)))
    }

    /// Sets our event behind what a stream has to do. False where that is not possible, or would end a capture.
    fn set_event(self, seat: &Seat) -> bool {
        // Whoever is about to destroy the stream takes the seat away with this held: what stands there is alive.
        let _held = self.memory.frees.lock.hold();
        let context = seat.context.load(Ordering::Relaxed);
        if context == 0 {
            return false;
        }
        let stream = handle(seat.stream.load(Ordering::Relaxed));
        let event = self.set_behind(context, stream, seat.event.load(Ordering::Relaxed));
        seat.event.store(event, Ordering::Relaxed);
        event != 0
    }

    /// As [`Tenant::event_behind`], in a stream that has a seat. `None`, and `event` is no more, where it has none any more: it is gone or about to be,
    /// and whoever took the seat has seen to what it owes.
    pub fn event_behind_seated(self, context: u64, stream: CUstream, event: u64) -> Option<u64> {
        let frees = &self.memory.frees;
        let _held = frees.lock.hold();
        let is_seated = |seat: &Seat| seat.is(context, stream.0 as u64);
        if frees.seats().iter().any(is_seated) {
            return Some(self.set_behind(context, stream, event));
        }
        destroy_event(event);
        None
    }

    /// An event of ours behind what a living stream has to do now: `event`, or a new one where that is 0. Answers 0 where that is not possible, or would
    /// end a capture; then `event` is no more.
    pub fn event_behind(self, context: u64, stream: CUstream, event: u64) -> u64 {
        let _held = self.memory.frees.lock.hold();
        self.set_behind(context, stream, event)
    }

    /// With the lock held.
    fn set_behind(self, context: u64, stream: CUstream, event: u64) -> u64 {
        const NO_TIMES: u32 = 2;
        let _relaxed = Relaxed::begin(self);
        let _entered = Entered::into(context);
        let mut event = CUevent(event as *mut _);
        let captured = self.memory.graphs.any_capture() && !is_outside(stream);
        let set = !captured
            && (!event.0.is_null()
                || next::cuEventCreate(Out::to(&mut event), NO_TIMES) == CUresult::SUCCESS)
            && next::cuEventRecord(event, stream) == CUresult::SUCCESS;
        if !set {
            destroy_event(event.0 as u64);
            return 0;
        }
        event.0 as u64
    }

    /// Whether a stream comes to our event before `end`.
    fn await_event(self, seat: &Seat, end: Nanos) -> bool {
        let mut pause = SHORTEST;
        loop {
            match self.stand(seat) {
                Stand::Reached => {
                    seat.stuck.store(0, Ordering::Relaxed);
                    return true;
                }
                Stand::Unknown => return false,
                Stand::NotYet => {}
            }
            let now = time::now();
            if now >= end || seat.stuck.load(Ordering::Relaxed) != 0 {
                seat.stuck.store(1, Ordering::Relaxed);
                return false;
            }
            time::sleep_until(Nanos(now.0.saturating_add(pause.0)));
            pause = Nanos((pause.0 * 2).min(LONGEST.0));
        }
    }

    /// A look at our event.
    fn stand(self, seat: &Seat) -> Stand {
        let _held = self.memory.frees.lock.hold();
        let _relaxed = Relaxed::begin(self);
        match seat.event.load(Ordering::Relaxed) {
            0 => Stand::Unknown,
            event => self.stand_of(event, Waiter::Ours),
        }
    }

    /// How a stream stands to a living event of ours. One that is reached is waited for too, which takes no time and tells the driver that all
    /// before it is free; where no wait of ours may be, the program's own tells.
    pub fn stand_of(self, event: u64, waiter: Waiter) -> Stand {
        let event = CUevent(event as *mut _);
        let waits = self.may_wait();
        if !waits && waiter == Waiter::Ours {
            return Stand::Unknown;
        }
        match next::cuEventQuery(event) {
            CUresult::SUCCESS if !waits || next::cuEventSynchronize(event) == CUresult::SUCCESS => {
                Stand::Reached
            }
            CUresult::ERROR_NOT_READY => Stand::NotYet,
            _ => Stand::Unknown,
        }
    }

    /// Whether the driver outlives a wait of ours. A wait by which it gives back more than one destroyed pool, or one of which something still
    /// lives, is the death of the program when it next allocates from a pool (SIGFPE), or never ends: bare too (H200, 580.159.04).
    pub fn may_wait(self) -> bool {
        if !self.any_doomed() {
            return true;
        }
        let mut doomed = self.pools().filter(|known| self.is_doomed(*known));
        let first = doomed.next();
        first.is_none_or(|known| !known.pool.is_in_use()) && doomed.next().is_none()
    }
}

/// 0 is none.
pub fn destroy_event(event: u64) {
    if event != 0 {
        let _ = next::cuEventDestroy_v2(CUevent(event as *mut _));
    }
}

impl Frees {
    /// Those that anybody ever sat in.
    fn seats(&self) -> &[Seat] {
        let high = self.high.load(Ordering::Acquire).min(ROOM);
        self.seats.get(..high).unwrap_or_default()
    }
}

impl Turn {
    /// Waits until `end` at most for another thread's wait to end; `None` where it does not.
    fn take(&self, end: Nanos) -> Option<Taken<'_>> {
        let (own, mut pause) = (arena::thread(), SHORTEST);
        loop {
            let (holder, now) = (self.thread.load(Ordering::Acquire), time::now());
            // Who waits longer than it may has been jumped out of.
            let is_over = || now.0 > self.until.load(Ordering::Acquire).saturating_add(LONGEST.0);
            let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_taken_over = || !planted(Seed::C42) && (holder == own || is_over());
            if (holder == 0 || is_taken_over())
                && self
                    .thread
                    .compare_exchange(holder, own, done, failed)
                    .is_ok()
            {
                self.until.store(end.0, Ordering::Release);
                return Some(Taken {
                    turn: self,
                    thread: own,
                });
            }
            if now >= end {
                return None;
            }
            time::sleep_until(now.plus(pause));
            pause = Nanos((pause.0 * 2).min(LONGEST.0));
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self
            .turn
            .thread
            .compare_exchange(self.thread, 0, done, failed);
    }
}

impl Seat {
    /// From here on what is freed in it marks it anew.
    fn is_to_be_awaited(&self) -> bool {
        let awaited = |dirty| (dirty != 0).then_some(AWAITED);
        self.dirty
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, awaited)
            .is_ok()
    }

    /// All that is before our event is waited for; what was freed since is not.
    fn is_awaited_no_more(&self) {
        let (done, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.dirty.compare_exchange(AWAITED, 0, done, failed);
    }

    fn is(&self, context: u64, stream: u64) -> bool {
        let words = (&self.context, &self.stream);
        (
            words.0.load(Ordering::Acquire),
            words.1.load(Ordering::Relaxed),
        ) == (context, stream)
    }
}

pub fn handle(stream: u64) -> CUstream {
    CUstream(stream as *mut _)
}
