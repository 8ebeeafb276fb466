//! How devices lie to one another and to the host's processors. The simulated host is one NUMA node; its devices are ports
//! of one host bridge, or NVLink's where the profile's table says that links are up.

use abi::nvml::*;

use crate::boundary::{Answer, Out, crash};
use crate::device::all;
use crate::library;

const HOST_BRIDGE: c_int = 30;
const NOT_SUPPORTED: c_int = 5;

pub fn common_ancestor(first: nvmlDevice_t, second: nvmlDevice_t, level: Out<c_int>) -> Answer {
    library::ready()?;
    let (first, second) = (library::device(first)?, library::device(second)?);
    if first == second {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    level.required()?.set(HOST_BRIDGE);
    Ok(())
}

/// The other devices at that level. In: room; out: how many there are.
pub fn nearest(
    device: nvmlDevice_t,
    level: c_int,
    count: Out<c_uint>,
    handles: Out<nvmlDevice_t>,
) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let others: Vec<_> = all(world)
        .filter(|other| level == HOST_BRIDGE && *other != device)
        .map(library::handle)
        .collect();
    give(&others, count, handles)
}

/// Every device is near every processor of a host with one node.
pub fn gpu_set(_processor: c_uint, count: Out<c_uint>, handles: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    if count.is_null() {
        crash();
    }
    let all: Vec<_> = all(world).map(library::handle).collect();
    give(&all, count, handles)
}

/// Where there is no array, only the count is told.
fn give(found: &[nvmlDevice_t], count: Out<c_uint>, handles: Out<nvmlDevice_t>) -> Answer {
    let count = count.required()?;
    let room = count.get() as usize;
    count.set(found.len() as c_uint);
    if room == 0 {
        return Ok(());
    }
    let handles = handles.required()?;
    for (at, handle) in found.iter().take(room).enumerate() {
        handles.nth(at).set(*handle);
    }
    Ok(())
}

/// No pair reaches the other's memory over PCIe on the recorded host; a question that is none is answered with OK, as there.
pub fn p2p_status(
    first: nvmlDevice_t,
    second: nvmlDevice_t,
    capability: c_int,
    status: Out<c_int>,
) -> Answer {
    library::ready()?;
    library::device(first)?;
    library::device(second)?;
    let answer = if (0..5).contains(&capability) {
        NOT_SUPPORTED
    } else {
        0
    };
    status.required()?.set(answer);
    Ok(())
}

pub fn same_board(first: nvmlDevice_t, second: nvmlDevice_t, same: Out<c_int>) -> Answer {
    library::ready()?;
    let (first, second) = (library::device(first)?, library::device(second)?);
    same.required()?.set(c_int::from(first == second));
    Ok(())
}

/// The processors that there are, as bits; and the one node.
fn bits(set: Out<u64>, words: c_uint, first: u64) -> Answer {
    let set = set.required()?;
    if words == 0 {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    for at in 0..words as usize {
        set.nth(at).set(if at == 0 { first } else { 0 });
    }
    Ok(())
}

fn processors() -> u64 {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get());
    u64::MAX >> (64 - count.clamp(1, 64))
}

pub fn cpu_affinity(device: nvmlDevice_t, words: c_uint, set: Out<u64>) -> Answer {
    library::ready()?;
    library::device(device)?;
    bits(set, words, processors())
}

/// Scope 0 is the node, 1 the socket.
pub fn cpu_affinity_within(
    device: nvmlDevice_t,
    words: c_uint,
    set: Out<u64>,
    scope: c_uint,
) -> Answer {
    library::ready()?;
    library::device(device)?;
    if scope > 1 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    bits(set, words, processors())
}

pub fn memory_affinity(
    device: nvmlDevice_t,
    words: c_uint,
    set: Out<u64>,
    scope: c_uint,
) -> Answer {
    library::ready()?;
    library::device(device)?;
    if scope > 1 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    bits(set, words, 1)
}
