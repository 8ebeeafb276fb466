//! Fork, before and after initialisation, and in the middle of everything.

use std::sync::atomic::{AtomicBool, Ordering};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq, fail};

use crate::clients::{context, cuda, cuda_without_context, fill, nvml, told};
use crate::ffi::cuda::Cuda;
use crate::ffi::library::{Scope, Visibility, look_up};
use crate::ffi::process::{Ending, in_fork};
use crate::ffi::vulkan::Wish;
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::vulkan::asked::Asker;

const OK: CUresult = CUresult::SUCCESS;

/// An answer as an exit code; codes that do not fit come as 255.
fn exit_code(answer: CUresult) -> u8 {
    u8::try_from(answer.0).unwrap_or(255)
}

fn forked(what: &str, promised: u8, body: impl FnOnce() -> u8) -> Result<(), Failure> {
    ensure_eq!(in_fork(60, body)?, Ending::Exit(promised.into()), "{what}");
    Ok(())
}

cases! {
    /// The child of an initialised process gets CUDA_ERROR_NOT_INITIALIZED, as the driver answers it, and takes nothing
    /// of its parent's charge with it.
    a_child_of_an_initialised_process_only_forwards {
        kind: Budget, defects: ["P7"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=8GiB",
    } (session) {
        let cuda = cuda()?;
        let pointer = cuda.allocate(Bytes::gib(4).0);
        ensure_eq!(pointer.code, OK, "4 GiB of the parent");
        forked("cuMemAlloc_v2 in the child", 3, || exit_code(cuda.allocate(1).code))?;
        forked("cuMemFree_v2 of the parent's memory in the child", 3, || exit_code(cuda.free(pointer.out)))?;
        let taken = fill(&cuda);
        fills(taken.bytes + Bytes::gib(4), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// NVML answers the child of an initialised process as it answered its parent: of the budget, not of the card.
    a_child_of_an_initialised_process_is_told_the_budget {
        kind: Budget, defects: ["R45"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=8GiB",
    } (session) {
        let (cuda, promised) = (cuda()?, budget(session, 0)?);
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 GiB of the parent");
        forked("NVML in the child: 0 the budget and the parent's use of it, 1 another total, 2 another use", 0, || {
            let Some(memory) = nvml().ok().and_then(|nvml| {
                let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0)).ok()?;
                told("nvmlDeviceGetMemoryInfo", nvml.memory(device)).ok()
            }) else {
                return 101;
            };
            let used = Bytes::gib(1).0..Bytes::gib(2).0;
            match (Bytes(memory.total) == promised, used.contains(&memory.used)) {
                (false, _) => 1,
                (true, false) => 2,
                (true, true) => 0,
            }
        })
    }

    /// A child forked before anything was initialised works by itself, and both draw on one budget.
    a_child_forked_before_initialisation_shares_the_budget {
        kind: Budget, defects: ["P7"], entry_points: ["cuInit", "cuMemAlloc_v2"], budget: "0=8GiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let cuda = Cuda::open()?;
        let use_it = || {
            if cuda.init() != OK {
                return 101;
            }
            if context(&cuda, 0).is_err() {
                return 102;
            }
            if cuda.allocate(Bytes::gib(5).0).code != OK {
                return 103;
            }
            exit_code(cuda.allocate(Bytes::gib(5).0).code)
        };
        forked("5 GiB and 5 more in a child alone", 2, use_it)?;
        ensure_eq!(cuda.init(), OK, "cuInit in the parent");
        context(&cuda, 0)?;
        session.eventually("the child's memory is back", || {
            cuda.allocate(Bytes::gib(5).0).code == OK
        })?;
        fills(fill(&cuda).bytes + Bytes::gib(5), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A parent that only asked NVML has nothing of its own yet, but a place in the ledger: its children take memory by themselves, and what they
    /// held is back when they are gone.
    a_child_forked_after_nvml_was_asked_pays_by_itself {
        kind: Budget, defects: ["P7"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuInit", "cuMemAlloc_v2"], budget: "0=8GiB",
        unordered: "asks until the driver has let go",
    } (session) {
        let (nvml, cuda) = (nvml()?, Cuda::open()?);
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let asked = || told("nvmlDeviceGetMemoryInfo", nvml.memory(device));
        ensure_eq!(Bytes(asked()?.total), budget(session, 0)?, "total");
        let takes = || match cuda.init() {
            OK if context(&cuda, 0).is_ok() => exit_code(cuda.allocate(Bytes::gib(5).0).code),
            _ => 101,
        };
        forked("5 GiB in a child", 0, takes)?;
        // A question that fails is answered at once: a lost device never says that it is back.
        let mut seen = asked();
        session.eventually("the child's memory is back", || {
            seen = asked();
            seen.as_ref().map_or(true, |memory| memory.used < Bytes::gib(1).0)
        })?;
        seen?;
        ensure_eq!(cuda.init(), OK, "cuInit in the parent");
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Forking while eight threads allocate and free hangs nobody, parent or child, and loses no byte.
    forking_among_busy_threads_hangs_nobody {
        kind: Budget, defects: ["P7", "P2"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=8GiB",
        unordered: "eight threads race with the fork",
        on_real: No("the vendor's driver makes no promise about forks among its threads"),
    } (session) {
        let cuda = cuda_without_context()?;
        let retained = context(&cuda, 0)?;
        let stop = AtomicBool::new(false);
        let children = std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    cuda.set_current(retained);
                    while !stop.load(Ordering::Relaxed) {
                        if let Ok(pointer) = cuda.allocate(Bytes::mib(64).0).granted() {
                            cuda.free(pointer);
                        }
                    }
                });
            }
            let children = (0..20).try_for_each(|number| {
                forked(&format!("cuMemAlloc_v2 in child {number}"), 3, || exit_code(cuda.allocate(1).code))
            });
            stop.store(true, Ordering::Relaxed);
            children
        });
        children?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A child that is forked while other threads export memory makes devices of its own and exports, and waits for none of its parent's threads. (The simulated
    /// driver's own locks hold up one child in a hundred or so.)
    a_child_forked_beside_an_export_exports_its_own {
        defects: ["V34"], entry_points: ["vkGetMemoryFdKHR", "vkAllocateMemory", "vkFreeMemory"], budget: "0=8GiB",
        unordered: "two threads race with the fork",
        on_real: No("the vendor's driver makes no promise about forks among its threads"),
    } (_session) {
        let export = |asker: &Asker| -> Result<(), Failure> {
            let wish = Wish { exportable: true, ..Wish::default() };
            let memory = asker.ask(Bytes::mib(1), wish)?;
            let _descriptor = asker.device.export(&asker.instance, memory)?;
            asker.device.free(memory);
            Ok(())
        };
        let asker = Asker::new()?;
        let stop = AtomicBool::new(false);
        let hung = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| -> Result<(), Failure> {
                while !stop.load(Ordering::Relaxed) {
                    export(&asker)?;
                }
                Ok(())
            }));
            let hung = (0..40).try_fold(0, |hung, number| {
                let child = || match Asker::new().and_then(|own| export(&own)) {
                    Ok(()) => 0,
                    Err(_) => 1,
                };
                match in_fork(3, child)? {
                    Ending::Hung => Ok(hung + 1),
                    Ending::Exit(0) => Ok(hung),
                    ending => fail!("child {number}: {ending:?}"),
                }
            });
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                match thread.join() {
                    Ok(exported) => exported?,
                    Err(_) => fail!("a thread that exports has panicked"),
                }
            }
            hung
        })?;
        ensure!(hung <= 4, "{hung} of 40 children hang");
        Ok(())
    }

    /// A child that is forked while another thread looks names up finds what its parent finds, and waits for nobody.
    a_child_forked_beside_a_look_up_finds_names {
        defects: ["C14"], entry_points: ["dlsym"], budget: "0=4GiB", unordered: "a thread races with the fork",
    } (_session) {
        Cuda::open_as("libcuda.so.1", Visibility::Global)?;
        let find = || look_up(Scope::Default, "cuMemAlloc_v2");
        let found = find();
        ensure!(found.is_some(), "cuMemAlloc_v2 is not found");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    find();
                }
            });
            let children = (0..50).try_for_each(|number| {
                forked(&format!("whether child {number} finds less"), 0, || u8::from(find() != found))
            });
            stop.store(true, Ordering::Relaxed);
            children
        })
    }
}
