//! The books brought to what the driver says this process takes (C10, decision 12).
//!
//! What a model knows is charged by it: blocks, pools, limits, streams. The rest nobody can know before: code that a function takes
//! when it is first launched, blocks that small variables share, queues of streams that nobody made. It is one figure per device, the
//! *drift*: by how much our row in NVML is beyond what is charged. It is looked at after a call that may change it, when more than
//! a 64th of the budget was taken since the last look, and before a refusal; never by a thread. Where NVML does not show us there
//! is none, and upper bounds stay.

use core::sync::atomic::{AtomicU64, Ordering};
use ledger::{Change, Changes, KeptErrno, Refusal};

use abi::cuda::CUresult;
use budget::charge::BLOCK;
use budget::settings::ContextCharge;
use budget::{Bytes, DeviceIndex, DeviceSet, MAX_DEVICES};

use seeds::{Mark, Seed, mark, planted};

use crate::boundary::arena::Lock;
use crate::boundary::{sign, time};
use crate::devices::{Device, Devices};
use crate::grant::Grant;
use crate::nvml::{Processes, Rows, Session};
use crate::outcome::{Outcome, Refused};
use crate::poll::pause_after;
use crate::pools::Unused;
use crate::process::Tenant;
use crate::report::{self, Once};

/// A look is taken again if the books changed under it, so many times; then what is certain of it counts.
const TRIES: usize = 3;
/// Between two looks a process takes at most this part of the budget.
const PART: u64 = 64;

/// What is known of how the books stand to the driver's. All zeros is the beginning.
#[repr(C)]
pub struct Truth {
    pub changes: Changes,
    /// Held while the books are brought to the driver's figure.
    looking: Lock,
    devices: [Figures; MAX_DEVICES],
}

/// Of one device.
#[repr(C)]
struct Figures {
    /// Charged because the driver's row says so, and for nothing else.
    drift: AtomicU64,
    /// The part of it that is an upper bound, not looked at yet.
    unseen: AtomicU64,
    /// What this process may hold before the next look.
    next: AtomicU64,
    /// A part of the budget more than the least that it held since the last look: so much it may hold before the next one that is due.
    near: AtomicU64,
    /// That part of the budget; 0 where there is nothing to look at.
    step: AtomicU64,
    /// When a look that `near` asks for is due, by the processor's counter: `pause_after` the last one.
    due: AtomicU64,
    /// When the last look that brought the books up began, by the processor's counter.
    seen: AtomicU64,
    /// When who only asks for figures looks at the tenant's other processes again, by the processor's counter.
    others_due: AtomicU64,
    /// Not 0: the last look found a row of ours.
    listed: AtomicU64,
    /// Not 0: what this process held before execve is in our row no longer.
    alone: AtomicU64,
    /// What the ledger was told that is charged for buffers and in no row.
    awaited: AtomicU64,
    /// Not 0: a look is under way. The most that this process was charged since its last try began.
    watched: AtomicU64,
    peak: AtomicU64,
}

/// While it lives, whoever is charged says how much that makes.
struct Watch<'a>(&'a Figures);

impl Watch<'_> {
    /// A row read from now on holds no more than what is charged now and what the peak says afterwards.
    fn begin(&self) {
        self.0.peak.store(0, Ordering::SeqCst);
    }

    fn peak(&self) -> Bytes {
        Bytes(self.0.peak.load(Ordering::SeqCst))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watched.store(0, Ordering::SeqCst);
    }
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// NVML does not show us.
    Nothing,
    Known,
    /// And some of what was charged is free again.
    Freed,
}

/// What a look gives back beside drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relief {
    None,
    OfDestroyedPools,
}

/// The driver's figure beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// All that must be charged: the row, and what no row shows.
    held: Bytes,
    /// What is charged beside the drift.
    known: Bytes,
    /// Of that, what the driver may not have taken yet.
    deferred: Bytes,
    /// What is charged besides, and is certainly not taken.
    untaken: Bytes,
    /// By the last look.
    drift: Bytes,
    /// With what was charged unseen since.
    charged: Bytes,
    /// Another library of ours is about to take something for this process.
    unsettled: bool,
    /// What pools are charged for and may have let go of.
    let_go: Bytes,
    /// There are destroyed pools of which nothing is in use, and nothing else is unsettled.
    unused: Option<Unused>,
    /// The books never stood still: the drift is at least so much.
    busy: bool,
}

/// A look from before a call.
#[derive(Clone, Copy)]
pub struct Before(Look);

impl Look {
    /// By how much the driver's figure has grown since for no reason that is charged.
    fn grown_since(self, before: Look) -> Bytes {
        let stands = match self.busy {
            true => return Bytes::ZERO,
            false => self.held.saturating_add(before.known),
        };
        stands.saturating_sub(before.held.saturating_add(self.known))
    }

    /// By how much the driver's figure is beyond what is charged beside the drift.
    fn beyond(self) -> Bytes {
        self.held.saturating_sub(self.known)
    }

    /// How much of what is charged, with so much drift, the driver certainly does not have: what is not in its row, and not what it may yet take.
    fn beyond_row(self, drift: Bytes) -> Bytes {
        let charged = self.known.saturating_add(drift);
        let held = self.held.saturating_add(self.deferred);
        charged.saturating_sub(held)
    }

    /// After destroyed pools were: so much is charged no longer, and nobody may let go of it any more.
    fn relieved_of(self, relieved: Bytes) -> Look {
        Look {
            known: self.known.saturating_sub(relieved),
            let_go: self.let_go.saturating_sub(relieved),
            ..self
        }
    }

