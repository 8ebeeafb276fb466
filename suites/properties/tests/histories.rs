//! Several processes at once on the mock drivers: short here, as long as one likes by `ringfence properties --processes N`.

use std::process::ExitCode;
use std::time::Duration;

use harness::{Driver, Target};
use libtest_mimic::{Arguments, Failed, Trial};
use properties::histories::check::Figures;
use properties::histories::crowd::Circumstances;
use properties::histories::run::{self, Report, Wish};

/// A second or two on a busy machine.
const CALLS: u64 = 1_500;
/// Within so many a defect is noticed.
const CALLS_WITH_DEFECT: u64 = 40_000;
/// How an over-grant is noticed: by what was surely held at once, or, where the overlap hides that, by the device.
const TOO_MUCH: [&str; 2] = ["certainly", "the device held"];

fn main() -> ExitCode {
    if let Some(code) = properties::child_main() {
        return code;
    }
    let trials = vec![
        Trial::test("what_four_processes_are_told_is_lawful", sound),
        Trial::test("without_an_enforcer_too_much_is_held", || {
            noticed(Target::named("none")?, &TOO_MUCH)
        }),
        Trial::test("a_check_before_an_addition_is_noticed", || {
            noticed(seeded("P1")?, &TOO_MUCH)
        }),
        Trial::test("the_dead_who_are_never_reclaimed_are_noticed", || {
            noticed(seeded("P3")?, &["in the end"])
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn seeded(defect: &str) -> Result<Target, Failed> {
    let mut target = Target::named("seeded")?;
    target
        .environment
        .insert("RINGFENCE_SEED".to_owned(), defect.to_owned());
    Ok(target)
}

fn run(target: Target, calls: u64) -> Result<Report, Failed> {
    let circumstances = Circumstances {
        target,
        driver: Driver::default(),
        processes: 4,
    };
    let wish = Wish {
        calls,
        seed: 4,
        patience: Duration::ZERO,
    };
    Ok(run::run(&circumstances, &wish)?)
}

fn sound() -> Result<(), Failed> {
    let report = run(Target::named("ours")?, CALLS)?;
    if let Some(failure) = report.broken {
        return Err(failure.to_string().into());
    }
    let Figures {
        calls,
        grants,
        refusals,
        kills,
        ..
    } = report.figures;
    match calls >= CALLS && grants > 0 && refusals > 0 && kills > 0 {
        true => Ok(()),
        false => Err(format!("not much was tried: {:?}", report.figures).into()),
    }
}

/// Some history breaks a promise, one of those; judged again it does so again.
fn noticed(target: Target, what: &[&str]) -> Result<(), Failed> {
    let report = run(target, CALLS_WITH_DEFECT)?;
    let Some(failure) = report.broken else {
        return Err(format!("{:?} passed", report.figures).into());
    };
    let again = failure.judged();
    let named = |wrong: &String| what.iter().any(|what| wrong.contains(what));
    if !failure.what.iter().any(named) || !matches!(again, Some(Err(_))) {
        return Err(format!("something else was noticed: {failure}").into());
    }
    Ok(())
}
