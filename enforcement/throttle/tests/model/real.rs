//! Programs as they are measured on a card: they prepare launches on the host while the device works, read a value, wait for a gate, sleep.
//!
//! The figures of the card beside each are of an H200 (580.159.04, 24 November 2026): steps a second
//! and NVML's mean, bare and under budgets by the controller of that day.

use throttle::{Nanos, Rules, Sound};

use crate::program::{Function, Gate, Program};
use crate::scenes::none;
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

/// The same of so many functions in no order, so that new ones come among those that are known.
fn various(functions: usize, mut program: Program) -> Program {
    program.functions = vec![program.functions[0]; functions];
    program.shuffled = true;
    program
}

/// So many launches of one length a step, given to the driver over `host` nanoseconds.
fn uniform(launches: u64, device: u64, host: u64) -> Program {
    let cost = (device / launches).saturating_sub(2_000).max(500);
    let mut program = Program::new(vec![Function::steady(cost)], launches);
    program.host = (host / launches).saturating_sub(2_400);
    program
}

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
            various(300, uniform(240, 55 * MS / 100, 25 * MS / 10)),
            (400.0, 22.0),
        ),
        real("gemm", uniform(10, 2 * MS, MS / 10), (487.0, 98.0)),
    ]
}

/// Work that stands behind a gate which the host opens a while later.
fn gated(launches: u64, device: u64, open_after: u64) -> Program {
    let mut program = uniform(launches, device, MS / 2);
    program.gate = Some(Gate {
        told: true,
        streams: 1,
        open_after,
    });
    program
}

/// What a tenant's processes did in a while.
pub struct Done {
    /// Steps a second of each process, and their lengths in ascending order, in nanoseconds.
    pub rates: Vec<f64>,
    steps: Vec<Vec<u64>>,
    /// Percent of the time in which any process of any tenant had work, and of the worst second.
    pub mean: f64,
    pub worst: f64,
    /// Percent of the time in which the device was at work for each tenant, and of its worst second.
    pub each: Vec<(f64, f64)>,
}

impl Done {
    pub fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Of the first process's steps, the one that so many in a hundred are shorter than.
    fn percentile(&self, percent: usize) -> f64 {
        let steps = &self.steps[0];
        let at = (steps.len() * percent / 100).min(steps.len().saturating_sub(1));
        steps.get(at).map_or(0.0, |step| *step as f64)
    }
}

/// What processes do in a while, each tenant's under a budget of its own.
pub fn run<R: Rules>(tenants: &[(u64, Vec<Program>)], time: Nanos) -> Done {
    run_with::<R>(tenants, time, (0, Nanos::seconds(1)))
}

/// The same where marks are late by so much, as [`World::lag`] says, after a while in which things are learned.
fn run_with<R: Rules>(
    tenants: &[(u64, Vec<Program>)],
    time: Nanos,
    (lag, learned): (i64, Nanos),
) -> Done {
    let mut world = World::<R>::new(tenants.first().map_or(0, |(percent, _)| *percent), 97);
    world.sharing = SLICES;
    world.lag = lag;
    let mut processes = Vec::new();
    for (at, (percent, programs)) in tenants.iter().enumerate() {
        if at > 0 {
            world.another(*percent);
        }
        processes.extend(programs.iter().map(|program| world.tenant(program.clone())));
    }
    // What is learned first is no part of the figure.
    world.run(learned);
    let (start, begun) = (world.age(), world.now);
    world.run(time);
    let steps: Vec<Vec<u64>> = processes
        .iter()
        .map(|at| {
            let ends: Vec<u64> = world
                .rounds(*at)
                .iter()
                .copied()
                .filter(|end| *end >= begun)
                .collect();
            let mut steps: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
            steps.sort_unstable();
            steps
        })
        .collect();
    let seconds = time.0 as f64 / 1e9;
    let (_, worst) = world.history.seconds(start, world.age());
    Done {
        rates: steps
            .iter()
            .map(|steps| (steps.len() + 1) as f64 / seconds)
            .collect(),
        steps,
        mean: world.history.mean(start, world.age()),
        worst,
        each: (0..tenants.len())
            .map(|tenant| {
                let done = world.done(tenant);
                let (_, worst) = done.seconds(start, world.age());
                (done.mean(start, world.age()), worst)
            })
            .collect(),
    }
}

const TIME: Nanos = Nanos::seconds(10);
const LONG: Nanos = Nanos::seconds(60);
const BUDGETS: [u64; 6] = [95, 80, 50, 30, 20, 10];

