//! cuGetProcAddress: exactly the variant that the driver would have given, and the budget kept by each.

use abi::cuda::CUresult;
use harness::{Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{cuda, cuda_without_context};
use crate::ffi::cuda::{Cuda, ProcAddress};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills, until_refused};

const OK: CUresult = CUresult::SUCCESS;
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;
/// CUdriverProcAddressQueryResult.
const FOUND: Option<i32> = Some(0);
const UNKNOWN_NAME: Option<i32> = Some(1);
const TOO_NEW: Option<i32> = Some(2);

/// By the newest cuGetProcAddress that the driver has: 470 has the first alone, which tells no status.
pub fn newest_look_up(
    session: &Session,
    cuda: &Cuda,
    name: &str,
    version: i32,
    flags: u64,
) -> Result<ProcAddress, Failure> {
    Ok(match session.exports("cuGetProcAddress_v2")? {
        true => cuda.proc_address(name, version, flags),
        false => cuda.proc_address_v1(name, version, flags),
    })
}

/// What an answer's cuMemAlloc or cuMemAllocAsync grants stays within the budget.
fn keeps_the_budget(
    session: &Session,
    cuda: &Cuda,
    answer: ProcAddress,
    ordered: bool,
) -> Result<(), Failure> {
    ensure_eq!(answer.code, OK, "cuGetProcAddress");
    let Some(address) = answer.address else {
        harness::fail!("cuGetProcAddress found nothing")
    };
    let taken = until_refused(&STEPS, |bytes| match ordered {
        true => cuda.allocate_async_by(address, bytes.0).granted(),
        false => cuda.allocate_by(address, bytes.0).granted(),
    });
    taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
    fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
}

