//! What graphs' nodes do: adding them, reading and changing their parameters, in graphs and in executable graphs.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, ClientCall, Host, In, Kept, Out, crash};
use crate::driver::{self, Driver};
use crate::event;
use crate::exec;
use crate::graph::{self, KernelNode, NodeId, Payload, node_handle};
use crate::launch;
use crate::memop;
use crate::process::{ContextId, Process};
use crate::transfer;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// Where a node is added.
pub struct Place {
    pub node: Out<CUgraphNode>,
    pub graph: CUgraph,
    pub after: In<CUgraphNode>,
    pub edges: In<CUgraphEdgeData>,
    pub count: usize,
}

impl Place {
    fn plain(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
    ) -> Place {
        Place {
            node,
            graph,
            after,
            edges: In::null(),
            count,
        }
    }

    /// Adds the node that `make` makes of the graph and the nodes before it.
    fn add(
        self,
        make: impl FnOnce(&mut Process, &Driver, graph::GraphId, &[NodeId]) -> Result<Payload, CUresult>,
    ) -> Answer {
        let slot = self.node.required()?;
        if self.graph.is_null() {
            return Err(INVALID);
        }
        let driver = driver::get()?;
        let mut process = driver.lock();
        let id = process.graphs.graph_id(self.graph)?;
        let after = process.graphs.nodes_of(id, &self.after, self.count)?;
        let edges = graph::edges_of(&self.edges, self.count)?;
        let payload = make(&mut process, driver, id, &after)?;
        let node = process.graphs.add(id, payload, &after);
        for (before, edge) in after.iter().zip(edges) {
            process
                .graphs
                .graph_mut(id)
                .edges
                .insert((*before, node), edge);
        }
        crate::graph_memory::added(&mut process, node);
        slot.set(node_handle(node));
        Ok(())
    }
}

/// The context that parameters name, or the current one.
fn context_of(process: &Process, context: CUcontext) -> Result<ContextId, CUresult> {
    process.context_or_current(context)
}

/// Shows a node's payload to `read`, which says whether it is of the kind that the caller means.
fn with(node: CUgraphNode, read: impl FnOnce(&Process, &Payload) -> Answer) -> Answer {
    if node.is_null() {
        return Err(INVALID);
    }
    let process = driver::get()?.lock();
    let id = process.graphs.node_id(node)?;
    read(&process, &process.graphs.node(id).payload)
}

