//! What a pool is charged for, kept so that a small request need not ask anybody.
//!
//! A pool reserves memory in steps, and a request that fits in none of its gaps makes it grow by one. Where it has gaps nobody but the driver knows which
//! requests fit. So a pool that small requests come to is charged a step beyond what it reserves, its spare, as long as anything lives there; what
//! comes after, up to [`ALLOWANCE`] bytes, needs no more than that step, wherever it fits. Then the pool is read again. Large requests
//! reserve all that they may make it grow by, each for itself.
//!
//! What is charged is lowered only while no request is on its way between the look at the allowance and the driver's answer.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use budget::Bytes;
use budget::charge::POOL_STEP;
use seeds::{Seed, planted};
use throttle::Nanos;

use crate::boundary::arena::{Held, Lock};
use crate::boundary::time;
use crate::devices::Device;
use crate::grant::Grant;
use crate::outcome::Refused;
use crate::pools::Known;
use crate::process::Tenant;
use crate::slack::{OWED, SURPLUS};
use crate::threads::{Number, Tally, Threads};

/// From here on a request may fit nowhere in what its pool reserves, however much of that is free: it reserves before it asks.
pub const LARGE: u64 = 2 << 20;

/// So much in requests smaller than [`LARGE`] makes a pool grow by one step at most. One of them less than a step: where several allowances meet each step may
/// end with a gap into which the next request does not fit.
const ALLOWANCE: u64 = POOL_STEP.0 - LARGE;

/// How long a request waits for others that make its pool grow, and how often it looks.
const PATIENCE: Nanos = Nanos(2_000_000_000);
const LOOK: Nanos = Nanos(50_000);

/// How long requests that are on their way are waited for: a call of the driver's, whose thread may have lost its core.
const PASSING: Nanos = Nanos(2_000_000);
/// Looks before the first pause.
const LOOKS: u32 = 64;

/// One pool. All zeros is an unused one.
#[repr(C, align(64))]
pub struct Pool {
    charged: AtomicU64,
    /// Small requests may ask the driver until so much was taken in all.
    limit: AtomicU64,
    /// The stream of the last free in stream order, until it was waited for.
    freed_in: AtomicU64,
    /// What `slack` keeps of it: that it may hold less than it is charged for, or come to.
    slack: AtomicU32,
    lock: Lock,
    /// By how much it was charged beyond what it reserved, when it was read last.
    spare: AtomicU64,
    /// A [`Use`].
    of_use: AtomicU32,
    /// Requests that may make it grow and are not settled.
    growing: AtomicU32,
    /// Requests that ask the ledger for room to grow.
    asking: AtomicU32,
    /// How many have been settled.
    settled: AtomicU32,
    /// Not 0: it can be exported, and where its memory lies is kept.
    lendable: AtomicU32,
    /// What is in use of it.
    used: Tally,
}

/// Whether small requests come to a pool, so that it needs a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Use {
    /// None did since it was empty.
    Large,
    Small,
    /// They do, and there was no room for a spare: it is not asked for again unasked.
    InVain,
}

/// Why a pool is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Somebody waited: the driver may have taken back what it keeps.
    Waited,
    /// A request is about to be refused.
    Trimmed,
    /// A small request needs a spare.
    Asked,
    /// A large request was answered.
    Grown,
    /// It is about to be destroyed.
    Ends,
}

/// What pools are charged for beyond what they reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spares {
    pub untaken: Bytes,
    pub unknown: Bytes,
}

/// A reservation for a pool's growth, and its size.
pub struct Growth {
    grant: Grant,
    /// For what a device keeps for managed memory, where this growth takes it.
    kept: Option<Grant>,
    bound: Bytes,
    occasion: Occasion,
}

