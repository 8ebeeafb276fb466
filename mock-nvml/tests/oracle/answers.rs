//! Every getter with every version of its structures and every value of its arguments, against the H200's answers.

use crate::boundary::{Ended, in_child, set_environment};
use crate::score::Score;
use crate::{NVML, start};

const RECORDED: &str = include_str!("../../../fixtures/oracle/nvml-answers-580.txt");

/// More than any answer, and zeroed.
const ROOM: usize = 1 << 16;

struct Row {
    entry: &'static str,
    code: u32,
    outs: Vec<&'static str>,
    calls: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut cells = line.split('\t');
            let mut cell = || cells.next().expect("four cells");
            Row {
                entry: cell(),
                code: cell().parse().expect("a code"),
                outs: cell().split(' ').filter(|out| !out.is_empty()).collect(),
                calls: cell().split(';').collect(),
            }
        })
        .collect()
}

/// The words of one call, and the memory behind its out-parameters.
fn words(spelled: &str, device: u64) -> (Vec<u64>, Vec<Vec<u8>>) {
    let mut memory = Vec::new();
    let words = spelled
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| {
            if word == "D" {
                device
            } else if word == "-" {
                memory.push(Vec::new());
                0
            } else if word == "t" {
                c"".as_ptr() as u64
            } else if let Some(first) = word.strip_prefix('o') {
                let mut room = vec![0u8; ROOM];
                let first = u32::from_str_radix(first, 16).unwrap_or(0);
                room[..4].copy_from_slice(&first.to_le_bytes());
                memory.push(room);
                memory.last().map_or(0, |room| room.as_ptr() as u64)
            } else {
                word.parse().expect("a number")
            }
        });
    let words = words.collect();
    (words, memory)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    match end {
        0 => "0".into(),
        _ => bytes[..end]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    }
}

const WRITTEN: u64 = 1 << 31;

/// The first call that is answered otherwise: its position, and the code, or [`WRITTEN`].
fn first_difference(row: &Row) -> u64 {
    let device = start();
    for (at, call) in row.calls.iter().enumerate() {
        let (words, memory) = words(call, device);
        let code = NVML.call(row.entry, &words);
        let at = (at as u64 + 1) << 32;
        if code != row.code {
            return at | u64::from(code);
        }
        if row.outs.is_empty() || row.outs == ["*"] {
            continue;
        }
        let written: Vec<String> = memory.iter().map(|room| hexadecimal(room)).collect();
        if written != row.outs {
            if std::env::var_os("RINGFENCE_SHOW").is_some() {
                eprintln!(
                    "{} {call}\n  wrote    {written:?}\n  recorded {:?}",
                    row.entry, row.outs
                );
            }
            return at | WRITTEN;
        }
    }
    0
}

#[test]
fn every_getter_answers_every_version_and_argument_as_the_card() {
    let (mut calls, mut wrong) = (0, Vec::new());
    for row in rows() {
        calls += row.calls.len();
        let ended = in_child(|| {
            set_environment("RINGFENCE_MACHINE", b"h200");
            first_difference(&row)
        });
        match ended {
            Ended::Answered(0) => {}
            Ended::Answered(found) => {
                let call = row.calls[(found >> 32) as usize - 1];
                let what = match found & 0xffff_ffff {
                    WRITTEN => "writes something else".to_owned(),
                    code => format!("answers {code}, recorded {}", row.code),
                };
                wrong.push(format!("{} ({call}): {what}", row.entry));
            }
            other => wrong.push(format!("{}: {other:?}", row.entry)),
        }
    }
    let score = Score {
        checked: calls,
        wrong,
        ..Score::default()
    };
    score.all("NVML, getters by version and argument");
    assert!(calls > 2000);
}
