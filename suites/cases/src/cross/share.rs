//! One budget for CUDA and Vulkan, in one process and in several.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{Gpu, cuda, fill};
use crate::ffi::vulkan::Code;
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};
use crate::tenant::Tenant;

const BOTH_ROOMS: Bytes = Bytes(CONTEXT_ROOM.0 + VULKAN_ROOM.0);

/// `count` processes race for the budget, every second one by Vulkan if `mixed`; together they get it, and no more.
fn race(session: &Session, count: u64, mixed: bool) -> Result<(), Failure> {
    let mut tenants = (0..count)
        .map(|_| Tenant::start(session))
        .collect::<Result<Vec<_>, _>>()?;
    let api = |index: usize| {
        if mixed && index % 2 == 1 {
            "vulkan"
        } else {
            "cuda"
        }
    };
    // A context needs room: all have theirs before the race for the rest begins.
    for (index, tenant) in tenants.iter_mut().enumerate() {
        tenant.ask(&format!("ready-{}", api(index)))?;
    }
    for (index, tenant) in tenants.iter_mut().enumerate() {
        tenant.peer.say(&format!("fill-{}", api(index)))?;
    }
    let mut total = Bytes::ZERO;
    for tenant in &mut tenants {
        total += Bytes(tenant.peer.number()?);
    }
    fills(total, budget(session, 0)?, Bytes(count * CONTEXT_ROOM.0))?;
    for tenant in tenants {
        tenant.peer.finish()?;
    }
    Ok(())
}

cases! {
    /// In one process CUDA and Vulkan draw on one budget, CUDA first.
    cuda_and_vulkan_share_one_budget {
        kind: Budget, defects: ["V8", "P1"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda()?;
        let pointer = cuda.allocate(Bytes::gib(10).0);
        ensure_eq!(pointer.code, CUresult::SUCCESS, "10 GiB by CUDA");
        let gpu = Gpu::first()?;
        let taken = gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes + Bytes::gib(10), budget(session, 0)?, BOTH_ROOMS)?;
        ensure_eq!(cuda.allocate(Bytes::mib(64).0).code, CUresult::ERROR_OUT_OF_MEMORY, "64 MiB more by CUDA");
        ensure_eq!(cuda.free(pointer.out), CUresult::SUCCESS, "cuMemFree_v2");
        ensure_eq!(gpu.allocate(Bytes::gib(10)).err(), None, "CUDA's 10 GiB, now by Vulkan");
        Ok(())
    }

    /// The same with Vulkan first.
    vulkan_and_cuda_share_one_budget {
        kind: Budget, defects: ["V8", "P1"], entry_points: ["vkAllocateMemory", "cuMemAlloc_v2"], budget: "0=23552MiB",
    } (session) {
        let gpu = Gpu::first()?;
        let memory = gpu.allocate(Bytes::gib(10))?;
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::gib(10), budget(session, 0)?, BOTH_ROOMS)?;
        ensure_eq!(gpu.allocate(Bytes::mib(64)).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "64 MiB more by Vulkan");
        gpu.device.free(memory);
        ensure_eq!(cuda.allocate(Bytes::gib(10).0).code, CUresult::SUCCESS, "Vulkan's 10 GiB, now by CUDA");
        Ok(())
    }

    /// Two processes, one by CUDA and one by Vulkan, draw on one budget.
    two_processes_share_one_budget {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=23552MiB",
    } (session) {
        let (mut one, mut two) = (Tenant::start(session)?, Tenant::start(session)?);
        ensure_eq!(one.cuda(Bytes::gib(10))?, CUresult::SUCCESS, "10 GiB by CUDA");
        ensure_eq!(two.vulkan(Bytes::gib(15))?, Code::OUT_OF_DEVICE_MEMORY, "15 GiB by Vulkan beside it");
        ensure_eq!(two.vulkan(Bytes::gib(10))?, Code::SUCCESS, "10 GiB by Vulkan beside it");
        ensure_eq!(one.cuda(Bytes::gib(5))?, CUresult::ERROR_OUT_OF_MEMORY, "5 GiB more by CUDA");
        two.free()?;
        let rest = one.fill_cuda()?;
        fills(rest + Bytes::gib(10), budget(session, 0)?, BOTH_ROOMS)?;
        one.peer.finish()?;
        two.peer.finish()
    }

    /// Two processes that race by CUDA get the budget together, and no more.
    two_racing_processes_get_the_budget_together {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB", unordered: "two processes race",
    } (session) {
        race(session, 2, false)
    }

    /// So do twelve.
    twelve_racing_processes_get_the_budget_together {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB", unordered: "twelve processes race",
    } (session) {
        race(session, 12, false)
    }

    /// So do twelve of which every second one asks by Vulkan.
    twelve_mixed_processes_get_the_budget_together {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=23552MiB",
        unordered: "twelve processes race",
    } (session) {
        race(session, 12, true)
    }

    /// A process that met only the layer and one that met only the preload share the budget all the same.
    one_library_each_shares_one_budget {
        kind: Budget, defects: ["P1", "V8"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=23552MiB",
    } (session) {
        use harness::Libraries::{LayerOnly, PreloadOnly};
        let mut one = Tenant::launch(session.launch("tenant").libraries(PreloadOnly))?;
        let mut two = Tenant::launch(session.launch("tenant").libraries(LayerOnly))?;
        two.ask("ready-vulkan")?;
        let first = one.fill_cuda()?;
        fills(first, budget(session, 0)?, BOTH_ROOMS)?;
        ensure_eq!(two.vulkan(Bytes::mib(64))?, Code::OUT_OF_DEVICE_MEMORY, "64 MiB by Vulkan beside a full CUDA process");
        one.free()?;
        let second = two.fill_vulkan()?;
        ensure!(second <= budget(session, 0)?, "{second} by Vulkan");
        fills(second, budget(session, 0)?, BOTH_ROOMS)?;
        one.peer.finish()?;
        two.peer.finish()
    }
}
