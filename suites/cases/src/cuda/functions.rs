//! Functions and kernels: local memory is device memory, for every thread that can be resident (R12).

use std::thread;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use super::routes::OUT_OF_MEMORY;
use super::truth::within;
use crate::clients::{context, cuda, cuda_without_context, fill, grown_by};
use crate::ffi::cuda::{
    Context, Cuda, Exchange, Function, Image, Instantiate, LoadedLibrary, Module, Run,
};
use crate::greed::{CONTEXT_ROOM, budget, fills};

const OK: CUresult = CUresult::SUCCESS;
const BLOCK: Bytes = Bytes::mib(2);
/// CU_LIMIT_STACK_SIZE.
const STACK_SIZE: i32 = 0;
/// CU_LIMIT_MALLOC_HEAP_SIZE.
const HEAP_SIZE: i32 = 2;

/// A kernel that needs so much local memory for each thread, as no compiler can take away.
fn kernel(name: &str, local: Bytes) -> String {
    format!(
        ".visible .entry {name}(.param .u64 p)\n{{\n.local .align 8 .b8 stack[{}];\n.reg .b64 %d<6>;\n.reg .b32 %r<6>;\nld.param.u64 %d1, [p];\nmov.u64 %d2, stack;\nld.global.u32 %r1, [%d1];\ncvt.u64.u32 %d3, %r1;\nadd.u64 %d4, %d2, %d3;\nst.local.u32 [%d4], %r1;\nld.global.u32 %r2, [%d1+4];\ncvt.u64.u32 %d3, %r2;\nadd.u64 %d4, %d2, %d3;\nld.local.u32 %r3, [%d4];\nst.global.u32 [%d1+8], %r3;\nret;\n}}\n",
        local.0
    )
}

/// A small kernel and one of 64 KiB a thread: 13 GiB and more on a large card.
pub fn image() -> Image {
    let (small, large) = (
        kernel("small", Bytes::kib(4)),
        kernel("large", Bytes::kib(64)),
    );
    Image::ptx(&format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n{small}{large}"
    ))
}

fn module(cuda: &Cuda) -> Result<Module, Failure> {
    let module = cuda.load_module(&image());
    ensure_eq!(module.code, OK, "cuModuleLoadData");
    Ok(module.out)
}

/// A function that does nothing and needs no local memory; its parameter is an address.
pub fn plain(cuda: &Cuda) -> Result<Function, Failure> {
    let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty(.param .u64 into)\n{\nret;\n}\n";
    let module = cuda.load_module(&Image::ptx(text));
    ensure_eq!(module.code, OK, "cuModuleLoadData");
    let function = cuda.function(module.out, "empty");
    ensure_eq!(function.code, OK, "cuModuleGetFunction");
    Ok(function.out)
}

fn library(cuda: &Cuda) -> Result<LoadedLibrary, Failure> {
    let library = cuda.load_library(&image());
    ensure_eq!(library.code, OK, "cuLibraryLoadData");
    Ok(library.out)
}

/// Launches the function of 4 KiB a thread, in a thread that has no context yet.
fn launch_small(cuda: &Cuda, context: Context, memory: u64) -> CUresult {
    cuda.set_current(context);
    let small = module(cuda).map(|module| cuda.function(module, "small").out);
    small.map_or(CUresult::ERROR_UNKNOWN, |small| {
        cuda.launch_function(small, memory)
    })
}

