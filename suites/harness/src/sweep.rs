//! Sweeps: a case is run again and again, and each time another of the calls that its drivers get is hit by a fault.
//!
//! A run without faults shows the calls ([`Site`]); each is hit by every effect that it can show, in a world and a ledger of its own. What the case's
//! body says then is its own affair, for its driver failed it. What must hold is what holds whatever happens ([`Promise`]): nobody dies or waits for ever, the
//! budget holds, the books are right, nothing is left of the dead, and the same case, run once more in what the first left behind, passes.
//!
//! What was found is looked at twice more when all has run, and a death also without the enforcer: a driver that lies ends programs too.

mod known;
mod report;
mod sites;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ledger::{DeviceIndex, View};
use mock_device::Bytes;
pub use mock_device::fault::Effect;
use mock_device::fault::{Fault, When};

use crate::case::Case;
use crate::environment::{Environment, EnvironmentError, Request};
use crate::execution::{Ending, Look, execute};
use crate::promise::{Finding, Promise};
use crate::runner::Runner;
use crate::status::Status;
use crate::target::Target;
use crate::{pool, traces};

pub use report::SweepReport;
pub use sites::Site;

/// How much more than without a fault the living may be charged beyond what devices hold: an upper bound for a context and a step of a pool.
const MODEL: Bytes = Bytes(64 << 20);
/// Runs without the enforcer by which a death is found to be the driver's doing.
const BARE_TRIES: u64 = 64;
/// What a case that takes longer than this by itself has hit in a sweep of all: the entry points that no faster case calls.
const SLOW: Duration = Duration::from_secs(2);
/// A run may take this many times as long as without a fault.
const SLOWER: u32 = 20;
const LEAST_SECONDS: u32 = 30;

/// How a case runs by itself.
#[derive(Clone, Debug)]
pub struct Baseline {
    pub case: &'static Case,
    pub sites: Vec<Site>,
    excess: Option<Bytes>,
    /// It passes once more in what it left behind.
    repeats: bool,
    pub took: Duration,
}

/// A fault, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub role: String,
    /// The number of the call among all of the role's, without a fault.
    pub n: u64,
    pub entry: String,
    /// Its number among the role's calls of that entry point: by this it is found again, whatever threads did in between.
    pub nth: u64,
    pub effect: Effect,
}

impl Hit {
    fn row(&self) -> Fault {
        Fault {
            at: self.entry.clone(),
            when: When::Nth(self.nth),
            then: self.effect.clone(),
            device: None,
            role: Some(self.role.clone()),
        }
    }

    fn kills(&self) -> bool {
        matches!(self.effect, Effect::KillBefore | Effect::KillAfter)
    }
}

/// A run with one fault, or two.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub baseline: &'a Baseline,
    pub hits: Vec<Hit>,
}

impl Step<'_> {
    /// What a user types to see it again.
    pub fn command(&self) -> String {
        let mut text = format!("ringfence sweep {}", self.baseline.case.name);
        for hit in &self.hits {
            let (role, n, effect) = (&hit.role, hit.n, String::from(hit.effect.clone()));
            text.push_str(&format!(" --hit {role}:{n}={effect}"));
        }
        text
    }

    fn loses(&self) -> bool {
        self.hits.iter().any(|hit| hit.effect == Effect::Lost)
    }

    fn lies(&self) -> bool {
        let untrue = |effect: &Effect| matches!(effect, Effect::Untouched | Effect::Altered(_));
        let own = ["untouched", "null", "set:"];
        self.hits.iter().any(|hit| untrue(&hit.effect))
            || own
                .iter()
                .any(|effect| self.baseline.case.faults.contains(effect))
    }
}

/// What came of a step.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    pub step: Step<'a>,
    /// A fault stood beyond the last call that was made.
    pub reached: bool,
    /// What was found was looked at again.
    pub confirmed: bool,
    pub status: Option<Status>,
    pub findings: Vec<Finding>,
    /// What was found was not found again.
    pub unsteady: Vec<Finding>,
    /// Deaths that the driver brings about without the enforcer as well, or by a lie that it tells the program itself.
    pub bare: Vec<Finding>,
    /// What is known, with the reasons.
    pub known: Vec<(Finding, &'static str)>,
    /// The end of stderr where something was found.
    pub said: String,
}

