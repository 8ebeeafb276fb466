//! Which cases are known to end otherwise, and why: `case-name,Status  # reason` in
//! `fixtures/expectations/<target>@<driver>-{fails,flakes,skips,passes}.txt`, falling back to `<target>@mock-…` or
//! `<target>@real-…`, then to `<target>-…`. Of each kind the most precise file counts alone. A target with a version is called `<target>-<version>` here.

use std::collections::BTreeMap;

use crate::case::{Case, Kind, Suite};
use crate::driver::Driver;
use crate::status::{Expectation, Status};
use crate::target::Target;

include!(concat!(env!("OUT_DIR"), "/expectations.rs"));

/// `fixtures/expectations`, by file name: what is known of the conformance cases.
pub const SHIPPED: &[(&str, &str)] = EXPECTATIONS;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    case: String,
    status: Status,
    reason: String,
}

/// A line that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("{file}:{line}: \"{text}\" is not `case-name,Status  # reason`")]
    Shape {
        file: String,
        line: usize,
        text: String,
    },
    #[error("{file}:{line}: {case} has a line already")]
    Twice {
        file: String,
        line: usize,
        case: String,
    },
    #[error("{file}: there is no case {case}")]
    NoSuchCase { file: String, case: String },
}

/// What is known of a target over a driver.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    fails: BTreeMap<String, Line>,
    flakes: BTreeMap<String, Line>,
    skips: BTreeMap<String, Line>,
    /// Of a target that grants nothing: the Budget cases that pass all the same.
    passes: BTreeMap<String, Line>,
}

impl Expectations {
    /// What the suite's files say.
    pub fn known(suite: &Suite, target: &Target, driver: &Driver) -> Result<Self, LineError> {
        Self::choose(suite.expectations, &target.stem(), driver)
    }

    fn choose(files: &[(&str, &str)], target: &str, driver: &Driver) -> Result<Self, LineError> {
        let mut stems: Vec<String> = driver
            .file_names()
            .iter()
            .map(|driver| format!("{target}@{driver}"))
            .collect();
        stems.push(target.to_owned());
        let lines = |kind: &str| {
            let names = stems.iter().map(|stem| format!("{stem}-{kind}.txt"));
            let found = names
                .filter_map(|name| files.iter().find(|(file, _)| *file == name))
                .next();
            found.map_or(Ok(BTreeMap::new()), |(file, text)| read(file, text))
        };
        Ok(Self {
            fails: lines("fails")?,
            flakes: lines("flakes")?,
            skips: lines("skips")?,
            passes: lines("passes")?,
        })
    }

    /// What is expected of an entry of this case, and why.
    pub fn of(&self, name: &str, case: &Case, target: &Target) -> (Expectation, &str) {
        if let Some(line) = self.fails.get(name) {
            return (Expectation::Ends(line.status), &line.reason);
        }
        if let Some(line) = self.flakes.get(name) {
            return (Expectation::Flakes(line.status), &line.reason);
        }
        if case.kind == Kind::Budget && !target.enforces && name == case.name {
            return (
                Expectation::Ends(Status::Fail),
                "nothing enforces a budget here",
            );
        }
        if case.kind == Kind::Budget && !target.grants && !self.passes.contains_key(name) {
            return (Expectation::Ends(Status::Fail), "nothing is granted here");
        }
        (Expectation::Pass, "")
    }

    /// Why an entry is not to be run.
    pub fn skip(&self, name: &str) -> Option<&str> {
        self.skips.get(name).map(|line| line.reason.as_str())
    }
}

/// Reads every file of the suite, whatever its target: each line must name one of its entries.
pub fn check(suite: &Suite) -> Result<(), LineError> {
    for (file, text) in suite.expectations {
        for name in read(file, text)?.into_keys() {
            let case = name.strip_suffix(crate::runner::UNCHANGED).unwrap_or(&name);
            if suite.case(case).is_none() {
                return Err(LineError::NoSuchCase {
                    file: (*file).to_owned(),
                    case: name,
                });
            }
        }
    }
    Ok(())
}

