//! Graphs: nodes and the edges between them. What nodes do is in [`crate::node`], running them in [`crate::exec`].

mod list;

pub use self::list::*;

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, ClientCall, In, Kept, Out};
use crate::conditional::{self, Condition, Conditional};
use crate::driver;
use crate::exec::Exec;
use crate::handle;
use crate::launch::KernelCost;
use crate::memop::MemOp;
use crate::process::{ContextId, Process};
use crate::stream::Work;
use crate::timeline::Act;
use crate::user_object::UserObject;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// What is said of an edge: from_port, to_port, type.
pub type Edge = [u8; 3];

#[derive(Clone)]
pub struct KernelNode {
    pub params: Kept<CUDA_KERNEL_NODE_PARAMS>,
    pub cost: KernelCost,
    pub context: ContextId,
    pub attributes: BTreeMap<CUlaunchAttributeID, Kept<CUkernelNodeAttrValue_v1>>,
}

impl KernelNode {
    pub fn new(
        params: Kept<CUDA_KERNEL_NODE_PARAMS>,
        cost: KernelCost,
        context: ContextId,
    ) -> KernelNode {
        KernelNode {
            params,
            cost,
            context,
            attributes: BTreeMap::new(),
        }
    }
}

/// What a node does.
#[derive(Clone)]
pub enum Payload {
    Kernel(KernelNode),
    Copy {
        params: Kept<CUDA_MEMCPY3D>,
        context: ContextId,
        work: Work,
        act: Act,
    },
    Fill {
        params: Kept<CUDA_MEMSET_NODE_PARAMS>,
        context: ContextId,
        work: Work,
        act: Act,
    },
    Host(ClientCall),
    Child(GraphId),
    Conditional(Conditional),
    Empty,
    EventWait(u32),
    EventRecord(u32),
    Alloc(crate::graph_memory::Allocation),
    Free(u64),
    MemOps {
        context: ContextId,
        ops: Vec<MemOp>,
    },
}

impl Payload {
    /// The graphs that a node holds.
    fn inner(&self) -> Vec<GraphId> {
        match self {
            Payload::Child(child) => vec![*child],
            Payload::Conditional(conditional) => conditional.bodies.clone(),
            _ => Vec::new(),
        }
    }

    /// CUgraphNodeType.
    pub fn kind(&self) -> CUgraphNodeType {
        match self {
            Payload::Kernel(_) => 0,
            Payload::Copy { .. } => 1,
            Payload::Fill { .. } => 2,
            Payload::Host(_) => 3,
            Payload::Child(_) => 4,
            Payload::Empty => 5,
            Payload::EventWait(_) => 6,
            Payload::EventRecord(_) => 7,
            Payload::Alloc(_) => 10,
            Payload::Free(_) => 11,
            Payload::MemOps { .. } => 12,
            Payload::Conditional(_) => 13,
        }
    }
}

pub struct Node {
    pub graph: GraphId,
    pub payload: Payload,
    /// The node that this one was cloned from.
    pub original: Option<NodeId>,
}

/// Whether a capture fills a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filling {
    #[default]
    No,
    Yes,
    /// And the graph that it lay in was destroyed meanwhile, which an H200 allows: it goes with the capture.
    Orphaned,
}

#[derive(Default)]
pub struct Graph {
    /// In the order in which they were added.
    pub nodes: Vec<NodeId>,
    pub edges: BTreeMap<(NodeId, NodeId), Edge>,
    /// It is the child or a body of a node of another graph.
    pub embedded: bool,
    pub filling: Filling,
    /// The graph whose conditional node it is a body of.
    pub body_of: Option<GraphId>,
    /// What its handles stand for, by their number less one.
    pub conditions: Vec<Condition>,
    pub cloned_from: Option<GraphId>,
    /// References to user objects.
    pub objects: BTreeMap<u32, u32>,
}

#[derive(Default)]
pub struct Graphs {
    graphs: BTreeMap<GraphId, Graph>,
    nodes: BTreeMap<NodeId, Node>,
    pub execs: BTreeMap<u32, Exec>,
    pub objects: BTreeMap<u32, UserObject>,
    pub memory: crate::graph_memory::GraphMemory,
    next: u32,
}

pub fn handle_of(graph: GraphId) -> CUgraph {
    CUgraph(handle::encode(handle::Kind::Graph, graph.0) as *mut c_void)
}

pub fn node_handle(node: NodeId) -> CUgraphNode {
    CUgraphNode(handle::encode(handle::Kind::GraphNode, node.0) as *mut c_void)
}

/// The driver follows what it is given; a number that never was a handle ends the process.
pub fn followed(handle: u64) -> Option<u32> {
    if handle != 0 {
        crate::boundary::crash();
    }
    None
}

