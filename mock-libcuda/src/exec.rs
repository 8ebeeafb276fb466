//! Executable graphs: instantiated, changed, launched.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Kind, Nanos};

use crate::boundary::{Answer, Out};
use crate::capture;
use crate::conditional;
use crate::driver::{self, Driver};
use crate::graph::{GraphId, Graphs, NodeId, Payload, node_handle};
use crate::handle;
use crate::image::Attributes;
use crate::memop;
use crate::process::{ContextId, Process};
use crate::stream::Work;
use crate::timeline::{LineId, Load, Moment, Op};

/// A node as it will run.
#[derive(Clone)]
pub struct ExecNode {
    pub origin: NodeId,
    pub payload: Payload,
    /// Positions of the nodes that it waits for.
    pub before: Vec<usize>,
    pub enabled: bool,
    /// Bytes kept for the longer parameters of another kernel that it was set to.
    pub replaced: u64,
    /// What a child graph runs.
    pub child: Body,
    /// What a conditional node may run.
    pub bodies: Vec<Body>,
}

pub type Body = Vec<ExecNode>;

impl ExecNode {
    /// Another node's work. For longer parameters of a kernel room for twice as many is taken beside the old (H200, 580.159.04:
    /// `fixtures/oracle/held-580.txt`).
    fn do_instead(&mut self, payload: Payload) {
        let parameters = |payload: &Payload| match payload {
            Payload::Kernel(kernel) => u64::from(kernel.cost.parameters),
            _ => 0,
        };
        let (old, new) = (parameters(&self.payload), parameters(&payload));
        if new > old {
            self.replaced = self.replaced.max(2 * new);
        }
        self.payload = payload;
    }
}

pub struct Exec {
    pub graph: GraphId,
    pub context: ContextId,
    /// The context's number: what it took is gone with that, though a primary one may begin again.
    life: u64,
    pub flags: u64,
    pub body: Body,
    pub objects: BTreeMap<u32, u32>,
    /// Its last launch is done; the next one does not begin before.
    last: Moment,
}

/// CUDA_GRAPH_INSTANTIATE_FLAG_…
pub const AUTO_FREE: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;
const NODE_PRIORITY: u64 = 8;

fn handle_of(id: u32) -> CUgraphExec {
    CUgraphExec(handle::encode(handle::Kind::GraphExec, id) as *mut c_void)
}

impl Graphs {
    pub fn exec_id(&self, exec: CUgraphExec) -> Result<u32, CUresult> {
        handle::decode(handle::Kind::GraphExec, exec.0 as u64)
            .or_else(|| crate::graph::followed(exec.0 as u64))
            .filter(|id| self.execs.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_VALUE)
    }

    /// The body of a graph; `None` if it has a cycle.
    pub fn body(&self, graph: GraphId) -> Option<Body> {
        let order = self.sorted(graph)?;
        let at: BTreeMap<NodeId, usize> =
            order.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let mut body = Vec::with_capacity(order.len());
        for id in &order {
            let payload = self.node(*id).payload.clone();
            let (mut child, mut bodies) = (Vec::new(), Vec::new());
            match &payload {
                Payload::Child(of) => child = self.body(*of)?,
                Payload::Conditional(of) => {
                    let made = of.bodies.iter().map(|body| self.body(*body));
                    bodies = made.collect::<Option<_>>()?;
                }
                _ => {}
            }
            body.push(ExecNode {
                origin: *id,
                payload,
                before: self
                    .before(*id)
                    .iter()
                    .map(|(before, _)| at[before])
                    .collect(),
                enabled: true,
                replaced: 0,
                child,
                bodies,
            });
        }
        Some(body)
    }
}

/// The nodes of a body and of its children.
pub fn walk<'a>(body: &'a Body, visit: &mut dyn FnMut(&'a ExecNode)) {
    for node in body {
        visit(node);
        walk(&node.child, visit);
        node.bodies.iter().for_each(|body| walk(body, visit));
    }
}

