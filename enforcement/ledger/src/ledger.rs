//! A process's hold on its tenant's ledger.

use crate::account::Account;
use crate::attach::{self, Seat};
use crate::changes::Changes;
use crate::contest;
use crate::driver::{Driver, NoDriver};
use crate::objects::{Key, Object, Recent, Shown, SlotSet};
use crate::reap::Reaper;
use crate::region::clock::{Moment, pause};
use crate::region::descriptors::{Descriptor, is_closed};
use crate::region::{self, KeptErrno, LISTED, PACE_WORDS, Pace};
use crate::seen;
use crate::{AttachError, Refusal};
use budget::{Bytes, DeviceIndex, DeviceSet, MAX_DEVICES};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::path::Path;

/// How often the dead are looked for at most where only figures are wanted. A driver takes ten times as long to let go of them.
const LOOK_MS: u64 = 10;
/// How often whoever finds no row free asks which of them closed descriptors had.
const ASK_MS: u64 = 1000;

/// What a newcomer asks for. Whoever creates the file sets the budgets; later ones join under those.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub budgets: [Option<Bytes>; MAX_DEVICES],
    pub authority: Authority,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            budgets: [None; MAX_DEVICES],
            authority: Authority::default(),
        }
    }
}

/// Whose word the newcomer's budgets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Any process's: what the ledger says holds.
    #[default]
    Tenant,
    /// The owner's: a ledger that allows more was meddled with, and is lowered to it. One that allows less holds: the owner may have lowered it live.
    Owner,
}

/// A budget in the ledger that was not what `attach` asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub device: DeviceIndex,
    /// What was asked for; `None` is no budget.
    pub asked: Option<Bytes>,
    /// What the ledger said.
    pub found: Option<Bytes>,
    /// What holds now: one of the two.
    pub holds: Option<Bytes>,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disagreement {
            device,
            asked,
            found,
            holds,
        } = self;
        let (asked, found) = (Said(*asked), Said(*found));
        if *holds == self.found {
            write!(
                out,
                "device {device} has a budget of {found} there, not the settings' {asked}; the ledger's holds"
            )
        } else {
            write!(
                out,
                "device {device} had a budget of {found} there, more than the tenant file's {asked}; the tenant file's holds"
            )
        }
    }
}

/// A budget as it is told.
struct Said(Option<Bytes>);

impl fmt::Display for Said {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => bytes.fmt(out),
            None => out.write_str("none"),
        }
    }
}

/// One process's slot in a tenant's ledger.
///
/// In a fork child the parent's handle is dead: [`Ledger::is_mine`] says so, requests are refused, figures read as if nothing were
/// left, and dropping it leaves the parent's slot alone. A child that needs a ledger attaches its own.
pub struct Ledger {
    seat: Seat,
    disagreement: Option<Disagreement>,
}

/// What another process of the tenant is charged on a device, by all of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    owner: u64,
    bytes: u64,
    releases: u64,
    slots: Vec<usize>,
    /// What it imported, which another is charged for, or nobody.
    shared: u64,
    /// What it is charged that no row shows.
    unlisted: u64,
    /// It has no slot but the one that others took for it.
    seen: bool,
}

impl Charged {
    fn pid(&self) -> u32 {
        (self.owner >> 32) as u32
    }
}

/// Bytes that are charged but not in use yet. Dropping it cancels.
#[must_use = "dropping a reservation cancels it"]
pub struct Reservation<'a> {
    ledger: &'a Ledger,
    device: DeviceIndex,
    bytes: Bytes,
}

impl Ledger {
    /// Takes a slot in the ledger at `path`; creates the file, with the budgets of `setup`, where nothing is.
    pub fn attach(path: &Path, setup: &Setup) -> Result<Ledger, AttachError> {
        let seat = attach::attach(path, setup)?;
        let disagreement = attach::agree(seat.layout(), setup);
        Ok(Ledger { seat, disagreement })
    }