/// Runs at a time: at first, and of what is looked at again.
#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    pub first: usize,
    pub again: usize,
}

/// Why a case cannot be swept.
#[derive(Clone, Debug)]
pub struct LeftOut {
    pub case: &'static str,
    pub why: String,
}

/// Runs sweeps of the cases of a runner's suite.
pub struct Sweeper<'a> {
    pub runner: &'a Runner,
}

impl<'a> Sweeper<'a> {
    /// The case without faults, twice in the same environment.
    pub fn baseline(&self, case: &'static Case) -> Result<Baseline, LeftOut> {
        let out = |why: String| LeftOut {
            case: case.name,
            why,
        };
        if let Some(why) = self.runner.unsuitable(case) {
            return Err(out(why));
        }
        let run = || -> Result<_, EnvironmentError> {
            let started = Instant::now();
            let environment = Environment::create(&Request {
                traced: true,
                validated: false,
                ..self.runner.request(case, &self.runner.target)
            })?;
            let ending = self.runner.execute(case, &environment, Look::Check)?;
            let took = started.elapsed();
            let traces = traces::read(&environment.plan.trace_path());
            let again = match ending.status {
                Status::Pass => self.runner.execute(case, &environment, Look::Exhaust)?,
                _ => ending.clone(),
            };
            Ok((ending, traces, again, took))
        };
        let (ending, traces, again, took) = run().map_err(|error| out(error.to_string()))?;
        if ending.status != Status::Pass {
            return Err(out(format!(
                "without a fault it ends with {:?}: {}",
                ending.status, ending.detail
            )));
        }
        Ok(Baseline {
            case,
            sites: Site::all(&traces),
            excess: again.excess,
            repeats: again.status == Status::Pass,
            took,
        })
    }

