//! What NVML says that a tenant uses never exceeds its budget, whatever the driver takes beside what was asked for (C10).

use std::sync::Barrier;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use super::routes::OUT_OF_MEMORY;
use crate::clients::{context, cuda, fill, nvml};
use crate::ffi::cuda::{Cuda, Image, Stream};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::vulkan::floor::row;

const OK: CUresult = CUresult::SUCCESS;

/// What can be had now, given back again.
fn room(cuda: &Cuda) -> Result<Bytes, Failure> {
    let taken = fill(cuda);
    taken.refused_with(OUT_OF_MEMORY)?;
    for pointer in taken.held {
        ensure_eq!(cuda.free(pointer), OK, "cuMemFree_v2");
    }
    Ok(taken.bytes)
}

/// With all that can be had allocated NVML's own figure of this process is within the budget, and not far from it.
pub fn within(session: &Session, cuda: &Cuda) -> Result<(), Failure> {
    fill(cuda).refused_with(OUT_OF_MEMORY)?;
    let held = row(&nvml()?)?;
    let budget = budget(session, 0)?;
    ensure!(
        held <= budget,
        "NVML says that {held} are in use, under {budget}"
    );
    fills(held, budget, CONTEXT_ROOM)
}

/// By the proxies NVML is begun for each look: they do not hear whether the program uses it, whose own count of inits it is.
fn hears_look_ups(session: &Session) -> Result<(), Failure> {
    match session.preloads().is_empty() {
        true => Err(Failure::Skip(
            "proxies keep no session of NVML's open".to_owned(),
        )),
        false => Ok(()),
    }
}

