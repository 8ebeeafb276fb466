//! Twelve processes that allocate, free and are killed at random, over and over: nothing is granted twice, nothing is lost.

use std::time::Duration;

use harness::{Bytes, cases, ensure};
use ledger::DeviceIndex;

use crate::kill_storm::{Api, PROCESSES, Storm, asked_kills};
use crate::room::Waits;

/// A request gets past others' announcements for 50 ms, napping 20 µs at least, and waits 2.1 s for the driver's teardown,
/// napping 1 ms: 2,500 + 2,100 tries, and some without a nap.
const MOST_TRIES: u64 = 4_700;

cases! {
    /// Two hundred random kills among twelve processes: the device never holds more than the budget, nothing is left at
    /// the end, and every request ended within a bounded number of tries.
    a_storm_of_kills_loses_nothing_and_grants_nothing_twice {
        kind: Budget, defects: ["P1", "P2", "P3", "P6"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"],
        budget: "0=23552MiB", unordered: "twelve processes race and die at random", seconds: 600,
        on_real: No("counts on the simulated device"),
    } (session) {
        let device = mock_device::DeviceIndex(0);
        // The short form's processes use CUDA alone: the Khronos validation layer makes a Vulkan client slow to begin.
        let apis: &[Api] = match asked_kills() {
            Some(_) => &[Api::Cuda, Api::Vulkan],
            None => &[Api::Cuda],
        };
        let mut storm = Storm::start(session, 1, PROCESSES, apis)?;
        let kills = asked_kills().unwrap_or(200);
        let outcome = storm.rage(kills)?;
        storm.end()?;
        let world = session.world()?;
        let budget = crate::greed::budget(session, 0)?;
        ensure!(world.peak(device) <= budget, "{} held at the peak, under {budget}", world.peak(device));
        ensure!(outcome.grants >= kills, "only {} allocations were granted among {kills} kills", outcome.grants);
        session.eventually("the device is empty again", || world.used(device) == Bytes::ZERO)?;
        let Ok(ledger) = session.ledger() else { return Ok(()) };
        let before_the_last_reap = ledger.usage(DeviceIndex(0));
        session.eventually("the ledger is empty again", || {
            ledger.reap();
            ledger.usage(DeviceIndex(0)).0 == 0
        })?;
        let stats = ledger.stats();
        if asked_kills().is_some() {
            eprintln!("kills                      {kills}, among {PROCESSES} processes, every second by Vulkan");
            eprintln!("requests                   {} granted, {} refused", outcome.grants, outcome.refusals);
            eprintln!("largest sum held / budget  {} / {}", world.peak(device).0, budget.0);
            eprintln!("bytes left                 {} on the device, 0 in the ledger ({} before the last reap)", world.used(device).0, before_the_last_reap.0);
            eprintln!("tries again                {} in all, {} at most for one request; reaped {}", stats.retries, stats.most_retries, stats.reaps);
            eprintln!("longest time in the ledger {:?}, waits for the driver's teardown apart; longest of those {:?}",
                Duration::from_nanos(stats.longest_stall), Duration::from_nanos(stats.longest_drain));
            eprintln!("slow requests, granted     {}", outcome.waits.whole.len());
            eprintln!("  each as a whole          {}", Waits::told(&outcome.waits.whole));
            eprintln!("  with room on the device  {}", Waits::told(&outcome.waits.with_room));
            eprintln!("longest allocation of each place, less the machine's own delays, teardown waits included:");
            for (place, longest) in outcome.longest.iter().enumerate() {
                eprintln!("  {place:>2}  {longest:?}");
            }
        }
        ensure!(
            stats.most_retries <= MOST_TRIES,
            "one request tried {} times: {stats:?}",
            stats.most_retries
        );
        Ok(())
    }
}
