//! What is freed in a stream's order and is charged until the stream has come to it: plain memory that cuMemFreeAsync frees (R25 of
//! `fixtures/defects.txt`), and destroyed pools of which nothing is in use any more (R26).
//!
//! Each such free is followed by an event of ours in its stream. Whoever waits, asks for figures or is about to be refused looks at the
//! events, and what lies before one that was reached is given back. A stream has two events at most for what is freed of one device or pool: the
//! first stays where it is, the second moves on with each free. Where no event can be set (the stream captures) a later look sets it, or
//! the program's wait for the whole context stands for it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::cuda::CUstream;
use budget::{Bytes, DeviceSet};
use seeds::{Seed, planted};
use throttle::Nanos;

use crate::boundary::arena::Forever;
use crate::boundary::time;
use crate::capture::Relaxed;
use crate::devices::current_context;
use crate::frees::{DEFAULT, LEGACY, LONGEST, SHORTEST, Stand, Waiter, destroy_event, handle};
use crate::memory::devices_of;
use crate::process::Tenant;
use crate::slack::context_of;

/// Frees that streams have not come to. All zeros is none.
#[repr(C)]
pub struct Deferred {
    /// How many there are: nothing is looked up while there are none.
    count: AtomicU64,
    book: Forever<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    frees: Vec<Free>,
    /// The number of the last free.
    last: u64,
}

struct Free {
    context: u64,
    /// 0 once its handle may be another stream's.
    stream: u64,
    /// 0 where it could not be set.
    event: u64,
    what: Freed,
    /// Of its last free, which the event is behind.
    number: u64,
    /// Not reached in the time that a request waits: it is looked at once from then on.
    stuck: bool,
    /// Its stream was given up by another thread meanwhile: [`Freed::OfSomePool`] stands for what that owes, or the end of its context.
    given_up: bool,
}

/// What goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    Blocks {
        ordinal: u32,
        bytes: Bytes,
    },
    /// Something of a destroyed pool, by its place.
    OfPool(u32),
    /// Something of any pool, in a stream that was destroyed since.
    OfSomePool,
}

impl Freed {
    /// The sum of both, where both are of one device or one pool.
    fn with(self, other: Freed) -> Option<Freed> {
        match (self, other) {
            (
                Freed::Blocks { ordinal, bytes },
                Freed::Blocks {
                    ordinal: others,
                    bytes: more,
                },
            ) => (ordinal == others).then_some(Freed::Blocks {
                ordinal,
                bytes: bytes.saturating_add(more),
            }),
            _ => (self == other).then_some(self),
        }
    }

    fn is_seen(self) -> bool {
        let unseen = match self {
            Freed::Blocks { .. } => planted(Seed::R25),
            Freed::OfPool(_) | Freed::OfSomePool => planted(Seed::R26),
        };
        !unseen
    }
}

impl Free {
    /// Sets its event behind all that its stream has to do now.
    fn set(&mut self, tenant: Tenant) {
        if self.stream != 0 && self.what.is_seen() {
            let stream = handle(self.stream);
            self.event = match self.what {
                // Whose stream another thread may be about to destroy.
                Freed::OfPool(_) => {
                    let event = tenant.event_behind_seated(self.context, stream, self.event);
                    self.given_up = event.is_none() && !planted(Seed::R26a);
                    event.unwrap_or(0)
                }
                _ => tenant.event_behind(self.context, stream, self.event),
            };
        }
    }

    /// Its stream is about to go: it is named no longer, and an event behind the free stays.
    fn leave_stream(&mut self, tenant: Tenant) {
        if self.event == 0 {
            self.set(tenant);
        }
        self.stream = 0;
    }

    fn stand(&mut self, tenant: Tenant, waiter: Waiter) -> Stand {
        if self.event == 0 {
            self.set(tenant);
        }
        match self.event {
            _ if self.given_up => Stand::Reached,
            0 => Stand::Unknown,
            event => {
                let _relaxed = Relaxed::begin(tenant);
                tenant.stand_of(event, waiter)
            }
        }
    }
}