    /// Runs steps, `jobs` at a time, until it is told to stop; then what was found is looked at again, fewer at a time: on a machine that is
    /// busy with the sweep itself much comes too late.
    pub fn run_all<'b>(
        &self,
        steps: &[Step<'b>],
        jobs: Jobs,
        stop: &AtomicBool,
        mut observe: impl FnMut(&Outcome<'b>),
    ) -> Vec<Outcome<'b>> {
        let mut outcomes = pool::until(
            stop,
            jobs.first,
            steps,
            |step| self.first(step),
            &mut observe,
        );
        let found: Vec<(usize, Outcome<'b>)> = (0..)
            .zip(&outcomes)
            .filter(|(_, outcome)| !outcome.findings.is_empty())
            .map(|(place, outcome)| (place, outcome.clone()))
            .collect();
        let again = pool::until(
            stop,
            jobs.again,
            &found,
            |(place, outcome)| (*place, self.again(outcome)),
            |(_, outcome)| observe(outcome),
        );
        // Those that were stopped stay as they were found.
        for (place, outcome) in again {
            outcomes[place] = outcome;
        }
        outcomes
    }

    /// One step, judged; what is known is told apart.
    fn first<'b>(&self, step: &Step<'b>) -> Outcome<'b> {
        let mut outcome = self.once(step);
        let (findings, known) = (std::mem::take(&mut outcome.findings), &mut outcome.known);
        for finding in findings {
            match known::reason(step, finding.promise) {
                Some(reason) => known.push((finding, reason)),
                None => outcome.findings.push(finding),
            }
        }
        outcome
    }

    /// What was found, after two more runs.
    fn again<'b>(&self, found: &Outcome<'b>) -> Outcome<'b> {
        let mut outcome = Outcome {
            confirmed: true,
            ..found.clone()
        };
        let step = &found.step;
        let promises = |outcome: &Outcome<'_>| -> BTreeSet<Promise> {
            outcome
                .findings
                .iter()
                .map(|finding| finding.promise)
                .collect()
        };
        let again: BTreeSet<Promise> = (0..2).flat_map(|_| promises(&self.once(step))).collect();
        let (steady, unsteady) = outcome
            .findings
            .drain(..)
            .partition(|found| again.contains(&found.promise));
        (outcome.findings, outcome.unsteady) = (steady, unsteady);
        let lied_to = || step.lies() && self.is_called_bare(step);
        let dies = |finding: &Finding| matches!(finding.promise, Promise::Survives | Promise::Ends);
        if outcome.findings.iter().any(dies) && (self.dies_bare(step) || lied_to()) {
            let (bare, ours) = outcome.findings.drain(..).partition(dies);
            (outcome.bare, outcome.findings) = (bare, ours);
        }
        outcome
    }

    fn once<'b>(&self, step: &Step<'b>) -> Outcome<'b> {
        let mut outcome = Outcome {
            step: step.clone(),
            reached: true,
            confirmed: false,
            status: None,
            findings: Vec::new(),
            unsteady: Vec::new(),
            bare: Vec::new(),
            known: Vec::new(),
            said: String::new(),
        };
        if let Err(error) = self.hit(step, &mut outcome) {
            outcome
                .findings
                .push(Finding::new(Promise::GoesOn, error.to_string()));
        }
        outcome
    }

    fn hit(&self, step: &Step<'_>, outcome: &mut Outcome<'_>) -> Result<(), EnvironmentError> {
        let baseline = step.baseline;
        let faults: Vec<Fault> = step.hits.iter().map(Hit::row).collect();
        let longest = baseline.took.as_secs() as u32 * SLOWER;
        let case = Case {
            seconds: longest.clamp(LEAST_SECONDS, baseline.case.seconds.max(LEAST_SECONDS)),
            ..*baseline.case
        };
        let environment = Environment::create(&Request {
            further_faults: &faults,
            validated: false,
            ..self.runner.request(&case, &self.runner.target)
        })?;
        let ending = execute(&case, &environment, Look::Exhaust)?;
        outcome.reached = reached(&environment, step);
        if !outcome.reached {
            return Ok(());
        }
        outcome.status = Some(ending.status);
        outcome.findings = judge(step, &ending);
        if budgets_changed(&environment) {
            outcome
                .findings
                .retain(|found| found.promise != Promise::Budget);
        }
        if !outcome.findings.is_empty() {
            outcome.said = ending.said;
        }
        // A kill of the case's own plan that the fault came before is still to come.
        let kills_itself = baseline.case.faults.contains("kill");
        if baseline.repeats && !step.loses() && !kills_itself && outcome.findings.is_empty() {
            if let Some(world) = &environment.world {
                world.reset_peak();
            }
            let next = execute(&case, &environment, Look::Check)?;
            if next.status != Status::Pass {
                let seen = format!("run again it ends with {:?}: {}", next.status, next.detail);
                outcome.findings.push(Finding::new(Promise::GoesOn, seen));
                outcome.said = next.said;
            }
        }
        Ok(())
    }

    /// Whether the program makes such a call by itself. What it does with a lie then is its own affair.
    fn is_called_bare(&self, step: &Step<'_>) -> bool {
        let (case, nothing) = (step.baseline.case, Target::nothing());
        let traces = Environment::create(&Request {
            traced: true,
            validated: false,
            ..self.runner.request(case, &nothing)
        })
        .and_then(|environment| {
            execute(case, &environment, Look::Away)?;
            Ok(traces::read(&environment.plan.trace_path()))
        });
        let sites = traces.map_or_else(|_| Vec::new(), |traces| Site::all(&traces));
        let called = |hit: &Hit| sites.iter().any(|site| site.entry == hit.entry);
        step.hits.iter().any(called)
    }

    /// Whether the same fault at the same entry point ends the case without the enforcer too: at any of its calls, for the enforcer
    /// makes some of its own.
    fn dies_bare(&self, step: &Step<'_>) -> bool {
        let case = step.baseline.case;
        let nothing = Target::nothing();
        let Some(hit) = step.hits.last() else {
            return false;
        };
        (1..=BARE_TRIES).any(|n| {
            let fault = Fault {
                when: When::Nth(n),
                ..hit.row()
            };
            let case = Case {
                seconds: LEAST_SECONDS,
                ..*case
            };
            let ending = Environment::create(&Request {
                further_faults: &[fault],
                validated: false,
                ..self.runner.request(&case, &nothing)
            })
            .and_then(|environment| execute(&case, &environment, Look::Away));
            ending.is_ok_and(|ending| matches!(ending.status, Status::Crash | Status::Timeout))
        })
    }
}

/// Whether every fault of the step came to pass.
fn reached(environment: &Environment, step: &Step<'_>) -> bool {
    let Some(world) = &environment.world else {
        return false;
    };
    let rows = world.spec().faults.faults.len();
    let ours = rows - step.hits.len()..rows;
    ours.zip(&step.hits)
        .all(|(row, hit)| world.counted(row) >= hit.nth)
}

