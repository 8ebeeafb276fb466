//! Lists of a graph's nodes and edges, and changes of its edges.

use super::*;

/// Gives a list as the driver gives one: its length without a place for it, as much as fits with one, NULL behind.
fn list<T>(
    all: &[T],
    count: Out<usize>,
    mut put: impl FnMut(usize, Option<&T>),
    asked: bool,
) -> Answer {
    let count = count.required()?;
    if !asked {
        count.set(all.len());
        return Ok(());
    }
    let room = count.get();
    for at in 0..room {
        put(at, all.get(at));
    }
    count.set(room.min(all.len()));
    Ok(())
}

pub(super) fn list_nodes(all: &[NodeId], nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let slot = nodes.optional();
    let asked = slot.is_some();
    let put = |at, node: Option<&NodeId>| {
        if let Some(slot) = &slot {
            slot.nth(at)
                .set(node.map_or(CUgraphNode::NULL, |node| node_handle(*node)));
        }
    };
    list(all, count, put, asked)
}

pub fn get_nodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    list_nodes(&process.graphs.graph(id).nodes, nodes, count)
}

pub fn get_root_nodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    let graph = process.graphs.graph(id);
    let inner: BTreeSet<NodeId> = graph.edges.keys().map(|(_, to)| *to).collect();
    let roots: Vec<NodeId> = graph
        .nodes
        .iter()
        .copied()
        .filter(|node| !inner.contains(node))
        .collect();
    list_nodes(&roots, nodes, count)
}

/// Both ends and what is said of each edge of a list.
pub(super) fn list_edges(
    all: &[((NodeId, NodeId), Edge)],
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Option<Out<CUgraphEdgeData>>,
    count: Out<usize>,
) -> Answer {
    if from.is_null() != to.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let (from, to) = (from.optional(), to.optional());
    let data = data.map(Out::optional);
    let lossy = data.is_none()
        || data
            .as_ref()
            .is_some_and(|data| data.is_none() && from.is_some());
    if lossy && all.iter().any(|(_, edge)| *edge != [0; 3]) {
        return Err(CUresult::ERROR_LOSSY_QUERY);
    }
    let data = data.flatten();
    let asked = from.is_some();
    let put = |at, edge: Option<&((NodeId, NodeId), Edge)>| {
        if let (Some(from), Some(to)) = (&from, &to) {
            from.nth(at)
                .set(edge.map_or(CUgraphNode::NULL, |edge| node_handle(edge.0.0)));
            to.nth(at)
                .set(edge.map_or(CUgraphNode::NULL, |edge| node_handle(edge.0.1)));
        }
        if let Some(data) = &data {
            data.nth(at)
                .set(edge_data(edge.map_or([0; 3], |edge| edge.1)));
        }
    };
    list(all, count, put, asked)
}

fn get_edges_as(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Option<Out<CUgraphEdgeData>>,
    count: Out<usize>,
) -> Answer {
    let process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    let edges = &process.graphs.graph(id).edges;
    let all: Vec<_> = edges.iter().map(|(ends, edge)| (*ends, *edge)).collect();
    list_edges(&all, from, to, data, count)
}

pub fn get_edges(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    get_edges_as(graph, from, to, None, count)
}

pub fn get_edges_v2(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    get_edges_as(graph, from, to, Some(data), count)
}

fn list_neighbours(
    all: &[(NodeId, Edge)],
    nodes: Out<CUgraphNode>,
    data: Option<Out<CUgraphEdgeData>>,
    count: Out<usize>,
) -> Answer {
    let nodes = nodes.optional();
    let data = data.and_then(Out::optional);
    if data.is_none() && nodes.is_some() && all.iter().any(|(_, edge)| *edge != [0; 3]) {
        return Err(CUresult::ERROR_LOSSY_QUERY);
    }
    let asked = nodes.is_some();
    let put = |at, found: Option<&(NodeId, Edge)>| {
        if let Some(nodes) = &nodes {
            nodes
                .nth(at)
                .set(found.map_or(CUgraphNode::NULL, |found| node_handle(found.0)));
        }
        if let Some(data) = &data {
            data.nth(at)
                .set(edge_data(found.map_or([0; 3], |found| found.1)));
        }
    };
    list(all, count, put, asked)
}

pub fn dependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let process = driver::get()?.lock();
    let node = process.graphs.node_id(node)?;
    list_neighbours(&process.graphs.before(node), nodes, None, count)
}

pub fn dependencies_v2(
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    let process = driver::get()?.lock();
    let node = process.graphs.node_id(node)?;
    list_neighbours(&process.graphs.before(node), nodes, Some(data), count)
}

pub fn dependents(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let process = driver::get()?.lock();
    let node = process.graphs.node_id(node)?;
    list_neighbours(&process.graphs.after(node), nodes, None, count)
}

pub fn dependents_v2(
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    let process = driver::get()?.lock();
    let node = process.graphs.node_id(node)?;
    list_neighbours(&process.graphs.after(node), nodes, Some(data), count)
}

/// Pairs of nodes of one graph.
fn pairs(
    process: &Process,
    graph: GraphId,
    from: &In<CUgraphNode>,
    to: &In<CUgraphNode>,
    count: usize,
) -> Result<Vec<(NodeId, NodeId)>, CUresult> {
    let node = |list: &In<CUgraphNode>, at| {
        let node = list.nth(at).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let node = process.graphs.node_id(node)?;
        if process.graphs.node(node).graph != graph {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        Ok(node)
    };
    (0..count)
        .map(|at| Ok((node(from, at)?, node(to, at)?)))
        .collect()
}

pub fn add_dependencies(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Answer {
    add_dependencies_v2(graph, from, to, In::null(), count)
}

pub fn add_dependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    if graph.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    let pairs = pairs(&process, id, &from, &to, count)?;
    let edges = edges_of(&data, count)?;
    let graph = process.graphs.graph_mut(id);
    if pairs
        .iter()
        .any(|pair| pair.0 == pair.1 || graph.edges.contains_key(pair))
    {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    graph.edges.extend(pairs.into_iter().zip(edges));
    Ok(())
}

pub fn remove_dependencies(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Answer {
    remove_dependencies_v2(graph, from, to, In::null(), count)
}

pub fn remove_dependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    if graph.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let id = process.graphs.graph_id(graph)?;
    let pairs = pairs(&process, id, &from, &to, count)?;
    edges_of(&data, count)?;
    let graph = process.graphs.graph_mut(id);
    if pairs.iter().any(|pair| !graph.edges.contains_key(pair)) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    for pair in pairs {
        graph.edges.remove(&pair);
    }
    Ok(())
}
