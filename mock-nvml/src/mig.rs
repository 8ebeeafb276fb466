//! MIG: a device cut into GPU instances, those into compute instances; the profile says how. Nothing is created here: the
//! mode and the instances belong to root, and the calls that change them are refused as an unprivileged user's are.

use abi::nvml::*;
use mock_device::nvml::Answer as Data;
use mock_device::{ComputeInstance, DeviceIndex, GpuInstance, World};

use crate::boundary::{Answer, Out};
use crate::library::{self, Instance, Subject};
use crate::recorded;

/// The GPU instances of a device in MIG mode; what the table says otherwise.
fn instances(
    device: nvmlDevice_t,
    entry: &str,
) -> Result<(DeviceIndex, &'static [GpuInstance]), nvmlReturn_t> {
    let world = library::ready()?;
    let index = library::device(device)?;
    match library::profile(world, index).mig.as_slice() {
        [] => Err(recorded::refusal(world, index, entry)),
        instances => Ok((index, instances)),
    }
}

/// All compute instances of a device, in the order of MIG devices.
fn all(index: DeviceIndex, instances: &[GpuInstance]) -> impl Iterator<Item = Instance> {
    instances
        .iter()
        .enumerate()
        .flat_map(move |(gpu, instance)| {
            (0..instance.compute.len()).map(move |compute| Instance {
                device: index,
                gpu,
                compute,
            })
        })
}

pub fn parts(
    instance: Instance,
) -> Result<(&'static GpuInstance, &'static ComputeInstance), nvmlReturn_t> {
    let world = library::ready()?;
    let gone = nvmlReturn_t::ERROR_INVALID_ARGUMENT;
    let gpu = library::profile(world, instance.device)
        .mig
        .get(instance.gpu)
        .ok_or(gone)?;
    Ok((gpu, gpu.compute.get(instance.compute).ok_or(gone)?))
}

/// The how manieth of its device's MIG devices it is.
pub fn position(world: &'static World, wanted: Instance) -> Option<usize> {
    let instances = &library::profile(world, wanted.device).mig;
    all(wanted.device, instances).position(|instance| instance == wanted)
}

/// The MIG device whose UUID is printed like this, without `MIG-`.
pub fn by_uuid(world: &'static World, asked: &str) -> Option<nvmlDevice_t> {
    (0..world.devices().len() as u32)
        .map(DeviceIndex)
        .flat_map(|index| all(index, &library::profile(world, index).mig))
        .find(|instance| {
            parts(*instance).is_ok_and(|(_, compute)| {
                compute.uuid.to_string().trim_start_matches("GPU-") == asked
            })
        })
        .map(library::instance_handle)
}

/// The instance of a MIG device handle; INVALID_ARGUMENT for a whole device.
fn instance(device: nvmlDevice_t) -> Result<Instance, nvmlReturn_t> {
    library::ready()?;
    match library::subject(device)? {
        Subject::Instance(instance) => Ok(instance),
        Subject::Device(_) => Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    }
}

pub fn is_mig_device(device: nvmlDevice_t, is_mig: Out<c_uint>) -> Answer {
    library::ready()?;
    let subject = library::subject(device)?;
    let is = matches!(subject, Subject::Instance(_));
    is_mig.required()?.set(c_uint::from(is));
    Ok(())
}

pub fn mode(device: nvmlDevice_t, current: Out<c_uint>, pending: Out<c_uint>) -> Answer {
    library::ready()?;
    let (current, pending) = (current.required()?, pending.required()?);
    let on = match instances(device, "nvmlDeviceGetMigMode") {
        Ok(_) => 1,
        // The table's success: a card that could, and does not.
        Err(nvmlReturn_t::SUCCESS) => 0,
        Err(code) => return Err(code),
    };
    current.set(on);
    pending.set(on);
    Ok(())
}

/// As many as the card's smallest instances: its memory slices less one.
pub fn most(device: nvmlDevice_t, count: Out<c_uint>) -> Answer {
    const MOST: c_uint = 7;
    library::ready()?;
    let count = count.required()?;
    let most = match instances(device, "nvmlDeviceGetMaxMigDeviceCount") {
        Ok(_) => MOST,
        Err(nvmlReturn_t::SUCCESS) => 0,
        Err(code) => return Err(code),
    };
    count.set(most);
    Ok(())
}

pub fn handle_by_index(
    device: nvmlDevice_t,
    index: c_uint,
    mig_device: Out<nvmlDevice_t>,
) -> Answer {
    library::ready()?;
    let mig_device = mig_device.required()?;
    let (device, instances) = instances(device, "nvmlDeviceGetMigDeviceHandleByIndex")?;
    let found = all(device, instances).nth(index as usize);
    mig_device.set(library::instance_handle(
        found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?,
    ));
    Ok(())
}

