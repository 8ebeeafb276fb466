//! Memory that graphs allocate: addresses at the node, memory at the first upload or launch, kept until a trim.

use std::collections::BTreeMap;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::boundary::{Answer, Out};
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
}

#[derive(Default)]
pub struct GraphMemory {
    /// Address → length of what is backed by device memory, by device.
    backed: BTreeMap<(usize, u64), u64>,
    /// Address → length of what is allocated now.
    live: BTreeMap<u64, (usize, u64)>,
    used_high: BTreeMap<usize, u64>,
    reserved_high: BTreeMap<usize, u64>,
}

impl GraphMemory {
    fn reserved(&self, device: usize) -> u64 {
        let own = self.backed.iter().filter(|((of, _), _)| *of == device);
        own.map(|(_, len)| len).sum()
    }

    fn used(&self, device: usize) -> u64 {
        let own = self.live.values().filter(|(of, _)| *of == device);
        own.map(|(_, len)| len).sum()
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

/// Takes device memory for the addresses that an executable graph allocates, as far as they have none.
pub fn back(process: &mut Process, driver: &Driver, exec: u32) -> Answer {
    let (allocated, _) = allocations(&process.graphs.execs[&exec].body);
    for allocation in allocated {
        let device = allocation.device;
        let block = driver.profile(device).block.0;
        let len = allocation.size.next_multiple_of(block);
        let key = (device.0, allocation.address);
        let known = process.graphs.memory.backed.get(&key).copied().unwrap_or(0);
        if known >= len {
            continue;
        }
        process.charge(driver, device, Kind::Pool, len - known)?;
        let memory = &mut process.graphs.memory;
        memory.backed.insert(key, len);
        let reserved = memory.reserved(device.0);
        let high = memory.reserved_high.entry(device.0).or_default();
        *high = reserved.max(*high);
    }
    Ok(())
}

/// What a launch does to the books of memory: allocations without a free node are the client's from here on.
pub fn begin_launch(process: &mut Process, driver: &Driver, id: u32) -> Answer {
    back(process, driver, id)?;
    let exec = &process.graphs.execs[&id];
    let (allocated, freed) = allocations(&exec.body);
    let auto_free = exec.flags & exec::AUTO_FREE != 0;
    for allocation in &allocated {
        if process.graphs.memory.live.contains_key(&allocation.address) && !auto_free {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
    }
    for allocation in allocated {
        let memory = &mut process.graphs.memory;
        let entry = (allocation.device.0, allocation.size);
        memory.live.insert(allocation.address, entry);
        let used = memory.used(allocation.device.0);
        let high = memory.used_high.entry(allocation.device.0).or_default();
        *high = used.max(*high);
    }
    for address in freed {
        process.graphs.memory.live.remove(&address);
    }
    Ok(())
}

/// Gives back what no live allocation lies in.
pub fn trim(device: CUdevice) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(device)?;
    let mut process = driver.lock();
    let memory = &mut process.graphs.memory;
    let live = std::mem::take(&mut memory.live);
    let mut gone = 0;
    memory.backed.retain(|(of, address), len| {
        let keep = *of != device.0 || live.contains_key(address);
        if !keep {
            gone += *len;
        }
        keep
    });
    memory.live = live;
    driver
        .world
        .give_back(driver.index(device), Kind::Pool, Bytes(gone));
    Ok(())
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
        attribute::USED_CURRENT => memory.used(device),
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
        attribute::USED_HIGH => memory.used_high.insert(device, memory.used(device)),
        attribute::RESERVED_HIGH => memory.reserved_high.insert(device, memory.reserved(device)),
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    Ok(())
}
