//! Each thread's default stream: the driver makes it at the thread's first call that names it, whichever that is, and takes device memory for it
//! (R18 of `fixtures/defects.txt`). A thread's stream outlives it and serves the next.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use super::routes::OUT_OF_MEMORY;
use super::truth::within;
use crate::clients::{context, cuda, fill, nvml};
use crate::ffi::cuda::{Context, Cuda, OWN_STREAM, Places, Stream};
use crate::greed::budget;
use crate::vulkan::floor::row;

const OK: CUresult = CUresult::SUCCESS;
/// What a stream takes (H200), in blocks.
const EACH: u64 = 560 << 10;
const BLOCK: u64 = 2 << 20;

/// What is told free of the budget.
fn free(cuda: &Cuda) -> Result<u64, Failure> {
    let info = cuda.memory_info();
    ensure_eq!(info.code, OK, "cuMemGetInfo_v2");
    Ok(info.out.0)
}

/// Runs `act` in so many threads, all of which are there until it has come back in each.
fn at_once(
    cuda: &Cuda,
    context: Context,
    threads: usize,
    act: impl Fn() -> CUresult + Sync,
) -> Result<(), Failure> {
    let all = Barrier::new(threads);
    let codes: Vec<CUresult> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let current = cuda.set_current(context);
                    let code = act();
                    all.wait();
                    if current == OK { code } else { current }
                })
            })
            .collect();
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .collect()
    });
    ensure_eq!(codes.len(), threads, "threads that came back");
    for code in codes {
        ensure_eq!(code, OK, "a thread's call");
    }
    Ok(())
}

/// Runs `act` in so many threads, one after another, none of which ends before all have run it: what each answered.
fn one_after_another(
    cuda: &Cuda,
    context: Context,
    threads: usize,
    act: impl Fn() -> CUresult + Sync,
) -> Vec<CUresult> {
    let all = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let (answer, answers) = std::sync::mpsc::channel();
        let codes = (0..threads)
            .filter_map(|_| {
                let (answer, act, all) = (answer.clone(), &act, &all);
                scope.spawn(move || {
                    let current = cuda.set_current(context);
                    let code = act();
                    let _ = answer.send(if current == OK { code } else { current });
                    all.wait();
                });
                answers.recv().ok()
            })
            .collect();
        all.wait();
        codes
    })
}

/// By each of these a thread's first call makes its stream.
const MAKERS: &[&str] = &[
    "cuMemcpy_ptds",
    "cuMemcpyHtoD_v2_ptds",
    "cuMemcpyDtoH_v2_ptds",
    "cuMemcpyDtoD_v2_ptds",
    "cuMemcpyPeer_ptds",
    "cuMemcpyHtoA_v2_ptds",
    "cuMemcpyAtoH_v2_ptds",
    "cuMemcpyDtoA_v2_ptds",
    "cuMemcpyAtoD_v2_ptds",
    "cuMemcpyAtoA_v2_ptds",
    "cuMemcpy2D_v2_ptds",
    "cuMemcpy2DUnaligned_v2_ptds",
    "cuMemcpy3D_v2_ptds",
    "cuMemcpy3DPeer_ptds",
    "cuMemcpyAsync_ptsz",
    "cuMemcpyHtoDAsync_v2_ptsz",
    "cuMemcpyDtoDAsync_v2_ptsz",
    "cuEventRecord_ptsz",
    "cuStreamQuery_ptsz",
    "cuStreamWaitEvent_ptsz",
    "cuMemcpyAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuEventRecord",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuMemcpy3DPeerAsync",
];

