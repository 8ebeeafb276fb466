//! What NVML answers of a device and no other field of the profile says: one answer per entry point, as data.
//!
//! A device names its table (`nvml = "h200"`), which its machine holds under that name or the project ships
//! (`fixtures/profiles/nvml`). Each key is an entry point, each value what it writes:
//!
//! * a number or a text, for the one thing that it writes; a list, for several out-parameters or an array;
//! * a table of fields, for a structure; a field that is left out is zero;
//! * `"!NOT_SUPPORTED"`: the call fails with that code and writes nothing;
//! * where there are arguments beside the device, a table by their values: `"0"`, `"1,0"`, and `"*"` for all others.
//!
//! An entry point that is not there answers NOT_SUPPORTED. Nothing that changes with the world stands here.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::profile::{DeviceProfile, MachineProfile};

const EMBEDDED: [(&str, &str); 2] = [
    (
        "rtx6000-ada",
        include_str!("../../fixtures/profiles/nvml/rtx6000-ada.toml"),
    ),
    (
        "h200",
        include_str!("../../fixtures/profiles/nvml/h200.toml"),
    ),
];

/// What one entry point writes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Number(i64),
    Text(String),
    List(Vec<Answer>),
    Fields(BTreeMap<String, Answer>),
}

/// By entry point.
pub type Answers = BTreeMap<String, Answer>;

/// A machine's own table, kept as the text that it was read from: only NVML's mock takes it apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AnswerText(pub String);

impl<'de> Deserialize<'de> for AnswerText {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelled {
            Text(String),
            Table(toml::Table),
        }
        Ok(match Spelled::deserialize(input)? {
            Spelled::Text(text) => Self(text),
            Spelled::Table(table) => Self(table.to_string()),
        })
    }
}

/// The device's table; empty where it names none.
///
/// # Errors
/// A name that nobody knows, or text that is no table; the error names it.
pub fn answers(machine: &MachineProfile, device: &DeviceProfile) -> Result<Answers, String> {
    let Some(name) = &device.nvml else {
        return Ok(Answers::new());
    };
    let own = machine.nvml.get(name).map(|text| text.0.as_str());
    let shipped = || {
        let found = EMBEDDED.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| *text)
    };
    let text = own
        .or_else(shipped)
        .ok_or_else(|| format!("no NVML table is called `{name}`"))?;
    toml::from_str(text).map_err(|error| format!("NVML table `{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    #[test]
    fn every_shipped_machine_has_a_table_that_parses() {
        for name in profile::names() {
            let machine = profile::embedded(name).unwrap();
            for device in &machine.devices {
                let answers = answers(&machine, device).unwrap();
                assert!(answers.contains_key("nvmlDeviceGetBrand"), "{name}");
            }
        }
    }

    #[test]
    fn a_machine_may_bring_its_own_table_and_keeps_it_through_json() {
        let mut machine = profile::embedded("tiny").unwrap();
        let table = toml::from_str::<AnswerText2>("own.nvmlDeviceGetBrand = 7").unwrap();
        machine.nvml = table;
        machine.devices[0].nvml = Some("own".into());
        let text = serde_json::to_string(&machine).unwrap();
        let machine: MachineProfile = serde_json::from_str(&text).unwrap();
        let found = answers(&machine, &machine.devices[0]).unwrap();
        assert_eq!(found["nvmlDeviceGetBrand"], Answer::Number(7));
    }

    type AnswerText2 = BTreeMap<String, AnswerText>;
}
