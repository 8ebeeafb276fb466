//! What the devices held and what the ledger knew of while a case ran: figures read every few milliseconds beside it, for the plot of a report.
//!
//! Of a simulated device they are what it holds for all processes; over a real driver what NVML says of the case's own, for others may use the card.
//! Device and ledger cannot be read at one instant: a pair counts once the ledger said the same before and after the device, or after [`TRIES`].
//! What comes and goes between two samples is not seen; the simulated device's own peak, which misses nothing, is told beside them.

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ledger::DeviceIndex as LedgerDevice;
use ledger::View;
use mock_device::{Bytes, DeviceIndex};

use crate::driver::Driver;
use crate::environment::Environment;
use crate::nvml::{DeviceFigures, NvmlError};
use crate::watch::Watch;

/// How long it is from one sample to the next at first; a case in which much changes has it doubled.
const TICK: Duration = Duration::from_millis(2);
/// Points of one device that are kept.
const POINTS: usize = 256;
/// Readings of one pair of figures.
const TRIES: u32 = 3;

/// One device's figures over the run of a case.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Course {
    pub device: u32,
    pub source: Source,
    /// What the target was told to keep to.
    pub budget: Option<Bytes>,
    /// The most that the simulated device ever held, by its own count.
    pub peak: Option<Bytes>,
    /// In the order of time. A point holds until the next one: between two of them nothing was seen to change.
    pub points: Vec<Point>,
}

/// Whose word a device's figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Source {
    /// The simulated device's, for all processes, the dead included until their teardown ends.
    Simulated,
    /// NVML's rows of the case's own processes.
    Nvml,
}

/// One reading: in a report `[milliseconds, bytes, bytes or null]`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(from = "(f64, u64, Option<u64>)", into = "(f64, u64, Option<u64>)")]
pub struct Point {
    /// Since the case was started.
    pub milliseconds: f64,
    /// What the device held.
    pub held: Bytes,
    /// What the ledger knew of; `None` before there is one, and where the target keeps none.
    pub charged: Option<Bytes>,
}

impl From<(f64, u64, Option<u64>)> for Point {
    fn from((milliseconds, held, charged): (f64, u64, Option<u64>)) -> Self {
        Self {
            milliseconds,
            held: Bytes(held),
            charged: charged.map(Bytes),
        }
    }
}

impl From<Point> for (f64, u64, Option<u64>) {
    fn from(point: Point) -> Self {
        let charged = point.charged.map(|charged| charged.0);
        (point.milliseconds, point.held.0, charged)
    }
}

/// Has every case of a run sampled.
pub struct Observer {
    /// Asked for all cases by one process, over a real driver.
    nvml: Option<Watch>,
}

impl Observer {
    pub fn over(driver: &Driver) -> Result<Self, NvmlError> {
        let nvml = driver.is_real().then(Watch::start).transpose()?;
        Ok(Self { nvml })
    }

    /// Reads figures while `body` runs, which may have one taken at a moment that counts.
    pub(crate) fn during<R>(
        &self,
        environment: &Environment,
        body: impl FnOnce(&Sampler<'_>) -> R,
    ) -> (R, Vec<Course>) {
        let sampler = Sampler {
            observer: self,
            environment,
            started: Instant::now(),
            state: Mutex::new(State {
                ledger: None,
                tracks: vec![Track::default(); environment.plan.gpus as usize],
                family: Family::default(),
                tick: TICK,
            }),
        };
        let (done, ended) = channel::<()>();
        let answer = std::thread::scope(|scope| {
            let sampler = &sampler;
            scope.spawn(move || {
                while ended.recv_timeout(sampler.tick()) == Err(RecvTimeoutError::Timeout) {
                    sampler.sample();
                }
            });
            let answer = body(sampler);
            drop(done);
            answer
        });
        (answer, sampler.courses())
    }
}

/// Reads figures of one case.
pub(crate) struct Sampler<'a> {
    observer: &'a Observer,
    environment: &'a Environment,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    ledger: Option<View>,
    tracks: Vec<Track>,
    family: Family,
    tick: Duration,
}

