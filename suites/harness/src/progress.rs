//! How far a run has come: a bar on a terminal, unexpected results above it; nothing elsewhere but those.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::story;
use crate::runner::EntryResult;

/// The bar of one run, on stderr.
pub struct Progress {
    bar: ProgressBar,
    visible: bool,
}

impl Progress {
    pub fn new(entries: usize) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(entries as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self { bar, visible }
    }

    pub fn show(&self, result: &EntryResult) {
        self.bar.set_message(result.name.clone());
        self.bar.inc(1);
        if !result.verdict.is_expected() {
            let line = format!("{}: {}", result.name, story(result));
            match self.visible {
                true => self.bar.println(line),
                false => eprintln!("{line}"),
            }
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
