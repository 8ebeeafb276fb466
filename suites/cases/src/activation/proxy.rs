//! Our libraries in the drivers' place, for programs that a preload does not reach.

use abi::cuda::CUresult;
use std::time::{Duration, Instant};

use harness::{
    Bytes, Failure, Launch, Library as Built, Peer, Session, cases, ensure, ensure_eq, roles,
};

use crate::clients::{Gpu, context, cuda, fill, nvml, told};
use crate::ffi::cuda::Cuda;
use crate::ffi::library::Library;
use crate::ffi::process::{HIDES, give_up_looking, hide, overhear};
use crate::ffi::vulkan::Code;
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::symbols::proc_address::newest_look_up;

const STEP: Bytes = Bytes::mib(64);

/// What a program takes past the preload: more than half of the budget.
const UNSEEN: Bytes = Bytes::gib(3);

const UNLISTED: &str =
    "NVML's row lacks a few MiB of each context, and only who sees one made can tell how many";

/// One line tells of memory that nobody was asked for.
fn is_said_once(stderr: &str) -> Result<(), Failure> {
    let said = stderr.lines().filter(|line| line.contains("is charged"));
    ensure_eq!(
        said.count(),
        1,
        "lines about memory that nobody was asked for: {stderr:?}"
    );
    Ok(())
}

/// Once the program uses CUDA through the preload too, that gets as much less as was taken past it, and one line on stderr says so.
fn is_detected(session: &Session) -> Result<(), Failure> {
    let (taken, [_, stderr]) = overhear(|| Ok::<_, Failure>(fill(&cuda()?)))?;
    let taken = taken?;
    taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
    fills(
        taken.bytes + UNSEEN,
        budget(session, 0)?,
        Bytes(2 * CONTEXT_ROOM.0),
    )?;
    is_said_once(&stderr)
}

/// A core that the program opens with RTLD_DEEPBIND takes until it is refused, twice the budget at most.
fn deeply_bound(session: &Session) -> Result<Bytes, Failure> {
    let core = Library::open_bound_deeply(&session.library(Built::Plugin)?)?;
    let most = Bytes(2 * budget(session, 0)?.0);
    let Some((taken, code)) = core.take(STEP.0, most.0) else {
        harness::fail!("the plugin exports no core_take")
    };
    ensure_eq!(
        code,
        CUresult::ERROR_OUT_OF_MEMORY,
        "what ended the core's taking of {}",
        Bytes(taken)
    );
    Ok(Bytes(taken))
}

/// A core in a namespace of its own (`dlmopen`), where libc's look-ups and the driver are copies that no preload stands before: what it took of what it asked for.
fn taken_past_the_preload(session: &Session) -> Result<Bytes, Failure> {
    let core = Library::open_apart(&session.library(Built::Plugin)?.display().to_string())?;
    let Some((taken, _)) = core.take(STEP.0, UNSEEN.0) else {
        harness::fail!("the plugin exports no core_take")
    };
    Ok(Bytes(taken))
}

/// Another process of the tenant, which uses CUDA by a core in a namespace of its own and in no other way, and has taken so much by it.
fn elsewhere(session: &Session) -> Result<Peer, Failure> {
    holding(session.launch("core"))
}

fn holding(core: Launch<'_>) -> Result<Peer, Failure> {
    let mut peer = core.start()?;
    let taken = peer.line()?;
    ensure_eq!(
        taken,
        UNSEEN.0.to_string(),
        "what the other process's core took"
    );
    Ok(peer)
}

/// What NVML says is in use of the first device, and its total.
fn in_use() -> Result<(Bytes, Bytes), Failure> {
    in_use_of(0)
}

fn in_use_of(index: u32) -> Result<(Bytes, Bytes), Failure> {
    let nvml = nvml()?;
    let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(index))?;
    let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
    Ok((Bytes(memory.used), Bytes(memory.total)))
}

