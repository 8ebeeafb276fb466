//! CUDA 13.1 to 13.5 by their headers. No such driver was asked: these run on a mock that has their names over what 580 answers
//! (`fixtures/drivers/615.toml`), and on a card whose driver has what they need.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure, ensure_eq};

use super::green::within;
use super::routes::{OUT_OF_MEMORY, closed};
use crate::clients::{cuda, fill};
use crate::ffi::cuda::{Begin, Purpose, Stream};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills, until_refused};

const OK: CUresult = CUresult::SUCCESS;
const NOT_SUPPORTED: CUresult = CUresult::ERROR_NOT_SUPPORTED;

/// A locality domain of a device: CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, with a byte of device and one of domain.
const fn domain(device: u8, domain: u8) -> (i32, i32) {
    (6, i32::from_le_bytes([device, domain, 0, 0]))
}

cases! {
    /// Memory of a device's locality domain (CUDA 13.4) is memory of that device, not of the current one and not the host's.
    memory_of_a_locality_domain_is_charged_to_its_device {
        kind: Budget, defects: ["R22", "C9"], entry_points: ["cuMemCreate"], machine: "rtx6000-ada*2+615", needs_gpus: 2,
        needs: ["cuMemGetLocationInfo"], budget: "0=4GiB,1=1GiB",
    } (session) {
        let cuda = cuda()?;
        let create = |location, bytes| cuda.create_memory_at(Purpose::Mapping, location, bytes);
        for part in [0, 1] {
            let code = create(domain(1, part), Bytes::gib(3).0).code;
            ensure_eq!(code, OUT_OF_MEMORY, "3 GiB of domain {part} of a GPU with 1 GiB");
        }
        let other = create(domain(1, 1), Bytes::mib(512).0);
        ensure_eq!(other.code, OK, "512 MiB there");
        ensure_eq!(cuda.release_memory(other.out), OK, "cuMemRelease");
        closed(session, &STEPS, |bytes| create(domain(0, 1), bytes).code)
    }

    /// So is what comes from pools there: made by the program, and those that the driver has.
    pools_of_a_locality_domain_are_charged {
        kind: Budget, defects: ["R22", "R1"], machine: "rtx6000-ada+615", needs: ["cuMemGetLocationInfo"], budget: "0=4GiB",
        entry_points: [
            "cuMemPoolCreate", "cuMemGetDefaultMemPool", "cuMemGetMemPool", "cuMemSetMemPool", "cuMemAllocFromPoolAsync", "cuMemAllocAsync",
        ],
    } (session) {
        let cuda = cuda()?;
        let own = cuda.create_pool_at(domain(0, 1));
        ensure_eq!(own.code, OK, "cuMemPoolCreate");
        let default = cuda.default_pool_of(domain(0, 0));
        ensure_eq!(default.code, OK, "cuMemGetDefaultMemPool");
        ensure_eq!(cuda.set_pool_of(domain(0, 1), own.out), OK, "cuMemSetMemPool");
        let current = cuda.current_pool_of(domain(0, 1));
        ensure_eq!(current.code, OK, "cuMemGetMemPool");
        let mut asked = 0;
        closed(session, &STEPS, |bytes| {
            asked += 1;
            match asked % 4 {
                0 => cuda.allocate_from_pool(Stream::Legacy, own.out, bytes).code,
                1 => cuda.allocate_from_pool(Stream::Legacy, default.out, bytes).code,
                2 => cuda.allocate_from_pool(Stream::Legacy, current.out, bytes).code,
                _ => cuda.allocate_async(Stream::Legacy, bytes).code,
            }
        })
    }

    /// A type of location that no header has, on a driver that has one: neither memory nor a pool there is granted, or the budget is kept.
    a_location_that_nobody_knows_is_no_way_past_the_budget {
        kind: Budget, defects: ["R22"], entry_points: ["cuMemCreate", "cuMemPoolCreate", "cuMemGetMemPool", "cuMemSetMemPool"],
        machine: "rtx6000-ada+999", needs: ["cuMemAlloc_v3"], budget: "0=4GiB",
    } (session) {
        const STRANGE: (i32, i32) = (7, 0);
        let cuda = cuda()?;
        for pool in [cuda.create_pool_at(STRANGE), cuda.current_pool_of(STRANGE)] {
            if pool.code != OK {
                ensure_eq!(pool.code, OUT_OF_MEMORY, "a pool there");
                continue;
            }
            ensure_eq!(cuda.set_pool_of(STRANGE, pool.out), OK, "cuMemSetMemPool");
            return closed(session, &STEPS, |bytes| cuda.allocate_from_pool(Stream::Legacy, pool.out, bytes).code);
        }
        // An enforcer that cannot know where that is may refuse all of it; elsewhere there is room for what the budget leaves.
        let there = until_refused(&STEPS, |bytes| match cuda.create_memory_at(Purpose::Mapping, STRANGE, bytes.0).code {
            OK => Ok(()),
            refused => Err(refused),
        });
        there.refused_with(OUT_OF_MEMORY)?;
        let budget = budget(session, 0)?;
        ensure!(there.bytes <= budget, "{} were granted there under {budget}", there.bytes);
        let here = fill(&cuda);
        here.refused_with(OUT_OF_MEMORY)?;
        fills(there.bytes + here.bytes, budget, CONTEXT_ROOM)?;
        within(session)
    }

    /// A limit whose cost nobody knows (memory of each block's own, CUDA 13.4: 4 GiB and more for 1 MiB each) is no way past the budget.
    a_limit_that_nobody_knows_is_no_way_past_the_budget {
        kind: Budget, defects: ["R23", "R6"], entry_points: ["cuCtxSetLimit"], machine: "rtx6000-ada+615", needs: ["cuMemGetLocationInfo"],
        budget: "0=2GiB",
    } (session) {
        const PER_BLOCK: i32 = 10;
        let cuda = cuda()?;
        let code = cuda.set_limit(PER_BLOCK, Bytes::mib(1).0);
        ensure!(code == CUresult::ERROR_UNSUPPORTED_LIMIT || code == OUT_OF_MEMORY, "cuCtxSetLimit answered {code:?}");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        within(session)
    }

    /// A capture over a graph's own nodes (CUDA 13.3), whether the driver begins one or not, leaves the budget as it is.
    a_recapture_is_no_way_past_the_budget {
        kind: Budget, defects: ["R23"], machine: "rtx6000-ada+615", needs: ["cuStreamBeginRecaptureToGraph"], budget: "0=2GiB",
        entry_points: ["cuStreamBeginRecaptureToGraph", "cuStreamBeginRecaptureToGraph_ptsz"],
    } (session) {
        let cuda = cuda()?;
        for way in [Begin::Again, Begin::AgainOfThread] {
            let graph = cuda.create_graph();
            ensure_eq!(graph.code, OK, "cuGraphCreate");
            let began = cuda.begin_capture(way, graph.out);
            ensure!(began == OK || began == NOT_SUPPORTED, "{way:?} answered {began:?}");
            if began == OK {
                ensure_eq!(cuda.end_capture().code, OK, "cuStreamEndCapture");
            }
            ensure_eq!(cuda.destroy_graph(graph.out), OK, "cuGraphDestroy");
        }
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}
