//! What several processes are to do: short programs of several threads each, and who is killed when.

use cases::kill_storm::Dice;
use serde::{Deserialize, Serialize};

use super::history::Cost;
use crate::model::{BLOCK, MIB, PAGE, STEP, up};

/// A row of an array of 32-bit words.
pub const ROW: u64 = 4096;
/// No array has more rows.
const ROWS: u64 = 65_536;
/// Steps of a thread.
const STEPS: u64 = 24;
const THREADS: u64 = 3;
/// How long after the beginning somebody may be killed.
const KILLED_WITHIN_US: u64 = 4_000;
/// Longest that a thread does nothing.
const NAP_US: u64 = 200;

/// The call that takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Route {
    /// cuMemAlloc_v2
    Plain,
    /// cuMemCreate
    Physical,
    /// cuMemAllocAsync, of the default pool
    Ordered,
    /// cuArrayCreate_v2
    Array,
    /// vkAllocateMemory
    Vulkan,
}

impl Route {
    const ALL: [Route; 5] = [
        Route::Plain,
        Route::Physical,
        Route::Array,
        Route::Ordered,
        Route::Vulkan,
    ];

    /// The next size that the call can be asked for.
    pub fn askable(self, bytes: u64) -> u64 {
        match self {
            Route::Physical => up(bytes, BLOCK),
            Route::Array => up(bytes, ROW * 4).min(ROW * 4 * ROWS),
            _ => bytes,
        }
    }

    /// By the model of what a device loses. Only for sizes of at least a block.
    pub fn cost(self, bytes: u64) -> Cost {
        let most = match self {
            Route::Plain | Route::Physical | Route::Array => up(bytes, BLOCK),
            Route::Vulkan => return Cost::exactly(up(bytes, PAGE)),
            // It begins anywhere in a step, and ends in another.
            Route::Ordered => up(bytes, STEP).saturating_add(STEP),
        };
        Cost { least: bytes, most }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Take {
        route: Route,
        bytes: u64,
    },
    /// The nth of what the thread holds, modulo how much there is.
    Free {
        nth: u8,
    },
    Nap {
        micros: u64,
    },
}

/// Who is killed, and how long after the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    pub process: usize,
    pub after_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Of each process each thread's steps.
    pub processes: Vec<Vec<Vec<Step>>>,
    pub kills: Vec<Kill>,
}

impl Program {
    /// By chance, with requests that `room` is tight for.
    pub fn by_chance(seed: u64, processes: usize, room: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut program = Self {
            processes: Vec::new(),
            kills: Vec::new(),
        };
        for _ in 0..processes {
            let threads = 1 + dice.below(THREADS);
            let steps = (0..threads).map(|_| thread(&mut dice, room));
            let steps = steps.collect();
            program.processes.push(steps);
        }
        // Somebody lives on.
        let mut mortal: Vec<usize> = (1..processes).collect();
        while !mortal.is_empty() && dice.below(4) == 0 {
            let process = mortal.swap_remove(dice.below(mortal.len() as u64) as usize);
            let after_us = dice.below(KILLED_WITHIN_US);
            program.kills.push(Kill { process, after_us });
        }
        program
    }

    /// How many parts there are that can be left out.
    pub fn parts(&self) -> usize {
        self.kills.len() + self.processes.iter().flatten().map(Vec::len).sum::<usize>()
    }

    /// Without these parts, of which the kills are the first.
    pub fn without(&self, parts: std::ops::Range<usize>) -> Self {
        let mut at = 0;
        let mut stays = || {
            at += 1;
            !parts.contains(&(at - 1))
        };
        let mut rest = self.clone();
        rest.kills.retain(|_| stays());
        for thread in rest.processes.iter_mut().flatten() {
            thread.retain(|_| stays());
        }
        rest
    }
}

fn thread(dice: &mut Dice, room: u64) -> Vec<Step> {
    let steps = 1 + dice.below(STEPS);
    (0..steps)
        .map(|_| match dice.below(16) {
            0..=7 => take(dice, room),
            8..=13 => Step::Free {
                nth: dice.below(256) as u8,
            },
            _ => Step::Nap {
                micros: dice.below(NAP_US),
            },
        })
        .collect()
}

/// From what a lease covers to all there is and a little more.
fn take(dice: &mut Dice, room: u64) -> Step {
    let route = Route::ALL[dice.below(Route::ALL.len() as u64) as usize];
    let bytes = match dice.below(4) {
        0 => BLOCK * (1 + dice.below(8)) + dice.below(2),
        1 => room / (1 + dice.below(3)) + dice.below(2) * MIB,
        _ => BLOCK + dice.below(room / 3),
    };
    Step::Take {
        route,
        bytes: route.askable(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_left_out_in_the_order_in_which_they_are_counted() {
        let program = Program::by_chance(5, 4, 1 << 30);
        let mut rest = program.clone();
        while rest.parts() > 0 {
            let fewer = rest.without(0..1);
            assert_eq!(fewer.parts(), rest.parts() - 1);
            rest = fewer;
        }
        assert_eq!(program.without(0..program.parts()), rest);
        assert_eq!(program, Program::by_chance(5, 4, 1 << 30));
    }
}