/// What takes a stream otherwise, and which argument that is.
const OTHERS: &[(&str, usize)] = &[
    ("cuMemcpyDtoHAsync_v2", 3),
    ("cuMemcpyDtoDAsync_v2", 3),
    ("cuStreamGetPriority", 0),
    ("cuMemcpyDtoHAsync_v2_ptsz", 3),
    ("cuMemcpyPeerAsync", 5),
    ("cuMemcpyPeerAsync_ptsz", 5),
    ("cuMemcpyAtoHAsync_v2", 4),
    ("cuMemcpyAtoHAsync_v2_ptsz", 4),
    ("cuMemcpyHtoAAsync_v2", 4),
    ("cuMemcpyHtoAAsync_v2_ptsz", 4),
    ("cuStreamGetCtx_ptsz", 0),
    ("cuStreamGetPriority_ptsz", 0),
    ("cuStreamGetFlags", 0),
    ("cuStreamGetFlags_ptsz", 0),
    ("cuStreamBatchMemOp_v2", 0),
    ("cuStreamBatchMemOp_v2_ptsz", 0),
    ("cuStreamCopyAttributes", 0),
    ("cuStreamCopyAttributes_ptsz", 0),
    ("cuEventRecordWithFlags", 1),
    ("cuEventRecordWithFlags_ptsz", 1),
    ("cuMemcpy2DAsync_v2", 1),
    ("cuMemcpy3DAsync_v2", 1),
    ("cuMemcpyBatchAsync_v2", 7),
    ("cuMemcpy3DBatchAsync_v2", 3),
    ("cuMemBatchDecompressAsync", 4),
    ("cuMemPrefetchAsync_v2", 4),
    ("cuMemPrefetchBatchAsync", 7),
    ("cuMemDiscardBatchAsync", 4),
    ("cuMemDiscardAndPrefetchBatchAsync", 7),
    ("cuStreamGetDevice", 0),
    ("cuStreamGetId", 0),
    ("cuStreamGetCtx_v2", 0),
    ("cuStreamAddCallback", 0),
    ("cuStreamEndCapture", 0),
    ("cuStreamGetCaptureInfo_v3", 0),
    ("cuStreamUpdateCaptureDependencies_v2", 0),
    ("cuStreamAttachMemAsync", 0),
    ("cuStreamGetAttribute", 0),
    ("cuStreamSetAttribute", 0),
    ("cuSignalExternalSemaphoresAsync", 3),
    ("cuWaitExternalSemaphoresAsync", 3),
    ("cuStreamWaitValue32_v2", 0),
    ("cuStreamWaitValue64_v2", 0),
    ("cuStreamWriteValue32_v2", 0),
    ("cuStreamWriteValue64_v2", 0),
    ("cuLaunchHostFunc", 0),
    ("cuMemcpyHtoAAsync", 4),
    ("cuMemcpyAtoHAsync", 4),
    ("cuMemcpyHtoDAsync", 3),
    ("cuMemcpyDtoHAsync", 3),
    ("cuMemcpyDtoDAsync", 3),
    ("cuMemcpy2DAsync", 1),
    ("cuMemcpy3DAsync", 1),
    ("cuMemcpyBatchAsync", 8),
    ("cuMemcpy3DBatchAsync", 4),
    ("cuStreamWriteValue32", 0),
    ("cuStreamWaitValue32", 0),
    ("cuStreamWriteValue64", 0),
    ("cuStreamWaitValue64", 0),
    ("cuStreamBatchMemOp", 0),
    ("cuMemPrefetchAsync", 3),
    ("cuStreamGetCaptureInfo_v2", 0),
    ("cuStreamUpdateCaptureDependencies", 0),
    ("cuMemcpy2DAsync_v2_ptsz", 1),
    ("cuMemcpy3DAsync_v2_ptsz", 1),
    ("cuMemcpyBatchAsync_v2_ptsz", 7),
    ("cuMemcpy3DBatchAsync_v2_ptsz", 3),
    ("cuMemBatchDecompressAsync_ptsz", 4),
    ("cuMemPrefetchAsync_v2_ptsz", 4),
    ("cuMemPrefetchBatchAsync_ptsz", 7),
    ("cuMemDiscardBatchAsync_ptsz", 4),
    ("cuMemDiscardAndPrefetchBatchAsync_ptsz", 7),
    ("cuStreamGetDevice_ptsz", 0),
    ("cuStreamGetId_ptsz", 0),
    ("cuStreamGetCtx_v2_ptsz", 0),
    ("cuStreamAddCallback_ptsz", 0),
    ("cuStreamEndCapture_ptsz", 0),
    ("cuStreamGetCaptureInfo_v3_ptsz", 0),
    ("cuStreamUpdateCaptureDependencies_v2_ptsz", 0),
    ("cuStreamAttachMemAsync_ptsz", 0),
    ("cuStreamGetAttribute_ptsz", 0),
    ("cuStreamSetAttribute_ptsz", 0),
    ("cuSignalExternalSemaphoresAsync_ptsz", 3),
    ("cuWaitExternalSemaphoresAsync_ptsz", 3),
    ("cuStreamWaitValue32_v2_ptsz", 0),
    ("cuStreamWaitValue64_v2_ptsz", 0),
    ("cuStreamWriteValue32_v2_ptsz", 0),
    ("cuStreamWriteValue64_v2_ptsz", 0),
    ("cuLaunchHostFunc_ptsz", 0),
    ("cuMemcpyBatchAsync_ptsz", 8),
    ("cuMemcpy3DBatchAsync_ptsz", 4),
    ("cuStreamWriteValue32_ptsz", 0),
    ("cuStreamWaitValue32_ptsz", 0),
    ("cuStreamWriteValue64_ptsz", 0),
    ("cuStreamWaitValue64_ptsz", 0),
    ("cuStreamBatchMemOp_ptsz", 0),
    ("cuMemPrefetchAsync_ptsz", 3),
    ("cuStreamGetCaptureInfo_ptsz", 0),
    ("cuStreamGetCaptureInfo_v2_ptsz", 0),
    ("cuStreamUpdateCaptureDependencies_ptsz", 0),
    ("cuStreamGetCtx", 0),
    ("cuStreamIsCapturing", 0),
    ("cuStreamIsCapturing_ptsz", 0),
    ("cuStreamGetCaptureInfo", 0),
];

