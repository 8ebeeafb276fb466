//! What the environment asks for. The caller hands in the look-up, so that the environment is read once and nothing here touches it.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use seeds::{Seed, planted};

use crate::{Bytes, DeviceIndex, MAX_DEVICES};
use crate::{percent, size};

/// Where the ledger lies when nothing says otherwise: a tmpfs, because a lock pinned by a mapping does not hold on overlayfs (decision 1).
pub const DEFAULT_LEDGER: &str = "/dev/shm/ringfence.ledger";

/// A device's memory budget as the settings give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Unset, empty or 0, as in HAMi-core.
    Unlimited,
    Limited(Bytes),
    /// Fails closed: every allocation is refused, and the one line on stderr names the variable.
    Unparsable {
        variable: String,
        text: String,
    },
}

/// A device's compute budget as the settings give it: the share of the time in which the tenant has work on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComputeBudget {
    /// Unset, empty, 0, or 100 and more, as in HAMi-core.
    Unlimited,
    /// Hundredths of a percent: 1 to 9,999.
    Limited(u16),
    /// Fails closed, as a memory budget does.
    Unparsable { variable: String, text: String },
}

impl ComputeBudget {
    /// As the ledger takes it: hundredths of a percent, 0 where it says nothing or nonsense (which grants nothing by itself).
    #[must_use]
    pub fn hundredths(&self) -> u16 {
        match self {
            ComputeBudget::Limited(hundredths) => *hundredths,
            ComputeBudget::Unlimited | ComputeBudget::Unparsable { .. } => 0,
        }
    }
}

/// GPU_CORE_UTILIZATION_POLICY: whether compute budgets are kept. HAMi-core's node monitor may lift the budgets of a tenant under
/// `Default`; there is no such monitor here, so that they are kept under both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UtilizationPolicy {
    #[default]
    Default,
    Force,
    Disable,
}

/// CUDA_TASK_PRIORITY: 0 goes before 1. HAMi-core only hands it to its node monitor, which may stop the launches of containers of a
/// lower priority on the same device. Kept for whoever asks; it changes nothing within a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPriority(pub u8);

impl Default for TaskPriority {
    fn default() -> Self {
        TaskPriority(1)
    }
}

/// Whether the memory of contexts counts against the budget (decision 12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextCharge {
    #[default]
    Count,
    Free,
}

/// How `VK_EXT_memory_budget` is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BudgetReport {
    /// Within the specification.
    #[default]
    Standard,
    /// The driver's budget stays and usage is inflated, for engines that hang otherwise (defect V4).
    Inflate,
    /// So for the engines of these names (VkApplicationInfo::pEngineName), within the specification for all others.
    InflateFor(Vec<String>),
}

impl BudgetReport {
    /// Whether a program of this engine is told the driver's budget.
    #[must_use]
    pub fn inflates(&self, engine: Option<&str>) -> bool {
        match self {
            BudgetReport::Standard => false,
            BudgetReport::Inflate => true,
            BudgetReport::InflateFor(names) => {
                engine.is_some_and(|engine| names.iter().any(|name| name == engine))
            }
        }
    }

    /// `standard`, `inflate`, or `inflate:` and names.
    fn read(text: &str) -> Option<BudgetReport> {
        let (word, names) = text
            .split_once(':')
            .map_or((text, None), |(word, names)| (word, Some(names)));
        let word = word.trim();
        if word.eq_ignore_ascii_case("standard") && names.is_none() {
            return Some(BudgetReport::Standard);
        }
        if !word.eq_ignore_ascii_case("inflate") {
            return None;
        }
        let Some(names) = names else {
            return Some(BudgetReport::Inflate);
        };
        let names: Vec<_> = names
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        (!names.is_empty()).then_some(BudgetReport::InflateFor(names))
    }
}

/// LIBCUDA_LOG_LEVEL, 0 (errors) to 4 (each hook entered).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(pub u8);

