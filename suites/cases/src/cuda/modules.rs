//! Modules and libraries: their variables are device memory (R13).

use std::path::PathBuf;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};
use mock_device::DeviceIndex;

use super::routes::OUT_OF_MEMORY;
use crate::clients::{context, cuda, fill};
use crate::faults::plan;
use crate::ffi::cuda::{Cuda, Image};
use crate::ffi::process::overhear;
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;

/// A program with one variable and one kernel.
pub fn program(bytes: Bytes) -> String {
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 large[{}];\n.visible .entry empty()\n{{\nret;\n}}\n",
        bytes.0
    )
}

/// A program with sixteen variables of somewhat less than a block each: as much as may fit beside others.
pub fn program_that_may_fit() -> String {
    let variables =
        (0..16).map(|at| format!(".visible .global .align 8 .b8 large{at}[2097088];\n"));
    let variables: String = variables.collect();
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n{variables}.visible .entry empty()\n{{\nret;\n}}\n"
    )
}

/// A program with one managed variable.
fn managed_program(bytes: Bytes) -> String {
    program(bytes).replace(".visible .global", ".visible .global .attribute(.managed)")
}

/// A program with one variable of so many bytes, as PTX may write that (PTX ISA, "Integer Constants"). Constant expressions, which that knows too, are
/// taken for no size by the driver's compiler (H200, 580.159.04: "Parsing error near '*'").
fn spelled(bytes: Bytes) -> [String; 6] {
    let bytes = bytes.0;
    let sizes = [
        format!("{bytes}U"),
        format!("0b{bytes:b}"),
        format!("0{bytes:o}"),
        format!("0x{bytes:X}"),
        format!("0x{bytes:X}U"),
    ];
    let declaration = |size: &String| program(Bytes::ZERO).replace("[0]", &format!("[{size}]"));
    let [first, second, third, fourth, fifth] = sizes.each_ref().map(declaration);
    let glued = program(Bytes(bytes)).replace(
        ".visible .global .align 8 .b8",
        ".visible.global.align 8 .b8",
    );
    [first, second, third, fourth, fifth, glued]
}

fn file(session: &Session, bytes: Bytes) -> Result<PathBuf, Failure> {
    let path = session.directory().join("program.ptx");
    std::fs::write(&path, program(bytes))?;
    Ok(path)
}

/// A module with so many variables' bytes, which must be granted.
fn load(cuda: &Cuda, bytes: Bytes) -> Result<crate::ffi::cuda::Module, Failure> {
    let module = cuda.load_module(&Image::ptx(&program(bytes)));
    ensure_eq!(module.code, OK, "a module with {bytes} of variables");
    Ok(module.out)
}

/// A kernel that takes memory from the device's heap.
pub const CALLS_MALLOC: &str = ".version 7.0\n.target sm_70\n.address_size 64\n.extern .func (.param .b64 r) malloc (.param .b64 n);\n.visible .entry k()\n{\n.reg .b64 %d<4>;\n{\n.param .b64 a;\nst.param.b64 [a], 16;\n.param .b64 b;\ncall.uni (b), malloc, (a);\nld.param.b64 %d1, [b];\n}\nret;\n}\n";

