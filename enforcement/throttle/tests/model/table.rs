//! Budget by length of kernel by processes by depth: the mean, and the worst second.

use throttle::{Nanos, Rules, Sound};

use crate::program::{Function, Program};
use crate::world::{SLICES, Sharing, World};

const BUDGETS: [u64; 5] = [10, 25, 50, 75, 90];
const LENGTHS: [u64; 5] = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// How many, and how they share the device.
const PROCESSES: [(usize, Sharing); 3] = [(1, Sharing::Even), (4, Sharing::Even), (4, SLICES)];
const DEPTHS: [u64; 4] = [1, 16, 64, 512];

/// One cell.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub budget: u64,
    pub length: u64,
    pub processes: usize,
    pub sharing: Sharing,
    pub depth: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub bare: f64,
    pub mean: f64,
    pub least: f64,
    pub most: f64,
    /// What the controllers believe the mean to have been.
    pub counted: f64,
    /// Launches, of those without a budget.
    pub launched: f64,
}

impl Cell {
    pub fn all() -> impl Iterator<Item = Cell> {
        BUDGETS.into_iter().flat_map(|budget| {
            LENGTHS.into_iter().flat_map(move |length| {
                PROCESSES.into_iter().flat_map(move |(processes, sharing)| {
                    DEPTHS.into_iter().map(move |depth| Cell {
                        budget,
                        length,
                        processes,
                        sharing,
                        depth,
                    })
                })
            })
        })
    }

    /// Longer where a kernel is longer: the model's work is by the launch.
    fn time(self) -> Nanos {
        Nanos::seconds(match self.length {
            10_000 => 6,
            100_000 => 20,
            1_000_000 => 60,
            10_000_000 => 300,
            _ => 1200,
        })
    }

    fn world<R: Rules>(self, budget: u64) -> World<R> {
        let mut world = World::new(budget, self.budget * 7919 + self.length + self.depth);
        world.sharing = self.sharing;
        for _ in 0..self.processes {
            world.tenant(Program::new(
                vec![Function::steady(self.length)],
                self.depth,
            ));
        }
        world
    }

    pub fn run<R: Rules>(self) -> Figures {
        let mut bare = self.world::<R>(0);
        bare.run(Nanos::seconds(2));
        let mut world = self.world::<R>(self.budget);
        world.run(self.time());
        let (least, most) = world.history.seconds(Nanos::ZERO, self.time());
        Figures {
            bare: bare.history.mean(Nanos::ZERO, Nanos::seconds(2)),
            mean: world.history.mean(Nanos::ZERO, self.time()),
            least,
            most,
            launched: 100.0 * world.all_launches() as f64 / self.time().0 as f64
                * Nanos::seconds(2).0 as f64
                / bare.all_launches() as f64,
            counted: world.counted().0 as f64 * 100.0 / self.time().0 as f64,
        }
    }

    /// What is promised of the figures; a program that does not ask for its budget gets what it asks for.
    pub fn broken(self, figures: Figures) -> Option<String> {
        let (budget, wanted) = (self.budget as f64, figures.bare.min(self.budget as f64));
        let reached = figures.bare > budget + 3.0;
        // By turning less than without a budget several processes may do their share of that in less time.
        let served = self.sharing != Sharing::Even && figures.launched >= budget;
        let mean = figures.mean <= budget + 3.0 && (served || figures.mean >= wanted - 3.0);
        let least = served || !reached || figures.least >= budget - 10.0;
        let seconds = figures.most <= budget + 10.0 && least;
        (!mean || !seconds).then(|| format!("{self:?}: {figures:.1?}"))
    }
}

#[test]
fn the_mean_is_within_3_points_and_every_second_within_10() {
    let mut broken = Vec::new();
    let mut simulated = Nanos::ZERO;
    println!("budget  kernel us  processes  depth |  bare   mean  least   most  counted  launched");
    for cell in Cell::all() {
        let figures = cell.run::<Sound>();
        simulated = simulated.plus(cell.time());
        println!(
            "{:5}%  {:9}  {:9}  {:5} | {:5.1}  {:5.1}  {:5.1}  {:5.1}  {:5.1}  {:5.1}{}",
            cell.budget,
            cell.length / 1000,
            match cell.sharing {
                Sharing::Even => format!("{}", cell.processes),
                Sharing::Slices { .. } => format!("{} sliced", cell.processes),
            },
            cell.depth,
            figures.bare,
            figures.mean,
            figures.least,
            figures.most,
            figures.counted,
            figures.launched,
            if cell.broken(figures).is_some() {
                "  BROKEN"
            } else {
                ""
            },
        );
        broken.extend(cell.broken(figures));
    }
    println!("{} s simulated", simulated.0 / 1_000_000_000);
    assert!(
        broken.is_empty(),
        "{} cells:\n{}",
        broken.len(),
        broken.join("\n")
    );
}