/// Whether the case's body had changed a budget when it ended: what held when the devices held most is not known then.
fn budgets_changed(environment: &Environment) -> bool {
    let plan = &environment.plan;
    let Ok(ledger) = View::open(&plan.ledger) else {
        return false;
    };
    plan.budgets.iter().any(|(device, set)| {
        let live = ledger.budget(DeviceIndex(device as u32));
        live.is_none_or(|live| live.0 != set.0)
    })
}

/// What was broken, of what holds under such a fault.
fn judge(step: &Step<'_>, ending: &Ending) -> Vec<Finding> {
    let mut findings = ending.findings.clone();
    // What is lost is nobody's, and what its driver had of it is not told any more.
    if step.loses() {
        let told = [Promise::Known, Promise::Budget];
        findings.retain(|finding| !told.contains(&finding.promise));
    }
    // What a driver says it gave or took back is believed: there is no other witness.
    if step.lies() {
        let beyond = [Promise::Budget, Promise::Known, Promise::Nvml];
        findings.retain(|finding| !beyond.contains(&finding.promise));
    } else if let (Some(excess), Some(usual)) = (ending.excess, step.baseline.excess)
        && excess > usual + MODEL
        && !step.loses()
        // A body that ends early leaves another state behind. It compares where the case charges nothing by an upper bound.
        && (ending.status == Status::Pass || usual <= MODEL)
    {
        let seen = format!("charged {excess} more than a device holds, {usual} without the fault");
        findings.push(Finding::new(Promise::Exact, seen));
    }
    let kills = step.hits.iter().any(Hit::kills) || step.baseline.case.faults.contains("kill");
    let killed = kills && ending.detail.contains("signal 9");
    match ending.status {
        Status::Crash if !killed => findings.push(Finding::new(Promise::Survives, &*ending.detail)),
        Status::Timeout => findings.push(Finding::new(Promise::Ends, &*ending.detail)),
        _ => {}
    }
    findings
}

/// What to run of a baseline: all of its sites, or those of places that nobody has hit yet, the baselines in their order.
pub fn steps<'a>(
    baselines: &'a [Baseline],
    every: bool,
    effects: impl Fn(&Site) -> Vec<Effect>,
) -> Vec<Step<'a>> {
    let (mut places, mut entries) = (BTreeSet::new(), BTreeSet::new());
    let mut steps = Vec::new();
    for baseline in baselines {
        for site in &baseline.sites {
            let fresh_entry = entries.insert((site.api, site.entry.clone()));
            let fresh_place = places.insert(site.place());
            let fresh = match baseline.took > SLOW {
                true => fresh_entry,
                false => fresh_place,
            };
            if !every && !fresh {
                continue;
            }
            steps.extend(effects(site).into_iter().map(|effect| Step {
                baseline,
                hits: vec![hit(site, effect)],
            }));
        }
    }
    steps
}

/// So many runs with two faults each, at two calls of one case that chance chooses, no effect twice in a case at the same places.
pub fn pairs(baselines: &[Baseline], runs: usize, seed: u64) -> Vec<Step<'_>> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let long: Vec<&Baseline> = baselines.iter().filter(|one| one.sites.len() > 1).collect();
    if long.is_empty() {
        return Vec::new();
    }
    let effect = |site: &Site, chance: &mut fastrand::Rng| {
        let mut effects = site.effects();
        effects.extend([Effect::KillBefore, Effect::KillAfter]);
        hit(site, effects.swap_remove(chance.usize(..effects.len())))
    };
    (0..runs)
        .map(|_| {
            let baseline = long[chance.usize(..long.len())];
            let sites = baseline.sites.len();
            let first = chance.usize(..sites - 1);
            let second = chance.usize(first + 1..sites);
            let hits = [first, second].map(|at| effect(&baseline.sites[at], &mut chance));
            Step {
                baseline,
                hits: hits.to_vec(),
            }
        })
        .collect()
}

/// That effect at that site.
pub fn hit(site: &Site, effect: Effect) -> Hit {
    Hit {
        role: site.role.clone(),
        n: site.n,
        entry: site.entry.clone(),
        nth: site.nth,
        effect,
    }
}
