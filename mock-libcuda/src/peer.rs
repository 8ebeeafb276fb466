//! Access between devices' contexts: what a context may reach, and how fast. What joins two devices is the profile's to
//! say. Recorded is one H200 alone; what two answer follows cuda.h and reports from the field.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::process::{ContextId, Owner, Process};

impl Process {
    /// The current context and its peer, in this order.
    fn pair(&self, peer: CUcontext) -> Result<(ContextId, ContextId), CUresult> {
        let current = self.current()?;
        if peer.is_null() {
            return Err(CUresult::ERROR_INVALID_CONTEXT);
        }
        Ok((current, self.context_followed(peer)?))
    }

    /// Devices other than its own whose memory this device's contexts reach.
    fn peer_devices(&self, device: Ordinal) -> Vec<Ordinal> {
        let own = self
            .contexts
            .iter()
            .filter(|context| context.alive && context.device == device);
        let mut found: Vec<Ordinal> = own
            .flat_map(|context| &context.peers)
            .map(|peer| self.context(*peer).device)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether some context of one device reaches the other's memory, in either direction: then copies need no detour.
    pub fn are_joined(&self, one: Ordinal, other: Ordinal) -> bool {
        self.peer_devices(one).contains(&other) || self.peer_devices(other).contains(&one)
    }

    /// Whether work of a context reaches an address. What the driver does not know is not its to refuse.
    pub fn reaches(&self, context: ContextId, address: u64) -> bool {
        let own = self.context(context).device;
        if let Some((_, allocation)) = self.holding(address, 0) {
            return match allocation.owner {
                Owner::Managed => true,
                _ if allocation.device == own => true,
                Owner::Pool(id) => self.pools[id.0 as usize].is_open_to(own),
                // Opening it made the devices peers.
                Owner::Opened => true,
                _ => self.context(context).peers.contains(&allocation.context),
            };
        }
        true
    }

    /// A context that ends is nobody's peer any more.
    pub fn part(&mut self, gone: ContextId) {
        for context in &mut self.contexts {
            context.peers.remove(&gone);
        }
        self.context_mut(gone).peers.clear();
    }
}

impl Driver {
    /// The same device, or one whose memory it reaches.
    pub fn is_open_to(&self, memory: Ordinal, device: Ordinal) -> bool {
        memory == device || self.link(device, memory).reaches()
    }
}

pub fn enable(peer: CUcontext, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (current, peer) = process.pair(peer)?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let (own, far) = (
        process.context(current).device,
        process.context(peer).device,
    );
    if !driver.link(own, far).reaches() {
        return Err(CUresult::ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    if process.context(current).peers.contains(&peer) {
        return Err(CUresult::ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    let known = process.peer_devices(own);
    let most = driver.world.machine().peer.most.unwrap_or(u32::MAX);
    if !known.contains(&far) && known.len() >= most as usize {
        return Err(CUresult::ERROR_TOO_MANY_PEERS);
    }
    process.context_mut(current).peers.insert(peer);
    Ok(())
}

pub fn disable(peer: CUcontext) -> Answer {
    let mut process = driver::get()?.lock();
    let (current, peer) = process.pair(peer)?;
    match process.context_mut(current).peers.remove(&peer) {
        true => Ok(()),
        false => Err(CUresult::ERROR_PEER_ACCESS_NOT_ENABLED),
    }
}

/// What atomics between host and device can do natively: nothing, over PCIe.
pub fn host_atomics(
    out: Out<c_uint>,
    operations: In<CUatomicOperation>,
    count: c_uint,
    dev: CUdevice,
) -> Answer {
    let out = out.required()?;
    if operations.is_null() || count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver::get()?.ordinal(dev)?;
    for at in 0..count as usize {
        out.nth(at).set(0);
    }
    Ok(())
}

/// What a link that carries atomics can do with an operation: the integers' natively, floats' only added.
fn carried(operation: CUatomicOperation) -> c_uint {
    const SIGNED: c_uint = 1;
    const UNSIGNED: c_uint = 2;
    const REDUCTION: c_uint = 4;
    const SCALAR_32: c_uint = 8;
    const SCALAR_64: c_uint = 16;
    const FLOAT_ADD: CUatomicOperation = 10;
    match operation {
        0..FLOAT_ADD => SIGNED | UNSIGNED | REDUCTION | SCALAR_32 | SCALAR_64,
        FLOAT_ADD => REDUCTION | SCALAR_32 | SCALAR_64,
        _ => 0,
    }
}

/// Between devices, of which a pair must be two.
pub fn peer_atomics(
    out: Out<c_uint>,
    operations: In<CUatomicOperation>,
    count: c_uint,
    source: CUdevice,
    target: CUdevice,
) -> Answer {
    let driver = driver::get()?;
    let out = out.required()?;
    if operations.is_null() || count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let (source, target) = (driver.ordinal(source)?, driver.ordinal(target)?);
    if source == target {
        return Err(CUresult::ERROR_INVALID_DEVICE);
    }
    let atomic = driver.link(source, target).is_atomic();
    for at in 0..count as usize {
        let operation = operations.nth(at).filter(|_| atomic);
        out.nth(at).set(operation.map_or(0, carried));
    }
    Ok(())
}

/// How many elements a texture of linear memory may have.
pub fn linear_texture_width(
    width: Out<usize>,
    format: CUarray_format,
    channels: c_uint,
    dev: CUdevice,
) -> Answer {
    const MOST: usize = 1 << 30;
    let driver = driver::get()?;
    let width = width.required()?;
    driver.ordinal(dev)?;
    let known = crate::shape::channel_bytes(format).is_some() && matches!(channels, 1 | 2 | 4);
    if !known {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    width.set(MOST);
    Ok(())
}
