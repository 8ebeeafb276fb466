//! What a context may take at a launch: stacks and local memory, the malloc heap, printf's buffer (R6, R12 and R14).
//!
//! A stack is taken at once, the others at a launch: all of it is charged when the limit is set, and nothing is left to be refused at a launch but
//! local memory (`function`). The driver brings what is asked for within its own bounds; what it made of
//! it is what is charged.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::{CUlimit, CUresult};
use budget::Bytes;
use budget::charge::{self, BLOCK, Shape};
use seeds::{Seed, planted};

use crate::boundary::arena::{Lock, Owned};
use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::devices::{Device, NoDevice, current_context};
use crate::grant::Grant;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;
use crate::report::{self, Once};

/// CU_LIMIT_STACK_SIZE.
const STACK: CUlimit = 0;
/// CU_LIMIT_PRINTF_FIFO_SIZE.
const PRINTF: CUlimit = 1;
/// CU_LIMIT_MALLOC_HEAP_SIZE.
const HEAP: CUlimit = 2;
/// What the driver takes by itself, when a kernel that needs it is launched.
const BUFFERS: [CUlimit; 2] = [PRINTF, HEAP];
/// CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH.
const SYNC_DEPTH: CUlimit = 3;
/// CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT.
const LAUNCHES: CUlimit = 4;
/// CU_LIMIT_MAX_L2_FETCH_GRANULARITY, the first of those that take none of the device's memory.
const L2_FETCH: CUlimit = 5;
/// CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED, the last of those whose cost is known.
const NEWEST: CUlimit = 9;
/// None of the driver's: the most local memory of a function that was launched. A thread's stack and local memory are one, and a
/// launch raises it.
const LOCAL: CUlimit = -1;

pub fn set(tenant: Tenant, limit: CUlimit, value: usize) -> Outcome<CUresult> {
    let device = match tenant.current_device() {
        Ok(device) => device,
        Err(NoDevice::NoContext) => return Outcome::PassThrough(Reason::TakesNothing),
        Err(NoDevice::Unknown) => return Outcome::Refused(Refused::UnknownDevice),
    };
    let context = current_context();
    if context == 0 {
        // The driver has a context and did not say which.
        return Outcome::Refused(Refused::UnknownDevice);
    }
    let (limits, setting) = match tenant.limits_to_set(context, device, limit) {
        Ok(held) => held,
        // One that is gone: the driver refuses all that needs one. While it is asked none is made.
        Err(_held) => {
            return match told(limit) {
                Ok(_) => Outcome::Refused(Refused::TableFull),
                Err(_) => Outcome::Done(next::cuCtxSetLimit(limit, value)),
            };
        }
    };
    match limit {
        STACK | PRINTF | HEAP => {}
        // What they take of a device is the driver's secret: its figure tells.
        SYNC_DEPTH | LAUNCHES => {
            let code = next::cuCtxSetLimit(limit, value);
            if code == CUresult::SUCCESS {
                tenant.look_at(device);
            }
            return Outcome::Done(code);
        }
        L2_FETCH..=NEWEST => return Outcome::PassThrough(Reason::TakesNothing),
        // CU_LIMIT_PER_BLOCK_MEMORY_SIZE of CUDA 13.4, and what comes after: what it takes is not known, so the driver is as one that
        // does not have it.
        _ if planted(Seed::R23) => return Outcome::PassThrough(Reason::TakesNothing),
        _ => {
            let mut value = 0;
            let code = next::cuCtxGetLimit(Out::to(&mut value), limit);
            if code != CUresult::SUCCESS {
                return Outcome::PassThrough(Reason::TakesNothing);
            }
            report::once(
                Once::UnknownLimit,
                format_args!(
                    "cuCtxSetLimit: what limit {limit} takes is not known; it is answered as not supported"
                ),
            );
            return Outcome::Done(CUresult::ERROR_UNSUPPORTED_LIMIT);
        }
    }
    set_charged(tenant, device, limits, setting.life, (limit, value))
}

