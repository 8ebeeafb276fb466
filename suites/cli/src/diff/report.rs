//! A comparison in words: for a terminal, and as Markdown for a pull request. Differences that are alike stand together.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::compare::{Comparison, Difference, Head, Unknown, Verdict};
use super::file::Part;

/// Names of a list that are shown where not all are wanted.
const SHOWN: usize = 6;

/// Differences of one part that mean the same.
struct Group<'a> {
    first: &'a Difference,
    all: Vec<&'a Difference>,
}

impl Comparison {
    fn groups(&self, wanted: impl Fn(&Difference) -> bool) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for one in self.differences.iter().filter(|one| wanted(one)) {
            let alike = |group: &&mut Group<'_>| {
                let first = group.first;
                let said = first.part == one.part && first.why == one.why;
                let same = first.old == one.old && first.new == one.new;
                // What matters is told one by one, unless it is the same change of several.
                let alone = one.verdict != Verdict::Nothing;
                said && first.reason == one.reason && (same || !alone)
            };
            match groups.iter_mut().find(alike) {
                Some(group) => group.all.push(one),
                None => groups.push(Group {
                    first: one,
                    all: vec![one],
                }),
            }
        }
        groups
    }

    /// Those for one reason together.
    fn unknown_parts(&self) -> Vec<(String, &Unknown)> {
        let mut found: Vec<(String, &Unknown)> = Vec::new();
        for unknown in &self.unknown {
            let alike = |(_, one): &&mut (String, &Unknown)| {
                (one.side, &one.why) == (unknown.side, &unknown.why)
            };
            match found.iter_mut().find(alike) {
                Some((parts, _)) => {
                    let _ = write!(parts, ", {}", unknown.part.name());
                }
                None => found.push((unknown.part.name().to_owned(), unknown)),
            }
        }
        found
    }

    fn counts(&self, verdict: Verdict) -> usize {
        let counted = |one: &&Difference| one.verdict == verdict && one.reason.is_none();
        self.differences.iter().filter(counted).count()
    }

    #[must_use]
    pub fn terminal(&self, all: bool) -> String {
        let mut text = String::new();
        for (side, head) in [("old", &self.old), ("new", &self.new)] {
            let _ = writeln!(text, "{side}  {}: {}", head.file, described(head));
        }
        let _ = writeln!(
            text,
            "\n{:<15}{:>7}{:>11}{:>9}",
            "", "same", "different", "unknown"
        );
        for part in Part::ALL {
            let Some(tally) = self.tallies.get(part.name()) else {
                let _ = writeln!(text, "{:<15}{:>7}{:>11}{:>9}", part.name(), "", "", "all");
                continue;
            };
            let (same, different, unknown) = (tally.same, tally.different, tally.unknown);
            let _ = writeln!(
                text,
                "{:<15}{same:>7}{different:>11}{unknown:>9}",
                part.name()
            );
        }
        for verdict in [Verdict::Breaks, Verdict::Look, Verdict::Nothing] {
            let groups = self.groups(|one| one.verdict == verdict && one.reason.is_none());
            self.list(&mut text, verdict.name(), &groups, all);
        }
        let allowed = self.groups(|one| one.reason.is_some());
        self.list(&mut text, "allowed", &allowed, all);
        if !self.unknown.is_empty() {
            text.push_str("\nunknown, and not the same\n");
        }
        for (parts, unknown) in self.unknown_parts() {
            let _ = writeln!(text, "  {parts} ({}): {}", unknown.side, unknown.why);
        }
        for row in &self.stale {
            let _ = writeln!(text, "\nallowed, and does not differ: {row}");
        }
        let _ = writeln!(text, "\nverdict: {}", self.verdict().name());
        text
    }

    fn list(&self, text: &mut String, title: &str, groups: &[Group<'_>], all: bool) {
        if groups.is_empty() {
            return;
        }
        let count: usize = groups.iter().map(|group| group.all.len()).sum();
        let _ = writeln!(text, "\n{title} ({count})");
        let most = if all { usize::MAX } else { SHOWN };
        for group in groups {
            let first = group.first;
            let (part, subjects) = (first.part.name(), group.subjects(most));
            let _ = writeln!(
                text,
                "  {part}: {subjects}{}",
                group.change("", ": ", " → ")
            );
            let _ = writeln!(text, "      {}", first.why);
            for (what, names) in group.touched() {
                let _ = writeln!(text, "      {what}: {}", some(&names, most));
            }
            if let Some(reason) = &first.reason {
                let _ = writeln!(text, "      # {reason}");
            }
        }
    }

    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "## Driver upgrade: {}\n", self.verdict().name());
        text.push_str("| | driver | CUDA | from |\n|---|---|---|---|\n");
        for (side, head) in [("old", &self.old), ("new", &self.new)] {
            let (version, cuda) = versions(head);
            let _ = writeln!(text, "| {side} | {version} | {cuda} | {} |", origin(head));
        }
        let [breaks, look, nothing] =
            [Verdict::Breaks, Verdict::Look, Verdict::Nothing].map(|verdict| self.counts(verdict));
        let _ = writeln!(
            text,
            "\n{breaks} break a hook or a promise, {look} are to be looked at, {nothing} do not matter, {} parts are unknown.",
            self.unknown.len()
        );
        for (verdict, title) in [
            (Verdict::Breaks, "Breaks"),
            (Verdict::Look, "To be looked at"),
        ] {
            let groups = self.groups(|one| one.verdict == verdict && one.reason.is_none());
            if groups.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n### {title}\n");
            text.push_str("| what | was → is | why | touches |\n|---|---|---|---|\n");
            for group in groups {
                let touched: Vec<String> = group
                    .touched()
                    .into_iter()
                    .map(|(what, names)| format!("{what}: {}", some(&names, SHOWN)))
                    .collect();
                let _ = writeln!(
                    text,
                    "| {}: {} | {} | {} | {} |",
                    group.first.part.name(),
                    cell(&group.subjects(SHOWN)),
                    cell(&group.change("", "", " → ")),
                    cell(&group.first.why),
                    cell(&touched.join("<br>"))
                );
            }
        }
        self.folded(&mut text);
        text
    }

    /// What a reader of a pull request opens if he doubts.
    fn folded(&self, text: &mut String) {
        let nothing = self.groups(|one| one.verdict == Verdict::Nothing && one.reason.is_none());
        let allowed = self.groups(|one| one.reason.is_some());
        for (title, groups) in [("Does not matter", nothing), ("Allowed", allowed)] {
            if groups.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n<details><summary>{title}</summary>\n");
            for group in groups {
                let why = group.first.reason.as_ref().unwrap_or(&group.first.why);
                let (part, subjects) = (group.first.part.name(), group.subjects(usize::MAX));
                let _ = writeln!(text, "* {part}, {why} ({}): {subjects}", group.all.len());
            }
            text.push_str("\n</details>\n");
        }
        let known: Vec<String> = self
            .tallies
            .iter()
            .filter(|(_, tally)| tally.unknown > 0)
            .map(|(part, tally)| {
                let of = tally.same + tally.different + tally.unknown;
                format!("* {part}: {} of {of}", tally.unknown)
            })
            .collect();
        if self.unknown.is_empty() && known.is_empty() {
            return;
        }
        text.push_str("\n### Unknown, and not the same\n\n");
        for (parts, unknown) in self.unknown_parts() {
            let _ = writeln!(text, "* {parts} ({}): {}", unknown.side, unknown.why);
        }
        for line in known {
            let _ = writeln!(text, "{line}");
        }
    }
}

