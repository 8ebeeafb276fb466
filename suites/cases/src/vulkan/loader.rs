//! Between the layer and the Khronos loader.

use harness::{Bytes, Failure, cases, ensure, ensure_eq, skip};

use crate::clients::{Gpu, device_heap, first_gpu, instance};
use crate::ffi::negotiation::{Layer, NEGOTIATE};
use crate::ffi::process::overhear;
use crate::ffi::vulkan::{Client, Code, Query, Vulkan};
use crate::greed::budget;

const NAME: &str = "VK_LAYER_HAMI_vgpu";

cases! {
    /// The layer negotiates version 2 with every loader that has it, refuses older ones, a wrong structure and NULL, and
    /// asks for no physical-device hook.
    the_layer_negotiates_what_it_speaks {
        kind: Own, defects: ["V11", "V7"], entry_points: ["vkNegotiateLoaderLayerInterfaceVersion"], libraries: Neither,
    } (session) {
        let layer = Layer::open(&session.layer()?.display().to_string())?;
        ensure_eq!(layer.negotiate_nothing(), Code::INITIALIZATION_FAILED, "NULL");
        ensure_eq!(layer.negotiate(0, 2).code, Code::INITIALIZATION_FAILED, "a wrong sType");
        for version in [0, 1] {
            let old = layer.negotiate(NEGOTIATE, version);
            ensure_eq!(old.code, Code::INITIALIZATION_FAILED, "interface {version}");
        }
        for version in [2, 3, u32::MAX] {
            let met = layer.negotiate(NEGOTIATE, version);
            ensure_eq!((met.code, met.version), (Code::SUCCESS, 2), "interface {version}");
            ensure!(met.has_instance_proc && met.has_device_proc, "the two look-ups with interface {version}: {met:?}");
            ensure!(!met.has_physical_device_proc, "a physical-device look-up is offered");
        }
        Ok(())
    }

    /// Called without a loader the layer refuses to create an instance and names no extension of its own.
    the_layer_without_a_loader_refuses_cleanly {
        kind: Own, defects: ["V11"], entry_points: ["vkGetInstanceProcAddr", "vkCreateInstance"], libraries: Neither,
    } (session) {
        let layer = Layer::open(&session.layer()?.display().to_string())?;
        layer.negotiate(NEGOTIATE, 2);
        ensure_eq!(layer.create_instance_without_loader(), Some(Code::INITIALIZATION_FAILED), "vkCreateInstance without link information");
        if let Some(own) = layer.own_extensions(c"VK_LAYER_HAMI_vgpu") {
            ensure_eq!(own, (Code::SUCCESS, 0), "extensions of its own name");
        }
        ensure!(!layer.has(c"vkThereIsNoSuchCommand"), "an unknown command was found before any instance");
        Ok(())
    }

    /// The loader lists the layer by the name in its manifest, with no instance extension of its own.
    the_loader_lists_the_layer {
        kind: Own, defects: ["V7", "V11"], entry_points: ["vkEnumerateInstanceExtensionProperties"],
    } (_session) {
        let vulkan = Vulkan::open()?;
        let layers = vulkan.layers()?;
        ensure!(layers.iter().any(|name| name == NAME), "the loader lists {layers:?}");
        ensure_eq!(vulkan.extensions_of_layer(c"VK_LAYER_HAMI_vgpu")?, 0, "extensions of the layer");
        Ok(())
    }

    /// The layer is in the chain of applications of every version, of one that there is not yet too.
    clients_of_every_version_are_held {
        kind: Budget, defects: ["V16"], entry_points: ["vkCreateInstance", "vkGetPhysicalDeviceMemoryProperties", "vkAllocateMemory"], budget: "0=4GiB",
        invalid_use: ["older than the application specified API version"],
    } (session) {
        for client in [Client::V1_0, Client::V1_1, Client::V1_3, Client::V1_4, Client::V1_9] {
            let instance = instance(client)?;
            let gpu = Gpu::on(&instance, first_gpu(&instance)?)?;
            ensure_eq!(gpu.allocate(Bytes::gib(1)).err(), None, "1 of 4 GiB, {client:?}");
            ensure_eq!(gpu.allocate(Bytes::gib(6)).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "6 of 4 GiB, {client:?}");
            let heaps = instance.heaps(gpu.physical, Query::First);
            ensure_eq!(device_heap(&heaps)?, budget(session, 0)?, "the heap, {client:?}");
        }
        Ok(())
    }

    /// A refusal of the layer's is said from LIBCUDA_LOG_LEVEL=1 on, with the figures, as one of CUDA's.
    the_layers_refusals_are_said {
        kind: Own, defects: ["V21"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB", env: [("LIBCUDA_LOG_LEVEL", "1")],
    } (_session) {
        let (answer, [_, stderr]) = overhear(|| -> Result<Option<Code>, Failure> {
            Ok(Gpu::first()?.allocate(Bytes::gib(6)).err())
        })?;
        ensure_eq!(answer?, Some(Code::OUT_OF_DEVICE_MEMORY), "6 of 4 GiB");
        let said = stderr.lines().filter(|line| line.contains("Vulkan: 6442450944 bytes do not fit")).count();
        ensure_eq!(said, 1, "lines about the refusal: {stderr:?}");
        Ok(())
    }

    /// The same of a VkDevice that the budget has no room for.
    the_layers_refusals_are_said_of_devices_too {
        kind: Own, defects: ["V21"], entry_points: ["vkCreateDevice"], budget: "0=32MiB", env: [("LIBCUDA_LOG_LEVEL", "1")],
        unaccounted: "what a VkDevice takes is known when it has been made", invalid_use: ["Failed to create device chain"],
    } (_session) {
        let (answer, [_, stderr]) = overhear(|| -> Result<Option<Code>, Failure> {
            let instance = instance(Client::V1_1)?;
            Ok(instance.device(first_gpu(&instance)?).err())
        })?;
        ensure_eq!(answer?, Some(Code::OUT_OF_DEVICE_MEMORY), "a VkDevice under 32 MiB");
        let said = stderr.lines().filter(|line| line.contains("Vulkan: ") && line.contains("do not fit")).count();
        ensure_eq!(said, 1, "lines about the refusal: {stderr:?}");
        Ok(())
    }

    /// At LIBCUDA_LOG_LEVEL=0 a refusal is answered and not said.
    the_layers_refusals_are_not_said_at_level_0 {
        kind: Budget, defects: ["V21"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB", env: [("LIBCUDA_LOG_LEVEL", "0")],
    } (_session) {
        let (answer, [_, stderr]) = overhear(|| -> Result<Option<Code>, Failure> {
            let gpu = Gpu::first()?;
            ensure_eq!(gpu.allocate(Bytes::gib(3)).err(), None, "3 of 4 GiB");
            Ok(gpu.allocate(Bytes::gib(6)).err())
        })?;
        ensure_eq!(answer?, Some(Code::OUT_OF_DEVICE_MEMORY), "6 of 4 GiB");
        ensure!(!stderr.contains("Vulkan: "), "the refusal is said: {stderr:?}");
        Ok(())
    }

    /// The manifest that the loader reads names a version that no client is newer than: a loader before 1.3.227 leaves out an older layer.
    the_manifest_is_older_than_no_client {
        kind: Own, defects: ["V16"], entry_points: ["vkEnumerateInstanceExtensionProperties"],
    } (_session) {
        let versions = Vulkan::open()?.layer_versions()?;
        let own = versions.iter().find(|(name, _)| name == NAME);
        let Some((_, version)) = own else { harness::fail!("the loader lists {versions:?}") };
        ensure!(*version >= Client::V1_9.version(), "the layer is of version {version:#x}");
        Ok(())
    }

    /// A command that neither a layer nor the driver has is absent, with the layer as without.
    unknown_commands_stay_absent {
        defects: ["V11", "V12"], entry_points: ["vkGetInstanceProcAddr"], budget: "0=4GiB",
    } (_session) {
        let vulkan = Vulkan::open()?;
        let instance = vulkan.instance(Client::V1_1)?;
        ensure!(!instance.has(&vulkan, c"vkThereIsNoSuchCommand"), "an unknown command was found");
        ensure!(instance.has(&vulkan, c"vkGetPhysicalDeviceMemoryProperties2"), "a core command of 1.1 was not found");
        Ok(())
    }

    /// Without any Vulkan driver an instance cannot be created, and the layer changes nothing about the loader's answer.
    without_a_vulkan_driver_the_loader_says_so {
        defects: ["V11"], entry_points: ["vkCreateInstance"], absent: [Icd], budget: "0=4GiB",
        on_real: No("a real machine has its Vulkan driver"),
    } (_session) {
        let answer = Vulkan::open()?.instance(Client::V1_1).err();
        ensure_eq!(answer, Some(Code::INCOMPATIBLE_DRIVER), "vkCreateInstance");
        Ok(())
    }

    /// A software device (lavapipe) is no tenant GPU: its heaps and allocations pass through untouched.
    a_software_device_passes_through {
        defects: ["V1"], entry_points: ["vkGetPhysicalDeviceMemoryProperties", "vkAllocateMemory"], budget: "0=1MiB",
        env: [
            ("VK_DRIVER_FILES", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"),
            ("VK_ICD_FILENAMES", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"),
        ],
    } (_session) {
        use crate::ffi::vulkan::Place;
        if !std::path::Path::new("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json").exists() {
            skip!("lavapipe (mesa-vulkan-drivers) is not installed");
        }
        let instance = instance(Client::V1_1)?;
        for physical in instance.physical_devices()? {
            ensure!(instance.kind(physical).1 != 0x10de, "an NVIDIA device among lavapipe's");
            let heaps = instance.heaps(physical, Query::First);
            ensure!(heaps.iter().all(|heap| heap.size > 64 << 20), "heaps of {heaps:?}");
            let device = instance.device(physical)?;
            let Some(kind) = instance.memory_type(physical, Place::Visible) else {
                skip!("lavapipe has no device-local memory that the host sees");
            };
            ensure_eq!(device.allocate(kind, 64 << 20).err(), None, "64 MiB under a budget of 1 MiB");
        }
        Ok(())
    }
}
