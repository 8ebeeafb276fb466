//! `ringfence fuzz`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuzz::family::{self, Calls, Family};
use fuzz::remote::Trouble;
use fuzz::run::{self, Report, Smallest, Wish};
use harness::Target;
use harness::progress::Counted;
use seeds::Mark;

use crate::arguments::FuzzArguments;
use crate::{UNEXPECTED, score, unhook};

/// Calls that one of several workers makes before it takes the next piece: so that none is left with a slow family alone.
const PIECE: u64 = 1_000_000;

/// What is left to do: a family, its share of the calls, its seed.
struct Piece {
    family: &'static Family,
    wish: Wish,
}

pub fn run(arguments: &FuzzArguments) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(names) = &arguments.unhook {
        return unhook::run(arguments, names);
    }
    let target = target(arguments)?;
    if let Some(path) = &arguments.replay {
        let smallest: Smallest = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let (broken, lines) = run::replay(&smallest, &target)?;
        crate::say(
            &lines
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>(),
        )?;
        return said(broken.as_deref());
    }
    let families = match &arguments.families[..] {
        [] => family::all().collect(),
        some => some
            .iter()
            .map(|name| Family::named(name).ok_or_else(|| Trouble::NoFamily(name.clone())))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let pieces = pieces(&families, arguments, &target);
    let started = Instant::now();
    let totals = by_workers(&pieces, arguments.jobs.max(1) as usize)?;
    let mut all = Total::default();
    for family in families {
        let total = totals.iter().filter(|(name, _)| *name == family.name);
        let total = total.fold(Total::default(), |sum, (_, report)| sum.with(report));
        let reached = match total.reached {
            (_, 0) => String::new(),
            (reached, of) => format!(", reached {reached} of {of} places"),
        };
        crate::say(&format!(
            "{:15} {:>11} calls in {:>9} sequences, {:>9.0} a second{reached}\n",
            family.name,
            total.calls,
            total.sequences,
            total.calls as f64 / total.took.as_secs_f64().max(0.001)
        ))?;
        all.calls += total.calls;
        if matches!(family.calls, Calls::All { .. }) {
            crate::say(&format!(
                "{:15} {} of {} exports were granted, at most {:.1} MiB beyond a budget\n",
                "",
                total.granted.len(),
                abi::cuda::NAMES.len(),
                total.beyond as f64 / f64::from(1 << 20)
            ))?;
        }
        all.marks |= total.marks;
    }
    let took = started.elapsed().as_secs_f64();
    let findings = totals.iter().filter(|(_, report)| report.broken.is_some());
    crate::say(&format!(
        "{} calls in {took:.0} s, {:.0} a second, findings: {}\n",
        all.calls,
        all.calls as f64 / took,
        findings.count()
    ))?;
    let broken = totals.into_iter().find_map(|(_, report)| report.broken);
    if let Some(smallest) = &broken {
        std::fs::write(
            &arguments.save,
            serde_json::to_string_pretty(smallest)? + "\n",
        )?;
        crate::say(&format!(
            "{}: {}; ",
            smallest.family,
            arguments.save.display()
        ))?;
    }
    if arguments.sometimes && broken.is_none() {
        let missed = || Mark::ALL.iter().filter(|mark| all.marks & mark.bit() == 0);
        for mark in missed() {
            crate::say(&format!("never reached: {mark:?}, {}\n", mark.what()))?;
        }
        if missed().next().is_some() {
            return Ok(ExitCode::from(UNEXPECTED));
        }
    }
    said(broken.map(|smallest| smallest.what).as_deref())
}

fn target(arguments: &FuzzArguments) -> Result<Target, Box<dyn Error>> {
    let mut target = Target::named(&arguments.target)?;
    if let Some(defects) = &arguments.defect {
        for defect in defects.split(',') {
            if !defect.starts_with(seeds::UNHOOK) {
                score::seed(defect)?;
            }
        }
        let variable = seeds::VARIABLE.to_owned();
        target.environment.insert(variable, defects.clone());
    }
    if !target.declares_ledger {
        return Err(format!("target {} keeps no ledger of ours", target.name).into());
    }
    if let Some(directory) = &arguments.guided {
        let found = |name: &str| -> Result<String, Box<dyn Error>> {
            let path = Path::new(directory).join(name);
            let path = path
                .canonicalize()
                .map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path.display().to_string())
        };
        target.preload = vec![found("libvgpu.so")?];
        if let Some(layer) = &mut target.layer {
            layer.library = found("libvgpu_vk.so")?;
        }
    }
    Ok(target)
}

fn pieces(families: &[&'static Family], arguments: &FuzzArguments, target: &Target) -> Vec<Piece> {
    // What is guided learns from all that it did: it is one piece for each worker.
    let piece = match arguments.guided {
        Some(_) => arguments.calls.div_ceil(arguments.jobs.max(1)),
        None => PIECE,
    };
    let seconds = arguments.seconds.map(Duration::from_secs);
    let until = seconds.map(|seconds| Instant::now() + seconds);
    let mut pieces = Vec::new();
    for nth in 0..arguments.calls.div_ceil(piece.max(1)) {
        for family in families {
            let wish = Wish {
                calls: piece.min(arguments.calls - nth * piece),
                seed: arguments.seed.wrapping_add(nth << 32),
                patience: Duration::from_secs(arguments.patience),
                target: target.clone(),
                guided: arguments.guided.is_some(),
                until,
            };
            pieces.push(Piece { family, wish });
        }
    }
    pieces
}

type Reports = Vec<(&'static str, Report)>;

/// Each worker takes the next piece until there is none or one broke a promise.
fn by_workers(pieces: &[Piece], workers: usize) -> Result<Reports, Trouble> {
    let next = AtomicU64::new(0);
    let reports = Mutex::new(Vec::new());
    let progress = Counted::new(pieces.iter().map(|piece| piece.wish.calls).sum());
    let worker = || -> Result<(), Trouble> {
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let name = piece.family.name;
            let news = |more| progress.advance(name, more);
            let report = run::run_with_news(piece.family, &piece.wish, news)?;
            if report.broken.is_some() {
                next.store(pieces.len() as u64, Ordering::Relaxed);
            }
            if let Ok(mut reports) = reports.lock() {
                reports.push((name, report));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        running.into_iter().try_for_each(|one| match one.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(Trouble::Beginning("a worker panicked".to_owned())),
        })
    })?;
    progress.finish();
    Ok(reports.into_inner().unwrap_or_default())
}

#[derive(Default)]
struct Total {
    calls: u64,
    sequences: u64,
    /// Of all workers together.
    took: Duration,
    reached: (usize, usize),
    marks: u64,
    beyond: u64,
    granted: std::collections::BTreeSet<u16>,
}

impl Total {
    fn with(mut self, report: &Report) -> Self {
        self.granted.extend(report.granted.keys());
        Self {
            marks: self.marks | report.marks,
            beyond: self.beyond.max(report.beyond),
            granted: self.granted,
            calls: self.calls + report.calls,
            sequences: self.sequences + report.sequences,
            took: self.took + report.took,
            reached: self.reached.max(report.reached),
        }
    }
}

fn said(broken: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let Some(broken) = broken else {
        return Ok(ExitCode::SUCCESS);
    };
    crate::say(&format!("{broken}\n"))?;
    Ok(ExitCode::from(UNEXPECTED))
}
