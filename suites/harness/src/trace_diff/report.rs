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
            let paired = tally.same + tally.allowed + tally.different;
            let share = if paired == 0 {
                100.0
            } else {
                tally.same as f64 * 100.0 / paired as f64
            };
            let _ = writeln!(
                text,
                "{api:<7} {share:.2} % of {paired} calls are the same; {} differ as allowed, {} otherwise; {} only left, {} only right",
                tally.allowed, tally.different, tally.only_left, tally.only_right
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
        if !self.unpaired.is_empty() {
            text.push_str("\nWithout a counterpart (left, right)\n");
            let mut rows: Vec<_> = self.unpaired.iter().collect();
            rows.sort_by_key(|(_, (left, right))| std::cmp::Reverse(left + right));
            let shown = if all { rows.len() } else { 12 };
            for ((api, entry), (left, right)) in rows.iter().take(shown) {
                let _ = writeln!(text, "  {api} {entry}: {left}, {right}");
            }
            if rows.len() > shown {
                let _ = writeln!(text, "  and {} more entry points", rows.len() - shown);
            }
        }
        text
    }
}

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
        let what = match what {
            What::Answer { left, right } => format!("answers {left} | {right}"),
            What::Argument { name, left, right } => format!("{name} is {left} | {right}"),
        };
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
