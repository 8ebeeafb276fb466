//! cuGetProcAddress: the recorded table, every name at every version where anything changes, all flags.

use std::collections::BTreeSet;
use std::ffi::CString;

use crate::boundary::{Ended, in_child, report, rows};
use crate::{CUDA, out};

const TABLE: &str = include_str!("../../../fixtures/oracle/proc-address-580.txt");

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u32,
    pointer: u64,
    status: i32,
}

const UNTOUCHED: i32 = -1;

fn ask(name: &str, version: u64, flags: u64) -> Answer {
    let name = CString::new(name).expect("no NUL");
    let (mut pointer, mut status) = (0u64, UNTOUCHED);
    let words = [
        name.as_ptr() as u64,
        out(&mut pointer),
        version,
        flags,
        out(&mut status),
    ];
    let code = CUDA.call("cuGetProcAddress_v2", &words);
    Answer {
        code,
        pointer,
        status,
    }
}

fn expected(name: &str, runs: &[&str], version: u64, flags: usize) -> Answer {
    let run = runs
        .iter()
        .filter_map(|run| run.split_once(':'))
        .rfind(|(from, _)| from.parse::<u64>().expect("a version") <= version)
        .expect("a run")
        .1;
    let spelled: Vec<&str> = run.split(',').collect();
    let (code, pointer, status) = match spelled[flags % spelled.len()] {
        "?" => (0, 0, 2),
        "!" => (0, 0, 1),
        "X" => (1, 0, UNTOUCHED),
        suffix => (
            0,
            CUDA.address(&format!("{name}{}", &suffix[1..]))
                .expect("an export"),
            0,
        ),
    };
    Answer {
        code,
        pointer,
        status,
    }
}

#[test]
fn every_recorded_look_up_answers_the_address_of_its_export() {
    let table = rows(TABLE);
    let froms = table
        .iter()
        .flat_map(|row| &row[1..])
        .filter_map(|run| run.split_once(':')?.0.parse::<u64>().ok());
    let versions: BTreeSet<u64> = froms
        .flat_map(|from| [from - 10, from])
        .filter(|v| *v >= 1000)
        .chain([14000])
        .collect();
    let ended = in_child(|| {
        let mut wrong = Vec::new();
        let mut checked = 0;
        for row in &table {
            for (version, flags) in versions
                .iter()
                .flat_map(|version| (0..3).map(move |flags| (*version, flags)))
            {
                checked += 1;
                let (got, wanted) = (
                    ask(row[0], version, flags),
                    expected(row[0], &row[1..], version, flags as usize),
                );
                if got != wanted {
                    wrong.push(format!(
                        "{} {version} flags {flags}: {got:?}, recorded {wanted:?}",
                        row[0]
                    ));
                }
            }
        }
        report("cuGetProcAddress_v2 of 580", checked, wrong).len() as u64
    });
    assert_eq!(ended, Ended::Answered(0));
}

#[test]
fn odd_look_ups_answer_as_the_oracle_says() {
    let ended = in_child(|| {
        let unknown = Answer {
            code: 0,
            pointer: 0,
            status: 1,
        };
        for name in ["", "cuNoSuchThing", "cuMemAlloc_v2"] {
            assert_eq!(ask(name, 12000, 0), unknown, "{name:?}");
        }
        assert_eq!(ask("cuMemAlloc", 12000, 3).code, 0);
        assert_eq!(ask("cuMemAlloc", 12000, 4).code, 1);
        let name = c"cuMemAlloc".as_ptr() as u64;
        let mut pointer = 77u64;
        assert_eq!(
            CUDA.call(
                "cuGetProcAddress_v2",
                &[name, out(&mut pointer), 12000, 0, 0]
            ),
            0,
            "no status pointer"
        );
        assert_eq!(Some(pointer), CUDA.address("cuMemAlloc_v2"));
        pointer = 77;
        let unknown = c"cuNoSuchThing".as_ptr() as u64;
        assert_eq!(
            CUDA.call("cuGetProcAddress", &[unknown, out(&mut pointer), 12000, 0]),
            500
        );
        assert_eq!(pointer, 77, "the older version leaves the out-parameter");
        assert_eq!(
            CUDA.call("cuGetProcAddress", &[name, out(&mut pointer), 2000, 0]),
            0
        );
        assert_eq!(Some(pointer), CUDA.address("cuMemAlloc"));
        0
    });
    assert_eq!(ended, Ended::Answered(0));
    let mut pointer = 0u64;
    let ended = in_child(|| {
        CUDA.call("cuGetProcAddress_v2", &[0, out(&mut pointer), 12000])
            .into()
    });
    assert_eq!(ended, Ended::Died(libc::SIGSEGV), "a NULL name");
}

#[test]
fn unknown_export_tables_are_refused_and_nulled() {
    let ended = in_child(|| {
        let (mut table, id) = (1u64, [7u8; 16]);
        let code = CUDA.call("cuGetExportTable", &[out(&mut table), id.as_ptr() as u64]);
        assert_eq!((code, table), (1, 0));
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}
