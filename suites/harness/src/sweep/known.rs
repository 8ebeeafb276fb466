//! What a sweep is known to find, and why that is right: `promise,case,entry  # reason` in `fixtures/sweep-known.txt`. `*` stands for any letters.

use std::sync::OnceLock;

use mock_device::fault::fits;

use super::Step;
use crate::promise::Promise;

const KNOWN: &str = include_str!("../../../../fixtures/sweep-known.txt");

struct Line {
    promise: Promise,
    case: &'static str,
    entry: &'static str,
    reason: &'static str,
}

fn lines() -> &'static [Line] {
    static LINES: OnceLock<Vec<Line>> = OnceLock::new();
    LINES.get_or_init(|| KNOWN.lines().filter_map(read).collect())
}

fn read(line: &'static str) -> Option<Line> {
    let (place, reason) = line.split_once('#')?;
    let mut words = place.trim().split(',').map(str::trim);
    Some(Line {
        promise: Promise::named(words.next()?)?,
        case: words.next()?,
        entry: words.next()?,
        reason: reason.trim(),
    })
}

/// Why the step is known to break that promise, if it is.
pub fn reason(step: &Step<'_>, promise: Promise) -> Option<&'static str> {
    let here = |line: &&Line| {
        let hit = step.hits.iter().any(|hit| fits(line.entry, &hit.entry));
        line.promise == promise && fits(line.case, step.baseline.case.name) && hit
    };
    lines().iter().find(here).map(|line| line.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_promise_a_case_an_entry_point_and_a_reason() {
        for line in KNOWN.lines().filter(|line| !line.starts_with("##")) {
            let known = read(line).unwrap_or_else(|| panic!("{line}"));
            assert!(
                !known.reason.is_empty() && !known.entry.is_empty(),
                "{line}"
            );
        }
    }
}