/// What another process of the tenant holds is charged: this one gets that much less, one line says so, and it gets it when the other has ended.
fn others_lack(session: &Session, other: Peer) -> Result<(), Failure> {
    let (cuda, [_, stderr]) = overhear(|| -> Result<_, Failure> {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(
            taken.bytes + UNSEEN,
            budget(session, 0)?,
            Bytes(2 * CONTEXT_ROOM.0),
        )?;
        Ok((cuda, taken.bytes))
    })?;
    let (cuda, taken) = cuda?;
    is_said_once(&stderr)?;
    other.finish()?;
    let more = fill(&cuda);
    more.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
    fills(taken + more.bytes, budget(session, 0)?, CONTEXT_ROOM)
}

roles! {
    /// As the next, after it has seen to it that nobody can look at it.
    hidden_core(session, parent) {
        hide()?;
        core(session, parent)
    }

    /// Says what its core took, and holds it.
    core(session, parent) {
        let taken = taken_past_the_preload(session)?;
        parent.say(&taken.0.to_string())?;
        while parent.hear().is_some() {}
        Ok(())
    }
}

/// libcuda in a namespace of its own.
fn apart() -> Result<Cuda, Failure> {
    let cuda = Cuda::of(Library::open_apart("libcuda.so.1")?);
    ensure_eq!(cuda.init(), CUresult::SUCCESS, "cuInit");
    context(&cuda, 0)?;
    Ok(cuda)
}

