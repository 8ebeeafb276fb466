//! One stream-ordered request: from what its pool is charged for already, or after more was.

use abi::cuda::{CUdevice, CUdeviceptr, CUresult, CUstream};
use budget::Bytes;
use budget::charge::SUBALLOCATION;

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::{Capture, Relaxed};
use crate::devices::{Device, current_context};
use crate::marks::Entered;
use crate::memory::{IMPOSSIBLE, When, free_by, refused_unless_undone};
use crate::mirror::LARGE;
use crate::outcome::{Outcome, Reason, Refused};
use crate::pools::Known;
use crate::process::Tenant;
use crate::records::Pooled;
use crate::slack::context_of;

/// How often a request asks for room that others take before it, until it asks for itself alone.
const ROUNDS: u32 = 4;

/// One request, as it came.
#[derive(Clone, Copy)]
pub struct Calls<'a, Alloc, Free> {
    pub alloc: Alloc,
    pub free: Free,
    pub place: Out<'a, CUdeviceptr>,
    pub size: usize,
    /// As the plain entry points call it.
    pub stream: CUstream,
}

/// Why a request is not plainly granted.
enum Otherwise {
    /// The driver refuses it, or it asks for nothing.
    Nothing,
    Captured(Capture),
    /// More than any driver grants.
    Impossible,
    /// Of a stream whose device is not known: nobody can be charged for it.
    Unknown,
    /// It is not sure to fit in what the pool is charged for.
    Beyond {
        known: Known,
        rounded: u64,
    },
    /// The driver has answered, and there is no record of it.
    Unrecorded {
        known: Known,
        rounded: u64,
        answered: Answered,
    },
}

/// By what a request was judged, and how it is judged again where that has changed meanwhile: its memory may be another pool's (R90 of
/// `fixtures/defects.txt`).
#[derive(Clone, Copy)]
struct Judged<'a> {
    /// From before its pool was found.
    era: u64,
    again: &'a dyn Fn() -> Option<Known>,
    /// How often; then the pools have to wait for it.
    left: u32,
}

/// What the driver said.
#[derive(Clone, Copy)]
struct Answered {
    code: CUresult,
    /// `None` if there is no allocation, false if there is no room to put it on record.
    recorded: Option<bool>,
}

/// The rest of a request. Its parts come one by one: what is handed on by its address would be written to memory on the way of every call.
#[cold]
#[inline(never)]
fn otherwise<Alloc, Free>(
    alloc: Alloc,
    free: Free,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
    tenant: Tenant,
    (what, era, again): (Otherwise, u64, &dyn Fn() -> Option<Known>),
) -> Outcome<CUresult>
where
    Alloc: Fn(usize) -> CUresult,
    Free: Fn(CUdeviceptr) -> CUresult,
{
    let calls = Calls {
        alloc,
        free,
        place,
        size,
        stream,
    };
    let judged = Judged {
        era,
        again,
        left: ROUNDS,
    };
    match what {
        Otherwise::Nothing => Outcome::PassThrough(Reason::TakesNothing),
        Otherwise::Captured(capture) => calls.captured(tenant, capture),
        Otherwise::Impossible => {
            let code = (calls.alloc)(size);
            refused_unless_undone(code, || place.read(), &calls.free)
        }
        // Not asked for and given back: the driver would keep it until the stream has come so far.
        Otherwise::Unknown => calls.verdict(tenant, Refused::UnknownDevice),
        Otherwise::Beyond { known, rounded } => calls.beyond(tenant, known, rounded, judged),
        Otherwise::Unrecorded {
            known,
            rounded,
            answered,
        } => calls.finished(tenant, known, answered, (Ok(()), rounded), judged),
    }
}

