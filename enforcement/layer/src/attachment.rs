//! Whether enforcement stands: the ledger this process draws on, or why every request must be refused.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use budget::percent::Percent;
use budget::settings::{ContextCharge, Source};
use budget::{Bytes, DeviceIndex, DeviceSet, MAX_DEVICES};
use ledger::{
    Authority, Change, Holds, KeptErrno, Ledger, Named, Object, Refusal, Setup, Shown, Unnamed,
};
use seeds::{Seed, planted};
use throttle::{Budget, Share, Shared, Told};

use crate::arena::{Arena, Id};
use crate::boundary::nvml::{self, Rows};
use crate::exports::{Descriptor, Freed, Row};
use crate::floor::{Books, Floor};
use crate::memory::Objects;
use crate::pace::Turns;
use crate::settings::settings;
use crate::targets::{self, Held};
use crate::trace;

/// One process's enforcement. A fork child gets another.
pub struct Attachment {
    id: Id,
    /// `None`: enforcement could not be established, nothing is granted.
    ledger: Option<Ledger>,
    /// By device.
    turns: [OnceLock<Turns>; MAX_DEVICES],
    holds: Mutex<Holds>,
    floor: Floor,
    pub objects: Objects,
}

/// Nothing more is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

static ATTACHMENTS: Arena<Attachment> = Arena::new();
static CURRENT: AtomicU32 = AtomicU32::new(0);

/// Whether any budget is set. If not, the layer hands out next's functions and does nothing.
pub fn enforcing() -> bool {
    settings().any_budget()
}

/// Whether any compute budget is set. If not, submissions are none of the layer's business.
pub fn pacing() -> bool {
    settings().any_compute_budget()
}

/// Whether this process, or another of the tenant's, has a ledger already.
pub fn begun() -> bool {
    mine().is_some() || settings().ledger.exists()
}

/// This process's attachment; made at the first GPU that a budget could be for, so that other programs take no slot.
#[inline]
pub fn current() -> Option<&'static Attachment> {
    mine().or_else(make)
}

#[cold]
fn make() -> Option<&'static Attachment> {
    static ATTACHING: Mutex<()> = Mutex::new(());
    let _errno = KeptErrno::keep();
    let _attaching = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(attachment) = mine() {
        return Some(attachment);
    }
    let id = ATTACHMENTS.push(|id| Attachment {
        id,
        ledger: attach(),
        turns: [const { OnceLock::new() }; MAX_DEVICES],
        holds: Mutex::new(Holds::new()),
        floor: Floor::new(),
        objects: Objects::new(),
    })?;
    CURRENT.store(id.0, Ordering::Release);
    ATTACHMENTS.get(id)
}

/// This process's attachment, if it has one.
#[inline]
pub fn mine() -> Option<&'static Attachment> {
    let attachment = ATTACHMENTS.get(Id(CURRENT.load(Ordering::Acquire)))?;
    attachment
        .ledger
        .as_ref()
        .is_none_or(Ledger::is_mine)
        .then_some(attachment)
}

fn attach() -> Option<Ledger> {
    let settings = settings();
    if let Some(refusal) = settings.refusal() {
        trace::tell(format_args!("{refusal}; every allocation is refused"));
        return None;
    }
    match Ledger::attach(
        &settings.ledger,
        &Setup {
            budgets: settings.budgets(),
            authority: authority(),
        },
    ) {
        Ok(ledger) => {
            if let Some(disagreement) = ledger.disagreement() {
                trace::warn(format_args!(
                    "ledger {}: {disagreement}",
                    settings.ledger.display()
                ));
            }
            join_shares(&ledger);
            if settings.context_charge == ContextCharge::Count {
                ledger.note_counting();
            }
            Some(ledger)
        }
        Err(error) => {
            trace::tell(format_args!("{error}; every allocation is refused"));
            None
        }
    }
}

fn authority() -> Authority {
    match settings().source {
        Source::TenantFile => Authority::Owner,
        Source::Environment => Authority::Tenant,
    }
}

/// Whoever is first to be told of compute budgets sets them.
fn join_shares(ledger: &Ledger) {
    if !pacing() {
        return;
    }
    let wanted = |device| settings().compute(device).hundredths();
    if let Some((device, held, wanted)) = ledger.join_shares(wanted, authority()) {
        trace::warn(format_args!(
            "ledger {}: device {device} has a compute budget of {} there, not the settings' {}; the ledger's holds",
            settings().ledger.display(),
            Percent(held),
            Percent(wanted)
        ));
    }
}

