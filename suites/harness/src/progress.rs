//! How far a run has come: a bar on a terminal with the time that is left, what is unexpected above it; nothing elsewhere but that.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::story;
use crate::runner::EntryResult;

/// A bar on stderr.
pub struct Bar {
    bar: ProgressBar,
    visible: bool,
}

impl Bar {
    pub fn new(pieces: usize) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(pieces as u64), target);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}, {eta} left {msg}")
        {
            bar.set_style(style);
        }
        Self { bar, visible }
    }

    /// One more is done.
    pub fn advance(&self, name: &str, unexpected: Option<&str>) {
        self.bar.set_message(name.to_owned());
        self.bar.inc(1);
        if let Some(line) = unexpected {
            match self.visible {
                true => self.bar.println(line),
                false => eprintln!("{line}"),
            }
        }
    }

    /// The same with a case's result.
    pub fn show(&self, result: &EntryResult) {
        let line = format!("{}: {}", result.name, story(result));
        let unexpected = (!result.verdict.is_expected()).then_some(line.as_str());
        self.advance(&result.name, unexpected);
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
