//! A machine from a file: one like those of `fixtures/profiles`, or what `ringfence probe` wrote of a live machine.

use std::path::Path;

use toml::{Table, Value};

use super::{DEFAULT, MachineProfile, ProfileError, check, embedded};

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

/// What a probe does not find out: costs beside the measured ones are the default machine's, and a margin that it did not see
/// is none.
fn complete(machine: &mut Table, measured: Option<&Table>) -> Result<(), ProfileError> {
    let cost = embedded(DEFAULT)?.devices[0].cost;
    let mut cost = Table::try_from(cost).expect("a flat table of numbers");
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
        device
            .entry("vulkan_budget_margin")
            .or_insert(Value::Integer(0));
    }
    Ok(())
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
        assert_eq!(found.cost.d2d, 2_100_302_419_885, "as it measured");
        assert_eq!(
            found.cost.wave_ns,
            embedded(DEFAULT).unwrap().devices[0].cost.wave_ns
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
