//! The world: what the mocks, the harness and the checkers hold.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounts::Accounts;
use crate::cost::{Task, Traffic};
use crate::engine::{self, Engine, Interval, Nanos};
use crate::fault::{Consultation, FaultError, FaultPlan, When};
use crate::identity::Identity;
use crate::memory::{Audit, Kind, OutOfDeviceMemory, Overhead, ProcessUsage};
use crate::os;
use crate::plan::{self, Plan};
use crate::process::Place;
use crate::profile::{self, DeviceProfile, MachineProfile, ProfileError};
use crate::region::Region;
use crate::schedule::Share;
use crate::settings::settings;
use crate::units::{Api, Bytes, DeviceIndex};
use crate::view::Views;
use trace::{TraceFile, TraceRecord};

/// What a world is made from. It is kept in the world's file, so that whoever opens that needs nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldSpec {
    pub machine: MachineProfile,
    pub faults: FaultPlan,
    /// Where the trace goes; nowhere without it.
    pub trace: Option<PathBuf>,
    /// Reproduces whatever is random in a run.
    pub seed: u64,
    /// The container's view: which of the machine's devices there are, by index into `machine.devices`, ascending.
    /// `None` = all of them. A [`DeviceIndex`] always counts the visible ones.
    pub visible: Option<Vec<u32>>,
}

impl WorldSpec {
    /// A healthy world without a trace.
    #[must_use]
    pub fn new(machine: MachineProfile) -> Self {
        Self {
            machine,
            faults: FaultPlan::default(),
            trace: None,
            seed: 0,
            visible: None,
        }
    }
}

/// A world that cannot be had. Every variant names its input.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: not a world of this build: {reason}", path.display())]
    Foreign { path: PathBuf, reason: String },
    #[error(
        "{machine}: device {index} cannot be visible: there are {count}, each to be named once, ascending"
    )]
    Visible {
        machine: String,
        index: u32,
        count: usize,
    },
    #[error("fault at `{at}`: device {device} is not one of the {count} visible ones")]
    FaultDevice {
        at: String,
        device: u32,
        count: usize,
    },
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Fault(#[from] FaultError),
}

/// One experiment's simulated devices, shared by every process that opens its file. All methods may be called from any
/// thread, and from fork children of the process that opened it: a child is a process of its own, which holds nothing.
#[derive(Debug)]
pub struct World {
    spec: WorldSpec,
    devices: Vec<DeviceProfile>,
    plan: Plan,
    views: Views,
    /// Devices that were lost already when this process opened the world.
    lost_before: u64,
    pub(crate) accounts: Accounts,
    trace: Option<TraceFile>,
}

impl World {
    /// Makes a world at `path`, complete before it appears there.
    ///
    /// # Errors
    /// `path` exists already, or the specification contradicts itself.
    pub fn create(path: &Path, spec: &WorldSpec) -> Result<Self, WorldError> {
        let failed = |source| WorldError::Io {
            path: path.to_owned(),
            source,
        };
        check(spec)?;
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(format!(".{}.{}", os::pid(), os::now_ns()));
        let unfinished = PathBuf::from(unfinished);
        let file = File::create_new(&unfinished).map_err(failed)?;
        // link(2), unlike rename, refuses to replace a world that others may have mapped.
        let made = build(&file, spec)
            .and_then(|region| std::fs::hard_link(&unfinished, path).map(|()| region));
        let _ = std::fs::remove_file(&unfinished);
        let place = place(path, &file).map_err(failed)?;
        Self::assemble(made.map_err(failed)?, spec.clone(), Some(place)).map_err(failed)
    }

    /// Opens the world at `path`.
    ///
    /// # Errors
    /// No such file, or not a world of this build.
    pub fn open(path: &Path) -> Result<Self, WorldError> {
        let failed = |source| WorldError::Io {
            path: path.to_owned(),
            source,
        };
        let foreign = |reason| WorldError::Foreign {
            path: path.to_owned(),
            reason,
        };
        let file = os::open(path).map_err(failed)?;
        let region = Region::open(&file).map_err(failed)?.map_err(foreign)?;
        let spec =
            serde_json::from_slice(&region.spec()).map_err(|error| foreign(error.to_string()))?;
        let place = place(path, &file).map_err(failed)?;
        Self::assemble(region, spec, Some(place)).map_err(failed)
    }