/// Sets a limit whose cost is known, and charges it.
fn set_charged(
    tenant: Tenant,
    device: &Device,
    limits: &Limits,
    life: u64,
    (limit, value): (CUlimit, usize),
) -> Outcome<CUresult> {
    // What it would take more than now cannot be told otherwise.
    let before = match told(limit) {
        Ok(before) => before,
        // A context that is gone is still current, and has a device: the driver refuses all that needs one.
        Err(CUresult::ERROR_CONTEXT_IS_DESTROYED) => {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        Err(_) if planted(Seed::C15) => return Outcome::Refused(Refused::UnknownDevice),
        // The driver says why it would not set it either.
        Err(code) => return Outcome::Done(code),
    };
    let shape = device.shape;
    let expected = within_bounds(shape, limit, value as u64);
    let wanted = || {
        limits
            .cost_with(shape, limit, expected)
            .saturating_sub(limits.charged())
    };
    let mut granted = wanted();
    let mut grant = tenant.reserve_or_trim(device.indices, granted);
    let _asking = limits.resizing(tenant).hold();
    let lacks = wanted() > granted;
    if lacks && grant.is_ok() && !planted(Seed::R105) {
        // Another thread has set one meanwhile, and what was charged before was given back.
        granted = wanted();
        drop(grant);
        grant = tenant.reserve(device.indices, granted);
    }
    let grant = match grant {
        Ok(grant) => grant,
        // What the driver has against the call itself comes first. A stack that no card has it refuses and takes nothing for; else it is asked with the
        // value that it has.
        Err(refused) => {
            let before = standing(limit, before);
            let without_memory = limit == STACK && value as u64 > MOST_STACK;
            let code = next::cuCtxSetLimit(limit, if without_memory { value } else { before });
            if without_memory && code == CUresult::SUCCESS {
                let _ = next::cuCtxSetLimit(limit, before);
            }
            return tenant.verdict(code, refused);
        }
    };
    let before = standing(limit, before);
    limits.told.store(0, Ordering::Release);
    // Before it is in the row again: a look in between would take it for more than is charged (R33e of `fixtures/defects.txt`).
    let lowered = match limit == STACK && !planted(Seed::R33e) {
        true => tenant.take_lowered(device, (limits, life)),
        false => Bytes::ZERO,
    };
    // What a smaller one gives back is in no row before it is in no book.
    let change = tenant.change();
    let code = next::cuCtxSetLimit(limit, value);
    if code != CUresult::SUCCESS {
        tenant.put_lowered(device, (limits, life), lowered);
        return Outcome::Done(code);
    }
    let actual = told(limit).map_or(expected, |value| value as u64);
    match tenant.note(device, (limits, life), (limit, actual), grant, granted) {
        Ok(true) => Outcome::Done(code),
        // Another may have come into its place and have it.
        Ok(false) => {
            drop(change);
            tenant.look_at(device);
            Outcome::Done(code)
        }
        Err(refused) => {
            let _ = next::cuCtxSetLimit(limit, before);
            tenant.put_lowered(device, (limits, life), lowered);
            Outcome::Refused(refused)
        }
    }
}

/// What a limit is while nobody else sets one of the context's, who may have set it since it was `asked`: what is put back must be what is charged (R33b of
/// `fixtures/defects.txt`).
fn standing(limit: CUlimit, asked: usize) -> usize {
    match planted(Seed::R33b) {
        true => asked,
        false => told(limit).unwrap_or(asked),
    }
}

impl Tenant {
    /// The limits of a context; a green one has its device's primary context's.
    pub fn limits_of(self, context: u64, device: &Device) -> Option<&'static Limits> {
        let contexts = &self.memory.contexts;
        contexts
            .limits(context)
            .or_else(|| contexts.limits_of_primary(device.ordinal))
    }

    /// The limits of a context that lives, of which one is about to be set: as long as that lasts it is not made anew. Where it is gone no context is made.
    fn limits_to_set(
        self,
        context: u64,
        device: &Device,
        limit: CUlimit,
    ) -> Result<(&'static Limits, Setting<'static>), Option<Owned<'static>>> {
        // One that ends meanwhile may be made anew.
        const ROUNDS: usize = 8;
        for _ in 0..ROUNDS {
            let known = match planted(Seed::R106) {
                true => self.limits_of(context, device),
                false => self.limits_in_life(context, device),
            };
            let Some(limits) = known else {
                let held = self.memory.changing.hold();
                match self.limits_in_life(context, device) {
                    Some(_) => continue,
                    None => return Err(held),
                }
            };
            let setting = limits.begin_setting(limit);
            if is_of_a_context(setting.life) || planted(Seed::R106) {
                return Ok((limits, setting));
            }
        }
        Err(self.memory.changing.hold())
    }

    /// The limits of a context that lives. Where the books know none the driver may have one: another thread is just making it, or has made it past us. So it
    /// is looked for again once nobody makes or ends any (R103 of `fixtures/defects.txt`).
    pub fn limits_in_life(self, context: u64, device: &Device) -> Option<&'static Limits> {
        let known = self.limits_of(context, device);
        match known {
            Some(limits) if limits.are_in_life() => known,
            _ if context == 0 || planted(Seed::R103) => known,
            _ => self.limits_at_rest(context, device),
        }
    }

    #[cold]
    fn limits_at_rest(self, context: u64, device: &Device) -> Option<&'static Limits> {
        drop(self.memory.changing.hold());
        let living = || {
            self.limits_of(context, device)
                .filter(|limits| limits.are_in_life())
        };
        living().or_else(|| {
            let adopted = current_context() == context && self.adopt_current(device, context);
            living().filter(|_| adopted)
        })
    }

    /// A function with so much local memory is about to be launched.
    pub fn raise_local(
        self,
        device: &'static Device,
        limits: &'static Limits,
        local: u64,
    ) -> Result<Raising, Refused> {
        let life = limits.life();
        let before = limits.covered.load(Ordering::SeqCst);
        let charged_before = limits.local.load(Ordering::SeqCst);
        if before >= local {
            return Ok(match limits.lives(life) {
                true => Raising::Stood,
                false => Raising::Ended,
            });
        }
        let wanted = limits.cost_with(device.shape, LOCAL, local.max(charged_before));
        let granted = wanted.saturating_sub(limits.charged());
        let grant = self.reserve_or_trim(device.indices, granted)?;
        if !self.note(device, (limits, life), (LOCAL, local), grant, granted)? {
            return Ok(Raising::Ended);
        }
        Ok(Raising::Raised(Raised {
            device,
            limits,
            before,
            charged_before,
            after: local,
        }))
    }

    /// The launch that it was raised for was refused by the driver, which takes nothing for it. What it took nevertheless the look tells.
    pub fn lower_local(self, launching: &Launching, raised: &Raised) {
        let Raised { device, limits, .. } = raised;
        {
            let _change = self.change();
            let _held = limits.changing.hold();
            // Another's launch may need more by now, or as much, and of an ended context there is none.
            let (before, after) = (raised.before, raised.after);
            let order = Ordering::SeqCst;
            if limits
                .covered
                .compare_exchange(after, before, order, order)
                .is_err()
            {
                return;
            }
            // Nor while another thread sets the stack: what the driver has is no longer on record, and what it is about to take not charged again (R105).
            let is_set = limits.setting.load(order) != 0 && !planted(Seed::R105);
            if is_set || !launching.was_alone() && !planted(Seed::R33d) {
                limits.covered.fetch_max(after, order);
                return;
            }
            self.charge_less_local(device, limits, raised.charged_before);
        }
        self.look_at(device);
    }

    /// The driver has so much local memory, in bytes a thread: less than is charged. To be called by whoever has the limits' lock.
    fn charge_less_local(self, device: &Device, limits: &Limits, local: u64) {
        let charged = limits.charged();
        let wanted = limits.cost_with(device.shape, LOCAL, local);
        limits.note(LOCAL, local, wanted);
        self.note_lowered(device, limits, LOCAL);
        self.release(device.indices, charged.saturating_sub(wanted));
    }

    /// Which of a launch and a set stack came later only the driver knows, and while launches are under way all of it stays charged. It told of that `stack`,
    /// with none under way by this count of `launches`: what is charged beyond it a launch takes anew (R116 of `fixtures/defects.txt`).
    fn settle_local(
        self,
        device: &Device,
        limits: &Limits,
        (life, launches): (u64, u64),
        stack: u64,
    ) {
        let order = Ordering::SeqCst;
        if under_way(launches) != 0 || limits.local.load(order) <= stack || planted(Seed::R116) {
            return;
        }
        let _change = self.change();
        let _held = limits.changing.hold();
        if !limits.lives(life)
            || limits.setting.load(order) != 0
            || limits.local.load(order) <= stack
        {
            return;
        }
        let covered = limits.covered.fetch_min(stack, order);
        // One that began before that may have found itself covered.
        if limits.launches.load(order) == launches {
            self.charge_less_local(device, limits, stack);
        } else {
            limits.covered.fetch_max(covered, order);
        }
    }

    /// Of the calling thread's context on this device the driver is asked what it has of what its limits are charged, so that what is only charged explains
    /// nothing that the device's row shows (F1 of `fixtures/defects.txt`). It takes a buffer at the launch that needs it, and refuses another size of one
    /// that it has, at once whatever the context has to do; it tells a stack as large as launches have made it (H200: *buffers beside work* and *local
    /// memory in graphs* in `fixtures/oracle/held-580.txt`).
    pub fn ask_of_limits(self, device: &Device) {
        let contexts = &self.memory.contexts;
        if contexts.limits_deferred(device) == Bytes::ZERO
            && (contexts.buffers_awaited(device.ordinal) == Bytes::ZERO || planted(Seed::F1e))
        {
            return;
        }
        let is_here = self
            .current_device()
            .is_ok_and(|current| current.ordinal == device.ordinal);
        let limits = self
            .limits_of(current_context(), device)
            .filter(|_| is_here);
        // Whoever sets a limit holds it from the driver's answer to the note of it.
        let asking = limits.and_then(|limits| limits.resizing(self).try_hold());
        let Some((limits, _asking)) = limits.zip(asking) else {
            return;
        };
        let _relaxed = Relaxed::begin(self);
        let (life, launches) = (limits.life(), limits.launches.load(Ordering::SeqCst));
        if let Ok(stack) = told(STACK) {
            limits.told.store(stack as u64, Ordering::Release);
            self.settle_local(device, limits, (life, launches), stack as u64);
        }
        if planted(Seed::F1e) {
            return;
        }
        for limit in BUFFERS {
            if limits.awaits(limit)
                && let Ok(value) = told(limit)
                && next::cuCtxSetLimit(limit, value) == CUresult::ERROR_INVALID_VALUE
            {
                limits.note_taken(limit);
            }
        }
    }

    /// What a stack gave back of a context's own is in no row.
    fn note_lowered(self, device: &Device, limits: &Limits, limit: CUlimit) {
        let (lower, lowered) = limits.lower(device.shape, limit);
        self.unlist(device.indices, lower.saturating_sub(lowered));
        self.list(device.indices, lowered.saturating_sub(lower));
    }

    /// What a smaller stack gave back counts as listed again. Answers how much that was.
    fn take_lowered(self, device: &Device, (limits, life): (&Limits, u64)) -> Bytes {
        let _held = limits.changing.hold();
        if !limits.lives(life) {
            return Bytes::ZERO;
        }
        let lowered = Bytes(limits.lowered.swap(0, Ordering::AcqRel));
        self.list(device.indices, lowered);
        lowered
    }

    /// The stack was not set after all.
    fn put_lowered(self, device: &Device, (limits, life): (&Limits, u64), lowered: Bytes) {
        let _held = limits.changing.hold();
        if limits.lives(life) {
            limits.lowered.fetch_add(lowered.0, Ordering::AcqRel);
            self.unlist(device.indices, lowered);
        }
    }

    /// Charges what the limits then come to, under a grant of `granted`, and notes the one that changed. False where the context that had them in that life
    /// has ended since, and what they took with it: nothing is charged then (R33a of `fixtures/defects.txt`).
    fn note(
        self,
        device: &Device,
        (limits, life): (&Limits, u64),
        (limit, asked): (CUlimit, u64),
        grant: Grant,
        granted: Bytes,
    ) -> Result<bool, Refused> {
        // Until all of it is in the books.
        let _change = self.change();
        let held = limits.changing.hold();
        if !limits.lives(life) && !planted(Seed::R33a) {
            return Ok(false);
        }
        let local = limits.local.load(Ordering::Acquire);
        // Another thread may have launched a larger function meanwhile. A stack is what the call makes of it, whatever launches made it before (R33).
        let (value, then) = match limit {
            LOCAL => (asked.max(local), asked.max(local)),
            STACK => (asked, limits.covered.load(Ordering::SeqCst)),
            _ => (asked, local),
        };
        let charged = limits.charged();
        let wanted = limits.cost_beside(device.shape, (limit, value), then);
        let grown = wanted.saturating_sub(charged);
        let beyond = self.reserve(device.indices, grown.saturating_sub(granted))?;
        grant.commit_as(grown.min(granted));
        beyond.commit_as(grown.saturating_sub(granted));
        limits.note(limit, value, wanted);
        limits.local.store(then, Ordering::SeqCst);
        if limit == LOCAL {
            limits.covered.fetch_max(asked, Ordering::SeqCst);
        }
        self.note_lowered(device, limits, limit);
        drop(held);
        self.tell_awaited(device);
        self.release(device.indices, charged.saturating_sub(wanted));
        Ok(true)
    }
}

