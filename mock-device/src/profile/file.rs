//! A machine from a file: one like those of `fixtures/profiles`, or what `ringfence probe` wrote of a live machine.

use std::path::Path;

use toml::{Table, Value};

use super::{DEFAULT, MachineProfile, ProfileError, check, embedded};
use crate::units::Bytes;

/// What says that a name is a path: `machines/a100.toml`.
const ENDING: &str = ".toml";

/// A path, and what follows it: `machines/a100.toml`, `*4+535`.
pub(super) fn path_of(asked: &str) -> Option<(&str, &str)> {
    let end = asked.rfind(ENDING)? + ENDING.len();
    let (path, rest) = asked.split_at(end);
    (rest.is_empty() || rest.starts_with(['*', '+'])).then_some((path, rest))
}

/// # Errors
/// A file that cannot be read, or is no profile.
pub(super) fn read(path: &str) -> Result<MachineProfile, ProfileError> {
    let text = std::fs::read_to_string(Path::new(path)).map_err(|source| ProfileError::File {
        path: path.to_owned(),
        source,
    })?;
    of(path, &text)
}

fn of(path: &str, text: &str) -> Result<MachineProfile, ProfileError> {
    let syntax = |source| ProfileError::Syntax {
        input: path.to_owned(),
        source: Box::new(source),
    };
    let mut whole: Table = text.parse().map_err(syntax)?;
    let machine = match whole.remove("profile") {
        Some(Value::Table(mut machine)) => {
            let measured = whole.get("measured").and_then(|it| it.get("cost"));
            complete(&mut machine, measured.and_then(Value::as_table))?;
            machine
        }
        _ => whole,
    };
    let mut machine: MachineProfile = Value::Table(machine).try_into().map_err(syntax)?;
    path.clone_into(&mut machine.name);
    check(path, &machine)?;
    Ok(machine)
}

/// What a probe does not find out is as on the default machine: costs beside the measured ones, what VkInstances take where it had no
/// Vulkan, and how much of a client's own memory no NVML row names.
fn complete(machine: &mut Table, measured: Option<&Table>) -> Result<(), ProfileError> {
    let assumed = &embedded(DEFAULT)?.devices[0];
    let mut cost = Table::try_from(assumed.cost).expect("a flat table of numbers");
    let own = [
        ("context", assumed.context()),
        ("vulkan_instance", assumed.vulkan_instance()),
        ("vulkan_device", assumed.vulkan_device()),
    ];
    for (name, known) in &mut cost {
        if let Some(found) = measured.and_then(|measured| measured.get(name)) {
            known.clone_from(found);
        }
    }
    let devices = machine.get_mut("device").and_then(Value::as_array_mut);
    for device in devices
        .into_iter()
        .flatten()
        .filter_map(Value::as_table_mut)
    {
        device
            .entry("cost")
            .or_insert_with(|| Value::Table(cost.clone()));
        // So a probe called the same until November 2026, and had taken it wrongly.
        device.remove("vulkan_budget_margin");
        for (name, assumed) in own {
            let all = device
                .entry(format!("{name}_overhead"))
                .or_insert_with(|| integer(assumed.total()))
                .as_integer()
                .and_then(|all| u64::try_from(all).ok())
                .unwrap_or(0);
            device
                .entry(format!("{name}_unlisted"))
                .or_insert_with(|| integer(assumed.unlisted.min(Bytes(all))));
        }
    }
    Ok(())
}

fn integer(bytes: Bytes) -> Value {
    Value::Integer(i64::try_from(bytes.0).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: &str = include_str!("../../../fixtures/oracle/probe-h200.toml");

    #[test]
    fn a_probe_of_a_card_is_a_machine() {
        let machine = of("probe-h200.toml", H200).unwrap();
        let known = &embedded("h200").unwrap().devices[0];
        let found = &machine.devices[0];
        assert_eq!(machine.driver.version, "580.159.04");
        assert_eq!(
            (found.nvml_total, found.context_overhead, found.sm_count),
            (known.nvml_total, known.context_overhead, known.sm_count)
        );
        assert_eq!(found.attributes, known.attributes);
        assert_eq!(
            (
                found.context(),
                found.vulkan_instance(),
                found.vulkan_device()
            ),
            (
                known.context(),
                known.vulkan_instance(),
                known.vulkan_device()
            )
        );
        assert_eq!(found.cost.d2d, 2_100_302_419_885, "as it measured");
        assert_eq!(
            found.cost.wave_ns,
            embedded(DEFAULT).unwrap().devices[0].cost.wave_ns
        );
    }

    #[test]
    fn a_probe_of_before_instances_were_measured_is_a_machine_too() {
        let old = H200.replace(
            "vulkan_instance_overhead = 17170432",
            "vulkan_budget_margin = 0",
        );
        assert_ne!(old, H200);
        let machine = of("old.toml", &old).unwrap();
        let assumed = &embedded(DEFAULT).unwrap().devices[0];
        assert_eq!(
            machine.devices[0].vulkan_instance(),
            assumed.vulkan_instance()
        );
    }

    #[test]
    fn a_path_may_have_copies_and_a_generation_behind_it() {
        assert_eq!(path_of("/a/b.toml"), Some(("/a/b.toml", "")));
        assert_eq!(path_of("x+y.toml*4+535"), Some(("x+y.toml", "*4+535")));
        assert_eq!(path_of("h200+535"), None);
        assert_eq!(path_of("x.tomls"), None);
    }

    #[test]
    fn what_is_no_profile_is_named() {
        let error = of("x.toml", "name = 3").unwrap_err();
        assert!(matches!(error, ProfileError::Syntax { input, .. } if input == "x.toml"));
        let error = read("/nowhere/x.toml").unwrap_err();
        assert!(matches!(error, ProfileError::File { path, .. } if path == "/nowhere/x.toml"));
    }
}
