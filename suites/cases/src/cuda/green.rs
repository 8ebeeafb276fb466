//! Contexts that come and go by other calls than cuCtxCreate and cuDevicePrimaryCtxRetain: green ones, detached ones (R16 and R27 of
//! `fixtures/defects.txt`); and what executable graphs keep (R17).

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, fail};

use super::routes::OUT_OF_MEMORY;
use crate::clients::{context, cuda, cuda_without_context, fill, nvml};
use crate::ffi::cuda::{Cuda, Graph, Green, Instantiate, Purpose, Stream};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::vulkan::floor::row;

const OK: CUresult = CUresult::SUCCESS;
/// CU_LIMIT_STACK_SIZE.
const STACK: i32 = 0;

/// Initialised, with a green context of device 0 current, and no other made.
fn green() -> Result<(Cuda, Green), Failure> {
    let cuda = cuda_without_context()?;
    let green = cuda.create_green(0);
    ensure_eq!(green.code, OK, "cuGreenCtxCreate");
    let context = cuda.context_of_green(green.out);
    ensure_eq!(context.code, OK, "cuCtxFromGreenCtx");
    ensure_eq!(cuda.set_current(context.out), OK, "cuCtxSetCurrent");
    Ok((cuda, green.out))
}

/// NVML's own figure of this process is within the budget.
pub fn within(session: &Session) -> Result<(), Failure> {
    let held = row(&nvml()?)?;
    let budget = budget(session, 0)?;
    ensure!(
        held <= budget,
        "NVML says that {held} are in use, under {budget}"
    );
    Ok(())
}