impl Group<'_> {
    fn subjects(&self, most: usize) -> String {
        let names: Vec<&str> = self.all.iter().map(|one| one.subject.as_str()).collect();
        some(&names, most)
    }

    /// What it was and is, where that says more than that it came or went, and is the same for all.
    fn change(&self, missing: &str, before: &str, arrow: &str) -> String {
        let first = self.first;
        let alike = self
            .all
            .iter()
            .all(|one| one.old == first.old && one.new == first.new);
        match (&first.old, &first.new) {
            (Some(old), Some(new)) if alike => format!("{before}{old}{arrow}{new}"),
            (Some(_), None) if alike => format!("{before}gone"),
            (None, Some(_)) if alike => format!("{before}new"),
            _ => missing.to_owned(),
        }
    }

    fn touched(&self) -> Vec<(&'static str, Vec<&str>)> {
        let all = || self.all.iter().map(|one| &one.touch);
        let hooks: BTreeSet<&str> = all()
            .flat_map(|touch| &touch.hooks)
            .map(String::as_str)
            .collect();
        let calls: BTreeSet<&str> = all()
            .flat_map(|touch| &touch.calls)
            .map(String::as_str)
            .collect();
        let cases: BTreeSet<&str> = all().flat_map(|touch| &touch.cases).copied().collect();
        let mut defects: Vec<&str> = Vec::new();
        for row in all().flat_map(|touch| &touch.defects).copied() {
            if !defects.contains(&row) {
                defects.push(row);
            }
        }
        let further: BTreeSet<&str> = all()
            .flat_map(|touch| &touch.further_defects)
            .copied()
            .collect();
        [
            ("hooks", hooks.into_iter().collect()),
            ("our own calls", calls.into_iter().collect()),
            ("defects", defects),
            ("cases", cases.into_iter().collect::<Vec<&str>>()),
            ("defects of these cases", further.into_iter().collect()),
        ]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .collect()
    }
}

/// `12: a, b, c …`, or all of them.
fn some(names: &[&str], most: usize) -> String {
    let shown = names[..names.len().min(most)].join(", ");
    match names.len() > most {
        true => format!("{shown} and {} more", names.len() - most),
        false => shown,
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn versions(head: &Head) -> (String, String) {
    let cuda = head.cuda_version.map_or_else(
        || "?".to_owned(),
        |version| format!("{}.{}", version / 1000, version % 1000 / 10),
    );
    (head.version.clone().unwrap_or_else(|| "?".to_owned()), cuda)
}

fn origin(head: &Head) -> String {
    match head.is_mock {
        true => format!("{}, a mock over recorded tables", head.driver),
        false => "a machine's own driver".to_owned(),
    }
}

fn described(head: &Head) -> String {
    let (version, cuda) = versions(head);
    format!("driver {version}, CUDA {cuda}, {}", origin(head))
}
