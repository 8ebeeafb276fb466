//! `ringfence fuzz --unhook`: the hook of one memory route after another is taken out, and what tells.
//!
//! Every hook that `fixtures/exports-cuda.txt` says keeps books is left out of the build that can have defects (`RINGFENCE_SEED=unhook:NAME`), as if nobody had
//! thought of it. Either a promise breaks within so many calls, in the hook's own family, over all exports or in the properties, or the floor holds: the entry point
//! was granted, and no device was further beyond its budget than the bound.

use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fuzz::family::{self, Calls, Family};
use fuzz::remote::Trouble;
use fuzz::run::{self, Wish};
use harness::Target;
use seeds::Seed;

use crate::UNEXPECTED;
use crate::arguments::FuzzArguments;

/// What each export does to a tenant's memory.
const CLASSES: &str = include_str!("../../../fixtures/exports-cuda.txt");
/// The words of those whose hooks keep books.
const KEPT: [&str; 2] = ["charged", "looked"];

const MIB: f64 = (1 << 20) as f64;
/// Operations of the properties, where no family notices.
const OPERATIONS: u64 = 6_000;

/// What became of one hook's absence.
struct Row {
    hook: &'static str,
    /// The family that noticed, after how many calls, and what it said.
    found: Option<(&'static str, u64, String)>,
    calls: u64,
    /// How often the entry point was granted.
    granted: u64,
    /// Whether the floor is in its place.
    floor: bool,
    /// The most that a device was beyond its budget, in bytes.
    beyond: u64,
}

/// Every hook that keeps books of memory.
fn memory_hooks() -> Vec<&'static str> {
    let hooks: BTreeSet<&str> = family::hooks().collect();
    let kept = CLASSES.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, class) = (words.next()?, words.next()?);
        (KEPT.contains(&class) && hooks.contains(name)).then_some(name)
    });
    kept.collect()
}

pub fn run(arguments: &FuzzArguments, names: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let all = memory_hooks();
    let chosen: Vec<&'static str> = match names {
        [] => all,
        some => some
            .iter()
            .map(|name| {
                let found = all.iter().find(|hook| *hook == name).copied();
                found.ok_or_else(|| format!("{name} is no hook that keeps books of memory"))
            })
            .collect::<Result<_, _>>()?,
    };
    crate::say("| hook left out | found by | after calls | what was said |\n|---|---|---|---|\n")?;
    let (next, unnoticed) = (AtomicUsize::new(0), Mutex::new(0_u32));
    let worker = || -> Result<(), String> {
        while let Some(hook) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = without(hook, arguments).map_err(|error| format!("{hook}: {error}"))?;
            let line = row.line();
            if row.found.is_none()
                && row.granted == 0
                && let Ok(mut unnoticed) = unnoticed.lock()
            {
                *unnoticed += 1;
            }
            crate::say(&line).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| scope.spawn(worker))
            .collect();
        running.into_iter().try_for_each(|one| {
            one.join()
                .unwrap_or_else(|_| Err("a worker panicked".to_owned()))
        })
    })?;
    let unnoticed = unnoticed.into_inner().unwrap_or_default();
    crate::say(&format!(
        "\n{} of {} hooks are missed or not needed within the bound\n",
        chosen.len() as u32 - unnoticed,
        chosen.len()
    ))?;
    Ok(match unnoticed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(UNEXPECTED),
    })
}

/// The families that the hook is in, then all exports on two GPUs and on one, then the properties.
fn without(hook: &'static str, arguments: &FuzzArguments) -> Result<Row, Trouble> {
    let mut target = Target::named("seeded")?;
    let defects = [
        arguments.defect.as_deref(),
        Some(&format!("{}{hook}", seeds::UNHOOK)),
    ];
    let defects: Vec<&str> = defects.into_iter().flatten().collect();
    target
        .environment
        .insert(seeds::VARIABLE.to_owned(), defects.join(","));
    let is_surface = |family: &&'static Family| matches!(family.calls, Calls::All);
    let own = |family: &&'static Family| !is_surface(family) && family.names().contains(&hook);
    let number = abi::cuda::NAMES.iter().position(|name| *name == hook);
    let mut row = Row {
        hook,
        found: None,
        calls: 0,
        granted: 0,
        floor: !arguments.defect.as_deref().is_some_and(|defects| {
            defects
                .split(',')
                .any(|defect| defect == Seed::Floor.name())
        }),
        beyond: 0,
    };
    let families = family::all()
        .filter(own)
        .chain(family::all().filter(is_surface));
    for family in families {
        let wish = Wish {
            calls: arguments.calls,
            seed: arguments.seed,
            patience: Duration::ZERO,
            target: target.clone(),
            guided: false,
            until: None,
        };
        let report = run::run(family, &wish)?;
        row.calls += report.calls;
        let granted = number.and_then(|number| report.granted.get(&(number as u16)));
        row.granted += granted.copied().unwrap_or(0);
        row.beyond = row.beyond.max(report.beyond);
        if let Some(smallest) = report.broken {
            row.found = Some((family.name, row.calls, smallest.what));
            return Ok(row);
        }
    }
    let wish = properties::run::Wish {
        operations: OPERATIONS,
        seed: arguments.seed,
        patience: Duration::ZERO,
        regressions: None,
    };
    let report = properties::run::run(properties::remote::Circumstances::over_mocks(target), &wish)
        .map_err(|trouble| Trouble::Beginning(trouble.to_string()))?;
    row.calls += report.calls;
    if let Some(smallest) = report.broken {
        row.found = Some(("properties", report.calls, smallest.what));
    }
    Ok(row)
}

impl Row {
    fn line(&self) -> String {
        let held = if self.floor {
            "the floor holds"
        } else {
            "nothing, within the bound"
        };
        match &self.found {
            Some((family, calls, what)) => {
                format!("| `{}` | {family} | {calls} | {what} |\n", self.hook)
            }
            None if self.granted > 0 => format!(
                "| `{}` | {} | {} | granted in {} sequences, at most {:.1} MiB beyond a budget, no promise broken |\n",
                self.hook,
                held,
                self.calls,
                self.granted,
                self.beyond as f64 / MIB
            ),
            None => format!(
                "| `{}` | NOTHING | {} | never granted, no promise broken |\n",
                self.hook, self.calls
            ),
        }
    }
}
