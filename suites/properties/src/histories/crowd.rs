//! Several processes under one tenant: started, told what to do, killed, and what they wrote down put together.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::environment::{Environment, Request};
use harness::servant::Servant;
use harness::{Driver, Target};
use ledger::View;
use mock_device::{DeviceIndex, World};

use super::history::{Call, Cost, Death, Deed, History, Process};
use super::program::{Kill, Program};
use super::worker::{Note, Order, WORD, notes};
use crate::model::{CONTEXT, MIB};
use crate::remote::Trouble;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// What the budget leaves beside contexts, at least.
const ROOM: u64 = 1_024 * MIB;
/// Between the order to begin and the beginning, so that all begin at once.
const HEAD_START: Duration = Duration::from_millis(2);
/// How often a device is asked whether it has let go of the dead.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// How long what is over may stay on the books, though the device has let go of it and somebody looks again and again.
const PATIENCE: Duration = Duration::from_secs(6);

/// Where histories are made.
pub struct Circumstances {
    pub target: Target,
    pub driver: Driver,
    pub processes: usize,
}

/// What came of a program.
pub enum Made {
    History(History),
    /// A process died of itself, or could not go on.
    Broken(String),
}

/// The processes. Those that were killed are replaced before the next program.
pub struct Crowd {
    /// They go before their environment.
    members: Vec<Option<Member>>,
    environment: Environment,
    world: Arc<World>,
    ledger: Option<View>,
    budget: u64,
}

struct Member(Servant);

impl Crowd {
    pub fn start(circumstances: &Circumstances) -> Result<Self, Trouble> {
        let processes = circumstances.processes;
        let budget = processes as u64 * CONTEXT + ROOM;
        let environment = Environment::create(&Request {
            machine: "rtx6000-ada",
            budget: &format!("0={budget}B"),
            ..Request::new("histories", &circumstances.target, &circumstances.driver)
        })?;
        let world = environment.world.clone();
        let world = world.ok_or_else(|| Trouble::Beginning("histories need mocks".to_owned()))?;
        let mut crowd = Self {
            members: (0..processes).map(|_| None).collect(),
            environment,
            world,
            ledger: None,
            budget,
        };
        crowd.replace()?;
        if circumstances.target.declares_ledger {
            let view = View::open(&crowd.environment.plan.ledger);
            let view = view.map_err(|error| Trouble::Beginning(error.to_string()))?;
            crowd.ledger = Some(view);
        }
        Ok(crowd)
    }

    /// What there is for programs, beside contexts.
    pub fn room(&mut self) -> Result<u64, Trouble> {
        self.replace()?;
        Ok(self.budget.saturating_sub(self.held().most))
    }

    /// What the device has lost, and what is charged: the same where nobody keeps books.
    fn held(&self) -> Cost {
        let lost = self.world.used(DEVICE).0;
        let view = self.ledger.as_ref();
        Cost {
            least: lost,
            most: view.map_or(lost, |view| view.usage(ledger::DeviceIndex(0)).0),
        }
    }

    fn held_by(&self, pid: u32) -> Cost {
        let lost = self.world.used_by(DEVICE, pid).0;
        let charged = self.ledger.as_ref().map_or(lost, |view| {
            let slots = view.slots().into_iter().filter(|slot| slot.pid == pid);
            let shares = slots.flat_map(|slot| slot.devices);
            let shares = shares.filter(|share| share.device == ledger::DeviceIndex(0));
            shares.map(|share| share.usage.0).sum()
        });
        Cost {
            least: lost,
            most: charged,
        }
    }

    /// Somebody for every place that is empty.
    fn replace(&mut self) -> Result<(), Trouble> {
        for number in 0..self.members.len() {
            if self.members[number].is_none() {
                self.members[number] = Some(Member::start(&self.environment, number)?);
            }
        }
        Ok(())
    }

    /// Has the processes carry the program out.
    pub fn make(&mut self, program: &Program) -> Result<Made, Trouble> {
        self.replace()?;
        let pids: Vec<u32> = self
            .members
            .iter()
            .flatten()
            .map(|member| member.0.id())
            .collect();
        let contexts: Vec<Cost> = pids.iter().map(|pid| self.held_by(*pid)).collect();
        let (held, all) = (
            self.held(),
            contexts.iter().copied().fold(Cost::default(), Cost::with),
        );
        let before = Cost {
            least: held.least.saturating_sub(all.least),
            most: held.most.saturating_sub(all.most),
        };
        self.world.reset_peak();
        let directory = self.environment.plan.root.join("notes");
        std::fs::create_dir_all(&directory)?;
        let start = self.world.now().0 + HEAD_START.as_nanos() as u64;
        let deaths = match self.all(program, start, &directory)? {
            Ok(deaths) => deaths,
            Err(broken) => return Ok(Made::Broken(broken)),
        };
        let mut calls = Vec::new();
        for (process, threads) in program.processes.iter().enumerate() {
            for thread in 0..threads.len() {
                read(
                    &notes(&directory, process, thread),
                    (process, thread),
                    &mut calls,
                )?;
            }
        }
        std::fs::remove_dir_all(&directory)?;
        let processes = pids.iter().zip(&contexts).zip(&deaths);
        let processes: Vec<Process> = processes
            .map(|((pid, context), death)| Process {
                pid: *pid,
                context: *context,
                death: *death,
            })
            .collect();
        let living = processes.iter().filter(|process| process.death.is_none());
        let expected = living.fold(before, |sum, process| sum.with(process.context));
        Ok(match self.settle(expected)? {
            Ok(left) => Made::History(History {
                budget: self.budget,
                before,
                processes,
                calls,
                peak: self.world.peak(DEVICE).0,
                left,
            }),
            Err(broken) => Made::Broken(broken),
        })
    }

