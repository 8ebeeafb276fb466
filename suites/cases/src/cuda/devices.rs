//! More than one GPU.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure, ensure_eq};

use crate::clients::{context, cuda_without_context, fill};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

cases! {
    /// Each device keeps its own budget: what is used of one takes nothing from the other.
    each_device_has_its_own_budget {
        kind: Budget, defects: ["C9"], entry_points: ["cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=4GiB,1=6GiB",
    } (session) {
        let cuda = cuda_without_context()?;
        for device in [0, 1, 0, 1] {
            context(&cuda, device)?;
            let taken = fill(&cuda);
            taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
            let told = cuda.memory_info().out.1;
            let budget = budget(session, device as u32)?;
            ensure_eq!(Bytes(told), budget, "the total that device {device} tells");
            fills(taken.bytes, budget, CONTEXT_ROOM)?;
            for pointer in taken.held {
                ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
            }
        }
        Ok(())
    }

    /// The driver is asked who its devices are, and for none that it does not count: tools that watch a program's calls would tell it of a failure.
    no_device_is_asked_for_that_is_not_there {
        defects: ["D3"], entry_points: ["cuInit", "cuMemAlloc_v2"], env: [("CUDA_VISIBLE_DEVICES", "0")], budget: "0=4GiB",
        faults: r#"fault = [
            { at = "cuDeviceGetUuid_v2", when = "2..", then = "kill-before" },
            { at = "cuDeviceGetUuid", when = "2..", then = "kill-before" },
            { at = "cuDeviceGetPCIBusId", when = "2..", then = "kill-before" },
        ]"#,
    } (_session) {
        let cuda = cuda_without_context()?;
        context(&cuda, 0)?;
        ensure_eq!(cuda.allocate(Bytes::mib(2).0).code, CUresult::SUCCESS, "2 MiB");
        Ok(())
    }

    /// A pointer is charged to the device it was allocated on, also when it is freed under another device's context.
    a_free_under_another_context_credits_the_right_device {
        kind: Budget, defects: ["C9"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], machine: "rtx6000-ada*2",
        needs_gpus: 2, budget: "0=4GiB,1=6GiB",
    } (session) {
        let cuda = cuda_without_context()?;
        let second = context(&cuda, 1)?;
        let first = context(&cuda, 0)?;
        let taken = fill(&cuda);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        cuda.set_current(second);
        for pointer in taken.held {
            ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
        }
        fills(fill(&cuda).bytes, budget(session, 1)?, CONTEXT_ROOM)?;
        cuda.set_current(first);
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A device without a budget is not limited by its neighbour's.
    a_device_without_a_budget_is_not_limited {
        kind: Budget, defects: ["C9"], entry_points: ["cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=4GiB", unaccounted: "device 1 has no budget",
    } (session) {
        let cuda = cuda_without_context()?;
        context(&cuda, 1)?;
        ensure_eq!(cuda.allocate(Bytes::gib(20).0).code, CUresult::SUCCESS, "20 GiB of device 1");
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// CUDA_VISIBLE_DEVICES changes ordinals, not budgets: index i counts the container's devices.
    a_subset_of_devices_keeps_their_budgets {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2", "cuDeviceTotalMem_v2"],
        machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=4GiB,1=6GiB", env: [("CUDA_VISIBLE_DEVICES", "1")],
    } (session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.device_count().out, 1, "visible devices");
        ensure_eq!(Bytes(cuda.total_memory(0).out), budget(session, 1)?, "the total of the visible device");
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 1)?, CONTEXT_ROOM)
    }

    /// A device that another process of the tenant has filled is no reason to refuse one that is shown others alone; one that is shown it is refused.
    a_full_device_that_is_not_shown_is_in_nobodys_way {
        kind: Budget, defects: ["C41"], entry_points: ["cuInit"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=4GiB,1=2GiB",
    } (session) {
        let shown = |devices| Tenant::launch(session.launch("tenant").env("CUDA_VISIBLE_DEVICES", devices));
        let (first, second) = (budget(session, 0)?, budget(session, 1)?);
        let mut holder = shown("1")?;
        fills(holder.fill_cuda()?, second, CONTEXT_ROOM)?;
        for _ in 0..2 {
            let refused = Tenant::start(session)?.ask("ready-cuda");
            ensure!(refused.is_err(), "a process that is shown a full device begins: {refused:?}");
            let mut other = shown("0")?;
            fills(other.fill_cuda()?, first, CONTEXT_ROOM)?;
            other.peer.finish()?;
        }
        holder.free()?;
        fills(shown("1")?.fill_cuda()?, second, CONTEXT_ROOM + CONTEXT_ROOM)?;
        holder.peer.finish()
    }

    /// A reordering by CUDA_VISIBLE_DEVICES keeps each device's budget with it.
    reordered_devices_keep_their_budgets {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2", "cuDeviceTotalMem_v2"],
        machine: "rtx6000-ada*4", needs_gpus: 4, budget: "0=2GiB,1=3GiB,2=4GiB,3=5GiB",
        env: [("CUDA_VISIBLE_DEVICES", "3,1,0")],
    } (session) {
        let cuda = cuda_without_context()?;
        for (ordinal, index) in [(0, 3), (1, 1), (2, 0)] {
            let budget = budget(session, index)?;
            ensure_eq!(Bytes(cuda.total_memory(ordinal).out), budget, "the total of ordinal {ordinal}");
            context(&cuda, ordinal)?;
            fills(fill(&cuda).bytes, budget, CONTEXT_ROOM)?;
        }
        Ok(())
    }

    /// Of more than 32 devices those without a budget pass, and no other's budget suffers.
    of_more_than_32_devices_those_without_a_budget_pass {
        kind: Budget, defects: ["P6", "C11"], entry_points: ["cuInit", "cuMemAlloc_v2"], machine: "rtx6000-ada*33", needs_gpus: 33,
        budget: "0=2GiB,31=3GiB",
    } (session) {
        let cuda = crate::clients::cuda()?;
        context(&cuda, 32)?;
        let free = cuda.allocate(Bytes::gib(4).0);
        ensure_eq!(free.code, CUresult::SUCCESS, "4 GiB of a device without a budget");
        ensure_eq!(cuda.free(free.out), CUresult::SUCCESS, "cuMemFree_v2");
        for device in [0, 31] {
            context(&cuda, device)?;
            fills(fill(&cuda).bytes, budget(session, device as u32)?, CONTEXT_ROOM)?;
        }
        Ok(())
    }
}