/// Each request that may make a pool grow reserves a whole step, and what it did not take is back when it is settled: many at once
/// may not fit where one after the other do. Waits for those under way; false where there were none, or for too long.
#[cold]
fn others_settle(pool: &Pool, before: u32, end: Nanos) -> bool {
    let busy = || pool.asking.load(Ordering::Acquire) | pool.growing.load(Ordering::Acquire) != 0;
    if !busy() && pool.settled.load(Ordering::Acquire) == before {
        return false;
    }
    while busy() {
        let now = time::now();
        if now >= end {
            return false;
        }
        time::sleep_until(now.plus(LOOK));
    }
    true
}

/// A request is settled once its charge is right.
struct Settled<'a>(&'a Pool);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        self.0.settled.fetch_add(1, Ordering::AcqRel);
        self.0.growing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a small request asks.
impl Pool {
    /// Takes of the allowance. False, and nothing is taken, where it does not reach.
    #[inline(always)]
    pub fn enter(&self, threads: &Threads, bytes: u64) -> bool {
        // Taken first, then the look at the limit: whoever closes it looks in the other order, and one of the two sees the other.
        let taken = self.used.take(bytes);
        let enters = self.reaches(taken);
        if !enters {
            self.withdraw(threads.number(), bytes);
        }
        enters
    }

    /// Takes what is reserved besides.
    pub fn enter_by_itself(&self, bytes: u64) {
        self.used.take(bytes);
    }

    /// The driver has answered.
    #[inline(always)]
    pub fn answered(&self, thread: Number, bytes: u64) {
        self.used.pass(thread, bytes);
    }

    #[cold]
    fn withdraw(&self, thread: Number, bytes: u64) {
        self.used.give(thread, bytes);
        self.used.pass(thread, bytes);
    }

    /// Whether the allowance reaches to where so much was taken. All that was ever taken wraps round.
    #[inline(always)]
    fn reaches(&self, taken: u64) -> bool {
        self.limit.load(Ordering::SeqCst).wrapping_sub(taken) as i64 >= 0
    }
}

impl Pool {
    /// Another pool takes the place of one that is gone: what was known of that one says nothing of this one.
    pub fn begin(&self) {
        self.freed_in.store(0, Ordering::SeqCst);
        self.slack.store(0, Ordering::SeqCst);
        self.of_use.store(Use::Large as u32, Ordering::SeqCst);
        self.lendable.store(0, Ordering::SeqCst);
        self.limit.store(self.used.taken(), Ordering::SeqCst);
    }

    pub fn set_lendable(&self) {
        self.lendable.store(1, Ordering::SeqCst);
    }

    #[inline(always)]
    pub fn is_lendable(&self) -> bool {
        self.lendable.load(Ordering::Relaxed) != 0
    }

    pub fn charged(&self) -> Bytes {
        Bytes(self.charged.load(Ordering::SeqCst))
    }

    /// Of that, what the driver may not have taken yet.
    pub fn spare(&self) -> Bytes {
        Bytes(self.spare.load(Ordering::Relaxed))
    }

    pub fn is_in_use(&self) -> bool {
        self.used.held() != 0
    }

    pub fn in_use(&self) -> Bytes {
        Bytes(self.used.held())
    }

