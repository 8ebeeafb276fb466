//! Histories written by hand, lawful and not.

use super::super::history::{Death, Process};
use super::super::program::Route;
use super::*;

const MIB: u64 = 1 << 20;

/// Processes with contexts of 10 MiB each under 100 MiB, of which 4 are lost before.
fn nothing(processes: usize) -> History {
    let context = Cost::exactly(10 * MIB);
    let before = Cost::exactly(4 * MIB);
    let process = |pid| Process {
        pid,
        context,
        death: None,
    };
    History {
        budget: 100 * MIB,
        before,
        processes: (0..processes as u32).map(process).collect(),
        calls: Vec::new(),
        peak: 0,
        left: (0..processes).fold(before, |sum, _| sum.with(context)),
    }
}

impl History {
    fn take(mut self, process: usize, times: (Time, Time), mib: u64, answer: Answer) -> Self {
        self.calls.push(Call {
            process,
            thread: 0,
            begin: times.0,
            deed: Deed::Take {
                route: Route::Physical,
                bytes: mib * MIB,
            },
            end: Some((times.1, answer)),
        });
        self
    }

    /// The same of a pool.
    fn ordered(mut self, process: usize, times: (Time, Time), mib: u64) -> Self {
        self = self.granted(process, times, mib);
        let last = self.calls.last_mut().expect("a call");
        last.deed = Deed::Take {
            route: Route::Ordered,
            bytes: mib * MIB,
        };
        self
    }

    fn granted(self, process: usize, times: (Time, Time), mib: u64) -> Self {
        self.take(process, times, mib, Answer::Done)
    }

    fn refused(self, process: usize, times: (Time, Time), mib: u64) -> Self {
        self.take(process, times, mib, Answer::NoMemory)
    }

    fn freed(mut self, of: usize, times: (Time, Time)) -> Self {
        self.calls.push(Call {
            process: self.calls[of].process,
            thread: 0,
            begin: times.0,
            deed: Deed::Free { of },
            end: Some((times.1, Answer::Done)),
        });
        self
    }

    /// Its last call is never answered.
    fn torn(mut self) -> Self {
        self.calls.last_mut().expect("a call").end = None;
        self
    }

    fn dies(mut self, process: usize, killed: Time, held: (Time, u64), gone: Time) -> Self {
        self.left.least -= self.processes[process].context.least;
        self.left.most -= self.processes[process].context.most;
        self.processes[process].death = Some(Death {
            killed,
            seen: held.0,
            held: held.1 * MIB,
            gone,
        });
        self
    }

    fn figures(&self) -> Figures {
        check(self).expect("a lawful history")
    }

    fn wrong(&self) -> Vec<Wrong> {
        check(self).expect_err("an unlawful history")
    }
}

#[test]
fn grants_that_fit_together_in_some_order_are_lawful() {
    // 76 MiB of room: the free lets the second in, although it returns after it.
    let history = nothing(2)
        .granted(0, (10, 20), 60)
        .freed(0, (30, 60))
        .granted(1, (25, 50), 60);
    assert_eq!(history.figures().grants, 2);
    // To the last byte, and a free that begins at the very time.
    let history = nothing(2)
        .granted(0, (10, 20), 76)
        .freed(0, (30, 31))
        .granted(1, (25, 30), 76);
    assert_eq!(history.figures().grants, 2);
}

#[test]
fn grants_that_fit_together_in_no_order_are_not() {
    let history = nothing(2).granted(0, (10, 20), 60).granted(1, (10, 25), 18);
    let held = 102 * MIB;
    let calls = vec![0, 1];
    assert_eq!(
        history.wrong(),
        [Wrong::OverGrant {
            at: 25,
            held,
            calls
        }]
    );
    // Freed too late by a nanosecond.
    let history = nothing(2)
        .granted(0, (10, 20), 60)
        .freed(0, (31, 60))
        .granted(1, (25, 30), 60);
    assert!(matches!(
        history.wrong()[..],
        [Wrong::OverGrant { at: 30, .. }]
    ));
}

#[test]
fn a_device_that_held_more_than_the_budget_is_wrong_whatever_was_told() {
    let peak = 100 * MIB + 1;
    let history = History { peak, ..nothing(1) };
    assert_eq!(history.wrong(), [Wrong::Peak { peak }]);
}

#[test]
fn a_refusal_needs_an_instant_without_room() {
    // 60 are held until 30 at the earliest and 40 at the latest.
    let freed = || nothing(2).granted(0, (10, 20), 60).freed(0, (30, 40));
    assert_eq!(freed().refused(1, (35, 50), 18).figures().contended, 1);
    assert_eq!(freed().refused(1, (25, 26), 18).figures().contended, 0);
    // There was room for 16 all the time, and for 18 since 40.
    let most = 100 * MIB;
    assert_eq!(
        freed().refused(1, (25, 26), 16).wrong(),
        [Wrong::Unjustified { call: 2, most }]
    );
    assert!(matches!(
        freed().refused(1, (41, 50), 18).wrong()[..],
        [Wrong::Unjustified { call: 2, .. }]
    ));
}

