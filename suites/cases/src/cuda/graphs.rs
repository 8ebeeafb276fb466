//! Memory of graphs: taken when an executable graph is uploaded or first launched, kept until it is trimmed.

use std::time::{Duration, Instant};

use abi::cuda::{CUdeviceptr, CUresult};
use harness::{Bytes, Failure, cases, ensure, ensure_eq, fail};

use super::routes::OUT_OF_MEMORY;
use super::truth::within;
use crate::clients::{context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{
    Add, Begin, Cuda, Exchange, Exec, Graph, Image, Instantiate, MISSING, Node, Ordered, Run,
};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::vulkan::floor::row;

const OK: CUresult = CUresult::SUCCESS;
const NOT_SUPPORTED: CUresult = CUresult::ERROR_NOT_SUPPORTED;

const MOST: Bytes = Bytes::gib(3);

/// A kernel with 4,000 bytes of parameters, as many as every driver takes, and one with 8.
const LONG: &str = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry long(.param .align 8 .b8 p[4000])\n{\nret;\n}\n.visible .entry short(.param .u64 p)\n{\nret;\n}\n";

/// A graph, what it allocates, and where.
#[derive(Clone, Copy)]
struct Made {
    graph: Graph,
    address: CUdeviceptr,
}

/// A graph that is executable.
#[derive(Clone, Copy)]
struct Ready {
    made: Made,
    exec: Exec,
}

fn empty(cuda: &Cuda) -> Result<Graph, Failure> {
    let graph = cuda.create_graph();
    ensure_eq!(graph.code, OK, "cuGraphCreate");
    Ok(graph.out)
}

fn allocating(
    cuda: &Cuda,
    graph: Graph,
    after: Option<Node>,
    bytes: Bytes,
) -> Result<(Node, CUdeviceptr), Failure> {
    let added = cuda.add_allocation(Add::Own, graph, after, 0, bytes.0);
    ensure_eq!(added.code, OK, "a node that allocates {bytes}");
    Ok(added.out)
}

fn freeing(cuda: &Cuda, graph: Graph, after: Node, address: CUdeviceptr) -> Result<Node, Failure> {
    let added = cuda.add_free(graph, after, address);
    ensure_eq!(added.code, OK, "cuGraphAddMemFreeNode");
    Ok(added.out)
}

/// A graph that allocates 3 GiB and leaves them to the program.
fn made(cuda: &Cuda) -> Result<Made, Failure> {
    let graph = empty(cuda)?;
    let (_, address) = allocating(cuda, graph, None, MOST)?;
    Ok(Made { graph, address })
}

fn ready(cuda: &Cuda, way: Instantiate, made: Made) -> Result<Ready, Failure> {
    let exec = cuda.instantiate(way, made.graph);
    ensure_eq!(exec.code, OK, "{way:?}");
    let exec = exec.out;
    Ok(Ready { made, exec })
}

fn end(cuda: &Cuda, ready: Ready) -> Result<(), Failure> {
    ensure_eq!(cuda.destroy_exec(ready.exec), OK, "cuGraphExecDestroy");
    ensure_eq!(cuda.destroy_graph(ready.made.graph), OK, "cuGraphDestroy");
    Ok(())
}

fn available(cuda: &Cuda) -> Result<Bytes, Failure> {
    let free = cuda.memory_info_free();
    ensure_eq!(free.code, OK, "cuMemGetInfo_v2");
    Ok(Bytes(free.out))
}

/// Under 4 GiB, 3 of which the graph allocates: it does not run beside 3 GiB, runs without them, and gives back all of it.
fn is_held_to_the_budget(cuda: &Cuda, run: Run, ready: Ready) -> Result<(), Failure> {
    let before = available(cuda)?;
    let plain = cuda.allocate(MOST.0);
    ensure_eq!(plain.code, OK, "3 of 4 GiB beside a graph that never ran");
    ensure_eq!(
        cuda.run_graph(run, ready.exec),
        OUT_OF_MEMORY,
        "{run:?} beside 3 GiB"
    );
    ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
    ensure_eq!(cuda.run_graph(run, ready.exec), OK, "{run:?}");
    if matches!(run, Run::Upload | Run::UploadOfThread) {
        ensure_eq!(
            cuda.run_graph(Run::Launch, ready.exec),
            OK,
            "the launch of an uploaded graph"
        );
    }
    ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
    ensure_eq!(
        cuda.allocate(MOST.0).code,
        OUT_OF_MEMORY,
        "3 GiB beside what a graph allocated"
    );
    gives_back(cuda, ready, before)
}

/// Its nodes' memory is the program's until it is freed, and charged until it is trimmed, whatever is destroyed.
fn gives_back(cuda: &Cuda, ready: Ready, before: Bytes) -> Result<(), Failure> {
    end(cuda, ready)?;
    let held = before - MOST;
    ensure_eq!(available(cuda)?, held, "free when the graph is destroyed");
    ensure_eq!(cuda.trim_graphs(0), OK, "cuDeviceGraphMemTrim");
    ensure_eq!(
        available(cuda)?,
        held,
        "free after a trim of what is the program's still"
    );
    ensure_eq!(
        cuda.free(ready.made.address),
        OK,
        "cuMemFree_v2 of what a graph allocated"
    );
    ensure_eq!(available(cuda)?, held, "free when it is freed");
    ensure_eq!(cuda.trim_graphs(0), OK, "cuDeviceGraphMemTrim");
    ensure_eq!(available(cuda)?, before, "free when it is trimmed");
    Ok(())
}

cases! {
    /// A graph of one node that is instantiated and destroyed again and again, beside threads that allocate and free, takes no budget, at no time.
    instantiations_beside_other_threads_use_up_no_budget {
        kind: Budget, defects: ["R30", "R30a"], entry_points: ["cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2"],
        budget: "0=4GiB", unordered: "two threads",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let end = Instant::now() + Duration::from_secs(2);
        let (code, least) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                cuda.set_current(current);
                let (graph, target) = (cuda.create_graph(), cuda.allocate(Bytes::mib(2).0));
                let mut least = u64::MAX;
                if (graph.code, target.code) != (OK, OK) || cuda.add_branch(graph.out, &[], target.out).code != OK {
                    return (CUresult::ERROR_UNKNOWN, least);
                }
                while Instant::now() < end {
                    let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
                    if exec.code != OK || cuda.destroy_exec(exec.out) != OK {
                        return (exec.code, least);
                    }
                    least = least.min(cuda.memory_info_free().out);
                }
                (OK, least)
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    cuda.set_current(current);
                    while Instant::now() < end {
                        let block = cuda.allocate(Bytes::mib(4).0);
                        if block.code == OK {
                            cuda.free(block.out);
                        }
                    }
                });
            }
            other.join().unwrap_or((CUresult::ERROR_UNKNOWN, 0))
        });
        ensure_eq!(code, OK, "instantiations beside allocations");
        // The context, what all hold together, and a part of the budget.
        ensure!(Bytes(least) >= Bytes::gib(3), "{} of 4 GiB were told of as free beside {} that are held", Bytes(least), Bytes::mib(14));
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What a graph takes of a device that this process has no context on is charged there once, before and after one is made.
    a_graph_of_a_device_without_a_context_is_charged_once {
        kind: Budget, defects: ["R92"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=2GiB,1=2GiB",
        entry_points: ["cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"],
    } (session) {
        const TAKEN: Bytes = Bytes::mib(512);
        let cuda = cuda_without_context()?;
        let first = context(&cuda, 0)?;
        // A device can be reached from another's context only after one of its own was there.
        context(&cuda, 1)?;
        cuda.set_current(first);
        let graph = empty(&cuda)?;
        let added = cuda.add_allocation(Add::Own, graph, None, 1, TAKEN.0);
        ensure_eq!(added.code, OK, "a node that allocates on the second device");
        let exec = cuda.instantiate(Instantiate::WithFlags, graph);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        ensure_eq!(cuda.reset_primary(1), OK, "cuDevicePrimaryCtxReset_v2");
        ensure_eq!(cuda.release_primary(1), OK, "cuDevicePrimaryCtxRelease_v2");
        if cuda.run_graph(Run::Launch, exec.out) != OK || cuda.synchronize() != OK {
            // This driver has ended the graph with the context, and nothing is taken.
            return Ok(());
        }
        context(&cuda, 1)?;
        fills(fill(&cuda).bytes + TAKEN, budget(session, 1)?, CONTEXT_ROOM)
    }

    /// What an executable graph allocates is within the budget when it is launched again after a trim that came while its first launch was being charged.
    a_graph_that_is_trimmed_while_it_is_launched_asks_again {
        kind: Budget, defects: ["R80"], budget: "0=2GiB", unordered: "threads race",
        entry_points: ["cuGraphLaunch", "cuDeviceGraphMemTrim", "cuMemAlloc_v2"],
        faults: r#"fault = [
            { at = "cuDeviceGetGraphMemAttribute", then = "delay:100ms" },
            { at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "result:3" }, { at = "nvmlDeviceGetComputeRunningProcesses_v2", then = "result:3" },
        ]"#,
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let graph = empty(&cuda)?;
        let (node, address) = allocating(&cuda, graph, None, Bytes::mib(512))?;
        freeing(&cuda, graph, node, address)?;
        let exec = cuda.instantiate(Instantiate::WithFlags, graph);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        let started = std::sync::Barrier::new(2);
        let trimmed = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                cuda.set_current(current);
                started.wait();
                std::thread::sleep(Duration::from_millis(50));
                cuda.trim_graphs(0)
            });
            started.wait();
            let launched = cuda.run_graph(Run::Launch, exec.out);
            (launched, other.join().unwrap_or(CUresult::ERROR_UNKNOWN))
        });
        ensure_eq!(trimmed, (OK, OK), "cuGraphLaunch and cuDeviceGraphMemTrim");
        ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OK, "cuGraphLaunch after it");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What executable graphs take is charged beside a limit that the driver has not taken yet, and beside a stack that was made smaller: neither pays for it.
    graphs_are_charged_beside_limits_that_nothing_has_taken {
        kind: Budget, defects: ["R81"], budget: "0=3GiB",
        entry_points: ["cuCtxSetLimit", "cuGraphInstantiateWithFlags", "cuMemAlloc_v2"],
    } (session) {
        const STACK_SIZE: i32 = 0;
        const MALLOC_HEAP_SIZE: i32 = 2;
        const HEAP: Bytes = Bytes::gib(1);
        let (cuda, nvml) = (cuda()?, crate::clients::nvml()?);
        let (graph, target) = (empty(&cuda)?, cuda.allocate(Bytes::mib(2).0));
        for _ in 0..1000 {
            ensure_eq!(cuda.add_branch(graph, &[], target.out).code, OK, "a node");
        }
        ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, HEAP.0), OK, "a heap of 1 GiB");
        let mut execs = Vec::new();
        let instantiates = |execs: &mut Vec<Exec>| -> Result<Bytes, Failure> {
            let before = row(&nvml)?;
            for _ in 0..4 {
                let exec = cuda.instantiate(Instantiate::WithFlags, graph);
                ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
                execs.push(exec.out);
            }
            Ok(row(&nvml)?.saturating_sub(before))
        };
        let beside_heap = instantiates(&mut execs)?;
        ensure!(beside_heap >= Bytes::mib(256), "4,000 branches took {beside_heap}");
        let granted = fill(&cuda);
        fills(granted.bytes + beside_heap + HEAP, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(16))?;
        for block in granted.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::mib(8).0), OK, "a heap of 8 MiB");
        let mut taken = beside_heap;
        for stack in [16, 0] {
            ensure_eq!(cuda.set_limit(STACK_SIZE, stack), OK, "a stack of {stack} bytes");
            taken += instantiates(&mut execs)?;
            let granted = fill(&cuda);
            fills(granted.bytes + taken, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(32))?;
            ensure_eq!(cuda.set_limit(STACK_SIZE, 1024), OK, "the stack of a fresh context");
            for block in granted.held {
                ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
            }
        }
        Ok(())
    }

    /// The same of one thread where the driver tells of no process, and of a graph that is updated with each step of a program.
    graphs_that_come_and_go_use_up_no_budget_without_rows {
        kind: Budget, defects: ["R32"], budget: "0=2GiB",
        entry_points: ["cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphExecUpdate_v2", "cuMemAlloc_v2"],
        faults: r#"fault = [
            { at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "result:3" }, { at = "nvmlDeviceGetComputeRunningProcesses_v2", then = "result:3" },
        ]"#,
    } (session) {
        let cuda = cuda()?;
        let (graph, target) = (cuda.create_graph(), cuda.allocate(Bytes::mib(2).0));
        ensure_eq!((graph.code, target.code), (OK, OK), "a graph and what it sets");
        ensure_eq!(cuda.add_branch(graph.out, &[], target.out).code, OK, "a node");
        let kept = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(kept.code, OK, "cuGraphInstantiateWithFlags");
        for _ in 0..900 {
            let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
            ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
            ensure_eq!(cuda.destroy_exec(exec.out), OK, "cuGraphExecDestroy");
            let updated = match session.exports("cuGraphExecUpdate_v2")? {
                true => cuda.update_exec(kept.out, graph.out),
                false => cuda.update_exec_v1(kept.out, graph.out),
            };
            ensure_eq!(updated, OK, "an update");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Graphs lie in one another as deep as a program likes: what the innermost takes for its branches is within the budget, and what it allocates is
    /// granted where it fits.
    graphs_deep_in_one_another_are_within_the_budget {
        kind: Budget, defects: ["R47"], entry_points: ["cuGraphInstantiateWithFlags", "cuGraphLaunch"], budget: "0=2GiB",
    } (_session) {
        const DEEP: usize = 20;
        const GIB: Bytes = Bytes::gib(1);
        let cuda = cuda()?;
        let target = cuda.allocate(Bytes::mib(2).0);
        ensure_eq!(target.code, OK, "what is set");
        let mut graph = empty(&cuda)?;
        // 112 KiB each.
        for _ in 0..20_000 {
            ensure_eq!(cuda.add_branch(graph, &[], target.out).code, OK, "a node");
        }
        for _ in 0..DEEP {
            let outer = empty(&cuda)?;
            ensure_eq!(cuda.add_child(outer, graph), OK, "cuGraphAddChildGraphNode");
            ensure_eq!(cuda.destroy_graph(graph), OK, "cuGraphDestroy");
            graph = outer;
        }
        ensure_eq!(cuda.instantiate(Instantiate::WithFlags, graph).code, OUT_OF_MEMORY, "2.1 GiB of branches");
        let mut graph = empty(&cuda)?;
        let _ = allocating(&cuda, graph, None, GIB)?;
        for _ in 0..DEEP {
            let outer = empty(&cuda)?;
            match cuda.move_child(outer, graph) {
                OK => graph = outer,
                // A driver has graphs that allocate in no other.
                NOT_SUPPORTED | MISSING => return Ok(()),
                other => fail!("cuGraphAddNode_v2 answered {other:?}"),
            }
        }
        let exec = cuda.instantiate(Instantiate::WithFlags, graph);
        ensure_eq!(exec.code, OK, "a graph of {GIB}");
        ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OK, "the launch of {GIB} under 2 GiB");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        ensure_eq!(cuda.allocate(GIB.0).code, OUT_OF_MEMORY, "{GIB} beside it");
        Ok(())
    }

    /// What an executable graph takes for its kernels' parameters is within the budget, and granted where it fits.
    long_parameters_of_kernels_in_graphs_are_within_the_budget {
        kind: Budget, defects: ["R70", "R17"], entry_points: ["cuGraphInstantiateWithFlags"], budget: "0=1GiB",
    } (session) {
        // 22 MiB of 4,000 bytes each.
        const NODES: usize = 4_000;
        let cuda = cuda()?;
        let module = cuda.load_module(&Image::ptx(LONG));
        ensure_eq!(module.code, OK, "cuModuleLoadData");
        let function = cuda.function(module.out, "long");
        ensure_eq!(function.code, OK, "cuModuleGetFunction");
        let graph = cuda.captured_launches(function.out, &mut [0; 4_000], NODES);
        ensure_eq!(graph.code, OK, "{NODES} launches in a capture");
        let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags with room");
        let room = cuda.allocate(Bytes::mib(14).0);
        ensure_eq!(room.code, OK, "14 MiB");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        ensure_eq!(cuda.instantiate(Instantiate::WithFlags, graph.out).code, OUT_OF_MEMORY, "22 MiB of parameters where 14 are left");
        super::green::within(session)?;
        ensure_eq!(cuda.allocate(Bytes::mib(12).0).code, OK, "what is left still");
        Ok(())
    }

    /// So is what it takes when its kernels are exchanged for others with longer parameters.
    kernels_of_executable_graphs_are_exchanged_within_the_budget {
        kind: Budget, defects: ["R73"], budget: "0=1GiB",
        entry_points: ["cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", "cuGraphExecNodeSetParams"],
    } (session) {
        const NODES: usize = 4_000;
        let cuda = cuda()?;
        let module = cuda.load_module(&Image::ptx(LONG));
        ensure_eq!(module.code, OK, "cuModuleLoadData");
        let (short, long) = (cuda.function(module.out, "short"), cuda.function(module.out, "long"));
        ensure_eq!((short.code, long.code), (OK, OK), "cuModuleGetFunction");
        let graph = cuda.captured_launches(short.out, &mut [0; 8], NODES);
        ensure_eq!(graph.code, OK, "{NODES} launches in a capture");
        let exec = cuda.instantiate(Instantiate::WithFlags, graph.out);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        let nodes = cuda.nodes(graph.out);
        ensure_eq!((nodes.code, nodes.out.len()), (OK, NODES), "cuGraphGetNodes");
        let room = cuda.allocate(Bytes::mib(14).0);
        ensure_eq!(room.code, OK, "14 MiB");
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        let ways = [("cuGraphExecKernelNodeSetParams", Exchange::First), ("cuGraphExecKernelNodeSetParams_v2", Exchange::Second), ("cuGraphExecNodeSetParams", Exchange::Any)];
        let ways: Vec<_> = ways.into_iter().filter(|(name, _)| cuda.exports(name)).collect();
        let mut ends = Vec::new();
        for (at, node) in nodes.out.into_iter().enumerate() {
            let (name, way) = ways[at % ways.len()];
            // As it was: that takes nothing.
            ensure_eq!(cuda.set_exec_kernel(way, exec.out, node, short.out, &mut [0; 8]), OK, "{name} of the same kernel");
            match cuda.set_exec_kernel(way, exec.out, node, long.out, &mut [0; 4_000]) {
                OK => {}
                OUT_OF_MEMORY => ends.push(at),
                other => fail!("{name} answered {other:?}"),
            }
        }
        ensure!(ends.first().is_some_and(|first| *first > 500), "30 MiB of parameters where 14 are left: refused {} of {NODES}, the first {:?}", ends.len(), ends.first());
        super::green::within(session)
    }

    /// What a graph allocates that replaces a child of an executable graph is asked for at the next launch, and again at one after it was replaced by less.
    a_child_that_allocates_more_is_asked_for {
        kind: Budget, defects: ["R75"], budget: "0=4GiB", entry_points: ["cuGraphExecChildGraphNodeSetParams", "cuGraphLaunch"],
        needs: ["cuGraphExecChildGraphNodeSetParams", "cuGraphAddNode_v2"],
        on_real: No("no driver lets a child that allocates be exchanged"),
    } (session) {
        let cuda = cuda()?;
        let of = |bytes: Bytes| -> Result<Graph, Failure> {
            let graph = empty(&cuda)?;
            let (node, address) = allocating(&cuda, graph, None, bytes)?;
            freeing(&cuda, graph, node, address)?;
            Ok(graph)
        };
        let (small, large, huge) = (of(Bytes::mib(32))?, of(Bytes::gib(2))?, of(Bytes::gib(6))?);
        let outer = empty(&cuda)?;
        let child = cuda.move_child_node(outer, small);
        ensure_eq!(child.code, OK, "cuGraphAddNode_v2");
        let exec = cuda.instantiate(Instantiate::WithFlags, outer);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OK, "cuGraphLaunch");
        for (round, (graph, answer)) in [(large, OK), (huge, OUT_OF_MEMORY), (large, OK), (huge, OUT_OF_MEMORY)].into_iter().enumerate() {
            ensure_eq!(cuda.set_exec_child(exec.out, child.out, graph), OK, "cuGraphExecChildGraphNodeSetParams");
            ensure_eq!(cuda.run_graph(Run::Launch, exec.out), answer, "cuGraphLaunch in round {round}");
        }
        super::green::within(session)
    }

    /// And when a whole graph replaces it, or a child of it: 46 MiB, which are refused where 28 are left.
    graphs_are_exchanged_for_others_within_the_budget {
        kind: Budget, defects: ["R73"], budget: "0=1GiB", entry_points: ["cuGraphExecUpdate", "cuGraphExecUpdate_v2", "cuGraphExecChildGraphNodeSetParams"],
    } (session) {
        const NODES: usize = 4_000;
        let cuda = cuda()?;
        let module = cuda.load_module(&Image::ptx(LONG));
        ensure_eq!(module.code, OK, "cuModuleLoadData");
        let (short, long) = (cuda.function(module.out, "short"), cuda.function(module.out, "long"));
        ensure_eq!((short.code, long.code), (OK, OK), "cuModuleGetFunction");
        let (short, long) = (
            cuda.captured_launches(short.out, &mut [0; 8], NODES),
            cuda.captured_launches(long.out, &mut [0; 4_000], NODES),
        );
        ensure_eq!((short.code, long.code), (OK, OK), "{NODES} launches in a capture");
        let outer = empty(&cuda)?;
        let child = cuda.add_child_node(outer, short.out);
        ensure_eq!(child.code, OK, "cuGraphAddChildGraphNode");
        let (plain, nested) = (cuda.instantiate(Instantiate::WithFlags, short.out), cuda.instantiate(Instantiate::WithFlags, outer));
        ensure_eq!((plain.code, nested.code), (OK, OK), "cuGraphInstantiateWithFlags");
        let room = cuda.allocate(Bytes::mib(28).0);
        ensure_eq!(room.code, OK, "28 MiB");
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        let updates: [(&str, &dyn Fn() -> CUresult); 3] = [
            ("cuGraphExecUpdate", &|| cuda.update_exec_v1(plain.out, long.out)),
            ("cuGraphExecUpdate_v2", &|| cuda.update_exec(plain.out, long.out)),
            ("cuGraphExecChildGraphNodeSetParams", &|| cuda.set_exec_child(nested.out, child.out, long.out)),
        ];
        for (name, update) in updates.into_iter().filter(|(name, _)| cuda.exports(name)) {
            ensure_eq!(update(), OUT_OF_MEMORY, "{name}");
            super::green::within(session)?;
        }
        ensure_eq!(cuda.free(cuda.allocate(Bytes::mib(24).0).out), OK, "what is left still");
        Ok(())
    }

    /// And what the bodies of its conditional nodes need.
    bodies_of_conditional_nodes_are_within_the_budget {
        kind: Budget, defects: ["R72"], budget: "0=1GiB", entry_points: ["cuGraphAddNode", "cuGraphInstantiateWithFlags"], needs: ["cuGraphConditionalHandleCreate"],
    } (session) {
        let cuda = cuda()?;
        let target = cuda.allocate(Bytes::mib(2).0);
        ensure_eq!(target.code, OK, "what is set");
        let made = |branches| {
            let graph = empty(&cuda)?;
            let body = cuda.add_conditional(graph);
            ensure_eq!(body.code, OK, "a conditional node");
            for _ in 0..branches {
                ensure_eq!(cuda.add_branch(body.out, &[], target.out).code, OK, "a node of its body");
            }
            Ok(graph)
        };
        let (few, many) = (made(50)?, made(1_000)?);
        let room = cuda.allocate(Bytes::mib(30).0);
        ensure_eq!(room.code, OK, "30 MiB");
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        ensure_eq!(cuda.instantiate(Instantiate::WithFlags, many).code, OUT_OF_MEMORY, "112 MiB of branches where 30 are left");
        super::green::within(session)?;
        ensure_eq!(cuda.instantiate(Instantiate::WithFlags, few).code, OK, "6 MiB of branches");
        super::green::within(session)
    }

    /// A graph of whose nodes the driver does not tell is not launched, alone or as another's child.
    a_graph_that_the_driver_does_not_tell_of_is_not_launched {
        kind: Budget, defects: ["R3"], entry_points: ["cuGraphLaunch", "cuGraphInstantiateWithFlags"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuGraphGetNodes", then = "result:999" }]"#,
    } (_session) {
        let cuda = cuda()?;
        let ready = ready(&cuda, Instantiate::WithFlags, made(&cuda)?)?;
        ensure_eq!(cuda.run_graph(Run::Launch, ready.exec), OUT_OF_MEMORY, "cuGraphLaunch");
        ensure_eq!(cuda.run_graph(Run::Upload, ready.exec), OUT_OF_MEMORY, "cuGraphUpload");
        end(&cuda, ready)
    }

    /// However a graph was made executable and is run, what it allocates is within the budget, is charged until it is freed and
    /// trimmed, and is charged once.
    graphs_are_no_way_past_the_budget {
        kind: Budget, defects: ["R3", "R4"], budget: "0=4GiB",
        entry_points: [
            "cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams",
            "cuGraphInstantiateWithParams_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz", "cuGraphLaunch", "cuGraphLaunch_ptsz",
            "cuGraphExecDestroy", "cuDeviceGraphMemTrim",
        ],
    } (session) {
        let cuda = cuda()?;
        for (way, run) in [
            (Instantiate::First, Run::Launch),
            (Instantiate::Second, Run::LaunchOfThread),
            (Instantiate::WithFlags, Run::Upload),
            (Instantiate::WithParams, Run::UploadOfThread),
            (Instantiate::WithParamsOfThread, Run::Launch),
        ] {
            let made = made(&cuda)?;
            match cuda.instantiate(way, made.graph) {
                // Older drivers have no structure for it.
                answer if answer.code == MISSING => ensure_eq!(cuda.destroy_graph(made.graph), OK, "cuGraphDestroy"),
                answer => {
                    ensure_eq!(answer.code, OK, "{way:?}");
                    is_held_to_the_budget(&cuda, run, Ready { made, exec: answer.out })?;
                }
            }
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A graph that is uploaded as it is made executable takes its memory then; if it may not, there is no executable graph.
    graphs_uploaded_at_once_are_no_way_past_the_budget {
        kind: Budget, defects: ["R3"], budget: "0=4GiB",
        entry_points: ["cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"],
    } (session) {
        let cuda = cuda()?;
        for way in [Instantiate::Uploading, Instantiate::UploadingOfThread] {
            let (first, second) = (made(&cuda)?, made(&cuda)?);
            let exec = cuda.instantiate(way, first.graph);
            if exec.code == MISSING {
                break;
            }
            ensure_eq!(exec.code, OK, "{way:?}");
            let first = Ready { made: first, exec: exec.out };
            ensure_eq!(cuda.run_graph(Run::Launch, first.exec), OK, "the launch");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            let refused = cuda.instantiate(way, second.graph);
            ensure_eq!((refused.code, refused.out), (OUT_OF_MEMORY, Exec::NONE), "{way:?} of another graph");
            end(&cuda, first)?;
            ensure_eq!(cuda.free(first.made.address), OK, "cuMemFree_v2");
            let again = ready(&cuda, way, second)?;
            let plain = cuda.allocate(MOST.0);
            ensure_eq!(plain.code, OK, "3 GiB, for which the graph that never ran gives way");
            ensure_eq!(cuda.run_graph(Run::Launch, again.exec), OUT_OF_MEMORY, "its launch then");
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
            end(&cuda, again)?;
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So are nodes that allocate, by whichever call they were made.
    nodes_of_any_kind_are_no_way_past_the_budget {
        kind: Budget, defects: ["R3"], budget: "0=4GiB",
        entry_points: ["cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphLaunch"],
    } (session) {
        let cuda = cuda()?;
        for way in [Add::Own, Add::Any, Add::AnySecond] {
            let graph = empty(&cuda)?;
            let added = cuda.add_allocation(way, graph, None, 0, MOST.0);
            if added.code == MISSING {
                continue;
            }
            ensure_eq!(added.code, OK, "{way:?}");
            let made = Made { graph, address: added.out.1 };
            is_held_to_the_budget(&cuda, Run::Launch, ready(&cuda, Instantiate::WithFlags, made)?)?;
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Also by the third version of the call for any kind of node (CUDA 13.4); parameters that are exchanged change nothing of that.
    nodes_of_the_third_version_are_no_way_past_the_budget {
        kind: Budget, defects: ["R23", "R3"], machine: "rtx6000-ada+615", needs: ["cuGraphAddNode_v3"], budget: "0=4GiB",
        entry_points: ["cuGraphAddNode_v3", "cuGraphNodeSetParams", "cuGraphNodeSetParams_v2", "cuGraphLaunch"],
    } (session) {
        let cuda = cuda()?;
        let graph = empty(&cuda)?;
        let added = cuda.add_allocation(Add::AnyThird, graph, None, 0, MOST.0);
        ensure_eq!(added.code, OK, "cuGraphAddNode_v3");
        let (node, address) = added.out;
        let branch = cuda.add_branch(graph, &[node], address);
        ensure_eq!(branch.code, OK, "cuGraphAddMemsetNode");
        ensure_eq!(cuda.set_branch(false, branch.out, address), OK, "cuGraphNodeSetParams");
        ensure_eq!(cuda.set_branch(true, branch.out, address), OK, "cuGraphNodeSetParams_v2");
        let made = Made { graph, address };
        is_held_to_the_budget(&cuda, Run::Launch, ready(&cuda, Instantiate::WithFlags, made)?)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// An allocation on a stream that captures is a node: it takes nothing, whatever is left, before its graph is launched.
    captured_allocations_are_charged_when_they_are_launched {
        kind: Budget, defects: ["R3", "R4"], budget: "0=4GiB",
        entry_points: [
            "cuStreamBeginCapture", "cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz",
            "cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
            "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuGraphLaunch",
        ],
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.default_pool(0);
        ensure_eq!(pool.code, OK, "cuDeviceGetDefaultMemPool");
        for (begin, ordered) in [
            (Begin::First, Ordered::Plain),
            (Begin::FirstOfThread, Ordered::PlainOfThread),
            (Begin::Second, Ordered::FromPool),
            (Begin::SecondOfThread, Ordered::FromPoolOfThread),
            (Begin::ToGraph, Ordered::PlainOfThread),
            (Begin::ToGraphOfThread, Ordered::Plain),
        ] {
            let own = empty(&cuda)?;
            let began = cuda.begin_capture(begin, own);
            if began == MISSING {
                continue;
            }
            ensure_eq!(began, OK, "{begin:?}");
            let before = available(&cuda)?;
            let node = cuda.allocate_ordered(ordered, pool.out, 2 * MOST.0);
            ensure_eq!(node.code, OK, "6 GiB under 4, captured, {ordered:?}");
            let node = cuda.allocate_ordered(ordered, pool.out, MOST.0);
            ensure_eq!(node.code, OK, "3 GiB captured");
            ensure_eq!(available(&cuda)?, before, "free after captured allocations");
            let graph = cuda.end_capture();
            ensure_eq!(graph.code, OK, "cuStreamEndCapture");
            let both = cuda.instantiate(Instantiate::WithFlags, graph.out);
            ensure_eq!(both.code, OK, "a graph that allocates 9 GiB made executable");
            ensure_eq!(cuda.run_graph(Run::Launch, both.out), OUT_OF_MEMORY, "its launch");
            ensure_eq!(cuda.destroy_exec(both.out), OK, "cuGraphExecDestroy");
            ensure_eq!(cuda.destroy_graph(graph.out), OK, "cuGraphDestroy");

            let own = empty(&cuda)?;
            ensure_eq!(cuda.begin_capture(begin, own), OK, "{begin:?}");
            let node = cuda.allocate_ordered(ordered, pool.out, MOST.0);
            ensure_eq!(node.code, OK, "3 GiB captured");
            let graph = cuda.end_capture();
            ensure_eq!(graph.code, OK, "cuStreamEndCapture");
            let made = Made { graph: graph.out, address: node.out };
            is_held_to_the_budget(&cuda, Run::Launch, ready(&cuda, Instantiate::WithFlags, made)?)?;
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Four allocations of 2 GiB, the third and fourth where the first and second were freed, are 4 GiB.
    memory_that_a_graph_uses_again_is_charged_once {
        kind: Budget, defects: ["R3", "C10"], budget: "0=6GiB", entry_points: ["cuGraphLaunch", "cuMemGetInfo_v2"],
    } (_session) {
        let cuda = cuda()?;
        let graph = empty(&cuda)?;
        let part = Bytes::gib(2);
        let (first, one) = allocating(&cuda, graph, None, part)?;
        let (second, two) = allocating(&cuda, graph, Some(first), part)?;
        let freed = freeing(&cuda, graph, second, one)?;
        let (third, three) = allocating(&cuda, graph, Some(freed), part)?;
        let freed = freeing(&cuda, graph, third, two)?;
        let (fourth, four) = allocating(&cuda, graph, Some(freed), part)?;
        ensure!(one == three && two == four && one != two, "the driver did not use freed addresses again");
        let freed = freeing(&cuda, graph, fourth, three)?;
        freeing(&cuda, graph, freed, four)?;
        let exec = cuda.instantiate(Instantiate::WithFlags, graph);
        ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
        let before = available(&cuda)?;
        for _ in 0..3 {
            ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OK, "four times 2 GiB in 4, under 6");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            ensure_eq!(available(&cuda)?, before - Bytes::gib(4), "free after a launch");
        }
        let plain = cuda.allocate(Bytes::gib(5).0);
        ensure_eq!(plain.code, OK, "5 GiB, for which the graph's memory gives way");
        ensure_eq!(cuda.run_graph(Run::Launch, exec.out), OUT_OF_MEMORY, "its launch then");
        Ok(())
    }

    /// Graphs that free what they allocate have the same memory one after the other, as often as they are launched, and
    /// whatever is between them.
    graphs_share_what_they_do_not_hold {
        kind: Budget, defects: ["R3", "C10"], budget: "0=4GiB", entry_points: ["cuGraphLaunch", "cuDeviceGraphMemTrim"],
    } (_session) {
        let cuda = cuda()?;
        let mut execs = Vec::new();
        for _ in 0..2 {
            let graph = empty(&cuda)?;
            let (node, address) = allocating(&cuda, graph, None, MOST)?;
            freeing(&cuda, graph, node, address)?;
            let exec = cuda.instantiate(Instantiate::WithFlags, graph);
            ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
            execs.push(exec.out);
        }
        let before = available(&cuda)?;
        for round in 0..4 {
            for exec in &execs {
                ensure_eq!(cuda.run_graph(Run::Launch, *exec), OK, "3 of 4 GiB by turns, round {round}");
                ensure_eq!(available(&cuda)?, before - MOST, "free after round {round}");
            }
            if round == 1 {
                ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
                ensure_eq!(cuda.trim_graphs(0), OK, "cuDeviceGraphMemTrim");
                ensure_eq!(available(&cuda)?, before, "free after a trim");
            }
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        ensure_eq!(cuda.allocate(MOST.0).code, OK, "3 GiB, for which they give way");
        ensure_eq!(cuda.run_graph(Run::Launch, execs[0]), OUT_OF_MEMORY, "3 GiB beside these");
        Ok(())
    }

    /// An executable graph that is updated from another needs what that one allocates, if the driver takes it.
    updated_graphs_are_no_way_past_the_budget {
        kind: Budget, defects: ["R3"], budget: "0=4GiB", entry_points: ["cuGraphExecUpdate", "cuGraphExecUpdate_v2", "cuGraphLaunch"],
    } (_session) {
        let cuda = cuda()?;
        for update in [Cuda::update_exec_v1, Cuda::update_exec] {
            let small = empty(&cuda)?;
            allocating(&cuda, small, None, Bytes::mib(64))?;
            let exec = cuda.instantiate(Instantiate::WithFlags, small);
            ensure_eq!(exec.code, OK, "cuGraphInstantiateWithFlags");
            let large = made(&cuda)?;
            let updated = update(&cuda, exec.out, large.graph);
            if updated == MISSING {
                continue;
            }
            let plain = cuda.allocate(MOST.0);
            ensure_eq!(plain.code, OK, "3 of 4 GiB");
            let launched = cuda.run_graph(Run::Launch, exec.out);
            match updated {
                OK => ensure_eq!(launched, OUT_OF_MEMORY, "the launch of 3 GiB beside these"),
                _ => ensure_eq!(launched, OK, "the launch of the old 64 MiB beside these"),
            }
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        }
        let held = is_held_to_the_budget(&cuda, Run::Launch, ready(&cuda, Instantiate::WithFlags, made(&cuda)?)?);
        held.or_else(|failure| fail!("after the updates: {failure:?}"))
    }

    /// A graph within another, a copy of one, a second executable of one: what the driver lets allocate is within the budget.
    copies_of_graphs_are_no_way_past_the_budget {
        kind: Budget, defects: ["R3"], budget: "0=4GiB",
        entry_points: ["cuGraphAddNode_v2", "cuGraphLaunch", "cuGraphInstantiateWithFlags"],
    } (_session) {
        let cuda = cuda()?;
        let way = Instantiate::WithFlags;
        let first = made(&cuda)?;
        let outer = empty(&cuda)?;
        let copied = cuda.add_child(outer, first.graph);
        let moved = match copied {
            OK => OK,
            NOT_SUPPORTED => cuda.move_child(outer, first.graph),
            other => fail!("cuGraphAddChildGraphNode answered {other:?}"),
        };
        if moved == OK {
            let exec = ready(&cuda, way, Made { graph: outer, ..first })?;
            is_held_to_the_budget(&cuda, Run::Launch, exec)?;
        } else {
            ensure!(matches!(moved, NOT_SUPPORTED | MISSING), "a graph that allocates, moved into another: {moved:?}");
            ensure_eq!(cuda.destroy_graph(first.graph), OK, "cuGraphDestroy");
        }
        let second = made(&cuda)?;
        let exec = ready(&cuda, way, second)?;
        let again = cuda.instantiate(way, second.graph);
        let copy = cuda.clone_graph(second.graph);
        let copy = match copy.code {
            OK => cuda.instantiate(way, copy.out),
            code => crate::ffi::cuda::Answer { code, out: Exec::NONE },
        };
        ensure_eq!(cuda.run_graph(Run::Launch, exec.exec), OK, "a graph that allocates 3 of 4 GiB");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        for other in [again, copy] {
            match other.code {
                OK => ensure_eq!(cuda.run_graph(Run::Launch, other.out), OUT_OF_MEMORY, "another 3 GiB"),
                code => ensure_eq!(code, NOT_SUPPORTED, "a copy that the driver does not make"),
            }
        }
        ensure_eq!(cuda.allocate(MOST.0).code, OUT_OF_MEMORY, "3 GiB beside it");
        Ok(())
    }

    /// However cuGraphLaunch was looked up, it keeps the budget.
    launches_found_by_any_look_up_keep_the_budget {
        kind: Budget, defects: ["R3", "R8", "S1"], budget: "0=4GiB",
        entry_points: ["cuGetProcAddress_v2", "dlsym", "cuGraphLaunch", "cuGraphLaunch_ptsz"],
    } (_session) {
        const PER_THREAD_STREAM: u64 = 2;
        let cuda = cuda()?;
        let exec = ready(&cuda, Instantiate::WithFlags, made(&cuda)?)?.exec;
        let plain = cuda.allocate(MOST.0);
        ensure_eq!(plain.code, OK, "3 of 4 GiB");
        let found = [
            cuda.library.address("cuGraphLaunch"),
            cuda.library.address("cuGraphLaunch_ptsz"),
            cuda.proc_address_v1("cuGraphLaunch", 11040, 0).address,
            cuda.proc_address("cuGraphLaunch", 12000, 0).address,
            cuda.proc_address("cuGraphLaunch", 12000, PER_THREAD_STREAM).address,
        ];
        // A driver has the older cuGetProcAddress, the newer one, or both.
        ensure!(found.iter().flatten().count() >= 3, "cuGraphLaunch was not found");
        for address in found.into_iter().flatten() {
            ensure_eq!(cuda.launch_graph_by(address, exec), OUT_OF_MEMORY, "3 GiB beside 3 of 4");
        }
        Ok(())
    }

    /// A refusal that pools and graphs could avert by giving back what they do not need is averted, and no capture ends by that.
    what_a_pool_keeps_gives_way_to_a_graph_beside_a_capture {
        kind: Budget, defects: ["R3", "C10"], budget: "0=4GiB", entry_points: ["cuGraphLaunch", "cuStreamBeginCapture_v2"],
    } (_session) {
        let cuda = cuda()?;
        let pool = cuda.default_pool(0);
        ensure_eq!(pool.code, OK, "cuDeviceGetDefaultMemPool");
        ensure_eq!(cuda.keep_in_pool(pool.out, u64::MAX), OK, "cuMemPoolSetAttribute");
        let stream = crate::ffi::cuda::Stream::Legacy;
        let kept = cuda.allocate_async(stream, MOST.0);
        ensure_eq!(kept.code, OK, "3 of 4 GiB in stream order");
        ensure_eq!(cuda.free_async(stream, kept.out), OK, "cuMemFreeAsync");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let exec = ready(&cuda, Instantiate::WithFlags, made(&cuda)?)?;
        let other = ready(&cuda, Instantiate::WithFlags, made(&cuda)?)?;
        let capturing = cuda.create_stream();
        ensure_eq!(capturing.code, OK, "cuStreamCreate");
        ensure_eq!(cuda.begin_capture_on(capturing.out), OK, "cuStreamBeginCapture_v2");
        ensure_eq!(cuda.run_graph(Run::Launch, exec.exec), OK, "3 of 4 GiB beside 3 that a pool keeps");
        ensure_eq!(cuda.run_graph(Run::Launch, other.exec), OUT_OF_MEMORY, "3 GiB more");
        ensure_eq!(cuda.end_capture_on(capturing.out).code, OK, "cuStreamEndCapture");
        Ok(())
    }

    /// A module that is refused while a stream is captured is taken off the device again, and the capture goes on.
    a_module_that_is_refused_beside_a_capture_leaves_nothing {
        kind: Budget, defects: ["R104"], entry_points: ["cuModuleLoadData", "cuStreamBeginCapture_v2", "cuStreamEndCapture"], budget: "0=2GiB",
        unaccounted: "a module is on the device until it is refused",
    } (session) {
        // Each takes a block: more than their bytes come to, as is known once they are there.
        let variables: String = (0..16).map(|nth| format!(".visible .global .align 8 .b8 v{nth}[2000000];\n")).collect();
        let text = format!(".version 7.0\n.target sm_70\n.address_size 64\n{variables}.visible .entry k()\n{{\nret;\n}}\n");
        let cuda = cuda()?;
        let stream = cuda.create_stream();
        ensure_eq!(stream.code, OK, "cuStreamCreate");
        let filled = fill(&cuda);
        filled.refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.begin_capture_on(stream.out), OK, "cuStreamBeginCapture_v2");
        for _ in 0..16 {
            ensure_eq!(cuda.load_module(&Image::ptx(&text)).code, OUT_OF_MEMORY, "a module of 32 MiB");
        }
        ensure_eq!(cuda.end_capture_on(stream.out).code, OK, "cuStreamEndCapture");
        within(session, &cuda)
    }
}
