//! Whether a history is lawful. Pure: it sees what was asked, when, and what was told, and shares nothing with the enforcer.
//!
//! *Grants.* What was granted is held at the latest from the call's return on, and at the earliest until its free begins. There is an order of
//! the calls in which the sum never passes the budget exactly if the sum of what is *certainly* held never does: each take moved to its return and
//! each free to its beginning makes the sum smallest at every instant at once. The device's own most-ever figure must say the same.
//!
//! *Refusals* are lawful if at some instant of the call what may have been charged at most passes the budget: what is held, from each
//! take's beginning to its free's return; requests in flight, refused ones and the own among them; contexts. A lease counts for nothing: the
//! ledger takes leases back before it refuses. A request costs what its route rounds it to, never more. What is given back to a pool while other
//! requests of it are on their way, in other threads of the process, stays charged until there is an instant without any: only the driver knows in
//! which of the pool's steps such a request finds its place, so nobody can say what the pool holds before it is answered.
//!
//! *The killed.* What a process certainly held when the signal was sent stays held for as long as the device was seen to hold it: granted to another
//! before, the sum passes the budget. What it may have held may be charged until the device was first seen without it, calls that were never
//! answered included, and no longer: a request looks for the dead before it is refused.
//!
//! *The end.* Everything that lives has freed: what is left is contexts, to the byte.

use std::fmt;

use super::history::{Answer, Call, Cost, Deed, History, Time};
use super::program::Route;

/// What a lawful history came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub calls: u64,
    pub grants: u64,
    pub refusals: u64,
    /// Those that only other calls in flight, or a dead process's memory on its way back, make lawful.
    pub contended: u64,
    pub kills: u64,
    /// Calls in which a process was killed.
    pub torn: u64,
}

impl Figures {
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.grants += other.grants;
        self.refusals += other.refusals;
        self.contended += other.contended;
        self.kills += other.kills;
        self.torn += other.torn;
    }
}

/// What was promised and not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The calls with these numbers held too much together.
    OverGrant {
        at: Time,
        held: u64,
        calls: Vec<usize>,
    },
    /// The device held too much, whoever says what.
    Peak {
        peak: u64,
    },
    /// At no instant of it was there less room than it asked for.
    Unjustified {
        call: usize,
        most: u64,
    },
    Answer {
        call: usize,
    },
    Left {
        left: Cost,
        expected: Cost,
    },
    /// It is no history at all.
    Senseless {
        call: usize,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverGrant { at, held, calls } => write!(
                out,
                "at {at} certainly {held} bytes are held, contexts and what calls {calls:?} took"
            ),
            Self::Peak { peak } => write!(out, "the device held {peak} bytes"),
            Self::Unjustified { call, most } => write!(
                out,
                "call {call} was refused, and at no instant of it more than {most} bytes were in use or asked for, its own among them"
            ),
            Self::Answer { call } => write!(out, "call {call} was answered what it must not be"),
            Self::Left { left, expected } => write!(
                out,
                "in the end the device holds {} bytes and {} are charged instead of {} and {}",
                left.least, left.most, expected.least, expected.most
            ),
            Self::Senseless { call } => write!(out, "call {call} cannot have been made"),
        }
    }
}

/// Bytes for a time. `call` is none for contexts and for what the device was seen to hold of the dead.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: Time,
    to: Time,
    bytes: u64,
    call: Option<usize>,
}

const EVER: Time = Time::MAX;

