//! `ringfence fuzz --unhook`: the hook of one memory route after another is taken out, and what tells.
//!
//! Every hook that `fixtures/exports-cuda.txt` says keeps books is left out of the build that can have defects (`RINGFENCE_SEED=unhook:NAME`), as if nobody had
//! thought of it. What sequences over all exports are granted is recorded once, with all hooks in their places. An absence can show itself only where the entry
//! point is granted something, so that of each hook those sequences alone are run again: first with the floor in its place, then without it, where those
//! that break a promise by that alone are left out; there it is told too in how many of them the books are others than with the hook. The calls that are told are all that the fuzzer makes until then, those of the sequences left out among them.
//! The hook's own families, which compare after each call, are asked beside.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fuzz::family::{self, Calls, Family};
use fuzz::remote::Trouble;
use fuzz::run::{self, Trial, Wish};
use harness::Target;
use seeds::Seed;

use crate::UNEXPECTED;
use crate::arguments::FuzzArguments;

/// What each export does to a tenant's memory.
const CLASSES: &str = include_str!("../../../fixtures/exports-cuda.txt");
/// The words of those whose hooks keep books.
const KEPT: [&str; 2] = ["charged", "looked"];

const MIB: f64 = (1 << 20) as f64;
/// How long one hook's sequences of one family are run at most, with the floor in its place and again without it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long what is recorded is run without the floor at most.
const RECORDING: Duration = Duration::from_secs(600);
/// Sequences that may break a promise with all hooks in their places.
const MOST_BROKEN: u32 = 16;
/// Calls of each family that the hook is in.
const OWN_CALLS: u64 = 10_000;

/// A sequence over all exports, of a run that broke no promise.
struct Sequence {
    bytes: Vec<u8>,
    /// Calls from the first sequence's first to this one's last.
    calls: u64,
    /// Exports that were granted, by number.
    granted: BTreeSet<u16>,
    /// What comes of its books without the floor, and nothing else missing. None where it breaks a promise then, or is not the same twice.
    books: Option<u64>,
}

/// Sequences of a family.
struct Corpus {
    family: &'static Family,
    sequences: Vec<Sequence>,
}

/// A broken promise.
struct Found {
    family: &'static str,
    calls: u64,
    what: String,
}

/// What became of one hook's absence.
#[derive(Default)]
struct Row {
    hook: &'static str,
    class: &'static str,
    /// In the hook's own families.
    own: Option<Found>,
    /// Over all exports, with the floor in its place.
    found: Option<Found>,
    /// And without it.
    unfloored: Option<Found>,
    /// Sequences over all exports in which the entry point is granted something, and how many of them were run.
    granted: usize,
    run: usize,
    /// The most that a device was beyond its budget in them, with the floor in its place, in bytes.
    beyond: u64,
    /// Sequences that were run without the floor, and in how many of them the books are others without the hook.
    unfloored_run: usize,
    others: usize,
}

/// Every hook that keeps books of memory, with its class.
fn memory_hooks() -> Vec<(&'static str, &'static str)> {
    let hooks: BTreeSet<&str> = family::hooks().collect();
    let kept = CLASSES.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, class) = (words.next()?, words.next()?);
        (KEPT.contains(&class) && hooks.contains(name)).then_some((name, class))
    });
    kept.collect()
}

