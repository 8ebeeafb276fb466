//! Memory of graphs: taken when an executable graph is uploaded or first launched, kept until it is trimmed (R3,
//! decision 14). What is known of it is in `graphs`.
//!
//! Nodes that allocate take nothing, so the calls that make them are only noticed: graphs are looked into from then on.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_ulonglong, c_void};

use abi::cuda::enumerations::{
    CU_GRAPH_NODE_TYPE_MEM_ALLOC as ALLOCATION, CUgraphExecUpdateResult, CUstreamCaptureMode,
};
use abi::cuda::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUgraph, CUgraphEdgeData, CUgraphExec,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUresult, CUstream,
};

use budget::Bytes;
use budget::settings::ContextCharge;
use seeds::{Seed, planted};

use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::capture::{Relaxed, named};
use crate::devices::current_context;
use crate::function::{Launched, Needed};
use crate::graphs::{Code, Instantiation, Need, Wanted};
use crate::limits::is_context_gone;
use crate::marks::NoStream;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::{Tenant, is_paced};
use crate::throttle;

/// CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.
const UPLOAD: u64 = 2;
/// CUDA_GRAPH_INSTANTIATE_FLAG_…: what else is asked for the driver refuses.
const FLAGS: u64 = 15;
/// CUDA_GRAPH_INSTANTIATE_ERROR.
const ERROR: c_int = 1;

pub fn add_allocation(
    tenant: Tenant,
    node: Out<'_, CUgraphNode>,
    graph: CUgraph,
    after: In<'_, CUgraphNode>,
    count: usize,
    params: Out<'_, CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Outcome<CUresult> {
    tenant.memory.graphs.notice_allocation();
    let code = next::cuGraphAddMemAllocNode(node, graph, after, count, params);
    Outcome::Done(code)
}

pub fn add(
    tenant: Tenant,
    node: Out<'_, CUgraphNode>,
    graph: CUgraph,
    after: In<'_, CUgraphNode>,
    count: usize,
    params: Out<'_, CUgraphNodeParams>,
) -> Outcome<CUresult> {
    added(tenant, node, params, |params| {
        next::cuGraphAddNode(node, graph, after, count, params)
    })
}

pub fn add_v2(
    tenant: Tenant,
    node: Out<'_, CUgraphNode>,
    graph: CUgraph,
    after: In<'_, CUgraphNode>,
    edges: In<'_, CUgraphEdgeData>,
    count: usize,
    params: Out<'_, CUgraphNodeParams>,
) -> Outcome<CUresult> {
    added(tenant, node, params, |params| {
        next::cuGraphAddNode_v2(node, graph, after, edges, count, params)
    })
}

/// As the second version, with what CUDA 13.4 made of the parameters.
pub fn add_v3(
    tenant: Tenant,
    node: Out<'_, CUgraphNode>,
    graph: CUgraph,
    after: In<'_, CUgraphNode>,
    edges: In<'_, CUgraphEdgeData>,
    count: usize,
    params: Out<'_, CUgraphNodeParams>,
) -> Outcome<CUresult> {
    added(tenant, node, params, |params| {
        next::cuGraphAddNode_v3(node, graph, after, edges, count, params)
    })
}

