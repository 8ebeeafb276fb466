//! What graphs' nodes do: adding them, reading and changing their parameters, in graphs and in executable graphs.

mod copy;
mod drawing;
mod general;
mod kernel;
mod memory;
mod record;

pub use self::copy::*;
pub use self::drawing::*;
pub use self::general::*;
pub use self::kernel::*;
pub use self::memory::*;
pub use self::record::*;

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, ClientCall, Host, In, Kept, Out, crash};
use crate::conditional;
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
    conditional::forbid_copies(process.graphs.graph(child))?;
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
