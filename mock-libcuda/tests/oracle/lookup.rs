//! cuGetProcAddress: every name at every version where anything changes and all flags, by generation.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::LazyLock;

use build_support::oracle::{self, GENERATIONS, LookUp};

use crate::boundary::{Ended, Library, in_child};
use crate::generations::told_on;
use crate::score::Score;
use crate::{CUDA, EXPORTS, out};

static TABLE: LazyLock<Vec<LookUp<'static>>> =
    LazyLock::new(|| oracle::look_ups(include_str!("../../../fixtures/oracle/proc-address.txt")));

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u32,
    pointer: u64,
    status: i32,
}

const UNTOUCHED: i32 = -1;

fn ask(cuda: &Library, name: &str, version: u64, flags: u64) -> Answer {
    let name = CString::new(name).expect("no NUL");
    let (mut pointer, mut status) = (0u64, UNTOUCHED);
    let words = [
        name.as_ptr() as u64,
        out(&mut pointer),
        version,
        flags,
        out(&mut status),
    ];
    let code = cuda.call("cuGetProcAddress_v2", &words);
    Answer {
        code,
        pointer,
        status,
    }
}

/// The older function: no status, and nothing is written where nothing is found.
fn ask_older(cuda: &Library, name: &str, version: u64, flags: u64) -> (u32, u64) {
    let name = CString::new(name).expect("no NUL");
    let mut pointer = 77u64;
    let words = [name.as_ptr() as u64, out(&mut pointer), version, flags];
    (cuda.call("cuGetProcAddress", &words), pointer)
}

/// A name, and by flags 0, 1, 2 the versions at which another symbol begins; only those that a generation has.
struct Name {
    base: &'static str,
    known: bool,
    runs: Vec<(u64, [Option<&'static str>; 3])>,
}

fn names(generation: u16) -> Vec<Name> {
    let has = |symbol: &&str| {
        let mut rows = EXPORTS.iter();
        rows.any(|row| row.name == *symbol && row.span.contains(generation))
    };
    let name = |row: &'static LookUp<'static>| {
        let mut current = [None; 3];
        let mut runs = Vec::new();
        for run in &row.runs {
            for (symbol, current) in run.by_flags.iter().zip(&mut current) {
                *current = symbol.as_deref().filter(has).or(*current);
            }
            runs.push((run.from as u64, current));
        }
        Name {
            base: row.base,
            known: current.iter().any(Option::is_some),
            runs,
        }
    };
    TABLE.iter().map(name).collect()
}

/// A driver's answer: an address, or the code and status that it gives instead.
fn expected(cuda: &Library, generation: u16, name: &Name, version: u64, flags: u64) -> Answer {
    let newest = match generation {
        ..580 => NEGATIVE,
        580 => 13000,
        615 => 13050,
        _ => 99000,
    };
    if flags > 3 || (newest + 1..NEGATIVE).contains(&version) {
        return Answer {
            code: 1,
            pointer: 0,
            status: UNTOUCHED,
        };
    }
    let run = name.runs.iter().rfind(|(from, _)| *from <= version);
    let symbol = run.and_then(|(_, symbols)| symbols[flags.min(2) as usize]);
    Answer {
        code: 0,
        pointer: symbol.map_or(0, |symbol| cuda.address(symbol).expect("an export")),
        status: match (symbol, name.known) {
            (Some(_), _) => 0,
            (None, true) => 2,
            (None, false) => 1,
        },
    }
}

/// Every version where anything changes, and those beside it.
fn versions() -> BTreeSet<u64> {
    let runs = TABLE.iter().flat_map(|row| &row.runs);
    let beside = |from| [from - 1, from, from + 1];
    let others = [
        0,
        1000,
        12060,
        13000,
        13010,
        14000,
        99000,
        99001,
        NEGATIVE,
        u64::from(u32::MAX),
    ];
    runs.flat_map(|run| beside(run.from as u64))
        .chain(others)
        .collect()
}

/// Versions from here on are negative to the driver.
const NEGATIVE: u64 = 1 << 31;
const FLAGS: u64 = 6;

pub fn compare(generation: u16) -> Score {
    let (names, versions) = (names(generation), versions());
    let lines = told_on(generation, |cuda| {
        let mut lines = Vec::new();
        for name in &names {
            for version in &versions {
                for flags in 0..FLAGS {
                    let what = format!("{} {version} flags {flags}", name.base);
                    let wanted = expected(cuda, generation, name, *version, flags);
                    lines.extend(
                        difference(cuda, name.base, *version, flags, &wanted)
                            .map(|line| format!("{what}{line}")),
                    );
                }
            }
        }
        lines.extend(thresholds(cuda, &names));
        lines
    });
    let (answered, wrong): (Vec<String>, Vec<String>) =
        lines.into_iter().partition(|line| line.starts_with('='));
    let mut score = Score {
        checked: names.len() * versions.len() * FLAGS as usize * 2,
        wrong,
        ..Score::default()
    };
    score.whole_list(
        "look-ups",
        generation,
        answered.iter().map(|line| &line[1..]),
    );
    score
}

fn difference(
    cuda: &Library,
    name: &str,
    version: u64,
    flags: u64,
    wanted: &Answer,
) -> Option<String> {
    // The first generation of cuGetProcAddress had no second version.
    if cuda.address("cuGetProcAddress_v2").is_some() {
        let got = ask(cuda, name, version, flags);
        if got != *wanted {
            return Some(format!(": {got:x?}, recorded {wanted:x?}"));
        }
    }
    let got = ask_older(cuda, name, version, flags);
    let wanted = match wanted {
        Answer {
            code: 0,
            pointer: 0,
            ..
        } => (500, 77),
        Answer {
            code: 0, pointer, ..
        } => (0, *pointer),
        Answer { code, .. } => (*code, 77),
    };
    (got != wanted).then(|| format!(", older: {got:x?}, recorded {wanted:x?}"))
}

/// What is answered, as the recorded lists were written: `=base flags version symbol` wherever the symbol changes.
fn thresholds(cuda: &Library, names: &[Name]) -> Vec<String> {
    let address = |row: &oracle::Export<'static>| Some((cuda.address(row.name)?, row.name));
    let symbols: Vec<(u64, &str)> = EXPORTS.iter().filter_map(address).collect();
    let mut lines = Vec::new();
    for name in names {
        for flags in 0..3 {
            let mut last = 0;
            for (version, _) in &name.runs {
                let (_, pointer) = ask_older(cuda, name.base, *version, flags);
                let found = symbols.iter().find(|(at, _)| *at == pointer && *at != last);
                if let Some((_, symbol)) = found {
                    lines.push(format!("={} {flags} {version} {symbol}", name.base));
                    last = pointer;
                }
            }
        }
    }
    lines
}

#[test]
fn every_look_up_is_answered_as_by_the_driver_of_its_generation() {
    for generation in GENERATIONS {
        let evidence = match generation {
            470 | 615 | 999 => " (inferred)",
            _ => "",
        };
        compare(generation).all(&format!("cuGetProcAddress of {generation}{evidence}"));
    }
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
            assert_eq!(ask(&CUDA, name, 12000, 0), unknown, "{name:?}");
        }
        assert_eq!(ask(&CUDA, "cuMemAlloc", 12000, 3).code, 0);
        assert_eq!(ask(&CUDA, "cuMemAlloc", 12000, 4).code, 1);
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
