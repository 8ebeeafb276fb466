//! `ringfence properties`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use harness::Target;
use properties::operation::Operation;
use properties::remote::Circumstances;
use properties::run::{self, Wish};

use crate::arguments::PropertiesArguments;
use crate::{UNEXPECTED, score};

pub fn run(arguments: &PropertiesArguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut target = Target::named(&arguments.target)?;
    if let Some(defect) = &arguments.defect {
        score::plant(&mut target, score::seed(defect)?);
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
        patience: Duration::from_secs(60),
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

fn said(broken: Option<String>) -> Result<ExitCode, Box<dyn Error>> {
    let Some(broken) = broken else {
        return Ok(ExitCode::SUCCESS);
    };
    crate::say(&broken)?;
    Ok(ExitCode::from(UNEXPECTED))
}
