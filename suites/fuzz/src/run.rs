//! Many sequences of one family, each by several processes at once, and the smallest that breaks a promise.
//!
//! * *plain*: without an enforcer. * *ample*: with one, whose budgets are larger than the devices: every answer must be the plain process's.
//! * *tight*: with budgets of a fraction: what is refused differs, what is promised does not.

use std::time::{Duration, Instant};

use fastrand::Rng;
use harness::{Driver, Target};

use crate::family::{Calls, Family};
use crate::input;
use crate::remote::{Circumstances, Remote, Told, Trouble};
use crate::session::Verdict;

/// Sequences that are sent at once.
const BATCH: usize = 32;
/// Sequences that a process runs before a fresh one takes its place: so much is run again where one sequence alone shows nothing.
const LIFE: u64 = 4_096;
/// Tries to make a failure smaller.
const TRIES: u32 = 2_000;
/// What is kept of the sequences that reached something new.
const CORPUS: usize = 4_096;

/// Which of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Role {
    Plain,
    Ample,
    Tight,
}

/// What is wanted.
#[derive(Clone)]
pub struct Wish {
    /// Calls under an enforcer, at least.
    pub calls: u64,
    pub seed: u64,
    /// How long a failure may be made smaller.
    pub patience: Duration,
    /// The enforcer: `ours`, or another that keeps our ledger.
    pub target: Target,
    /// Makes sequences from those that reached something new, where the libraries tell.
    pub guided: bool,
    /// When it ends though fewer calls were made.
    pub until: Option<Instant>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    pub sequences: u64,
    /// Under an enforcer; those of the plain process are not counted.
    pub calls: u64,
    pub took: Duration,
    /// Places reached, of how many; none where the libraries do not tell.
    pub reached: (usize, usize),
    /// States that the enforcer reached, by bits of `seeds::Mark`.
    pub marks: u64,
    /// The most that a device was beyond its budget after a call, in bytes; of families over all exports.
    pub beyond: u64,
    /// How often each export was granted by the last of its calls of a sequence, by its number in the table.
    pub granted: std::collections::BTreeMap<u16, u64>,
    pub broken: Option<Smallest>,
}

/// What breaks a promise, as small as it could be made, as a file holds it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Smallest {
    pub family: String,
    pub what: String,
    /// Sequences, the one that showed it last; of each a line for each call.
    pub sequences: Vec<Vec<String>>,
}

/// The processes that are fed alike: all three, or of what has a judge beside the others' answers the tight one alone.
struct Crew {
    circumstances: Vec<(Role, Circumstances)>,
    running: Option<Vec<Remote>>,
}

/// What the processes said of some sequences.
enum Outcome {
    Fine(Vec<(Role, Told)>),
    /// One of them broke a promise.
    Broken(Break),
}

/// A broken promise.
struct Break {
    what: String,
    /// At most so many calls under an enforcer, if all processes lived to count.
    calls: u64,
    /// Which of the sequences broke it, where its process lived to say so.
    nth: Option<usize>,
}

impl Crew {
    fn new(family: &Family, target: &Target) -> Result<Self, Trouble> {
        let with = |target: Target, budget: &str, paced: bool| Circumstances {
            target,
            driver: Driver::default(),
            machine: family.machine.to_owned(),
            budget: budget.to_owned(),
            env: match paced {
                true => vec![("CUDA_DEVICE_SM_LIMIT".to_owned(), "90".to_owned())],
                false => Vec::new(),
            },
        };
        let circumstances = match family.calls {
            Calls::All { .. } => {
                let budget = if family.machine.ends_with("*2") {
                    "0=1GiB,1=1536MiB"
                } else {
                    "0=1GiB"
                };
                vec![(Role::Tight, with(target.clone(), budget, false))]
            }
            _ => vec![
                (Role::Plain, with(Target::named("none")?, "", false)),
                (
                    Role::Ample,
                    with(target.clone(), "0=1024GiB,1=1024GiB", false),
                ),
                (
                    Role::Tight,
                    with(target.clone(), "0=1536MiB,1=1GiB", family.paced),
                ),
            ],
        };
        Ok(Self {
            circumstances,
            running: None,
        })
    }

    fn forget(&mut self) {
        self.running = None;
    }