impl<Alloc, Free> Calls<'_, Alloc, Free>
where
    Alloc: Fn(usize) -> CUresult,
    Free: Fn(CUdeviceptr) -> CUresult,
{
    #[inline(always)]
    pub fn decide(
        self,
        tenant: Tenant,
        era: u64,
        pool: impl FnOnce() -> Option<Known>,
        again: &dyn Fn() -> Option<Known>,
    ) -> Outcome<CUresult> {
        match self.plainly(tenant, era, pool) {
            Ok(code) => Outcome::Done(code),
            Err(what) => otherwise(
                self.alloc,
                self.free,
                self.place,
                self.size,
                self.stream,
                tenant,
                (what, era, again),
            ),
        }
    }

    /// The common case: the pool has room for it that is charged already.
    #[inline(always)]
    fn plainly(
        &self,
        tenant: Tenant,
        era: u64,
        pool: impl FnOnce() -> Option<Known>,
    ) -> Result<CUresult, Otherwise> {
        if self.place.is_null() || self.size == 0 {
            return Err(Otherwise::Nothing);
        }
        if let Some(capture) = tenant.capture_of(self.stream) {
            return Err(Otherwise::Captured(capture));
        }
        if self.size > IMPOSSIBLE - SUBALLOCATION.0 as usize {
            return Err(Otherwise::Impossible);
        }
        let rounded = (self.size as u64).next_multiple_of(SUBALLOCATION.0);
        let known = pool().ok_or(Otherwise::Unknown)?;
        if rounded >= LARGE || !known.pool.enter(&tenant.memory.threads, rounded) {
            return Err(Otherwise::Beyond { known, rounded });
        }
        match self.asked(tenant, known, rounded) {
            Answered {
                code,
                recorded: Some(true),
            } if !tenant.have_pools_changed(era) => Ok(code),
            answered => Err(Otherwise::Unrecorded {
                known,
                rounded,
                answered,
            }),
        }
    }

    /// Asks the driver for what was taken of the pool's room.
    #[inline(always)]
    fn asked(&self, tenant: Tenant, known: Known, rounded: u64) -> Answered {
        let code = (self.alloc)(self.size);
        let thread = tenant.memory.threads.number();
        let address = self.place.read();
        let address = address.filter(|address| code == CUresult::SUCCESS && *address != 0);
        let recorded = address.map(|address| {
            let pooled = Pooled {
                address,
                size: Bytes(rounded),
                pool: known.place,
            };
            tenant.memory.records.insert_first(thread, pooled)
                || tenant.insert_among_others(address, pooled.size, known)
        });
        if known.pool.is_lendable() {
            address
                .into_iter()
                .for_each(|address| tenant.spread_over(known.place, address, Bytes(rounded)));
        }
        known.pool.answered(thread, rounded);
        if known.pool.is_owed() {
            tenant.read_owed(known);
        }
        Answered { code, recorded }
    }

    /// A request of a stream that captures is a node, and takes nothing before its graph is launched. One that came after the
    /// capture's end, because another thread ended it, is not kept: nobody has charged it.
    #[cold]
    fn captured(&self, tenant: Tenant, capture: Capture) -> Outcome<CUresult> {
        tenant.memory.graphs.notice_allocation();
        let code = (self.alloc)(self.size);
        if code != CUresult::SUCCESS || tenant.is_in(capture, self.stream) {
            return Outcome::Done(code);
        }
        refused_unless_undone(code, || self.place.read(), &self.free)
    }

    /// What the driver has against the request beside its size; else that it does not fit.
    fn verdict(&self, tenant: Tenant, refused: Refused) -> Outcome<CUresult> {
        tenant.verdict((self.alloc)(IMPOSSIBLE), refused)
    }

    /// A request that is not sure to fit in what its pool is charged for: a small one has room made for it and others, and comes again; a
    /// large one, and the first of a managed pool, reserves all that it may make the pool grow by.
    #[cold]
    fn beyond(
        &self,
        tenant: Tenant,
        known: Known,
        rounded: u64,
        judged: Judged<'_>,
    ) -> Outcome<CUresult> {
        let outcome = self.beyond_charged(tenant, known, rounded, judged);
        tenant.end_if_gone(known);
        outcome
    }

    fn beyond_charged(
        &self,
        tenant: Tenant,
        known: Known,
        rounded: u64,
        judged: Judged<'_>,
    ) -> Outcome<CUresult> {
        let by_itself = rounded >= LARGE || tenant.awaits_managed(known);
        let rounds = if by_itself { 0 } else { ROUNDS };
        for _ in 0..rounds {
            if let Err(refused) = tenant.make_room(known) {
                return self.verdict(tenant, refused);
            }
            if known.pool.enter(&tenant.memory.threads, rounded) {
                let answered = self.asked(tenant, known, rounded);
                return self.finished(tenant, known, answered, (Ok(()), rounded), judged);
            }
        }
        let growth = match tenant.grow(known, Bytes(rounded)) {
            Ok(growth) => growth,
            Err(refused) => return self.verdict(tenant, refused),
        };
        known.pool.enter_by_itself(rounded);
        let answered = self.asked(tenant, known, rounded);
        let settled = tenant.settle(known, growth);
        self.finished(tenant, known, answered, (settled, rounded), judged)
    }

    /// The end of a request that was not plainly granted: what cannot be accounted for is not kept.
    #[cold]
    fn finished(
        &self,
        tenant: Tenant,
        known: Known,
        answered: Answered,
        (settled, rounded): (Result<(), Refused>, u64),
        judged: Judged<'_>,
    ) -> Outcome<CUresult> {
        let Answered { code, recorded } = answered;
        if recorded != Some(true) {
            tenant.leave_pool(known.place, Bytes(rounded), When::Now);
        }
        let (Some(recorded), Some(address)) = (recorded, self.place.read()) else {
            return Outcome::Done(code);
        };
        let changed = tenant.have_pools_changed(judged.era);
        let refused = match settled {
            Ok(()) if recorded && !changed => return Outcome::Done(code),
            Ok(()) => Refused::TableFull,
            Err(refused) => refused,
        };
        let freed = free_by(tenant, address, When::InStreamOrder(self.stream), || {
            (self.free)(address)
        });
        if freed != CUresult::SUCCESS {
            // Its stream is gone, or captures: nobody else knows the address (attack 27).
            let _relaxed = Relaxed::begin(tenant);
            let _ = free_by(tenant, address, When::Now, || next::cuMemFree_v2(address));
        }
        match changed {
            true => self.judge_again(tenant, known, rounded, judged),
            false => self.verdict(tenant, refused),
        }
    }

    /// Its memory was of a pool that was made current, or destroyed, beside it, and is freed again: what that made any of them keep is charged.
    #[cold]
    fn judge_again(
        &self,
        tenant: Tenant,
        known: Known,
        rounded: u64,
        judged: Judged<'_>,
    ) -> Outcome<CUresult> {
        tenant.read_pools_of(known.device);
        let _held = (judged.left == 0).then(|| tenant.hold_pools());
        let judged = Judged {
            era: tenant.era_of_pools(),
            left: judged.left.saturating_sub(1),
            ..judged
        };
        match (judged.again)() {
            Some(known) => self.beyond(tenant, known, rounded, judged),
            None => self.verdict(tenant, Refused::UnknownDevice),
        }
    }
}

impl Tenant {
    /// The pool that a stream allocates from. Always inlined: what is known of it stays in registers.
    #[inline(always)]
    pub fn pool_of(self, stream: CUstream) -> Option<Known> {
        let devices = self.devices()?;
        match devices.only() {
            Some(only) => self.current_pool(0, only),
            None => self
                .device_of(stream)
                .and_then(|device| self.current_pool(device.ordinal, device)),
        }
    }

    #[cold]
    fn device_of(self, stream: CUstream) -> Option<&'static Device> {
        let Some(context) = context_of(stream) else {
            return self.current_device().ok();
        };
        if let Some(ordinal) = self.memory.contexts.ordinal_of(context) {
            return self.devices()?.get(ordinal as CUdevice);
        }
        // A green context's, which no table has, and which may be of another device than the thread's.
        let _entered = Entered::into(context);
        (current_context() == context)
            .then(|| self.current_device().ok())
            .flatten()
    }
}