fn read(file: &str, text: &str) -> Result<BTreeMap<String, Line>, LineError> {
    let mut lines = BTreeMap::new();
    for (index, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (file, number) = (file.to_owned(), index + 1);
        let passes = file.ends_with("-passes.txt");
        let Some(line) = read_line(text).filter(|line| passes == (line.status == Status::Pass))
        else {
            return Err(LineError::Shape {
                file,
                line: number,
                text: text.to_owned(),
            });
        };
        if let Some(earlier) = lines.insert(line.case.clone(), line) {
            return Err(LineError::Twice {
                file,
                line: number,
                case: earlier.case,
            });
        }
    }
    Ok(lines)
}

fn read_line(text: &str) -> Option<Line> {
    let (entry, reason) = text.split_once('#')?;
    let (case, status) = entry.split_once(',')?;
    let (status, reason) = (status.trim().parse().ok()?, reason.trim());
    if reason.is_empty() || case.trim().is_empty() {
        return None;
    }
    Some(Line {
        case: case.trim().to_owned(),
        status,
        reason: reason.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &str)] = &[
        (
            "ours-fails.txt",
            "# why\nslow,Timeout  # the clock\nbroken,Fail # a route\n",
        ),
        ("ours@real-fails.txt", "broken,Crash  # on a card\n"),
        ("ours@real-skips.txt", "never,Skip  # takes the card down\n"),
    ];

    fn of(driver: &str, case: &'static str) -> Expectation {
        let driver = driver.parse().expect("a driver");
        let expectations = Expectations::choose(FILES, "ours", &driver).expect("it reads");
        let target = Target {
            enforces: true,
            ..Target::nothing()
        };
        expectations
            .of(
                case,
                &Case {
                    name: case,
                    kind: Kind::Budget,
                    ..Case::BLANK
                },
                &target,
            )
            .0
    }

    #[test]
    fn the_most_precise_file_counts_alone() {
        assert_eq!(of("mock", "broken"), Expectation::Ends(Status::Fail));
        assert_eq!(of("mock", "slow"), Expectation::Ends(Status::Timeout));
        assert_eq!(of("real", "broken"), Expectation::Ends(Status::Crash));
        assert_eq!(of("real", "slow"), Expectation::Pass);
    }

    #[test]
    fn a_skipped_case_is_skipped_only_where_its_file_counts() {
        let skips = |driver: &str| {
            let driver = driver.parse().expect("a driver");
            Expectations::choose(FILES, "ours", &driver)
                .expect("it reads")
                .skip("never")
                .map(str::to_owned)
        };
        assert_eq!(
            (skips("real").as_deref(), skips("mock")),
            (Some("takes the card down"), None)
        );
    }

    #[test]
    fn where_nothing_enforces_a_budget_case_must_fail_and_others_pass() {
        let none = Target::nothing();
        let expected = |kind| {
            let case = Case {
                name: "case",
                kind,
                ..Case::BLANK
            };
            Expectations::default().of("case", &case, &none).0
        };
        assert_eq!(expected(Kind::Budget), Expectation::Ends(Status::Fail));
        assert_eq!(expected(Kind::Neutral), Expectation::Pass);
    }

    #[rstest::rstest]
    fn a_line_without_a_status_or_a_reason_is_an_error(
        #[values(
            "case",
            "case,Fail",
            "case,Fail #",
            "case,Pass # fine",
            "case,Broken # what"
        )]
        text: &str,
    ) {
        let error = LineError::Shape {
            file: "f".to_owned(),
            line: 2,
            text: text.to_owned(),
        };
        assert_eq!(read("f", &format!("\n{text}\n")), Err(error));
    }

    #[test]
    fn a_case_has_one_line() {
        let answer = read("f", "a,Fail # one\na,Crash # two\n");
        assert_eq!(
            answer,
            Err(LineError::Twice {
                file: "f".to_owned(),
                line: 2,
                case: "a".to_owned()
            })
        );
    }

    #[test]
    fn a_line_about_no_case_fails_the_check() {
        let suite = Suite {
            cases: &[],
            roles: &[],
            expectations: &[("ours-fails.txt", "a_case,Fail  # reason")],
            afterwards: |_| Ok(()),
            exhaust: |_| false,
        };
        assert_eq!(
            check(&suite),
            Err(LineError::NoSuchCase {
                file: "ours-fails.txt".to_owned(),
                case: "a_case".to_owned()
            })
        );
    }
}
