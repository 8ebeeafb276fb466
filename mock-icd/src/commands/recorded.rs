//! Commands that are recorded into command buffers.

use ash::vk;

use crate::boundary::{In, List};
use crate::commands::commands;
use crate::{command, effect, pass, raster, transfer};

commands! {
    Device V1_0 vkCmdBindPipeline(command_buffer: vk::CommandBuffer, pipeline_bind_point: vk::PipelineBindPoint,
        pipeline: vk::Pipeline) -> ()
        = command::bind(command_buffer, pipeline_bind_point, pipeline);
    Device V1_0 vkCmdSetViewport(command_buffer: vk::CommandBuffer, first_viewport: u32, viewport_count: u32,
        viewports: List<vk::Viewport>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetScissor(command_buffer: vk::CommandBuffer, first_scissor: u32, scissor_count: u32, scissors:
        List<vk::Rect2D>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetLineWidth(command_buffer: vk::CommandBuffer, line_width: f32) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetDepthBias(command_buffer: vk::CommandBuffer, depth_bias_constant_factor: f32,
        depth_bias_clamp: f32, depth_bias_slope_factor: f32) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetBlendConstants(command_buffer: vk::CommandBuffer, blend_constants: List<f32>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetDepthBounds(command_buffer: vk::CommandBuffer, min_depth_bounds: f32, max_depth_bounds: f32)
        -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetStencilCompareMask(command_buffer: vk::CommandBuffer, face_mask: vk::StencilFaceFlags,
        compare_mask: u32) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetStencilWriteMask(command_buffer: vk::CommandBuffer, face_mask: vk::StencilFaceFlags,
        write_mask: u32) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdSetStencilReference(command_buffer: vk::CommandBuffer, face_mask: vk::StencilFaceFlags,
        reference: u32) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdBindDescriptorSets(command_buffer: vk::CommandBuffer, pipeline_bind_point:
        vk::PipelineBindPoint, layout: vk::PipelineLayout, first_set: u32, descriptor_set_count: u32,
        descriptor_sets: List<vk::DescriptorSet>, dynamic_offset_count: u32, dynamic_offsets: List<u32>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdBindIndexBuffer(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64, index_type:
        vk::IndexType) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdBindVertexBuffers(command_buffer: vk::CommandBuffer, first_binding: u32, binding_count: u32,
        buffers: List<vk::Buffer>, offsets: List<u64>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdDraw(command_buffer: vk::CommandBuffer, vertex_count: u32, instance_count: u32, first_vertex:
        u32, first_instance: u32) -> ()
        = command::draw(command_buffer, vertex_count, instance_count);
    Device V1_0 vkCmdDrawIndexed(command_buffer: vk::CommandBuffer, index_count: u32, instance_count: u32,
        first_index: u32, vertex_offset: i32, first_instance: u32) -> ()
        = command::draw(command_buffer, index_count, instance_count);
    Device V1_0 vkCmdDrawIndirect(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64, draw_count:
        u32, stride: u32) -> ()
        = command::draw_unknown(command_buffer, draw_count);
    Device V1_0 vkCmdDrawIndexedIndirect(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64,
        draw_count: u32, stride: u32) -> ()
        = command::draw_unknown(command_buffer, draw_count);
    Device V1_0 vkCmdDispatch(command_buffer: vk::CommandBuffer, group_count_x: u32, group_count_y: u32,
        group_count_z: u32) -> ()
        = command::dispatch(command_buffer, [group_count_x, group_count_y, group_count_z]);
    Device V1_0 vkCmdDispatchIndirect(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64) -> ()
        = command::dispatch(command_buffer, [1; 3]);
    Device V1_0 vkCmdCopyBuffer(command_buffer: vk::CommandBuffer, src_buffer: vk::Buffer, dst_buffer: vk::Buffer,
        region_count: u32, regions: List<vk::BufferCopy>) -> ()
        = effect::copy(command_buffer, src_buffer, dst_buffer, region_count, regions);
    Device V1_0 vkCmdCopyImage(command_buffer: vk::CommandBuffer, src_image: vk::Image, src_image_layout:
        vk::ImageLayout, dst_image: vk::Image, dst_image_layout: vk::ImageLayout, region_count: u32, regions:
        List<vk::ImageCopy>) -> ()
        = transfer::image_to_image(command_buffer, src_image, dst_image, region_count, regions);
    Device V1_0 vkCmdBlitImage(command_buffer: vk::CommandBuffer, src_image: vk::Image, src_image_layout:
        vk::ImageLayout, dst_image: vk::Image, dst_image_layout: vk::ImageLayout, region_count: u32, regions:
        List<vk::ImageBlit>, filter: vk::Filter) -> ()
        = raster::blit(command_buffer, src_image, dst_image, (region_count, regions), filter);
    Device V1_0 vkCmdCopyBufferToImage(command_buffer: vk::CommandBuffer, src_buffer: vk::Buffer, dst_image:
        vk::Image, dst_image_layout: vk::ImageLayout, region_count: u32, regions: List<vk::BufferImageCopy>) -> ()
        = transfer::buffer_to_image(command_buffer, src_buffer, dst_image, region_count, regions);
    Device V1_0 vkCmdCopyImageToBuffer(command_buffer: vk::CommandBuffer, src_image: vk::Image, src_image_layout:
        vk::ImageLayout, dst_buffer: vk::Buffer, region_count: u32, regions: List<vk::BufferImageCopy>) -> ()
        = transfer::image_to_buffer(command_buffer, src_image, dst_buffer, region_count, regions);
    Device V1_0 vkCmdUpdateBuffer(command_buffer: vk::CommandBuffer, dst_buffer: vk::Buffer, dst_offset: u64,
        data_size: u64, data: List<u8>) -> ()
        = effect::update(command_buffer, dst_buffer, dst_offset, data_size, data);
    Device V1_0 vkCmdFillBuffer(command_buffer: vk::CommandBuffer, dst_buffer: vk::Buffer, dst_offset: u64, size:
        u64, data: u32) -> ()
        = effect::fill(command_buffer, dst_buffer, dst_offset, size, data);
    Device V1_0 vkCmdClearColorImage(command_buffer: vk::CommandBuffer, image: vk::Image, image_layout:
        vk::ImageLayout, color: In<vk::ClearColorValue>, range_count: u32, ranges: List<vk::ImageSubresourceRange>)
        -> ()
        = raster::clear_color(command_buffer, image, color, range_count, ranges);
    Device V1_0 vkCmdClearDepthStencilImage(command_buffer: vk::CommandBuffer, image: vk::Image, image_layout:
        vk::ImageLayout, depth_stencil: In<vk::ClearDepthStencilValue>, range_count: u32, ranges:
        List<vk::ImageSubresourceRange>) -> ()
        = raster::clear_depth_stencil(command_buffer, image, depth_stencil, range_count, ranges);
    Device V1_0 vkCmdClearAttachments(command_buffer: vk::CommandBuffer, attachment_count: u32, attachments:
        List<vk::ClearAttachment>, rect_count: u32, rects: List<vk::ClearRect>) -> ()
        = pass::clear_attachments(command_buffer, (attachment_count, attachments), (rect_count, rects));
    Device V1_0 vkCmdResolveImage(command_buffer: vk::CommandBuffer, src_image: vk::Image, src_image_layout:
        vk::ImageLayout, dst_image: vk::Image, dst_image_layout: vk::ImageLayout, region_count: u32, regions:
        List<vk::ImageResolve>) -> ()
        = raster::resolve(command_buffer, src_image, dst_image, region_count, regions);
    Device V1_0 vkCmdSetEvent(command_buffer: vk::CommandBuffer, event: vk::Event, stage_mask:
        vk::PipelineStageFlags) -> ()
        = effect::event(command_buffer, event, true);
    Device V1_0 vkCmdResetEvent(command_buffer: vk::CommandBuffer, event: vk::Event, stage_mask:
        vk::PipelineStageFlags) -> ()
        = effect::event(command_buffer, event, false);
    Device V1_0 vkCmdWaitEvents(command_buffer: vk::CommandBuffer, event_count: u32, events: List<vk::Event>,
        src_stage_mask: vk::PipelineStageFlags, dst_stage_mask: vk::PipelineStageFlags, memory_barrier_count: u32,
        memory_barriers: List<vk::MemoryBarrier<'_>>, buffer_memory_barrier_count: u32, buffer_memory_barriers:
        List<vk::BufferMemoryBarrier<'_>>, image_memory_barrier_count: u32, image_memory_barriers:
        List<vk::ImageMemoryBarrier<'_>>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdPipelineBarrier(command_buffer: vk::CommandBuffer, src_stage_mask: vk::PipelineStageFlags,
        dst_stage_mask: vk::PipelineStageFlags, dependency_flags: vk::DependencyFlags, memory_barrier_count: u32,
        memory_barriers: List<vk::MemoryBarrier<'_>>, buffer_memory_barrier_count: u32, buffer_memory_barriers:
        List<vk::BufferMemoryBarrier<'_>>, image_memory_barrier_count: u32, image_memory_barriers:
        List<vk::ImageMemoryBarrier<'_>>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdBeginQuery(command_buffer: vk::CommandBuffer, query_pool: vk::QueryPool, query: u32, flags:
        vk::QueryControlFlags) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdEndQuery(command_buffer: vk::CommandBuffer, query_pool: vk::QueryPool, query: u32) -> ()
        = effect::finish_query(command_buffer, query_pool, query);
    Device V1_0 vkCmdResetQueryPool(command_buffer: vk::CommandBuffer, query_pool: vk::QueryPool, first_query: u32,
        query_count: u32) -> ()
        = effect::reset_queries(command_buffer, query_pool, first_query, query_count);
    Device V1_0 vkCmdWriteTimestamp(command_buffer: vk::CommandBuffer, pipeline_stage: vk::PipelineStageFlags,
        query_pool: vk::QueryPool, query: u32) -> ()
        = effect::finish_query(command_buffer, query_pool, query);
    Device V1_0 vkCmdCopyQueryPoolResults(command_buffer: vk::CommandBuffer, query_pool: vk::QueryPool, first_query:
        u32, query_count: u32, dst_buffer: vk::Buffer, dst_offset: u64, stride: u64, flags: vk::QueryResultFlags) ->
        ()
        = effect::copy_queries(command_buffer, query_pool, dst_buffer, effect::Results { first: first_query, count: query_count, offset: dst_offset, stride, flags });
    Device V1_0 vkCmdPushConstants(command_buffer: vk::CommandBuffer, layout: vk::PipelineLayout, stage_flags:
        vk::ShaderStageFlags, offset: u32, size: u32, values: List<u8>) -> ()
        = command::accept(command_buffer);
    Device V1_0 vkCmdBeginRenderPass(command_buffer: vk::CommandBuffer, render_pass_begin:
        In<vk::RenderPassBeginInfo<'_>>, contents: vk::SubpassContents) -> ()
        = pass::begin(command_buffer, render_pass_begin);
    Device V1_0 vkCmdNextSubpass(command_buffer: vk::CommandBuffer, contents: vk::SubpassContents) -> ()
        = pass::next(command_buffer);
    Device V1_0 vkCmdEndRenderPass(command_buffer: vk::CommandBuffer) -> ()
        = pass::end(command_buffer);
    Device V1_0 vkCmdExecuteCommands(command_buffer: vk::CommandBuffer, command_buffer_count: u32, command_buffers:
        List<vk::CommandBuffer>) -> ()
        = command::execute(command_buffer, command_buffer_count, command_buffers);
    Device V1_1 vkCmdSetDeviceMask(command_buffer: vk::CommandBuffer, device_mask: u32) -> ()
        = command::set_mask(command_buffer, device_mask),
        vkCmdSetDeviceMaskKHR in "VK_KHR_device_group";
    Device V1_1 vkCmdDispatchBase(command_buffer: vk::CommandBuffer, base_group_x: u32, base_group_y: u32,
        base_group_z: u32, group_count_x: u32, group_count_y: u32, group_count_z: u32) -> ()
        = command::dispatch(command_buffer, [group_count_x, group_count_y, group_count_z]),
        vkCmdDispatchBaseKHR in "VK_KHR_device_group";
    Device V1_2 vkCmdDrawIndirectCount(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64,
        count_buffer: vk::Buffer, count_buffer_offset: u64, max_draw_count: u32, stride: u32) -> ()
        = command::draw_unknown(command_buffer, max_draw_count),
        vkCmdDrawIndirectCountKHR in "VK_KHR_draw_indirect_count";
    Device V1_2 vkCmdDrawIndexedIndirectCount(command_buffer: vk::CommandBuffer, buffer: vk::Buffer, offset: u64,
        count_buffer: vk::Buffer, count_buffer_offset: u64, max_draw_count: u32, stride: u32) -> ()
        = command::draw_unknown(command_buffer, max_draw_count),
        vkCmdDrawIndexedIndirectCountKHR in "VK_KHR_draw_indirect_count";
    Device V1_2 vkCmdBeginRenderPass2(command_buffer: vk::CommandBuffer, render_pass_begin:
        In<vk::RenderPassBeginInfo<'_>>, subpass_begin_info: In<vk::SubpassBeginInfo<'_>>) -> ()
        = pass::begin(command_buffer, render_pass_begin),
        vkCmdBeginRenderPass2KHR in "VK_KHR_create_renderpass2";
    Device V1_2 vkCmdNextSubpass2(command_buffer: vk::CommandBuffer, subpass_begin_info:
        In<vk::SubpassBeginInfo<'_>>, subpass_end_info: In<vk::SubpassEndInfo<'_>>) -> ()
        = pass::next(command_buffer),
        vkCmdNextSubpass2KHR in "VK_KHR_create_renderpass2";
    Device V1_2 vkCmdEndRenderPass2(command_buffer: vk::CommandBuffer, subpass_end_info: In<vk::SubpassEndInfo<'_>>)
        -> ()
        = pass::end(command_buffer),
        vkCmdEndRenderPass2KHR in "VK_KHR_create_renderpass2";
    Device V1_3 vkCmdSetEvent2(command_buffer: vk::CommandBuffer, event: vk::Event, dependency_info:
        In<vk::DependencyInfo<'_>>) -> ()
        = effect::event(command_buffer, event, true),
        vkCmdSetEvent2KHR in "VK_KHR_synchronization2";
    Device V1_3 vkCmdResetEvent2(command_buffer: vk::CommandBuffer, event: vk::Event, stage_mask:
        vk::PipelineStageFlags2) -> ()
        = effect::event(command_buffer, event, false),
        vkCmdResetEvent2KHR in "VK_KHR_synchronization2";
    Device V1_3 vkCmdWaitEvents2(command_buffer: vk::CommandBuffer, event_count: u32, events: List<vk::Event>,
        dependency_infos: List<vk::DependencyInfo<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdWaitEvents2KHR in "VK_KHR_synchronization2";
    Device V1_3 vkCmdPipelineBarrier2(command_buffer: vk::CommandBuffer, dependency_info:
        In<vk::DependencyInfo<'_>>) -> ()
        = command::accept(command_buffer),
        vkCmdPipelineBarrier2KHR in "VK_KHR_synchronization2";
    Device V1_3 vkCmdWriteTimestamp2(command_buffer: vk::CommandBuffer, stage: vk::PipelineStageFlags2, query_pool:
        vk::QueryPool, query: u32) -> ()
        = effect::finish_query(command_buffer, query_pool, query),
        vkCmdWriteTimestamp2KHR in "VK_KHR_synchronization2";
    Device V1_3 vkCmdCopyBuffer2(command_buffer: vk::CommandBuffer, copy_buffer_info: In<vk::CopyBufferInfo2<'_>>)
        -> ()
        = effect::copy2(command_buffer, copy_buffer_info),
        vkCmdCopyBuffer2KHR in "VK_KHR_copy_commands2";
    Device V1_3 vkCmdCopyImage2(command_buffer: vk::CommandBuffer, copy_image_info: In<vk::CopyImageInfo2<'_>>) ->
        ()
        = transfer::image_to_image2(command_buffer, copy_image_info),
        vkCmdCopyImage2KHR in "VK_KHR_copy_commands2";
    Device V1_3 vkCmdCopyBufferToImage2(command_buffer: vk::CommandBuffer, copy_buffer_to_image_info:
        In<vk::CopyBufferToImageInfo2<'_>>) -> ()
        = transfer::buffer_to_image2(command_buffer, copy_buffer_to_image_info),
        vkCmdCopyBufferToImage2KHR in "VK_KHR_copy_commands2";
    Device V1_3 vkCmdCopyImageToBuffer2(command_buffer: vk::CommandBuffer, copy_image_to_buffer_info:
        In<vk::CopyImageToBufferInfo2<'_>>) -> ()
        = transfer::image_to_buffer2(command_buffer, copy_image_to_buffer_info),
        vkCmdCopyImageToBuffer2KHR in "VK_KHR_copy_commands2";
    Device V1_3 vkCmdBlitImage2(command_buffer: vk::CommandBuffer, blit_image_info: In<vk::BlitImageInfo2<'_>>) ->
        ()
        = raster::blit2(command_buffer, blit_image_info),
        vkCmdBlitImage2KHR in "VK_KHR_copy_commands2";
    Device V1_3 vkCmdResolveImage2(command_buffer: vk::CommandBuffer, resolve_image_info:
        In<vk::ResolveImageInfo2<'_>>) -> ()
        = raster::resolve2(command_buffer, resolve_image_info),
        vkCmdResolveImage2KHR in "VK_KHR_copy_commands2";
    Device V1_3 vkCmdBeginRendering(command_buffer: vk::CommandBuffer, rendering_info: In<vk::RenderingInfo<'_>>) ->
        ()
        = pass::begin_rendering(command_buffer, rendering_info),
        vkCmdBeginRenderingKHR in "VK_KHR_dynamic_rendering";
    Device V1_3 vkCmdEndRendering(command_buffer: vk::CommandBuffer) -> ()
        = pass::end(command_buffer),
        vkCmdEndRenderingKHR in "VK_KHR_dynamic_rendering";
    Device V1_3 vkCmdSetCullMode(command_buffer: vk::CommandBuffer, cull_mode: vk::CullModeFlags) -> ()
        = command::accept(command_buffer),
        vkCmdSetCullModeEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetFrontFace(command_buffer: vk::CommandBuffer, front_face: vk::FrontFace) -> ()
        = command::accept(command_buffer),
        vkCmdSetFrontFaceEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetPrimitiveTopology(command_buffer: vk::CommandBuffer, primitive_topology:
        vk::PrimitiveTopology) -> ()
        = command::accept(command_buffer),
        vkCmdSetPrimitiveTopologyEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetViewportWithCount(command_buffer: vk::CommandBuffer, viewport_count: u32, viewports:
        List<vk::Viewport>) -> ()
        = command::accept(command_buffer),
        vkCmdSetViewportWithCountEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetScissorWithCount(command_buffer: vk::CommandBuffer, scissor_count: u32, scissors:
        List<vk::Rect2D>) -> ()
        = command::accept(command_buffer),
        vkCmdSetScissorWithCountEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdBindVertexBuffers2(command_buffer: vk::CommandBuffer, first_binding: u32, binding_count: u32,
        buffers: List<vk::Buffer>, offsets: List<u64>, sizes: List<u64>, strides: List<u64>) -> ()
        = command::accept(command_buffer),
        vkCmdBindVertexBuffers2EXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetDepthTestEnable(command_buffer: vk::CommandBuffer, depth_test_enable: u32) -> ()
        = command::accept(command_buffer),
        vkCmdSetDepthTestEnableEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetDepthWriteEnable(command_buffer: vk::CommandBuffer, depth_write_enable: u32) -> ()
        = command::accept(command_buffer),
        vkCmdSetDepthWriteEnableEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetDepthCompareOp(command_buffer: vk::CommandBuffer, depth_compare_op: vk::CompareOp) -> ()
        = command::accept(command_buffer),
        vkCmdSetDepthCompareOpEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetDepthBoundsTestEnable(command_buffer: vk::CommandBuffer, depth_bounds_test_enable: u32) ->
        ()
        = command::accept(command_buffer),
        vkCmdSetDepthBoundsTestEnableEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetStencilTestEnable(command_buffer: vk::CommandBuffer, stencil_test_enable: u32) -> ()
        = command::accept(command_buffer),
        vkCmdSetStencilTestEnableEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetStencilOp(command_buffer: vk::CommandBuffer, face_mask: vk::StencilFaceFlags, fail_op:
        vk::StencilOp, pass_op: vk::StencilOp, depth_fail_op: vk::StencilOp, compare_op: vk::CompareOp) -> ()
        = command::accept(command_buffer),
        vkCmdSetStencilOpEXT in "VK_EXT_extended_dynamic_state";
    Device V1_3 vkCmdSetRasterizerDiscardEnable(command_buffer: vk::CommandBuffer, rasterizer_discard_enable: u32)
        -> ()
        = command::accept(command_buffer),
        vkCmdSetRasterizerDiscardEnableEXT in "VK_EXT_extended_dynamic_state2";
    Device V1_3 vkCmdSetDepthBiasEnable(command_buffer: vk::CommandBuffer, depth_bias_enable: u32) -> ()
        = command::accept(command_buffer),
        vkCmdSetDepthBiasEnableEXT in "VK_EXT_extended_dynamic_state2";
    Device V1_3 vkCmdSetPrimitiveRestartEnable(command_buffer: vk::CommandBuffer, primitive_restart_enable: u32) ->
        ()
        = command::accept(command_buffer),
        vkCmdSetPrimitiveRestartEnableEXT in "VK_EXT_extended_dynamic_state2";
}