    /// The world of this process: the file that `RINGFENCE_WORLD` names, else a private world of the machine that
    /// `RINGFENCE_MACHINE` names (`rtx6000-ada` without it), shared by all mocks of the process and its fork children.
    ///
    /// # Errors
    /// As [`World::open`], remembered: every later call answers the same.
    pub fn ambient() -> Result<&'static Self, &'static WorldError> {
        static AMBIENT: OnceLock<Result<World, WorldError>> = OnceLock::new();
        let open = || match &settings().world {
            Some(path) => Self::open(path),
            None => Self::private(settings().machine.as_deref().unwrap_or(profile::DEFAULT)),
        };
        AMBIENT.get_or_init(open).as_ref()
    }

    #[must_use]
    pub fn spec(&self) -> &WorldSpec {
        &self.spec
    }

    /// The host: its driver, and its devices whether visible or not.
    #[must_use]
    pub fn machine(&self) -> &MachineProfile {
        &self.spec.machine
    }

    /// The devices that processes see, in PCI order.
    #[must_use]
    pub fn devices(&self) -> &[DeviceProfile] {
        &self.devices
    }

    /// What `api` says of the device, identity faults applied. Panics, as all that follow, on a device that is not there.
    #[must_use]
    pub fn identity(&self, dev: DeviceIndex, api: Api) -> Identity {
        self.views.identity(api, dev.as_usize())
    }

    /// The devices that `api` shows now, in its order; a real world shows all in PCI order. Devices that were lost when
    /// this process opened the world are not among them.
    #[must_use]
    pub fn shown(&self, api: Api) -> Vec<DeviceIndex> {
        let count = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        self.shown_of(api, (0..count).map(DeviceIndex).collect())
    }

    /// The same where the API's own order is another.
    #[must_use]
    pub fn shown_of(&self, api: Api, mut list: Vec<DeviceIndex>) -> Vec<DeviceIndex> {
        list.retain(|device| self.lost_before >> device.0 & 1 == 0);
        if self.views.is_true(api) {
            return list;
        }
        let header = self.accounts.region.header();
        let since_first = |counter| plan::since_first(header, counter);
        self.views.shown(api, since_first, list)
    }

    /// What NVML counts as its own, its drift included.
    #[must_use]
    pub fn reserve(&self, dev: DeviceIndex) -> Bytes {
        let own = self.devices[dev.as_usize()].nvml_reserve;
        if self.views.is_true(Api::Nvml) {
            return own;
        }
        let header = self.accounts.region.header();
        let since_first = |counter| plan::since_first(header, counter);
        own + self.views.drift(since_first, dev)
    }

