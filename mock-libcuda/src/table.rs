// What is simulated: one row per entry point, naming the safe function that answers it. `build.rs` includes this file
// too: every other export of driver 580 becomes a stub.

entry_points! {
    init {
        cuInit => init::init;
        cuDriverGetVersion => init::driver_version;
        cuGetErrorString => error::string;
        cuGetErrorName => error::name;
        cuGetProcAddress => lookup::proc_address;
        cuGetProcAddress_v2 => lookup::proc_address_v2;
        cuGetExportTable => lookup::export_table;
    }
    device {
        cuDeviceGet => device::get;
        cuDeviceGetCount => device::count;
        cuDeviceGetName => device::name;
        cuDeviceGetUuid => device::uuid;
        cuDeviceGetUuid_v2 => device::uuid;
        cuDeviceTotalMem => device::total_mem_32;
        cuDeviceTotalMem_v2 => device::total_mem;
        cuDeviceGetAttribute => device::attribute;
        cuDeviceGetPCIBusId => device::pci_bus_id;
        cuDeviceGetByPCIBusId => device::by_pci_bus_id;
        cuDeviceComputeCapability => device::compute_capability;
        cuDeviceGetProperties => device::properties;
        cuDeviceCanAccessPeer => device::can_access_peer;
        cuDeviceGetP2PAttribute => device::p2p_attribute;
        cuDeviceGetDefaultMemPool => pool::default_of_device;
        cuDeviceGetMemPool => pool::of_device;
        cuDeviceSetMemPool => pool::set_of_device;
    }
    context {
        cuDevicePrimaryCtxRetain => context::primary_retain;
        cuDevicePrimaryCtxRelease => context::primary_release;
        cuDevicePrimaryCtxRelease_v2 => context::primary_release;
        cuDevicePrimaryCtxReset => context::primary_reset;
        cuDevicePrimaryCtxReset_v2 => context::primary_reset;
        cuDevicePrimaryCtxGetState => context::primary_state;
        cuDevicePrimaryCtxSetFlags => context::primary_set_flags_v1;
        cuDevicePrimaryCtxSetFlags_v2 => context::primary_set_flags;
        cuCtxCreate => context::create_legacy;
        cuCtxCreate_v2 => context::create;
        cuCtxCreate_v3 => context::create_v3;
        cuCtxCreate_v4 => context::create_v4;
        cuCtxDestroy => context::destroy;
        cuCtxDestroy_v2 => context::destroy;
        cuCtxPushCurrent => context::push;
        cuCtxPushCurrent_v2 => context::push;
        cuCtxPopCurrent => context::pop;
        cuCtxPopCurrent_v2 => context::pop;
        cuCtxSetCurrent => context::set_current;
        cuCtxGetCurrent => context::get_current;
        cuCtxGetDevice => context::get_device;
        cuCtxSynchronize => stream::synchronize_context;
        cuCtxGetFlags => context::get_flags;
        cuCtxSetFlags => context::set_flags;
        cuCtxGetId => context::get_id;
        cuCtxGetApiVersion => context::get_api_version;
        cuCtxGetLimit => limits::get;
        cuCtxSetLimit => limits::set;
        cuCtxGetStreamPriorityRange => stream::priority_range;
    }
    memory {
        cuMemGetInfo => memory::get_info_32;
        cuMemGetInfo_v2 => memory::get_info;
        cuMemAlloc => memory::alloc_32;
        cuMemAlloc_v2 => memory::alloc;
        cuMemAllocPitch_v2 => memory::alloc_pitch;
        cuMemAllocManaged => memory::alloc_managed;
        cuMemAllocHost_v2 => host::alloc;
        cuMemHostAlloc => host::alloc_with_flags;
        cuMemFreeHost => host::free;
        cuMemFree => memory::free_32;
        cuMemFree_v2 => memory::free;
        cuMemGetAddressRange_v2 => pointer::address_range;
        cuPointerGetAttribute => pointer::attribute;
    }
    pool {
        cuMemAllocAsync => pool::alloc_async;
        cuMemAllocAsync_ptsz => pool::alloc_async;
        cuMemFreeAsync => pool::free_async;
        cuMemFreeAsync_ptsz => pool::free_async;
        cuMemAllocFromPoolAsync => pool::alloc_from_pool;
        cuMemAllocFromPoolAsync_ptsz => pool::alloc_from_pool;
        cuMemPoolCreate => pool::create;
        cuMemPoolDestroy => pool::destroy;
        cuMemPoolSetAttribute => pool::set_attribute;
        cuMemPoolGetAttribute => pool::get_attribute;
        cuMemPoolTrimTo => pool::trim_to;
    }
    physical {
        cuMemCreate => vmm::create;
        cuMemRelease => vmm::release;
        cuMemGetAllocationGranularity => vmm::granularity;
        cuArrayCreate_v2 => array::create;
        cuArrayDestroy => array::destroy;
    }
    copy {
        cuMemcpy => copy::any;
        cuMemcpyAsync => copy::any_async;
        cuMemcpyHtoD_v2 => copy::host_to_device;
        cuMemcpyDtoH_v2 => copy::device_to_host;
        cuMemcpyDtoD_v2 => copy::device_to_device;
        cuMemcpyHtoDAsync_v2 => copy::host_to_device_async;
        cuMemcpyDtoHAsync_v2 => copy::device_to_host_async;
        cuMemcpyDtoDAsync_v2 => copy::device_to_device_async;
        cuMemsetD8_v2 => fill::set_8;
        cuMemsetD8Async => fill::set_8_async;
        cuMemsetD32_v2 => fill::set_32;
    }
    stream {
        cuStreamCreate => stream::create;
        cuStreamCreateWithPriority => stream::create_with_priority;
        cuStreamDestroy => stream::destroy;
        cuStreamDestroy_v2 => stream::destroy;
        cuStreamSynchronize => stream::synchronize;
        cuStreamSynchronize_ptsz => stream::synchronize;
        cuStreamQuery => stream::query;
        cuStreamQuery_ptsz => stream::query;
        cuStreamWaitEvent => stream::wait_event;
        cuStreamWaitEvent_ptsz => stream::wait_event;
        cuStreamGetCtx => stream::context;
        cuStreamGetPriority => stream::priority;
        cuStreamIsCapturing => stream::is_capturing;
        cuStreamIsCapturing_ptsz => stream::is_capturing;
        cuEventCreate => event::create;
        cuEventDestroy => event::destroy;
        cuEventDestroy_v2 => event::destroy;
        cuEventRecord => event::record;
        cuEventRecord_ptsz => event::record;
        cuEventSynchronize => event::synchronize;
        cuEventQuery => event::query;
        cuEventElapsedTime => event::elapsed;
        cuEventElapsedTime_v2 => event::elapsed;
    }
    variants {
        cuMemcpy_ptds => copy::any;
        cuMemcpyAsync_ptsz => copy::any_async;
        cuMemcpyHtoD_v2_ptds => copy::host_to_device;
        cuMemcpyDtoH_v2_ptds => copy::device_to_host;
        cuMemcpyDtoD_v2_ptds => copy::device_to_device;
        cuMemcpyHtoDAsync_v2_ptsz => copy::host_to_device_async;
        cuMemcpyDtoHAsync_v2_ptsz => copy::device_to_host_async;
        cuMemcpyDtoDAsync_v2_ptsz => copy::device_to_device_async;
        cuMemcpyPeer => copy::peer;
        cuMemcpyPeer_ptds => copy::peer;
        cuMemcpyPeerAsync => copy::peer_async;
        cuMemcpyPeerAsync_ptsz => copy::peer_async;
        cuMemsetD8_v2_ptds => fill::set_8;
        cuMemsetD8Async_ptsz => fill::set_8_async;
        cuMemsetD16_v2 => fill::set_16;
        cuMemsetD16_v2_ptds => fill::set_16;
        cuMemsetD16Async => fill::set_16_async;
        cuMemsetD16Async_ptsz => fill::set_16_async;
        cuMemsetD32_v2_ptds => fill::set_32;
        cuMemsetD32Async => fill::set_32_async;
        cuMemsetD32Async_ptsz => fill::set_32_async;
        cuMemsetD2D8_v2 => fill::set_rows_8;
        cuMemsetD2D8_v2_ptds => fill::set_rows_8;
        cuMemsetD2D8Async => fill::set_rows_8_async;
        cuMemsetD2D8Async_ptsz => fill::set_rows_8_async;
        cuMemsetD2D16_v2 => fill::set_rows_16;
        cuMemsetD2D16_v2_ptds => fill::set_rows_16;
        cuMemsetD2D16Async => fill::set_rows_16_async;
        cuMemsetD2D16Async_ptsz => fill::set_rows_16_async;
        cuMemsetD2D32_v2 => fill::set_rows_32;
        cuMemsetD2D32_v2_ptds => fill::set_rows_32;
        cuMemsetD2D32Async => fill::set_rows_32_async;
        cuMemsetD2D32Async_ptsz => fill::set_rows_32_async;
        cuMemcpyAtoA_v2 => array::array_to_array;
        cuMemcpyAtoA_v2_ptds => array::array_to_array;
        cuMemcpyAtoD_v2 => array::array_to_device;
        cuMemcpyAtoD_v2_ptds => array::array_to_device;
        cuMemcpyDtoA_v2 => array::device_to_array;
        cuMemcpyDtoA_v2_ptds => array::device_to_array;
        cuMemcpyAtoH_v2 => array::array_to_host;
        cuMemcpyAtoH_v2_ptds => array::array_to_host;
        cuMemcpyAtoHAsync_v2 => array::array_to_host_async;
        cuMemcpyAtoHAsync_v2_ptsz => array::array_to_host_async;
        cuMemcpyHtoA_v2 => array::host_to_array;
        cuMemcpyHtoA_v2_ptds => array::host_to_array;
        cuMemcpyHtoAAsync_v2 => array::host_to_array_async;
        cuMemcpyHtoAAsync_v2_ptsz => array::host_to_array_async;
    }
    getters {
        cuCtxSynchronize_v2 => stream::synchronize_of_context;
        cuCtxGetCacheConfig => limits::get_cache_config;
        cuCtxSetCacheConfig => limits::set_cache_config;
        cuCtxGetSharedMemConfig => limits::get_shared_config;
        cuCtxSetSharedMemConfig => limits::set_shared_config;
        cuCtxResetPersistingL2Cache => limits::reset_persisting_l2;
        cuDeviceGraphMemTrim => device::graph_mem_trim;
        cuMemGetAddressRange => pointer::address_range_32;
        cuMemHostGetDevicePointer_v2 => host::device_pointer;
        cuMemHostGetFlags => host::flags;
        cuPointerGetAttributes => pointer::attributes;
        cuTexObjectDestroy => array::destroy_view;
        cuSurfObjectDestroy => array::destroy_view;
        cuStreamGetCtx_ptsz => stream::context;
        cuStreamGetPriority_ptsz => stream::priority;
        cuStreamGetFlags => stream::flags;
        cuStreamGetFlags_ptsz => stream::flags;
        cuStreamBatchMemOp_v2 => stream::batch_mem_op;
        cuStreamBatchMemOp_v2_ptsz => stream::batch_mem_op;
        cuStreamCopyAttributes => stream::copy_attributes;
        cuStreamCopyAttributes_ptsz => stream::copy_attributes;
        cuEventRecordWithFlags => event::record_with_flags;
        cuEventRecordWithFlags_ptsz => event::record_with_flags;
    }    launch {
        cuLaunchKernel => launch::kernel;
        cuLaunchKernel_ptsz => launch::kernel;
    }
}