    /// Whether the handle belongs to this process: false in a fork child.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.seat.arena.is_mine()
    }

    /// The first device whose budget in the ledger was not what `attach` asked for.
    pub fn disagreement(&self) -> Option<Disagreement> {
        self.disagreement
    }

    /// Notes how much memory a device has, for whoever sets budgets.
    pub fn note_total(&self, device: DeviceIndex, total: Bytes) {
        if self.is_mine()
            && let Some(word) = device
                .slot()
                .and_then(|slot| self.seat.layout().total(slot))
        {
            word.fetch_max(total.0, Ordering::Relaxed);
        }
    }

    /// The budget of a device; `None` where it has none.
    #[inline]
    pub fn budget(&self, device: DeviceIndex) -> Option<Bytes> {
        self.account(device).map_or(Some(Bytes::ZERO), |account| {
            account.budget().limit().map(Bytes)
        })
    }

    /// Charges `bytes` if they fit. May wait: 50 ms for other requests in flight, 2.1 s for a dead process's memory.
    #[inline]
    pub fn reserve(&self, device: DeviceIndex, bytes: Bytes) -> Result<Reservation<'_>, Refusal> {
        self.reserve_with(device, bytes, &NoDriver)
    }

    /// As [`Ledger::reserve`], with a driver that may know when a dead process's memory is back.
    #[inline]
    pub fn reserve_with(
        &self,
        device: DeviceIndex,
        bytes: Bytes,
        driver: &dyn Driver,
    ) -> Result<Reservation<'_>, Refusal> {
        let leased = self
            .account(device)
            .is_some_and(|account| account.take(self.seat.slot, bytes.0));
        if !leased {
            self.reserve_slowly(device, bytes, driver)?;
        }
        Ok(Reservation {
            ledger: self,
            device,
            bytes,
        })
    }

    #[cold]
    #[inline(never)]
    fn reserve_slowly(
        &self,
        device: DeviceIndex,
        bytes: Bytes,
        driver: &dyn Driver,
    ) -> Result<(), Refusal> {
        if !self.is_mine() {
            return Err(Refusal::Forked);
        }
        let _errno = KeptErrno::keep();
        contest::reserve(&self.seat, device, bytes, driver)
    }

    /// Gives back what was committed, after the driver has freed it.
    #[inline]
    pub fn release(&self, device: DeviceIndex, bytes: Bytes) {
        if let Some(account) = self.account(device) {
            account.count_release(self.seat.slot);
            account.release(self.seat.slot, bytes.0);
        }
    }

    /// Charges what the driver took already, whether it fits or not: the truth is on the books, and nothing more is granted
    /// beside it. False where the slot's word cannot name the sum.
    #[must_use]
    pub fn overdraw(&self, device: DeviceIndex, bytes: Bytes) -> bool {
        self.account(device)
            .is_some_and(|account| account.overdraw(self.seat.slot, bytes.0))
    }

    /// What this process holds of a device by all of its slots: a process with two of our libraries has two.
    pub fn process_usage(&self, device: DeviceIndex) -> Bytes {
        let Some(account) = self.account(device) else {
            return Bytes::ZERO;
        };
        self.own_slots().fold(Bytes::ZERO, |sum, slot| {
            sum.saturating_add(Bytes(account.word(slot).used()))
        })
    }

    /// How often this process gave back what it held of a device, by all of its slots.
    pub fn process_releases(&self, device: DeviceIndex) -> u64 {
        self.account(device).map_or(0, |account| {
            self.own_slots()
                .fold(0, |sum, slot| sum.wrapping_add(account.releases(slot)))
        })
    }

    /// Of this handle's own slot; `None` in a fork child.
    pub(crate) fn changes(&self) -> Option<&Changes> {
        let own = || self.seat.layout().changes.get(self.seat.slot);
        self.is_mine().then(own)?
    }

    /// How many changes this process's other libraries of ours have begun ([`Changes::begin_told`]), if none is under way. Between two such moments of the
    /// same count they changed nothing.
    pub fn changes_beside(&self) -> Option<u64> {
        let slots = self.own_slots().filter(|slot| *slot != self.seat.slot);
        let counts = slots.filter_map(|slot| self.seat.layout().changes.get(slot));
        counts
            .map(|changes| changes.quiet(0))
            .try_fold(0_u64, |sum, begun| Some(sum.wrapping_add(begun?)))
    }

    /// What other processes of the tenant are charged on a device, before the driver's figures are read: see [`Ledger::note_beyond`].
    /// Only processes of this PID namespace: the driver's pids mean nothing for others.
    pub fn others(&self, device: DeviceIndex) -> Vec<Charged> {
        let (Some(account), Some(slot)) = (self.account(device), device.slot()) else {
            return Vec::new();
        };
        let layout = self.seat.layout();
        let high = usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let mut others: Vec<Charged> = Vec::new();
        for (at, record) in layout.slots.iter().enumerate().take(high) {
            let owner = record.owner.load(Ordering::Acquire);
            let counts = owner != 0
                && owner != self.seat.owner()
                && owner as u32 == self.seat.namespace
                && record.dying.load(Ordering::Acquire) == 0;
            if !counts {
                continue;
            }
            let (bytes, releases) = (account.word(at).used(), account.releases(at));
            let unlisted = account.unlisted(at);
            match others.iter_mut().find(|other| other.owner == owner) {
                Some(other) => {
                    other.bytes = other.bytes.saturating_add(bytes);
                    other.releases = other.releases.wrapping_add(releases);
                    other.unlisted = other.unlisted.saturating_add(unlisted);
                    other.slots.push(at);
                    other.seen &= record.is_seen();
                }
                None => others.push(Charged {
                    owner,
                    bytes,
                    releases,
                    slots: vec![at],
                    shared: 0,
                    unlisted,
                    seen: record.is_seen(),
                }),
            }
        }
        for other in &mut others {
            let slots = SlotSet::from_iter(other.slots.iter().copied());
            other.shared = layout.objects.shared_with(&slots, slot);
        }
        others
    }

    /// Notes for each of `before` by how much the driver's figure, read since, is beyond what it is charged, unless that changed while
    /// it was read. `row` tells a process's figure by its pid, `None` where the driver does not show it: then nothing is known.
    pub fn note_beyond(
        &self,
        device: DeviceIndex,
        before: &[Charged],
        row: &dyn Fn(u32) -> Option<Bytes>,
    ) {
        let Some(account) = self.account(device) else {
            return;
        };
        let now = self.others(device);
        for other in before.iter().filter(|other| now.contains(other)) {
            let told = row(other.pid());
            // By its row alone a process without a slot is known, and what is beyond the books of one with a slot: without one it holds nothing of either. The
            // row was the image's before execve, say (R126 of `fixtures/defects.txt`).
            let mut slots = other.slots.iter();
            let had_row =
                slots.any(|slot| account.beyond(*slot) > 0) && !seeds::planted(seeds::Seed::R126);
            let Some(held) = told.or((other.seen || had_row).then_some(Bytes::ZERO)) else {
                continue;
            };
            let listed = other.bytes.saturating_sub(other.unlisted);
            let shown = match other.shared {
                0 => 0,
                _ => self.shown_with(&other.slots, device, row).most().0,
            };
            let known = listed.saturating_add(shown);
            let mut beyond = held.0.saturating_sub(known);
            for slot in &other.slots {
                account.set_beyond(*slot, beyond);
                beyond = 0;
            }
        }
    }

    /// Whether all processes that have a row are this tenant's. `rows` is asked only where pids mean the same for everybody: in another PID namespace the driver leaves
    /// out, or calls by other numbers, whoever is not in it.
    pub fn has_all(&self, device: DeviceIndex, rows: impl FnOnce() -> Option<Vec<u32>>) -> bool {
        let Some(pids) = (self.seat.namespace == seen::INITIAL).then(rows).flatten() else {
            return false;
        };
        let others = self.others(device);
        let is_known = |pid: &u32| {
            *pid == std::process::id() || others.iter().any(|other| other.pid() == *pid)
        };
        pids.iter().all(is_known)
    }

    /// Charges what the driver's rows show of processes of the tenant that have no slot: nothing of ours was asked for anything there. `rows` are the
    /// pids that have one, `row` tells each one's figure, and `is_ours` whether a process that looks up paths where this one does has this ledger by its
    /// settings. Answers the first that was not known yet, with what it holds.
    pub fn note_seen(
        &self,
        device: DeviceIndex,
        rows: &[u32],
        row: &dyn Fn(u32) -> Option<Bytes>,
        is_ours: &dyn Fn(u32) -> bool,
    ) -> Option<(u32, Bytes)> {
        if !self.is_mine() {
            return None;
        }
        let _errno = KeptErrno::keep();
        let found = seen::enrol(&self.seat, rows, &|pid| {
            row(pid).is_some_and(|held| held > Bytes::ZERO) && is_ours(pid)
        });
        let first = *found.first()?;
        // The others' rows may be older than what they are charged now.
        let mut others = self.others(device);
        others.retain(|other| found.contains(&other.pid()));
        self.note_beyond(device, &others, row);
        Some((first, row(first)?))
    }

    /// The same of those that are known already: their figure is the row's, however old that of others may be. `row` as in [`Ledger::note_beyond`].
    pub fn note_seen_again(&self, device: DeviceIndex, row: &dyn Fn(u32) -> Option<Bytes>) {
        let mut others = self.others(device);
        others.retain(|other| other.seen);
        self.note_beyond(device, &others, row);
    }

    /// So much more of what this slot is charged is in no row of the driver's, and so much less: said by who knows it, its owner, for all looks of this
    /// process's libraries and of others.
    pub fn unlist(&self, device: DeviceIndex, more: Bytes, less: Bytes) {
        if let Some(account) = self.account(device) {
            account.unlist(self.seat.slot, more.0, less.0);
        }
    }

    /// What this process is charged by all of its slots and no row of the driver's shows, as far as they said so.
    pub fn process_unlisted(&self, device: DeviceIndex) -> Bytes {
        self.account(device).map_or(Bytes::ZERO, |account| {
            self.own_slots().fold(Bytes::ZERO, |sum, slot| {
                sum.saturating_add(Bytes(account.unlisted(slot)))
            })
        })
    }

    /// Notes by how much the driver's figure for this process is beyond all that it is charged, in the line of this slot and for no other reason: a
    /// look of the process's other library, which charges it in its own word, ends it.
    pub fn note_own_beyond(&self, device: DeviceIndex, bytes: Bytes) {
        let Some(account) = self.account(device) else {
            return;
        };
        for slot in self.own_slots() {
            let mine = slot == self.seat.slot;
            account.set_beyond(slot, if mine { bytes.0 } else { 0 });
        }
    }

    /// What was noted beyond what this process is charged, by whoever looked last.
    pub fn own_beyond(&self, device: DeviceIndex) -> Bytes {
        self.account(device).map_or(Bytes::ZERO, |account| {
            self.own_slots().fold(Bytes::ZERO, |sum, slot| {
                sum.saturating_add(Bytes(account.beyond(slot)))
            })
        })
    }

    /// This process has brought what it is charged to the driver's figure: what others saw beyond it is in its own word now.
    pub fn forget_beyond(&self, device: DeviceIndex) {
        if let Some(account) = self.account(device) {
            self.own_slots()
                .for_each(|slot| account.set_beyond(slot, 0));
        }
    }

    /// The driver shows no row of this process. If it ever did (see [`Ledger::note_listed`]) it holds nothing for it now, and what was noted went with that.
    pub fn note_no_row(&self, device: DeviceIndex) {
        let record = self.seat.layout().slots.get(self.seat.slot);
        let listed =
            record.is_some_and(|record| record.start.load(Ordering::Acquire) & LISTED != 0);
        if listed && !seeds::planted(seeds::Seed::R83) {
            self.forget_beyond(device);
        }
        self.note_unlisted(device);
    }

    /// No row of the driver's shows what this process is charged: it has none, or one that names no more than what it imported. When it dies, that its row is gone
    /// says nothing of that then (P24 of `fixtures/defects.txt`). For all of its slots: the libraries do not look at the same time.
    pub fn note_unlisted(&self, device: DeviceIndex) {
        let Some(account) = self.account(device).filter(|_| self.is_mine()) else {
            return;
        };
        let own = self.own_slots();
        let own = own.filter(|slot| *slot == self.seat.slot || !seeds::planted(seeds::Seed::P24));
        own.for_each(|slot| account.note_listed(slot, false));
    }

    /// What this process imported and is not charged for: its maker is, or the object's own row.
    pub fn shared_usage(&self, device: DeviceIndex) -> Bytes {
        let Some(device) = device.slot() else {
            return Bytes::ZERO;
        };
        let own = SlotSet::from_iter(self.own_slots());
        Bytes(self.seat.layout().objects.shared_with(&own, device))
    }

    /// What those who had this process's pid before it had imported, and are charged for nowhere else: as long as it is in the row that is this process's now.
    pub fn predecessors_imports(
        &self,
        device: DeviceIndex,
        row: &dyn Fn(u32) -> Option<Bytes>,
    ) -> Bytes {
        let slots: Vec<usize> = self.predecessors().collect();
        if slots.is_empty() {
            return Bytes::ZERO;
        }
        self.shown_with(&slots, device, row).most()
    }

    /// How much of that is in this process's row and no other's, when the driver's rows are what `row` tells, as in [`Ledger::note_beyond`]: it explains
    /// as much of the row (R17e of `fixtures/defects.txt`).
    pub fn shown_imports(&self, device: DeviceIndex, row: &dyn Fn(u32) -> Option<Bytes>) -> Shown {
        let own: Vec<usize> = self.own_slots().collect();
        match self.shared_usage(device) {
            Bytes::ZERO => Shown::default(),
            _ => self.shown_with(&own, device, row),
        }
    }

    fn shown_with(
        &self,
        slots: &[usize],
        device: DeviceIndex,
        row: &dyn Fn(u32) -> Option<Bytes>,
    ) -> Shown {
        let (Some(at), Ok(fd)) = (device.slot(), self.seat.probe.fd()) else {
            return Shown::default();
        };
        let layout = self.seat.layout();
        let reaper = Reaper {
            layout,
            fd,
            me: Some(self.seat.slot),
            namespace: self.seat.namespace,
        };
        // A dead one's row stays while a driver takes it apart, and as long as children that it forked keep what it held.
        let has_ended = |slot: usize| {
            let record = layout.slots.get(slot)?;
            let owner = record.owner.load(Ordering::Acquire);
            let is_listed =
                owner as u32 == self.seat.namespace && row((owner >> 32) as u32).is_some();
            match reaper.lives(slot).unwrap_or(true) {
                true => Some(false),
                false if !is_listed => Some(true),
                false if reaper.is_fresh(record) => None,
                false => Some(false),
            }
        };
        let slots = SlotSet::from_iter(slots.iter().copied());
        if seeds::planted(seeds::Seed::R17e) {
            let certain = layout.objects.shared_with(&slots, at);
            return Shown {
                certain,
                perhaps: 0,
            };
        }
        layout.objects.shown_with(&slots, at, has_ended, is_closed)
    }

    /// What those who had this process's pid before it, its own image before execve among them, are still charged: the driver shows their memory in this
    /// process's row until it has taken them apart.
    pub fn predecessors_usage(&self, device: DeviceIndex) -> Bytes {
        let Some(account) = self.account(device) else {
            return Bytes::ZERO;
        };
        let dead = self.predecessors();
        let bytes = dead.map(|slot| account.word(slot).used());
        Bytes(bytes.fold(0, u64::saturating_add))
    }

    /// The slots of those who had this process's pid before it.
    fn predecessors(&self) -> impl Iterator<Item = usize> + '_ {
        let owner = self.seat.owner();
        let layout = self.seat.layout();
        let high = usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let slots = layout.slots.iter().enumerate().take(high);
        let dead = slots.filter(move |(_, record)| {
            record.owner.load(Ordering::Acquire) == owner
                && record.dying.load(Ordering::Acquire) != 0
        });
        dead.map(|(slot, _)| slot)
    }

    /// Before this process takes anything of a device: waits, not for ever, until the driver has taken apart what its image before execve held there, so
    /// that nothing which it takes then hides behind that. `row` tells this process's figure, `None` where the driver shows no figures. Answers whether
    /// the figure is this image's alone.
    pub fn await_predecessors(&self, device: DeviceIndex, row: &dyn Fn() -> Option<Bytes>) -> bool {
        /// What its children keep alive may stay.
        const PATIENCE: Duration = Duration::from_secs(2);
        /// Of what takes a driver 100 ms.
        const STEP: Duration = Duration::from_millis(2);
        if self.predecessors_usage(device) == Bytes::ZERO {
            return true;
        }
        // What is in no row hides nothing, and is not waited for.
        let listed = self.process_usage(device) != self.process_unlisted(device);
        // Who waits has nothing of the old image to leave out, so that nobody would see whether it does.
        let hasty = seeds::planted(seeds::Seed::P12a);
        if listed || hasty {
            return false;
        }
        let began = Moment::now();
        loop {
            match row() {
                None => return false,
                Some(Bytes::ZERO) => return true,
                Some(_) if began.elapsed() > PATIENCE => return false,
                Some(_) => pause(STEP),
            }
        }
    }

    /// This library's slot, and those of the others of the process.
    fn own_slots(&self) -> impl Iterator<Item = usize> {
        let owner = self.seat.owner();
        let layout = self.seat.layout();
        let high = usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let slots = layout.slots.iter().enumerate().take(high);
        let own = slots.filter(move |(_, record)| {
            record.owner.load(Ordering::Acquire) == owner
                && record.dying.load(Ordering::Acquire) == 0
        });
        own.map(|(slot, _)| slot)
    }

    /// What the tenant holds of a device, draining bytes included, unused leases not.
    pub fn usage(&self, device: DeviceIndex) -> Bytes {
        self.account(device)
            .map_or(Bytes::ZERO, |account| Bytes(account.survey().used))
    }

    /// What this slot holds of a device.
    pub fn own_usage(&self, device: DeviceIndex) -> Bytes {
        self.account(device).map_or(Bytes::ZERO, |account| {
            Bytes(account.word(self.seat.slot).used())
        })
    }

    /// Budget less usage; `None` where the device has no budget.
    pub fn available(&self, device: DeviceIndex) -> Option<Bytes> {
        self.budget(device)
            .map(|budget| budget.saturating_sub(self.usage(device)))
    }

    /// This process counts what its contexts take: whoever comes later does so too, whatever its settings say.
    pub fn note_counting(&self) {
        if self.is_mine() {
            self.seat.layout().counting().store(1, Ordering::Release);
        }
    }

    /// Says what share of a device's time the tenant may use, in hundredths of a percent, 0 for all. The first to say so decides, and the
    /// owner's word lowers what others have said; the answer is what holds.
    pub fn join_share(&self, device: DeviceIndex, hundredths: u16, authority: Authority) -> u16 {
        let Some(pace) = self.pace(device) else {
            return hundredths;
        };
        let wanted = u64::from(hundredths) + 1;
        let decided = pace
            .share
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                let allows_more = share_of(held) == 0 || share_of(held) > hundredths;
                let lowered = authority == Authority::Owner && hundredths != 0 && allows_more;
                (held == 0 || lowered).then_some(wanted)
            });
        match decided {
            Ok(_) => hundredths,
            Err(held) => share_of(held),
        }
    }

    /// Joins every device's share, and tells of the first that holds otherwise: device, what holds, what was wanted.
    pub fn join_shares(
        &self,
        wanted: impl Fn(DeviceIndex) -> u16,
        authority: Authority,
    ) -> Option<(DeviceIndex, u16, u16)> {
        let mut disagreement = None;
        for device in DeviceIndex::all() {
            let wanted = wanted(device);
            let held = self.join_share(device, wanted, authority);
            if held != wanted && disagreement.is_none() {
                disagreement = Some((device, held, wanted));
                if seeds::planted(seeds::Seed::V18) {
                    break;
                }
            }
        }
        disagreement
    }

    /// The share of a device's time that the tenant may use, in hundredths of a percent; 0 where all of it. It may change live.
    #[inline]
    pub fn share(&self, device: DeviceIndex) -> u16 {
        self.pace(device)
            .map_or(0, |pace| share_of(pace.share.load(Ordering::Relaxed)))
    }

    /// Whether the owner has set a budget of any device's time while processes ran.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.is_mine() && self.seat.layout().timed().load(Ordering::Relaxed) != 0
    }

    /// The words by which that is kept. The ledger never looks at them; they begin as zeros.
    #[inline]
    pub fn pace_words(&self, device: DeviceIndex) -> Option<&[AtomicU64; PACE_WORDS]> {
        self.pace(device).map(|pace| &pace.words)
    }

    /// The driver's rows show this process by the pid that it has here: whoever looks for it once it is dead can tell by them.
    pub fn note_listed(&self, device: DeviceIndex) {
        if let Some(account) = self.account(device).filter(|_| self.is_mine()) {
            account.note_listed(self.seat.slot, true);
        }
        if let Some(record) = self.seat.layout().slots.get(self.seat.slot)
            && self.is_mine()
            && record.start.load(Ordering::Relaxed) & LISTED == 0
        {
            record.start.fetch_or(LISTED, Ordering::AcqRel);
        }
    }

    /// Gives memory that this slot is charged for, `bytes` on each of `devices`, a name by which other processes may hold it too.
    /// `None` where there is no room: then whoever opens it has to pay for it.
    /// A `descriptor` holds it too.
    pub fn name_object(
        &self,
        key: Key,
        devices: DeviceSet,
        bytes: Bytes,
        descriptor: Option<&Descriptor>,
    ) -> Option<Object> {
        if !self.is_mine() {
            return None;
        }
        let devices = devices.iter().filter_map(DeviceIndex::slot);
        let mask = devices.fold(0, |mask, device| mask | 1_u64 << device);
        let objects = &self.seat.layout().objects;
        let described = descriptor.map(Descriptor::to_row);
        let enter = || objects.enter(self.seat.slot, key, mask, bytes.0, described);
        enter().or_else(|| {
            // Full, perhaps of what closed descriptors held: nobody looks for these before a request does not fit.
            let _errno = KeptErrno::keep();
            if !is_time_to_ask() {
                return None;
            }
            for device in 0..MAX_DEVICES {
                objects.give_up_closed(device, is_closed);
            }
            enter()
        })
    }

    /// So much of what this slot is charged for has the object's name from now on.
    pub fn resize_object(&self, object: Object, bytes: Bytes) {
        if self.is_mine() {
            self.seat
                .layout()
                .objects
                .resize(self.seat.slot, object, bytes.0);
        }
    }

    /// What a slot that opens the object has of it is in no row of the driver's.
    pub fn unlist_object(&self, object: Object) {
        if self.is_mine() {
            self.seat.layout().objects.unlist(object);
        }
    }

    /// Holds the object of that name. It stays charged, to whomever it was, until everyone let go of it.
    pub fn hold_object(&self, key: Key) -> Option<Object> {
        self.open_object(key).map(|(object, _)| object)
    }

    /// The same, with those whom this opening goes before: others that have opened it since this process did.
    pub(crate) fn open_object(&self, key: Key) -> Option<(Object, Option<Recent>)> {
        if !self.is_mine() {
            return None;
        }
        let slot = self.seat.slot;
        let (object, before) = self.seat.layout().objects.join(slot, key)?;
        seeds::mark(seeds::Mark::ImportHeld);
        Some((object, before.is_behind(slot).then_some(before)))
    }

    /// This process's last opening is over, and older ones are not: those whom it went before are before it again.
    pub(crate) fn step_back_from(&self, object: Object, before: Recent) {
        if self.is_mine() {
            let objects = &self.seat.layout().objects;
            objects.step_back(self.seat.slot, object, before);
        }
    }

    /// The end of what `hold_object` began.
    pub fn let_go_of_object(&self, object: Object) {
        if self.is_mine() {
            self.seat.layout().objects.part(self.seat.slot, object);
        }
    }

    /// Before this slot is relieved of what it named: others may hold it on.
    pub fn pass_object_on(&self, object: Object) {
        if self.is_mine() {
            let _errno = KeptErrno::keep();
            let objects = &self.seat.layout().objects;
            objects.pass_on(self.seat.slot, object);
            // The row has the bytes now. What is about to be released of them must not be kept as a lease, which is granted without a look at any sum.
            for account in self.seat.layout().accounts() {
                account.unverify(self.seat.slot);
            }
            // Its descriptors may be closed by now: nobody else would look before a request does not fit.
            objects.give_up_if_closed(object, is_closed);
        }
    }

    /// As [`Ledger::reap`], for who only tells figures: at most every [`LOOK_MS`] in a process, because each process of the tenant that
    /// holds anything costs a look at its lock. What a killed process held is told as free again that much later; a request that does not
    /// fit looks by itself.
    /// Answers whether it has looked.
    pub fn reap_at_times(&self, driver: &dyn Driver) -> bool {
        let looks = self.is_mine() && self.seat.arena.is_time(region::clock::coarse_ms(), LOOK_MS);
        if looks {
            self.reap(driver);
        }
        looks
    }

    /// Looks for dead processes and takes back what the driver has let go of. Never waits.
    pub fn reap(&self, driver: &dyn Driver) {
        if !self.is_mine() {
            return;
        }
        let _errno = KeptErrno::keep();
        let seat = &self.seat;
        if let Ok(fd) = seat.probe.fd() {
            let reaper = Reaper {
                layout: seat.layout(),
                fd,
                me: Some(seat.slot),
                namespace: seat.namespace,
            };
            // What cannot be looked at now is looked at before the next refusal.
            let _ = seat.arena.alone(|| attach::sweep_all(&reaper, driver));
        }
    }

    #[inline]
    fn pace(&self, device: DeviceIndex) -> Option<&Pace> {
        if self.is_mine() {
            self.seat.layout().pace(device.slot()?)
        } else {
            None
        }
    }

    /// The account of a device; none in a fork child, where there is no mapping.
    #[inline]
    fn account(&self, device: DeviceIndex) -> Option<Account<'_>> {
        if self.is_mine() {
            self.seat.layout().account(device.slot()?)
        } else {
            None
        }
    }
}

