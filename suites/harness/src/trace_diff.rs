//! Two traces of the same programs, compared by call, argument shape and answer: a mock's and a card's, say.
//!
//! Calls are aligned per case, role, thread and API ([`align`]). What has no counterpart there is looked for in the case's other
//! threads and processes, which race: a call with the same answer and arguments is the same *elsewhere*, which says less and is
//! counted apart. Two aligned calls are the same if their answers are equal
//! and every argument has the same shape: null or not, number, text, a handle of the same kind, known or not. Numbers and
//! texts must be equal too, unless a row of [`rules`] says that the machine decides them. A difference that a row allows is
//! listed with the row's reason and fails nothing.
//!
//! A call that one side shows without any argument (the mocks' own trace of what they do not simulate) is compared by its
//! answer alone.

mod align;
mod report;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub use rules::{Rules, RulesError, fits};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    entry: String,
    args: Map<String, Value>,
    answer: Value,
}

/// Whose calls: role, thread, API.
type Caller = (String, u64, String);
type Calls = BTreeMap<Caller, Vec<Call>>;

/// Why traces cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: line {line} is no line of a trace: {text}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        text: String,
    },
    #[error("{} and {} are a file and a directory: give two of one sort", .0.display(), .1.display())]
    Sorts(PathBuf, PathBuf),
    #[error("{} and {} have no trace of the same name", .0.display(), .1.display())]
    NothingInCommon(PathBuf, PathBuf),
}

/// Something that two aligned calls do not have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Answer {
        left: String,
        right: String,
    },
    Argument {
        name: String,
        left: String,
        right: String,
    },
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Answer { left, right } => write!(out, "answers {left} | {right}"),
            What::Argument { name, left, right } => write!(out, "{name} is {left} | {right}"),
        }
    }
}

/// A difference, where it was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub api: String,
    pub entry: String,
    pub what: What,
    pub case: String,
    pub caller: String,
    /// From 1, in each trace.
    pub calls: (usize, usize),
    /// Why it is allowed, if it is.
    pub reason: Option<String>,
}

/// Calls without a counterpart, and why, if a row of the list says so. Their numbers, left and right, are kept by this.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alone {
    pub api: String,
    pub entry: String,
    pub reason: Option<String>,
    pub case: String,
}

/// How many calls of one API were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub same: usize,
    /// Differ as a row allows.
    pub allowed: usize,
    pub different: usize,
    /// The same, but in another order, thread or process of the case.
    pub elsewhere: usize,
    pub only_left: usize,
    pub only_right: usize,
}

impl Tally {
    /// Calls of both sides, those that have a counterpart counted once.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.paired() + self.elsewhere + self.only_left + self.only_right
    }

    fn paired(&self) -> usize {
        self.same + self.allowed + self.different
    }

    /// Of all calls, in percent: what one side alone did is not the same.
    #[must_use]
    pub fn share(&self) -> f64 {
        percent(self.same + self.elsewhere, self.calls())
    }

    /// Of the calls that have a counterpart.
    #[must_use]
    pub fn share_of_paired(&self) -> f64 {
        percent(self.same, self.paired())
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    match whole {
        0 => 100.0,
        whole => part as f64 * 100.0 / whole as f64,
    }
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    pub tallies: BTreeMap<String, Tally>,
    pub differences: Vec<Difference>,
    pub cases: usize,
    pub cases_only_left: Vec<String>,
    pub cases_only_right: Vec<String>,
    /// Calls that have no counterpart.
    pub unpaired: BTreeMap<Alone, (usize, usize)>,
}

impl Comparison {
    /// Whether every difference is allowed, and every call without a counterpart.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        let mut differences = self.differences.iter();
        differences.all(|difference| difference.reason.is_some())
            && self.unpaired.keys().all(|alone| alone.reason.is_some())
    }
}

