//! Carries sequences out in this process, and judges each by what can be seen of it here.
//!
//! What can be seen: codes that the API has, errno, the simulated devices and the ledger after every call that took something, and that everything is as it
//! was before once all is ended. What another process answered to the same bytes is compared by whoever started both ([`crate::run`]).

use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::path::Path;

use abi::cuda::CUresult;
use abi::nvml::nvmlReturn_t;
use ledger::View;
use mock_device::{DeviceIndex, World};

use crate::family::{Calls, Family};
use crate::ffi::calls::{self, Address, Answer, Call, Place};
use crate::ffi::coverage::Seen;
use crate::ffi::ending::Ending;
use crate::ffi::frame::{self, PATTERN};
use crate::ffi::vulkan::{Client, Command};
use crate::input::CALL;
use crate::maker::{Handles, Kind, Maker, Out};
use crate::oracle::{self, Deaths};
use crate::surface::Surface;

/// By how much a pool may hold more than is charged while it is fragmented (docs/concepts/charging.md).
pub(crate) const STEP: u64 = 32 << 20;
/// How often is looked whether what descriptors held is back, and how long is waited in between.
const LOOKS: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(11);
/// How much of each device belongs to this tenant when nothing is held, and its charge, must be the same after every sequence.
type Figures = Vec<(u64, u64)>;

/// What became of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    /// Of all answers: equal ones for equal bytes, whoever answers.
    pub digest: u64,
    pub calls: u64,
    pub broken: Option<String>,
    /// Which calls left errno changed, by their number in the sequence: what they are, and at what.
    pub errno: BTreeMap<usize, (String, i32)>,
    /// Somewhere was reached that no sequence of this process had.
    pub new: bool,
    /// An error that stays has ended what this process can do: what it was asked next it did not do.
    pub spent: bool,
    /// States that the enforcer reached since the process began, where it tells (`seeds::Mark`).
    pub marks: u64,
    /// The most that a device was beyond its budget after a call, in bytes; of families that say how far it may.
    pub beyond: u64,
    /// Of how much more was charged of each device than it had lost after each call: equal ones for equal books; of families over all exports.
    pub books: u64,
    /// Of all exports those that were granted, by their number in the table.
    pub granted: Vec<u16>,
    /// What each call answered, and its part of the digest.
    pub answers: Vec<(u32, u64)>,
    /// A line for each call, and what its part of the digest is made of.
    pub told: Vec<(String, String)>,
}

/// A call of the family that is being run.
struct Prepared {
    call: &'static Call,
    address: Option<Address>,
    deaths: &'static Deaths,
}

/// A process's side of fuzzing.
pub struct Session {
    pub(crate) world: World,
    ledger_path: std::path::PathBuf,
    /// Of a tenant that has one.
    pub(crate) ledger: Option<View>,
    pub(crate) ending: Ending,
    pub(crate) handles: Handles,
    prepared: Option<(&'static str, Vec<Prepared>)>,
    vulkan: Option<Client>,
    pub(crate) nvml: Vec<u64>,
    pub(crate) baseline: Option<Figures>,
    pub(crate) budgets: Vec<u64>,
    /// Pools that the sequence made.
    pub(crate) pools: u64,
    pub(crate) outs: Vec<Out>,
    pub(crate) sizes: Vec<u64>,
    seen: Seen,
    pub(crate) surface: Option<Surface>,
    /// Bytes of physical memory that was there when some was bound to an array's tiles: so much may stay charged until the process ends (docs/concepts/charging.md).
    pub(crate) bound: u64,
    /// A kernel has faulted: every context has that error for good.
    pub(crate) spent: bool,
}

impl Session {
    /// Nothing of the drivers is touched yet but for cuInit.
    pub fn begin(world: &Path, ledger: &Path) -> Result<Self, String> {
        let world = World::open(world).map_err(|error| error.to_string())?;
        let ending = Ending::open().ok_or("libcuda lacks a function that ends things")?;
        match ending.init() {
            CUresult::SUCCESS => {}
            refused => return Err(format!("cuInit answered {refused:?}")),
        }
        let mut session = Self {
            world,
            ledger_path: ledger.to_owned(),
            ledger: None,
            ending,
            handles: Handles::default(),
            prepared: None,
            vulkan: None,
            nvml: crate::ffi::calls::nvml_devices(),
            baseline: None,
            budgets: Vec::new(),
            pools: 0,
            outs: Vec::new(),
            sizes: Vec::new(),
            seen: Seen::default(),
            surface: None,
            bound: 0,
            spent: false,
        };
        // Once before anything is compared: what a process takes once stays taken.
        match session.ending.begin(session.devices().end as i32) {
            CUresult::SUCCESS => {}
            refused => return Err(format!("a first context: {refused:?}")),
        }
        let kept = session
            .ending
            .keep_for_managed(session.devices().end as i32);
        kept.map_err(|(name, refused)| format!("{name} answered {refused:?}"))?;
        session.end();
        session.ended()?;
        Ok(session)
    }

