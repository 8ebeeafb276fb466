//! A comparison in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Comparison, Difference, What};

/// Places of one difference that are shown where not all are wanted.
const SHOWN: usize = 4;

impl Comparison {
    /// Percentages per API, then every difference: alike ones together, with the places where they were met.
    #[must_use]
    pub fn report(&self, all: bool) -> String {
        let mut text = String::new();
        for (api, tally) in &self.tallies {
            let _ = writeln!(
                text,
                "{api:<7} {:.2} % of {} calls are the same, {:.2} % of those with a counterpart; {} differ as allowed, {} otherwise;{} {} only left, {} only right",
                tally.share(),
                tally.calls(),
                tally.share_of_paired(),
                tally.allowed,
                tally.different,
                match tally.elsewhere {
                    0 => String::new(),
                    count => format!(" {count} the same in another thread or order,"),
                },
                tally.only_left,
                tally.only_right
            );
        }
        let _ = writeln!(
            text,
            "{} cases compared, {} only left, {} only right",
            self.cases,
            self.cases_only_left.len(),
            self.cases_only_right.len()
        );
        let (allowed, others): (Vec<&Difference>, Vec<&Difference>) = self
            .differences
            .iter()
            .partition(|difference| difference.reason.is_some());
        list(&mut text, "Differences", &others, all);
        list(&mut text, "Allowed", &allowed, all);
        self.list_alone(&mut text, all);
        text
    }

    /// By entry point and reason, those without a reason first; the cases where all are wanted.
    fn list_alone(&self, text: &mut String, all: bool) {
        let mut rows: BTreeMap<(&Option<String>, &str, &str), Vec<Met<'_>>> = BTreeMap::new();
        for (alone, &(left, right)) in &self.unpaired {
            rows.entry((&alone.reason, &alone.api, &alone.entry))
                .or_default()
                .push((left, right, &alone.case));
        }
        let sum = |met: &[Met<'_>]| {
            met.iter()
                .fold((0, 0), |sum, met| (sum.0 + met.0, sum.1 + met.1))
        };
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|((reason, ..), met)| {
            let (left, right) = sum(met);
            (reason.is_some(), *reason, std::cmp::Reverse(left + right))
        });
        if !rows.is_empty() {
            text.push_str("\nWithout a counterpart (left, right)\n");
        }
        let mut said: Option<&String> = None;
        for ((reason, api, entry), met) in rows {
            if let Some(reason) = reason
                && said != Some(reason)
            {
                let _ = writeln!(text, "  # {reason}");
                said = Some(reason);
            }
            let (left, right) = sum(&met);
            let _ = writeln!(text, "  {api} {entry}: {left}, {right}");
            let shown = if all { met.len() } else { 0 };
            for (left, right, case) in met.iter().take(shown) {
                let _ = writeln!(text, "      {case}: {left}, {right}");
            }
        }
    }
}

/// Left, right, case.
type Met<'a> = (usize, usize, &'a str);

fn list(text: &mut String, title: &str, differences: &[&Difference], all: bool) {
    if differences.is_empty() {
        return;
    }
    let mut alike: BTreeMap<(&str, &str, &What), Vec<&Difference>> = BTreeMap::new();
    for difference in differences {
        alike
            .entry((&difference.api, &difference.entry, &difference.what))
            .or_default()
            .push(difference);
    }
    let mut alike: Vec<_> = alike.into_iter().collect();
    alike.sort_by_key(|(_, met)| std::cmp::Reverse(met.len()));
    let _ = writeln!(text, "\n{title}");
    for ((api, entry, what), met) in alike {
        let _ = writeln!(text, "  {} × {api} {entry} {what}", met.len());
        if let Some(reason) = &met[0].reason {
            let _ = writeln!(text, "      # {reason}");
        }
        let shown = if all { met.len() } else { SHOWN };
        for difference in met.iter().take(shown) {
            let (left, right) = difference.calls;
            let _ = writeln!(
                text,
                "      {}: call {left} | {right} of {}",
                difference.case, difference.caller
            );
        }
        if met.len() > shown {
            let _ = writeln!(text, "      and {} more", met.len() - shown);
        }
    }
}