#[test]
fn requests_in_flight_make_a_refusal_lawful_even_if_all_are_refused() {
    let history = nothing(3).refused(0, (10, 30), 40).refused(1, (20, 40), 40);
    assert_eq!(history.figures().contended, 2);
    // One after the other they are no excuse.
    let history = nothing(3).refused(0, (10, 19), 40).refused(1, (20, 40), 40);
    assert_eq!(history.wrong().len(), 2);
    // Of three that never were at the same time, two by two are not enough.
    let history = nothing(3)
        .refused(0, (10, 20), 30)
        .refused(1, (15, 40), 30)
        .refused(2, (30, 50), 30);
    assert_eq!(history.wrong().len(), 3);
}

#[test]
fn a_refusal_has_one_code_and_a_free_no_refusal() {
    let other = Answer::Otherwise("ERROR_UNKNOWN".to_owned());
    let history = nothing(1).take(0, (10, 20), 90, other);
    assert_eq!(history.wrong(), [Wrong::Answer { call: 0 }]);
    let mut history = nothing(1).granted(0, (10, 20), 30).freed(0, (30, 40));
    history.calls[1].end = Some((40, Answer::NoMemory));
    assert!(history.wrong().contains(&Wrong::Answer { call: 1 }));
}

#[test]
fn what_the_dead_held_is_neither_granted_before_it_is_gone_nor_charged_after() {
    let dead = || {
        nothing(2)
            .granted(1, (10, 20), 60)
            .dies(1, 30, (90, 70), 100)
    };
    // Room of 16 until 90 at the earliest.
    assert_eq!(dead().granted(0, (40, 95), 60).figures().kills, 1);
    assert!(matches!(
        dead().granted(0, (40, 89), 60).wrong()[..],
        [Wrong::OverGrant { at: 89, .. }]
    ));
    // Nothing of it at 101.
    assert_eq!(dead().refused(0, (95, 140), 60).figures().refusals, 1);
    assert!(matches!(
        dead().refused(0, (101, 140), 60).wrong()[..],
        [Wrong::Unjustified { call: 1, .. }]
    ));
}

#[test]
fn a_call_that_was_never_answered_may_have_been_granted_or_not() {
    let torn = || {
        nothing(2)
            .granted(1, (10, 20), 60)
            .torn()
            .dies(1, 30, (90, 10), 100)
    };
    assert_eq!(torn().figures().torn, 1);
    assert_eq!(torn().refused(0, (50, 60), 40).figures().contended, 1);
    assert_eq!(torn().granted(0, (50, 60), 76).figures().grants, 1);
    // The living are answered.
    let unanswered = nothing(1).granted(0, (10, 20), 60).torn();
    assert_eq!(unanswered.wrong(), [Wrong::Senseless { call: 0 }]);
}

#[test]
fn a_free_in_which_its_process_was_killed_may_have_been_done() {
    let torn = || {
        nothing(2)
            .granted(1, (10, 20), 60)
            .freed(0, (25, 26))
            .torn()
            .dies(1, 30, (90, 10), 100)
    };
    assert_eq!(torn().granted(0, (27, 40), 60).figures().grants, 2);
    assert_eq!(torn().refused(0, (91, 95), 40).figures().refusals, 1);
}

#[test]
fn what_is_left_in_the_end_is_contexts_to_the_byte() {
    let mut history = nothing(2);
    history.left.most += 1;
    assert!(matches!(history.wrong()[..], [Wrong::Left { .. }]));
    let mut history = nothing(2);
    history.left.least -= 1;
    assert!(matches!(history.wrong()[..], [Wrong::Left { .. }]));
}

#[test]
fn what_rounding_may_cost_is_charged_to_who_is_refused_only() {
    let ordered = |answer, begin| Call {
        process: 0,
        thread: 0,
        begin,
        deed: Deed::Take {
            route: Route::Ordered,
            bytes: 38 * MIB,
        },
        end: Some((begin + 5, answer)),
    };
    // At least 38 MiB each, at most 96.
    let mut history = nothing(2);
    history.calls = vec![ordered(Answer::Done, 10), ordered(Answer::Done, 20)];
    assert_eq!(history.figures().grants, 2);
    let mut history = nothing(2);
    history.calls = vec![ordered(Answer::Done, 10), ordered(Answer::NoMemory, 20)];
    assert_eq!(history.figures().refusals, 1);
}

#[test]
fn nobody_frees_what_is_not_held_or_twice() {
    let refused = nothing(1).refused(0, (10, 20), 90).freed(0, (30, 40));
    assert_eq!(refused.wrong(), [Wrong::Senseless { call: 1 }]);
    let twice = nothing(1)
        .granted(0, (10, 20), 30)
        .freed(0, (30, 40))
        .freed(0, (50, 60));
    assert_eq!(twice.wrong(), [Wrong::Senseless { call: 2 }]);
}

#[test]
fn what_was_given_back_to_a_pool_counts_while_its_requests_are_on_their_way() {
    let freed_meanwhile = |to| {
        nothing(2)
            .ordered(0, (10, 20), 32)
            .ordered(0, (35, to), 1)
            .freed(0, (30, 40))
            .freed(1, (90, 91))
    };
    freed_meanwhile(60).refused(1, (50, 55), 10).figures();
    let wrong = freed_meanwhile(45).refused(1, (50, 55), 10);
    assert!(matches!(
        check(&wrong).expect_err("it could have been granted")[..],
        [Wrong::Unjustified { call: 4, .. }]
    ));
}
