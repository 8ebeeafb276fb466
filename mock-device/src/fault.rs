//! The fault plan: rows `at / when / then`, the same for all three libraries.
//!
//! Faults are consulted in one place, [`crate::World::consult`], which each mock calls from its `boundary::enter` and lets
//! [`Consultation::carry_out`] do. Rows of views are asked for by who shows devices: [`crate::World::identity`],
//! [`crate::World::shown`], [`crate::World::reserve`]; missing symbols are a list ([`crate::World::missing_symbols`]), and
//! whoever makes the environment leaves out the libraries of [`FaultPlan::absent`].

pub mod at;
pub mod effect;
pub mod when;

use serde::{Deserialize, Serialize};

pub use at::{At, fits};
pub use effect::{Alteration, DevicesFault, Effect, IdentityFault, Setting};
pub use when::When;

use crate::boundary::Parameters;
use crate::units::{Api, DeviceIndex};

/// Rows that one plan may have: each owns a counter in the world's file.
pub const MAX_FAULTS: usize = 256;

/// What a mock must do with the call it was just asked about: let [`Consultation::carry_out`] do it, and, when the trace
/// has its line, [`Consultation::afterwards`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Consultation<'a> {
    /// No fault: act as the driver would.
    Proceed,
    /// Answer this code and do nothing.
    Result(i32),
    /// Answer success and do nothing.
    Untouched,
    /// Act; the kernels that the call launches end with this code.
    KernelFault(i32),
    /// Act, and change what is answered.
    Altered(&'a Alteration),
    /// End the process before the driver acts.
    KillBefore,
    /// Act, then end the process before the answer gets back.
    KillAfter,
}

/// The fields of a C structure by the name of its type: name and offset of each.
pub type Fields = fn(&str) -> &'static [(&'static str, usize)];

/// No structure's fields are known.
pub const NO_FIELDS: Fields = |_| &[];

impl Consultation<'_> {
    /// Carries out one call. `of_code` is what the entry point answers for a code; `None` where it answers none, and then
    /// the call is carried out.
    #[inline]
    pub fn carry_out<R>(
        self,
        of_code: impl Fn(i32) -> Option<R>,
        parameters: impl Fn() -> Parameters,
        fields: Fields,
        act: impl FnOnce() -> R,
    ) -> R {
        match self {
            Self::Proceed | Self::KillAfter | Self::KernelFault(_) => act(),
            Self::KillBefore => kill_self(),
            Self::Result(code) => of_code(code).unwrap_or_else(act),
            Self::Untouched => of_code(0).unwrap_or_else(act),
            Self::Altered(alteration) => {
                let parameters = parameters();
                let answer = act();
                alteration.apply(&parameters, fields);
                match alteration {
                    Alteration::Set(_) | Alteration::NullFunction => of_code(0).unwrap_or(answer),
                    Alteration::Short(_) | Alteration::WrongVersion => answer,
                }
            }
        }
    }

    /// How the kernels end that the call launches, if that is the fault.
    #[must_use]
    pub fn kernel_fault(self) -> Option<i32> {
        match self {
            Self::KernelFault(code) => Some(code),
            _ => None,
        }
    }

    /// Ends the process, if that is the fault.
    #[inline]
    pub fn afterwards(self) {
        if self == Self::KillAfter {
            kill_self()
        }
    }
}

impl Alteration {
    fn apply(&self, parameters: &Parameters, fields: Fields) {
        match self {
            Self::Set(setting) => {
                if let Some(parameter) = parameters.find(&setting.parameter) {
                    let known = fields(pointee(parameter.kind));
                    let field = known.iter().enumerate();
                    let (offset, width) = match &setting.field {
                        None => (0, parameter.size),
                        Some(wanted) => {
                            let Some((at, (_, offset))) = field
                                .into_iter()
                                .find(|(_, (name, _))| name.eq_ignore_ascii_case(wanted))
                            else {
                                return;
                            };
                            let end = known.get(at + 1).map_or(parameter.size, |(_, next)| *next);
                            (*offset, end - offset)
                        }
                    };
                    parameter.write(offset, width, setting.value as u64);
                }
            }
            Self::NullFunction => {
                let function = parameters.0.iter().find(|parameter| {
                    parameter.size == size_of::<usize>() && parameter.kind.contains("c_void")
                });
                if let Some(function) = function {
                    function.write(0, function.size, 0);
                }
            }
            Self::Short(most) => {
                for count in parameters.0.iter().filter(|one| one.is_count()) {
                    if let Some(value) = count.read(count.size) {
                        let short = most.map_or(value / 2, |most| most.min(value));
                        count.write(0, count.size, short);
                    }
                }
            }
            Self::WrongVersion => {
                for parameter in &parameters.0 {
                    let first = fields(pointee(parameter.kind)).first();
                    if first.is_some_and(|(name, _)| *name == "version")
                        && let Some(version) = parameter.read(4)
                    {
                        // The version's number is in the highest byte.
                        parameter.write(0, 4, version + (1 << 24));
                    }
                }
            }
        }
    }
}