cases! {
    /// A program that opens its core with RTLD_DEEPBIND reaches libc's own dlsym, and with the proxies in the drivers' place the budget all the same.
    a_core_bound_deeply_is_held_by_the_proxy {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        fills(deeply_bound(session)?, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// libcuda opened by dlmopen, in a namespace of its own, is the proxy there too.
    a_second_namespace_is_held_by_the_proxy {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let taken = fill(&apart()?);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A preload holds it too, which exchanges what such a core is bound to when the program looks its functions up.
    a_core_bound_deeply_is_held_by_the_preload {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=4GiB",
    } (session) {
        fills(deeply_bound(session)?, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What a core takes past the preload is found in NVML's row and charged.
    what_a_core_takes_past_the_preload_cuda_lacks {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=6GiB", unaccounted: UNLISTED,
        on_real: No("H200, 580.159.04: a second copy of the vendor's library in a process answers cuInit with 304"),
    } (session) {
        ensure_eq!(taken_past_the_preload(session)?, UNSEEN, "what the core took of what it asked for");
        is_detected(session)
    }

    /// A process that asks no hook for anything is charged all the same, by the tenant's others: they get that much less, one line says so, and they get it
    /// when it has ended.
    what_a_process_takes_past_the_preload_the_tenants_others_lack {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=6GiB", unaccounted: UNLISTED,
    } (session) {
        others_lack(session, elsewhere(session)?)
    }

    /// So is one that lets nobody look at it, where it is of the same user, in the same control groups and PID namespace.
    what_a_process_that_hides_takes_past_the_preload_the_tenants_others_lack {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=6GiB", unaccounted: UNLISTED, on_real: Alone(HIDES),
    } (session) {
        let other = holding(session.launch("hidden_core"))?;
        give_up_looking()?;
        others_lack(session, other)
    }

    /// The tenant's own nvidia-smi, a process without a context, tells what such a process holds as in use, and when it has ended as free.
    what_a_process_takes_past_the_preload_nvml_tells_as_in_use {
        kind: Budget, defects: ["R8"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=6GiB", libraries: PreloadOnly, unaccounted: UNLISTED,
    } (session) {
        let (before, total) = in_use()?;
        ensure_eq!((before, total), (Bytes::ZERO, budget(session, 0)?), "in use before, of");
        let other = elsewhere(session)?;
        // Who asks again and again looks now and then.
        let begun = Instant::now();
        while in_use()?.0 < UNSEEN && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let used = in_use()?.0;
        ensure!(used >= UNSEEN && used <= UNSEEN + CONTEXT_ROOM, "{used} are told in use while {UNSEEN} are held");
        other.finish()?;
        let begun = Instant::now();
        while in_use()?.0 > Bytes::ZERO && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        ensure_eq!(in_use()?.0, Bytes::ZERO, "in use when nobody holds anything");
        Ok(())
    }

    /// Of each device at once: a question about another one just before is no reason to tell what was known before that.
    what_a_process_takes_past_the_preload_nvml_tells_of_each_device_at_once {
        kind: Budget, defects: ["R8"], entry_points: ["nvmlDeviceGetMemoryInfo"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=6GiB,1=6GiB",
        libraries: PreloadOnly, unaccounted: UNLISTED,
    } (session) {
        let other = holding(session.launch("core").env("CUDA_VISIBLE_DEVICES", "1"))?;
        let [(first, _), (second, total)] = [in_use_of(0)?, in_use_of(1)?];
        ensure_eq!((first, total), (Bytes::ZERO, budget(session, 1)?), "in use of the first device, total of the second");
        ensure!(second >= UNSEEN && second <= UNSEEN + CONTEXT_ROOM, "{second} are told in use while {UNSEEN} are held");
        other.finish()
    }

    /// Vulkan gets that much less too.
    what_a_process_takes_past_the_preload_vulkan_lacks {
        kind: Budget, defects: ["R8"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB", unaccounted: UNLISTED,
    } (session) {
        let other = elsewhere(session)?;
        let gpu = Gpu::first()?;
        let taken = gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes + UNSEEN, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        other.finish()
    }

    /// A second namespace has a driver of its own, which no hook calls: either it is not to be had, or it draws on what is left of the budget.
    a_second_namespaces_driver_is_no_way_past_the_budget {
        kind: Budget, defects: ["R8", "R40"], entry_points: ["cuMemAlloc_v2", "cuInit"], budget: "0=6GiB",
        on_real: No("two copies of the vendor's library in one process"),
    } (session) {
        let here = fill(&cuda()?);
        here.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(here.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        let there = Cuda::of(Library::open_apart("libcuda.so.1")?);
        if there.library.address("cuInit").is_none() {
            return Ok(());
        }
        // Nothing of the budget is left for a context, or even for cuInit.
        let begun = there.init() == CUresult::SUCCESS && context(&there, 0).is_ok();
        let beside = if begun { fill(&there).bytes } else { Bytes::ZERO };
        ensure!(
            here.bytes + beside <= budget(session, 0)?,
            "{beside} were granted in the second namespace beside {}",
            here.bytes
        );
        Ok(())
    }

    /// What a program takes by the proxy and what its second namespace takes draw on one budget.
    two_namespaces_share_the_budget {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let (here, there) = (cuda()?, apart()?);
        ensure_eq!(there.allocate(Bytes::gib(1).0).code, CUresult::SUCCESS, "1 GiB in the second namespace");
        let taken = fill(&here).bytes + Bytes::gib(1);
        fills(taken, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))
    }

    /// Where a preload meets the proxies one of them keeps account: nothing is charged twice, and nothing passes uncharged between them.
    a_preload_and_the_proxies_charge_once {
        kind: Budget, defects: ["R8", "R9"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=6GiB", libraries: BothAndProxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let cuda = cuda()?;
        let first = fill(&cuda);
        fills(first.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        for pointer in first.held {
            ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
        }
        // The core's look-ups reach the proxy, which hands them on to the preload.
        let taken = deeply_bound(session)?;
        fills(taken, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// By the proxies NVML tells the budget, as CUDA does.
    the_proxies_tell_one_story {
        kind: Budget, defects: ["T4"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuMemGetInfo_v2"], budget: "0=6GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, CUresult::SUCCESS, "1 GiB");
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "NVML's total");
        ensure_eq!((memory.free, memory.total), cuda.memory_info().out, "NVML's and CUDA's free and total");
        Ok(())
    }

    /// Names that no proxy hooks are the driver's, by its handle and by its answers.
    what_no_proxy_hooks_is_the_drivers {
        defects: ["R8", "S3"], entry_points: ["cuGetProcAddress_v2"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let cuda = cuda()?;
        for name in ["cuDeviceGetName", "cuCtxGetDevice", "cuGetErrorName"] {
            let by_handle = cuda.library.address(name);
            ensure!(by_handle.is_some(), "{name} was not found by handle");
            let answered = newest_look_up(session, &cuda, name, 12_000, 0)?;
            ensure!(answered.address == by_handle, "cuGetProcAddress answers another {name}");
        }
        ensure!(cuda.library.address("cuMemAlloc_v99").is_none(), "cuMemAlloc_v99 was found");
        ensure!(cuda.library.address("dlsym").is_some(), "libc's dlsym was not found behind the proxy");
        Ok(())
    }
}
