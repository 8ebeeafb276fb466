//! `ringfence list`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use harness::{Case, Library, artifacts, symbols};

use crate::UNEXPECTED;
use crate::arguments::ListArguments;
use crate::commands::commands;
use crate::diff::{COMMANDS, Enforcer};
use crate::exports::exports;

pub fn run(arguments: &ListArguments) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.coverage {
        return coverage();
    }
    let wanted = |case: &&Case| {
        let named = |filter: &String| case.is_meant_by(filter);
        arguments.filters.is_empty() || arguments.filters.iter().any(named)
    };
    let listed: Vec<&Case> = cases::SUITE.cases().filter(wanted).collect();
    if listed.is_empty() {
        return Err(format!("{:?} match no case", arguments.filters).into());
    }
    let mut text = String::new();
    for case in &listed {
        let (name, kind, area) = (case.name, case.kind, case.area());
        let defects = list(", ", case.defects);
        writeln!(text, "{name}  [{kind:?}, {area}{defects}]")?;
        writeln!(text, "    {}", case.promise_line())?;
        if !case.entry_points.is_empty() {
            writeln!(text, "    by{}", list(" ", case.entry_points))?;
        }
        if !case.needs.is_empty() {
            writeln!(text, "    needs{}", list(" ", case.needs))?;
        }
    }
    writeln!(text, "{} cases", listed.len())?;
    crate::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(separator: &str, words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("{separator}{word}"))
        .collect()
}

/// Known defects: id and promise, a row each.
const DEFECTS: &str = include_str!("../../../fixtures/defects.txt");

pub fn defects() -> Result<Vec<(&'static str, &'static str)>, Box<dyn Error>> {
    let rows = DEFECTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| {
        row.split_once(' ')
            .ok_or_else(|| format!("fixtures/defects.txt: \"{row}\" has no promise").into())
    })
    .collect()
}

/// Prints the hooks that no case exercises (what the built interposer exports and the layer's table has, less what the cases say), the known
/// defects that no case names, what is wrong with the classes of libcuda's exports and of Vulkan's commands, and, as an error, ids of cases that are no known defect's.
fn coverage() -> Result<ExitCode, Box<dyn Error>> {
    let defects = defects()?;
    for case in cases::SUITE.cases() {
        if let Some(unknown) = case
            .defects
            .iter()
            .find(|id| !defects.iter().any(|(known, _)| known == *id))
        {
            return Err(
                format!("{}: {unknown} is no row of fixtures/defects.txt", case.name).into(),
            );
        }
    }
    let library = artifacts::find(Library::Interposer)?;
    let exported = symbols::exports(&std::fs::read(&library)?)?;
    let exercised: BTreeSet<&str> = cases::SUITE
        .cases()
        .flat_map(|case| case.entry_points)
        .copied()
        .collect();
    let exported = exported.iter().map(|(name, _)| name.as_str());
    let hooks: BTreeSet<&str> = exported.chain(COMMANDS.iter().copied()).collect();
    let uncovered: Vec<&&str> = hooks.difference(&exercised).collect();
    for hook in &uncovered {
        println!("{hook}");
    }
    let caught: BTreeSet<&str> = cases::SUITE
        .cases()
        .flat_map(|case| case.defects)
        .copied()
        .collect();
    let uncaught: Vec<&(&str, &str)> = defects
        .iter()
        .filter(|(id, _)| !caught.contains(id))
        .collect();
    for (id, promise) in &uncaught {
        println!("{id} {promise}");
    }
    let enforcer = Enforcer::ours();
    let found = exports(&hooks, &|name| !enforcer.siblings(name).is_empty())?;
    for name in &found.unclassified {
        println!("{name} is in no class of fixtures/exports-cuda.txt");
    }
    for name in &found.unproven {
        println!(
            "{name} is said to take nothing, which fixtures/oracle/takes-580.txt does not show"
        );
    }
    for row in &found.untrue {
        println!("fixtures/exports-cuda.txt: {row}: not so by the hooks, or no export");
    }
    eprintln!(
        "{} of libcuda's {} exports are unclassified, {} are said to take nothing without a record, {} are open",
        found.unclassified.len(),
        found.all,
        found.unproven.len(),
        found.open
    );
    let vulkan = commands(&COMMANDS.iter().copied().collect())?;
    for name in &vulkan.unclassified {
        println!("{name} is in no class of fixtures/commands-vulkan.txt");
    }
    for row in &vulkan.untrue {
        println!("fixtures/commands-vulkan.txt: {row}: not so by the hooks, or no command");
    }
    eprintln!(
        "{} of Vulkan's {} commands are unclassified, {} are open",
        vulkan.unclassified.len(),
        vulkan.all,
        vulkan.open
    );
    let classified = [
        &found.unclassified,
        &found.unproven,
        &found.untrue,
        &vulkan.unclassified,
        &vulkan.untrue,
    ];
    eprintln!(
        "{} of the {} entry points that libvgpu.so and libvgpu_vk.so hook have no case, {} of the {} known defects",
        uncovered.len(),
        hooks.len(),
        uncaught.len(),
        defects.len()
    );
    let classified = classified.iter().all(|names| names.is_empty());
    Ok(
        if uncovered.is_empty() && uncaught.is_empty() && classified {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(UNEXPECTED)
        },
    )
}