/// The bodies of a conditional node are graphs of which nothing but this call tells.
fn added(
    tenant: Tenant,
    node: Out<'_, CUgraphNode>,
    params: Out<'_, CUgraphNodeParams>,
    call: impl FnOnce(Out<'_, CUgraphNodeParams>) -> CUresult,
) -> Outcome<CUresult> {
    let mut bodies = Vec::new();
    let outcome = with_own(tenant, params, |params| {
        let code = call(params);
        if code == CUresult::SUCCESS {
            bodies = params.bodies();
        }
        code
    });
    if let Some(node) = node.read().filter(|_| !bodies.is_empty()) {
        tenant.know_bodies(node, &bodies);
    }
    outcome
}

/// A node's parameters are exchanged, which may make it one that allocates.
pub fn set_params(
    tenant: Tenant,
    node: CUgraphNode,
    params: Out<'_, CUgraphNodeParams>,
) -> Outcome<CUresult> {
    with_own(tenant, params, |params| {
        next::cuGraphNodeSetParams(node, params)
    })
}

pub fn set_params_v2(
    tenant: Tenant,
    node: CUgraphNode,
    params: Out<'_, CUgraphNodeParams>,
) -> Outcome<CUresult> {
    with_own(tenant, params, |params| {
        next::cuGraphNodeSetParams_v2(node, params)
    })
}

/// Nodes about which the driver tells nothing by their parameters: a caller's may lie where nobody can write. All kinds up to batches of memory operations,
/// but for allocations, which come to have an address.
const TOLD_NOTHING: u32 = 12;

/// A call with parameters of a node, which are judged as the driver gets them.
fn with_own(
    tenant: Tenant,
    params: Out<'_, CUgraphNodeParams>,
    call: impl FnOnce(Out<'_, CUgraphNodeParams>) -> CUresult,
) -> Outcome<CUresult> {
    let Some(mut own) = params.read() else {
        return Outcome::Done(call(params));
    };
    let kind = own.type_;
    if kind == ALLOCATION {
        tenant.memory.graphs.notice_allocation();
    }
    if planted(Seed::R51) {
        return Outcome::Done(call(params));
    }
    let code = call(Out::to(&mut own));
    if code == CUresult::SUCCESS && (kind == ALLOCATION || kind as u32 > TOLD_NOTHING) {
        params.write(own);
    }
    Outcome::Done(code)
}

/// A node of an executable graph is to run another kernel: for longer parameters the driver takes more memory, which its context keeps (R73 of
/// `fixtures/defects.txt`).
pub fn set_kernel(
    tenant: Tenant,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<'_, CUDA_KERNEL_NODE_PARAMS>,
) -> Outcome<CUresult> {
    params.by_own(|params| {
        let new = params.read().map(|new| Code::new(new.func, new.kern));
        exchanged(tenant, (exec, node), new, || {
            next::cuGraphExecKernelNodeSetParams_v2(exec, node, params)
        })
    })
}

pub fn set_kernel_v1(
    tenant: Tenant,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<'_, CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Outcome<CUresult> {
    params.by_own(|params| {
        let new = params.read().map(|new| Code::Function(new.func));
        exchanged(tenant, (exec, node), new, || {
            next::cuGraphExecKernelNodeSetParams(exec, node, params)
        })
    })
}

pub fn set_any(
    tenant: Tenant,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: Out<'_, CUgraphNodeParams>,
) -> Outcome<CUresult> {
    let mut own = params.read();
    let params = own.as_mut().map_or(params, Out::to);
    if let Some(child) = params.child() {
        return changed(tenant, exec, Some(node), child, || {
            next::cuGraphExecNodeSetParams(exec, node, params)
        });
    }
    let new = params.kernel().map(|new| Code::new(new.func, new.kern));
    exchanged(tenant, (exec, node), new, || {
        next::cuGraphExecNodeSetParams(exec, node, params)
    })
}

/// Where the kernel is that of the graph's own node nothing is taken.
fn exchanged(
    tenant: Tenant,
    (exec, node): (CUgraphExec, CUgraphNode),
    new: Option<Code>,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    let old = tenant.kernel_node(node);
    let other = new.filter(|new| old.map(|old| old.code) != Some(*new) && !planted(Seed::R73));
    let whole = || match other {
        Some(new) => tenant.creep(&tenant.memory.graphs.exchanged, 2 * new.memory(), call),
        None => Outcome::Done(call()),
    };
    // The driver takes its local memory now, and again at a launch if a smaller stack has given it back: in the context of the node's own, which it keeps. What
    // the graph's other kernels need it does not take again (H200: *an exchanged kernel* in `fixtures/oracle/held-580.txt`).
    let needed = new.filter(|_| !planted(Seed::R28c)).map(|new| Needed {
        context: old.map_or(0, |old| old.context),
        local: tenant.local_of(new),
    });
    let mut taken: Vec<Needed> = needed.into_iter().collect();
    if planted(Seed::R28e) {
        taken.extend(tenant.local_of_graph(exec));
    }
    let launched = Launched::Kernels(&taken);
    let outcome = tenant.with_local(
        launched,
        current_context,
        || false,
        whole,
        || CUresult::ERROR_UNKNOWN,
    );
    if matches!(outcome, Outcome::Done(CUresult::SUCCESS)) {
        tenant.add_to_graph(exec, needed.as_slice());
    }
    outcome
}

macro_rules! captures {
    ($($name:ident = $entry:ident($($argument:ident: $kind:ty),*);)*) => { $(
        pub fn $name(tenant: Tenant, stream: CUstream $(, $argument: $kind)*) -> Outcome<CUresult> {
            tenant.memory.graphs.notice_capture();
            let _held = tenant.hold_streams();
            Outcome::Done(next::$entry(stream $(, $argument)*))
        }
    )* };
}

captures! {
    begin_capture = cuStreamBeginCapture();
    begin_capture_ptsz = cuStreamBeginCapture_ptsz();
    begin_capture_v2 = cuStreamBeginCapture_v2(mode: CUstreamCaptureMode);
    begin_capture_v2_ptsz = cuStreamBeginCapture_v2_ptsz(mode: CUstreamCaptureMode);
    begin_capture_to_graph = cuStreamBeginCaptureToGraph(
        graph: CUgraph, after: In<'_, CUgraphNode>, edges: In<'_, CUgraphEdgeData>, count: usize, mode: CUstreamCaptureMode
    );
    begin_capture_to_graph_ptsz = cuStreamBeginCaptureToGraph_ptsz(
        graph: CUgraph, after: In<'_, CUgraphNode>, edges: In<'_, CUgraphEdgeData>, count: usize, mode: CUstreamCaptureMode
    );
    begin_recapture = cuStreamBeginRecaptureToGraph(
        mode: CUstreamCaptureMode, graph: CUgraph, callback: Out<'_, c_void>, data: Out<'_, c_void>
    );
    begin_recapture_ptsz = cuStreamBeginRecaptureToGraph_ptsz(
        mode: CUstreamCaptureMode, graph: CUgraph, callback: Out<'_, c_void>, data: Out<'_, c_void>
    );
}

pub fn instantiate(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    error: Out<'_, CUgraphNode>,
    log: Out<'_, c_char>,
    size: usize,
) -> Outcome<CUresult> {
    instantiated(tenant, place, graph, || {
        next::cuGraphInstantiate(place, graph, error, log, size)
    })
}

pub fn instantiate_v2(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    error: Out<'_, CUgraphNode>,
    log: Out<'_, c_char>,
    size: usize,
) -> Outcome<CUresult> {
    instantiated(tenant, place, graph, || {
        next::cuGraphInstantiate_v2(place, graph, error, log, size)
    })
}

pub fn instantiate_with_flags(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    let call = || next::cuGraphInstantiateWithFlags(place, graph, flags);
    // Where no stream is named a driver refuses the upload (`fixtures/oracle/cuda-streams-580.txt`).
    if flags & !(FLAGS & !UPLOAD) != 0 {
        return oddly_instantiated(tenant, place, graph, call);
    }
    instantiated(tenant, place, graph, call)
}

pub fn instantiate_with_params(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    params: Out<'_, CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Outcome<CUresult> {
    let call = |params: Out<'_, _>| next::cuGraphInstantiateWithParams(place, graph, params);
    let upload = |exec, stream| next::cuGraphUpload(exec, stream);
    Parametrised {
        place,
        graph,
        params,
        call: &call,
        upload: &upload,
        stream: |stream| stream,
    }
    .decide(tenant)
}

pub fn instantiate_with_params_ptsz(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    params: Out<'_, CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Outcome<CUresult> {
    let call = |params: Out<'_, _>| next::cuGraphInstantiateWithParams_ptsz(place, graph, params);
    let upload = |exec, stream| next::cuGraphUpload_ptsz(exec, stream);
    Parametrised {
        place,
        graph,
        params,
        call: &call,
        upload: &upload,
        stream: named,
    }
    .decide(tenant)
}

/// A graph made executable by a structure, which may ask for its upload.
struct Parametrised<'a> {
    place: Out<'a, CUgraphExec>,
    graph: CUgraph,
    params: Out<'a, CUDA_GRAPH_INSTANTIATE_PARAMS>,
    call: &'a dyn Fn(Out<'_, CUDA_GRAPH_INSTANTIATE_PARAMS>) -> CUresult,
    upload: &'a dyn Fn(CUgraphExec, CUstream) -> CUresult,
    /// The stream as the plain entry points call it.
    stream: fn(CUstream) -> CUstream,
}