pub fn run(arguments: &FuzzArguments, names: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let all = memory_hooks();
    let chosen = match names {
        [] => all,
        some => some
            .iter()
            .map(|name| {
                let found = all.iter().find(|(hook, _)| hook == name).copied();
                found.ok_or_else(|| format!("{name} is no hook that keeps books of memory"))
            })
            .collect::<Result<_, _>>()?,
    };
    let corpora = corpora(arguments)?;
    crate::say(
        "| hook left out | | own family | all exports | floor out | granted | beyond | other books | what was said |\n|---|---|---|---|---|---|---|---|---|\n",
    )?;
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let worker = || -> Result<(), String> {
        while let Some(&(hook, class)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = without(hook, class, arguments, &corpora)
                .map_err(|error| format!("{hook}: {error}"))?;
            if let Ok(mut verdicts) = verdicts.lock() {
                *verdicts.entry(row.verdict()).or_insert(0_u32) += 1;
            }
            crate::say(&row.line()).map_err(|error| error.to_string())?;
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
    let verdicts = verdicts.into_inner().unwrap_or_default();
    let counts: Vec<String> = verdicts
        .iter()
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    crate::say(&format!(
        "\n{} hooks: {}\n",
        chosen.len(),
        counts.join(", ")
    ))?;
    Ok(match verdicts.contains_key(NEVER_GRANTED) {
        false => ExitCode::SUCCESS,
        true => ExitCode::from(UNEXPECTED),
    })
}

const NEVER_GRANTED: &str = "never granted";

fn target(defects: &[&str]) -> Result<Target, Trouble> {
    let mut target = Target::named("seeded")?;
    let defects = defects.iter().copied().filter(|defect| !defect.is_empty());
    let variable = seeds::VARIABLE.to_owned();
    let defects: Vec<&str> = defects.collect();
    target.environment.insert(variable, defects.join(","));
    Ok(target)
}

fn wish(arguments: &FuzzArguments, target: Target, calls: u64) -> Wish {
    Wish {
        calls,
        seed: arguments.seed,
        patience: Duration::ZERO,
        target,
        guided: false,
        until: None,
    }
}

/// Sequences of each family over all exports, with all hooks in their places; which of them the floor alone keeps within the bound.
fn corpora(arguments: &FuzzArguments) -> Result<Vec<Corpus>, Box<dyn Error>> {
    let given = arguments.defect.as_deref().unwrap_or_default();
    let families = family::all().filter(|family| matches!(family.calls, Calls::All { .. }));
    let (mut corpora, mut broken) = (Vec::new(), 0);
    for family in families {
        let (mut sequences, mut calls, mut seed) = (Vec::new(), 0, arguments.seed);
        while calls < arguments.calls {
            let wish = Wish {
                seed,
                ..wish(arguments, target(&[given])?, arguments.calls - calls)
            };
            let report = run::run_seen(family, &wish, |bytes, verdict, more| {
                calls += more;
                sequences.push(Sequence {
                    bytes: bytes.to_vec(),
                    calls,
                    granted: verdict.granted.iter().copied().collect(),
                    books: None,
                });
            })?;
            // A finding of its own, which the rest is recorded without.
            if let Some(smallest) = report.broken {
                crate::say(&format!(
                    "{}, seed {seed}, with all hooks in their places: {}\n",
                    family.name, smallest.what
                ))?;
                seed = seed.wrapping_add(1);
                broken += 1;
                if broken > MOST_BROKEN {
                    return Err("too much breaks with all hooks in their places".into());
                }
            }
        }
        let unfloored = target(&[given, Seed::Floor.name()])?;
        let (once, again) = (
            books(family, &unfloored, &sequences)?,
            books(family, &unfloored, &sequences)?,
        );
        for (sequence, (once, again)) in sequences.iter_mut().zip(once.into_iter().zip(again)) {
            sequence.books = once.filter(|_| once == again);
        }
        let floored = sequences.iter().filter(|one| one.books.is_none()).count();
        crate::say(&format!(
            "{}: {} sequences of {calls} calls, {floored} are within the bound by the floor alone\n",
            family.name,
            sequences.len()
        ))?;
        corpora.push(Corpus { family, sequences });
    }
    Ok(corpora)
}

/// What comes of the books of each sequence; of those that break no promise.
fn books(
    family: &'static Family,
    target: &Target,
    sequences: &[Sequence],
) -> Result<Vec<Option<u64>>, Trouble> {
    let mut trial = Trial::of(family, target)?;
    let end = Instant::now() + RECORDING;
    let mut books = Vec::with_capacity(sequences.len());
    while books.len() < sequences.len() {
        let rest = sequences[books.len()..].iter();
        let rest: Vec<&[u8]> = rest.map(|one| &one.bytes[..]).collect();
        let tried = trial.run(&rest, end)?;
        let from = books.len();
        books.extend(tried.books.into_iter().map(Some));
        match tried.broken {
            // Of those that were run with it, nothing was said of their books.
            Some((nth, _)) => books.resize(from + nth + 1, None),
            None => books.resize(sequences.len(), None),
        }
    }
    Ok(books)
}

impl Corpus {
    /// Runs what is chosen of it; what broke a promise, in whose sequence.
    fn tried(
        &self,
        row: &mut Row,
        defects: &[&str],
        chosen: &[&Sequence],
    ) -> Result<Option<Found>, Trouble> {
        if chosen.is_empty() {
            return Ok(None);
        }
        let bytes: Vec<&[u8]> = chosen.iter().map(|one| &one.bytes[..]).collect();
        let mut trial = Trial::of(self.family, &target(defects)?)?;
        let tried = trial.run(&bytes, Instant::now() + PATIENCE)?;
        if defects.contains(&Seed::Floor.name()) {
            let differ = chosen.iter().zip(&tried.books);
            row.unfloored_run += tried.books.len();
            row.others += differ
                .filter(|(one, books)| one.books.is_some_and(|usual| usual != **books))
                .count();
        } else {
            row.run += tried.sequences;
            row.beyond = row.beyond.max(tried.beyond);
        }
        Ok(tried.broken.map(|(nth, what)| Found {
            family: self.family.name,
            calls: chosen[nth].calls,
            what,
        }))
    }
}

fn without(
    hook: &'static str,
    class: &'static str,
    arguments: &FuzzArguments,
    corpora: &[Corpus],
) -> Result<Row, Trouble> {
    let mut row = Row {
        hook,
        class,
        ..Row::default()
    };
    let given = arguments.defect.as_deref().unwrap_or_default();
    let left_out = format!("{}{hook}", seeds::UNHOOK);
    let is_surface = |family: &&'static Family| matches!(family.calls, Calls::All { .. });
    let own = |family: &&'static Family| !is_surface(family) && family.names().contains(&hook);
    for family in family::all().filter(own) {
        let wish = wish(arguments, target(&[given, &left_out])?, OWN_CALLS);
        let report = run::run(family, &wish)?;
        if let Some(smallest) = report.broken {
            row.own = Some(Found {
                family: family.name,
                calls: report.calls,
                what: smallest.what,
            });
            break;
        }
    }
    let number = abi::cuda::NAMES.iter().position(|name| *name == hook);
    let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else {
        return Ok(row);
    };
    for corpus in corpora {
        let grants = |one: &&Sequence| one.granted.contains(&number);
        let chosen: Vec<&Sequence> = corpus.sequences.iter().filter(grants).collect();
        row.granted += chosen.len();
        if row.found.is_none() {
            row.found = corpus.tried(&mut row, &[given, &left_out], &chosen)?;
        }
        // A look that does not follow is no look less where there is none.
        if row.found.is_none() && row.unfloored.is_none() && class == "charged" {
            let chosen: Vec<&Sequence> = chosen
                .into_iter()
                .filter(|one| one.books.is_some())
                .collect();
            let defects = [given, Seed::Floor.name(), &left_out];
            row.unfloored = corpus.tried(&mut row, &defects, &chosen)?;
        }
    }
    Ok(row)
}

impl Row {
    fn verdict(&self) -> &'static str {
        match self {
            Row { found: Some(_), .. } => "found over all exports",
            Row { own: Some(_), .. } => "found by their own family alone",
            Row {
                unfloored: Some(_), ..
            } => "held by the floor",
            Row { granted: 0, .. } => NEVER_GRANTED,
            Row {
                class: "looked", ..
            } => "a look less, within the bound",
            Row { others: 0, .. } => "not missed",
            _ => "missed by the books alone, within the bound",
        }
    }

    fn line(&self) -> String {
        let told = |found: &Option<Found>| match found {
            Some(found) => format!("{} {}", found.family, found.calls),
            None => "-".to_owned(),
        };
        let said = self.found.as_ref().or(self.own.as_ref());
        let said = said.or(self.unfloored.as_ref());
        format!(
            "| `{}` | {} | {} | {} | {} | {} of {} | {:.1} MiB | {} of {} | {}{} |\n",
            self.hook,
            self.class,
            told(&self.own),
            told(&self.found),
            told(&self.unfloored),
            self.run,
            self.granted,
            self.beyond as f64 / MIB,
            self.others,
            self.unfloored_run,
            self.verdict(),
            said.map_or_else(String::new, |found| format!(": {}", found.what))
        )
    }
}
