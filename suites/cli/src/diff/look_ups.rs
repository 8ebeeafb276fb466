//! What cuGetProcAddress answers by name, version and flags.
//!
//! A version that the old driver knew is one that programs were built against: another answer there is another function under
//! their feet. What a version between the two drivers' own is answered is new ground: there it only matters whether the answer has a hook
//! where the function has one. Versions above both are the business of [`super::file::NEWER_LOOK_UPS`].

use super::compare::{Context, Difference, Judged, Pair, Verdict, difference};

/// The answer of a version on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// An exported function.
    Symbol(String),
    /// A function that the driver does not export: nobody can tell which.
    Unexported,
    /// None, as the probe spells it: `?`, `!`, `X`.
    None(String),
}

const FLAGS: [&str; 3] = ["", " (legacy stream)", " (per-thread stream)"];

pub fn judge(context: &Context<'_>, pair: Pair<'_>) -> Vec<Difference> {
    let (Some(old), Some(new)) = (pair.old, pair.new) else {
        return Vec::new();
    };
    let (known, newest) = match (context.old.cuda_version, context.new.cuda_version) {
        (Some(one), Some(other)) => (one, other),
        _ => return Vec::new(),
    };
    let (old, new) = (runs(pair.subject, old), runs(pair.subject, new));
    let mut starts: Vec<i32> = old.iter().chain(&new).map(|(from, _)| *from).collect();
    starts.push(known + 1);
    starts.sort_unstable();
    starts.dedup();
    let mut found: Vec<Difference> = Vec::new();
    for (at, flags) in FLAGS.iter().enumerate() {
        let mut last: Option<(Answer, Answer)> = None;
        for from in starts
            .iter()
            .copied()
            .filter(|from| *from <= newest.max(known))
        {
            let (one, other) = (answer(&old, from, at), answer(&new, from, at));
            let both = (one.clone(), other.clone());
            let repeats = last.as_ref() == Some(&both);
            if one != other && !repeats {
                let judged = of(context, pair.subject, from <= known, &one, &other);
                let subject = format!("{} from {from} on{flags}", pair.subject);
                let (one, other) = (spelled(&one), spelled(&other));
                let same = found.iter().any(|before| {
                    before.subject == format!("{} from {from} on", pair.subject)
                        && before.old.as_deref() == Some(&one)
                        && before.new.as_deref() == Some(&other)
                });
                let answers = Pair {
                    old: Some(&one),
                    new: Some(&other),
                    ..pair
                };
                if !same {
                    found.push(difference(answers, &subject, judged));
                }
            }
            last = Some(both);
        }
    }
    found
}

fn of(context: &Context<'_>, base: &str, known: bool, one: &Answer, other: &Answer) -> Judged {
    let enforcer = context.enforcer;
    let (was, is) = (symbol(one), symbol(other));
    let names: Vec<&str> = [was, is].into_iter().flatten().collect();
    let hooked = |name: Option<&str>| name.is_some_and(|name| enforcer.hooks(name));
    let touch = |rows: &[&'static str]| enforcer.touch(&names, rows);
    let unhooked = || {
        let mut touch = enforcer.touch(&names, &["S1", "R7"]);
        let siblings = enforcer.siblings(base);
        touch.hooks.extend(siblings.into_iter().map(str::to_owned));
        touch
    };
    let has_hook = !enforcer.siblings(base).is_empty();
    match (was, is) {
        _ if *other == Answer::Unexported && has_hook => Judged::new(
            Verdict::Breaks,
            "answered with a function that the driver does not export: its hook cannot be told by its address",
            unhooked(),
        ),
        (_, Some(is)) if has_hook && !hooked(Some(is)) => Judged::new(
            Verdict::Breaks,
            "answered with a version that no hook stands before",
            unhooked(),
        ),
        (Some(was), Some(is)) if known && (enforcer.hooks(was) || enforcer.hooks(is)) => {
            match enforcer.same_abi(was, is) {
                true => Judged::new(
                    Verdict::Look,
                    "programs of this version get another function of the same ABI",
                    touch(&["S1"]),
                ),
                false => Judged::new(
                    Verdict::Breaks,
                    "programs of this version get a function of another ABI",
                    touch(&["S1", "S2"]),
                ),
            }
        }
        (Some(was), None) if hooked(Some(was)) => Judged::new(
            Verdict::Breaks,
            "a hooked function is no longer answered",
            touch(&["S1", "S2"]),
        ),
        (_, Some(is)) if !known && hooked(Some(is)) => {
            Judged::nothing("a newer version, hooked already")
        }
        (None, Some(is)) if hooked(Some(is)) => Judged::nothing("answered now, hooked already"),
        (_, Some(is)) if !enforcer.knows(is) => Judged::new(
            Verdict::Look,
            "answered with a function that no driver that was asked has: nobody has judged whether it needs a hook",
            touch(&["S1"]),
        ),
        (Some(_), _) if known => {
            let touch = touch(&["S1"]);
            match touch.is_nothing() {
                true => Judged::nothing("neither answer has a hook"),
                false => Judged::new(
                    Verdict::Look,
                    "neither answer has a hook, and cases meet it",
                    touch,
                ),
            }
        }
        _ => Judged::nothing("no hook is about it"),
    }
}

fn symbol(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Symbol(name) => Some(name),
        Answer::Unexported | Answer::None(_) => None,
    }
}

fn spelled(answer: &Answer) -> String {
    match answer {
        Answer::Symbol(name) => name.clone(),
        Answer::Unexported => "a function that is not exported".to_owned(),
        Answer::None(why) => match why.as_str() {
            "?" => "nothing: newer than the version".to_owned(),
            "X" => "refused".to_owned(),
            _ => "not found".to_owned(),
        },
    }
}

type Runs = Vec<(i32, [Answer; 3])>;

/// `2000:+ 3020:+_v2`, or three answers joined by commas.
fn runs(base: &str, text: &str) -> Runs {
    let answer = |text: &str| match text.strip_prefix('+') {
        Some("#unexported") => Answer::Unexported,
        Some(suffix) => Answer::Symbol(format!("{base}{suffix}")),
        None => Answer::None(text.to_owned()),
    };
    let run = |run: &str| {
        let (from, answers) = run.split_once(':')?;
        let mut answers = answers.split(',').map(answer);
        let first = answers.next()?;
        let second = answers.next().unwrap_or_else(|| first.clone());
        let third = answers.next().unwrap_or_else(|| first.clone());
        Some((from.parse().ok()?, [first, second, third]))
    };
    text.split(' ').filter_map(run).collect()
}

/// What a version is answered; before the first run nothing is.
fn answer(runs: &Runs, version: i32, flags: usize) -> Answer {
    let run = runs.iter().rev().find(|(from, _)| *from <= version);
    run.map_or_else(
        || Answer::None("?".to_owned()),
        |(_, answers)| answers[flags].clone(),
    )
}