    pub(crate) fn devices(&self) -> std::ops::Range<u32> {
        0..self.world.devices().len() as u32
    }

    fn end(&mut self) {
        let devices = self.devices().end as i32;
        let done = self.ending.end(&self.handles, devices);
        self.spent |= crate::surface::stays(done.0);
        self.handles.clear();
    }

    pub fn run(&mut self, family: &'static Family, bytes: &[u8], tell: bool) -> Verdict {
        let mut verdict = Verdict::default();
        if self.spent {
            verdict.spent = true;
            return verdict;
        }
        self.world.reset_peak();
        self.pools = self.devices().len() as u64;
        let broken = match family.calls {
            Calls::Plain(calls) => self.plain(family.name, calls, bytes, tell, &mut verdict),
            Calls::Commands(commands) => self.commands(commands, bytes, tell, &mut verdict),
            Calls::All { threads } => self.surface(bytes, threads, tell, &mut verdict),
        };
        self.end();
        let peaked = match family.calls {
            // How far a device may be beyond its budget was looked at after each call.
            Calls::All { .. } => Ok(()),
            _ => self.peaked(),
        };
        let broken = broken.and(peaked).and_then(|()| match self.spent {
            // Nothing can be given back any more.
            true => Ok(()),
            false => self.ended(),
        });
        verdict.broken = broken.err();
        verdict.spent = self.spent;
        verdict.new = self.seen.enter();
        verdict.marks = calls::marks();
        verdict
    }

    /// Places that were reached, of how many.
    pub fn reached(&self) -> (usize, usize) {
        self.seen.reached()
    }

    fn plain(
        &mut self,
        family: &'static str,
        calls: &'static [Call],
        bytes: &[u8],
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        // With as little as there is, even the context may be refused: then all is done without one.
        self.ending.begin(self.devices().end as i32);
        self.nvml
            .iter()
            .for_each(|&device| self.handles.enter(Kind::Nvml, device));
        let prepared = match self.prepared.take() {
            Some(prepared) if prepared.0 == family => prepared.1,
            _ => calls.iter().map(Prepared::of).collect(),
        };
        let mut outcome = Ok(());
        for (nth, call) in bytes.chunks_exact(CALL).enumerate() {
            let call = call.first_chunk::<CALL>().expect("a chunk of that size");
            outcome = self.one(
                &prepared[usize::from(call[0]) % prepared.len()],
                nth,
                call,
                tell,
                verdict,
            );
            if outcome.is_err() {
                break;
            }
        }
        self.prepared = Some((family, prepared));
        outcome
    }

    fn one(
        &mut self,
        prepared: &Prepared,
        nth: usize,
        bytes: &[u8; CALL],
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let call = prepared.call;
        let Some(address) = prepared.address else {
            return Ok(());
        };
        frame::clear();
        let (mut outs, mut sizes) = (
            std::mem::take(&mut self.outs),
            std::mem::take(&mut self.sizes),
        );
        outs.clear();
        sizes.clear();
        let mut maker = Maker::new(
            bytes,
            call.name,
            prepared.deaths,
            &mut self.handles,
            outs,
            tell,
        );
        maker.sizes = sizes;
        let answer = call.run(&mut maker, address);
        if let Some(lent) = maker.lent.take()
            && answer.is_some_and(|answer| answer.code == 0)
        {
            // The driver has closed it.
            let _ = lent.into_raw_fd();
        }
        let (first, told) = (maker.first, maker.told.take());
        (self.outs, self.sizes) = (maker.outs, maker.sizes);
        let Some(answer) = answer else {
            return Ok(());
        };
        verdict.calls += 1;
        let states = self.states(call.name, answer, first);
        let part = fold(u64::from(answer.code), states);
        verdict.digest = fold(verdict.digest, part);
        verdict.answers.push((answer.code, part));
        if let Some(told) = told {
            verdict.told.push((
                format!("{}({told}) = {}", call.name, answer.code),
                format!("{} {part:x}", answer.code),
            ));
        }
        if let Some(left) = answer.errno {
            verdict.errno.insert(nth, (call.name.to_owned(), left));
        }
        let known = match call.place {
            Place::Cuda => CUresult(answer.code).name().is_some(),
            Place::Nvml => answer.code <= nvmlReturn_t::ERROR_INVALID_STATE.0 || answer.code == 999,
            Place::Loader => true,
        };
        promise(known, || {
            format!(
                "{} answered {}, which the API does not have",
                call.name, answer.code
            )
        })?;
        if answer.code == 0 {
            self.held(call.name)
        } else {
            Ok(())
        }
    }