cases! {
    /// cuMemAlloc by cuGetProcAddress_v2 keeps the budget.
    found_by_proc_address_it_keeps_the_budget {
        kind: Budget, defects: ["S1", "R4"], entry_points: ["cuGetProcAddress_v2", "cuMemAlloc_v2"],
        needs: ["cuGetProcAddress_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        keeps_the_budget(session, &cuda, cuda.proc_address("cuMemAlloc", 12000, 0), false)
    }

    /// By the older cuGetProcAddress it does too.
    found_by_the_older_proc_address_it_keeps_the_budget {
        kind: Budget, defects: ["S1"], entry_points: ["cuGetProcAddress", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        keeps_the_budget(session, &cuda, cuda.proc_address_v1("cuMemAlloc", 11040, 0), false)
    }

    /// cuMemAllocAsync asked for with the legacy stream keeps the budget.
    the_legacy_variant_keeps_the_budget {
        kind: Budget, defects: ["S1", "R4"], entry_points: ["cuGetProcAddress_v2", "cuMemAllocAsync"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let found = newest_look_up(session, &cuda, "cuMemAllocAsync", 12000, LEGACY_STREAM)?;
        keeps_the_budget(session, &cuda, found, true)
    }

    /// With the per-thread stream too.
    the_per_thread_variant_keeps_the_budget {
        kind: Budget, defects: ["S1", "R4"], entry_points: ["cuGetProcAddress_v2", "cuMemAllocAsync_ptsz"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let found = newest_look_up(session, &cuda, "cuMemAllocAsync", 12000, PER_THREAD_STREAM)?;
        keeps_the_budget(session, &cuda, found, true)
    }

    /// cuGetProcAddress found through itself still gives what keeps the budget.
    proc_address_of_proc_address_is_itself {
        defects: ["S1"], entry_points: ["cuGetProcAddress_v2"], needs: ["cuGetProcAddress_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda_without_context()?;
        let found = cuda.proc_address("cuGetProcAddress", 12000, 0);
        ensure_eq!((found.code, found.status), (OK, FOUND), "cuGetProcAddress of itself");
        let exported = cuda.library.address("cuGetProcAddress_v2");
        ensure!(found.address == exported, "it is not the exported cuGetProcAddress_v2");
        let older = cuda.proc_address("cuGetProcAddress", 11030, 0);
        let exported = cuda.library.address("cuGetProcAddress");
        ensure!(older.address == exported, "for CUDA 11.3 it is not the exported cuGetProcAddress");
        Ok(())
    }

    /// Each (name, version, flags) gives the export that the driver's own table names: base names, versions, streams.
    each_answer_is_the_right_export {
        defects: ["S1", "S2"], budget: "0=4GiB",
        entry_points: ["cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemGetInfo_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        let tells = session.exports("cuGetProcAddress_v2")?;
        let rows = [
            ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
            ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
            ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
            ("cuMemFree", 12000, PER_THREAD_STREAM, "cuMemFree_v2"),
            ("cuMemGetInfo", 12000, 0, "cuMemGetInfo_v2"),
            ("cuMemGetInfo", 3010, 0, "cuMemGetInfo"),
            ("cuDeviceTotalMem", 12000, 0, "cuDeviceTotalMem_v2"),
            ("cuMemAllocAsync", 12000, 0, "cuMemAllocAsync"),
            ("cuMemAllocAsync", 12000, LEGACY_STREAM, "cuMemAllocAsync"),
            ("cuMemAllocAsync", 12000, PER_THREAD_STREAM, "cuMemAllocAsync_ptsz"),
            ("cuMemFreeAsync", 12000, LEGACY_STREAM, "cuMemFreeAsync"),
            ("cuMemFreeAsync", 12000, PER_THREAD_STREAM, "cuMemFreeAsync_ptsz"),
            ("cuInit", 12000, 0, "cuInit"),
        ];
        for (name, version, flags, export) in rows {
            let answer = newest_look_up(session, &cuda, name, version, flags)?;
            let status = if tells { FOUND } else { None };
            ensure_eq!((answer.code, answer.status), (OK, status), "{name} for {version}, flags {flags}");
            ensure!(answer.address.is_some(), "{name} for {version}, flags {flags}, is NULL");
            ensure!(
                answer.address == cuda.library.address(export),
                "{name} for {version}, flags {flags}, is not the exported {export}"
            );
            if tells {
                let again = cuda.proc_address_without_status(name, version, flags);
                ensure_eq!((again.code, again.address == answer.address), (OK, true), "{name} with a NULL status");
            }
        }
        Ok(())
    }

    /// Where the driver answers with a version that nobody knows it is as one that has none, or the version keeps the budget; for a CUDA
    /// of before the known one is found.
    by_proc_address_an_unknown_version_is_no_way_past_the_budget {
        kind: Budget, defects: ["R23", "S1"], entry_points: ["cuGetProcAddress", "cuGetProcAddress_v2"], machine: "rtx6000-ada+999",
        needs: ["cuMemAlloc_v3"], budget: "0=4GiB",
    } (session) {
        const NEWEST: i32 = 99_000;
        let cuda = cuda()?;
        for (name, flags, ordered) in [
            ("cuMemAlloc", 0, false), ("cuMemAllocAsync", LEGACY_STREAM, true), ("cuMemAllocAsync", PER_THREAD_STREAM, true),
        ] {
            let newer = [cuda.proc_address(name, NEWEST, flags), cuda.proc_address_v1(name, NEWEST, flags)];
            for (answer, not_found) in newer.into_iter().zip([OK, CUresult::ERROR_NOT_FOUND]) {
                let Some(address) = answer.address else {
                    ensure_eq!(answer.code, not_found, "{name} for {NEWEST}, which is not found");
                    ensure!(matches!(answer.status, None | UNKNOWN_NAME | TOO_NEW), "its status is {:?}", answer.status);
                    continue;
                };
                let taken = until_refused(&STEPS, |bytes| match ordered {
                    true => cuda.allocate_async_by(address, bytes.0).granted(),
                    false => cuda.allocate_by(address, bytes.0).granted(),
                });
                let budget = budget(session, 0)?;
                ensure!(taken.bytes <= budget, "{} by {name} for {NEWEST} under {budget}", taken.bytes);
            }
            let older = cuda.proc_address(name, 13_050, flags);
            ensure_eq!((older.code, older.status, older.address.is_some()), (OK, FOUND, true), "{name} for 13050");
        }
        keeps_the_budget(session, &cuda, cuda.proc_address("cuMemAlloc", 13_050, 0), false)
    }

    /// Unknown names, names with a suffix, names newer than asked and impossible flags get the driver's answer and status.
    odd_questions_get_the_drivers_answer {
        defects: ["S1"], entry_points: ["cuGetProcAddress_v2", "cuGetProcAddress"], needs: ["cuGetProcAddress_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda_without_context()?;
        for name in ["cuThereIsNoSuchThing", "", "cuMemAlloc_v2", "malloc"] {
            let answer = cuda.proc_address(name, 12000, 0);
            ensure_eq!((answer.code, answer.address, answer.status), (OK, None, UNKNOWN_NAME), "\"{name}\"");
            let answer = cuda.proc_address_without_status(name, 12000, 0);
            ensure_eq!((answer.code, answer.address), (OK, None), "\"{name}\" with a NULL status");
            let answer = cuda.proc_address_v1(name, 12000, 0);
            ensure_eq!((answer.code, answer.address), (CUresult::ERROR_NOT_FOUND, None), "\"{name}\" by the older call");
        }
        let newer = cuda.proc_address("cuMemAllocAsync", 11010, 0);
        ensure_eq!((newer.code, newer.address, newer.status), (OK, None, TOO_NEW), "cuMemAllocAsync for CUDA 11.1");
        for flags in [4, 8, u64::MAX] {
            let odd = cuda.proc_address("cuMemAlloc", 12000, flags);
            ensure_eq!(odd.code, CUresult::ERROR_INVALID_VALUE, "flags {flags:#x}");
        }
        Ok(())
    }
}
