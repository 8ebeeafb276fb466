//! The extensions that are advertised: those whose every command has a row in the table and whose every structure is
//! answered. The device's are what the H200's driver advertises, less what is not simulated.

use ash::vk;
use mock_device::Api;

use crate::boundary::{Out, OutList, Outcome, Text, world};
use crate::enumerate::enumerate;

/// Name and VK_..._SPEC_VERSION, as the card says it.
type Extension = (&'static str, u32);

const INSTANCE: &[Extension] = &[
    ("VK_KHR_get_physical_device_properties2", 2),
    ("VK_KHR_device_group_creation", 1),
    ("VK_KHR_external_memory_capabilities", 1),
    ("VK_KHR_external_semaphore_capabilities", 1),
    ("VK_KHR_external_fence_capabilities", 1),
    ("VK_KHR_surface", 25),
    ("VK_KHR_get_surface_capabilities2", 1),
    ("VK_KHR_surface_protected_capabilities", 1),
    ("VK_EXT_surface_maintenance1", 1),
    ("VK_EXT_swapchain_colorspace", 5),
    // Beyond what the H200's driver has: presenting without a window system is what a machine without a display can do.
    ("VK_EXT_headless_surface", 1),
];

const DEVICE: &[Extension] = &[
    ("VK_KHR_16bit_storage", 1),
    ("VK_KHR_8bit_storage", 1),
    ("VK_KHR_bind_memory2", 1),
    ("VK_KHR_buffer_device_address", 1),
    ("VK_KHR_calibrated_timestamps", 1),
    ("VK_KHR_compute_shader_derivatives", 1),
    ("VK_KHR_cooperative_matrix", 2),
    ("VK_KHR_fragment_shading_rate", 2),
    ("VK_EXT_sample_locations", 1),
    ("VK_KHR_copy_commands2", 1),
    ("VK_KHR_create_renderpass2", 1),
    ("VK_KHR_dedicated_allocation", 3),
    ("VK_KHR_depth_clamp_zero_one", 1),
    ("VK_KHR_depth_stencil_resolve", 1),
    ("VK_KHR_descriptor_update_template", 1),
    ("VK_KHR_device_group", 4),
    ("VK_KHR_draw_indirect_count", 1),
    ("VK_KHR_driver_properties", 1),
    ("VK_KHR_dynamic_rendering", 1),
    ("VK_KHR_dynamic_rendering_local_read", 1),
    ("VK_KHR_external_fence", 1),
    ("VK_KHR_external_fence_fd", 1),
    ("VK_KHR_external_memory", 1),
    ("VK_KHR_external_semaphore", 1),
    ("VK_KHR_external_memory_fd", 1),
    ("VK_KHR_external_semaphore_fd", 1),
    ("VK_KHR_format_feature_flags2", 2),
    ("VK_KHR_fragment_shader_barycentric", 1),
    ("VK_KHR_get_memory_requirements2", 1),
    ("VK_KHR_global_priority", 1),
    ("VK_KHR_image_format_list", 1),
    ("VK_KHR_imageless_framebuffer", 1),
    ("VK_KHR_index_type_uint8", 1),
    ("VK_KHR_line_rasterization", 1),
    ("VK_KHR_load_store_op_none", 1),
    ("VK_KHR_maintenance1", 2),
    ("VK_KHR_maintenance2", 1),
    ("VK_KHR_maintenance3", 1),
    ("VK_KHR_maintenance4", 2),
    ("VK_KHR_incremental_present", 2),
    ("VK_KHR_maintenance5", 1),
    ("VK_KHR_maintenance6", 1),
    ("VK_KHR_maintenance7", 1),
    ("VK_KHR_maintenance8", 1),
    ("VK_KHR_map_memory2", 1),
    ("VK_KHR_multiview", 1),
    ("VK_KHR_pipeline_library", 1),
    ("VK_KHR_present_id", 1),
    ("VK_KHR_present_wait", 1),
    ("VK_KHR_push_descriptor", 2),
    ("VK_KHR_relaxed_block_layout", 1),
    ("VK_KHR_sampler_mirror_clamp_to_edge", 3),
    ("VK_KHR_sampler_ycbcr_conversion", 14),
    ("VK_KHR_separate_depth_stencil_layouts", 1),
    ("VK_KHR_shader_atomic_int64", 1),
    ("VK_KHR_shader_bfloat16", 1),
    ("VK_KHR_shader_clock", 1),
    ("VK_KHR_shader_draw_parameters", 1),
    ("VK_KHR_shader_expect_assume", 1),
    ("VK_KHR_shader_float16_int8", 1),
    ("VK_KHR_shader_float_controls", 4),
    ("VK_KHR_shader_float_controls2", 1),
    ("VK_KHR_shader_integer_dot_product", 1),
    ("VK_KHR_shader_maximal_reconvergence", 1),
    ("VK_KHR_shader_non_semantic_info", 1),
    ("VK_KHR_shader_quad_control", 1),
    ("VK_KHR_shader_relaxed_extended_instruction", 1),
    ("VK_KHR_shader_subgroup_extended_types", 1),
    ("VK_KHR_shader_subgroup_rotate", 2),
    ("VK_KHR_shader_subgroup_uniform_control_flow", 1),
    ("VK_KHR_shader_terminate_invocation", 1),
    ("VK_KHR_spirv_1_4", 1),
    ("VK_KHR_storage_buffer_storage_class", 1),
    ("VK_KHR_swapchain", 70),
    ("VK_KHR_swapchain_mutable_format", 1),
    ("VK_KHR_synchronization2", 1),
    ("VK_KHR_timeline_semaphore", 2),
    ("VK_KHR_uniform_buffer_standard_layout", 1),
    ("VK_KHR_variable_pointers", 1),
    ("VK_KHR_vertex_attribute_divisor", 1),
    ("VK_KHR_vulkan_memory_model", 3),
    ("VK_KHR_workgroup_memory_explicit_layout", 1),
    ("VK_KHR_zero_initialize_workgroup_memory", 1),
    ("VK_EXT_4444_formats", 1),
    ("VK_EXT_attachment_feedback_loop_dynamic_state", 1),
    ("VK_EXT_attachment_feedback_loop_layout", 2),
    ("VK_EXT_blend_operation_advanced", 2),
    ("VK_EXT_border_color_swizzle", 1),
    ("VK_EXT_buffer_device_address", 2),
    ("VK_EXT_calibrated_timestamps", 2),
    ("VK_EXT_color_write_enable", 1),
    ("VK_EXT_conditional_rendering", 2),
    ("VK_EXT_conservative_rasterization", 1),
    ("VK_EXT_custom_border_color", 12),
    ("VK_EXT_depth_bias_control", 1),
    ("VK_EXT_depth_clamp_zero_one", 1),
    ("VK_EXT_depth_clip_control", 1),
    ("VK_EXT_depth_clip_enable", 1),
    ("VK_EXT_depth_range_unrestricted", 1),
    ("VK_EXT_descriptor_indexing", 2),
    ("VK_EXT_device_address_binding_report", 1),
    ("VK_EXT_device_fault", 2),
    ("VK_EXT_discard_rectangles", 2),
    ("VK_EXT_dynamic_rendering_unused_attachments", 1),
    ("VK_EXT_extended_dynamic_state", 1),
    ("VK_EXT_extended_dynamic_state2", 1),
    ("VK_EXT_extended_dynamic_state3", 2),
    ("VK_EXT_external_memory_host", 1),
    ("VK_EXT_fragment_shader_interlock", 1),
    ("VK_EXT_global_priority", 2),
    ("VK_EXT_global_priority_query", 1),
    ("VK_EXT_graphics_pipeline_library", 1),
    ("VK_EXT_host_image_copy", 1),
    ("VK_EXT_host_query_reset", 1),
    ("VK_EXT_image_2d_view_of_3d", 1),
    ("VK_EXT_image_robustness", 1),
    ("VK_EXT_image_sliced_view_of_3d", 1),
    ("VK_EXT_image_view_min_lod", 1),
    ("VK_EXT_index_type_uint8", 1),
    ("VK_EXT_inline_uniform_block", 1),
    ("VK_EXT_legacy_vertex_attributes", 1),
    ("VK_EXT_line_rasterization", 1),
    ("VK_EXT_load_store_op_none", 1),
    ("VK_EXT_memory_budget", 1),
    ("VK_EXT_memory_priority", 1),
    ("VK_EXT_mesh_shader", 1),
    ("VK_EXT_multi_draw", 1),
    ("VK_EXT_mutable_descriptor_type", 1),
    ("VK_EXT_nested_command_buffer", 1),
    ("VK_EXT_non_seamless_cube_map", 1),
    ("VK_EXT_pageable_device_local_memory", 1),
    ("VK_EXT_pci_bus_info", 2),
    ("VK_EXT_physical_device_drm", 1),
    ("VK_EXT_pipeline_creation_cache_control", 3),
    ("VK_EXT_pipeline_creation_feedback", 1),
    ("VK_EXT_pipeline_robustness", 1),
    ("VK_EXT_post_depth_coverage", 1),
    ("VK_EXT_primitive_topology_list_restart", 1),
    ("VK_EXT_primitives_generated_query", 1),
    ("VK_EXT_private_data", 1),
    ("VK_EXT_provoking_vertex", 1),
    ("VK_EXT_queue_family_foreign", 1),
    ("VK_EXT_robustness2", 1),
    ("VK_EXT_sampler_filter_minmax", 2),
    ("VK_EXT_scalar_block_layout", 1),
    ("VK_EXT_separate_stencil_usage", 1),
    ("VK_EXT_shader_atomic_float", 1),
    ("VK_EXT_shader_demote_to_helper_invocation", 1),
    ("VK_EXT_shader_image_atomic_int64", 1),
    ("VK_EXT_shader_module_identifier", 1),
    ("VK_EXT_shader_replicated_composites", 1),
    ("VK_EXT_shader_subgroup_ballot", 1),
    ("VK_EXT_shader_subgroup_vote", 1),
    ("VK_EXT_shader_viewport_index_layer", 1),
    ("VK_EXT_subgroup_size_control", 2),
    ("VK_EXT_swapchain_maintenance1", 1),
    ("VK_EXT_texel_buffer_alignment", 1),
    ("VK_EXT_tooling_info", 1),
    ("VK_EXT_transform_feedback", 1),
    ("VK_EXT_vertex_attribute_divisor", 3),
    ("VK_EXT_vertex_attribute_robustness", 1),
    ("VK_EXT_vertex_input_dynamic_state", 2),
    ("VK_EXT_ycbcr_2plane_444_formats", 1),
    ("VK_EXT_ycbcr_image_arrays", 1),
    ("VK_GOOGLE_hlsl_functionality1", 1),
    ("VK_GOOGLE_user_type", 1),
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
