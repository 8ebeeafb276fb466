//! NULL, odd and impossible arguments: the driver's own answers, whatever the budget. The codes are the oracle's.

use std::thread;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use crate::clients::{cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Context, Cuda, Stream, UNTOUCHED};

const OK: CUresult = CUresult::SUCCESS;
const INVALID_VALUE: CUresult = CUresult::ERROR_INVALID_VALUE;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

const STREAMS: [Stream; 2] = [Stream::Legacy, Stream::PerThread];

/// Every hooked entry point with each pointer argument NULL, and with what a driver refuses.
fn odd_arguments(cuda: &Cuda) -> Result<(), Failure> {
    let mib = Bytes::mib(1).0;
    ensure_eq!(
        cuda.allocate_into_nothing(mib),
        INVALID_VALUE,
        "cuMemAlloc_v2(NULL, 1 MiB)"
    );
    let none = cuda.allocate(0);
    ensure_eq!(
        (none.code, none.out),
        (INVALID_VALUE, 0),
        "cuMemAlloc_v2(p, 0)"
    );
    for stream in STREAMS {
        let answer = cuda.allocate_async_into_nothing(stream, mib);
        ensure_eq!(
            answer,
            INVALID_VALUE,
            "cuMemAllocAsync(NULL, 1 MiB), {stream:?}"
        );
        ensure_eq!(
            cuda.free_async(stream, 0),
            OK,
            "cuMemFreeAsync(0), {stream:?}"
        );
    }
    ensure_eq!(cuda.free(0), OK, "cuMemFree_v2(0)");
    ensure_eq!(
        cuda.free(0x1000),
        INVALID_VALUE,
        "cuMemFree_v2 of an address nobody gave"
    );
    ensure_eq!(
        cuda.memory_info_into_nothing(),
        OK,
        "cuMemGetInfo_v2(NULL, NULL)"
    );
    let free = cuda.memory_info_free();
    ensure!(
        free.code == OK && free.out != UNTOUCHED,
        "cuMemGetInfo_v2(free, NULL): {free:?}"
    );
    let total = cuda.memory_info_total();
    ensure!(
        total.code == OK && total.out != UNTOUCHED,
        "cuMemGetInfo_v2(NULL, total): {total:?}"
    );
    ensure_eq!(
        cuda.total_memory_into_nothing(0),
        INVALID_VALUE,
        "cuDeviceTotalMem_v2(NULL, 0)"
    );
    let stranger = cuda.total_memory(99);
    ensure_eq!(
        stranger.code,
        CUresult::ERROR_INVALID_DEVICE,
        "cuDeviceTotalMem_v2(p, 99)"
    );
    ensure_eq!(
        stranger.out,
        0,
        "the total of device 99, as the H200 writes it"
    );
    Ok(())
}