/// What is said of `count` edges; all plain where nothing is.
pub fn edges_of(edges: &In<CUgraphEdgeData>, count: usize) -> Result<Vec<Edge>, CUresult> {
    const PROGRAMMATIC: u8 = 1;
    let read = |at| match edges.nth(at) {
        None => Ok([0; 3]),
        Some(edge) if edge.type_ > PROGRAMMATIC || edge.reserved != [0; 5] => {
            Err(CUresult::ERROR_INVALID_VALUE)
        }
        Some(edge) => Ok([edge.from_port, edge.to_port, edge.type_]),
    };
    (0..count).map(read).collect()
}

pub fn edge_data(edge: Edge) -> CUgraphEdgeData {
    CUgraphEdgeData {
        from_port: edge[0],
        to_port: edge[1],
        type_: edge[2],
        reserved: [0; 5],
    }
}

impl Graphs {
    pub fn next(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub fn create(&mut self) -> GraphId {
        let id = GraphId(self.next());
        self.graphs.insert(id, Graph::default());
        id
    }

    pub fn graph(&self, id: GraphId) -> &Graph {
        &self.graphs[&id]
    }

    pub fn graph_mut(&mut self, id: GraphId) -> &mut Graph {
        self.graphs.get_mut(&id).expect("an id that graph_id gave")
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("an id that node_id gave")
    }

    pub fn graph_id(&self, graph: CUgraph) -> Result<GraphId, CUresult> {
        handle::decode(handle::Kind::Graph, graph.0 as u64)
            .or_else(|| followed(graph.0 as u64))
            .map(GraphId)
            .filter(|id| self.graphs.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_VALUE)
    }

    pub fn node_id(&self, node: CUgraphNode) -> Result<NodeId, CUresult> {
        handle::decode(handle::Kind::GraphNode, node.0 as u64)
            .or_else(|| followed(node.0 as u64))
            .map(NodeId)
            .filter(|id| self.nodes.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_VALUE)
    }

    /// `count` nodes, all of one graph and each once.
    pub fn nodes_of(
        &self,
        graph: GraphId,
        nodes: &In<CUgraphNode>,
        count: usize,
    ) -> Result<Vec<NodeId>, CUresult> {
        let mut found = Vec::new();
        for at in 0..count {
            let node = nodes.nth(at).ok_or(CUresult::ERROR_INVALID_VALUE)?;
            let node = self.node_id(node)?;
            if self.node(node).graph != graph || found.contains(&node) {
                return Err(CUresult::ERROR_INVALID_VALUE);
            }
            found.push(node);
        }
        Ok(found)
    }

    pub fn add(&mut self, graph: GraphId, payload: Payload, after: &[NodeId]) -> NodeId {
        let id = NodeId(self.next());
        let node = Node {
            graph,
            payload,
            original: None,
        };
        self.nodes.insert(id, node);
        let graph = self.graph_mut(graph);
        graph.nodes.push(id);
        for before in after {
            graph.edges.insert((*before, id), [0; 3]);
        }
        id
    }

    pub fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes.remove(&id) else {
            return;
        };
        if let Some(graph) = self.graphs.get_mut(&node.graph) {
            graph.nodes.retain(|other| *other != id);
            graph.edges.retain(|(from, to), _| *from != id && *to != id);
        }
        self.discard_inner(node.payload);
    }

    fn discard_inner(&mut self, payload: Payload) {
        for graph in payload.inner() {
            self.discard(graph);
        }
    }

    pub fn is_filled(&self, id: GraphId) -> bool {
        self.graph(id).filling != Filling::No
    }

    /// The capture that filled a graph has ended. Refused, it takes the graph along, whoever made it; that of a node stays in its
    /// node (no card was asked). The references to user objects that went are the caller's to drop.
    pub fn filled(&mut self, id: GraphId, whole: bool) -> BTreeMap<u32, u32> {
        let graph = self.graph_mut(id);
        let was = std::mem::take(&mut graph.filling);
        if was == Filling::Orphaned || !whole && !graph.embedded {
            return self.discard(id);
        }
        BTreeMap::new()
    }

    pub fn has_graph(&self, id: GraphId) -> bool {
        self.graphs.contains_key(&id)
    }

