//! Every family for about a second on the mock drivers: the same calls each time. As long as one likes by `ringfence fuzz`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fuzz::family::{self, Family};
use fuzz::run::{self, Smallest, Wish};
use harness::Target;
use libtest_mimic::{Arguments, Failed, Trial};

/// Calls of a family; of one whose launches wait for a compute budget, or that makes contexts or Vulkan's objects, fewer.
const CALLS: u64 = 40_000;
const SLOW_CALLS: u64 = 4_000;
const SLOW: [&str; 7] = [
    "contexts",
    "vulkan-memory",
    "vulkan-objects",
    "modules",
    "exports",
    "exports-one-gpu",
    "exports-newest",
];
/// Defects that must be noticed, planted into the same source (`enforcement/seeds`), and by which family.
const PLANTED: [(&str, &str); 12] = [
    ("memory", "C2"),
    ("memory", "C3"),
    ("memory", "C5"),
    ("contexts", "C7"),
    ("arrays", "R2"),
    ("look-ups", "S1"),
    ("nvml", "S8"),
    ("exports", "R27"),
    // Page tables of page-locked memory are in no row; the rest with the floor taken out, by one thread where threads' own streams are not meant.
    ("exports", "R19"),
    ("exports", "F1,R18"),
    ("exports-newest", "F1,R16"),
    ("exports-newest", "F1,R17"),
];

fn main() -> ExitCode {
    if let Some(code) = fuzz::child_main() {
        return code;
    }
    let mut trials: Vec<Trial> = family::all()
        .map(|family| Trial::test(format!("family::{}", family.name), move || sound(family)))
        .collect();
    for (family, seed) in PLANTED {
        trials.push(Trial::test(
            format!("defect_{seed}_is_noticed"),
            move || noticed(family, seed),
        ));
    }
    match kept() {
        Ok(files) => trials.extend(files.into_iter().map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            Trial::test(format!("kept::{name}"), move || replayed(&path))
        })),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn wish(target: Target, calls: u64) -> Wish {
    Wish {
        calls,
        seed: 1,
        patience: Duration::from_secs(20),
        target,
        guided: false,
        until: None,
    }
}

fn sound(family: &'static Family) -> Result<(), Failed> {
    let calls = match family.paced || SLOW.contains(&family.name) {
        true => SLOW_CALLS,
        false => CALLS,
    };
    let report = run::run(family, &wish(Target::named("ours")?, calls))?;
    match report.broken {
        None if report.calls >= calls => Ok(()),
        None => Err(format!("only {} calls were made", report.calls).into()),
        Some(smallest) => {
            let (_, lines) = run::replay(&smallest, &Target::named("ours")?)?;
            let file = serde_json::to_string(&smallest)?;
            Err(format!("{}\n{}\n{file}", smallest.what, lines.join("\n")).into())
        }
    }
}

/// With the defect some sequence of the family breaks a promise.
fn noticed(family: &str, seed: &str) -> Result<(), Failed> {
    let family = Family::named(family).ok_or("there is no such family")?;
    let mut target = Target::named("seeded")?;
    target
        .environment
        .insert("RINGFENCE_SEED".to_owned(), seed.to_owned());
    let wish = Wish {
        patience: Duration::ZERO,
        ..wish(target, 2 * CALLS)
    };
    match run::run(family, &wish)?.broken {
        Some(_) => Ok(()),
        None => Err("every call passed with the defect".into()),
    }
}

/// Sequences that broke a promise once.
fn kept() -> std::io::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
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
    let smallest: Smallest = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    match run::replay(&smallest, &Target::named("ours")?)?.0 {
        None => Ok(()),
        Some(broken) => Err(broken.into()),
    }
}