/// Whether the current context was destroyed: the driver refuses all that needs one.
pub fn is_context_gone() -> bool {
    told(STACK) == Err(CUresult::ERROR_CONTEXT_IS_DESTROYED)
}

/// A limit's value, by the driver.
fn told(limit: CUlimit) -> Result<usize, CUresult> {
    let mut value = 0;
    match next::cuCtxGetLimit(Out::to(&mut value), limit) {
        CUresult::SUCCESS => Ok(value),
        code => Err(code),
    }
}

/// No thread has more.
const MOST_STACK: u64 = 512 << 10;

/// What the driver makes of a value, or more (H200, 580.159.04: 511 KiB of stack, an eighth of the memory for the heap, 2 GiB
/// for printf).
fn within_bounds(shape: Shape, limit: CUlimit, value: u64) -> u64 {
    let most = match limit {
        STACK => MOST_STACK,
        PRINTF => 2 << 30,
        _ if shape.total == Bytes::ZERO => u64::MAX,
        _ => shape.total.0 / 8,
    };
    value.min(most)
}

/// What a buffer of so many bytes takes: it has a margin, and is taken by itself.
fn buffer(bytes: u64) -> Bytes {
    match bytes {
        0 => Bytes::ZERO,
        bytes => Bytes(bytes)
            .saturating_add(BLOCK)
            .round_up(BLOCK)
            .unwrap_or(Bytes::MAX),
    }
}

