//! What each export of libcuda does to a tenant's memory, and what shows it: `fixtures/exports-cuda.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

/// The classes: export, word, reason.
const CLASSES: &str = include_str!("../../../fixtures/exports-cuda.txt");
/// The drivers' exports, each at the start of its line.
const EXPORTS: &str = include_str!("../../../fixtures/oracle/libcuda.txt");
/// What a card's calls took, by `suites/probe/takes.py`.
const TAKES: &str = include_str!("../../../fixtures/oracle/takes-580.txt");

/// What the word says a hook does.
const HOOKED: [&str; 4] = ["charged", "looked", "paced", "told"];
const UNHOOKED: [&str; 2] = ["nothing", "open"];
/// What has no hook, and versions that have one.
const UNKNOWN: [&str; 1] = ["withheld"];

/// What the table lacks, or says without showing it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exports {
    pub all: usize,
    pub open: usize,
    /// No row, or one of no known class.
    pub unclassified: Vec<String>,
    /// Said to take nothing, and the record does not show it.
    pub unproven: Vec<String>,
    /// Hooked, and the table says otherwise; or the other way round.
    pub untrue: Vec<String>,
}

/// The table against the drivers, the record and these hooks; `is_version` says whether a function is a version of one of them.
pub fn exports(
    hooks: &BTreeSet<&str>,
    is_version: &dyn Fn(&str) -> bool,
) -> Result<Exports, Box<dyn Error>> {
    judge(CLASSES, EXPORTS, TAKES, hooks, is_version)
}

fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn judge(
    classes: &str,
    exports: &str,
    takes: &str,
    hooks: &BTreeSet<&str>,
    is_version: &dyn Fn(&str) -> bool,
) -> Result<Exports, Box<dyn Error>> {
    let mut classes: BTreeMap<&str, (&str, &str)> = rows(classes)
        .map(|row| {
            let mut words = row.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default();
            (word(), (word(), word()))
        })
        .collect();
    let taken: BTreeMap<&str, bool> = rows(takes)
        .map(|row| {
            row.split_once('\t')
                .map(|(name, rest)| (name, takes_nothing(rest)))
        })
        .collect::<Option<_>>()
        .ok_or("fixtures/oracle/takes-580.txt: a row without columns")?;
    let mut found = Exports::default();
    for row in rows(exports) {
        let name = row.split(' ').next().unwrap_or_default();
        found.all += 1;
        let (class, reason) = classes.remove(name).unwrap_or_default();
        let known = if hooks.contains(name) {
            &HOOKED[..]
        } else if is_version(name) {
            &UNKNOWN[..]
        } else {
            &UNHOOKED[..]
        };
        match class {
            "" => found.unclassified.push(name.to_owned()),
            _ if !known.contains(&class) => found.untrue.push(format!("{name} {class}")),
            "open" if reason.is_empty() => found.unclassified.push(name.to_owned()),
            "open" => found.open += 1,
            // What is no call of a program's is not asked for.
            "nothing" if reason.is_empty() && taken.get(name) != Some(&true) => {
                found.unproven.push(name.to_owned());
            }
            _ => {}
        }
    }
    // A name that no driver of the record exports: of a newer one, by its header, or a slip.
    for (name, (class, reason)) in classes {
        found.all += 1;
        match class {
            "open" if !reason.is_empty() => found.open += 1,
            _ if hooks.contains(name) && HOOKED.contains(&class) => {}
            _ => found.untrue.push(format!("{name} {class}")),
        }
    }
    Ok(found)
}

/// Whether the record says that calls were answered by 0 and the process's row did not grow: columns after the name.
fn takes_nothing(columns: &str) -> bool {
    let mut columns = columns.split('\t').skip(1);
    let good = columns.next().and_then(|count| count.parse::<u32>().ok());
    let grown = columns.skip(1).take(2);
    // The odd calls may have died of what they were given; the valid ones are known.
    let mut kib = grown.map(|kib| match kib {
        "-" => Some(0),
        kib => kib.parse::<i64>().ok(),
    });
    good.is_some_and(|good| good > 0) && kib.all(|kib| kib.is_some_and(|kib| kib <= 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: &str = "cuA\t32\t32\t0:32\t0\t0\tby type\ncuB\t32\t0\t1:32\t0\t0\tby type\ncuC\t32\t32\t0:32\t2048\t0\tby type\ncuD\t32\t32\t0:32\tnone\tnone\tby type\n";

    fn judged(classes: &str) -> Exports {
        let hooks = BTreeSet::from(["cuH"]);
        judge(
            classes,
            "# them\ncuA 470\ncuB 470\ncuH 470\n",
            TAKES,
            &hooks,
            &|_| false,
        )
        .unwrap()
    }

    #[test]
    fn each_export_needs_a_word_and_what_takes_nothing_its_record() {
        let good = judged("cuA nothing\ncuB open it was refused\ncuH charged\n");
        let expected = Exports {
            all: 3,
            open: 1,
            ..Exports::default()
        };
        assert_eq!(good, expected);
        assert_eq!(judged("cuA nothing\ncuH charged\n").unclassified, ["cuB"]);
        assert_eq!(
            judged("cuA nothing\ncuB open\ncuH charged\n").unclassified,
            ["cuB"]
        );
        let versions = "cuH_v2 470\n";
        let hooks = BTreeSet::from(["cuH"]);
        let withheld = |classes| {
            judge(classes, versions, TAKES, &hooks, &|name| name == "cuH_v2")
                .unwrap()
                .untrue
        };
        assert!(withheld("cuH_v2 withheld\n").is_empty());
        assert_eq!(withheld("cuH_v2 open it is new\n"), ["cuH_v2 open"]);
        let unproven = judged("cuA nothing\ncuB nothing\ncuH charged\n");
        assert_eq!(unproven.unproven, ["cuB"]);
        let untrue = judged("cuA charged\ncuB open so\ncuH nothing\ncuX nothing\n");
        assert_eq!(untrue.untrue, ["cuA charged", "cuH nothing", "cuX nothing"]);
    }

    #[test]
    fn what_grew_or_was_not_told_shows_nothing() {
        let of = |name: &str| {
            let row = rows(TAKES).find_map(|row| row.strip_prefix(name));
            takes_nothing(row.unwrap().trim_start_matches('\t'))
        };
        assert!(of("cuA"));
        assert!(["cuB", "cuC", "cuD"].into_iter().all(|name| !of(name)));
    }
}
