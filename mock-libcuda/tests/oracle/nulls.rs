//! Ten zero arguments to every export, before cuInit by generation, and with a current context.

use build_support::oracle::Export;

use crate::boundary::{Ended, ended, in_child};
use crate::score::Score;
use crate::{CUDA, EXPORTS, generations, start};

/// Drivers 535 and 550 were asked on machines without a GPU, where cuInit answers NO_DEVICE.
const HAS_A_GPU_HERE: &str = "cuInit";

/// What a generation answers before cuInit; `None` for one that was not asked.
pub fn before_init(generation: u16) -> Option<Score> {
    let mut score = Score::default();
    for row in EXPORTS.iter() {
        let Some(expected) = ended(row.before(generation)) else {
            continue;
        };
        if row.name == HAS_A_GPU_HERE && generation != 580 {
            let line = format!("{}: asked without a GPU, {expected:?}", row.name);
            score.left_out.push(line);
            continue;
        }
        let got = generations::on(generation, |cuda| cuda.call(row.name, &[]).into());
        compare(&mut score, row, expected, got);
    }
    (score.checked > 0).then_some(score)
}

pub fn initialised() -> Score {
    let mut score = Score::default();
    for row in EXPORTS.iter() {
        let Some(expected) = ended(row.after[0]) else {
            continue;
        };
        let got = in_child(|| {
            start();
            CUDA.call(row.name, &[]).into()
        });
        compare(&mut score, row, expected, got);
    }
    score
}

fn compare(score: &mut Score, row: &Export, expected: Ended, got: Ended) {
    score.checked += 1;
    if got != expected {
        let line = format!("{}: {got:?}, recorded {expected:?}", row.name);
        score.wrong.push(line);
    }
}

const NEWER: &str = "535 looked at the arguments first, as the simulation of 580 does not";

/// Answered otherwise than by the drivers, each for a reason.
const OF_535: &[(&str, &str)] = &[
    ("cuStreamEndCapture", NEWER),
    ("cuStreamEndCapture_ptsz", NEWER),
];

#[test]
fn zeros_before_init_are_answered_as_recorded() {
    for generation in [535, 550, 580] {
        let score = before_init(generation).expect("it was asked");
        assert!(score.checked > 500, "{}", score.checked);
        let known = if generation == 535 { OF_535 } else { &[] };
        score.all_but(
            &format!("NULL arguments before cuInit of {generation}"),
            known,
        );
    }
}

#[test]
fn zeros_with_a_context_are_answered_as_recorded() {
    let score = initialised();
    assert!(score.checked > 600);
    score.all("NULL arguments, initialised");
}

#[test]
fn what_is_not_simulated_never_succeeds() {
    for row in EXPORTS
        .iter()
        .filter(|row| row.name.starts_with("cuGraphics"))
    {
        let mut room = [0u64; 64];
        let words = [room.as_mut_ptr() as u64; 6];
        let ended = in_child(|| {
            start();
            CUDA.call(row.name, &words).into()
        });
        // 201 where the entry point is of the 32-bit generation, which refuses every other context.
        let refused = [Ended::Answered(801), Ended::Answered(201)];
        assert!(refused.contains(&ended), "{}: {ended:?}", row.name);
    }
}

#[test]
fn device_zero_is_no_null() {
    const SM: u64 = 1;
    const NAME: &str = "cuDeviceGetDevResource";
    let mut room = [0u64; 64];
    let pointer = room.as_mut_ptr() as u64;
    let answer = |words: [u64; 3]| {
        in_child(|| {
            start();
            CUDA.call(NAME, &words).into()
        })
    };
    assert_eq!(answer([0, 0, SM]), Ended::Answered(1), "NULL");
    assert_eq!(answer([0, pointer, SM]), Ended::Answered(0), "device 0");
}