    /// Asks the fault plan what to do with this call of `entry`, and counts it; `asked` is how many bytes it asks for or
    /// moves. A delay is over when this returns, a loss has come.
    #[inline]
    pub fn consult(
        &self,
        api: Api,
        entry: &str,
        asked: impl FnOnce() -> Bytes,
    ) -> Consultation<'_> {
        self.plan
            .consult(api, entry, asked, self.accounts.region.header())
    }

    /// How many calls a row of the fault plan has counted, over all processes that it selects. Rows that count nothing (`every`, after a time) have 0.
    #[must_use]
    pub fn counted(&self, row: usize) -> u64 {
        let counters = &self.accounts.region.header().counters;
        match self.spec.faults.faults.get(row).map(|fault| fault.when) {
            Some(When::Nth(_) | When::From(_) | When::OneIn(_)) => counters[row].load(Relaxed),
            _ => 0,
        }
    }

    /// Whether any device fell off the bus: ask before finding out which one a call is about.
    #[must_use]
    #[inline]
    pub fn any_lost(&self) -> bool {
        self.accounts.region.header().lost.load(Relaxed) != 0
    }

    /// Whether the device fell off the bus: every call that needs it answers so from then on.
    #[must_use]
    pub fn lost(&self, dev: DeviceIndex) -> bool {
        self.accounts.region.header().lost.load(Relaxed) >> dev.0 & 1 != 0
    }

    /// The device falls off the bus.
    pub fn lose(&self, dev: DeviceIndex) {
        plan::lose(self.accounts.region.header(), Some(dev));
    }

    /// Symbols (and Vulkan extensions) that the fault plan takes away.
    #[must_use]
    pub fn missing_symbols(&self, api: Api) -> &[String] {
        self.plan.missing(api)
    }

    /// Takes device memory for this process. The caller has rounded `bytes` as the device would.
    ///
    /// # Errors
    /// The device cannot give that much; nothing was taken.
    pub fn take(
        &self,
        dev: DeviceIndex,
        kind: Kind,
        bytes: Bytes,
    ) -> Result<(), OutOfDeviceMemory> {
        self.accounts
            .take(dev.as_usize(), kind, bytes)
            .map_err(|free| OutOfDeviceMemory {
                device: dev,
                asked: bytes,
                free,
            })
    }

    /// Returns what this process took. More than it holds is a mock's mistake: [`Audit::overreturns`] counts it.
    pub fn give_back(&self, dev: DeviceIndex, kind: Kind, bytes: Bytes) {
        self.accounts.give_back(dev.as_usize(), kind, bytes);
    }

    /// Takes a client's own memory, the part that no row names included: all of it or nothing.
    pub fn take_own(&self, dev: DeviceIndex, own: Overhead) -> Result<(), OutOfDeviceMemory> {
        self.take(dev, Kind::Unlisted, own.unlisted)?;
        self.take(dev, own.kind, own.listed)
            .inspect_err(|_| self.give_back(dev, Kind::Unlisted, own.unlisted))
    }

    pub fn give_back_own(&self, dev: DeviceIndex, own: Overhead) {
        self.give_back(dev, own.kind, own.listed);
        self.give_back(dev, Kind::Unlisted, own.unlisted);
    }

    /// What all processes hold, the dead included until their teardown ends. A teardown begins at the
    /// death where somebody keeps watch ([`World::keep_watch`]), else when any process's use of the world first notices it.
    #[must_use]
    pub fn used(&self, dev: DeviceIndex) -> Bytes {
        self.accounts.used(dev.as_usize())
    }

    /// Capacity less [`World::used`].
    #[must_use]
    pub fn free(&self, dev: DeviceIndex) -> Bytes {
        self.devices[dev.as_usize()]
            .capacity()
            .saturating_sub(self.used(dev))
    }

    /// What the live process holds, through all of its libraries.
    #[must_use]
    pub fn used_by(&self, dev: DeviceIndex, pid: u32) -> Bytes {
        self.processes(dev)
            .iter()
            .filter(|usage| usage.pid == pid)
            .map(ProcessUsage::total)
            .sum()
    }

    /// The processes that hold anything on the device, by PID: the living, and the dead until their memory is back.
    #[must_use]
    pub fn processes(&self, dev: DeviceIndex) -> Vec<ProcessUsage> {
        self.accounts.processes(dev.as_usize())
    }

    /// As [`World::processes`], each with its pid as this process's PID namespace has it, by that; what that namespace does not show is left out. So a 580 driver
    /// tells them (`os_find_ns_pid` of its open kernel modules; not seen on a card).
    #[must_use]
    pub fn seen(&self, dev: DeviceIndex) -> Vec<(u32, ProcessUsage)> {
        self.accounts.seen(dev.as_usize())
    }

    /// The largest sum that [`World::used`] ever had, since the world began or [`World::reset_peak`].
    #[must_use]
    pub fn peak(&self, dev: DeviceIndex) -> Bytes {
        self.accounts.peak(dev.as_usize())
    }

    /// Every device's peak is what is used now.
    pub fn reset_peak(&self) {
        self.accounts.reset_peaks();
    }

    /// The clock of all engines: CLOCK_MONOTONIC, as it is outside of all time namespaces.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(os::now_ns())
    }

    /// Puts work of this process on an engine, not before `ready`; from when to when it is there. Nothing waits: who asks
    /// whether it is done compares [`World::now`] with the interval's end. See [`mod@crate::engine`] for how processes
    /// share an engine. Work of a process that dies is dropped.
    pub fn submit(&self, dev: DeviceIndex, engine: Engine, ready: Nanos, cost: Nanos) -> Interval {
        let at = engine::Spot::engine(dev.as_usize(), engine);
        self.accounts
            .submit(at, os::now_ns(), ready.0, cost.0, Share::WHOLE)
    }

    /// As [`World::submit`], for work as the profile's model describes it: it may leave room beside it, and move something.
    pub fn carry(&self, dev: DeviceIndex, ready: Nanos, task: &Task) -> Interval {
        self.accounts
            .carry(dev.as_usize(), os::now_ns(), ready.0, task)
    }

    /// For how long the device's compute engine had work since the world began.
    #[must_use]
    pub fn worked(&self, dev: DeviceIndex) -> Nanos {
        self.accounts.sweep(false);
        Nanos(self.accounts.worked(dev.as_usize(), os::now_ns()))
    }

    /// As [`World::busy`], for how long something moved.
    #[must_use]
    pub fn moved(&self, dev: DeviceIndex, traffic: Traffic, from: Nanos, to: Nanos) -> Nanos {
        let at = engine::Spot::traffic(dev.as_usize(), traffic);
        self.measured(at, None, from, to)
    }

    /// A process's part of [`World::moved`].
    #[must_use]
    pub fn moved_by(
        &self,
        dev: DeviceIndex,
        pid: u32,
        traffic: Traffic,
        from: Nanos,
        to: Nanos,
    ) -> Nanos {
        let at = engine::Spot::traffic(dev.as_usize(), traffic);
        self.measured(at, Some(pid), from, to)
    }

    /// For how long between two times (2.1 s ago at most) the engine had work, of whichever process; not after now.
    #[must_use]
    pub fn busy(&self, dev: DeviceIndex, engine: Engine, from: Nanos, to: Nanos) -> Nanos {
        let at = engine::Spot::engine(dev.as_usize(), engine);
        self.measured(at, None, from, to)
    }

    /// The process's part of [`World::busy`]. The parts of all processes add up to it.
    #[must_use]
    pub fn busy_by(
        &self,
        dev: DeviceIndex,
        pid: u32,
        engine: Engine,
        from: Nanos,
        to: Nanos,
    ) -> Nanos {
        let at = engine::Spot::engine(dev.as_usize(), engine);
        self.measured(at, Some(pid), from, to)
    }

    fn measured(&self, at: engine::Spot, pid: Option<u32>, from: Nanos, to: Nanos) -> Nanos {
        self.accounts.sweep(false);
        let now = os::now_ns();
        Nanos(self.accounts.busy(at, pid, from.0, to.0.min(now)))
    }

    /// Counters against rows, after looking for dead processes.
    #[must_use]
    pub fn audit(&self) -> Audit {
        self.accounts.audit()
    }

    /// The longest teardown lag among the devices: how long after a death everything is free at the latest.
    #[must_use]
    pub fn teardown_lag(&self) -> Duration {
        Duration::from_millis(
            self.devices
                .iter()
                .map(|device| device.teardown_lag_ms)
                .max()
                .unwrap_or(0),
        )
    }

    /// Whether [`World::trace`] writes anything: ask before building arguments.
    #[must_use]
    #[inline]
    pub fn tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// Appends one line to the trace. A trace that cannot be written is lost silently: the guest must not notice.
    pub fn trace(&self, record: &TraceRecord<'_>) {
        if let Some(trace) = &self.trace {
            trace.write(settings().role.as_deref(), record);
        }
    }

    /// An unnamed world for this process. Each mock has its own copy of this crate, so the second one to come finds the
    /// first one's file among the process's descriptors.
    fn private(machine: &str) -> Result<Self, WorldError> {
        let failed = |source| WorldError::Io {
            path: PathBuf::from(PRIVATE),
            source,
        };
        if let Some(file) = find_private()
            && let Ok(Ok(region)) = Region::open(&file)
            && let Ok(spec) = serde_json::from_slice(&region.spec())
        {
            return Self::assemble(region, spec, None).map_err(failed);
        }
        let spec = WorldSpec::new(profile::of(machine)?);
        let file = os::memfd().map_err(failed)?;
        let region = build(&file, &spec).map_err(failed)?;
        // The descriptor stays open: it is how the other mocks find the file.
        std::mem::forget(file);
        Self::assemble(region, spec, None).map_err(failed)
    }

    fn assemble(region: Region, spec: WorldSpec, place: Option<Place>) -> io::Result<Self> {
        let devices = visible_devices(&spec);
        let role = settings().role.as_deref();
        let lost_before = region.header().lost.load(Relaxed);
        let trace = spec.trace.as_deref().map(TraceFile::open).transpose()?;
        Ok(Self {
            accounts: Accounts::new(region, place)?,
            plan: Plan::new(&spec.faults, role, spec.seed),
            views: Views::new(&spec.faults, role, &devices),
            lost_before,
            devices,
            trace,
            spec,
        })
    }
}

