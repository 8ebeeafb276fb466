//! Every way in which contexts come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq, fail};

use super::modules::program;
use crate::clients::{Gpu, context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Cuda, Image, Instantiate, Purpose, Stream};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills, until_refused};

const OK: CUresult = CUresult::SUCCESS;
/// Of a context's time, and more of it after its end.
const KEPT: Bytes = Bytes::gib(2);

/// Threads do something again and again in a context that comes and goes, for as long as it takes to meet its end at every place.
fn beside_short_lives(cuda: &Cuda, act: impl Fn() + Sync) -> Result<(), Failure> {
    const LIFE: Duration = Duration::from_millis(6);
    const THREADS: usize = 4;
    let make = || {
        let made = cuda.create_context(0);
        ensure_eq!(made.code, OK, "cuCtxCreate");
        Ok::<_, Failure>(made.out)
    };
    let (current, over) = (Mutex::new(make()?), AtomicBool::new(false));
    let mortal = || *current.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    cuda.set_current(mortal());
                    act();
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(3);
        let churn = || {
            while Instant::now() < end {
                thread::sleep(LIFE);
                ensure_eq!(cuda.destroy_context(mortal()), OK, "cuCtxDestroy_v2");
                let next = make()?;
                *current.lock().unwrap_or_else(PoisonError::into_inner) = next;
            }
            Ok(())
        };
        let ended = churn();
        over.store(true, Ordering::SeqCst);
        ended
    });
    ended.and_then(|()| {
        ensure_eq!(cuda.destroy_context(mortal()), OK, "cuCtxDestroy_v2");
        Ok(())
    })
}

