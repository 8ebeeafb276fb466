//! Freeing, rightly and wrongly.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use crate::clients::{context, cuda, fill};
use crate::ffi::cuda::{Add, Cuda, Instantiate, OwnStream, Stream};
use crate::ffi::process::interrupted;
use crate::greed::{CONTEXT_ROOM, budget, fills};

const OK: CUresult = CUresult::SUCCESS;
const INVALID_VALUE: CUresult = CUresult::ERROR_INVALID_VALUE;
/// So many streams that are waited for, each for as long as a refusal may wait, or launches that wait, take more than a busy machine needs for all of
/// them: [`MOST`]. Fewer than a card has queues for a process's streams (CUDA_DEVICE_MAX_CONNECTIONS, 8): the stream that ends the wait would come
/// behind one that waits.
const STREAMS: u32 = 5;
const LAUNCHES: u32 = 40;
const MOST: Duration = Duration::from_secs(40);

cases! {
    /// A second free, a free of an interior address and of one that nobody gave get the driver's answer.
    wrong_frees_get_the_drivers_answer {
        defects: ["C2"], entry_points: ["cuMemFree_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let pointer = cuda.allocate(Bytes::mib(64).0).out;
        ensure_eq!(cuda.free(pointer + 512), INVALID_VALUE, "an interior address");
        ensure_eq!(cuda.free(pointer), OK, "the first free");
        ensure_eq!(cuda.free(pointer), INVALID_VALUE, "the second free");
        ensure_eq!(cuda.free(0x1000), INVALID_VALUE, "an address nobody gave");
        Ok(())
    }

    /// Wrong frees give nothing back: afterwards exactly what was really freed can be had.
    wrong_frees_give_nothing_back {
        kind: Budget, defects: ["C2", "V13"], entry_points: ["cuMemFree_v2", "cuMemFreeAsync"], budget: "0=10GiB",
    } (session) {
        let cuda = cuda()?;
        let kept = cuda.allocate(Bytes::gib(4).0).out;
        let freed = cuda.allocate(Bytes::gib(4).0).out;
        ensure_eq!(cuda.free(freed), OK, "the first free");
        for _ in 0..4 {
            ensure_eq!(cuda.free(freed), INVALID_VALUE, "a repeated free");
            ensure_eq!(cuda.free(kept + 4096), INVALID_VALUE, "an interior address");
        }
        let taken = fill(&cuda);
        fills(taken.bytes + Bytes::gib(4), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// cuMemFree takes what cuMemAllocAsync gave and the other way round, and both give the charge back.
    either_free_takes_either_pointer {
        kind: Budget, defects: ["C2"], budget: "0=6GiB",
        entry_points: ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemAlloc_v2", "cuMemAllocAsync"],
    } (session) {
        let cuda = cuda()?;
        for round in 0..4 {
            let plain = cuda.allocate(Bytes::gib(2).0);
            let ordered = cuda.allocate_async(Stream::Legacy, Bytes::gib(2).0);
            ensure_eq!((plain.code, ordered.code), (OK, OK), "2 + 2 GiB in round {round}");
            ensure_eq!(cuda.free_async(Stream::PerThread, plain.out), OK, "cuMemFreeAsync_ptsz of a plain pointer");
            ensure_eq!(cuda.free(ordered.out), OK, "cuMemFree_v2 of a stream-ordered pointer");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Plain memory that is freed in a stream's order is told free and can be had again once that stream, or an event in it, was waited for; and
    /// by a request that needs the room, though nobody waited.
    plain_memory_freed_in_stream_order_comes_back_with_its_stream {
        kind: Budget, defects: ["R25"], budget: "0=4GiB",
        entry_points: ["cuMemAlloc_v2", "cuMemFreeAsync", "cuStreamSynchronize", "cuEventSynchronize", "cuMemGetInfo_v2", "cuStreamDestroy_v2"],
    } (session) {
        let cuda = cuda()?;
        let most = Bytes::gib(3).0;
        type Wait = fn(&Cuda, OwnStream) -> CUresult;
        let waits: [Wait; 2] = [Cuda::synchronize_stream, Cuda::synchronize_event_in];
        for wait in waits.into_iter().map(Some).chain([None]) {
            let own = cuda.create_stream();
            ensure_eq!(own.code, OK, "cuStreamCreate");
            let before = cuda.memory_info().out.0;
            for round in 0..3 {
                let plain = cuda.allocate(most);
                ensure_eq!(plain.code, OK, "3 of 4 GiB in round {round}");
                ensure_eq!(cuda.free_in(own.out, plain.out), OK, "cuMemFreeAsync of a plain pointer");
                if let Some(wait) = wait {
                    ensure_eq!(wait(&cuda, own.out), OK, "a wait for the stream");
                    let free = cuda.memory_info().out.0;
                    // A stream that is used may take some for itself.
                    ensure!(free + Bytes::mib(16).0 >= before, "{free} are told free in round {round}, {before} before");
                }
            }
            // In pieces, of which each is freed before the last one is done with.
            for _ in 0..64 {
                let plain = cuda.allocate(Bytes::mib(256).0);
                ensure_eq!(plain.code, OK, "256 MiB of 4 GiB");
                ensure_eq!(cuda.free_in(own.out, plain.out), OK, "cuMemFreeAsync of a plain pointer");
            }
            // What is freed in it outlives it.
            ensure_eq!(cuda.destroy_stream(own.out), OK, "cuStreamDestroy_v2");
            let plain = cuda.allocate(most);
            ensure_eq!(plain.code, OK, "3 of 4 GiB when the stream is gone");
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A request that does not fit even if all came back that streams have yet to free is refused at once, however many of them there are: who asks
    /// may be the one that they wait for. The rest fits.
    what_can_never_fit_is_refused_without_a_wait {
        kind: Budget, defects: ["C40"], budget: "0=4GiB",
        entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemFreeAsync"], needs: ["cuStreamWaitValue32_v2"],
    } (session) {
        let cuda = cuda()?;
        let word = cuda.allocate_host(4096);
        ensure_eq!(word.code, OK, "page-locked memory");
        let held = cuda.allocate(Bytes::gib(2).0);
        ensure_eq!(held.code, OK, "2 of 4 GiB");
        let begun = Instant::now();
        for round in 1..=STREAMS {
            let own = cuda.create_stream();
            let plain = cuda.allocate(Bytes::mib(2).0);
            ensure_eq!((own.code, plain.code), (OK, OK), "a stream and 2 MiB");
            ensure_eq!(cuda.wait_for_value(own.out, word.out, 1), OK, "cuStreamWaitValue32_v2");
            ensure_eq!(cuda.free_in(own.out, plain.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, CUresult::ERROR_OUT_OF_MEMORY, "2 GiB beside 2 of 4");
            let waited = begun.elapsed();
            ensure!(waited < MOST, "{round} refusals took {waited:?}, each as long as its stream is waited for");
        }
        let other = cuda.create_stream();
        ensure_eq!(cuda.write_value(other.out, word.out, 1), OK, "cuStreamWriteValue32_v2");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        fills(fill(&cuda).bytes + Bytes::gib(2), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A signal's handler that asks for memory while its own thread's request waits for a stream gets its answer, and what was waited for is not lost to
    /// either.
    a_handler_that_asks_for_memory_during_a_wait_gets_it {
        kind: Budget, defects: ["C42"], budget: "0=4GiB", entry_points: ["cuMemAlloc_v2", "cuMemFreeAsync"], needs: ["cuStreamWaitValue32_v2"],
        on_real: No("a signal may come while the vendor's driver holds a lock of its own"),
    } (session) {
        let cuda = cuda()?;
        let word = cuda.allocate_host(4096);
        let [own, other] = [cuda.create_stream(), cuda.create_stream()];
        let most = Bytes::gib(3).0;
        let pooled = cuda.allocate_in(own.out, most);
        ensure_eq!((word.code, own.code, other.code, pooled.code), (OK, OK, OK, OK), "a word, two streams, 3 of 4 GiB of a pool");
        ensure_eq!(cuda.wait_for_value(own.out, word.out, 1), OK, "cuStreamWaitValue32_v2");
        ensure_eq!(cuda.free_in(own.out, pooled.out), OK, "cuMemFreeAsync");
        let handled = Mutex::new(None);
        let handler = || {
            let written = cuda.write_value(other.out, word.out, 1);
            let plain = cuda.allocate(most);
            *handled.lock().unwrap_or_else(PoisonError::into_inner) = Some((written, plain.code, cuda.free(plain.out)));
        };
        let plain = interrupted(Duration::from_millis(300), &handler, || cuda.allocate(most))?;
        ensure_eq!(*handled.lock().unwrap_or_else(PoisonError::into_inner), Some((OK, OK, OK)), "what the handler does");
        ensure_eq!(plain.code, OK, "3 of 4 GiB for who was interrupted");
        ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Nor does a graph's launch wait for its stream where all that graphs and pools hold is not enough.
    a_launch_that_can_never_fit_is_refused_without_a_wait {
        kind: Budget, defects: ["C40"], budget: "0=4GiB",
        entry_points: ["cuGraphAddMemAllocNode", "cuGraphLaunch"], needs: ["cuGraphAddMemAllocNode", "cuStreamWaitValue32_v2"],
    } (session) {
        let cuda = cuda()?;
        let word = cuda.allocate_host(4096);
        ensure_eq!(word.code, OK, "page-locked memory");
        let of = |bytes: Bytes| {
            let graph = cuda.create_graph();
            ensure_eq!(graph.code, OK, "cuGraphCreate");
            ensure_eq!(cuda.add_allocation(Add::Own, graph.out, None, 0, bytes.0).code, OK, "a node of {bytes}");
            let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
            ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
            Ok::<_, Failure>(exec.out)
        };
        let (small, large) = (of(Bytes::mib(64))?, of(Bytes::gib(6))?);
        let own = cuda.create_stream();
        ensure_eq!(cuda.launch_graph_in(own.out, small), OK, "64 MiB");
        ensure_eq!(cuda.wait_for_value(own.out, word.out, 1), OK, "cuStreamWaitValue32_v2");
        let begun = Instant::now();
        for round in 1..=LAUNCHES {
            ensure_eq!(cuda.launch_graph_in(own.out, large), CUresult::ERROR_OUT_OF_MEMORY, "6 GiB under 4");
            let waited = begun.elapsed();
            ensure!(waited < MOST, "{round} refusals took {waited:?}");
        }
        let other = cuda.create_stream();
        ensure_eq!(cuda.write_value(other.out, word.out, 1), OK, "cuStreamWriteValue32_v2");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        fills(fill(&cuda).bytes + Bytes::mib(64), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The same in a stream of another device.
    plain_memory_freed_in_another_devices_stream_comes_back {
        kind: Budget, defects: ["R25", "C9"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=4GiB,1=4GiB",
        entry_points: ["cuMemAlloc_v2", "cuMemFreeAsync", "cuStreamSynchronize", "cuMemGetInfo_v2"],
    } (session) {
        let cuda = cuda()?;
        let first = cuda.create_stream();
        ensure_eq!(first.code, OK, "cuStreamCreate on the first device");
        context(&cuda, 1)?;
        for round in 0..4 {
            let plain = cuda.allocate(Bytes::gib(3).0);
            ensure_eq!(plain.code, OK, "3 of 4 GiB of the second device in round {round}");
            ensure_eq!(cuda.free_in(first.out, plain.out), OK, "cuMemFreeAsync in the first's stream");
            if round % 2 == 0 {
                ensure_eq!(cuda.synchronize_stream(first.out), OK, "cuStreamSynchronize");
                let free = cuda.memory_info().out.0;
                ensure!(free >= Bytes::gib(3).0, "{free} are told free");
            }
        }
        fills(fill(&cuda).bytes, budget(session, 1)?, CONTEXT_ROOM)
    }

    /// Resetting the primary context returns all that was allocated in it.
    a_reset_context_gives_everything_back {
        kind: Budget, defects: ["C10"], entry_points: ["cuDevicePrimaryCtxReset_v2", "cuMemAlloc_v2"], budget: "0=6GiB",
    } (session) {
        let cuda = cuda()?;
        let first = fill(&cuda);
        fills(first.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        crate::clients::context(&cuda, 0)?;
        let again = fill(&cuda);
        fills(again.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}