/// A limit that is being set, until the driver's answer is charged. Until then a refused launch gives nothing back of what is charged: the driver has it, or
/// is about to.
#[must_use]
struct Setting<'a> {
    limits: &'a Limits,
    life: u64,
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        let limits = self.limits;
        let _held = limits.changing.hold();
        let is_last = limits.setting.fetch_sub(1, Ordering::SeqCst) == 1;
        // A stack that is not set after all is what launches have made it.
        if is_last && limits.lives(self.life) {
            let local = limits.local.load(Ordering::SeqCst);
            limits.covered.store(local, Ordering::SeqCst);
        }
    }
}

/// A launch with local memory, from before its charge is judged until the driver has it.
#[must_use]
pub struct Launching {
    limits: &'static Limits,
    /// The context's launches when this one had begun.
    launches: u64,
}

/// Of a context's launches: one that is under way, and one that has begun.
const UNDER_WAY: u64 = 1;
const BEGUN: u64 = 1 << 32;

fn under_way(launches: u64) -> u64 {
    launches % BEGUN
}

impl Launching {
    /// Whether no other was under way when this one began, nor has begun since: what was charged for this one has served none (R33d of
    /// `fixtures/defects.txt`).
    fn was_alone(&self) -> bool {
        under_way(self.launches) == 1
            && self.limits.launches.load(Ordering::SeqCst) == self.launches
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        let launches = &self.limits.launches;
        launches.fetch_sub(UNDER_WAY, Ordering::SeqCst);
    }
}

