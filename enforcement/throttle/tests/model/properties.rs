//! Random programs under random budgets. The same ones each time: a figure within a tolerance is no place for a flaky test.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use throttle::{Nanos, Sound};

use crate::program::{Function, Program};
use crate::world::{SLICES, Sharing, World};

const TIME: Nanos = Nanos::seconds(10);

fn function() -> impl Strategy<Value = Function> {
    // 10 us to 100 ms, evenly by order of magnitude.
    (0.0_f64..4.0, 0_u64..15).prop_map(|(order, spread)| Function {
        spread,
        ..Function::steady(
            ((10_000.0 * 10_f64.powf(order)) as u64).min(100_000_000 * 100 / (100 + spread)),
        )
    })
}

fn program() -> impl Strategy<Value = Program> {
    let depth = prop_oneof![Just(1_u64), 2_u64..40, 40_u64..1000];
    let think = prop_oneof![Just(0_u64), 0_u64..5_000_000];
    (
        proptest::collection::vec(function(), 1..4),
        depth,
        think,
        any::<bool>(),
    )
        .prop_map(|(functions, depth, think, shuffled)| {
            let mut program = Program::new(functions, depth);
            program.think = think;
            program.shuffled = shuffled;
            program
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(8), ..ProptestConfig::default() })]
    #[test]
    fn any_program_is_held_to_its_budget_and_gets_it(programs in proptest::collection::vec(program(), 1..5), percent in 10_u64..=90, sharing in prop_oneof![Just(Sharing::Even), Just(SLICES)], seed in any::<u64>()) {
        let run = |percent| {
            let mut world = World::<Sound>::new(percent, seed);
            world.sharing = sharing;
            for program in &programs {
                world.tenant(program.clone());
            }
            world.run(TIME);
            let launches: Vec<u64> = (0..programs.len()).map(|at| world.launches(at)).collect();
            (world.history, launches)
        };
        let ((bare, all), (held, done)) = (run(0), run(percent));
        let (asked, mean) = (bare.mean(Nanos::ZERO, TIME), held.mean(Nanos::ZERO, TIME));
        let (_, worst) = held.seconds(Nanos::ZERO, TIME);
        let budget = percent as f64;
        // What several processes launch here and there at the same time is told apart by belief.
        let gained = if programs.len() == 1 { 3.0 } else { 5.0 };
        prop_assert!(mean <= budget + gained, "mean {mean:.1} of {budget}");
        prop_assert!(worst <= budget + 10.0, "worst second {worst:.1} of {budget}");
        // A program that asks for little more than its budget loses some of it: what it waits for it cannot make up for.
        let lost = if asked > budget + 10.0 && programs.len() == 1 { 3.0 } else { 6.0 };
        let served = sharing != Sharing::Even && done.iter().zip(&all).all(|(done, all)| *done as f64 >= *all as f64 * budget / 100.0);
        prop_assert!(served || mean >= asked.min(budget) - lost, "mean {mean:.1} of {budget}, asked for {asked:.1}, {done:?} of {all:?}");
    }
}
