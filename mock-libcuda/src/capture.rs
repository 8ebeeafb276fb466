//! Captures: streams whose work becomes a graph instead of being done.

mod told;

pub use self::told::*;

use std::collections::{BTreeMap, HashMap};

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, ClientCall, In, Kept, Out};
use crate::driver;
use crate::graph::{self, Edge, Filling, GraphId, NodeId, Payload};
use crate::memop::MemOp;
use crate::process::{ContextId, Process};
use crate::stream::{Work, this_thread};
use crate::timeline::{Act, LineId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureId(pub u32);

/// What a captured call looks like as a node.
pub enum Shape {
    /// Bytes move, but nobody can ask how.
    Plain,
    Kernel(Kept<CUDA_KERNEL_NODE_PARAMS>),
    MemOps(Vec<MemOp>),
}

/// Which calls a capture forbids to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    pub fn of(mode: CUstreamCaptureMode) -> Result<Mode, CUresult> {
        match mode {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    }
}

/// The last record of an event was captured: where, and behind which nodes.
#[derive(Clone)]
pub struct CapturedEvent {
    capture: CaptureId,
    after: Vec<NodeId>,
}

struct Capture {
    origin: LineId,
    mode: Mode,
    thread: u64,
    graph: GraphId,
    invalidated: bool,
    /// The streams that take part, and the nodes that the next call on each depends on.
    lines: BTreeMap<LineId, Vec<NodeId>>,
}

#[derive(Default)]
pub struct Captures {
    of_line: HashMap<LineId, CaptureId>,
    all: BTreeMap<CaptureId, Capture>,
    next: u32,
    /// What a client was last told of a stream's dependencies: it may read them until the next call on the stream.
    pub told: HashMap<LineId, (Kept<Vec<CUgraphNode>>, Vec<CUgraphEdgeData>)>,
}

impl Captures {
    fn of(&self, line: LineId) -> Option<&Capture> {
        self.all.get(self.of_line.get(&line)?)
    }

    fn of_mut(&mut self, line: LineId) -> Option<&mut Capture> {
        self.all.get_mut(self.of_line.get(&line)?)
    }

    pub fn any(&self) -> bool {
        !self.all.is_empty()
    }

    fn invalidate(&mut self, line: LineId) {
        if let Some(capture) = self.of_mut(line) {
            capture.invalidated = true;
        }
    }

    /// Ends every capture that a forbidden call of the thread breaks; whether there was one.
    pub fn forbid(&mut self, thread: u64, mode: Mode) -> bool {
        let mut forbidden = false;
        for capture in self.all.values_mut() {
            let own = capture.thread == thread && capture.mode != Mode::Relaxed;
            let breaks = match mode {
                Mode::Relaxed => false,
                Mode::ThreadLocal => own,
                Mode::Global => own || capture.mode == Mode::Global,
            };
            if breaks {
                capture.invalidated = true;
                forbidden = true;
            }
        }
        forbidden
    }
}

/// A call on a stream was refused: if the stream captures, its capture is broken.
pub fn refused(process: &mut Process, stream: CUstream) {
    if process.captures.any()
        && let Ok(line) = process.line_of(stream)
    {
        process.captures.invalidate(line);
    }
}

/// Whether a call on a stream is captured; STREAM_CAPTURE_IMPLICIT where the legacy stream would wait for a stream that
/// captures.
pub fn takes(process: &mut Process, stream: CUstream, line: LineId) -> Result<bool, CUresult> {
    if !process.captures.any() {
        return Ok(false);
    }
    if let Some(capture) = process.captures.of(line) {
        return match capture.invalidated {
            true => Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED),
            false => Ok(true),
        };
    }
    if Process::is_legacy(stream) {
        implicit(process, line)?;
    }
    Ok(false)
}

fn implicit(process: &mut Process, legacy: LineId) -> Answer {
    let blocking: Vec<LineId> = process
        .timeline
        .blocking_with(legacy)
        .into_iter()
        .filter(|line| process.captures.of(*line).is_some())
        .collect();
    for line in &blocking {
        process.captures.invalidate(*line);
    }
    if blocking.is_empty() {
        Ok(())
    } else {
        Err(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT)
    }
}

