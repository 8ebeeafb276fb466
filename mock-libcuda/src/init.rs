//! cuInit and what answers without it.

use std::sync::{Mutex, PoisonError};

use abi::cuda::*;
use mock_device::{Api, DeviceIndex, Kind, World};

use crate::boundary::{Answer, Out};
use crate::driver;
use crate::settings::Settings;
use crate::visible::{self, Visible};

static INITIALISING: Mutex<()> = Mutex::new(());

pub fn init(flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let _one_at_a_time = INITIALISING.lock().unwrap_or_else(PoisonError::into_inner);
    if driver::exists() {
        // A fork child of an initialised process stays uninitialised for good.
        return driver::get().map(|_| ());
    }
    let world = driver::world().ok_or(CUresult::ERROR_UNKNOWN)?;
    let devices = choose(world, &Settings::read())?;
    for (at, device) in devices.iter().enumerate() {
        let overhead = world.devices()[device.as_usize()].init_overhead;
        if world.take(*device, Kind::Unlisted, overhead).is_err() {
            for taken in &devices[..at] {
                world.give_back(
                    *taken,
                    Kind::Unlisted,
                    world.devices()[taken.as_usize()].init_overhead,
                );
            }
            return Err(CUresult::ERROR_OUT_OF_MEMORY);
        }
    }
    driver::install(world, devices);
    Ok(())
}

fn choose(world: &World, settings: &Settings) -> Result<Vec<DeviceIndex>, CUresult> {
    let mut devices: Vec<DeviceIndex> =
        (0..world.devices().len() as u32).map(DeviceIndex).collect();
    if settings.by_pci {
        devices.sort_by_key(|device| world.identity(*device, Api::Cuda).pci);
    }
    devices = world.shown_of(Api::Cuda, devices);
    if let Some(list) = &settings.visible {
        let uuids: Vec<[u8; 16]> = devices
            .iter()
            .map(|device| world.identity(*device, Api::Cuda).uuid)
            .collect();
        devices = match visible::parse(list, &uuids) {
            Visible::Devices(chosen) => chosen.into_iter().map(|at| devices[at]).collect(),
            Visible::Twice => return Err(CUresult::ERROR_INVALID_DEVICE),
        };
    }
    if devices.is_empty() {
        Err(CUresult::ERROR_NO_DEVICE)
    } else {
        Ok(devices)
    }
}

pub fn driver_version(version: Out<c_int>) -> Answer {
    let world = driver::world().ok_or(CUresult::ERROR_UNKNOWN)?;
    version.required()?.set(world.machine().driver.cuda_version);
    Ok(())
}