/// A share as it stands in the file. What nobody can have meant is as strict as can be.
pub fn share_of(word: u64) -> u16 {
    u16::try_from(word.saturating_sub(1))
        .ok()
        .filter(|hundredths| *hundredths < 10_000)
        .unwrap_or(1)
}

impl Reservation<'_> {
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The driver granted it: the charge stays until [`Ledger::release`].
    #[inline]
    pub fn commit(self) {
        core::mem::forget(self);
    }

    /// The driver took `actual`, at most what was reserved; the rest is given back.
    #[inline]
    pub fn commit_as(self, actual: Bytes) {
        let rest = self.bytes.saturating_sub(actual);
        self.ledger.release(self.device, rest);
        self.commit();
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.ledger.release(self.device, self.bytes);
    }
}

/// Where no row is free: once in a while of a process it is asked which are of closed descriptors.
fn is_time_to_ask() -> bool {
    static ASKED_MS: AtomicU64 = AtomicU64::new(0);
    let (now, before) = (region::clock::coarse_ms(), ASKED_MS.load(Ordering::Relaxed));
    let is_time = before == 0 || now.abs_diff(before) >= ASK_MS;
    if is_time {
        ASKED_MS.store(now, Ordering::Relaxed);
    }
    is_time
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const DEVICE: DeviceIndex = DeviceIndex(0);
    const MIB: u64 = 1 << 20;
    const MINUTE: u64 = 60_000;

    /// Says that whoever is asked for holds memory.
    struct Holds;

    impl Driver for Holds {
        fn still_holds(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
            Some(true)
        }
    }

    fn attached(path: &Path) -> Ledger {
        let mut setup = Setup::default();
        setup.budgets[0] = Some(Bytes(100 * MIB));
        Ledger::attach(path, &setup).unwrap()
    }

    /// A process ended a minute ago, 90 MiB of 100 are charged to it, and the driver shows its pid. What another one asks for then.
    fn asked_beside_the_dead(listed: bool) -> Result<(), Refusal> {
        /// No process has it.
        const PID: u64 = 0x7fff_ff00;
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("ledger");
        let (dead, other) = (attached(&path), attached(&path));
        assert_eq!(
            dead.reserve_with(DEVICE, Bytes(90 * MIB), &Holds)
                .map(Reservation::commit),
            Ok(())
        );
        if listed {
            dead.note_listed(DEVICE);
        }
        let slot = dead.seat.slot;
        drop(dead);
        let record = &other.seat.layout().slots[slot];
        let namespace = record.owner.load(Ordering::Relaxed) & u64::from(u32::MAX);
        record.owner.store(PID << 32 | namespace, Ordering::Relaxed);
        let ended = crate::region::clock::now_ms().abs_diff(MINUTE).max(1);
        record.dying.store(ended, Ordering::Relaxed);
        // Whoever found it dead found no children that share its lock.
        let heirs = crate::region::HEIRS;
        record.start.fetch_and(!heirs, Ordering::Relaxed);
        other
            .reserve_with(DEVICE, Bytes(20 * MIB), &Holds)
            .map(Reservation::commit)
    }

    #[test]
    fn what_a_process_left_to_its_children_stays_charged() {
        let before = std::time::Instant::now();
        let refused = asked_beside_the_dead(true);
        assert!(
            matches!(refused, Err(Refusal::OverBudget { .. })),
            "{refused:?}"
        );
        assert!(before.elapsed().as_millis() < 2_000, "waited for");
    }

    #[test]
    fn who_gets_a_slot_has_no_row_by_who_had_it() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("ledger");
        let gone = attached(&path);
        gone.note_listed(DEVICE);
        let slot = gone.seat.slot;
        drop(gone);
        let next = attached(&path);
        assert_eq!(next.seat.slot, slot);
        assert!(!next.account(DEVICE).unwrap().is_listed(slot));
    }

    #[test]
    fn rows_of_another_namespace_keep_nothing_for_ever() {
        assert_eq!(asked_beside_the_dead(false), Ok(()));
    }
}