    fn run(
        &mut self,
        family: &Family,
        sequences: &[Vec<u8>],
        tell: bool,
    ) -> Result<Outcome, Trouble> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self
                .circumstances
                .iter()
                .map(|(_, circumstances)| Remote::start(circumstances))
                .collect::<Result<_, _>>()?,
        };
        for remote in &mut running {
            // One that is dead says so when it is asked.
            let _ = remote.send(family, sequences, tell);
        }
        let mut all = Vec::with_capacity(running.len());
        for (remote, (role, _)) in running.iter_mut().zip(&self.circumstances) {
            match remote.told() {
                Ok(told) => all.push((*role, told)),
                Err(death) => {
                    return Ok(Outcome::Broken(Break {
                        what: format!("{role:?}: {}", death.0),
                        calls: 0,
                        nth: None,
                    }));
                }
            }
        }
        match judged(&all, sequences.len()) {
            Some((nth, what)) => Ok(Outcome::Broken(Break {
                what: with_said(what, &running, &self.circumstances),
                calls: enforced_calls(&all),
                nth: Some(nth),
            })),
            None => {
                self.running = Some(running);
                Ok(Outcome::Fine(all))
            }
        }
    }
}

/// What broke, with what the processes said meanwhile.
fn with_said(what: String, running: &[Remote], of: &[(Role, Circumstances)]) -> String {
    let said = running
        .iter()
        .zip(of)
        .map(|(remote, (role, _))| (role, remote.said()));
    let said = said.filter(|(_, said)| !said.is_empty());
    said.fold(what, |what, (role, said)| {
        format!("{what}\n{role:?} said: {said}")
    })
}

fn enforced_calls(all: &[(Role, Told)]) -> u64 {
    let enforced = all.iter().filter(|(role, _)| *role != Role::Plain);
    enforced
        .flat_map(|(_, told)| &told.verdicts)
        .map(|verdict| verdict.calls)
        .sum()
}

/// What is wrong with what the processes said of the same sequences, and of which of them.
fn judged(all: &[(Role, Told)], sequences: usize) -> Option<(usize, String)> {
    (0..sequences).find_map(|nth| judged_one(all, nth).map(|what| (nth, what)))
}

fn judged_one(all: &[(Role, Told)], nth: usize) -> Option<String> {
    let mut verdicts = Vec::with_capacity(all.len());
    for (role, told) in all {
        match told.verdicts.get(nth) {
            Some(verdict) => verdicts.push((role, verdict)),
            None => return Some("a process left out a sequence".to_owned()),
        }
    }
    for (role, verdict) in &verdicts {
        if let Some(broken) = &verdict.broken {
            return Some(format!("{role:?}: {broken}"));
        }
    }
    let [(_, one), (_, two), (_, three)] = verdicts[..] else {
        return None;
    };
    // A driver may leave errno as it likes; where it left it alone, so must we.
    for (verdict, role) in [(two, Role::Ample), (three, Role::Tight)] {
        let mut changed = verdict.errno.iter();
        if let Some((nth, (call, left))) = changed.find(|(nth, _)| !one.errno.contains_key(nth)) {
            return Some(format!(
                "{role:?}: {call}, call {nth} of the sequence, left errno at {left}"
            ));
        }
    }
    if one.digest == two.digest {
        return None;
    }
    let mut pairs = one.answers.iter().zip(&two.answers).enumerate();
    let Some((call, (without, with))) = pairs.find(|(_, (one, two))| one != two) else {
        let calls = (one.answers.len(), two.answers.len());
        return Some(format!(
            "{calls:?} calls were answered without and with an enforcer"
        ));
    };
    // A kernel's fault is told once the device has come to it, which is a matter of time: both find it in the end, and nothing after it can be compared.
    let is_told = |(code, _): &(u32, u64)| crate::surface::stays(*code);
    if (is_told(without) || is_told(with)) && one.spent && two.spent {
        return None;
    }
    let line = |verdict: &Verdict| verdict.told.get(call).map(|told| told.0.clone());
    Some(format!(
        "call {call}: {} [{without:x?}] without, {} [{with:x?}] with an enforcer",
        line(one).unwrap_or_default(),
        line(two).unwrap_or_default(),
    ))
}

/// Runs sequences of a family until so many calls were made, or one broke a promise.
pub fn run(family: &'static Family, wish: &Wish) -> Result<Report, Trouble> {
    run_with_news(family, wish, |_| {})
}

/// The same, with what every batch adds to the calls.
pub fn run_with_news(
    family: &'static Family,
    wish: &Wish,
    news: impl Fn(u64),
) -> Result<Report, Trouble> {
    run_seen(family, wish, |_, _, calls| news(calls))
}