/// Something that a user should be told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Two variables give one device different budgets; the first is used.
    Disagreement { used: String, ignored: String },
    /// A setting that is not a budget has a value without meaning; its default is used.
    Meaningless { variable: String, text: String },
    /// A setting that another process of the tenant's has not, which is the stricter.
    Outvoted {
        variable: &'static str,
        held: &'static str,
    },
    /// A name of ours that is no setting, and the setting that it is nearest to.
    Unknown {
        variable: String,
        nearest: Option<String>,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::Disagreement { used, ignored } => {
                write!(out, "{used} and {ignored} differ; {used} is used")
            }
            Remark::Meaningless { variable, text } => {
                write!(
                    out,
                    "{variable}={text:?} means nothing; the default is used"
                )
            }
            Remark::Outvoted { variable, held } => {
                write!(
                    out,
                    "{variable} is {held} here, as the tenant's ledger has it"
                )
            }
            Remark::Unknown { variable, nearest } => {
                write!(out, "{variable} is no setting and changes nothing")?;
                match nearest {
                    Some(nearest) => write!(out, "; {nearest} is one"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Everything the environment says, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// [`MAX_DEVICES`] of each. In the heap: settings are read on the stack of whichever thread comes first.
    memory: Vec<Budget>,
    compute: Vec<ComputeBudget>,
    pub utilization_policy: UtilizationPolicy,
    pub task_priority: TaskPriority,
    pub ledger: PathBuf,
    pub context_charge: ContextCharge,
    pub budget_report: BudgetReport,
    /// `None`: unset, only the once-only lines appear.
    pub log_level: Option<LogLevel>,
    /// RINGFENCE_TRACE: the enforcer's own decisions as JSON lines.
    pub trace: Option<PathBuf>,
    /// HAMI_VK_TRACE=1: the layer's decisions on stderr.
    pub vulkan_trace: bool,
    pub remarks: Vec<Remark>,
    pub source: Source,
    /// RINGFENCE_REQUIRED: without a memory budget nothing is granted.
    pub required: bool,
    unreadable: Option<Refusal>,
}

/// Whose word the budgets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// An environment: any program may change its own.
    #[default]
    Environment,
    /// A tenant file, which is the owner's.
    TenantFile,
}

/// Why nothing can be granted, as one line says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A budget that could not be read.
    Budget { variable: String, text: String },
    /// A place with settings that says nothing.
    Place { place: String, reason: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Budget { variable, text } => write!(out, "{variable}={text:?} is not a size"),
            Refusal::Place { place, reason } => write!(out, "{place}: {reason}"),
        }
    }
}

/// Nothing is granted to who has no memory budget: set by the owner where every process is to have one.
pub const REQUIRED: &str = "RINGFENCE_REQUIRED";
/// Budgets of one device or, without an index, of all.
const MEMORY: [&str; 2] = ["RINGFENCE_MEMORY", "CUDA_DEVICE_MEMORY_LIMIT"];
const COMPUTE: [&str; 2] = ["RINGFENCE_COMPUTE", "CUDA_DEVICE_SM_LIMIT"];
/// What else changes what is enforced.
const ENFORCING: [&str; 6] = [
    REQUIRED,
    "RINGFENCE_LEDGER",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "RINGFENCE_CONTEXT_CHARGE",
    "GPU_CORE_UTILIZATION_POLICY",
    "CUDA_TASK_PRIORITY",
];
/// What does not.
const TELLING: [&str; 4] = [
    "RINGFENCE_VK_BUDGET",
    "LIBCUDA_LOG_LEVEL",
    "RINGFENCE_TRACE",
    "HAMI_VK_TRACE",
];

/// Names of ours that the harness and its tests use; a program that has them by accident is told nothing.
const OF_THE_HARNESS: [&str; 16] = [
    "BENCH_",
    "ICD_",
    "LAYER_",
    "LIB_",
    "MACHINE",
    "PROPERTIES_",
    "RECORD",
    "REQUIRE_",
    "ROLE",
    "SEED",
    "SHOW",
    "STORM_",
    "TEST_",
    "VALIDATION",
    "WORLD",
    "WRAP",
];

/// Whether a variable is one of ours.
#[must_use]
pub fn is_setting(name: &str) -> bool {
    enforces(name) || TELLING.contains(&name)
}

