//! The reports that a user asked for: `--report html=F junit=F json=F`.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use harness::EntryResult;
use harness::journal::{Journal, JournalError};
use harness::report::{Report, Run};

/// Files to be written, the JSON lines while a run goes on, the others when all is over.
pub struct Outputs<'a> {
    lines: Vec<&'a Path>,
    /// Of those, once a run begins: until then nothing that is there is replaced.
    journals: Vec<Journal>,
    documents: Vec<(Document, &'a Path)>,
    /// Why the lines could not be written any more, which ends no run.
    failed: Option<JournalError>,
}

#[derive(Clone, Copy)]
enum Document {
    Junit,
    Html,
}

impl<'a> Outputs<'a> {
    /// Reads what was asked for. Where a file cannot be is said before anything is run.
    pub fn open(texts: &'a [String]) -> Result<Self, Box<dyn Error>> {
        let mut outputs = Self {
            lines: Vec::new(),
            journals: Vec::new(),
            documents: Vec::new(),
            failed: None,
        };
        for text in texts {
            let wrong = || format!("--report \"{text}\": write html=FILE, junit=FILE or json=FILE");
            let (kind, path) = text.split_once('=').ok_or_else(wrong)?;
            let path = Path::new(path);
            match kind {
                "json" => outputs.lines.push(path),
                "junit" => outputs.documents.push((Document::Junit, path)),
                "html" => outputs.documents.push((Document::Html, path)),
                _ => return Err(wrong().into()),
            }
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                let folder = folder.display();
                return Err(format!("--report {text}: {folder} is no directory").into());
            }
        }
        Ok(outputs)
    }

    /// Whether any of them shows what the drivers were asked and what the devices held.
    pub fn show_all(&self) -> bool {
        let html = |(document, _): &(Document, &Path)| matches!(document, Document::Html);
        !self.lines.is_empty() || self.documents.iter().any(html)
    }

    pub fn begin(&mut self, run: &Run) -> Result<(), JournalError> {
        if self.journals.is_empty() {
            let journals = self.lines.iter().map(|path| Journal::create(path));
            self.journals = journals.collect::<Result<_, _>>()?;
        }
        self.put(|journal| journal.begin(run));
        Ok(())
    }

    pub fn add(&mut self, run: &Run, result: &EntryResult) {
        self.put(|journal| journal.add(run, result));
    }

    pub fn end(&mut self, run: &Run, took: Duration) {
        self.put(|journal| journal.end(run, took));
    }

    fn put(&mut self, write: impl Fn(&mut Journal) -> Result<(), JournalError>) {
        if self.failed.is_none() {
            self.failed = self
                .journals
                .iter_mut()
                .find_map(|journal| write(journal).err());
        }
    }

    /// Writes what is written of whole runs.
    pub fn finish(self, runs: &[Report]) -> Result<(), Box<dyn Error>> {
        for (document, path) in self.documents {
            let text = match document {
                Document::Junit => harness::junit::document(runs),
                Document::Html => harness::page::document(runs)?,
            };
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        match self.failed {
            Some(failed) => Err(failed.into()),
            None => Ok(()),
        }
    }
}