    /// Everybody does its part, or is killed at it.
    fn all(
        &mut self,
        program: &Program,
        start: u64,
        directory: &Path,
    ) -> Result<Result<Vec<Option<Death>>, String>, Trouble> {
        let mut orders = Vec::new();
        for threads in &program.processes {
            orders.push(serde_json::to_string(&Order::Run {
                threads: threads.clone(),
                start,
                notes: directory.to_owned(),
            })?);
        }
        for (member, order) in self.members.iter_mut().flatten().zip(&orders) {
            member.tell(order);
        }
        let world = &*self.world;
        let ended = std::thread::scope(|scope| {
            let attended = self
                .members
                .iter_mut()
                .flatten()
                .enumerate()
                .map(|(number, member)| {
                    let kill = program.kills.iter().find(|kill| kill.process == number);
                    scope.spawn(move || match kill {
                        Some(kill) => Ok(Some(member.killed(world, start, *kill))),
                        None => member.done().map(|()| None),
                    })
                });
            let attended: Vec<_> = attended.collect();
            let ended = attended.into_iter().map(|thread| {
                let panicked = |_| Err("a thread that waits for a process panicked".to_owned());
                thread.join().unwrap_or_else(panicked)
            });
            ended.collect::<Result<Vec<Option<Death>>, String>>()
        });
        for kill in &program.kills {
            self.members[kill.process] = None;
        }
        Ok(ended)
    }

    /// What is held once the living have looked for the dead.
    fn settle(&mut self, expected: Cost) -> Result<Result<Cost, String>, Trouble> {
        let (order, end) = (
            serde_json::to_string(&Order::Look)?,
            Instant::now() + PATIENCE,
        );
        while self.held() != expected && Instant::now() < end {
            if let Some(member) = self.members.iter_mut().flatten().next() {
                member.tell(&order);
                if let Err(broken) = member.done() {
                    return Ok(Err(broken));
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Ok(self.held()))
    }
}

impl Member {
    fn start(environment: &Environment, number: usize) -> Result<Self, Trouble> {
        let plan = &environment.plan;
        let mut command = Command::new(&plan.executable);
        command
            .arg(WORD)
            .arg(plan.root.join("world"))
            .arg(number.to_string());
        plan.apply(&mut command, plan.libraries)?;
        let stderr = plan.root.join(format!("stderr-{number}.txt"));
        let mut servant = Servant::start(command, Some(stderr))?;
        match servant.answer() {
            Some(ready) if ready == "ready" => Ok(Self(servant)),
            Some(told) => Err(Trouble::Beginning(told)),
            None => Err(Trouble::Beginning(servant.death())),
        }
    }

    /// Whether it was heard shows in the answer.
    fn tell(&mut self, order: &str) {
        let _ = self.0.tell(order);
    }

    fn done(&mut self) -> Result<(), String> {
        match self.0.answer() {
            Some(done) if done == "done" => Ok(()),
            Some(told) => Err(told),
            None => Err(self.0.death()),
        }
    }

    /// Kills it, and watches the device until that has let go of it.
    fn killed(&mut self, world: &World, start: u64, kill: Kill) -> Death {
        let begin = Duration::from_nanos(start.saturating_sub(world.now().0));
        std::thread::sleep(begin + Duration::from_micros(kill.after_us));
        let pid = self.0.id();
        let killed = world.now().0;
        self.0.kill();
        let mut death = Death {
            killed,
            seen: killed,
            held: 0,
            gone: killed,
        };
        loop {
            let asked = world.now().0;
            let held = world.used_by(DEVICE, pid).0;
            death.gone = world.now().0;
            if held == 0 {
                return death;
            }
            (death.seen, death.held) = (asked, held);
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The calls that a thread wrote down, behind those of others.
fn read(
    path: &Path,
    (process, thread): (usize, usize),
    calls: &mut Vec<Call>,
) -> Result<(), Trouble> {
    let first = calls.len();
    // Killed before it began, it left none.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A line without an end was being written when its process was killed.
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        match serde_json::from_str(line)? {
            Note::Begin { at, deed } => calls.push(Call {
                process,
                thread,
                begin: at,
                deed: match deed {
                    Deed::Free { of } => Deed::Free { of: first + of },
                    take => take,
                },
                end: None,
            }),
            Note::End { at, answer } => {
                if let Some(call) = calls[first..].last_mut() {
                    call.end = Some((at, answer));
                }
            }
        }
    }
    Ok(())
}