    /// What the drift is, with `more` charged besides. Of what is deferred nobody knows how much the driver has taken: the drift
    /// changes little from one look to the next, so within what is possible it stays.
    fn drift_beside(self, more: Bytes) -> Bytes {
        let known = self.known.saturating_add(more);
        let least = self.held.saturating_sub(known);
        let most = self
            .held
            .saturating_sub(known.saturating_sub(self.deferred));
        let drift = self.drift.clamp(least, most);
        // What seems to be less of it may be what pools have let go of, and no more than that (R135 of `fixtures/defects.txt`).
        let most = match self.unsettled || self.let_go != Bytes::ZERO && planted(Seed::R135) {
            true => self.drift,
            false => self.drift.min(drift.saturating_add(self.let_go)),
        };
        drift.max(most)
    }
}

impl Figures {
    /// Whether a process that holds `usage` is to be looked at before it takes so much more.
    #[inline]
    fn has_grown(&self, usage: Bytes, more: Bytes) -> bool {
        let then = usage.saturating_add(more).0;
        let step = self.step.load(Ordering::Relaxed);
        let near = usage.0.saturating_add(step);
        if step != 0 && near < self.near.load(Ordering::Relaxed) {
            self.near.fetch_min(near, Ordering::Relaxed);
        }
        then > self.next.load(Ordering::Relaxed)
            || then > self.near.load(Ordering::Relaxed) && self.is_due()
    }

    #[cold]
    fn is_due(&self) -> bool {
        time::ticks() >= self.due.load(Ordering::Relaxed) && !planted(Seed::R31a)
    }

    /// A look begins, of a process that holds `usage`.
    fn begin_look(&self, usage: Bytes, step: u64) {
        let next = usage.0.saturating_add(step);
        self.next.store(next, Ordering::Relaxed);
        self.near.store(next, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
    }

    fn watch(&self) -> Watch<'_> {
        self.watched.store(1, Ordering::SeqCst);
        Watch(self)
    }

    /// Nothing tells what is held there: nobody looks.
    fn leave(&self) {
        self.begin_look(Bytes::MAX, 0);
        self.listed.store(0, Ordering::Relaxed);
    }

    /// By a look, after which nothing of it is unseen.
    fn set_drift(&self, drift: Bytes) {
        self.unseen.store(0, Ordering::Release);
        self.drift.store(drift.0, Ordering::Release);
    }
}

impl Truth {
    /// Whether what this process held before execve is in our row of a device no longer.
    pub fn is_alone(&self, index: DeviceIndex) -> bool {
        let figures = index.slot().and_then(|slot| self.devices.get(slot));
        figures.is_some_and(|figures| figures.alone.load(Ordering::Acquire) != 0)
            && !planted(Seed::P12c)
            && !planted(Seed::P12)
    }
}

