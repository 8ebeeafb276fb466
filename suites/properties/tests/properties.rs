//! Programs made by chance on the mock drivers: short here, as long as one likes by `ringfence properties`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use harness::Target;
use libtest_mimic::{Arguments, Failed, Trial};
use properties::operation::Operation;
use properties::remote::Circumstances;
use properties::run::{self, Wish};

/// A few seconds on a busy machine.
const OPERATIONS: u64 = 6_000;
/// How long a failure is made smaller.
const PATIENCE: Duration = Duration::from_secs(2);
/// Defects that the model must notice, planted into the same source (`enforcement/seeds`).
const PLANTED: [&str; 5] = ["C2", "C3", "C6", "C10", "R1"];

fn main() -> ExitCode {
    if let Some(code) = properties::child_main() {
        return code;
    }
    let mut trials = vec![Trial::test(
        "what_a_tenant_is_answered_is_what_the_model_says",
        sound,
    )];
    trials.push(Trial::test(
        "a_process_that_dies_is_a_failed_sequence",
        dies,
    ));
    for seed in PLANTED {
        trials.push(Trial::test(
            format!("defect_{seed}_is_noticed"),
            move || noticed(seed),
        ));
    }
    match kept() {
        Ok(files) => trials.extend(files.into_iter().map(|path| {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            Trial::test(format!("kept::{name}"), move || replayed(&path))
        })),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

fn sound() -> Result<(), Failed> {
    let wish = Wish {
        operations: OPERATIONS,
        seed: 4,
        patience: PATIENCE,
        regressions: Some(regressions().join("seeds.txt")),
    };
    let report = run::run(Circumstances::over_mocks(Target::named("ours")?), &wish)?;
    match report.broken {
        None if report.operations >= OPERATIONS => Ok(()),
        None => Err(format!("only {} operations were run", report.operations).into()),
        Some(smallest) => Err(smallest.to_string().into()),
    }
}

/// With the defect some sequence fails.
fn noticed(seed: &str) -> Result<(), Failed> {
    let mut target = Target::named("seeded")?;
    target
        .environment
        .insert("RINGFENCE_SEED".to_owned(), seed.to_owned());
    let wish = Wish {
        operations: OPERATIONS,
        seed: 4,
        patience: PATIENCE,
        regressions: None,
    };
    let report = run::run(Circumstances::over_mocks(target), &wish)?;
    match report.broken {
        Some(_) => Ok(()),
        None => Err(format!("{} operations passed with the defect", report.operations).into()),
    }
}

/// The process is ended from within: its starter says so, and runs the next sequence in another.
fn dies() -> Result<(), Failed> {
    let mut remote =
        properties::remote::Remote::new(Circumstances::over_mocks(Target::named("ours")?));
    let died = remote.run(&[Operation::Die])?;
    let told = died.broken.unwrap_or_default();
    if !told.contains("died of signal") {
        return Err(format!("a dead process was told as \"{told}\"").into());
    }
    match remote.run(&[Operation::Synchronize])?.broken {
        None => Ok(()),
        Some(broken) => Err(broken.into()),
    }
}

/// Sequences that broke a promise once.
fn kept() -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(regressions())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn replayed(path: &Path) -> Result<(), Failed> {
    let operations: Vec<Operation> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let outcome = run::replay(
        Circumstances::over_mocks(Target::named("ours")?),
        &operations,
    )?;
    match outcome.broken {
        None => Ok(()),
        Some(broken) => Err(broken.into()),
    }
}
