//! Devices and instances that come and go.

use std::time::{Duration, Instant};

use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};
use mock_device::DeviceIndex;

use crate::clients::{Gpu, first_gpu, instance};
use crate::faults::plan;
use crate::ffi::vulkan::{Client, Code};
use crate::greed::{VULKAN_ROOM, budget, fills, teardown_is_over};
use crate::tenant::Tenant;

/// Creates a device, takes and frees 1 GiB of it, and lets it go.
fn one_cycle() -> Result<(), Failure> {
    let gpu = Gpu::first()?;
    let memory = gpu.allocate(Bytes::gib(1))?;
    gpu.device.free(memory);
    Ok(())
}

/// Instances of one process that come and go: on every GPU the ledger charges what the simulated device holds for them, in blocks
/// of 64 KiB and up to `more` besides; the first is charged, and all that is goes with the last.
fn standing(session: &Session, more: Bytes) -> Result<(), Failure> {
    let (world, ledger) = (session.world()?, session.ledger_path());
    let charges = |what: &str, instances: usize| {
        let budgeted = |device: &u32| session.budget(*device).is_some();
        for device in (0..session.gpus()).filter(budgeted) {
            let held = world.used(DeviceIndex(device));
            let view =
                ledger::View::open(ledger).map_err(|error| Failure::Broken(error.to_string()))?;
            let charged = Bytes(view.usage(ledger::DeviceIndex(device)).0);
            let own = world.devices()[device as usize].vulkan_instance_overhead;
            ensure_eq!(
                held,
                if instances > 0 { own } else { Bytes::ZERO },
                "held of GPU {device} by {what}"
            );
            let room = if instances > 0 {
                Bytes::kib(64) + more
            } else {
                Bytes::ZERO
            };
            ensure!(
                (held..=held + room).contains(&charged),
                "{charged} of GPU {device} are charged for {what}, which hold {held} of it"
            );
        }
        Ok(())
    };
    let first = instance(Client::V1_0)?;
    charges("an instance", 1)?;
    let second = instance(Client::V1_3)?;
    charges("two instances", 2)?;
    drop(first);
    charges("the second instance", 1)?;
    drop(second);
    charges("no instance", 0)?;
    let _again = instance(Client::V1_1)?;
    charges("another instance", 1)
}