pub fn parent(mig_device: nvmlDevice_t, device: Out<nvmlDevice_t>) -> Answer {
    let device = {
        library::ready()?;
        device.required()?
    };
    device.set(library::handle(instance(mig_device)?.device));
    Ok(())
}

pub fn gpu_instance_id(device: nvmlDevice_t, id: Out<c_uint>) -> Answer {
    let (gpu, _) = parts(instance(device)?)?;
    id.required()?.set(gpu.id);
    Ok(())
}

pub fn compute_instance_id(device: nvmlDevice_t, id: Out<c_uint>) -> Answer {
    let (_, compute) = parts(instance(device)?)?;
    id.required()?.set(compute.id);
    Ok(())
}

pub fn attributes(device: nvmlDevice_t, attributes: Out<nvmlDeviceAttributes_t>) -> Answer {
    let world = library::ready()?;
    let attributes = attributes.required()?;
    let instance = match library::subject(device)? {
        Subject::Instance(instance) => instance,
        Subject::Device(index) => {
            return Err(recorded::refusal(
                world,
                index,
                "nvmlDeviceGetAttributes_v2",
            ));
        }
    };
    let (gpu, compute) = parts(instance)?;
    attributes.set(nvmlDeviceAttributes_t {
        multiprocessorCount: compute.sm_count,
        sharedCopyEngineCount: gpu.copy_engines,
        sharedDecoderCount: gpu.decoders,
        sharedEncoderCount: gpu.encoders,
        sharedJpegCount: gpu.jpeg_engines,
        sharedOfaCount: gpu.ofa_engines,
        gpuInstanceSliceCount: gpu.slices,
        computeInstanceSliceCount: compute.slices,
        memorySizeMB: gpu.memory.0 >> 20,
    });
    Ok(())
}

/// In: nothing; out: how many of that profile there are, and their handles. The caller has room for the profile's maximum.
pub fn gpu_instances(
    device: nvmlDevice_t,
    profile: c_uint,
    handles: Out<nvmlGpuInstance_t>,
    count: Out<c_uint>,
) -> Answer {
    library::ready()?;
    let (handles, count) = (handles.required()?, count.required()?);
    let world = library::ready()?;
    let device = library::device(device)?;
    recorded::known_profile(world, device, profile)?;
    let instances = &library::profile(world, device).mig;
    let of_profile = |(_, instance): &(usize, &GpuInstance)| instance.profile == profile;
    let mut found = 0;
    for (position, _) in instances.iter().enumerate().filter(of_profile) {
        handles
            .nth(found)
            .set(library::gpu_instance_handle(device, position));
        found += 1;
    }
    count.set(found as c_uint);
    Ok(())
}

