//! One row per libcuda entry point: its exported name and its C signature.
//!
//! A suffix is part of a name: `_v2` rows may differ in ABI from their predecessor, `_ptsz` rows take the
//! per-thread default stream where NULL is given and share the plain row's ABI.

use super::types::*;
use crate::table::signatures;

signatures! { $ cuda_signature;
    // Initialisation, errors, look-ups
    cuInit(flags: c_uint) -> CUresult;
    cuDriverGetVersion(driver_version: *mut c_int) -> CUresult;
    cuGetErrorString(error: CUresult, string: *mut *const c_char) -> CUresult;
    cuGetErrorName(error: CUresult, string: *mut *const c_char) -> CUresult;
    cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t) -> CUresult;
    cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t, symbol_status: *mut CUdriverProcAddressQueryResult) -> CUresult;
    cuGetExportTable(table: *mut *const c_void, table_id: *const CUuuid) -> CUresult;

    // Devices
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
    cuDeviceGetCount(count: *mut c_int) -> CUresult;
    cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) -> CUresult;
    cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
    cuDeviceTotalMem(bytes: *mut c_uint, dev: CUdevice) -> CUresult;
    cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> CUresult;
    cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) -> CUresult;
    cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CUdevice) -> CUresult;
    cuDeviceGetByPCIBusId(dev: *mut CUdevice, pci_bus_id: *const c_char) -> CUresult;
    cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) -> CUresult;
    cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) -> CUresult;
    cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
    cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> CUresult;
    cuDeviceCanAccessPeer(can_access: *mut c_int, dev: CUdevice, peer: CUdevice) -> CUresult;
    cuDeviceGetP2PAttribute(value: *mut c_int, attrib: c_int, src: CUdevice, dst: CUdevice) -> CUresult;

    // Primary contexts
    cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> CUresult;
    cuDevicePrimaryCtxRelease(dev: CUdevice) -> CUresult;
    cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> CUresult;
    cuDevicePrimaryCtxReset(dev: CUdevice) -> CUresult;
    cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> CUresult;
    cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) -> CUresult;
    cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) -> CUresult;
    cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) -> CUresult;

    // Contexts
    cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> CUresult;
    cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> CUresult;
    cuCtxCreate_v3(pctx: *mut CUcontext, params: *mut c_void, num_params: c_int, flags: c_uint, dev: CUdevice) -> CUresult;
    cuCtxCreate_v4(pctx: *mut CUcontext, params: *mut c_void, flags: c_uint, dev: CUdevice) -> CUresult;
    cuCtxDestroy(ctx: CUcontext) -> CUresult;
    cuCtxDestroy_v2(ctx: CUcontext) -> CUresult;
    cuCtxPushCurrent(ctx: CUcontext) -> CUresult;
    cuCtxPushCurrent_v2(ctx: CUcontext) -> CUresult;
    cuCtxPopCurrent(pctx: *mut CUcontext) -> CUresult;
    cuCtxPopCurrent_v2(pctx: *mut CUcontext) -> CUresult;
    cuCtxSetCurrent(ctx: CUcontext) -> CUresult;
    cuCtxGetCurrent(pctx: *mut CUcontext) -> CUresult;
    cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
    cuCtxSynchronize() -> CUresult;
    cuCtxSynchronize_v2(ctx: CUcontext) -> CUresult;
    cuCtxGetFlags(flags: *mut c_uint) -> CUresult;
    cuCtxSetFlags(flags: c_uint) -> CUresult;
    cuCtxGetId(ctx: CUcontext, id: *mut c_ulonglong) -> CUresult;
    cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) -> CUresult;
    cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) -> CUresult;
    cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult;
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> CUresult;

    // Memory
    cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) -> CUresult;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
    cuMemAlloc(dptr: *mut CUdeviceptr_v1, bytesize: c_uint) -> CUresult;
    cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;
    cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: c_uint) -> CUresult;
    cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) -> CUresult;
    cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> CUresult;
    cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) -> CUresult;
    cuMemFreeHost(p: *mut c_void) -> CUresult;
    cuMemFree(dptr: CUdeviceptr_v1) -> CUresult;
    cuMemFree_v2(dptr: CUdeviceptr) -> CUresult;
    cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) -> CUresult;
    cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> CUresult;
    cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream) -> CUresult;
    cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream) -> CUresult;
    cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) -> CUresult;
    cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream) -> CUresult;
    cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream) -> CUresult;
    cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream) -> CUresult;
    cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) -> CUresult;
    cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult;
    cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) -> CUresult;
    cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) -> CUresult;
    cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) -> CUresult;
    cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: c_ulonglong) -> CUresult;
    cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult;
    cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_int) -> CUresult;
    cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult;
    cuArrayDestroy(array: CUarray) -> CUresult;

    // Copies and fills
    cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> CUresult;
    cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) -> CUresult;
    cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult;
    cuMemsetD32_v2(dst: CUdeviceptr, value: c_uint, count: usize) -> CUresult;

    // Streams and events
    cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult;
    cuStreamDestroy(stream: CUstream) -> CUresult;
    cuStreamDestroy_v2(stream: CUstream) -> CUresult;
    cuStreamSynchronize(stream: CUstream) -> CUresult;
    cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult;
    cuStreamQuery(stream: CUstream) -> CUresult;
    cuStreamQuery_ptsz(stream: CUstream) -> CUresult;
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult;
    cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult;
    cuStreamGetCtx(stream: CUstream, pctx: *mut CUcontext) -> CUresult;
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int) -> CUresult;
    cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult;
    cuEventDestroy(event: CUevent) -> CUresult;
    cuEventDestroy_v2(event: CUevent) -> CUresult;
    cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
    cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> CUresult;
    cuEventSynchronize(event: CUevent) -> CUresult;
    cuEventQuery(event: CUevent) -> CUresult;
    cuEventElapsedTime(milliseconds: *mut c_float, start: CUevent, end: CUevent) -> CUresult;
    cuEventElapsedTime_v2(milliseconds: *mut c_float, start: CUevent, end: CUevent) -> CUresult;

    // Per-thread default stream variants, 16-bit and two-dimensional fills
    cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyHtoD_v2_ptds(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> CUresult;
    cuMemcpyDtoH_v2_ptds(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyDtoD_v2_ptds(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyHtoDAsync_v2_ptsz(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyDtoHAsync_v2_ptsz(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyDtoDAsync_v2_ptsz(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyPeer(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize) -> CUresult;
    cuMemcpyPeer_ptds(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize) -> CUresult;
    cuMemcpyPeerAsync(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyPeerAsync_ptsz(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream) -> CUresult;
    cuMemsetD8_v2_ptds(dst: CUdeviceptr, value: u8, count: usize) -> CUresult;
    cuMemsetD8Async_ptsz(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult;
    cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) -> CUresult;
    cuMemsetD16_v2_ptds(dst: CUdeviceptr, value: u16, count: usize) -> CUresult;
    cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult;
    cuMemsetD16Async_ptsz(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult;
    cuMemsetD32_v2_ptds(dst: CUdeviceptr, value: c_uint, count: usize) -> CUresult;
    cuMemsetD32Async(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> CUresult;
    cuMemsetD32Async_ptsz(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> CUresult;
    cuMemsetD2D8_v2(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) -> CUresult;
    cuMemsetD2D8_v2_ptds(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) -> CUresult;
    cuMemsetD2D8Async(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) -> CUresult;
    cuMemsetD2D8Async_ptsz(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) -> CUresult;
    cuMemsetD2D16_v2(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) -> CUresult;
    cuMemsetD2D16_v2_ptds(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) -> CUresult;
    cuMemsetD2D16Async(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) -> CUresult;
    cuMemsetD2D16Async_ptsz(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) -> CUresult;
    cuMemsetD2D32_v2(dst: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) -> CUresult;
    cuMemsetD2D32_v2_ptds(dst: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) -> CUresult;
    cuMemsetD2D32Async(dst: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream) -> CUresult;
    cuMemsetD2D32Async_ptsz(dst: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream) -> CUresult;

    // Arrays as ends of copies
    cuMemcpyAtoA_v2(dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, bytes: usize) -> CUresult;
    cuMemcpyAtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, bytes: usize) -> CUresult;
    cuMemcpyAtoD_v2(dst: CUdeviceptr, src_array: CUarray, src_offset: usize, bytes: usize) -> CUresult;
    cuMemcpyAtoD_v2_ptds(dst: CUdeviceptr, src_array: CUarray, src_offset: usize, bytes: usize) -> CUresult;
    cuMemcpyDtoA_v2(dst_array: CUarray, dst_offset: usize, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyDtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src: CUdeviceptr, bytes: usize) -> CUresult;
    cuMemcpyAtoH_v2(dst: *mut c_void, src_array: CUarray, src_offset: usize, bytes: usize) -> CUresult;
    cuMemcpyAtoH_v2_ptds(dst: *mut c_void, src_array: CUarray, src_offset: usize, bytes: usize) -> CUresult;
    cuMemcpyAtoHAsync_v2(dst: *mut c_void, src_array: CUarray, src_offset: usize, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyAtoHAsync_v2_ptsz(dst: *mut c_void, src_array: CUarray, src_offset: usize, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src: *const c_void, bytes: usize) -> CUresult;
    cuMemcpyHtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src: *const c_void, bytes: usize) -> CUresult;
    cuMemcpyHtoAAsync_v2(dst_array: CUarray, dst_offset: usize, src: *const c_void, bytes: usize, stream: CUstream) -> CUresult;
    cuMemcpyHtoAAsync_v2_ptsz(dst_array: CUarray, dst_offset: usize, src: *const c_void, bytes: usize, stream: CUstream) -> CUresult;

    // Small settings and getters
    cuCtxGetCacheConfig(config: *mut c_int) -> CUresult;
    cuCtxSetCacheConfig(config: c_int) -> CUresult;
    cuCtxGetSharedMemConfig(config: *mut c_int) -> CUresult;
    cuCtxSetSharedMemConfig(config: c_int) -> CUresult;
    cuCtxResetPersistingL2Cache() -> CUresult;
    cuDeviceGraphMemTrim(dev: CUdevice) -> CUresult;
    cuMemGetAddressRange(pbase: *mut CUdeviceptr_v1, psize: *mut c_uint, dptr: CUdeviceptr_v1) -> CUresult;
    cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint) -> CUresult;
    cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void) -> CUresult;
    cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, ptr: CUdeviceptr) -> CUresult;
    cuTexObjectDestroy(object: c_ulonglong) -> CUresult;
    cuSurfObjectDestroy(object: c_ulonglong) -> CUresult;
    cuStreamGetCtx_ptsz(stream: CUstream, pctx: *mut CUcontext) -> CUresult;
    cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int) -> CUresult;
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) -> CUresult;
    cuStreamGetFlags_ptsz(stream: CUstream, flags: *mut c_uint) -> CUresult;
    cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, ops: *mut c_void, flags: c_uint) -> CUresult;
    cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: c_uint, ops: *mut c_void, flags: c_uint) -> CUresult;
    cuStreamCopyAttributes(dst_stream: CUstream, src_stream: CUstream) -> CUresult;
    cuStreamCopyAttributes_ptsz(dst_stream: CUstream, src_stream: CUstream) -> CUresult;
    cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> CUresult;
    cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) -> CUresult;
}