/// `nvmlMemory_t` of `*mut nvmlMemory_t`.
fn pointee(kind: &str) -> &str {
    kind.rsplit([' ', ':']).next().unwrap_or(kind)
}

/// SIGKILL to the own process.
pub fn kill_self() -> ! {
    crate::os::kill_self()
}

/// All faults of a world, in the order of the file. The first row that applies to a call decides it; delays come on top.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// An entry point (for a missing symbol: its name), a pattern with `*`, `cuda.*` and so on for every one of an API, `*`
    /// for every one of all, one of the [`at::GROUPS`]; for views `cuda.identity`, `cuda.devices`, `cuda.library` and so on.
    pub at: String,
    #[serde(default)]
    pub when: When,
    pub then: Effect,
    /// Only this device is false, hidden or lost; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceIndex>,
    /// Only in processes whose `RINGFENCE_ROLE` is this; other processes' calls are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A plan that cannot be carried out. Every variant names the input.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    #[error("{input}: not a fault plan: {source}")]
    Syntax {
        input: String,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("{input}: not a fault plan: there is `{found}`, where `[[fault]]` rows belong")]
    Shape { input: String, found: String },
    #[error("{input}: {count} faults, a plan has at most {MAX_FAULTS}")]
    TooMany { input: String, count: usize },
    #[error("{input}: fault {row} at `{at}`: {field}: {problem}")]
    Row {
        input: String,
        /// From 0, in the order of the file.
        row: usize,
        at: String,
        /// `at`, `when`, `then`, `device`, `role`, or one that there is not.
        field: String,
        problem: String,
    },
}

impl FaultPlan {
    /// A plan from the text of a TOML file; `input` is what errors call it.
    ///
    /// # Errors
    /// Text that is no plan, or a row that could never take effect.
    pub fn parse(input: &str, text: &str) -> Result<Self, FaultError> {
        let table: toml::Table = toml::from_str(text).map_err(|source| FaultError::Syntax {
            input: input.to_owned(),
            source: Box::new(source),
        })?;
        let shape = |found: &str| FaultError::Shape {
            input: input.to_owned(),
            found: found.to_owned(),
        };
        let mut plan = Self::default();
        for (key, value) in table {
            let rows = (key == "fault").then_some(value);
            let Some(toml::Value::Array(rows)) = rows else {
                return Err(shape(&key));
            };
            for row in rows {
                let row = row
                    .try_into()
                    .map_err(|_| shape("a fault that is no table"))?;
                let fault = Fault::read(&row).map_err(|(field, problem)| FaultError::Row {
                    input: input.to_owned(),
                    row: plan.faults.len(),
                    at: text_of(&row, "at"),
                    field,
                    problem,
                })?;
                plan.faults.push(fault);
            }
        }
        plan.check(input)?;
        Ok(plan)
    }

    /// # Errors
    /// More than [`MAX_FAULTS`] rows, or the first row that could never take effect.
    pub fn check(&self, input: &str) -> Result<(), FaultError> {
        if self.faults.len() > MAX_FAULTS {
            return Err(FaultError::TooMany {
                input: input.to_owned(),
                count: self.faults.len(),
            });
        }
        for (row, fault) in self.faults.iter().enumerate() {
            if let Some((field, problem)) = fault.problem() {
                return Err(FaultError::Row {
                    input: input.to_owned(),
                    row,
                    at: fault.at.clone(),
                    field: field.to_owned(),
                    problem,
                });
            }
        }
        Ok(())
    }

    /// Libraries that the environment does not have.
    pub fn absent(&self) -> impl Iterator<Item = Api> {
        self.faults
            .iter()
            .filter(|fault| fault.then == Effect::Absent)
            .filter_map(|fault| match fault.place() {
                At::Library(api) => Some(api),
                _ => None,
            })
    }
}

/// Whether a row of a view is about the devices that this API shows.
#[must_use]
pub fn shows_devices(at: &At, api: Api) -> bool {
    matches!(at, At::Devices(apis) if apis.contains(&api))
}

fn text_of(row: &toml::Table, field: &str) -> String {
    row.get(field)
        .and_then(|value| value.as_str())
        .unwrap_or_default()
        .to_owned()
}