impl Attachment {
    /// What this process does on the first of the targets.
    pub fn turns(&'static self, targets: DeviceSet) -> Option<&'static Turns> {
        let slot = targets.iter().next()?.slot()?;
        self.ledger.as_ref().filter(|ledger| ledger.is_mine())?;
        Some(self.turns.get(slot)?.get_or_init(Turns::default))
    }

    /// The strictest of the targets' compute budgets.
    pub fn time_budget(&self, targets: DeviceSet) -> Option<Budget<'_>> {
        let ledger = self.ledger.as_ref()?;
        let budgets = targets.iter().filter_map(|device| {
            Some(Budget {
                share: Share::of_hundredths(u64::from(ledger.share(device)))?,
                shared: Shared::new(ledger.pace_words(device)?),
            })
        });
        budgets.min_by_key(|budget| budget.share)
    }

    /// How busy the target was after that time, by the driver's figures; `None` of several, of which one is meant and nobody knows which.
    pub fn told(&self, targets: DeviceSet, since: u64) -> Option<Told> {
        let mut targets = targets.iter();
        let (device, None) = (targets.next()?, targets.next()) else {
            return None;
        };
        let ledger = self.ledger.as_ref()?;
        let told = nvml::told(device, since)?;
        let pids = || nvml::listed(device).map(|rows| rows.pids());
        Some(Told {
            alone: ledger.has_all(device, pids),
            ..told
        })
    }

    pub const fn id(&self) -> Id {
        self.id
    }

    /// Whether anything can be granted at all.
    pub const fn stands(&self) -> bool {
        self.ledger.is_some()
    }