/// What a launch has done to a context's local memory.
pub enum Raising {
    /// It was as much before.
    Stood,
    Raised(Raised),
    /// The context has ended meanwhile, and nothing is charged.
    Ended,
}

/// A context's local memory that was raised for a launch, in bytes a thread.
pub struct Raised {
    device: &'static Device,
    limits: &'static Limits,
    /// Covered before, and charged.
    before: u64,
    charged_before: u64,
    after: u64,
}

/// A context's limits as they were set, in bytes; 0 is what every context has. All zeros is a new one's.
#[repr(C)]
#[derive(Default)]
pub struct Limits {
    /// Held while what they cost is charged, or the context ends.
    changing: Lock,
    /// Held while the driver is told another value, and whenever it is asked for the size of a buffer.
    resizing: Lock,
    /// How many threads are setting one.
    setting: AtomicU64,
    /// Odd while a context has them; each has another number.
    life: AtomicU64,
    stack: AtomicU64,
    printf: AtomicU64,
    heap: AtomicU64,
    /// The local memory that is charged, in bytes a thread.
    local: AtomicU64,
    /// The part of it that launches may have uncharged. Less than all while the stack is set: what a launch takes after that is charged anew.
    covered: AtomicU64,
    charged: AtomicU64,
    /// What the context gave back of its own by a smaller stack: it is charged, for it is taken again unasked, and in no row.
    lowered: AtomicU64,
    /// Not 0: a module that calls malloc was loaded, so that the context has what the first of them takes.
    malloc: AtomicU64,
    /// The buffers that the driver has taken, a bit for each limit.
    taken: AtomicU64,
    /// The stack that the driver told of last since one was set, in bytes a thread.
    told: AtomicU64,
    /// Launches with local memory, of whichever context has had these limits: how many are under way, and how many have begun, which wraps.
    launches: AtomicU64,
}