/// The same, with each sequence that broke nothing, what became of it under the tightest of the budgets, and its calls under an enforcer.
pub fn run_seen(
    family: &'static Family,
    wish: &Wish,
    mut seen: impl FnMut(&[u8], &Verdict, u64),
) -> Result<Report, Trouble> {
    let started = Instant::now();
    let mut crew = Crew::new(family, &wish.target)?;
    let mut report = Report::default();
    let mut rng = Rng::with_seed(wish.seed);
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    let mut history: Vec<Vec<u8>> = Vec::new();
    let is_over = || wish.until.is_some_and(|until| Instant::now() >= until);
    while report.calls < wish.calls && !is_over() {
        let batch: Vec<Vec<u8>> = (0..BATCH).map(|_| next(&mut rng, &corpus)).collect();
        match crew.run(family, &batch, false)? {
            Outcome::Fine(told) => {
                let enforced = || told.iter().filter(|(role, _)| *role != Role::Plain);
                for (nth, sequence) in batch.iter().enumerate() {
                    let verdicts = || enforced().map(|(_, told)| &told.verdicts[nth]);
                    let calls = verdicts().map(|verdict| verdict.calls).sum();
                    report.calls += calls;
                    if wish.guided && verdicts().any(|verdict| verdict.new) {
                        if corpus.len() == CORPUS {
                            corpus.swap_remove(rng.usize(..CORPUS));
                        }
                        corpus.push(sequence.clone());
                    }
                    if let Some((_, told)) = told.last() {
                        seen(sequence, &told.verdicts[nth], calls);
                    }
                }
                report.sequences += BATCH as u64;
                for (_, told) in enforced() {
                    report.reached = report.reached.max(told.reached);
                    for verdict in &told.verdicts {
                        report.marks |= verdict.marks;
                        report.beyond = report.beyond.max(verdict.beyond);
                        for &export in &verdict.granted {
                            *report.granted.entry(export).or_default() += 1;
                        }
                    }
                }
                history.extend(batch);
                let spent = |verdict: &Verdict| verdict.spent;
                let spent = enforced().any(|(_, told)| told.verdicts.iter().any(spent));
                if spent || history.len() as u64 >= LIFE {
                    history.clear();
                    // What it has reached is forgotten with it, unless that guides.
                    if !wish.guided {
                        crew.forget();
                    }
                }
            }
            Outcome::Broken(broken) => {
                report.calls += broken.calls;
                history.extend(batch);
                let what = broken.what;
                report.broken = Some(smallest(&mut crew, family, what, history, wish.patience)?);
                break;
            }
        }
    }
    report.took = started.elapsed();
    Ok(report)
}

/// What came of sequences that were chosen.
#[derive(Debug, Default)]
pub struct Tried {
    /// How many were run, the one that broke a promise among them.
    pub sequences: usize,
    /// Calls under the tightest of the budgets.
    pub calls: u64,
    /// The most that a device was beyond its budget after a call, in bytes; of families over all exports.
    pub beyond: u64,
    /// What came of the books of each that broke none.
    pub books: Vec<u64>,
    /// Which of them broke a promise, and what was said. Of a process that died, the last that it was given.
    pub broken: Option<(usize, String)>,
}

/// Processes that run chosen sequences of one family.
pub struct Trial {
    family: &'static Family,
    crew: Crew,
}

impl Trial {
    pub fn of(family: &'static Family, target: &Target) -> Result<Self, Trouble> {
        Ok(Self {
            family,
            crew: Crew::new(family, target)?,
        })
    }

    /// Runs them in this order until one breaks a promise, or it is `until`.
    pub fn run(&mut self, sequences: &[&[u8]], until: Instant) -> Result<Tried, Trouble> {
        /// Fewer at once: what comes after a broken promise is run for nothing.
        const AT_ONCE: usize = 4;
        let mut tried = Tried::default();
        for some in sequences.chunks(AT_ONCE) {
            if Instant::now() >= until {
                break;
            }
            let owned: Vec<Vec<u8>> = some.iter().map(|one| one.to_vec()).collect();
            match self.crew.run(self.family, &owned, false)? {
                Outcome::Fine(told) => {
                    tried.sequences += some.len();
                    let verdicts = told.last().map(|(_, told)| &told.verdicts);
                    for verdict in verdicts.into_iter().flatten() {
                        tried.beyond = tried.beyond.max(verdict.beyond);
                        tried.books.push(verdict.books);
                    }
                    let tightest = told.last().map(|(_, told)| &told.verdicts);
                    let tightest = || tightest.into_iter().flatten();
                    tried.calls += tightest().map(|verdict| verdict.calls).sum::<u64>();
                    if tightest().any(|verdict| verdict.spent) {
                        self.crew.forget();
                    }
                }
                Outcome::Broken(broken) => {
                    tried.calls += broken.calls;
                    let nth = broken.nth.unwrap_or(some.len() - 1);
                    tried.broken = Some((tried.sequences + nth, broken.what));
                    tried.sequences += nth + 1;
                    self.crew.forget();
                    break;
                }
            }
        }
        Ok(tried)
    }
}

