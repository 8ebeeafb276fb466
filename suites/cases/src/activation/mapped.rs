//! Whether the layer's library is in the process.

use harness::{Library, cases, ensure_eq};

use crate::clients::{Gpu, cuda};

/// Uses CUDA and Vulkan; whether the layer's library is mapped then.
fn is_mapped(session: &harness::Session) -> Result<bool, harness::Failure> {
    let _cuda = cuda()?;
    let gpu = Gpu::first()?;
    let mapped = session.maps()?.has(Library::Layer.file_name());
    drop(gpu);
    Ok(mapped)
}

cases! {
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
