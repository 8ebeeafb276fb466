//! What a mock's answers rest on. A mock of driver 535 answers everything, some of it as 580 did: who compares drivers must know
//! which answers a driver of that generation gave.

use build_support::oracle::Recorded;
use mock_device::generation::{self, Evidence};
use mock_device::{Api, profile};

use crate::driver::Driver;
use crate::symbols;

/// What a function is asked with zeros, in the order of a probe's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Before initialisation.
    Before,
    /// With a primary context current, or NVML initialised and a device as the first argument.
    Ready,
    /// NVML initialised, the first argument zero too.
    Nulls,
}

/// The generation whose functions were called with a device there.
const ASKED_ON_A_CARD: u16 = 580;

/// A mock's generation, and whether its machine was recorded under that generation.
#[derive(Clone, Debug)]
pub struct Grounds {
    generation: u16,
    own: bool,
}

impl Driver {
    /// What the answers of a mock rest on; a real driver's are its own.
    pub fn grounds(&self) -> Option<Grounds> {
        let Self::Mock {
            profile,
            generation,
            ..
        } = self
        else {
            return None;
        };
        let own = profile::of(profile)
            .is_ok_and(|machine| generation::number(&machine.driver) == *generation);
        Some(Grounds {
            generation: *generation,
            own,
        })
    }
}

impl Grounds {
    /// Why no driver of this generation stands behind what the mock says of devices, if none does.
    pub fn no_devices(&self) -> Option<String> {
        let generation = self.generation;
        (!self.own).then(|| format!("the machine was not recorded under driver {generation}"))
    }

    /// The same of look-ups.
    pub fn no_look_ups(&self) -> Option<String> {
        let generation = self.generation;
        (generation::evidence(generation) == Evidence::Inferred)
            .then(|| format!("no driver {generation} was asked: inferred from its symbols"))
    }

    /// Answers that a driver of this generation gave, by function; the others are presumed.
    pub fn answers(&self, api: Api, asked: Asked) -> Vec<(&'static str, String)> {
        let newest = self.generation == ASKED_ON_A_CARD;
        let spelled = |answer: &Recorded| match answer {
            Recorded::Code(code) => Some(code.to_string()),
            Recorded::Crash => Some("S".to_owned()),
            Recorded::Unknown => None,
        };
        symbols::rows(api)
            .into_iter()
            .filter_map(|row| {
                let answer = match asked {
                    Asked::Before => Some(row.before(self.generation)),
                    Asked::Ready => row.after.first().copied().filter(|_| newest),
                    Asked::Nulls => row.after.get(1).copied().filter(|_| newest),
                };
                Some((row.name, spelled(&answer?)?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grounds(driver: &str) -> Grounds {
        let driver: Driver = driver.parse().expect("a driver");
        driver.grounds().expect("a mock")
    }

    #[test]
    fn a_machine_rests_on_the_driver_that_it_was_recorded_under() {
        assert_eq!(grounds("mock:h200+580").no_devices(), None);
        assert!(grounds("mock:h200+535").no_devices().is_some());
        assert!("real".parse::<Driver>().expect("real").grounds().is_none());
    }

    #[test]
    fn look_ups_of_what_nobody_asked_are_inferred() {
        assert!(grounds("mock:h200+470").no_look_ups().is_some());
        assert!(grounds("mock:h200+615").no_look_ups().is_some());
        for generation in [525, 535, 550, 555, 580] {
            let driver = format!("mock:h200+{generation}");
            assert_eq!(grounds(&driver).no_look_ups(), None, "{driver}");
        }
    }

    #[test]
    fn answers_are_those_of_drivers_that_were_asked() {
        let count = |generation: u16, asked| {
            grounds(&format!("mock:h200+{generation}"))
                .answers(Api::Cuda, asked)
                .len()
        };
        assert_eq!(
            (count(555, Asked::Before), count(535, Asked::Ready)),
            (0, 0)
        );
        assert_eq!(
            (count(615, Asked::Before), count(615, Asked::Ready)),
            (0, 0)
        );
        assert!(count(535, Asked::Before) > 500 && count(580, Asked::Ready) > 600);
        let answers = grounds("mock:h200+535").answers(Api::Cuda, Asked::Before);
        assert!(answers.contains(&("cuFuncGetAttribute", "3".to_owned())));
    }
}
