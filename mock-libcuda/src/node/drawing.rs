//! Graphs as drawings for Graphviz.

use super::*;

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
        Payload::Conditional(_) => "CONDITIONAL",
        Payload::Empty => "EMPTY",
        Payload::EventWait(_) => "EVENT_WAIT",
        Payload::EventRecord(_) => "EVENT_RECORD",
        Payload::Alloc(_) => "MEM_ALLOC",
        Payload::Free(_) => "MEM_FREE",
        Payload::MemOps { .. } => "BATCH_MEM_OP",
    }
}
