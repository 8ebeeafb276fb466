//! Driver generations: what a machine says of its driver when it is run with another one (`h200+535`). Data files under
//! `fixtures/drivers`, each fact with its source. What a generation exports and how it answers look-ups is in the tables
//! of `fixtures/oracle`, which the mocks read for the number that [`number`] gives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::profile::{DriverProfile, MachineProfile, ProfileError};

const EMBEDDED: [(u16, &str); 8] = [
    (470, include_str!("../../fixtures/drivers/470.toml")),
    (525, include_str!("../../fixtures/drivers/525.toml")),
    (535, include_str!("../../fixtures/drivers/535.toml")),
    (550, include_str!("../../fixtures/drivers/550.toml")),
    (555, include_str!("../../fixtures/drivers/555.toml")),
    (580, include_str!("../../fixtures/drivers/580.toml")),
    (615, include_str!("../../fixtures/drivers/615.toml")),
    (INVENTED, include_str!("../../fixtures/drivers/999.toml")),
];

/// No driver's number: what is under it has versions of functions that no header names, so that it can be seen what becomes of those.
const INVENTED: u16 = 999;

/// One file of `fixtures/drivers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// As [`DriverProfile::version`], and so on.
    pub version: String,
    pub cuda_version: i32,
    pub vulkan_version: u32,
    pub vulkan_api: [u32; 3],
    /// cuGetProcAddress of a CUDA version above the driver's own is INVALID_VALUE instead of what its newest is.
    pub refuses_newer: bool,
    pub proc_address: Evidence,
    /// Numbers of device attributes that this generation is the first to know: the first and the last of each run.
    pub cuda_attributes: Vec<[i32; 2]>,
    /// Versions of NVML's structures that this generation is the first to know: `nvmlMemory_v2`.
    pub nvml_structures: Vec<String>,
}

/// Where a table of a generation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// Asked of the real library.
    Recorded,
    /// Follows from other tables.
    Inferred,
}

/// How many numbers [`numbers`] gives.
pub const NUMBERS: usize = EMBEDDED.len() - 1;

/// The numbers of the generations that there are, the newest last. The one that was invented is not among them: a case that needs it names it.
#[must_use]
pub fn numbers() -> [u16; NUMBERS] {
    std::array::from_fn(|at| EMBEDDED[at].0)
}

/// Which generation a driver is of: the newest one that is not newer than it, the oldest for what is older still.
#[must_use]
pub fn number(driver: &DriverProfile) -> u16 {
    let major = driver.version.split('.').next().unwrap_or_default();
    let major: u16 = major.parse().unwrap_or(u16::MAX);
    let mut known = EMBEDDED.iter().rev().map(|(number, _)| *number);
    known
        .find(|number| *number <= major)
        .or_else(|| EMBEDDED.first().map(|(number, _)| *number))
        .unwrap_or_default()
}

/// The first generation that knows a version of one of NVML's structures, for every version that any documents.
#[must_use]
pub fn nvml_structures() -> BTreeMap<String, u16> {
    let known = EMBEDDED.iter().flat_map(|(number, text)| {
        let generation = parse(*number, text).unwrap_or_else(|error| panic!("{error}"));
        generation
            .nvml_structures
            .into_iter()
            .map(|name| (name, *number))
    });
    known.collect()
}

/// The numbers of device attributes that a generation knows, in runs.
#[must_use]
pub fn cuda_attributes(wanted: u16) -> Vec<[i32; 2]> {
    let known = EMBEDDED.iter().filter(|(number, _)| *number <= wanted);
    known
        .flat_map(|(number, text)| {
            let generation = parse(*number, text).unwrap_or_else(|error| panic!("{error}"));
            generation.cuda_attributes
        })
        .collect()
}

/// Where a generation's look-ups come from.
#[must_use]
pub fn evidence(wanted: u16) -> Evidence {
    let text = EMBEDDED.iter().find(|(number, _)| *number == wanted);
    let text = text.map_or("", |(_, text)| text);
    parse(wanted, text)
        .unwrap_or_else(|error| panic!("{error}"))
        .proc_address
}

