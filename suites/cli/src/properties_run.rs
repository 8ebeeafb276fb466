//! `ringfence properties`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use harness::{Driver, Target};
use properties::histories::{crowd, run as race};
use properties::operation::Operation;
use properties::remote::Circumstances;
use properties::run::{self, Wish};

use crate::arguments::PropertiesArguments;
use crate::{UNEXPECTED, score};

/// How long a failure is made smaller.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a program of several processes is run again: it may be a race that is seldom lost.
const AGAIN: usize = 50;

pub fn run(arguments: &PropertiesArguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut target = Target::named(&arguments.target)?;
    if let Some(defect) = &arguments.defect {
        score::plant(&mut target, score::seed(defect)?);
    }
    if let Some(processes) = arguments.processes {
        return histories(arguments, target, usize::from(processes));
    }
    if !target.declares_ledger {
        return Err(format!("target {} keeps no ledger of ours", target.name).into());
    }
    let mut circumstances = Circumstances::over_mocks(target);
    if let Some(path) = &arguments.replay {
        circumstances.told = true;
        let operations: Vec<Operation> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let outcome = run::replay(circumstances, &operations)?;
        return said(outcome.broken.map(|broken| broken + "\n"));
    }
    let wish = Wish {
        operations: arguments.operations,
        seed: arguments.seed,
        patience: PATIENCE,
        regressions: None,
    };
    let report = run::run(circumstances, &wish)?;
    let rate = report.operations as f64 / report.took.as_secs_f64();
    crate::say(&format!(
        "{} operations in {} sequences, {} calls, {:.0} operations a second\n",
        report.operations, report.sequences, report.calls, rate
    ))?;
    said(report.broken.map(|smallest| format!("{smallest}\n")))
}

fn histories(
    arguments: &PropertiesArguments,
    target: Target,
    processes: usize,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut circumstances = crowd::Circumstances {
        target,
        driver: Driver::default(),
        processes,
    };
    if let Some(path) = &arguments.replay {
        let kept = race::Failure::read(path)?;
        circumstances.processes = kept.program.processes.len();
        let wrong = match kept.judged() {
            Some(Err(wrong)) => wrong.iter().map(|one| format!("{one}\n")).collect(),
            Some(Ok(_)) => "as it was written down: lawful\n".to_owned(),
            None => "no history was written down\n".to_owned(),
        };
        let (broken, last) = race::rerun(&circumstances, &kept.program, AGAIN)?;
        let last = last.map(|failure| failure.to_string()).unwrap_or_default();
        crate::say(&format!(
            "{wrong}run again, {broken} of {AGAIN} break a promise\n{last}"
        ))?;
        let lawful = broken == 0 && matches!(kept.judged(), Some(Ok(_)));
        return Ok(if lawful {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(UNEXPECTED)
        });
    }
    let wish = race::Wish {
        calls: arguments.operations,
        seed: arguments.seed,
        patience: PATIENCE,
    };
    let report = race::run(&circumstances, &wish)?;
    let (figures, seconds) = (report.figures, report.took.as_secs_f64());
    crate::say(&format!(
        "{} histories of {processes} processes, {} calls in {seconds:.0} s, {:.0} a second: {} granted, {} refused, {} of these only beside other \
         calls in flight or the dead; {} processes killed, {} of them in a call\n",
        report.histories,
        figures.calls,
        figures.calls as f64 / seconds,
        figures.grants,
        figures.refusals,
        figures.contended,
        figures.kills,
        figures.torn
    ))?;
    if let Some(failure) = &report.broken {
        failure.save(&arguments.save)?;
    }
    said(report.broken.map(|failure| failure.to_string()))
}

fn said(broken: Option<String>) -> Result<ExitCode, Box<dyn Error>> {
    let Some(broken) = broken else {
        return Ok(ExitCode::SUCCESS);
    };
    crate::say(&broken)?;
    Ok(ExitCode::from(UNEXPECTED))
}