impl Fault {
    /// One row; the error is the field and what is wrong with it.
    fn read(row: &toml::Table) -> Result<Self, (String, String)> {
        const KNOWN: [&str; 5] = ["at", "when", "then", "device", "role"];
        if let Some(field) = row.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return Err((field.clone(), format!("a fault has {}", KNOWN.join(", "))));
        }
        let text = |field: &'static str| match row.get(field) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err((field.to_owned(), "not a text".to_owned())),
        };
        let needed = |field| text(field)?.ok_or((field.to_owned(), "is not there".to_owned()));
        let device = match row.get("device") {
            None => None,
            Some(value) => Some(
                value
                    .as_integer()
                    .and_then(|number| u32::try_from(number).ok())
                    .map(DeviceIndex)
                    .ok_or(("device".to_owned(), "not a device's number".to_owned()))?,
            ),
        };
        Ok(Self {
            at: needed("at")?.to_owned(),
            when: text("when")?
                .map(|when| when.parse().map_err(|problem| ("when".to_owned(), problem)))
                .transpose()?
                .unwrap_or_default(),
            then: needed("then")?
                .parse()
                .map_err(|problem| ("then".to_owned(), problem))?,
            device,
            role: text("role")?.map(str::to_owned),
        })
    }

    /// What `at` says. A row that was checked is at some place.
    #[must_use]
    pub fn place(&self) -> At {
        At::parse(&self.at).unwrap_or(At::Calls(Vec::new()))
    }

    /// The API whose identity view this row falsifies.
    #[must_use]
    pub fn identity_api(&self) -> Option<Api> {
        match self.place() {
            At::Identity(api) => Some(api),
            _ => None,
        }
    }

    /// The symbol that this row takes away, and whose it was.
    #[must_use]
    pub fn missing(&self) -> Option<(Api, &str)> {
        (self.then == Effect::Missing)
            .then(|| Some((Api::of_symbol(&self.at)?, self.at.as_str())))
            .flatten()
    }

    /// Whether it may hit a call of this API.
    #[must_use]
    pub fn hits(&self, api: Api) -> bool {
        !self.place().patterns(api).is_empty()
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let at = match At::parse(&self.at) {
            Ok(at) => at,
            Err(problem) => return Some(("at", problem)),
        };
        let wrong = |field, problem: &str| Some((field, problem.to_owned()));
        let always = self.when == When::Every;
        match (&self.then, &at) {
            (Effect::Identity(_), At::Identity(_)) if always => None,
            (Effect::Devices(DevicesFault::Reserve(_)), At::Devices(apis))
                if !apis.contains(&Api::Nvml) =>
            {
                wrong("at", "the reserve is NVML's: nvml.devices")
            }
            (Effect::Devices(_), At::Devices(_))
                if always || matches!(self.when, When::AfterTime(_)) =>
            {
                let selects = matches!(
                    self.then,
                    Effect::Devices(DevicesFault::Hidden | DevicesFault::Reserve(_))
                );
                match self.device {
                    Some(_) if !selects => wrong("device", "an order or a count is of all devices"),
                    _ => None,
                }
            }
            (Effect::Absent, At::Library(_)) if always && self.role.is_none() => None,
            (Effect::Absent, At::Library(_)) => {
                wrong("role", "a library is absent for all, and from the start")
            }
            (Effect::Missing, At::Calls(_)) if at.name().is_some() && always => None,
            (Effect::Missing, At::Calls(_)) if at.name().is_none() => {
                wrong("at", "one symbol is missing: its exact name")
            }
            (Effect::Identity(_), At::Identity(_)) | (Effect::Missing, At::Calls(_)) => {
                wrong("when", "a view has no n-th call: leave it out")
            }
            (Effect::Devices(_), At::Devices(_)) => wrong(
                "when",
                "a view has no n-th call: leave it out, or `after:` a time",
            ),
            (Effect::Identity(_), _) => wrong(
                "at",
                "an identity effect stands at cuda.identity, nvml.identity or vulkan.identity",
            ),
            (Effect::Devices(_), _) => wrong(
                "at",
                "this effect stands at cuda.devices, nvml.devices, vulkan.devices or *.devices",
            ),
            (Effect::Absent, _) => wrong(
                "at",
                "a library is absent: cuda.library, nvml.library or vulkan.library",
            ),
            (_, At::Calls(patterns)) => self.problem_of_call(patterns),
            _ => wrong("then", "no effect of a call stands at a view"),
        }
    }

    fn problem_of_call(&self, patterns: &[String]) -> Option<(&'static str, String)> {
        let all = |stems: &[&str]| {
            patterns
                .iter()
                .all(|pattern| stems.iter().any(|stem| pattern.starts_with(stem)))
        };
        let wrong = |field, problem: &str| Some((field, problem.to_owned()));
        let look_up = |pattern: &String| {
            pattern.starts_with("cuGetProcAddress")
                || pattern.ends_with("ProcAddr")
                || pattern.ends_with("GetExportTable")
        };
        match &self.then {
            _ if self.device.is_some() && self.then != Effect::Lost => wrong(
                "device",
                "a call's fault selects no device, unless the device is lost",
            ),
            Effect::Altered(Alteration::NullFunction) if !patterns.iter().all(look_up) => wrong(
                "at",
                "only look-ups answer functions: cuda.look-up, vulkan.look-up",
            ),
            Effect::KernelFault(_) if !all(&["cuLaunch", "cuGraphLaunch"]) => {
                wrong("at", "only launches have kernels: cuLaunch*, cuGraphLaunch")
            }
            Effect::Altered(Alteration::WrongVersion) if !all(&["nvml"]) => {
                wrong("at", "only NVML's structures have a version")
            }
            _ => None,
        }
    }
}