impl Book {
    fn add(&mut self, tenant: Tenant, context: u64, stream: u64, what: Freed) {
        self.last += 1;
        let is_same = |free: &&mut Free| {
            (free.context, free.stream) == (context, stream) && free.what.with(what).is_some()
        };
        let mut same = self.frees.iter_mut().filter(is_same);
        if let (Some(_), Some(second)) = (same.next(), same.next()) {
            second.what = second.what.with(what).unwrap_or(second.what);
            second.number = self.last;
            return second.set(tenant);
        }
        let mut free = Free {
            context,
            stream,
            event: 0,
            what,
            number: self.last,
            stuck: false,
            given_up: false,
        };
        free.set(tenant);
        if !free.given_up {
            self.frees.push(free);
        }
    }

    /// Takes those out that `is_done`, with their events.
    fn take(&mut self, mut is_done: impl FnMut(&mut Free) -> bool) -> Vec<Freed> {
        let mut done = Vec::new();
        self.frees.retain_mut(|free| {
            let goes = is_done(free);
            if goes {
                destroy_event(free.event);
                done.push(free.what);
            }
            !goes
        });
        done
    }
}

impl Tenant {
    fn frees_to_come(self) -> MutexGuard<'static, Book> {
        let book = self.memory.deferred.book.get_or_default();
        book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a stream has yet to come to anything that was freed.
    #[inline]
    pub fn any_deferred(self) -> bool {
        self.memory.deferred.count.load(Ordering::Relaxed) != 0
    }

    /// Something was freed in a stream's order, as the plain entry points name it, and is charged until the stream has come to it.
    #[cold]
    pub fn defer(self, stream: CUstream, what: Freed) {
        let context = context_of(stream).unwrap_or_else(current_context);
        let stream = match stream.0 as u64 {
            ..=DEFAULT => LEGACY,
            stream => stream,
        };
        self.defer_in(context, stream, what);
    }

    pub fn defer_in(self, context: u64, stream: u64, what: Freed) {
        {
            let mut book = self.frees_to_come();
            book.add(self, context, stream, what);
            self.count(&book);
        }
        // Another thread has ended the context since the driver took the free, and with it all that was freed there: no event can be set in it (R89 of
        // `fixtures/defects.txt`).
        if self.memory.contexts.ordinal_of(context).is_none() && !planted(Seed::R89) {
            let is_over =
                |free: &Free| matches!(free.what, Freed::Blocks { .. }) && free.event == 0;
            self.end_where(|free| free.context == context && is_over(free));
        }
    }

    fn count(self, book: &Book) {
        let count = book.frees.len() as u64;
        self.memory.deferred.count.store(count, Ordering::Release);
    }

    /// Takes out what is done and gives it back. Answers whether that was anything.
    fn end_where(self, is_done: impl FnMut(&mut Free) -> bool) -> bool {
        let done = {
            let mut book = self.frees_to_come();
            let done = book.take(is_done);
            self.count(&book);
            done
        };
        for freed in &done {
            if let Freed::Blocks { ordinal, bytes } = *freed {
                self.release(devices_of(self, ordinal), bytes);
            }
        }
        !done.is_empty()
    }

    /// Gives back what streams have come to. Answers whether that was anything.
    pub fn end_deferred(self) -> bool {
        self.end_deferred_after(Waiter::Ours)
    }

    /// As [`Tenant::end_deferred`], after a wait of `waiter`'s.
    pub fn end_deferred_after(self, waiter: Waiter) -> bool {
        let mut ended = false;
        if self.any_deferred() {
            ended = self.end_where(|free| free.stand(self, waiter) == Stand::Reached);
        }
        if self.any_doomed() {
            ended |= self.bury_unused();
        }
        ended
    }