/// Whether a context has the limits in that life.
fn is_of_a_context(life: u64) -> bool {
    life % 2 == 1
}

impl Limits {
    /// What is charged for them.
    pub fn charged(&self) -> Bytes {
        Bytes(self.charged.load(Ordering::Acquire))
    }

    /// Whether a launch may have as much local memory uncharged, in bytes a thread.
    pub fn has_local(&self, local: u64) -> bool {
        self.covered.load(Ordering::SeqCst) >= local
    }

    /// Whether a launch with local memory is under way, or one is being set.
    pub fn are_in_use(&self) -> bool {
        under_way(self.launches.load(Ordering::SeqCst)) != 0
            || self.setting.load(Ordering::SeqCst) != 0 && !planted(Seed::R106)
    }

    /// A launch with local memory begins.
    pub fn begin_launch(&'static self) -> Launching {
        let one = BEGUN | UNDER_WAY;
        let before = self.launches.fetch_add(one, Ordering::SeqCst);
        Launching {
            limits: self,
            launches: before.wrapping_add(one),
        }
    }

    /// One is about to be set. Of a stack a launch from now on finds no local memory charged. Of those under way the driver may get each before or after it,
    /// so that what they take stays charged until it is set again (R33c of `fixtures/defects.txt`).
    fn begin_setting(&self, limit: CUlimit) -> Setting<'_> {
        let order = Ordering::SeqCst;
        let _held = self.changing.hold();
        self.setting.fetch_add(1, order);
        if limit == STACK {
            let covered = self.covered.swap(0, order);
            if planted(Seed::R105a) {
                self.local.store(0, order);
            }
            if under_way(self.launches.load(order)) != 0 && !planted(Seed::R33c) {
                self.covered.fetch_max(covered, order);
            }
        }
        Setting {
            limits: self,
            life: self.life(),
        }
    }

    /// A context has them from now on.
    pub fn begin(&self) {
        let _held = self.changing.hold();
        self.forget();
        self.life.fetch_or(1, Ordering::AcqRel);
    }

    /// The context ends. Answers what was charged for them, and what of its own it had given back.
    pub fn end(&self) -> (Bytes, Bytes) {
        let _held = self.changing.hold();
        let had = (self.charged(), self.lowered());
        self.forget();
        self.life.fetch_add(1, Ordering::AcqRel);
        had
    }

    /// Which context has them.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    /// Whether any context has them.
    fn are_in_life(&self) -> bool {
        is_of_a_context(self.life())
    }

    pub fn lives(&self, life: u64) -> bool {
        is_of_a_context(life) && self.life() == life
    }

    /// The driver waits for the context's work before it sets its stack, and that work may wait for a thread that sets another context's limits (R85 of
    /// `fixtures/defects.txt`). Who sets another limit of that context waits in the driver, too (H200, 580.159.04).
    fn resizing(&self, tenant: Tenant) -> &Lock {
        match planted(Seed::R85) {
            true => &tenant.memory.resizing,
            false => &self.resizing,
        }
    }

    fn forget(&self) {
        for word in [
            &self.stack,
            &self.printf,
            &self.heap,
            &self.local,
            &self.covered,
            &self.charged,
            &self.lowered,
            &self.malloc,
            &self.taken,
            &self.told,
        ] {
            word.store(0, Ordering::Release);
        }
    }

    /// What the context has given back of its own by now.
    pub fn lowered(&self) -> Bytes {
        Bytes(self.lowered.load(Ordering::Acquire))
    }

    /// Notes that after a limit was set or a launch has raised the local memory: now, and before.
    fn lower(&self, shape: Shape, limit: CUlimit) -> (Bytes, Bytes) {
        let before = self.lowered();
        // A stack that was never set is a fresh context's; one of 0 is none.
        let is_concerned = limit == STACK || limit == LOCAL && before != Bytes::ZERO;
        if !is_concerned || planted(Seed::R81) {
            return (before, before);
        }
        let of = |one| self.word(one).load(Ordering::Acquire);
        let now = charge::lowered_stacks(shape.threads(), of(STACK).max(of(LOCAL)));
        self.lowered.store(now.0, Ordering::Release);
        (now, before)
    }

    pub fn has_malloc(&self) -> bool {
        self.malloc.load(Ordering::Acquire) != 0
    }

    pub fn note_malloc(&self) {
        self.malloc.store(1, Ordering::Release);
    }

    /// What is charged for stacks and local memory that the driver has not taken as far as is known; what a smaller stack gave back of a fresh context's, and a
    /// launch is to take again, is part of it.
    pub fn stacks_awaited(&self, shape: Shape) -> Bytes {
        let of = |one| self.word(one).load(Ordering::Acquire);
        let told = self.told.load(Ordering::Acquire);
        if told >= of(STACK).max(of(LOCAL)) && !planted(Seed::F1f) {
            return Bytes::ZERO;
        }
        let buffers = self.buffers(true).saturating_add(self.buffers(false));
        let again = match of(STACK) {
            0 => Bytes::ZERO,
            stack => charge::lowered_stacks(shape.threads(), stack.max(told))
                .saturating_sub(self.lowered()),
        };
        self.charged().saturating_sub(buffers).saturating_add(again)
    }

    /// What is charged for buffers, by whether the driver has taken them.
    pub fn buffers(&self, taken: bool) -> Bytes {
        BUFFERS
            .iter()
            .filter(|limit| self.has_taken(**limit) == taken)
            .fold(Bytes::ZERO, |sum, limit| {
                sum.saturating_add(buffer(self.word(*limit).load(Ordering::Acquire)))
            })
    }

    fn has_taken(&self, limit: CUlimit) -> bool {
        self.taken.load(Ordering::Acquire) & 1 << limit != 0
    }

    fn note_taken(&self, limit: CUlimit) {
        self.taken.fetch_or(1 << limit, Ordering::AcqRel);
    }

    /// Whether a buffer is charged that the driver has not taken as far as is known.
    fn awaits(&self, limit: CUlimit) -> bool {
        !self.has_taken(limit) && self.word(limit).load(Ordering::Acquire) != 0
    }

    fn word(&self, limit: CUlimit) -> &AtomicU64 {
        match limit {
            STACK => &self.stack,
            PRINTF => &self.printf,
            LOCAL => &self.local,
            _ => &self.heap,
        }
    }

    fn note(&self, limit: CUlimit, value: u64, charged: Bytes) {
        self.word(limit).store(value, Ordering::Release);
        self.charged.store(charged.0, Ordering::Release);
    }

    /// What a context with these limits may take beside its own, `limit` being `value`.
    fn cost_with(&self, shape: Shape, limit: CUlimit, value: u64) -> Bytes {
        self.cost_beside(shape, (limit, value), self.local.load(Ordering::Acquire))
    }

    /// As [`Limits::cost_with`], with so much local memory where `limit` is another.
    fn cost_beside(&self, shape: Shape, (limit, value): (CUlimit, u64), local: u64) -> Bytes {
        let of = |one| match one {
            _ if one == limit => value,
            LOCAL => local,
            _ => self.word(one).load(Ordering::Acquire),
        };
        charge::stacks(shape.threads(), of(STACK).max(of(LOCAL)))
            .saturating_add(buffer(of(PRINTF)))
            .saturating_add(buffer(of(HEAP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Shape = Shape {
        total: Bytes(150_109_880_320),
        multiprocessors: 132,
        threads_per_multiprocessor: 2048,
    };

    #[test]
    fn each_limit_is_charged_beside_the_others() {
        let limits = Limits::default();
        assert_eq!(limits.cost_with(H200, STACK, 1024), Bytes::ZERO);
        let stack = limits.cost_with(H200, STACK, 64 << 10);
        assert_eq!(stack, Bytes(132 * 2048 * (63 << 10)));
        limits.note(STACK, 64 << 10, stack);
        let both = limits.cost_with(H200, HEAP, 1 << 30);
        assert_eq!(both, stack.saturating_add(Bytes((1 << 30) + (2 << 20))));
        limits.note(HEAP, 1 << 30, both);
        assert_eq!(
            limits.cost_with(H200, STACK, 512).saturating_add(stack),
            both
        );
    }

    #[test]
    fn stack_and_local_memory_are_one() {
        let limits = Limits::default();
        let large = limits.cost_with(H200, LOCAL, 64 << 10);
        assert_eq!(large, limits.cost_with(H200, STACK, 64 << 10));
        limits.note(LOCAL, 64 << 10, large);
        assert_eq!(limits.cost_with(H200, STACK, 512), large);
        let larger = limits.cost_with(H200, STACK, 128 << 10);
        assert_eq!(larger, Bytes(132 * 2048 * (127 << 10)));
    }

    #[test]
    fn what_a_smaller_stack_gave_back_is_awaited_until_a_launch_has_taken_it_again() {
        let limits = Limits::default();
        limits.note(STACK, 256, Bytes::ZERO);
        limits.lower(H200, STACK);
        let all = limits.lowered();
        assert_eq!(limits.stacks_awaited(H200), Bytes::ZERO);
        limits.note(LOCAL, 640, Bytes::ZERO);
        limits.lower(H200, LOCAL);
        assert!(limits.lowered() < all);
        let again = all.saturating_sub(limits.lowered());
        assert_eq!(limits.stacks_awaited(H200), again);
        limits.told.store(640, Ordering::Release);
        assert_eq!(limits.stacks_awaited(H200), Bytes::ZERO);
    }

    #[test]
    fn a_smaller_stack_gives_back_what_a_fresh_one_has() {
        let limits = Limits::default();
        let lowers = |limit, value| {
            limits.note(limit, value, Bytes::ZERO);
            limits.lower(H200, limit)
        };
        let (all, most) = (Bytes::mib(264), Bytes::mib(260));
        assert_eq!(lowers(HEAP, 1 << 30), (Bytes::ZERO, Bytes::ZERO));
        assert_eq!(lowers(STACK, 0), (all, Bytes::ZERO));
        assert_eq!(lowers(STACK, 16), (most, all));
        assert_eq!(lowers(LOCAL, 1024), (Bytes::ZERO, most));
        assert_eq!(lowers(LOCAL, 512), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn no_value_is_charged_beyond_what_the_driver_makes_of_it() {
        assert_eq!(within_bounds(H200, STACK, u64::MAX), 512 << 10);
        assert_eq!(within_bounds(H200, HEAP, u64::MAX), 150_109_880_320 / 8);
        assert_eq!(within_bounds(H200, HEAP, 5 << 20), 5 << 20);
    }
}