const PRIVATE: &str = "/memfd:ringfence-world";

fn find_private() -> Option<File> {
    let named = |link: &Path| link.to_str().is_some_and(|name| name.starts_with(PRIVATE));
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?;
    let found = descriptors
        .flatten()
        .find(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| named(&link)))?;
    os::open(&found.path()).ok()
}

fn place(path: &Path, file: &File) -> io::Result<Place> {
    // Absolute, since the process may change its directory before the file is looked for again.
    Place::new(std::path::absolute(path)?, file)
}

fn build(file: &File, spec: &WorldSpec) -> io::Result<Region> {
    let mut spec = spec.clone();
    spec.trace = spec.trace.map(std::path::absolute).transpose()?;
    let limits = |device: &DeviceProfile| {
        (
            device.capacity().0,
            device.teardown_lag_ms.saturating_mul(1_000_000),
        )
    };
    let limits: Vec<_> = visible_devices(&spec).iter().map(limits).collect();
    Region::create(
        file,
        &serde_json::to_vec(&spec).map_err(io::Error::other)?,
        &limits,
    )
}

fn visible_devices(spec: &WorldSpec) -> Vec<DeviceProfile> {
    match &spec.visible {
        None => spec.machine.devices.clone(),
        Some(visible) => visible
            .iter()
            .filter_map(|index| spec.machine.devices.get(*index as usize).cloned())
            .collect(),
    }
}

fn check(spec: &WorldSpec) -> Result<(), WorldError> {
    profile::check(&spec.machine.name, &spec.machine)?;
    spec.faults.check("fault plan")?;
    let all = spec.machine.devices.len();
    let visible = spec.visible.as_deref().unwrap_or_default();
    for (position, index) in visible.iter().enumerate() {
        if *index as usize >= all || visible[..position].iter().any(|before| before >= index) {
            return Err(WorldError::Visible {
                machine: spec.machine.name.clone(),
                index: *index,
                count: all,
            });
        }
    }
    let count = visible_devices(spec).len();
    for fault in &spec.faults.faults {
        if let Some(device) = fault.device.filter(|device| device.as_usize() >= count) {
            return Err(WorldError::FaultDevice {
                at: fault.at.clone(),
                device: device.0,
                count,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mocks_of_one_process_share_its_private_world() {
        let cuda = World::private("tiny").unwrap();
        let nvml = World::private("h200").unwrap();
        assert_eq!(nvml.machine().name, "tiny", "the first to come decides");
        cuda.take(DeviceIndex(0), Kind::Memory, Bytes(123)).unwrap();
        assert_eq!(nvml.used(DeviceIndex(0)), Bytes(123));
    }
}