/// The history's figures, or everything that is wrong with it.
pub fn check(history: &History) -> Result<Figures, Vec<Wrong>> {
    if let Some(call) = senseless(history) {
        return Err(vec![Wrong::Senseless { call }]);
    }
    let frees = frees(history);
    let held = certain(history, &frees, |cost| cost.least);
    let mut wrong: Vec<Wrong> = over_grant(history, held).into_iter().collect();
    if history.peak > history.budget {
        wrong.push(Wrong::Peak { peak: history.peak });
    }
    let mut figures = Figures {
        calls: history.calls.len() as u64,
        kills: history
            .processes
            .iter()
            .filter(|process| process.death.is_some())
            .count() as u64,
        ..Figures::default()
    };
    let settled = Sums::of(certain(history, &frees, |cost| cost.most), Tie::BeginsFirst);
    let charged = Sums::of(possible(history, &frees), Tie::BeginsFirst);
    for (number, call) in history.calls.iter().enumerate() {
        match (&call.deed, call.end.as_ref()) {
            (_, None) => figures.torn += 1,
            (Deed::Take { .. }, Some((_, Answer::Done))) => figures.grants += 1,
            (Deed::Free { .. }, Some((_, Answer::Done))) => {}
            (Deed::Take { route, bytes }, Some((end, Answer::NoMemory))) => {
                figures.refusals += 1;
                let most = history
                    .before
                    .most
                    .saturating_add(charged.most_between(call.begin, *end));
                if most <= history.budget {
                    wrong.push(Wrong::Unjustified { call: number, most });
                }
                let surely = settled
                    .most_between(call.begin, *end)
                    .saturating_add(history.before.most)
                    .saturating_add(route.cost(*bytes).most);
                figures.contended += u64::from(surely <= history.budget);
            }
            (_, Some(_)) => wrong.push(Wrong::Answer { call: number }),
        }
    }
    let living = history
        .processes
        .iter()
        .filter(|process| process.death.is_none());
    let expected = living.fold(history.before, |sum, process| sum.with(process.context));
    if history.left != expected {
        let left = history.left;
        wrong.push(Wrong::Left { left, expected });
    }
    if wrong.is_empty() {
        Ok(figures)
    } else {
        Err(wrong)
    }
}

/// A call that ends before it begins, is nobody's, is unanswered by the living, or frees what it cannot hold.
fn senseless(history: &History) -> Option<usize> {
    let held_by = |call: &Call, of: usize| {
        let take = history.calls.get(of);
        take.is_some_and(|take| {
            let taken = matches!((take.deed, &take.end), (Deed::Take { .. }, Some((end, Answer::Done))) if *end <= call.begin);
            taken && take.process == call.process
        })
    };
    let mut freed = std::collections::BTreeSet::new();
    history.calls.iter().position(|call| {
        let Some(process) = history.processes.get(call.process) else {
            return true;
        };
        let answered = match &call.end {
            Some((end, _)) => *end >= call.begin,
            None => process.death.is_some(),
        };
        let meant = match call.deed {
            Deed::Take { .. } => true,
            Deed::Free { of } => held_by(call, of) && freed.insert(of),
        };
        !answered || !meant
    })
}

/// By which call each call's memory is freed.
fn frees(history: &History) -> Vec<Option<&Call>> {
    let mut frees = vec![None; history.calls.len()];
    for call in &history.calls {
        if let Deed::Free { of } = call.deed {
            frees[of] = Some(call);
        }
    }
    frees
}

/// What is settled at every instant, by the one figure or the other of what it costs.
fn certain(history: &History, frees: &[Option<&Call>], figure: fn(Cost) -> u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for process in &history.processes {
        let killed = process.death.map(|death| death.killed);
        pieces.push(Piece {
            from: 0,
            to: killed.unwrap_or(EVER),
            bytes: figure(process.context),
            call: None,
        });
        if let Some(death) = process.death {
            pieces.push(Piece {
                from: death.killed,
                to: death.seen,
                bytes: death.held,
                call: None,
            });
        }
    }
    for (number, call) in history.calls.iter().enumerate() {
        if let (Deed::Take { route, bytes }, Some((end, Answer::Done))) = (call.deed, &call.end) {
            let freed = frees[number].map_or(EVER, |free| free.begin);
            let killed = history.processes[call.process]
                .death
                .map_or(EVER, |death| death.killed);
            pieces.push(Piece {
                from: *end,
                to: freed.min(killed),
                bytes: figure(route.cost(bytes)),
                call: Some(number),
            });
        }
    }
    pieces.retain(|piece| piece.from < piece.to);
    pieces
}

