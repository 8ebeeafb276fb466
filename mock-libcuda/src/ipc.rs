//! cuIpcGetMemHandle and its kin: 64 bytes that name an allocation to another process. What that opened keeps the memory
//! after its maker freed it or died (decision 11).

use std::collections::HashMap;

use abi::cuda::*;
use mock_device::{Kind, ObjectId};

use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};
use crate::process::{Owner, Process};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
const MARK: u64 = u64::from_le_bytes(*b"ringmemh");

/// CUipcMemHandle's eight words: mark, object, where in it the allocation begins, its size.
type Words = [u64; 8];

/// Opened allocations, by address: how often.
pub type Opened = HashMap<u64, u32>;

fn words(handle: &CUipcMemHandle) -> Words {
    let bytes = handle.reserved.map(|byte| byte as u8);
    std::array::from_fn(|at| {
        let word = bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(word)
    })
}

pub fn get_handle(out: Out<CUipcMemHandle>, address: CUdeviceptr) -> Answer {
    let out = out.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let (base, allocation) = process.holding(address, 1).ok_or(INVALID)?;
    let allocation = *allocation;
    let block = driver.profile(allocation.device).block.0;
    let (start, len) = match allocation.owner {
        Owner::Blocks => (base, allocation.taken),
        Owner::Shared => (base / block * block, block),
        _ => return Err(INVALID),
    };
    let object = process.share(driver, allocation.device, Kind::Memory, start, len)?;
    let words: Words = [
        MARK,
        object.id().0,
        base - start,
        allocation.size,
        0,
        0,
        0,
        0,
    ];
    out.cast::<Words>().set(words);
    Ok(())
}

/// The second version gives the same address again, the first refuses.
fn open(out: Out<CUdeviceptr>, handle: &CUipcMemHandle, flags: c_uint, again: bool) -> Answer {
    let out = out.required()?;
    if flags != LAZY_ENABLE_PEER_ACCESS {
        return Err(INVALID);
    }
    let words = words(handle);
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    if words[0] != MARK {
        return Err(INVALID);
    }
    let id = ObjectId(words[1]);
    let base = match process.sharing.of(id) {
        Some((_, false)) => return Err(CUresult::ERROR_INVALID_CONTEXT),
        Some((base, true)) => base,
        None => {
            let object = driver.world.open_object(id).map_err(|_| INVALID)?;
            let own = driver.index(process.context(context).device);
            let machine = driver.world.machine();
            // Opening makes the two devices peers, where they can be.
            if object.device() != own && !machine.link(own, object.device()).reaches() {
                return Err(CUresult::ERROR_PEER_ACCESS_UNSUPPORTED);
            }
            process.adopt(driver, object)?.0
        }
    };
    let address = base + words[2];
    // In one context of a device (H200: `fixtures/oracle/held-580.txt`, handles).
    let opener = process.allocations.get(&address).map(|known| known.context);
    let is_elsewhere = opener
        .filter(|_| process.opened.contains_key(&address))
        .is_some_and(|opener| {
            opener != context && process.context(opener).device == process.context(context).device
        });
    if is_elsewhere {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    if let Some(count) = process.opened.get_mut(&address) {
        if !again {
            return Err(CUresult::ERROR_ALREADY_MAPPED);
        }
        *count += 1;
    } else {
        process.opened.insert(address, 1);
        process.enter(address, words[3], words[3], context, Owner::Opened);
    }
    out.set(address);
    Ok(())
}

pub fn open_handle(out: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: c_uint) -> Answer {
    open(out, &handle, flags, false)
}

pub fn open_handle_again(out: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: c_uint) -> Answer {
    open(out, &handle, flags, true)
}

pub fn close_handle(address: CUdeviceptr) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let count = process.opened.get_mut(&address).ok_or(INVALID)?;
    *count -= 1;
    if *count == 0 {
        process.close_opened(driver, address);
    }
    Ok(())
}

impl Process {
    /// Ends an opened allocation, and what it mapped with the last one there.
    pub fn close_opened(&mut self, driver: &Driver, address: u64) {
        self.opened.remove(&address);
        self.allocations.remove(&address);
        let Some((base, len)) = self.sharing.around(address) else {
            return;
        };
        let mut others = self.allocations.range(base..base + len);
        if others.next().is_none() {
            self.abandon(driver, base);
        }
    }
}
