//! Field values: every number answers a value or a code of its own. The profile's table has them under
//! `nvmlDeviceGetFieldValues`, by field or `field:scope`: `[value type, value]`; what moves, and what the links of
//! joined devices say, is asked of the world.

use std::time::{SystemTime, UNIX_EPOCH};

use abi::nvml::enumerations::nvmlValueType_t;
use abi::nvml::*;
use mock_device::nvml::Answer as Data;
use mock_device::{DeviceIndex, World};

use crate::boundary::{Answer, Out, Slot};
use crate::{library, recorded, topology, utilization};

const TOTAL_ENERGY: c_uint = 83;
const POWER_AVERAGE: c_uint = 185;
const POWER_INSTANT: c_uint = 186;
const ENERGY: c_uint = 191;

pub fn values(device: nvmlDevice_t, count: c_int, values: Out<nvmlFieldValue_t>) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let values = values.required()?;
    if count <= 0 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    for at in 0..count as usize {
        one(world, device, &values.nth(at));
    }
    Ok(())
}

/// Clearing counters that are zero changes nothing.
pub fn clear(device: nvmlDevice_t, count: c_int, values: Out<nvmlFieldValue_t>) -> Answer {
    library::ready()?;
    library::device(device)?;
    let values = values.required()?;
    for at in 0..count.max(0) as usize {
        let slot = values.nth(at);
        let mut field = slot.get();
        field.nvmlReturn = nvmlReturn_t::ERROR_NO_PERMISSION;
        slot.set(field);
    }
    Ok(())
}

fn one(world: &'static World, device: DeviceIndex, slot: &Slot<nvmlFieldValue_t>) {
    let mut field = slot.get();
    field.latencyUsec = 0;
    match found(world, device, field.fieldId, field.scopeId) {
        Ok((kind, value)) => {
            field.nvmlReturn = nvmlReturn_t::SUCCESS;
            field.timestamp = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as i64);
            field.valueType = kind;
            field.value = written(field.value, kind, value);
        }
        Err(code) => field.nvmlReturn = code,
    }
    slot.set(field);
}

/// A 32-bit value is written over the first four bytes only.
fn written(before: nvmlValue_t, kind: nvmlValueType_t, value: u64) -> nvmlValue_t {
    const UNSIGNED_INT: c_int = 1;
    const SIGNED_INT: c_int = 5;
    let bits = match kind {
        UNSIGNED_INT | SIGNED_INT => {
            crate::boundary::value_bits(before) >> 32 << 32 | value & 0xffff_ffff
        }
        _ => value,
    };
    nvmlValue_t { ullVal: bits }
}

fn found(
    world: &'static World,
    device: DeviceIndex,
    id: c_uint,
    scope: c_uint,
) -> Result<(nvmlValueType_t, u64), nvmlReturn_t> {
    if let Some(linked) = topology::field(world, device, id, scope) {
        return linked;
    }
    let table = match library::answers(world, device).get("nvmlDeviceGetFieldValues") {
        Some(Data::Fields(table)) => table,
        _ => return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
    };
    let data = table
        .get(&format!("{id}:{scope}"))
        .or_else(|| table.get(&id.to_string()))
        .or_else(|| table.get("*"))
        .ok_or(nvmlReturn_t::ERROR_NOT_SUPPORTED)?;
    let (kind, value) = match data {
        Data::List(pair) => match pair.as_slice() {
            [Data::Number(kind), Data::Number(value)] => (*kind as c_int, *value as u64),
            _ => return Err(nvmlReturn_t::ERROR_UNKNOWN),
        },
        other => {
            return Err(recorded::code(other).unwrap_or(nvmlReturn_t::ERROR_NOT_SUPPORTED));
        }
    };
    Ok(match (id, scope) {
        (POWER_AVERAGE | POWER_INSTANT, 0) => (kind, utilization::usage(world, device).into()),
        (TOTAL_ENERGY, _) | (ENERGY, 0) => (kind, utilization::joules(world, device)),
        _ => (kind, value),
    })
}
