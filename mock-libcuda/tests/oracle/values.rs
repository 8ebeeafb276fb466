//! Attributes and limits of an H200, number by number.

use std::collections::BTreeMap;

use crate::generations::told_on;
use crate::out;
use crate::score::Score;

const UNTOUCHED: i64 = -0x5a5a_5a5b;

/// What was recorded of a kind: by number, the answer and the value.
fn recorded(kind: &str) -> BTreeMap<u64, (u32, i64)> {
    let table = include_str!("../../../fixtures/oracle/cuda-values-h200.txt");
    let rows = table
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let number = |text: &str| {
        text.parse::<i64>()
            .unwrap_or_else(|_| panic!("{text} is not a number"))
    };
    rows.filter(|row| row[0] == kind)
        .map(|row| {
            let value = row.get(3).map_or(UNTOUCHED, |text| number(text));
            (number(row[1]) as u64, (number(row[2]) as u32, value))
        })
        .collect()
}

pub fn compare() -> Score {
    let kinds = ["attribute", "limit", "p2p"].map(|kind| (kind, recorded(kind)));
    let upto = |kind: &str| {
        if kind == "attribute" {
            200
        } else if kind == "limit" {
            12
        } else {
            8
        }
    };
    let wrong = told_on(580, |cuda| {
        let (mut context, mut wrong) = (0u64, Vec::new());
        assert_eq!(cuda.call("cuInit", &[0]), 0);
        assert_eq!(
            cuda.call("cuDevicePrimaryCtxRetain", &[out(&mut context), 0]),
            0
        );
        assert_eq!(cuda.call("cuCtxSetCurrent", &[context]), 0);
        for (kind, table) in &kinds {
            for number in 0..upto(kind) {
                let mut value = UNTOUCHED;
                let mut narrow = UNTOUCHED as i32;
                let answer = match *kind {
                    "attribute" => {
                        cuda.call("cuDeviceGetAttribute", &[out(&mut narrow), number, 0])
                    }
                    "p2p" => {
                        cuda.call("cuDeviceGetP2PAttribute", &[out(&mut narrow), number, 0, 0])
                    }
                    _ => cuda.call("cuCtxGetLimit", &[out(&mut value), number]),
                };
                let got = (
                    answer,
                    if *kind == "limit" {
                        value
                    } else {
                        narrow.into()
                    },
                );
                let wanted = table.get(&number).copied().unwrap_or((1, UNTOUCHED));
                if got != wanted {
                    wrong.push(format!("{kind} {number}: {got:?}, recorded {wanted:?}"));
                }
            }
        }
        wrong
    });
    Score {
        checked: kinds.iter().map(|(kind, _)| upto(kind) as usize).sum(),
        wrong,
        ..Score::default()
    }
}

#[test]
fn every_attribute_and_limit_has_the_cards_value() {
    compare().all("attributes and limits of an H200");
}
