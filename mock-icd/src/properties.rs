//! Who the device is and what its properties are. Identity is the world's: its faults show here (V1, V2).

use ash::vk;
use mock_device::Api;

use crate::boundary::{ChainOut, Out, Outcome};
use crate::extension::put_text;
use crate::instance::{PhysicalDevice, api_version};
use crate::limits::{self, DESCRIPTORS};
use crate::part::Properties;
use crate::state::STATE;

/// Changes when a cache made by an older build of this mock would be misread.
pub const CACHE_UUID: [u8; vk::UUID_SIZE] = *b"ringfence-mock-1";

const VENDOR: u32 = 0x10de;

pub fn properties(
    physical: vk::PhysicalDevice,
    properties: Out<vk::PhysicalDeviceProperties>,
) -> Outcome {
    properties.put(described(*STATE.physical_devices.find(physical)?));
    Ok(())
}

pub fn properties2(
    physical: vk::PhysicalDevice,
    properties: Out<vk::PhysicalDeviceProperties2<'_>>,
) -> Outcome {
    let physical = *STATE.physical_devices.find(physical)?;
    properties.edit(|properties| {
        properties.properties = described(physical);
        let chain = ChainOut::of(properties.p_next);
        let vulkan_11 = vulkan_11(physical);
        chain.edit::<vk::PhysicalDeviceSubgroupProperties<'_>>(|subgroup| {
            subgroup.subgroup_size = vulkan_11.subgroup_size;
            subgroup.supported_stages = vulkan_11.subgroup_supported_stages;
            subgroup.supported_operations = vulkan_11.subgroup_supported_operations;
            subgroup.quad_operations_in_all_stages =
                vulkan_11.subgroup_quad_operations_in_all_stages;
        });
        Properties {
            vulkan_11,
            vulkan_12: vulkan_12(physical),
            vulkan_13: vulkan_13(),
        }
        .fill(chain);
        chain.edit::<vk::PhysicalDevicePCIBusInfoPropertiesEXT<'_>>(|pci| {
            let address = physical.world.identity(physical.index, Api::Vulkan).pci;
            pci.pci_domain = address.domain;
            pci.pci_bus = address.bus;
            pci.pci_device = address.device;
            pci.pci_function = address.function;
        });
    });
    Ok(())
}

fn described(physical: PhysicalDevice) -> vk::PhysicalDeviceProperties {
    let profile = physical.profile();
    let mut properties = vk::PhysicalDeviceProperties {
        api_version: api_version(physical.world),
        driver_version: physical.world.machine().driver.vulkan_version,
        vendor_id: VENDOR,
        device_id: profile.pci_device_id,
        device_type: vk::PhysicalDeviceType::DISCRETE_GPU,
        pipeline_cache_uuid: CACHE_UUID,
        limits: limits::limits(),
        ..Default::default()
    };
    put_text(&mut properties.device_name, &profile.name);
    properties
}

fn vulkan_11(physical: PhysicalDevice) -> vk::PhysicalDeviceVulkan11Properties<'static> {
    vk::PhysicalDeviceVulkan11Properties {
        device_uuid: physical.world.identity(physical.index, Api::Vulkan).uuid,
        driver_uuid: physical.world.machine().driver.vulkan_driver_uuid.0,
        device_node_mask: 1,
        device_luid_valid: vk::FALSE,
        subgroup_size: 32,
        subgroup_supported_stages: vk::ShaderStageFlags::ALL_GRAPHICS
            | vk::ShaderStageFlags::COMPUTE,
        // Basic to quad: the eight of Vulkan 1.1.
        subgroup_supported_operations: vk::SubgroupFeatureFlags::from_raw(0xff),
        subgroup_quad_operations_in_all_stages: vk::TRUE,
        point_clipping_behavior: vk::PointClippingBehavior::USER_CLIP_PLANES_ONLY,
        max_multiview_view_count: 32,
        max_multiview_instance_index: 134_217_727,
        protected_no_fault: vk::FALSE,
        max_per_set_descriptors: u32::MAX,
        // The heap bounds an allocation, and nothing else does.
        max_memory_allocation_size: !0xffff,
        ..Default::default()
    }
}

