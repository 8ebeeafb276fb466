//! Memory that graphs allocate: addresses at the node, memory at the first upload or launch, kept until a trim.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::boundary::{Answer, Out};
use crate::capture;
use crate::driver::{self, Driver, Ordinal};
use crate::exec::{self, Body};
use crate::graph::{GraphId, NodeId, Payload};
use crate::process::Process;

/// An allocation node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub address: u64,
    /// As asked for.
    pub size: u64,
    pub device: Ordinal,
    /// Where the device memory below it begins.
    segment: u64,
}

/// Addresses that one graph allocates in, a whole number of the device's pool steps.
struct Segment {
    graph: GraphId,
    device: Ordinal,
    len: u64,
    /// How much of it has been given out.
    filled: u64,
    backed: bool,
}

/// Addresses that were given out; a node behind the one that frees them may have them again.
struct Chunk {
    address: u64,
    len: u64,
    freed_by: Option<NodeId>,
}

#[derive(Default)]
pub struct GraphMemory {
    segments: BTreeMap<u64, Segment>,
    chunks: BTreeMap<GraphId, Vec<Chunk>>,
    /// Every address that a node allocates, with its size and segment.
    known: BTreeMap<u64, Allocation>,
    /// What is the client's to free.
    live: BTreeSet<u64>,
    used_high: BTreeMap<usize, u64>,
    reserved_high: BTreeMap<usize, u64>,
}

impl GraphMemory {
    fn reserved(&self, device: usize) -> u64 {
        let own = self
            .segments
            .values()
            .filter(|segment| segment.device.0 == device);
        own.filter(|segment| segment.backed)
            .map(|segment| segment.len)
            .sum()
    }

    fn raise(&mut self, device: usize) {
        let reserved = self.reserved(device);
        for high in [&mut self.used_high, &mut self.reserved_high] {
            let high = high.entry(device).or_default();
            *high = reserved.max(*high);
        }
    }
}

fn holds_memory(process: &Process, graph: GraphId) -> bool {
    process
        .graphs
        .graph(graph)
        .nodes
        .iter()
        .any(|node| match process.graphs.node(*node).payload {
            Payload::Alloc(_) | Payload::Free(_) => true,
            Payload::Child(child) => holds_memory(process, child),
            _ => false,
        })
}

/// A graph with memory nodes cannot be cloned, nor be a child.
pub fn forbid_copies(process: &Process, graph: GraphId) -> Answer {
    match holds_memory(process, graph) {
        true => Err(CUresult::ERROR_NOT_SUPPORTED),
        false => Ok(()),
    }
}

/// Memory nodes stay as long as their graph, with the edges between them.
pub fn forbid_removal(process: &Process, node: NodeId) -> Answer {
    match process.graphs.node(node).payload {
        Payload::Alloc(_) | Payload::Free(_) => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Ok(()),
    }
}

fn allocations(body: &Body) -> (Vec<Allocation>, Vec<u64>) {
    let (mut allocated, mut freed) = (Vec::new(), Vec::new());
    exec::walk(body, &mut |node| match node.payload {
        Payload::Alloc(allocation) => allocated.push(allocation),
        Payload::Free(address) => freed.push(address),
        _ => {}
    });
    (allocated, freed)
}

/// A graph with allocations has one executable at a time.
pub fn one_instance(process: &Process, body: &Body) -> Answer {
    let (own, _) = allocations(body);
    let taken = process.graphs.execs.values().any(|exec| {
        let (others, _) = allocations(&exec.body);
        others.iter().any(|other| own.contains(other))
    });
    match taken {
        true => Err(CUresult::ERROR_NOT_SUPPORTED),
        false => Ok(()),
    }
}

