//! The structures of which Vulkan 1.1 to 1.3 made one each per version: every older structure is a selection of the newer
//! one's fields, so the values are written once, in `feature.rs` and `properties.rs`.

use ash::vk;

use crate::boundary::ChainOut;

/// The three structures that hold everything, for features or for properties.
pub struct Whole<First, Second, Third> {
    pub vulkan_11: First,
    pub vulkan_12: Second,
    pub vulkan_13: Third,
}

pub type Features = Whole<
    vk::PhysicalDeviceVulkan11Features<'static>,
    vk::PhysicalDeviceVulkan12Features<'static>,
    vk::PhysicalDeviceVulkan13Features<'static>,
>;

pub type Properties = Whole<
    vk::PhysicalDeviceVulkan11Properties<'static>,
    vk::PhysicalDeviceVulkan12Properties<'static>,
    vk::PhysicalDeviceVulkan13Properties<'static>,
>;

macro_rules! parts {
    ($whole:ident { $($version:ident: $newer:ty { $($part:ident { $($field:ident),* })* })* }) => {
        impl $whole {
            /// Fills every structure of the chain that is one of these.
            pub fn fill(&self, chain: ChainOut) {
                $(
                    chain.edit::<$newer>(|to| *to = vk_with_next!(self.$version, to));
                    $(chain.edit::<vk::$part<'_>>(|to| {
                        $(to.$field = self.$version.$field;)*
                    });)*
                )*
            }
        }
    };
}

/// The values of one structure with the chain of another.
macro_rules! vk_with_next {
    ($values:expr, $to:ident) => {{
        let mut values = $values;
        values.p_next = $to.p_next;
        values
    }};
}

parts! {
    Features {
        vulkan_11: vk::PhysicalDeviceVulkan11Features<'_> {
            PhysicalDeviceVariablePointersFeatures { variable_pointers_storage_buffer, variable_pointers }
            PhysicalDeviceMultiviewFeatures { multiview, multiview_geometry_shader,
                multiview_tessellation_shader }
            PhysicalDevice16BitStorageFeatures { storage_buffer16_bit_access,
                uniform_and_storage_buffer16_bit_access, storage_push_constant16, storage_input_output16 }
            PhysicalDeviceSamplerYcbcrConversionFeatures { sampler_ycbcr_conversion }
            PhysicalDeviceProtectedMemoryFeatures { protected_memory }
            PhysicalDeviceShaderDrawParametersFeatures { shader_draw_parameters }
        }
        vulkan_12: vk::PhysicalDeviceVulkan12Features<'_> {
            PhysicalDeviceShaderSubgroupExtendedTypesFeatures { shader_subgroup_extended_types }
            PhysicalDeviceShaderFloat16Int8Features { shader_float16, shader_int8 }
            PhysicalDeviceHostQueryResetFeatures { host_query_reset }
            PhysicalDeviceDescriptorIndexingFeatures { shader_input_attachment_array_dynamic_indexing,
                shader_uniform_texel_buffer_array_dynamic_indexing,
                shader_storage_texel_buffer_array_dynamic_indexing,
                shader_uniform_buffer_array_non_uniform_indexing,
                shader_sampled_image_array_non_uniform_indexing,
                shader_storage_buffer_array_non_uniform_indexing,
                shader_storage_image_array_non_uniform_indexing,
                shader_input_attachment_array_non_uniform_indexing,
                shader_uniform_texel_buffer_array_non_uniform_indexing,
                shader_storage_texel_buffer_array_non_uniform_indexing,
                descriptor_binding_uniform_buffer_update_after_bind,
                descriptor_binding_sampled_image_update_after_bind,
                descriptor_binding_storage_image_update_after_bind,
                descriptor_binding_storage_buffer_update_after_bind,
                descriptor_binding_uniform_texel_buffer_update_after_bind,
                descriptor_binding_storage_texel_buffer_update_after_bind,
                descriptor_binding_update_unused_while_pending, descriptor_binding_partially_bound,
                descriptor_binding_variable_descriptor_count, runtime_descriptor_array }
            PhysicalDeviceTimelineSemaphoreFeatures { timeline_semaphore }
            PhysicalDevice8BitStorageFeatures { storage_buffer8_bit_access,
                uniform_and_storage_buffer8_bit_access, storage_push_constant8 }
            PhysicalDeviceVulkanMemoryModelFeatures { vulkan_memory_model, vulkan_memory_model_device_scope,
                vulkan_memory_model_availability_visibility_chains }
            PhysicalDeviceShaderAtomicInt64Features { shader_buffer_int64_atomics, shader_shared_int64_atomics
                }
            PhysicalDeviceScalarBlockLayoutFeatures { scalar_block_layout }
            PhysicalDeviceUniformBufferStandardLayoutFeatures { uniform_buffer_standard_layout }
            PhysicalDeviceBufferDeviceAddressFeatures { buffer_device_address,
                buffer_device_address_capture_replay, buffer_device_address_multi_device }
            PhysicalDeviceImagelessFramebufferFeatures { imageless_framebuffer }
            PhysicalDeviceSeparateDepthStencilLayoutsFeatures { separate_depth_stencil_layouts }
        }
        vulkan_13: vk::PhysicalDeviceVulkan13Features<'_> {
            PhysicalDevicePrivateDataFeatures { private_data }
            PhysicalDeviceInlineUniformBlockFeatures { inline_uniform_block,
                descriptor_binding_inline_uniform_block_update_after_bind }
            PhysicalDeviceMaintenance4Features { maintenance4 }
            PhysicalDeviceTextureCompressionASTCHDRFeatures { texture_compression_astc_hdr }
            PhysicalDeviceShaderDemoteToHelperInvocationFeatures { shader_demote_to_helper_invocation }
            PhysicalDeviceSubgroupSizeControlFeatures { subgroup_size_control, compute_full_subgroups }
            PhysicalDevicePipelineCreationCacheControlFeatures { pipeline_creation_cache_control }
            PhysicalDeviceZeroInitializeWorkgroupMemoryFeatures { shader_zero_initialize_workgroup_memory }
            PhysicalDeviceImageRobustnessFeatures { robust_image_access }
            PhysicalDeviceShaderTerminateInvocationFeatures { shader_terminate_invocation }
            PhysicalDeviceSynchronization2Features { synchronization2 }
            PhysicalDeviceShaderIntegerDotProductFeatures { shader_integer_dot_product }
            PhysicalDeviceDynamicRenderingFeatures { dynamic_rendering }
        }
    }
}