fn find(body: &mut Body, origin: NodeId) -> Option<&mut ExecNode> {
    for node in body {
        if node.origin == origin {
            return Some(node);
        }
        let inner = std::iter::once(&mut node.child).chain(&mut node.bodies);
        for body in inner {
            if let Some(found) = find(body, origin) {
                return Some(found);
            }
        }
    }
    None
}

fn make(process: &mut Process, graph: GraphId, flags: u64) -> Result<u32, CUresult> {
    let context = process.current()?;
    let body = process
        .graphs
        .body(graph)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    if flags & DEVICE_LAUNCH != 0 {
        device_launchable(&body)?;
    }
    if !conditional::all_used(process, graph) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    conditional::may_run(graph, &body, process.graphs.execs.values())?;
    crate::graph_memory::one_instance(process, &body)?;
    take_branches(process, context, Some(&body))?;
    let kernels = kernels(process, &body);
    take_local(process, &kernels)?;
    let objects = process.graphs.graph(graph).objects.clone();
    process.keep_objects(&objects);
    let life = process.context(context).number;
    let id = process.graphs.next();
    process.graphs.execs.insert(
        id,
        Exec {
            graph,
            context,
            life,
            flags,
            body,
            objects,
            last: Moment::at(Nanos::ZERO),
        },
    );
    Ok(id)
}

/// What a body needs of its context's memory for executable graphs.
#[derive(Clone, Copy, Default)]
struct Branching {
    /// How much of it may run side by side: what waits for nothing, and each further successor of what others wait for.
    branches: u64,
    kernels: u64,
    /// Bytes of the kernels' parameters.
    parameters: u64,
}

fn branching(body: &Body) -> Branching {
    let mut all = Branching::default();
    let mut successors = vec![0_u64; body.len()];
    for node in body {
        let own = match &node.payload {
            Payload::Kernel(kernel) => Branching {
                branches: 1,
                kernels: 1,
                parameters: u64::from(kernel.cost.parameters) + node.replaced,
            },
            Payload::Copy { .. } | Payload::Fill { .. } => Branching {
                branches: 1,
                ..Branching::default()
            },
            Payload::Child(_) => branching(&node.child),
            Payload::Conditional(_) => node.bodies.iter().map(branching).sum(),
            _ => continue,
        };
        // The first successor goes on where its predecessor was.
        let goes_on = node.before.iter().any(|before| successors[*before] == 0);
        node.before
            .iter()
            .for_each(|before| successors[*before] += 1);
        all.branches += own.branches - u64::from(goes_on && own.branches > 0);
        all.kernels += own.kernels;
        all.parameters += own.parameters;
    }
    all
}

impl std::iter::Sum for Branching {
    fn sum<I: Iterator<Item = Branching>>(all: I) -> Branching {
        all.fold(Branching::default(), |sum, one| Branching {
            branches: sum.branches + one.branches,
            kernels: sum.kernels + one.kernels,
            parameters: sum.parameters + one.parameters,
        })
    }
}

/// For a context's executable graphs and one more.
fn take_branches(process: &mut Process, context: ContextId, new: Option<&Body>) -> Answer {
    let driver = driver::get()?;
    // What is updated may have outlived its context.
    if !process.context(context).alive {
        return Ok(());
    }
    let life = process.context(context).number;
    let execs = process.graphs.execs.values();
    let there = execs.filter(|exec| (exec.context, exec.life) == (context, life));
    let bodies = there.map(|exec| &exec.body).chain(new);
    let all: Branching = bodies.map(branching).sum();
    let needed = crate::graph_memory::branch_memory(all.branches, all.kernels, all.parameters);
    let taken = process.branch_memory.get(&context).copied().unwrap_or(0);
    if needed > taken {
        let device = process.context(context).device;
        process.charge(driver, device, Kind::Context, needed - taken)?;
        process.branch_memory.insert(context, needed);
    }
    Ok(())
}

