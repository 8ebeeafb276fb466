//! What this process is to its tenant: enforced, or passing through. A child of fork begins anew: the driver refuses it by itself where its parent had
//! initialised CUDA, but NVML answers it, and so would a second driver (R45 of `fixtures/defects.txt`).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use budget::DeviceIndex;
use budget::percent::Percent;
use budget::settings::{ContextCharge, Settings, Source};
use ledger::{Authority, Changes, KeptErrno, Ledger, Setup};
use seeds::{Seed, planted};
use std::panic::catch_unwind;

use crate::boundary::arena::{self, Forever, Lock, Reentrant};
#[cfg(not(proxy))]
use crate::boundary::environment;
use crate::boundary::{loader, sign};
use crate::branches::Branches;
use crate::contexts::Contexts;
use crate::deferred::Deferred;
use crate::devices::Devices;
use crate::external::External;
use crate::frees::Frees;
use crate::function::LocalMemory;
use crate::graphs::{Bodies, Executables, Graphs};
use crate::lent::Lent;
use crate::modules::Modules;
use crate::nvml::Scopes;
use crate::physical::Physical;
use crate::pinned::PageTables;
use crate::poll::Poll;
use crate::pools::Pools;
use crate::records::Records;
use crate::report::{self, Once};
use crate::sharing::{Shared, Sharing};
use crate::texels::Arrays;
use crate::threads::Threads;
use crate::throttle::Lane;
use crate::truth::Truth;
use crate::view::Views;

/// Devices that a process can see; a driver offers no more.
pub const ORDINALS: usize = 64;
const BUCKETS: usize = 1 << 16;
/// Blocks at the ends of allocations: two TiB of them.
const PAGES: usize = 1 << 20;

/// All that a process knows of itself, in the arena. All zeros is the state of a process that has not begun.
#[repr(C)]
pub struct Memory {
    /// Only where the kernel does not wipe on fork.
    pub owner: AtomicU32,
    phase: AtomicU32,
    /// This process has initialised CUDA, and 2 once that is charged.
    pub initialised: AtomicU32,
    /// Functions and kernels that were obtained.
    pub obtained: AtomicU32,
    // What every allocation looks at lies together.
    pub devices: Forever<Devices>,
    pub shared: Shared,
    pub graphs: Graphs,
    pub threads: Threads,
    /// Held while a context is made or destroyed, so that what it takes can be measured.
    pub changing: Reentrant,
    /// Calls that may end a primary context, and those that take one more hold on one, which the others wait for.
    pub endings: Changes,
    pub holds: Changes,
    /// Not 0: some pool may hold less than it is charged for.
    pub slack: AtomicU64,
    /// Held while the driver maps memory or is told what a device may access, and while a descriptor gets a name.
    pub mapping: Lock,
    pub naming: Lock,
    /// Instead of each context's own, for a seed.
    pub resizing: Lock,
    pub page_tables: PageTables,
    pub truth: Truth,
    pub poll: Poll,
    pub nvml: Scopes,
    pub local: LocalMemory,
    /// Held while a module is loaded that no room was granted for.
    pub loading: Reentrant,
    attaching: Lock,
    settings: Forever<Settings>,
    ledger: Forever<Ledger>,
    pub contexts: Contexts,
    pub arrays: Forever<Arrays>,
    pub views: Views,
    pub modules: Forever<Modules>,
    pub physical: Forever<Physical>,
    pub executables: Forever<Executables>,
    pub branches: Forever<Branches>,
    pub bodies: Forever<Bodies>,
    pub pools: Pools,
    pub frees: Frees,
    pub deferred: Deferred,
    pub sharing: Forever<Sharing>,
    pub lent: Forever<Lent>,
    pub external: Forever<External>,
    pub records: Records<BUCKETS>,
    /// By ordinal: a 32-bit context that was made there, by its handle.
    pub narrow: [AtomicU64; ORDINALS],
    pub pages: [AtomicU64; PAGES],
    pub lanes: [Lane; ORDINALS],
}

