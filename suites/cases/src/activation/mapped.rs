//! Whether the layer's library is in the process.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library, cases, ensure_eq};

use crate::clients::{Gpu, cuda, fill, first_gpu};
use crate::ffi::process::overhear;
use crate::ffi::vulkan::{Client, Vulkan};
use crate::greed::{CONTEXT_ROOM, budget, fills};

/// Uses CUDA and Vulkan; whether the layer's library is mapped then.
fn is_mapped(session: &harness::Session) -> Result<bool, harness::Failure> {
    let _cuda = cuda()?;
    let gpu = Gpu::first()?;
    let mapped = session.maps()?.has(Library::Layer.file_name());
    drop(gpu);
    Ok(mapped)
}

cases! {
    /// A program that opens the Vulkan driver by itself never meets the layer, as OpenCL, OpenGL, a video engine or OptiX never meets a hook. What it
    /// takes there the preload finds in NVML's row of the process, CUDA gets that much less of the budget, and one line on stderr says so.
    what_a_driver_opened_directly_takes_cuda_lacks {
        kind: Budget, defects: ["V15", "E1", "E2", "E3", "E4"], entry_points: ["vkAllocateMemory", "cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let unseen = Bytes::gib(3);
        let driver = Vulkan::open_driver(&session.library(Library::MockIcd)?)?;
        let instance = driver.instance(Client::V1_1)?;
        let gpu = Gpu::on(&instance, first_gpu(&instance)?)?;
        ensure_eq!(gpu.allocate(unseen).err(), None, "3 GiB of 6 by the driver itself");
        let (taken, [_, stderr]) = overhear(|| Ok::<_, Failure>(fill(&cuda()?)))?;
        let taken = taken?;
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes + unseen, budget(session, 0)?, CONTEXT_ROOM)?;
        let said = stderr.lines().filter(|line| line.contains("is charged")).count();
        ensure_eq!(said, 1, "lines about memory that nobody was asked for: {stderr:?}");
        Ok(())
    }

    /// With HAMI_VULKAN_ENABLE=1 the shipped manifest has the real loader load the layer.
    enabled_the_layer_is_mapped {
        kind: Own, defects: ["V7", "V6"], entry_points: ["vkCreateInstance"],
    } (session) {
        ensure_eq!(is_mapped(session)?, true, "libvgpu_vk.so is mapped");
        Ok(())
    }

    /// Without HAMI_VULKAN_ENABLE the installed layer's library is not mapped, with the preload or without.
    not_enabled_the_layer_is_not_mapped {
        kind: Own, defects: ["V7"], entry_points: ["vkCreateInstance"], libraries: PreloadWithIdleLayer,
    } (session) {
        ensure_eq!(is_mapped(session)?, false, "libvgpu_vk.so is mapped");
        Ok(())
    }

    /// The same without the preload.
    not_enabled_and_alone_the_layer_is_not_mapped {
        kind: Own, defects: ["V7"], entry_points: ["vkCreateInstance"], libraries: IdleLayer,
    } (session) {
        ensure_eq!(is_mapped(session)?, false, "libvgpu_vk.so is mapped");
        Ok(())
    }

    /// HAMI_VULKAN_DISABLE=1 wins over HAMI_VULKAN_ENABLE=1.
    disabled_the_layer_is_not_mapped {
        kind: Own, defects: ["V7"], entry_points: ["vkCreateInstance"], env: [("HAMI_VULKAN_DISABLE", "1")],
    } (session) {
        ensure_eq!(is_mapped(session)?, false, "libvgpu_vk.so is mapped");
        Ok(())
    }

    /// A CUDA program never maps the layer, enabled or not.
    a_cuda_program_maps_no_layer {
        kind: Own, defects: ["V5"], entry_points: ["cuInit"],
    } (session) {
        let _cuda = cuda()?;
        ensure_eq!(session.maps()?.has(Library::Layer.file_name()), false, "libvgpu_vk.so is mapped");
        ensure_eq!(session.maps()?.has(Library::Interposer.file_name()), true, "libvgpu.so is mapped");
        Ok(())
    }
}