/// Compares two files, or two directories of files by their names.
pub fn compare(left: &Path, right: &Path, rules: &Rules) -> Result<Comparison, DiffError> {
    for path in [left, right] {
        path.metadata().map_err(|source| DiffError::File {
            path: path.to_owned(),
            source,
        })?;
    }
    let (left_files, right_files) = match (left.is_dir(), right.is_dir()) {
        (true, true) => (traces_in(left)?, traces_in(right)?),
        (false, false) => (one(left), one(right)),
        _ => return Err(DiffError::Sorts(left.to_owned(), right.to_owned())),
    };
    let mut comparison = Comparison::default();
    let names: BTreeSet<&String> = left_files.keys().chain(right_files.keys()).collect();
    for name in names {
        match (left_files.get(name), right_files.get(name)) {
            (Some(left), Some(right)) => {
                comparison.cases += 1;
                case(&mut comparison, name, &read(left)?, &read(right)?, rules);
            }
            (Some(_), None) => comparison.cases_only_left.push(name.clone()),
            _ => comparison.cases_only_right.push(name.clone()),
        }
    }
    if comparison.cases == 0 {
        return Err(DiffError::NothingInCommon(
            left.to_owned(),
            right.to_owned(),
        ));
    }
    Ok(comparison)
}

fn one(path: &Path) -> BTreeMap<String, PathBuf> {
    BTreeMap::from([("trace".to_owned(), path.to_owned())])
}

fn traces_in(directory: &Path) -> Result<BTreeMap<String, PathBuf>, DiffError> {
    let failed = |source| DiffError::File {
        path: directory.to_owned(),
        source,
    };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(case) = name.strip_suffix(".jsonl") {
            found.insert(case.to_owned(), path.clone());
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Calls, DiffError> {
    let text = std::fs::read_to_string(path).map_err(|source| DiffError::File {
        path: path.to_owned(),
        source,
    })?;
    let mut calls = Calls::new();
    for (at, line) in text.lines().enumerate() {
        let (caller, call) = parse(line).ok_or_else(|| DiffError::Line {
            path: path.to_owned(),
            line: at + 1,
            text: line.chars().take(80).collect(),
        })?;
        calls.entry(caller).or_default().push(call);
    }
    Ok(calls)
}

fn parse(line: &str) -> Option<(Caller, Call)> {
    let record: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
    let thread = record.get("thread").and_then(Value::as_u64).unwrap_or(1);
    let caller = (text("role").unwrap_or_default(), thread, text("api")?);
    let call = Call {
        entry: text("entry")?,
        args: record.get("args")?.as_object()?.clone(),
        answer: record.get("answer")?.clone(),
    };
    Some((caller, call))
}

fn case(comparison: &mut Comparison, name: &str, left: &Calls, right: &Calls, rules: &Rules) {
    let nothing = Vec::new();
    let mut over = LeftOver::default();
    let callers: BTreeSet<&Caller> = left.keys().chain(right.keys()).collect();
    for caller in callers {
        let (role, thread, api) = caller;
        let (left, right) = (
            left.get(caller).unwrap_or(&nothing),
            right.get(caller).unwrap_or(&nothing),
        );
        let who = match thread {
            1 => role.clone(),
            thread => format!("{role}, thread {thread}"),
        };
        for pair in align::align(left, right) {
            let tally = comparison.tallies.entry(api.clone()).or_default();
            match pair {
                (Some(at), Some(to)) => {
                    let (one, other) = (&left[at], &right[to]);
                    let found: Vec<Difference> = differences(api, one, other, rules)
                        .into_iter()
                        .map(|what| Difference {
                            reason: rules.reason(api, &one.entry, &what, name),
                            api: api.clone(),
                            entry: one.entry.clone(),
                            what,
                            case: name.to_owned(),
                            caller: who.clone(),
                            calls: (at + 1, to + 1),
                        })
                        .collect();
                    if found.is_empty() {
                        tally.same += 1;
                    } else if found.iter().all(|one| one.reason.is_some()) {
                        tally.allowed += 1;
                    } else {
                        tally.different += 1;
                    }
                    comparison.differences.extend(found);
                }
                (at, to) => {
                    over.add(api, at.map(|at| &left[at]), to.map(|to| &right[to]));
                }
            }
        }
    }
    let mut alone: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for ((api, entry, _), (left, right)) in over.0 {
        let tally = comparison.tallies.entry(api.to_owned()).or_default();
        let (left, right, same) = matched(left, right, |one, other| {
            differences(api, one, other, rules).is_empty()
        });
        tally.elsewhere += same;
        tally.only_left += left;
        tally.only_right += right;
        let count = alone.entry((api, entry)).or_default();
        *count = (count.0 + left, count.1 + right);
    }
    for ((api, entry), count) in alone.into_iter().filter(|(_, count)| *count != (0, 0)) {
        let alone = Alone {
            reason: rules.reason_alone(api, entry, name, count),
            api: api.to_owned(),
            entry: entry.to_owned(),
            case: name.to_owned(),
        };
        comparison.unpaired.insert(alone, count);
    }
}

/// Calls of a case without a counterpart in their own thread, left and right, by API, entry point and answer.
#[derive(Default)]
struct LeftOver<'a>(BTreeMap<(&'a str, &'a str, String), Sides<'a>>);

type Sides<'a> = (Vec<&'a Call>, Vec<&'a Call>);

impl<'a> LeftOver<'a> {
    fn add(&mut self, api: &'a str, left: Option<&'a Call>, right: Option<&'a Call>) {
        if let Some(call) = left {
            self.of(api, call).0.push(call);
        }
        if let Some(call) = right {
            self.of(api, call).1.push(call);
        }
    }

    fn of(&mut self, api: &'a str, call: &'a Call) -> &mut Sides<'a> {
        let key = (api, call.entry.as_str(), shown(&call.answer));
        self.0.entry(key).or_default()
    }
}

