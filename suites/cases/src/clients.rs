//! Clients made ready for work, as a program's first lines make them.

use abi::cuda::{CUdeviceptr, CUresult};
use harness::{Bytes, Failure, ensure_eq, fail};

use crate::ffi::cuda::{Context, Cuda, Stream};
use crate::ffi::nvml::Nvml;
use crate::ffi::vulkan::{Client, Code, Device, Instance, Memory, PhysicalDevice, Place, Vulkan};
use crate::greed::{STEPS, Taken, until_refused};
use abi::nvml::nvmlReturn_t;

/// NVIDIA's PCI vendor id: a real machine may have a software device beside its GPUs.
pub const NVIDIA: u32 = 0x10de;

/// libcuda, initialised, with the primary context of device 0 current.
pub fn cuda() -> Result<Cuda, Failure> {
    let cuda = cuda_without_context()?;
    context(&cuda, 0)?;
    Ok(cuda)
}

pub fn cuda_without_context() -> Result<Cuda, Failure> {
    let cuda = Cuda::open()?;
    ensure_eq!(cuda.init(), CUresult::SUCCESS, "cuInit");
    Ok(cuda)
}

/// Retains the device's primary context and makes it current.
pub fn context(cuda: &Cuda, device: i32) -> Result<Context, Failure> {
    let retained = cuda.retain_primary(device);
    ensure_eq!(
        retained.code,
        CUresult::SUCCESS,
        "cuDevicePrimaryCtxRetain of device {device}"
    );
    ensure_eq!(
        cuda.set_current(retained.out),
        CUresult::SUCCESS,
        "cuCtxSetCurrent"
    );
    Ok(retained.out)
}

/// Takes with cuMemAlloc_v2 until refused.
pub fn fill(cuda: &Cuda) -> Taken<CUdeviceptr, CUresult> {
    until_refused(&STEPS, |bytes| cuda.allocate(bytes.0).granted())
}

/// Takes with cuMemAllocAsync until refused.
pub fn fill_async(cuda: &Cuda, stream: Stream) -> Taken<CUdeviceptr, CUresult> {
    until_refused(&STEPS, |bytes| {
        cuda.allocate_async(stream, bytes.0).granted()
    })
}

/// NVML, initialised.
pub fn nvml() -> Result<Nvml, Failure> {
    let nvml = Nvml::open()?;
    ensure_eq!(nvml.init(), nvmlReturn_t::SUCCESS, "nvmlInit_v2");
    Ok(nvml)
}

/// What this process has of the machine's own memory.
fn resident() -> Result<Bytes, Failure> {
    /// Of every x86-64 and most ARM machines.
    const PAGE: u64 = 4096;
    let told = std::fs::read_to_string("/proc/self/statm")?;
    let pages = told
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    match pages {
        Some(pages) => Ok(Bytes(PAGE * pages)),
        None => fail!("/proc/self/statm says {told}"),
    }
}

/// By how much this process's own memory grows while something is done so many times, after a fourth as many.
pub fn grown_by(
    times: usize,
    mut act: impl FnMut() -> Result<(), Failure>,
) -> Result<Bytes, Failure> {
    for _ in 0..times / 4 {
        act()?;
    }
    let before = resident()?;
    for _ in 0..times {
        act()?;
    }
    Ok(Bytes(resident()?.0.saturating_sub(before.0)))
}

/// What an NVML call answered, as a failure of the case where it is none.
pub fn told<T>(what: &str, answer: Result<T, nvmlReturn_t>) -> Result<T, Failure> {
    answer.or_else(|code| fail!("{what} answered {code:?}"))
}

/// One GPU with a Vulkan device on it.
pub struct Gpu {
    pub device: Device,
    pub physical: PhysicalDevice,
    pub instance: Instance,
    /// Of a device-local heap that the host does not see.
    pub memory_type: u32,
}

impl Gpu {
    /// The first GPU, by a Vulkan 1.1 client.
    pub fn first() -> Result<Gpu, Failure> {
        let instance = instance(Client::V1_1)?;
        let physical = first_gpu(&instance)?;
        Gpu::on(&instance, physical)
    }

    pub fn on(instance: &Instance, physical: PhysicalDevice) -> Result<Gpu, Failure> {
        Ok(Gpu {
            device: instance.device(physical)?,
            physical,
            instance: instance.clone(),
            memory_type: memory_type(instance, physical, Place::Device)?,
        })
    }

    pub fn allocate(&self, bytes: Bytes) -> Result<Memory, Code> {
        self.device.allocate(self.memory_type, bytes.0)
    }

    /// Takes with vkAllocateMemory until refused.
    pub fn fill(&self) -> Taken<Memory, Code> {
        until_refused(&STEPS, |bytes| self.allocate(bytes))
    }
}

pub fn instance(client: Client) -> Result<Instance, Failure> {
    Ok(Vulkan::open()?.instance(client)?)
}

/// The physical devices that are GPUs of the tenant.
pub fn gpus(instance: &Instance) -> Result<Vec<PhysicalDevice>, Failure> {
    let mut devices = instance.physical_devices()?;
    devices.retain(|&device| instance.kind(device).1 == NVIDIA);
    Ok(devices)
}

pub fn first_gpu(instance: &Instance) -> Result<PhysicalDevice, Failure> {
    match gpus(instance)?.first() {
        Some(&device) => Ok(device),
        None => fail!("Vulkan has no NVIDIA device"),
    }
}

pub fn memory_type(
    instance: &Instance,
    device: PhysicalDevice,
    place: Place,
) -> Result<u32, Failure> {
    match instance.memory_type(device, place) {
        Some(kind) => Ok(kind),
        None => fail!("the device has no memory type of kind {place:?}"),
    }
}

/// The size of the only device-local heap.
pub fn device_heap(heaps: &[crate::ffi::vulkan::Heap]) -> Result<Bytes, Failure> {
    match heaps.iter().find(|heap| heap.device_local) {
        Some(heap) => Ok(Bytes(heap.size)),
        None => fail!("the device has no device-local heap"),
    }
}