cases! {
    /// In a process whose only context is a green one a stack of 128 KiB for each thread, 17 GiB on most cards, is refused, and memory is granted
    /// within the budget.
    the_first_context_may_be_a_green_one {
        kind: Budget, defects: ["R16", "R14"], budget: "0=2GiB", needs: ["cuGreenCtxCreate"],
        entry_points: ["cuGreenCtxCreate", "cuCtxSetLimit", "cuMemAlloc_v2"],
    } (session) {
        let (cuda, _green) = green()?;
        ensure_eq!(cuda.set_limit(STACK, 128 << 10), OUT_OF_MEMORY, "cuCtxSetLimit of the stack");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        within(session)
    }

    /// Green contexts are granted until the budget is used up, and their streams; so are streams that are made by cuStreamCreate in one.
    green_contexts_and_their_streams_stay_within_the_budget {
        kind: Budget, defects: ["R16", "C10"], budget: "0=1GiB", needs: ["cuGreenCtxCreate", "cuGreenCtxStreamCreate"],
        entry_points: ["cuGreenCtxCreate", "cuGreenCtxStreamCreate", "cuStreamCreate"],
    } (session) {
        let (cuda, green) = green()?;
        let greens = (0..20).map(|_| cuda.create_green(0).code).filter(|code| *code == OK).count();
        ensure_eq!(greens, 20, "green contexts in half a gibibyte");
        let made = (0..8_000).map(|_| cuda.create_green_stream(green)).find(|code| *code != OK);
        ensure_eq!(made, Some(OUT_OF_MEMORY), "cuGreenCtxStreamCreate until it is refused");
        let made = (0..1_000).map(|_| cuda.create_stream().code).find(|code| *code != OK);
        ensure_eq!(made, Some(OUT_OF_MEMORY), "cuStreamCreate until it is refused");
        let made = (0..1_000).map(|_| cuda.create_green(0).code).find(|code| *code != OK);
        ensure_eq!(made, Some(OUT_OF_MEMORY), "cuGreenCtxCreate until it is refused");
        within(session)
    }

    /// Nor do streams of one take the place of its primary context's, which keeps what those took.
    a_green_contexts_streams_are_charged_beside_what_its_primary_keeps {
        kind: Budget, defects: ["R16b"], budget: "0=2GiB", needs: ["cuGreenCtxCreate"],
        entry_points: ["cuStreamCreate", "cuStreamDestroy_v2", "cuMemAlloc_v2"],
    } (session) {
        const MANY: usize = 800;
        let cuda = cuda()?;
        let primary: Vec<_> = (0..MANY).map(|_| cuda.create_stream()).collect();
        for stream in primary {
            ensure_eq!((stream.code, cuda.destroy_stream(stream.out)), (OK, OK), "cuStreamCreate and cuStreamDestroy_v2");
        }
        let (cuda, _green) = green()?;
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        let made = (0..MANY).map(|_| cuda.create_stream().code).find(|code| *code != OK);
        ensure!(made.is_none_or(|code| code == OUT_OF_MEMORY), "cuStreamCreate beside a full budget: {made:?}");
        within(session)
    }

    /// The last holder of a primary context ends what was allocated there, though it be a green one: all of it can be had again.
    a_green_context_that_ends_gives_all_back {
        kind: Budget, defects: ["R16", "R16c"], budget: "0=2GiB", needs: ["cuGreenCtxCreate"],
        entry_points: ["cuGreenCtxDestroy", "cuDevicePrimaryCtxRelease_v2", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        for round in 0..4 {
            let green = cuda.create_green(0);
            ensure_eq!(green.code, OK, "cuGreenCtxCreate in round {round}");
            if round % 2 == 1 {
                let context = cuda.context_of_green(green.out);
                ensure_eq!(context.code, OK, "cuCtxFromGreenCtx");
                ensure_eq!(cuda.set_current(context.out), OK, "cuCtxSetCurrent of a green context");
            }
            ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 GiB in round {round}");
            ensure_eq!(cuda.release_primary(0), OK, "cuDevicePrimaryCtxRelease_v2");
            ensure_eq!(cuda.destroy_green(green.out), OK, "cuGreenCtxDestroy");
            crate::clients::context(&cuda, 0)?;
        }
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So does it what of external memory was mapped in a green context.
    what_was_mapped_in_a_green_context_ends_with_its_primary {
        kind: Budget, defects: ["R16a"], budget: "0=4GiB", needs: ["cuGreenCtxCreate"],
        entry_points: ["cuGreenCtxDestroy", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer", "cuDestroyExternalMemory"],
    } (session) {
        const PART: u64 = 1 << 30;
        for round in 0..2 {
            let (cuda, green) = green()?;
            let created = cuda.create_memory_for(Purpose::Sharing, 0, PART);
            ensure_eq!(created.code, OK, "cuMemCreate in round {round}");
            let Ok(descriptor) = cuda.export_memory(created.out) else {
                fail!("cuMemExportToShareableHandle was refused in round {round}");
            };
            let Ok(external) = cuda.import_external(descriptor, PART) else {
                fail!("cuImportExternalMemory was refused in round {round}");
            };
            ensure_eq!(cuda.map_external(external, PART).code, OK, "cuExternalMemoryGetMappedBuffer");
            ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
            ensure_eq!(cuda.destroy_external(external), OK, "cuDestroyExternalMemory");
            ensure_eq!(cuda.destroy_green(green), OK, "cuGreenCtxDestroy");
        }
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What green contexts that come and go took is theirs no longer, though beside each something was freed in a stream's order that nobody waits for.
    what_green_contexts_took_ends_with_them_beside_what_was_freed {
        kind: Budget, defects: ["R135"], budget: "0=2GiB", needs: ["cuGreenCtxCreate"],
        entry_points: ["cuGreenCtxCreate", "cuGreenCtxDestroy", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAlloc_v2"],
    } (session) {
        let part = Bytes::mib(64);
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.create_context(0).code, OK, "cuCtxCreate_v2");
        let before = cuda.memory_info().out.0;
        for round in 0..60 {
            let green = cuda.create_green(0);
            ensure_eq!(green.code, OK, "cuGreenCtxCreate in round {round}");
            let block = cuda.allocate_async(Stream::Legacy, part.0);
            ensure_eq!(block.code, OK, "{part} in round {round}");
            ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.destroy_green(green.out), OK, "cuGreenCtxDestroy");
        }
        let free = cuda.memory_info().out.0;
        ensure!(free + (part + part).0 >= before, "{} are told free after 60 green contexts, {} before", Bytes(free), Bytes(before));
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What was freed in a green context's stream makes room for what is asked next, though nobody has waited for it: while that context lives, and when
    /// it is gone and the stream with it. So does a pool that was destroyed before that.
    what_was_freed_in_green_streams_makes_room {
        kind: Budget, defects: ["R26"], budget: "0=4GiB", needs: ["cuGreenCtxCreate", "cuMemPoolCreate"],
        entry_points: ["cuGreenCtxCreate", "cuGreenCtxDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolDestroy", "cuMemAlloc_v2"],
    } (session) {
        let most = Bytes::gib(2);
        let cuda = cuda()?;
        let primary = context(&cuda, 0)?;
        for (ends_green, ends_pool) in [(false, false), (true, false), (true, true), (false, true)] {
            let green = cuda.create_green(0);
            ensure_eq!(green.code, OK, "cuGreenCtxCreate");
            ensure_eq!(cuda.set_current(cuda.context_of_green(green.out).out), OK, "cuCtxSetCurrent");
            let (stream, pool) = (cuda.create_stream(), cuda.create_pool(0));
            ensure_eq!((stream.code, pool.code), (OK, OK), "cuStreamCreate and cuMemPoolCreate");
            let block = cuda.allocate_from_pool_in(stream.out, pool.out, most.0);
            ensure_eq!(block.code, OK, "{most} of a pool, the green context gone: {ends_green}, the pool gone: {ends_pool}");
            if ends_pool {
                ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            }
            ensure_eq!(cuda.free_in(stream.out, block.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.set_current(primary), OK, "cuCtxSetCurrent");
            if ends_green {
                ensure_eq!(cuda.destroy_green(green.out), OK, "cuGreenCtxDestroy");
            }
            let beside = cuda.allocate(most.0);
            ensure_eq!(beside.code, OK, "{most} afterwards, the green context gone: {ends_green}, the pool gone: {ends_pool}");
            ensure_eq!(cuda.free(beside.out), OK, "cuMemFree");
            if !ends_green {
                ensure_eq!(cuda.destroy_green(green.out), OK, "cuGreenCtxDestroy");
            }
            if !ends_pool {
                ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            }
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(64))
    }

    /// A context that cuCtxDetach ends is charged no longer; one that was attached to lives on.
    a_context_that_is_detached_from_ends {
        kind: Budget, defects: ["R27"], budget: "0=2GiB", entry_points: ["cuCtxAttach", "cuCtxDetach", "cuCtxCreate_v2", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        for round in 0..12 {
            let made = cuda.create_context(0);
            ensure_eq!(made.code, OK, "cuCtxCreate_v2 in round {round}");
            ensure_eq!(cuda.attach().code, OK, "cuCtxAttach");
            ensure_eq!(cuda.allocate(Bytes::mib(256).0).code, OK, "256 MiB in round {round}");
            ensure_eq!(cuda.detach(made.out), OK, "cuCtxDetach of what was attached");
            ensure_eq!(cuda.allocate(Bytes::mib(64).0).code, OK, "64 MiB in round {round}");
            ensure_eq!(cuda.detach(made.out), OK, "cuCtxDetach");
        }
        crate::clients::context(&cuda, 0)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What an executable graph keeps for nodes that may run side by side is charged: graphs of a thousand are made until one is refused, and
    /// nothing else is asked for.
    executable_graphs_stay_within_the_budget {
        kind: Budget, defects: ["R17"], budget: "0=1GiB", entry_points: ["cuGraphInstantiateWithFlags", "cuGraphInstantiate"], needs: ["cuGraphInstantiateWithFlags"],
    } (session) {
        instantiated(session, Shape::Apart)
    }

    /// The same of graphs whose nodes wait for one that is before them all.
    executable_graphs_with_one_beginning_stay_within_the_budget {
        kind: Budget, defects: ["R17"], budget: "0=1GiB", entry_points: ["cuGraphInstantiateWithFlags"], needs: ["cuGraphInstantiateWithFlags"],
    } (session) {
        instantiated(session, Shape::AfterOne)
    }

    /// The same of graphs that are a node of another.
    executable_graphs_in_graphs_stay_within_the_budget {
        kind: Budget, defects: ["R17"], budget: "0=1GiB", entry_points: ["cuGraphInstantiateWithFlags"], needs: ["cuGraphInstantiateWithFlags"],
    } (session) {
        instantiated(session, Shape::Inside)
    }

    /// Where the driver tells of no process too, though each graph is brought up to date as soon as it is made.
    executable_graphs_that_are_updated_stay_within_the_budget_without_rows {
        kind: Budget, defects: ["R32", "R17"], budget: "0=1GiB", entry_points: ["cuGraphInstantiateWithFlags", "cuGraphExecUpdate_v2"],
        needs: ["cuGraphInstantiateWithFlags", "cuGraphExecUpdate_v2"],
        faults: r#"fault = [
            { at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "result:3" }, { at = "nvmlDeviceGetComputeRunningProcesses_v2", then = "result:3" },
        ]"#,
    } (_session) {
        let cuda = cuda()?;
        let [first, second] = [graph(&cuda, Shape::Apart)?, graph(&cuda, Shape::Apart)?];
        let mut made = (0..16).map(|_| {
            let exec = cuda.instantiate(Instantiate::WithFlags, first);
            match exec.code {
                OK => cuda.update_exec(exec.out, second),
                refused => refused,
            }
        });
        ensure_eq!(made.find(|code| *code != OK), Some(OUT_OF_MEMORY), "graphs of a thousand branches until one is refused");
        Ok(())
    }

    /// An executable graph of a thousand branches is brought up to date where next to nothing is left: it has them already.
    executable_graphs_are_updated_at_the_brim {
        kind: Own, defects: ["R73"], budget: "0=1GiB", entry_points: ["cuGraphExecUpdate_v2"], needs: ["cuGraphInstantiateWithFlags", "cuGraphExecUpdate_v2"],
    } (session) {
        let cuda = cuda()?;
        let [first, second] = [graph(&cuda, Shape::Apart)?, graph(&cuda, Shape::Apart)?];
        let exec = cuda.instantiate(Instantiate::WithFlags, first);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        let room = cuda.allocate(Bytes::mib(16).0);
        ensure_eq!(room.code, OK, "16 MiB");
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        ensure_eq!(cuda.update_exec(exec.out, second), OK, "cuGraphExecUpdate_v2 of a thousand branches beside 16 MiB");
        within(session)
    }

    /// A graph of a thousand nodes one after another takes next to nothing, and is made where next to nothing is left.
    a_long_graph_of_one_branch_is_made_at_the_brim {
        kind: Budget, defects: ["R17"], budget: "0=1GiB", entry_points: ["cuGraphInstantiateWithFlags"], needs: ["cuGraphInstantiateWithFlags"],
    } (session) {
        let cuda = cuda()?;
        let graph = graph(&cuda, Shape::Chain)?;
        let room = cuda.allocate(Bytes::mib(8).0);
        ensure_eq!(room.code, OK, "8 MiB");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        ensure_eq!(cuda.instantiate(Instantiate::WithFlags, graph).code, OK, "a graph of one branch");
        within(session)
    }
}

/// How a thousand nodes stand to one another.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Apart,
    AfterOne,
    Inside,
    Chain,
}

fn graph(cuda: &Cuda, shape: Shape) -> Result<Graph, Failure> {
    let block = cuda.allocate(Bytes::mib(2).0);
    ensure_eq!(block.code, OK, "2 MiB");
    let graph = cuda.create_graph();
    ensure_eq!(graph.code, OK, "cuGraphCreate");
    let mut after = None;
    for at in 0..1_000 {
        let node = cuda.add_branch(graph.out, after.as_slice(), block.out);
        ensure_eq!(node.code, OK, "cuGraphAddMemsetNode");
        if shape == Shape::Chain || (shape == Shape::AfterOne && at == 0) {
            after = Some(node.out);
        }
    }
    if shape != Shape::Inside {
        return Ok(graph.out);
    }
    let around = cuda.create_graph();
    ensure_eq!(around.code, OK, "cuGraphCreate");
    ensure_eq!(
        cuda.add_child(around.out, graph.out),
        OK,
        "cuGraphAddChildGraphNode"
    );
    Ok(around.out)
}

fn instantiated(session: &Session, shape: Shape) -> Result<(), Failure> {
    let cuda = cuda()?;
    let graph = graph(&cuda, shape)?;
    let mut made = (0..16).map(|_| cuda.instantiate(Instantiate::WithFlags, graph).code);
    ensure_eq!(
        made.find(|code| *code != OK),
        Some(OUT_OF_MEMORY),
        "cuGraphInstantiateWithFlags until it is refused"
    );
    within(session)
}
