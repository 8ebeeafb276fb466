//! Commands of Vulkan 1.4 and of extensions that are recorded into command buffers.

use ash::vk;

use crate::boundary::{In, List};
use crate::command;
use crate::commands::commands;

commands! {
    Device V1_4 vkCmdPushDescriptorSet(command_buffer: vk::CommandBuffer, pipeline_bind_point:
        vk::PipelineBindPoint, layout: vk::PipelineLayout, set: u32, descriptor_write_count: u32, descriptor_writes:
        List<vk::WriteDescriptorSet<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdPushDescriptorSetKHR in "VK_KHR_push_descriptor";
    Device V1_4 vkCmdPushDescriptorSetWithTemplate(command_buffer: vk::CommandBuffer, descriptor_update_template:
        vk::DescriptorUpdateTemplate, layout: vk::PipelineLayout, set: u32, data: List<u8>) -> ()
        = command::accept(command_buffer),
        vkCmdPushDescriptorSetWithTemplateKHR in "VK_KHR_push_descriptor";
    Device V1_4 vkCmdBindDescriptorSets2(command_buffer: vk::CommandBuffer, bind_descriptor_sets_info:
        In<vk::BindDescriptorSetsInfoKHR<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdBindDescriptorSets2KHR in "VK_KHR_maintenance6";
    Device V1_4 vkCmdPushConstants2(command_buffer: vk::CommandBuffer, push_constants_info:
        In<vk::PushConstantsInfoKHR<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdPushConstants2KHR in "VK_KHR_maintenance6";
    Device V1_4 vkCmdPushDescriptorSet2(command_buffer: vk::CommandBuffer, push_descriptor_set_info:
        In<vk::PushDescriptorSetInfoKHR<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdPushDescriptorSet2KHR in "VK_KHR_maintenance6";
    Device V1_4 vkCmdPushDescriptorSetWithTemplate2(command_buffer: vk::CommandBuffer,
        push_descriptor_set_with_template_info: In<vk::PushDescriptorSetWithTemplateInfoKHR<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdPushDescriptorSetWithTemplate2KHR in "VK_KHR_maintenance6";
    Device V1_4 vkCmdSetLineStipple(command_buffer: vk::CommandBuffer, line_stipple_factor: u32,
        line_stipple_pattern: u16) -> ()
        = command::accept(command_buffer),
        vkCmdSetLineStippleEXT in "VK_EXT_line_rasterization",
        vkCmdSetLineStippleKHR in "VK_KHR_line_rasterization";
    Device V1_4 vkCmdBindIndexBuffer2(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64, size: u64,
        index_type: vk::IndexType) -> ()
        = command::accept(command_buffer),
        vkCmdBindIndexBuffer2KHR in "VK_KHR_maintenance5";
    Device V1_4 vkCmdSetRenderingAttachmentLocations(command_buffer: vk::CommandBuffer, location_info:
        In<vk::RenderingAttachmentLocationInfoKHR<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdSetRenderingAttachmentLocationsKHR in "VK_KHR_dynamic_rendering_local_read";
    Device V1_4 vkCmdSetRenderingInputAttachmentIndices(command_buffer: vk::CommandBuffer,
        input_attachment_index_info: In<vk::RenderingInputAttachmentIndexInfoKHR<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdSetRenderingInputAttachmentIndicesKHR in "VK_KHR_dynamic_rendering_local_read";
    Device "VK_EXT_transform_feedback" vkCmdBindTransformFeedbackBuffersEXT(command_buffer: vk::CommandBuffer,
        first_binding: u32, binding_count: u32, buffers: List<vk::Buffer>, offsets: List<u64>, sizes: List<u64>) ->
        ()
        = command::accept(command_buffer);
    Device "VK_EXT_transform_feedback" vkCmdBeginTransformFeedbackEXT(command_buffer: vk::CommandBuffer,
        first_counter_buffer: u32, counter_buffer_count: u32, counter_buffers: List<vk::Buffer>,
        counter_buffer_offsets: List<u64>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_transform_feedback" vkCmdEndTransformFeedbackEXT(command_buffer: vk::CommandBuffer,
        first_counter_buffer: u32, counter_buffer_count: u32, counter_buffers: List<vk::Buffer>,
        counter_buffer_offsets: List<u64>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_transform_feedback" vkCmdBeginQueryIndexedEXT(command_buffer: vk::CommandBuffer, query_pool:
        vk::QueryPool, query: u32, flags: vk::QueryControlFlags, index: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_transform_feedback" vkCmdEndQueryIndexedEXT(command_buffer: vk::CommandBuffer, query_pool:
        vk::QueryPool, query: u32, index: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_transform_feedback" vkCmdDrawIndirectByteCountEXT(command_buffer: vk::CommandBuffer,
        instance_count: u32, first_instance: u32, counter_buffer: vk::Buffer, counter_buffer_offset: u64,
        counter_offset: u32, vertex_stride: u32) -> ()
        = command::draw_unknown(command_buffer, instance_count);
    Device "VK_EXT_conditional_rendering" vkCmdBeginConditionalRenderingEXT(command_buffer: vk::CommandBuffer,
        conditional_rendering_begin: In<vk::ConditionalRenderingBeginInfoEXT<'_>>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_conditional_rendering" vkCmdEndConditionalRenderingEXT(command_buffer: vk::CommandBuffer) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_discard_rectangles" vkCmdSetDiscardRectangleEXT(command_buffer: vk::CommandBuffer,
        first_discard_rectangle: u32, discard_rectangle_count: u32, discard_rectangles: List<vk::Rect2D>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_discard_rectangles" vkCmdSetDiscardRectangleEnableEXT(command_buffer: vk::CommandBuffer,
        discard_rectangle_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_discard_rectangles" vkCmdSetDiscardRectangleModeEXT(command_buffer: vk::CommandBuffer,
        discard_rectangle_mode: vk::DiscardRectangleModeEXT) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_depth_bias_control" vkCmdSetDepthBias2EXT(command_buffer: vk::CommandBuffer, depth_bias_info:
        In<vk::DepthBiasInfoEXT<'_>>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_mesh_shader" vkCmdDrawMeshTasksEXT(command_buffer: vk::CommandBuffer, group_count_x: u32,
        group_count_y: u32, group_count_z: u32) -> ()
        = command::draw_groups(command_buffer, [group_count_x, group_count_y, group_count_z]);
    Device "VK_EXT_mesh_shader" vkCmdDrawMeshTasksIndirectEXT(command_buffer: vk::CommandBuffer, buffer: vk::Buffer,
        offset: u64, draw_count: u32, stride: u32) -> ()
        = command::draw_unknown(command_buffer, draw_count);
    Device "VK_EXT_mesh_shader" vkCmdDrawMeshTasksIndirectCountEXT(command_buffer: vk::CommandBuffer, buffer:
        vk::Buffer, offset: u64, count_buffer: vk::Buffer, count_buffer_offset: u64, max_draw_count: u32, stride:
        u32) -> ()
        = command::draw_unknown(command_buffer, max_draw_count);
    Device "VK_EXT_vertex_input_dynamic_state" vkCmdSetVertexInputEXT(command_buffer: vk::CommandBuffer,
        vertex_binding_description_count: u32, vertex_binding_descriptions:
        List<vk::VertexInputBindingDescription2EXT<'_>>, vertex_attribute_description_count: u32,
        vertex_attribute_descriptions: List<vk::VertexInputAttributeDescription2EXT<'_>>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state2" vkCmdSetPatchControlPointsEXT(command_buffer: vk::CommandBuffer,
        patch_control_points: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state2" vkCmdSetLogicOpEXT(command_buffer: vk::CommandBuffer, logic_op:
        vk::LogicOp) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_color_write_enable" vkCmdSetColorWriteEnableEXT(command_buffer: vk::CommandBuffer,
        attachment_count: u32, color_write_enables: List<u32>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_multi_draw" vkCmdDrawMultiEXT(command_buffer: vk::CommandBuffer, draw_count: u32, vertex_info:
        List<vk::MultiDrawInfoEXT>, instance_count: u32, first_instance: u32, stride: u32) -> ()
        = command::draw_unknown(command_buffer, draw_count.saturating_mul(instance_count));
    Device "VK_EXT_multi_draw" vkCmdDrawMultiIndexedEXT(command_buffer: vk::CommandBuffer, draw_count: u32,
        index_info: List<vk::MultiDrawIndexedInfoEXT>, instance_count: u32, first_instance: u32, stride: u32,
        vertex_offset: In<i32>) -> ()
        = command::draw_unknown(command_buffer, draw_count.saturating_mul(instance_count));
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetDepthClampEnableEXT(command_buffer: vk::CommandBuffer,
        depth_clamp_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetPolygonModeEXT(command_buffer: vk::CommandBuffer, polygon_mode:
        vk::PolygonMode) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetRasterizationSamplesEXT(command_buffer: vk::CommandBuffer,
        rasterization_samples: vk::SampleCountFlags) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetSampleMaskEXT(command_buffer: vk::CommandBuffer, samples:
        vk::SampleCountFlags, sample_mask: List<u32>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetAlphaToCoverageEnableEXT(command_buffer: vk::CommandBuffer,
        alpha_to_coverage_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetAlphaToOneEnableEXT(command_buffer: vk::CommandBuffer,
        alpha_to_one_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetLogicOpEnableEXT(command_buffer: vk::CommandBuffer,
        logic_op_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetColorBlendEnableEXT(command_buffer: vk::CommandBuffer,
        first_attachment: u32, attachment_count: u32, color_blend_enables: List<u32>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetColorBlendEquationEXT(command_buffer: vk::CommandBuffer,
        first_attachment: u32, attachment_count: u32, color_blend_equations: List<vk::ColorBlendEquationEXT>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetColorWriteMaskEXT(command_buffer: vk::CommandBuffer,
        first_attachment: u32, attachment_count: u32, color_write_masks: List<vk::ColorComponentFlags>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetTessellationDomainOriginEXT(command_buffer: vk::CommandBuffer,
        domain_origin: vk::TessellationDomainOrigin) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetRasterizationStreamEXT(command_buffer: vk::CommandBuffer,
        rasterization_stream: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetConservativeRasterizationModeEXT(command_buffer:
        vk::CommandBuffer, conservative_rasterization_mode: vk::ConservativeRasterizationModeEXT) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetExtraPrimitiveOverestimationSizeEXT(command_buffer:
        vk::CommandBuffer, extra_primitive_overestimation_size: f32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetDepthClipEnableEXT(command_buffer: vk::CommandBuffer,
        depth_clip_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetSampleLocationsEnableEXT(command_buffer: vk::CommandBuffer,
        sample_locations_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetColorBlendAdvancedEXT(command_buffer: vk::CommandBuffer,
        first_attachment: u32, attachment_count: u32, color_blend_advanced: List<vk::ColorBlendAdvancedEXT>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetProvokingVertexModeEXT(command_buffer: vk::CommandBuffer,
        provoking_vertex_mode: vk::ProvokingVertexModeEXT) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetLineRasterizationModeEXT(command_buffer: vk::CommandBuffer,
        line_rasterization_mode: vk::LineRasterizationModeKHR) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetLineStippleEnableEXT(command_buffer: vk::CommandBuffer,
        stippled_line_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetDepthClipNegativeOneToOneEXT(command_buffer: vk::CommandBuffer,
        negative_one_to_one: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetViewportWScalingEnableNV(command_buffer: vk::CommandBuffer,
        viewport_wscaling_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetViewportSwizzleNV(command_buffer: vk::CommandBuffer,
        first_viewport: u32, viewport_count: u32, viewport_swizzles: List<vk::ViewportSwizzleNV>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetCoverageToColorEnableNV(command_buffer: vk::CommandBuffer,
        coverage_to_color_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetCoverageToColorLocationNV(command_buffer: vk::CommandBuffer,
        coverage_to_color_location: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetCoverageModulationModeNV(command_buffer: vk::CommandBuffer,
        coverage_modulation_mode: vk::CoverageModulationModeNV) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetCoverageModulationTableEnableNV(command_buffer:
        vk::CommandBuffer, coverage_modulation_table_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetCoverageModulationTableNV(command_buffer: vk::CommandBuffer,
        coverage_modulation_table_count: u32, coverage_modulation_table: List<f32>) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetShadingRateImageEnableNV(command_buffer: vk::CommandBuffer,
        shading_rate_image_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetRepresentativeFragmentTestEnableNV(command_buffer:
        vk::CommandBuffer, representative_fragment_test_enable: u32) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_extended_dynamic_state3" vkCmdSetCoverageReductionModeNV(command_buffer: vk::CommandBuffer,
        coverage_reduction_mode: vk::CoverageReductionModeNV) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_attachment_feedback_loop_dynamic_state" vkCmdSetAttachmentFeedbackLoopEnableEXT(command_buffer:
        vk::CommandBuffer, aspect_mask: vk::ImageAspectFlags) -> ()
        = command::accept(command_buffer);
    Device "VK_EXT_sample_locations" vkCmdSetSampleLocationsEXT(command_buffer: vk::CommandBuffer,
        sample_locations_info: In<vk::SampleLocationsInfoEXT<'_>>) -> ()
        = command::accept(command_buffer);
    Device "VK_KHR_fragment_shading_rate" vkCmdSetFragmentShadingRateKHR(command_buffer: vk::CommandBuffer,
        fragment_size: In<vk::Extent2D>, combiner_ops: List<vk::FragmentShadingRateCombinerOpKHR>) -> ()
        = command::accept(command_buffer);
}
