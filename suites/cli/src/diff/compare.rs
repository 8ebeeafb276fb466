//! The facts of two files, side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::allowed::Allowed;
use super::enforcer::{Enforcer, Touch};
use super::file::{Facts, Part, Record, is_unknown};
use super::judge;

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No hook, no call of ours and no case depends on it, or they were made for it.
    Nothing,
    /// Something depends on it, or nobody has judged it yet: a person should, and run the cases.
    Look,
    /// A hook is dead or can be gone around, or a promise no longer holds.
    Breaks,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Look => "look",
            Self::Breaks => "breaks",
        }
    }
}

/// A fact of two: the subject's text in either file, if it is there.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    pub part: Part,
    pub subject: &'a str,
    pub old: Option<&'a str>,
    pub new: Option<&'a str>,
}

/// What a difference is, and what it means.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub part: Part,
    pub subject: String,
    /// None: it is new.
    pub old: Option<String>,
    /// None: it is gone.
    pub new: Option<String>,
    pub verdict: Verdict,
    pub why: String,
    #[serde(flatten)]
    pub touch: Touch,
    /// Why it is allowed, if it is; then it counts for nothing.
    pub reason: Option<String>,
}

/// A judge's answer.
#[derive(Debug)]
pub struct Judged {
    pub verdict: Verdict,
    pub why: String,
    pub touch: Touch,
}

impl Judged {
    pub fn new(verdict: Verdict, why: impl Into<String>, touch: Touch) -> Self {
        let why = why.into();
        Self {
            verdict,
            why,
            touch,
        }
    }

    pub fn nothing(why: impl Into<String>) -> Self {
        Self::new(Verdict::Nothing, why, Touch::default())
    }
}

/// Both sides of a comparison, and what our libraries are.
pub struct Context<'a> {
    pub old: &'a Record,
    pub new: &'a Record,
    pub enforcer: &'a Enforcer,
}

/// How many facts of a part were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub same: usize,
    pub different: usize,
    /// One file or both do not know.
    pub unknown: usize,
}

/// A part that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    pub part: Part,
    /// `old`, `new`, `both`.
    pub side: &'static str,
    pub why: String,
}

/// What is said of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    pub file: String,
    pub driver: String,
    pub is_mock: bool,
    pub version: Option<String>,
    pub cuda_version: Option<i32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub old: Head,
    pub new: Head,
    pub tallies: BTreeMap<&'static str, Tally>,
    pub unknown: Vec<Unknown>,
    pub differences: Vec<Difference>,
    /// Rows of the list of what is allowed that nothing needs.
    pub stale: Vec<String>,
}

impl Comparison {
    /// The worst of what is not allowed.
    pub fn verdict(&self) -> Verdict {
        let counted = self.differences.iter().filter(|one| one.reason.is_none());
        counted
            .map(|one| one.verdict)
            .max()
            .unwrap_or(Verdict::Nothing)
    }

    pub fn json(&self) -> serde_json::Result<String> {
        let mut value = serde_json::to_value(self)?;
        value["verdict"] = self.verdict().name().into();
        Ok(format!("{value:#}\n"))
    }
}

pub fn compare(old: &Record, new: &Record, enforcer: &Enforcer, allowed: &Allowed) -> Comparison {
    let context = Context { old, new, enforcer };
    let mut comparison = Comparison {
        old: head(old),
        new: head(new),
        tallies: BTreeMap::new(),
        unknown: Vec::new(),
        differences: Vec::new(),
        stale: Vec::new(),
    };
    let other_gpu = other_gpu(old, new);
    for part in Part::ALL {
        match both(&context, part, other_gpu.as_deref()) {
            Ok((one, other)) => {
                let tally = part_of(&context, part, one, other, &mut comparison.differences);
                comparison.tallies.insert(part.name(), tally);
                if tally.same + tally.different == 0 {
                    comparison.unknown.push(Unknown {
                        part,
                        side: "both",
                        why: "nothing of it is known of both drivers".to_owned(),
                    });
                }
            }
            Err(unknown) => comparison.unknown.push(unknown),
        }
    }
    for difference in &mut comparison.differences {
        let reason = allowed.reason(difference.part.name(), &difference.subject);
        difference.reason = reason.map(str::to_owned);
    }
    let subjects = comparison.differences.iter();
    comparison.stale = allowed.stale(subjects.map(|one| (one.part.name(), one.subject.as_str())));
    comparison
        .differences
        .sort_by_key(|one| std::cmp::Reverse(one.verdict));
    comparison
}