/// What takes a stream in CUDA 13.5, by its headers, or belongs to OpenGL.
const NEWER: &[(&str, usize)] = &[
    ("cuLaunchHostFunc_v2", 0),
    ("cuLaunchHostFunc_v2_ptsz", 0),
    ("cuMemcpyWithAttributesAsync", 4),
    ("cuMemcpyWithAttributesAsync_ptsz", 4),
    ("cuMemcpy3DWithAttributesAsync", 2),
    ("cuMemcpy3DWithAttributesAsync_ptsz", 2),
    ("cuStreamBeginCaptureToCig", 0),
    ("cuStreamBeginCaptureToCig_ptsz", 0),
    ("cuStreamEndCaptureToCig", 0),
    ("cuStreamEndCaptureToCig_ptsz", 0),
    ("cuStreamGetDevResource", 0),
    ("cuStreamGetDevResource_ptsz", 0),
    ("cuFabricCpyBatchAsync", 3),
    ("cuFabricCpyBatchAsync_ptsz", 3),
    ("cuGraphicsMapResources", 2),
    ("cuGraphicsMapResources_ptsz", 2),
    ("cuGraphicsUnmapResources", 2),
    ("cuGraphicsUnmapResources_ptsz", 2),
    ("cuGLMapBufferObjectAsync_v2", 3),
    ("cuGLMapBufferObjectAsync_v2_ptsz", 3),
    ("cuGLMapBufferObjectAsync", 3),
    ("cuGLUnmapBufferObjectAsync", 1),
    ("cuGLMapBufferObject_v2_ptds", 3),
];

/// Calls each with zeros on the thread's own stream, with the budget used up.
fn none_refused(calls: &[(&str, usize)]) -> Result<(), Failure> {
    let cuda = cuda()?;
    fill(&cuda).refused_with(OUT_OF_MEMORY)?;
    for (name, at) in calls.iter().filter(|(name, _)| cuda.exports(name)) {
        let mut words = [0; Cuda::WORDS];
        if let Some(stream) = words.get_mut(*at) {
            *stream = OWN_STREAM;
        }
        let code = cuda.call_by_name(name, words);
        ensure!(code != OUT_OF_MEMORY, "{name} with zeros: {code:?}");
    }
    Ok(())
}