    /// Destroyed pools of which nothing is in use, and to whose frees all streams have come.
    #[cold]
    fn bury_unused(self) -> bool {
        let unused = self
            .pools()
            .filter(|known| self.is_doomed(*known) && !known.pool.is_in_use());
        let mut buried = false;
        for known in unused {
            let owed = self.owed_until(known.place);
            let awaited = self.frees_to_come().frees.iter().any(|free| {
                free.what == Freed::OfPool(known.place)
                    || free.what == Freed::OfSomePool && free.number <= owed
            });
            if !awaited {
                self.bury_pool(known);
                buried = true;
            }
        }
        buried
    }

    /// As [`Tenant::end_deferred`], once the streams of these devices have had until `end` to come to what was freed in them.
    #[cold]
    pub fn await_deferred(self, devices: DeviceSet, end: Nanos) -> bool {
        let is_meant = |what: Freed| match what {
            Freed::Blocks { ordinal, .. } => self.is_of(ordinal, devices),
            Freed::OfPool(place) => self
                .pool_at(place)
                .is_some_and(|known| self.is_of(known.device.ordinal, devices)),
            Freed::OfSomePool => true,
        };
        let (mut ended, mut pause) = (false, SHORTEST);
        while self.any_deferred() {
            ended |= self.end_deferred();
            let late = time::now() >= end;
            let mut book = self.frees_to_come();
            let awaited = book
                .frees
                .iter_mut()
                .filter(|free| free.event != 0 && !free.stuck && is_meant(free.what));
            let mut any = false;
            for free in awaited {
                any = true;
                free.stuck = late;
            }
            drop(book);
            if !any || late || !self.may_wait() {
                break;
            }
            time::sleep_until(time::now().plus(pause));
            pause = Nanos((pause.0 * 2).min(LONGEST.0));
        }
        ended
    }

    /// What plain memory of these devices is charged until streams have come to its free.
    pub fn deferred_blocks(self, devices: DeviceSet) -> Bytes {
        if !self.any_deferred() {
            return Bytes::ZERO;
        }
        let book = self.frees_to_come();
        let blocks = book.frees.iter().filter_map(|free| match free.what {
            Freed::Blocks { ordinal, bytes } if self.is_of(ordinal, devices) => Some(bytes),
            _ => None,
        });
        blocks.fold(Bytes::ZERO, Bytes::saturating_add)
    }

    /// The number of the last free.
    pub fn last_number(self) -> u64 {
        self.frees_to_come().last
    }

    /// A number that all frees until now have at most; `None` where there are none.
    #[inline]
    pub fn last_deferred(self) -> Option<u64> {
        self.any_deferred().then(|| self.frees_to_come().last)
    }

    /// A whole context was waited for: all that was freed in its streams before is done.
    #[cold]
    pub fn end_deferred_in(self, context: u64, last: u64) {
        self.end_where(|free| free.context == context && free.number <= last);
    }

    /// A context is gone, and its streams with it.
    pub fn end_deferred_of(self, context: u64) {
        if self.any_deferred() {
            self.end_where(|free| free.context == context);
        }
    }

    /// Before a context may be destroyed: its events are no handles any more.
    pub fn forget_events_of(self, context: u64) {
        if self.any_deferred() {
            self.end_deferred();
            let mut book = self.frees_to_come();
            for free in book.frees.iter_mut().filter(|free| free.context == context) {
                destroy_event(core::mem::take(&mut free.event));
            }
        }
    }

    /// Before a green context is destroyed, and its streams with it: their events stay where they are, and the context whose end ends them is another.
    pub fn give_frees_to(self, green: u64, primary: u64) {
        if self.any_deferred() {
            let mut book = self.frees_to_come();
            for free in book.frees.iter_mut().filter(|free| free.context == green) {
                free.leave_stream(self);
                free.context = primary;
            }
        }
    }

    /// Before a stream is destroyed: from here on nobody names it. Its events stay where they are.
    pub fn forget_stream_of_frees(self, stream: u64) {
        if self.any_deferred() {
            let mut book = self.frees_to_come();
            for free in book.frees.iter_mut().filter(|free| free.stream == stream) {
                free.leave_stream(self);
            }
        }
    }
}
