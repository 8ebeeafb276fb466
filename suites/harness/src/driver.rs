//! What lies under the enforcer: the mock drivers over a simulated machine, or the system's own driver.

use std::fmt;
use std::str::FromStr;

use mock_device::{Api, generation, profile};

use crate::symbols;

/// The machine of a case that names none, and of `--driver mock`.
pub const DEFAULT_PROFILE: &str = "rtx6000-ada";
/// The driver generation of the mocks where none is named.
pub const DEFAULT_GENERATION: u16 = 580;

/// How many GPUs the machines of a matrix have.
const LAYOUTS: [u32; 4] = [1, 2, 4, 16];

/// `mock:rtx6000-ada+580`, `mock:h200*2+535`, `mock:h200+535-cuMemAlloc_v2` or `real`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Driver {
    Mock {
        /// Embedded profile or a path to one, with `*n` for n such GPUs.
        profile: String,
        generation: u16,
        /// Exports of the generation that this driver lacks, as spelled.
        without: Vec<String>,
    },
    Real,
}

/// Whether the number of GPUs that a case names may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    Exactly,
    AtLeast,
}

/// Why a driver's spelling does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    #[error(
        "\"{text}\" is not a driver: write real, mock, mock:PROFILE, mock:PROFILE+GENERATION or mock:PROFILE+GENERATION-SYMBOL"
    )]
    Unknown { text: String },
    #[error(
        "driver \"{text}\" asks for generation {generation}; the mocks can be {}",
        known_generations()
    )]
    Generation { text: String, generation: String },
    #[error("driver \"{text}\": {reason}")]
    Profile { text: String, reason: String },
    #[error(
        "driver \"{text}\": generation {generation} exports no {symbol} that it could be without"
    )]
    Symbol {
        text: String,
        generation: u16,
        symbol: String,
    },
    #[error("driver \"{text}\" is without {symbol} twice")]
    Twice { text: String, symbol: String },
}

fn known_generations() -> String {
    generation::numbers()
        .map(|number| number.to_string())
        .join(", ")
}

impl Driver {
    /// Every generation on machines of 1, 2, 4 and 16 GPUs of this driver's kind; a real driver is what it is.
    pub fn matrix(&self) -> Vec<Driver> {
        let Self::Mock {
            profile, without, ..
        } = self
        else {
            return vec![Self::Real];
        };
        let base = profile.split('*').next().unwrap_or(profile);
        let layouts = LAYOUTS.iter().map(|&gpus| match gpus {
            1 => base.to_owned(),
            gpus => format!("{base}*{gpus}"),
        });
        let of = |profile: String| {
            generation::numbers().map(|generation| Self::Mock {
                profile: profile.clone(),
                generation,
                without: without.clone(),
            })
        };
        layouts.flat_map(of).collect()
    }

    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real)
    }

    /// The machine that a case gets. The driver's profile stands in for the default one. A case that wants several GPUs of that gets its
    /// number, or the driver's own where that is larger and nothing of the case depends on it. A case that names another machine needs its
    /// shape and keeps it. All of them get the driver's generation, but for a case that names its own: `rtx6000-ada+615`.
    pub fn machine_for(&self, machine: &str, gpus: Gpus) -> Option<String> {
        let Self::Mock {
            profile,
            generation,
            ..
        } = self
        else {
            return None;
        };
        let (machine, named) = match machine.split_once('+') {
            Some((machine, named)) => (machine, Some(named)),
            None => (machine, None),
        };
        let machine = match machine.strip_prefix(DEFAULT_PROFILE) {
            Some("") => profile.clone(),
            Some(count) if count.starts_with('*') => {
                let (base, own) = profile.split_once('*').unwrap_or((profile, "1"));
                let number = |text: &str| text.parse::<u32>().unwrap_or(1);
                match gpus {
                    Gpus::AtLeast if number(own) > number(&count[1..]) => profile.clone(),
                    Gpus::AtLeast | Gpus::Exactly => format!("{base}{count}"),
                }
            }
            _ => machine.to_owned(),
        };
        Some(match (named, *generation) {
            (Some(named), _) => format!("{machine}+{named}"),
            (None, DEFAULT_GENERATION) => machine,
            (None, generation) => format!("{machine}+{generation}"),
        })
    }

    /// The exports that it lacks although its generation has them.
    pub fn without(&self) -> &[String] {
        match self {
            Self::Mock { without, .. } => without,
            Self::Real => &[],
        }
    }

    /// What expectation files call it, the most precise name first.
    pub fn file_names(&self) -> Vec<String> {
        let Self::Mock {
            profile,
            generation,
            without,
        } = self
        else {
            return vec!["real".to_owned()];
        };
        let mut names = vec![
            format!("mock-{profile}+{generation}"),
            format!("mock+{generation}"),
            "mock".to_owned(),
        ];
        if !without.is_empty() {
            let less = spelled_without(without);
            names.insert(0, format!("mock-{profile}+{generation}{less}"));
            names.insert(1, format!("mock+{generation}{less}"));
        }
        names
    }
}