const ENFORCED: u32 = 1;

/// Hooks only forward, decided once and true of every child: no budget is set, or another of our libraries keeps account here.
static FORWARD: AtomicBool = AtomicBool::new(false);
/// This process or one that it was forked from has begun: for a seed.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether a compute budget is set: decided once, and true of every child.
static PACED: AtomicU32 = AtomicU32::new(0);
/// No budget of anything is.
const NEVER: u32 = 1;
const YES: u32 = 2;
/// None was when the process began; the owner may set one.
const NOT_YET: u32 = 3;

/// Whether launches are looked at.
#[inline]
pub fn is_paced() -> bool {
    match PACED.load(Ordering::Relaxed) {
        YES => true,
        NOT_YET => is_timed(),
        NEVER => false,
        _ => may_be_paced() && is_paced(),
    }
}

/// Whether launches are looked at, now or if the owner wants it.
pub fn may_be_paced() -> bool {
    if PACED.load(Ordering::Relaxed) == 0 {
        let _ = standing();
    }
    matches!(PACED.load(Ordering::Relaxed), YES | NOT_YET)
}

/// The owner's word in the ledger: a load of a cache line that nobody else writes.
#[inline]
fn is_timed() -> bool {
    arena::existing()
        .and_then(|memory| memory.ledger.get())
        .is_some_and(Ledger::is_timed)
}

/// What hooks do in this process.
pub enum Standing {
    Enforce(Tenant),
    Forward,
    /// No memory for our state: nothing can be granted.
    Impossible,
}

/// An enforced process.
#[derive(Clone, Copy)]
pub struct Tenant {
    pub memory: &'static Memory,
}

/// What hooks do now. Any thread may be the first to ask.
#[inline(always)]
pub fn standing() -> Standing {
    match arena::enforcing() {
        Some(memory) if memory.phase.load(Ordering::Acquire) == ENFORCED => {
            Standing::Enforce(Tenant { memory })
        }
        _ => standing_otherwise(),
    }
}

#[inline(never)]
fn standing_otherwise() -> Standing {
    if FORWARD.load(Ordering::Relaxed) {
        return Standing::Forward;
    }
    // No panic crosses C: who cannot begin is granted nothing.
    begun().unwrap_or_else(|| catch_unwind(begin).unwrap_or(Standing::Impossible))
}

/// Another of our libraries keeps account in this process.
pub fn hand_over() {
    PACED.store(NEVER, Ordering::Relaxed);
    FORWARD.store(true, Ordering::SeqCst);
    arena::set_enforcing(None);
}

fn begun() -> Option<Standing> {
    let memory = arena::existing()?;
    match memory.phase.load(Ordering::Acquire) {
        ENFORCED => Some(Standing::Enforce(Tenant { memory })),
        _ => None,
    }
}

#[cold]
fn begin() -> Standing {
    let _errno = KeptErrno::keep();
    #[cfg(not(proxy))]
    let kept = environment::kept();
    // Opened late: the kernel is asked.
    #[cfg(proxy)]
    let kept = None;
    let kept = match planted(Seed::R50) {
        true => Some(&[][..]),
        false => kept,
    };
    let settings = sources::settings(sign::own_path().as_deref(), kept);
    // Before this library's constructor there may be no environment to read: no budget then is no last word.
    if !settings.any_budget() && loader::started() == 0 && !planted(Seed::R50) {
        return Standing::Forward;
    }
    PACED.store(
        if settings.any_compute_budget() {
            YES
        } else if settings.any_budget() {
            NOT_YET
        } else {
            NEVER
        },
        Ordering::Relaxed,
    );
    if !settings.any_budget() {
        report::begin(&settings);
        FORWARD.store(true, Ordering::Relaxed);
        return Standing::Forward;
    }
    let Some(memory) = arena::memory() else {
        report::once(
            Once::NoMemory,
            format_args!(
                "the kernel gives no {} KiB for the books (limits of address space or locked memory); every allocation is refused",
                size_of::<Memory>() >> 10
            ),
        );
        return Standing::Impossible;
    };
    if planted(Seed::R45) && BEGUN.swap(true, Ordering::AcqRel) {
        FORWARD.store(true, Ordering::Relaxed);
        return Standing::Forward;
    }
    report::begin(&settings);
    memory.settings.set(settings);
    memory.phase.store(ENFORCED, Ordering::Release);
    arena::set_enforcing(Some(memory));
    // It may have been handed over meanwhile.
    if FORWARD.load(Ordering::SeqCst) {
        arena::set_enforcing(None);
        return Standing::Forward;
    }
    Standing::Enforce(Tenant { memory })
}