    /// Held while what is charged for it changes.
    pub fn hold(&self) -> Held<'_> {
        self.lock.hold()
    }

    pub fn slack(&self) -> &AtomicU32 {
        &self.slack
    }

    pub fn last_freed_in(&self) -> &AtomicU64 {
        &self.freed_in
    }

    /// An allocation is gone.
    #[inline(always)]
    pub fn give(&self, thread: Number, bytes: Bytes) {
        self.used.give(thread, bytes.0);
    }

    /// All that lived there is gone, and nobody enters.
    pub fn end_use(&self) {
        self.used.clear();
        self.limit.store(self.used.taken(), Ordering::SeqCst);
    }

    fn charge(&self, bytes: Bytes, reserved: Bytes) {
        self.charged.store(bytes.0, Ordering::SeqCst);
        let spare = bytes.saturating_sub(reserved);
        self.spare.store(spare.0, Ordering::Relaxed);
    }

    /// Lets nobody enter any more. Answers whether nobody is on the way, be it after a while.
    fn close(&self) -> bool {
        self.limit.store(self.used.taken(), Ordering::SeqCst);
        let mut end = None;
        for look in 0.. {
            if !self.used.on_the_way() {
                return true;
            }
            if look < LOOKS {
                core::hint::spin_loop();
                continue;
            }
            let now = time::now();
            if now >= *end.get_or_insert(now.plus(PASSING)) {
                break;
            }
            time::sleep_until(now.plus(LOOK));
        }
        false
    }

    /// As `close`, where nothing makes it grow either. Where something is on its way the last of it has the pool read: it is asked to, and
    /// looked for once more, since it may have been answered meanwhile. One that is missed all the same, because its end and the
    /// asking crossed in the cores' buffers, leaves the pool to the next who waits: a fence in each request would cost more than the rest of it.
    fn closes_quietly(&self) -> bool {
        let quiet = || self.growing.load(Ordering::SeqCst) == 0 && self.close();
        quiet() || {
            self.slack.fetch_or(OWED, Ordering::SeqCst);
            !self.is_busy() && self.close()
        }
    }

    /// Whether a request is on its way, or makes it grow.
    pub fn is_busy(&self) -> bool {
        self.growing.load(Ordering::SeqCst) != 0 || self.used.on_the_way()
    }

    /// Whether somebody who waited asked the next that is answered to have it read.
    #[inline(always)]
    pub fn is_owed(&self) -> bool {
        self.slack.load(Ordering::Relaxed) & OWED != 0
    }

    /// From now on so much may be taken.
    fn open(&self) {
        let limit = self.used.taken().wrapping_add(ALLOWANCE);
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Whether any small request may enter.
    fn has_room(&self) -> bool {
        self.reaches(self.used.taken().wrapping_add(LARGE))
    }

    fn uses(&self, how: Use) -> bool {
        self.of_use.load(Ordering::Relaxed) == how as u32
    }

    fn set_use(&self, how: Use) {
        self.of_use.store(how as u32, Ordering::Relaxed);
    }

    /// Whether it is to have a spare.
    fn needs_spare(&self, occasion: Occasion) -> bool {
        match occasion {
            Occasion::Ends => false,
            Occasion::Asked => true,
            Occasion::Waited | Occasion::Trimmed | Occasion::Grown => {
                !self.uses(Use::Large) && self.is_in_use()
            }
        }
    }
}

impl Tenant {
    /// Has room made for small requests: afterwards some may enter.
    #[cold]
    pub fn make_room(self, known: Known) -> Result<(), Refused> {
        let pool = known.pool;
        let change = self.change();
        let held = pool.lock.hold();
        // Others may have made it meanwhile, or there is a whole step of it still.
        if pool.has_room() || self.reopen(known) {
            return Ok(());
        }
        drop((held, change));
        match self.grow_by(known, POOL_STEP, Occasion::Asked)? {
            Some(growth) => self.settle(known, growth),
            None => Ok(()),
        }
    }

    /// Where a whole step is charged that the pool does not reserve, that is the spare. The pool's lock is held.
    fn reopen(self, known: Known) -> bool {
        let pool = known.pool;
        if pool.charged() < POOL_STEP || !pool.close() {
            return false;
        }
        let has_spare = |reserved: &Bytes| reserved.saturating_add(POOL_STEP) <= pool.charged();
        self.reserved(known)
            .filter(has_spare)
            .is_some_and(|reserved| {
                pool.set_use(Use::Small);
                self.bring(known, reserved, Occasion::Asked).is_ok()
            })
    }

    /// Reserves what a large request may make its pool grow by.
    #[cold]
    pub fn grow(self, known: Known, size: Bytes) -> Result<Growth, Refused> {
        // It may fit nowhere in what is reserved: the pool then grows by all of it.
        let bound = size.round_up(POOL_STEP).ok_or(Refused::TableFull)?;
        let growth = self.grow_by(known, bound, Occasion::Grown)?;
        growth.ok_or(Refused::TableFull)
    }

