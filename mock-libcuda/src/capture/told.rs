//! What a client is told of captures, and how it changes what the next call depends on.

use super::*;

pub fn is_capturing(stream: CUstream, status: Out<CUstreamCaptureStatus>) -> Answer {
    let status = status.required()?;
    let mut process = driver::get()?.lock();
    let line = process.line_of(stream)?;
    if Process::is_legacy(stream) {
        implicit_is(&process, line)?;
    }
    status.set(status_of(process.captures.of(line)));
    Ok(())
}

/// Asking the legacy stream about captures is refused while a stream that it waits for captures; it breaks nothing.
fn implicit_is(process: &Process, legacy: LineId) -> Answer {
    let blocking = process.timeline.blocking_with(legacy);
    match blocking
        .iter()
        .any(|line| process.captures.of(*line).is_some())
    {
        true => Err(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT),
        false => Ok(()),
    }
}

fn status_of(capture: Option<&Capture>) -> CUstreamCaptureStatus {
    match capture {
        None => 0,
        Some(capture) if capture.invalidated => 2,
        Some(_) => 1,
    }
}

pub fn info_v1(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<cuuint64_t>,
) -> Answer {
    tell(stream, status, id, None, None, None, None)
}

pub fn info_v2(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<cuuint64_t>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    let (graph, dependencies, count) = (Some(graph), Some(dependencies), Some(count));
    tell(stream, status, id, graph, dependencies, None, count)
}

pub fn info_v3(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<cuuint64_t>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    let (graph, dependencies, count) = (Some(graph), Some(dependencies), Some(count));
    tell(stream, status, id, graph, dependencies, Some(edges), count)
}

fn tell(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<cuuint64_t>,
    graph: Option<Out<CUgraph>>,
    dependencies: Option<Out<*const CUgraphNode>>,
    edges: Option<Out<*const CUgraphEdgeData>>,
    count: Option<Out<usize>>,
) -> Answer {
    let status = status.required()?;
    let mut process = driver::get()?.lock();
    let line = process.line_of(stream)?;
    if Process::is_legacy(stream) {
        implicit_is(&process, line)?;
    }
    let Some(capture) = process.captures.of(line) else {
        status.set(0);
        return Ok(());
    };
    status.set(status_of(Some(capture)));
    if capture.invalidated {
        return Ok(());
    }
    let number = process.captures.of_line[&line].0;
    let (of, nodes) = (
        capture.graph,
        capture.lines.get(&line).cloned().unwrap_or_default(),
    );
    let nodes: Vec<CUgraphNode> = nodes.into_iter().map(graph::node_handle).collect();
    let plain = vec![CUgraphEdgeData::zeroed(); nodes.len()];
    let len = nodes.len();
    process.captures.told.insert(line, (Kept(nodes), plain));
    let (nodes, plain) = &process.captures.told[&line];
    if let Some(out) = id.optional() {
        out.set(number.into());
    }
    if let Some(out) = graph.and_then(Out::optional) {
        out.set(graph::handle_of(of));
    }
    // Edges belong to dependencies: one without the other is refused here, behind what was told already.
    let without_nodes = dependencies.as_ref().is_some_and(Out::is_null);
    if without_nodes && edges.as_ref().is_some_and(|edges| !edges.is_null()) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if let Some(out) = dependencies.and_then(Out::optional) {
        out.set(if len == 0 {
            std::ptr::null()
        } else {
            nodes.0.as_ptr()
        });
    }
    if let Some(out) = edges.and_then(Out::optional) {
        out.set(if len == 0 {
            std::ptr::null()
        } else {
            plain.as_ptr()
        });
    }
    if let Some(out) = count.and_then(Out::optional) {
        out.set(len);
    }
    Ok(())
}

pub fn update_dependencies(
    stream: CUstream,
    dependencies: Out<CUgraphNode>,
    count: usize,
    flags: c_uint,
) -> Answer {
    update(stream, dependencies, None, count, flags)
}

pub fn update_dependencies_v2(
    stream: CUstream,
    dependencies: Out<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    flags: c_uint,
) -> Answer {
    update(stream, dependencies, Some(edges), count, flags)
}

fn update(
    stream: CUstream,
    dependencies: Out<CUgraphNode>,
    edges: Option<In<CUgraphEdgeData>>,
    count: usize,
    flags: c_uint,
) -> Answer {
    const SET: u32 = 1;
    let mut process = driver::get()?.lock();
    let line = process.line_of(stream)?;
    let Some(capture) = process.captures.of(line) else {
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    };
    if capture.invalidated {
        return Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if flags > SET {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let nodes = process
        .graphs
        .nodes_of(capture.graph, &dependencies.as_in(), count)?;
    if let Some(edges) = edges {
        let _: Vec<Edge> = graph::edges_of(&edges, count)?;
    }
    if let Some(capture) = process.captures.of_mut(line) {
        let set = capture.lines.entry(line).or_default();
        if flags == SET {
            set.clear();
        }
        for node in nodes {
            if !set.contains(&node) {
                set.push(node);
            }
        }
    }
    Ok(())
}
