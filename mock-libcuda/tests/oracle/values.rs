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

/// The highest number of an attribute in the cuda.h of each generation's CUDA, and what it leaves out below.
const ATTRIBUTES: [(u16, u64, &[u64]); 8] = [
    (470, 119, &[]),
    (525, 129, &[128]),
    (535, 134, &[128, 133]),
    (550, 134, &[]),
    (555, 135, &[]),
    (580, 147, &[]),
    // Their headers name 148 to 161; no card has said what they are, so the mock refuses them (K3).
    (615, 147, &[]),
    (999, 147, &[]),
];

/// Which attributes a generation knows at all.
pub fn known(generation: u16) -> Score {
    let (_, highest, without) = ATTRIBUTES
        .iter()
        .find(|row| row.0 == generation)
        .expect("a generation");
    let wrong = told_on(generation, |cuda| {
        assert_eq!(cuda.call("cuInit", &[0]), 0);
        let mut wrong = Vec::new();
        for number in 0..200 {
            let mut value = UNTOUCHED as i32;
            let got = cuda.call("cuDeviceGetAttribute", &[out(&mut value), number, 0]);
            let known = (1..=*highest).contains(&number) && !without.contains(&number);
            if got != u32::from(!known) {
                wrong.push(format!("attribute {number}: {got}, known: {known}"));
            }
        }
        wrong
    });
    Score {
        checked: 200,
        wrong,
        ..Score::default()
    }
}

#[test]
fn a_generation_knows_the_attributes_of_its_header() {
    for (generation, ..) in ATTRIBUTES {
        known(generation).all(&format!("attributes that {generation} knows"));
    }
}
