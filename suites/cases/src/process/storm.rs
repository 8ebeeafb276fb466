//! Twelve processes that allocate, free and are killed at random, over and over: nothing is granted twice, nothing is lost.

use std::time::Duration;

use harness::{Bytes, cases, ensure};
use ledger::DeviceIndex;

use crate::kill_storm::{PROCESSES, Storm};

cases! {
    /// Two hundred random kills among twelve processes: the device never holds more than the budget, nothing is left at
    /// the end, and every request ended within a bounded number of tries.
    a_storm_of_kills_loses_nothing_and_grants_nothing_twice {
        kind: Budget, defects: ["P1", "P2", "P3", "P6"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"],
        budget: "0=23552MiB", unordered: "twelve processes race and die at random", seconds: 240,
        on_real: No("counts on the simulated device"),
    } (session) {
        let device = mock_device::DeviceIndex(0);
        let mut storm = Storm::start(session, 1, PROCESSES)?;
        let outcome = storm.rage(200)?;
        storm.end()?;
        let world = session.world()?;
        let budget = crate::greed::budget(session, 0)?;
        ensure!(world.peak(device) <= budget, "{} held at the peak, under {budget}", world.peak(device));
        ensure!(outcome.grants > 1000, "only {} allocations were granted", outcome.grants);
        session.eventually("the device is empty again", Duration::from_secs(5), || world.used(device) == Bytes::ZERO)?;
        let Ok(ledger) = session.ledger() else { return Ok(()) };
        session.eventually("the ledger is empty again", Duration::from_secs(5), || {
            ledger.reap();
            ledger.usage(DeviceIndex(0)).0 == 0
        })?;
        let stats = ledger.stats();
        // A request tries again while others' announcements are in flight, bounded by time; far from one try in ten.
        ensure!(
            stats.retries <= outcome.grants + outcome.refusals,
            "{} retries for {} requests", stats.retries, outcome.grants + outcome.refusals
        );
        Ok(())
    }
}
