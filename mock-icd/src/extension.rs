//! The extensions that are advertised: those whose every command has a row in the table and whose every structure is
//! answered. The device's are what the H200's driver advertises, less what is not simulated.

use ash::vk;
use mock_device::Api;

use crate::boundary::{Out, OutList, Outcome, Text, world};
use crate::enumerate::enumerate;

/// Name and VK_..._SPEC_VERSION of the registry's 1.3.239.
type Extension = (&'static str, u32);

const INSTANCE: &[Extension] = &[
    ("VK_KHR_get_physical_device_properties2", 2),
    ("VK_KHR_device_group_creation", 1),
    ("VK_KHR_external_memory_capabilities", 1),
    ("VK_KHR_external_semaphore_capabilities", 1),
    ("VK_KHR_external_fence_capabilities", 1),
];

const DEVICE: &[Extension] = &[
    ("VK_KHR_sampler_mirror_clamp_to_edge", 3),
    ("VK_KHR_dynamic_rendering", 1),
    ("VK_KHR_multiview", 1),
    ("VK_KHR_device_group", 4),
    ("VK_KHR_shader_draw_parameters", 1),
    ("VK_KHR_maintenance1", 2),
    ("VK_KHR_external_memory", 1),
    ("VK_KHR_external_semaphore", 1),
    ("VK_KHR_shader_float16_int8", 1),
    ("VK_KHR_16bit_storage", 1),
    ("VK_KHR_descriptor_update_template", 1),
    ("VK_KHR_imageless_framebuffer", 1),
    ("VK_KHR_create_renderpass2", 1),
    ("VK_KHR_external_fence", 1),
    ("VK_KHR_maintenance2", 1),
    ("VK_KHR_variable_pointers", 1),
    ("VK_KHR_dedicated_allocation", 3),
    ("VK_EXT_sampler_filter_minmax", 2),
    ("VK_KHR_storage_buffer_storage_class", 1),
    ("VK_EXT_inline_uniform_block", 1),
    ("VK_KHR_relaxed_block_layout", 1),
    ("VK_KHR_get_memory_requirements2", 1),
    ("VK_KHR_image_format_list", 1),
    ("VK_KHR_bind_memory2", 1),
    ("VK_EXT_descriptor_indexing", 2),
    ("VK_EXT_shader_viewport_index_layer", 1),
    ("VK_KHR_maintenance3", 1),
    ("VK_KHR_draw_indirect_count", 1),
    ("VK_KHR_shader_subgroup_extended_types", 1),
    ("VK_KHR_8bit_storage", 1),
    ("VK_KHR_shader_atomic_int64", 1),
    ("VK_EXT_pipeline_creation_feedback", 1),
    ("VK_KHR_driver_properties", 1),
    ("VK_KHR_shader_float_controls", 4),
    ("VK_KHR_depth_stencil_resolve", 1),
    ("VK_KHR_timeline_semaphore", 2),
    ("VK_KHR_vulkan_memory_model", 3),
    ("VK_EXT_pci_bus_info", 2),
    ("VK_KHR_shader_terminate_invocation", 1),
    ("VK_EXT_scalar_block_layout", 1),
    ("VK_EXT_subgroup_size_control", 2),
    ("VK_KHR_spirv_1_4", 1),
    ("VK_EXT_memory_budget", 1),
    ("VK_KHR_separate_depth_stencil_layouts", 1),
    ("VK_EXT_tooling_info", 1),
    ("VK_EXT_separate_stencil_usage", 1),
    ("VK_KHR_uniform_buffer_standard_layout", 1),
    ("VK_KHR_buffer_device_address", 1),
    ("VK_EXT_host_query_reset", 1),
    ("VK_EXT_extended_dynamic_state", 1),
    ("VK_EXT_shader_demote_to_helper_invocation", 1),
    ("VK_KHR_shader_integer_dot_product", 1),
    ("VK_EXT_texel_buffer_alignment", 1),
    ("VK_KHR_shader_non_semantic_info", 1),
    ("VK_EXT_private_data", 1),
    ("VK_EXT_pipeline_creation_cache_control", 3),
    ("VK_KHR_synchronization2", 1),
    ("VK_KHR_zero_initialize_workgroup_memory", 1),
    ("VK_EXT_image_robustness", 1),
    ("VK_KHR_copy_commands2", 1),
    ("VK_KHR_format_feature_flags2", 2),
    ("VK_KHR_maintenance4", 2),
];

pub fn of_instance() -> impl Iterator<Item = Extension> {
    INSTANCE.iter().copied().filter(|(name, _)| !missing(name))
}

pub fn of_device() -> impl Iterator<Item = Extension> {
    DEVICE.iter().copied().filter(|(name, _)| !missing(name))
}

pub fn is_of_device(name: &str) -> bool {
    of_device().any(|(known, _)| known == name)
}

pub fn is_of_instance(name: &str) -> bool {
    of_instance().any(|(known, _)| known == name)
}

/// A fault's `then = missing`, for a command or an extension.
pub fn missing(name: &str) -> bool {
    world().is_some_and(|world| {
        world
            .missing_symbols(Api::Vulkan)
            .iter()
            .any(|missing| missing == name)
    })
}

pub fn enumerate_of_instance(
    layer: Text,
    count: Out<u32>,
    list: OutList<vk::ExtensionProperties>,
) -> Outcome {
    list_of(layer, count, list, of_instance().collect())
}

pub fn enumerate_of_device(
    layer: Text,
    count: Out<u32>,
    list: OutList<vk::ExtensionProperties>,
) -> Outcome {
    list_of(layer, count, list, of_device().collect())
}

/// A driver has no layers, so every layer's name is unknown to it.
fn list_of(
    layer: Text,
    count: Out<u32>,
    list: OutList<vk::ExtensionProperties>,
    extensions: Vec<Extension>,
) -> Outcome {
    if layer.get().is_some() {
        return Err(vk::Result::ERROR_LAYER_NOT_PRESENT);
    }
    let properties = extensions.into_iter().map(|(name, version)| {
        let mut properties = vk::ExtensionProperties::default().spec_version(version);
        put_text(&mut properties.extension_name, name);
        properties
    });
    enumerate(count, list, properties)
}

/// Writes text as C has it, cut to leave room for the NUL.
pub fn put_text(to: &mut [std::ffi::c_char], text: &str) {
    to.fill(0);
    let room = to.len().saturating_sub(1);
    for (to, byte) in to.iter_mut().take(room).zip(text.bytes()) {
        *to = byte.cast_signed();
    }
}