cases! {
    /// 128 streams take 70 MiB (H200), which their context keeps: charged once, by whichever call they are made.
    streams_are_charged {
        kind: Budget, defects: ["C10"], budget: "0=1GiB",
        entry_points: ["cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy", "cuStreamDestroy_v2", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let before = room(&cuda)?;
        ensure!(before < budget(session, 0)?, "{before} were granted");
        for round in 0..3 {
            let mut streams = Vec::new();
            for at in 0..128 {
                let stream = match at % 2 {
                    0 => cuda.create_stream(),
                    _ => cuda.create_stream_with_priority(-1),
                };
                ensure_eq!(stream.code, OK, "stream {at} of round {round}");
                streams.push(stream.out);
            }
            let beside = room(&cuda)?;
            ensure!(beside + Bytes::mib(70) <= before, "{beside} beside 128 streams, {before} beside none");
            ensure!(beside + Bytes::mib(74) >= before, "{beside} beside 128 streams, {before} beside none");
            for (at, stream) in streams.into_iter().enumerate() {
                match at % 2 {
                    0 => ensure_eq!(cuda.destroy_stream(stream), OK, "cuStreamDestroy_v2"),
                    _ => ensure_eq!(cuda.destroy_stream_v1(stream), OK, "cuStreamDestroy"),
                }
            }
        }
        within(session, &cuda)
    }

    /// With no room left for its memory a stream is refused, and a bad flag is still a bad flag.
    a_stream_beyond_the_budget_is_refused {
        kind: Budget, defects: ["C10", "C1"], budget: "0=1GiB", entry_points: ["cuStreamCreate", "cuStreamCreateWithPriority"],
    } (session) {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        let made = (0..128).map(|_| cuda.create_stream().code).find(|code| *code != OK);
        ensure_eq!(made, Some(OUT_OF_MEMORY), "cuStreamCreate until it is refused");
        let made = (0..128).map(|_| cuda.create_stream_with_priority(0).code).find(|code| *code != OK);
        ensure_eq!(made, Some(OUT_OF_MEMORY), "cuStreamCreateWithPriority until it is refused");
        for name in ["cuStreamCreate", "cuStreamCreateWithPriority"] {
            ensure_eq!(cuda.with_zeros(name), CUresult::ERROR_INVALID_VALUE, "{name} with zeros");
        }
        for name in ["cuStreamDestroy", "cuStreamDestroy_v2"] {
            ensure_eq!(cuda.with_zeros(name), CUresult::ERROR_INVALID_HANDLE, "{name} with zeros");
        }
        Ok(())
    }

    /// What the driver takes unasked is found before it is given away: each of 64 threads has a default stream of its own.
    what_nobody_asked_for_is_charged {
        kind: Budget, defects: ["C10"], budget: "0=1GiB", entry_points: ["cuMemAllocAsync_ptsz", "cuMemAlloc_v2"],
        unordered: "64 threads race",
    } (session) {
        const THREADS: usize = 64;
        let cuda = cuda()?;
        let all = Barrier::new(THREADS);
        let used = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| -> Result<(), Failure> {
                    let made = context(&cuda, 0).map(|_| {
                        let block = cuda.allocate_async(Stream::PerThread, 512);
                        (block.code, cuda.free_async(Stream::PerThread, block.out))
                    });
                    // Of threads that are gone the streams are gone: all of them are wanted at once.
                    all.wait();
                    ensure_eq!(made?, (OK, OK), "512 bytes on a thread's own stream");
                    Ok(())
                }))
                .collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(answer) => answer,
                Err(_) => Err(Failure::Broken("a thread panicked".to_owned())),
            })
        });
        used?;
        within(session, &cuda)
    }

    /// Contexts, modules, streams and memory together come and go, and NVML's figure stays within the budget.
    all_structures_together_stay_within_the_budget {
        kind: Budget, defects: ["C10", "R12", "R13"], budget: "0=3GiB",
        entry_points: ["cuCtxCreate_v2", "cuStreamCreate", "cuModuleLoadData", "cuMemAlloc_v2", "cuMemAllocAsync"],
    } (session) {
        let cuda = cuda()?;
        for round in 0..3 {
            let second = cuda.create_context(0);
            ensure_eq!(second.code, OK, "cuCtxCreate_v2 in round {round}");
            for _ in 0..16 {
                ensure_eq!(cuda.create_stream().code, OK, "cuStreamCreate");
            }
            let block = cuda.allocate_async(Stream::Legacy, Bytes::mib(40).0);
            ensure_eq!(block.code, OK, "40 MiB on a stream");
            fill(&cuda).refused_with(OUT_OF_MEMORY)?;
            ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.destroy_context(second.out), OK, "cuCtxDestroy_v2");
            context(&cuda, 0)?;
        }
        within(session, &cuda)
    }

    /// A call that the driver's figure matters to begins NVML once, and a module's load far from the budget not at all: beginning it takes
    /// milliseconds. cuInit may ask it for the devices; a context makes two.
    nvml_is_begun_once_by_whoever_asks_it {
        kind: Own, defects: ["C10"], budget: "0=8GiB",
        entry_points: ["cuInit", "cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "nvmlInit_v2", when = "3..", then = "kill-before" }]"#,
    } (session) {
        hears_look_ups(session)?;
        let cuda = cuda()?;
        let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n";
        for round in 0..20 {
            ensure_eq!(cuda.load_module(&Image::ptx(text)).code, OK, "a module, round {round}");
        }
        ensure_eq!(cuda.allocate(Bytes::mib(2).0).code, OK, "cuMemAlloc_v2");
        Ok(())
    }

    /// Nor does a refusal begin it again: it asks in the session that is open.
    refusals_begin_nvml_no_second_time {
        kind: Own, defects: ["D2"], budget: "0=2GiB", entry_points: ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "nvmlInit_v2", when = "3..", then = "kill-before" }]"#,
    } (session) {
        hears_look_ups(session)?;
        let cuda = cuda()?;
        for round in 0..100 {
            ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, OUT_OF_MEMORY, "2 GiB of 2, round {round}");
        }
        Ok(())
    }

    /// Memory that is taken and given back again is looked at once at most: only what is kept calls for another look. A context and two fills make a few.
    pairs_of_calls_ask_for_no_figures {
        kind: Own, defects: ["D1"], budget: "0=8GiB", entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"],
        faults: r#"fault = [{ at = "nvmlDeviceGetComputeRunningProcesses_v3", when = "40..", then = "kill-before" }]"#,
    } (_session) {
        let cuda = cuda()?;
        for round in 0..200 {
            let taken = cuda.allocate(Bytes::mib(600).0);
            ensure_eq!(taken.code, OK, "600 MiB, round {round}");
            ensure_eq!(cuda.free(taken.out), OK, "cuMemFree_v2");
        }
        Ok(())
    }

    /// A process's first primary context costs five milliseconds more than bare at most: an init of NVML alone is ten on an H200.
    a_first_context_begins_no_nvml {
        kind: Own, defects: ["D4"], budget: "0=8GiB", entry_points: ["cuDevicePrimaryCtxRetain"],
        faults: r#"fault = [{ at = "nvmlInit*", then = "kill-before" }]"#,
    } (_session) {
        cuda().map(drop)
    }

    /// What modules take that were loaded far from the budget is charged, near to it as well.
    many_modules_are_charged {
        kind: Budget, defects: ["C10", "R13"], budget: "0=2GiB", entry_points: ["cuModuleLoadData", "cuModuleUnload", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let before = room(&cuda)?;
        let text = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 small[{}];\n.visible .entry empty()\n{{\nret;\n}}\n",
            Bytes::mib(1).0,
        );
        let mut modules = Vec::new();
        for round in 0..64 {
            let module = cuda.load_module(&Image::ptx(&text));
            ensure_eq!(module.code, OK, "a module, round {round}");
            modules.push(module.out);
        }
        let beside = room(&cuda)?;
        ensure!(beside + Bytes::mib(48) <= before, "{beside} beside 64 modules, {before} beside none");
        ensure!(beside + Bytes::mib(192) >= before, "{beside} beside 64 modules, {before} beside none");
        for module in modules {
            ensure_eq!(cuda.unload_module(module), OK, "cuModuleUnload");
        }
        within(session, &cuda)
    }
}