cases! {
    /// Whether a module fits beside the others of its context the driver alone can tell. Threads that load such into a full budget do it one after another, so
    /// that no more than one of them is beyond it until that is told.
    modules_that_may_fit_are_tried_one_at_a_time {
        kind: Budget, defects: ["R111"], budget: "0=1000MiB", unordered: "threads race", on_real: No("reads the simulated device's peak"),
        entry_points: ["cuModuleLoadData", "cuModuleUnload", "cuMemAlloc_v2"], unaccounted: "what may fit is there before it is known what it takes",
    } (session) {
        const THREADS: usize = 16;
        /// A block of variables and one of code.
        const ONE: Bytes = Bytes::mib(4);
        let cuda = cuda()?;
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        let current = context(&cuda, 0)?;
        let image = Image::ptx(&program(Bytes::mib(1)));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    cuda.set_current(current);
                    for _ in 0..40 {
                        let module = cuda.load_module(&image);
                        if module.code == OK {
                            cuda.unload_module(module.out);
                        }
                    }
                });
            }
        });
        let (peak, budget) = (Bytes(session.world()?.peak(DeviceIndex(0)).0), budget(session, 0)?);
        ensure!(peak <= budget + ONE, "{peak} at the peak, under {budget}");
        Ok(())
    }

    /// So do the processes of a tenant.
    modules_that_may_fit_are_tried_by_one_process_at_a_time {
        kind: Budget, defects: ["R140"], budget: "0=8GiB", unordered: "processes race", on_real: No("reads the simulated device's peak"),
        entry_points: ["cuModuleLoadData", "cuModuleUnload", "cuMemAlloc_v2"], unaccounted: "what may fit is there before it is known what it takes",
        faults: plan!("nvml-rows-late"),
    } (session) {
        const PROCESSES: usize = 8;
        /// With what the code takes.
        const ONE: Bytes = Bytes::mib(40);
        let mut tenants = (0..PROCESSES).map(|_| Tenant::start(session)).collect::<Result<Vec<_>, _>>()?;
        for tenant in &mut tenants {
            tenant.ask("ready-cuda")?;
        }
        let cuda = cuda()?;
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        for tenant in &mut tenants {
            tenant.peer.say("modules 6")?;
        }
        for tenant in &mut tenants {
            tenant.peer.line()?;
        }
        tenants.into_iter().try_for_each(|tenant| tenant.peer.finish())?;
        let (peak, budget) = (Bytes(session.world()?.peak(DeviceIndex(0)).0), budget(session, 0)?);
        ensure!(peak <= budget + ONE, "{peak} at the peak, under {budget}");
        Ok(())
    }

    /// The first module of a context that calls malloc is refused where what it takes does not fit, and takes nothing.
    a_module_that_calls_malloc_is_refused_where_its_heap_does_not_fit {
        kind: Budget, defects: ["R82"], entry_points: ["cuModuleLoadData", "cuMemAlloc_v2"], budget: "0=2GiB",
        unaccounted: "what is left for it is freed and taken again",
    } (session) {
        const LEFT: Bytes = Bytes::mib(48);
        let cuda = cuda()?;
        let spare = cuda.allocate(LEFT.0);
        ensure_eq!(spare.code, OK, "{LEFT}");
        let filled = fill(&cuda);
        ensure_eq!(cuda.free(spare.out), OK, "cuMemFree_v2");
        let module = cuda.load_module(&Image::ptx(CALLS_MALLOC));
        ensure_eq!(module.code, OUT_OF_MEMORY, "a module that calls malloc beside {LEFT}");
        fills(filled.bytes + LEFT, budget(session, 0)?, CONTEXT_ROOM)?;
        for block in filled.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        ensure_eq!(cuda.load_module(&Image::ptx(CALLS_MALLOC)).code, OK, "the same beside all of it");
        ensure_eq!(cuda.load_module(&Image::ptx(CALLS_MALLOC)).code, OK, "and once more");
        Ok(())
    }

    /// Variables of little more than half a block each need one each: what does not fit is refused before a driver takes any of it.
    variables_that_share_no_block_are_refused_before_they_are_taken {
        kind: Budget, defects: ["R31c"], entry_points: ["cuModuleLoadData"], budget: "0=1GiB",
    } (_session) {
        let cuda = cuda()?;
        let text = (0..400).fold(".version 7.0\n.target sm_70\n.address_size 64\n".to_owned(), |text, at| text + &format!(".global .b8 v{at}[1048577];\n"));
        ensure_eq!(cuda.load_module(&Image::ptx(&text)).code, OUT_OF_MEMORY, "400 variables of a block each under 1 GiB");
        Ok(())
    }

    /// 2 GiB of variables do not fit into 1 GiB, by whichever call their module is loaded.
    variables_of_a_module_are_no_way_past_the_budget {
        kind: Budget, defects: ["R13"], budget: "0=1GiB",
        entry_points: ["cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleLoad"],
    } (session) {
        let cuda = cuda()?;
        let text = program(Bytes::gib(2));
        let image = Image::ptx(&text);
        ensure_eq!(cuda.load_module(&image).code, OUT_OF_MEMORY, "cuModuleLoadData");
        ensure_eq!(cuda.load_module_ex(&image).code, OUT_OF_MEMORY, "cuModuleLoadDataEx");
        ensure_eq!(cuda.load_module(&Image::fat(&text)).code, OUT_OF_MEMORY, "cuModuleLoadData of a fat binary");
        ensure_eq!(cuda.load_fat_binary(&Image::fat(&text)).code, OUT_OF_MEMORY, "cuModuleLoadFatBinary");
        ensure_eq!(cuda.load_linked(&text).code, OUT_OF_MEMORY, "cuModuleLoadData of what a linker wrote");
        let file = file(session, Bytes::gib(2))?;
        ensure_eq!(cuda.load_module_file(&file).code, OUT_OF_MEMORY, "cuModuleLoad");
        Ok(())
    }

    /// However a text writes a variable's size, what does not fit is refused, and what fits is granted. An expression is the driver's to refuse.
    a_variables_size_is_what_its_text_says {
        kind: Budget, defects: ["R46"], budget: "0=1GiB", entry_points: ["cuModuleLoadData"],
    } (session) {
        let cuda = cuda()?;
        for (fits, too_large) in spelled(Bytes::mib(256)).into_iter().zip(spelled(Bytes::gib(2))) {
            let module = cuda.load_module(&Image::ptx(&fits));
            ensure_eq!(module.code, OK, "under 1 GiB: {fits}");
            ensure_eq!(cuda.unload_module(module.out), OK, "cuModuleUnload");
            let managed = too_large.replace(".global", ".global .attribute(.managed) ");
            for text in [&too_large, &managed] {
                let module = cuda.load_module(&Image::ptx(text));
                ensure_eq!(module.code, OUT_OF_MEMORY, "under 1 GiB: {text}");
            }
        }
        for size in ["1024 * 1024", "(1048576)", "1048576 + 2 - 2"] {
            let text = program(Bytes::ZERO).replace("[0]", &format!("[{size}]"));
            ensure_eq!(cuda.load_module(&Image::ptx(&text)).code, CUresult::ERROR_INVALID_PTX, "{text}");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A pair of halves is four bytes, and a size may be WARP_SZ.
    odd_types_and_sizes_of_variables_are_no_way_past_the_budget {
        kind: Budget, defects: ["R68"], budget: "0=2GiB", entry_points: ["cuModuleLoadData"],
    } (session) {
        let cuda = cuda()?;
        let budget = budget(session, 0)?;
        let part = budget.0 / 8;
        let texts = [
            program(Bytes(part)).replace(".b8 large", ".f16x2 large"),
            program(Bytes(part / 8)).replace(".b8 large", ".b8 large[WARP_SZ]"),
        ];
        for text in texts {
            let image = Image::ptx(&text);
            let module = cuda.load_module(&image);
            ensure_eq!(module.code, OK, "half of {budget}: {text}");
            fills_and_empties(&cuda, budget.saturating_sub(Bytes(4 * part)), CONTEXT_ROOM)?;
            ensure_eq!(cuda.load_module(&image).code, OUT_OF_MEMORY, "half of {budget} once more");
            ensure_eq!(cuda.unload_module(module.out), OK, "cuModuleUnload");
        }
        fills_and_empties(&cuda, budget, CONTEXT_ROOM)
    }

    /// What can be read only once is the driver's to read, and nobody can say what it takes: it is refused, and said.
    an_image_in_a_pipe_is_not_loaded {
        kind: Budget, defects: ["R69"], budget: "0=1GiB", entry_points: ["cuModuleLoad"], unordered: "the pipe's path is each run's own",
        on_real: No("whether the driver reads a pipe was not asked"),
    } (session) {
        let cuda = cuda()?;
        let path = session.directory().join("pipe.ptx");
        let fed = crate::ffi::process::feed_pipe(&path, managed_program(Bytes::gib(2)).into_bytes())?;
        let (module, [_, said]) = overhear(|| cuda.load_module_file(&path))?;
        fed.end();
        ensure!(module.code != OK, "2 GiB of managed variables from a pipe under 1 GiB");
        ensure!(said.contains("no plain file"), "not said: {said:?}");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Nor those of a library, though no context has them yet.
    variables_of_a_library_are_no_way_past_the_budget {
        kind: Budget, defects: ["R13"], budget: "0=1GiB",
        entry_points: ["cuLibraryLoadData", "cuLibraryLoadFromFile"], needs: ["cuLibraryLoadData", "cuLibraryLoadFromFile"],
    } (session) {
        let cuda = cuda()?;
        let loaded = cuda.load_library(&Image::ptx(&program(Bytes::gib(2))));
        ensure_eq!(loaded.code, OUT_OF_MEMORY, "cuLibraryLoadData");
        let loaded = cuda.load_library_file(&file(session, Bytes::gib(2))?);
        ensure_eq!(loaded.code, OUT_OF_MEMORY, "cuLibraryLoadFromFile");
        Ok(())
    }

    /// Nor those of a library whose image is packed, which says nothing of them, whichever comes first, the library or the context. They are seen when
    /// they are there: what is refused was held for the length of the call.
    variables_of_a_packed_library_are_no_way_past_the_budget {
        kind: Budget, defects: ["R65", "R13"], budget: "0=4GiB",
        entry_points: ["cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryUnload", "cuCtxCreate_v2"],
        needs: ["cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetModule"],
    } (session) {
        let cuda = cuda()?;
        let budget = budget(session, 0)?;
        let path = session.directory().join("packed.fatbin");
        let load = |bytes: Bytes, from_file: bool| {
            let image = Image::packed(&program(bytes));
            if from_file {
                std::fs::write(&path, image.bytes())?;
            }
            Ok::<_, Failure>(if from_file { cuda.load_library_file(&path) } else { cuda.load_library(&image) })
        };
        for from_file in [false, true, false, true] {
            ensure_eq!(load(Bytes::gib(8), from_file)?.code, OUT_OF_MEMORY, "a packed library of 8 GiB under {budget}, from a file: {from_file}");
        }
        held_briefly(session);
        fills_and_empties(&cuda, budget, CONTEXT_ROOM)?;

        let part = Bytes::gib(1);
        let library = load(part, false)?;
        ensure_eq!(library.code, OK, "a packed library of {part} under {budget}");
        ensure_eq!(cuda.library_variable(library.out, "large").code, OK, "cuLibraryGetGlobal");
        fills_and_empties(&cuda, budget.saturating_sub(part), CONTEXT_ROOM)?;
        let second = cuda.create_context(0);
        ensure_eq!(second.code, OK, "a second context, which takes {part} too");
        fills_and_empties(&cuda, budget.saturating_sub(part + part), CONTEXT_ROOM + CONTEXT_ROOM)?;
        let beside = cuda.allocate(part.0 / 2);
        ensure_eq!(beside.code, OK, "half of {part} beside them");
        ensure_eq!(cuda.create_context(0).code, OUT_OF_MEMORY, "a third context with {part} more, beside two and half of {part}");
        ensure_eq!(cuda.free(beside.out), OK, "cuMemFree_v2");
        held_briefly(session);
        ensure_eq!(cuda.unload_library(library.out), OK, "cuLibraryUnload");
        fills_and_empties(&cuda, budget, CONTEXT_ROOM + CONTEXT_ROOM)?;
        ensure_eq!(cuda.destroy_context(second.out), OK, "cuCtxDestroy_v2");

        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        let early = load(Bytes::gib(8), false)?;
        ensure_eq!(early.code, OK, "a packed library where there is no context to have its variables");
        ensure_eq!(cuda.create_context(0).code, OUT_OF_MEMORY, "a context that has them");
        ensure_eq!(cuda.unload_library(early.out), OK, "cuLibraryUnload");
        held_briefly(session);
        crate::clients::context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget, CONTEXT_ROOM)
    }

    /// What is loaded within the budget is charged while it is loaded: by a module, by a library, and to the end of a context.
    what_is_unloaded_is_charged_no_longer {
        kind: Budget, defects: ["R13"], budget: "0=4GiB",
        entry_points: ["cuModuleLoadData", "cuModuleUnload", "cuLibraryLoadData", "cuLibraryUnload", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let two = Bytes::gib(2);
        for _ in 0..3 {
            let module = load(&cuda, two)?;
            ensure_eq!(cuda.allocate(two.0).code, OUT_OF_MEMORY, "2 GiB beside a module of 2 under 4");
            ensure_eq!(cuda.unload_module(module), OK, "cuModuleUnload");
            if session.exports("cuLibraryLoadData")? {
                let library = cuda.load_library(&Image::ptx(&program(two)));
                ensure_eq!(library.code, OK, "a library of 2 GiB");
                ensure_eq!(cuda.library_variable(library.out, "large").code, OK, "cuLibraryGetGlobal");
                ensure_eq!(cuda.allocate(two.0).code, OUT_OF_MEMORY, "2 GiB beside a library of 2 under 4");
                ensure_eq!(cuda.unload_library(library.out), OK, "cuLibraryUnload");
            }
            let granted = cuda.allocate(two.0);
            ensure_eq!(granted.code, OK, "2 GiB beside nothing");
            ensure_eq!(cuda.free(granted.out), OK, "cuMemFree_v2");
        }
        load(&cuda, two)?;
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        crate::clients::context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What a device keeps for managed memory goes with the first touch of a managed variable, and is within the budget, by a module and by a library.
    the_first_touch_of_a_managed_variable_is_within_the_budget {
        kind: Budget, defects: ["R41"], budget: "0=1GiB", entry_points: ["cuModuleLoadData", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let small = Bytes::kib(4);
        let module = cuda.load_module(&Image::ptx(&managed_program(small)));
        ensure_eq!(module.code, OK, "a module with a managed variable of {small}");
        let variable = cuda.module_variable(module.out, "large");
        ensure_eq!(variable.code, OK, "cuModuleGetGlobal_v2");
        touched_within_the_budget(session, &cuda, variable.out, small)
    }

    /// The same of a library.
    the_first_touch_of_a_librarys_managed_variable_is_within_the_budget {
        kind: Budget, defects: ["R41"], budget: "0=1GiB", entry_points: ["cuLibraryLoadData", "cuMemAlloc_v2"], needs: ["cuLibraryLoadData"],
    } (session) {
        let cuda = cuda()?;
        let small = Bytes::kib(4);
        let library = cuda.load_library(&Image::ptx(&managed_program(small)));
        ensure_eq!(library.code, OK, "a library with a managed variable of {small}");
        let variable = cuda.managed_variable(library.out, "large");
        ensure_eq!(variable.code, OK, "cuLibraryGetManaged");
        touched_within_the_budget(session, &cuda, variable.out, small)
    }

    /// Managed variables are charged while their module is loaded, and no longer; a library's once, however many contexts there are.
    managed_variables_are_charged_once_and_while_they_are_loaded {
        kind: Budget, defects: ["R41"], budget: "0=6GiB",
        entry_points: ["cuModuleLoadData", "cuModuleUnload", "cuLibraryLoadData", "cuLibraryUnload", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let text = managed_program(Bytes::gib(2));
        let image = Image::ptx(&text);
        for _ in 0..3 {
            let module = cuda.load_module(&image);
            ensure_eq!(module.code, OK, "a module with 2 GiB managed");
            let variable = cuda.module_variable(module.out, "large");
            ensure_eq!(cuda.set_bytes(variable.out, 1, Bytes::gib(2).0), OK, "cuMemsetD8_v2");
            ensure_eq!(cuda.allocate(Bytes::gib(4).0).code, OUT_OF_MEMORY, "4 GiB beside 2 under 6");
            ensure_eq!(cuda.unload_module(module.out), OK, "cuModuleUnload");
        }
        if session.exports("cuLibraryLoadData")? {
            for _ in 0..2 {
                ensure_eq!(cuda.create_context(0).code, OK, "another context");
            }
            let library = cuda.load_library(&image);
            ensure_eq!(library.code, OK, "a library with 2 GiB managed beside three contexts");
            ensure_eq!(cuda.allocate(Bytes::gib(4).0).code, OUT_OF_MEMORY, "4 GiB beside 2 under 6");
            ensure_eq!(cuda.unload_library(library.out), OK, "cuLibraryUnload");
        }
        let contexts = CONTEXT_ROOM + CONTEXT_ROOM + CONTEXT_ROOM;
        fills(fill(&cuda).bytes, budget(session, 0)?, contexts + Bytes::mib(128))
    }

    /// Variables that share blocks are charged by the blocks, and none is forgotten when one of its sharers goes.
    small_variables_are_charged_by_the_blocks_they_share {
        kind: Budget, defects: ["R13", "C10"], budget: "0=2GiB", entry_points: ["cuModuleLoadData", "cuModuleUnload", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let small = Bytes::kib(1536);
        let modules = (0..64).map(|_| load(&cuda, small)).collect::<Result<Vec<_>, _>>()?;
        let tiny = (0..64).map(|_| load(&cuda, Bytes::kib(4))).collect::<Result<Vec<_>, _>>()?;
        for module in modules.iter().step_by(2).chain(tiny.iter().skip(1)) {
            ensure_eq!(cuda.unload_module(*module), OK, "cuModuleUnload");
        }
        let budget = budget(session, 0)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let left = taken.bytes + Bytes::mib(64);
        ensure!(left <= budget, "{} were granted beside 32 variables of 1.5 MiB", taken.bytes);
        fills(left, budget, CONTEXT_ROOM)
    }

    /// Small variables of libraries are within the budget too, whichever call makes them present: beside a budget that is used up none is,
    /// and what is held below an earlier peak is charged.
    small_variables_of_libraries_are_no_way_past_the_budget {
        kind: Budget, defects: ["R31"], budget: "0=2GiB",
        entry_points: ["cuLibraryLoadData", "cuKernelGetFunction", "cuLaunchKernel", "cuMemAlloc_v2", "cuMemFree_v2"], needs: ["cuLibraryLoadData"],
    } (session) {
        const LIBRARIES: u64 = 200;
        let cuda = cuda()?;
        let budget = budget(session, 0)?;
        // Of a block, which two of them do not share.
        let image = Image::ptx(&program(Bytes::kib(1900)));
        let present = |at: u64| -> Result<Option<crate::ffi::cuda::LoadedLibrary>, Failure> {
            let library = cuda.load_library(&image);
            if library.code == OUT_OF_MEMORY {
                return Ok(None);
            }
            ensure_eq!(library.code, OK, "cuLibraryLoadData");
            let kernel = cuda.kernel(library.out, "empty");
            let code = match at % 3 {
                0 => cuda.library_variable(library.out, "large").code,
                1 if kernel.code == OK => cuda.function_of_kernel(kernel.out).code,
                _ if kernel.code == OK => cuda.launch_kernel(kernel.out, 0),
                _ => kernel.code,
            };
            if code == OUT_OF_MEMORY {
                ensure_eq!(cuda.unload_library(library.out), OK, "cuLibraryUnload");
                return Ok(None);
            }
            ensure_eq!(code, OK, "way {} to a library's variables", at % 3);
            Ok(Some(library.out))
        };
        let held = |libraries: usize| Bytes::mib(2 * libraries as u64);
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let mut libraries = Vec::new();
        for at in 0..LIBRARIES {
            libraries.extend(present(at)?);
        }
        let beside = taken.bytes + held(libraries.len());
        ensure!(beside <= budget, "{} libraries beside {} under {budget}", libraries.len(), taken.bytes);
        for block in taken.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        for at in 0..LIBRARIES {
            libraries.extend(present(at)?);
        }
        ensure!(libraries.len() as u64 >= LIBRARIES, "only {} libraries of 2 MiB under {budget}", libraries.len());
        fills(fill(&cuda).bytes + held(libraries.len()), budget, CONTEXT_ROOM)?;
        for library in libraries {
            ensure_eq!(cuda.unload_library(library), OK, "cuLibraryUnload");
        }
        let again = cuda.allocate(held(LIBRARIES as usize).0);
        ensure_eq!(again.code, OK, "what libraries had, once they are unloaded");
        Ok(())
    }

    /// Modules that are loaded and unloaded again and again use up no budget where the driver tells of no process.
    modules_that_come_and_go_use_up_no_budget_without_rows {
        kind: Budget, defects: ["R32"], budget: "0=1GiB", entry_points: ["cuModuleLoadData", "cuModuleUnload"],
        faults: r#"fault = [
            { at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "result:3" }, { at = "nvmlDeviceGetComputeRunningProcesses_v2", then = "result:3" },
        ]"#,
    } (session) {
        let cuda = cuda()?;
        for _ in 0..600 {
            let module = load(&cuda, Bytes::kib(4))?;
            ensure_eq!(cuda.unload_module(module), OK, "cuModuleUnload");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A library's variables are each context's own: one that is made later is charged for them too.
    a_library_is_charged_to_contexts_to_come {
        kind: Budget, defects: ["R13"], budget: "0=4GiB",
        entry_points: ["cuLibraryLoadData", "cuCtxCreate_v2", "cuMemAlloc_v2"], needs: ["cuLibraryLoadData"],
    } (_session) {
        let cuda = cuda()?;
        let library = cuda.load_library(&Image::ptx(&program(Bytes::gib(1))));
        ensure_eq!(library.code, OK, "a library of 1 GiB");
        let second = cuda.create_context(0);
        ensure_eq!(second.code, OK, "cuCtxCreate_v2");
        ensure_eq!(cuda.library_variable(library.out, "large").code, OK, "cuLibraryGetGlobal in the second context");
        ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, OUT_OF_MEMORY, "2 GiB beside two contexts with 1 GiB each under 4");
        ensure_eq!(cuda.destroy_context(second.out), OK, "cuCtxDestroy_v2");
        crate::clients::context(&cuda, 0)?;
        ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, OK, "2 GiB beside one");
        Ok(())
    }

    /// What is no image gets the driver's own answer, also where the budget has no room left; a good one that takes nothing that
    /// is not there already can still be loaded.
    odd_images_get_the_drivers_answer {
        defects: ["C1"], budget: "0=1GiB",
        entry_points: ["cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoad", "cuModuleUnload", "cuLibraryLoadData", "cuLibraryUnload"],
    } (session) {
        const INVALID_VALUE: CUresult = CUresult::ERROR_INVALID_VALUE;
        let cuda = cuda()?;
        let names = ["cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleLoad", "cuLibraryLoadData", "cuLibraryLoadFromFile"];
        for _ in 0..2 {
            let answers = names.map(|name| (name, INVALID_VALUE));
            let unloads = ["cuModuleUnload", "cuLibraryUnload"].map(|name| (name, CUresult::ERROR_INVALID_HANDLE));
            for (name, answer) in answers.into_iter().chain(unloads) {
                // Libraries came with CUDA 12.
                if session.exports(name)? {
                    ensure_eq!(cuda.with_zeros(name), answer, "{name} with zeros");
                }
            }
            let image = Image::ptx(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry broken(");
            ensure_eq!(cuda.load_module(&image).code, CUresult::ERROR_INVALID_PTX, "PTX that ends too early");
            let absent = std::path::Path::new("/proc/no such file");
            ensure_eq!(cuda.load_module_file(absent).code, CUresult::ERROR_FILE_NOT_FOUND, "a file that is not there");
            fill(&cuda);
        }
        Ok(())
    }
}

/// What a simulated device held until now is no finding: only while a call ran was it more than is charged.
fn held_briefly(session: &Session) {
    if let Ok(world) = session.world() {
        world.reset_peak();
    }
}

/// All of a budget is granted and no more, and given back.
fn fills_and_empties(cuda: &Cuda, budget: Bytes, slack: Bytes) -> Result<(), Failure> {
    let taken = fill(cuda);
    for block in &taken.held {
        ensure_eq!(cuda.free(*block), OK, "cuMemFree_v2");
    }
    taken.refused_with(OUT_OF_MEMORY)?;
    fills(taken.bytes, budget, slack)
}

/// The budget is used up, and then a managed variable is touched for the first time.
fn touched_within_the_budget(
    session: &Session,
    cuda: &Cuda,
    variable: u64,
    bytes: Bytes,
) -> Result<(), Failure> {
    let taken = fill(cuda);
    taken.refused_with(OUT_OF_MEMORY)?;
    ensure_eq!(cuda.set_bytes(variable, 1, bytes.0), OK, "cuMemsetD8_v2");
    let budget = budget(session, 0)?;
    // The driver's own figure, where it is not the tenant's.
    fills(taken.bytes + Bytes::mib(128), budget, CONTEXT_ROOM)
}