    /// `None` where another's growth made the room that is asked for.
    fn grow_by(
        self,
        known: Known,
        bound: Bytes,
        occasion: Occasion,
    ) -> Result<Option<Growth>, Refused> {
        let kept = if self.is_managed(known) {
            self.room_for_managed(known.device)?
        } else {
            None
        };
        let (pool, end) = (known.pool, time::now().plus(PATIENCE));
        loop {
            let before = pool.settled.load(Ordering::Acquire);
            pool.asking.fetch_add(1, Ordering::AcqRel);
            let grant = self.reserve_or_trim(known.device.indices, bound);
            // Never neither: whoever looks sees a request that asks, or one that grows.
            pool.growing
                .fetch_add(u32::from(grant.is_ok()), Ordering::AcqRel);
            pool.asking.fetch_sub(1, Ordering::AcqRel);
            match grant {
                Ok(grant) => {
                    return Ok(Some(Growth {
                        grant,
                        kept,
                        bound,
                        occasion,
                    }));
                }
                Err(_) if occasion == Occasion::Asked && pool.has_room() => return Ok(None),
                Err(refused) if !others_settle(pool, before, end) => return Err(refused),
                Err(_) => {}
            }
        }
    }

    /// A pool's growth is charged: what it really grew by where that can be told, and a spare of the rest where it needs one.
    #[cold]
    pub fn settle(self, known: Known, growth: Growth) -> Result<(), Refused> {
        let Growth {
            grant,
            kept,
            bound,
            occasion,
        } = growth;
        let pool = known.pool;
        let _change = self.change();
        let _held = pool.lock.hold();
        let alone = pool.growing.load(Ordering::Acquire) == 1;
        let _settled = Settled(pool);
        if occasion == Occasion::Asked {
            pool.set_use(Use::Small);
        }
        let limit = pool.limit.load(Ordering::SeqCst);
        let closed = (alone || !planted(Seed::R112)) && pool.close();
        let quiet = alone && closed;
        let reserved = if quiet {
            self.reserved_beside(known, 1)
        } else {
            None
        };
        let occasion = self
            .keep_for_managed(known, kept, reserved)
            .unwrap_or(occasion);
        // All of it is the pool's first, and what it does not need goes back.
        let charged = pool.charged();
        pool.charge(charged.saturating_add(bound), charged);
        grant.commit_as(bound);
        match reserved {
            Some(reserved) => {
                // What was allowed before is so still, unless the pool has given something back.
                let limit = Some(limit).filter(|_| reserved >= charged);
                self.bring_keeping(known, reserved, occasion, limit)
            }
            None => {
                if closed {
                    self.lower_beside_others(known);
                }
                match occasion {
                    Occasion::Asked => pool.open(),
                    _ => pool.limit.store(limit, Ordering::SeqCst),
                }
                if alone && !quiet {
                    pool.slack.fetch_or(OWED, Ordering::SeqCst);
                }
                self.mark_pool(pool);
                Ok(())
            }
        }
    }

    /// Reads a pool and charges what it reserves.
    #[cold]
    pub fn read_pool(self, known: Known, occasion: Occasion) -> Result<(), Refused> {
        let _change = self.change();
        let _held = known.pool.lock.hold();
        self.read_held(known, occasion)
    }