fn spelled_without(symbols: &[String]) -> String {
    symbols.iter().map(|symbol| format!("-{symbol}")).collect()
}

impl Default for Driver {
    fn default() -> Self {
        Self::Mock {
            profile: DEFAULT_PROFILE.to_owned(),
            generation: DEFAULT_GENERATION,
            without: Vec::new(),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mock {
                profile,
                generation,
                without,
            } => write!(
                out,
                "mock:{profile}+{generation}{}",
                spelled_without(without)
            ),
            Self::Real => out.write_str("real"),
        }
    }
}

impl FromStr for Driver {
    type Err = DriverError;

    fn from_str(text: &str) -> Result<Self, DriverError> {
        let input = || text.to_owned();
        let rest = match text {
            "real" => return Ok(Self::Real),
            "mock" => return Ok(Self::default()),
            _ => text.strip_prefix("mock:"),
        };
        let rest = rest.filter(|rest| !rest.is_empty() && !rest.starts_with('+'));
        let rest = rest.ok_or_else(|| DriverError::Unknown { text: input() })?;
        let (profile, driver) = match rest.rsplit_once('+') {
            // A path may have the sign in it.
            Some((profile, driver)) if !driver.contains('/') => (profile, Some(driver)),
            _ => (rest, None),
        };
        let machine = profile::of(profile).map_err(|error| DriverError::Profile {
            text: input(),
            reason: error.to_string(),
        })?;
        let (generation, without) = match driver {
            Some(driver) => read_driver(text, driver)?,
            // A recorded machine is of its own driver's generation.
            None => (generation::number(&machine.driver), Vec::new()),
        };
        Ok(Self::Mock {
            profile: profile.to_owned(),
            generation,
            without,
        })
    }
}