fn vulkan_12(physical: PhysicalDevice) -> vk::PhysicalDeviceVulkan12Properties<'static> {
    let mut properties = vk::PhysicalDeviceVulkan12Properties {
        driver_id: vk::DriverId::NVIDIA_PROPRIETARY,
        conformance_version: vk::ConformanceVersion {
            major: 1,
            minor: 3,
            subminor: 8,
            patch: 2,
        },
        denorm_behavior_independence: vk::ShaderFloatControlsIndependence::ALL,
        rounding_mode_independence: vk::ShaderFloatControlsIndependence::ALL,
        shader_signed_zero_inf_nan_preserve_float16: vk::TRUE,
        shader_signed_zero_inf_nan_preserve_float32: vk::TRUE,
        shader_signed_zero_inf_nan_preserve_float64: vk::TRUE,
        shader_denorm_preserve_float16: vk::TRUE,
        shader_denorm_preserve_float32: vk::TRUE,
        shader_denorm_preserve_float64: vk::TRUE,
        shader_rounding_mode_rte_float16: vk::TRUE,
        shader_rounding_mode_rte_float32: vk::TRUE,
        shader_rounding_mode_rte_float64: vk::TRUE,
        shader_rounding_mode_rtz_float16: vk::TRUE,
        shader_rounding_mode_rtz_float32: vk::TRUE,
        shader_rounding_mode_rtz_float64: vk::TRUE,
        shader_uniform_buffer_array_non_uniform_indexing_native: vk::TRUE,
        shader_sampled_image_array_non_uniform_indexing_native: vk::TRUE,
        shader_storage_buffer_array_non_uniform_indexing_native: vk::TRUE,
        shader_storage_image_array_non_uniform_indexing_native: vk::TRUE,
        shader_input_attachment_array_non_uniform_indexing_native: vk::TRUE,
        robust_buffer_access_update_after_bind: vk::TRUE,
        quad_divergent_implicit_lod: vk::TRUE,
        max_update_after_bind_descriptors_in_all_pools: u32::MAX,
        max_per_stage_descriptor_update_after_bind_samplers: DESCRIPTORS,
        max_per_stage_descriptor_update_after_bind_uniform_buffers: DESCRIPTORS,
        max_per_stage_descriptor_update_after_bind_storage_buffers: DESCRIPTORS,
        max_per_stage_descriptor_update_after_bind_sampled_images: DESCRIPTORS,
        max_per_stage_descriptor_update_after_bind_storage_images: DESCRIPTORS,
        max_per_stage_descriptor_update_after_bind_input_attachments: DESCRIPTORS,
        max_per_stage_update_after_bind_resources: u32::MAX,
        max_descriptor_set_update_after_bind_samplers: DESCRIPTORS,
        max_descriptor_set_update_after_bind_uniform_buffers: DESCRIPTORS,
        max_descriptor_set_update_after_bind_uniform_buffers_dynamic: 15,
        max_descriptor_set_update_after_bind_storage_buffers: DESCRIPTORS,
        max_descriptor_set_update_after_bind_storage_buffers_dynamic: 16,
        max_descriptor_set_update_after_bind_sampled_images: DESCRIPTORS,
        max_descriptor_set_update_after_bind_storage_images: DESCRIPTORS,
        max_descriptor_set_update_after_bind_input_attachments: DESCRIPTORS,
        // Sample zero, average, minimum, maximum.
        supported_depth_resolve_modes: vk::ResolveModeFlags::from_raw(0xf),
        supported_stencil_resolve_modes: vk::ResolveModeFlags::from_raw(0xd),
        independent_resolve_none: vk::TRUE,
        independent_resolve: vk::TRUE,
        filter_minmax_single_component_formats: vk::TRUE,
        filter_minmax_image_component_mapping: vk::TRUE,
        max_timeline_semaphore_value_difference: i64::MAX.cast_unsigned(),
        framebuffer_integer_color_sample_counts: limits::SAMPLES,
        ..Default::default()
    };
    put_text(&mut properties.driver_name, "NVIDIA");
    put_text(
        &mut properties.driver_info,
        &physical.world.machine().driver.version,
    );
    properties
}

/// No 8- or 16-bit dot product is said to be fast: nothing here computes one.
fn vulkan_13() -> vk::PhysicalDeviceVulkan13Properties<'static> {
    vk::PhysicalDeviceVulkan13Properties {
        min_subgroup_size: 32,
        max_subgroup_size: 32,
        max_compute_workgroup_subgroups: 32,
        required_subgroup_size_stages: vk::ShaderStageFlags::ALL_GRAPHICS
            | vk::ShaderStageFlags::COMPUTE,
        max_inline_uniform_block_size: 256,
        max_per_stage_descriptor_inline_uniform_blocks: 32,
        max_per_stage_descriptor_update_after_bind_inline_uniform_blocks: 32,
        max_descriptor_set_inline_uniform_blocks: 32,
        max_descriptor_set_update_after_bind_inline_uniform_blocks: 32,
        max_inline_uniform_total_size: 256 * 32,
        storage_texel_buffer_offset_alignment_bytes: 16,
        storage_texel_buffer_offset_single_texel_alignment: vk::TRUE,
        uniform_texel_buffer_offset_alignment_bytes: 16,
        uniform_texel_buffer_offset_single_texel_alignment: vk::TRUE,
        max_buffer_size: 1 << 40,
        ..Default::default()
    }
}