cases! {
    /// Threads that make their streams at once wait for a look or two, and not for one each.
    threads_that_begin_at_once_are_looked_at_together {
        defects: ["P20"], budget: "0=8GiB", entry_points: ["cuStreamQuery"], unordered: "threads race",
        faults: r#"fault = [{ at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "delay:50ms" }]"#,
    } (_session) {
        /// Of a hundred looks.
        const MOST: Duration = Duration::from_millis(2500);
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let places = Places::of(&cuda, current)?;
        let began = Instant::now();
        at_once(&cuda, current, 100, || cuda.on_own_stream("cuStreamQuery", &places))?;
        let waited = began.elapsed();
        ensure!(waited < MOST, "100 threads made their streams in {waited:?}, with looks that take 50 ms");
        Ok(())
    }

    /// Whatever the call is by which a thread first uses its own default stream, what that takes is charged.
    a_threads_own_stream_is_charged_whatever_makes_it {
        kind: Budget, defects: ["R18", "C10"], budget: "0=1GiB", unordered: "threads race",
        entry_points: [
            "cuMemcpy3DPeerAsync_ptsz",
            "cuMemcpy3DPeerAsync",
            "cuMemcpy_ptds", "cuMemcpyHtoD_v2_ptds", "cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoD_v2_ptds", "cuMemcpyPeer_ptds", "cuMemcpyHtoA_v2_ptds",
            "cuMemcpyAtoH_v2_ptds", "cuMemcpyDtoA_v2_ptds", "cuMemcpyAtoD_v2_ptds", "cuMemcpyAtoA_v2_ptds", "cuMemcpy2D_v2_ptds",
            "cuMemcpy2DUnaligned_v2_ptds", "cuMemcpy3D_v2_ptds", "cuMemcpy3DPeer_ptds", "cuMemcpyAsync_ptsz", "cuMemcpyHtoDAsync_v2_ptsz",
            "cuMemcpyDtoDAsync_v2_ptsz", "cuEventRecord_ptsz", "cuStreamQuery_ptsz", "cuStreamWaitEvent_ptsz", "cuMemcpyAsync",
            "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuStreamQuery", "cuStreamWaitEvent",
        ],
    } (session) {
        const THREADS: usize = 8;
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let places = Places::of(&cuda, current)?;
        let mut most = free(&cuda)?;
        // Threads that come later find the streams of those that are gone: each call is tried in more of them than the one before.
        for (at, name) in MAKERS.iter().filter(|name| cuda.exports(name)).enumerate() {
            at_once(&cuda, current, THREADS * (at + 1), || cuda.on_own_stream(name, &places))?;
            let least = THREADS as u64 * EACH - 2 * BLOCK;
            let patience = Instant::now() + Duration::from_secs(20);
            let mut left = free(&cuda)?;
            while left + least > most && Instant::now() < patience {
                ensure_eq!(cuda.on_own_stream("cuStreamQuery", &places), OK, "cuStreamQuery");
                std::thread::sleep(Duration::from_millis(1));
                left = free(&cuda)?;
            }
            ensure!(left + least <= most, "{} for 8 threads more that call {name}", Bytes(most.saturating_sub(left)));
            most = left;
        }
        within(session, &cuda)
    }

    /// So it is where no row of NVML's tells of this process.
    a_threads_own_stream_is_charged_where_no_row_tells {
        kind: Own, defects: ["R18"], budget: "0=1GiB", entry_points: ["cuStreamQuery"], unordered: "threads race",
        faults: r#"fault = [{ at = "nvmlDeviceGet*RunningProcesses*", when = "every", then = "result:3" }]"#,
    } (_session) {
        const THREADS: usize = 64;
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let places = Places::of(&cuda, current)?;
        let before = free(&cuda)?;
        at_once(&cuda, current, THREADS, || cuda.on_own_stream("cuStreamQuery", &places))?;
        let charged = before.saturating_sub(free(&cuda)?);
        ensure!(charged + 2 * BLOCK >= THREADS as u64 * EACH, "{} for {THREADS} threads", Bytes(charged));
        // Nobody is beyond the budget by them, which the harness sees.
        fill(&cuda).refused_with(OUT_OF_MEMORY)
    }

    /// Threads that come and go use one another's streams: what they take is not charged again and again.
    threads_that_come_and_go_are_charged_once {
        kind: Budget, defects: ["R18"], budget: "0=1GiB", unordered: "threads race", entry_points: ["cuMemcpy_ptds", "cuStreamQuery"],
    } (session) {
        const THREADS: usize = 16;
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let places = Places::of(&cuda, current)?;
        let before = free(&cuda)?;
        for round in 0..40 {
            let name = ["cuMemcpy_ptds", "cuStreamQuery"][round % 2];
            at_once(&cuda, current, THREADS, || cuda.on_own_stream(name, &places))?;
        }
        let charged = before.saturating_sub(free(&cuda)?);
        let most = THREADS as u64 * EACH + 2 * BLOCK;
        ensure!(charged <= most, "{} for 640 threads, 16 at a time", Bytes(charged));
        within(session, &cuda)
    }

    /// Over the budget no further thread has a stream made for it: its first call is refused, as where a device is full. What a thread frees it frees.
    threads_streams_are_made_within_the_budget {
        kind: Budget, defects: ["R18"], budget: "0=1GiB", entry_points: ["cuStreamQuery", "cuMemcpy_ptds", "cuMemFreeAsync_ptsz"],
        unordered: "threads race", unaccounted: "the streams of threads pass the budget by a block, which is seen after the call",
    } (session) {
        const THREADS: usize = 96;
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let places = Places::of(&cuda, current)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let nvml = nvml()?;
        for name in ["cuStreamQuery", "cuMemcpy_ptds"].into_iter().filter(|name| cuda.exports(name)) {
            let codes = one_after_another(&cuda, current, THREADS, || cuda.on_own_stream(name, &places));
            let refused = codes.iter().filter(|code| **code == OUT_OF_MEMORY).count();
            ensure!(codes.len() == THREADS && codes.iter().all(|code| matches!(*code, OK | OUT_OF_MEMORY)), "{name} in {THREADS} threads: {codes:?}");
            ensure!(refused >= THREADS / 2, "{name} was refused in {refused} of {THREADS} threads");
            let (held, budget) = (row(&nvml)?, budget(session, 0)?);
            ensure!(held <= budget + Bytes(4 * BLOCK), "{held} in NVML's row under {budget}, after {name}");
        }
        if cuda.exports("cuMemFreeAsync_ptsz") {
            let freed = one_after_another(&cuda, current, 1, || cuda.free_async(Stream::PerThread, taken.held[0]));
            ensure_eq!(freed, [OK], "cuMemFreeAsync_ptsz in a further thread");
        }
        Ok(())
    }

    /// What takes a stream and no memory is the driver's with the budget used up as well.
    what_takes_a_stream_is_never_refused {
        defects: ["R18", "C1"], budget: "0=1GiB", unaccounted: "with the budget used up the thread's own stream does not fit",
        entry_points: [
            "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuStreamGetPriority", "cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyPeerAsync",
            "cuMemcpyPeerAsync_ptsz", "cuMemcpyAtoHAsync_v2", "cuMemcpyAtoHAsync_v2_ptsz", "cuMemcpyHtoAAsync_v2", "cuMemcpyHtoAAsync_v2_ptsz",
            "cuStreamGetCtx_ptsz", "cuStreamGetPriority_ptsz", "cuStreamGetFlags", "cuStreamGetFlags_ptsz", "cuStreamBatchMemOp_v2",
            "cuStreamBatchMemOp_v2_ptsz", "cuStreamCopyAttributes", "cuStreamCopyAttributes_ptsz", "cuEventRecordWithFlags",
            "cuEventRecordWithFlags_ptsz", "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2", "cuMemcpyBatchAsync_v2",
            "cuMemcpy3DBatchAsync_v2", "cuMemBatchDecompressAsync", "cuMemPrefetchAsync_v2", "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync",
            "cuMemDiscardAndPrefetchBatchAsync", "cuStreamGetDevice", "cuStreamGetId", "cuStreamGetCtx_v2", "cuStreamAddCallback",
            "cuStreamEndCapture", "cuStreamGetCaptureInfo_v3", "cuStreamUpdateCaptureDependencies_v2", "cuStreamAttachMemAsync",
            "cuStreamGetAttribute", "cuStreamSetAttribute", "cuSignalExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync",
            "cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2", "cuStreamWriteValue32_v2", "cuStreamWriteValue64_v2", "cuLaunchHostFunc",
            "cuMemcpyHtoAAsync", "cuMemcpyAtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpy2DAsync",
            "cuMemcpy3DAsync", "cuMemcpyBatchAsync", "cuMemcpy3DBatchAsync", "cuStreamWriteValue32", "cuStreamWaitValue32", "cuStreamWriteValue64",
            "cuStreamWaitValue64", "cuStreamBatchMemOp", "cuMemPrefetchAsync", "cuStreamGetCaptureInfo_v2", "cuStreamUpdateCaptureDependencies",
            "cuMemcpy2DAsync_v2_ptsz", "cuMemcpy3DAsync_v2_ptsz", "cuMemcpyBatchAsync_v2_ptsz",
            "cuMemcpy3DBatchAsync_v2_ptsz", "cuMemBatchDecompressAsync_ptsz", "cuMemPrefetchAsync_v2_ptsz", "cuMemPrefetchBatchAsync_ptsz",
            "cuMemDiscardBatchAsync_ptsz", "cuMemDiscardAndPrefetchBatchAsync_ptsz", "cuStreamGetDevice_ptsz", "cuStreamGetId_ptsz",
            "cuStreamGetCtx_v2_ptsz", "cuStreamAddCallback_ptsz", "cuStreamEndCapture_ptsz", "cuStreamGetCaptureInfo_v3_ptsz",
            "cuStreamUpdateCaptureDependencies_v2_ptsz", "cuStreamAttachMemAsync_ptsz", "cuStreamGetAttribute_ptsz", "cuStreamSetAttribute_ptsz",
            "cuSignalExternalSemaphoresAsync_ptsz", "cuWaitExternalSemaphoresAsync_ptsz", "cuStreamWaitValue32_v2_ptsz",
            "cuStreamWaitValue64_v2_ptsz", "cuStreamWriteValue32_v2_ptsz", "cuStreamWriteValue64_v2_ptsz", "cuLaunchHostFunc_ptsz",
            "cuMemcpyBatchAsync_ptsz", "cuMemcpy3DBatchAsync_ptsz", "cuStreamWriteValue32_ptsz", "cuStreamWaitValue32_ptsz",
            "cuStreamWriteValue64_ptsz", "cuStreamWaitValue64_ptsz", "cuStreamBatchMemOp_ptsz", "cuMemPrefetchAsync_ptsz",
            "cuStreamGetCaptureInfo_ptsz", "cuStreamGetCaptureInfo_v2_ptsz", "cuStreamUpdateCaptureDependencies_ptsz", "cuStreamGetCtx",
            "cuStreamIsCapturing", "cuStreamIsCapturing_ptsz", "cuStreamGetCaptureInfo",
        ],
        on_real: No("a card's driver follows some of the numbers that are none"),
    } (_session) {
        none_refused(OTHERS)
    }

    /// So is what only a newer driver has.
    what_takes_a_stream_on_a_newer_driver_is_never_refused {
        defects: ["R18", "C1"], budget: "0=1GiB", unaccounted: "with the budget used up the thread's own stream does not fit",
        machine: "rtx6000-ada+615", needs: ["cuStreamGetDevResource"],
        entry_points: [
            "cuLaunchHostFunc_v2", "cuLaunchHostFunc_v2_ptsz", "cuMemcpyWithAttributesAsync", "cuMemcpyWithAttributesAsync_ptsz",
            "cuMemcpy3DWithAttributesAsync", "cuMemcpy3DWithAttributesAsync_ptsz", "cuStreamBeginCaptureToCig", "cuStreamBeginCaptureToCig_ptsz",
            "cuStreamEndCaptureToCig", "cuStreamEndCaptureToCig_ptsz", "cuStreamGetDevResource", "cuStreamGetDevResource_ptsz",
            "cuFabricCpyBatchAsync", "cuFabricCpyBatchAsync_ptsz", "cuGraphicsMapResources", "cuGraphicsMapResources_ptsz",
            "cuGraphicsUnmapResources", "cuGraphicsUnmapResources_ptsz", "cuGLMapBufferObjectAsync_v2", "cuGLMapBufferObjectAsync_v2_ptsz",
            "cuGLMapBufferObjectAsync", "cuGLUnmapBufferObjectAsync", "cuGLMapBufferObject_v2_ptds",
        ],
        on_real: No("a card's driver follows some of the numbers that are none"),
    } (_session) {
        none_refused(NEWER)
    }
}
