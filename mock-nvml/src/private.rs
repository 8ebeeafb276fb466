//! What nvidia-smi asks through private functions: the bus id of a device by index, whether it can be watched, and process
//! rows with names; how two devices lie is [`crate::topology`]'s.

use abi::nvml::*;
use mock_device::Api;
use mock_device::nvml::Answer as Data;

use crate::boundary::{Answer, In, Out, private};
use crate::device;
use crate::library;
use crate::process::{self, List};
use crate::recorded;

/// `c4fe3e6c-c98f-6c4e-a327-ee696e12f7c4`.
const NVIDIA_SMI: [u8; 16] = [
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
];

/// A process row, 4128 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Row {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
    unknown: [c_uint; 2],
    name: [c_char; 4096],
}

const _: () = assert!(size_of::<Row>() == 4128 && std::mem::offset_of!(Row, name) == 32);

pub fn table(table: Out<*const c_void>, id: In<c_void>) -> Answer {
    let table = table.required()?;
    let id = id.sixteen().ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    if id != NVIDIA_SMI {
        return Err(nvmlReturn_t::ERROR_NOT_FOUND);
    }
    table.set(private::table());
    Ok(())
}

pub fn bus_id(index: c_uint, text: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    let device = device::all(world)
        .nth(index as usize)
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    let pci = world.identity(device, Api::Nvml).pci;
    text.required()?.set_text(&device::bus_text(pci), length)
}

/// Whether `nvidia-smi dmon` and `pmon` can watch the device: every simulated one.
pub fn monitorable(device: nvmlDevice_t, is: Out<c_uint>) -> Answer {
    library::ready()?;
    library::device(device)?;
    is.required()?.set(1);
    Ok(())
}

/// What the profile's table says by the public entry point of the same meaning: its number, or the field of its structure.
fn figure(device: nvmlDevice_t, entry: &str, field: &str, figure: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let figure = figure.required()?;
    let told = match library::answers(world, index).get(entry) {
        Some(Data::Fields(fields)) => fields.get(field).unwrap_or(&Data::Number(0)),
        Some(told) => told,
        None => return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
    };
    match told {
        Data::Number(number) => figure.set(*number as c_uint),
        other => {
            return Err(recorded::code(other).unwrap_or(nvmlReturn_t::ERROR_UNKNOWN));
        }
    }
    Ok(())
}

/// Milliwatts.
pub fn enforced_power_limit(device: nvmlDevice_t, milliwatts: Out<c_uint>) -> Answer {
    figure(device, "nvmlDeviceGetEnforcedPowerLimit", "", milliwatts)
}

/// Of the host's port. The simulated host bears what the device does.
pub fn host_pcie_generation(device: nvmlDevice_t, generation: Out<c_uint>) -> Answer {
    figure(device, "nvmlDeviceGetMaxPcieLinkGeneration", "", generation)
}

/// Degrees Celsius below the temperature at which the device slows down.
pub fn margin_temperature(device: nvmlDevice_t, margin: Out<c_uint>) -> Answer {
    figure(
        device,
        "nvmlDeviceGetMarginTemperature",
        "marginTemperature",
        margin,
    )
}

/// 0 is none, 1 HMM, 2 ATS.
pub fn addressing_mode(device: nvmlDevice_t, mode: Out<c_uint>) -> Answer {
    figure(device, "nvmlDeviceGetAddressingMode", "value", mode)
}

pub fn rows(device: nvmlDevice_t, list: List, count: Out<c_uint>, rows: Out<Row>) -> Answer {
    let index = library::subject(device)?.device();
    if library::ready()?.lost(index) {
        return Err(nvmlReturn_t::ERROR_GPU_IS_LOST);
    }
    let found = process::rows(device, list)?;
    process::give(&found, &count.required()?, rows, |row| Row {
        pid: row.pid,
        used: row.usedGpuMemory,
        gpu_instance: row.gpuInstanceId,
        compute_instance: row.computeInstanceId,
        unknown: [0; 2],
        name: device::field(&process::command(row.pid).unwrap_or_default()),
    })
}