    /// The same under the pool's lock.
    pub fn read_held(self, known: Known, occasion: Occasion) -> Result<(), Refused> {
        let pool = known.pool;
        let limit = pool.limit.load(Ordering::SeqCst);
        let quiet = pool.closes_quietly();
        let reserved = if quiet {
            self.reserved_beside(known, 0)
        } else {
            None
        };
        let Some(reserved) = reserved else {
            if pool.close() {
                self.lower_beside_others(known);
            }
            pool.limit.store(limit, Ordering::SeqCst);
            if !quiet {
                self.mark_pool(pool);
            }
            return Ok(());
        };
        let limit = Some(limit).filter(|_| reserved >= pool.charged());
        self.bring_keeping(known, reserved, occasion, limit)?;
        if self.may_give_back(known, reserved) {
            pool.slack.fetch_or(SURPLUS, Ordering::AcqRel);
            self.memory
                .slack
                .fetch_or(u64::from(SURPLUS), Ordering::AcqRel);
        }
        Ok(())
    }

    /// Others make the pool grow, and never leave it alone: what they take they have reserved by themselves, so that what it reserves by now, which has some of
    /// that already, and a spare for small requests are all that its own charge has to cover. What is beyond that goes back (R112 of `fixtures/defects.txt`).
    /// It is closed, no small request is on its way, and its lock is held.
    fn lower_beside_others(self, known: Known) {
        let Known { pool, device, .. } = known;
        let Some(reserved) = self.reserved(known).filter(|_| !planted(Seed::R112)) else {
            return;
        };
        let (charged, wanted) = (pool.charged(), reserved.saturating_add(POOL_STEP));
        if charged > wanted {
            pool.charge(wanted, reserved);
            self.release(device.indices, charged.saturating_sub(wanted));
        }
    }

    /// What a quiet pool reserves, its lock held. `None` where more than the caller's own requests make it grow by now: what they have taken is
    /// charged to their reservations.
    fn reserved_beside(self, known: Known, own: u32) -> Option<Bytes> {
        let reserved = self.reserved(known);
        reserved.filter(|_| known.pool.growing.load(Ordering::SeqCst) == own)
    }

    /// Whether the pool holds whole steps that it neither needs nor is to keep.
    fn may_give_back(self, known: Known, reserved: Bytes) -> bool {
        let told = || self.told_reserved(known);
        let lends = known.pool.is_lendable();
        let reserved = lends.then(told).flatten().unwrap_or(reserved);
        let needed = Bytes(known.pool.used.held()).round_up(POOL_STEP);
        let surplus = needed.is_some_and(|needed| reserved > needed);
        surplus && self.threshold(known).is_none_or(|keeps| reserved > keeps)
    }

    pub fn bring(self, known: Known, reserved: Bytes, occasion: Occasion) -> Result<(), Refused> {
        self.bring_keeping(known, reserved, occasion, None)
    }