fn next(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    match corpus.len() {
        0 => input::random(rng),
        _ if rng.u8(..) < 48 => input::random(rng),
        some => {
            let (parent, other) = (rng.usize(..some), rng.usize(..some));
            input::mutated(rng, &corpus[parent], &corpus[other])
        }
    }
}

/// What is left of sequences, the last of which broke a promise: in a fresh process first one alone, then what came before it too.
fn smallest(
    crew: &mut Crew,
    family: &'static Family,
    what: String,
    history: Vec<Vec<u8>>,
    patience: Duration,
) -> Result<Smallest, Trouble> {
    let until = Instant::now() + patience;
    let mut trouble = None;
    let mut fails = |crew: &mut Crew, sequences: &[Vec<u8>]| {
        if trouble.is_some() || Instant::now() > until {
            return None;
        }
        crew.forget();
        match crew.run(family, sequences, true) {
            Ok(Outcome::Broken(broken)) => Some(broken.what),
            Ok(Outcome::Fine(_)) => None,
            Err(error) => {
                trouble = Some(error);
                None
            }
        }
    };
    let batch = history.len().saturating_sub(BATCH);
    let mut found = (what, history.clone());
    // The batch's sequences one by one; a process that is told nothing of the others.
    let alone = history[batch..].iter().find_map(|one| {
        let one = vec![one.clone()];
        fails(crew, &one).map(|what| (what, one))
    });
    match alone {
        Some(alone) => found = alone,
        None => {
            let mut left = history;
            let mut chunk = left.len().next_power_of_two() / 2;
            while chunk > 0 {
                let mut at = 0;
                while at < left.len() {
                    let mut fewer = left.clone();
                    fewer.drain(at..(at + chunk).min(left.len()));
                    match fails(crew, &fewer) {
                        Some(what) => (left, found.0) = (fewer, what),
                        None => at += chunk,
                    }
                }
                chunk /= 2;
            }
            found.1 = left;
        }
    }
    for nth in (0..found.1.len()).rev() {
        let mut sequences = found.1.clone();
        let shrunk = input::shrunk(sequences[nth].clone(), TRIES, |bytes| {
            sequences[nth] = bytes.to_vec();
            let failed = fails(crew, &sequences);
            let failing = failed.is_some();
            if let Some(what) = failed {
                found.0 = what;
            }
            failing
        });
        found.1[nth] = shrunk;
    }
    crew.forget();
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    Ok(Smallest {
        family: family.name.to_owned(),
        what: found.0,
        sequences: found.1.iter().map(|bytes| input::written(bytes)).collect(),
    })
}

/// What the sequences of a file come to, with a line for every call of each process.
pub fn replay(
    smallest: &Smallest,
    target: &Target,
) -> Result<(Option<String>, Vec<String>), Trouble> {
    let family = Family::named(&smallest.family)
        .ok_or_else(|| Trouble::NoFamily(smallest.family.clone()))?;
    let sequences: Option<Vec<_>> = smallest
        .sequences
        .iter()
        .map(|lines| input::read(lines))
        .collect();
    let sequences =
        sequences.ok_or_else(|| Trouble::File("a line is not the digits of a call".to_owned()))?;
    let crew = Crew::new(family, target)?;
    let (mut broken, mut lines) = (None, Vec::new());
    let mut all = Vec::new();
    for (role, circumstances) in &crew.circumstances {
        let mut remote = Remote::start(circumstances)?;
        let told = match remote
            .send(family, &sequences, true)
            .map(|()| remote.told())
        {
            Ok(Ok(told)) => told,
            Ok(Err(death)) => {
                broken = broken.or(Some(format!("{role:?}: {}", death.0)));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let calls = told.verdicts.iter().flat_map(|verdict| &verdict.told);
        lines.extend(calls.map(|(call, _)| format!("{role:?}: {call}")));
        all.push((*role, told));
    }
    if broken.is_none() {
        broken = judged(&all, sequences.len()).map(|(_, what)| what);
    }
    Ok((broken, lines))
}
