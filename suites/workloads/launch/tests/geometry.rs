//! Plans with any numbers in them, up to u32::MAX in every side, against a judge that counts in 128 bits.

use launch::plan::{Extent, Geometry, Width};
use launch::{KernelLimits, LaunchPlan, Limits, PlanError, Sides, TargetSm, residency};
use proptest::prelude::*;

const DEVICE: Limits = Limits {
    grid: [i32::MAX as u32, 65_535, 65_535],
    workgroup: [1024, 1024, 64],
    workgroup_threads: 1024,
    multiprocessors: 132,
    multiprocessor_threads: 2048,
    cooperative: true,
    target: TargetSm { major: 9, minor: 0 },
};
const KERNEL: KernelLimits = KernelLimits {
    workgroup_threads: 768,
    dynamic_shared: 49_152,
};

/// Any number, and those near an edge more often.
fn side() -> impl Strategy<Value = u32> {
    let edges = [
        0,
        1,
        2,
        32,
        64,
        65,
        768,
        1024,
        1025,
        65_535,
        65_536,
        i32::MAX as u32,
        1 << 31,
        u32::MAX,
    ];
    prop_oneof![
        proptest::sample::select(edges.to_vec()),
        1_u32..2048,
        any::<u32>(),
    ]
}

fn sides() -> impl Strategy<Value = Sides> {
    [side(), side(), side()].prop_map(Sides)
}

/// The product, which 96 bits hold.
fn product(sides: Sides) -> u128 {
    sides.0.iter().map(|side| u128::from(*side)).product()
}

fn within(sides: Sides, limits: [u32; 3]) -> bool {
    sides.0.iter().zip(limits).all(|(side, most)| *side <= most)
}

/// What a refusal says must be so.
fn is_true(error: &PlanError, plan: &LaunchPlan) -> bool {
    let (blocks, each) = (product(plan.grid), product(plan.workgroup));
    let of = |geometry| match geometry {
        Geometry::Grid => (plan.grid, DEVICE.grid),
        Geometry::Workgroup => (plan.workgroup, DEVICE.workgroup),
    };
    match *error {
        PlanError::EmptySide { geometry, axis } => of(geometry).0.0[axis as usize] == 0,
        PlanError::BlocksOverflow { .. } => blocks > u64::MAX.into(),
        PlanError::WorkgroupOverflow { .. } => each > u64::MAX.into(),
        PlanError::WorkgroupWidth { threads, width } => {
            let most = match width {
                Width::Unsigned => u128::from(u32::MAX),
                Width::Signed => i32::MAX as u128,
            };
            each == threads.into() && each > most
        }
        PlanError::ThreadsOverflow { .. } => blocks * each > u64::MAX.into(),
        PlanError::SideBeyondDevice {
            geometry,
            axis,
            side,
            most,
        } => {
            let (sides, limits) = of(geometry);
            (sides.0[axis as usize], limits[axis as usize]) == (side, most) && side > most
        }
        PlanError::WorkgroupBeyondDevice { threads, most } => {
            each == threads.into() && most == DEVICE.workgroup_threads && threads > most
        }
        PlanError::WorkgroupBeyondKernel { threads, most } => {
            each == threads.into() && most == KERNEL.workgroup_threads && threads > most
        }
        PlanError::SharedMemory { asked, most } => asked == plan.shared && asked > most,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_taken_if_and_only_if_all_of_it_fits(grid in sides(), workgroup in sides(), shared in side()) {
        let plan = LaunchPlan::new(grid, workgroup).sharing(shared);
        let (blocks, each) = (product(grid), product(workgroup));
        let fits = blocks > 0 && each > 0
            && within(grid, DEVICE.grid) && within(workgroup, DEVICE.workgroup)
            && each <= KERNEL.workgroup_threads.into()
            && blocks * each <= u64::MAX.into()
            && shared <= KERNEL.dynamic_shared;
        match plan.extent(&DEVICE, &KERNEL) {
            Ok(Extent { blocks: counted, workgroup_threads, threads }) => {
                prop_assert!(fits);
                prop_assert_eq!(u128::from(counted), blocks);
                prop_assert_eq!(u128::from(workgroup_threads), each);
                prop_assert_eq!(u128::from(threads), blocks * each);
            }
            Err(error) => {
                prop_assert!(!fits, "{error:?} of {plan:?}");
                prop_assert!(is_true(&error, &plan), "{error:?} of {plan:?}");
            }
        }
    }

    #[test]
    fn a_plan_over_elements_has_a_thread_for_each_and_no_workgroup_too_many(elements in any::<u64>(), side in side()) {
        for elements in [elements, elements >> 32, elements >> 50] {
            match LaunchPlan::over(elements, side) {
                Ok(plan) => {
                    let each = u128::from(side);
                    let threads = product(plan.grid) * each;
                    prop_assert!(threads >= elements.into() && threads < u128::from(elements) + each);
                    prop_assert_eq!(plan.element_count, elements);
                    prop_assert_eq!(plan.extent(&DEVICE, &KERNEL).is_err(), elements == 0 || each > 768 || plan.grid.0[0] > i32::MAX as u32);
                }
                Err(PlanError::EmptySide { .. }) => prop_assert_eq!(side, 0),
                Err(error) => {
                    prop_assert_eq!(error, PlanError::TooManyElements { elements, side });
                    prop_assert!(u128::from(elements) > u128::from(u32::MAX) * u128::from(side));
                }
            }
        }
    }

    #[test]
    fn residency_is_all_or_nothing(blocks in side(), threads in 1_u32..=768, active in any::<i32>()) {
        let plan = LaunchPlan::new(Sides([blocks, 1, 1]), Sides([threads, 1, 1])).cooperative();
        if let Ok(extent) = plan.extent(&DEVICE, &KERNEL) {
            let by_threads = u128::from(blocks) * u128::from(threads) <= 132 * 2048;
            prop_assert_eq!(residency::by_threads(&plan, &extent, &DEVICE).is_ok(), by_threads);
            let fits = active >= 0 && i64::from(blocks) <= i64::from(active) * 132;
            let answer = residency::by_occupancy(&plan, &extent, &DEVICE, active);
            prop_assert_eq!(answer.is_ok(), fits, "{:?}", answer);
            prop_assert_eq!(active < 0, matches!(answer, Err(PlanError::NegativeActiveBlocks { .. })));
        }
    }
}
