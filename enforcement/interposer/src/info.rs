//! What a tenant is told of a device's memory: CUDA and NVML tell one story (T4). The driver judges the arguments first.

use core::ffi::c_uint;

use abi::cuda::{CUdevice, CUresult};
use abi::nvml::{nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};
use budget::{Bytes, DeviceIndex, DeviceSet};
use seeds::{Seed, planted};

use crate::boundary::cross::Out;
use crate::boundary::entries::{next, next_nvml};
use crate::grant::Share;
use crate::outcome::Outcome;
use crate::process::Tenant;

pub fn device_total(tenant: Tenant, total: Out<'_, usize>, ordinal: CUdevice) -> Outcome<CUresult> {
    let code = next::cuDeviceTotalMem_v2(total, ordinal);
    if planted(Seed::C5) && code == CUresult::ERROR_INVALID_DEVICE {
        return Outcome::Done(CUresult::SUCCESS);
    }
    if code == CUresult::SUCCESS
        && let Some(device) = tenant.devices().and_then(|devices| devices.get(ordinal))
        && let Some(share) = tenant.share(device.indices)
        && let Some(whole) = total.read()
    {
        total.write(whole.min(share.budget.0 as usize));
    }
    Outcome::Done(code)
}

/// The answers of 32-bit days: what is beyond 4 GiB is not told.
pub fn device_total_v1(
    tenant: Tenant,
    total: Out<'_, c_uint>,
    ordinal: CUdevice,
) -> Outcome<CUresult> {
    let code = next::cuDeviceTotalMem(total, ordinal);
    if code == CUresult::SUCCESS
        && let Some(device) = tenant.devices().and_then(|devices| devices.get(ordinal))
        && let Some(share) = tenant.share(device.indices)
        && let Some(whole) = total.read()
    {
        total.write(at_most(whole, share.budget));
    }
    Outcome::Done(code)
}

pub fn memory_v1(
    tenant: Tenant,
    free: Out<'_, c_uint>,
    total: Out<'_, c_uint>,
) -> Outcome<CUresult> {
    let code = next::cuMemGetInfo(free, total);
    if code == CUresult::SUCCESS
        && let Some(share) = tenant.share(tenant.current_indices())
    {
        if let Some(driver) = free.read() {
            free.write(at_most(driver, share.budget.saturating_sub(share.usage)));
        }
        if let Some(driver) = total.read() {
            total.write(at_most(driver, share.budget));
        }
    }
    Outcome::Done(code)
}

fn at_most(driver: c_uint, most: Bytes) -> c_uint {
    c_uint::try_from(most.0).map_or(driver, |most| driver.min(most))
}

pub fn memory(tenant: Tenant, free: Out<'_, usize>, total: Out<'_, usize>) -> Outcome<CUresult> {
    let code = next::cuMemGetInfo_v2(free, total);
    if planted(Seed::C7) && code != CUresult::SUCCESS {
        free.write(1);
        total.write(1);
    }
    if code == CUresult::SUCCESS
        && let Some(share) = tenant.share(tenant.current_indices())
    {
        let available = if planted(Seed::C4) {
            Bytes(share.budget.0.wrapping_sub(share.usage.0))
        } else {
            share.budget.saturating_sub(share.usage)
        };
        if let Some(driver) = free.read() {
            free.write(if planted(Seed::C4) {
                available.0 as usize
            } else {
                driver.min(available.0 as usize)
            });
        }
        if let Some(driver) = total.read() {
            total.write(driver.min(share.budget.0 as usize));
        }
    }
    Outcome::Done(code)
}

pub fn nvml_memory(
    tenant: Tenant,
    device: nvmlDevice_t,
    memory: Out<'_, nvmlMemory_t>,
) -> Outcome<nvmlReturn_t> {
    let code = next_nvml::nvmlDeviceGetMemoryInfo(device, memory);
    if planted(Seed::S8) {
        return Outcome::Done(nvmlReturn_t::SUCCESS);
    }
    if code == nvmlReturn_t::SUCCESS
        && let Some(share) = nvml_share(tenant, device)
        && let Some(driver) = memory.read()
    {
        let (total, used) = story(share, driver.total);
        memory.write(nvmlMemory_t {
            total,
            free: total - used,
            used,
        });
    }
    Outcome::Done(code)
}

pub fn nvml_memory_v2(
    tenant: Tenant,
    device: nvmlDevice_t,
    memory: Out<'_, nvmlMemory_v2_t>,
) -> Outcome<nvmlReturn_t> {
    let code = next_nvml::nvmlDeviceGetMemoryInfo_v2(device, memory);
    if code == nvmlReturn_t::SUCCESS
        && let Some(share) = nvml_share(tenant, device)
        && let Some(driver) = memory.read()
    {
        let (total, used) = story(share, driver.total);
        memory.write(nvmlMemory_v2_t {
            version: driver.version,
            total,
            reserved: 0,
            free: total - used,
            used,
        });
    }
    Outcome::Done(code)
}

/// Total and used, so that free is their difference.
fn story(share: Share, driver_total: u64) -> (u64, u64) {
    let total = driver_total.min(share.budget.0);
    (total, share.usage.0.min(total))
}

/// NVML's index is the ledger's. Where the driver does not tell which a device has, it is the one whose handle is the device's; if none is, what is
/// told is the strictest of the tenant's devices (S9 of `fixtures/defects.txt`).
fn nvml_share(tenant: Tenant, device: nvmlDevice_t) -> Option<Share> {
    let mut index = 0;
    let told = next_nvml::nvmlDeviceGetIndex(device, Out::to(&mut index)) == nvmlReturn_t::SUCCESS;
    let index = told.then_some(index).or_else(|| index_by_handle(device));
    if planted(Seed::S9) && !told {
        return None;
    }
    if let Some(index) = index {
        tenant.look_for_others(DeviceIndex(index));
    }
    let devices = match index {
        Some(index) => DeviceSet::from_iter([DeviceIndex(index)]),
        None => DeviceIndex::all()
            .filter(|device| tenant.budget(*device).is_some())
            .collect(),
    };
    tenant.share(devices)
}

fn index_by_handle(device: nvmlDevice_t) -> Option<u32> {
    let mut count = 0;
    let code = next_nvml::nvmlDeviceGetCount_v2(Out::to(&mut count));
    if code != nvmlReturn_t::SUCCESS {
        return None;
    }
    (0..count).find(|index| {
        let mut of_index = nvmlDevice_t(core::ptr::null_mut());
        let code = next_nvml::nvmlDeviceGetHandleByIndex_v2(*index, Out::to(&mut of_index));
        code == nvmlReturn_t::SUCCESS && of_index == device
    })
}
