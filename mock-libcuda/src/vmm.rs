//! cuMemCreate: physical memory without an address. Mapping it is not simulated yet.

use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::boundary::{Answer, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::handle;

pub struct Physical {
    device: Ordinal,
    size: u64,
}

fn checked(driver: &Driver, prop: &CUmemAllocationProp) -> Result<Ordinal, CUresult> {
    const PINNED: c_int = 1;
    const ON_DEVICE: c_int = 1;
    if prop.type_ != PINNED || prop.location.type_ != ON_DEVICE {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver.ordinal(prop.location.id)
}

pub fn create(
    handle: Out<CUmemGenericAllocationHandle>,
    size: usize,
    prop: In<CUmemAllocationProp>,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let (handle, prop) = (handle.required()?, prop.required()?);
    let device = checked(driver, &prop)?;
    let granularity = driver.profile(device).vmm_granularity.0;
    if flags != 0 || size == 0 || !(size as u64).is_multiple_of(granularity) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver.lock();
    process.charge(driver, device, Kind::Vmm, size as u64)?;
    let id = process.next_handle();
    process.physical.insert(
        id,
        Physical {
            device,
            size: size as u64,
        },
    );
    handle.set(handle::encode(handle::Kind::Physical, id));
    Ok(())
}

pub fn release(handle: CUmemGenericAllocationHandle) -> Answer {
    let driver = driver::get()?;
    let id = handle::decode(handle::Kind::Physical, handle).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let physical = driver
        .lock()
        .physical
        .remove(&id)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    driver.world.give_back(
        driver.index(physical.device),
        Kind::Vmm,
        Bytes(physical.size),
    );
    Ok(())
}

pub fn granularity(
    granularity: Out<usize>,
    prop: In<CUmemAllocationProp>,
    option: c_int,
) -> Answer {
    let driver = driver::get()?;
    let (granularity, prop) = (granularity.required()?, prop.required()?);
    let device = checked(driver, &prop)?;
    if !matches!(option, 0 | 1) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    granularity.set(driver.profile(device).vmm_granularity.0 as usize);
    Ok(())
}