impl Sampler<'_> {
    /// Whose memory counts over a real driver.
    pub(crate) fn follow(&self, group: u32) {
        self.state().family.group = Some(group);
    }

    /// Takes one now, of whatever ledger there is now.
    pub(crate) fn mark(&self) {
        self.state().ledger = None;
        if let Some(nvml) = &self.observer.nvml {
            nvml.refresh();
        }
        self.sample();
        for track in &mut self.state().tracks {
            track.keep_last();
        }
    }

    fn sample(&self) {
        let plan = &self.environment.plan;
        let state = &mut *self.state();
        if state.ledger.is_none() && plan.target.declares_ledger {
            state.ledger = View::open(&plan.ledger).ok();
        }
        let rows = self.observer.nvml.as_ref().map(Watch::latest);
        for (device, track) in (0..).zip(&mut state.tracks) {
            let held = || match (&self.environment.world, &rows) {
                (Some(world), _) => world.used(DeviceIndex(device)),
                (None, Some(rows)) => state.family.held(rows, device),
                (None, None) => Bytes::ZERO,
            };
            let charged = || {
                let ledger = state.ledger.as_ref()?;
                Some(Bytes(ledger.usage(LedgerDevice(device)).0))
            };
            let (held, charged) = pair(held, charged);
            track.put(Point {
                milliseconds: self.milliseconds(),
                held,
                charged,
            });
            if track.points.len() >= POINTS {
                track.thin();
                state.tick *= 2;
            }
        }
        if let Some(rows) = &rows {
            state.family.meet(rows);
        }
    }

    /// To the microsecond.
    fn milliseconds(&self) -> f64 {
        self.started.elapsed().as_micros() as f64 / 1000.0
    }

    fn tick(&self) -> Duration {
        self.state().tick
    }

    /// What was read of the devices that held or were charged anything.
    fn courses(self) -> Vec<Course> {
        let plan = &self.environment.plan;
        let world = self.environment.world.as_ref();
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let course = |(device, mut track): (u32, Track)| {
            track.keep_last();
            let enforced = plan.target.enforces;
            Course {
                device,
                source: match world {
                    Some(_) => Source::Simulated,
                    None => Source::Nvml,
                },
                budget: plan.budgets.get(device as usize).filter(|_| enforced),
                peak: world.map(|world| world.peak(DeviceIndex(device))),
                points: track.points,
            }
        };
        let courses = (0..).zip(state.tracks).map(course);
        let any = |course: &Course| {
            let points = course.points.iter();
            let mut figures = points.map(|point| point.held.max(point.charged.unwrap_or_default()));
            figures.any(|figure| figure != Bytes::ZERO)
                || course.peak.is_some_and(|peak| peak != Bytes::ZERO)
        };
        courses.filter(any).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a device held between two equal readings of what the ledger knew.
fn pair(held: impl Fn() -> Bytes, charged: impl Fn() -> Option<Bytes>) -> (Bytes, Option<Bytes>) {
    let mut before = charged();
    for _ in 1..TRIES {
        let held = held();
        let after = charged();
        if before == after {
            return (held, after);
        }
        before = after;
    }
    (held(), before)
}

/// What one device's readings came to.
#[derive(Clone, Default)]
struct Track {
    points: Vec<Point>,
    /// The last reading, where it said what the last point says.
    unchanged: Option<Point>,
}

impl Track {
    fn put(&mut self, point: Point) {
        let figures = |point: &Point| (point.held, point.charged);
        if self.points.last().map(figures) == Some(figures(&point)) {
            self.unchanged = Some(point);
        } else {
            self.points.push(point);
            self.unchanged = None;
        }
    }

    fn keep_last(&mut self) {
        self.points.extend(self.unchanged.take());
    }

    /// Of each two points the one in which the device held more stays.
    fn thin(&mut self) {
        let more = |pair: &[Point]| match pair {
            [first, second] if first.held > second.held => *first,
            [.., last] => *last,
            [] => unreachable!("a chunk has a point"),
        };
        self.points = self.points.chunks(2).map(more).collect();
    }
}

/// The processes of a case, by their group: a dead one's row stays in NVML for a while, when nobody can be asked for its group any more.
#[derive(Default)]
struct Family {
    group: Option<u32>,
    met: BTreeSet<u32>,
}

impl Family {
    fn meet(&mut self, rows: &[DeviceFigures]) {
        let Some(group) = self.group else { return };
        for (pid, _) in rows.iter().flat_map(|device| &device.processes) {
            if self.belongs(*pid, group) {
                self.met.insert(*pid);
            }
        }
    }

    fn held(&self, rows: &[DeviceFigures], device: u32) -> Bytes {
        let (Some(group), Some(figures)) = (self.group, rows.get(device as usize)) else {
            return Bytes::ZERO;
        };
        let rows = figures.processes.iter();
        let own = rows.filter(|(pid, _)| self.met.contains(pid) || self.belongs(*pid, group));
        own.map(|(_, held)| *held).sum()
    }

    fn belongs(&self, pid: u32, group: u32) -> bool {
        group_of(pid) == Some(group)
    }
}

/// The process group, where the process is one of this PID namespace.
fn group_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name, in brackets, may have anything in it. Then come the state, the parent and the group.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    fn point(milliseconds: f64, held: u64) -> Point {
        Point::from((milliseconds, held, Some(held)))
    }

    fn track(points: &[Point]) -> Track {
        let mut track = Track::default();
        for point in points {
            track.put(*point);
        }
        track.keep_last();
        track
    }

    #[test]
    fn what_stands_still_is_its_first_and_its_last_reading() {
        let readings = [
            point(0.0, 1),
            point(1.0, 1),
            point(2.0, 1),
            point(3.0, 7),
            point(4.0, 7),
        ];
        let kept = [point(0.0, 1), point(3.0, 7), point(4.0, 7)];
        assert_eq!(track(&readings).points, kept);
    }

    #[test]
    fn thinning_keeps_the_most_that_was_held() {
        let mut track = track(&[
            point(0.0, 1),
            point(1.0, 9),
            point(2.0, 8),
            point(3.0, 2),
            point(4.0, 5),
        ]);
        track.thin();
        assert_eq!(track.points, [point(1.0, 9), point(2.0, 8), point(4.0, 5)]);
    }

    #[test]
    fn a_pair_is_of_a_ledger_that_stood_still() {
        let reads = Cell::new(0);
        // It moves once, between the first two looks.
        let charged = || {
            reads.set(reads.get() + 1);
            Some(Bytes(u64::min(reads.get(), 2)))
        };
        assert_eq!(
            pair(|| Bytes(reads.get()), charged),
            (Bytes(2), Some(Bytes(2)))
        );
    }

    #[test]
    fn a_point_is_three_figures_in_a_report() {
        let text = serde_json::to_string(&Point::from((1.5, 4, None))).expect("figures");
        assert_eq!(text, "[1.5,4,null]");
        assert_eq!(
            serde_json::from_str::<Point>(&text).ok(),
            Some(Point::from((1.5, 4, None)))
        );
    }

    #[test]
    fn a_case_is_charged_for_its_own_processes_and_for_its_dead() {
        let me = std::process::id();
        let mut other = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .expect("a process of another group");
        let stranger = other.id();
        let dead = u32::MAX >> 1;
        let rows = [DeviceFigures {
            uuid: String::new(),
            total: Bytes(100),
            free: Bytes(40),
            used: Bytes(60),
            processes: vec![(me, Bytes(10)), (stranger, Bytes(20)), (dead, Bytes(30))],
        }];
        let mut family = Family {
            group: group_of(me),
            met: BTreeSet::from([dead]),
        };
        family.meet(&rows);
        let held = family.held(&rows, 0);
        other.kill().expect("it is ours");
        other.wait().expect("its end");
        assert_eq!(held, Bytes(40));
        assert_eq!(family.held(&rows, 1), Bytes::ZERO);
        assert_eq!(Family::default().held(&rows, 0), Bytes::ZERO);
    }
}