/// The generation that this driver is of.
#[must_use]
pub fn of(driver: &DriverProfile) -> Generation {
    let wanted = number(driver);
    let text = EMBEDDED
        .iter()
        .find(|(number, _)| *number == wanted)
        .map(|(_, text)| *text);
    parse(wanted, text.unwrap_or_default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Gives the machine a driver of another generation. One that is of it already keeps the version that it has.
///
/// # Errors
/// There is no such generation; the error names `asked`.
pub fn install(
    machine: &mut MachineProfile,
    asked: &str,
    generation: &str,
) -> Result<(), ProfileError> {
    let unknown = || ProfileError::Generation {
        asked: asked.to_owned(),
        generation: generation.to_owned(),
    };
    let wanted: u16 = generation.parse().map_err(|_| unknown())?;
    let (_, text) = EMBEDDED
        .iter()
        .find(|(number, _)| *number == wanted)
        .ok_or_else(unknown)?;
    if number(&machine.driver) == wanted {
        return Ok(());
    }
    let new = parse(wanted, text)?;
    machine.driver = DriverProfile {
        version: new.version,
        cuda_version: new.cuda_version,
        vulkan_version: new.vulkan_version,
        vulkan_api: new.vulkan_api,
        ..machine.driver.clone()
    };
    Ok(())
}

fn parse(number: u16, text: &str) -> Result<Generation, ProfileError> {
    toml::from_str(text).map_err(|source| ProfileError::Syntax {
        input: format!("drivers/{number}.toml"),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    #[test]
    fn every_file_is_of_the_generation_that_its_name_says() {
        for (number, text) in EMBEDDED {
            let generation = parse(number, text).expect("a generation");
            assert!(
                generation.version.starts_with(&format!("{number}.")),
                "{generation:?}"
            );
            let parts: Vec<u32> = generation
                .version
                .split('.')
                .map(|part| part.parse().expect("a number"))
                .collect();
            let packed = parts[0] << 22 | parts[1] << 14 | parts.get(2).copied().unwrap_or(0) << 6;
            assert_eq!(generation.vulkan_version, packed, "{number}");
        }
    }

    #[test]
    fn a_machine_of_another_generation_keeps_its_devices() {
        let (own, other) = (
            profile::embedded("h200").expect("embedded"),
            profile::embedded("h200+535").expect("embedded"),
        );
        assert_eq!(own.devices, other.devices);
        assert_eq!(
            (other.driver.version.as_str(), other.driver.cuda_version),
            ("535.309.01", 12020)
        );
        assert_eq!((number(&own.driver), number(&other.driver)), (580, 535));
        let ada = profile::embedded("rtx6000-ada*2+580").expect("embedded");
        assert_eq!(
            (ada.driver.version.as_str(), ada.devices.len()),
            ("580.142", 2)
        );
    }

    #[test]
    fn a_driver_between_two_generations_is_of_the_older_one() {
        let mut driver = profile::embedded("tiny").expect("embedded").driver;
        for (version, expected) in [
            ("560.35.03", 555),
            ("590.1", 580),
            ("620.1", 615),
            ("390.157", 470),
            ("535.54.03", 535),
        ] {
            driver.version = version.to_owned();
            assert_eq!(number(&driver), expected, "{version}");
        }
    }

    #[test]
    fn a_structures_version_is_known_from_one_generation_on() {
        let known = nvml_structures();
        let documented = |name: &str| known.get(name).copied();
        assert_eq!(documented("nvmlMemory_v2"), Some(525));
        assert_eq!(documented("nvmlProcessDetailList_v1"), Some(535));
        assert_eq!(documented("nvmlGpuFabricInfo_v3"), Some(580));
        assert_eq!(documented("nvmlMemory_v9"), None);
        assert_eq!(known.len(), 61);
    }

    #[test]
    fn an_unknown_generation_is_named() {
        let error = profile::embedded("h200*2+600").expect_err("there is none");
        assert!(
            matches!(&error, ProfileError::Generation { asked, generation } if asked == "h200*2+600" && generation == "600"),
            "{error}"
        );
    }
}