/// `535-cuMemAlloc_v2-cuMemFree_v2`.
fn read_driver(text: &str, driver: &str) -> Result<(u16, Vec<String>), DriverError> {
    let mut parts = driver.split('-');
    let spelled = parts.next().unwrap_or_default();
    let known = generation::numbers()
        .into_iter()
        .find(|number| number.to_string() == spelled);
    let generation = known.ok_or_else(|| DriverError::Generation {
        text: text.to_owned(),
        generation: spelled.to_owned(),
    })?;
    let mut without: Vec<String> = Vec::new();
    for symbol in parts.map(str::to_owned) {
        let text = text.to_owned();
        if without.contains(&symbol) {
            return Err(DriverError::Twice { text, symbol });
        }
        let exported = [Api::Cuda, Api::Nvml]
            .into_iter()
            .any(|api| symbols::of_generation(api, generation).contains(&symbol.as_str()));
        if !exported {
            return Err(DriverError::Symbol {
                text,
                generation,
                symbol,
            });
        }
        without.push(symbol);
    }
    Ok((generation, without))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("real", "real")]
    #[case("mock", "mock:rtx6000-ada+580")]
    #[case("mock:h200", "mock:h200+580")]
    #[case("mock:rtx6000-ada*2+580", "mock:rtx6000-ada*2+580")]
    #[case("mock:h200*4+535", "mock:h200*4+535")]
    #[case(
        "mock:h200+535-cuMemAlloc_v2-nvmlDeviceGetName",
        "mock:h200+535-cuMemAlloc_v2-nvmlDeviceGetName"
    )]
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
            matches!("mock:h200+471".parse::<Driver>(), Err(DriverError::Generation { generation, .. }) if generation == "471")
        );
        assert!(
            matches!("mock:h200+".parse::<Driver>(), Err(DriverError::Generation { text, .. }) if text == "mock:h200+")
        );
        for text in ["mock:", "mock:+535"] {
            let unknown = DriverError::Unknown {
                text: text.to_owned(),
            };
            assert_eq!(text.parse::<Driver>(), Err(unknown));
        }
        assert!(
            matches!("mock:h900".parse::<Driver>(), Err(DriverError::Profile { text, .. }) if text == "mock:h900")
        );
    }

    #[test]
    fn the_drivers_profile_stands_in_for_the_default_machine_only() {
        let driver: Driver = "mock:h200".parse().expect("a known profile");
        let machine = |asked: &str| driver.machine_for(asked, Gpus::AtLeast);
        assert_eq!(machine("rtx6000-ada").as_deref(), Some("h200"));
        assert_eq!(machine("rtx6000-ada*4").as_deref(), Some("h200*4"));
        assert_eq!(machine("tiny").as_deref(), Some("tiny"));
    }

    #[rstest::rstest]
    #[case("rtx6000-ada", Gpus::Exactly, "rtx6000-ada*16")]
    #[case("rtx6000-ada*2", Gpus::AtLeast, "rtx6000-ada*16")]
    #[case("rtx6000-ada*2", Gpus::Exactly, "rtx6000-ada*2")]
    #[case("rtx6000-ada*33", Gpus::AtLeast, "rtx6000-ada*33")]
    #[case("h200x2", Gpus::AtLeast, "h200x2")]
    fn a_machine_of_sixteen_is_one_of_two_where_nothing_depends_on_it(
        #[case] asked: &str,
        #[case] gpus: Gpus,
        #[case] given: &str,
    ) {
        let driver: Driver = "mock:rtx6000-ada*16".parse().expect("a known profile");
        assert_eq!(driver.machine_for(asked, gpus).as_deref(), Some(given));
    }

    #[rstest::rstest]
    #[case("mock:h200+535-cuNope", "cuNope")]
    // Driver 470 has no cuMemAddressReserve of a later kind, and 580 no longer has the CCU's.
    #[case("mock:h200+470-cuLibraryLoadData", "cuLibraryLoadData")]
    #[case(
        "mock:h200+580-nvmlDeviceCcuGetStreamState",
        "nvmlDeviceCcuGetStreamState"
    )]
    #[case("mock:h200+535-", "")]
    fn a_symbol_that_the_generation_does_not_export_is_named(
        #[case] text: &str,
        #[case] wanted: &str,
    ) {
        assert!(
            matches!(text.parse::<Driver>(), Err(DriverError::Symbol { symbol, .. }) if symbol == wanted)
        );
    }

    #[test]
    fn a_symbol_can_be_missing_once() {
        let answer = "mock:h200+580-cuInit-cuInit".parse::<Driver>();
        assert!(matches!(answer, Err(DriverError::Twice { symbol, .. }) if symbol == "cuInit"));
    }

    #[test]
    fn every_machine_gets_the_drivers_generation() {
        let driver: Driver = "mock:h200+535-cuMemAlloc_v2".parse().expect("a driver");
        let machine = |asked: &str| driver.machine_for(asked, Gpus::AtLeast);
        assert_eq!(machine("rtx6000-ada*4").as_deref(), Some("h200*4+535"));
        assert_eq!(machine("tiny").as_deref(), Some("tiny+535"));
        assert_eq!(machine("rtx6000-ada*4+615").as_deref(), Some("h200*4+615"));
        assert_eq!(driver.without(), ["cuMemAlloc_v2"]);
    }

    #[test]
    fn a_matrix_is_every_generation_on_every_layout() {
        let matrix: Vec<String> = Driver::default()
            .matrix()
            .iter()
            .map(Driver::to_string)
            .collect();
        assert_eq!(matrix.len(), LAYOUTS.len() * generation::numbers().len());
        assert_eq!(
            matrix.first().map(String::as_str),
            Some("mock:rtx6000-ada+470")
        );
        assert_eq!(
            matrix.last().map(String::as_str),
            Some("mock:rtx6000-ada*16+615")
        );
        for driver in matrix {
            assert_eq!(
                driver.parse::<Driver>().map(|read| read.to_string()),
                Ok(driver)
            );
        }
    }

    #[test]
    fn expectations_are_looked_for_by_profile_generation_and_missing_symbols() {
        let driver: Driver = "mock:h200+535-cuInit".parse().expect("a driver");
        let names = [
            "mock-h200+535-cuInit",
            "mock+535-cuInit",
            "mock-h200+535",
            "mock+535",
            "mock",
        ];
        assert_eq!(driver.file_names(), names);
    }
}