    pub fn has_node(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// A graph with its nodes and the graphs in them, but for those that captures fill. References to user objects are the caller's
    /// to drop.
    pub fn discard(&mut self, id: GraphId) -> BTreeMap<u32, u32> {
        if let Some(graph) = self.graphs.get_mut(&id)
            && graph.filling != Filling::No
        {
            graph.filling = Filling::Orphaned;
            return BTreeMap::new();
        }
        let Some(graph) = self.graphs.remove(&id) else {
            return BTreeMap::new();
        };
        for node in graph.nodes {
            if let Some(node) = self.nodes.remove(&node) {
                self.discard_inner(node.payload);
            }
        }
        graph.objects
    }

    pub fn before(&self, node: NodeId) -> Vec<(NodeId, Edge)> {
        let edges = &self.graph(self.node(node).graph).edges;
        let into = edges.iter().filter(|((_, to), _)| *to == node);
        into.map(|((from, _), edge)| (*from, *edge)).collect()
    }

    pub fn after(&self, node: NodeId) -> Vec<(NodeId, Edge)> {
        let edges = &self.graph(self.node(node).graph).edges;
        let out = edges.range((node, NodeId(0))..=(node, NodeId(u32::MAX)));
        out.map(|((_, to), edge)| (*to, *edge)).collect()
    }

    /// These nodes and all that they depend on.
    pub fn ancestors(&self, graph: GraphId, nodes: &[NodeId]) -> BTreeSet<NodeId> {
        let mut found = BTreeSet::new();
        let mut open = nodes.to_vec();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                let edges = self.graph(graph).edges.keys();
                open.extend(edges.filter(|(_, to)| *to == node).map(|(from, _)| *from));
            }
        }
        found
    }

    /// The nodes so that each stands behind those it depends on; `None` if there is a cycle.
    pub fn sorted(&self, id: GraphId) -> Option<Vec<NodeId>> {
        let graph = self.graph(id);
        let mut missing: BTreeMap<NodeId, usize> =
            graph.nodes.iter().map(|node| (*node, 0)).collect();
        for (_, to) in graph.edges.keys() {
            *missing.entry(*to).or_default() += 1;
        }
        let ready = |missing: &BTreeMap<NodeId, usize>, node: &NodeId| missing[node] == 0;
        let mut order: Vec<NodeId> = Vec::new();
        order.extend(graph.nodes.iter().filter(|node| ready(&missing, node)));
        let mut at = 0;
        while at < order.len() {
            let node = order[at];
            at += 1;
            for ((_, to), _) in graph
                .edges
                .range((node, NodeId(0))..=(node, NodeId(u32::MAX)))
            {
                let left = missing.get_mut(to)?;
                *left -= 1;
                if *left == 0 {
                    order.push(*to);
                }
            }
        }
        (order.len() == graph.nodes.len()).then_some(order)
    }

    /// A copy of a graph, and of the graphs in it.
    pub fn clone_graph(&mut self, id: GraphId) -> GraphId {
        let copy = self.create();
        let (nodes, edges) = (self.graph(id).nodes.clone(), self.graph(id).edges.clone());
        let mut twins = BTreeMap::new();
        for node in nodes {
            let payload = match self.node(node).payload.clone() {
                Payload::Child(child) => {
                    let child = self.clone_graph(child);
                    self.graph_mut(child).embedded = true;
                    Payload::Child(child)
                }
                other => other,
            };
            let twin = self.add(copy, payload, &[]);
            self.node_mut(twin).original = Some(node);
            twins.insert(node, twin);
        }
        let graph = self.graph_mut(copy);
        graph.cloned_from = Some(id);
        graph.edges = edges
            .into_iter()
            .map(|((from, to), edge)| ((twins[&from], twins[&to]), edge))
            .collect();
        copy
    }
}

pub fn create(graph: Out<CUgraph>, flags: c_uint) -> Answer {
    let graph = graph.required()?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    graph.set(handle_of(process.graphs.create()));
    Ok(())
}

pub fn destroy(graph: CUgraph) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.graphs.graph_id(graph)?;
    if process.graphs.graph(id).embedded {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    // Of the graphs in it none is asked (fixtures/oracle/captures-580.txt).
    if process.graphs.is_filled(id) {
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    }
    let objects = process.graphs.discard(id);
    process.drop_objects(driver, objects);
    Ok(())
}

pub fn clone(copy: Out<CUgraph>, graph: CUgraph) -> Answer {
    let copy = copy.required()?;
    let mut process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    crate::graph_memory::forbid_copies(&process, id)?;
    conditional::forbid_copies(process.graphs.graph(id))?;
    copy.set(handle_of(process.graphs.clone_graph(id)));
    Ok(())
}

pub fn find_in_clone(node: Out<CUgraphNode>, original: CUgraphNode, copy: CUgraph) -> Answer {
    let node = node.required()?;
    let process = driver::get()?.lock();
    let original = process.graphs.node_id(original)?;
    let copy = process.graphs.graph_id(copy)?;
    let nodes = &process.graphs.graph(copy).nodes;
    let twin = nodes
        .iter()
        .find(|twin| process.graphs.node(**twin).original == Some(original));
    node.set(twin.map_or(CUgraphNode::NULL, |twin| node_handle(*twin)));
    twin.map(|_| ()).ok_or(CUresult::ERROR_INVALID_VALUE)
}

pub fn destroy_node(node: CUgraphNode) -> Answer {
    let mut process = driver::get()?.lock();
    let id = process.graphs.node_id(node)?;
    crate::graph_memory::forbid_removal(&process, id)?;
    // "All operations other than destroy and node removal are permitted on the graph while the capture sequence is in progress"
    // (cuStreamGetCaptureInfo): the code is destroy's, no card was asked.
    if process.graphs.is_filled(process.graphs.node(id).graph) {
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    }
    process.graphs.remove(id);
    Ok(())
}

pub fn node_type(node: CUgraphNode, kind: Out<CUgraphNodeType>) -> Answer {
    let kind = kind.required()?;
    let process = driver::get()?.lock();
    let node = process.graphs.node_id(node)?;
    kind.set(process.graphs.node(node).payload.kind());
    Ok(())
}
