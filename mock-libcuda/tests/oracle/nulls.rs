//! Ten zero arguments to every export, before cuInit and with a current context.

use crate::boundary::{Ended, in_child, recorded, report, rows};
use crate::{ANSWERS, CUDA, start};

/// Answers NOT_SUPPORTED where the card succeeded.
const NOT_SIMULATED: &[&str] = &[];

fn compare(what: &str, column: usize, prepare: fn()) {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for row in rows(ANSWERS) {
        let Some(expected) = recorded(row[column]) else {
            continue;
        };
        let ended = in_child(|| {
            prepare();
            CUDA.call(row[0], &[]).into()
        });
        checked += 1;
        if ended != expected {
            let failure = !matches!(ended, Ended::Answered(0) | Ended::Hung);
            assert!(
                failure,
                "{}: {ended:?} where the card answered {expected:?}",
                row[0]
            );
            wrong.push(format!("{}: {ended:?}, recorded {expected:?}", row[0]));
        }
    }
    assert!(checked > 600);
    let wrong = report(what, checked, wrong);
    let names: Vec<&str> = wrong
        .iter()
        .map(|line| line.split(':').next().unwrap_or(""))
        .collect();
    let expected: &[&str] = if column == 1 { &[] } else { NOT_SIMULATED };
    assert_eq!(names, expected);
}

#[test]
fn zeros_before_init_are_answered_as_recorded() {
    compare("NULL arguments before cuInit", 1, || {});
}

#[test]
fn zeros_with_a_context_are_answered_as_recorded() {
    compare("NULL arguments, initialised", 2, start);
}

#[test]
fn what_is_not_simulated_never_succeeds() {
    for row in rows(ANSWERS)
        .iter()
        .filter(|row| row[0].starts_with("cuGraphics"))
    {
        let mut room = [0u64; 64];
        let words = [room.as_mut_ptr() as u64; 6];
        let ended = in_child(|| {
            start();
            CUDA.call(row[0], &words).into()
        });
        assert_eq!(ended, Ended::Answered(801), "{}", row[0]);
    }
}
