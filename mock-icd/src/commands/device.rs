//! Commands of a device and its queues, except those that are recorded.

use ash::vk;

use crate::boundary::{Allocator, In, List, New, Out, OutList, Raw};
use crate::commands::commands;
use crate::{
    buffer, command, descriptor, device, image, memory, object, pass, query, queue, shader, sync,
};

commands! {
    Device V1_0 vkDestroyDevice(device: vk::Device, allocator: Allocator) -> ()
        = device::destroy(device);
    Device V1_0 vkGetDeviceQueue(device: vk::Device, queue_family_index: u32, queue_index: u32, queue:
        New<vk::Queue>) -> ()
        = device::queue(device, queue_family_index, queue_index, queue);
    Device V1_0 vkQueueSubmit(queue: vk::Queue, submit_count: u32, submits: List<vk::SubmitInfo<'_>>, fence:
        vk::Fence) -> vk::Result
        = queue::submit(queue, submit_count, submits, fence);
    Device V1_0 vkQueueWaitIdle(queue: vk::Queue) -> vk::Result
        = queue::wait_idle(queue);
    Device V1_0 vkDeviceWaitIdle(device: vk::Device) -> vk::Result
        = device::wait_idle(device);
    Device V1_0 vkAllocateMemory(device: vk::Device, allocate_info: In<vk::MemoryAllocateInfo<'_>>, allocator:
        Allocator, memory: New<vk::DeviceMemory>) -> vk::Result
        = memory::allocate(device, allocate_info, memory);
    Device V1_0 vkFreeMemory(device: vk::Device, memory: vk::DeviceMemory, allocator: Allocator) -> ()
        = memory::free(memory);
    Device V1_0 vkMapMemory(device: vk::Device, memory: vk::DeviceMemory, offset: u64, size: u64, flags:
        vk::MemoryMapFlags, data: Out<Raw>) -> vk::Result
        = memory::map(memory, offset, size, data);
    Device V1_0 vkUnmapMemory(device: vk::Device, memory: vk::DeviceMemory) -> ()
        = memory::unmap(memory);
    Device V1_0 vkFlushMappedMemoryRanges(device: vk::Device, memory_range_count: u32, memory_ranges:
        List<vk::MappedMemoryRange<'_>>) -> vk::Result
        = memory::flush(memory_range_count, memory_ranges);
    Device V1_0 vkInvalidateMappedMemoryRanges(device: vk::Device, memory_range_count: u32, memory_ranges:
        List<vk::MappedMemoryRange<'_>>) -> vk::Result
        = memory::flush(memory_range_count, memory_ranges);
    Device V1_0 vkGetDeviceMemoryCommitment(device: vk::Device, memory: vk::DeviceMemory, committed_memory_in_bytes:
        Out<u64>) -> ()
        = memory::commitment(memory, committed_memory_in_bytes);
    Device V1_0 vkBindBufferMemory(device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, memory_offset:
        u64) -> vk::Result
        = buffer::bind(buffer, memory, memory_offset);
    Device V1_0 vkBindImageMemory(device: vk::Device, image: vk::Image, memory: vk::DeviceMemory, memory_offset:
        u64) -> vk::Result
        = image::bind(image, memory, memory_offset);
    Device V1_0 vkGetBufferMemoryRequirements(device: vk::Device, buffer: vk::Buffer, memory_requirements:
        Out<vk::MemoryRequirements>) -> ()
        = buffer::requirements(device, buffer, memory_requirements);
    Device V1_0 vkGetImageMemoryRequirements(device: vk::Device, image: vk::Image, memory_requirements:
        Out<vk::MemoryRequirements>) -> ()
        = image::requirements(device, image, memory_requirements);
    Device V1_0 vkGetImageSparseMemoryRequirements(device: vk::Device, image: vk::Image,
        sparse_memory_requirement_count: Out<u32>, sparse_memory_requirements:
        OutList<vk::SparseImageMemoryRequirements>) -> ()
        = image::sparse_requirements(image, sparse_memory_requirement_count, sparse_memory_requirements);
    Device V1_0 vkQueueBindSparse(queue: vk::Queue, bind_info_count: u32, bind_info: List<vk::BindSparseInfo<'_>>,
        fence: vk::Fence) -> vk::Result
        = queue::bind_sparse(queue, bind_info_count, bind_info, fence);
    Device V1_0 vkCreateFence(device: vk::Device, create_info: In<vk::FenceCreateInfo<'_>>, allocator: Allocator,
        fence: New<vk::Fence>) -> vk::Result
        = sync::create_fence(device, create_info, fence);
    Device V1_0 vkDestroyFence(device: vk::Device, fence: vk::Fence, allocator: Allocator) -> ()
        = sync::destroy_fence(fence);
    Device V1_0 vkResetFences(device: vk::Device, fence_count: u32, fences: List<vk::Fence>) -> vk::Result
        = sync::reset_fences(fence_count, fences);
    Device V1_0 vkGetFenceStatus(device: vk::Device, fence: vk::Fence) -> vk::Result
        = sync::fence_status(fence);
    Device V1_0 vkWaitForFences(device: vk::Device, fence_count: u32, fences: List<vk::Fence>, wait_all: u32,
        timeout: u64) -> vk::Result
        = sync::wait_fences(device, fence_count, fences, wait_all, timeout);
    Device V1_0 vkCreateSemaphore(device: vk::Device, create_info: In<vk::SemaphoreCreateInfo<'_>>, allocator:
        Allocator, semaphore: New<vk::Semaphore>) -> vk::Result
        = sync::create_semaphore(device, create_info, semaphore);
    Device V1_0 vkDestroySemaphore(device: vk::Device, semaphore: vk::Semaphore, allocator: Allocator) -> ()
        = sync::destroy_semaphore(semaphore);
    Device V1_0 vkCreateEvent(device: vk::Device, create_info: In<vk::EventCreateInfo<'_>>, allocator: Allocator,
        event: New<vk::Event>) -> vk::Result
        = sync::create_event(device, event);
    Device V1_0 vkDestroyEvent(device: vk::Device, event: vk::Event, allocator: Allocator) -> ()
        = sync::destroy_event(event);
    Device V1_0 vkGetEventStatus(device: vk::Device, event: vk::Event) -> vk::Result
        = sync::event_status(event);
    Device V1_0 vkSetEvent(device: vk::Device, event: vk::Event) -> vk::Result
        = sync::change_event(event, true);
    Device V1_0 vkResetEvent(device: vk::Device, event: vk::Event) -> vk::Result
        = sync::change_event(event, false);
    Device V1_0 vkCreateQueryPool(device: vk::Device, create_info: In<vk::QueryPoolCreateInfo<'_>>, allocator:
        Allocator, query_pool: New<vk::QueryPool>) -> vk::Result
        = query::create(device, create_info, query_pool);
    Device V1_0 vkDestroyQueryPool(device: vk::Device, query_pool: vk::QueryPool, allocator: Allocator) -> ()
        = query::destroy(query_pool);
    Device V1_0 vkGetQueryPoolResults(device: vk::Device, query_pool: vk::QueryPool, first_query: u32, query_count:
        u32, data_size: usize, data: OutList<u8>, stride: u64, flags: vk::QueryResultFlags) -> vk::Result
        = query::results(device, query_pool, &query::Asked { first: first_query, count: query_count, size: data_size, stride, flags }, data);
    Device V1_0 vkCreateBuffer(device: vk::Device, create_info: In<vk::BufferCreateInfo<'_>>, allocator:
        Allocator, buffer: New<vk::Buffer>) -> vk::Result
        = buffer::create(device, create_info, buffer);
    Device V1_0 vkDestroyBuffer(device: vk::Device, buffer: vk::Buffer, allocator: Allocator) -> ()
        = buffer::destroy(buffer);
    Device V1_0 vkCreateBufferView(device: vk::Device, create_info: In<vk::BufferViewCreateInfo<'_>>, allocator:
        Allocator, view: New<vk::BufferView>) -> vk::Result
        = object::create(device, view);
    Device V1_0 vkDestroyBufferView(device: vk::Device, buffer_view: vk::BufferView, allocator: Allocator) -> ()
        = object::destroy(buffer_view);
    Device V1_0 vkCreateImage(device: vk::Device, create_info: In<vk::ImageCreateInfo<'_>>, allocator: Allocator,
        image: New<vk::Image>) -> vk::Result
        = image::create(device, create_info, image);
    Device V1_0 vkDestroyImage(device: vk::Device, image: vk::Image, allocator: Allocator) -> ()
        = image::destroy(image);
    Device V1_0 vkGetImageSubresourceLayout(device: vk::Device, image: vk::Image, subresource:
        In<vk::ImageSubresource>, layout: Out<vk::SubresourceLayout>) -> ()
        = image::subresource(image, subresource, layout);
    Device V1_0 vkCreateImageView(device: vk::Device, create_info: In<vk::ImageViewCreateInfo<'_>>, allocator:
        Allocator, view: New<vk::ImageView>) -> vk::Result
        = pass::create_view(device, create_info, view);
    Device V1_0 vkDestroyImageView(device: vk::Device, image_view: vk::ImageView, allocator: Allocator) -> ()
        = object::destroy(image_view);
    Device V1_0 vkCreateShaderModule(device: vk::Device, create_info: In<vk::ShaderModuleCreateInfo<'_>>, allocator:
        Allocator, shader_module: New<vk::ShaderModule>) -> vk::Result
        = object::create_module(device, create_info, shader_module);
    Device V1_0 vkDestroyShaderModule(device: vk::Device, shader_module: vk::ShaderModule, allocator: Allocator) ->
        ()
        = object::destroy(shader_module);
    Device V1_0 vkCreatePipelineCache(device: vk::Device, create_info: In<vk::PipelineCacheCreateInfo<'_>>,
        allocator: Allocator, pipeline_cache: New<vk::PipelineCache>) -> vk::Result
        = object::create(device, pipeline_cache);
    Device V1_0 vkDestroyPipelineCache(device: vk::Device, pipeline_cache: vk::PipelineCache, allocator: Allocator)
        -> ()
        = object::destroy(pipeline_cache);
    Device V1_0 vkGetPipelineCacheData(device: vk::Device, pipeline_cache: vk::PipelineCache, data_size: Out<usize>,
        data: OutList<u8>) -> vk::Result
        = object::cache_data(pipeline_cache, device, data_size, data);
    Device V1_0 vkMergePipelineCaches(device: vk::Device, dst_cache: vk::PipelineCache, src_cache_count: u32,
        src_caches: List<vk::PipelineCache>) -> vk::Result
        = object::merge_caches(dst_cache, src_cache_count, src_caches);
    Device V1_0 vkCreateGraphicsPipelines(device: vk::Device, pipeline_cache: vk::PipelineCache, create_info_count:
        u32, create_infos: List<vk::GraphicsPipelineCreateInfo<'_>>, allocator: Allocator, pipelines:
        OutList<vk::Pipeline>) -> vk::Result
        = shader::graphics_pipelines(device, create_info_count, create_infos, pipelines);
    Device V1_0 vkCreateComputePipelines(device: vk::Device, pipeline_cache: vk::PipelineCache, create_info_count:
        u32, create_infos: List<vk::ComputePipelineCreateInfo<'_>>, allocator: Allocator, pipelines:
        OutList<vk::Pipeline>) -> vk::Result
        = shader::compute_pipelines(device, create_info_count, create_infos, pipelines);
    Device V1_0 vkDestroyPipeline(device: vk::Device, pipeline: vk::Pipeline, allocator: Allocator) -> ()
        = object::destroy(pipeline);
    Device V1_0 vkCreatePipelineLayout(device: vk::Device, create_info: In<vk::PipelineLayoutCreateInfo<'_>>,
        allocator: Allocator, pipeline_layout: New<vk::PipelineLayout>) -> vk::Result
        = object::create(device, pipeline_layout);
    Device V1_0 vkDestroyPipelineLayout(device: vk::Device, pipeline_layout: vk::PipelineLayout, allocator:
        Allocator) -> ()
        = object::destroy(pipeline_layout);
    Device V1_0 vkCreateSampler(device: vk::Device, create_info: In<vk::SamplerCreateInfo<'_>>, allocator:
        Allocator, sampler: New<vk::Sampler>) -> vk::Result
        = object::create(device, sampler);
    Device V1_0 vkDestroySampler(device: vk::Device, sampler: vk::Sampler, allocator: Allocator) -> ()
        = object::destroy(sampler);
    Device V1_0 vkCreateDescriptorSetLayout(device: vk::Device, create_info:
        In<vk::DescriptorSetLayoutCreateInfo<'_>>, allocator: Allocator, set_layout: New<vk::DescriptorSetLayout>)
        -> vk::Result
        = object::create(device, set_layout);
    Device V1_0 vkDestroyDescriptorSetLayout(device: vk::Device, descriptor_set_layout: vk::DescriptorSetLayout,
        allocator: Allocator) -> ()
        = object::destroy(descriptor_set_layout);
    Device V1_0 vkCreateDescriptorPool(device: vk::Device, create_info: In<vk::DescriptorPoolCreateInfo<'_>>,
        allocator: Allocator, descriptor_pool: New<vk::DescriptorPool>) -> vk::Result
        = descriptor::create_pool(device, create_info, descriptor_pool);
    Device V1_0 vkDestroyDescriptorPool(device: vk::Device, descriptor_pool: vk::DescriptorPool, allocator:
        Allocator) -> ()
        = descriptor::destroy_pool(descriptor_pool);
    Device V1_0 vkResetDescriptorPool(device: vk::Device, descriptor_pool: vk::DescriptorPool, flags:
        vk::DescriptorPoolResetFlags) -> vk::Result
        = descriptor::reset_pool(descriptor_pool);
    Device V1_0 vkAllocateDescriptorSets(device: vk::Device, allocate_info: In<vk::DescriptorSetAllocateInfo<'_>>,
        descriptor_sets: OutList<vk::DescriptorSet>) -> vk::Result
        = descriptor::allocate(allocate_info, descriptor_sets);
    Device V1_0 vkFreeDescriptorSets(device: vk::Device, descriptor_pool: vk::DescriptorPool, descriptor_set_count:
        u32, descriptor_sets: List<vk::DescriptorSet>) -> vk::Result
        = descriptor::free(descriptor_pool, descriptor_set_count, descriptor_sets);
    Device V1_0 vkUpdateDescriptorSets(device: vk::Device, descriptor_write_count: u32, descriptor_writes:
        List<vk::WriteDescriptorSet<'_>>, descriptor_copy_count: u32, descriptor_copies:
        List<vk::CopyDescriptorSet<'_>>) -> ()
        = ();
    Device V1_0 vkCreateFramebuffer(device: vk::Device, create_info: In<vk::FramebufferCreateInfo<'_>>, allocator:
        Allocator, framebuffer: New<vk::Framebuffer>) -> vk::Result
        = pass::create_framebuffer(device, create_info, framebuffer);
    Device V1_0 vkDestroyFramebuffer(device: vk::Device, framebuffer: vk::Framebuffer, allocator: Allocator) -> ()
        = object::destroy(framebuffer);
    Device V1_0 vkCreateRenderPass(device: vk::Device, create_info: In<vk::RenderPassCreateInfo<'_>>, allocator:
        Allocator, render_pass: New<vk::RenderPass>) -> vk::Result
        = pass::create(device, create_info, render_pass);
    Device V1_0 vkDestroyRenderPass(device: vk::Device, render_pass: vk::RenderPass, allocator: Allocator) -> ()
        = object::destroy(render_pass);
    Device V1_0 vkGetRenderAreaGranularity(device: vk::Device, render_pass: vk::RenderPass, granularity:
        Out<vk::Extent2D>) -> ()
        = granularity.put(vk::Extent2D { width: 1, height: 1 });
    Device V1_0 vkCreateCommandPool(device: vk::Device, create_info: In<vk::CommandPoolCreateInfo<'_>>, allocator:
        Allocator, command_pool: New<vk::CommandPool>) -> vk::Result
        = command::create_pool(device, command_pool);
    Device V1_0 vkDestroyCommandPool(device: vk::Device, command_pool: vk::CommandPool, allocator: Allocator) -> ()
        = command::destroy_pool(command_pool);
    Device V1_0 vkResetCommandPool(device: vk::Device, command_pool: vk::CommandPool, flags:
        vk::CommandPoolResetFlags) -> vk::Result
        = command::reset_pool(command_pool);
    Device V1_0 vkAllocateCommandBuffers(device: vk::Device, allocate_info: In<vk::CommandBufferAllocateInfo<'_>>,
        command_buffers: OutList<vk::CommandBuffer>) -> vk::Result
        = command::allocate(allocate_info, command_buffers);
    Device V1_0 vkFreeCommandBuffers(device: vk::Device, command_pool: vk::CommandPool, command_buffer_count: u32,
        command_buffers: List<vk::CommandBuffer>) -> ()
        = command::free(command_buffer_count, command_buffers);
    Device V1_0 vkBeginCommandBuffer(command_buffer: vk::CommandBuffer, begin_info:
        In<vk::CommandBufferBeginInfo<'_>>) -> vk::Result
        = command::begin(command_buffer, begin_info);
    Device V1_0 vkEndCommandBuffer(command_buffer: vk::CommandBuffer) -> vk::Result
        = command::end(command_buffer);
    Device V1_0 vkResetCommandBuffer(command_buffer: vk::CommandBuffer, flags: vk::CommandBufferResetFlags) ->
        vk::Result
        = command::restart(command_buffer);
    Device V1_1 vkBindBufferMemory2(device: vk::Device, bind_info_count: u32, bind_infos:
        List<vk::BindBufferMemoryInfo<'_>>) -> vk::Result
        = buffer::bind2(bind_info_count, bind_infos),
        vkBindBufferMemory2KHR in "VK_KHR_bind_memory2";
    Device V1_1 vkBindImageMemory2(device: vk::Device, bind_info_count: u32, bind_infos:
        List<vk::BindImageMemoryInfo<'_>>) -> vk::Result
        = image::bind2(bind_info_count, bind_infos),
        vkBindImageMemory2KHR in "VK_KHR_bind_memory2";
    Device V1_1 vkGetDeviceGroupPeerMemoryFeatures(device: vk::Device, heap_index: u32, local_device_index: u32,
        remote_device_index: u32, peer_memory_features: Out<vk::PeerMemoryFeatureFlags>) -> ()
        = device::peer_memory_features(device, heap_index, peer_memory_features),
        vkGetDeviceGroupPeerMemoryFeaturesKHR in "VK_KHR_device_group";
    Device V1_1 vkGetImageMemoryRequirements2(device: vk::Device, info: In<vk::ImageMemoryRequirementsInfo2<'_>>,
        memory_requirements: Out<vk::MemoryRequirements2<'_>>) -> ()
        = image::requirements2(device, info, memory_requirements),
        vkGetImageMemoryRequirements2KHR in "VK_KHR_get_memory_requirements2";
    Device V1_1 vkGetBufferMemoryRequirements2(device: vk::Device, info: In<vk::BufferMemoryRequirementsInfo2<'_>>,
        memory_requirements: Out<vk::MemoryRequirements2<'_>>) -> ()
        = buffer::requirements2(device, info, memory_requirements),
        vkGetBufferMemoryRequirements2KHR in "VK_KHR_get_memory_requirements2";
    Device V1_1 vkGetImageSparseMemoryRequirements2(device: vk::Device, info:
        In<vk::ImageSparseMemoryRequirementsInfo2<'_>>, sparse_memory_requirement_count: Out<u32>,
        sparse_memory_requirements: OutList<vk::SparseImageMemoryRequirements2<'_>>) -> ()
        = image::sparse_requirements2(info, sparse_memory_requirement_count, sparse_memory_requirements),
        vkGetImageSparseMemoryRequirements2KHR in "VK_KHR_get_memory_requirements2";
    Device V1_1 vkTrimCommandPool(device: vk::Device, command_pool: vk::CommandPool, flags:
        vk::CommandPoolTrimFlags) -> ()
        = command::trim_pool(command_pool),
        vkTrimCommandPoolKHR in "VK_KHR_maintenance1";
    Device V1_1 vkGetDeviceQueue2(device: vk::Device, queue_info: In<vk::DeviceQueueInfo2<'_>>, queue:
        New<vk::Queue>) -> ()
        = device::queue2(device, queue_info, queue);
    Device V1_1 vkCreateSamplerYcbcrConversion(device: vk::Device, create_info:
        In<vk::SamplerYcbcrConversionCreateInfo<'_>>, allocator: Allocator, ycbcr_conversion:
        New<vk::SamplerYcbcrConversion>) -> vk::Result
        = object::create(device, ycbcr_conversion),
        vkCreateSamplerYcbcrConversionKHR in "VK_KHR_sampler_ycbcr_conversion";
    Device V1_1 vkDestroySamplerYcbcrConversion(device: vk::Device, ycbcr_conversion: vk::SamplerYcbcrConversion,
        allocator: Allocator) -> ()
        = object::destroy(ycbcr_conversion),
        vkDestroySamplerYcbcrConversionKHR in "VK_KHR_sampler_ycbcr_conversion";
    Device V1_1 vkCreateDescriptorUpdateTemplate(device: vk::Device, create_info:
        In<vk::DescriptorUpdateTemplateCreateInfo<'_>>, allocator: Allocator, descriptor_update_template:
        New<vk::DescriptorUpdateTemplate>) -> vk::Result
        = object::create(device, descriptor_update_template),
        vkCreateDescriptorUpdateTemplateKHR in "VK_KHR_descriptor_update_template";
    Device V1_1 vkDestroyDescriptorUpdateTemplate(device: vk::Device, descriptor_update_template:
        vk::DescriptorUpdateTemplate, allocator: Allocator) -> ()
        = object::destroy(descriptor_update_template),
        vkDestroyDescriptorUpdateTemplateKHR in "VK_KHR_descriptor_update_template";
    Device V1_1 vkUpdateDescriptorSetWithTemplate(device: vk::Device, descriptor_set: vk::DescriptorSet,
        descriptor_update_template: vk::DescriptorUpdateTemplate, data: List<u8>) -> ()
        = (),
        vkUpdateDescriptorSetWithTemplateKHR in "VK_KHR_descriptor_update_template";
    Device V1_1 vkGetDescriptorSetLayoutSupport(device: vk::Device, create_info:
        In<vk::DescriptorSetLayoutCreateInfo<'_>>, support: Out<vk::DescriptorSetLayoutSupport<'_>>) -> ()
        = descriptor::layout_support(create_info, support),
        vkGetDescriptorSetLayoutSupportKHR in "VK_KHR_maintenance3";
    Device V1_2 vkCreateRenderPass2(device: vk::Device, create_info: In<vk::RenderPassCreateInfo2<'_>>, allocator:
        Allocator, render_pass: New<vk::RenderPass>) -> vk::Result
        = pass::create2(device, create_info, render_pass),
        vkCreateRenderPass2KHR in "VK_KHR_create_renderpass2";
    Device V1_2 vkResetQueryPool(device: vk::Device, query_pool: vk::QueryPool, first_query: u32, query_count: u32)
        -> ()
        = query::reset(query_pool, first_query, query_count),
        vkResetQueryPoolEXT in "VK_EXT_host_query_reset";
    Device V1_2 vkGetSemaphoreCounterValue(device: vk::Device, semaphore: vk::Semaphore, value: Out<u64>) ->
        vk::Result
        = sync::counter(semaphore, value),
        vkGetSemaphoreCounterValueKHR in "VK_KHR_timeline_semaphore";
    Device V1_2 vkWaitSemaphores(device: vk::Device, wait_info: In<vk::SemaphoreWaitInfo<'_>>, timeout: u64) ->
        vk::Result
        = sync::wait_semaphores(device, wait_info, timeout),
        vkWaitSemaphoresKHR in "VK_KHR_timeline_semaphore";
    Device V1_2 vkSignalSemaphore(device: vk::Device, signal_info: In<vk::SemaphoreSignalInfo<'_>>) -> vk::Result
        = sync::signal_semaphore(device, signal_info),
        vkSignalSemaphoreKHR in "VK_KHR_timeline_semaphore";
    Device V1_2 vkGetBufferDeviceAddress(device: vk::Device, info: In<vk::BufferDeviceAddressInfo<'_>>) -> u64
        = buffer::address(info),
        vkGetBufferDeviceAddressKHR in "VK_KHR_buffer_device_address",
        vkGetBufferDeviceAddressEXT in "VK_EXT_buffer_device_address";
    Device V1_2 vkGetBufferOpaqueCaptureAddress(device: vk::Device, info: In<vk::BufferDeviceAddressInfo<'_>>) ->
        u64
        = buffer::capture_address(info),
        vkGetBufferOpaqueCaptureAddressKHR in "VK_KHR_buffer_device_address";
    Device V1_2 vkGetDeviceMemoryOpaqueCaptureAddress(device: vk::Device, info:
        In<vk::DeviceMemoryOpaqueCaptureAddressInfo<'_>>) -> u64
        = memory::capture_address(info),
        vkGetDeviceMemoryOpaqueCaptureAddressKHR in "VK_KHR_buffer_device_address";
    Device V1_3 vkCreatePrivateDataSlot(device: vk::Device, create_info: In<vk::PrivateDataSlotCreateInfo<'_>>,
        allocator: Allocator, private_data_slot: New<vk::PrivateDataSlot>) -> vk::Result
        = object::create(device, private_data_slot),
        vkCreatePrivateDataSlotEXT in "VK_EXT_private_data";
    Device V1_3 vkDestroyPrivateDataSlot(device: vk::Device, private_data_slot: vk::PrivateDataSlot, allocator:
        Allocator) -> ()
        = object::destroy(private_data_slot),
        vkDestroyPrivateDataSlotEXT in "VK_EXT_private_data";
    Device V1_3 vkSetPrivateData(device: vk::Device, object_type: vk::ObjectType, object_handle: u64,
        private_data_slot: vk::PrivateDataSlot, data: u64) -> vk::Result
        = object::set_private(private_data_slot, object_handle, data),
        vkSetPrivateDataEXT in "VK_EXT_private_data";
    Device V1_3 vkGetPrivateData(device: vk::Device, object_type: vk::ObjectType, object_handle: u64,
        private_data_slot: vk::PrivateDataSlot, data: Out<u64>) -> ()
        = object::private(private_data_slot, object_handle, data),
        vkGetPrivateDataEXT in "VK_EXT_private_data";
    Device V1_3 vkQueueSubmit2(queue: vk::Queue, submit_count: u32, submits: List<vk::SubmitInfo2<'_>>, fence:
        vk::Fence) -> vk::Result
        = queue::submit2(queue, submit_count, submits, fence),
        vkQueueSubmit2KHR in "VK_KHR_synchronization2";
    Device V1_3 vkGetDeviceBufferMemoryRequirements(device: vk::Device, info:
        In<vk::DeviceBufferMemoryRequirements<'_>>, memory_requirements: Out<vk::MemoryRequirements2<'_>>) -> ()
        = buffer::requirements_of_info(device, info, memory_requirements),
        vkGetDeviceBufferMemoryRequirementsKHR in "VK_KHR_maintenance4";
    Device V1_3 vkGetDeviceImageMemoryRequirements(device: vk::Device, info:
        In<vk::DeviceImageMemoryRequirements<'_>>, memory_requirements: Out<vk::MemoryRequirements2<'_>>) -> ()
        = image::requirements_of_info(device, info, memory_requirements),
        vkGetDeviceImageMemoryRequirementsKHR in "VK_KHR_maintenance4";
    Device V1_3 vkGetDeviceImageSparseMemoryRequirements(device: vk::Device, info:
        In<vk::DeviceImageMemoryRequirements<'_>>, sparse_memory_requirement_count: Out<u32>,
        sparse_memory_requirements: OutList<vk::SparseImageMemoryRequirements2<'_>>) -> ()
        = image::sparse_requirements_of_info(device, info, sparse_memory_requirement_count, sparse_memory_requirements),
        vkGetDeviceImageSparseMemoryRequirementsKHR in "VK_KHR_maintenance4";
}