parts! {
    Properties {
        vulkan_11: vk::PhysicalDeviceVulkan11Properties<'_> {
            PhysicalDeviceIDProperties { device_uuid, driver_uuid, device_luid, device_node_mask,
                device_luid_valid }
            PhysicalDeviceMultiviewProperties { max_multiview_view_count, max_multiview_instance_index }
            PhysicalDevicePointClippingProperties { point_clipping_behavior }
            PhysicalDeviceProtectedMemoryProperties { protected_no_fault }
            PhysicalDeviceMaintenance3Properties { max_per_set_descriptors, max_memory_allocation_size }
        }
        vulkan_12: vk::PhysicalDeviceVulkan12Properties<'_> {
            PhysicalDeviceDriverProperties { driver_id, driver_name, driver_info, conformance_version }
            PhysicalDeviceSamplerFilterMinmaxProperties { filter_minmax_single_component_formats,
                filter_minmax_image_component_mapping }
            PhysicalDeviceFloatControlsProperties { denorm_behavior_independence, rounding_mode_independence,
                shader_signed_zero_inf_nan_preserve_float16, shader_signed_zero_inf_nan_preserve_float32,
                shader_signed_zero_inf_nan_preserve_float64, shader_denorm_preserve_float16,
                shader_denorm_preserve_float32, shader_denorm_preserve_float64,
                shader_denorm_flush_to_zero_float16, shader_denorm_flush_to_zero_float32,
                shader_denorm_flush_to_zero_float64, shader_rounding_mode_rte_float16,
                shader_rounding_mode_rte_float32, shader_rounding_mode_rte_float64,
                shader_rounding_mode_rtz_float16, shader_rounding_mode_rtz_float32,
                shader_rounding_mode_rtz_float64 }
            PhysicalDeviceDescriptorIndexingProperties { max_update_after_bind_descriptors_in_all_pools,
                shader_uniform_buffer_array_non_uniform_indexing_native,
                shader_sampled_image_array_non_uniform_indexing_native,
                shader_storage_buffer_array_non_uniform_indexing_native,
                shader_storage_image_array_non_uniform_indexing_native,
                shader_input_attachment_array_non_uniform_indexing_native,
                robust_buffer_access_update_after_bind, quad_divergent_implicit_lod,
                max_per_stage_descriptor_update_after_bind_samplers,
                max_per_stage_descriptor_update_after_bind_uniform_buffers,
                max_per_stage_descriptor_update_after_bind_storage_buffers,
                max_per_stage_descriptor_update_after_bind_sampled_images,
                max_per_stage_descriptor_update_after_bind_storage_images,
                max_per_stage_descriptor_update_after_bind_input_attachments,
                max_per_stage_update_after_bind_resources, max_descriptor_set_update_after_bind_samplers,
                max_descriptor_set_update_after_bind_uniform_buffers,
                max_descriptor_set_update_after_bind_uniform_buffers_dynamic,
                max_descriptor_set_update_after_bind_storage_buffers,
                max_descriptor_set_update_after_bind_storage_buffers_dynamic,
                max_descriptor_set_update_after_bind_sampled_images,
                max_descriptor_set_update_after_bind_storage_images,
                max_descriptor_set_update_after_bind_input_attachments }
            PhysicalDeviceTimelineSemaphoreProperties { max_timeline_semaphore_value_difference }
            PhysicalDeviceDepthStencilResolveProperties { supported_depth_resolve_modes,
                supported_stencil_resolve_modes, independent_resolve_none, independent_resolve }
        }
        vulkan_13: vk::PhysicalDeviceVulkan13Properties<'_> {
            PhysicalDeviceInlineUniformBlockProperties { max_inline_uniform_block_size,
                max_per_stage_descriptor_inline_uniform_blocks,
                max_per_stage_descriptor_update_after_bind_inline_uniform_blocks,
                max_descriptor_set_inline_uniform_blocks,
                max_descriptor_set_update_after_bind_inline_uniform_blocks }
            PhysicalDeviceMaintenance4Properties { max_buffer_size }
            PhysicalDeviceTexelBufferAlignmentProperties { storage_texel_buffer_offset_alignment_bytes,
                storage_texel_buffer_offset_single_texel_alignment,
                uniform_texel_buffer_offset_alignment_bytes,
                uniform_texel_buffer_offset_single_texel_alignment }
            PhysicalDeviceSubgroupSizeControlProperties { min_subgroup_size, max_subgroup_size,
                max_compute_workgroup_subgroups, required_subgroup_size_stages }
            PhysicalDeviceShaderIntegerDotProductProperties { integer_dot_product8_bit_unsigned_accelerated,
                integer_dot_product8_bit_signed_accelerated,
                integer_dot_product8_bit_mixed_signedness_accelerated,
                integer_dot_product4x8_bit_packed_unsigned_accelerated,
                integer_dot_product4x8_bit_packed_signed_accelerated,
                integer_dot_product4x8_bit_packed_mixed_signedness_accelerated,
                integer_dot_product16_bit_unsigned_accelerated, integer_dot_product16_bit_signed_accelerated,
                integer_dot_product16_bit_mixed_signedness_accelerated,
                integer_dot_product32_bit_unsigned_accelerated, integer_dot_product32_bit_signed_accelerated,
                integer_dot_product32_bit_mixed_signedness_accelerated,
                integer_dot_product64_bit_unsigned_accelerated, integer_dot_product64_bit_signed_accelerated,
                integer_dot_product64_bit_mixed_signedness_accelerated,
                integer_dot_product_accumulating_saturating8_bit_unsigned_accelerated,
                integer_dot_product_accumulating_saturating8_bit_signed_accelerated,
                integer_dot_product_accumulating_saturating8_bit_mixed_signedness_accelerated,
                integer_dot_product_accumulating_saturating4x8_bit_packed_unsigned_accelerated,
                integer_dot_product_accumulating_saturating4x8_bit_packed_signed_accelerated,
                integer_dot_product_accumulating_saturating4x8_bit_packed_mixed_signedness_accelerated,
                integer_dot_product_accumulating_saturating16_bit_unsigned_accelerated,
                integer_dot_product_accumulating_saturating16_bit_signed_accelerated,
                integer_dot_product_accumulating_saturating16_bit_mixed_signedness_accelerated,
                integer_dot_product_accumulating_saturating32_bit_unsigned_accelerated,
                integer_dot_product_accumulating_saturating32_bit_signed_accelerated,
                integer_dot_product_accumulating_saturating32_bit_mixed_signedness_accelerated,
                integer_dot_product_accumulating_saturating64_bit_unsigned_accelerated,
                integer_dot_product_accumulating_saturating64_bit_signed_accelerated,
                integer_dot_product_accumulating_saturating64_bit_mixed_signedness_accelerated }
        }
    }
}