cases! {
    /// The loader lists a device until vkDestroyDevice has returned, and reads its handle where another thread makes a swapchain or names an object of another device:
    /// the driver has given that memory to somebody else by then. So nothing is waited for in between while other devices live: the quickest of so many ends takes less
    /// than NVML's answer, which is five milliseconds late.
    a_devices_end_beside_others_asks_for_no_figures {
        kind: Budget, defects: ["V33"], entry_points: ["vkDestroyDevice"], budget: "0=8GiB", faults: plan!("nvml-rows-late"),
        on_real: No("a vendor's driver takes its own time"),
    } (session) {
        let first = Gpu::first()?;
        let mut least = Duration::MAX;
        for _ in 0..12 {
            let other = first.instance.device(first.physical)?;
            let begun = Instant::now();
            drop(other);
            least = least.min(begun.elapsed());
        }
        ensure!(least < Duration::from_millis(4), "a device's end takes {least:?}");
        let taken = first.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// What a process's instances take of a GPU is charged, and once, from the first of them until the last is gone. Between
    /// them preload and layer know it only by NVML's row and a bound of what no row names.
    instances_are_charged_once {
        kind: Own, defects: ["C10", "V14"], entry_points: ["vkCreateInstance", "vkDestroyInstance"], budget: "0=2GiB",
    } (session) {
        standing(session, Bytes::mib(16))
    }

    /// Instances and devices that come and go leave nothing mapped: a program may have thousands of them, and mappings are as few.
    instances_that_come_and_go_leave_nothing_mapped {
        entry_points: ["vkCreateInstance", "vkDestroyInstance", "vkCreateDevice", "vkDestroyDevice"], budget: "0=4GiB",
        on_real: No("what the vendor's driver keeps mapped is its own affair"),
    } (session) {
        let come_and_go = |rounds: u32| {
            for _ in 0..rounds {
                one_cycle()?;
            }
            Ok::<_, Failure>(session.maps()?.ranges())
        };
        let before = come_and_go(2)?;
        ensure_eq!(come_and_go(12)?, before, "mapped ranges of files after twelve instances more");
        Ok(())
    }

    /// The layer alone charges what the device lost, here of an RTX 6000 Ada.
    instances_are_charged_to_the_block {
        kind: Own, defects: ["C10"], entry_points: ["vkCreateInstance", "vkDestroyInstance"], budget: "0=2GiB",
        libraries: LayerOnly, machine: "rtx6000-ada",
    } (session) {
        standing(session, Bytes::ZERO)
    }

    /// The same of an H200.
    instances_are_charged_to_the_block_on_an_h200 {
        kind: Own, defects: ["C10"], entry_points: ["vkCreateInstance", "vkDestroyInstance"], budget: "0=2GiB",
        libraries: LayerOnly, machine: "h200",
    } (session) {
        standing(session, Bytes::ZERO)
    }

    /// The same on a GPU where they take little.
    instances_are_charged_to_the_block_on_a_tiny_gpu {
        kind: Own, defects: ["C10"], entry_points: ["vkCreateInstance", "vkDestroyInstance"], budget: "0=512MiB",
        libraries: LayerOnly, machine: "tiny",
    } (session) {
        standing(session, Bytes::ZERO)
    }

    /// The same on each of two GPUs.
    instances_are_charged_on_every_gpu {
        kind: Own, defects: ["C10"], entry_points: ["vkCreateInstance", "vkDestroyInstance"], budget: "0=2GiB,1=1GiB",
        machine: "h200x2", needs_gpus: 2,
    } (session) {
        standing(session, Bytes::mib(16))
    }

    /// A device destroyed with its memory still allocated gives all of it back.
    a_destroyed_device_gives_its_memory_back {
        kind: Budget, defects: ["V9"], entry_points: ["vkDestroyDevice", "vkAllocateMemory"], budget: "0=6GiB",
        invalid_use: ["VUID-vkDestroyDevice-device-00378", "VUID-vkDestroyDevice-device-05137"],
    } (session) {
        let instance = instance(Client::V1_1)?;
        let physical = first_gpu(&instance)?;
        for round in 0..4 {
            let gpu = Gpu::on(&instance, physical)?;
            ensure_eq!(gpu.allocate(Bytes::gib(5)).err(), None, "5 of 6 GiB in round {round}");
            gpu.device.abandon_memory();
        }
        fills(Gpu::on(&instance, physical)?.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// A device destroyed in good order leaves nothing charged either, a hundred times over.
    a_hundred_devices_leave_nothing_charged {
        kind: Budget, defects: ["V9", "V13"], entry_points: ["vkCreateDevice", "vkDestroyDevice"], budget: "0=2GiB",
    } (session) {
        let instance = instance(Client::V1_1)?;
        let physical = first_gpu(&instance)?;
        for round in 0..100 {
            let gpu = Gpu::on(&instance, physical)?;
            ensure_eq!(gpu.allocate(Bytes::gib(1)).err(), None, "1 of 2 GiB in round {round}");
        }
        fills(Gpu::on(&instance, physical)?.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Instances that come and go, the layer unloaded and loaded with them, use one slot of the ledger.
    instance_cycles_use_one_slot {
        kind: Own, defects: ["P5"], entry_points: ["vkCreateInstance", "vkDestroyInstance"], budget: "0=2GiB",
        libraries: LayerOnly,
        on_real: No("the vendor's driver is incompatible from the thirty-first instance on, bare too (H200, 580.159.04)"),
    } (session) {
        for _ in 0..150 {
            one_cycle()?;
        }
        let ledger = session.ledger()?;
        let slots = ledger.slots().len();
        ensure_eq!(slots, 1, "slots in use after 150 instances of one process");
        Ok(())
    }

    /// Dispatch keys recur when devices come and go on two threads: each call still meets its own device.
    recurring_dispatch_keys_meet_their_own_device {
        kind: Budget, defects: ["V13", "V14"], entry_points: ["vkCreateDevice", "vkDestroyDevice", "vkAllocateMemory"],
        budget: "0=3GiB", unordered: "two threads race",
        on_real: No("the vendor's driver crashes under it, bare too (H200, 580.159.04)"),
    } (session) {
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let cycles = || (0..50).try_for_each(|_| one_cycle());
            let workers = [scope.spawn(cycles), scope.spawn(cycles)];
            workers.into_iter().map(|worker| worker.join()).collect()
        });
        for outcome in outcomes {
            outcome.unwrap_or_else(|_| Err(Failure::Broken("a thread panicked".to_owned())))?;
        }
        fills(Gpu::first()?.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// A Vulkan process that is killed gives everything back once the driver let go of it.
    a_killed_vulkan_process_gives_everything_back {
        kind: Budget, defects: ["V9", "P2", "P3"], entry_points: ["vkAllocateMemory"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let mut doomed = Tenant::start(session)?;
        ensure_eq!(doomed.vulkan(Bytes::gib(20))?, Code::SUCCESS, "20 GiB of another process");
        let gpu = Gpu::first()?;
        ensure_eq!(gpu.allocate(Bytes::gib(5)).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "5 GiB beside 20 of 23");
        doomed.peer.kill()?;
        let mut granted = None;
        session.eventually("20 GiB of the dead process are back", || {
            granted = gpu.allocate(Bytes::gib(20)).ok();
            granted.is_some()
        })?;
        let taken = gpu.fill();
        fills(taken.bytes + Bytes::gib(20), budget(session, 0)?, VULKAN_ROOM)
    }

    /// A process killed inside vkAllocateMemory leaves nothing charged, whether or not the driver had acted.
    killed_while_allocating_by_vulkan {
        kind: Budget, defects: ["V9", "P2"], entry_points: ["vkAllocateMemory"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
        faults: r#"
            fault = [
                { at = "vkAllocateMemory", then = "kill-before", role = "tenant" },
                { at = "vkAllocateMemory", then = "kill-after", role = "tenant#2" },
            ]
        "#,
    } (session) {
        for _ in 0..2 {
            let mut doomed = Tenant::start(session)?;
            doomed.peer.say(&format!("vulkan {}", Bytes::gib(20).0))?;
            doomed.peer.wait()?;
        }
        let gpu = Gpu::first()?;
        session.eventually("20 GiB of the dead are back", || {
            gpu.allocate(Bytes::gib(20)).is_ok()
        })?;
        teardown_is_over(session)?;
        let taken = gpu.fill();
        ensure!(taken.bytes < Bytes::gib(3), "{} beside 20 of 23 GiB", taken.bytes);
        fills(taken.bytes + Bytes::gib(20), budget(session, 0)?, VULKAN_ROOM)
    }
}
