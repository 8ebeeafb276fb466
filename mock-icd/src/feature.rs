//! What the device can do. Everything that an NVIDIA GPU of these generations does and that costs the mock nothing is on;
//! off is what would need answers that the mock does not give: formats of several planes, ETC2 and ASTC, partly resident
//! resources, protected memory, addresses that outlive a capture.

use ash::vk;

use crate::boundary::{ChainOut, Out};
use crate::part::Features;

pub fn features(features: Out<vk::PhysicalDeviceFeatures>) {
    features.put(core());
}

pub fn features2(features: Out<vk::PhysicalDeviceFeatures2<'_>>) {
    features.edit(|features| {
        features.features = core();
        let chain = ChainOut::of(features.p_next);
        Features {
            vulkan_11: vulkan_11(),
            vulkan_12: vulkan_12(),
            vulkan_13: vulkan_13(),
        }
        .fill(chain);
        chain.edit::<vk::PhysicalDeviceExtendedDynamicStateFeaturesEXT<'_>>(|state| {
            state.extended_dynamic_state = vk::TRUE;
        });
        chain.edit::<vk::PhysicalDeviceTexelBufferAlignmentFeaturesEXT<'_>>(|texels| {
            texels.texel_buffer_alignment = vk::TRUE;
        });
    });
}

fn core() -> vk::PhysicalDeviceFeatures {
    vk::PhysicalDeviceFeatures {
        robust_buffer_access: vk::TRUE,
        full_draw_index_uint32: vk::TRUE,
        image_cube_array: vk::TRUE,
        independent_blend: vk::TRUE,
        geometry_shader: vk::TRUE,
        tessellation_shader: vk::TRUE,
        sample_rate_shading: vk::TRUE,
        dual_src_blend: vk::TRUE,
        logic_op: vk::TRUE,
        multi_draw_indirect: vk::TRUE,
        draw_indirect_first_instance: vk::TRUE,
        depth_clamp: vk::TRUE,
        depth_bias_clamp: vk::TRUE,
        fill_mode_non_solid: vk::TRUE,
        depth_bounds: vk::TRUE,
        wide_lines: vk::TRUE,
        large_points: vk::TRUE,
        alpha_to_one: vk::TRUE,
        multi_viewport: vk::TRUE,
        sampler_anisotropy: vk::TRUE,
        texture_compression_bc: vk::TRUE,
        occlusion_query_precise: vk::TRUE,
        pipeline_statistics_query: vk::TRUE,
        vertex_pipeline_stores_and_atomics: vk::TRUE,
        fragment_stores_and_atomics: vk::TRUE,
        shader_tessellation_and_geometry_point_size: vk::TRUE,
        shader_image_gather_extended: vk::TRUE,
        shader_storage_image_extended_formats: vk::TRUE,
        shader_storage_image_multisample: vk::TRUE,
        shader_storage_image_read_without_format: vk::TRUE,
        shader_storage_image_write_without_format: vk::TRUE,
        shader_uniform_buffer_array_dynamic_indexing: vk::TRUE,
        shader_sampled_image_array_dynamic_indexing: vk::TRUE,
        shader_storage_buffer_array_dynamic_indexing: vk::TRUE,
        shader_storage_image_array_dynamic_indexing: vk::TRUE,
        shader_clip_distance: vk::TRUE,
        shader_cull_distance: vk::TRUE,
        shader_float64: vk::TRUE,
        shader_int64: vk::TRUE,
        shader_int16: vk::TRUE,
        shader_resource_min_lod: vk::TRUE,
        sparse_binding: vk::TRUE,
        variable_multisample_rate: vk::TRUE,
        inherited_queries: vk::TRUE,
        ..Default::default()
    }
}

fn vulkan_11() -> vk::PhysicalDeviceVulkan11Features<'static> {
    vk::PhysicalDeviceVulkan11Features {
        storage_buffer16_bit_access: vk::TRUE,
        uniform_and_storage_buffer16_bit_access: vk::TRUE,
        storage_push_constant16: vk::TRUE,
        multiview: vk::TRUE,
        multiview_geometry_shader: vk::TRUE,
        multiview_tessellation_shader: vk::TRUE,
        variable_pointers_storage_buffer: vk::TRUE,
        variable_pointers: vk::TRUE,
        shader_draw_parameters: vk::TRUE,
        ..Default::default()
    }
}