cases! {
    /// Modules that come and go leave nothing of the process's own memory behind, nor do functions that are obtained again and again.
    functions_of_unloaded_modules_are_forgotten {
        kind: Own, defects: ["R109"], budget: "0=4GiB", on_real: No("a card's driver keeps memory of its own"),
        entry_points: ["cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload"],
    } (_session) {
        const MOST: Bytes = Bytes::mib(1);
        let cuda = cuda()?;
        let image = image();
        let grown = grown_by(40_000, || {
            let module = cuda.load_module(&image);
            ensure_eq!(module.code, OK, "cuModuleLoadData");
            for _ in 0..2 {
                ensure_eq!(cuda.function(module.out, "small").code, OK, "cuModuleGetFunction");
            }
            ensure_eq!(cuda.unload_module(module.out), OK, "cuModuleUnload");
            Ok(())
        })?;
        ensure!(grown <= MOST, "{grown} for 40,000 modules");
        Ok(())
    }

    /// A stack that is refused leaves the one that another thread has set while it was judged, and gives it nothing that the budget has not.
    a_refused_stack_leaves_what_another_thread_has_set {
        kind: Budget, defects: ["R33b"], budget: "0=2GiB", unordered: "threads race",
        entry_points: ["cuCtxSetLimit", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "delay:400ms" }]"#,
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.set_limit(STACK_SIZE, 4096), OK, "a stack of 4 KiB");
        // Where that takes another part of the budget there is nothing to be refused, and nothing to be over.
        let most = Bytes(cuda.memory_info_free().out).saturating_sub(Bytes::mib(64));
        ensure_eq!(cuda.allocate(most.0).code, OK, "{most}, all but a little");
        let larger = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                cuda.set_current(current);
                cuda.set_limit(STACK_SIZE, 8192)
            });
            std::thread::sleep(std::time::Duration::from_millis(150));
            let smaller = cuda.set_limit(STACK_SIZE, 1024);
            let block = cuda.allocate(Bytes::mib(512).0).code;
            (other.join().unwrap_or(CUresult::ERROR_UNKNOWN), smaller, block)
        });
        ensure_eq!(larger, (OUT_OF_MEMORY, OK, OK), "8 KiB, 1 KiB, and what that gave back");
        within(session, &cuda)
    }

    /// A launch in a primary context that another thread is just making anew, which the driver has and the books have not yet, takes nothing uncharged.
    local_memory_in_a_context_that_is_being_made_is_no_way_past_the_budget {
        kind: Budget, defects: ["R103"], budget: "0=4GiB", unordered: "threads race",
        entry_points: ["cuLaunchKernel", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain"],
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(3);
        let launched = std::thread::scope(|scope| {
            scope.spawn(|| {
                while std::time::Instant::now() < end {
                    cuda.reset_primary(0);
                    cuda.retain_primary(0);
                }
            });
            cuda.set_current(current);
            let mut launched = 0;
            while std::time::Instant::now() < end && launched == 0 {
                let module = cuda.load_module(&image());
                let large = cuda.function(module.out, "large");
                if module.code == OK && large.code == OK {
                    launched += u32::from(cuda.launch_function(large.out, 0) == OK);
                }
            }
            launched
        });
        ensure_eq!(launched, 0, "launches of 64 KiB a thread");
        within(session, &cuda)
    }

    /// A stack that one thread sets, of a primary context that another makes anew meanwhile, takes nothing uncharged: neither what the context that is gone
    /// was charged for pays for it, nor is what the new one has room for given to others first.
    a_stack_that_is_set_while_its_context_is_made_anew_is_no_way_past_the_budget {
        kind: Budget, defects: ["R106"], budget: "0=4GiB", unordered: "threads race",
        entry_points: ["cuCtxSetLimit", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain"],
        faults: r#"fault = [{ at = "cuCtxSetLimit", when = "2", then = "delay:200ms" }]"#,
    } (session) {
        const STACK: u64 = 12 << 10;
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.set_limit(STACK_SIZE, STACK), OK, "a stack of 12 KiB");
        thread::scope(|scope| {
            scope.spawn(|| {
                cuda.set_current(current);
                cuda.set_limit(STACK_SIZE, STACK)
            });
            thread::sleep(Duration::from_millis(50));
            cuda.reset_primary(0);
            cuda.retain_primary(0);
            cuda.set_current(current);
            fill(&cuda);
        });
        within(session, &cuda)
    }

    /// A function whose launch would take more than the budget is not launched, whether it was obtained by name or in a list.
    local_memory_is_no_way_past_the_budget {
        kind: Budget, defects: ["R12"], budget: "0=4GiB", entry_points: ["cuModuleGetFunction", "cuModuleEnumerateFunctions", "cuLaunchKernel"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let module = module(&cuda)?;
        let large = cuda.function(module, "large");
        ensure_eq!(large.code, OK, "cuModuleGetFunction");
        ensure_eq!(cuda.launch_function(large.out, memory.out), OUT_OF_MEMORY, "a launch of 64 KiB a thread");
        if session.exports("cuModuleEnumerateFunctions")? {
            let listed = cuda.functions(module);
            ensure_eq!(listed.code, OK, "cuModuleEnumerateFunctions");
            let launches = listed.out.into_iter().flatten().map(|function| cuda.launch_function(function, memory.out));
            let mut codes: Vec<CUresult> = launches.collect();
            codes.sort_by_key(|code| code.0);
            ensure_eq!(codes, [OK, OUT_OF_MEMORY], "launches of the small and the large one");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        within(session, &cuda)
    }

    /// Nor is a kernel, which can be launched as it is and as a function of its context.
    local_memory_of_kernels_is_no_way_past_the_budget {
        kind: Budget, defects: ["R12"], budget: "0=4GiB", entry_points: ["cuLibraryGetKernel", "cuLibraryEnumerateKernels", "cuKernelGetFunction"],
        needs: ["cuLibraryGetKernel", "cuKernelGetFunction"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let library = library(&cuda)?;
        let large = cuda.kernel(library, "large");
        ensure_eq!(large.code, OK, "cuLibraryGetKernel");
        ensure_eq!(cuda.launch_kernel(large.out, memory.out), OUT_OF_MEMORY, "a launch of the kernel");
        let function = cuda.function_of_kernel(large.out);
        ensure_eq!(function.code, OK, "cuKernelGetFunction");
        ensure_eq!(cuda.launch_function(function.out, memory.out), OUT_OF_MEMORY, "a launch of its function");
        if session.exports("cuLibraryEnumerateKernels")? {
            let listed = cuda.kernels(library);
            ensure_eq!(listed.code, OK, "cuLibraryEnumerateKernels");
            let launches = listed.out.into_iter().flatten().map(|kernel| cuda.launch_kernel(kernel, memory.out));
            let mut codes: Vec<CUresult> = launches.collect();
            codes.sort_by_key(|code| code.0);
            ensure_eq!(codes, [OK, OUT_OF_MEMORY], "launches of the small and the large one");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        within(session, &cuda)
    }

    /// What is obtained and never launched takes nothing and is charged nothing: a program with a large kernel has its whole budget for others. So has
    /// one that launches the small beside it.
    local_memory_is_charged_to_who_launches {
        kind: Budget, defects: ["R28", "R12"], budget: "0=4GiB", entry_points: ["cuModuleGetFunction", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let module = module(&cuda)?;
        ensure_eq!(cuda.function(module, "large").code, OK, "a function of 64 KiB a thread");
        let plain = plain(&cuda)?;
        for _ in 0..4 {
            ensure_eq!(cuda.launch_function(plain, memory.out), OK, "its launch");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::mib(8), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A stack that is set smaller after a launch has made it larger is the tenant's again; the next such launch wants it once more.
    a_stack_that_is_set_smaller_is_charged_no_longer {
        kind: Budget, defects: ["R33"], budget: "0=20GiB", entry_points: ["cuLaunchKernel", "cuCtxSetLimit", "cuMemAlloc_v2"],
    } (session) {
        /// CU_LIMIT_STACK_SIZE.
        const STACK: i32 = 0;
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let large = cuda.function(module(&cuda)?, "large");
        ensure_eq!(large.code, OK, "a function of 64 KiB a thread");
        ensure_eq!(cuda.launch_function(large.out, memory.out), OK, "its launch");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        ensure_eq!(cuda.set_limit(STACK, 1024), OK, "cuCtxSetLimit");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::mib(8), budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.launch_function(large.out, memory.out), OUT_OF_MEMORY, "its launch beside a full budget");
        within(session, &cuda)
    }

    /// A launch that the driver has not got yet when another thread sets the stack takes its local memory after it: it stays charged.
    a_launch_under_way_while_the_stack_is_set_stays_charged {
        kind: Budget, defects: ["R33c"], budget: "0=2GiB", entry_points: ["cuLaunchKernel", "cuCtxSetLimit", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuLaunchKernel", then = "delay:300ms" }]"#, unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!(small.code, OK, "a function of 4 KiB a thread");
        ensure_eq!(cuda.launch_function(small.out, memory.out), OK, "its launch");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let launched = thread::scope(|scope| {
            let other = scope.spawn(|| launch_small(&cuda, current, memory.out));
            thread::sleep(Duration::from_millis(150));
            let set = cuda.set_limit(STACK_SIZE, 1024);
            fill(&cuda);
            (set, other.join().unwrap_or(CUresult::ERROR_UNKNOWN))
        });
        ensure_eq!(launched, (OK, OK), "a stack of 1 KiB beside another launch");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        within(session, &cuda)
    }

    /// What a stack of nothing gives back and takes again is no reason to refuse other threads what fits.
    a_stack_that_comes_and_goes_refuses_others_nothing {
        kind: Budget, defects: ["R33e"], budget: "0=2GiB", entry_points: ["cuCtxSetLimit", "cuMemAlloc_v2", "cuMemFree_v2"], unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        // Two threads hold half of what is left each, at most, beside what a stack of nothing gives back and is charged all the same.
        let half = Bytes(cuda.memory_info_free().out / 2).saturating_sub(Bytes::mib(32));
        let end = Instant::now() + Duration::from_secs(2);
        let refused = thread::scope(|scope| {
            scope.spawn(|| {
                cuda.set_current(current);
                while Instant::now() < end {
                    cuda.set_limit(STACK_SIZE, 0);
                    cuda.set_limit(STACK_SIZE, 1024);
                }
            });
            let others = [(); 2].map(|()| {
                scope.spawn(|| {
                    cuda.set_current(current);
                    let mut refused = 0_usize;
                    while Instant::now() < end {
                        match cuda.allocate(half.0).granted() {
                            Ok(block) => _ = cuda.free(block),
                            Err(_) => refused += 1,
                        }
                    }
                    refused
                })
            });
            others.map(|other| other.join().unwrap_or(usize::MAX))
        });
        ensure_eq!(refused, [0, 0], "refusals of {half} under a budget with room for two");
        within(session, &cuda)
    }

    /// A launch that the driver refuses gives back what it was charged for, but not what another thread's launch has taken of it.
    a_launch_that_is_refused_leaves_what_another_has_taken {
        kind: Budget, defects: ["R33d"], budget: "0=2GiB", entry_points: ["cuLaunchKernel", "cuCtxSetLimit", "cuMemAlloc_v2"],
        // Without a row no look puts right what is charged too little.
        faults: r#"fault = [
            { at = "cuLaunchKernel", when = "1", then = "delay:300ms" }, { at = "cuLaunchKernel", when = "1", then = "result:1" },
            { at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "result:3" }, { at = "nvmlDeviceGetComputeRunningProcesses_v2", then = "result:3" },
        ]"#,
        unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!(small.code, OK, "a function of 4 KiB a thread");
        let launched = thread::scope(|scope| {
            let other = scope.spawn(|| launch_small(&cuda, current, memory.out));
            thread::sleep(Duration::from_millis(150));
            let launched = cuda.launch_function(small.out, memory.out);
            (launched, other.join().unwrap_or(CUresult::ERROR_UNKNOWN))
        });
        ensure_eq!(launched.0, OK, "a launch beside one that may be refused");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::gib(1))
    }

    /// A stack that was charged already, for another thread's launch, is granted though that launch is refused: what it was charged is not given to others
    /// before the driver has set the stack.
    a_stack_that_is_set_while_a_launch_is_refused_stays_charged {
        kind: Budget, defects: ["R105"], budget: "0=2GiB", entry_points: ["cuLaunchKernel", "cuCtxSetLimit", "cuMemAlloc_v2"],
        faults: r#"fault = [
            { at = "cuLaunchKernel", when = "1", then = "delay:300ms" }, { at = "cuLaunchKernel", when = "1", then = "result:1" },
            { at = "cuCtxSetLimit", when = "1", then = "delay:700ms" },
        ]"#,
        unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let [launched, set] = thread::scope(|scope| {
            let launch = scope.spawn(|| launch_small(&cuda, current, memory.out));
            thread::sleep(Duration::from_millis(150));
            let set = scope.spawn(|| {
                cuda.set_current(current);
                cuda.set_limit(STACK_SIZE, 4096)
            });
            thread::sleep(Duration::from_millis(300));
            fill(&cuda);
            [launch, set].map(|thread| thread.join().unwrap_or(CUresult::ERROR_UNKNOWN))
        });
        ensure_eq!(launched, CUresult::ERROR_INVALID_VALUE, "a launch that is refused");
        ensure_eq!(set, OK, "a stack as large as the launch that is refused would have made it");
        within(session, &cuda)
    }

    /// What a launch has made of a stack that another thread sets at the same time is charged no longer once the driver tells that it gave it back.
    a_stack_set_beside_a_launch_is_charged_as_the_driver_tells {
        kind: Budget, defects: ["R116"], budget: "0=2GiB", entry_points: ["cuLaunchKernel", "cuCtxSetLimit", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuLaunchKernel", when = "1", then = "delay:300ms" }, { at = "cuCtxSetLimit", when = "1", then = "delay:700ms" }]"#,
        unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!(small.code, OK, "a function of 4 KiB a thread");
        let codes = thread::scope(|scope| {
            let set = scope.spawn(|| {
                cuda.set_current(current);
                thread::sleep(Duration::from_millis(150));
                cuda.set_limit(STACK_SIZE, 1024)
            });
            (cuda.launch_function(small.out, memory.out), set.join().unwrap_or(CUresult::ERROR_UNKNOWN))
        });
        ensure_eq!(codes, (OK, OK), "a launch, and a stack that is set before it is over");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.launch_function(small.out, memory.out), OUT_OF_MEMORY, "a launch that takes it again");
        within(session, &cuda)
    }

    /// When a kernel has failed all limits answer that, as all else does.
    a_limit_that_is_set_after_a_fault_answers_the_fault {
        kind: Neutral, defects: ["C7", "C15"], budget: "0=20GiB", entry_points: ["cuCtxSetLimit"],
        faults: r#"fault = [{ at = "cuLaunchKernel", when = "1", then = "kernel-fault:719" }]"#,
    } (_session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        ensure_eq!(launch_small(&cuda, current, memory.out), OK, "a launch that will fail");
        let failed = cuda.synchronize();
        ensure!(failed != OK, "the launch did not fail");
        for (limit, value) in [(STACK_SIZE, 2048), (HEAP_SIZE, 16 << 20), (STACK_SIZE, 0)] {
            ensure_eq!(cuda.set_limit(limit, value), failed, "limit {limit} when a kernel has failed");
        }
        Ok(())
    }

    /// While a stack is about to be set, or refused, what launches have made of it is the context's: a limit that another thread sets meanwhile gives nothing of
    /// that to anybody.
    a_limit_set_while_a_stack_is_judged_gives_nothing_away {
        kind: Budget, defects: ["R105a"], budget: "0=2GiB", entry_points: ["cuLaunchKernel", "cuCtxSetLimit", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuCtxGetLimit", when = "1", then = "delay:700ms" }]"#, unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!(small.code, OK, "a function of 4 KiB a thread");
        ensure_eq!(cuda.launch_function(small.out, memory.out), OK, "its launch");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let mut free = [0; 2];
        let set = thread::scope(|scope| {
            let set = scope.spawn(|| {
                cuda.set_current(current);
                cuda.set_limit(STACK_SIZE, 4096)
            });
            thread::sleep(Duration::from_millis(300));
            let before = cuda.memory_info_free().out;
            let heap = cuda.set_limit(HEAP_SIZE, 16 << 20);
            free = [before, cuda.memory_info_free().out];
            (set.join().unwrap_or(CUresult::ERROR_UNKNOWN), heap)
        });
        ensure!(free[1] <= free[0], "{} bytes were free, and {} beside a larger heap", free[0], free[1]);
        ensure_eq!(set, (OK, OK), "a stack as large as the launch has made it, and a heap beside it");
        within(session, &cuda)
    }

    /// A stack that is set while another thread ends the context is the context's, and the tenant has it again.
    a_stack_that_is_set_while_its_context_ends_is_charged_no_longer {
        kind: Budget, defects: ["R33a"], budget: "0=4GiB", entry_points: ["cuCtxSetLimit", "cuDevicePrimaryCtxReset_v2", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuCtxGetLimit", then = "delay:80ms" }]"#, unordered: "two threads race",
        needs: ["cuDevicePrimaryCtxReset_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        for _ in 0..3 {
            let context = cuda.retain_primary(0);
            ensure_eq!(context.code, OK, "cuDevicePrimaryCtxRetain");
            thread::scope(|scope| {
                let cuda = &cuda;
                scope.spawn(move || {
                    cuda.set_current(context.out);
                    // Asks for the limit, once more when nobody else sets one, sets it, and asks what the driver made of it.
                    let _ = cuda.set_limit(STACK_SIZE, 4096);
                });
                thread::sleep(Duration::from_millis(200));
                cuda.reset_primary(0)
            });
            cuda.release_primary(0);
        }
        let context = cuda.retain_primary(0);
        ensure_eq!((context.code, cuda.set_current(context.out)), (OK, OK), "a context");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A graph's kernels take as much when it is made executable, which is refused; a launch that is captured takes nothing.
    local_memory_of_graphs_is_no_way_past_the_budget {
        kind: Budget, defects: ["R12", "R28"], budget: "0=4GiB", entry_points: ["cuGraphInstantiateWithFlags"], needs: ["cuGraphInstantiateWithFlags"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let large = cuda.function(module(&cuda)?, "large");
        ensure_eq!(large.code, OK, "cuModuleGetFunction");
        let graph = cuda.captured_launch(large.out, memory.out);
        ensure_eq!(graph.code, OK, "a captured launch");
        ensure_eq!(cuda.instantiate(Instantiate::WithFlags, graph.out).code, OUT_OF_MEMORY, "cuGraphInstantiateWithFlags");
        let uploaded = cuda.instantiate(Instantiate::WithFlagsUploading, graph.out).code;
        ensure_eq!(uploaded, CUresult::ERROR_INVALID_VALUE, "cuGraphInstantiateWithFlags, refused by the driver first");
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!(small.code, OK, "a function of 4 KiB a thread");
        let graph = cuda.captured_launch(small.out, memory.out);
        ensure_eq!(graph.code, OK, "a captured launch");
        let before = cuda.memory_info().out.0;
        let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags of the small function");
        let taken = before.saturating_sub(cuda.memory_info().out.0);
        ensure!(Bytes(taken) >= Bytes::mib(256), "{} were charged for it", Bytes(taken));
        ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OK, "cuGraphLaunch");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let charged = before.saturating_sub(cuda.memory_info().out.0);
        ensure!(charged <= taken + BLOCK.0, "{} were charged for it and its launch, {} before", Bytes(charged), Bytes(taken));
        let all = fill(&cuda);
        all.refused_with(OUT_OF_MEMORY)?;
        fills(all.bytes + Bytes(charged) + Bytes::mib(8), budget(session, 0)?, CONTEXT_ROOM)?;
        within(session, &cuda)
    }

    /// One of a program that has a large function and no such kernel in the graph costs nothing of it. Set to that function it does, and is not launched.
    graphs_are_charged_for_the_local_memory_of_their_own_kernels {
        kind: Budget, defects: ["R28", "R12"], budget: "0=4GiB", entry_points: ["cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2"],
        needs: ["cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let plain = plain(&cuda)?;
        let graph = cuda.captured_launch(plain, memory.out);
        ensure_eq!(graph.code, OK, "its launch in a capture");
        let before = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(before.code, OK, "cuGraphInstantiateWithFlags");
        let large = cuda.function(module(&cuda)?, "large");
        ensure_eq!(large.code, OK, "a function of 64 KiB a thread");
        let after = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(after.code, OK, "cuGraphInstantiateWithFlags beside a function of 64 KiB a thread");
        for exec in [before.out, after.out] {
            ensure_eq!(cuda.run_graph(Run::Launch, exec), OK, "cuGraphLaunch beside a function of 64 KiB a thread");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let [node] = cuda.nodes(graph.out).out[..] else { harness::fail!("not one node of a captured launch") };
        let exchanged = cuda.set_exec_kernel(Exchange::Second, after.out, node, large.out, &mut memory.out.to_ne_bytes());
        if exchanged == OK {
            ensure_eq!(cuda.run_graph(Run::Launch, after.out), OUT_OF_MEMORY, "cuGraphLaunch of the large function");
        } else {
            ensure_eq!(exchanged, OUT_OF_MEMORY, "cuGraphExecKernelNodeSetParams_v2");
        }
        ensure_eq!(cuda.run_graph(Run::Launch, before.out), OK, "cuGraphLaunch of the other");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::mib(8), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A kernel of an executable graph that is exchanged beside one with local memory takes none for that, which a smaller stack gave back: the launch does.
    local_memory_of_a_graphs_other_kernels_is_not_charged_to_an_exchange {
        kind: Budget, defects: ["R28e"], budget: "0=2GiB", entry_points: ["cuCtxSetLimit", "cuGraphExecKernelNodeSetParams_v2", "cuMemAlloc_v2"],
        needs: ["cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let (plain, small) = (plain(&cuda)?, cuda.function(module(&cuda)?, "small"));
        let mut parameter = memory.out.to_ne_bytes();
        let graph = cuda.captured_launches(small.out, &mut parameter, 2);
        ensure_eq!((small.code, graph.code), (OK, OK), "two launches of 4 KiB a thread in a capture");
        let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        let nodes = cuda.nodes(graph.out).out;
        ensure_eq!(nodes.len(), 2, "nodes of the captured graph");
        ensure_eq!(cuda.set_limit(STACK_SIZE, 1024), OK, "cuCtxSetLimit");
        let most = Bytes(cuda.memory_info_free().out).saturating_sub(Bytes::mib(64));
        ensure_eq!(cuda.allocate(most.0).code, OK, "{most}, all but a little");
        let exchanged = cuda.set_exec_kernel(Exchange::Second, exec.out, nodes[0], plain, &mut parameter);
        ensure_eq!(exchanged, OK, "cuGraphExecKernelNodeSetParams_v2");
        within(session, &cuda)?;
        ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OUT_OF_MEMORY, "cuGraphLaunch with the other kernel");
        within(session, &cuda)
    }

    /// A graph's kernels take local memory in the contexts of their functions, whichever is current where the graph is made executable.
    local_memory_of_a_graph_is_charged_in_the_contexts_of_its_kernels {
        kind: Budget, defects: ["R28f"], budget: "0=4GiB", entry_points: ["cuGraphInstantiateWithFlags", "cuCtxCreate_v2", "cuMemAlloc_v2"],
        needs: ["cuGraphInstantiateWithFlags"],
    } (session) {
        let cuda = cuda_without_context()?;
        let own = context(&cuda, 0)?;
        let memory = cuda.allocate(4096);
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!((memory.code, small.code), (OK, OK), "a function of 4 KiB a thread");
        ensure_eq!(cuda.launch_function(small.out, memory.out), OK, "its launch");
        let other = cuda.create_context(0);
        ensure_eq!(other.code, OK, "cuCtxCreate_v2");
        let small = cuda.function(module(&cuda)?, "small");
        let graph = cuda.captured_launch(small.out, memory.out);
        ensure_eq!((small.code, graph.code), (OK, OK), "a launch of the other context's function in a capture");
        ensure_eq!(cuda.set_current(own), OK, "cuCtxSetCurrent");
        let most = Bytes(cuda.memory_info_free().out).saturating_sub(Bytes::mib(64));
        ensure_eq!(cuda.allocate(most.0).code, OK, "{most}, all but a little");
        let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(exec.code, OUT_OF_MEMORY, "cuGraphInstantiateWithFlags");
        within(session, &cuda)
    }

    /// Nor does a launch that the driver refuses, for its grid or its block, cost any.
    local_memory_is_not_charged_to_a_launch_that_the_driver_refuses {
        kind: Budget, defects: ["R28", "R12"], budget: "0=4GiB", entry_points: ["cuLaunchKernel", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let small = cuda.function(module(&cuda)?, "small");
        ensure_eq!(small.code, OK, "a function of 4 KiB a thread");
        for (grid, block) in [(0, 1), (1, 0), (1, 1 << 20)] {
            let code = cuda.launch_shaped(small.out, memory.out, grid, block);
            ensure_eq!(code, CUresult::ERROR_INVALID_VALUE, "a launch of {grid} blocks of {block} threads");
        }
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::mib(8), budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.launch_function(small.out, memory.out), OUT_OF_MEMORY, "its launch beside a full budget");
        within(session, &cuda)
    }

    /// What fits is launched, and charged once: stack and local memory are one, and the largest function's.
    local_memory_is_charged_once_for_the_most_that_any_function_needs {
        kind: Budget, defects: ["R12", "R14"], budget: "0=4GiB",
        entry_points: ["cuModuleGetFunction", "cuLibraryGetKernel", "cuCtxSetLimit", "cuMemAlloc_v2", "cuLaunchKernel"],
    } (session) {
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let module = module(&cuda)?;
        let library = match session.exports("cuLibraryGetKernel")? {
            true => Some(library(&cuda)?),
            false => None,
        };
        let before = cuda.memory_info().out.0;
        let function = cuda.function(module, "small");
        ensure_eq!(function.code, OK, "a function of 4 KiB a thread");
        ensure_eq!(cuda.launch_function(function.out, memory.out), OK, "a launch of the function");
        let after = cuda.memory_info().out.0;
        ensure!(after + Bytes::mib(256).0 < before, "{} bytes less are free", before - after);
        for _ in 0..4 {
            ensure_eq!(cuda.function(module, "small").code, OK, "the function again");
            ensure_eq!(cuda.set_limit(STACK_SIZE, Bytes::kib(4).0), OK, "as much stack");
            ensure_eq!(cuda.set_limit(STACK_SIZE, Bytes::kib(1).0), OK, "less stack");
            ensure_eq!(cuda.launch_function(function.out, memory.out), OK, "a launch of the function");
            if let Some(library) = library {
                let kernel = cuda.kernel(library, "small");
                ensure_eq!(kernel.code, OK, "a kernel of 4 KiB a thread");
                ensure_eq!(cuda.launch_kernel(kernel.out, memory.out), OK, "a launch of the kernel");
            }
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        }
        ensure_eq!(cuda.memory_info().out.0, after, "free once more was obtained, and launched");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        ensure!(taken.bytes + Bytes::mib(768) <= budget(session, 0)?, "{} were granted", taken.bytes);
        Ok(())
    }

    /// A kernel that was obtained may be launched in a context that is made later: its local memory is charged there too, and
    /// gone with it.
    a_kernel_is_charged_to_contexts_to_come {
        kind: Budget, defects: ["R12"], budget: "0=4GiB",
        entry_points: ["cuLibraryGetKernel", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemAlloc_v2"], needs: ["cuLibraryGetKernel"],
    } (session) {
        let cuda = cuda()?;
        let library = library(&cuda)?;
        let kernel = cuda.kernel(library, "small");
        ensure_eq!(kernel.code, OK, "a kernel of 4 KiB a thread");
        let first = cuda.memory_info().out.0;
        let second = cuda.create_context(0);
        ensure_eq!(second.code, OK, "cuCtxCreate_v2");
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        ensure_eq!(cuda.launch_kernel(kernel.out, memory.out), OK, "a launch in the second context");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        ensure!(taken.bytes + Bytes::mib(1024) <= Bytes(first), "{} were granted of {first}", taken.bytes);
        ensure_eq!(cuda.destroy_context(second.out), OK, "cuCtxDestroy_v2");
        crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.memory_info().out.0, first, "free without the second context");
        let taken = fill(&cuda).bytes;
        fills(taken + Bytes(budget(session, 0)?.0 - first), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// NULLs and names that are not there get the driver's own answer.
    odd_names_get_the_drivers_answer {
        defects: ["C1"], budget: "0=4GiB",
        entry_points: ["cuModuleGetFunction", "cuModuleEnumerateFunctions", "cuLibraryGetKernel", "cuLibraryEnumerateKernels"],
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.function(module(&cuda)?, "none").code, CUresult::ERROR_NOT_FOUND, "cuModuleGetFunction");
        if session.exports("cuLibraryGetKernel")? {
            ensure_eq!(cuda.kernel(library(&cuda)?, "none").code, CUresult::ERROR_NOT_FOUND, "cuLibraryGetKernel");
        }
        for name in ["cuModuleGetFunction", "cuModuleEnumerateFunctions", "cuLibraryGetKernel", "cuLibraryEnumerateKernels"] {
            if !session.exports(name)? {
                continue;
            }
            let answer = cuda.with_zeros(name);
            ensure!(answer != OK && answer != OUT_OF_MEMORY, "{name} with zeros: {answer:?}");
        }
        Ok(())
    }
}