cases! {
    /// In a host function no call is allowed, and the driver's own answer says so, whatever we would charge for it.
    in_a_host_function_the_driver_answers {
        defects: ["C43"], budget: "0=4GiB",
        entry_points: ["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuStreamCreate", "cuCtxSetLimit", "cuMemCreate", "cuMemGetInfo_v2", "cuLaunchHostFunc"],
    } (_session) {
        let cuda = cuda()?;
        let own = cuda.create_stream();
        ensure_eq!(own.code, OK, "cuStreamCreate");
        let mib = Bytes::mib(1).0;
        let calls: [(&str, &(dyn Fn() -> CUresult + Sync)); 7] = [
            ("cuMemAlloc_v2", &|| cuda.allocate(mib).code),
            ("cuMemAllocManaged", &|| cuda.allocate_managed(mib).code),
            ("cuMemAllocAsync", &|| cuda.allocate_async(Stream::Legacy, mib).code),
            ("cuStreamCreate", &|| cuda.create_stream().code),
            ("cuCtxSetLimit", &|| cuda.set_limit(0, 2_048)),
            ("cuMemCreate", &|| cuda.create_memory(0, mib).code),
            ("cuMemGetInfo_v2", &|| cuda.memory_info().code),
        ];
        let mut answers = Vec::new();
        let ran = cuda.in_host_function(own.out, &mut || answers.extend(calls.iter().map(|(name, call)| (*name, call()))));
        ensure_eq!(ran, OK, "cuLaunchHostFunc");
        ensure_eq!(answers.len(), calls.len(), "calls that were made in a host function");
        for (name, answer) in answers {
            ensure_eq!(answer, CUresult::ERROR_NOT_PERMITTED, "{name} in a host function");
        }
        Ok(())
    }

    /// Every hooked entry point answers each NULL pointer argument as the driver does.
    null_arguments_get_the_drivers_answer {
        defects: ["C1"], budget: "0=23552MiB",
        entry_points: [
            "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemFreeAsync",
            "cuMemFreeAsync_ptsz", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2",
        ],
    } (_session) {
        odd_arguments(&cuda()?)
    }

    /// With nothing left to allocate, what the driver would refuse for another reason still gets that reason.
    an_exhausted_budget_hides_no_other_answer {
        defects: ["C1", "C4"], budget: "0=2GiB",
        entry_points: [
            "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemFreeAsync",
            "cuMemFreeAsync_ptsz", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2",
        ],
    } (_session) {
        let cuda = cuda()?;
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        odd_arguments(&cuda)?;
        let info = cuda.memory_info();
        ensure!(info.code == OK && info.out.0 <= info.out.1, "free and total at the end: {info:?}");
        let worker = thread::scope(|scope| {
            scope.spawn(|| cuda.allocate(1).code).join()
        });
        ensure_eq!(worker.ok(), Some(CUresult::ERROR_INVALID_CONTEXT), "a thread without a context");
        Ok(())
    }

    /// Sizes up to 2^64 - 1 are refused as out of memory; nothing wraps, nothing is charged.
    impossible_sizes_are_out_of_memory {
        defects: ["C6"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemGetInfo_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let before = cuda.memory_info();
        for bytes in [u64::MAX, u64::MAX - (2 << 20) + 1, 1 << 63, 1 << 50] {
            let refused = cuda.allocate(bytes);
            ensure_eq!((refused.code, refused.out), (OUT_OF_MEMORY, 0), "cuMemAlloc_v2 of {bytes:#x}");
            let refused = cuda.allocate_async(Stream::Legacy, bytes);
            ensure_eq!(refused.code, OUT_OF_MEMORY, "cuMemAllocAsync of {bytes:#x}");
        }
        ensure_eq!(cuda.memory_info(), before, "free and total afterwards");
        Ok(())
    }

    /// What is beyond 32 bits counts in full, by every plain entry point: 4 GiB and a little are not a little.
    sizes_beyond_32_bits_count_in_full {
        kind: Budget, defects: ["C6"], entry_points: ["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocPitch_v2", "cuMemAllocAsync"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        for bytes in [1 << 32, (1 << 32) + 512, (1 << 33) + (2 << 20)] {
            let codes = [
                cuda.allocate(bytes).code,
                cuda.allocate_managed(bytes).code,
                cuda.allocate_pitch(1 << 20, bytes >> 20).code,
                cuda.allocate_async(Stream::Legacy, bytes).code,
            ];
            ensure_eq!(codes, [OUT_OF_MEMORY; 4], "{bytes:#x} bytes by four routes under 4 GiB");
        }
        let fits = 256 << 20;
        let codes = [
            cuda.allocate(fits).code,
            cuda.allocate_managed(fits).code,
            cuda.allocate_pitch(1 << 20, fits >> 20).code,
            cuda.allocate_async(Stream::Legacy, fits).code,
        ];
        ensure_eq!(codes, [OK; 4], "{fits:#x} bytes by four routes under 4 GiB");
        Ok(())
    }

    /// Before cuInit every hooked entry point answers CUDA_ERROR_NOT_INITIALIZED, and works once cuInit was called.
    before_initialisation_nothing_works_and_afterwards_all_does {
        defects: ["S6"], budget: "0=4GiB",
        entry_points: ["cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2"],
    } (_session) {
        const NOT_INITIALIZED: CUresult = CUresult::ERROR_NOT_INITIALIZED;
        let cuda = Cuda::open()?;
        ensure_eq!(cuda.allocate(1).code, NOT_INITIALIZED, "cuMemAlloc_v2");
        ensure_eq!(cuda.free(0), NOT_INITIALIZED, "cuMemFree_v2");
        ensure_eq!(cuda.allocate_async(Stream::Legacy, 1).code, NOT_INITIALIZED, "cuMemAllocAsync");
        ensure_eq!(cuda.free_async(Stream::Legacy, 0), NOT_INITIALIZED, "cuMemFreeAsync");
        ensure_eq!(cuda.memory_info().code, NOT_INITIALIZED, "cuMemGetInfo_v2");
        ensure_eq!(cuda.total_memory(0).code, NOT_INITIALIZED, "cuDeviceTotalMem_v2");
        ensure_eq!(cuda.init(), OK, "cuInit");
        crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.allocate(1).code, OK, "cuMemAlloc_v2 after cuInit");
        Ok(())
    }

    /// A thread without a context gets CUDA_ERROR_INVALID_CONTEXT, and nothing is charged to any device for it.
    a_thread_without_a_context_is_told_so {
        defects: ["C8"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemGetInfo_v2"], budget: "0=4GiB",
    } (_session) {
        const INVALID_CONTEXT: CUresult = CUresult::ERROR_INVALID_CONTEXT;
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, INVALID_CONTEXT, "cuMemAlloc_v2 with no context at all");
        ensure_eq!(cuda.memory_info().code, INVALID_CONTEXT, "cuMemGetInfo_v2 with no context at all");
        crate::clients::context(&cuda, 0)?;
        let before = cuda.memory_info();
        ensure_eq!(cuda.set_current(Context::NONE), OK, "cuCtxSetCurrent(NULL)");
        for _ in 0..8 {
            ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, INVALID_CONTEXT, "cuMemAlloc_v2");
        }
        crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.memory_info(), before, "free and total afterwards");
        Ok(())
    }

    /// Host memory is not the device's: with the budget used up page-locked memory can still be had, as long as its page tables fit into what is left.
    page_locked_host_memory_is_not_charged {
        defects: ["V10"], entry_points: ["cuMemAllocHost_v2"], budget: "0=1GiB",
    } (_session) {
        let cuda = cuda()?;
        fill(&cuda);
        let host = cuda.allocate_host(Bytes::mib(64).0);
        ensure_eq!(host.code, OK, "cuMemAllocHost_v2 of 64 MiB");
        ensure_eq!(cuda.free_host(host.out), OK, "cuMemFreeHost");
        Ok(())
    }

    /// What is written to device memory is read back, near the end of the budget too.
    memory_holds_what_was_written {
        defects: [], entry_points: ["cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let written: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
        let granted = cuda.allocate(Bytes::gib(1).0);
        ensure_eq!(granted.code, OK, "1 GiB");
        let last = granted.out + Bytes::gib(1).0 - written.len() as u64;
        ensure_eq!(cuda.write(last, &written), OK, "cuMemcpyHtoD_v2");
        let mut read = vec![0; written.len()];
        ensure_eq!(cuda.read(last, &mut read), OK, "cuMemcpyDtoH_v2");
        ensure!(read == written, "the last MiB came back changed");
        Ok(())
    }
}