impl Parametrised<'_> {
    /// The driver makes it executable, and says what it has against that; then it is uploaded as by a call of its own, which
    /// knows what the graph needs.
    fn decide(&self, tenant: Tenant) -> Outcome<CUresult> {
        let Some(mut asked) = self.params.read() else {
            let call = || (self.call)(self.params);
            return oddly_instantiated(tenant, self.place, self.graph, call);
        };
        let with = asked.flags;
        let odd = with & !FLAGS != 0;
        let uploading = !odd && with & UPLOAD != 0 && tenant.memory.graphs.any_allocation();
        if uploading {
            asked.flags &= !UPLOAD;
        }
        let before = self.place.read();
        let own = Out::to(&mut asked);
        let call = || (self.call)(own);
        let outcome = match odd {
            false => instantiated(tenant, self.place, self.graph, call),
            true => oddly_instantiated(tenant, self.place, self.graph, call),
        };
        // What the driver told, but for the flag, which was the caller's.
        asked.flags = with;
        self.params.write(asked);
        if !uploading {
            return outcome;
        }
        let (Outcome::Done(CUresult::SUCCESS), Some(exec)) = (&outcome, self.place.read()) else {
            return outcome;
        };
        let stream = asked.hUploadStream;
        let uploaded = run(tenant, exec, (self.stream)(stream), || {
            (self.upload)(exec, stream)
        });
        let uploaded = match uploaded {
            Outcome::PassThrough(_) => Outcome::Done((self.upload)(exec, stream)),
            decided => decided,
        };
        if !matches!(uploaded, Outcome::Done(CUresult::SUCCESS)) {
            tenant.forget_graph(exec);
            let _ = tenant.end_branches(exec);
            let _ = tenant.forget_executable(exec);
            let _relaxed = Relaxed::begin(tenant);
            let _ = next::cuGraphExecDestroy(exec);
            if let Some(before) = before {
                self.place.write(before);
            }
            if let Some(mut told) = self.params.read() {
                told.result_out = ERROR;
                self.params.write(told);
            }
        }
        uploaded
    }
}