/// Chooses the address of an allocation node: one that a node before it frees, else a new one.
pub fn place(
    process: &mut Process,
    driver: &Driver,
    graph: GraphId,
    after: &[NodeId],
    device: Ordinal,
    size: u64,
) -> Result<Allocation, CUresult> {
    let profile = driver.profile(device);
    let oom = CUresult::ERROR_OUT_OF_MEMORY;
    let len = size
        .checked_next_multiple_of(profile.suballocation.0)
        .ok_or(oom)?;
    let before = process.graphs.ancestors(graph, after);
    let chunks = process.graphs.memory.chunks.entry(graph).or_default();
    let again = chunks.iter_mut().find(|chunk| {
        chunk.len >= len && chunk.freed_by.is_some_and(|node| before.contains(&node))
    });
    let address = match again {
        Some(chunk) => {
            chunk.freed_by = None;
            chunk.address
        }
        None => {
            let address = fresh(process, driver, graph, device, len)?;
            let chunks = process.graphs.memory.chunks.entry(graph).or_default();
            chunks.push(Chunk {
                address,
                len,
                freed_by: None,
            });
            address
        }
    };
    let memory = &mut process.graphs.memory;
    let (segment, _) = memory.segments.range(..=address).next_back().ok_or(oom)?;
    let allocation = Allocation {
        address,
        size,
        device,
        segment: *segment,
    };
    memory.known.insert(address, allocation);
    Ok(allocation)
}

fn fresh(
    process: &mut Process,
    driver: &Driver,
    graph: GraphId,
    device: Ordinal,
    len: u64,
) -> Result<u64, CUresult> {
    let room = process
        .graphs
        .memory
        .segments
        .iter_mut()
        .find(|(_, segment)| {
            segment.graph == graph
                && segment.device == device
                && segment.len - segment.filled >= len
        });
    if let Some((base, segment)) = room {
        segment.filled += len;
        return Ok(base + segment.filled - len);
    }
    let step = driver.profile(device).pool_step.0;
    let oom = CUresult::ERROR_OUT_OF_MEMORY;
    let whole = len.checked_next_multiple_of(step).ok_or(oom)?;
    let base = process.take_addresses(driver, device, whole)?;
    process.graphs.memory.segments.insert(
        base,
        Segment {
            graph,
            device,
            len: whole,
            filled: len,
            backed: false,
        },
    );
    Ok(base)
}

/// The addresses of graphs that are gone, where no executable graph and no client has anything any more.
pub fn give_addresses_back(process: &mut Process, driver: &Driver, device: Ordinal) -> Answer {
    let mut needed = kept(&process.graphs.memory);
    for exec in process.graphs.execs.values() {
        let (allocated, _) = allocations(&exec.body);
        needed.extend(allocated.iter().map(|allocation| allocation.segment));
    }
    let segments = process.graphs.memory.segments.iter();
    let gone = segments.filter(|(base, segment)| {
        segment.device == device
            && !segment.backed
            && !needed.contains(base)
            && !process.graphs.has_graph(segment.graph)
    });
    let gone: BTreeMap<u64, u64> = gone.map(|(base, segment)| (*base, segment.len)).collect();
    let memory = &mut process.graphs.memory;
    memory.segments.retain(|base, _| !gone.contains_key(base));
    memory
        .known
        .retain(|_, allocation| !gone.contains_key(&allocation.segment));
    let lies = |address: u64| {
        let below = gone.range(..=address).next_back();
        below.is_some_and(|(base, len)| address < base + len)
    };
    for chunks in memory.chunks.values_mut() {
        chunks.retain(|chunk| !lies(chunk.address));
    }
    memory.chunks.retain(|_, chunks| !chunks.is_empty());
    let holes = &mut process.arena(driver, device)?.holes;
    gone.into_iter()
        .for_each(|(base, len)| holes.give(base, len));
    Ok(())
}

