//! CUDA, NVML and Vulkan tell one story: total, used, free.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{Gpu, cuda, device_heap, nvml, told};
use crate::ffi::cuda::Cuda;
use crate::ffi::nvml::{Device, Nvml};
use crate::ffi::vulkan::Query;
use crate::greed::budget;
use crate::tenant::Tenant;

/// The three totals are the budget; CUDA's and NVML's free are one figure.
fn one_story(
    session: &Session,
    cuda: &Cuda,
    nvml: &Nvml,
    device: Device,
    gpu: &Gpu,
) -> Result<u64, Failure> {
    let budget = budget(session, 0)?;
    let info = cuda.memory_info().out;
    let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
    let heap = device_heap(&gpu.instance.heaps(gpu.physical, Query::First))?;
    ensure_eq!(Bytes(info.1), budget, "cuMemGetInfo_v2's total");
    ensure_eq!(
        Bytes(cuda.total_memory(0).out),
        budget,
        "cuDeviceTotalMem_v2"
    );
    ensure_eq!(Bytes(memory.total), budget, "NVML's total");
    ensure_eq!(heap, budget, "Vulkan's heap");
    ensure_eq!(memory.free, info.0, "free by NVML and by CUDA");
    ensure_eq!(
        memory.used + memory.free,
        memory.total,
        "NVML's used and free"
    );
    Ok(info.0)
}

cases! {
    /// CUDA, NVML and Vulkan all tell 23,552 MiB, and one free figure, at every step of a program that uses them all.
    the_three_apis_tell_one_story {
        kind: Budget, defects: ["T4", "C4"], budget: "0=23552MiB",
        entry_points: [
            "cuMemGetInfo_v2", "cuDeviceTotalMem_v2", "nvmlDeviceGetMemoryInfo", "vkGetPhysicalDeviceMemoryProperties",
        ],
    } (session) {
        let (cuda, nvml) = (cuda()?, nvml()?);
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let gpu = Gpu::first()?;
        let start = one_story(session, &cuda, &nvml, device, &gpu)?;
        let pointer = cuda.allocate(Bytes::gib(3).0);
        ensure_eq!(pointer.code, CUresult::SUCCESS, "3 GiB by CUDA");
        let second = one_story(session, &cuda, &nvml, device, &gpu)?;
        ensure_eq!(start - second, Bytes::gib(3).0, "what 3 GiB of CUDA took of the free memory");
        let memory = gpu.allocate(Bytes::gib(4))?;
        let third = one_story(session, &cuda, &nvml, device, &gpu)?;
        ensure_eq!(second - third, Bytes::gib(4).0, "what 4 GiB of Vulkan took of the free memory");
        gpu.device.free(memory);
        cuda.free(pointer.out);
        let last = one_story(session, &cuda, &nvml, device, &gpu)?;
        ensure_eq!(last, start, "the free memory at the end");
        Ok(())
    }

    /// What another process of the tenant holds is used in everybody's story.
    the_story_counts_the_whole_tenant {
        kind: Budget, defects: ["T4"], entry_points: ["cuMemGetInfo_v2", "nvmlDeviceGetMemoryInfo"], budget: "0=23552MiB",
    } (session) {
        let (cuda, nvml) = (cuda()?, nvml()?);
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let gpu = Gpu::first()?;
        let alone = one_story(session, &cuda, &nvml, device, &gpu)?;
        let mut other = Tenant::start(session)?;
        ensure_eq!(other.cuda(Bytes::gib(8))?, CUresult::SUCCESS, "8 GiB of another process");
        let beside = one_story(session, &cuda, &nvml, device, &gpu)?;
        ensure!(alone - beside >= Bytes::gib(8).0, "{} bytes less free beside 8 GiB", alone - beside);
        ensure!(alone - beside <= Bytes::gib(9).0, "{} bytes less free beside 8 GiB", alone - beside);
        other.peer.finish()
    }

    /// A program without CUDA is told the same by NVML and Vulkan.
    nvml_and_vulkan_tell_one_story_without_cuda {
        kind: Budget, defects: ["T4", "V8"], entry_points: ["nvmlDeviceGetMemoryInfo", "vkGetPhysicalDeviceMemoryProperties"],
        budget: "0=23552MiB", absent: [Cuda],
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let gpu = Gpu::first()?;
        gpu.allocate(Bytes::gib(5))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "NVML's total");
        ensure_eq!(device_heap(&gpu.instance.heaps(gpu.physical, Query::First))?, budget(session, 0)?, "Vulkan's heap");
        ensure!(memory.used >= Bytes::gib(5).0, "NVML tells {} used beside 5 GiB", memory.used);
        Ok(())
    }
}
