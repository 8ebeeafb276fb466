//! Processes that end, and processes that only look as if they had.

use std::thread;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library as Built, Session, cases, ensure, ensure_eq, fail, roles};

use crate::clients::{context, cuda, fill};
use crate::ffi::cuda::{Cuda, IpcHandle, Open};
use crate::ffi::library::{Library, Visibility};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

/// Another process with 20 GiB, beside which 5 GiB are refused.
fn holder(session: &Session, cuda: &Cuda) -> Result<Tenant, Failure> {
    let mut holder = Tenant::start(session)?;
    ensure_eq!(
        holder.cuda(Bytes::gib(20))?,
        OK,
        "20 GiB of another process"
    );
    ensure_eq!(
        cuda.allocate(Bytes::gib(5).0).code,
        OUT_OF_MEMORY,
        "5 GiB beside 20 of 23"
    );
    Ok(holder)
}

/// The 20 GiB can be had again, and then no more than the budget.
fn comes_back(session: &Session, cuda: &Cuda) -> Result<(), Failure> {
    session.eventually("20 GiB of the dead process are back", || {
        cuda.allocate(Bytes::gib(20).0).code == OK
    })?;
    fills(
        fill(cuda).bytes + Bytes::gib(20),
        budget(session, 0)?,
        CONTEXT_ROOM,
    )
}

