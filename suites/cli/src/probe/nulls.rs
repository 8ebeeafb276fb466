//! What every export answers to zeros, before anything was initialised and after, and which versions of structures NVML takes.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use harness::Api;
use harness::evidence::{Asked, Grounds};

use super::lines::split;
use super::task::Asker;

/// What is never called, whatever it would answer: it stops or watches processes, or belongs to a debugger.
/// What answers with an address instead of a code would say something else each time.
const NEVER: [&str; 6] = [
    "cudbg",
    "cuCheckpoint",
    "cuCoredump",
    "cuMulticast",
    "cuProfiler",
    "nvmlErrorString",
];
/// NVML's questions. Whatever else it exports may set, clear, reset or create something.
const QUESTIONS: [&str; 3] = ["nvmlDeviceGet", "nvmlSystemGet", "nvmlUnitGet"];

/// Before an answer that is a mock's alone.
pub const PRESUMED: char = '~';

fn callable(name: &str) -> bool {
    !NEVER.iter().any(|never| name.starts_with(never))
}

/// Names as cuGetProcAddress knows them: exports without what later versions and streams append.
pub fn bases(exports: &[String]) -> BTreeSet<String> {
    exports
        .iter()
        .filter(|name| !name.starts_with("cudbg"))
        .map(|name| base(name).to_owned())
        .collect()
}

/// A name without its version and stream.
pub fn base(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    }
}

/// Rows `NAME BEFORE READY`.
pub fn cuda(
    asker: &Asker<'_>,
    exports: &[String],
    grounds: Option<&Grounds>,
) -> Result<Vec<String>, Box<dyn Error>> {
    let names: Vec<String> = exports
        .iter()
        .filter(|name| callable(name))
        .cloned()
        .collect();
    let before = answers(asker, "cuda-before", &names)?;
    let ready = answers(asker, "cuda-ready", &names)?;
    let columns = [(before, Asked::Before), (ready, Asked::Ready)];
    Ok(rows(
        exports,
        &columns.map(|column| marked(column, Api::Cuda, grounds)),
    ))
}

/// NVML's getters, as far as they are exported.
fn questions(exports: &[String]) -> Vec<String> {
    exports
        .iter()
        .filter(|name| QUESTIONS.iter().any(|question| name.starts_with(question)))
        .cloned()
        .collect()
}

/// Rows `NAME VERSION:SIZE …`, or `NAME plain`.
pub fn structures(asker: &Asker<'_>, exports: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
    let names = questions(exports);
    Ok(rows(&names, &[answers(asker, "nvml-structures", &names)?]))
}

/// Rows `NAME DEVICE NULLS BEFORE`.
pub fn nvml(
    asker: &Asker<'_>,
    exports: &[String],
    grounds: Option<&Grounds>,
) -> Result<Vec<String>, Box<dyn Error>> {
    let names: Vec<String> = exports
        .iter()
        .filter(|name| callable(name))
        .cloned()
        .collect();
    let questions = questions(exports);
    let before = answers(asker, "nvml-before", &names)?;
    let device = answers(asker, "nvml-device", &questions)?;
    let nulls = answers(asker, "nvml-nulls", &questions)?;
    let columns = [
        (device, Asked::Ready),
        (nulls, Asked::Nulls),
        (before, Asked::Before),
    ];
    Ok(rows(
        exports,
        &columns.map(|column| marked(column, Api::Nvml, grounds)),
    ))
}

/// A mock's answers that no driver of its generation gave get a `~`.
fn marked((mut answers, asked): (Answers, Asked), api: Api, grounds: Option<&Grounds>) -> Answers {
    if let Some(grounds) = grounds {
        let recorded: BTreeMap<&str, String> = grounds.answers(api, asked).into_iter().collect();
        for (name, answer) in &mut answers {
            if recorded.get(name.as_str()) != Some(answer) {
                answer.insert(0, PRESUMED);
            }
        }
    }
    answers
}

type Answers = BTreeMap<String, String>;

/// Children ask for one name after the other; where one ends, the next goes on.
fn answers(asker: &Asker<'_>, task: &str, names: &[String]) -> Result<Answers, Box<dyn Error>> {
    let (mut found, mut at, mut children) = (Answers::new(), 0, 0);
    while at < names.len() {
        let said = asker.start(task, &names[at..])?;
        children += 1;
        let mut asking = None;
        let mut heard = 0;
        for line in &said.lines {
            match split(line) {
                ("?", name) => asking = Some(name.to_owned()),
                (name, answer) => {
                    found.insert(name.to_owned(), answer.to_owned());
                    heard += 1;
                    asking = None;
                }
            }
        }
        if let Some(name) = asking {
            let how = if said.silent { "T" } else { "S" };
            found.insert(name, how.to_owned());
            heard += 1;
        }
        if heard == 0 {
            return Err(format!("{task} from {} on: {}", names[at], said.error).into());
        }
        at += heard;
    }
    eprintln!("probe: {task}: {} names, {children} processes", names.len());
    Ok(found)
}

fn rows(exports: &[String], columns: &[Answers]) -> Vec<String> {
    exports
        .iter()
        .map(|name| {
            let answers = columns
                .iter()
                .map(|column| column.get(name).map_or("-", String::as_str));
            std::iter::once(name.as_str())
                .chain(answers)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}