pub fn upload(tenant: Tenant, exec: CUgraphExec, stream: CUstream) -> Outcome<CUresult> {
    run(tenant, exec, stream, || next::cuGraphUpload(exec, stream))
}

pub fn upload_ptsz(tenant: Tenant, exec: CUgraphExec, stream: CUstream) -> Outcome<CUresult> {
    run(tenant, exec, named(stream), || {
        next::cuGraphUpload_ptsz(exec, stream)
    })
}

pub fn launch(tenant: Tenant, exec: CUgraphExec, stream: CUstream) -> Outcome<CUresult> {
    let call = || next::cuGraphLaunch(exec, stream);
    launched(tenant, exec, stream, &call, &|call| {
        throttle::launch_graph(tenant, exec, stream, NoStream::Legacy, call)
    })
}

pub fn launch_ptsz(tenant: Tenant, exec: CUgraphExec, stream: CUstream) -> Outcome<CUresult> {
    let call = || next::cuGraphLaunch_ptsz(exec, stream);
    launched(tenant, exec, named(stream), &call, &|call| {
        throttle::launch_graph(tenant, exec, stream, NoStream::PerThread, call)
    })
}

type Pace<'a> = dyn Fn(&dyn Fn() -> CUresult) -> Outcome<CUresult> + 'a;

