//! What the mock drivers were asked, process by process, and where two runs first differ.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The lines of each role, in the order in which the drivers were asked.
pub type Traces = BTreeMap<String, Vec<String>>;

/// The first line that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub role: String,
    /// From 1.
    pub line: usize,
    pub without: Option<String>,
    pub with: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |line: &Option<String>| line.clone().unwrap_or_else(|| "nothing more".to_owned());
        let (without, with) = (shown(&self.without), shown(&self.with));
        write!(
            out,
            "call {} of {} differs: {without} without the target, {with} with it",
            self.line, self.role
        )
    }
}

/// What the trace of a case is called in a directory of traces.
#[must_use]
pub fn file_name(case: &str) -> String {
    format!("{}.jsonl", case.replace("::", "."))
}

/// Reads a trace file; none is a trace of nothing.
pub fn read(path: &Path) -> Traces {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut traces = Traces::new();
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let role = record
            .get("role")
            .and_then(serde_json::Value::as_str)
            .unwrap_or("");
        traces
            .entry(role.to_owned())
            .or_default()
            .push(line.to_owned());
    }
    traces
}

/// Compares two traces role by role.
pub fn first_difference(without: &Traces, with: &Traces) -> Option<Difference> {
    let nothing = Vec::new();
    let roles: std::collections::BTreeSet<&String> = without.keys().chain(with.keys()).collect();
    roles.into_iter().find_map(|role| {
        let (before, after) = (
            without.get(role).unwrap_or(&nothing),
            with.get(role).unwrap_or(&nothing),
        );
        let line =
            (0..before.len().max(after.len())).find(|&line| before.get(line) != after.get(line))?;
        let (without, with) = (before.get(line).cloned(), after.get(line).cloned());
        Some(Difference {
            role: role.clone(),
            line: line + 1,
            without,
            with,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(lines: &[&str]) -> Traces {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), lines.join("\n")).expect("writable");
        read(file.path())
    }

    const INIT: &str = r#"{"role":"case","entry":"cuInit"}"#;
    const ALLOC: &str = r#"{"role":"case","entry":"cuMemAlloc_v2"}"#;
    const CHILD: &str = r#"{"role":"child","entry":"cuInit"}"#;

    #[test]
    fn the_order_between_processes_does_not_matter() {
        assert_eq!(
            first_difference(
                &traces(&[INIT, CHILD, ALLOC]),
                &traces(&[CHILD, INIT, ALLOC])
            ),
            None
        );
    }

    #[test]
    fn the_first_call_that_differs_is_shown() {
        let difference = first_difference(&traces(&[INIT, ALLOC]), &traces(&[INIT, CHILD]));
        let lines = (Some(ALLOC.to_owned()), None);
        assert_eq!(
            difference,
            Some(Difference {
                role: "case".to_owned(),
                line: 2,
                without: lines.0,
                with: lines.1
            })
        );
    }

    #[test]
    fn a_process_that_only_one_run_has_differs() {
        let difference =
            first_difference(&traces(&[INIT]), &traces(&[INIT, CHILD])).expect("a difference");
        assert_eq!(
            (difference.role.as_str(), difference.without),
            ("child", None)
        );
    }
}