cases! {
    /// Contexts made by any of the calls are charged, and given back by the call that ends them.
    contexts_are_charged_by_whichever_call {
        kind: Budget, defects: ["C10", "R7"], budget: "0=4GiB",
        entry_points: ["cuCtxCreate_v3", "cuCtxCreate_v4", "cuCtxDestroy_v2", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        let third = cuda.create_context_v3(0);
        // Drivers before CUDA 12.5 have no fourth way.
        let another = match session.exports("cuCtxCreate_v4")? {
            true => cuda.create_context_v4(0),
            false => cuda.create_context_v3(0),
        };
        ensure_eq!((third.code, another.code), (OK, OK), "cuCtxCreate_v3 and _v4");
        let budget = budget(session, 0)?;
        let beside = fill(&cuda);
        ensure!(beside.bytes + Bytes::mib(900) <= budget, "{} were granted beside two contexts", beside.bytes);
        ensure_eq!(cuda.destroy_context(another.out), OK, "cuCtxDestroy_v2");
        ensure_eq!(cuda.set_current(third.out), OK, "cuCtxSetCurrent");
        fills(fill(&cuda).bytes, budget, CONTEXT_ROOM)
    }

    /// Memory that dies with its context is given back, though another thread is given its address as soon as the driver has destroyed it.
    memory_of_destroyed_contexts_is_given_back_beside_other_threads {
        kind: Budget, defects: ["R29"], entry_points: ["cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=4GiB",
        unordered: "threads race for an address",
    } (session) {
        const BLOCK: Bytes = Bytes::mib(20);
        let cuda = cuda()?;
        let own = context(&cuda, 0)?;
        let end = Instant::now() + Duration::from_secs(2);
        let code = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while Instant::now() < end {
                    let mortal = cuda.create_context(0);
                    let block = cuda.allocate(BLOCK.0);
                    if (mortal.code, block.code) != (OK, OK) || cuda.destroy_context(mortal.out) != OK {
                        return CUresult::ERROR_UNKNOWN;
                    }
                }
                OK
            });
            cuda.set_current(own);
            while Instant::now() < end {
                let block = cuda.allocate(BLOCK.0);
                if block.code != OK || cuda.free(block.out) != OK {
                    return CUresult::ERROR_UNKNOWN;
                }
            }
            other.join().unwrap_or(CUresult::ERROR_UNKNOWN)
        });
        ensure_eq!(code, OK, "allocations beside contexts that come and go");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A context is charged for itself, whatever another thread takes while the driver makes it.
    a_context_made_beside_other_threads_is_charged_for_itself {
        kind: Own, defects: ["R74"], entry_points: ["cuCtxCreate_v2", "cuMemCreate"], budget: "0=8GiB",
        faults: r#"fault = [{ at = "cuCtxCreate_v2", then = "delay:400ms" }]"#, unordered: "a thread takes memory meanwhile",
    } (session) {
        const PART: Bytes = Bytes::mib(64);
        let cuda = cuda()?;
        let making = AtomicBool::new(false);
        let (code, taken) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !making.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                let take = |_: &u32| {
                    thread::sleep(Duration::from_millis(5));
                    cuda.create_memory(0, PART.0).code == OK
                };
                (0..48).take_while(take).count() as u64
            });
            making.store(true, Ordering::SeqCst);
            (cuda.create_context(0).code, other.join().unwrap_or_default())
        });
        ensure_eq!((code, taken), (OK, 48), "a context, and blocks of {PART} beside it");
        let all = fill(&cuda).bytes + Bytes(taken * PART.0);
        fills(all, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)
    }

    /// What a module takes goes with its context, though another thread ends that before what the module took is on record.
    a_module_that_is_loaded_while_its_context_ends_is_charged_no_longer {
        kind: Budget, defects: ["R84"], budget: "0=4GiB", entry_points: ["cuCtxDestroy_v2", "cuModuleLoadData", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "nvmlDeviceGetComputeRunningProcesses*", then = "delay:60ms" }]"#, unordered: "two threads race",
    } (session) {
        const PART: Bytes = Bytes::mib(400);
        let cuda = cuda()?;
        let own = context(&cuda, 0)?;
        let image = Image::ptx(&program(PART));
        for tenths in 0..12 {
            let mortal = cuda.create_context(0);
            ensure_eq!(mortal.code, OK, "cuCtxCreate");
            let begun = AtomicBool::new(false);
            let code = thread::scope(|scope| {
                scope.spawn(|| {
                    cuda.set_current(mortal.out);
                    begun.store(true, Ordering::SeqCst);
                    cuda.load_module(&image);
                });
                while !begun.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(20 * tenths));
                cuda.destroy_context(mortal.out)
            });
            ensure_eq!(code, OK, "cuCtxDestroy_v2 after {} ms", 20 * tenths);
        }
        ensure_eq!(cuda.set_current(own), OK, "cuCtxSetCurrent");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So does what a library has there, though it is unloaded while the context is made.
    a_library_that_is_unloaded_while_a_context_is_made_is_charged_no_longer {
        kind: Budget, defects: ["R84a"], budget: "0=4GiB", needs: ["cuLibraryLoadData"],
        entry_points: ["cuCtxCreate_v2", "cuCtxDestroy_v2", "cuLibraryLoadData", "cuLibraryUnload", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuCtxCreate_v2", then = "delay:300ms" }]"#, unordered: "two threads race",
    } (session) {
        const PART: Bytes = Bytes::mib(400);
        let cuda = cuda()?;
        let own = context(&cuda, 0)?;
        for _ in 0..3 {
            let library = cuda.load_library(&Image::ptx(&program(PART)));
            ensure_eq!(library.code, OK, "cuLibraryLoadData");
            let (unloaded, made) = thread::scope(|scope| {
                let other = scope.spawn(|| {
                    thread::sleep(Duration::from_millis(100));
                    cuda.unload_library(library.out)
                });
                let made = cuda.create_context(0);
                (other.join().unwrap_or(CUresult::ERROR_UNKNOWN), made)
            });
            ensure_eq!((unloaded, made.code), (OK, OK), "cuLibraryUnload beside cuCtxCreate");
            ensure_eq!(cuda.destroy_context(made.out), OK, "cuCtxDestroy_v2");
        }
        ensure_eq!(cuda.set_current(own), OK, "cuCtxSetCurrent");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The driver waits for a context's work before it sets its stack; a thread that this work waits for may set another context's.
    a_limit_waits_for_no_other_contexts_work {
        kind: Own, defects: ["R85"], budget: "0=4GiB", entry_points: ["cuCtxSetLimit", "cuLaunchHostFunc"], unordered: "three threads",
    } (_session) {
        /// CU_LIMIT_STACK_SIZE.
        const STACK: i32 = 0;
        const PATIENCE: Duration = Duration::from_secs(4);
        let cuda = cuda_without_context()?;
        let (busy, free) = (cuda.create_context(0), cuda.create_context(0));
        ensure_eq!((busy.code, free.code), (OK, OK), "cuCtxCreate");
        ensure_eq!(cuda.set_current(busy.out), OK, "cuCtxSetCurrent");
        let stream = cuda.create_stream();
        ensure_eq!(stream.code, OK, "cuStreamCreate");
        let (runs, is_set) = (AtomicBool::new(false), AtomicBool::new(false));
        let waited = thread::scope(|scope| {
            let set = |context, pause| {
                let (cuda, runs) = (&cuda, &runs);
                move || {
                    while !runs.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    thread::sleep(Duration::from_millis(pause));
                    cuda.set_current(context);
                    cuda.set_limit(STACK, 2 << 10)
                }
            };
            scope.spawn(set(busy.out, 0));
            let (set_free, is_set) = (set(free.out, 100), &is_set);
            scope.spawn(move || {
                set_free();
                is_set.store(true, Ordering::SeqCst);
            });
            let mut waited = PATIENCE;
            cuda.in_host_function(stream.out, &mut || {
                runs.store(true, Ordering::SeqCst);
                let begun = Instant::now();
                while !is_set.load(Ordering::SeqCst) && begun.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(5));
                }
                waited = begun.elapsed();
            });
            waited
        });
        ensure!(waited < PATIENCE, "a limit of an idle context was not set within {PATIENCE:?}");
        Ok(())
    }

    /// A context whose malloc heap was set is looked at while its work waits for what the program does next: a look waits for no work.
    no_look_waits_for_the_work_of_a_context {
        kind: Own, defects: ["R85"], budget: "0=4GiB",
        entry_points: ["cuCtxSetLimit", "cuLaunchHostFunc", "cuMemAlloc_v2"], unordered: "two threads",
    } (session) {
        /// CU_LIMIT_MALLOC_HEAP_SIZE.
        const HEAP: i32 = 2;
        const PATIENCE: Duration = Duration::from_secs(4);
        let cuda = cuda_without_context()?;
        let own = context(&cuda, 0)?;
        ensure_eq!(cuda.set_limit(HEAP, 64 << 20), OK, "a heap of 64 MiB");
        let stream = cuda.create_stream();
        ensure_eq!(stream.code, OK, "cuStreamCreate");
        let (runs, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut waited = PATIENCE;
        let mut all = Ok(());
        thread::scope(|scope| {
            let (asks, runs, is_done) = (&cuda, &runs, &is_done);
            let asking = scope.spawn(move || -> Result<(), Failure> {
                while !runs.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                ensure_eq!(asks.set_current(own), OK, "cuCtxSetCurrent");
                let taken = fill(asks);
                is_done.store(true, Ordering::SeqCst);
                taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
                fills(taken.bytes + Bytes::mib(64), budget(session, 0)?, CONTEXT_ROOM)
            });
            cuda.in_host_function(stream.out, &mut || {
                runs.store(true, Ordering::SeqCst);
                let begun = Instant::now();
                while !is_done.load(Ordering::SeqCst) && begun.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(5));
                }
                waited = begun.elapsed();
            });
            all = asking.join().unwrap_or_else(|_| Err(Failure::Broken("the thread that asks died".to_owned())));
        });
        all?;
        ensure!(waited < PATIENCE, "memory was granted or refused only when the context was idle, after {waited:?}");
        Ok(())
    }

    /// The driver ends a context when host functions have run that another thread may be awaited by: who makes a context meanwhile does not wait for that end.
    no_context_waits_for_the_end_of_another {
        kind: Own, defects: ["R114"], budget: "0=4GiB", entry_points: ["cuCtxCreate_v2", "cuCtxDestroy_v2", "cuDevicePrimaryCtxRetain"],
        faults: r#"fault = [{ at = "cuCtxDestroy_v2", when = "1", then = "delay:3s" }]"#, unordered: "two threads",
        on_real: No("a fault plan holds up the end"),
    } (session) {
        let cuda = cuda_without_context()?;
        let first = cuda.create_context(0);
        ensure_eq!(first.code, OK, "cuCtxCreate");
        let (ends, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut answers = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                ends.store(true, Ordering::SeqCst);
                cuda.destroy_context(first.out);
                ended.store(true, Ordering::SeqCst);
            });
            while !ends.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(100));
            let second = cuda.create_context(0);
            answers.push(("cuCtxCreate", second.code, ended.load(Ordering::SeqCst)));
            let code = cuda.retain_primary(0).code;
            answers.push(("cuDevicePrimaryCtxRetain", code, ended.load(Ordering::SeqCst)));
        });
        for (call, code, waited) in answers {
            ensure_eq!((code, waited), (OK, false), "{call} beside the end of another context, and whether that had ended");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)
    }

    /// Nor for that of a library, which it is charged for as long as that is not unloaded.
    no_context_waits_for_the_end_of_a_library {
        kind: Own, defects: ["R114"], budget: "0=4GiB", needs: ["cuLibraryLoadData"],
        entry_points: ["cuCtxCreate_v2", "cuLibraryLoadData", "cuLibraryUnload", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuLibraryUnload", when = "1", then = "delay:3s" }]"#, unordered: "two threads",
        on_real: No("a fault plan holds up the end"),
    } (session) {
        const PART: Bytes = Bytes::mib(400);
        let cuda = cuda()?;
        let library = cuda.load_library(&Image::ptx(&program(PART)));
        ensure_eq!(library.code, OK, "cuLibraryLoadData");
        let (unloads, unloaded) = (AtomicBool::new(false), AtomicBool::new(false));
        let (made, waited, beside) = thread::scope(|scope| {
            scope.spawn(|| {
                unloads.store(true, Ordering::SeqCst);
                cuda.unload_library(library.out);
                unloaded.store(true, Ordering::SeqCst);
            });
            while !unloads.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(100));
            let made = cuda.create_context(0).code;
            (made, unloaded.load(Ordering::SeqCst), fill(&cuda))
        });
        ensure_eq!((made, waited), (OK, false), "cuCtxCreate beside cuLibraryUnload, and whether that had returned");
        let beside = beside.bytes;
        fills(beside + PART + PART, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)?;
        fills(beside + fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)
    }

    /// What it is charged for a library goes back if that is gone before the context is made.
    a_library_that_ends_while_a_context_is_made_beside_is_charged_no_longer {
        kind: Own, defects: ["R84a"], budget: "0=4GiB", needs: ["cuLibraryLoadData"],
        entry_points: ["cuCtxCreate_v2", "cuLibraryLoadData", "cuLibraryUnload", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuLibraryUnload", then = "delay:1s" }, { at = "cuCtxCreate_v2", then = "delay:1s" }]"#, unordered: "two threads",
        on_real: No("a fault plan holds up both"),
    } (session) {
        let cuda = cuda()?;
        let library = cuda.load_library(&Image::ptx(&program(Bytes::mib(400))));
        ensure_eq!(library.code, OK, "cuLibraryLoadData");
        let (unloaded, made) = thread::scope(|scope| {
            let other = scope.spawn(|| cuda.unload_library(library.out));
            thread::sleep(Duration::from_millis(100));
            let made = cuda.create_context(0).code;
            (other.join().unwrap_or(CUresult::ERROR_UNKNOWN), made)
        });
        ensure_eq!((unloaded, made), (OK, OK), "cuLibraryUnload beside cuCtxCreate");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)
    }

    /// Streams that are refused because another thread ended their context are of no other's account.
    streams_that_are_made_while_their_context_ends_stay_within_the_budget {
        kind: Budget, defects: ["R87"], budget: "0=8GiB", entry_points: ["cuStreamCreate", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemCreate"],
        faults: r#"fault = [{ at = "cuStreamCreate", then = "delay:200ms" }]"#, unordered: "threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.create_memory(0, KEPT.0).code, OK, "cuMemCreate");
        for _ in 0..3 {
            let mortal = cuda.create_context(0);
            ensure_eq!(mortal.code, OK, "cuCtxCreate");
            let next = thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        cuda.set_current(mortal.out);
                        cuda.create_stream();
                    });
                }
                thread::sleep(Duration::from_millis(60));
                cuda.destroy_context(mortal.out);
                cuda.create_context(0)
            });
            ensure_eq!(next.code, OK, "cuCtxCreate after cuCtxDestroy_v2");
            ensure_eq!(cuda.destroy_context(next.out), OK, "cuCtxDestroy_v2");
        }
        // No row shows it, and no look puts back what was given back too much.
        let more = (0..16).filter(|_| cuda.create_memory(0, KEPT.0 / 4).code == OK).count() as u64;
        fills(Bytes(KEPT.0 + more * KEPT.0 / 4), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A stream that is made while another is asked for, and refused, takes nothing that is not charged.
    streams_that_are_made_beside_refused_ones_stay_within_the_budget {
        kind: Budget, defects: ["R87a"], budget: "0=4GiB", entry_points: ["cuStreamCreate", "cuStreamDestroy_v2", "cuMemAlloc_v2", "cuMemFree_v2"],
        unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let end = Instant::now() + Duration::from_secs(3);
        let make = || {
            cuda.set_current(current);
            let mut streams = Vec::new();
            while Instant::now() < end {
                streams.extend((0..3).map_while(|_| cuda.create_stream().granted().ok()));
                let back = if streams.len() < 512 { 1 } else { 512 };
                streams.drain(..back.min(streams.len())).for_each(|stream| _ = cuda.destroy_stream(stream));
            }
        };
        thread::scope(|scope| {
            scope.spawn(make);
            scope.spawn(make);
            let mut blocks = Vec::new();
            while Instant::now() < end {
                blocks.extend((0..7).map_while(|_| cuda.allocate(2 << 20).granted().ok()));
                blocks.pop().into_iter().for_each(|block| _ = cuda.free(block));
            }
        });
        crate::cuda::truth::within(session, &cuda)
    }

    /// A context that other threads meet as theirs while it is made and reset is nobody's that was made past us: streams in it are charged as long as it lives.
    streams_beside_resets_use_up_no_budget {
        kind: Budget, defects: ["R91"], budget: "0=2GiB", needs: ["cuDevicePrimaryCtxReset_v2"],
        entry_points: ["cuStreamCreate", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxReset_v2", "cuMemAlloc_v2"], unordered: "threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        let current = Mutex::new(context(&cuda, 0)?);
        let latest = || current.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + Duration::from_secs(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while Instant::now() < end {
                        let now = *latest();
                        cuda.set_current(now);
                        cuda.create_stream();
                    }
                });
            }
            while Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
                cuda.reset_primary(0);
                if let Ok(next) = cuda.retain_primary(0).granted() {
                    *latest() = next;
                }
            }
        });
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What is freed in a stream's order goes with its context, though another thread ends that before the free is on record.
    what_is_freed_while_its_context_ends_is_charged_no_longer {
        kind: Budget, defects: ["R89"], budget: "0=8GiB", entry_points: ["cuMemFreeAsync", "cuCtxDestroy_v2", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuCtxGetCurrent", then = "delay:2ms" }]"#, unordered: "threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        beside_short_lives(&cuda, || {
            let block = cuda.allocate(Bytes::mib(32).0);
            if block.code == OK {
                cuda.free_async(Stream::Legacy, block.out);
            }
        })?;
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So does what an executable graph keeps.
    a_graph_that_is_made_while_its_context_ends_is_charged_no_longer {
        kind: Budget, defects: ["R88"], budget: "0=4GiB", entry_points: ["cuGraphInstantiateWithFlags", "cuCtxDestroy_v2", "cuMemAlloc_v2"],
        unordered: "threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        beside_short_lives(&cuda, || {
            let (graph, byte) = (cuda.create_graph(), cuda.allocate(4096));
            for _ in 0..100 {
                cuda.add_branch(graph.out, &[], byte.out);
            }
            let made = cuda.instantiate(Instantiate::WithFlags, graph.out);
            if made.code == OK {
                cuda.destroy_exec(made.out);
            }
            cuda.destroy_graph(graph.out);
        })?;
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Arrays that cannot be destroyed because another thread has just ended their context have gone with that.
    an_array_that_is_destroyed_while_its_context_ends_is_charged_no_longer {
        kind: Budget, defects: ["R84"], budget: "0=4GiB", entry_points: ["cuArrayDestroy", "cuCtxDestroy_v2", "cuMemAlloc_v2"],
        unordered: "threads race",
    } (session) {
        let cuda = cuda_without_context()?;
        beside_short_lives(&cuda, || {
            let array = cuda.create_array(4096, 4096);
            if array.code == OK {
                cuda.destroy_array(array.out);
            }
        })?;
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A context that is to be made where streams have yet to give back its room waits for them; whoever ends another meanwhile does not.
    who_ends_a_context_waits_for_no_stream {
        kind: Own, defects: ["R86"], budget: "0=4GiB", unordered: "two threads",
        on_real: No("a card's own cuCtxDestroy waits for host functions, another context's too"),
        entry_points: ["cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemFreeAsync", "cuLaunchHostFunc"],
    } (_session) {
        const BUSY: Duration = Duration::from_secs(3);
        let cuda = cuda()?;
        let own = context(&cuda, 0)?;
        let other = cuda.create_context(0);
        ensure_eq!(other.code, OK, "cuCtxCreate");
        ensure_eq!(cuda.set_current(own), OK, "cuCtxSetCurrent");
        let (stream, pool) = (cuda.create_stream(), cuda.create_pool(0));
        ensure_eq!((stream.code, pool.code), (OK, OK), "cuStreamCreate and cuMemPoolCreate");
        let block = cuda.allocate_from_pool_in(stream.out, pool.out, Bytes::gib(1).0);
        ensure_eq!(block.code, OK, "cuMemAllocFromPoolAsync");
        let filled = fill(&cuda);
        ensure!(!filled.held.is_empty(), "nothing was granted beside it");
        let runs = AtomicBool::new(false);
        let (made, ended) = thread::scope(|scope| {
            scope.spawn(|| {
                cuda.set_current(own);
                cuda.in_host_function(stream.out, &mut || {
                    runs.store(true, Ordering::SeqCst);
                    thread::sleep(BUSY);
                })
            });
            while !runs.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            cuda.free_in(stream.out, block.out);
            let maker = scope.spawn(|| cuda.create_context(0).code);
            thread::sleep(Duration::from_millis(700));
            let begun = Instant::now();
            cuda.destroy_context(other.out);
            let ended = begun.elapsed();
            (maker.join().unwrap_or(CUresult::ERROR_UNKNOWN), ended)
        });
        ensure_eq!(made, OK, "cuCtxCreate in room that a stream had yet to give back");
        ensure!(ended < BUSY / 2, "cuCtxDestroy_v2 took {ended:?}");
        Ok(())
    }

    /// What outlives a context is not charged once more with the next one, though the process has a row of its own for a VkDevice.
    what_outlives_a_context_is_not_charged_to_the_next_beside_vulkan {
        kind: Budget, defects: ["R74", "C10"], budget: "0=6GiB",
        entry_points: ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain", "cuMemCreate", "cuMemAlloc_v2", "vkCreateDevice"],
    } (session) {
        let _gpu = Gpu::first()?;
        let cuda = cuda()?;
        ensure_eq!(cuda.create_memory(0, KEPT.0).code, OK, "cuMemCreate");
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes + KEPT, budget(session, 0)?, CONTEXT_ROOM + VULKAN_ROOM)
    }

    /// Nor is it charged to the VkInstance that gives the process its first row, nor does that go uncharged.
    what_is_held_without_a_context_is_not_charged_to_a_vkinstance {
        kind: Budget, defects: ["V28"], budget: "0=6GiB", entry_points: ["cuMemCreate", "vkCreateInstance", "vkAllocateMemory"],
    } (session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.create_memory(0, KEPT.0).code, OK, "cuMemCreate");
        let gpu = Gpu::first()?;
        fills(gpu.fill().bytes + KEPT, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Nor is what it has imported, and nobody else holds any longer.
    what_is_imported_is_not_charged_to_a_vkinstance {
        kind: Budget, defects: ["V28"], budget: "0=6GiB",
        entry_points: ["cuMemImportFromShareableHandle", "cuMemRelease", "vkCreateInstance", "vkAllocateMemory"],
    } (session) {
        let cuda = cuda_without_context()?;
        let made = cuda.create_memory_for(Purpose::Sharing, 0, KEPT.0);
        ensure_eq!(made.code, OK, "cuMemCreate");
        let Ok(descriptor) = cuda.export_memory(made.out) else {
            fail!("cuMemExportToShareableHandle was refused");
        };
        ensure_eq!(cuda.import_memory(&descriptor).code, OK, "cuMemImportFromShareableHandle");
        ensure_eq!(cuda.release_memory(made.out), OK, "cuMemRelease");
        drop(descriptor);
        let gpu = Gpu::first()?;
        fills(gpu.fill().bytes + KEPT, budget(session, 0)?, VULKAN_ROOM)
    }

    /// A list of processes that could not be read says nothing of what this one held before its VkDevice.
    what_is_held_is_not_charged_again_with_a_vkdevice_for_a_list_that_fails {
        kind: Budget, defects: ["R146"], budget: "0=6GiB", entry_points: ["cuMemAlloc_v2", "vkCreateDevice", "vkAllocateMemory"],
        faults: r#"
            fault = [
                { at = "nvmlDeviceGet*RunningProcesses*", when = "21", then = "result:999" },
                { at = "nvmlDeviceGet*RunningProcesses*", when = "22", then = "result:999" },
            ]
        "#,
        on_real: No("which of NVML's calls fails is counted on the mock"),
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(KEPT.0).code, OK, "{KEPT}");
        let gpu = Gpu::first()?;
        fills(gpu.fill().bytes + KEPT, budget(session, 0)?, VULKAN_ROOM + CONTEXT_ROOM)
    }

    /// What a call was charged by the driver's row beside a pool that is destroyed is given back beside a VkInstance, too.
    what_was_charged_by_the_row_is_given_back_beside_a_vkinstance {
        kind: Budget, defects: ["R108"], budget: "0=6GiB",
        entry_points: ["vkCreateInstance", "cuMemPoolDestroy", "cuGraphInstantiateWithFlags", "cuMemFree_v2", "cuMemAlloc_v2"],
    } (session) {
        let _gpu = Gpu::first()?;
        let cuda = cuda()?;
        let target = cuda.allocate(4096);
        ensure_eq!(target.code, OK, "what the graphs set");
        for round in 0..20 {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate, {round}");
            // What is not in use of its last step may be given back unseen.
            let block = cuda.allocate_from_pool(Stream::Legacy, pool.out, Bytes::mib(226).0);
            ensure_eq!(block.code, OK, "cuMemAllocFromPoolAsync, {round}");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy, {round}");
            let graph = cuda.create_graph();
            for _ in 0..500 {
                ensure_eq!(cuda.add_branch(graph.out, &[], target.out).code, OK, "a node, {round}");
            }
            let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
            ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags, {round}");
            ensure_eq!(cuda.destroy_exec(exec.out), OK, "cuGraphExecDestroy, {round}");
            ensure_eq!(cuda.destroy_graph(graph.out), OK, "cuGraphDestroy, {round}");
            ensure_eq!(cuda.free(block.out), OK, "cuMemFree_v2, {round}");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        // What 500 branches take stays with the context.
        fills(fill(&cuda).bytes + Bytes::mib(64), budget(session, 0)?, CONTEXT_ROOM + VULKAN_ROOM)
    }

    /// Nor is what is left of a pool that is destroyed.
    what_outlives_a_destroyed_pool_is_not_charged_to_the_next_context {
        kind: Budget, defects: ["R74", "C10"], budget: "0=6GiB",
        entry_points: ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        ensure_eq!(cuda.allocate_from_pool(Stream::Legacy, pool.out, KEPT.0).code, OK, "cuMemAllocFromPoolAsync");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        let before = fill(&cuda);
        fills(before.bytes + KEPT, budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        context(&cuda, 0)?;
        // A driver may give all of it back with the context, or keep it.
        let after = fill(&cuda);
        // A context that is made beside such memory, which may be given back meanwhile, is charged what a context takes at most (H200: 93 MiB more).
        ensure!(after.bytes + Bytes::mib(128) >= before.bytes, "{} after the reset, {} before", after.bytes, before.bytes);
        Ok(())
    }

    /// Where others take and give back all the time what a context takes cannot be measured: what it is charged at most explains no more of its row than is in its row.
    a_context_that_cannot_be_measured_is_charged_beside_its_row {
        kind: Budget, defects: ["R107", "C10"], budget: "0=3GiB",
        entry_points: ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain", "cuMemCreate", "cuGraphInstantiateWithFlags", "cuMemAlloc_v2"],
        unordered: "threads race",
    } (session) {
        const EXECS: usize = 4096;
        let cuda = cuda()?;
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        let made = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Who takes and gives back all the time leaves nobody a moment to compare books and figures.
            for _ in 0..2 {
                scope.spawn(|| while !made.load(std::sync::atomic::Ordering::Relaxed) {
                    let memory = cuda.create_memory(0, Bytes::mib(2).0);
                    memory.granted().map(|memory| cuda.release_memory(memory)).ok();
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            let context = context(&cuda, 0);
            made.store(true, std::sync::atomic::Ordering::Relaxed);
            context
        })?;
        // More than such a context is charged beyond what it takes, and by no call's own charge.
        let (graph, target) = (cuda.create_graph(), cuda.allocate(4096));
        ensure_eq!((graph.code, target.code), (OK, OK), "a graph and what it sets");
        ensure_eq!(cuda.add_branch(graph.out, &[], target.out).code, OK, "a node");
        for at in 0..EXECS {
            ensure_eq!(cuda.instantiate(Instantiate::WithFlags, graph.out).code, OK, "cuGraphInstantiateWithFlags, {at}");
        }
        super::truth::within(session, &cuda)
    }

    /// So are contexts of 32-bit days: what one was charged comes back with it, and while it lives the books show it (the
    /// checkers look at the last one). Beside such a context the driver refuses every other (H200, 580.159.04).
    a_context_of_32_bit_days_is_charged {
        kind: Budget, defects: ["C10", "R7"], budget: "0=4GiB",
        entry_points: ["cuCtxCreate", "cuCtxDestroy", "cuCtxCreate_v3", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        let old = cuda.create_context_v1(0);
        ensure_eq!(old.code, OK, "cuCtxCreate");
        ensure_eq!(cuda.destroy_context_v1(old.out), OK, "cuCtxDestroy");
        let third = cuda.create_context_v3(0);
        ensure_eq!(third.code, OK, "cuCtxCreate_v3");
        let filled = fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM);
        ensure_eq!(cuda.destroy_context(third.out), OK, "cuCtxDestroy_v2");
        ensure_eq!(cuda.create_context_v1(0).code, OK, "cuCtxCreate after all is given back");
        filled
    }

    /// 32-bit contexts of two devices have the same addresses: the second is refused, or what it takes is within its own device's budget. Once the first
    /// is gone there is no such reason.
    contexts_of_32_bit_days_on_two_devices_are_no_way_past_the_budget {
        kind: Budget, defects: ["R42", "C9"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=8GiB,1=1GiB",
        entry_points: ["cuCtxCreate", "cuCtxDestroy", "cuMemAlloc"],
    } (session) {
        let cuda = cuda_without_context()?;
        let step = Bytes::mib(64);
        let take = || until_refused(&[step], |bytes| cuda.allocate_v1(bytes.0 as u32).granted());
        let first = cuda.create_context_v1(0);
        ensure_eq!(first.code, OK, "cuCtxCreate on the first device");
        let taken = take();
        ensure!(taken.bytes >= Bytes::gib(2), "{} of 8 GiB on the first device", taken.bytes);
        let beside = match cuda.create_context_v1(1).code {
            OK => take().bytes,
            _ => Bytes::ZERO,
        };
        let budget = budget(session, 1)?;
        ensure!(beside <= budget, "{beside} on the second device under {budget}");
        ensure_eq!(cuda.destroy_context_v1(first.out), OK, "cuCtxDestroy");
        if beside == Bytes::ZERO {
            ensure_eq!(cuda.create_context_v1(1).code, OK, "cuCtxCreate on the second device");
            fills(take().bytes, budget, CONTEXT_ROOM + step)?;
        }
        Ok(())
    }

    /// The primary context is charged once however often it is retained, and given back with the last release or a reset,
    /// by the older calls too.
    the_primary_context_is_charged_once {
        kind: Budget, defects: ["C10"], budget: "0=4GiB",
        entry_points: [
            "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
            "cuDevicePrimaryCtxReset", "cuMemAlloc_v2",
        ],
    } (session) {
        let cuda = cuda_without_context()?;
        for round in 0..10 {
            for _ in 0..3 {
                context(&cuda, 0)?;
            }
            ensure_eq!(cuda.allocate(Bytes::gib(3).0).code, OK, "3 of 4 GiB in round {round}");
            match round % 2 {
                0 => ensure_eq!(cuda.reset_primary_v1(0), OK, "cuDevicePrimaryCtxReset"),
                _ => ensure_eq!(cuda.release_primary_v1(0), OK, "cuDevicePrimaryCtxRelease"),
            }
            while cuda.release_primary(0) == OK {}
        }
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}
