//! What CUDA tells of the memory.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure, ensure_eq};

use crate::clients::{cuda, cuda_without_context, fill};
use crate::ffi::cuda::UNTOUCHED;
use crate::greed::budget;

/// What a driver leaves where it answers an error: what was there, or 0.
fn tells_nothing(place: u64) -> bool {
    place == UNTOUCHED || place == 0
}

cases! {
    /// cuMemGetInfo and cuDeviceTotalMem tell the budget as the total.
    cuda_tells_the_budget {
        kind: Budget, defects: ["T4"], entry_points: ["cuMemGetInfo_v2", "cuDeviceTotalMem_v2"], budget: "0=23552MiB",
    } (session) {
        let budget = budget(session, 0)?;
        let cuda = cuda()?;
        let info = cuda.memory_info();
        ensure_eq!(info.code, CUresult::SUCCESS, "cuMemGetInfo_v2");
        ensure_eq!(info.out.1, budget.0, "cuMemGetInfo_v2's total");
        ensure_eq!(cuda.total_memory(0).out, budget.0, "cuDeviceTotalMem_v2");
        ensure!(info.out.0 <= info.out.1, "{} free of {}", info.out.0, info.out.1);
        Ok(())
    }

    /// The total is told before any context exists.
    the_total_needs_no_context {
        kind: Budget, defects: ["C5", "T4"], entry_points: ["cuDeviceTotalMem_v2"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda_without_context()?;
        let total = cuda.total_memory(0);
        ensure_eq!((total.code, Bytes(total.out)), (CUresult::SUCCESS, budget(session, 0)?), "cuDeviceTotalMem_v2");
        Ok(())
    }

    /// A device that is not there has no total: the driver judges the ordinal, and nothing is told.
    a_device_that_is_not_there_has_no_total {
        defects: ["C5", "C7"], entry_points: ["cuDeviceTotalMem_v2", "cuDeviceTotalMem"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda_without_context()?;
        for ordinal in [99, -1, i32::MIN] {
            let (total, old) = (cuda.total_memory(ordinal), cuda.total_memory_v1(ordinal));
            ensure_eq!((total.code, old.code), (CUresult::ERROR_INVALID_DEVICE, CUresult::ERROR_INVALID_DEVICE), "of device {ordinal}");
            ensure!(tells_nothing(total.out) && old.out == 0, "a total of device {ordinal}: {}, {}", total.out, old.out);
        }
        Ok(())
    }

    /// Without a context cuMemGetInfo answers INVALID_CONTEXT and tells nothing.
    an_error_tells_nothing {
        defects: ["C7", "C8"], entry_points: ["cuMemGetInfo_v2", "cuMemGetInfo"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda_without_context()?;
        let info = cuda.memory_info();
        ensure_eq!(info.code, CUresult::ERROR_INVALID_CONTEXT, "cuMemGetInfo_v2");
        ensure!(tells_nothing(info.out.0) && tells_nothing(info.out.1), "free and total: {:?}", info.out);
        let old = cuda.memory_info_v1();
        ensure_eq!((old.code, old.out), (CUresult::ERROR_INVALID_CONTEXT, (0, 0)), "cuMemGetInfo");
        Ok(())
    }

    /// A budget above the card's size changes nothing: no API tells more than there is.
    a_budget_above_the_card_is_the_card {
        defects: ["T4"], entry_points: ["cuMemGetInfo_v2", "cuDeviceTotalMem_v2"], budget: "0=1048576GiB",
    } (_session) {
        let cuda = cuda()?;
        let info = cuda.memory_info();
        let total = cuda.total_memory(0);
        ensure_eq!((info.code, total.code), (CUresult::SUCCESS, CUresult::SUCCESS), "both calls");
        ensure_eq!(info.out.1, total.out, "cuMemGetInfo_v2's and cuDeviceTotalMem_v2's totals");
        ensure!(total.out < Bytes::gib(1024).0, "{} bytes told of one card", total.out);
        Ok(())
    }

    /// Free falls by what is allocated, comes back with it, and is less than a block once a block is refused.
    free_is_what_can_still_be_had {
        kind: Budget, defects: ["C4", "T4"], entry_points: ["cuMemGetInfo_v2", "cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let cuda = cuda()?;
        let free = || cuda.memory_info().out.0;
        let empty = free();
        ensure!(empty <= budget(session, 0)?.0, "{empty} bytes free under {}", budget(session, 0)?);
        let pointer = cuda.allocate(Bytes::gib(2).0).out;
        ensure_eq!(empty - free(), Bytes::gib(2).0, "what 2 GiB took of the free memory");
        ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
        ensure_eq!(free(), empty, "free after the free");
        let taken = fill(&cuda);
        ensure!(free() < Bytes::mib(2).0, "{} bytes are told free, 2 MiB were refused", free());
        ensure_eq!(taken.bytes.0 / Bytes::mib(2).0, empty / Bytes::mib(2).0, "blocks granted of those told free");
        Ok(())
    }
}