impl Tenant {
    /// Ledger and driver are about to differ.
    #[inline]
    pub fn change(self) -> Change<'static> {
        let ledger = self.ledger_so_far();
        self.memory.truth.changes.begin_told(ledger)
    }

    /// So much of what is charged is in no row of the driver's.
    pub fn unlist(self, devices: DeviceSet, bytes: Bytes) {
        self.note_unlisted(devices, bytes, Bytes::ZERO);
    }

    pub fn list(self, devices: DeviceSet, bytes: Bytes) {
        self.note_unlisted(devices, Bytes::ZERO, bytes);
    }

    /// Managed memory came, or what is kept for it: its pages are the kernel module's, so that it is in no row (`fixtures/oracle/managed-variables-580.txt`)
    /// and explains nothing that is in one (R17c of `fixtures/defects.txt`).
    pub fn manage(self, devices: DeviceSet, bytes: Bytes) {
        if !planted(Seed::R17c) {
            self.unlist(devices, bytes);
        }
    }

    /// And went.
    pub fn unmanage(self, devices: DeviceSet, bytes: Bytes) {
        if !planted(Seed::R17c) {
            self.list(devices, bytes);
        }
    }

    /// In the ledger, for the looks of the layer in this process too, and for those of others.
    fn note_unlisted(self, devices: DeviceSet, more: Bytes, less: Bytes) {
        if let Some(ledger) = self.ledger() {
            devices
                .iter()
                .for_each(|device| ledger.unlist(device, more, less));
        }
    }

    /// Whether enough was taken since the last look, with so much more, for another one.
    #[inline]
    pub fn has_grown(self, devices: DeviceSet, bytes: Bytes) -> bool {
        self.ledger().is_some_and(|ledger| {
            devices.iter().any(|index| {
                self.figures(index)
                    .is_some_and(|figures| figures.has_grown(ledger.own_usage(index), bytes))
            })
        })
    }

    /// As [`Tenant::room_for_unasked`], by the driver's figures of this moment, and on devices too that this process has no context on and strangers' memory
    /// (R34d of `fixtures/defects.txt`): what it imported before, or `imported` by now.
    pub fn look_for_imported(self, imported: Option<u32>) -> Result<(), Refused> {
        let holds = |device: &&Device| {
            let of_strangers = || {
                imported == Some(device.ordinal)
                    || self.imports_of_strangers_on(device.ordinal).is_some()
            };
            self.memory.contexts.has_any(device.ordinal) || !planted(Seed::R34d) && of_strangers()
        };
        let devices = || self.devices().into_iter().flat_map(Devices::iter);
        devices()
            .filter(holds)
            .for_each(|device| _ = self.look_at(device));
        devices()
            .filter(holds)
            .try_for_each(|device| self.room_on(device))
    }

    /// Whether the driver may take memory that nobody asks it for (code, the stream of a thread): not while the tenant is over its budget on a
    /// device that this process has a context on (R31 of `fixtures/defects.txt`).
    pub fn room_for_unasked(self) -> Result<(), Refused> {
        if planted(Seed::R31b) {
            return Ok(());
        }
        let devices = self.devices().into_iter().flat_map(Devices::iter);
        devices
            .filter(|device| self.memory.contexts.has_any(device.ordinal))
            .try_for_each(|device| self.room_on(device))
    }

    fn room_on(self, device: &Device) -> Result<(), Refused> {
        let over = || self.refusal_of(device.indices, Bytes::ZERO);
        if over().is_none() {
            return Ok(());
        }
        // What is held without need goes first, and the dead are waited for, as before any refusal. What a lease covers is granted all the same.
        drop(self.reserve_or_trim(device.indices, BLOCK)?);
        self.look_at(device);
        over().map_or(Ok(()), |refusal| Err(Refused::Ledger(refusal)))
    }

    /// Why so much more is not within the budgets of these devices, if it is not.
    pub fn refusal_of(self, devices: DeviceSet, bytes: Bytes) -> Option<Refusal> {
        let ledger = self.ledger()?;
        devices.iter().find_map(|index| {
            let (budget, usage) = (ledger.budget(index)?, ledger.usage(index));
            (usage.saturating_add(bytes) > budget).then_some(Refusal::OverBudget {
                requested: BLOCK,
                usage,
                budget,
            })
        })
    }

    /// A call by which a driver takes a few bytes of blocks that it fills one after another. None is made over the budget; one that fills another
    /// block, by all `bytes` that `taken` counts, only where that has room and the next, which the driver may begin before; and the driver's figure is
    /// looked at after.
    pub fn creep(
        self,
        taken: &AtomicU64,
        bytes: u64,
        call: impl FnOnce() -> CUresult,
    ) -> Outcome<CUresult> {
        if self.settings().context_charge == ContextCharge::Free {
            return Outcome::Done(call());
        }
        let before = taken.fetch_add(bytes, Ordering::Relaxed);
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK.0);
        let more = blocks(before.wrapping_add(bytes)).saturating_sub(blocks(before));
        if more == 0 {
            return match self.room_for_unasked() {
                Ok(()) => Outcome::Done(call()),
                Err(refused) => Outcome::Refused(refused),
            };
        }
        let indices = self.current_indices();
        let grant = match self.reserve_or_trim(
            indices,
            Bytes(more.saturating_add(1).saturating_mul(BLOCK.0)),
        ) {
            Ok(grant) => grant,
            Err(refused) => {
                // The next asks again.
                taken.fetch_sub(bytes, Ordering::Relaxed);
                return Outcome::Refused(refused);
            }
        };
        let code = call();
        drop(grant);
        self.look_all(indices);
        Outcome::Done(code)
    }

    /// What was granted after a look counts as looked at: only what is taken *and kept* calls for another one.
    pub fn looked_beside(self, devices: DeviceSet) {
        if planted(Seed::D1) {
            return;
        }
        for index in devices.iter() {
            if let (Some(figures), Some(ledger)) = (self.figures(index), self.ledger()) {
                let step = ledger
                    .budget(index)
                    .map_or(u64::MAX, |budget| budget.0 / PART);
                let next = ledger.own_usage(index).0.saturating_add(step);
                figures.next.fetch_max(next, Ordering::Relaxed);
            }
        }
    }

    /// Whether a device is so far from its budget, with so much more, that what is charged at most need not be looked at: the next
    /// look will.
    pub fn is_far(self, device: &Device, bytes: Bytes) -> bool {
        let alone = device.indices.len() == 1;
        let index = device.indices.iter().next().filter(|_| alone);
        index.zip(self.ledger()).is_some_and(|(index, ledger)| {
            let Some(budget) = ledger.budget(index) else {
                return false;
            };
            // Where no row shows this process there is no next look.
            let listed = self
                .figures(index)
                .is_some_and(|figures| figures.listed.load(Ordering::Relaxed) != 0);
            if !listed && !planted(Seed::R32a) {
                return false;
            }
            let part = Bytes(budget.0 / PART);
            let used = ledger.usage(index).saturating_add(bytes);
            bytes <= part && used.saturating_add(part) <= budget
        })
    }

    /// Commits what a call takes at most, of which `known` is charged to what it made and the rest is taken for drift until the
    /// next look. Answers `known`.
    pub fn settle_unseen(self, device: &Device, grant: Grant, bound: Bytes, known: Bytes) -> Bytes {
        let _held = self.memory.truth.looking.hold();
        let rest = bound.saturating_sub(known);
        for figures in self.all_figures(device.indices) {
            figures.unseen.fetch_add(rest.0, Ordering::AcqRel);
        }
        self.settle_as_drift(device, grant, bound, rest);
        known
    }

    /// The same where what pools may have let go of hides the rest from looks: it stays drift until they are read.
    pub fn settle_hidden(self, device: &Device, grant: Grant, bound: Bytes, known: Bytes) {
        let _held = self.memory.truth.looking.hold();
        self.settle_as_drift(device, grant, bound, bound.saturating_sub(known));
    }

    fn settle_as_drift(self, device: &Device, grant: Grant, bound: Bytes, rest: Bytes) {
        grant.commit_as(bound);
        for figures in self.all_figures(device.indices) {
            figures.drift.fetch_add(rest.0, Ordering::AcqRel);
        }
    }

    /// Looks at all devices that `devices` may be. Answers whether something came back.
    #[cold]
    pub fn look_all(self, devices: DeviceSet) -> bool {
        self.look_each(devices, Relief::None)
    }

    /// As [`Tenant::look_all`], before a refusal, when all that is held without need was given back: what destroyed pools are charged and the driver has not
    /// goes too.
    #[cold]
    pub fn look_before_refusal(self, devices: DeviceSet) -> bool {
        self.look_each(devices, Relief::OfDestroyedPools)
    }

    /// Before something is measured by the row: what destroyed pools are charged and the driver has given back would be missing in it.
    pub fn relieve_before(self, device: &Device) {
        if self.charged_for_destroyed(device) != Bytes::ZERO && !planted(Seed::R138) {
            self.look_before_refusal(device.indices);
        }
    }

    fn look_each(self, devices: DeviceSet, relief: Relief) -> bool {
        let known = self.devices().into_iter().flat_map(|known| known.iter());
        known
            .filter(|device| device.indices.iter().any(|index| devices.contains(index)))
            .fold(false, |freed, device| {
                freed | (self.brought_up(device, relief) == Looked::Freed)
            })
    }

    /// Brings what is charged to the driver's figure. What does not fit is charged all the same: it was taken. False where NVML does not show us.
    pub fn look_at(self, device: &Device) -> bool {
        self.brought_up(device, Relief::None) != Looked::Nothing
    }

    /// As [`Tenant::look_at`] of all devices, for a call that asks for nothing: not beside another thread's look, and without a wait.
    #[cold]
    pub fn look_in_passing(self) {
        let _errno = KeptErrno::keep();
        let Some(_held) = self.memory.truth.looking.try_hold() else {
            return;
        };
        for device in self
            .memory
            .devices
            .get()
            .into_iter()
            .flat_map(Devices::iter)
        {
            let Some((figures, look)) = self.look(device, Bytes::ZERO, 0) else {
                continue;
            };
            let wanted = look.drift_beside(Bytes::ZERO);
            // What is charged too much is given back by who needs it.
            if wanted <= look.charged {
                continue;
            }
            let more = wanted.saturating_sub(look.charged);
            let overdrawn = self.ledger().is_some_and(|ledger| {
                let charged = device
                    .indices
                    .iter()
                    .map(|index| ledger.overdraw(index, more));
                charged.filter(|charged| !charged).count() == 0
            });
            if overdrawn {
                mark(Mark::DriftCharged);
                figures.set_drift(wanted);
            }
            self.tell_of_unasked(device, wanted, look.untaken);
        }
    }

    fn brought_up(self, device: &Device, relief: Relief) -> Looked {
        let _errno = KeptErrno::keep();
        // What is gone and still charged would hide as much that is not charged.
        let _ = self.end_deferred();
        let asked = time::ticks();
        let _held = self.memory.truth.looking.hold();
        let mut figures = self.all_figures(device.indices);
        // Without a context a row may be there that lists no pools: then it does not say what the driver has given back (R129 of
        // `fixtures/defects.txt`).
        let relieves = relief == Relief::OfDestroyedPools
            && self.any_doomed()
            && (self.memory.contexts.has_any(device.ordinal) || planted(Seed::R129))
            && !planted(Seed::R101);
        // One look shows what all took that wait for it (P20 of `fixtures/defects.txt`).
        if !relieves
            && figures.any(|figures| figures.seen.load(Ordering::Relaxed) > asked)
            && !planted(Seed::P20)
        {
            return Looked::Freed;
        }
        let began = time::ticks();
        let Some((figures, look)) = self.look(device, Bytes::ZERO, 0) else {
            return Looked::Nothing;
        };
        figures.seen.store(began, Ordering::Relaxed);
        let unused = look.unused.filter(|_| relieves);
        let relieved = unused.map_or(Bytes::ZERO, |unused| {
            let wanted = look.drift_beside(Bytes::ZERO);
            self.relieve(device, unused, look.beyond_row(wanted))
        });
        let look = match planted(Seed::R141) {
            true => look,
            false => look.relieved_of(relieved),
        };
        let wanted = look.drift_beside(Bytes::ZERO);
        let more = wanted > look.charged;
        let looked = if more {
            if self.charge_anyway(device.indices, wanted.saturating_sub(look.charged)) {
                mark(Mark::DriftCharged);
                figures.set_drift(wanted);
            }
            Looked::Known
        } else {
            self.lowered(device, figures, look.charged, wanted)
        };
        // What others saw of us is in our own word now.
        if let Some(ledger) = self.ledger() {
            device
                .indices
                .iter()
                .for_each(|index| ledger.forget_beyond(index));
        }
        if more {
            self.tell_of_unasked(device, wanted, look.untaken);
        }
        match relieved {
            Bytes::ZERO => looked,
            _ => Looked::Freed,
        }
    }

    /// A look before a call that takes memory of the driver's own, under a grant of `granted` and one change of the caller's.
    pub fn look_before(self, device: &Device, granted: Bytes) -> Option<Before> {
        let _errno = KeptErrno::keep();
        let _held = self.memory.truth.looking.hold();
        let (_, look) = self.look(device, granted, 1)?;
        (!look.busy && !planted(Seed::R81)).then_some(Before(look))
    }

    /// Commits what a call took under a grant of `granted`: `known`, and what the driver's row says beside it. Answers what is to
    /// be given back with what was made; `bound` where the driver tells nothing. What cannot be charged comes back with its
    /// grant, which keeps it from others until it is undone.
    /// `before` is a look from before the call: what the row has grown by since is the call's, up to `bound`, though more be charged than the driver has (R81
    /// of `fixtures/defects.txt`: limits that the next launch takes, a stack that was made smaller).
    pub fn settle_by_row(
        self,
        device: &Device,
        before: Option<Before>,
        grant: Grant,
        (granted, known, bound): (Bytes, Bytes, Bytes),
    ) -> Result<Bytes, (Refused, Grant)> {
        let _errno = KeptErrno::keep();
        let _held = self.memory.truth.looking.hold();
        let looked = self
            .look(device, granted, 1)
            .filter(|(_, look)| !look.busy || !planted(Seed::R30));
        let drift = looked.map_or(Bytes::ZERO, |(_, look)| look.charged);
        let both = before.zip(looked);
        let grown = both.map_or(Bytes::ZERO, |(before, (_, look))| {
            // What destroyed pools gave back meanwhile, which no change announces, hides as much of it.
            let hidden = self.charged_for_destroyed(device);
            let grown = look.grown_since(before.0).saturating_add(hidden);
            grown.min(bound).saturating_sub(known)
        });
        let with_call = both.map_or(Bytes::ZERO, |(before, _)| {
            let stood = match planted(Seed::R30a) {
                true => drift,
                false => before.0.drift_beside(Bytes::ZERO),
            };
            stood.saturating_add(grown)
        });
        let wanted = looked.map_or(Bytes::ZERO, |(_, look)| {
            look.drift_beside(known).max(with_call)
        });
        let seen = known.saturating_add(wanted.saturating_sub(drift));
        let taken = match looked {
            // What is certain of it may be more than the bound, which is not.
            Some((_, look)) if look.busy => seen.max(bound),
            Some(_) => seen,
            None => bound,
        };
        let beyond = match self.reserve(device.indices, taken.saturating_sub(granted)) {
            Ok(beyond) => beyond,
            Err(refused) => return Err((refused, grant)),
        };
        grant.commit_as(taken.min(granted));
        beyond.commit_as(taken.saturating_sub(granted));
        match looked {
            // Others change the books all the time: drift until a look finds them at rest, for what is made and destroyed again and again takes no
            // more each time (R30).
            Some((figures, look)) if look.busy => {
                let rest = taken.saturating_sub(known);
                let unseen = look.charged.saturating_sub(look.drift);
                let step = Bytes(figures.step.load(Ordering::Relaxed));
                // Of the calls before this one the look tells as much as any look beside others: they do not add up to more than a part of the budget
                // (R30a).
                if unseen.saturating_add(rest) > step && !planted(Seed::R30a) {
                    let seen = look.drift_beside(known);
                    let _ = self.lowered(device, figures, drift, seen.min(drift));
                }
                for figures in self.all_figures(device.indices) {
                    figures.unseen.fetch_add(rest.0, Ordering::AcqRel);
                    figures.drift.fetch_add(rest.0, Ordering::AcqRel);
                }
                Ok(known)
            }
            Some((figures, _)) if wanted > drift => {
                figures.set_drift(wanted);
                Ok(known)
            }
            Some((figures, _)) => {
                let _ = self.lowered(device, figures, drift, wanted);
                Ok(known)
            }
            None => Ok(bound),
        }
    }

    /// Something is about to be charged by itself that the driver's row may have shown already: answers how much of the drift, at most `bytes`, is
    /// charged for it from now on. A look has to follow.
    pub fn take_drift(self, device: &Device, bytes: Bytes) -> Bytes {
        let _held = self.memory.truth.looking.hold();
        let alone = device.indices.len() == 1;
        let index = device.indices.iter().next().filter(|_| alone);
        let figures = index.and_then(|index| self.figures(index));
        figures.map_or(Bytes::ZERO, |figures| {
            let drift = Bytes(figures.drift.load(Ordering::Acquire));
            let taken = bytes.min(drift);
            figures.set_drift(drift.saturating_sub(taken));
            taken
        })
    }

    /// It was not made after all.
    pub fn return_drift(self, device: &Device, bytes: Bytes) {
        let _held = self.memory.truth.looking.hold();
        for figures in self.all_figures(device.indices) {
            figures.drift.fetch_add(bytes.0, Ordering::AcqRel);
        }
    }

    /// Before a context is made: what this process held before execve is waited for.
    pub fn await_predecessors(self, device: &Device) {
        let Some(ledger) = self.ledger() else {
            return;
        };
        for index in device.indices.iter() {
            let Some(figures) = self.figures(index) else {
                continue;
            };
            if figures.alone.load(Ordering::Acquire) != 0 {
                continue;
            }
            let row = || {
                let rows = Session::open()?.rows(index)?;
                Some(rows.own().unwrap_or_default())
            };
            if ledger.await_predecessors(index, &row) {
                figures.alone.store(1, Ordering::Release);
                // Once this image has a row others take it for that one's, for 2 s (R124 of `fixtures/defects.txt`).
                let left = ledger.predecessors_usage(index) != Bytes::ZERO;
                if left && self.memory.truth.is_alone(index) && !planted(Seed::R124) {
                    ledger.reap(&Rows);
                }
            }
        }
    }

    /// A device's last context is gone, and with it all that was charged for no other reason than the driver's row.
    pub fn forget_drift(self, device: &Device) {
        let _held = self.memory.truth.looking.hold();
        for index in device.indices.iter() {
            if let Some(figures) = self.figures(index) {
                mark(Mark::ContextBuried);
                self.end_drift(index, figures);
            }
        }
    }

    fn end_drift(self, index: DeviceIndex, figures: &Figures) {
        figures.unseen.store(0, Ordering::Release);
        let drift = figures.drift.swap(0, Ordering::AcqRel);
        self.release(DeviceSet::from_iter([index]), Bytes(drift));
    }

    fn lowered(self, device: &Device, figures: &Figures, drift: Bytes, wanted: Bytes) -> Looked {
        let freed = drift.saturating_sub(wanted);
        figures.set_drift(wanted);
        if freed == Bytes::ZERO {
            return Looked::Known;
        }
        mark(Mark::DriftReturned);
        self.release(device.indices, freed);
        Looked::Freed
    }

    /// Reads both figures while nothing changes but what the caller has under way: `changes` of them, `pending` bytes.
    fn look(
        self,
        device: &Device,
        pending: Bytes,
        changes: u64,
    ) -> Option<(&'static Figures, Look)> {
        let mut indices = device.indices.iter();
        // Of a GPU that may be one of several no row says which; and what is free of charge is in the row all the same.
        let told =
            device.indices.len() == 1 && self.settings().context_charge == ContextCharge::Count;
        let told = told && !planted(Seed::V15) && !planted(Seed::C10);
        let Some(index) = indices.next().filter(|_| told) else {
            for figures in self.all_figures(device.indices) {
                figures.leave();
            }
            return None;
        };
        let figures = self.figures(index)?;
        let began = time::ticks();
        let looked = self.look_by_row(device, index, figures, pending, changes);
        let took = time::ticks().saturating_sub(began);
        let pause = pause_after(took).saturating_add(took);
        figures
            .due
            .store(began.saturating_add(pause), Ordering::Relaxed);
        looked
    }

    fn look_by_row(
        self,
        device: &Device,
        index: DeviceIndex,
        figures: &'static Figures,
        pending: Bytes,
        changes: u64,
    ) -> Option<(&'static Figures, Look)> {
        let ledger = self.ledger()?;
        let budget = ledger.budget(index);
        let step = budget.map_or(u64::MAX, |budget| budget.0 / PART);
        figures.begin_look(ledger.own_usage(index), step);
        figures.listed.store(0, Ordering::Relaxed);
        // A device without a budget has nothing to keep.
        if budget.is_none() || planted(Seed::R17b) && self.shares() {
            return None;
        }
        let nvml = Session::open()?;
        self.ask_of_limits(device);
        self.tell_awaited(device);
        let others = ledger.others(index);
        let mut least: Option<Look> = None;
        let watch = figures.watch();
        for _ in 0..TRIES {
            watch.begin();
            let before = self.memory.truth.changes.quiet(changes);
            // Another library of ours may take and give back while the row is read.
            let (beside, releases) = (ledger.changes_beside(), ledger.process_releases(index));
            let charged = Bytes(figures.drift.load(Ordering::Acquire));
            let unseen = Bytes(figures.unseen.load(Ordering::Acquire));
            let (all, own) = (ledger.process_usage(index), ledger.own_usage(index));
            // What is told of buffers is left out below.
            let told = figures.awaited.load(Ordering::Acquire);
            let unlisted = ledger.process_unlisted(index).saturating_sub(Bytes(told));
            // In our row, in its maker's or another's, which changes when one of these lets go of it.
            let imported = ledger.shared_usage(index);
            let (let_go, unused) = (self.let_go_of(device), self.unused_on(device));
            let owed = self.deferred_blocks(device.indices);
            let spares = self.spares(device);
            let awaited = self.buffers_awaited(device);
            let deferred = self.deferred(device).saturating_add(spares.unknown);
            let untaken = spares.untaken.saturating_add(awaited);
            let rows = nvml.rows(index)?;
            // The only row of a process with a context is its own: what the image before execve held is in none (R130).
            let is_own = rows.count_of_own() == 1
                && self.memory.contexts.has_any(device.ordinal)
                && !planted(Seed::R130);
            let alone = is_own || figures.alone.load(Ordering::Acquire) != 0 || planted(Seed::P12a);
            let dead = match alone {
                true => Bytes::ZERO,
                false => ledger
                    .predecessors_usage(index)
                    .saturating_add(ledger.predecessors_imports(index, &|pid| rows.of(pid))),
            };
            // Of others whatever becomes of our own figure: a process that never asks for anything again is looked at by nobody else.
            ledger.note_beyond(index, &others, &|pid| rows.of(pid));
            let own_row = rows.own();
            if own_row.is_some() {
                ledger.note_listed(index);
            }
            self.note_seen(index, &rows);
            let Some(row) = own_row else {
                ledger.note_no_row(index);
                // Who has neither row nor context was charged for nothing else, be it for an image before execve.
                if !self.memory.contexts.has_any(device.ordinal) && !planted(Seed::P12a) {
                    self.end_drift(index, figures);
                }
                return None;
            };
            figures.listed.store(1, Ordering::Relaxed);
            let shown = ledger.shown_imports(index, &|pid| rows.of(pid));
            if row <= shown.most() && !planted(Seed::P24a) {
                ledger.note_unlisted(index);
            }
            // A pool grows into its spare without a change of the books.
            let (all_after, imported_after) =
                (ledger.process_usage(index), ledger.shared_usage(index));
            let stood_still = before.is_some()
                && self.memory.truth.changes.quiet(changes) == before
                && all_after == all
                && ledger.process_releases(index) == releases
                && imported_after == imported
                && self.spares(device) == spares
                && self.buffers_awaited(device) == awaited
                && figures.awaited.load(Ordering::Acquire) == told;
            let known = |all: Bytes| {
                all.saturating_add(shown.most())
                    .saturating_sub(pending)
                    .saturating_sub(charged)
            };
            // Another library of ours whose books stand still explains what it is charged.
            let stands_beside =
                beside.is_some() && ledger.changes_beside() == beside && !planted(Seed::R108);
            let disturbed = all != own && !stands_beside || dead != Bytes::ZERO;
            let look = Look {
                held: row.saturating_sub(dead).saturating_add(unlisted),
                known: known(all).saturating_sub(untaken),
                untaken,
                deferred: deferred.saturating_add(Bytes(shown.perhaps)),
                drift: charged.saturating_sub(unseen),
                charged,
                unsettled: disturbed,
                let_go: let_go.bytes,
                // Of plain memory, too, the driver may have let go unseen: it goes by its own events.
                unused: unused.filter(|_| !disturbed && !let_go.told && owed == Bytes::ZERO),
                busy: false,
            };
            if stood_still {
                return Some((figures, look));
            }
            // Others change the books all the time. Each of them charges before the driver takes and gives back after it, so that what is charged
            // at least explains what is taken: what the row is beyond the most that was charged around it is drift in any case, and more than
            // that is not said. What was taken and given back between the two figures is in neither.
            let peak = all.saturating_sub(own).saturating_add(watch.peak());
            let most = known(all.max(all_after).max(peak));
            let busy = Look {
                known: most,
                unsettled: true,
                unused: None,
                busy: true,
                ..look
            };
            least = Some(match least {
                Some(least) if least.beyond() <= busy.beyond() => least,
                _ => busy,
            });
        }
        least
            .filter(|_| !planted(Seed::F1a))
            .map(|look| (figures, look))
    }

    /// What is charged for local memory and libraries, of which the driver takes some when a kernel is launched, and for strangers' memory, of which some is in
    /// their rows.
    fn deferred(self, device: &Device) -> Bytes {
        let buffers = match planted(Seed::F1e) {
            true => self.memory.contexts.buffers_awaited(device.ordinal),
            false => Bytes::ZERO,
        };
        self.memory
            .contexts
            .limits_deferred(device)
            .saturating_add(self.awaited(device.ordinal))
            .saturating_add(buffers)
            .saturating_add(
                self.imports_of_strangers_on(device.ordinal)
                    .unwrap_or_default(),
            )
    }

    /// What is charged for what the driver takes at some launch, whether it has taken it or not.
    pub fn charged_for_launches(self, device: &Device) -> Bytes {
        self.memory
            .contexts
            .limits_charged(device.ordinal)
            .saturating_add(self.awaited(device.ordinal))
    }

    /// What is charged for buffers and certainly in no row.
    fn buffers_awaited(self, device: &Device) -> Bytes {
        match planted(Seed::F1e) {
            true => Bytes::ZERO,
            false => self.memory.contexts.buffers_awaited(device.ordinal),
        }
    }

    /// What is charged for buffers and certainly in no row is told in the ledger, for those who look at the row and do not know what a limit is: the layer in this
    /// process, and other processes (R133 of `fixtures/defects.txt`).
    pub fn tell_awaited(self, device: &Device) {
        if planted(Seed::R133) {
            return;
        }
        let awaited = self.buffers_awaited(device);
        for index in device.indices.iter() {
            let figures = self.figures(index);
            let told = figures.map(|figures| figures.awaited.swap(awaited.0, Ordering::AcqRel));
            let told = Bytes(told.unwrap_or(awaited.0));
            let (more, less) = (awaited.saturating_sub(told), told.saturating_sub(awaited));
            if more != less {
                self.note_unlisted(DeviceSet::from_iter([index]), more, less);
            }
        }
    }

    /// This process was charged more, and the driver is not asked yet.
    #[inline]
    pub fn note_charged(self, index: DeviceIndex) {
        if let (Some(figures), Some(ledger)) = (self.figures(index), self.ledger())
            && figures.watched.load(Ordering::SeqCst) != 0
        {
            let usage = ledger.own_usage(index);
            figures.peak.fetch_max(usage.0, Ordering::SeqCst);
        }
    }

    /// Charges what processes of the tenant hold that never asked any hook for anything (R8 of `fixtures/defects.txt`).
    fn note_seen(self, index: DeviceIndex, rows: &Processes) {
        let Some(ledger) = self.ledger().filter(|_| !planted(Seed::R8a)) else {
            return;
        };
        let library = sign::own_path();
        let is_ours = |pid| sources::is_of_tenant(pid, self.settings(), library.as_deref());
        let seen = ledger.note_seen(index, &rows.pids(), &|pid| rows.of(pid), &is_ours);
        if let Some((pid, bytes)) = seen {
            report::once(
                Once::Seen,
                format_args!(
                    "process {pid} of this tenant holds {bytes} of device {} that no library of ours was asked for there (a core opened with RTLD_DEEPBIND, a driver opened directly, a scrubbed environment); it is charged",
                    index.0
                ),
            );
        }
    }

    /// The same by a process that only asks for figures and may have nothing on the device, now and then.
    pub fn look_for_others(self, index: DeviceIndex) {
        let Some(figures) = self.figures(index) else {
            return;
        };
        // The pause is the device's: the first that is asked of another is told after a look as well.
        let place = if planted(Seed::R8b) {
            &self.memory.truth.devices[0]
        } else {
            figures
        };
        let due = &place.others_due;
        let began = time::ticks();
        let is_told = self.settings().context_charge == ContextCharge::Count;
        let budget = self.ledger().and_then(|ledger| ledger.budget(index));
        if began < due.load(Ordering::Relaxed) || !is_told || budget.is_none() {
            return;
        }
        let _errno = KeptErrno::keep();
        let rows = Session::open().and_then(|nvml| nvml.rows(index));
        if let (Some(rows), Some(ledger)) = (rows, self.ledger()) {
            self.note_seen(index, &rows);
            ledger.note_seen_again(index, &|pid| rows.of(pid));
        }
        let took = time::ticks().saturating_sub(began);
        let pause = pause_after(took).max(time::look_interval());
        due.store(began.saturating_add(pause), Ordering::Relaxed);
    }

    fn figures(self, index: DeviceIndex) -> Option<&'static Figures> {
        self.memory.truth.devices.get(index.slot()?)
    }

    fn all_figures(self, devices: DeviceSet) -> impl Iterator<Item = &'static Figures> {
        devices.iter().filter_map(move |index| self.figures(index))
    }
}

