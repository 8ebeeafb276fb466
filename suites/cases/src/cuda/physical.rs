//! Physical memory (cuMemCreate): charged from its creation until nothing holds it.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure_eq};

use super::routes::{OUT_OF_MEMORY, closed};
use crate::clients::{cuda, fill};
use crate::ffi::cuda::{Cuda, Purpose, Stream};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills};

const OK: CUresult = CUresult::SUCCESS;

const HALF: Bytes = Bytes::gib(3);
const LITTLE: Bytes = Bytes::mib(128);

/// 3 GiB beside 3 GiB that are charged, under a budget of 4 or 5.
fn is_charged(cuda: &Cuda, what: &str) -> Result<(), Failure> {
    ensure_eq!(
        cuda.allocate(HALF.0).code,
        OUT_OF_MEMORY,
        "3 GiB beside memory that {what}"
    );
    Ok(())
}

/// Beside it are room for a context and a little: refusing looks at NVML's row, and finds nothing that is not charged.
fn is_charged_once(cuda: &Cuda, what: &str) -> Result<(), Failure> {
    is_charged(cuda, what)?;
    let little = cuda.allocate(LITTLE.0);
    ensure_eq!(little.code, OK, "{LITTLE} beside memory that {what}");
    ensure_eq!(cuda.free(little.out), OK, "cuMemFree_v2");
    Ok(())
}

cases! {
    /// Physical memory without an address (cuMemCreate) is charged from its creation.
    created_memory_is_no_way_past_the_budget {
        kind: Budget, defects: ["R5"], entry_points: ["cuMemCreate"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEPS, |bytes| cuda.create_memory(0, bytes).code)
    }

    /// Released, mapped memory is still there, and a handle taken of the mapping holds it when that is gone.
    mapped_memory_is_charged_until_the_last_hold_is_gone {
        kind: Budget, defects: ["R5"], budget: "0=4GiB",
        entry_points: ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemUnmap"],
    } (session) {
        let cuda = cuda()?;
        let addresses = cuda.reserve_addresses(2 * HALF.0);
        ensure_eq!(addresses.code, OK, "cuMemAddressReserve");
        let (first, second) = (addresses.out, addresses.out + HALF.0);
        for _ in 0..3 {
            let created = cuda.create_memory(0, HALF.0);
            ensure_eq!(created.code, OK, "cuMemCreate");
            for address in [first, second] {
                ensure_eq!(cuda.map_memory(address, HALF.0, created.out), OK, "cuMemMap");
            }
            ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
            is_charged(&cuda, "is mapped twice")?;
            ensure_eq!(cuda.unmap_memory(first, HALF.0), OK, "cuMemUnmap of one mapping");
            is_charged(&cuda, "is mapped")?;
            let retained = cuda.retain_memory(second);
            ensure_eq!(retained.code, OK, "cuMemRetainAllocationHandle");
            ensure_eq!(cuda.unmap_memory(second, HALF.0), OK, "cuMemUnmap");
            is_charged(&cuda, "has a handle")?;
            ensure_eq!(cuda.release_memory(retained.out), OK, "cuMemRelease of the second handle");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Memory is charged to the device that the call names, not to the current context's.
    created_memory_is_charged_to_the_device_that_it_is_on {
        kind: Budget, defects: ["C9", "R5"], entry_points: ["cuMemCreate"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=1GiB,1=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let other = cuda.create_memory(1, HALF.0);
        ensure_eq!(other.code, OK, "3 GiB of the second GPU's 4, beside a context on the first with 1");
        ensure_eq!(cuda.create_memory(1, HALF.0).code, OUT_OF_MEMORY, "3 GiB more of it");
        ensure_eq!(cuda.release_memory(other.out), OK, "cuMemRelease");
        Ok(())
    }

    /// An exported descriptor holds the memory as a handle does.
    exported_memory_stays_charged {
        kind: Budget, defects: ["R5", "R9"], entry_points: ["cuMemExportToShareableHandle", "cuMemRelease"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let created = cuda.create_memory_for(Purpose::Sharing, 0, HALF.0);
        ensure_eq!(created.code, OK, "cuMemCreate");
        let exported = cuda.export_memory(created.out);
        ensure_eq!(exported.as_ref().err(), None, "cuMemExportToShareableHandle");
        ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        is_charged(&cuda, "has a descriptor")
    }

    /// Whoever imports it from its own descriptor again is charged for it once, also after NVML was asked.
    memory_that_its_maker_imports_again_is_charged_once {
        kind: Budget, defects: ["R9", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        for released_first in [true, false] {
            let created = cuda.create_memory_for(Purpose::Sharing, 0, HALF.0);
            ensure_eq!(created.code, OK, "cuMemCreate");
            let exported = cuda.export_memory(created.out);
            ensure_eq!(exported.as_ref().err(), None, "cuMemExportToShareableHandle");
            let release = || cuda.release_memory(created.out);
            if released_first {
                ensure_eq!(release(), OK, "cuMemRelease before the import");
            }
            let imported = exported.map(|descriptor| cuda.import_memory(&descriptor));
            let imported = imported.map_or(0, |imported| imported.out);
            is_charged_once(&cuda, "was imported again")?;
            if !released_first {
                ensure_eq!(release(), OK, "cuMemRelease after the import");
                is_charged_once(&cuda, "was imported and released")?;
            }
            ensure_eq!(cuda.release_memory(imported), OK, "cuMemRelease of what was imported");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So do the tiles of a sparse array.
    memory_of_an_arrays_tiles_stays_charged {
        kind: Budget, defects: ["R2", "R5"], budget: "0=4GiB",
        entry_points: ["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let array = cuda.create_sparse_array(1024, 1024);
        ensure_eq!(array.code, OK, "cuArray3DCreate_v2");
        for stream in [Stream::Legacy, Stream::PerThread] {
            let half = Bytes::mib(1536).0;
            let created = cuda.create_memory_for(Purpose::Tiles, 0, half);
            ensure_eq!(created.code, OK, "cuMemCreate");
            ensure_eq!(cuda.bind_tile(array.out, created.out, stream), OK, "cuMemMapArrayAsync on {stream:?}");
            ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        }
        let left = fill(&cuda).bytes + Bytes::gib(3);
        fills(left, budget(session, 0)?, CONTEXT_ROOM)
    }
}
