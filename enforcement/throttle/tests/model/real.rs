//! Programs as they are measured on a card: they prepare launches on the host while the device works, read a value, wait for a gate, sleep.
//!
//! The figures of the card beside each are of an H200 (580.159.04, 24 November 2026): steps a second
//! and NVML's mean, bare and under budgets by the controller of that day.

use throttle::{Nanos, Rules, Sound};

use crate::program::{Function, Gate, Program};
use crate::world::{SLICES, World};

/// A program, and what it did on a card without a budget.
pub struct Real {
    pub name: &'static str,
    pub program: Program,
    /// Steps a second and NVML's mean.
    pub bare: (f64, f64),
}

/// A step of training: many short launches, a few long ones in the middle (the head over the vocabulary, and its loss), short ones again; then the loss is
/// read. `host` is what all launches take the host.
fn training(long: u64, short: u64, host: u64) -> Program {
    const BEFORE: u64 = 300;
    const LONG: u64 = 10;
    const AFTER: u64 = 890;
    let function = |cost: u64| Function {
        spread: 10,
        ..Function::steady(cost)
    };
    let functions = [short / 2, short, short * 3 / 2, long];
    let mut program = Program::new(functions.map(function).to_vec(), BEFORE + LONG + AFTER);
    program.phases = [BEFORE, AFTER]
        .into_iter()
        .zip([true, false])
        .flat_map(|(count, head)| {
            let short = (0..count / 10).flat_map(|_| [(0, 3), (1, 4), (2, 3)]);
            short.chain(head.then_some((3, LONG)))
        })
        .collect();
    program.host = (host / program.depth).saturating_sub(2_400);
    program
}

/// So many launches of one length a step, given to the driver over `host` nanoseconds.
fn uniform(launches: u64, device: u64, host: u64) -> Program {
    let cost = (device / launches).saturating_sub(2_000).max(500);
    let mut program = Program::new(vec![Function::steady(cost)], launches);
    program.host = (host / launches).saturating_sub(2_400);
    program
}

/// From a mark to the work after it, in a stream that was empty.
const FETCH: u64 = 3_500;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The programs of the table.
pub fn all() -> Vec<Real> {
    let real = |name, program, bare| Real {
        name,
        program,
        bare,
    };
    vec![
        real("gpt32", training(1950 * US, 1700, 15 * MS), (39.6, 95.0)),
        real("gpt8", training(450 * US, 800, 15 * MS), (62.0, 48.0)),
        real("gpt2", training(110 * US, 500, 15 * MS), (64.0, 22.0)),
        real(
            "small",
            uniform(500, 23 * MS / 10, 68 * MS / 10),
            (146.0, 33.0),
        ),
        real(
            "infer",
            uniform(240, 55 * MS / 100, 25 * MS / 10),
            (400.0, 22.0),
        ),
        real("gemm", uniform(10, 2 * MS, MS / 10), (487.0, 98.0)),
    ]
}

/// Work that stands behind a gate which the host opens a while later.
fn gated(launches: u64, device: u64, open_after: u64) -> Program {
    let mut program = uniform(launches, device, MS / 2);
    program.gate = Some(Gate {
        stream: 0,
        open_after,
    });
    program
}

/// What processes do in a while, each tenant's under a budget of its own.
pub fn run<R: Rules>(tenants: &[(u64, Vec<Program>)], time: Nanos) -> (Vec<f64>, f64, f64) {
    let mut world = World::<R>::new(tenants.first().map_or(0, |(percent, _)| *percent), 97);
    world.sharing = SLICES;
    world.fetch = FETCH;
    let mut processes = Vec::new();
    for (at, (percent, programs)) in tenants.iter().enumerate() {
        if at > 0 {
            world.another(*percent);
        }
        processes.extend(programs.iter().map(|program| world.tenant(program.clone())));
    }
    // What is learned first is no part of the figure.
    world.run(Nanos::seconds(1));
    let start = world.age();
    let before: Vec<u64> = processes.iter().map(|at| world.rounds(*at)).collect();
    world.run(time);
    let seconds = time.0 as f64 / 1e9;
    let done = processes.iter().zip(before);
    let rates = done.map(|(at, before)| (world.rounds(*at) - before) as f64 / seconds);
    let rates = rates.collect();
    let (_, worst) = world.history.seconds(start, world.age());
    (rates, world.history.mean(start, world.age()), worst)
}

/// The controller of today takes of them what it takes on the card: programs that prepare while the device works lose, and what stands behind a gate
/// stands still. What is promised of them instead stands in `COMPUTE.md` as T5 to T8.
#[test]
fn bare_figures_are_the_cards_and_those_under_a_budget_are_told() {
    let time = Nanos::seconds(5);
    let mut wrong = Vec::new();
    println!(
        "steps/s, busy % | card, bare  | bare         | 95           80           50           30           20"
    );
    for real in all() {
        print!(
            "{:15} | {:5.1}, {:3.0} ",
            real.name, real.bare.0, real.bare.1
        );
        for percent in [0, 95, 80, 50, 30, 20] {
            let (rates, mean, worst) = run::<Sound>(&[(percent, vec![real.program.clone()])], time);
            print!("| {:6.1}, {mean:3.0} ", rates[0]);
            let is_like =
                (rates[0] / real.bare.0 - 1.0).abs() < 0.1 && (mean - real.bare.1).abs() < 10.0;
            let is_held = percent == 0 || worst <= percent as f64 + 10.0;
            if percent == 0 && !is_like || !is_held {
                wrong.push(format!(
                    "{} under {percent} %: {:.1}, {mean:.1}, worst second {worst:.1}",
                    real.name, rates[0]
                ));
            }
        }
        println!();
    }
    println!("two tenants of 50 % each: bare, and ours");
    for real in all() {
        let both = |percent| {
            let one = (percent, vec![real.program.clone()]);
            run::<Sound>(&[one.clone(), one], time)
        };
        let ((bare, all, _), (ours, mean, _)) = (both(0), both(50));
        println!(
            "{:15} | {:6.1} + {:6.1}, {all:3.0} | {:6.1} + {:6.1}, {mean:3.0}",
            real.name, bare[0], bare[1], ours[0], ours[1]
        );
    }
    println!("behind a gate: bare, and under 80, 50, 20 %");
    for (launches, device, open) in [(20, MS, 5 * MS), (40, 2 * MS, 40 * MS), (200, MS, 300 * MS)] {
        print!(
            "{launches:4} of {:2} ms, opened after {:3} ms ",
            device / MS,
            open / MS
        );
        for percent in [0, 80, 50, 20] {
            let program = gated(launches, device, open);
            let (rates, mean, _) = run::<Sound>(&[(percent, vec![program])], time);
            print!("| {:6.2}, {mean:3.0} ", rates[0]);
        }
        println!();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