impl Tenant {
    /// Says once that the driver holds more for this process than its calls were charged for: where that is more than any driver takes by itself
    /// (V15), or where the tenant is over its budget by it. What this process is charged and has certainly not taken (`untaken`) exceeds nothing
    /// (R147 of `fixtures/defects.txt`).
    fn tell_of_unasked(self, device: &Device, drift: Bytes, untaken: Bytes) {
        const UNASKED: Bytes = Bytes::mib(512);
        let untaken = match planted(Seed::R147) {
            true => Bytes::ZERO,
            false => untaken,
        };
        let over = device.indices.iter().find_map(|index| {
            let budget = self.budget(index)?;
            let taken = self.ledger()?.usage(index).saturating_sub(untaken);
            (taken > budget).then(|| (budget, taken.saturating_sub(budget)))
        });
        let ordinal = device.ordinal;
        let drifted = format_args!(
            "this process holds {drift} of device {ordinal} beyond what its calls were charged for (contexts, graphs, streams of threads, a driver opened directly, OpenCL, OpenGL); it is charged"
        );
        if let Some((budget, by)) = over {
            mark(Mark::OverBudget);
            let once = match planted(Seed::F1b) {
                true => Once::Unasked,
                false => Once::Overdrawn,
            };
            report::once(
                once,
                format_args!(
                    "{drifted}: the budget of {budget} is exceeded by {by}, and nothing more is granted"
                ),
            );
        } else if drift >= UNASKED {
            report::once(Once::Unasked, drifted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(held: u64, known: u64, deferred: u64, drift: u64) -> Look {
        Look {
            held: Bytes::mib(held),
            known: Bytes::mib(known),
            deferred: Bytes::mib(deferred),
            untaken: Bytes::ZERO,
            drift: Bytes::mib(drift),
            charged: Bytes::mib(drift),
            unsettled: false,
            let_go: Bytes::ZERO,
            unused: None,
            busy: false,
        }
    }

    #[test]
    fn the_drift_is_what_nothing_else_explains() {
        let drift = |look: Look| look.drift_beside(Bytes::ZERO);
        assert_eq!(drift(look(640, 600, 0, 0)), Bytes::mib(40));
        assert_eq!(drift(look(640, 600, 0, 300)), Bytes::mib(40));
        assert_eq!(drift(look(600, 640, 0, 10)), Bytes::ZERO);
        let beside = look(840, 600, 0, 40).drift_beside(Bytes::mib(200));
        assert_eq!(beside, Bytes::mib(40));
    }

    #[test]
    fn what_may_not_be_taken_yet_leaves_the_drift_as_it_was() {
        let drift = |look: Look| look.drift_beside(Bytes::ZERO);
        assert_eq!(drift(look(640, 17_000, 16_400, 40)), Bytes::mib(40));
        assert_eq!(drift(look(17_040, 17_000, 16_400, 40)), Bytes::mib(40));
        assert_eq!(drift(look(17_050, 17_000, 16_400, 40)), Bytes::mib(50));
        assert_eq!(drift(look(630, 17_000, 16_400, 40)), Bytes::mib(30));
    }

    #[test]
    fn what_pools_may_have_let_go_of_keeps_as_much_of_it_and_no_more() {
        let look = |let_go| Look {
            let_go: Bytes::mib(let_go),
            ..look(600, 560, 0, 800)
        };
        let drifts = [0, 32, 2_000].map(|let_go| look(let_go).drift_beside(Bytes::ZERO));
        assert_eq!(drifts, [40, 72, 800].map(Bytes::mib));
    }

    #[test]
    fn while_other_charges_may_be_too_much_it_never_falls() {
        let look = Look {
            unsettled: true,
            ..look(600, 640, 0, 10)
        };
        assert_eq!(look.drift_beside(Bytes::ZERO), Bytes::mib(10));
    }
}
