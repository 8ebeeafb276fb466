//! What lies under the enforcer: the mock drivers over a simulated machine, or the system's own driver.

use std::fmt;
use std::str::FromStr;

/// The machine of a case that names none, and of `--driver mock`.
pub const DEFAULT_PROFILE: &str = "rtx6000-ada";
/// The driver generation that the mocks are built as.
pub const DEFAULT_GENERATION: &str = "580";

/// `mock:rtx6000-ada+580`, `mock:rtx6000-ada*2` or `real`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Driver {
    Mock {
        /// Embedded profile, with `*n` for n such GPUs.
        profile: String,
        generation: String,
    },
    Real,
}

/// Why a driver's spelling does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    #[error(
        "\"{text}\" is not a driver: write real, mock, mock:PROFILE or mock:PROFILE+GENERATION"
    )]
    Unknown { text: String },
    #[error(
        "driver \"{text}\" asks for generation {generation}; the mocks can be {DEFAULT_GENERATION}"
    )]
    Generation { text: String, generation: String },
    #[error("driver \"{text}\": {reason}")]
    Profile { text: String, reason: String },
}

impl Driver {
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real)
    }

    /// The machine that a case gets. The driver's profile stands in for the default one, how many GPUs is the case's
    /// affair; a case that names another machine needs its shape and keeps it.
    pub fn machine_for(&self, machine: &str) -> Option<String> {
        let Self::Mock { profile, .. } = self else {
            return None;
        };
        match machine.strip_prefix(DEFAULT_PROFILE) {
            Some("") => Some(profile.clone()),
            Some(count) if count.starts_with('*') => {
                let base = profile.split('*').next().unwrap_or(profile);
                Some(format!("{base}{count}"))
            }
            _ => Some(machine.to_owned()),
        }
    }

    /// What expectation files call it, the most precise name first.
    pub fn file_names(&self) -> Vec<String> {
        match self {
            Self::Mock {
                profile,
                generation,
            } => vec![format!("mock-{profile}+{generation}"), "mock".to_owned()],
            Self::Real => vec!["real".to_owned()],
        }
    }
}

impl Default for Driver {
    fn default() -> Self {
        Self::Mock {
            profile: DEFAULT_PROFILE.to_owned(),
            generation: DEFAULT_GENERATION.to_owned(),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mock {
                profile,
                generation,
            } => write!(out, "mock:{profile}+{generation}"),
            Self::Real => out.write_str("real"),
        }
    }
}

impl FromStr for Driver {
    type Err = DriverError;

    fn from_str(text: &str) -> Result<Self, DriverError> {
        let rest = match text {
            "real" => return Ok(Self::Real),
            "mock" => return Ok(Self::default()),
            _ => text
                .strip_prefix("mock:")
                .ok_or_else(|| DriverError::Unknown {
                    text: text.to_owned(),
                })?,
        };
        let (profile, generation) = rest.split_once('+').unwrap_or((rest, DEFAULT_GENERATION));
        if generation != DEFAULT_GENERATION {
            return Err(DriverError::Generation {
                text: text.to_owned(),
                generation: generation.to_owned(),
            });
        }
        if profile.is_empty() {
            return Err(DriverError::Unknown {
                text: text.to_owned(),
            });
        }
        mock_device::profile::embedded(profile).map_err(|error| DriverError::Profile {
            text: text.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self::Mock {
            profile: profile.to_owned(),
            generation: generation.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("real", "real")]
    #[case("mock", "mock:rtx6000-ada+580")]
    #[case("mock:h200", "mock:h200+580")]
    #[case("mock:rtx6000-ada*2+580", "mock:rtx6000-ada*2+580")]
    fn a_driver_reads_back_as_its_full_spelling(#[case] text: &str, #[case] full: &str) {
        assert_eq!(
            text.parse::<Driver>().map(|driver| driver.to_string()),
            Ok(full.to_owned())
        );
    }

    #[test]
    fn an_unknown_driver_generation_or_profile_is_named() {
        let text = "mocks".to_owned();
        assert_eq!(
            "mocks".parse::<Driver>(),
            Err(DriverError::Unknown { text })
        );
        assert!(
            matches!("mock:h200+470".parse::<Driver>(), Err(DriverError::Generation { generation, .. }) if generation == "470")
        );
        assert!(
            matches!("mock:h900".parse::<Driver>(), Err(DriverError::Profile { text, .. }) if text == "mock:h900")
        );
    }

    #[test]
    fn the_drivers_profile_stands_in_for_the_default_machine_only() {
        let driver: Driver = "mock:h200".parse().expect("a known profile");
        assert_eq!(driver.machine_for("rtx6000-ada").as_deref(), Some("h200"));
        assert_eq!(
            driver.machine_for("rtx6000-ada*4").as_deref(),
            Some("h200*4")
        );
        assert_eq!(driver.machine_for("tiny").as_deref(), Some("tiny"));
    }
}