/// `stream` is as the plain entry points call it.
fn launched(
    tenant: Tenant,
    exec: CUgraphExec,
    stream: CUstream,
    call: &impl Fn() -> CUresult,
    pace: &Pace<'_>,
) -> Outcome<CUresult> {
    let granted = || run(tenant, exec, stream, call);
    let whole = || match is_paced() {
        false => granted(),
        true => paced(&granted, call, pace),
    };
    let launched = Launched::Graph(exec);
    tenant.with_local(launched, current_context, || false, whole, call)
}

/// A launch that waits until it may begin, and takes its memory then: nobody waits with memory granted.
#[cold]
fn paced(
    granted: &dyn Fn() -> Outcome<CUresult>,
    call: impl Fn() -> CUresult,
    pace: &Pace<'_>,
) -> Outcome<CUresult> {
    let refused = Cell::new(None);
    let whole = || match granted() {
        Outcome::Done(code) => code,
        Outcome::PassThrough(_) => call(),
        Outcome::Refused(why) => {
            refused.set(Some(why));
            CUresult::ERROR_OUT_OF_MEMORY
        }
    };
    match (pace(&whole), refused.get()) {
        (Outcome::PassThrough(_), _) => granted(),
        (Outcome::Done(_), Some(why)) => Outcome::Refused(why),
        (decided, _) => decided,
    }
}

pub fn update(
    tenant: Tenant,
    exec: CUgraphExec,
    graph: CUgraph,
    error: Out<'_, CUgraphNode>,
    result: Out<'_, CUgraphExecUpdateResult>,
) -> Outcome<CUresult> {
    updated(tenant, exec, graph, || {
        next::cuGraphExecUpdate(exec, graph, error, result)
    })
}

pub fn update_v2(
    tenant: Tenant,
    exec: CUgraphExec,
    graph: CUgraph,
    info: Out<'_, CUgraphExecUpdateResultInfo>,
) -> Outcome<CUresult> {
    updated(tenant, exec, graph, || {
        next::cuGraphExecUpdate_v2(exec, graph, info)
    })
}

/// Made executable with flags that every driver refused when this was written: it says that itself. What one grants nevertheless is charged after.
fn oddly_instantiated(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    let code = call();
    if let (CUresult::SUCCESS, Some(exec)) = (code, place.read()) {
        tenant.look_all(tenant.current_indices());
        if tenant.memory.graphs.any_allocation() {
            tenant.know_executable(exec, tenant.needs(graph));
        }
    }
    Outcome::Done(code)
}

/// An updated executable graph needs what the graph that it came from allocates.
fn updated(
    tenant: Tenant,
    exec: CUgraphExec,
    graph: CUgraph,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    changed(tenant, exec, None, graph, call)
}

/// A graph replaces an executable one, or the child at `part` of it.
fn changed(
    tenant: Tenant,
    exec: CUgraphExec,
    part: Option<CUgraphNode>,
    graph: CUgraph,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    tenant.replacing(exec, part, graph, || {
        let outcome = exchanged_for(tenant, exec, graph, call);
        let done = matches!(outcome, Outcome::Done(CUresult::SUCCESS));
        (outcome, done)
    })
}

fn exchanged_for(
    tenant: Tenant,
    exec: CUgraphExec,
    graph: CUgraph,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    let mut changed = false;
    let outcome = branching(tenant, graph, Instantiation::Exchanged, || {
        let code = call();
        changed = code == CUresult::SUCCESS;
        (code, Some(exec))
    });
    if !changed {
        return outcome;
    }
    // What it took cannot be given back: it is charged, and stands in the way of what is asked next.
    if matches!(outcome, Outcome::Refused(_)) {
        tenant.look_all(tenant.current_indices());
    }
    Outcome::Done(CUresult::SUCCESS)
}