    /// What became of the places that the driver may write to; what it gave is entered, and what was ended taken out.
    pub(crate) fn states(&mut self, name: &str, answer: Answer, first: Option<(Kind, u64)>) -> u64 {
        let granted = answer.code == 0;
        let mut states = 0;
        for at in 0..self.outs.len() {
            let out = self.outs[at];
            let bytes = calls::written(&out);
            let value = u64::from_le_bytes(bytes);
            let state = match &bytes[..out.bytes] {
                left if left.iter().all(|&byte| byte == PATTERN) => 1,
                zero if zero.iter().all(|&byte| byte == 0) => 2,
                _ if out.exact => fold(3, value),
                _ => 3,
            };
            states = fold(states, state);
            match (granted && state == 3, out.kind) {
                // Where ranges lie is the host's business: one that is gone may be another's in one process and nobody's in the next.
                (true, _) if name == "cuMemAddressReserve" => {
                    let size = self.sizes.first().copied().unwrap_or(0);
                    self.handles.reserved.push((value, size));
                }
                (true, Some(Kind::Context)) if name == "cuCtxAttach" => {
                    self.handles.attached.push(value);
                }
                (true, Some(kind)) => {
                    self.handles.enter(kind, value);
                    self.pools += u64::from(kind == Kind::Pool);
                }
                _ => {}
            }
        }
        if granted {
            self.ended_by(name, first);
        }
        states
    }

    fn ended_by(&mut self, name: &str, first: Option<(Kind, u64)>) {
        let range = match self.sizes[..] {
            [address, size, ..] => Some((address, size)),
            _ => None,
        };
        match name {
            "cuMemMapArrayAsync" | "cuMemMapArrayAsync_ptsz" => {
                self.bound = self.handles.size_of_all(Kind::Physical);
            }
            "cuMemMap" => self.handles.mapped.extend(range),
            "cuMemUnmap" => self.handles.mapped.retain(|&mapped| Some(mapped) != range),
            "cuMemAddressFree" => self
                .handles
                .reserved
                .retain(|&reserved| Some(reserved) != range),
            _ => {}
        }
        if name.starts_with("cuDevicePrimaryCtxRe") && !name.ends_with("Retain") {
            self.handles.context_gone();
        }
        const ENDS: [&str; 7] = [
            "Destroy",
            "Unload",
            "Release",
            "Free",
            "CloseMem",
            "Detach",
            "Unregister",
        ];
        if let Some((kind, value)) = first
            && ENDS.iter().any(|ends| name.contains(ends))
        {
            let attached = &mut self.handles.attached;
            let of = |one: &u64| kind == Kind::Context && *one == value;
            match attached.iter().position(of) {
                // One that was attached to lives on.
                Some(at) if name == "cuCtxDetach" => {
                    attached.swap_remove(at);
                }
                _ => {
                    attached.retain(|one| !of(one));
                    self.handles.leave(kind, value);
                }
            }
        }
    }

    fn commands(
        &mut self,
        commands: &'static [Command],
        bytes: &[u8],
        tell: bool,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let mut client = match self.vulkan.take() {
            Some(client) => client,
            None => {
                let mut client = Client::open(self.ledger().is_none())
                    .ok_or("the Vulkan loader cannot be opened")?;
                client.begin();
                client.end();
                self.baseline = Some(self.figures());
                client
            }
        };
        let begun = client.begin();
        for &code in &begun {
            verdict.digest = fold(verdict.digest, u64::from(code));
        }
        if tell {
            let codes: Vec<_> = begun.iter().map(|&code| code as i32).collect();
            let told = format!("an instance and its devices: {codes:?}");
            verdict.told.push((told.clone(), told));
        }
        let mut outcome = Ok(());
        for (nth, call) in bytes.chunks_exact(CALL).enumerate() {
            let call = call.first_chunk::<CALL>().expect("a chunk of that size");
            let command = &commands[usize::from(call[0]) % commands.len()];
            let mut none = Handles::default();
            let deaths = oracle::deaths("");
            let mut maker = Maker::new(call, command.names[0], deaths, &mut none, Vec::new(), tell);
            let Some((answer, state)) = client.run(command, &mut maker) else {
                continue;
            };
            verdict.calls += 1;
            let part = fold(u64::from(answer.code), state);
            verdict.digest = fold(verdict.digest, part);
            verdict.answers.push((answer.code, part));
            if let Some(told) = maker.told.take() {
                let code = answer.code as i32;
                verdict.told.push((
                    format!("{}({told}) = {code}", command.names[0]),
                    format!("{code} {part:x}"),
                ));
            }
            if let Some(left) = answer.errno {
                let name = command.names[0].to_owned();
                verdict.errno.insert(nth, (name, left));
            }
            outcome = self.held(command.names[0]);
            if outcome.is_err() {
                break;
            }
        }
        client.end();
        self.vulkan = Some(client);
        outcome
    }