    /// Brings the charge to what the driver says, and a spare where it needs one. The pool is closed and quiet, its lock held. `limit` was
    /// the limit, if that still holds.
    fn bring_keeping(
        self,
        known: Known,
        reserved: Bytes,
        occasion: Occasion,
        limit: Option<u64>,
    ) -> Result<(), Refused> {
        let Known { pool, device, .. } = known;
        let charged = pool.charged();
        if !pool.is_in_use() && occasion != Occasion::Asked {
            pool.set_use(Use::Large);
        }
        if reserved > charged {
            let excess = reserved.saturating_sub(charged);
            // Until it can be charged the pool stays closed: nothing is granted beside what nobody pays for.
            self.reserve(device.indices, excess)?.commit_as(excess);
            pool.charge(reserved, reserved);
        }
        let charged = pool.charged();
        let needs_spare = pool.needs_spare(occasion);
        let with_spare = reserved.saturating_add(POOL_STEP);
        let wanted = if needs_spare && charged >= with_spare {
            with_spare
        } else {
            reserved
        };
        pool.charge(wanted, reserved);
        self.release(device.indices, charged.saturating_sub(wanted));
        if needs_spare && wanted == reserved && occasion == Occasion::Waited {
            self.take_spare(known, with_spare);
        }
        if pool.charged() == with_spare {
            pool.open();
        } else if let Some(limit) = limit {
            pool.limit.store(limit, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The pool has gaps and no spare: as long as there is room for one, so that what lives there can come and go when there is none.
    fn take_spare(self, known: Known, with_spare: Bytes) {
        let Known { pool, device, .. } = known;
        if !pool.uses(Use::Small) {
            return;
        }
        match self.reserve(device.indices, POOL_STEP) {
            Ok(grant) => {
                grant.commit_as(POOL_STEP);
                pool.charge(with_spare, with_spare.saturating_sub(POOL_STEP));
            }
            Err(_) => pool.set_use(Use::InVain),
        }
    }

    /// A pool is about to be destroyed, after which nobody tells what it holds: it is charged for what it reserves now. Answers whether that
    /// is nothing.
    #[cold]
    pub fn end_pool(self, known: Known) -> bool {
        // Where it cannot be read it stays charged as it is.
        let _ = self.read_pool(known, Occasion::Ends);
        let _held = known.pool.lock.hold();
        let none = Bytes::ZERO;
        let is_empty = known.pool.charged() == none || self.told_reserved(known) == Some(none);
        if !is_empty {
            self.defer_frees_of_pool(known.place);
        }
        self.doom_pool(known);
        is_empty
    }

    /// A destroyed pool of which nothing is left.
    #[cold]
    pub fn bury_pool(self, known: Known) {
        let _held = known.pool.lock.hold();
        if !known.pool.is_in_use() && self.is_doomed(known) {
            let kept = self.end_loan(known);
            let (relieved, _relieving) = self.take_relief(known);
            let charged = known.pool.charged().saturating_sub(relieved);
            known.pool.charge(charged, charged);
            let _ = self.bring(known, kept, Occasion::Ends);
            if kept == Bytes::ZERO {
                self.unseat_pool(known);
            }
        }
    }

    /// Room was made in a pool that another thread may have destroyed meanwhile, which then nobody gives back (R90 of `fixtures/defects.txt`).
    pub fn end_if_gone(self, known: Known) {
        if self.is_doomed(known) {
            self.bury_pool(known);
        }
        if self.is_vacant(known) {
            let _held = known.pool.lock.hold();
            if self.is_vacant(known) && known.pool.charged() != Bytes::ZERO {
                let _ = self.bring(known, Bytes::ZERO, Occasion::Ends);
            }
        }
    }

    /// What a device's pools are charged for that is not in our row: the driver has not taken it yet, or it is lent and idle; and what it may not have: it does
    /// not tell.
    pub fn spares(self, device: &Device) -> Spares {
        let of_device = self
            .pools()
            .filter(|known| known.device.ordinal == device.ordinal)
            .filter(|known| known.pool.spare() != Bytes::ZERO || known.pool.is_lendable());
        of_device.fold(Spares::default(), |sum, known| {
            let charged = known.pool.charged();
            match self.told_reserved(known) {
                Some(told) if planted(Seed::R9b) => {
                    let lent = self.lent_beside(known, told);
                    let reserved = told.saturating_add(lent);
                    Spares {
                        untaken: sum.untaken.saturating_add(charged.saturating_sub(reserved)),
                        unknown: sum.unknown.saturating_add(lent),
                    }
                }
                // The row shows what is reserved and no more: what is lent beside it is in nobody's.
                Some(told) => Spares {
                    untaken: sum.untaken.saturating_add(charged.saturating_sub(told)),
                    ..sum
                },
                // Of a destroyed one nothing is told: steps that it lent and in which nothing of it lives any more are in nobody's row either (R128 of
                // `fixtures/defects.txt`).
                None => {
                    let is_lent = self.is_doomed(known) && !planted(Seed::R128);
                    let in_use = || known.pool.in_use();
                    let lent = is_lent.then(|| self.lent_beside(known, in_use()));
                    let untaken = lent.unwrap_or_default().min(charged);
                    Spares {
                        untaken: sum.untaken.saturating_add(untaken),
                        unknown: sum.unknown.saturating_add(known.pool.spare()),
                    }
                }
            }
        })
    }
}
