//! What the process's graphs need and hold.
//!
//! What an executable graph's nodes can hold together is the union of their address ranges: a launch reserves as much before,
//! and charges what the device's graphs hold after. A graph that was launched has what it needs until something is trimmed, or
//! until another graph may have been given it: that begins an epoch, and a launch in a new one reserves again.

use core::sync::atomic::{AtomicU64, Ordering};
use ledger::KeptErrno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use abi::cuda::enumerations::{
    CU_GRAPH_NODE_TYPE_CONDITIONAL as CONDITIONAL, CU_GRAPH_NODE_TYPE_GRAPH as CHILD,
    CU_GRAPH_NODE_TYPE_KERNEL as KERNEL, CU_GRAPH_NODE_TYPE_MEM_ALLOC as ALLOCATION,
    CUgraphNodeType,
};
use abi::cuda::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice,
    CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, CUresult, CUstream,
};
use budget::charge::{BLOCK, POOL_STEP};
use budget::{Bytes, DeviceSet};

use seeds::{Seed, planted};
use throttle::Nanos;

use crate::boundary::arena::Lock;
use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::boundary::time;
use crate::capture::{Relaxed, is_busy};
use crate::devices::Device;
use crate::function::{Needed, add_needed};
use crate::grant::Grant;
use crate::location::Home;
use crate::outcome::Refused;
use crate::process::{ORDINALS, Tenant};

/// CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT.
const RESERVED: i32 = 2;
/// For a seed: graphs that it looks at.
const LEVELS: usize = 16;
/// How long a launch waits for what its stream has before it, whose memory it could have, rather than be refused.
const PATIENCE: Nanos = Nanos::seconds(2);
/// How long a launch that takes memory waits for those that were made before it, which do not.
const PASSING: Nanos = Nanos::millis(50);

/// What graphs hold. All zeros is nothing.
#[repr(C)]
pub struct Graphs {
    /// Not 0: some node allocated, once.
    allocations: AtomicU64,
    /// Not 0: some stream captured, once.
    captures: AtomicU64,
    /// Executable graphs that allocate.
    executables: AtomicU64,
    epoch: AtomicU64,
    /// Bytes that were taken at most for kernels of executable graphs that were set to others.
    pub exchanged: AtomicU64,
    /// By ordinal: what is charged for the device's graphs.
    charged: [AtomicU64; ORDINALS],
    /// By ordinal: calls under way that may make it grow.
    growing: [AtomicU64; ORDINALS],
    /// By ordinal: calls under way that have all they need.
    passing: [AtomicU64; ORDINALS],
    /// Held while what is charged is brought to what the driver says.
    lock: Lock,
}

impl Graphs {
    pub fn notice_allocation(&self) {
        self.allocations.store(1, Ordering::Release);
    }

    pub fn notice_capture(&self) {
        self.captures.store(1, Ordering::Release);
    }

