//! Virtual GPUs, of which a simulated host has none: what is answered before anybody looks for one.

use abi::nvml::enumerations::*;
use abi::nvml::*;

use crate::boundary::{Answer, Out};
use crate::library;

/// Nothing is compatible: the host's driver is in the way, and from the third version of the metadata on the GPU is too (H200,
/// 580.159.04, which compares the versions alone).
pub fn compatibility(
    guest: Out<nvmlVgpuMetadata_t>,
    host: Out<nvmlVgpuPgpuMetadata_t>,
    told: Out<nvmlVgpuPgpuCompatibility_t>,
) -> Answer {
    const HOST_DRIVER: nvmlVgpuPgpuCompatibilityLimitCode_t = 1;
    const GPU: nvmlVgpuPgpuCompatibilityLimitCode_t = 4;
    const LAST_WITHOUT_GPU: c_uint = 2;
    library::ready()?;
    let (guest, host, told) = (guest.required()?, host.required()?, told.required()?);
    let newest = guest.get().version.max(host.get().version);
    let limit = match newest {
        0..=LAST_WITHOUT_GPU => HOST_DRIVER,
        _ => HOST_DRIVER | GPU,
    };
    told.set(nvmlVgpuPgpuCompatibility_t {
        vgpuVmCompatibility: 0,
        compatibilityLimitCode: limit,
    });
    Ok(())
}

/// The room for the identifier is looked at before the instance, which there is not.
pub fn vm_id(
    _instance: nvmlVgpuInstance_t,
    id: Out<c_char>,
    size: c_uint,
    kind: Out<nvmlVgpuVmIdType_t>,
) -> Answer {
    const ROOM: c_uint = 80;
    library::ready()?;
    let _ = (id.required()?, kind.required()?);
    Err(match size {
        0..ROOM => nvmlReturn_t::ERROR_INSUFFICIENT_SIZE,
        _ => nvmlReturn_t::ERROR_INVALID_ARGUMENT,
    })
}