impl Tenant {
    /// What the environment said when this process began.
    pub fn settings(self) -> &'static Settings {
        self.memory
            .settings
            .get()
            .expect("set before the process is enforced")
    }

    /// The tenant's ledger. Where there is none nothing is granted; one line has said why, and the next request tries again.
    pub fn ledger(self) -> Option<&'static Ledger> {
        self.memory.ledger.get().or_else(|| self.attach_late())
    }

    /// The same as far as it is there already.
    pub fn ledger_so_far(self) -> Option<&'static Ledger> {
        self.memory.ledger.get()
    }

    #[cold]
    fn attach_late(self) -> Option<&'static Ledger> {
        let ledger = self.attach()?;
        self.charge_init();
        Some(ledger)
    }

    fn attach(self) -> Option<&'static Ledger> {
        let _errno = KeptErrno::keep();
        if self.settings().refusal().is_some() {
            return None;
        }
        let _held = self.memory.attaching.hold();
        if let Some(ledger) = self.memory.ledger.get() {
            return Some(ledger);
        }
        match Ledger::attach(
            &self.settings().ledger,
            &Setup {
                budgets: self.settings().budgets(),
                authority: self.authority(),
            },
        ) {
            Ok(ledger) => {
                if let Some(disagreement) = ledger.disagreement() {
                    report::once(
                        Once::OtherBudget,
                        format_args!(
                            "ledger {}: {disagreement}",
                            self.settings().ledger.display()
                        ),
                    );
                }
                self.join_shares(&ledger);
                if self.settings().context_charge == ContextCharge::Count {
                    ledger.note_counting();
                }
                self.tell_budgets(&ledger);
                Some(self.memory.ledger.set(ledger))
            }
            Err(error) => {
                report::once(
                    Once::NoLedger,
                    format_args!("{error}; every allocation is refused"),
                );
                None
            }
        }
    }

    /// Whoever is first to be told of compute budgets sets them.
    fn join_shares(self, ledger: &Ledger) {
        if !self.settings().any_compute_budget() {
            return;
        }
        let wanted = |device| self.settings().compute(device).hundredths();
        if let Some((device, held, wanted)) = ledger.join_shares(wanted, self.authority()) {
            report::once(
                Once::OtherShare,
                format_args!(
                    "ledger {}: device {device} has a compute budget of {} there, not the settings' {}; the ledger's holds",
                    self.settings().ledger.display(),
                    Percent(held),
                    Percent(wanted)
                ),
            );
        }
    }

    fn tell_budgets(self, ledger: &Ledger) {
        if !report::informs() {
            return;
        }
        let path = self.settings().ledger.display();
        for device in DeviceIndex::all() {
            let (memory, share) = (ledger.budget(device), ledger.share(device));
            let compute = Percent(share);
            match memory {
                Some(memory) => report::info(format_args!(
                    "ledger {path}: device {device} has a budget of {memory}, compute {compute}"
                )),
                None if share != 0 => report::info(format_args!(
                    "ledger {path}: device {device} has no memory budget, compute {compute}"
                )),
                None => {}
            }
        }
    }

    fn authority(self) -> Authority {
        match self.settings().source {
            Source::TenantFile => Authority::Owner,
            Source::Environment => Authority::Tenant,
        }
    }

    /// cuInit has succeeded here.
    pub fn set_initialised(self) {
        self.memory.initialised.fetch_max(1, Ordering::AcqRel);
    }
}