/// The first instant from `time` on at which no request of a process's pool is on its way.
fn pools_rest(history: &History, process: usize, time: Time) -> Time {
    let taking = |call: &&Call| {
        let of_pool = matches!(
            call.deed,
            Deed::Take {
                route: Route::Ordered,
                ..
            }
        );
        of_pool && call.process == process
    };
    let spans = history.calls.iter().filter(taking).map(|call| {
        let end = call.end.as_ref().map_or(EVER, |(end, _)| *end);
        (call.begin, end)
    });
    let mut spans: Vec<(Time, Time)> = spans.collect();
    spans.sort_unstable();
    let longer =
        |rest, (begin, end): (Time, Time)| if begin <= rest { end.max(rest) } else { rest };
    spans.into_iter().fold(time, longer)
}

fn possible(history: &History, frees: &[Option<&Call>]) -> Vec<Piece> {
    let gone = |process: usize| {
        history.processes[process]
            .death
            .map_or(EVER, |death| death.gone)
    };
    let contexts = history
        .processes
        .iter()
        .enumerate()
        .map(|(number, process)| Piece {
            from: 0,
            to: gone(number),
            bytes: process.context.most,
            call: None,
        });
    let mut pieces: Vec<Piece> = contexts.collect();
    for (number, call) in history.calls.iter().enumerate() {
        let Deed::Take { route, bytes } = call.deed else {
            continue;
        };
        let to = match &call.end {
            Some((end, Answer::NoMemory | Answer::Otherwise(_))) => *end,
            // Never answered: it may have been granted.
            None => EVER,
            Some((_, Answer::Done)) => frees[number].and_then(|free| free.end.as_ref()).map_or(
                EVER,
                |(end, _)| match route {
                    Route::Ordered => pools_rest(history, call.process, *end),
                    _ => *end,
                },
            ),
        };
        pieces.push(Piece {
            from: call.begin,
            to: to.min(gone(call.process)),
            bytes: route.cost(bytes).most,
            call: Some(number),
        });
    }
    pieces
}

/// What comes first of a piece that ends and one that begins at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tie {
    EndsFirst,
    BeginsFirst,
}

/// A sum over time: what it is from each of these times on.
struct Sums(Vec<(Time, u64)>);

impl Sums {
    fn of(pieces: Vec<Piece>, tie: Tie) -> Self {
        let mut sum = 0_u64;
        let mut sums = vec![(0, 0)];
        for (time, begins, piece) in events(&pieces, tie) {
            sum = match begins {
                true => sum.saturating_add(piece.bytes),
                false => sum.saturating_sub(piece.bytes),
            };
            sums.push((time, sum));
        }
        Self(sums)
    }

    fn most_between(&self, begin: Time, end: Time) -> u64 {
        // What stands when it begins was said before.
        let first = self
            .0
            .partition_point(|(time, _)| *time < begin)
            .saturating_sub(1);
        let within = self.0[first..].iter().take_while(|(time, _)| *time <= end);
        within.map(|(_, sum)| *sum).max().unwrap_or_default()
    }
}

fn events(pieces: &[Piece], tie: Tie) -> Vec<(Time, bool, &Piece)> {
    let both = |piece| {
        let piece: &Piece = piece;
        [(piece.from, true, piece), (piece.to, false, piece)]
    };
    let mut events: Vec<(Time, bool, &Piece)> = pieces.iter().flat_map(both).collect();
    events.sort_by_key(|(time, begins, _)| (*time, *begins != (tie == Tie::BeginsFirst)));
    events
}

/// The first instant at which too much is certainly held.
fn over_grant(history: &History, pieces: Vec<Piece>) -> Option<Wrong> {
    let sums = Sums::of(pieces.clone(), Tie::EndsFirst);
    let over = |sum: u64| sum.saturating_add(history.before.least) > history.budget;
    let (at, sum) = sums.0.into_iter().find(|(_, sum)| over(*sum))?;
    let there = pieces
        .iter()
        .filter(|piece| piece.from <= at && at < piece.to);
    Some(Wrong::OverGrant {
        at,
        held: sum.saturating_add(history.before.least),
        calls: there.filter_map(|piece| piece.call).collect(),
    })
}

#[cfg(test)]
mod tests;
