//! The ledger as its owner sees it, and what late-comers find in it. These look at our own ledger.

use std::os::unix::fs::MetadataExt;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};
use ledger::DeviceIndex;

use crate::clients::{Gpu, context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::Cuda;
use crate::ffi::process::{Exhausted, HIDES, in_root, lock_byte, overhear};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const FIRST: DeviceIndex = DeviceIndex(0);

/// What was done to the ledger's file, which an enforcer without one has not.
fn unless_absent(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

cases! {
    /// The owner changes a budget while processes run: more is granted at once, less refuses at once, nothing is taken away.
    a_budget_can_be_changed_live {
        kind: Own, defects: ["P8", "C4"], entry_points: ["cuMemAlloc_v2", "cuMemGetInfo_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(6).0).code, OUT_OF_MEMORY, "6 of 4 GiB");
        let owner = session.ledger()?;
        owner.set_budget(FIRST, ledger::Bytes(Bytes::gib(12).0));
        let six = cuda.allocate(Bytes::gib(6).0);
        ensure_eq!(six.code, OK, "6 of 12 GiB");
        ensure_eq!(cuda.memory_info().out.1, Bytes::gib(12).0, "the total told");
        owner.set_budget(FIRST, ledger::Bytes(Bytes::gib(5).0));
        ensure_eq!(cuda.allocate(1 << 21).code, OUT_OF_MEMORY, "2 MiB more under 5 GiB, 6 in use");
        ensure_eq!(cuda.memory_info().out.0, 0, "free while usage is above the budget");
        ensure_eq!(cuda.free(six.out), OK, "cuMemFree_v2");
        fills(fill(&cuda).bytes, Bytes::gib(5), CONTEXT_ROOM)?;
        // So that the checkers, which know the case's budget, see it kept at the end; the peak was the owner's wish.
        owner.set_budget(FIRST, ledger::Bytes(Bytes::gib(12).0));
        Ok(())
    }

    /// What a process takes by cuInit, while it has no descriptor left for the ledger, is charged when it has.
    what_cuinit_takes_without_a_ledger_is_charged_later {
        kind: Own, defects: ["R66"], entry_points: ["cuDriverGetVersion", "cuInit", "cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the vendor's cuInit needs more descriptors than our ledger"),
    } (session) {
        let cuda = Cuda::open()?;
        // Where calls are recorded the driver keeps a descriptor for that from its first call on.
        ensure_eq!(cuda.driver_version().code, OK, "cuDriverGetVersion");
        let said = overhear(|| {
            let _held = Exhausted::but(1)?;
            Ok::<_, Failure>(cuda.init())
        })?;
        ensure_eq!(said.0?, OK, "cuInit, beside which was said {:?}", said.1[1]);
        ensure!(said.1[1].contains("every allocation is refused"), "not said: {:?}", said.1[1]);
        context(&cuda, 0)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A late-comer with other settings keeps the ledger's budget and says so, once.
    a_late_comer_keeps_the_ledgers_budget {
        kind: Budget, defects: ["P8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        unordered: "the late-comer's settings are a budget of its own",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 GiB of the first comer");
        let late = session
            .launch("tenant")
            .env("CUDA_DEVICE_MEMORY_LIMIT_0", "20g")
            .env("RINGFENCE_MEMORY_0", "20g");
        let mut late = Tenant::launch(late)?;
        let taken = late.fill_cuda()?;
        fills(taken + Bytes::gib(1), budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        late.peer.finish()
    }

    /// The ledger knows at least what the device holds, process by process, and how far each is from its due.
    the_ledger_knows_what_the_device_holds {
        kind: Own, defects: ["C10", "P5"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=8GiB",
        on_real: No("compares with the simulated device"),
    } (session) {
        let cuda = cuda()?;
        cuda.allocate(Bytes::gib(2).0);
        cuda.allocate(1);
        let gpu = Gpu::first()?;
        gpu.allocate(Bytes::mib(100))?;
        let (ledger, world) = (session.ledger()?, session.world()?);
        let (known, held) = (ledger.usage(FIRST).0, world.used(mock_device::DeviceIndex(0)).0);
        ensure!(known >= held, "the ledger knows of {known}, the device holds {held}");
        ensure!(known - held <= CONTEXT_ROOM.0, "the ledger knows of {known}, the device holds only {held}");
        let own = std::process::id();
        let slots = ledger.slots();
        ensure!(slots.iter().all(|slot| slot.pid == own && slot.alive), "slots of this process alone: {slots:?}");
        ensure_eq!(slots.len(), 2, "slots of a process with both libraries");
        Ok(())
    }

    /// Requests that cannot fit cost no endless retries: refusals are counted one by one, and each in bounded tries.
    refusals_are_cheap_and_counted {
        kind: Own, defects: ["P2"], entry_points: ["cuMemAlloc_v2"], budget: "0=2GiB",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::mib(2).0).code, OK, "2 MiB");
        let ledger = session.ledger()?;
        let before = ledger.stats();
        for _ in 0..50 {
            ensure_eq!(cuda.allocate(Bytes::gib(3).0).code, OUT_OF_MEMORY, "3 of 2 GiB");
        }
        let after = ledger.stats();
        ensure_eq!(after.refusals - before.refusals, 50, "refusals counted");
        ensure!(after.retries - before.retries <= 50, "{} retries for 50 hopeless requests", after.retries - before.retries);
        Ok(())
    }

    /// A process that only looks at the memory is told the tenant's figures too.
    an_onlooker_is_told_the_tenants_figures {
        kind: Budget, defects: ["T4"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let mut holder = Tenant::start(session)?;
        ensure_eq!(holder.cuda(Bytes::gib(3))?, OK, "3 GiB of another process");
        let nvml = crate::clients::nvml()?;
        let device = crate::clients::told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = crate::clients::told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "total");
        ensure!(memory.used >= Bytes::gib(3).0, "{} used, another process holds 3 GiB", memory.used);
        ensure!(memory.used <= Bytes::gib(4).0, "{} used, another process holds 3 GiB", memory.used);
        holder.peer.finish()
    }

    /// A server that makes its context and then changes its root directory (chroot) goes on within its budget, by CUDA and by Vulkan: where the
    /// ledger's path leads nowhere, the ledger is still there.
    a_process_that_changes_its_root_keeps_its_budget {
        kind: Budget, defects: ["P14"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=8GiB",
        on_real: No("the vendor's driver may open files"),
    } (session) {
        let (cuda, gpu) = (cuda_without_context()?, Gpu::first()?);
        let retained = context(&cuda, 0)?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 GiB before");
        let root = session.directory().join("root");
        std::fs::create_dir_all(&root)?;
        let inside = || {
            cuda.set_current(retained);
            (gpu.allocate(Bytes::gib(1)).map(drop), fill(&cuda))
        };
        let (vulkan, taken) = match in_root(&root, inside) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(Failure::Skip(format!("no chroot here: {error}"))),
            inside => inside?,
        };
        ensure_eq!(vulkan, Ok(()), "1 GiB by vkAllocateMemory in another root");
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::gib(2), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A ledger's file that is removed while a process uses it gives no fresh budget: the next process goes on with it beside the first, and says so. What
    /// the first gives back is the other's to take.
    a_ledger_that_is_removed_gives_no_fresh_budget {
        kind: Budget, defects: ["R21", "R37"], entry_points: ["cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let mut holder = Tenant::start(session)?;
        ensure_eq!(holder.cuda(Bytes::gib(5))?, OK, "5 GiB of a process");
        unless_absent(std::fs::remove_file(session.ledger_path()))?;
        ensure_eq!(holder.cuda(Bytes::mib(512))?, OK, "512 MiB more of it");
        let newcomer = || -> Result<_, Failure> {
            let mut newcomer = Tenant::start(session)?;
            Ok((newcomer.fill_cuda()?, newcomer))
        };
        let (answer, [_, stderr]) = overhear(newcomer)?;
        let (taken, mut newcomer) = answer?;
        let budget = budget(session, 0)?;
        fills(taken + Bytes::gib(5) + Bytes::mib(512), budget, Bytes(2 * CONTEXT_ROOM.0))?;
        ensure!(stderr.contains("it was deleted while processes used it"), "on stderr: {stderr}");
        ensure_eq!(holder.cuda(Bytes::mib(512))?, OUT_OF_MEMORY, "more for the first one");
        holder.peer.finish()?;
        fills(taken + newcomer.fill_cuda()?, budget, CONTEXT_ROOM)?;
        newcomer.peer.finish()
    }

    /// Nor does it where the kernel shows nothing of its users but by another thread than the first, which has ended.
    a_ledger_that_is_removed_beside_processes_without_a_first_thread_gives_no_fresh_budget {
        kind: Budget, defects: ["R78", "R21"], entry_points: ["cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let mut holder = Tenant::without_first_thread(session)?;
        ensure_eq!(holder.cuda(Bytes::gib(5))?, OK, "5 GiB of a process");
        unless_absent(std::fs::remove_file(session.ledger_path()))?;
        let mut newcomer = Tenant::start(session)?;
        let taken = newcomer.fill_cuda()?;
        fills(taken + Bytes::gib(5), budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        newcomer.peer.finish()?;
        holder.peer.finish()
    }

    /// Nor does it where its users let nobody look at them, so that nobody finds it: what they hold is charged in the next one.
    a_ledger_that_is_removed_beside_processes_that_hide_gives_no_fresh_budget {
        kind: Budget, defects: ["R21", "R8"], entry_points: ["cuMemAlloc_v2"], budget: "0=8GiB", on_real: Alone(HIDES),
        unaccounted: "NVML's row lacks a few MiB of each context, and only who sees one made can tell how many",
    } (session) {
        let mut holders = Vec::new();
        for _ in 0..2 {
            let mut holder = Tenant::start(session)?;
            ensure_eq!(holder.cuda(Bytes::gib(2))?, OK, "2 GiB of a process");
            holder.ask("hide")?;
            holders.push(holder);
        }
        unless_absent(std::fs::remove_file(session.ledger_path()))?;
        let mut newcomer = Tenant::start(session)?;
        newcomer.ask("give-up-looking")?;
        let taken = newcomer.fill_cuda()?;
        fills(taken + Bytes::gib(4), budget(session, 0)?, Bytes(3 * CONTEXT_ROOM.0))?;
        newcomer.peer.finish()?;
        holders.into_iter().try_for_each(|holder| holder.peer.finish())
    }

    /// A ledger's file that is given another name while a process uses it gives no fresh budget either: it has its name again when the next one begins.
    a_ledger_that_is_renamed_gives_no_fresh_budget {
        kind: Budget, defects: ["R36"], entry_points: ["cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let mut holder = Tenant::start(session)?;
        ensure_eq!(holder.cuda(Bytes::gib(5))?, OK, "5 GiB of a process");
        let path = session.ledger_path();
        let number = || std::fs::metadata(path).map(|told| told.ino()).ok();
        let before = number();
        unless_absent(std::fs::rename(path, path.with_extension("before")))?;
        let mut newcomer = Tenant::start(session)?;
        let taken = newcomer.fill_cuda()?;
        fills(taken + Bytes::gib(5), budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        ensure_eq!(number(), before, "the file at the ledger's path");
        ensure_eq!(holder.cuda(Bytes::mib(512))?, OUT_OF_MEMORY, "more for the first one");
        newcomer.peer.finish()?;
        holder.peer.finish()
    }

    /// A process of the tenant that is stopped just as it buries another one keeps nobody from the memory that this one had.
    a_process_that_is_stopped_as_it_buries_another_keeps_nobody_waiting {
        kind: Own, defects: ["P15"], entry_points: ["cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let [mut dead, mut asker] = [Tenant::start(session)?, Tenant::start(session)?];
        ensure_eq!(dead.cuda(Bytes::gib(5))?, OK, "5 GiB of a process");
        ensure_eq!(asker.cuda(Bytes::gib(1))?, OK, "1 GiB of another");
        let file = std::fs::File::options().read(true).write(true).open(session.ledger_path())?;
        // What such a process has: of each slot the first of the bytes that are there for it.
        for slot in 0..4 {
            ensure!(lock_byte(&file, (ledger::SLOTS + slot * 64) as i64), "a reaper is at slot {slot}");
        }
        dead.peer.kill()?;
        ensure_eq!(asker.cuda(Bytes::gib(5))?, OK, "5 GiB once the first one is dead");
        asker.peer.finish()
    }
}
