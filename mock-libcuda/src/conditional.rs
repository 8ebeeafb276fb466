//! Conditional nodes: graphs that run if, while, or where a value says so. The value is the handle's default, or 0: what
//! kernels would set it to is not known here, because they compute nothing. So a WHILE's body runs once at most.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, Kept, Out};
use crate::driver;
use crate::exec::{Body, Exec, ExecNode};
use crate::graph::{self, Graph, GraphId, NodeId, Payload};
use crate::process::{ContextId, Process};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// CU_GRAPH_COND_ASSIGN_DEFAULT
const ASSIGN_DEFAULT: u32 = 1;

/// What a handle stands for. Handles are numbers within a graph and its bodies: another graph's names one of these too.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    context: ContextId,
    value: u32,
    node: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    If,
    While,
    Switch,
}

impl Kind {
    fn of(number: CUgraphConditionalNodeType, size: u32) -> Result<Kind, CUresult> {
        match (number, size) {
            (0, 1..=2) => Ok(Kind::If),
            (1, 1) => Ok(Kind::While),
            (2, 1..) => Ok(Kind::Switch),
            _ => Err(INVALID),
        }
    }

    /// Which of `size` bodies runs.
    fn body(self, value: u32, size: usize) -> Option<usize> {
        let chosen = match (self, value) {
            (Kind::If, 0) => 1,
            (Kind::While, 0) => return None,
            (Kind::If | Kind::While, _) => 0,
            (Kind::Switch, value) => value as usize,
        };
        (chosen < size).then_some(chosen)
    }
}

#[derive(Clone)]
pub struct Conditional {
    kind: Kind,
    value: u32,
    pub bodies: Vec<GraphId>,
    /// What the client reads the bodies from, as long as the node is there.
    told: std::sync::Arc<Kept<Vec<CUgraph>>>,
}

impl Conditional {
    /// The body that a launch runs.
    pub fn chosen<'n>(&self, node: &'n ExecNode) -> Option<&'n Body> {
        node.bodies
            .get(self.kind.body(self.value, self.bodies.len())?)
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn array(&self) -> *mut CUgraph {
        self.told.0.as_ptr().cast_mut()
    }
}

pub fn create_handle(
    handle: Out<cuuint64_t>,
    graph: CUgraph,
    context: CUcontext,
    default: c_uint,
    flags: c_uint,
) -> Answer {
    let handle = handle.required()?;
    if graph.is_null() {
        return Err(INVALID);
    }
    let mut process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    if flags & !ASSIGN_DEFAULT != 0 {
        return Err(INVALID);
    }
    if context.is_null() {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    let context = process.context_of(context)?;
    let root = root_of(&process, id);
    let conditions = &mut process.graphs.graph_mut(root).conditions;
    conditions.push(Condition {
        context,
        value: if flags == ASSIGN_DEFAULT { default } else { 0 },
        node: None,
    });
    handle.set(conditions.len() as u64);
    Ok(())
}

/// The graph whose handles a graph's nodes use: of a body, its node's.
fn root_of(process: &Process, graph: GraphId) -> GraphId {
    let mut root = graph;
    while let Some(above) = process.graphs.graph(root).body_of {
        root = above;
    }
    root
}

/// Makes the node's bodies and takes its handle.
pub fn make(
    process: &mut Process,
    graph: GraphId,
    params: &CUDA_CONDITIONAL_NODE_PARAMS,
) -> Result<Conditional, CUresult> {
    let kind = Kind::of(params.type_, params.size)?;
    if params.ctx.is_null() {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    let root = root_of(process, graph);
    let at = (params.handle as usize).checked_sub(1).ok_or(INVALID)?;
    let condition = process.graphs.graph(root).conditions.get(at).copied();
    let condition = condition
        .filter(|known| known.node.is_none())
        .ok_or(INVALID)?;
    if process.context_of(params.ctx)? != condition.context {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    let bodies: Vec<GraphId> = (0..params.size)
        .map(|_| {
            let body = process.graphs.create();
            let made = process.graphs.graph_mut(body);
            made.embedded = true;
            made.body_of = Some(graph);
            body
        })
        .collect();
    let told = bodies.iter().map(|body| graph::handle_of(*body)).collect();
    Ok(Conditional {
        kind,
        value: condition.value,
        bodies,
        told: std::sync::Arc::new(Kept(told)),
    })
}

/// The node that was made with a handle is there.
pub fn added(process: &mut Process, node: NodeId, handle: u64) {
    let root = root_of(process, process.graphs.node(node).graph);
    let conditions = &mut process.graphs.graph_mut(root).conditions;
    if let Some(condition) = conditions.get_mut((handle as usize).wrapping_sub(1)) {
        condition.node = Some(node);
    }
}

/// A graph with handles cannot be cloned, nor be a child.
pub fn forbid_copies(graph: &Graph) -> Answer {
    match graph.conditions.is_empty() {
        true => Ok(()),
        false => Err(CUresult::ERROR_NOT_SUPPORTED),
    }
}

/// Whether every handle of a graph has a node that is still there.
pub fn all_used(process: &Process, graph: GraphId) -> bool {
    let conditions = &process.graphs.graph(graph).conditions;
    conditions.iter().all(|condition| {
        condition
            .node
            .is_some_and(|node| process.graphs.has_node(node))
    })
}

/// Whether bodies hold only what a device can launch, and no other executable of the graph has them.
pub fn may_run<'e>(
    graph: GraphId,
    body: &Body,
    mut execs: impl Iterator<Item = &'e Exec>,
) -> Answer {
    let mut conditional = false;
    for node in body {
        conditional |= !node.bodies.is_empty();
        node.bodies.iter().try_for_each(may_be_body)?;
    }
    match conditional && execs.any(|exec| exec.graph == graph) {
        true => Err(CUresult::ERROR_NOT_SUPPORTED),
        false => Ok(()),
    }
}

fn may_be_body(body: &Body) -> Answer {
    for node in body {
        match node.payload {
            Payload::Kernel(_)
            | Payload::Copy { .. }
            | Payload::Fill { .. }
            | Payload::Empty
            | Payload::Child(_)
            | Payload::Conditional(_) => {}
            _ => return Err(INVALID),
        }
        may_be_body(&node.child)?;
        node.bodies.iter().try_for_each(may_be_body)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_chooses_the_body() {
        let rows = [
            (Kind::If, 1, 1, Some(0)),
            (Kind::If, 0, 1, None),
            (Kind::If, 0, 2, Some(1)),
            (Kind::If, 7, 2, Some(0)),
            (Kind::While, 0, 1, None),
            (Kind::While, 3, 1, Some(0)),
            (Kind::Switch, 1, 3, Some(1)),
            (Kind::Switch, 9, 3, None),
        ];
        for (kind, value, size, body) in rows {
            assert_eq!(kind.body(value, size), body, "{kind:?} {value} of {size}");
        }
    }
}