/// What is promised of one program under a budget beside what it does without: who stays below the budget loses nothing, who exceeds it is held to
/// it and gets it.
fn broken(percent: u64, bare: &Done, held: &Done) -> Option<&'static str> {
    let budget = percent as f64;
    let part = (budget / bare.mean).min(1.0);
    let steps = held.percentile(99);
    match () {
        () if held.mean > budget + 3.0 || held.worst > budget + 10.0 => Some("beyond its budget"),
        () if part == 1.0 && held.rate() < 0.97 * bare.rate() => Some("loses speed"),
        () if part == 1.0 && steps > 1.1 * bare.percentile(99) => Some("has long steps"),
        () if held.rate() < 0.95 * part * bare.rate() => Some("does not get its budget"),
        () if part < 1.0 && steps > 2.0 * held.percentile(50) => Some("has uneven steps"),
        () => None,
    }
}

#[test]
fn real_programs_lose_nothing_below_their_budget_and_get_it_above() {
    programs::<Sound>().unwrap();
}

/// The table of programs and budgets.
pub fn programs<R: Rules>() -> Result<(), String> {
    let mut wrong = Vec::new();
    println!("steps/s, busy %: bare | by budget {BUDGETS:?}");
    for real in all() {
        let one = |percent| run::<R>(&[(percent, vec![real.program.clone()])], TIME);
        let bare = one(0);
        print!("{:6} {:6.1}, {:3.0} ", real.name, bare.rate(), bare.mean);
        let is_like =
            (bare.rate() / real.bare.0 - 1.0).abs() < 0.1 && (bare.mean - real.bare.1).abs() < 10.0;
        assert!(is_like, "{} is not what the card did", real.name);
        for percent in BUDGETS {
            let held = one(percent);
            print!("| {:6.1}, {:3.0} ", held.rate(), held.mean);
            if let Some(what) = broken(percent, &bare, &held) {
                let steps = [50, 99].map(|part| held.percentile(part) / 1e6);
                wrong.push(format!(
                    "{} under {percent} % {what}: {:.1} of {:.1} steps/s, {:.1} % of {:.1}, worst second {:.1}, steps {steps:.1?} ms",
                    real.name, held.rate(), bare.rate(), held.mean, bare.mean, held.worst
                ));
            }
        }
        println!();
    }
    none(wrong)
}

/// By then the device's own figures are known.
const LEARNED: Nanos = Nanos::seconds(8);
/// As a card's: it has the marks of 500 kernels of 2 us that come one by one say twice what it counts.
const LAG: i64 = 2_500;

/// What marks measure too much is not charged for longer than the device takes to say so.
#[test]
fn late_marks_take_no_speed_from_short_launches() {
    late_marks::<Sound>().unwrap();
}

pub fn late_marks<R: Rules>() -> Result<(), String> {
    let mut wrong = Vec::new();
    for real in all() {
        for percent in [95, 50, 30, 20] {
            let one = |percent| {
                run_with::<R>(
                    &[(percent, vec![real.program.clone()])],
                    TIME,
                    (LAG, LEARNED),
                )
            };
            let (bare, held) = (one(0), one(percent));
            println!(
                "{:6} {percent} {:.1} of {:.1}, {:.1}, {:.1} %",
                real.name,
                held.rate(),
                bare.rate(),
                held.mean,
                held.worst
            );
            if let Some(what) = broken(percent, &bare, &held) {
                wrong.push(format!(
                    "{} under {percent} % {what}: {:.1} of {:.1} steps/s, {:.1} % of {:.1}, worst second {:.1}",
                    real.name, held.rate(), bare.rate(), held.mean, bare.mean, held.worst
                ));
            }
        }
    }
    none(wrong)
}

/// A card counts more for the shortest than lies between their marks: of 2.2 us 0.8.
const EARLY: i64 = -1_500;

/// The shortest launches, one by one, cost no more where the host is slow for a while: by the marks that it sets they take twice as long then.
#[test]
fn a_slow_host_makes_short_launches_no_dearer() {
    slow_hosts::<Sound>().unwrap();
}

pub fn slow_hosts<R: Rules>() -> Result<(), String> {
    let steps = |percent: u64, slow: u64| {
        let mut world = World::<R>::new(percent, 97);
        (world.sharing, world.lag) = (SLICES, EARLY);
        let mut program = uniform(500, MS, 34 * MS / 10);
        program.functions = vec![Function::steady(1)];
        world.tenant(program);
        world.run(LEARNED);
        let (mut begun, mut told, mut most) = (0, Vec::new(), 0.0_f64);
        for round in 0..8 {
            let (launches, marks) = [(1, 1), (2, slow)][round % 2];
            world.host(launches, marks);
            let since = world.age();
            world.run(Nanos::millis(2_500));
            told.push(world.rounds(0).len() - std::mem::replace(&mut begun, world.rounds(0).len()));
            most = most.max(world.history.mean(since, world.age()));
        }
        (told, most)
    };
    let mut wrong = Vec::new();
    for slow in [2, 3, 4] {
        let (bare, needs) = steps(0, slow);
        for percent in [95, 50, 40] {
            let (held, _) = steps(percent, slow);
            println!(
                "{slow} times as slow, under {percent} %: {held:?} of {bare:?} steps, {needs:.1} % needed"
            );
            let lost = |(held, bare): (&usize, &usize)| (*held as f64) < 0.97 * *bare as f64;
            if held.iter().zip(&bare).skip(1).any(lost) {
                wrong.push(format!(
                    "{slow} times as slow, under {percent} %: {held:?} of {bare:?} steps"
                ));
            }
        }
    }
    none(wrong)
}