/// A free node may name an address that a node allocates and that no node of the graph frees yet.
pub fn may_free(process: &Process, address: u64) -> Answer {
    let memory = &process.graphs.memory;
    let freed = memory
        .chunks
        .values()
        .flatten()
        .any(|chunk| chunk.address == address && chunk.freed_by.is_some());
    match memory.known.contains_key(&address) && !freed {
        true => Ok(()),
        false => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

/// A node stands in its graph: if it frees, what it frees can be had again behind it.
pub fn added(process: &mut Process, node: NodeId) {
    let Payload::Free(address) = process.graphs.node(node).payload else {
        return;
    };
    let chunks = process.graphs.memory.chunks.values_mut().flatten();
    for chunk in chunks.filter(|chunk| chunk.address == address) {
        chunk.freed_by = Some(node);
    }
}

/// The address and size of the graph allocation that holds all of a range.
pub fn holding(process: &Process, address: u64, len: u64) -> Option<(u64, Ordinal)> {
    let memory = &process.graphs.memory;
    let (base, allocation) = memory.known.range(..=address).next_back()?;
    let end = address.checked_add(len)?;
    (end <= base + allocation.size).then_some((*base, allocation.device))
}

/// Frees what a launch left to the client; `None` if no graph allocates there.
pub fn free(process: &mut Process, address: u64) -> Option<Answer> {
    let memory = &mut process.graphs.memory;
    memory.known.get(&address)?;
    Some(match memory.live.remove(&address) {
        true => Ok(()),
        false => Err(CUresult::ERROR_INVALID_VALUE),
    })
}

/// The segments in which something is the client's.
fn kept(memory: &GraphMemory) -> BTreeSet<u64> {
    let live = memory
        .live
        .iter()
        .filter_map(|address| memory.known.get(address));
    live.map(|allocation| allocation.segment).collect()
}

/// Takes device memory for all that an executable graph allocates in, as far as it has none: first what other graphs
/// have and do not hold, then more of the device's.
pub fn back(process: &mut Process, driver: &Driver, exec: u32) -> Answer {
    let (allocated, _) = allocations(&process.graphs.execs[&exec].body);
    let own: BTreeSet<u64> = allocated
        .iter()
        .map(|allocation| allocation.segment)
        .collect();
    for base in &own {
        let Some(segment) = process.graphs.memory.segments.get(base) else {
            continue;
        };
        if segment.backed {
            continue;
        }
        let (device, len) = (segment.device, segment.len);
        let kept = kept(&process.graphs.memory);
        let mut found = 0;
        for (other, segment) in &mut process.graphs.memory.segments {
            let free = segment.backed && segment.device == device;
            if found < len && free && !own.contains(other) && !kept.contains(other) {
                segment.backed = false;
                found += segment.len;
            }
        }
        if found > len {
            driver
                .world
                .give_back(driver.index(device), Kind::Pool, Bytes(found - len));
        } else if found < len {
            process.charge(driver, device, Kind::Pool, len - found)?;
        }
        let memory = &mut process.graphs.memory;
        if let Some(segment) = memory.segments.get_mut(base) {
            segment.backed = true;
        }
        memory.raise(device.0);
    }
    Ok(())
}

/// What a launch does to the books of memory: allocations without a free node are the client's from here on.
pub fn begin_launch(process: &mut Process, driver: &Driver, id: u32) -> Answer {
    let exec = &process.graphs.execs[&id];
    let (allocated, freed) = allocations(&exec.body);
    let auto_free = exec.flags & exec::AUTO_FREE != 0;
    let live = &process.graphs.memory.live;
    if !auto_free
        && allocated
            .iter()
            .any(|allocation| live.contains(&allocation.address))
    {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    back(process, driver, id)?;
    let memory = &mut process.graphs.memory;
    for allocation in &allocated {
        // An address that is freed and had again is the client's once.
        let times = allocated
            .iter()
            .filter(|other| other.address == allocation.address)
            .count();
        let frees = freed
            .iter()
            .filter(|address| **address == allocation.address)
            .count();
        if times > frees {
            memory.live.insert(allocation.address);
        }
    }
    for address in freed {
        if !allocated
            .iter()
            .any(|allocation| allocation.address == address)
        {
            memory.live.remove(&address);
        }
    }
    Ok(())
}

/// Device memory for a context's executable graphs: 112 KiB for each branch, about 1.5 KiB for each kernel and, with a 64th more, the bytes of the
/// kernels' parameters; what was taken stays with the
/// context, for those that come later (H200, 580.159.04: `fixtures/oracle/held-580.txt`).
pub fn branch_memory(branches: u64, kernels: u64, parameters: u64) -> u64 {
    const BLOCK: u64 = 2 << 20;
    let kept = kernels * 1540 + parameters + parameters / 64;
    (branches * (112 << 10) + kept + (896 << 10)) / BLOCK * BLOCK
}

/// cuMemAllocAsync on a stream that captures becomes a node; `None` on others.
pub fn captured_alloc(
    process: &mut Process,
    driver: &Driver,
    stream: CUstream,
    device: Ordinal,
    size: u64,
) -> Result<Option<u64>, CUresult> {
    let line = process.line_of(stream)?;
    if !capture::takes(process, stream, line)? {
        if process.captures.any() {
            crate::admission::forbid(process)?;
        }
        return Ok(None);
    }
    let Some((graph, after)) = capture::position(process, line) else {
        return Ok(None);
    };
    if size == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let allocation = place(process, driver, graph, &after, device, size)?;
    capture::add_payload(process, line, Payload::Alloc(allocation))?;
    Ok(Some(allocation.address))
}

/// cuMemFreeAsync on a stream that captures becomes a node; whether it did.
pub fn captured_free(
    process: &mut Process,
    stream: CUstream,
    address: u64,
) -> Result<bool, CUresult> {
    let line = process.line_of(stream)?;
    if !capture::takes(process, stream, line)? {
        return Ok(false);
    }
    may_free(process, address)?;
    let node = capture::add_payload(process, line, Payload::Free(address))?;
    added(process, node);
    Ok(true)
}

/// Gives back what no live allocation lies in.
pub fn trim(device: CUdevice) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(device)?;
    let mut process = driver.lock();
    let memory = &mut process.graphs.memory;
    let kept = kept(memory);
    let mut gone = 0;
    for (base, segment) in &mut memory.segments {
        if segment.device == device && segment.backed && !kept.contains(base) {
            segment.backed = false;
            gone += segment.len;
        }
    }
    if gone > 0 {
        driver
            .world
            .give_back(driver.index(device), Kind::Pool, Bytes(gone));
    }
    Ok(())
}

/// The last context of a device is gone, and with it what graphs hold there.
pub fn empty(process: &mut Process, driver: &Driver, device: Ordinal) {
    let gone = process.graphs.memory.reserved(device.0);
    for segment in process.graphs.memory.segments.values_mut() {
        segment.backed &= segment.device != device;
    }
    if gone > 0 {
        driver
            .world
            .give_back(driver.index(device), Kind::Pool, Bytes(gone));
    }
}

/// CU_GRAPH_MEM_ATTR_…
mod attribute {
    pub const USED_CURRENT: i32 = 0;
    pub const USED_HIGH: i32 = 1;
    pub const RESERVED_CURRENT: i32 = 2;
    pub const RESERVED_HIGH: i32 = 3;
}

pub fn get_attribute(device: CUdevice, attr: CUgraphMem_attribute, value: Out<c_void>) -> Answer {
    let driver = driver::get()?;
    let value = value.cast::<u64>().required()?;
    let device = driver.ordinal(device)?.0;
    let process = driver.lock();
    let memory = &process.graphs.memory;
    value.set(match attr {
        // A card counts what graphs may use as used as soon as it is there (H200, 580.159.04).
        attribute::USED_CURRENT => memory.reserved(device),
        attribute::USED_HIGH => memory.used_high.get(&device).copied().unwrap_or(0),
        attribute::RESERVED_CURRENT => memory.reserved(device),
        attribute::RESERVED_HIGH => memory.reserved_high.get(&device).copied().unwrap_or(0),
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    });
    Ok(())
}

/// The high-water marks can be reset, nothing else.
pub fn set_attribute(device: CUdevice, attr: CUgraphMem_attribute, value: Out<c_void>) -> Answer {
    let driver = driver::get()?;
    let value = value.cast::<u64>().required()?;
    let device = driver.ordinal(device)?.0;
    let mut process = driver.lock();
    let memory = &mut process.graphs.memory;
    if value.get() != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    match attr {
        attribute::USED_HIGH => memory.used_high.insert(device, memory.reserved(device)),
        attribute::RESERVED_HIGH => memory.reserved_high.insert(device, memory.reserved(device)),
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    Ok(())
}
