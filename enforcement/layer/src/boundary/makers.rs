//! The hooks of commands that take device memory in the driver without vkAllocateMemory: [`crate::floor`].

use ash::vk;

use super::{guard, key};
use crate::{device, floor};

const REFUSED: vk::Result = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;

// As in `commands`: the obligations of a Vulkan command towards its caller are the specification's, and they are what the SAFETY notes lean on.

/// Hooks that pass a command of a VkDevice on and look afterwards. `nulls` names the count and the array of handles that the specification wants to be
/// VK_NULL_HANDLE where nothing could be made.
macro_rules! makers {
    ($($name:literal $function:ident = $next:ident($($argument:ident: $type:ty),*) $(nulls $count:ident $out:ident)?;)*) => {$(
        pub unsafe extern "system" fn $function(handle: vk::Device, $($argument: $type),*) -> vk::Result {
            guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
                // SAFETY: valid usage.
                unsafe {
                    let Some((found, next)) = device::find(key(handle))
                        .and_then(|found| Some((found, found.device.next.$next?)))
                    else {
                        return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
                    };
                    let refuse = || {
                        $(if !$out.is_null() {
                            std::ptr::write_bytes($out, 0, $count as usize);
                        })?
                        REFUSED
                    };
                    floor::make(found, $name, refuse, || next(handle, $($argument),*))
                }
            })
        }
    )*};
}

makers! {
    "vkCreateGraphicsPipelines" graphics_pipelines = graphics_pipelines(cache: vk::PipelineCache, count: u32, infos: *const vk::GraphicsPipelineCreateInfo<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::Pipeline) nulls count out;
    "vkCreateComputePipelines" compute_pipelines = compute_pipelines(cache: vk::PipelineCache, count: u32, infos: *const vk::ComputePipelineCreateInfo<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::Pipeline) nulls count out;
    "vkCreateRayTracingPipelinesKHR" ray_tracing_pipelines = ray_tracing_pipelines(operation: vk::DeferredOperationKHR, cache: vk::PipelineCache, count: u32, infos: *const vk::RayTracingPipelineCreateInfoKHR<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::Pipeline) nulls count out;
    "vkCreateRayTracingPipelinesNV" ray_tracing_pipelines_nv = ray_tracing_pipelines_nv(cache: vk::PipelineCache, count: u32, infos: *const vk::RayTracingPipelineCreateInfoNV<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::Pipeline) nulls count out;
    "vkCreateShadersEXT" shaders = shaders(count: u32, infos: *const vk::ShaderCreateInfoEXT<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::ShaderEXT) nulls count out;
    "vkCreateSharedSwapchainsKHR" shared_swapchains = shared_swapchains(count: u32, infos: *const vk::SwapchainCreateInfoKHR<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::SwapchainKHR);
    "vkCreateVideoSessionKHR" video_session = video_session(info: *const vk::VideoSessionCreateInfoKHR<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::VideoSessionKHR);
    "vkCreateOpticalFlowSessionNV" optical_flow_session = optical_flow_session(info: *const vk::OpticalFlowSessionCreateInfoNV<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::OpticalFlowSessionNV);
    "vkCreateCuModuleNVX" cu_module = cu_module(info: *const vk::CuModuleCreateInfoNVX<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::CuModuleNVX);
    "vkCreateCudaModuleNV" cuda_module = cuda_module(info: *const vk::CudaModuleCreateInfoNV<'_>, allocator: *const vk::AllocationCallbacks<'_>, out: *mut vk::CudaModuleNV);
}

/// What is recorded lies in memory that the driver takes meanwhile: nobody begins whose process is over its budget by such memory.
pub unsafe extern "system" fn begin_commands(
    buffer: vk::CommandBuffer,
    info: *const vk::CommandBufferBeginInfo<'_>,
) -> vk::Result {
    guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
        // SAFETY: valid usage.
        unsafe {
            let Some((found, next)) = device::find(key(buffer))
                .and_then(|found| Some((found, found.device.next.begin_commands?)))
            else {
                return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
            };
            if floor::refuses(found, "vkBeginCommandBuffer") {
                return REFUSED;
            }
            next(buffer, info)
        }
    })
}

pub unsafe extern "system" fn end_commands(buffer: vk::CommandBuffer) -> vk::Result {
    guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
        // SAFETY: valid usage.
        unsafe {
            let Some((found, next)) = device::find(key(buffer))
                .and_then(|found| Some((found, found.device.next.end_commands?)))
            else {
                return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
            };
            let answer = next(buffer);
            floor::recorded(found);
            answer
        }
    })
}
