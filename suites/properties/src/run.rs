//! Many sequences, one after the other, and the smallest that breaks a promise.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use proptest_state_machine::ReferenceStateMachine;

use crate::operation::{Operation, Programs};
use crate::remote::{Circumstances, Outcome, Remote, Trouble};

/// Operations of a sequence.
const LENGTH: std::ops::RangeInclusive<usize> = 1..=200;
/// Most runs that are spent on making a failure smaller.
const SHRINKS: u32 = 2_000;

/// How many operations, and which chance they are made by.
pub struct Wish {
    pub operations: u64,
    pub seed: u64,
    /// How long a failure may be made smaller.
    pub patience: Duration,
    /// Where seeds that failed are kept, and tried first by whoever runs again.
    pub regressions: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    pub sequences: u64,
    pub operations: u64,
    pub calls: u64,
    pub took: Duration,
    pub broken: Option<Smallest>,
}

/// A sequence that breaks a promise, as small as it could be made.
#[derive(Debug)]
pub struct Smallest {
    pub operations: Vec<Operation>,
    pub what: String,
}

impl std::fmt::Display for Smallest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operations = serde_json::to_string(&self.operations).unwrap_or_default();
        write!(out, "{}\n{operations}", self.what)
    }
}

struct Count {
    remote: Remote,
    report: Report,
    trouble: Option<Trouble>,
    /// What the process has run since it began.
    history: Vec<Vec<Operation>>,
    /// What it had run when the first promise was broken, the sequence that did it last.
    together: Option<Vec<Vec<Operation>>>,
}

/// Runs sequences until so many operations were carried out, or one broke a promise.
pub fn run(circumstances: Circumstances, wish: &Wish) -> Result<Report, Trouble> {
    let started = Instant::now();
    let count = RefCell::new(Count {
        remote: Remote::new(circumstances),
        report: Report {
            sequences: 0,
            operations: 0,
            calls: 0,
            took: Duration::ZERO,
            broken: None,
        },
        trouble: None,
        history: Vec::new(),
        together: None,
    });
    let strategy = Programs::sequential_strategy(LENGTH);
    // One after the other, so that the count of operations decides when it ends.
    for batch in 0.. {
        if count.borrow().report.operations >= wish.operations {
            break;
        }
        let ended = runner(wish, batch).run(&strategy, |(_, operations, seen)| {
            let mut count = count.borrow_mut();
            let outcome = match count.remote.run(&operations) {
                Ok(outcome) => outcome,
                Err(trouble) => {
                    count.trouble = Some(trouble);
                    return Err(TestCaseError::reject("it cannot be run"));
                }
            };
            if let Some(seen) = seen {
                seen.store(outcome.done, Ordering::SeqCst);
            }
            count.add(&outcome);
            match outcome.broken {
                None => {
                    count.history.push(operations);
                    Ok(())
                }
                Some(broken) if count.together.is_none() => {
                    let before = std::mem::take(&mut count.history);
                    count.together = Some(before.into_iter().chain([operations]).collect());
                    Err(TestCaseError::fail(broken))
                }
                Some(broken) => Err(TestCaseError::fail(broken)),
            }
        });
        let mut count = count.borrow_mut();
        if let Some(trouble) = count.trouble.take() {
            return Err(trouble);
        }
        count.report.took = started.elapsed();
        if let Err(TestError::Fail(what, (_, operations, _))) = ended {
            let found = Smallest {
                operations,
                what: what.message().to_owned(),
            };
            let together = count.together.take().unwrap_or_default();
            let smallest = count.remote.settled(found, &together, wish.patience)?;
            count.report.broken = Some(smallest);
            break;
        }
    }
    Ok(count.into_inner().report)
}

/// One sequence, as it was written down.
pub fn replay(circumstances: Circumstances, operations: &[Operation]) -> Result<Outcome, Trouble> {
    Remote::new(circumstances).run(operations)
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        self.report.sequences += 1;
        self.report.operations += outcome.done as u64;
        self.report.calls += outcome.calls;
    }
}

impl Remote {
    /// A sequence that fails in a process of its own. Where the smallest found fails only after others, those others are part of it.
    fn settled(
        &mut self,
        found: Smallest,
        together: &[Vec<Operation>],
        patience: Duration,
    ) -> Result<Smallest, Trouble> {
        if self.fails(&found.operations)?.is_some() {
            return Ok(found);
        }
        let all = together.join(&Operation::End);
        match self.fails(&all)? {
            None => Ok(found),
            Some(what) => Ok(Smallest {
                operations: self.smaller(all, patience)?,
                what,
            }),
        }
    }

    /// What a sequence breaks in a fresh process.
    fn fails(&mut self, operations: &[Operation]) -> Result<Option<String>, Trouble> {
        self.forget();
        Ok(self.run(operations)?.broken)
    }

    /// Leaves out ever smaller parts, as long as what is left fails.
    fn smaller(
        &mut self,
        mut operations: Vec<Operation>,
        patience: Duration,
    ) -> Result<Vec<Operation>, Trouble> {
        let (mut part, end) = (operations.len() / 2, Instant::now() + patience);
        while part > 0 {
            let mut at = 0;
            while at < operations.len() && Instant::now() < end {
                let mut rest = operations.clone();
                rest.drain(at..(at + part).min(operations.len()));
                match self.fails(&rest)? {
                    Some(_) => operations = rest,
                    None => at += part,
                }
            }
            part /= 2;
        }
        Ok(operations)
    }
}

fn runner(wish: &Wish, batch: u64) -> TestRunner {
    let persistence = wish
        .regressions
        .as_ref()
        .and_then(|path| path.to_str())
        // The file's name lives as long as the program.
        .map(|path| FileFailurePersistence::Direct(String::leak(path.to_owned())));
    let config = Config {
        cases: 16,
        max_shrink_iters: SHRINKS,
        max_shrink_time: wish.patience.as_millis() as u32,
        failure_persistence: persistence.map(|kept| Box::new(kept) as _),
        source_file: Some(file!()),
        ..Config::default()
    };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&wish.seed.to_le_bytes());
    seed[8..16].copy_from_slice(&batch.to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}
