//! Nodes of memory: operations on values in it, allocating it, freeing it.

use super::*;

pub(super) fn mem_ops(
    process: &mut Process,
    params: CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<Payload, CUresult> {
    if params.flags != 0 || params.count == 0 {
        return Err(INVALID);
    }
    let context = context_of(process, params.ctx)?;
    let ops = memop::read_batch(process, params.count, Host(params.paramArray as u64))?;
    Ok(Payload::MemOps { context, ops })
}

pub fn add_mem_ops(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    Place::plain(node, graph, after, count).add(|process, _, _, _| mem_ops(process, params))
}

/// The operations themselves stay with the node: `paramArray` is given as NULL.
pub fn get_mem_ops(node: CUgraphNode, out: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS>) -> Answer {
    let out = out.required()?;
    with(node, |_, payload| match payload {
        Payload::MemOps { context, ops } => {
            let mut params = CUDA_BATCH_MEM_OP_NODE_PARAMS::zeroed();
            params.ctx = crate::context::handle_of(*context);
            params.count = ops.len() as u32;
            out.set(params);
            Ok(())
        }
        _ => Err(INVALID),
    })
}

pub fn set_mem_ops(node: CUgraphNode, params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    change(node, |process, _, _| mem_ops(process, params))
}

pub fn set_exec_mem_ops(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    change_exec(exec, node, |process, _| mem_ops(process, params))
}

// Memory

pub(super) fn alloc_into(
    process: &mut Process,
    driver: &Driver,
    graph: graph::GraphId,
    after: &[NodeId],
    params: &CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Payload, CUresult> {
    const PINNED: c_int = 1;
    let place = driver.place(params.poolProps.location);
    let (Some(place), PINNED, 1..) = (place, params.poolProps.allocType, params.bytesize) else {
        return Err(INVALID);
    };
    if process.graphs.graph(graph).body_of.is_some() {
        return Err(INVALID);
    }
    if params.poolProps.handleTypes != 0 {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let (device, _) = place.map_err(|_| INVALID)?;
    let size = params.bytesize as u64;
    crate::graph_memory::place(process, driver, graph, after, device, size).map(Payload::Alloc)
}

pub fn add_alloc(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Answer {
    let slot = params.required()?;
    Place::plain(node, graph, after, count).add(|process, driver, graph, after| {
        let mut told = slot.get();
        let payload = alloc_into(process, driver, graph, after, &told)?;
        if let Payload::Alloc(allocation) = &payload {
            told.dptr = allocation.address;
            slot.set(told);
        }
        Ok(payload)
    })
}

pub fn get_alloc(node: CUgraphNode, out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) -> Answer {
    let out = out.required()?;
    with(node, |_, payload| match payload {
        Payload::Alloc(allocation) => {
            let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
            params.poolProps.allocType = 1;
            params.poolProps.location.type_ = 1;
            params.poolProps.location.id = allocation.device.0 as c_int;
            params.bytesize = allocation.size as usize;
            params.dptr = allocation.address;
            out.set(params);
            Ok(())
        }
        _ => Err(INVALID),
    })
}

pub fn add_free(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    address: CUdeviceptr,
) -> Answer {
    Place::plain(node, graph, after, count).add(|process, _, _, _| {
        crate::graph_memory::may_free(process, address)?;
        Ok(Payload::Free(address))
    })
}

pub fn get_free(node: CUgraphNode, address: Out<CUdeviceptr>) -> Answer {
    let address = address.required()?;
    with(node, |_, payload| match payload {
        Payload::Free(freed) => {
            address.set(*freed);
            Ok(())
        }
        _ => Err(INVALID),
    })
}
