//! A run as JSON lines, each put down as soon as it is known: what the run is of, every result, its end. Whatever kills the runner takes nothing
//! of what is there, and what it has left out can be told by name.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::report::{Report, Run};
use crate::runner::{EntryResult, seconds};

/// Of these lines. Another number means that they are not to be read as these.
pub const FORMAT: u32 = 1;

/// One line. All but the first kind name their run, so that each says by itself what it is about.
#[derive(Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    Run {
        format: u32,
        #[serde(flatten)]
        run: Run,
    },
    Result {
        target: String,
        driver: String,
        #[serde(flatten)]
        result: Box<EntryResult>,
    },
    End {
        target: String,
        driver: String,
        #[serde(with = "seconds")]
        took: Duration,
    },
}

/// Lines that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: no report of `ringfence test`: its first line does not say what run it is of", path.display())]
    Foreign { path: PathBuf },
    #[error("{}: a report of format {format}, this program reads format {FORMAT}", path.display())]
    Format { path: PathBuf, format: u64 },
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        reason: String,
    },
}

/// A file that is being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// A new one; one that is there is replaced.
    pub fn create(path: &Path) -> Result<Self, JournalError> {
        let path = path.to_owned();
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(JournalError::File { path, source }),
        }
    }

    pub fn begin(&mut self, run: &Run) -> Result<(), JournalError> {
        self.put(&Line::Run {
            format: FORMAT,
            run: run.clone(),
        })
    }

    pub fn add(&mut self, run: &Run, result: &EntryResult) -> Result<(), JournalError> {
        self.put(&Line::Result {
            target: run.target.clone(),
            driver: run.driver.clone(),
            result: Box::new(result.clone()),
        })
    }

    pub fn end(&mut self, run: &Run, took: Duration) -> Result<(), JournalError> {
        self.put(&Line::End {
            target: run.target.clone(),
            driver: run.driver.clone(),
            took,
        })
    }

    /// The whole of a run that is over.
    pub fn write(&mut self, report: &Report) -> Result<(), JournalError> {
        self.begin(&report.run)?;
        for result in &report.results {
            self.add(&report.run, result)?;
        }
        self.end(&report.run, report.took)
    }

    /// In one piece, past all buffers of this process.
    fn put(&mut self, line: &Line) -> Result<(), JournalError> {
        let text = serde_json::to_string(line).map_err(std::io::Error::other);
        let written = text.and_then(|text| self.file.write_all((text + "\n").as_bytes()));
        written.map_err(|source| JournalError::File {
            path: self.path.clone(),
            source,
        })
    }
}

/// What a file holds of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub path: PathBuf,
    pub run: Run,
    pub results: Vec<EntryResult>,
    /// None where the runner did not come to its end.
    pub took: Option<Duration>,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    pub parts: Vec<Part>,
    /// Bytes of a last line that was not written to its end.
    pub cut: Option<usize>,
}

/// Reads a file. A last line without an end is left out, and said to be.
pub fn read(path: &Path) -> Result<Contents, JournalError> {
    let bytes = std::fs::read(path).map_err(|source| JournalError::File {
        path: path.to_owned(),
        source,
    })?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n');
    let (lines, rest) = bytes.split_at(whole.map_or(0, |end| end + 1));
    let mut contents = Contents {
        parts: Vec::new(),
        cut: (!rest.is_empty()).then_some(rest.len()),
    };
    let lines = lines.split(|&byte| byte == b'\n').enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        take(path, index + 1, line, &mut contents.parts)?;
    }
    Ok(contents)
}

fn take(
    path: &Path,
    number: usize,
    bytes: &[u8],
    parts: &mut Vec<Part>,
) -> Result<(), JournalError> {
    let wrong = |reason: String| JournalError::Line {
        path: path.to_owned(),
        line: number,
        reason,
    };
    let foreign = || JournalError::Foreign {
        path: path.to_owned(),
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| match number {
        1 => foreign(),
        _ => wrong(error.to_string()),
    })?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    match format {
        Some(format) if format != u64::from(FORMAT) => {
            return Err(JournalError::Format {
                path: path.to_owned(),
                format,
            });
        }
        None if parts.is_empty() => return Err(foreign()),
        _ => {}
    }
    let line = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    let current = |target: &str, driver: &str, parts: &mut [Part]| {
        let last = parts.len().checked_sub(1);
        let last = last.filter(|&last| {
            let run = &parts[last].run;
            run.target == target && run.driver == driver && parts[last].took.is_none()
        });
        let why = || format!("it is of {target} on {driver}, which no line above begins");
        last.ok_or_else(|| wrong(why()))
    };
    match line {
        Line::Run { run, .. } => parts.push(Part {
            path: path.to_owned(),
            run,
            results: Vec::new(),
            took: None,
        }),
        Line::Result {
            target,
            driver,
            result,
        } => {
            let part = current(&target, &driver, parts)?;
            parts[part].results.push(*result);
        }
        Line::End {
            target,
            driver,
            took,
        } => {
            let part = current(&target, &driver, parts)?;
            parts[part].took = Some(took);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it is written");
        file
    }

    fn written(report: &Report) -> String {
        let file = file("");
        let mut journal = Journal::create(file.path()).expect("it can be written");
        journal.write(report).expect("it is written");
        std::fs::read_to_string(file.path()).expect("it is there")
    }

    #[test]
    fn what_was_written_is_read() {
        let (first, second) = (report("ours", "1/2"), report("none", "1/1"));
        let file = file(&(written(&first) + &written(&second)));
        let contents = read(file.path()).expect("it reads");
        assert_eq!(contents.cut, None);
        let read: Vec<_> = contents
            .parts
            .into_iter()
            .map(|part| (part.run, part.results, part.took))
            .collect();
        let [first, second] = [first, second].map(|of| (of.run, of.results, Some(of.took)));
        assert_eq!(read, [first, second]);
    }

    /// Wherever a runner is killed, whatever it had said is there.
    #[test]
    fn a_file_cut_at_any_byte_loses_one_line_at_most() {
        let report = report("ours", "1/1");
        let text = written(&report);
        for length in 0..text.len() {
            let file = file(&text[..length]);
            let contents = read(file.path()).unwrap_or_else(|error| panic!("{length}: {error}"));
            let lines = text[..length].matches('\n').count();
            let rest = length - text[..length].rfind('\n').map_or(0, |end| end + 1);
            assert_eq!(contents.cut, (rest > 0).then_some(rest), "{length}");
            let seen = contents.parts.first().map(|part| part.results.len());
            assert_eq!(seen, lines.checked_sub(1), "{length}");
        }
    }

    #[test]
    fn what_is_no_report_of_this_format_is_named() {
        let of = |text: &str| {
            let file = file(text);
            read(file.path()).expect_err("it is none")
        };
        let text = written(&report("ours", "1/1"));
        let other = text.replace("\"format\":1", "\"format\":2");
        assert!(matches!(of(&other), JournalError::Format { format: 2, .. }));
        assert!(matches!(of("{}\n"), JournalError::Foreign { .. }));
        assert!(matches!(of("<html>\n"), JournalError::Foreign { .. }));
        let broken = text.replacen("\"verdict\":\"", "\"verdict\":\"Un", 1);
        assert!(matches!(of(&broken), JournalError::Line { line: 2, .. }));
        let (first, rest) = text.split_once('\n').expect("two lines");
        let strange = format!("{first}\n{}", rest.replacen("\"ours\"", "\"theirs\"", 1));
        assert!(matches!(of(&strange), JournalError::Line { line: 2, .. }));
        assert!(matches!(of(rest), JournalError::Foreign { .. }));
    }
}
