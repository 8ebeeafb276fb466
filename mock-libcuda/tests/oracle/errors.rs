//! Names and descriptions of result codes.

use crate::generations::told_on;
use crate::out;
use crate::score::Score;
use crate::told::text_at;

/// Every code from 0 to 1000, by both functions.
pub fn compare(generation: u16) -> Score {
    let table = include_str!("../../../fixtures/oracle/cuda-errors.txt");
    let table = build_support::oracle::errors(table, 2);
    let wrong = told_on(generation, |cuda| {
        let mut wrong = Vec::new();
        for code in 0..=1000u32 {
            let row = table
                .iter()
                .find(|row| row.code == code && row.since <= generation);
            for (column, entry) in ["cuGetErrorName", "cuGetErrorString"]
                .into_iter()
                .enumerate()
            {
                let mut text = 7u64;
                let answer = cuda.call(entry, &[code.into(), out(&mut text)]);
                let got = (answer, text_at(text));
                let wanted = match row {
                    Some(row) => (0, Some(row.texts[column].to_owned())),
                    None => (1, None),
                };
                if got != wanted {
                    wrong.push(format!("{entry}({code}): {got:?}, recorded {wanted:?}"));
                }
            }
        }
        wrong
    });
    Score {
        checked: 2 * 1001,
        wrong,
        ..Score::default()
    }
}

#[test]
fn every_code_has_the_drivers_name_and_description() {
    for generation in [555, 580] {
        compare(generation).all(&format!("error names and strings of {generation}"));
    }
}

#[test]
fn a_generation_does_not_name_codes_that_came_after_it() {
    // By the cuda.h of each generation's CUDA.
    const NEWER: [(u16, &[u32]); 9] = [
        (525, &[810, 811, 812, 912]),
        (535, &[225]),
        (550, &[402]),
        (550, &[913]),
        (550, &[914]),
        (550, &[915]),
        (580, &[36]),
        (580, &[226, 721]),
        (580, &[916]),
    ];
    for generation in build_support::oracle::GENERATIONS {
        let wrong = told_on(generation, |cuda| {
            let codes = NEWER
                .iter()
                .flat_map(|(since, codes)| codes.iter().map(|code| (*since, *code)));
            codes
                .filter_map(|(since, code)| {
                    let mut text = 7u64;
                    let named = cuda.call("cuGetErrorName", &[code.into(), out(&mut text)]) == 0;
                    (named != (since <= generation)).then(|| format!("{code} on {generation}"))
                })
                .collect()
        });
        assert_eq!(wrong, Vec::<String>::new());
        compare(generation).all(&format!("error names and strings of {generation}"));
    }
}
