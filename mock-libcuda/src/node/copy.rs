//! Copy and memset nodes.

use super::*;

pub(super) fn copy(
    process: &mut Process,
    params: CUDA_MEMCPY3D,
    context: CUcontext,
) -> Result<Payload, CUresult> {
    let context = context_of(process, context)?;
    let (work, act) = transfer::copy(process, &params)?;
    Ok(Payload::Copy {
        params: Kept(params),
        context,
        work,
        act,
    })
}

pub fn add_copy(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> Answer {
    let params = params.required()?;
    Place::plain(node, graph, after, count).add(|process, _, _, _| copy(process, params, context))
}

pub fn get_copy(node: CUgraphNode, out: Out<CUDA_MEMCPY3D>) -> Answer {
    let out = out.required()?;
    with(node, |_, payload| match payload {
        Payload::Copy { params, .. } => {
            out.set(params.0);
            Ok(())
        }
        _ => Err(INVALID),
    })
}

pub fn set_copy(node: CUgraphNode, params: In<CUDA_MEMCPY3D>) -> Answer {
    let params = params.required()?;
    change(node, |process, _, old| match old {
        Payload::Copy { context, .. } => copy(process, params, crate::context::handle_of(*context)),
        _ => Err(INVALID),
    })
}

pub fn set_exec_copy(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> Answer {
    let params = params.required()?;
    change_exec(exec, node, |process, _| copy(process, params, context))
}

pub(super) fn fill(
    process: &mut Process,
    params: CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Result<Payload, CUresult> {
    // Without any context it is the one that the memory is of.
    let of_memory = |_| {
        let held = process.holding(params.dst, 1);
        held.map(|(_, allocation)| allocation.context)
            .ok_or(INVALID)
    };
    let context = context_of(process, context).or_else(of_memory)?;
    let (work, act) = transfer::fill(process, &params)?;
    Ok(Payload::Fill {
        params: Kept(params),
        context,
        work,
        act,
    })
}

pub fn add_fill(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> Answer {
    let params = params.required()?;
    Place::plain(node, graph, after, count).add(|process, _, _, _| fill(process, params, context))
}

pub fn get_fill(node: CUgraphNode, out: Out<CUDA_MEMSET_NODE_PARAMS>) -> Answer {
    let out = out.required()?;
    with(node, |_, payload| match payload {
        Payload::Fill { params, .. } => {
            out.set(params.0);
            Ok(())
        }
        _ => Err(INVALID),
    })
}

pub fn set_fill(node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    change(node, |process, _, old| match old {
        Payload::Fill { context, .. } => fill(process, params, crate::context::handle_of(*context)),
        _ => Err(INVALID),
    })
}

pub fn set_exec_fill(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> Answer {
    let params = params.required()?;
    change_exec(exec, node, |process, _| fill(process, params, context))
}