/// Gives a node of a graph another payload of the same kind.
fn change(
    node: CUgraphNode,
    make: impl FnOnce(&mut Process, &Driver, &Payload) -> Result<Payload, CUresult>,
) -> Answer {
    if node.is_null() {
        return Err(INVALID);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.graphs.node_id(node)?;
    let old = process.graphs.node(id).payload.clone();
    let new = make(&mut process, driver, &old)?;
    if new.kind() != old.kind() {
        return Err(INVALID);
    }
    process.graphs.node_mut(id).payload = new;
    Ok(())
}

/// Gives a node of an executable graph another payload of the same kind.
fn change_exec(
    exec: CUgraphExec,
    node: CUgraphNode,
    make: impl FnOnce(&mut Process, &Driver) -> Result<Payload, CUresult>,
) -> Answer {
    if exec.is_null() || node.is_null() {
        return Err(INVALID);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.graphs.exec_id(exec)?;
    let new = make(&mut process, driver)?;
    exec::replace(&mut process, exec, node, new)
}

pub fn add_empty(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
) -> Answer {
    Place::plain(node, graph, after, count).add(|_, _, _, _| Ok(Payload::Empty))
}

// Kernels

fn from_v1(old: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: old.func,
        gridDimX: old.gridDimX,
        gridDimY: old.gridDimY,
        gridDimZ: old.gridDimZ,
        blockDimX: old.blockDimX,
        blockDimY: old.blockDimY,
        blockDimZ: old.blockDimZ,
        sharedMemBytes: old.sharedMemBytes,
        kernelParams: old.kernelParams,
        extra: old.extra,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

fn kernel(
    process: &mut Process,
    driver: &Driver,
    mut params: CUDA_KERNEL_NODE_PARAMS,
) -> Result<Payload, CUresult> {
    let context = context_of(process, params.ctx)?;
    params.ctx = crate::context::handle_of(context);
    let cost = launch::of_node(process, driver, &params)?;
    Ok(Payload::Kernel(KernelNode::new(
        Kept(params),
        cost,
        context,
    )))
}

pub fn add_kernel(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    die_without_context();
    Place::plain(node, graph, after, count)
        .add(|process, driver, _, _| kernel(process, driver, params))
}

pub fn add_kernel_v1(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    die_without_context();
    let params = from_v1(params.required()?);
    Place::plain(node, graph, after, count)
        .add(|process, driver, _, _| kernel(process, driver, params))
}

/// Adding a kernel's node the driver follows the current context without looking (H200, 580.159.04).
fn die_without_context() {
    if driver::refuse_without_context() == Err(CUresult::ERROR_INVALID_CONTEXT) {
        crash();
    }
}

fn kernel_of(payload: &Payload) -> Result<&KernelNode, CUresult> {
    match payload {
        Payload::Kernel(kernel) => Ok(kernel),
        _ => Err(INVALID),
    }
}

pub fn get_kernel(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    with(node, |_, payload| {
        params.set(kernel_of(payload)?.params.0);
        Ok(())
    })
}

pub fn get_kernel_v1(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    let params = params.required()?;
    with(node, |_, payload| {
        let new = kernel_of(payload)?.params.0;
        params.set(CUDA_KERNEL_NODE_PARAMS_v1 {
            func: new.func,
            gridDimX: new.gridDimX,
            gridDimY: new.gridDimY,
            gridDimZ: new.gridDimZ,
            blockDimX: new.blockDimX,
            blockDimY: new.blockDimY,
            blockDimZ: new.blockDimZ,
            sharedMemBytes: new.sharedMemBytes,
            kernelParams: new.kernelParams,
            extra: new.extra,
        });
        Ok(())
    })
}

pub fn set_kernel(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    change(node, |process, driver, _| kernel(process, driver, params))
}

pub fn set_kernel_v1(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    let params = from_v1(params.required()?);
    change(node, |process, driver, _| kernel(process, driver, params))
}

pub fn set_exec_kernel(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    change_exec(exec, node, |process, driver| {
        kernel(process, driver, params)
    })
}

pub fn set_exec_kernel_v1(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    let params = from_v1(params.required()?);
    change_exec(exec, node, |process, driver| {
        kernel(process, driver, params)
    })
}

/// CU_LAUNCH_ATTRIBUTE_… that a kernel node has.
const KERNEL_ATTRIBUTES: &[CUlaunchAttributeID] = &[1, 2, 4, 8, 9, 10, 11, 13, 14];

pub fn get_kernel_attribute(
    node: CUgraphNode,
    attr: CUlaunchAttributeID,
    value: Out<CUkernelNodeAttrValue_v1>,
) -> Answer {
    let value = value.required()?;
    with(node, |_, payload| {
        let kernel = kernel_of(payload)?;
        if !KERNEL_ATTRIBUTES.contains(&attr) {
            return Err(INVALID);
        }
        let kept = kernel.attributes.get(&attr).map(|kept| kept.0);
        value.set(kept.unwrap_or_else(CUkernelNodeAttrValue_v1::zeroed));
        Ok(())
    })
}

pub fn set_kernel_attribute(
    node: CUgraphNode,
    attr: CUlaunchAttributeID,
    value: In<CUkernelNodeAttrValue_v1>,
) -> Answer {
    let value = value.required()?;
    change(node, |_, _, old| {
        let mut kernel = kernel_of(old)?.clone();
        if !KERNEL_ATTRIBUTES.contains(&attr) {
            return Err(INVALID);
        }
        kernel.attributes.insert(attr, Kept(value));
        Ok(Payload::Kernel(kernel))
    })
}

pub fn copy_kernel_attributes(to: CUgraphNode, from: CUgraphNode) -> Answer {
    let mut attributes = Default::default();
    with(from, |_, payload| {
        attributes = kernel_of(payload)?.attributes.clone();
        Ok(())
    })?;
    change(to, |_, _, old| {
        let mut kernel = kernel_of(old)?.clone();
        kernel.attributes = attributes;
        Ok(Payload::Kernel(kernel))
    })
}

// Copies and memsets

fn copy(
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

fn fill(
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

// Host functions

fn host(params: CUDA_HOST_NODE_PARAMS) -> Result<Payload, CUresult> {
    match params.fn_ {
        None => Err(INVALID),
        function => Ok(Payload::Host(ClientCall::Function(Kept((
            function,
            params.userData,
        ))))),
    }
}

pub fn add_host(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    Place::plain(node, graph, after, count).add(|_, _, _, _| host(params))
}

pub fn get_host(node: CUgraphNode, out: Out<CUDA_HOST_NODE_PARAMS>) -> Answer {
    let out = out.required()?;
    with(node, |_, payload| match payload {
        Payload::Host(ClientCall::Function(Kept((function, data)))) => {
            out.set(CUDA_HOST_NODE_PARAMS {
                fn_: *function,
                userData: *data,
            });
            Ok(())
        }
        _ => Err(INVALID),
    })
}

pub fn set_host(node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    change(node, |_, _, _| host(params))
}

pub fn set_exec_host(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    change_exec(exec, node, |_, _| host(params))
}

// Graphs in graphs

fn child(process: &mut Process, graph: CUgraph) -> Result<Payload, CUresult> {
    let child = process.graphs.graph_id(graph)?;
    crate::graph_memory::forbid_copies(process, child)?;
    let copy = process.graphs.clone_graph(child);
    process.graphs.graph_mut(copy).embedded = true;
    Ok(Payload::Child(copy))
}

pub fn add_child(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    of: CUgraph,
) -> Answer {
    // The driver follows a graph into itself until it dies.
    if !of.is_null() && of == graph {
        crate::boundary::crash();
    }
    Place::plain(node, graph, after, count).add(|process, _, _, _| child(process, of))
}

pub fn get_child(node: CUgraphNode, graph: Out<CUgraph>) -> Answer {
    let graph = graph.required()?;
    with(node, |_, payload| match payload {
        Payload::Child(child) => {
            graph.set(graph::handle_of(*child));
            Ok(())
        }
        _ => Err(INVALID),
    })
}

pub fn set_exec_child(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph) -> Answer {
    if graph.is_null() {
        return Err(INVALID);
    }
    change_exec(exec, node, |process, _| {
        process.graphs.graph_id(graph).map(Payload::Child)
    })
}

// Events

fn event_of(process: &Process, event: CUevent) -> Result<u32, CUresult> {
    process.event_id(event)
}

fn not_null(event: CUevent) -> Answer {
    match event.is_null() {
        true => Err(INVALID),
        false => Ok(()),
    }
}

macro_rules! event_nodes {
    ($variant:ident $add:ident $get:ident $set:ident $set_exec:ident) => {
        pub fn $add(
            node: Out<CUgraphNode>,
            graph: CUgraph,
            after: In<CUgraphNode>,
            count: usize,
            event: CUevent,
        ) -> Answer {
            not_null(event)?;
            Place::plain(node, graph, after, count)
                .add(|process, _, _, _| event_of(process, event).map(Payload::$variant))
        }

        pub fn $get(node: CUgraphNode, event: Out<CUevent>) -> Answer {
            let event = event.required()?;
            with(node, |_, payload| match payload {
                Payload::$variant(id) => {
                    event.set(event::handle_of(*id));
                    Ok(())
                }
                _ => Err(INVALID),
            })
        }

        pub fn $set(node: CUgraphNode, event: CUevent) -> Answer {
            not_null(event)?;
            change(node, |process, _, _| {
                event_of(process, event).map(Payload::$variant)
            })
        }

        pub fn $set_exec(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
            not_null(event)?;
            change_exec(exec, node, |process, _| {
                event_of(process, event).map(Payload::$variant)
            })
        }
    };
}
event_nodes! { EventRecord add_record get_record set_record set_exec_record }
event_nodes! { EventWait add_wait get_wait set_wait set_exec_wait }

// Operations on memory values

fn mem_ops(
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

fn alloc_into(
    process: &mut Process,
    driver: &Driver,
    graph: graph::GraphId,
    after: &[NodeId],
    params: &CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Payload, CUresult> {
    const PINNED: c_int = 1;
    const ON_DEVICE: c_int = 1;
    if params.poolProps.allocType != PINNED
        || params.poolProps.location.type_ != ON_DEVICE
        || params.bytesize == 0
    {
        return Err(INVALID);
    }
    if params.poolProps.handleTypes != 0 {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let device = driver
        .ordinal(params.poolProps.location.id)
        .map_err(|_| INVALID)?;
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

// Nodes of any kind by one structure

/// The parameters of a node whose kind a number says.
pub enum General {
    Kernel(CUDA_KERNEL_NODE_PARAMS),
    Copy(CUDA_MEMCPY3D, CUcontext),
    Fill(CUDA_MEMSET_NODE_PARAMS, CUcontext),
    Host(CUDA_HOST_NODE_PARAMS),
    Child(CUgraph),
    Empty,
    Wait(CUevent),
    Record(CUevent),
    Alloc(CUDA_MEM_ALLOC_NODE_PARAMS),
    Free(CUdeviceptr),
    MemOps(CUDA_BATCH_MEM_OP_NODE_PARAMS),
    /// External semaphores and conditions: nothing here can signal them.
    Unsupported,
}

fn general(process: &mut Process, driver: &Driver, params: General) -> Result<Payload, CUresult> {
    match params {
        General::Kernel(params) => kernel(process, driver, params),
        General::Copy(params, context) => copy(process, params, context),
        General::Fill(params, context) => fill(process, params, context),
        General::Host(params) => host(params),
        General::Child(graph) => child(process, graph),
        General::Empty => Ok(Payload::Empty),
        General::Wait(event) => event_of(process, event).map(Payload::EventWait),
        General::Record(event) => event_of(process, event).map(Payload::EventRecord),
        General::MemOps(params) => mem_ops(process, params),
        General::Free(address) => {
            crate::graph_memory::may_free(process, address)?;
            Ok(Payload::Free(address))
        }
        General::Alloc(_) => Err(INVALID),
        General::Unsupported => Err(CUresult::ERROR_NOT_SUPPORTED),
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
    let place = Place {
        node,
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
        other => general(process, driver, other),
    })
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

/// A graph as a drawing for Graphviz.
pub fn print_dot(graph: CUgraph, path: In<c_char>, _flags: c_uint) -> Answer {
    let path = path.text().ok_or(INVALID)?;
    if graph.is_null() {
        return Err(INVALID);
    }
    let process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    let mut text = String::from(
        "digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\" graph[style=\"dashed\"];\n",
    );
    let graph = process.graphs.graph(id);
    let number = |node: &NodeId| {
        graph
            .nodes
            .iter()
            .position(|other| other == node)
            .unwrap_or(0)
    };
    for node in &graph.nodes {
        let kind = name_of(&process.graphs.node(*node).payload);
        let at = number(node);
        text += &format!("\"graph_1_node_{at}\"[shape=\"rectangle\" label=\"{at}\n{kind}\n\"];\n");
    }
    for (from, to) in graph.edges.keys() {
        text += &format!(
            "\"graph_1_node_{}\" -> \"graph_1_node_{}\";\n",
            number(from),
            number(to)
        );
    }
    text += "}\n}\n";
    let path = path.to_str().map_err(|_| INVALID)?;
    std::fs::write(path, text).map_err(|_| CUresult::ERROR_OPERATING_SYSTEM)
}

fn name_of(payload: &Payload) -> &'static str {
    match payload {
        Payload::Kernel(_) => "KERNEL",
        Payload::Copy { .. } => "MEMCPY",
        Payload::Fill { .. } => "MEMSET",
        Payload::Host(_) => "HOST",
        Payload::Child(_) => "GRAPH",
        Payload::Empty => "EMPTY",
        Payload::EventWait(_) => "EVENT_WAIT",
        Payload::EventRecord(_) => "EVENT_RECORD",
        Payload::Alloc(_) => "MEM_ALLOC",
        Payload::Free(_) => "MEM_FREE",
        Payload::MemOps { .. } => "BATCH_MEM_OP",
    }
}
