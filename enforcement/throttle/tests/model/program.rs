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
    },
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

/// `depth` launches, a wait, a thought, and again; functions in turn or at random.
#[derive(Clone, Debug)]
pub struct Program {
    pub functions: Vec<Function>,
    pub depth: u64,
    /// After each wait.
    pub think: u64,
    /// After so many rounds, so long a pause.
    pub pause: Option<(u64, u64)>,
    pub shuffled: bool,
    launched: u64,
    rounds: u64,
    at: u64,
}

impl Program {
    pub fn new(functions: Vec<Function>, depth: u64) -> Program {
        Program {
            functions,
            depth,
            think: 0,
            pause: None,
            shuffled: false,
            launched: 0,
            rounds: 0,
            at: 0,
        }
    }

    pub fn step(&mut self, dice: &mut Dice) -> Step {
        self.at += 1;
        if self.launched < self.depth {
            self.launched += 1;
            let which =
                if self.shuffled { dice.next() } else { self.at } as usize % self.functions.len();
            return Step::Launch {
                function: which as u64 + 1,
                cost: self.functions[which].roll(dice),
            };
        }
        if self.launched == self.depth {
            self.launched += 1;
            return Step::Sync;
        }
        self.launched = 0;
        self.rounds += 1;
        match self.pause {
            Some((rounds, length)) if self.rounds.is_multiple_of(rounds) => Step::Think(length),
            _ => Step::Think(self.think),
        }
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
