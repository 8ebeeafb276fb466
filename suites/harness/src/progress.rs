//! How far a run has come: a bar on a terminal with the time that is left, what is unexpected above it; elsewhere nothing but that, and of a
//! long run a line now and then.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::story;
use crate::runner::EntryResult;

/// A bar on stderr.
pub struct Bar {
    bar: ProgressBar,
    visible: bool,
}

/// How often a long run that nobody watches says how far it is.
const NEWS_EVERY: Duration = Duration::from_secs(60);

/// A long run of many alike, which several threads make: how many, how many a second, the time that is left.
pub struct Counted {
    bar: Bar,
    began: Instant,
    /// When was it said last how far it is.
    told: Mutex<Instant>,
}

impl Counted {
    pub fn new(many: u64) -> Self {
        let now = Instant::now();
        Self {
            bar: Bar::like(
                many,
                "{bar:30} {human_pos}/{human_len} {elapsed}, {eta} left, {msg}",
            ),
            began: now,
            told: Mutex::new(now),
        }
    }

    /// So many more are done.
    pub fn advance(&self, name: &str, more: u64) {
        let bar = &self.bar.bar;
        bar.inc(more);
        let (done, passed) = (bar.position(), self.began.elapsed());
        let speed = done as f64 / passed.as_secs_f64().max(1e-3);
        bar.set_message(format!("{speed:.0} a second, {name}"));
        // Whoever finds the moment taken leaves the news to who took it.
        if !self.bar.visible
            && let Ok(mut told) = self.told.try_lock()
            && told.elapsed() >= NEWS_EVERY
        {
            *told = Instant::now();
            let all = bar.length().unwrap_or_default();
            let left = all.saturating_sub(done) as f64 / speed.max(1e-3);
            let left = Duration::try_from_secs_f64(left).unwrap_or_default();
            let [passed, left] =
                [passed, left].map(|time| humantime::format_duration(whole_seconds(time)));
            eprintln!("{done} of {all} in {passed}, {speed:.0} a second, {left} left");
        }
    }

    pub fn finish(&self) {
        self.bar.finish();
    }
}

/// A long run's pieces, each with what it costs: where pieces differ much their number tells little of the time that is left.
pub struct Long {
    bar: Bar,
    pieces: usize,
    done: usize,
    cost: Duration,
    spent: Duration,
    began: Instant,
    told: Instant,
}

impl Long {
    /// That many pieces, which cost so much together.
    pub fn new(pieces: usize, cost: Duration) -> Self {
        let now = Instant::now();
        Self {
            bar: Bar::like(pieces as u64, "{bar:30} {pos}/{len} {elapsed}, {msg}"),
            pieces,
            done: 0,
            cost,
            spent: Duration::ZERO,
            began: now,
            told: now,
        }
    }

    /// One more is done.
    pub fn advance(&mut self, name: &str, cost: Duration) {
        self.done += 1;
        self.spent += cost;
        let left = humantime::format_duration(self.left()).to_string();
        self.bar.advance(&format!("{left} left {name}"), None);
        if !self.bar.visible && self.told.elapsed() >= NEWS_EVERY {
            self.told = Instant::now();
            let passed = whole_seconds(self.began.elapsed());
            let passed = humantime::format_duration(passed);
            eprintln!("{} of {} in {passed}, {left} left", self.done, self.pieces);
        }
    }

    /// A line that nobody hoped for.
    pub fn tell(&self, line: &str) {
        self.bar.tell(line);
    }

    /// The rest at the speed of what is done.
    fn left(&self) -> Duration {
        let share = self.cost.as_secs_f64() / self.spent.as_secs_f64().max(1e-3);
        let whole = self.began.elapsed().as_secs_f64() * share;
        let left = whole - self.began.elapsed().as_secs_f64();
        whole_seconds(Duration::try_from_secs_f64(left.max(0.0)).unwrap_or_default())
    }

    pub fn finish(&self) {
        self.bar.finish();
    }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

impl Bar {
    pub fn new(pieces: usize) -> Self {
        Self::like(
            pieces as u64,
            "{bar:30} {pos}/{len} {elapsed}, {eta} left {msg}",
        )
    }

    fn like(pieces: u64, template: &str) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(pieces), target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, visible }
    }

    /// One more is done.
    pub fn advance(&self, name: &str, unexpected: Option<&str>) {
        self.bar.set_message(name.to_owned());
        self.bar.inc(1);
        unexpected.into_iter().for_each(|line| self.tell(line));
    }

    fn tell(&self, line: &str) {
        match self.visible {
            true => self.bar.println(line),
            false => eprintln!("{line}"),
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