fn vulkan_12() -> vk::PhysicalDeviceVulkan12Features<'static> {
    vk::PhysicalDeviceVulkan12Features {
        sampler_mirror_clamp_to_edge: vk::TRUE,
        draw_indirect_count: vk::TRUE,
        storage_buffer8_bit_access: vk::TRUE,
        uniform_and_storage_buffer8_bit_access: vk::TRUE,
        storage_push_constant8: vk::TRUE,
        shader_buffer_int64_atomics: vk::TRUE,
        shader_shared_int64_atomics: vk::TRUE,
        shader_float16: vk::TRUE,
        shader_int8: vk::TRUE,
        descriptor_indexing: vk::TRUE,
        shader_input_attachment_array_dynamic_indexing: vk::TRUE,
        shader_uniform_texel_buffer_array_dynamic_indexing: vk::TRUE,
        shader_storage_texel_buffer_array_dynamic_indexing: vk::TRUE,
        shader_uniform_buffer_array_non_uniform_indexing: vk::TRUE,
        shader_sampled_image_array_non_uniform_indexing: vk::TRUE,
        shader_storage_buffer_array_non_uniform_indexing: vk::TRUE,
        shader_storage_image_array_non_uniform_indexing: vk::TRUE,
        shader_input_attachment_array_non_uniform_indexing: vk::TRUE,
        shader_uniform_texel_buffer_array_non_uniform_indexing: vk::TRUE,
        shader_storage_texel_buffer_array_non_uniform_indexing: vk::TRUE,
        descriptor_binding_uniform_buffer_update_after_bind: vk::TRUE,
        descriptor_binding_sampled_image_update_after_bind: vk::TRUE,
        descriptor_binding_storage_image_update_after_bind: vk::TRUE,
        descriptor_binding_storage_buffer_update_after_bind: vk::TRUE,
        descriptor_binding_uniform_texel_buffer_update_after_bind: vk::TRUE,
        descriptor_binding_storage_texel_buffer_update_after_bind: vk::TRUE,
        descriptor_binding_update_unused_while_pending: vk::TRUE,
        descriptor_binding_partially_bound: vk::TRUE,
        descriptor_binding_variable_descriptor_count: vk::TRUE,
        runtime_descriptor_array: vk::TRUE,
        sampler_filter_minmax: vk::TRUE,
        scalar_block_layout: vk::TRUE,
        imageless_framebuffer: vk::TRUE,
        uniform_buffer_standard_layout: vk::TRUE,
        shader_subgroup_extended_types: vk::TRUE,
        separate_depth_stencil_layouts: vk::TRUE,
        host_query_reset: vk::TRUE,
        timeline_semaphore: vk::TRUE,
        buffer_device_address: vk::TRUE,
        vulkan_memory_model: vk::TRUE,
        vulkan_memory_model_device_scope: vk::TRUE,
        vulkan_memory_model_availability_visibility_chains: vk::TRUE,
        shader_output_viewport_index: vk::TRUE,
        shader_output_layer: vk::TRUE,
        subgroup_broadcast_dynamic_id: vk::TRUE,
        ..Default::default()
    }
}

fn vulkan_13() -> vk::PhysicalDeviceVulkan13Features<'static> {
    vk::PhysicalDeviceVulkan13Features {
        robust_image_access: vk::TRUE,
        inline_uniform_block: vk::TRUE,
        descriptor_binding_inline_uniform_block_update_after_bind: vk::TRUE,
        pipeline_creation_cache_control: vk::TRUE,
        private_data: vk::TRUE,
        shader_demote_to_helper_invocation: vk::TRUE,
        shader_terminate_invocation: vk::TRUE,
        subgroup_size_control: vk::TRUE,
        compute_full_subgroups: vk::TRUE,
        synchronization2: vk::TRUE,
        shader_zero_initialize_workgroup_memory: vk::TRUE,
        dynamic_rendering: vk::TRUE,
        shader_integer_dot_product: vk::TRUE,
        maintenance4: vk::TRUE,
        ..Default::default()
    }
}