/// How many calls of each side are left when every two that are the same have been taken together, and how many were.
fn matched(
    left: Vec<&Call>,
    mut right: Vec<&Call>,
    same: impl Fn(&Call, &Call) -> bool,
) -> (usize, usize, usize) {
    let all = left.len();
    let mut found = 0;
    for one in left {
        if let Some(at) = right.iter().position(|other| same(one, other)) {
            right.swap_remove(at);
            found += 1;
        }
    }
    (all - found, right.len(), found)
}

fn differences(api: &str, left: &Call, right: &Call, rules: &Rules) -> Vec<What> {
    let mut found = Vec::new();
    if left.answer != right.answer {
        found.push(What::Answer {
            left: shown(&left.answer),
            right: shown(&right.answer),
        });
    }
    if left.args.is_empty() || right.args.is_empty() {
        return found;
    }
    let names: BTreeSet<&String> = left.args.keys().chain(right.args.keys()).collect();
    for name in names {
        let (one, other) = (left.args.get(name), right.args.get(name));
        let by_shape = rules.machine_decides(api, &left.entry, name);
        // After different answers, what was written says nothing more.
        let same = match (one, other) {
            (Some(one), Some(other)) => alike(one, other, by_shape),
            _ => false,
        };
        if !same && found.is_empty() {
            found.push(What::Argument {
                name: name.clone(),
                left: one.map_or_else(|| "absent".to_owned(), shown),
                right: other.map_or_else(|| "absent".to_owned(), shown),
            });
        }
    }
    found
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// `mem#3` is any `mem#`: what was made in between may be numbered otherwise.
fn kind(text: &str) -> &str {
    match text.split_once('#') {
        Some((kind, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => kind,
        _ => text,
    }
}

fn alike(left: &Value, right: &Value, by_shape: bool) -> bool {
    match (left, right) {
        (Value::String(left), Value::String(right)) => {
            kind(left) == kind(right) || (by_shape && !left.contains('#') && !right.contains('#'))
        }
        (Value::Number(left), Value::Number(right)) => by_shape || left == right,
        (left, right) => left == right,
    }
}

#[cfg(test)]
mod tests;