/// That something took long once is no reason to wait with what marks tell too little of.
#[test]
fn a_long_first_launch_lets_nobody_have_more() {
    let mut wrong = Vec::new();
    for (first, device, percent) in [(1, 24, 50), (600, 24, 50), (600, 20, 50), (600, 24, 20)] {
        let mut world = World::<Sound>::new(percent, 97);
        (world.sharing, world.lag) = (SLICES, 4 * EARLY);
        let program = uniform(200, device * MS / 10, 24 * MS / 10);
        let mut long = program.clone();
        long.functions = vec![Function::steady(first * MS)];
        world.tenant(long);
        world.run(Nanos::millis(100));
        *world.program(0) = program;
        world.run(Nanos::millis(9_500));
        let start = world.age();
        world.run(Nanos::seconds(2));
        let mean = world.history.mean(start, world.age());
        println!("{first} ms first, {device}: {mean:.1} under {percent}");
        if mean > percent as f64 + 3.0 {
            wrong.push(format!(
                "{first} ms first, {device}: {mean:.1} under {percent}"
            ));
        }
    }
    none(wrong).unwrap();
}

/// What is spared while launches come one by one is no licence for when they come ahead, nor for bursts between rests.
#[test]
fn who_changes_pace_gains_nothing_by_late_marks() {
    let held = |percent: u64, step: &mut dyn FnMut(&mut World<Sound>, u64)| {
        let mut world = World::<Sound>::new(percent, 97);
        world.sharing = SLICES;
        world.lag = LAG;
        world.tenant(uniform(500, 2 * MS, 7 * MS));
        world.run(LEARNED);
        let start = world.age();
        (0..6).for_each(|round| step(&mut world, round));
        let mean = world.history.mean(start, world.age());
        let (_, worst) = world.history.seconds(start, world.age());
        println!("under {percent}: {mean:.1} %, worst second {worst:.1}");
        assert!(
            mean < percent as f64 + 3.0 && worst < percent as f64 + 10.0,
            "under {percent}: {mean:.1} %, worst second {worst:.1}"
        );
    };
    for percent in [10, 20, 30, 50] {
        held(percent, &mut |world, round| {
            world.program(0).host = [0, 11_600][(round % 2) as usize];
            world.run(Nanos::seconds(3));
        });
        held(percent, &mut |world, _| {
            let program = world.program(0);
            (program.pause, program.host) = (Some((30, 700 * MS)), 0);
            world.run(Nanos::seconds(3));
        });
    }
}

/// T5: work that the device has not begun costs nothing, and keeps nobody waiting.
#[test]
fn work_behind_a_gate_takes_as_long_as_without_a_budget() {
    gates::<Sound>().unwrap();
}

pub fn gates<R: Rules>() -> Result<(), String> {
    for (launches, device, open) in [
        (20, MS, 5 * MS),
        (40, 2 * MS, 40 * MS),
        (200, MS, 300 * MS),
        (200, 40 * MS, 300 * MS),
        (40, 2 * MS, 2 * MS),
    ] {
        let one = |percent| run::<R>(&[(percent, vec![gated(launches, device, open)])], LONG);
        let bare = one(0);
        for percent in [95, 80, 50, 20] {
            let held = one(percent);
            let part = (percent as f64 / bare.mean).min(1.0);
            if held.rate() < 0.95 * part * bare.rate() || held.mean > percent as f64 + 3.0 {
                return Err(format!(
                    "{launches} of {device} ns, opened after {open}, {percent} %: {:.2} of {:.2} a second, {:.1} %",
                    held.rate(),
                    bare.rate(),
                    held.mean
                ));
            }
        }
    }
    Ok(())
}