fn head(record: &Record) -> Head {
    Head {
        file: record.file.clone(),
        driver: record.driver.clone(),
        is_mock: record.is_mock,
        version: record.version.clone(),
        cuda_version: record.cuda_version,
    }
}

/// Both files' facts of a part, or why there is nothing to compare.
fn both<'a>(
    context: &Context<'a>,
    part: Part,
    other_gpu: Option<&str>,
) -> Result<(&'a Facts, &'a Facts), Unknown> {
    let of = |side, why: &str| Unknown {
        part,
        side,
        why: why.to_owned(),
    };
    let facts = |record: &'a Record| record.parts.get(&part).map(Result::as_ref);
    let (one, other) = match (facts(context.old), facts(context.new)) {
        (Some(Ok(one)), Some(Ok(other))) => (one, other),
        (Some(Err(why)), Some(Err(other))) if why == other => return Err(of("both", why)),
        (Some(Err(why)), Some(Err(other))) => {
            return Err(of("both", &format!("old: {why}; new: {other}")));
        }
        (Some(Err(why)), _) => return Err(of("old", why)),
        (_, Some(Err(why))) => return Err(of("new", why)),
        _ => return Err(of("both", "not read")),
    };
    let of_the_gpu = matches!(
        part,
        Part::Totals | Part::Heaps | Part::Granularities | Part::Attributes | Part::Extensions
    );
    if let Some(why) = other_gpu.filter(|_| of_the_gpu) {
        return Err(of("both", why));
    }
    if part == Part::LookUps {
        for (side, record) in [("old", context.old), ("new", context.new)] {
            if record.cuda_version.is_none() {
                return Err(of(side, "the driver's CUDA version was not probed"));
            }
        }
    }
    Ok((one, other))
}

/// Why facts of the GPUs say nothing of the drivers, if these are not the same kind.
fn other_gpu(old: &Record, new: &Record) -> Option<String> {
    let names = |record: &Record| -> Option<Vec<String>> {
        let facts = record.parts.get(&Part::Identities)?.as_ref().ok()?;
        let names = facts
            .iter()
            .filter(|(subject, _)| subject.ends_with(": name"));
        Some(names.map(|(_, name)| name.clone()).collect())
    };
    let (one, other) = (names(old)?, names(new)?);
    (one != other).then(|| format!("other GPUs: {}; {}", one.join(", "), other.join(", ")))
}

fn part_of(
    context: &Context<'_>,
    part: Part,
    one: &Facts,
    other: &Facts,
    found: &mut Vec<Difference>,
) -> Tally {
    // What one side alone says of a function follows from that it exports it: the symbols tell.
    let follows = matches!(part, Part::LookUps | Part::Answers | Part::Structures);
    // In a list that is whole, what is missing is gone. Elsewhere it was not asked.
    let whole = matches!(
        part,
        Part::Symbols | Part::Heaps | Part::Attributes | Part::Extensions
    );
    let mut tally = Tally::default();
    let subjects: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for subject in subjects {
        let pair = Pair {
            part,
            subject,
            old: one.get(subject).map(String::as_str),
            new: other.get(subject).map(String::as_str),
        };
        let alone = pair.old.is_none() || pair.new.is_none();
        if follows && alone {
            continue;
        }
        let mut told = [pair.old, pair.new].into_iter().flatten();
        if (alone && !whole) || told.any(is_unknown) {
            tally.unknown += 1;
        } else if pair.old == pair.new {
            tally.same += 1;
        } else {
            let before = found.len();
            found.extend(judge::judge(context, pair));
            // Runs may be spelled otherwise where no version that either driver knows is answered otherwise.
            if found.len() > before {
                tally.different += 1;
            } else {
                tally.same += 1;
            }
        }
    }
    tally
}

/// A pair with its judgement.
pub fn difference(pair: Pair<'_>, subject: &str, judged: Judged) -> Difference {
    Difference {
        part: pair.part,
        subject: subject.to_owned(),
        old: pair.old.map(str::to_owned),
        new: pair.new.map(str::to_owned),
        verdict: judged.verdict,
        why: judged.why,
        touch: judged.touch,
        reason: None,
    }
}

#[cfg(test)]
mod tests;
