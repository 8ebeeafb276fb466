//! An estimate of a kernel's registers: how many are live at once, as 32-bit words.

use std::collections::HashMap;

/// Where a register is met first and last.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    last: u32,
    words: u32,
}

#[derive(Debug, Default)]
pub struct Liveness<'a> {
    known: HashMap<&'a str, usize>,
    spans: Vec<Span>,
    /// From an instruction back to an earlier one.
    loops: Vec<(u32, u32)>,
}

/// Beyond this many pairs of loops and registers the estimate does without loops.
const PAIRS: usize = 50_000_000;

impl<'a> Liveness<'a> {
    pub fn met(&mut self, register: &'a str, words: u32, instruction: u32) {
        let next = self.spans.len();
        let at = *self.known.entry(register).or_insert(next);
        if at == next {
            self.spans.push(Span {
                first: instruction,
                last: instruction,
                words,
            });
        }
        self.spans[at].last = instruction;
    }

    pub fn branch(&mut self, from: u32, to: u32) {
        if to < from {
            self.loops.push((to, from));
        }
    }

    /// The most words that are live at one time.
    pub fn peak(mut self) -> u32 {
        if self.loops.len().saturating_mul(self.spans.len()) < PAIRS {
            // Outer loops last, so that what an inner one prolongs is seen.
            self.loops.sort_by_key(|(to, from)| (from - to, *to));
            for &(to, from) in &self.loops {
                for span in &mut self.spans {
                    if span.first < to && span.last >= to && span.last < from {
                        span.last = from;
                    }
                }
            }
        }
        let mut changes: Vec<(u32, i64)> = Vec::with_capacity(self.spans.len() * 2);
        for span in &self.spans {
            // The destination may take the place of an operand that is read last.
            changes.push((span.first, span.words.into()));
            changes.push((span.last.max(span.first + 1), -i64::from(span.words)));
        }
        changes.sort_unstable();
        let (mut live, mut peak) = (0i64, 0i64);
        for (_, change) in changes {
            live += change;
            peak = peak.max(live);
        }
        u32::try_from(peak).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_read_in_a_loop_lives_to_its_end() {
        let mut straight = Liveness::default();
        straight.met("%a", 1, 0);
        straight.met("%a", 1, 2);
        straight.met("%b", 2, 3);
        straight.met("%b", 2, 4);
        assert_eq!(straight.peak(), 2);
        let mut looping = Liveness::default();
        looping.met("%a", 1, 0);
        looping.met("%a", 1, 2);
        looping.met("%b", 2, 3);
        looping.met("%b", 2, 4);
        looping.branch(5, 1);
        assert_eq!(looping.peak(), 3);
    }
}
