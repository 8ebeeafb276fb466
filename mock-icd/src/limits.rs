//! VkPhysicalDeviceLimits: what NVIDIA's driver of the 580 branch reports for these generations, as published in the
//! hardware database, with the two that were measured (oracle: maxMemoryAllocationCount, bufferImageGranularity).

use ash::vk;

/// Of images as memory sees them.
pub const IMAGE_ALIGNMENT: u64 = 1024;

/// The largest number of descriptors of most kinds.
pub const DESCRIPTORS: u32 = 1_048_576;

const EXTENT: u32 = 32768;

pub const SAMPLES: vk::SampleCountFlags = vk::SampleCountFlags::from_raw(
    vk::SampleCountFlags::TYPE_1.as_raw()
        | vk::SampleCountFlags::TYPE_2.as_raw()
        | vk::SampleCountFlags::TYPE_4.as_raw()
        | vk::SampleCountFlags::TYPE_8.as_raw(),
);

pub fn limits() -> vk::PhysicalDeviceLimits {
    sampled(shaded(counted(vk::PhysicalDeviceLimits {
        max_image_dimension1_d: EXTENT,
        max_image_dimension2_d: EXTENT,
        max_image_dimension3_d: 16384,
        max_image_dimension_cube: EXTENT,
        max_image_array_layers: 2048,
        max_texel_buffer_elements: 134_217_728,
        max_uniform_buffer_range: 65536,
        max_storage_buffer_range: u32::MAX,
        max_push_constants_size: 256,
        max_memory_allocation_count: u32::MAX,
        max_sampler_allocation_count: 4000,
        buffer_image_granularity: IMAGE_ALIGNMENT,
        sparse_address_space_size: 1 << 40,
        max_framebuffer_width: EXTENT,
        max_framebuffer_height: EXTENT,
        max_framebuffer_layers: 2048,
        max_viewports: 16,
        max_viewport_dimensions: [EXTENT; 2],
        viewport_bounds_range: [-65536.0, 65536.0],
        viewport_sub_pixel_bits: 8,
        min_memory_map_alignment: 64,
        min_texel_buffer_offset_alignment: 16,
        min_uniform_buffer_offset_alignment: 64,
        min_storage_buffer_offset_alignment: 16,
        optimal_buffer_copy_offset_alignment: 1,
        optimal_buffer_copy_row_pitch_alignment: 1,
        non_coherent_atom_size: 64,
        timestamp_compute_and_graphics: vk::TRUE,
        timestamp_period: 1.0,
        discrete_queue_priorities: 2,
        ..Default::default()
    })))
}

fn counted(limits: vk::PhysicalDeviceLimits) -> vk::PhysicalDeviceLimits {
    vk::PhysicalDeviceLimits {
        max_bound_descriptor_sets: 32,
        max_per_stage_descriptor_samplers: DESCRIPTORS,
        max_per_stage_descriptor_uniform_buffers: DESCRIPTORS,
        max_per_stage_descriptor_storage_buffers: DESCRIPTORS,
        max_per_stage_descriptor_sampled_images: DESCRIPTORS,
        max_per_stage_descriptor_storage_images: DESCRIPTORS,
        max_per_stage_descriptor_input_attachments: DESCRIPTORS,
        max_per_stage_resources: u32::MAX,
        max_descriptor_set_samplers: DESCRIPTORS,
        max_descriptor_set_uniform_buffers: DESCRIPTORS,
        max_descriptor_set_uniform_buffers_dynamic: 15,
        max_descriptor_set_storage_buffers: DESCRIPTORS,
        max_descriptor_set_storage_buffers_dynamic: 16,
        max_descriptor_set_sampled_images: DESCRIPTORS,
        max_descriptor_set_storage_images: DESCRIPTORS,
        max_descriptor_set_input_attachments: DESCRIPTORS,
        ..limits
    }
}

fn shaded(limits: vk::PhysicalDeviceLimits) -> vk::PhysicalDeviceLimits {
    vk::PhysicalDeviceLimits {
        max_vertex_input_attributes: 32,
        max_vertex_input_bindings: 32,
        max_vertex_input_attribute_offset: 2047,
        max_vertex_input_binding_stride: 2048,
        max_vertex_output_components: 128,
        max_tessellation_generation_level: 64,
        max_tessellation_patch_size: 32,
        max_tessellation_control_per_vertex_input_components: 128,
        max_tessellation_control_per_vertex_output_components: 128,
        max_tessellation_control_per_patch_output_components: 120,
        max_tessellation_control_total_output_components: 4216,
        max_tessellation_evaluation_input_components: 128,
        max_tessellation_evaluation_output_components: 128,
        max_geometry_shader_invocations: 32,
        max_geometry_input_components: 128,
        max_geometry_output_components: 128,
        max_geometry_output_vertices: 1024,
        max_geometry_total_output_components: 1024,
        max_fragment_input_components: 128,
        max_fragment_output_attachments: 8,
        max_fragment_dual_src_attachments: 1,
        max_fragment_combined_output_resources: u32::MAX,
        max_compute_shared_memory_size: 49152,
        max_compute_work_group_count: [0x7fff_ffff, 65535, 65535],
        max_compute_work_group_invocations: 1024,
        max_compute_work_group_size: [1024, 1024, 64],
        max_draw_indexed_index_value: u32::MAX,
        max_draw_indirect_count: u32::MAX,
        max_clip_distances: 8,
        max_cull_distances: 8,
        max_combined_clip_and_cull_distances: 8,
        ..limits
    }
}

fn sampled(limits: vk::PhysicalDeviceLimits) -> vk::PhysicalDeviceLimits {
    vk::PhysicalDeviceLimits {
        sub_pixel_precision_bits: 8,
        sub_texel_precision_bits: 8,
        mipmap_precision_bits: 8,
        max_sampler_lod_bias: 15.0,
        max_sampler_anisotropy: 16.0,
        min_texel_offset: -8,
        max_texel_offset: 7,
        min_texel_gather_offset: -32,
        max_texel_gather_offset: 31,
        min_interpolation_offset: -0.5,
        max_interpolation_offset: 0.4375,
        sub_pixel_interpolation_offset_bits: 4,
        framebuffer_color_sample_counts: SAMPLES,
        framebuffer_depth_sample_counts: SAMPLES,
        framebuffer_stencil_sample_counts: SAMPLES,
        framebuffer_no_attachments_sample_counts: SAMPLES,
        max_color_attachments: 8,
        sampled_image_color_sample_counts: SAMPLES,
        sampled_image_integer_sample_counts: SAMPLES,
        sampled_image_depth_sample_counts: SAMPLES,
        sampled_image_stencil_sample_counts: SAMPLES,
        storage_image_sample_counts: SAMPLES,
        max_sample_mask_words: 1,
        point_size_range: [1.0, 2047.9375],
        line_width_range: [1.0, 64.0],
        point_size_granularity: 0.0625,
        line_width_granularity: 0.0625,
        strict_lines: vk::TRUE,
        standard_sample_locations: vk::TRUE,
        ..limits
    }
}
