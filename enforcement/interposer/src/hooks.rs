//! What we change. One row per hook; a function without a row is not exported, and look-ups of it fall through.
//!
//! `tenant` bodies run where a budget is set, and so do `makes` ones, whose first argument is a place for what the call makes; `paced` ones where a compute budget is (`set`: memsets); `waits` are waits of the program's, whose bodies run before; `always` bodies always do. The rows under `per_thread`
//! have none: whatever takes a stream makes the thread's own, if that is the one it names. The rows under `called` are what we ask the drivers ourselves.

macro_rules! table {
    ($callback:ident) => {
        $callback! {
            cuda {
                cuInit => tenant crate::context::init;
                cuGetProcAddress => always crate::proc_address::get;
                cuGetProcAddress_v2 => always crate::proc_address::get_v2;

                cuDeviceTotalMem_v2 => tenant crate::info::device_total;
                cuMemGetInfo_v2 => tenant crate::info::memory;
                cuDeviceTotalMem => tenant crate::info::device_total_v1;
                cuMemGetInfo => tenant crate::info::memory_v1;

                cuMemAlloc_v2 => makes crate::memory::alloc;
                cuMemAlloc => makes crate::memory::alloc_v1;
                cuMemAllocPitch_v2 => makes crate::memory::alloc_pitch;
                cuMemAllocPitch => makes crate::memory::alloc_pitch_v1;
                cuMemAllocManaged => makes crate::memory::alloc_managed;
                cuMemFree_v2 => tenant crate::memory::free;
                cuMemFree => tenant crate::memory::free_v1;

                cuMemAllocHost_v2 => makes crate::pinned::alloc;
                cuMemAllocHost => makes crate::pinned::alloc_v1;
                cuMemHostAlloc => makes crate::pinned::alloc_with_flags;
                cuMemFreeHost => tenant crate::pinned::free;
                cuMemHostRegister_v2 => tenant crate::pinned::register;
                cuMemHostRegister => tenant crate::pinned::register_v1;
                cuMemHostUnregister => tenant crate::pinned::unregister;

                cuArrayCreate_v2 => makes crate::array::create;
                cuArrayCreate => makes crate::array::create_v1;
                cuArray3DCreate_v2 => makes crate::array::create_3d;
                cuArray3DCreate => makes crate::array::create_3d_v1;
                cuMipmappedArrayCreate => makes crate::array::create_mipmapped;
                cuArrayDestroy => tenant crate::array::destroy;
                cuMipmappedArrayDestroy => tenant crate::array::destroy_mipmapped;

                cuMemCreate => makes crate::physical::create;
                cuMemRelease => tenant crate::physical::release;
                cuMemRetainAllocationHandle => makes crate::physical::retain;
                cuMemMap => tenant crate::physical::map;
                cuMemUnmap => tenant crate::physical::unmap;
                cuMemSetAccess => tenant crate::physical::set_access;
                cuMemExportToShareableHandle => tenant crate::physical::export;
                cuMemImportFromShareableHandle => makes crate::physical::import;
                cuMemMapArrayAsync => tenant crate::physical::map_array;
                cuMemMapArrayAsync_ptsz => tenant crate::physical::map_array_ptsz;

                cuImportExternalMemory => makes crate::external::import;
                cuExternalMemoryGetMappedBuffer => makes crate::external::map_buffer;
                cuExternalMemoryGetMappedMipmappedArray => makes crate::external::map_array;
                cuDestroyExternalMemory => tenant crate::external::destroy;

                cuMemGetHandleForAddressRange => tenant crate::sharing::get_range_handle;
                cuIpcGetMemHandle => tenant crate::sharing::get_handle;
                cuIpcOpenMemHandle => makes crate::sharing::open_handle;
                cuIpcOpenMemHandle_v2 => makes crate::sharing::open_handle_v2;
                cuIpcCloseMemHandle => tenant crate::sharing::close_handle;

                cuTexObjectCreate => makes crate::view::create_texture;
                cuSurfObjectCreate => makes crate::view::create_surface;

                cuCtxSetLimit => tenant crate::limits::set;

                cuModuleLoad => makes crate::module::load;
                cuModuleLoadData => makes crate::module::load_data;
                cuModuleLoadDataEx => makes crate::module::load_data_ex;
                cuModuleLoadFatBinary => makes crate::module::load_fat_binary;
                cuModuleUnload => tenant crate::module::unload;
                cuLibraryLoadData => makes crate::module::load_library;
                cuLibraryLoadFromFile => makes crate::module::load_library_file;
                cuLibraryUnload => tenant crate::module::unload_library;
                cuModuleGetFunction => makes crate::function::module_function;
                cuModuleEnumerateFunctions => tenant crate::function::module_functions;
                cuLibraryGetKernel => makes crate::function::library_kernel;
                cuLibraryEnumerateKernels => tenant crate::function::library_kernels;
                cuKernelGetFunction => makes crate::function::kernel_function;

                cuStreamCreate => makes crate::stream::create;
                cuStreamCreateWithPriority => makes crate::stream::create_with_priority;
                cuStreamDestroy => tenant crate::stream::destroy;
                cuStreamDestroy_v2 => tenant crate::stream::destroy_v2;

                cuMemAllocAsync => makes crate::pool::alloc;
                cuMemAllocAsync_ptsz => makes crate::pool::alloc_ptsz;
                cuMemFreeAsync => tenant crate::pool::free;
                cuMemFreeAsync_ptsz => tenant crate::pool::free_ptsz;
                cuMemAllocFromPoolAsync => makes crate::pool::alloc_from;
                cuMemAllocFromPoolAsync_ptsz => makes crate::pool::alloc_from_ptsz;
                cuMemPoolCreate => makes crate::pool::create;
                cuMemPoolDestroy => tenant crate::pool::destroy;
                cuMemPoolExportToShareableHandle => tenant crate::lent::export;
                cuMemPoolExportPointer => tenant crate::lent::export_pointer;
                cuMemPoolImportFromShareableHandle => makes crate::lent::import;
                cuMemPoolImportPointer => makes crate::lent::import_pointer;
                cuDeviceSetMemPool => tenant crate::pool::set_current;
                cuMemSetMemPool => tenant crate::pool::set_current_at;
                cuMemGetDefaultMemPool => tenant crate::pool::default_at;
                cuMemGetMemPool => tenant crate::pool::current_at;
                cuGraphAddMemAllocNode => makes crate::graph::add_allocation;
                cuGraphAddNode => makes crate::graph::add;
                cuGraphAddNode_v2 => makes crate::graph::add_v2;
                cuGraphAddNode_v3 => makes crate::graph::add_v3;
                cuGraphNodeSetParams => tenant crate::graph::set_params;
                cuGraphNodeSetParams_v2 => tenant crate::graph::set_params_v2;
                cuStreamBeginCapture => tenant crate::graph::begin_capture;
                cuStreamBeginCapture_ptsz => tenant crate::graph::begin_capture_ptsz;
                cuStreamBeginCapture_v2 => tenant crate::graph::begin_capture_v2;
                cuStreamBeginCapture_v2_ptsz => tenant crate::graph::begin_capture_v2_ptsz;
                cuStreamBeginCaptureToGraph => tenant crate::graph::begin_capture_to_graph;
                cuStreamBeginCaptureToGraph_ptsz => tenant crate::graph::begin_capture_to_graph_ptsz;
                cuStreamBeginRecaptureToGraph => tenant crate::graph::begin_recapture;
                cuStreamBeginRecaptureToGraph_ptsz => tenant crate::graph::begin_recapture_ptsz;
                cuGraphInstantiate => makes crate::graph::instantiate;
                cuGraphInstantiate_v2 => makes crate::graph::instantiate_v2;
                cuGraphInstantiateWithFlags => makes crate::graph::instantiate_with_flags;
                cuGraphInstantiateWithParams => makes crate::graph::instantiate_with_params;
                cuGraphInstantiateWithParams_ptsz => makes crate::graph::instantiate_with_params_ptsz;
                cuGraphExecKernelNodeSetParams => tenant crate::graph::set_kernel_v1;
                cuGraphExecKernelNodeSetParams_v2 => tenant crate::graph::set_kernel;
                cuGraphExecNodeSetParams => tenant crate::graph::set_any;
                cuGraphExecChildGraphNodeSetParams => tenant crate::graph::set_child;
                cuGraphExecUpdate => tenant crate::graph::update;
                cuGraphExecUpdate_v2 => tenant crate::graph::update_v2;
                cuGraphUpload => tenant crate::graph::upload;
                cuGraphUpload_ptsz => tenant crate::graph::upload_ptsz;
                cuGraphLaunch => tenant crate::graph::launch;
                cuGraphLaunch_ptsz => tenant crate::graph::launch_ptsz;
                cuGraphExecDestroy => tenant crate::graph::destroy;
                cuDeviceGraphMemTrim => tenant crate::graph::trim;

                cuMemPoolTrimTo => tenant crate::pool::trim_to;
                cuMemPoolSetAttribute => tenant crate::pool::set_attribute;
                cuCtxSynchronize => waits crate::pool::wait_for_current;
                cuCtxSynchronize_v2 => waits crate::pool::wait_for_context;
                cuStreamSynchronize => waits crate::pool::wait_for_stream;
                cuStreamSynchronize_ptsz => waits crate::pool::wait_for_stream;
                cuEventSynchronize => waits crate::pool::wait_for_event;

                cuDevicePrimaryCtxRetain => makes crate::context::retain;
                cuDevicePrimaryCtxRelease => tenant crate::context::release;
                cuDevicePrimaryCtxRelease_v2 => tenant crate::context::release_v2;
                cuDevicePrimaryCtxReset => tenant crate::context::reset;
                cuDevicePrimaryCtxReset_v2 => tenant crate::context::reset_v2;
                cuCtxCreate => makes crate::context::create_v1;
                cuCtxCreate_v2 => makes crate::context::create_v2;
                cuCtxCreate_v3 => makes crate::context::create_v3;
                cuCtxCreate_v4 => makes crate::context::create_v4;
                cuCtxDestroy => tenant crate::context::destroy;
                cuCtxDestroy_v2 => tenant crate::context::destroy_v2;
                cuCtxAttach => makes crate::context::attach;
                cuCtxDetach => tenant crate::context::detach;
                cuGreenCtxCreate => makes crate::green::create;
                cuGreenCtxDestroy => tenant crate::green::destroy;
                cuGreenCtxStreamCreate => makes crate::green::create_stream;

                // Every way to give a device work but for graphs, whose launches may take memory too.
                cuLaunchKernel => paced crate::throttle::launch_kernel;
                cuLaunchKernel_ptsz => paced crate::throttle::launch_kernel_ptsz;
                cuLaunchKernelEx => paced crate::throttle::launch_configured;
                cuLaunchKernelEx_ptsz => paced crate::throttle::launch_configured_ptsz;
                cuLaunchCooperativeKernel => paced crate::throttle::launch_cooperative;
                cuLaunchCooperativeKernel_ptsz => paced crate::throttle::launch_cooperative_ptsz;
                cuLaunchCooperativeKernelMultiDevice => paced crate::throttle::launch_on_devices;
                cuLaunch => paced crate::throttle::launch_one_block;
                cuLaunchGrid => paced crate::throttle::launch_grid;
                cuLaunchGridAsync => paced crate::throttle::launch_grid_async;
                // Memsets, which are kernels of the driver's.
                cuMemsetD8_v2 => set crate::memset::d8;
                cuMemsetD8_v2_ptds => set crate::memset::d8_ptds;
                cuMemsetD8 => set crate::memset::d8_v1;
                cuMemsetD8Async => set crate::memset::d8_async;
                cuMemsetD8Async_ptsz => set crate::memset::d8_async_ptsz;
                cuMemsetD16_v2 => set crate::memset::d16;
                cuMemsetD16_v2_ptds => set crate::memset::d16_ptds;
                cuMemsetD16 => set crate::memset::d16_v1;
                cuMemsetD16Async => set crate::memset::d16_async;
                cuMemsetD16Async_ptsz => set crate::memset::d16_async_ptsz;
                cuMemsetD32_v2 => set crate::memset::d32;
                cuMemsetD32_v2_ptds => set crate::memset::d32_ptds;
                cuMemsetD32 => set crate::memset::d32_v1;
                cuMemsetD32Async => set crate::memset::d32_async;
                cuMemsetD32Async_ptsz => set crate::memset::d32_async_ptsz;
                cuMemsetD2D8_v2 => set crate::memset::rows_d8;
                cuMemsetD2D8_v2_ptds => set crate::memset::rows_d8_ptds;
                cuMemsetD2D8 => set crate::memset::rows_d8_v1;
                cuMemsetD2D8Async => set crate::memset::rows_d8_async;
                cuMemsetD2D8Async_ptsz => set crate::memset::rows_d8_async_ptsz;
                cuMemsetD2D16_v2 => set crate::memset::rows_d16;
                cuMemsetD2D16_v2_ptds => set crate::memset::rows_d16_ptds;
                cuMemsetD2D16 => set crate::memset::rows_d16_v1;
                cuMemsetD2D16Async => set crate::memset::rows_d16_async;
                cuMemsetD2D16Async_ptsz => set crate::memset::rows_d16_async_ptsz;
                cuMemsetD2D32_v2 => set crate::memset::rows_d32;
                cuMemsetD2D32_v2_ptds => set crate::memset::rows_d32_ptds;
                cuMemsetD2D32 => set crate::memset::rows_d32_v1;
                cuMemsetD2D32Async => set crate::memset::rows_d32_async;
                cuMemsetD2D32Async_ptsz => set crate::memset::rows_d32_async_ptsz;
            }
            nvml {
                nvmlDeviceGetMemoryInfo => tenant crate::info::nvml_memory;
                nvmlDeviceGetMemoryInfo_v2 => tenant crate::info::nvml_memory_v2;
            }
            // What has no body: a thread's first call on its own default stream, which makes that stream, is followed by a look.
            per_thread {
                cuMemcpyAsync; cuMemcpyHtoDAsync_v2; cuMemcpyDtoHAsync_v2; cuMemcpyDtoDAsync_v2; cuStreamQuery_ptsz; cuStreamWaitEvent;
                cuStreamWaitEvent_ptsz; cuStreamGetPriority; cuMemcpy_ptds; cuMemcpyAsync_ptsz; cuMemcpyHtoD_v2_ptds; cuMemcpyDtoH_v2_ptds;
                cuMemcpyDtoD_v2_ptds; cuMemcpyHtoDAsync_v2_ptsz; cuMemcpyDtoHAsync_v2_ptsz; cuMemcpyDtoDAsync_v2_ptsz; cuMemcpyPeer_ptds;
                cuMemcpyPeerAsync; cuMemcpyPeerAsync_ptsz; cuMemcpyAtoA_v2_ptds; cuMemcpyAtoD_v2_ptds; cuMemcpyDtoA_v2_ptds; cuMemcpyAtoH_v2_ptds;
                cuMemcpyAtoHAsync_v2; cuMemcpyAtoHAsync_v2_ptsz; cuMemcpyHtoA_v2_ptds; cuMemcpyHtoAAsync_v2; cuMemcpyHtoAAsync_v2_ptsz;
                cuStreamGetCtx_ptsz; cuStreamGetPriority_ptsz; cuStreamGetFlags; cuStreamGetFlags_ptsz; cuStreamBatchMemOp_v2;
                cuStreamBatchMemOp_v2_ptsz; cuStreamCopyAttributes; cuStreamCopyAttributes_ptsz; cuEventRecordWithFlags; cuEventRecordWithFlags_ptsz;
                cuMemcpy2DAsync_v2; cuMemcpy3DAsync_v2; cuMemcpy3DPeerAsync; cuMemcpyBatchAsync_v2; cuMemcpy3DBatchAsync_v2;
                cuMemBatchDecompressAsync; cuMemPrefetchAsync_v2; cuMemPrefetchBatchAsync; cuMemDiscardBatchAsync; cuMemDiscardAndPrefetchBatchAsync;
                cuStreamGetDevice; cuStreamGetId; cuStreamGetCtx_v2; cuStreamAddCallback; cuStreamEndCapture; cuStreamGetCaptureInfo_v3;
                cuStreamUpdateCaptureDependencies_v2; cuStreamAttachMemAsync; cuStreamGetAttribute; cuStreamSetAttribute;
                cuSignalExternalSemaphoresAsync; cuWaitExternalSemaphoresAsync; cuStreamWaitValue32_v2; cuStreamWaitValue64_v2;
                cuStreamWriteValue32_v2; cuStreamWriteValue64_v2; cuLaunchHostFunc; cuMemcpy2D_v2_ptds; cuMemcpy2DUnaligned_v2_ptds;
                cuMemcpy3D_v2_ptds; cuMemcpy3DPeer_ptds; cuMemcpyHtoAAsync; cuMemcpyAtoHAsync; cuMemcpyHtoDAsync; cuMemcpyDtoHAsync;
                cuMemcpyDtoDAsync; cuMemcpy2DAsync; cuMemcpy3DAsync; cuMemcpyBatchAsync; cuMemcpy3DBatchAsync; cuStreamWriteValue32;
                cuStreamWaitValue32; cuStreamWriteValue64; cuStreamWaitValue64; cuStreamBatchMemOp; cuMemPrefetchAsync; cuStreamGetCaptureInfo_v2;
                cuStreamUpdateCaptureDependencies; cuMemcpy2DAsync_v2_ptsz; cuMemcpy3DAsync_v2_ptsz; cuMemcpy3DPeerAsync_ptsz;
                cuMemcpyBatchAsync_v2_ptsz; cuMemcpy3DBatchAsync_v2_ptsz; cuMemBatchDecompressAsync_ptsz; cuMemPrefetchAsync_v2_ptsz;
                cuMemPrefetchBatchAsync_ptsz; cuMemDiscardBatchAsync_ptsz; cuMemDiscardAndPrefetchBatchAsync_ptsz; cuStreamGetDevice_ptsz;
                cuStreamGetId_ptsz; cuStreamGetCtx_v2_ptsz; cuStreamAddCallback_ptsz; cuStreamEndCapture_ptsz; cuStreamGetCaptureInfo_v3_ptsz;
                cuStreamUpdateCaptureDependencies_v2_ptsz; cuStreamAttachMemAsync_ptsz; cuStreamGetAttribute_ptsz; cuStreamSetAttribute_ptsz;
                cuSignalExternalSemaphoresAsync_ptsz; cuWaitExternalSemaphoresAsync_ptsz; cuStreamWaitValue32_v2_ptsz; cuStreamWaitValue64_v2_ptsz;
                cuStreamWriteValue32_v2_ptsz; cuStreamWriteValue64_v2_ptsz; cuLaunchHostFunc_ptsz; cuMemcpyBatchAsync_ptsz;
                cuMemcpy3DBatchAsync_ptsz; cuStreamWriteValue32_ptsz; cuStreamWaitValue32_ptsz; cuStreamWriteValue64_ptsz; cuStreamWaitValue64_ptsz;
                cuStreamBatchMemOp_ptsz; cuMemPrefetchAsync_ptsz; cuStreamGetCaptureInfo_ptsz; cuStreamGetCaptureInfo_v2_ptsz;
                cuStreamUpdateCaptureDependencies_ptsz; cuGraphicsMapResources; cuGraphicsMapResources_ptsz; cuGraphicsUnmapResources;
                cuGraphicsUnmapResources_ptsz; cuGLMapBufferObject_v2_ptds; cuGLMapBufferObjectAsync; cuGLMapBufferObjectAsync_v2;
                cuGLMapBufferObjectAsync_v2_ptsz; cuGLUnmapBufferObjectAsync; cuFabricCpyBatchAsync; cuFabricCpyBatchAsync_ptsz;
                cuLaunchHostFunc_v2; cuLaunchHostFunc_v2_ptsz; cuMemcpyWithAttributesAsync; cuMemcpyWithAttributesAsync_ptsz;
                cuMemcpy3DWithAttributesAsync; cuMemcpy3DWithAttributesAsync_ptsz; cuStreamBeginCaptureToCig; cuStreamBeginCaptureToCig_ptsz;
                cuStreamEndCaptureToCig; cuStreamEndCaptureToCig_ptsz; cuStreamGetDevResource; cuStreamGetDevResource_ptsz;
            }
            // And of these, what we ask the driver ourselves.
            per_thread called {
                cuStreamQuery; cuStreamGetCtx; cuStreamIsCapturing; cuStreamIsCapturing_ptsz; cuEventRecord; cuEventRecord_ptsz;
                cuStreamGetCaptureInfo;
            }
            called cuda {
                cuDeviceGetCount; cuDeviceGetUuid; cuDeviceGetUuid_v2; cuDeviceGetPCIBusId;
                cuDeviceGetAttribute; cuDeviceGetDefaultMemPool;
                cuDevicePrimaryCtxGetState; cuCtxGetDevice; cuCtxGetLimit; cuCtxGetCurrent;
                cuMemPoolGetAttribute; cuDeviceGetGraphMemAttribute; cuGraphGetNodes; cuGraphNodeGetType;
                cuGraphMemAllocNodeGetParams; cuGraphChildGraphNodeGetGraph;
                cuMemGetAddressRange_v2; cuPointerGetAttribute; cuMemGetAllocationPropertiesFromHandle;
                cuCtxPushCurrent_v2; cuCtxPopCurrent_v2; cuCtxFromGreenCtx; cuGraphGetRootNodes; cuGraphGetEdges;
                cuEventCreate; cuEventDestroy_v2; cuEventQuery; cuEventElapsedTime;
                cuThreadExchangeStreamCaptureMode;
                cuFuncGetAttribute; cuKernelGetAttribute; cuFuncGetParamInfo; cuKernelGetParamInfo; cuGraphKernelNodeGetParams;
                cuGraphKernelNodeGetParams_v2; cuModuleGetFunctionCount; cuLibraryGetKernelCount; cuLibraryGetModule;
            }
            called nvml {
                nvmlInit_v2; nvmlShutdown; nvmlDeviceGetCount_v2; nvmlDeviceGetHandleByIndex_v2;
                nvmlDeviceGetUUID; nvmlDeviceGetPciInfo_v3; nvmlDeviceGetIndex;
                nvmlDeviceGetComputeRunningProcesses_v3; nvmlDeviceGetComputeRunningProcesses_v2;
                nvmlDeviceGetGraphicsRunningProcesses_v3; nvmlDeviceGetGraphicsRunningProcesses_v2;
                nvmlDeviceGetSamples;
            }
        }
    };
}
pub(crate) use table;
