//! Drivers that refuse or kill: what was reserved for the call comes back.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{cuda, fill};
use crate::ffi::cuda::{Cuda, Stream};
use crate::greed::{CONTEXT_ROOM, budget, fills, teardown_is_over};
use crate::tenant::Tenant;

const UNKNOWN: CUresult = CUresult::ERROR_UNKNOWN;
/// A device keeps so much for managed memory, from its first byte on.
const MANAGED: Bytes = Bytes::mib(128);

/// A tenant dies inside cuMemAlloc_v2; afterwards all of the budget can be had.
fn dies_while_allocating(session: &Session) -> Result<(), Failure> {
    let mut doomed = Tenant::start(session)?;
    doomed.peer.say(&format!("cuda {}", Bytes::gib(20).0))?;
    doomed.peer.wait()?;
    let cuda = cuda()?;
    session.eventually("20 GiB of the dead process are back", || {
        cuda.allocate(Bytes::gib(20).0).code == CUresult::SUCCESS
    })?;
    teardown_is_over(session)?;
    fills(
        fill(&cuda).bytes + Bytes::gib(20),
        budget(session, 0)?,
        CONTEXT_ROOM,
    )
}

cases! {
    /// Four times 10 GiB that the driver fails cost nothing of 23 GiB: the driver's code comes back, and the budget is
    /// still whole.
    a_failed_allocation_gives_its_reservation_back {
        kind: Budget, defects: ["C3"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        faults: r#"
            fault = [
                { at = "cuMemAlloc_v2", when = "1", then = "result:999" },
                { at = "cuMemAlloc_v2", when = "2", then = "result:999" },
                { at = "cuMemAlloc_v2", when = "3", then = "result:999" },
                { at = "cuMemAlloc_v2", when = "4", then = "result:999" },
            ]
        "#,
    } (session) {
        let cuda = cuda()?;
        for call in 1..=4 {
            ensure_eq!(cuda.allocate(Bytes::gib(10).0).code, UNKNOWN, "failing call {call}");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The same for stream-ordered allocations.
    a_failed_stream_ordered_allocation_gives_its_reservation_back {
        kind: Budget, defects: ["C3"], entry_points: ["cuMemAllocAsync"], budget: "0=23552MiB",
        faults: r#"
            fault = [
                { at = "cuMemAllocAsync", when = "1", then = "result:999" },
                { at = "cuMemAllocAsync", when = "2", then = "result:999" },
                { at = "cuMemAllocAsync", when = "3", then = "result:999" },
                { at = "cuMemAllocAsync", when = "4", then = "result:999" },
            ]
        "#,
    } (session) {
        let cuda = cuda()?;
        for call in 1..=4 {
            let answer = cuda.allocate_async(Stream::Legacy, Bytes::gib(10).0);
            ensure_eq!(answer.code, UNKNOWN, "failing call {call}");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A free that the driver fails leaves the charge where it was.
    a_failed_free_keeps_its_charge {
        kind: Budget, defects: ["C2"], entry_points: ["cuMemFree_v2"], budget: "0=10GiB",
        faults: r#"fault = [{ at = "cuMemFree_v2", when = "1", then = "result:999" }]"#,
    } (session) {
        let cuda = cuda()?;
        let pointer = cuda.allocate(Bytes::gib(6).0).out;
        ensure_eq!(cuda.free(pointer), UNKNOWN, "the failing free");
        let held = fill(&cuda);
        fills(held.bytes + Bytes::gib(6), budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "the same free again");
        ensure_eq!(cuda.allocate(Bytes::gib(6).0).code, CUresult::SUCCESS, "6 GiB after the free");
        Ok(())
    }

    /// A cuInit that fails returns its code and initialises nothing; a later one may succeed.
    a_failed_initialisation_may_succeed_later {
        defects: ["S6"], entry_points: ["cuInit"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuInit", when = "1", then = "result:999" }]"#,
    } (_session) {
        let cuda = Cuda::open()?;
        ensure_eq!(cuda.init(), UNKNOWN, "the failing cuInit");
        ensure_eq!(cuda.allocate(1).code, CUresult::ERROR_NOT_INITIALIZED, "cuMemAlloc_v2 after it");
        ensure_eq!(cuda.init(), CUresult::SUCCESS, "the next cuInit");
        crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.allocate(1).code, CUresult::SUCCESS, "cuMemAlloc_v2 after that");
        Ok(())
    }

    /// A pool of which the driver does not tell whether it is a device's default one is none that takes nothing: what comes from it is
    /// refused, nor does it become what plain requests come from.
    a_pool_that_the_driver_does_not_tell_grants_nothing {
        kind: Budget, defects: ["R4"], budget: "0=4GiB",
        entry_points: ["cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuDeviceSetMemPool"],
        faults: r#"fault = [{ at = "cuDeviceGetDefaultMemPool", when = "2..", then = "result:2" }]"#,
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.default_pool(0);
        ensure_eq!(pool.code, CUresult::SUCCESS, "cuDeviceGetDefaultMemPool by the program");
        let small = Bytes::mib(32);
        for stream in [Stream::Legacy, Stream::PerThread] {
            let taken = cuda.allocate_from_pool(stream, pool.out, small.0);
            ensure_eq!(taken.code, CUresult::ERROR_OUT_OF_MEMORY, "32 MiB from it on {stream:?}");
        }
        ensure_eq!(cuda.set_pool(0, pool.out), CUresult::ERROR_OUT_OF_MEMORY, "cuDeviceSetMemPool");
        ensure_eq!(cuda.allocate_async(Stream::Legacy, small.0).code, CUresult::SUCCESS, "cuMemAllocAsync");
        fills(fill(&cuda).bytes + small, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A primary context of which the driver does not say whether it still lives, after one of two holds on it is let go of, stays charged with all that it has.
    a_primary_context_that_the_driver_does_not_tell_of_stays_charged {
        kind: Budget, defects: ["R144"], entry_points: ["cuDevicePrimaryCtxRelease_v2", "cuMemAllocManaged"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuDevicePrimaryCtxGetState", then = "result:999" }]"#,
    } (session) {
        let cuda = cuda()?;
        let managed = Bytes::gib(1);
        ensure_eq!(cuda.allocate_managed(managed.0).code, CUresult::SUCCESS, "{managed} managed");
        ensure_eq!(cuda.retain_primary(0).code, CUresult::SUCCESS, "a second hold");
        ensure_eq!(cuda.release_primary(0), CUresult::SUCCESS, "one hold less");
        let rooms = CONTEXT_ROOM + MANAGED;
        fills(fill(&cuda).bytes + managed, budget(session, 0)?, rooms)
    }

    /// Where the driver does not say which device is current, no first managed memory passes without what the device keeps for it.
    managed_memory_on_a_device_that_the_driver_does_not_tell_is_refused {
        kind: Budget, defects: ["R145"], entry_points: ["cuMemAllocManaged"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuCtxGetDevice*", when = "2", then = "result:999" }]"#,
    } (session) {
        let cuda = cuda()?;
        let managed = Bytes::mib(100);
        let (before, _) = cuda.memory_info().out;
        if cuda.allocate_managed(managed.0).code != CUresult::SUCCESS {
            ensure_eq!(cuda.allocate_managed(managed.0).code, CUresult::SUCCESS, "the second request");
        }
        let (after, _) = cuda.memory_info().out;
        let charged = Bytes(before.saturating_sub(after));
        ensure!(charged >= managed + MANAGED, "{charged} are charged for {managed} and what the device keeps");
        fills(fill(&cuda).bytes + managed + MANAGED, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A process killed before the driver acted on its cuMemAlloc_v2 leaves nothing charged.
    killed_before_the_driver_acted {
        kind: Budget, defects: ["P2", "P3"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
        faults: r#"fault = [{ at = "cuMemAlloc_v2", then = "kill-before", role = "tenant" }]"#,
    } (session) {
        dies_while_allocating(session)
    }

    /// A process killed after the driver acted on its cuMemAlloc_v2 leaves nothing charged once the driver let go.
    killed_after_the_driver_acted {
        kind: Budget, defects: ["P2", "P3"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
        faults: r#"fault = [{ at = "cuMemAlloc_v2", then = "kill-after", role = "tenant" }]"#,
    } (session) {
        dies_while_allocating(session)
    }

    /// A process killed inside cuMemFree_v2 leaves nothing charged, whether or not the driver had acted.
    killed_while_freeing {
        kind: Budget, defects: ["P2", "P3"], entry_points: ["cuMemFree_v2"], budget: "0=23552MiB",
        unordered: "asks until the driver has let go",
        faults: r#"
            fault = [
                { at = "cuMemFree_v2", when = "1", then = "kill-before", role = "tenant" },
                { at = "cuMemFree_v2", when = "1", then = "kill-after", role = "tenant#2" },
            ]
        "#,
    } (session) {
        for _ in 0..2 {
            let mut doomed = Tenant::start(session)?;
            session.eventually("a tenant gets 20 GiB", || {
                matches!(doomed.cuda(Bytes::gib(20)), Ok(CUresult::SUCCESS))
            })?;
            doomed.peer.say("free")?;
            doomed.peer.wait()?;
        }
        let cuda = cuda()?;
        session.eventually("20 GiB of the dead are back", || {
            cuda.allocate(Bytes::gib(20).0).code == CUresult::SUCCESS
        })?;
        teardown_is_over(session)?;
        fills(fill(&cuda).bytes + Bytes::gib(20), budget(session, 0)?, CONTEXT_ROOM)
    }
}