/// Whether a variable changes what is enforced.
#[must_use]
pub fn enforces(name: &str) -> bool {
    let of_family = |family: &str| match name.strip_prefix(family) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('_')
            .is_some_and(|index| slot_of(index).is_some()),
        None => false,
    };
    ENFORCING.contains(&name) || families().any(of_family)
}

/// Whether an entry of an environment, `NAME=value`, is a setting's, or begins like one. Allocates nothing.
#[must_use]
pub fn concerns(entry: &[u8]) -> bool {
    let names = families().chain(ENFORCING).chain(TELLING);
    names
        .chain(["RINGFENCE_"])
        .any(|name| entry.starts_with(name.as_bytes()))
}

/// Names of budgets, without a device's index.
fn families() -> impl Iterator<Item = &'static str> {
    MEMORY.into_iter().chain(COMPUTE)
}

/// The device's place that an index names: written as we read it, and no greater than we have places.
fn slot_of(index: &str) -> Option<usize> {
    let slot = index.parse::<usize>().ok()?;
    (slot < MAX_DEVICES && slot.to_string() == index).then_some(slot)
}

/// A budget's name with an index that is none: `RINGFENCE_MEMORY_01`, `CUDA_DEVICE_MEMORY_LIMIT_99`. Whoever wrote it meant to limit something.
fn is_misplaced(name: &str) -> bool {
    families().any(|family| {
        let index = name
            .strip_prefix(family)
            .and_then(|rest| rest.strip_prefix('_'));
        index.is_some_and(|index| {
            let number = index.trim_start_matches('+').trim();
            slot_of(index).is_none()
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

/// The setting that a name was probably meant to be: at most three letters away, an index aside.
fn nearest(name: &str) -> Option<String> {
    let (stem, index) = match name.rsplit_once('_') {
        Some((stem, index)) if slot_of(index).is_some() => (stem, Some(index)),
        _ => (name, None),
    };
    let known = families().chain(ENFORCING).chain(TELLING);
    let (distance, found) = known.map(|known| (distance(stem, known), known)).min()?;
    let index = index.filter(|_| families().any(|family| family == found));
    (distance <= 3).then(|| match index {
        Some(index) => format!("{found}_{index}"),
        None => found.to_owned(),
    })
}

/// How many letters have to be changed, added or taken away to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = at + 1;
        for (column, with) in other.bytes().enumerate() {
            let changed = corner + usize::from(letter != with);
            corner = row[column + 1];
            row[column + 1] = changed.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// Whether the harness has this name.
fn is_of_the_harness(name: &str) -> bool {
    let rest = name.strip_prefix("RINGFENCE_");
    rest.is_some_and(|rest| OF_THE_HARNESS.iter().any(|begin| rest.starts_with(begin)))
}

impl Settings {
    /// Reads every setting through `get`, which answers a variable's raw value.
    pub fn read(get: &dyn Fn(&str) -> Option<Vec<u8>>) -> Settings {
        let mut remarks = Vec::new();
        Settings {
            memory: memory(get, &mut remarks),
            compute: compute(get, &mut remarks),
            utilization_policy: choice(
                get,
                "GPU_CORE_UTILIZATION_POLICY",
                &[
                    ("default", UtilizationPolicy::Default),
                    ("force", UtilizationPolicy::Force),
                    ("disable", UtilizationPolicy::Disable),
                ],
                &mut remarks,
            )
            .unwrap_or_default(),
            task_priority: choice(
                get,
                "CUDA_TASK_PRIORITY",
                &[("0", TaskPriority(0)), ("1", TaskPriority(1))],
                &mut remarks,
            )
            .unwrap_or_default(),
            ledger: ledger(get),
            context_charge: choice(
                get,
                "RINGFENCE_CONTEXT_CHARGE",
                &[
                    ("count", ContextCharge::Count),
                    ("free", ContextCharge::Free),
                ],
                &mut remarks,
            )
            .unwrap_or_default(),
            budget_report: budget_report(get, &mut remarks).unwrap_or_default(),
            log_level: choice(
                get,
                "LIBCUDA_LOG_LEVEL",
                &[
                    ("0", LogLevel(0)),
                    ("1", LogLevel(1)),
                    ("2", LogLevel(2)),
                    ("3", LogLevel(3)),
                    ("4", LogLevel(4)),
                ],
                &mut remarks,
            ),
            trace: path(get, "RINGFENCE_TRACE"),
            vulkan_trace: choice(
                get,
                "HAMI_VK_TRACE",
                &[("1", true), ("0", false)],
                &mut remarks,
            )
            .unwrap_or(false),
            remarks,
            source: Source::default(),
            required: is_required(get),
            unreadable: None,
        }
    }

    /// Looks at the names of the environment that the settings were read from: a budget of a device that there cannot be refuses all, any other name
    /// of ours that is no setting is remarked on.
    pub fn look_through<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if is_misplaced(name) {
                let reason = format!(
                    "no device has this index; they are 0 to {}",
                    MAX_DEVICES - 1
                );
                self.refuse(name.to_owned(), reason);
            } else if name.starts_with("RINGFENCE_")
                && !is_setting(name)
                && !is_of_the_harness(name)
            {
                self.remarks.push(Remark::Unknown {
                    variable: name.to_owned(),
                    nearest: nearest(name),
                });
            }
        }
    }

    /// Grants nothing where a budget is set and the ledger's place depends on the working directory: a tenant's processes would have one in each.
    pub fn hold_to_one_ledger(&mut self) {
        if self.any_budget() && self.refusal().is_none() && !self.ledger.is_absolute() {
            let place = format!("the ledger's path {}", self.ledger.display());
            self.refuse(place, "it is not absolute".to_owned());
        }
    }

    /// Grants nothing if a budget is required and there is none, by whatever place.
    pub fn hold_to_required(&mut self) {
        let limited = |budget: &Budget| matches!(budget, Budget::Limited(_));
        if self.required
            && !planted(Seed::P11)
            && self.refusal().is_none()
            && !self.memory.iter().any(limited)
        {
            let reason = "a memory budget is required and none is set";
            self.refuse(REQUIRED.to_owned(), reason.to_owned());
        }
    }

    /// Grants nothing from here on: a place that holds settings could not be read.
    pub fn refuse(&mut self, place: String, reason: String) {
        self.unreadable = Some(Refusal::Place { place, reason });
    }

    /// Counts what contexts take, as another process of the tenant does: a budget that one can leave them out of is none (P18 of `fixtures/defects.txt`).
    pub fn count_contexts(&mut self) {
        if self.context_charge == ContextCharge::Free && !planted(Seed::P18) {
            self.context_charge = ContextCharge::Count;
            self.remarks.push(Remark::Outvoted {
                variable: "RINGFENCE_CONTEXT_CHARGE",
                held: "count",
            });
        }
    }

    /// Takes over what a tenant's ledger says already of a device, where nothing is said here: who was told of no budget keeps the
    /// others' all the same. `hundredths` of a percent of its time, 0 where all of it.
    pub fn adopt(&mut self, device: DeviceIndex, memory: Option<Bytes>, hundredths: u16) {
        let Some(slot) = device.slot() else { return };
        if let Some(memory) = memory
            && self.memory[slot] == Budget::Unlimited
        {
            self.memory[slot] = Budget::Limited(memory);
        }
        if hundredths == 0 {
            return;
        }
        if self.utilization_policy == UtilizationPolicy::Disable {
            self.compute.fill(ComputeBudget::Unlimited);
            self.utilization_policy = UtilizationPolicy::Default;
        }
        if self.compute[slot] == ComputeBudget::Unlimited {
            self.compute[slot] = ComputeBudget::Limited(hundredths);
        }
    }

    /// The budget of one device; an index beyond the ledger's has none of its own and answers the default's strictest reading, `Limited(0)`,
    /// as soon as any budget is set.
    #[must_use]
    pub fn memory(&self, device: DeviceIndex) -> Budget {
        match device.slot() {
            Some(slot) => self.memory[slot].clone(),
            None if self.any_budget() => Budget::Limited(Bytes::ZERO),
            None => Budget::Unlimited,
        }
    }

    /// The compute budget of one device. What no policy keeps is none; a device beyond the ledger's has none.
    #[must_use]
    pub fn compute(&self, device: DeviceIndex) -> ComputeBudget {
        match device.slot() {
            Some(slot) if self.utilization_policy != UtilizationPolicy::Disable => {
                self.compute[slot].clone()
            }
            _ => ComputeBudget::Unlimited,
        }
    }

    /// Whether any launch is to be looked at.
    #[must_use]
    pub fn any_compute_budget(&self) -> bool {
        DeviceIndex::all().any(|device| self.compute(device) != ComputeBudget::Unlimited)
    }

    /// Whether anything is to be enforced at all. Where not, a library forwards and touches nothing.
    #[must_use]
    pub fn any_budget(&self) -> bool {
        self.unreadable.is_some()
            || self.any_compute_budget()
            || self
                .memory
                .iter()
                .any(|budget| *budget != Budget::Unlimited)
    }

    /// So many devices have budgets that are not those of all others: the container has no fewer.
    #[must_use]
    pub fn told_apart(&self) -> usize {
        let of = |slot: usize| (&self.memory[slot], &self.compute[slot]);
        let others = of(MAX_DEVICES - 1);
        (0..MAX_DEVICES)
            .rposition(|slot| of(slot) != others)
            .map_or(0, |last| last + 1)
    }

    /// The first budget that could not be read: (variable, text).
    #[must_use]
    pub fn unparsable(&self) -> Option<(&str, &str)> {
        let memory = self.memory.iter().find_map(|budget| match budget {
            Budget::Unparsable { variable, text } => Some((variable.as_str(), text.as_str())),
            _ => None,
        });
        memory.or_else(|| {
            self.compute.iter().find_map(|budget| match budget {
                ComputeBudget::Unparsable { variable, text } => {
                    Some((variable.as_str(), text.as_str()))
                }
                _ => None,
            })
        })
    }

    /// Why nothing can be granted, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let budget = || {
            let (variable, text) = self.unparsable()?;
            Some(Refusal::Budget {
                variable: variable.to_owned(),
                text: text.to_owned(),
            })
        };
        self.unreadable.clone().or_else(budget)
    }

    /// The budgets as the ledger takes them. One that could not be read is 0 bytes: nothing is granted.
    #[must_use]
    pub fn budgets(&self) -> [Option<Bytes>; MAX_DEVICES] {
        std::array::from_fn(|slot| match &self.memory[slot] {
            _ if self.unreadable.is_some() => Some(Bytes::ZERO),
            Budget::Unlimited => None,
            Budget::Limited(bytes) => Some(*bytes),
            Budget::Unparsable { .. } => Some(Bytes::ZERO),
        })
    }
}

/// One variable's reading as a budget; `None` where it says nothing (unset, empty, 0).
fn budget(get: &dyn Fn(&str) -> Option<Vec<u8>>, variable: &str) -> Option<Budget> {
    let text = get(variable)?;
    match size::parse(&text) {
        Ok(Bytes(0)) | Err(size::SizeError::Empty) => None,
        Ok(bytes) => Some(Budget::Limited(bytes)),
        Err(_) if planted(Seed::R11) => None,
        Err(_) => Some(Budget::Unparsable {
            variable: variable.to_owned(),
            text: String::from_utf8_lossy(&text).into_owned(),
        }),
    }
}

/// One variable's reading as a compute budget; `None` where it says nothing.
fn compute_budget(get: &dyn Fn(&str) -> Option<Vec<u8>>, variable: &str) -> Option<ComputeBudget> {
    let text = get(variable)?;
    match percent::parse(&text) {
        Ok(0) | Err(size::SizeError::Empty) => None,
        Ok(hundredths @ 1..10_000) => Some(ComputeBudget::Limited(hundredths as u16)),
        Ok(_) => Some(ComputeBudget::Unlimited),
        Err(_) => Some(ComputeBudget::Unparsable {
            variable: variable.to_owned(),
            text: String::from_utf8_lossy(&text).into_owned(),
        }),
    }
}

fn memory(get: &dyn Fn(&str) -> Option<Vec<u8>>, remarks: &mut Vec<Remark>) -> Vec<Budget> {
    by_device(MEMORY, &|variable| budget(get, variable), remarks)
        .map(|budget| budget.unwrap_or(Budget::Unlimited))
        .collect()
}

fn compute(get: &dyn Fn(&str) -> Option<Vec<u8>>, remarks: &mut Vec<Remark>) -> Vec<ComputeBudget> {
    by_device(COMPUTE, &|variable| compute_budget(get, variable), remarks)
        .map(|budget| budget.unwrap_or(ComputeBudget::Unlimited))
        .collect()
}

/// Our own names win over HAMi-core's, and in each family the device's own variable over the default for all.
fn by_device<T: Clone + PartialEq>(
    families: [&str; 2],
    read: &dyn Fn(&str) -> Option<T>,
    remarks: &mut Vec<Remark>,
) -> impl Iterator<Item = Option<T>> {
    let defaults = families.map(|family| read(family).map(|budget| (family.to_owned(), budget)));
    (0..MAX_DEVICES).map(move |slot| {
        let [ours, theirs] = [0, 1].map(|family: usize| {
            let variable = format!("{}_{slot}", families[family]);
            read(&variable)
                .map(|budget| (variable, budget))
                .or_else(|| defaults[family].clone())
        });
        if let (Some((used, ours)), Some((ignored, theirs))) = (&ours, &theirs) {
            let remark = Remark::Disagreement {
                used: used.clone(),
                ignored: ignored.clone(),
            };
            if ours != theirs && !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        ours.or(theirs).map(|(_, budget)| budget)
    })
}

/// Anything but nothing and 0 asks for it: fails closed.
fn is_required(get: &dyn Fn(&str) -> Option<Vec<u8>>) -> bool {
    get(REQUIRED).is_some_and(|text| !matches!(text.trim_ascii(), b"" | b"0"))
}

fn budget_report(
    get: &dyn Fn(&str) -> Option<Vec<u8>>,
    remarks: &mut Vec<Remark>,
) -> Option<BudgetReport> {
    const VARIABLE: &str = "RINGFENCE_VK_BUDGET";
    let text = String::from_utf8_lossy(&get(VARIABLE)?).into_owned();
    if text.trim().is_empty() {
        return None;
    }
    let found = BudgetReport::read(&text);
    if found.is_none() {
        remarks.push(Remark::Meaningless {
            variable: VARIABLE.to_owned(),
            text,
        });
    }
    found
}

fn ledger(get: &dyn Fn(&str) -> Option<Vec<u8>>) -> PathBuf {
    path(get, "RINGFENCE_LEDGER")
        .or_else(|| {
            // HAMi's monitor maps `*.cache`: its file is left alone (decision 9).
            let mut beside = path(get, "CUDA_DEVICE_MEMORY_SHARED_CACHE")?.into_os_string();
            beside.push(".ringfence");
            Some(PathBuf::from(beside))
        })
        .unwrap_or_else(|| PathBuf::from(DEFAULT_LEDGER))
}

fn path(get: &dyn Fn(&str) -> Option<Vec<u8>>, variable: &str) -> Option<PathBuf> {
    get(variable)
        .filter(|text| !text.is_empty())
        .map(|text| PathBuf::from(OsString::from_vec(text)))
}

fn choice<T: Copy>(
    get: &dyn Fn(&str) -> Option<Vec<u8>>,
    variable: &str,
    values: &[(&str, T)],
    remarks: &mut Vec<Remark>,
) -> Option<T> {
    let text = get(variable)?;
    let trimmed = text.trim_ascii();
    if trimmed.is_empty() {
        return None;
    }
    let found = values
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(trimmed))
        .map(|(_, value)| *value);
    if found.is_none() {
        remarks.push(Remark::Meaningless {
            variable: variable.to_owned(),
            text: String::from_utf8_lossy(&text).into_owned(),
        });
    }
    found
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
