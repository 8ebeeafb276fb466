//! vkAllocateMemory until refused.

use std::time::{Duration, Instant};

use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, roles};

use crate::clients::{Gpu, memory_type};
use crate::ffi::vulkan::validation::SWITCH;
use crate::ffi::vulkan::{Code, Place};
use crate::greed::{VULKAN_ROOM, budget, fills};

const REFUSED: Code = Code::OUT_OF_DEVICE_MEMORY;

/// Eight threads that each hold 512 MiB now and then, for ten seconds at most: nobody is refused, and at the end all of the budget is there.
/// (An H200's driver takes 30 ms for each, one after another: 1,600 of them took it 47 to 56 s, with us and without.)
fn churned(session: &Session) -> Result<(), Failure> {
    let gpu = Gpu::first()?;
    let churn = |_: &usize| match gpu.allocate(Bytes::mib(512)) {
        Ok(memory) => {
            gpu.device.free(memory);
            false
        }
        Err(_) => true,
    };
    let end = Instant::now() + Duration::from_secs(10);
    let rounds = || (0..200).take_while(|_| Instant::now() < end);
    let refused: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| rounds().filter(churn).count()))
            .collect();
        let ended = workers.into_iter().map(|worker| worker.join());
        ended.map(|refused| refused.unwrap_or(usize::MAX)).sum()
    });
    ensure_eq!(refused, 0, "refusals though eight times 512 MiB fit");
    fills(gpu.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
}

roles! {
    /// Churns where the driver's own handles come through: the validation layer gives each object a handle of its own.
    churner(session, _parent) {
        churned(session)
    }
}

cases! {
    /// Under 23 GiB, 20 and 22 GiB are granted, 25 and 30 GiB are refused with VK_ERROR_OUT_OF_DEVICE_MEMORY, each freed
    /// before the next.
    vulkan_pull_request {
        kind: Budget, defects: ["V1", "V6", "V17"], entry_points: ["vkAllocateMemory", "vkFreeMemory"], budget: "0=23552MiB",
    } (_session) {
        let gpu = Gpu::first()?;
        for (gib, promised) in [(20, Code::SUCCESS), (22, Code::SUCCESS), (25, REFUSED), (30, REFUSED)] {
            let answer = gpu.device.ask(gpu.memory_type, Bytes::gib(gib).0);
            if let Some(memory) = answer.memory {
                gpu.device.free(memory);
            }
            ensure_eq!(answer.code, promised, "{gib} GiB");
        }
        Ok(())
    }

    /// A tenant that allocates by Vulkan until refused holds its budget, and no more.
    vulkan_allocates_to_the_budget {
        kind: Budget, defects: ["V1", "V6"], entry_points: ["vkAllocateMemory"], budget: "0=23552MiB",
    } (session) {
        let taken = Gpu::first()?.fill();
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)?;
        taken.refused_with(REFUSED)
    }

    /// A refused vkAllocateMemory leaves its out-parameter as it was.
    a_refused_vulkan_allocation_writes_nothing {
        kind: Budget, defects: ["C3"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
    } (_session) {
        let gpu = Gpu::first()?;
        let refused = gpu.device.ask(gpu.memory_type, Bytes::gib(5).0);
        ensure_eq!(refused.code, REFUSED, "5 GiB of 4");
        ensure!(refused.untouched, "the out-parameter of a refused vkAllocateMemory was written");
        let granted = gpu.device.ask(gpu.memory_type, Bytes::gib(2).0);
        ensure_eq!(granted.code, Code::SUCCESS, "2 GiB of 4 after a refusal");
        granted.memory.into_iter().for_each(|memory| gpu.device.free(memory));
        Ok(())
    }

    /// What was freed can be had again, as often as one likes.
    freed_vulkan_memory_can_be_had_again {
        kind: Budget, defects: ["V13"], entry_points: ["vkAllocateMemory", "vkFreeMemory"], budget: "0=6GiB",
    } (session) {
        let gpu = Gpu::first()?;
        let first = gpu.fill();
        fills(first.bytes, budget(session, 0)?, VULKAN_ROOM)?;
        let mut held = first.held;
        for round in 0..5 {
            held.drain(..).for_each(|memory| gpu.device.free(memory));
            gpu.device.free_nothing();
            let again = gpu.fill();
            ensure_eq!(again.bytes, first.bytes, "granted after round {round} of freeing everything");
            held = again.held;
        }
        Ok(())
    }

    /// Only device-local heaps are charged: with the budget used up, memory of the system's heap can still be had.
    system_memory_is_not_charged {
        kind: Budget, defects: ["V10"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
    } (session) {
        let gpu = Gpu::first()?;
        let host = memory_type(&gpu.instance, gpu.physical, Place::Host)?;
        for _ in 0..6 {
            gpu.device.allocate(host, Bytes::gib(1).0)?;
        }
        fills(gpu.fill().bytes, budget(session, 0)?, VULKAN_ROOM)?;
        gpu.device.allocate(host, Bytes::gib(1).0)?;
        Ok(())
    }

    /// Device memory that the host can see is device memory.
    visible_device_memory_is_charged {
        kind: Budget, defects: ["V10", "V17"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
    } (session) {
        let gpu = Gpu::first()?;
        let visible = memory_type(&gpu.instance, gpu.physical, Place::Visible)?;
        gpu.device.allocate(visible, Bytes::gib(2).0)?;
        let taken = gpu.fill();
        taken.refused_with(REFUSED)?;
        fills(taken.bytes + Bytes::gib(2), budget(session, 0)?, VULKAN_ROOM)
    }

    /// Four times 10 GiB that the driver fails cost nothing of 23 GiB.
    a_failed_vulkan_allocation_gives_its_reservation_back {
        kind: Budget, defects: ["V13"], entry_points: ["vkAllocateMemory"], budget: "0=23552MiB",
        faults: r#"
            fault = [
                { at = "vkAllocateMemory", when = "1", then = "result:-13" },
                { at = "vkAllocateMemory", when = "2", then = "result:-13" },
                { at = "vkAllocateMemory", when = "3", then = "result:-13" },
                { at = "vkAllocateMemory", when = "4", then = "result:-13" },
            ]
        "#,
    } (session) {
        let gpu = Gpu::first()?;
        for call in 1..=4 {
            ensure_eq!(gpu.allocate(Bytes::gib(10)), Err(Code::UNKNOWN), "failing call {call}");
        }
        fills(gpu.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Threads that allocate and free, handles recurring, lose and double nothing.
    churning_vulkan_threads_lose_nothing {
        kind: Budget, defects: ["V13"], entry_points: ["vkAllocateMemory", "vkFreeMemory"], budget: "0=6GiB",
        unordered: "eight threads race",
    } (session) {
        churned(session)
    }

    /// The driver gives a freed handle out again at once, to whichever thread comes first: it is the new object's, with the new object's charge.
    handles_that_come_back_at_once_lose_nothing {
        kind: Budget, defects: ["V13", "P13"], entry_points: ["vkAllocateMemory", "vkFreeMemory"], budget: "0=6GiB",
        unordered: "eight threads race",
    } (session) {
        session.launch("churner").env(SWITCH, "").start()?.finish()
    }
}