pub fn set_child(
    tenant: Tenant,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> Outcome<CUresult> {
    changed(tenant, exec, Some(node), child, || {
        next::cuGraphExecChildGraphNodeSetParams(exec, node, child)
    })
}

pub fn destroy(tenant: Tenant, exec: CUgraphExec) -> Outcome<CUresult> {
    tenant.forget_graph(exec);
    let owner = tenant.owner_of_branches(exec);
    let branches = tenant.end_branches(exec);
    if branches.is_none() && !tenant.memory.graphs.any_executable() {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    // The records leave first: the handle may come back at once.
    let known = tenant.forget_executable(exec);
    let code = next::cuGraphExecDestroy(exec);
    if let Some((context, bytes)) = branches.filter(|_| code != CUresult::SUCCESS) {
        // It is charged still.
        let _ = tenant.begin_branches(context, exec, bytes);
        if owner.is_some_and(|owner| tenant.has_ended(owner)) {
            tenant.end_branches_of(context);
        }
    }
    if let Some(known) = known.filter(|_| code != CUresult::SUCCESS) {
        tenant.know_executable(exec, known);
    }
    Outcome::Done(code)
}

pub fn trim(tenant: Tenant, ordinal: CUdevice) -> Outcome<CUresult> {
    let device = tenant.devices().and_then(|devices| devices.get(ordinal));
    let Some(device) = device.filter(|_| tenant.memory.graphs.any_allocation()) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    Outcome::Done(tenant.trim_graphs_of(device))
}

fn instantiated(
    tenant: Tenant,
    place: Out<'_, CUgraphExec>,
    graph: CUgraph,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    // In a context that is gone the driver does not look at the graph, whatever that is.
    if place.is_null() || is_context_gone() {
        return Outcome::Done(call());
    }
    let before = place.read();
    let mut made = None;
    let outcome = branching(tenant, graph, Instantiation::New, || {
        let code = call();
        made = place.read().filter(|_| code == CUresult::SUCCESS);
        (code, made)
    });
    let Some(exec) = made else {
        return outcome;
    };
    if matches!(outcome, Outcome::Refused(_)) {
        tenant.forget_graph(exec);
        let _relaxed = Relaxed::begin(tenant);
        let _ = next::cuGraphExecDestroy(exec);
        before.into_iter().for_each(|before| place.write(before));
        // Its context keeps what the driver took for it.
        tenant.look_all(tenant.current_indices());
    } else if tenant.memory.graphs.any_allocation() {
        tenant.know_executable(exec, tenant.needs(graph));
    }
    outcome
}

/// A call that makes or changes an executable graph: the driver keeps memory for as much of it as may run side by side (R17 of
/// `fixtures/defects.txt`; 112 KiB each on an H200). As much is reserved before, and what the driver's figure says is charged after.
/// Refused after the call, what it made has to go again. Where no row tells it a context is charged for the most that its executable graphs needed
/// together, for which the driver keeps memory (R32). The call answers which executable graph it made or changed besides.
fn branching(
    tenant: Tenant,
    graph: CUgraph,
    change: Instantiation,
    call: impl FnOnce() -> (CUresult, Option<CUgraphExec>),
) -> Outcome<CUresult> {
    let device = tenant.current_device().ok();
    let counted = tenant.settings().context_charge == ContextCharge::Count;
    let Some(device) = device.filter(|_| counted && !planted(Seed::R17)) else {
        return Outcome::Done(call().0);
    };
    let Wanted { bound, local } = tenant.branch_memory(graph, change);
    let grant = match tenant.reserve_or_trim(device.indices, bound) {
        Ok(grant) => grant,
        Err(refused) => return Outcome::Refused(refused),
    };
    let owner = tenant.owner();
    // From before its local memory is charged, which the driver takes in this call.
    let before = tenant.look_before(device, bound);
    let mut made = None;
    let outcome = tenant.with_local(
        local.as_deref().map_or(Launched::Any, Launched::Kernels),
        current_context,
        || false,
        || {
            let (code, exec) = call();
            made = exec.filter(|_| code == CUresult::SUCCESS);
            Outcome::Done(code)
        },
        || CUresult::ERROR_UNKNOWN,
    );
    let Outcome::Done(code @ CUresult::SUCCESS) = outcome else {
        return outcome;
    };
    if let Some(exec) = made {
        match (&local, change) {
            (None, _) => tenant.forget_graph(exec),
            (Some(local), Instantiation::New) => tenant.note_graph(exec, local),
            (Some(local), Instantiation::Exchanged) => tenant.add_to_graph(exec, local),
        }
    }
    match tenant.settle_by_row(device, before, grant, (bound, Bytes::ZERO, bound)) {
        Ok(Bytes::ZERO) => Outcome::Done(code),
        // No row: it is charged as what it takes at most.
        Ok(most) => {
            let context = match planted(Seed::R88) {
                true => current_context(),
                false => owner.context,
            };
            let more = match made.filter(|_| !planted(Seed::R32) && !planted(Seed::R30)) {
                Some(exec) => match change {
                    Instantiation::Exchanged if !planted(Seed::R32b) => {
                        tenant.exchange_branches(context, exec, most)
                    }
                    _ => tenant.begin_branches(context, exec, most),
                }
                .min(most),
                None => most,
            };
            if tenant.memory.contexts.add_to(context, more) || planted(Seed::R88) {
                tenant.release(device.indices, most.saturating_sub(more));
            } else {
                // Its context has ended since (R88 of `fixtures/defects.txt`), or is none that anybody is charged for: then a look finds it.
                tenant.end_branches_of(context);
                tenant.release(device.indices, most);
                tenant.look_at(device);
            }
            Outcome::Done(code)
        }
        Err((refused, _)) => Outcome::Refused(refused),
    }
}

/// A call that takes what an executable graph needs. `stream` is as the plain entry points call it.
#[inline]
fn run(
    tenant: Tenant,
    exec: CUgraphExec,
    stream: CUstream,
    call: impl Fn() -> CUresult,
) -> Outcome<CUresult> {
    if !tenant.memory.graphs.any_executable() {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    run_allocating(tenant, exec, stream, &call)
}

#[cold]
fn run_allocating(
    tenant: Tenant,
    exec: CUgraphExec,
    stream: CUstream,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    let Some(needs) = tenant.needs_of(exec) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    // On a stream that captures the driver refuses, and takes nothing.
    if tenant.capture_of(stream).is_some() {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    if tenant.enter_with_all(exec, &needs) {
        let code = call();
        tenant.leave_with_all(&needs);
        return Outcome::Done(code);
    }
    match tenant.back(&needs, stream, call) {
        Ok(backed) => {
            if backed.code == CUresult::SUCCESS {
                tenant.know_backed(exec, backed.epoch);
            }
            Outcome::Done(backed.code)
        }
        Err(refused) => Outcome::Refused(refused),
    }
}

/// What a call that took memory for graphs answered, and the epoch in which it has all that it needs.
pub struct Backed {
    pub code: CUresult,
    pub epoch: u64,
}

impl Tenant {
    /// Makes a call that may take what graphs need.
    fn back(
        self,
        needs: &[Need],
        stream: CUstream,
        call: &dyn Fn() -> CUresult,
    ) -> Result<Backed, Refused> {
        let mut grants = Vec::new();
        for need in needs {
            let device = self.device(need.ordinal).ok_or(Refused::UnknownDevice)?;
            let grant = self.reserve_for_graph(device, need.bytes, stream)?;
            grants.push((device, grant, need.bytes));
        }
        for (device, ..) in &grants {
            self.begin_growth(device);
        }
        let graphs = &self.memory.graphs;
        let began = graphs.epoch();
        let code = call();
        let mut whole = true;
        for (device, grant, bound) in grants {
            whole &= self.settle_graphs(device, grant, bound);
        }
        // What it did not take anew it may have had of another graph, which has to ask again.
        let epoch = match (whole, planted(Seed::R80)) {
            (true, false) => began,
            (false, false) => graphs.epoch_after(began),
            (true, true) => graphs.epoch(),
            (false, true) => graphs.next_epoch(),
        };
        Ok(Backed { code, epoch })
    }
}