/// What the kernels of a body need, each with the context that it runs in, if that is there still.
fn kernels(process: &Process, body: &Body) -> Vec<(ContextId, Attributes)> {
    let mut kernels = Vec::new();
    walk(body, &mut |node| {
        if let Payload::Kernel(kernel) = &node.payload
            && process.context(kernel.context).alive
        {
            kernels.push((kernel.context, kernel.cost.needs));
        }
    });
    kernels
}

/// Local memory is taken when a kernel becomes part of an executable graph: made, updated or set to it (H200, 580.159.04: *local memory in graphs* in
/// `fixtures/oracle/held-580.txt`).
fn take_local(process: &mut Process, kernels: &[(ContextId, Attributes)]) -> Answer {
    let driver = driver::get()?;
    kernels
        .iter()
        .try_for_each(|(context, needs)| process.reserve_local(driver, *context, needs))
}

/// What the device can launch itself: kernels, copies, memsets and graphs of these, and something of them.
fn device_launchable(body: &Body) -> Answer {
    let mut fits = !body.is_empty();
    walk(body, &mut |node| {
        fits &= matches!(
            node.payload,
            Payload::Kernel(_) | Payload::Copy { .. } | Payload::Fill { .. } | Payload::Child(_)
        );
    });
    match fits {
        true => Ok(()),
        false => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

pub fn instantiate(exec: Out<CUgraphExec>, graph: CUgraph, flags: c_ulonglong) -> Answer {
    driver::refuse_without_context()?;
    let exec = exec.required()?;
    let mut process = driver::get()?.lock();
    let graph = process.graphs.graph_id(graph)?;
    let conflict = AUTO_FREE | DEVICE_LAUNCH;
    if flags & !(AUTO_FREE | DEVICE_LAUNCH | NODE_PRIORITY) != 0 || flags & conflict == conflict {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    exec.set(handle_of(make(&mut process, graph, flags)?));
    Ok(())
}

pub fn instantiate_v1(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    log: Out<c_char>,
    len: usize,
) -> Answer {
    instantiate(exec, graph, 0)?;
    if let Some(node) = error_node.optional() {
        node.set(CUgraphNode::NULL);
    }
    if let Some(log) = log.optional().filter(|_| len > 0) {
        log.set(0);
    }
    Ok(())
}

pub fn instantiate_with(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let mut told = params.get();
    let asked = process.current().and_then(|_| {
        // Here and not in front of the handler, because a refusal is told below.
        crate::admission::forbid(&mut process)?;
        let exec = exec.required()?;
        Ok((exec, process.graphs.graph_id(graph)?))
    });
    let (exec, graph) = asked.inspect_err(|_| {
        (told.hErrNode_out, told.result_out) = (CUgraphNode::NULL, 1);
        params.set(told);
    })?;
    let conflict = AUTO_FREE | DEVICE_LAUNCH;
    let known = AUTO_FREE | UPLOAD | DEVICE_LAUNCH | NODE_PRIORITY;
    let bad_flags = told.flags & !known != 0 || told.flags & conflict == conflict;
    let cyclic = process.graphs.sorted(graph).is_none();
    let made = match bad_flags {
        true => Err(CUresult::ERROR_INVALID_VALUE),
        false => make(&mut process, graph, told.flags),
    };
    told.hErrNode_out = CUgraphNode::NULL;
    told.result_out = match made {
        Ok(_) => 0,
        Err(_) if bad_flags => 1,
        Err(_) if cyclic => 2,
        Err(_) if !conditional::all_used(&process, graph) => 5,
        Err(CUresult::ERROR_INVALID_VALUE) if told.flags & DEVICE_LAUNCH != 0 => 3,
        Err(_) => 1,
    };
    params.set(told);
    let id = made?;
    if told.flags & UPLOAD != 0
        && let Err(refused) = upload_to(&mut process, driver, id, told.hUploadStream)
    {
        // An H200 says no more of it (fixtures/oracle/captures-580.txt), and keeps nothing.
        told.result_out = 1;
        params.set(told);
        end(&mut process, driver, id);
        return Err(refused);
    }
    exec.set(handle_of(id));
    Ok(())
}

pub fn flags(exec: CUgraphExec, flags: Out<cuuint64_t>) -> Answer {
    let flags = flags.required()?;
    let process = driver::get()?.lock();
    let id = process.graphs.exec_id(exec)?;
    flags.set(process.graphs.execs[&id].flags);
    Ok(())
}

pub fn destroy(exec: CUgraphExec) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.graphs.exec_id(exec)?;
    end(&mut process, driver, id);
    Ok(())
}

fn end(process: &mut Process, driver: &Driver, id: u32) {
    if let Some(exec) = process.graphs.execs.remove(&id) {
        process.drop_objects(driver, exec.objects);
    }
}

/// The capture of a stream that captures is broken.
fn upload_to(process: &mut Process, driver: &Driver, id: u32, stream: CUstream) -> Answer {
    let line = process.line_of(stream)?;
    if capture::takes(process, stream, line)? {
        return capture::forbids_waiting(process, stream, line);
    }
    crate::graph_memory::back(process, driver, id)?;
    let load = Load::nothing();
    process.put(driver, line, Op::Work { load, act: None });
    Ok(())
}

pub fn upload(exec: CUgraphExec, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.graphs.exec_id(exec)?;
    upload_to(&mut process, driver, id, stream)
}

pub fn launch(exec: CUgraphExec, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.graphs.exec_id(exec)?;
    let line = process.line_of(stream)?;
    let body = process.graphs.execs[&id].body.clone();
    if capture::takes(&mut process, stream, line)? {
        return capture::forbids_waiting(&mut process, stream, line);
    }
    // What a smaller stack has given back since is taken again.
    for (context, needs) in kernels(&process, &body) {
        process.reserve_for_launch(driver, context, &needs)?;
    }
    crate::graph_memory::begin_launch(&mut process, driver, id)?;
    let start = Moment::unknown();
    process.put(driver, line, Op::Record(start.clone()));
    let last = process.graphs.execs[&id].last.clone();
    let context = process.graphs.execs[&id].context;
    let ends = run(&mut process, driver, context, &body, &[start, last]);
    for end in ends {
        process.put(driver, line, Op::Wait(end));
    }
    let done = Moment::unknown();
    process.put(driver, line, Op::Record(done.clone()));
    if let Some(exec) = process.graphs.execs.get_mut(&id) {
        exec.last = done;
    }
    Ok(())
}

/// Lets a body's nodes run, each in a line of its own behind those that it waits for; what its end waits for.
fn run(
    process: &mut Process,
    driver: &Driver,
    context: ContextId,
    body: &Body,
    start: &[Moment],
) -> Vec<Moment> {
    let mut ends: Vec<Moment> = Vec::with_capacity(body.len());
    let mut inner = BTreeSet::new();
    for node in body {
        let line = process.open_line(context, false);
        let before: Vec<Moment> = match node.before.is_empty() {
            true => start.to_vec(),
            false => node.before.iter().map(|at| ends[*at].clone()).collect(),
        };
        inner.extend(node.before.iter().copied());
        for moment in &before {
            process.put(driver, line, Op::Wait(moment.clone()));
        }
        if node.enabled {
            run_node(process, driver, context, node, line, &before);
        }
        let end = Moment::unknown();
        process.put(driver, line, Op::Record(end.clone()));
        process.timeline.close(line);
        ends.push(end);
    }
    if body.is_empty() {
        return start.to_vec();
    }
    let sinks = ends.into_iter().enumerate();
    sinks
        .filter(|(at, _)| !inner.contains(at))
        .map(|(_, end)| end)
        .collect()
}

fn run_node(
    process: &mut Process,
    driver: &Driver,
    context: ContextId,
    node: &ExecNode,
    line: LineId,
    before: &[Moment],
) {
    match &node.payload {
        Payload::Kernel(kernel) => {
            let load = Work::Kernel(kernel.cost).load(driver, process, kernel.context);
            process.put(driver, line, Op::Work { load, act: None });
        }
        Payload::Copy {
            context, work, act, ..
        }
        | Payload::Fill {
            context, work, act, ..
        } => {
            let load = work.load(driver, process, *context);
            let act = Some(act.clone());
            process.put(driver, line, Op::Work { load, act });
        }
        Payload::Host(call) => process.put(driver, line, Op::Call(*call)),
        Payload::Child(_) => {
            for end in run(process, driver, context, &node.child, before) {
                process.put(driver, line, Op::Wait(end));
            }
        }
        Payload::Conditional(conditional) => {
            if let Some(body) = conditional.chosen(node) {
                for end in run(process, driver, context, body, before) {
                    process.put(driver, line, Op::Wait(end));
                }
            }
        }
        Payload::EventWait(event) => {
            crate::event::wait_on(process, driver, *event, line);
        }
        Payload::EventRecord(event) => process.record(driver, *event, line),
        Payload::MemOps { ops, .. } => memop::put(process, driver, line, ops),
        Payload::Empty | Payload::Alloc(_) | Payload::Free(_) => {}
    }
}

/// Gives a node of an executable graph another payload of the same kind.
pub fn replace(
    process: &mut Process,
    exec: CUgraphExec,
    node: CUgraphNode,
    payload: Payload,
) -> Answer {
    let exec = process.graphs.exec_id(exec)?;
    let origin = handle::decode(handle::Kind::GraphNode, node.0 as u64)
        .map(NodeId)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let child = match &payload {
        Payload::Child(graph) => process.graphs.body(*graph),
        _ => None,
    };
    let found = process
        .graphs
        .execs
        .get_mut(&exec)
        .expect("exec_id found it");
    let context = found.context;
    let node = find(&mut found.body, origin).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    if node.payload.kind() != payload.kind() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut taken = Vec::new();
    if let (Payload::Kernel(old), Payload::Kernel(new)) = (&node.payload, &payload) {
        if old.context != new.context {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        taken.push((new.context, new.cost.needs));
    }
    if let Some(child) = child {
        if !same_shape(&node.child, &child) {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        take_over(&mut node.child, child);
    }
    node.do_instead(payload);
    let child = node.child.clone();
    take_branches(process, context, None)?;
    // What the others need is not taken again where a smaller stack gave it back (H200: *an exchanged kernel* in `fixtures/oracle/held-580.txt`).
    taken.extend(kernels(process, &child));
    taken.retain(|(context, _)| process.context(*context).alive);
    take_local(process, &taken)
}

fn same_shape(old: &Body, new: &Body) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| {
            old.payload.kind() == new.payload.kind()
                && old.before == new.before
                && same_shape(&old.child, &new.child)
        })
}

pub fn set_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Answer {
    if exec.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    with_switch(exec, node, |node| node.enabled = enabled != 0)
}

pub fn get_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<c_uint>) -> Answer {
    let enabled = enabled.required()?;
    with_switch(exec, node, |node| enabled.set(node.enabled.into()))
}

/// Kernels, copies and memsets can be switched off.
fn with_switch(exec: CUgraphExec, node: CUgraphNode, act: impl FnOnce(&mut ExecNode)) -> Answer {
    let mut process = driver::get()?.lock();
    let exec = process.graphs.exec_id(exec)?;
    let origin = process.graphs.node_id(node)?;
    let exec = process
        .graphs
        .execs
        .get_mut(&exec)
        .expect("exec_id found it");
    let node = find(&mut exec.body, origin).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    match node.payload {
        Payload::Kernel(_) | Payload::Copy { .. } | Payload::Fill { .. } => {
            act(node);
            Ok(())
        }
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

/// What an update found: CUgraphExecUpdateResult, the node that it is about, the node that it comes from.
struct Difference(CUgraphExecUpdateResult, Option<NodeId>);

const TOPOLOGY_CHANGED: i32 = 2;
const NODE_TYPE_CHANGED: i32 = 3;
const NOT_SUPPORTED: i32 = 6;

fn difference(old: &Body, new: &Body) -> Option<Difference> {
    if old.len() != new.len() {
        return Some(Difference(TOPOLOGY_CHANGED, None));
    }
    for (old, new) in old.iter().zip(new) {
        if old.payload.kind() != new.payload.kind() {
            return Some(Difference(NODE_TYPE_CHANGED, Some(new.origin)));
        }
        if old.before != new.before {
            return Some(Difference(TOPOLOGY_CHANGED, Some(new.origin)));
        }
        let inner = old.bodies.iter().zip(&new.bodies);
        let differ = inner.map(|(old, new)| difference(old, new));
        if let Some(inside) = difference(&old.child, &new.child).or(differ.flatten().next()) {
            return Some(inside);
        }
        if let (Payload::Conditional(old), Payload::Conditional(now)) = (&old.payload, &new.payload)
            && (old.kind() != now.kind() || old.bodies.len() != now.bodies.len())
        {
            return Some(Difference(NOT_SUPPORTED, Some(new.origin)));
        }
    }
    None
}

fn take_over(old: &mut Body, new: Body) {
    for (old, new) in old.iter_mut().zip(new) {
        old.do_instead(new.payload);
        old.enabled = true;
        take_over(&mut old.child, new.child);
        for (old, new) in old.bodies.iter_mut().zip(new.bodies) {
            take_over(old, new);
        }
    }
}

fn update_with(exec: CUgraphExec, graph: CUgraph) -> Result<Result<(), Difference>, CUresult> {
    let mut process = driver::get()?.lock();
    let id = process.graphs.exec_id(exec)?;
    let graph = process.graphs.graph_id(graph)?;
    let body = process
        .graphs
        .body(graph)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let exec = process.graphs.execs.get_mut(&id).expect("exec_id found it");
    if let Some(difference) = difference(&exec.body, &body) {
        return Ok(Err(difference));
    }
    let context = exec.context;
    take_over(&mut exec.body, body);
    take_branches(&mut process, context, None)?;
    let kernels = kernels(&process, &process.graphs.execs[&id].body);
    take_local(&mut process, &kernels)?;
    Ok(Ok(()))
}

pub fn update(
    exec: CUgraphExec,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    result: Out<CUgraphExecUpdateResult>,
) -> Answer {
    driver::get()?;
    let result = crate::memory::zeroed(result);
    if let Some(out) = error_node.slot() {
        out.set(CUgraphNode::NULL);
    }
    let (code, node) = match update_with(exec, graph)? {
        Ok(()) => (0, None),
        Err(Difference(code, node)) => (code, node),
    };
    // The first version knows no changed topology.
    if let Some(result) = result.optional() {
        result.set(if code == TOPOLOGY_CHANGED {
            NOT_SUPPORTED
        } else {
            code
        });
    }
    if let Some(out) = error_node.optional() {
        out.set(node.map_or(CUgraphNode::NULL, node_handle));
    }
    match code {
        0 => Ok(()),
        _ => Err(CUresult::ERROR_GRAPH_EXEC_UPDATE_FAILURE),
    }
}

pub fn update_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> Answer {
    driver::get()?;
    // Three fields, and the padding behind the first is left as it is.
    let tell = |code, node: CUgraphNode| {
        if let Some(words) = info.slot() {
            words.cast::<CUgraphExecUpdateResult>().set(code);
            let nodes = words.cast::<CUgraphNode>();
            nodes.nth(1).set(node);
            nodes.nth(2).set(CUgraphNode::NULL);
        }
    };
    tell(0, CUgraphNode::NULL);
    let outcome = update_with(exec, graph)?;
    if let Err(Difference(code, node)) = &outcome {
        tell(*code, node.map_or(CUgraphNode::NULL, node_handle));
    }
    outcome.map_err(|_| CUresult::ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}
