//! The library as one process holds it: how often it was initialised, and its device handles.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use abi::nvml::*;
use mock_device::{DeviceIndex, DeviceProfile, World};

/// nvmlInit counts up, nvmlShutdown down.
static USERS: AtomicU32 = AtomicU32::new(0);

/// The simulated machine; `None`, once said on stderr, where it cannot be opened.
pub fn world() -> Option<&'static World> {
    static SAID: Once = Once::new();
    match World::ambient() {
        Ok(world) => Some(world),
        Err(error) => {
            SAID.call_once(|| {
                eprintln!("mock-nvml: the simulated machine cannot be opened: {error}")
            });
            None
        }
    }
}

pub fn initialised() -> bool {
    USERS.load(Ordering::Acquire) > 0
}

pub fn enter_user() {
    USERS.fetch_add(1, Ordering::AcqRel);
}

/// False where there was no user.
pub fn leave_user() -> bool {
    USERS
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| {
            users.checked_sub(1)
        })
        .is_ok()
}

/// The machine of an initialised library; UNINITIALIZED otherwise.
pub fn ready() -> Result<&'static World, nvmlReturn_t> {
    if !initialised() {
        return Err(nvmlReturn_t::ERROR_UNINITIALIZED);
    }
    world().ok_or(nvmlReturn_t::ERROR_UNKNOWN)
}

/// Above what a process can map, so that no handle is ever a valid address.
const HANDLES: u64 = 0x00d0_0000_0000_0000;

pub fn handle(index: DeviceIndex) -> nvmlDevice_t {
    nvmlDevice_t((HANDLES | u64::from(index.0) << 4) as *mut c_void)
}

/// The device of a handle; INVALID_ARGUMENT for any other number.
pub fn device(handle: nvmlDevice_t) -> Result<DeviceIndex, nvmlReturn_t> {
    let number = (handle.0 as u64 ^ HANDLES).rotate_right(4);
    let count = world().map_or(0, |world| world.devices().len() as u64);
    if number < count {
        Ok(DeviceIndex(number as u32))
    } else {
        Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT)
    }
}

pub fn profile(world: &'static World, index: DeviceIndex) -> &'static DeviceProfile {
    &world.devices()[index.as_usize()]
}
