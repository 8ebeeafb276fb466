//! Structures and unions of libcuda, as its public headers lay them out (CUDA 13.0, with what only 12.9 has).
//!
//! Each row also yields a [`Layout`](crate::layout::Layout), which `suites/c` compares with a C compiler's. A field `anon`
//! stands for a C11 member without a name; a structure that C gives no name is called after its parent and field.

#![allow(non_camel_case_types, non_snake_case, reason = "C names stay exact")]

use super::enumerations::*;
use super::types::*;
use crate::layout::structures;

structures! {
    struct CUmemFabricHandle "CUmemFabricHandle" {
        data: [u8; 64],
    }
    struct CUipcEventHandle "CUipcEventHandle" {
        reserved: [c_char; 64],
    }
    struct CUipcMemHandle "CUipcMemHandle" {
        reserved: [c_char; 64],
    }
    union CUstreamBatchMemOpParams "CUstreamBatchMemOpParams" {
        operation: CUstreamBatchMemOpType,
        waitValue: CUstreamMemOpWaitValueParams,
        writeValue: CUstreamMemOpWriteValueParams,
        flushRemoteWrites: CUstreamMemOpFlushRemoteWritesParams,
        memoryBarrier: CUstreamMemOpMemoryBarrierParams,
        pad: [cuuint64_t; 6],
    }
    struct CUstreamMemOpWaitValueParams "struct CUstreamMemOpWaitValueParams_st" {
        operation: CUstreamBatchMemOpType,
        address: CUdeviceptr,
        anon: CUstreamMemOpWaitValueParams_anon,
        flags: c_uint,
        alias: CUdeviceptr,
    }
    union CUstreamMemOpWaitValueParams_anon "" {
        value: c_uint,
        value64: cuuint64_t,
    }
    struct CUstreamMemOpWriteValueParams "struct CUstreamMemOpWriteValueParams_st" {
        operation: CUstreamBatchMemOpType,
        address: CUdeviceptr,
        anon: CUstreamMemOpWriteValueParams_anon,
        flags: c_uint,
        alias: CUdeviceptr,
    }
    union CUstreamMemOpWriteValueParams_anon "" {
        value: c_uint,
        value64: cuuint64_t,
    }
    struct CUstreamMemOpFlushRemoteWritesParams "struct CUstreamMemOpFlushRemoteWritesParams_st" {
        operation: CUstreamBatchMemOpType,
        flags: c_uint,
    }
    struct CUstreamMemOpMemoryBarrierParams "struct CUstreamMemOpMemoryBarrierParams_st" {
        operation: CUstreamBatchMemOpType,
        flags: c_uint,
    }
    struct CUDA_BATCH_MEM_OP_NODE_PARAMS "CUDA_BATCH_MEM_OP_NODE_PARAMS" {
        ctx: CUcontext,
        count: c_uint,
        paramArray: *mut CUstreamBatchMemOpParams,
        flags: c_uint,
    }
    struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 "CUDA_BATCH_MEM_OP_NODE_PARAMS_v2" {
        ctx: CUcontext,
        count: c_uint,
        paramArray: *mut CUstreamBatchMemOpParams,
        flags: c_uint,
    }
    struct CUasyncNotificationInfo "CUasyncNotificationInfo" {
        type_: CUasyncNotificationType,
        info: CUasyncNotificationInfo_info,
    }
    union CUasyncNotificationInfo_info "__typeof__(((CUasyncNotificationInfo *)0)->info)" {
        overBudget: CUasyncNotificationInfo_info_overBudget,
    }
    struct CUasyncNotificationInfo_info_overBudget "__typeof__(((__typeof__(((CUasyncNotificationInfo *)0)->info) *)0)->overBudget)" {
        bytesOverBudget: c_ulonglong,
    }
    struct CUaccessPolicyWindow "CUaccessPolicyWindow" {
        base_ptr: *mut c_void,
        num_bytes: usize,
        hitRatio: f32,
        hitProp: CUaccessProperty,
        missProp: CUaccessProperty,
    }
    struct CUDA_KERNEL_NODE_PARAMS_v1 "CUDA_KERNEL_NODE_PARAMS_v1" {
        func: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    }
    struct CUDA_KERNEL_NODE_PARAMS "CUDA_KERNEL_NODE_PARAMS" {
        func: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        kern: CUkernel,
        ctx: CUcontext,
    }
    struct CUDA_KERNEL_NODE_PARAMS_v3 "CUDA_KERNEL_NODE_PARAMS_v3" {
        func: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        kern: CUkernel,
        ctx: CUcontext,
    }
    struct CUDA_MEMSET_NODE_PARAMS "CUDA_MEMSET_NODE_PARAMS" {
        dst: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        elementSize: c_uint,
        width: usize,
        height: usize,
    }
    struct CUDA_MEMSET_NODE_PARAMS_v2 "CUDA_MEMSET_NODE_PARAMS_v2" {
        dst: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        elementSize: c_uint,
        width: usize,
        height: usize,
        ctx: CUcontext,
    }
    struct CUDA_HOST_NODE_PARAMS "CUDA_HOST_NODE_PARAMS" {
        fn_: CUhostFn,
        userData: *mut c_void,
    }
    struct CUDA_HOST_NODE_PARAMS_v2 "CUDA_HOST_NODE_PARAMS_v2" {
        fn_: CUhostFn,
        userData: *mut c_void,
    }
    struct CUDA_CONDITIONAL_NODE_PARAMS "CUDA_CONDITIONAL_NODE_PARAMS" {
        handle: cuuint64_t,
        type_: CUgraphConditionalNodeType,
        size: c_uint,
        phGraph_out: *mut CUgraph,
        ctx: CUcontext,
    }
    struct CUgraphEdgeData "CUgraphEdgeData" {
        from_port: u8,
        to_port: u8,
        type_: u8,
        reserved: [u8; 5],
    }
    struct CUDA_GRAPH_INSTANTIATE_PARAMS "CUDA_GRAPH_INSTANTIATE_PARAMS" {
        flags: cuuint64_t,
        hUploadStream: CUstream,
        hErrNode_out: CUgraphNode,
        result_out: CUgraphInstantiateResult,
    }
    struct CUlaunchMemSyncDomainMap "CUlaunchMemSyncDomainMap" {
        default_: u8,
        remote: u8,
    }
    union CUkernelNodeAttrValue_v1 "CUkernelNodeAttrValue_v1" {
        pad: [c_char; 64],
        accessPolicyWindow: CUaccessPolicyWindow,
        cooperative: c_int,
        syncPolicy: CUsynchronizationPolicy,
        clusterDim: CUkernelNodeAttrValue_v1_clusterDim,
        clusterSchedulingPolicyPreference: CUclusterSchedulingPolicy,
        programmaticStreamSerializationAllowed: c_int,
        programmaticEvent: CUkernelNodeAttrValue_v1_programmaticEvent,
        launchCompletionEvent: CUkernelNodeAttrValue_v1_launchCompletionEvent,
        priority: c_int,
        memSyncDomainMap: CUlaunchMemSyncDomainMap,
        memSyncDomain: CUlaunchMemSyncDomain,
        preferredClusterDim: CUkernelNodeAttrValue_v1_preferredClusterDim,
        deviceUpdatableKernelNode: CUkernelNodeAttrValue_v1_deviceUpdatableKernelNode,
        sharedMemCarveout: c_uint,
        nvlinkUtilCentricScheduling: c_uint,
    }
    struct CUkernelNodeAttrValue_v1_clusterDim "__typeof__(((CUkernelNodeAttrValue_v1 *)0)->clusterDim)" {
        x: c_uint,
        y: c_uint,
        z: c_uint,
    }
    struct CUkernelNodeAttrValue_v1_programmaticEvent "__typeof__(((CUkernelNodeAttrValue_v1 *)0)->programmaticEvent)" {
        event: CUevent,
        flags: c_int,
        triggerAtBlockStart: c_int,
    }
    struct CUkernelNodeAttrValue_v1_launchCompletionEvent "__typeof__(((CUkernelNodeAttrValue_v1 *)0)->launchCompletionEvent)" {
        event: CUevent,
        flags: c_int,
    }
    struct CUkernelNodeAttrValue_v1_preferredClusterDim "__typeof__(((CUkernelNodeAttrValue_v1 *)0)->preferredClusterDim)" {
        x: c_uint,
        y: c_uint,
        z: c_uint,
    }
    struct CUkernelNodeAttrValue_v1_deviceUpdatableKernelNode "__typeof__(((CUkernelNodeAttrValue_v1 *)0)->deviceUpdatableKernelNode)" {
        deviceUpdatable: c_int,
        devNode: CUgraphDeviceNode,
    }
    struct CUlaunchAttribute "CUlaunchAttribute" {
        id: CUlaunchAttributeID,
        pad: [c_char; 4],
        value: CUkernelNodeAttrValue_v1,
    }
    struct CUlaunchConfig "CUlaunchConfig" {
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        attrs: *mut CUlaunchAttribute,
        numAttrs: c_uint,
    }
    struct CUexecAffinitySmCount "CUexecAffinitySmCount" {
        val: c_uint,
    }
    struct CUexecAffinityParam "CUexecAffinityParam" {
        type_: CUexecAffinityType,
        param: CUexecAffinityParam_param,
    }
    union CUexecAffinityParam_param "__typeof__(((CUexecAffinityParam *)0)->param)" {
        smCount: CUexecAffinitySmCount,
    }
    struct CUctxCigParam "CUctxCigParam" {
        sharedDataType: CUcigDataType,
        sharedData: *mut c_void,
    }
    struct CUctxCreateParams "CUctxCreateParams" {
        execAffinityParams: *mut CUexecAffinityParam,
        numExecAffinityParams: c_int,
        cigParams: *mut CUctxCigParam,
    }
    struct CUlibraryHostUniversalFunctionAndDataTable "CUlibraryHostUniversalFunctionAndDataTable" {
        functionTable: *mut c_void,
        functionWindowSize: usize,
        dataTable: *mut c_void,
        dataWindowSize: usize,
    }
    struct CUDA_MEMCPY2D "CUDA_MEMCPY2D" {
        srcXInBytes: usize,
        srcY: usize,
        srcMemoryType: CUmemorytype,
        srcHost: *const c_void,
        srcDevice: CUdeviceptr,
        srcArray: CUarray,
        srcPitch: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstMemoryType: CUmemorytype,
        dstHost: *mut c_void,
        dstDevice: CUdeviceptr,
        dstArray: CUarray,
        dstPitch: usize,
        WidthInBytes: usize,
        Height: usize,
    }
    struct CUDA_MEMCPY3D "CUDA_MEMCPY3D" {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: CUmemorytype,
        srcHost: *const c_void,
        srcDevice: CUdeviceptr,
        srcArray: CUarray,
        reserved0: *mut c_void,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: CUmemorytype,
        dstHost: *mut c_void,
        dstDevice: CUdeviceptr,
        dstArray: CUarray,
        reserved1: *mut c_void,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }
    struct CUDA_MEMCPY3D_PEER "CUDA_MEMCPY3D_PEER" {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: CUmemorytype,
        srcHost: *const c_void,
        srcDevice: CUdeviceptr,
        srcArray: CUarray,
        srcContext: CUcontext,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: CUmemorytype,
        dstHost: *mut c_void,
        dstDevice: CUdeviceptr,
        dstArray: CUarray,
        dstContext: CUcontext,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }
    struct CUDA_MEMCPY_NODE_PARAMS "CUDA_MEMCPY_NODE_PARAMS" {
        flags: c_int,
        reserved: c_int,
        copyCtx: CUcontext,
        copyParams: CUDA_MEMCPY3D,
    }
    struct CUDA_ARRAY3D_DESCRIPTOR "CUDA_ARRAY3D_DESCRIPTOR" {
        Width: usize,
        Height: usize,
        Depth: usize,
        Format: CUarray_format,
        NumChannels: c_uint,
        Flags: c_uint,
    }
    struct CUDA_ARRAY_SPARSE_PROPERTIES "CUDA_ARRAY_SPARSE_PROPERTIES" {
        tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent,
        miptailFirstLevel: c_uint,
        miptailSize: c_ulonglong,
        flags: c_uint,
        reserved: [c_uint; 4],
    }
    struct CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent "__typeof__(((CUDA_ARRAY_SPARSE_PROPERTIES *)0)->tileExtent)" {
        width: c_uint,
        height: c_uint,
        depth: c_uint,
    }
    struct CUDA_ARRAY_MEMORY_REQUIREMENTS "CUDA_ARRAY_MEMORY_REQUIREMENTS" {
        size: usize,
        alignment: usize,
        reserved: [c_uint; 4],
    }
    struct CUDA_RESOURCE_DESC "CUDA_RESOURCE_DESC" {
        resType: CUresourcetype,
        res: CUDA_RESOURCE_DESC_res,
        flags: c_uint,
    }
    union CUDA_RESOURCE_DESC_res "__typeof__(((CUDA_RESOURCE_DESC *)0)->res)" {
        array: CUDA_RESOURCE_DESC_res_array,
        mipmap: CUDA_RESOURCE_DESC_res_mipmap,
        linear: CUDA_RESOURCE_DESC_res_linear,
        pitch2D: CUDA_RESOURCE_DESC_res_pitch2D,
        reserved: CUDA_RESOURCE_DESC_res_reserved,
    }
    struct CUDA_RESOURCE_DESC_res_array "__typeof__(((__typeof__(((CUDA_RESOURCE_DESC *)0)->res) *)0)->array)" {
        hArray: CUarray,
    }
    struct CUDA_RESOURCE_DESC_res_mipmap "__typeof__(((__typeof__(((CUDA_RESOURCE_DESC *)0)->res) *)0)->mipmap)" {
        hMipmappedArray: CUmipmappedArray,
    }
    struct CUDA_RESOURCE_DESC_res_linear "__typeof__(((__typeof__(((CUDA_RESOURCE_DESC *)0)->res) *)0)->linear)" {
        devPtr: CUdeviceptr,
        format: CUarray_format,
        numChannels: c_uint,
        sizeInBytes: usize,
    }
    struct CUDA_RESOURCE_DESC_res_pitch2D "__typeof__(((__typeof__(((CUDA_RESOURCE_DESC *)0)->res) *)0)->pitch2D)" {
        devPtr: CUdeviceptr,
        format: CUarray_format,
        numChannels: c_uint,
        width: usize,
        height: usize,
        pitchInBytes: usize,
    }
    struct CUDA_RESOURCE_DESC_res_reserved "__typeof__(((__typeof__(((CUDA_RESOURCE_DESC *)0)->res) *)0)->reserved)" {
        reserved: [c_int; 32],
    }
    struct CUDA_TEXTURE_DESC "CUDA_TEXTURE_DESC" {
        addressMode: [CUaddress_mode; 3],
        filterMode: CUfilter_mode,
        flags: c_uint,
        maxAnisotropy: c_uint,
        mipmapFilterMode: CUfilter_mode,
        mipmapLevelBias: f32,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
        borderColor: [f32; 4],
        reserved: [c_int; 12],
    }
    struct CUDA_RESOURCE_VIEW_DESC "CUDA_RESOURCE_VIEW_DESC" {
        format: CUresourceViewFormat,
        width: usize,
        height: usize,
        depth: usize,
        firstMipmapLevel: c_uint,
        lastMipmapLevel: c_uint,
        firstLayer: c_uint,
        lastLayer: c_uint,
        reserved: [c_uint; 16],
    }
    struct CUtensorMap "CUtensorMap" {
        opaque: [cuuint64_t; 16],
    }
    struct CUDA_POINTER_ATTRIBUTE_P2P_TOKENS "CUDA_POINTER_ATTRIBUTE_P2P_TOKENS" {
        p2pToken: c_ulonglong,
        vaSpaceToken: c_uint,
    }
    struct CUDA_LAUNCH_PARAMS "CUDA_LAUNCH_PARAMS" {
        function: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
    }
    struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC "CUDA_EXTERNAL_MEMORY_HANDLE_DESC" {
        type_: CUexternalMemoryHandleType,
        handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle,
        size: c_ulonglong,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    union CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle "__typeof__(((CUDA_EXTERNAL_MEMORY_HANDLE_DESC *)0)->handle)" {
        fd: c_int,
        win32: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32,
        nvSciBufObject: *const c_void,
    }
    struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32 "__typeof__(((__typeof__(((CUDA_EXTERNAL_MEMORY_HANDLE_DESC *)0)->handle) *)0)->win32)" {
        handle: *mut c_void,
        name: *const c_void,
    }
    struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC "CUDA_EXTERNAL_MEMORY_BUFFER_DESC" {
        offset: c_ulonglong,
        size: c_ulonglong,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC" {
        offset: c_ulonglong,
        arrayDesc: CUDA_ARRAY3D_DESCRIPTOR,
        numLevels: c_uint,
        reserved: [c_uint; 16],
    }
    struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC" {
        type_: CUexternalSemaphoreHandleType,
        handle: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    union CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle "__typeof__(((CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *)0)->handle)" {
        fd: c_int,
        win32: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle_win32,
        nvSciSyncObj: *const c_void,
    }
    struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_handle_win32 "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *)0)->handle) *)0)->win32)" {
        handle: *mut c_void,
        name: *const c_void,
    }
    struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS" {
        params: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params "__typeof__(((CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)0)->params)" {
        fence: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_fence,
        nvSciSync: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_nvSciSync,
        keyedMutex: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_keyedMutex,
        reserved: [c_uint; 12],
    }
    struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_fence "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)0)->params) *)0)->fence)" {
        value: c_ulonglong,
    }
    union CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_nvSciSync "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)0)->params) *)0)->nvSciSync)" {
        fence: *mut c_void,
        reserved: c_ulonglong,
    }
    struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_params_keyedMutex "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)0)->params) *)0)->keyedMutex)" {
        key: c_ulonglong,
    }
    struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS" {
        params: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params,
        flags: c_uint,
        reserved: [c_uint; 16],
    }
    struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params "__typeof__(((CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)0)->params)" {
        fence: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_fence,
        nvSciSync: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_nvSciSync,
        keyedMutex: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_keyedMutex,
        reserved: [c_uint; 10],
    }
    struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_fence "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)0)->params) *)0)->fence)" {
        value: c_ulonglong,
    }
    union CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_nvSciSync "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)0)->params) *)0)->nvSciSync)" {
        fence: *mut c_void,
        reserved: c_ulonglong,
    }
    struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_params_keyedMutex "__typeof__(((__typeof__(((CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)0)->params) *)0)->keyedMutex)" {
        key: c_ulonglong,
        timeoutMs: c_uint,
    }
    struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS "CUDA_EXT_SEM_SIGNAL_NODE_PARAMS" {
        extSemArray: *mut CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        numExtSems: c_uint,
    }
    struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 "CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2" {
        extSemArray: *mut CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        numExtSems: c_uint,
    }
    struct CUDA_EXT_SEM_WAIT_NODE_PARAMS "CUDA_EXT_SEM_WAIT_NODE_PARAMS" {
        extSemArray: *mut CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        numExtSems: c_uint,
    }
    struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 "CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2" {
        extSemArray: *mut CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        numExtSems: c_uint,
    }
    struct CUarrayMapInfo "CUarrayMapInfo" {
        resourceType: CUresourcetype,
        resource: CUarrayMapInfo_resource,
        subresourceType: CUarraySparseSubresourceType,
        subresource: CUarrayMapInfo_subresource,
        memOperationType: CUmemOperationType,
        memHandleType: CUmemHandleType,
        memHandle: CUarrayMapInfo_memHandle,
        offset: c_ulonglong,
        deviceBitMask: c_uint,
        flags: c_uint,
        reserved: [c_uint; 2],
    }
    union CUarrayMapInfo_resource "__typeof__(((CUarrayMapInfo *)0)->resource)" {
        mipmap: CUmipmappedArray,
        array: CUarray,
    }
    union CUarrayMapInfo_subresource "__typeof__(((CUarrayMapInfo *)0)->subresource)" {
        sparseLevel: CUarrayMapInfo_subresource_sparseLevel,
        miptail: CUarrayMapInfo_subresource_miptail,
    }
    struct CUarrayMapInfo_subresource_sparseLevel "__typeof__(((__typeof__(((CUarrayMapInfo *)0)->subresource) *)0)->sparseLevel)" {
        level: c_uint,
        layer: c_uint,
        offsetX: c_uint,
        offsetY: c_uint,
        offsetZ: c_uint,
        extentWidth: c_uint,
        extentHeight: c_uint,
        extentDepth: c_uint,
    }
    struct CUarrayMapInfo_subresource_miptail "__typeof__(((__typeof__(((CUarrayMapInfo *)0)->subresource) *)0)->miptail)" {
        layer: c_uint,
        offset: c_ulonglong,
        size: c_ulonglong,
    }
    union CUarrayMapInfo_memHandle "__typeof__(((CUarrayMapInfo *)0)->memHandle)" {
        memHandle: CUmemGenericAllocationHandle,
    }
    struct CUmemAllocationProp_allocFlags "__typeof__(((CUmemAllocationProp *)0)->allocFlags)" {
        compressionType: u8,
        gpuDirectRDMACapable: u8,
        usage: u16,
        reserved: [u8; 4],
    }
    struct CUmulticastObjectProp "CUmulticastObjectProp" {
        numDevices: c_uint,
        size: usize,
        handleTypes: c_ulonglong,
        flags: c_ulonglong,
    }
    struct CUmemAccessDesc "CUmemAccessDesc" {
        location: CUmemLocation,
        flags: CUmemAccess_flags,
    }
    struct CUgraphExecUpdateResultInfo "CUgraphExecUpdateResultInfo" {
        result: CUgraphExecUpdateResult,
        errorNode: CUgraphNode,
        errorFromNode: CUgraphNode,
    }
    struct CUmemPoolPtrExportData "CUmemPoolPtrExportData" {
        reserved: [u8; 64],
    }
    struct CUmemcpyAttributes "CUmemcpyAttributes" {
        srcAccessOrder: CUmemcpySrcAccessOrder,
        srcLocHint: CUmemLocation,
        dstLocHint: CUmemLocation,
        flags: c_uint,
    }
    struct CUoffset3D "CUoffset3D" {
        x: usize,
        y: usize,
        z: usize,
    }
    struct CUextent3D "CUextent3D" {
        width: usize,
        height: usize,
        depth: usize,
    }
    struct CUmemcpy3DOperand "CUmemcpy3DOperand" {
        type_: CUmemcpy3DOperandType,
        op: CUmemcpy3DOperand_op,
    }
    union CUmemcpy3DOperand_op "__typeof__(((CUmemcpy3DOperand *)0)->op)" {
        ptr: CUmemcpy3DOperand_op_ptr,
        array: CUmemcpy3DOperand_op_array,
    }
    struct CUmemcpy3DOperand_op_ptr "__typeof__(((__typeof__(((CUmemcpy3DOperand *)0)->op) *)0)->ptr)" {
        ptr: CUdeviceptr,
        rowLength: usize,
        layerHeight: usize,
        locHint: CUmemLocation,
    }
    struct CUmemcpy3DOperand_op_array "__typeof__(((__typeof__(((CUmemcpy3DOperand *)0)->op) *)0)->array)" {
        array: CUarray,
        offset: CUoffset3D,
    }
    struct CUDA_MEMCPY3D_BATCH_OP "CUDA_MEMCPY3D_BATCH_OP" {
        src: CUmemcpy3DOperand,
        dst: CUmemcpy3DOperand,
        extent: CUextent3D,
        srcAccessOrder: CUmemcpySrcAccessOrder,
        flags: c_uint,
    }
    struct CUDA_MEM_ALLOC_NODE_PARAMS "CUDA_MEM_ALLOC_NODE_PARAMS" {
        poolProps: CUmemPoolProps,
        accessDescs: *const CUmemAccessDesc,
        accessDescCount: usize,
        bytesize: usize,
        dptr: CUdeviceptr,
    }
    struct CUDA_MEM_ALLOC_NODE_PARAMS_v2 "CUDA_MEM_ALLOC_NODE_PARAMS_v2" {
        poolProps: CUmemPoolProps,
        accessDescs: *const CUmemAccessDesc,
        accessDescCount: usize,
        bytesize: usize,
        dptr: CUdeviceptr,
    }
    struct CUDA_MEM_FREE_NODE_PARAMS "CUDA_MEM_FREE_NODE_PARAMS" {
        dptr: CUdeviceptr,
    }
    struct CUDA_CHILD_GRAPH_NODE_PARAMS "CUDA_CHILD_GRAPH_NODE_PARAMS" {
        graph: CUgraph,
        ownership: CUgraphChildGraphNodeOwnership,
    }
    struct CUDA_EVENT_RECORD_NODE_PARAMS "CUDA_EVENT_RECORD_NODE_PARAMS" {
        event: CUevent,
    }
    struct CUDA_EVENT_WAIT_NODE_PARAMS "CUDA_EVENT_WAIT_NODE_PARAMS" {
        event: CUevent,
    }
    struct CUgraphNodeParams "CUgraphNodeParams" {
        type_: CUgraphNodeType,
        reserved0: [c_int; 3],
        anon: CUgraphNodeParams_anon,
        reserved2: c_longlong,
    }
    union CUgraphNodeParams_anon "" {
        reserved1: [c_longlong; 29],
        kernel: CUDA_KERNEL_NODE_PARAMS_v3,
        memcpy: CUDA_MEMCPY_NODE_PARAMS,
        memset: CUDA_MEMSET_NODE_PARAMS_v2,
        host: CUDA_HOST_NODE_PARAMS_v2,
        graph: CUDA_CHILD_GRAPH_NODE_PARAMS,
        eventWait: CUDA_EVENT_WAIT_NODE_PARAMS,
        eventRecord: CUDA_EVENT_RECORD_NODE_PARAMS,
        extSemSignal: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2,
        extSemWait: CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
        alloc: CUDA_MEM_ALLOC_NODE_PARAMS_v2,
        free: CUDA_MEM_FREE_NODE_PARAMS,
        memOp: CUDA_BATCH_MEM_OP_NODE_PARAMS_v2,
        conditional: CUDA_CONDITIONAL_NODE_PARAMS,
    }
    struct CUcheckpointLockArgs "CUcheckpointLockArgs" {
        timeoutMs: c_uint,
        reserved0: c_uint,
        reserved1: [cuuint64_t; 7],
    }
    struct CUcheckpointCheckpointArgs "CUcheckpointCheckpointArgs" {
        reserved: [cuuint64_t; 8],
    }
    struct CUcheckpointGpuPair "CUcheckpointGpuPair" {
        oldUuid: CUuuid,
        newUuid: CUuuid,
    }
    struct CUcheckpointRestoreArgs "CUcheckpointRestoreArgs" {
        gpuPairs: *mut CUcheckpointGpuPair,
        gpuPairsCount: c_uint,
        reserved: [c_char; 44],
        reserved1: cuuint64_t,
    }
    struct CUcheckpointUnlockArgs "CUcheckpointUnlockArgs" {
        reserved: [cuuint64_t; 8],
    }
    struct CUmemDecompressParams "CUmemDecompressParams" {
        srcNumBytes: usize,
        dstNumBytes: usize,
        dstActBytes: *mut c_uint,
        src: *const c_void,
        dst: *mut c_void,
        algo: CUmemDecompressAlgorithm,
        padding: [u8; 20],
    }
    struct CUdevSmResource "CUdevSmResource" {
        smCount: c_uint,
        minSmPartitionSize: c_uint,
        smCoscheduledAlignment: c_uint,
    }
    struct CUdevResource "CUdevResource" {
        type_: CUdevResourceType,
        _internal_padding: [u8; 92],
        anon: CUdevResource_anon,
    }
    union CUdevResource_anon "" {
        sm: CUdevSmResource,
        _oversize: [u8; 48],
    }
    struct CUeglFrame "CUeglFrame" {
        frame: CUeglFrame_frame,
        width: c_uint,
        height: c_uint,
        depth: c_uint,
        pitch: c_uint,
        planeCount: c_uint,
        numChannels: c_uint,
        frameType: CUeglFrameType,
        eglColorFormat: CUeglColorFormat,
        cuFormat: CUarray_format,
    }
    union CUeglFrame_frame "__typeof__(((CUeglFrame *)0)->frame)" {
        pArray: [CUarray; 3],
        pPitch: [*mut c_void; 3],
    }
    struct CUDA_MEMCPY2D_v1 "CUDA_MEMCPY2D_v1" {
        srcXInBytes: c_uint,
        srcY: c_uint,
        srcMemoryType: CUmemorytype,
        srcHost: *const c_void,
        srcDevice: CUdeviceptr_v1,
        srcArray: CUarray,
        srcPitch: c_uint,
        dstXInBytes: c_uint,
        dstY: c_uint,
        dstMemoryType: CUmemorytype,
        dstHost: *mut c_void,
        dstDevice: CUdeviceptr_v1,
        dstArray: CUarray,
        dstPitch: c_uint,
        WidthInBytes: c_uint,
        Height: c_uint,
    }
    struct CUDA_MEMCPY3D_v1 "CUDA_MEMCPY3D_v1" {
        srcXInBytes: c_uint,
        srcY: c_uint,
        srcZ: c_uint,
        srcLOD: c_uint,
        srcMemoryType: CUmemorytype,
        srcHost: *const c_void,
        srcDevice: CUdeviceptr_v1,
        srcArray: CUarray,
        reserved0: *mut c_void,
        srcPitch: c_uint,
        srcHeight: c_uint,
        dstXInBytes: c_uint,
        dstY: c_uint,
        dstZ: c_uint,
        dstLOD: c_uint,
        dstMemoryType: CUmemorytype,
        dstHost: *mut c_void,
        dstDevice: CUdeviceptr_v1,
        dstArray: CUarray,
        reserved1: *mut c_void,
        dstPitch: c_uint,
        dstHeight: c_uint,
        WidthInBytes: c_uint,
        Height: c_uint,
        Depth: c_uint,
    }
    struct CUDA_ARRAY_DESCRIPTOR_v1 "CUDA_ARRAY_DESCRIPTOR_v1" {
        Width: c_uint,
        Height: c_uint,
        Format: CUarray_format,
        NumChannels: c_uint,
    }
    struct CUDA_ARRAY3D_DESCRIPTOR_v1 "CUDA_ARRAY3D_DESCRIPTOR_v1" {
        Width: c_uint,
        Height: c_uint,
        Depth: c_uint,
        Format: CUarray_format,
        NumChannels: c_uint,
        Flags: c_uint,
    }
}