/// Several processes of one tenant on a device that serves one at a time: held to the budget together. They do less than their part where waiting for the budget
/// keeps them from launching ahead while others have the device, so that it turns more often: neither is kept of them yet.
#[test]
fn processes_of_a_tenant_are_held_to_its_budget_together() {
    let mut wrong = Vec::new();
    for count in [2, 4] {
        for real in all() {
            print!("{count} {:6} ", real.name);
            let many = |percent| {
                run::<Sound>(
                    &[(percent, vec![real.program.clone(); count])],
                    Nanos::seconds(5),
                )
            };
            let bare = many(0);
            print!("{:6.1} ", bare.rate());
            for percent in [95, 80, 50, 30] {
                let held = many(percent);
                let budget = percent as f64;
                print!("| {:6.1}, {:3.0} ", held.rate(), held.mean);
                if held.mean > budget + 5.0
                    || held.worst > budget + 10.0
                    || held.rate() < 0.35 * budget / 100.0 * bare.rate()
                {
                    wrong.push(format!(
                        "{count} {} under {percent} %: {:.1} of {:.1} steps/s, {:.1} %, worst second {:.1}",
                        real.name, held.rate(), bare.rate(), held.mean, held.worst
                    ));
                }
            }
            println!();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tenants whose budgets fill the device do together what they do without budgets, and none takes more than its own.
#[test]
fn two_tenants_do_together_what_they_do_without_budgets() {
    let alike = all().into_iter().map(|real| ([real.name; 2], [50, 50]));
    let wrong: Vec<String> = alike
        .chain([
            (["gpt8", "gpt8"], [30, 30]),
            (["gemm", "gemm"], [70, 30]),
            (["gpt8", "gemm"], [50, 50]),
            (["gpt32", "small"], [50, 30]),
            (["infer", "gpt32"], [30, 50]),
        ])
        .filter_map(|(names, budgets)| tenants::<Sound>(names, budgets).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub fn tenants<R: Rules>(names: [&str; 2], budgets: [u64; 2]) -> Result<(), String> {
    let both = |budgets: [u64; 2]| {
        let programs = names.map(|name| all().into_iter().find(|real| real.name == name));
        let tenants = [0, 1].map(|at| {
            let program = programs[at].as_ref().map(|real| real.program.clone());
            (budgets[at], program.into_iter().collect())
        });
        run_with::<R>(&tenants, Nanos::seconds(5), (0, Nanos::seconds(5)))
    };
    let (bare, held) = (both([0, 0]), both(budgets));
    println!(
        "{names:?} {budgets:?}: {:.1?} of {:.1?}, {:.0?} of {:.0?} %",
        held.rates, bare.rates, held.each, bare.each
    );
    for (budget, (mean, worst)) in budgets.iter().zip(&held.each) {
        let budget = *budget as f64;
        if *mean > budget + 3.0 || *worst > budget + 10.0 {
            return Err(format!(
                "{names:?} {budgets:?}: {mean:.1} %, worst second {worst:.1}"
            ));
        }
    }
    let parts = [0, 1].map(|at| held.rates[at] / bare.rates[at]);
    let fills = budgets == [50, 50] && names[0] == names[1];
    if fills && (held.rate() < 0.95 * bare.rate() || parts.iter().any(|part| *part < 0.9)) {
        return Err(format!(
            "{names:?} {budgets:?}: {:.1?} of {:.1?}",
            held.rates, bare.rates
        ));
    }
    Ok(())
}

/// Others that come and go change nothing of what a tenant gets, but for the seconds in which they are noticed.
#[test]
fn who_comes_and_goes_takes_nothing_and_leaves_nothing() {
    for real in all().into_iter().filter(|real| real.bare.1 > 40.0) {
        let mut world = World::<Sound>::new(30, 97);
        world.sharing = SLICES;
        world.tenant(real.program.clone());
        world.another(0);
        let other = world.foreigner(uniform(64, 10 * MS, MS / 10));
        for round in 0..4 {
            world.program(other).think = [20_000 * MS, 0][round % 2];
            world.run(Nanos::seconds(5));
            let start = world.age();
            world.run(Nanos::seconds(6));
            let (least, most) = world.done(0).seconds(start, world.age());
            let mean = world.done(0).mean(start, world.age());
            println!(
                "{:6} {round}: {mean:.1} %, {least:.1} to {most:.1}",
                real.name
            );
            assert!(
                (25.0..33.0).contains(&mean) && most < 40.0,
                "{} {round}: {mean:.1} %, {least:.1} to {most:.1}",
                real.name
            );
        }
    }
}

/// Beside others a launch that takes longer than is believed may have waited for its turn: half of it is paid for at least.
#[test]
fn what_becomes_longer_beside_others_is_paid_for_by_half() {
    let mut world = World::<Sound>::new(20, 97);
    world.sharing = SLICES;
    world.tenant(uniform(200, 20 * MS, MS / 10));
    world.another(0);
    world.foreigner(uniform(64, 10 * MS, MS / 10));
    world.run(LEARNED);
    world.program(0).functions[0].cost *= 10;
    let start = world.age();
    world.run(Nanos::seconds(20));
    let mean = world.done(0).mean(start, world.age());
    println!("{mean:.1} %");
    assert!((18.0..43.0).contains(&mean), "{mean:.1} %");
}