    #[inline]
    pub fn any_allocation(&self) -> bool {
        self.allocations.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub fn any_capture(&self) -> bool {
        self.captures.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub fn any_executable(&self) -> bool {
        self.executables.load(Ordering::Relaxed) != 0
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Whoever was launched before asks again. The epoch in which what was launched in `began` has all that it needs still: none that is now, where others
    /// have begun one since and may have been given it.
    pub fn epoch_after(&self, began: u64) -> u64 {
        let next = began + 1;
        let swapped = self
            .epoch
            .compare_exchange(began, next, Ordering::SeqCst, Ordering::SeqCst);
        match swapped {
            Ok(_) => next,
            Err(_) => {
                self.next_epoch();
                began
            }
        }
    }

    /// Whoever was launched before asks again.
    pub fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// What a graph allocates on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub ordinal: u32,
    pub bytes: Bytes,
}

/// The bodies of conditional nodes, by the node's handle: graphs of which the driver tells only who makes the node. A node that is gone leaves its
/// entry to the next that has its handle.
#[derive(Default)]
pub struct Bodies(Mutex<HashMap<u64, Vec<u64>>>);

/// The executable graphs that allocate, by handle.
#[derive(Default)]
pub struct Executables(Mutex<HashMap<u64, Executable>>);

/// What of an executable graph's needs is that of child graphs that were exchanged, by node.
type Children = HashMap<u64, Vec<Need>>;

struct Executable {
    needs: Vec<Need>,
    children: Children,
    /// In which it was launched last, and has what it needs; `None` before the first launch.
    epoch: Option<u64>,
}

/// What both need together.
fn sum(some: &[Need], others: &[Need]) -> Vec<Need> {
    let mut all = some.to_vec();
    for other in others {
        match all.iter_mut().find(|need| need.ordinal == other.ordinal) {
            Some(need) => need.bytes = need.bytes.saturating_add(other.bytes),
            None => all.push(*other),
        }
    }
    all
}

/// What is left of needs without some.
fn less(mut needs: Vec<Need>, without: &[Need]) -> Vec<Need> {
    for need in &mut needs {
        let same = without.iter().find(|other| other.ordinal == need.ordinal);
        need.bytes = need
            .bytes
            .saturating_sub(same.map_or(Bytes::ZERO, |same| same.bytes));
    }
    needs.retain(|need| need.bytes != Bytes::ZERO);
    needs
}

/// What a call does to an executable graph.
#[derive(Clone, Copy)]
pub enum Instantiation {
    New,
    Exchanged,
}

impl Tenant {
    /// An executable graph needs this from now on.
    pub fn know_executable(self, exec: CUgraphExec, needs: Vec<Need>) {
        self.put_executable(exec, needs, Children::new());
    }

    fn put_executable(self, exec: CUgraphExec, needs: Vec<Need>, children: Children) {
        let known = (!needs.is_empty()).then_some(Executable {
            needs,
            children,
            epoch: None,
        });
        self.executables(|book| match known {
            Some(known) => book.insert(exec.0 as u64, known),
            None => book.remove(&(exec.0 as u64)),
        });
    }

    /// What it needed.
    pub fn forget_executable(self, exec: CUgraphExec) -> Option<Vec<Need>> {
        self.executables(|book| book.remove(&(exec.0 as u64)))
            .map(|known| known.needs)
    }

    pub fn needs_of(self, exec: CUgraphExec) -> Option<Vec<Need>> {
        self.executables(|book| book.get(&(exec.0 as u64)).map(|known| known.needs.clone()))
    }

    /// Makes a call by which `graph` replaces an executable graph, or the child at `part` of it; the call answers whether it has. Until then a launch needs
    /// what both do, and none is under way that has asked for less.
    pub fn replacing<R>(
        self,
        exec: CUgraphExec,
        part: Option<CUgraphNode>,
        graph: CUgraph,
        call: impl FnOnce() -> (R, bool),
    ) -> R {
        let known = self.executables(|book| {
            let known = book.get(&(exec.0 as u64))?;
            Some((known.needs.clone(), known.children.clone()))
        });
        let (before, mut children) = known.unwrap_or_default();
        if before.is_empty() && !self.memory.graphs.any_allocation() || planted(Seed::R75) {
            return call().0;
        }
        let new = self.needs(graph);
        let after = match part {
            None => new.clone(),
            Some(node) => match children.get(&(node.0 as u64)) {
                Some(replaced) => less(sum(&before, &new), replaced),
                None => less(sum(&before, &new), &self.needs_of_child(node)),
            },
        };
        let meanwhile = sum(&before, &after);
        let devices: Vec<&Device> = meanwhile
            .iter()
            .filter_map(|need| self.device(need.ordinal))
            .collect();
        self.put_executable(exec, meanwhile, children.clone());
        devices.iter().for_each(|device| self.begin_growth(device));
        let (answer, done) = call();
        match part.filter(|_| done) {
            Some(node) => _ = children.insert(node.0 as u64, new),
            None if done => children.clear(),
            None => {}
        }
        self.put_executable(exec, if done { after } else { before }, children);
        devices.iter().for_each(|device| self.end_growth(device));
        answer
    }

    /// What the child graph that a node was made with allocates.
    fn needs_of_child(self, node: CUgraphNode) -> Vec<Need> {
        let mut child = CUgraph::NULL;
        match next::cuGraphChildGraphNodeGetGraph(node, Out::to(&mut child)) {
            CUresult::SUCCESS => self.needs(child),
            _ => Vec::new(),
        }
    }

    /// It has all that it needs in this epoch.
    pub fn know_backed(self, exec: CUgraphExec, epoch: u64) {
        self.executables(|book| {
            if let Some(known) = book.get_mut(&(exec.0 as u64)) {
                known.epoch = Some(epoch);
            }
        });
    }

    fn executables<R>(self, act: impl FnOnce(&mut HashMap<u64, Executable>) -> R) -> R {
        let _errno = KeptErrno::keep();
        let executables = self.memory.executables.get_or_default();
        let mut book = executables.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = act(&mut book);
        let count = book.len() as u64;
        self.memory
            .graphs
            .executables
            .store(count, Ordering::Release);
        answer
    }

    /// Whether a graph's launch takes nothing: it has all that it needs, and nobody is about to be given any of it. If so the
    /// launch is under way until `leave_with_all`.
    pub fn enter_with_all(self, exec: CUgraphExec, needs: &[Need]) -> bool {
        let graphs = &self.memory.graphs;
        for need in needs {
            graphs.passing[need.ordinal as usize % ORDINALS].fetch_add(1, Ordering::SeqCst);
        }
        let of_epoch =
            self.executables(|book| book.get(&(exec.0 as u64)).and_then(|known| known.epoch));
        let undisturbed = needs.iter().all(|need| {
            graphs.growing[need.ordinal as usize % ORDINALS].load(Ordering::SeqCst) == 0
        });
        let whole = undisturbed && of_epoch == Some(graphs.epoch());
        if !whole {
            self.leave_with_all(needs);
        }
        whole
    }

    pub fn leave_with_all(self, needs: &[Need]) {
        for need in needs {
            self.memory.graphs.passing[need.ordinal as usize % ORDINALS]
                .fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Asks for what a graph needs. Before it is refused, what graphs and pools hold without need is given back, that of the
    /// stream's earlier work included: the driver would let this graph have it.
    pub fn reserve_for_graph(
        self,
        device: &Device,
        bytes: Bytes,
        stream: CUstream,
    ) -> Result<Grant, Refused> {
        let end = time::now().plus(PATIENCE);
        loop {
            let refused = match self.reserve_or_trim(device.indices, bytes) {
                Ok(grant) => return Ok(grant),
                Err(refused) => refused,
            };
            let holds = self.charged_for_graphs(device) != Bytes::ZERO
                && self.may_come_to_fit(device.indices, bytes);
            let relaxed = Relaxed::begin(self);
            if !holds || time::now() > end || !is_busy(stream) {
                return Err(refused);
            }
            drop(relaxed);
            time::sleep_until(time::now().plus(Nanos::millis(1)));
        }
    }

    pub fn charged_for_graphs(self, device: &Device) -> Bytes {
        Bytes(self.memory.graphs.charged[device.ordinal as usize].load(Ordering::Acquire))
    }

    /// A call begins that may make a device's graphs hold more. Launches that take nothing pass before it.
    pub fn begin_growth(self, device: &Device) {
        let graphs = &self.memory.graphs;
        let ordinal = device.ordinal as usize;
        graphs.growing[ordinal].fetch_add(1, Ordering::SeqCst);
        let end = time::now().plus(PASSING);
        while graphs.passing[ordinal].load(Ordering::SeqCst) != 0 && time::now() < end {
            std::thread::yield_now();
        }
    }

    /// It is over, and took nothing itself.
    fn end_growth(self, device: &Device) {
        let growing = &self.memory.graphs.growing[device.ordinal as usize];
        growing.fetch_sub(1, Ordering::SeqCst);
        self.read_graphs(device);
    }

    /// What a device's graphs grew by is charged: exactly, unless other calls are under way, of which the last sees to it.
    /// Whether it was as much as was reserved.
    pub fn settle_graphs(self, device: &Device, grant: Grant, bound: Bytes) -> bool {
        let graphs = &self.memory.graphs;
        let _held = graphs.lock.hold();
        let growing = &graphs.growing[device.ordinal as usize];
        let alone = growing.fetch_sub(1, Ordering::SeqCst) == 1;
        let word = &graphs.charged[device.ordinal as usize];
        let charged = Bytes(word.load(Ordering::Acquire));
        let Some(held) = held(device).filter(|_| alone) else {
            grant.commit_as(bound);
            word.store(charged.saturating_add(bound).0, Ordering::Release);
            return false;
        };
        let more = held.saturating_sub(charged);
        grant.commit_as(more.min(bound));
        // A word that cannot name the sum has no room for another grant either.
        let _ = self.charge_anyway(device.indices, more.saturating_sub(bound));
        self.release(device.indices, charged.saturating_sub(held));
        word.store(held.0, Ordering::Release);
        more == bound
    }

    /// Gives back what a device's graphs hold without need; the driver's answer.
    pub fn trim_graphs_of(self, device: &Device) -> CUresult {
        if planted(Seed::R80) {
            self.memory.graphs.next_epoch();
            let _change = self.change();
            let code = next::cuDeviceGraphMemTrim(device.ordinal as CUdevice);
            self.read_graphs(device);
            return code;
        }
        // Who is launched meanwhile takes anew what it has no longer, and who is settled meanwhile is charged all that it asked for.
        self.begin_growth(device);
        self.memory.graphs.next_epoch();
        let code = {
            let _change = self.change();
            next::cuDeviceGraphMemTrim(device.ordinal as CUdevice)
        };
        self.end_growth(device);
        code
    }

    /// As above, of all these devices. Answers whether anything came back.
    pub fn trim_graphs(self, devices: DeviceSet) -> bool {
        let Some(known) = self.devices() else {
            return false;
        };
        let mut freed = false;
        for device in known.iter() {
            let word = &self.memory.graphs.charged[device.ordinal as usize];
            let charged = word.load(Ordering::Acquire);
            if charged != 0 && device.indices.iter().any(|index| devices.contains(index)) {
                let _ = self.trim_graphs_of(device);
                freed |= word.load(Ordering::Acquire) < charged;
            }
        }
        freed
    }

    /// Brings the charge of a device's graphs to what the driver says they hold. While calls are under way the last sees to it.
    fn read_graphs(self, device: &Device) {
        let graphs = &self.memory.graphs;
        let ordinal = device.ordinal as usize;
        let _held = graphs.lock.hold();
        if graphs.growing[ordinal].load(Ordering::SeqCst) != 0
            || graphs.passing[ordinal].load(Ordering::SeqCst) != 0
        {
            return;
        }
        let word = &graphs.charged[ordinal];
        let charged = Bytes(word.load(Ordering::Acquire));
        if let Some(held) = held(device) {
            let _change = self.change();
            let _ = self.charge_anyway(device.indices, held.saturating_sub(charged));
            self.release(device.indices, charged.saturating_sub(held));
            word.store(held.0, Ordering::Release);
        }
    }

    /// A device's last context is gone: what its graphs hold is what the driver says.
    pub fn forget_graphs(self, device: &Device) {
        if self.memory.graphs.charged[device.ordinal as usize].load(Ordering::Acquire) != 0 {
            self.memory.graphs.next_epoch();
            self.read_graphs(device);
        }
    }
}

impl Tenant {
    /// What a graph allocates: the union of its nodes' ranges, each in whole steps as the driver backs them. Where the driver does not tell all of it,
    /// more than there is: it is not launched.
    pub fn needs(self, graph: CUgraph) -> Vec<Need> {
        let _errno = KeptErrno::keep();
        match self.ranges(graph) {
            Some(ranges) => union(ranges),
            None if planted(Seed::R3a) => Vec::new(),
            None => vec![Need {
                ordinal: 0,
                bytes: Bytes::MAX,
            }],
        }
    }

    /// At most about what an executable graph takes for what may run side by side, and for its kernels' parameters: 112 KiB for each branch and
    /// 1.5 KiB for each kernel with its parameters and a 64th of them on an H200 (`fixtures/oracle/held-580.txt`). Nothing where the driver does not
    /// answer, which refuses such a graph. What replaces an executable graph has its shape and runs in the same branches (an update of 3,000 takes nothing
    /// there), its kernels' parameters beside those that were (R73).
    pub fn branch_memory(self, graph: CUgraph, change: Instantiation) -> Wanted {
        const BRANCH: u64 = 112 << 10;
        let _errno = KeptErrno::keep();
        let counts = self.counts(graph);
        let is_told = counts.is_some();
        let Counts {
            branches,
            bytes,
            local,
        } = counts.unwrap_or_default();
        let bound = match change {
            Instantiation::Exchanged if !planted(Seed::R73a) => bytes.saturating_add(bytes),
            _ => branches.saturating_mul(BRANCH).saturating_add(bytes),
        };
        Wanted {
            bound: Bytes(bound).round_up(BLOCK).unwrap_or(Bytes::MAX),
            local: is_told.then_some(local),
        }
    }

    fn counts(self, graph: CUgraph) -> Option<Counts> {
        let (mut counts, mut known) = (Counts::default(), HashMap::new());
        for (graph, within) in self.whole(graph)? {
            counts.branches = counts.branches.saturating_add(branches_of(graph)?);
            for (node, kind) in within {
                let bytes = if kind == KERNEL && !planted(Seed::R70) {
                    let KernelNode { code, context } = self.kernel_node(node)?;
                    let new = || (code.memory(), self.local_of(code));
                    let (bytes, local) = *known.entry(code).or_insert_with(new);
                    add_needed(&mut counts.local, Needed { context, local });
                    bytes
                } else {
                    NODE
                };
                counts.bytes = counts.bytes.saturating_add(bytes);
            }
        }
        Some(counts)
    }

    /// What a kernel node runs, and where; `None` where the driver does not tell.
    pub fn kernel_node(self, node: CUgraphNode) -> Option<KernelNode> {
        let mut params = CUDA_KERNEL_NODE_PARAMS::zeroed();
        if next::cuGraphKernelNodeGetParams_v2(node, Out::to(&mut params)) == CUresult::SUCCESS {
            // Of a kernel it tells the function as well.
            let code = match params.kern.is_null() {
                true => Code::Function(params.func),
                false => Code::Kernel(params.kern),
            };
            let context = params.ctx.0 as u64;
            return Some(KernelNode { code, context });
        }
        let mut params = CUDA_KERNEL_NODE_PARAMS_v1::zeroed();
        told(next::cuGraphKernelNodeGetParams(node, Out::to(&mut params)))?;
        let code = Code::Function(params.func);
        let context = self.context_of(code);
        Some(KernelNode { code, context })
    }

    /// The address ranges that the allocations of a graph and of the graphs in it have: ordinal, first address, end.
    fn ranges(self, graph: CUgraph) -> Option<Vec<(u32, u64, u64)>> {
        let mut ranges = Vec::new();
        for (_, nodes) in self.whole(graph)? {
            for (node, kind) in nodes {
                if kind != ALLOCATION {
                    continue;
                }
                let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
                told(next::cuGraphMemAllocNodeGetParams(
                    node,
                    Out::to(&mut params),
                ))?;
                let end = params.dptr.saturating_add(params.bytesize as u64);
                let ordinal = Home::of(params.poolProps.location).device();
                let ordinal = ordinal.and_then(|ordinal| u32::try_from(ordinal).ok());
                ranges.push((ordinal.unwrap_or(0), params.dptr, end));
            }
        }
        Some(ranges)
    }

    /// A graph and all graphs in it, however deep: a child is a copy, which the driver has memory for, and so has each body of a conditional node. `None` where it does not answer.
    fn whole(self, graph: CUgraph) -> Option<Vec<Level>> {
        let mut levels: Vec<Level> = Vec::new();
        let mut left = vec![graph];
        while let Some(graph) = left.pop() {
            let mut typed = Vec::new();
            for node in nodes(graph)? {
                let mut kind = 0;
                told(next::cuGraphNodeGetType(node, Out::to(&mut kind)))?;
                if kind == CHILD {
                    let mut child = CUgraph::NULL;
                    told(next::cuGraphChildGraphNodeGetGraph(
                        node,
                        Out::to(&mut child),
                    ))?;
                    left.push(child);
                }
                if kind == CONDITIONAL && !planted(Seed::R72) {
                    left.extend(self.bodies_of(node));
                }
                typed.push((node, kind));
            }
            levels.push((graph, typed));
            if levels.len() >= LEVELS && planted(Seed::R47) {
                break;
            }
        }
        Some(levels)
    }

    /// A conditional node has these bodies.
    pub fn know_bodies(self, node: CUgraphNode, bodies: &[CUgraph]) {
        let _errno = KeptErrno::keep();
        let bodies = bodies.iter().map(|body| body.0 as u64).collect();
        let known = self.memory.bodies.get_or_default();
        let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(node.0 as u64, bodies);
    }

    fn bodies_of(self, node: CUgraphNode) -> Vec<CUgraph> {
        let known = self.memory.bodies.get_or_default();
        let known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bodies = known.get(&(node.0 as u64)).into_iter().flatten();
        bodies
            .map(|body| CUgraph(core::ptr::with_exposed_provenance_mut(*body as usize)))
            .collect()
    }
}

/// Of (ordinal, first address, end).
fn union(mut ranges: Vec<(u32, u64, u64)>) -> Vec<Need> {
    ranges.sort_unstable();
    let mut needs: Vec<Need> = Vec::new();
    let mut last = (u32::MAX, 0);
    for (ordinal, from, to) in ranges {
        let (from, to) = (from / POOL_STEP.0, to.div_ceil(POOL_STEP.0));
        let from = if last.0 == ordinal {
            from.max(last.1)
        } else {
            from
        };
        let bytes = Bytes(to.saturating_sub(from).saturating_mul(POOL_STEP.0));
        match needs.last_mut().filter(|need| need.ordinal == ordinal) {
            Some(need) => need.bytes = need.bytes.saturating_add(bytes),
            None => needs.push(Need { ordinal, bytes }),
        }
        last = (ordinal, to.max(from));
    }
    needs
}

/// Of a graph and the graphs in it.
#[derive(Default)]
struct Counts {
    /// A branch begins with each node that waits for none, and with each successor of a node but the first, which goes on where that was.
    branches: u64,
    /// For its nodes, parameters included.
    bytes: u64,
    /// What its kernels need in each context.
    local: Vec<Needed>,
}

/// What an executable graph takes beside what its nodes allocate.
pub struct Wanted {
    /// At most, for its own.
    pub bound: Bytes,
    /// The local memory of its kernels in each context; `None` where the driver does not tell.
    pub local: Option<Vec<Needed>>,
}

/// What a kernel node runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Function(CUfunction),
    Kernel(CUkernel),
}

/// A kernel node, as the driver tells of it.
#[derive(Clone, Copy)]
pub struct KernelNode {
    pub code: Code,
    /// Where it runs: the context of its function, or the one that was named or current for a kernel (H200: *a graph's context* in
    /// `fixtures/oracle/held-580.txt`). A driver before CUDA 12 does not say: where its function was obtained, 0 where nobody saw that.
    pub context: u64,
}

/// Bytes for a node beside its parameters, at most about.
const NODE: u64 = 2 << 10;

impl Code {
    /// A node's parameters name one of the two.
    pub fn new(function: CUfunction, kernel: CUkernel) -> Code {
        match function.is_null() {
            true => Code::Kernel(kernel),
            false => Code::Function(function),
        }
    }

    pub fn handle(self) -> u64 {
        match self {
            Code::Function(function) => function.0 as u64,
            Code::Kernel(kernel) => kernel.0 as u64,
        }
    }

    /// Bytes that an executable graph keeps for a node of it, at most about.
    pub fn memory(self) -> u64 {
        let parameters = self.parameters();
        NODE.saturating_add(parameters)
            .saturating_add(parameters / 16)
    }

    /// Bytes that its parameters take. What a driver before CUDA 12.4 does not tell is taken for what parameters could be before CUDA 12.1.
    fn parameters(self) -> u64 {
        const UNTOLD: u64 = 4 << 10;
        let mut bytes = None;
        for index in 0.. {
            let (mut offset, mut size) = (0, 0);
            let (at, long) = (Out::to(&mut offset), Out::to(&mut size));
            let code = match self {
                Code::Function(function) => next::cuFuncGetParamInfo(function, index, at, long),
                Code::Kernel(kernel) => next::cuKernelGetParamInfo(kernel, index, at, long),
            };
            match code {
                CUresult::SUCCESS => bytes = Some((offset as u64).saturating_add(size as u64)),
                // Past the last.
                CUresult::ERROR_INVALID_VALUE => return bytes.unwrap_or(0),
                _ => return bytes.unwrap_or(UNTOLD),
            }
        }
        UNTOLD
    }
}

/// Of one graph, without those in it.
fn branches_of(graph: CUgraph) -> Option<u64> {
    let mut edges = 0;
    let nowhere = Out::<CUgraphNode>::nowhere();
    told(next::cuGraphGetEdges(
        graph,
        nowhere,
        nowhere,
        Out::to(&mut edges),
    ))?;
    let mut from = vec![CUgraphNode::NULL; edges];
    let mut to = vec![CUgraphNode::NULL; edges];
    let listed = edges > 0
        && next::cuGraphGetEdges(
            graph,
            Out::buffer(&mut from),
            Out::buffer(&mut to),
            Out::to(&mut edges),
        ) == CUresult::SUCCESS;
    let mut roots = 0;
    told(next::cuGraphGetRootNodes(
        graph,
        nowhere,
        Out::to(&mut roots),
    ))?;
    let further = if listed {
        from.sort_unstable_by_key(|node| node.0 as u64);
        from.dedup();
        // As many edges as there are successors, less one for each node that has any.
        edges.saturating_sub(from.len())
    } else {
        // Edges with data of their own are not listed by this call.
        edges
    };
    Some((roots as u64).saturating_add(further as u64))
}

/// A graph with its nodes and their types.
type Level = (CUgraph, Vec<(CUgraphNode, CUgraphNodeType)>);

fn told(code: CUresult) -> Option<()> {
    (code == CUresult::SUCCESS).then_some(())
}

fn nodes(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let mut count = 0;
    let nowhere = Out::<CUgraphNode>::nowhere();
    told(next::cuGraphGetNodes(graph, nowhere, Out::to(&mut count)))?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        told(next::cuGraphGetNodes(
            graph,
            Out::buffer(&mut nodes),
            Out::to(&mut count),
        ))?;
        nodes.truncate(count);
    }
    Some(nodes)
}

/// What a device's graphs hold, by the driver.
fn held(device: &Device) -> Option<Bytes> {
    let mut held = 0;
    let code = next::cuDeviceGetGraphMemAttribute(
        device.ordinal as CUdevice,
        RESERVED,
        Out::word(&mut held),
    );
    (code == CUresult::SUCCESS).then_some(Bytes(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_needs_the_union_of_its_ranges_in_whole_steps() {
        let step = POOL_STEP.0;
        let ranges = vec![
            (0, 8 * step, 10 * step),
            (1, 9 * step, 10 * step),
            (0, 9 * step + 1, 11 * step + 1),
            (0, 8 * step + 5, 9 * step),
            (0, 40 * step + 1, 40 * step + 2),
        ];
        let need = |ordinal, steps| Need {
            ordinal,
            bytes: Bytes(steps * step),
        };
        assert_eq!(union(ranges), [need(0, 5), need(1, 1)]);
        assert_eq!(union(Vec::new()), []);
    }
}
