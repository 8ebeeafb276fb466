//! Differences that are known, each with its reason: a list that a user keeps.

use std::path::Path;

use harness::trace_diff::fits;

/// Rows `PART SUBJECT  # reason`; in the subject `*` stands for anything, and blanks count.
#[derive(Debug, Default)]
pub struct Allowed {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    part: String,
    subject: String,
    reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AllowedError {
    #[error("{file}: {source}")]
    File {
        file: String,
        source: std::io::Error,
    },
    #[error("{file}: \"{line}\" is not of the form \"part subject  # reason\"")]
    Form { file: String, line: String },
}

impl Allowed {
    pub fn read(path: &Path) -> Result<Self, AllowedError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| AllowedError::File {
            file: file.clone(),
            source,
        })?;
        Self::parse(&file, &text)
    }

    pub fn parse(file: &str, text: &str) -> Result<Self, AllowedError> {
        let lines = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let row = |line: &str| {
            let (what, reason) = line.split_once(" # ")?;
            let (part, subject) = what.trim().split_once(' ')?;
            Some(Row {
                part: part.to_owned(),
                subject: subject.trim().to_owned(),
                reason: reason.trim().to_owned(),
            })
        };
        let rows: Result<Vec<Row>, AllowedError> = lines
            .map(|line| {
                row(line).ok_or_else(|| AllowedError::Form {
                    file: file.to_owned(),
                    line: line.to_owned(),
                })
            })
            .collect();
        Ok(Self { rows: rows? })
    }

    pub fn reason(&self, part: &str, subject: &str) -> Option<&str> {
        let row = self
            .rows
            .iter()
            .find(|row| fits(&row.part, part) && fits(&row.subject, subject))?;
        Some(&row.reason)
    }

    /// Rows that none of these differences needs.
    pub fn stale<'a>(
        &self,
        differences: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Vec<String> {
        let needed = |row: &&Row| {
            !differences
                .clone()
                .any(|(part, subject)| fits(&row.part, part) && fits(&row.subject, subject))
        };
        let stale = self.rows.iter().filter(needed);
        stale
            .map(|row| format!("{} {}", row.part, row.subject))
            .collect()
    }
}