/// How many more instances of a profile there is room for beside those that exist: disjoint ones of its places that none of theirs covers,
/// no more than compute slices are left, and than the empty card would take less those that exist.
pub fn remaining(device: nvmlDevice_t, profile: c_uint, count: Out<c_uint>) -> Answer {
    const ENTRY: &str = "nvmlDeviceGetGpuInstanceRemainingCapacity";
    let world = library::ready()?;
    let count = count.required()?;
    let device = library::device(device)?;
    let Data::Number(empty) = recorded::of_profile(world, device, ENTRY, profile)? else {
        return Err(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let empty = *empty as c_uint;
    let instances = &library::profile(world, device).mig;
    if instances.is_empty() {
        count.set(empty);
        return Ok(());
    }
    let mut taken: Vec<[u32; 2]> = instances.iter().map(|one| one.placement).collect();
    let mut free = 0;
    // All places of a profile are of one size: the first that is free is as good as any.
    for place in places(world, device, profile)? {
        let [start, size] = place;
        if taken
            .iter()
            .all(|[at, long]| start >= at + long || *at >= start + size)
        {
            taken.push(place);
            free += 1;
        }
    }
    let same = instances
        .iter()
        .filter(|one| one.profile == profile)
        .count() as c_uint;
    let used: u32 = instances.iter().map(|one| one.slices).sum();
    let slices = SLICES.saturating_sub(used) / slices_of(world, device, profile).max(1);
    count.set(free.min(empty.saturating_sub(same)).min(slices));
    Ok(())
}

/// Compute slices of every card that can be cut.
const SLICES: u32 = 7;

/// Where an instance of that profile may lie: its first memory slice and how many, in order.
fn places(
    world: &'static World,
    device: DeviceIndex,
    profile: u32,
) -> Result<Vec<[u32; 2]>, nvmlReturn_t> {
    const ENTRY: &str = "nvmlDeviceGetGpuInstancePossiblePlacements";
    let Data::Fields(answer) = recorded::of_profile(world, device, ENTRY, profile)? else {
        return Err(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let Some(Data::List(rows)) = answer.get("list") else {
        return Err(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let mut places: Vec<[u32; 2]> = rows
        .iter()
        .filter_map(|row| match row {
            // A field that is left out is zero.
            Data::Fields(row) => Some(["start", "size"].map(|name| number(row.get(name)))),
            _ => None,
        })
        .collect();
    places.sort_unstable();
    Ok(places)
}

fn number(data: Option<&Data>) -> u32 {
    match data {
        Some(Data::Number(number)) => *number as u32,
        _ => 0,
    }
}

/// The compute slices of a GPU instance profile, by its number.
fn slices_of(world: &'static World, device: DeviceIndex, profile: u32) -> u32 {
    let rows = match library::answers(world, device).get("nvmlDeviceGetGpuInstanceProfileInfo") {
        Some(Data::Fields(rows)) => rows,
        _ => return 0,
    };
    let of = rows.values().find_map(|row| match row {
        Data::Fields(row) if number(row.get("id")) == profile => {
            Some(number(row.get("sliceCount")))
        }
        _ => None,
    });
    of.unwrap_or_default()
}

/// How many more compute instances of a profile the GPU instance's slices are left for.
pub fn remaining_compute(handle: nvmlGpuInstance_t, profile: c_uint, count: Out<c_uint>) -> Answer {
    /// Slices of NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE and so on; the last is 1_SLICE_REV1.
    const SLICES: [u32; 8] = [1, 2, 3, 4, 7, 8, 6, 1];
    let (_, _, instance) = gpu_instance(handle)?;
    let count = count.required()?;
    let slices = *SLICES
        .get(profile as usize)
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    if slices > instance.slices {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    let used: u32 = instance.compute.iter().map(|one| one.slices).sum();
    count.set(instance.slices.saturating_sub(used) / slices);
    Ok(())
}

pub fn gpu_instance_by_id(
    device: nvmlDevice_t,
    id: c_uint,
    handle: Out<nvmlGpuInstance_t>,
) -> Answer {
    library::ready()?;
    let handle = handle.required()?;
    let (device, instances) = instances(device, "nvmlDeviceGetGpuInstanceById")?;
    let found = instances.iter().position(|instance| instance.id == id);
    let position = found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?;
    handle.set(library::gpu_instance_handle(device, position));
    Ok(())
}

fn gpu_instance(
    handle: nvmlGpuInstance_t,
) -> Result<(DeviceIndex, usize, &'static GpuInstance), nvmlReturn_t> {
    let world = library::ready()?;
    let (device, position) = library::gpu_instance(handle)?;
    let found = library::profile(world, device).mig.get(position);
    let instance = found.ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    Ok((device, position, instance))
}

pub fn gpu_instance_info(handle: nvmlGpuInstance_t, info: Out<nvmlGpuInstanceInfo_t>) -> Answer {
    let (device, _, instance) = gpu_instance(handle)?;
    let [start, size] = instance.placement;
    info.required()?.set(nvmlGpuInstanceInfo_t {
        device: library::handle(device),
        id: instance.id,
        profileId: instance.profile,
        placement: nvmlGpuInstancePlacement_t { start, size },
    });
    Ok(())
}

pub fn compute_instances(
    handle: nvmlGpuInstance_t,
    profile: c_uint,
    handles: Out<nvmlComputeInstance_t>,
    count: Out<c_uint>,
) -> Answer {
    let (device, gpu, instance) = gpu_instance(handle)?;
    let (handles, count) = (handles.required()?, count.required()?);
    let mut found = 0;
    for (compute, one) in instance.compute.iter().enumerate() {
        if one.profile == profile {
            handles
                .nth(found)
                .set(library::compute_instance_handle(Instance {
                    device,
                    gpu,
                    compute,
                }));
            found += 1;
        }
    }
    count.set(found as c_uint);
    Ok(())
}

pub fn compute_instance_by_id(
    handle: nvmlGpuInstance_t,
    id: c_uint,
    out: Out<nvmlComputeInstance_t>,
) -> Answer {
    let (device, gpu, instance) = gpu_instance(handle)?;
    let found = instance.compute.iter().position(|one| one.id == id);
    let compute = found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?;
    out.required()?
        .set(library::compute_instance_handle(Instance {
            device,
            gpu,
            compute,
        }));
    Ok(())
}

/// The unsuffixed entry point fills the structure without its placement.
pub fn compute_instance_info(
    handle: nvmlComputeInstance_t,
    info: Out<nvmlComputeInstanceInfo_t>,
) -> Answer {
    library::ready()?;
    let at = library::compute_instance(handle)?;
    let (gpu, compute) = parts(at)?;
    let before = gpu.compute[..at.compute].iter();
    info.required()?.set(nvmlComputeInstanceInfo_t {
        device: library::handle(at.device),
        gpuInstance: library::gpu_instance_handle(at.device, at.gpu),
        id: compute.id,
        profileId: compute.profile,
        placement: nvmlComputeInstancePlacement_t {
            start: before.map(|one| one.slices).sum(),
            size: compute.slices,
        },
    });
    Ok(())
}