    /// Reserves on every target, or says why not: without a ledger nothing can be said but that.
    #[inline]
    pub fn reserve(&self, targets: DeviceSet, bytes: Bytes) -> Result<Held<'_>, Option<Refusal>> {
        if let Some(ledger) = &self.ledger {
            self.floor.before(ledger, targets, bytes);
        }
        self.reserve_taken(targets, bytes)
    }

    /// The same of what the driver has taken already: its figure has it, the books do not.
    pub fn reserve_taken(
        &self,
        targets: DeviceSet,
        bytes: Bytes,
    ) -> Result<Held<'_>, Option<Refusal>> {
        let ledger = self.ledger.as_ref().ok_or(None)?;
        targets::reserve(ledger, self.change(), targets, bytes, &Rows).map_err(|refusal| {
            trace::line(format_args!("refused {bytes}: {refusal}"));
            Some(refusal)
        })
    }

    /// Driver and ledger are about to differ: from before something is given back to the driver until it is given back to the ledger.
    #[inline]
    pub fn change(&self) -> Change<'_> {
        self.floor.change(self.ledger.as_ref())
    }

    /// As [`Floor::read_quietly`]; `None` without a ledger, too.
    pub fn read_quietly<R>(
        &self,
        targets: DeviceSet,
        own_changes: u64,
        read: impl FnMut() -> R,
    ) -> Option<(R, Vec<Books>)> {
        let ledger = self.ledger.as_ref()?;
        self.floor.read_quietly(ledger, targets, own_changes, read)
    }

    /// When this process looks at the driver's figures again; `None` where nothing is granted anyway.
    pub fn floor(&self) -> Option<&Floor> {
        self.ledger.as_ref().map(|_| &self.floor)
    }

    /// Brings what this process is charged to the driver's figure, after `call` where a command was the reason. Answers whether the tenant has more left
    /// than before.
    pub fn look(&self, targets: DeviceSet, call: Option<&str>) -> bool {
        let ledger = self.ledger.as_ref().filter(|ledger| ledger.is_mine());
        ledger.is_some_and(|ledger| self.floor.look_all(ledger, targets, call))
    }

    /// The next request looks.
    pub fn look_later(&self, targets: DeviceSet) {
        self.floor.look_later(targets);
    }

    /// What this process has imported of a device and its row shows, once it has one.
    pub fn imported(&self, device: DeviceIndex) -> Shown {
        let ledger = self.ledger.as_ref().filter(|ledger| ledger.is_mine());
        let shown = ledger
            .filter(|ledger| ledger.shared_usage(device) != Bytes::ZERO)
            .and_then(|ledger| {
                let rows = nvml::listed(device)?;
                Some(ledger.shown_imports(device, &|pid| rows.of(pid)))
            });
        shown.unwrap_or_default()
    }

    /// Before an instance or a device is made: what this process held before execve is waited for.
    pub fn await_predecessors(&self, targets: DeviceSet) {
        let Some(ledger) = self.ledger.as_ref().filter(|ledger| ledger.is_mine()) else {
            return;
        };
        for device in targets.iter() {
            let row = || {
                Some(
                    nvml::listed(device)?
                        .of(std::process::id())
                        .unwrap_or_default(),
                )
            };
            ledger.await_predecessors(device, &row);
        }
    }

    /// What was noted beyond what this process is charged is about to be charged, as far as it is known what took it. A look follows.
    pub fn forget_beyond(&self, targets: DeviceSet) {
        if let Some(ledger) = self.ledger.as_ref().filter(|ledger| ledger.is_mine()) {
            targets
                .iter()
                .for_each(|device| ledger.forget_beyond(device));
        }
    }

    /// So much of what is charged to the targets is in no row of the driver's.
    pub fn unlist(&self, targets: DeviceSet, bytes: Bytes) {
        self.listing(targets, bytes, Bytes::ZERO);
    }

    /// What [`Attachment::unlist`] said is charged no longer.
    pub fn list(&self, targets: DeviceSet, bytes: Bytes) {
        self.listing(targets, Bytes::ZERO, bytes);
    }

    fn listing(&self, targets: DeviceSet, more: Bytes, less: Bytes) {
        if let Some(ledger) = self.ledger.as_ref().filter(|ledger| ledger.is_mine()) {
            targets
                .iter()
                .for_each(|device| ledger.unlist(device, more, less));
        }
    }

    pub fn release(&self, targets: DeviceSet, bytes: Bytes) {
        // What a parent was charged is the parent's to give back.
        if let Some(ledger) = self.ledger.as_ref().filter(|ledger| ledger.is_mine()) {
            targets::release(ledger, targets, bytes);
        }
    }

    /// Names a descriptor of memory that this process exports.
    pub fn name(&self, descriptor: Descriptor, exported: Freed) -> Result<Named, Unnamed> {
        let known = match exported.row {
            // What was imported has its maker's name, and its descriptors are of another open file description.
            Row::Named(named) | Row::Held(named) => Some(named),
            Row::None => None,
        };
        let devices = exported.targets.iter().collect();
        let ledger = self.ledger.as_ref().ok_or(Unnamed::Impossible)?;
        ledger.name_by_descriptor(descriptor.fd, known, devices, exported.bytes)
    }

    /// Holds what a descriptor stands for, if whoever made it has named it.
    pub fn hold(&self, descriptor: Descriptor) -> Option<Named> {
        if planted(Seed::R9) {
            return None;
        }
        self.holding(|holds, ledger| holds.hold_by_descriptor(ledger, descriptor.fd))?
    }

    pub fn let_go(&self, object: Object) {
        self.holding(|holds, ledger| holds.let_go(ledger, object));
    }

    /// Before what this process exported is given back.
    pub fn pass_on(&self, object: Object) {
        if let Some(ledger) = &self.ledger {
            ledger.pass_object_on(object);
        }
    }

    fn holding<R>(&self, act: impl FnOnce(&mut Holds, &Ledger) -> R) -> Option<R> {
        let _errno = KeptErrno::keep();
        let ledger = self.ledger.as_ref()?;
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        Some(act(&mut holds, ledger))
    }

    /// This process has a row in NVML's lists of these.
    pub fn note_listed(&self, targets: DeviceSet) {
        if let Some(ledger) = &self.ledger {
            targets.iter().for_each(|device| ledger.note_listed(device));
        }
    }

    /// Notes how much memory they have, for whoever sets budgets.
    pub fn note_total(&self, targets: DeviceSet, total: Bytes) {
        if let Some(ledger) = &self.ledger {
            targets
                .iter()
                .for_each(|device| ledger.note_total(device, total));
        }
    }

    /// The strictest budget among the targets, `None` where none has one.
    #[inline]
    pub fn budget(&self, targets: DeviceSet) -> Option<Bytes> {
        targets::smallest_budget(self.ledger.as_ref()?, targets)
    }

    /// What the tenant has left; nothing where enforcement does not stand or the device is unknown. What the dead held is left too, once their driver has
    /// let go of it (V24 of `fixtures/defects.txt`): who only asks may never ask for memory, before which they are looked for.
    pub fn available(&self, targets: DeviceSet) -> Option<Bytes> {
        let Some(ledger) = self.ledger.as_ref().filter(|_| !targets.is_empty()) else {
            return Some(Bytes::ZERO);
        };
        let mut devices = targets.iter();
        let is_alone = devices.all(|device| ledger.usage(device) == ledger.own_usage(device));
        if !is_alone && !planted(Seed::V24) {
            ledger.reap_at_times(&Rows);
        }
        targets::available(ledger, targets)
    }
}
