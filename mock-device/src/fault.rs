//! The fault plan: rows `at / when / then`. Consulted in one place, [`crate::World::consult`], which each mock calls from
//! its `boundary::enter`; identity rows are views ([`crate::World::identity`]), missing symbols a list
//! ([`crate::World::missing_symbols`]).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Api, DeviceIndex};

/// Rows that one plan may have: each owns a counter in the world's file.
pub const MAX_FAULTS: usize = 256;

/// What a mock must do with the call it was just asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Consultation {
    /// No fault: act as the driver would.
    Proceed,
    /// Answer this code and do nothing.
    Result(i32),
    /// End the process before the driver acts: [`kill_self`].
    KillBefore,
    /// Act, then end the process before the answer gets back: [`kill_self`].
    KillAfter,
}

/// SIGKILL to the own process.
pub fn kill_self() -> ! {
    crate::os::kill_self()
}

/// All faults of a world, in the order of the file. The first row that applies to a call decides it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// An entry point; `cuda.*`, `nvml.*`, `vulkan.*` for every one of an API, `*` for every one of all; for identity
    /// effects `cuda.identity` and so on; for a missing symbol its name.
    pub at: String,
    #[serde(default)]
    pub when: When,
    pub then: Effect,
    /// Identity effects only: the device whose identity is false; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceIndex>,
    /// Only in processes whose `RINGFENCE_ROLE` is this; other processes' calls are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// Which calls, counted from 1 over all processes of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum When {
    #[default]
    Every,
    Nth(u64),
    From(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Effect {
    Result(i32),
    KillBefore,
    KillAfter,
    Missing,
    Identity(IdentityFault),
}

/// A false identity. Neighbours are 0 and 1, 2 and 3, …; an odd last device exchanges with its predecessor if selected,
/// else with nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityFault {
    /// `uuid:zero`: 16 zero bytes.
    ZeroUuid,
    /// `uuid:duplicate`: all devices show device 0's; with a selector that device shows its neighbour's.
    DuplicateUuid,
    /// `uuid:swapped`: neighbours show each other's.
    SwappedUuid,
    /// `uuid:bytes-swapped`: the first three groups in the other byte order.
    BytesSwappedUuid,
    /// `pci:zero`: 0000:00:00.0.
    ZeroPci,
    /// `pci:swapped`: neighbours show each other's.
    SwappedPci,
}

const EFFECTS: [(&str, Effect); 9] = [
    ("kill-before", Effect::KillBefore),
    ("kill-after", Effect::KillAfter),
    ("missing", Effect::Missing),
    ("uuid:zero", Effect::Identity(IdentityFault::ZeroUuid)),
    (
        "uuid:duplicate",
        Effect::Identity(IdentityFault::DuplicateUuid),
    ),
    ("uuid:swapped", Effect::Identity(IdentityFault::SwappedUuid)),
    (
        "uuid:bytes-swapped",
        Effect::Identity(IdentityFault::BytesSwappedUuid),
    ),
    ("pci:zero", Effect::Identity(IdentityFault::ZeroPci)),
    ("pci:swapped", Effect::Identity(IdentityFault::SwappedPci)),
];

/// A plan that cannot be carried out. Every variant names the input.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    #[error("{input}: not a fault plan: {source}")]
    Syntax {
        input: String,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("{input}: {count} faults, a plan has at most {MAX_FAULTS}")]
    TooMany { input: String, count: usize },
    #[error("{input}: fault {row} at `{at}`: {problem}")]
    Row {
        input: String,
        row: usize,
        at: String,
        problem: &'static str,
    },
}

impl FaultPlan {
    /// A plan from the text of a TOML file; `input` is what errors call it.
    ///
    /// # Errors
    /// Text that is no plan, or a row that could never take effect.
    pub fn parse(input: &str, text: &str) -> Result<Self, FaultError> {
        let plan: Self = toml::from_str(text).map_err(|source| FaultError::Syntax {
            input: input.to_owned(),
            source: Box::new(source),
        })?;
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
            if let Some(problem) = fault.problem() {
                return Err(FaultError::Row {
                    input: input.to_owned(),
                    row,
                    at: fault.at.clone(),
                    problem,
                });
            }
        }
        Ok(())
    }
}

impl Fault {
    /// The API whose identity view this row falsifies.
    #[must_use]
    pub fn identity_api(&self) -> Option<Api> {
        let api = self.at.strip_suffix(".identity")?;
        Api::ALL.into_iter().find(|known| known.name() == api)
    }

    fn problem(&self) -> Option<&'static str> {
        let group = self.at == "*"
            || Api::ALL
                .iter()
                .any(|api| self.at.strip_suffix(".*") == Some(api.name()));
        match self.then {
            Effect::Identity(_) if self.identity_api().is_none() => {
                Some("an identity effect stands at cuda.identity, nvml.identity or vulkan.identity")
            }
            Effect::Identity(_) | Effect::Missing if self.when != When::Every => {
                Some("a view has no n-th call: leave `when` out")
            }
            Effect::Identity(_) => None,
            _ if self.device.is_some() => Some("only identity effects select a device"),
            _ if group && self.then != Effect::Missing => None,
            _ if Api::of_symbol(&self.at).is_none() => Some("no API has a symbol of this name"),
            _ => None,
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().filter(|n| *n > 0);
        let when = match text.strip_suffix("..") {
            None if text == "every" => Some(Self::Every),
            None => number(text).map(Self::Nth),
            Some(first) => number(first).map(Self::From),
        };
        when.ok_or_else(|| {
            format!(
                "`{text}` is not `every`, a number from 1 on, or such a number followed by `..`"
            )
        })
    }
}

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(code) = text.strip_prefix("result:") {
            return code
                .parse()
                .map(Self::Result)
                .map_err(|_| format!("`{text}`: the result is not a number"));
        }
        let known = EFFECTS
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, effect)| *effect);
        known.ok_or_else(|| {
            format!(
                "`{text}` is not result:N or one of {}",
                EFFECTS.map(|(name, _)| name).join(", ")
            )
        })
    }
}

impl TryFrom<String> for When {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        match when {
            When::Every => "every".to_owned(),
            When::Nth(n) => n.to_string(),
            When::From(n) => format!("{n}.."),
        }
    }
}

impl TryFrom<String> for Effect {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Effect> for String {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Result(code) => format!("result:{code}"),
            other => EFFECTS
                .iter()
                .find(|(_, known)| *known == other)
                .map_or_else(Self::new, |(name, _)| (*name).to_owned()),
        }
    }
}
