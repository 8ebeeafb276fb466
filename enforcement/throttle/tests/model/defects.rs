//! Each rule is needed: without it the table or a scene is broken.

use throttle::Rules;

use crate::table::Cell;
use crate::world::SLICES;
use crate::{real, scenes};

macro_rules! defect {
    ($name:ident without $rule:ident) => {
        #[derive(Clone, Copy, Debug, Default)]
        struct $name;
        impl Rules for $name {
            const $rule: bool = false;
        }
    };
}

defect!(UnboundedCredit without BOUNDED_CREDIT);
defect!(TokenPerLaunch without PAID_BY_TIME);
defect!(NeverSettled without SETTLED);
defect!(EveryProcessCounts without UNION);
defect!(LaunchesOnly without IN_FLIGHT_BOUND);
defect!(OneAfterAnother without AHEAD);
defect!(WhatWaitsIsPaid without HELD_UP_IS_FREE);
defect!(IdleIsPaid without IDLE_IS_FREE);
defect!(MarksAreBelieved without TOLD);
defect!(OwnIsTheOthers without OWN_IS_LEARNED);
defect!(StreamsAreOne without ENDS_ARE_SEEN);
defect!(StreamsAreUnknown without STREAMS_ARE_KNOWN);
defect!(MarksAreNeverDoubted without DOUBTED);
defect!(AllLaunchesAreAlike without UNEVEN_ARE_KNOWN);
defect!(MarksTakeNothing without MARKS_ARE_GAUGED);
defect!(HostsMarksAreBelieved without HOSTS_MARKS_ARE_KNOWN);
defect!(OthersArePaidFor without OTHERS_PAY);
defect!(OverdueIsFree without OVERDUE_IS_PAID);
defect!(PlacesMayRunOut without PLACES_ARE_KEPT_FREE);
defect!(TurnsAreFree without TURNS_ARE_PAID);
defect!(TurnsAreGivenAway without TURNS_ARE_KEPT);

fn broken_cells<R: Rules>(cells: impl Iterator<Item = Cell>) -> usize {
    cells
        .filter(|cell| cell.broken(cell.run::<R>()).is_some())
        .count()
}

fn cells(length: u64, processes: usize) -> impl Iterator<Item = Cell> {
    Cell::all().filter(move |cell| cell.length == length && cell.processes == processes)
}

#[test]
fn credit_without_a_bound_is_caught() {
    scenes::idle_then_greedy::<UnboundedCredit>().unwrap_err();
}

#[test]
fn a_token_per_launch_is_caught() {
    assert!(broken_cells::<TokenPerLaunch>(cells(100_000, 1)) > 10);
    assert!(broken_cells::<TokenPerLaunch>(cells(10_000_000, 1)) > 10);
}

#[test]
fn beliefs_that_are_never_corrected_are_caught() {
    scenes::outliers::<NeverSettled>().unwrap_err();
}

#[test]
fn adding_up_what_processes_do_at_the_same_time_is_caught() {
    scenes::crowds::<EveryProcessCounts>().unwrap_err();
}

#[test]
fn counting_launches_in_place_of_work_in_flight_is_caught() {
    assert!(broken_cells::<LaunchesOnly>(cells(10_000_000, 1)) > 5);
}

#[test]
fn paying_for_idle_time_is_caught() {
    scenes::bursts::<IdleIsPaid>().unwrap_err();
}

fn sliced(length: u64) -> impl Iterator<Item = Cell> {
    cells(length, 4).filter(|cell| cell.sharing == SLICES)
}

#[test]
fn turning_from_process_to_process_for_nothing_is_caught() {
    assert!(broken_cells::<TurnsAreFree>(sliced(100_000)) > 5);
}

#[test]
fn giving_ones_turn_away_with_every_wait_is_caught() {
    scenes::waits::<TurnsAreGivenAway>().unwrap_err();
}

#[test]
fn one_lease_after_another_is_caught() {
    real::programs::<OneAfterAnother>().unwrap_err();
}

#[test]
fn believing_marks_alone_is_caught() {
    real::late_marks::<MarksAreBelieved>().unwrap_err();
    scenes::uneven::<MarksAreBelieved>().unwrap_err();
}

#[test]
fn taking_launches_of_a_function_for_alike_is_caught() {
    scenes::uneven::<AllLaunchesAreAlike>().unwrap_err();
}

#[test]
fn charging_what_marks_take_is_caught() {
    real::tenants::<MarksTakeNothing>(["gpt8", "gpt8"], [50, 50]).unwrap_err();
}

#[test]
fn charging_what_the_host_takes_to_set_a_mark_is_caught() {
    real::slow_hosts::<HostsMarksAreBelieved>().unwrap_err();
}

#[test]
fn paying_for_what_has_not_begun_is_caught() {
    real::gates::<WhatWaitsIsPaid>().unwrap_err();
}

#[test]
fn paying_for_other_tenants_is_caught() {
    real::tenants::<OthersArePaidFor>(["gpt8", "gpt8"], [50, 50]).unwrap_err();
}

#[test]
fn leaving_no_place_beside_what_is_held_up_is_caught() {
    scenes::held_up::<PlacesMayRunOut>().unwrap_err();
}

#[test]
fn taking_own_work_for_other_tenants_is_caught() {
    scenes::uneven_beside::<OwnIsTheOthers>().unwrap_err();
}

#[test]
fn paying_for_each_stream_as_if_it_were_alone_is_caught() {
    scenes::together::<StreamsAreOne>().unwrap_err();
}

#[test]
fn believing_that_a_launch_took_what_other_streams_had_to_do_is_caught() {
    scenes::together::<StreamsAreUnknown>().unwrap_err();
}

#[test]
fn charging_what_the_device_did_not_do_is_caught() {
    scenes::unknown_waits::<MarksAreNeverDoubted>().unwrap_err();
}

#[test]
fn forgetting_what_is_overdue_is_caught() {
    scenes::long::<OverdueIsFree>().unwrap_err();
}
