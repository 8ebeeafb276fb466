//! What a process does: an endless sequence of launches, waits and thoughts.

/// A small deterministic generator; a model that cannot be repeated proves little.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }
}

/// One step of a program. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Launch {
        function: u64,
        cost: u64,
        stream: usize,
    },
    /// The stream comes no further than this before the process opens it: a wait for a value, a host function, another process's event.
    Close {
        stream: usize,
        told: bool,
    },
    /// A copy, which takes nothing of what is paid for.
    Copy,
    /// All that is closed.
    Open,
    /// Until the device is done with all that this process launched.
    Sync,
    Think(u64),
}

/// A function of a program: every launch takes `cost`, give or take `spread` percent.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub cost: u64,
    pub spread: u64,
    /// One launch in so many of this function takes `outlier`.
    pub rare: u64,
    pub outlier: u64,
}

impl Function {
    pub const fn steady(cost: u64) -> Function {
        Function {
            cost,
            spread: 0,
            rare: 0,
            outlier: 0,
        }
    }
}

/// Before each round's launches the first streams are closed, and opened so long after the last of them.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    pub streams: usize,
    pub open_after: u64,
    /// The library is told that it waits.
    pub told: bool,
}

/// `depth` launches, a wait, a thought, and again; functions in turn or at random, in each of the streams in turn.
#[derive(Clone, Debug)]
pub struct Program {
    pub functions: Vec<Function>,
    pub depth: u64,
    /// After each wait.
    pub think: u64,
    /// After so many rounds, so long a pause.
    pub pause: Option<(u64, u64)>,
    pub shuffled: bool,
    /// What a launch takes the host beside the driver's call: Python, mostly.
    pub host: u64,
    pub streams: usize,
    pub gate: Option<Gate>,
    /// Before one launch in so many a copy.
    pub copies: u64,
    /// Which function, and how often, one after another in a round; none: the functions in turn.
    pub phases: Vec<(usize, u64)>,
    place: Place,
    closed: usize,
    launched: u64,
    rounds: u64,
    at: u64,
}

/// Where in a round a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Begin,
    Closing,
    /// The copy before a launch was made.
    Copied,
    Launch,
    Prepare,
    /// All is launched; the gate is open after a thought, if there is one.
    Launched,
    Opening,
    Wait,
    Think,
}

impl Program {
    pub fn new(functions: Vec<Function>, depth: u64) -> Program {
        Program {
            functions,
            depth,
            think: 0,
            pause: None,
            shuffled: false,
            host: 0,
            streams: 1,
            gate: None,
            copies: 0,
            phases: Vec::new(),
            place: Place::Begin,
            closed: 0,
            launched: 0,
            rounds: 0,
            at: 0,
        }
    }

    /// How many rounds are done.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    pub fn step(&mut self, dice: &mut Dice) -> Step {
        match self.place {
            Place::Begin => {
                (self.closed, self.launched) = (0, 0);
                self.place = Place::Closing;
                self.step(dice)
            }
            Place::Closing => match self.gate.filter(|gate| self.closed < gate.streams) {
                Some(gate) => {
                    self.closed += 1;
                    Step::Close {
                        stream: self.closed - 1,
                        told: gate.told,
                    }
                }
                None => {
                    self.place = Place::Launch;
                    self.step(dice)
                }
            },
            Place::Launch if self.launched == self.depth => {
                self.place = Place::Launched;
                self.step(dice)
            }
            Place::Launch if self.copies > 0 && self.launched.is_multiple_of(self.copies) => {
                self.place = Place::Copied;
                Step::Copy
            }
            Place::Launch | Place::Copied => {
                self.place = Place::Launch;
                self.at += 1;
                self.launched += 1;
                if self.host > 0 {
                    self.place = Place::Prepare;
                }
                let which = self.function(dice);
                Step::Launch {
                    function: which as u64 + 1,
                    cost: self.functions[which].roll(dice),
                    stream: self.at as usize % self.streams,
                }
            }
            Place::Prepare => {
                self.place = Place::Launch;
                Step::Think(self.host / 2 + dice.below(self.host))
            }
            Place::Launched => match self.gate {
                Some(gate) => {
                    self.place = Place::Opening;
                    Step::Think(gate.open_after)
                }
                None => {
                    self.place = Place::Wait;
                    self.step(dice)
                }
            },
            Place::Opening => {
                self.place = Place::Wait;
                Step::Open
            }
            Place::Wait => {
                self.place = Place::Think;
                Step::Sync
            }
            Place::Think => {
                self.place = Place::Begin;
                self.rounds += 1;
                match self.pause {
                    Some((rounds, length)) if self.rounds.is_multiple_of(rounds) => {
                        Step::Think(length)
                    }
                    _ => Step::Think(self.think),
                }
            }
        }
    }
}

impl Program {
    /// Which function the launch is of that was just counted.
    fn function(&self, dice: &mut Dice) -> usize {
        let mut before = self.launched - 1;
        for (function, count) in &self.phases {
            match before.checked_sub(*count) {
                Some(rest) => before = rest,
                None => return *function,
            }
        }
        (if self.shuffled { dice.next() } else { self.at }) as usize % self.functions.len()
    }
}

impl Function {
    fn roll(&self, dice: &mut Dice) -> u64 {
        if self.rare > 0 && dice.below(self.rare) == 0 {
            return self.outlier;
        }
        let width = self.cost * self.spread / 100;
        (self.cost - width + dice.below(2 * width + 1)).max(1)
    }
}
