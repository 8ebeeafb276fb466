//! One thing, the same again (the null test) and another in turns, batch by batch, so that whatever the machine does falls on all alike.

/// By what a batch is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "one benchmark of the two wants one of them")]
pub enum Clock {
    Wall,
    /// The calling thread's time on a processor.
    Thread,
}

impl Clock {
    fn nanoseconds(self) -> f64 {
        let clock = match self {
            Self::Wall => libc::CLOCK_MONOTONIC,
            Self::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
        };
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes one timespec, which is ours.
        assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut now) }, 0);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    }
}

/// What a batch of calls comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "one benchmark of the two wants one of them")]
pub enum Figure {
    /// All of them, by their number.
    Mean,
    /// Each is timed by itself, which adds what the clock costs to each kind alike: what most calls take, whatever a few of them do.
    Middle,
}

/// How many batches of each, and of how many calls.
#[derive(Clone, Copy)]
pub struct Turns<'a> {
    pub batches: usize,
    pub calls: u32,
    /// Before each batch, and not timed: what the calls left is out of the way.
    pub between: &'a dyn Fn(),
    /// So many batches of one kind follow each other, and one more before them that is not looked at: for what needs to come to rest.
    pub row: usize,
    pub clock: Clock,
    pub figure: Figure,
}

impl Default for Turns<'_> {
    fn default() -> Self {
        Self {
            batches: 301,
            calls: 200,
            between: &|| {},
            row: 0,
            clock: Clock::Wall,
            figure: Figure::Mean,
        }
    }
}

impl Turns<'_> {
    /// Prints the least of each in ns a call, and what `ours` differs by from the mean of the two beside it, in the middle of all batches and
    /// in their quartiles.
    pub fn compare(self, name: &str, bare: impl Fn(), ours: impl Fn()) {
        self.compare_objects(name, &bare, &bare, &ours);
    }

    /// As `compare`, where what is called belongs to an object of its own: the null test is another object of the bare kind, since two of a
    /// kind may differ by where they lie.
    pub fn compare_objects(self, name: &str, bare: &dyn Fn(), again: &dyn Fn(), ours: &dyn Fn()) {
        let mut times: [Vec<f64>; 3] = Default::default();
        let row = self.row.max(1);
        for round in 0..self.batches / row {
            for turn in 0..3 {
                let which = (turn + round) % 3;
                let batch = || self.batch([bare, again, ours][which]);
                if self.row > 0 {
                    batch();
                }
                times[which].extend((0..row).map(|_| batch()));
            }
        }
        let [bare, again, ours] = &times;
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let beyond = (0..bare.len()).map(|at| ours[at] - f64::midpoint(bare[at], again[at]));
        let null = (0..bare.len()).map(|at| again[at] - bare[at]);
        let (low, middle, high) = quartiles(beyond.collect());
        let (null_low, null_middle, null_high) = quartiles(null.collect());
        println!(
            "{name:<52} bare {:>9.1}  again {:>9.1}  ours {:>9.1}  in the middle {middle:>+7.1} ({low:+.1} to {high:+.1}), null test {null_middle:>+6.1} ({null_low:+.1} to {null_high:+.1})",
            least(bare),
            least(again),
            least(ours),
        );
    }

    fn batch(self, call: &dyn Fn()) -> f64 {
        (self.between)();
        // Until the processor has learnt where the jumps lead that led elsewhere in the batch before.
        (0..self.calls.div_ceil(5)).for_each(|_| call());
        let timed = |calls: u32| {
            let began = self.clock.nanoseconds();
            (0..calls).for_each(|_| call());
            self.clock.nanoseconds() - began
        };
        match self.figure {
            Figure::Mean => timed(self.calls) / f64::from(self.calls),
            Figure::Middle => quartiles((0..self.calls).map(|_| timed(1)).collect()).1,
        }
    }
}

/// The lower, the middle, the upper.
fn quartiles(mut differences: Vec<f64>) -> (f64, f64, f64) {
    differences.sort_by(f64::total_cmp);
    let at = |part: usize| differences[differences.len() * part / 4];
    (at(1), at(2), at(3))
}
