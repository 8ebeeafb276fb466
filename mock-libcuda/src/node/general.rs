//! Nodes of any kind by one structure.

use super::*;

/// The parameters of a node whose kind a number says.
pub enum General {
    Kernel(CUDA_KERNEL_NODE_PARAMS),
    Copy(CUDA_MEMCPY3D, CUcontext),
    Fill(CUDA_MEMSET_NODE_PARAMS, CUcontext),
    Host(CUDA_HOST_NODE_PARAMS),
    /// A graph, and CUgraphChildGraphNodeOwnership.
    Child(CUgraph, c_int),
    Empty,
    Wait(CUevent),
    Record(CUevent),
    Alloc(CUDA_MEM_ALLOC_NODE_PARAMS),
    Free(CUdeviceptr),
    MemOps(CUDA_BATCH_MEM_OP_NODE_PARAMS),
    Conditional(CUDA_CONDITIONAL_NODE_PARAMS),
    /// External semaphores.
    Unsupported,
}

/// CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, and the first CUDA that knows it; before, the word was none of the structure's.
const MOVE: c_int = 1;
const MOVABLE: i32 = 12_090;

/// A child that is the graph itself, memory nodes included, and no copy of it. Nobody else destroys it from then on.
fn moved(process: &mut Process, graph: CUgraph) -> Result<Payload, CUresult> {
    let child = process.graphs.graph_id(graph)?;
    if process.graphs.graph(child).embedded {
        return Err(INVALID);
    }
    process.graphs.graph_mut(child).embedded = true;
    Ok(Payload::Child(child))
}

fn general(process: &mut Process, driver: &Driver, params: General) -> Result<Payload, CUresult> {
    match params {
        General::Kernel(params) => kernel(process, driver, params),
        General::Copy(params, context) => copy(process, params, context),
        General::Fill(params, context) => fill(process, params, context),
        General::Host(params) => host(params),
        General::Child(graph, MOVE) if driver.world.machine().driver.cuda_version >= MOVABLE => {
            moved(process, graph)
        }
        General::Child(graph, _) => child(process, graph),
        General::Empty => Ok(Payload::Empty),
        General::Wait(event) => event_of(process, event).map(Payload::EventWait),
        General::Record(event) => event_of(process, event).map(Payload::EventRecord),
        General::MemOps(params) => mem_ops(process, params),
        General::Free(address) => {
            crate::graph_memory::may_free(process, address)?;
            Ok(Payload::Free(address))
        }
        General::Alloc(_) => Err(INVALID),
        // Of what is there nothing can be changed.
        General::Conditional(_) | General::Unsupported => Err(CUresult::ERROR_NOT_SUPPORTED),
    }
}

pub fn add_general(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    add_general_v2(node, graph, after, In::null(), count, params)
}

pub fn add_general_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    let slot = params.required()?;
    let node = node.required()?;
    let mut handle = 0;
    let place = Place {
        node: node.out(),
        graph,
        after,
        edges,
        count,
    };
    let read = crate::boundary::node_params(&slot.get()).ok_or(INVALID)?;
    place.add(|process, driver, graph, after| match read {
        General::Alloc(params) => {
            let payload = alloc_into(process, driver, graph, after, &params)?;
            if let Payload::Alloc(allocation) = &payload {
                let mut told = params;
                told.dptr = allocation.address;
                let mut whole = slot.get();
                whole.anon.alloc = crate::boundary::alloc_v2(told);
                slot.set(whole);
            }
            Ok(payload)
        }
        General::Conditional(params) => {
            let made = conditional::make(process, graph, &params)?;
            let mut whole = slot.get();
            whole.anon.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                phGraph_out: made.array(),
                ..params
            };
            slot.set(whole);
            handle = params.handle;
            Ok(Payload::Conditional(made))
        }
        other => general(process, driver, other),
    })?;
    if handle != 0 {
        let mut process = driver::get()?.lock();
        if let Ok(id) = process.graphs.node_id(node.get()) {
            conditional::added(&mut process, id, handle);
        }
    }
    Ok(())
}

pub fn set_general(node: CUgraphNode, params: Out<CUgraphNodeParams>) -> Answer {
    let params = params.required()?.get();
    let read = crate::boundary::node_params(&params).ok_or(INVALID)?;
    change(node, |process, driver, _| general(process, driver, read))
}

pub fn set_exec_general(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    let params = params.required()?.get();
    let read = crate::boundary::node_params(&params).ok_or(INVALID)?;
    change_exec(exec, node, |process, driver| general(process, driver, read))
}