roles! {
    /// A process for which every clock of libc's stands still from before its first call on: what it gets.
    with_a_clock_that_stands_still(session, _parent) {
        let plugin = Library::open(&session.library(Built::Plugin)?.display().to_string(), Visibility::Local)?;
        ensure!(plugin.stop_clock(), "the plugin exports no core_stop_clock");
        fills(fill(&cuda()?).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}

/// More than half of what 3 GiB leave beside a context.
const IN_NO_ROW: Bytes = Bytes::mib(1600);

cases! {
    /// What a killed process held can be had again once the driver let go of it, and not a moment earlier: the device
    /// never holds more than the budget.
    a_killed_process_gives_everything_back {
        kind: Budget, defects: ["P2", "P3"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let cuda = cuda()?;
        let mut doomed = holder(session, &cuda)?;
        doomed.peer.kill()?;
        comes_back(session, &cuda)
    }

    /// A request right after the kill waits for the driver's teardown where the budget needs it, and is then granted.
    a_request_after_a_kill_waits_for_the_teardown {
        kind: Budget, defects: ["P2", "P3"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        on_real: No("the teardown of a real driver takes as long as it takes"),
    } (session) {
        let cuda = cuda()?;
        let mut doomed = holder(session, &cuda)?;
        doomed.peer.kill()?;
        let start = Instant::now();
        let answer = cuda.allocate(Bytes::gib(20).0);
        ensure_eq!(answer.code, OK, "20 GiB right after the kill, {:?} later", start.elapsed());
        fills(fill(&cuda).bytes + Bytes::gib(20), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So does a process that begins right after the kill and needs the dead one's bytes before it has a context: its row in NVML's lists is gone
    /// then, which says that the driver has let go, because the dead one had seen it.
    a_process_that_begins_after_a_kill_waits_for_the_teardown {
        kind: Budget, defects: ["P2", "P3"], entry_points: ["cuInit", "cuDevicePrimaryCtxRetain"], budget: "0=23552MiB",
        on_real: No("the teardown of a real driver takes as long as it takes"),
    } (session) {
        let mut doomed = Tenant::start(session)?;
        let all = doomed.fill_cuda()?;
        fills(all, budget(session, 0)?, CONTEXT_ROOM)?;
        let noted = session.ledger()?.slots().iter().any(|slot| slot.listed && slot.pid == doomed.peer.pid());
        ensure!(noted, "the ledger does not say that the process has a row");
        doomed.peer.kill()?;
        let mut next = Tenant::start(session)?;
        ensure_eq!(next.fill_cuda()?, all, "granted to a process that begins right after the kill");
        next.peer.finish()
    }

    /// So does one whose clock stands still (libfaketime's, CLOCK_MONOTONIC too), and waits no longer for it.
    a_process_with_a_clock_that_stands_still_waits_no_longer_for_the_teardown {
        kind: Budget, defects: ["P17"], entry_points: ["cuInit", "cuDevicePrimaryCtxRetain"], budget: "0=4GiB",
        on_real: No("what a vendor's driver makes of such a clock is its own"),
    } (session) {
        let mut doomed = Tenant::start(session)?;
        fills(doomed.fill_cuda()?, budget(session, 0)?, CONTEXT_ROOM)?;
        doomed.peer.kill()?;
        let clock = session.library(Built::Plugin)?.display().to_string();
        let order = [&[clock], session.preloads()].concat();
        session.launch("with_a_clock_that_stands_still").env("LD_PRELOAD", &order.join(":")).start()?.finish()
    }

    /// What a dead process held in no row since its Vulkan device was gone is charged for as long as the driver takes it apart: whoever needs it waits.
    what_was_held_in_no_row_behind_a_vulkan_device_is_waited_for {
        kind: Budget, defects: ["P24"], entry_points: ["cuMemCreate", "vkDestroyDevice", "cuMemAlloc_v2"], budget: "0=3GiB",
        on_real: No("the teardown of a real driver takes as long as it takes"),
    } (session) {
        let cuda = cuda()?;
        let mut doomed = Tenant::start(session)?;
        ensure_eq!(doomed.ask("ready-vulkan")?, 0, "a VkDevice");
        ensure_eq!(doomed.ask(&format!("physical {}", IN_NO_ROW.0))?, 0, "{IN_NO_ROW} by cuMemCreate");
        ensure_eq!(doomed.ask("end-vulkan")?, 0, "its end");
        doomed.peer.kill()?;
        ensure_eq!(cuda.allocate(IN_NO_ROW.0).code, OK, "{IN_NO_ROW} after the other's death");
        fills(fill(&cuda).bytes + IN_NO_ROW, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The same beside a row that names no more than what the process imported.
    what_was_held_beside_a_row_of_imports_is_waited_for {
        kind: Budget, defects: ["P24a"], entry_points: ["cuMemCreate", "cuIpcOpenMemHandle_v2", "cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=3GiB,1=3GiB", on_real: No("the teardown of a real driver takes as long as it takes"),
    } (session) {
        let cuda = cuda()?;
        let path = session.directory().join("handle");
        let mut doomed = Tenant::start(session)?;
        ensure_eq!(doomed.ask(&format!("lend {}", path.display()))?, 0, "2 MiB to be lent");
        let text = std::fs::read_to_string(&path)?;
        let Some(handle) = IpcHandle::parse(&text) else {
            fail!("\"{text}\" is no handle")
        };
        // Held here and opened there beside another device's contexts.
        context(&cuda, 1)?;
        ensure_eq!(cuda.open_ipc(Open::Second, &handle).code, OK, "cuIpcOpenMemHandle_v2");
        for step in ["free", "device 1", &format!("open {text}")] {
            ensure_eq!(doomed.ask(step)?, 0, "{step}");
        }
        context(&cuda, 0)?;
        ensure_eq!(doomed.ask(&format!("without-context {}", IN_NO_ROW.0))?, 0, "{IN_NO_ROW} by cuMemCreate, and no context");
        doomed.peer.kill()?;
        ensure_eq!(cuda.allocate(IN_NO_ROW.0).code, OK, "{IN_NO_ROW} after the other's death");
        fills(fill(&cuda).bytes + IN_NO_ROW, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What a process held that ended long ago is told as free to who asks once: programs size themselves by that. What was in no row of it is awaited, as
    /// nobody knows when it ended.
    a_process_that_ended_long_ago_is_told_as_free_at_once {
        defects: ["P23", "T4"], entry_points: ["cuMemGetInfo_v2"], budget: "0=23552MiB",
    } (session) {
        const IN_NO_ROW: u64 = Bytes::mib(32).0;
        let cuda = cuda()?;
        let before = cuda.memory_info().out.0;
        for _ in 0..2 {
            let mut doomed = Tenant::start(session)?;
            ensure_eq!(doomed.cuda(Bytes::gib(20))?, OK, "20 GiB of another process");
            doomed.peer.kill()?;
            // More than any teardown takes, and than looks for the dead are apart.
            thread::sleep(Duration::from_secs(2));
            let free = cuda.memory_info().out.0;
            ensure!(free + IN_NO_ROW >= before, "{free} free two seconds after the other's end, {before} before it began");
        }
        Ok(())
    }

    /// What a killed process held is told as free again, to whoever asks again and again: the dead are not looked for each time.
    a_killed_process_is_told_as_free_again {
        kind: Budget, defects: ["P3", "T4"], entry_points: ["cuMemGetInfo_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let cuda = cuda()?;
        let told = || cuda.memory_info().out;
        let before = told();
        ensure_eq!(before.1, budget(session, 0)?.0, "cuMemGetInfo_v2's total");
        let mut doomed = Tenant::start(session)?;
        ensure_eq!(doomed.cuda(Bytes::gib(20))?, OK, "20 GiB of another process");
        for _ in 0..100 {
            ensure!(told().0 + Bytes::gib(20).0 <= before.0, "{} free beside 20 GiB, {} before", told().0, before.0);
        }
        doomed.peer.kill()?;
        let mut code = OK;
        session.eventually("as much is told as free as before", || {
            let info = cuda.memory_info();
            code = info.code;
            code != OK || info.out.0 == before.0
        })?;
        ensure_eq!(code, OK, "cuMemGetInfo_v2 while it is waited for");
        Ok(())
    }

    /// A process that ends in good order, with its memory still allocated, gives everything back.
    a_process_that_exits_gives_everything_back {
        kind: Budget, defects: ["P3"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let cuda = cuda()?;
        holder(session, &cuda)?.peer.finish()?;
        comes_back(session, &cuda)
    }

    /// Thirty processes that are killed one after another, each with 20 of 23 GiB, leave nothing behind.
    thirty_kills_leave_nothing_behind {
        kind: Budget, defects: ["P2", "P3", "P6"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
    } (session) {
        for round in 0..30 {
            let mut doomed = Tenant::start(session)?;
            session.eventually(&format!("20 GiB are granted in round {round}"), || {
                matches!(doomed.cuda(Bytes::gib(20)), Ok(OK))
            })?;
            doomed.peer.kill()?;
        }
        comes_back(session, &cuda()?)
    }

    /// A stopped process keeps what it holds, and stops nobody else.
    a_stopped_process_keeps_its_charge_and_stops_nobody {
        kind: Budget, defects: ["P2"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda()?;
        let holder = holder(session, &cuda)?;
        holder.peer.suspend()?;
        ensure_eq!(cuda.allocate(Bytes::gib(5).0).code, OUT_OF_MEMORY, "5 GiB beside a stopped 20 of 23");
        let tries = || session.ledger().map(|ledger| ledger.stats().retries).ok();
        let before = tries();
        // Answered at all, as the other is stopped all the while; and without a second try, where that is counted.
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 GiB beside a stopped 20 of 23");
        ensure_eq!(tries(), before, "tries again before and after 1 GiB beside a stopped process");
        holder.peer.resume()?;
        holder.peer.finish()
    }

    /// A process's name is arbitrary bytes: one that looks like a zombie's row in /proc keeps what it holds.
    a_process_named_like_a_zombie_keeps_its_charge {
        kind: Budget, defects: ["P4"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda()?;
        let mut named = Tenant::start(session)?;
        named.ask("rename x) Z 0 (y")?;
        ensure_eq!(named.cuda(Bytes::gib(20))?, OK, "20 GiB of a process with an odd name");
        for _ in 0..3 {
            ensure_eq!(cuda.allocate(Bytes::gib(5).0).code, OUT_OF_MEMORY, "5 GiB beside it");
        }
        named.peer.finish()
    }

    /// A daemon that closes every descriptor above stderr keeps what it holds, and can go on allocating and freeing.
    closing_every_descriptor_keeps_the_charge {
        kind: Budget, defects: ["P7"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=23552MiB",
        on_real: No("the vendor's driver itself does not survive its descriptors"),
    } (session) {
        let cuda = cuda()?;
        let mut daemon = holder(session, &cuda)?;
        daemon.ask("close-descriptors")?;
        for _ in 0..3 {
            ensure_eq!(cuda.allocate(Bytes::gib(5).0).code, OUT_OF_MEMORY, "5 GiB beside a daemon's 20 of 23");
        }
        ensure_eq!(daemon.cuda(Bytes::gib(1))?, OK, "1 GiB more for the daemon");
        daemon.free()?;
        let taken = fill(&cuda);
        fills(taken.bytes, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        daemon.peer.finish()
    }

    /// Exec ends the old program: what it held can be had again though the process lives on.
    exec_gives_everything_back {
        kind: Budget, defects: ["P7"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let cuda = cuda()?;
        let mut changed = holder(session, &cuda)?;
        changed.peer.say("become 30")?;
        comes_back(session, &cuda)?;
        changed.peer.kill()?;
        Ok(())
    }
}