/// Synchronising or asking a stream that captures breaks the capture.
pub fn forbids_waiting(process: &mut Process, stream: CUstream, line: LineId) -> Answer {
    if process.captures.of(line).is_some() {
        process.captures.invalidate(line);
        return Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    takes(process, stream, line).map(|_| ())
}

/// Synchronising a context breaks the captures of its streams.
pub fn forbids_context(process: &mut Process, context: ContextId) -> Answer {
    let mut answer = Ok(());
    for line in process.lines_of(context) {
        if let Some(capture) = process.captures.of_mut(line) {
            capture.invalidated = true;
            answer = Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    answer
}

/// Asking an event whose last record was captured is refused, and may break the capture.
pub fn forbids_asking(process: &mut Process, event: u32, breaks: bool) -> Answer {
    let captured = process
        .events
        .get(&event)
        .and_then(|event| event.captured.clone());
    let Some(captured) = captured else {
        return Ok(());
    };
    match process.captures.all.get_mut(&captured.capture) {
        Some(capture) => {
            capture.invalidated |= breaks;
            Err(CUresult::ERROR_CAPTURED_EVENT)
        }
        None => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

/// Adds a node behind all that the line depends on, and makes it the line's only dependency.
fn add(process: &mut Process, line: LineId, payload: Payload) -> Result<NodeId, CUresult> {
    let capture = process
        .captures
        .of(line)
        .ok_or(CUresult::ERROR_ILLEGAL_STATE)?;
    let (graph, after) = (
        capture.graph,
        capture.lines.get(&line).cloned().unwrap_or_default(),
    );
    let node = process.graphs.add(graph, payload, &after);
    if let Some(capture) = process.captures.of_mut(line) {
        capture.lines.insert(line, vec![node]);
    }
    Ok(node)
}

/// Captures work that [`crate::stream::enqueue`] was given.
pub fn add_work(
    process: &mut Process,
    line: LineId,
    context: ContextId,
    work: Work,
    shape: Shape,
    act: Act,
) -> Answer {
    let payload = match (shape, work) {
        (Shape::Kernel(params), Work::Kernel(cost)) => {
            Payload::Kernel(graph::KernelNode::new(params, cost, context))
        }
        (_, Work::Kernel(cost)) => Payload::Kernel(graph::KernelNode::new(
            Kept(CUDA_KERNEL_NODE_PARAMS::zeroed()),
            cost,
            context,
        )),
        (Shape::MemOps(ops), _) => Payload::MemOps { context, ops },
        (_, Work::Fill { .. }) => Payload::Fill {
            params: Kept(CUDA_MEMSET_NODE_PARAMS::zeroed()),
            context,
            work,
            act,
        },
        _ => Payload::Copy {
            params: Kept(CUDA_MEMCPY3D::zeroed()),
            context,
            work,
            act,
        },
    };
    add(process, line, payload).map(|_| ())
}

pub fn add_call(process: &mut Process, line: LineId, call: ClientCall) -> Answer {
    add(process, line, Payload::Host(call)).map(|_| ())
}

pub fn add_payload(
    process: &mut Process,
    line: LineId,
    payload: Payload,
) -> Result<NodeId, CUresult> {
    add(process, line, payload)
}

/// The nodes that the next call on a capturing line depends on, and the graph that it goes to.
pub fn position(process: &Process, line: LineId) -> Option<(GraphId, Vec<NodeId>)> {
    let capture = process.captures.of(line)?;
    Some((
        capture.graph,
        capture.lines.get(&line).cloned().unwrap_or_default(),
    ))
}

/// Whether the record of an event was captured.
pub fn event_recorded(
    process: &mut Process,
    stream: CUstream,
    line: LineId,
    event: u32,
    external: bool,
) -> Result<bool, CUresult> {
    if !takes(process, stream, line)? {
        return match external {
            true => Err(CUresult::ERROR_ILLEGAL_STATE),
            false => Ok(false),
        };
    }
    if external {
        add(process, line, Payload::EventRecord(event))?;
        return Ok(true);
    }
    if process.events[&event].shared().is_some() {
        // The capture goes on.
        return Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let capture = process.captures.of_line[&line];
    let after = process.captures.all[&capture].lines.get(&line).cloned();
    if let Some(event) = process.events.get_mut(&event) {
        event.captured = Some(CapturedEvent {
            capture,
            after: after.unwrap_or_default(),
        });
    }
    Ok(true)
}

/// Whether a stream's wait for an event was captured: it joins the capture in which the event was recorded.
pub fn event_waited(
    process: &mut Process,
    stream: CUstream,
    line: LineId,
    event: CUevent,
    external: bool,
) -> Result<bool, CUresult> {
    let id = process.event_id(event)?;
    let captured = process.events[&id].captured.clone();
    let taken = takes(process, stream, line)?;
    if external {
        if taken {
            add(process, line, Payload::EventWait(id))?;
            return Ok(true);
        }
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    }
    if taken && process.events[&id].shared().is_some() {
        process.captures.invalidate(line);
        return Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let Some(captured) = captured else {
        if !taken || process.events[&id].moment().is_none() {
            return Ok(taken);
        }
        process.captures.invalidate(line);
        return Err(CUresult::ERROR_STREAM_CAPTURE_ISOLATION);
    };
    let Some(capture) = process.captures.all.get_mut(&captured.capture) else {
        return Err(CUresult::ERROR_INVALID_VALUE);
    };
    if capture.invalidated {
        return Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    match process.captures.of_line.get(&line) {
        Some(own) if *own != captured.capture => {
            let own = *own;
            for broken in [own, captured.capture] {
                if let Some(capture) = process.captures.all.get_mut(&broken) {
                    capture.invalidated = true;
                }
            }
            return Err(CUresult::ERROR_STREAM_CAPTURE_MERGE);
        }
        Some(_) => {}
        None if Process::is_legacy(stream) => {
            capture.invalidated = true;
            return Err(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        None => {
            process.captures.of_line.insert(line, captured.capture);
        }
    }
    let set = capture.lines.entry(line).or_default();
    for node in captured.after {
        if !set.contains(&node) {
            set.push(node);
        }
    }
    Ok(true)
}

/// A capture whose stream is destroyed ends.
pub fn stream_destroyed(process: &mut Process, line: LineId) {
    let Some(id) = process.captures.of_line.get(&line).copied() else {
        return;
    };
    let origin = process.captures.all.get(&id).map(|capture| capture.origin);
    if origin == Some(line) {
        if let Some(capture) = end_of(process, id) {
            process.graphs.filled(capture.graph, true);
        }
    } else if let Some(capture) = process.captures.all.get_mut(&id) {
        capture.invalidated = true;
        process.captures.of_line.remove(&line);
    }
}

fn end_of(process: &mut Process, id: CaptureId) -> Option<Capture> {
    let capture = process.captures.all.remove(&id)?;
    process.captures.of_line.retain(|_, of| *of != id);
    crate::admission::captures(process.captures.all.len());
    Some(capture)
}

fn open(
    process: &mut Process,
    stream: CUstream,
    mode: Mode,
    graph: Option<(GraphId, Vec<NodeId>)>,
) -> Answer {
    let line = process.line_of(stream)?;
    if Process::is_legacy(stream) {
        return Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if process.captures.of(line).is_some() {
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    }
    process.captures.next += 1;
    let id = CaptureId(process.captures.next);
    let (graph, after) = graph.unwrap_or_else(|| (process.graphs.create(), Vec::new()));
    process.graphs.graph_mut(graph).filling = Filling::Yes;
    process.captures.of_line.insert(line, id);
    process.captures.all.insert(
        id,
        Capture {
            origin: line,
            mode,
            thread: this_thread(),
            graph,
            invalidated: false,
            lines: BTreeMap::from([(line, after)]),
        },
    );
    crate::admission::captures(process.captures.all.len());
    Ok(())
}

pub fn begin(stream: CUstream, mode: CUstreamCaptureMode) -> Answer {
    let mut process = driver::get()?.lock();
    process.stream_context(stream)?;
    let mode = Mode::of(mode)?;
    open(&mut process, stream, mode, None)
}

pub fn begin_v1(stream: CUstream) -> Answer {
    begin(stream, 0)
}

pub fn begin_to_graph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Answer {
    if graph.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    process.stream_context(stream)?;
    let mode = Mode::of(mode)?;
    let graph = process.graphs.graph_id(graph)?;
    if Process::is_legacy(stream) {
        return Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let line = process.line_of(stream)?;
    // A graph takes one capture at a time, though that one be broken (fixtures/oracle/captures-580.txt).
    if process.captures.of(line).is_some() || process.graphs.is_filled(graph) {
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    }
    let after = process.graphs.nodes_of(graph, &dependencies, count)?;
    let _plain = graph::edges_of(&edges, count)?;
    open(&mut process, stream, mode, Some((graph, after)))
}

pub fn end(stream: CUstream, out: Out<CUgraph>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let line = process.line_of(stream)?;
    let Some(capture) = process.captures.of(line) else {
        if let Some(out) = out.optional() {
            out.set(CUgraph::NULL);
        }
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    };
    if capture.origin != line {
        process.captures.invalidate(line);
        return Err(CUresult::ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    let stranger = capture.mode != Mode::Relaxed && capture.thread != this_thread();
    let out = out.optional();
    let id = process.captures.of_line[&line];
    let Some(capture) = end_of(&mut process, id) else {
        return Err(CUresult::ERROR_ILLEGAL_STATE);
    };
    let answer = if stranger {
        Err(CUresult::ERROR_STREAM_CAPTURE_WRONG_THREAD)
    } else if capture.invalidated {
        Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED)
    } else if unjoined(&process, &capture) {
        Err(CUresult::ERROR_STREAM_CAPTURE_UNJOINED)
    } else {
        Ok(())
    };
    if let Some(out) = out {
        out.set(match answer {
            Ok(()) => graph::handle_of(capture.graph),
            Err(_) => CUgraph::NULL,
        });
    }
    let objects = process.graphs.filled(capture.graph, answer.is_ok());
    process.drop_objects(driver, objects);
    answer
}

/// Whether a stream that joined has work that the capture's own stream does not depend on.
fn unjoined(process: &Process, capture: &Capture) -> bool {
    let own = capture
        .lines
        .get(&capture.origin)
        .cloned()
        .unwrap_or_default();
    let before = process.graphs.ancestors(capture.graph, &own);
    capture
        .lines
        .values()
        .flatten()
        .any(|node| !before.contains(node))
}

/// The thread's own mode, which says what other captures forbid it. Any number is taken.
pub fn exchange_mode(mode: Out<CUstreamCaptureMode>) -> Answer {
    let mode = mode.or_crash();
    mode.set(crate::admission::exchange_mode(mode.get()));
    Ok(())
}