    /// The ledger, once there is one.
    pub(crate) fn ledger(&mut self) -> Option<&View> {
        if self.ledger.is_none() && self.ledger_path.exists() {
            self.ledger = View::open(&self.ledger_path).ok();
            let budgets = self.devices().map(|device| {
                let budget = self
                    .ledger
                    .as_ref()
                    .and_then(|view| view.budget(ledger::DeviceIndex(device)));
                budget.map_or(u64::MAX, |budget| budget.0)
            });
            self.budgets = budgets.collect();
        }
        self.ledger.as_ref()
    }

    /// What a pool may hold besides.
    fn slack(&self) -> u64 {
        self.pools * STEP
    }

    /// No device has lost more than is charged, nor is more charged than the budget.
    fn held(&mut self, name: &str) -> Result<(), String> {
        let slack = self.slack();
        for device in self.devices() {
            let used = self.world.used(DeviceIndex(device)).0;
            let Some(ledger) = self.ledger() else {
                return Ok(());
            };
            let charged = ledger.usage(ledger::DeviceIndex(device)).0;
            let budget = self.budgets[device as usize];
            promise(used <= charged + slack, || {
                format!("after {name} device {device} has lost {used} and {charged} are charged")
            })?;
            promise(charged <= budget, || {
                format!("after {name} {charged} are charged of device {device}'s {budget}")
            })?;
        }
        Ok(())
    }

    /// No device ever lost more than its budget.
    fn peaked(&self) -> Result<(), String> {
        let slack = self.slack();
        for device in self.devices() {
            let peak = self.world.peak(DeviceIndex(device)).0;
            let budget = self.budgets.get(device as usize);
            let budget = budget.map_or(u64::MAX, |budget| budget.saturating_add(slack));
            promise(peak <= budget, || {
                format!("device {device} lost {peak} of a budget of {budget} at one time")
            })?;
        }
        Ok(())
    }

    /// Nothing is left of the sequence: the figures are those of before.
    fn ended(&mut self) -> Result<(), String> {
        let mut figures = self.figures();
        let Some(baseline) = self.baseline.clone() else {
            self.baseline = Some(figures);
            return Ok(());
        };
        // What a closed descriptor held is found by whoever looks: at once, if nobody did in the last 10 ms.
        for nth in 0..=LOOKS {
            if figures == baseline {
                self.bound = 0;
                return Ok(());
            }
            // Nobody says when that is given back: another process takes this one's place.
            if self.keeps(&figures, &baseline) {
                self.spent = true;
                return Ok(());
            }
            if nth > 0 {
                std::thread::sleep(PAUSE);
            }
            calls::nvml_looks(&self.nvml);
            if let Some(client) = &mut self.vulkan {
                client.look(&self.budgets);
            }
            figures = self.figures();
        }
        promise(figures == baseline, || {
            let kinds = self.kinds();
            format!(
                "at the end (lost, charged) of each device is {figures:?}, and was {baseline:?} before; by kind {kinds}"
            )
        })
    }

    /// Whether what is charged and was not before is memory that was bound to tiles.
    fn keeps(&self, figures: &Figures, baseline: &Figures) -> bool {
        let mut both = figures.iter().zip(baseline);
        let more: u64 = both
            .clone()
            .map(|(now, before)| now.1.saturating_sub(before.1))
            .sum();
        more <= self.bound && both.all(|(now, before)| now.0 == before.0 && now.1 >= before.1)
    }

    /// What each device has lost, by what it is held for.
    pub(crate) fn kinds(&self) -> String {
        let of = |device| {
            let rows = self.world.processes(DeviceIndex(device));
            let held = mock_device::Kind::ALL.into_iter().map(|kind| {
                let bytes: u64 = rows.iter().map(|row| row.of(kind).0).sum();
                (kind, bytes)
            });
            let held: Vec<_> = held.filter(|(_, bytes)| *bytes != 0).collect();
            format!("{held:?}")
        };
        self.devices().map(of).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn figures(&mut self) -> Figures {
        let mut figures = Figures::new();
        for device in self.devices() {
            let used = self.world.used(DeviceIndex(device)).0;
            let charged = self
                .ledger()
                .map(|view| view.usage(ledger::DeviceIndex(device)).0);
            figures.push((used, charged.unwrap_or(0)));
        }
        figures
    }
}

impl Prepared {
    fn of(call: &'static Call) -> Self {
        Self {
            call,
            address: call.address(),
            deaths: oracle::deaths(call.name),
        }
    }
}

pub(crate) fn promise(kept: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(what()) }
}

pub(crate) fn fold(sum: u64, word: u64) -> u64 {
    (sum ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}
