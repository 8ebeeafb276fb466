//! Enumerations and numeric constants of libcuda's public headers. An enumeration is its C type, so that any value may come.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    reason = "C names stay exact"
)]

use std::ffi::{c_int, c_uint};

pub type CUipcMem_flags = c_int;
pub const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: c_int = 1;

pub type CUmemAttach_flags = c_int;
pub const CU_MEM_ATTACH_GLOBAL: c_int = 1;
pub const CU_MEM_ATTACH_HOST: c_int = 2;
pub const CU_MEM_ATTACH_SINGLE: c_int = 4;

pub type CUctx_flags = c_int;
pub const CU_CTX_SCHED_AUTO: c_int = 0;
pub const CU_CTX_SCHED_SPIN: c_int = 1;
pub const CU_CTX_SCHED_YIELD: c_int = 2;
pub const CU_CTX_SCHED_BLOCKING_SYNC: c_int = 4;
pub const CU_CTX_BLOCKING_SYNC: c_int = 4;
pub const CU_CTX_SCHED_MASK: c_int = 7;
pub const CU_CTX_MAP_HOST: c_int = 8;
pub const CU_CTX_LMEM_RESIZE_TO_MAX: c_int = 16;
pub const CU_CTX_COREDUMP_ENABLE: c_int = 32;
pub const CU_CTX_USER_COREDUMP_ENABLE: c_int = 64;
pub const CU_CTX_SYNC_MEMOPS: c_int = 128;
pub const CU_CTX_FLAGS_MASK: c_int = 255;

pub type CUevent_sched_flags = c_int;
pub const CU_EVENT_SCHED_AUTO: c_int = 0;
pub const CU_EVENT_SCHED_SPIN: c_int = 1;
pub const CU_EVENT_SCHED_YIELD: c_int = 2;
pub const CU_EVENT_SCHED_BLOCKING_SYNC: c_int = 4;

pub type CUstream_flags = c_int;
pub const CU_STREAM_DEFAULT: c_int = 0;
pub const CU_STREAM_NON_BLOCKING: c_int = 1;

pub type CUevent_flags = c_int;
pub const CU_EVENT_DEFAULT: c_int = 0;
pub const CU_EVENT_BLOCKING_SYNC: c_int = 1;
pub const CU_EVENT_DISABLE_TIMING: c_int = 2;
pub const CU_EVENT_INTERPROCESS: c_int = 4;

pub type CUevent_record_flags = c_int;
pub const CU_EVENT_RECORD_DEFAULT: c_int = 0;
pub const CU_EVENT_RECORD_EXTERNAL: c_int = 1;

pub type CUevent_wait_flags = c_int;
pub const CU_EVENT_WAIT_DEFAULT: c_int = 0;
pub const CU_EVENT_WAIT_EXTERNAL: c_int = 1;

pub type CUstreamWaitValue_flags = c_int;
pub const CU_STREAM_WAIT_VALUE_GEQ: c_int = 0;
pub const CU_STREAM_WAIT_VALUE_EQ: c_int = 1;
pub const CU_STREAM_WAIT_VALUE_AND: c_int = 2;
pub const CU_STREAM_WAIT_VALUE_NOR: c_int = 3;
pub const CU_STREAM_WAIT_VALUE_FLUSH: c_int = 1073741824;

pub type CUstreamWriteValue_flags = c_int;
pub const CU_STREAM_WRITE_VALUE_DEFAULT: c_int = 0;
pub const CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER: c_int = 1;

pub type CUstreamBatchMemOpType = c_int;
pub const CU_STREAM_MEM_OP_WAIT_VALUE_32: c_int = 1;
pub const CU_STREAM_MEM_OP_WRITE_VALUE_32: c_int = 2;
pub const CU_STREAM_MEM_OP_WAIT_VALUE_64: c_int = 4;
pub const CU_STREAM_MEM_OP_WRITE_VALUE_64: c_int = 5;
pub const CU_STREAM_MEM_OP_BARRIER: c_int = 6;
pub const CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: c_int = 3;

pub type CUstreamMemoryBarrier_flags = c_int;
pub const CU_STREAM_MEMORY_BARRIER_TYPE_SYS: c_int = 0;
pub const CU_STREAM_MEMORY_BARRIER_TYPE_GPU: c_int = 1;

pub type CUoccupancy_flags = c_int;
pub const CU_OCCUPANCY_DEFAULT: c_int = 0;
pub const CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE: c_int = 1;

pub type CUstreamUpdateCaptureDependencies_flags = c_int;
pub const CU_STREAM_ADD_CAPTURE_DEPENDENCIES: c_int = 0;
pub const CU_STREAM_SET_CAPTURE_DEPENDENCIES: c_int = 1;

pub type CUasyncNotificationType = c_int;
pub const CU_ASYNC_NOTIFICATION_TYPE_OVER_BUDGET: c_int = 1;

pub type CUarray_format = c_int;
pub const CU_AD_FORMAT_UNSIGNED_INT8: c_int = 1;
pub const CU_AD_FORMAT_UNSIGNED_INT16: c_int = 2;
pub const CU_AD_FORMAT_UNSIGNED_INT32: c_int = 3;
pub const CU_AD_FORMAT_SIGNED_INT8: c_int = 8;
pub const CU_AD_FORMAT_SIGNED_INT16: c_int = 9;
pub const CU_AD_FORMAT_SIGNED_INT32: c_int = 10;
pub const CU_AD_FORMAT_HALF: c_int = 16;
pub const CU_AD_FORMAT_FLOAT: c_int = 32;
pub const CU_AD_FORMAT_NV12: c_int = 176;
pub const CU_AD_FORMAT_UNORM_INT8X1: c_int = 192;
pub const CU_AD_FORMAT_UNORM_INT8X2: c_int = 193;
pub const CU_AD_FORMAT_UNORM_INT8X4: c_int = 194;
pub const CU_AD_FORMAT_UNORM_INT16X1: c_int = 195;
pub const CU_AD_FORMAT_UNORM_INT16X2: c_int = 196;
pub const CU_AD_FORMAT_UNORM_INT16X4: c_int = 197;
pub const CU_AD_FORMAT_SNORM_INT8X1: c_int = 198;
pub const CU_AD_FORMAT_SNORM_INT8X2: c_int = 199;
pub const CU_AD_FORMAT_SNORM_INT8X4: c_int = 200;
pub const CU_AD_FORMAT_SNORM_INT16X1: c_int = 201;
pub const CU_AD_FORMAT_SNORM_INT16X2: c_int = 202;
pub const CU_AD_FORMAT_SNORM_INT16X4: c_int = 203;
pub const CU_AD_FORMAT_BC1_UNORM: c_int = 145;
pub const CU_AD_FORMAT_BC1_UNORM_SRGB: c_int = 146;
pub const CU_AD_FORMAT_BC2_UNORM: c_int = 147;
pub const CU_AD_FORMAT_BC2_UNORM_SRGB: c_int = 148;
pub const CU_AD_FORMAT_BC3_UNORM: c_int = 149;
pub const CU_AD_FORMAT_BC3_UNORM_SRGB: c_int = 150;
pub const CU_AD_FORMAT_BC4_UNORM: c_int = 151;
pub const CU_AD_FORMAT_BC4_SNORM: c_int = 152;
pub const CU_AD_FORMAT_BC5_UNORM: c_int = 153;
pub const CU_AD_FORMAT_BC5_SNORM: c_int = 154;
pub const CU_AD_FORMAT_BC6H_UF16: c_int = 155;
pub const CU_AD_FORMAT_BC6H_SF16: c_int = 156;
pub const CU_AD_FORMAT_BC7_UNORM: c_int = 157;
pub const CU_AD_FORMAT_BC7_UNORM_SRGB: c_int = 158;
pub const CU_AD_FORMAT_P010: c_int = 159;
pub const CU_AD_FORMAT_P016: c_int = 161;
pub const CU_AD_FORMAT_NV16: c_int = 162;
pub const CU_AD_FORMAT_P210: c_int = 163;
pub const CU_AD_FORMAT_P216: c_int = 164;
pub const CU_AD_FORMAT_YUY2: c_int = 165;
pub const CU_AD_FORMAT_Y210: c_int = 166;
pub const CU_AD_FORMAT_Y216: c_int = 167;
pub const CU_AD_FORMAT_AYUV: c_int = 168;
pub const CU_AD_FORMAT_Y410: c_int = 169;
pub const CU_AD_FORMAT_Y416: c_int = 177;
pub const CU_AD_FORMAT_Y444_PLANAR8: c_int = 178;
pub const CU_AD_FORMAT_Y444_PLANAR10: c_int = 179;
pub const CU_AD_FORMAT_YUV444_8bit_SemiPlanar: c_int = 180;
pub const CU_AD_FORMAT_YUV444_16bit_SemiPlanar: c_int = 181;
pub const CU_AD_FORMAT_UNORM_INT_101010_2: c_int = 80;
pub const CU_AD_FORMAT_MAX: c_int = 2147483647;

pub type CUaddress_mode = c_int;
pub const CU_TR_ADDRESS_MODE_WRAP: c_int = 0;
pub const CU_TR_ADDRESS_MODE_CLAMP: c_int = 1;
pub const CU_TR_ADDRESS_MODE_MIRROR: c_int = 2;
pub const CU_TR_ADDRESS_MODE_BORDER: c_int = 3;

pub type CUfilter_mode = c_int;
pub const CU_TR_FILTER_MODE_POINT: c_int = 0;
pub const CU_TR_FILTER_MODE_LINEAR: c_int = 1;

// `CUdevice_attribute` is declared in types.rs.
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: c_int = 2;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: c_int = 3;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: c_int = 4;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: c_int = 5;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: c_int = 6;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: c_int = 7;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: c_int = 8;
pub const CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: c_int = 8;
pub const CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: c_int = 9;
pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: c_int = 10;
pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: c_int = 11;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: c_int = 12;
pub const CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK: c_int = 12;
pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: c_int = 13;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: c_int = 14;
pub const CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: c_int = 15;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub const CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: c_int = 17;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: c_int = 18;
pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: c_int = 19;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: c_int = 20;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH: c_int = 21;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH: c_int = 22;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT: c_int = 23;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH: c_int = 24;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT: c_int = 25;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH: c_int = 26;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH: c_int = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT: c_int = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS: c_int = 29;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH: c_int = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT: c_int = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES: c_int = 29;
pub const CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: c_int = 30;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: c_int = 31;
pub const CU_DEVICE_ATTRIBUTE_ECC_ENABLED: c_int = 32;
pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: c_int = 33;
pub const CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: c_int = 34;
pub const CU_DEVICE_ATTRIBUTE_TCC_DRIVER: c_int = 35;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: c_int = 36;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: c_int = 37;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: c_int = 38;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
pub const CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: c_int = 40;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: c_int = 41;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH: c_int = 42;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS: c_int = 43;
pub const CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER: c_int = 44;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH: c_int = 45;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT: c_int = 46;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE: c_int = 47;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE: c_int = 48;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE: c_int = 49;
pub const CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: c_int = 50;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: c_int = 51;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH: c_int = 52;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH: c_int = 53;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS: c_int = 54;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH: c_int = 55;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH: c_int = 56;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT: c_int = 57;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH: c_int = 58;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT: c_int = 59;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH: c_int = 60;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH: c_int = 61;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS: c_int = 62;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH: c_int = 63;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT: c_int = 64;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS: c_int = 65;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH: c_int = 66;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH: c_int = 67;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS: c_int = 68;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH: c_int = 69;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH: c_int = 70;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT: c_int = 71;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH: c_int = 72;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH: c_int = 73;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT: c_int = 74;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH: c_int = 77;
pub const CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: c_int = 78;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: c_int = 79;
pub const CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: c_int = 80;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: c_int = 81;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: c_int = 82;
pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: c_int = 83;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD: c_int = 84;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: c_int = 85;
pub const CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: c_int = 86;
pub const CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: c_int = 87;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: c_int = 88;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: c_int = 89;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: c_int = 90;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: c_int = 91;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: c_int = 92;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1: c_int = 93;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1: c_int = 94;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: c_int = 95;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH: c_int = 96;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
pub const CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: c_int = 98;
pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: c_int = 99;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: c_int = 100;
pub const CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: c_int = 101;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED: c_int = 102;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 102;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: c_int = 103;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED: c_int = 104;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED: c_int = 105;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: c_int = 106;
pub const CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED: c_int = 107;
pub const CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: c_int = 108;
pub const CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: c_int = 109;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: c_int = 110;
pub const CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: c_int = 111;
pub const CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED: c_int = 112;
pub const CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: c_int = 113;
pub const CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: c_int = 114;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: c_int = 115;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: c_int = 116;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: c_int = 117;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: c_int = 118;
pub const CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: c_int = 119;
pub const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: c_int = 120;
pub const CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED: c_int = 121;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: c_int = 122;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: c_int = 123;
pub const CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: c_int = 124;
pub const CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: c_int = 125;
pub const CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: c_int = 126;
pub const CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: c_int = 127;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: c_int = 128;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS: c_int = 129;
pub const CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: c_int = 130;
pub const CU_DEVICE_ATTRIBUTE_NUMA_ID: c_int = 131;
pub const CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: c_int = 132;
pub const CU_DEVICE_ATTRIBUTE_MPS_ENABLED: c_int = 133;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: c_int = 134;
pub const CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED: c_int = 135;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK: c_int = 136;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH: c_int = 137;
pub const CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED: c_int = 138;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: c_int = 139;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID: c_int = 140;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 141;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: c_int = 142;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED: c_int = 143;
pub const CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED: c_int = 144;
pub const CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 145;
pub const CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED: c_int = 146;
pub const CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED: c_int = 147;
pub const CU_DEVICE_ATTRIBUTE_MAX: c_int = 148;

// `CUpointer_attribute` is declared in types.rs.
pub const CU_POINTER_ATTRIBUTE_CONTEXT: c_int = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: c_int = 2;
pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: c_int = 3;
pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: c_int = 4;
pub const CU_POINTER_ATTRIBUTE_P2P_TOKENS: c_int = 5;
pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: c_int = 6;
pub const CU_POINTER_ATTRIBUTE_BUFFER_ID: c_int = 7;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: c_int = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
pub const CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: c_int = 10;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: c_int = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: c_int = 12;
pub const CU_POINTER_ATTRIBUTE_MAPPED: c_int = 13;
pub const CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: c_int = 14;
pub const CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: c_int = 15;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: c_int = 16;
pub const CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: c_int = 17;
pub const CU_POINTER_ATTRIBUTE_MAPPING_SIZE: c_int = 18;
pub const CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: c_int = 19;
pub const CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: c_int = 20;
pub const CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: c_int = 21;

pub type CUfunction_attribute = c_int;
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 0;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: c_int = 1;
pub const CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: c_int = 2;
pub const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: c_int = 3;
pub const CU_FUNC_ATTRIBUTE_NUM_REGS: c_int = 4;
pub const CU_FUNC_ATTRIBUTE_PTX_VERSION: c_int = 5;
pub const CU_FUNC_ATTRIBUTE_BINARY_VERSION: c_int = 6;
pub const CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: c_int = 7;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
pub const CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: c_int = 9;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: c_int = 10;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: c_int = 11;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: c_int = 12;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: c_int = 13;
pub const CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_int = 15;
pub const CU_FUNC_ATTRIBUTE_MAX: c_int = 16;

pub type CUfunc_cache = c_int;
pub const CU_FUNC_CACHE_PREFER_NONE: c_int = 0;
pub const CU_FUNC_CACHE_PREFER_SHARED: c_int = 1;
pub const CU_FUNC_CACHE_PREFER_L1: c_int = 2;
pub const CU_FUNC_CACHE_PREFER_EQUAL: c_int = 3;

pub type CUsharedconfig = c_int;
pub const CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE: c_int = 0;
pub const CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE: c_int = 1;
pub const CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE: c_int = 2;

pub type CUshared_carveout = c_int;
pub const CU_SHAREDMEM_CARVEOUT_DEFAULT: c_int = -1;
pub const CU_SHAREDMEM_CARVEOUT_MAX_SHARED: c_int = 100;
pub const CU_SHAREDMEM_CARVEOUT_MAX_L1: c_int = 0;

pub type CUmemorytype = c_int;
pub const CU_MEMORYTYPE_HOST: c_int = 1;
pub const CU_MEMORYTYPE_DEVICE: c_int = 2;
pub const CU_MEMORYTYPE_ARRAY: c_int = 3;
pub const CU_MEMORYTYPE_UNIFIED: c_int = 4;

pub type CUcomputemode = c_int;
pub const CU_COMPUTEMODE_DEFAULT: c_int = 0;
pub const CU_COMPUTEMODE_PROHIBITED: c_int = 2;
pub const CU_COMPUTEMODE_EXCLUSIVE_PROCESS: c_int = 3;

pub type CUmem_advise = c_int;
pub const CU_MEM_ADVISE_SET_READ_MOSTLY: c_int = 1;
pub const CU_MEM_ADVISE_UNSET_READ_MOSTLY: c_int = 2;
pub const CU_MEM_ADVISE_SET_PREFERRED_LOCATION: c_int = 3;
pub const CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: c_int = 4;
pub const CU_MEM_ADVISE_SET_ACCESSED_BY: c_int = 5;
pub const CU_MEM_ADVISE_UNSET_ACCESSED_BY: c_int = 6;

pub type CUmem_range_attribute = c_int;
pub const CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: c_int = 1;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: c_int = 2;
pub const CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: c_int = 3;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: c_int = 4;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: c_int = 5;
pub const CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: c_int = 6;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: c_int = 7;
pub const CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: c_int = 8;

pub type CUjit_option = c_int;
pub const CU_JIT_MAX_REGISTERS: c_int = 0;
pub const CU_JIT_THREADS_PER_BLOCK: c_int = 1;
pub const CU_JIT_WALL_TIME: c_int = 2;
pub const CU_JIT_INFO_LOG_BUFFER: c_int = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: c_int = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: c_int = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;
pub const CU_JIT_OPTIMIZATION_LEVEL: c_int = 7;
pub const CU_JIT_TARGET_FROM_CUCONTEXT: c_int = 8;
pub const CU_JIT_TARGET: c_int = 9;
pub const CU_JIT_FALLBACK_STRATEGY: c_int = 10;
pub const CU_JIT_GENERATE_DEBUG_INFO: c_int = 11;
pub const CU_JIT_LOG_VERBOSE: c_int = 12;
pub const CU_JIT_GENERATE_LINE_INFO: c_int = 13;
pub const CU_JIT_CACHE_MODE: c_int = 14;
pub const CU_JIT_NEW_SM3X_OPT: c_int = 15;
pub const CU_JIT_FAST_COMPILE: c_int = 16;
pub const CU_JIT_GLOBAL_SYMBOL_NAMES: c_int = 17;
pub const CU_JIT_GLOBAL_SYMBOL_ADDRESSES: c_int = 18;
pub const CU_JIT_GLOBAL_SYMBOL_COUNT: c_int = 19;
pub const CU_JIT_LTO: c_int = 20;
pub const CU_JIT_FTZ: c_int = 21;
pub const CU_JIT_PREC_DIV: c_int = 22;
pub const CU_JIT_PREC_SQRT: c_int = 23;
pub const CU_JIT_FMA: c_int = 24;
pub const CU_JIT_REFERENCED_KERNEL_NAMES: c_int = 25;
pub const CU_JIT_REFERENCED_KERNEL_COUNT: c_int = 26;
pub const CU_JIT_REFERENCED_VARIABLE_NAMES: c_int = 27;
pub const CU_JIT_REFERENCED_VARIABLE_COUNT: c_int = 28;
pub const CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES: c_int = 29;
pub const CU_JIT_POSITION_INDEPENDENT_CODE: c_int = 30;
pub const CU_JIT_MIN_CTA_PER_SM: c_int = 31;
pub const CU_JIT_MAX_THREADS_PER_BLOCK: c_int = 32;
pub const CU_JIT_OVERRIDE_DIRECTIVE_VALUES: c_int = 33;
pub const CU_JIT_SPLIT_COMPILE: c_int = 34;
pub const CU_JIT_NUM_OPTIONS: c_int = 35;

pub type CUjit_target = c_int;
pub const CU_TARGET_COMPUTE_30: c_int = 30;
pub const CU_TARGET_COMPUTE_32: c_int = 32;
pub const CU_TARGET_COMPUTE_35: c_int = 35;
pub const CU_TARGET_COMPUTE_37: c_int = 37;
pub const CU_TARGET_COMPUTE_50: c_int = 50;
pub const CU_TARGET_COMPUTE_52: c_int = 52;
pub const CU_TARGET_COMPUTE_53: c_int = 53;
pub const CU_TARGET_COMPUTE_60: c_int = 60;
pub const CU_TARGET_COMPUTE_61: c_int = 61;
pub const CU_TARGET_COMPUTE_62: c_int = 62;
pub const CU_TARGET_COMPUTE_70: c_int = 70;
pub const CU_TARGET_COMPUTE_72: c_int = 72;
pub const CU_TARGET_COMPUTE_75: c_int = 75;
pub const CU_TARGET_COMPUTE_80: c_int = 80;
pub const CU_TARGET_COMPUTE_86: c_int = 86;
pub const CU_TARGET_COMPUTE_87: c_int = 87;
pub const CU_TARGET_COMPUTE_89: c_int = 89;
pub const CU_TARGET_COMPUTE_90: c_int = 90;
pub const CU_TARGET_COMPUTE_100: c_int = 100;
pub const CU_TARGET_COMPUTE_110: c_int = 110;
pub const CU_TARGET_COMPUTE_103: c_int = 103;
pub const CU_TARGET_COMPUTE_120: c_int = 120;
pub const CU_TARGET_COMPUTE_121: c_int = 121;
pub const CU_TARGET_COMPUTE_90A: c_int = 65626;
pub const CU_TARGET_COMPUTE_100A: c_int = 65636;
pub const CU_TARGET_COMPUTE_110A: c_int = 65646;
pub const CU_TARGET_COMPUTE_103A: c_int = 65639;
pub const CU_TARGET_COMPUTE_120A: c_int = 65656;
pub const CU_TARGET_COMPUTE_121A: c_int = 65657;
pub const CU_TARGET_COMPUTE_100F: c_int = 131172;
pub const CU_TARGET_COMPUTE_110F: c_int = 131182;
pub const CU_TARGET_COMPUTE_103F: c_int = 131175;
pub const CU_TARGET_COMPUTE_120F: c_int = 131192;
pub const CU_TARGET_COMPUTE_121F: c_int = 131193;

pub type CUjit_fallback = c_int;
pub const CU_PREFER_PTX: c_int = 0;
pub const CU_PREFER_BINARY: c_int = 1;

pub type CUjit_cacheMode = c_int;
pub const CU_JIT_CACHE_OPTION_NONE: c_int = 0;
pub const CU_JIT_CACHE_OPTION_CG: c_int = 1;
pub const CU_JIT_CACHE_OPTION_CA: c_int = 2;

pub type CUjitInputType = c_int;
pub const CU_JIT_INPUT_CUBIN: c_int = 0;
pub const CU_JIT_INPUT_PTX: c_int = 1;
pub const CU_JIT_INPUT_FATBINARY: c_int = 2;
pub const CU_JIT_INPUT_OBJECT: c_int = 3;
pub const CU_JIT_INPUT_LIBRARY: c_int = 4;
pub const CU_JIT_INPUT_NVVM: c_int = 5;
pub const CU_JIT_NUM_INPUT_TYPES: c_int = 6;

pub type CUgraphicsRegisterFlags = c_int;
pub const CU_GRAPHICS_REGISTER_FLAGS_NONE: c_int = 0;
pub const CU_GRAPHICS_REGISTER_FLAGS_READ_ONLY: c_int = 1;
pub const CU_GRAPHICS_REGISTER_FLAGS_WRITE_DISCARD: c_int = 2;
pub const CU_GRAPHICS_REGISTER_FLAGS_SURFACE_LDST: c_int = 4;
pub const CU_GRAPHICS_REGISTER_FLAGS_TEXTURE_GATHER: c_int = 8;

pub type CUgraphicsMapResourceFlags = c_int;
pub const CU_GRAPHICS_MAP_RESOURCE_FLAGS_NONE: c_int = 0;
pub const CU_GRAPHICS_MAP_RESOURCE_FLAGS_READ_ONLY: c_int = 1;
pub const CU_GRAPHICS_MAP_RESOURCE_FLAGS_WRITE_DISCARD: c_int = 2;

pub type CUarray_cubemap_face = c_int;
pub const CU_CUBEMAP_FACE_POSITIVE_X: c_int = 0;
pub const CU_CUBEMAP_FACE_NEGATIVE_X: c_int = 1;
pub const CU_CUBEMAP_FACE_POSITIVE_Y: c_int = 2;
pub const CU_CUBEMAP_FACE_NEGATIVE_Y: c_int = 3;
pub const CU_CUBEMAP_FACE_POSITIVE_Z: c_int = 4;
pub const CU_CUBEMAP_FACE_NEGATIVE_Z: c_int = 5;

// `CUlimit` is declared in types.rs.
pub const CU_LIMIT_STACK_SIZE: c_int = 0;
pub const CU_LIMIT_PRINTF_FIFO_SIZE: c_int = 1;
pub const CU_LIMIT_MALLOC_HEAP_SIZE: c_int = 2;
pub const CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: c_int = 3;
pub const CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: c_int = 4;
pub const CU_LIMIT_MAX_L2_FETCH_GRANULARITY: c_int = 5;
pub const CU_LIMIT_PERSISTING_L2_CACHE_SIZE: c_int = 6;
pub const CU_LIMIT_SHMEM_SIZE: c_int = 7;
pub const CU_LIMIT_CIG_ENABLED: c_int = 8;
pub const CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: c_int = 9;
pub const CU_LIMIT_MAX: c_int = 10;

pub type CUresourcetype = c_int;
pub const CU_RESOURCE_TYPE_ARRAY: c_int = 0;
pub const CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: c_int = 1;
pub const CU_RESOURCE_TYPE_LINEAR: c_int = 2;
pub const CU_RESOURCE_TYPE_PITCH2D: c_int = 3;

pub type CUaccessProperty = c_int;
pub const CU_ACCESS_PROPERTY_NORMAL: c_int = 0;
pub const CU_ACCESS_PROPERTY_STREAMING: c_int = 1;
pub const CU_ACCESS_PROPERTY_PERSISTING: c_int = 2;

pub type CUgraphConditionalNodeType = c_int;
pub const CU_GRAPH_COND_TYPE_IF: c_int = 0;
pub const CU_GRAPH_COND_TYPE_WHILE: c_int = 1;
pub const CU_GRAPH_COND_TYPE_SWITCH: c_int = 2;

pub type CUgraphNodeType = c_int;
pub const CU_GRAPH_NODE_TYPE_KERNEL: c_int = 0;
pub const CU_GRAPH_NODE_TYPE_MEMCPY: c_int = 1;
pub const CU_GRAPH_NODE_TYPE_MEMSET: c_int = 2;
pub const CU_GRAPH_NODE_TYPE_HOST: c_int = 3;
pub const CU_GRAPH_NODE_TYPE_GRAPH: c_int = 4;
pub const CU_GRAPH_NODE_TYPE_EMPTY: c_int = 5;
pub const CU_GRAPH_NODE_TYPE_WAIT_EVENT: c_int = 6;
pub const CU_GRAPH_NODE_TYPE_EVENT_RECORD: c_int = 7;
pub const CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: c_int = 8;
pub const CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: c_int = 9;
pub const CU_GRAPH_NODE_TYPE_MEM_ALLOC: c_int = 10;
pub const CU_GRAPH_NODE_TYPE_MEM_FREE: c_int = 11;
pub const CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: c_int = 12;
pub const CU_GRAPH_NODE_TYPE_CONDITIONAL: c_int = 13;

pub type CUgraphDependencyType = c_int;
pub const CU_GRAPH_DEPENDENCY_TYPE_DEFAULT: c_int = 0;
pub const CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC: c_int = 1;

pub type CUgraphInstantiateResult = c_int;
pub const CUDA_GRAPH_INSTANTIATE_SUCCESS: c_int = 0;
pub const CUDA_GRAPH_INSTANTIATE_ERROR: c_int = 1;
pub const CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE: c_int = 2;
pub const CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED: c_int = 3;
pub const CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED: c_int = 4;
pub const CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED: c_int = 5;

pub type CUsynchronizationPolicy = c_int;
pub const CU_SYNC_POLICY_AUTO: c_int = 1;
pub const CU_SYNC_POLICY_SPIN: c_int = 2;
pub const CU_SYNC_POLICY_YIELD: c_int = 3;
pub const CU_SYNC_POLICY_BLOCKING_SYNC: c_int = 4;

pub type CUclusterSchedulingPolicy = c_int;
pub const CU_CLUSTER_SCHEDULING_POLICY_DEFAULT: c_int = 0;
pub const CU_CLUSTER_SCHEDULING_POLICY_SPREAD: c_int = 1;
pub const CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING: c_int = 2;

pub type CUlaunchMemSyncDomain = c_int;
pub const CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT: c_int = 0;
pub const CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE: c_int = 1;

pub type CUlaunchAttributeID = c_int;
pub const CU_LAUNCH_ATTRIBUTE_IGNORE: c_int = 0;
pub const CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: c_int = 1;
pub const CU_LAUNCH_ATTRIBUTE_COOPERATIVE: c_int = 2;
pub const CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: c_int = 3;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: c_int = 4;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: c_int = 5;
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_int = 6;
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: c_int = 7;
pub const CU_LAUNCH_ATTRIBUTE_PRIORITY: c_int = 8;
pub const CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: c_int = 9;
pub const CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: c_int = 10;
pub const CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: c_int = 11;
pub const CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: c_int = 12;
pub const CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: c_int = 13;
pub const CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: c_int = 14;
pub const CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: c_int = 16;

// `CUstreamCaptureStatus` is declared in types.rs.
pub const CU_STREAM_CAPTURE_STATUS_NONE: c_int = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: c_int = 1;
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: c_int = 2;

pub type CUstreamCaptureMode = c_int;
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: c_int = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: c_int = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: c_int = 2;

pub type CUdriverProcAddress_flags = c_int;
pub const CU_GET_PROC_ADDRESS_DEFAULT: c_int = 0;
pub const CU_GET_PROC_ADDRESS_LEGACY_STREAM: c_int = 1;
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: c_int = 2;

// `CUdriverProcAddressQueryResult` is declared in types.rs.
pub const CU_GET_PROC_ADDRESS_SUCCESS: c_int = 0;
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: c_int = 1;
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: c_int = 2;

pub type CUexecAffinityType = c_int;
pub const CU_EXEC_AFFINITY_TYPE_SM_COUNT: c_int = 0;
pub const CU_EXEC_AFFINITY_TYPE_MAX: c_int = 1;

pub type CUcigDataType = c_int;
pub const CIG_DATA_TYPE_D3D12_COMMAND_QUEUE: c_int = 1;
pub const CIG_DATA_TYPE_NV_BLOB: c_int = 2;

pub type CUlibraryOption = c_int;
pub const CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: c_int = 0;
pub const CU_LIBRARY_BINARY_IS_PRESERVED: c_int = 1;
pub const CU_LIBRARY_NUM_OPTIONS: c_int = 2;

pub type CUdevice_P2PAttribute = c_int;
pub const CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: c_int = 1;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: c_int = 2;
pub const CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: c_int = 3;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED: c_int = 4;
pub const CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: c_int = 4;
pub const CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: c_int = 5;

pub type CUatomicOperation = c_int;
pub const CU_ATOMIC_OPERATION_INTEGER_ADD: c_int = 0;
pub const CU_ATOMIC_OPERATION_INTEGER_MIN: c_int = 1;
pub const CU_ATOMIC_OPERATION_INTEGER_MAX: c_int = 2;
pub const CU_ATOMIC_OPERATION_INTEGER_INCREMENT: c_int = 3;
pub const CU_ATOMIC_OPERATION_INTEGER_DECREMENT: c_int = 4;
pub const CU_ATOMIC_OPERATION_AND: c_int = 5;
pub const CU_ATOMIC_OPERATION_OR: c_int = 6;
pub const CU_ATOMIC_OPERATION_XOR: c_int = 7;
pub const CU_ATOMIC_OPERATION_EXCHANGE: c_int = 8;
pub const CU_ATOMIC_OPERATION_CAS: c_int = 9;
pub const CU_ATOMIC_OPERATION_FLOAT_ADD: c_int = 10;
pub const CU_ATOMIC_OPERATION_FLOAT_MIN: c_int = 11;
pub const CU_ATOMIC_OPERATION_FLOAT_MAX: c_int = 12;
pub const CU_ATOMIC_OPERATION_MAX: c_int = 13;

pub type CUatomicOperationCapability = c_int;
pub const CU_ATOMIC_CAPABILITY_SIGNED: c_int = 1;
pub const CU_ATOMIC_CAPABILITY_UNSIGNED: c_int = 2;
pub const CU_ATOMIC_CAPABILITY_REDUCTION: c_int = 4;
pub const CU_ATOMIC_CAPABILITY_SCALAR_32: c_int = 8;
pub const CU_ATOMIC_CAPABILITY_SCALAR_64: c_int = 16;
pub const CU_ATOMIC_CAPABILITY_SCALAR_128: c_int = 32;
pub const CU_ATOMIC_CAPABILITY_VECTOR_32x4: c_int = 64;

pub type CUresourceViewFormat = c_int;
pub const CU_RES_VIEW_FORMAT_NONE: c_int = 0;
pub const CU_RES_VIEW_FORMAT_UINT_1X8: c_int = 1;
pub const CU_RES_VIEW_FORMAT_UINT_2X8: c_int = 2;
pub const CU_RES_VIEW_FORMAT_UINT_4X8: c_int = 3;
pub const CU_RES_VIEW_FORMAT_SINT_1X8: c_int = 4;
pub const CU_RES_VIEW_FORMAT_SINT_2X8: c_int = 5;
pub const CU_RES_VIEW_FORMAT_SINT_4X8: c_int = 6;
pub const CU_RES_VIEW_FORMAT_UINT_1X16: c_int = 7;
pub const CU_RES_VIEW_FORMAT_UINT_2X16: c_int = 8;
pub const CU_RES_VIEW_FORMAT_UINT_4X16: c_int = 9;
pub const CU_RES_VIEW_FORMAT_SINT_1X16: c_int = 10;
pub const CU_RES_VIEW_FORMAT_SINT_2X16: c_int = 11;
pub const CU_RES_VIEW_FORMAT_SINT_4X16: c_int = 12;
pub const CU_RES_VIEW_FORMAT_UINT_1X32: c_int = 13;
pub const CU_RES_VIEW_FORMAT_UINT_2X32: c_int = 14;
pub const CU_RES_VIEW_FORMAT_UINT_4X32: c_int = 15;
pub const CU_RES_VIEW_FORMAT_SINT_1X32: c_int = 16;
pub const CU_RES_VIEW_FORMAT_SINT_2X32: c_int = 17;
pub const CU_RES_VIEW_FORMAT_SINT_4X32: c_int = 18;
pub const CU_RES_VIEW_FORMAT_FLOAT_1X16: c_int = 19;
pub const CU_RES_VIEW_FORMAT_FLOAT_2X16: c_int = 20;
pub const CU_RES_VIEW_FORMAT_FLOAT_4X16: c_int = 21;
pub const CU_RES_VIEW_FORMAT_FLOAT_1X32: c_int = 22;
pub const CU_RES_VIEW_FORMAT_FLOAT_2X32: c_int = 23;
pub const CU_RES_VIEW_FORMAT_FLOAT_4X32: c_int = 24;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC1: c_int = 25;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC2: c_int = 26;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC3: c_int = 27;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC4: c_int = 28;
pub const CU_RES_VIEW_FORMAT_SIGNED_BC4: c_int = 29;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC5: c_int = 30;
pub const CU_RES_VIEW_FORMAT_SIGNED_BC5: c_int = 31;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC6H: c_int = 32;
pub const CU_RES_VIEW_FORMAT_SIGNED_BC6H: c_int = 33;
pub const CU_RES_VIEW_FORMAT_UNSIGNED_BC7: c_int = 34;

pub type CUtensorMapDataType = c_int;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT8: c_int = 0;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT16: c_int = 1;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT32: c_int = 2;
pub const CU_TENSOR_MAP_DATA_TYPE_INT32: c_int = 3;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT64: c_int = 4;
pub const CU_TENSOR_MAP_DATA_TYPE_INT64: c_int = 5;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT16: c_int = 6;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT32: c_int = 7;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT64: c_int = 8;
pub const CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: c_int = 9;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ: c_int = 10;
pub const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: c_int = 11;
pub const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: c_int = 12;
pub const CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B: c_int = 13;
pub const CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B: c_int = 14;
pub const CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B: c_int = 15;

pub type CUtensorMapInterleave = c_int;
pub const CU_TENSOR_MAP_INTERLEAVE_NONE: c_int = 0;
pub const CU_TENSOR_MAP_INTERLEAVE_16B: c_int = 1;
pub const CU_TENSOR_MAP_INTERLEAVE_32B: c_int = 2;

pub type CUtensorMapSwizzle = c_int;
pub const CU_TENSOR_MAP_SWIZZLE_NONE: c_int = 0;
pub const CU_TENSOR_MAP_SWIZZLE_32B: c_int = 1;
pub const CU_TENSOR_MAP_SWIZZLE_64B: c_int = 2;
pub const CU_TENSOR_MAP_SWIZZLE_128B: c_int = 3;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B: c_int = 4;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B: c_int = 5;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B: c_int = 6;

pub type CUtensorMapL2promotion = c_int;
pub const CU_TENSOR_MAP_L2_PROMOTION_NONE: c_int = 0;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_64B: c_int = 1;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_128B: c_int = 2;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_256B: c_int = 3;

pub type CUtensorMapFloatOOBfill = c_int;
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: c_int = 0;
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA: c_int = 1;

pub type CUtensorMapIm2ColWideMode = c_int;
pub const CU_TENSOR_MAP_IM2COL_WIDE_MODE_W: c_int = 0;
pub const CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128: c_int = 1;

pub type CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS = c_int;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE: c_int = 0;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ: c_int = 1;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE: c_int = 3;

pub type CUexternalMemoryHandleType = c_int;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD: c_int = 1;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32: c_int = 2;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT: c_int = 3;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP: c_int = 4;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE: c_int = 5;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE: c_int = 6;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT: c_int = 7;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF: c_int = 8;
pub const CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD: c_int = 9;

pub type CUexternalSemaphoreHandleType = c_int;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD: c_int = 1;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32: c_int = 2;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT: c_int = 3;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE: c_int = 4;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE: c_int = 5;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC: c_int = 6;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX: c_int = 7;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT: c_int = 8;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD: c_int = 9;
pub const CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32: c_int = 10;

pub type CUmemAllocationHandleType = c_int;
pub const CU_MEM_HANDLE_TYPE_NONE: c_int = 0;
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: c_int = 1;
pub const CU_MEM_HANDLE_TYPE_WIN32: c_int = 2;
pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: c_int = 4;
pub const CU_MEM_HANDLE_TYPE_FABRIC: c_int = 8;
pub const CU_MEM_HANDLE_TYPE_MAX: c_int = 2147483647;

pub type CUmemAccess_flags = c_int;
pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: c_int = 0;
pub const CU_MEM_ACCESS_FLAGS_PROT_READ: c_int = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: c_int = 3;
pub const CU_MEM_ACCESS_FLAGS_PROT_MAX: c_int = 2147483647;

pub type CUmemLocationType = c_int;
pub const CU_MEM_LOCATION_TYPE_INVALID: c_int = 0;
pub const CU_MEM_LOCATION_TYPE_NONE: c_int = 0;
pub const CU_MEM_LOCATION_TYPE_DEVICE: c_int = 1;
pub const CU_MEM_LOCATION_TYPE_HOST: c_int = 2;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: c_int = 3;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: c_int = 4;
pub const CU_MEM_LOCATION_TYPE_MAX: c_int = 2147483647;

pub type CUmemAllocationType = c_int;
pub const CU_MEM_ALLOCATION_TYPE_INVALID: c_int = 0;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: c_int = 1;
pub const CU_MEM_ALLOCATION_TYPE_MANAGED: c_int = 2;
pub const CU_MEM_ALLOCATION_TYPE_MAX: c_int = 2147483647;

pub type CUmemAllocationGranularity_flags = c_int;
pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: c_int = 0;
pub const CU_MEM_ALLOC_GRANULARITY_RECOMMENDED: c_int = 1;

pub type CUmemRangeHandleType = c_int;
pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: c_int = 1;
pub const CU_MEM_RANGE_HANDLE_TYPE_MAX: c_int = 2147483647;

pub type CUmemRangeFlags = c_int;
pub const CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE: c_int = 1;

pub type CUarraySparseSubresourceType = c_int;
pub const CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL: c_int = 0;
pub const CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL: c_int = 1;

pub type CUmemOperationType = c_int;
pub const CU_MEM_OPERATION_TYPE_MAP: c_int = 1;
pub const CU_MEM_OPERATION_TYPE_UNMAP: c_int = 2;

pub type CUmemHandleType = c_int;
pub const CU_MEM_HANDLE_TYPE_GENERIC: c_int = 0;

pub type CUmemAllocationCompType = c_int;
pub const CU_MEM_ALLOCATION_COMP_NONE: c_int = 0;
pub const CU_MEM_ALLOCATION_COMP_GENERIC: c_int = 1;

pub type CUmulticastGranularity_flags = c_int;
pub const CU_MULTICAST_GRANULARITY_MINIMUM: c_int = 0;
pub const CU_MULTICAST_GRANULARITY_RECOMMENDED: c_int = 1;

pub type CUgraphExecUpdateResult = c_int;
pub const CU_GRAPH_EXEC_UPDATE_SUCCESS: c_int = 0;
pub const CU_GRAPH_EXEC_UPDATE_ERROR: c_int = 1;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: c_int = 2;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED: c_int = 3;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED: c_int = 4;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED: c_int = 5;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED: c_int = 6;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE: c_int = 7;
pub const CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED: c_int = 8;

// `CUmemPool_attribute` is declared in types.rs.
pub const CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: c_int = 1;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: c_int = 2;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_int = 3;
pub const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: c_int = 4;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: c_int = 5;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: c_int = 6;
pub const CU_MEMPOOL_ATTR_USED_MEM_CURRENT: c_int = 7;
pub const CU_MEMPOOL_ATTR_USED_MEM_HIGH: c_int = 8;

pub type CUmemcpyFlags = c_int;
pub const CU_MEMCPY_FLAG_DEFAULT: c_int = 0;
pub const CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE: c_int = 1;

pub type CUmemcpySrcAccessOrder = c_int;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_INVALID: c_int = 0;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: c_int = 1;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL: c_int = 2;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_ANY: c_int = 3;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_MAX: c_int = 2147483647;

pub type CUmemcpy3DOperandType = c_int;
pub const CU_MEMCPY_OPERAND_TYPE_POINTER: c_int = 1;
pub const CU_MEMCPY_OPERAND_TYPE_ARRAY: c_int = 2;
pub const CU_MEMCPY_OPERAND_TYPE_MAX: c_int = 2147483647;

pub type CUgraphMem_attribute = c_int;
pub const CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: c_int = 0;
pub const CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: c_int = 1;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: c_int = 2;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: c_int = 3;

pub type CUgraphChildGraphNodeOwnership = c_int;
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE: c_int = 0;
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE: c_int = 1;

pub type CUflushGPUDirectRDMAWritesOptions = c_int;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST: c_int = 1;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS: c_int = 2;

pub type CUGPUDirectRDMAWritesOrdering = c_int;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE: c_int = 0;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER: c_int = 100;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES: c_int = 200;

pub type CUflushGPUDirectRDMAWritesScope = c_int;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER: c_int = 100;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES: c_int = 200;

pub type CUflushGPUDirectRDMAWritesTarget = c_int;
pub const CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX: c_int = 0;

pub type CUgraphDebugDot_flags = c_int;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE: c_int = 1;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES: c_int = 2;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS: c_int = 4;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS: c_int = 8;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS: c_int = 16;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS: c_int = 32;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS: c_int = 64;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS: c_int = 128;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS: c_int = 256;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES: c_int = 512;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES: c_int = 1024;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS: c_int = 2048;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS: c_int = 4096;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS: c_int = 8192;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO: c_int = 16384;
pub const CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS: c_int = 32768;

pub type CUuserObject_flags = c_int;
pub const CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: c_int = 1;

pub type CUuserObjectRetain_flags = c_int;
pub const CU_GRAPH_USER_OBJECT_MOVE: c_int = 1;

pub type CUgraphInstantiate_flags = c_int;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: c_int = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: c_int = 2;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: c_int = 4;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: c_int = 8;

pub type CUdeviceNumaConfig = c_int;
pub const CU_DEVICE_NUMA_CONFIG_NONE: c_int = 0;
pub const CU_DEVICE_NUMA_CONFIG_NUMA_NODE: c_int = 1;

pub type CUprocessState = c_int;
pub const CU_PROCESS_STATE_RUNNING: c_int = 0;
pub const CU_PROCESS_STATE_LOCKED: c_int = 1;
pub const CU_PROCESS_STATE_CHECKPOINTED: c_int = 2;
pub const CU_PROCESS_STATE_FAILED: c_int = 3;

pub type CUmoduleLoadingMode = c_int;
pub const CU_MODULE_EAGER_LOADING: c_int = 1;
pub const CU_MODULE_LAZY_LOADING: c_int = 2;

pub type CUmemDecompressAlgorithm = c_int;
pub const CU_MEM_DECOMPRESS_UNSUPPORTED: c_int = 0;
pub const CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE: c_int = 1;
pub const CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY: c_int = 2;
pub const CU_MEM_DECOMPRESS_ALGORITHM_LZ4: c_int = 4;

pub type CUfunctionLoadingState = c_int;
pub const CU_FUNCTION_LOADING_STATE_UNLOADED: c_int = 0;
pub const CU_FUNCTION_LOADING_STATE_LOADED: c_int = 1;
pub const CU_FUNCTION_LOADING_STATE_MAX: c_int = 2;

pub type CUcoredumpSettings = c_int;
pub const CU_COREDUMP_ENABLE_ON_EXCEPTION: c_int = 1;
pub const CU_COREDUMP_TRIGGER_HOST: c_int = 2;
pub const CU_COREDUMP_LIGHTWEIGHT: c_int = 3;
pub const CU_COREDUMP_ENABLE_USER_TRIGGER: c_int = 4;
pub const CU_COREDUMP_FILE: c_int = 5;
pub const CU_COREDUMP_PIPE: c_int = 6;
pub const CU_COREDUMP_GENERATION_FLAGS: c_int = 7;
pub const CU_COREDUMP_MAX: c_int = 8;

pub type CUCoredumpGenerationFlags = c_int;
pub const CU_COREDUMP_DEFAULT_FLAGS: c_int = 0;
pub const CU_COREDUMP_SKIP_NONRELOCATED_ELF_IMAGES: c_int = 1;
pub const CU_COREDUMP_SKIP_GLOBAL_MEMORY: c_int = 2;
pub const CU_COREDUMP_SKIP_SHARED_MEMORY: c_int = 4;
pub const CU_COREDUMP_SKIP_LOCAL_MEMORY: c_int = 8;
pub const CU_COREDUMP_SKIP_ABORT: c_int = 16;
pub const CU_COREDUMP_SKIP_CONSTBANK_MEMORY: c_int = 32;
pub const CU_COREDUMP_LIGHTWEIGHT_FLAGS: c_int = 47;

pub type CUgreenCtxCreate_flags = c_int;
pub const CU_GREEN_CTX_DEFAULT_STREAM: c_int = 1;

pub type CUdevSmResourceSplit_flags = c_int;
pub const CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING: c_int = 1;
pub const CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE: c_int = 2;

pub type CUdevResourceType = c_int;
pub const CU_DEV_RESOURCE_TYPE_INVALID: c_int = 0;
pub const CU_DEV_RESOURCE_TYPE_SM: c_int = 1;

pub type CUlogLevel = c_int;
pub const CU_LOG_LEVEL_ERROR: c_int = 0;
pub const CU_LOG_LEVEL_WARNING: c_int = 1;

pub type CUGLDeviceList = c_int;
pub const CU_GL_DEVICE_LIST_ALL: c_int = 1;
pub const CU_GL_DEVICE_LIST_CURRENT_FRAME: c_int = 2;
pub const CU_GL_DEVICE_LIST_NEXT_FRAME: c_int = 3;

pub type CUGLmap_flags = c_int;
pub const CU_GL_MAP_RESOURCE_FLAGS_NONE: c_int = 0;
pub const CU_GL_MAP_RESOURCE_FLAGS_READ_ONLY: c_int = 1;
pub const CU_GL_MAP_RESOURCE_FLAGS_WRITE_DISCARD: c_int = 2;

pub type CUeglFrameType = c_int;
pub const CU_EGL_FRAME_TYPE_ARRAY: c_int = 0;
pub const CU_EGL_FRAME_TYPE_PITCH: c_int = 1;

pub type CUeglResourceLocationFlags = c_int;
pub const CU_EGL_RESOURCE_LOCATION_SYSMEM: c_int = 0;
pub const CU_EGL_RESOURCE_LOCATION_VIDMEM: c_int = 1;

pub type CUeglColorFormat = c_int;
pub const CU_EGL_COLOR_FORMAT_YUV420_PLANAR: c_int = 0;
pub const CU_EGL_COLOR_FORMAT_YUV420_SEMIPLANAR: c_int = 1;
pub const CU_EGL_COLOR_FORMAT_YUV422_PLANAR: c_int = 2;
pub const CU_EGL_COLOR_FORMAT_YUV422_SEMIPLANAR: c_int = 3;
pub const CU_EGL_COLOR_FORMAT_RGB: c_int = 4;
pub const CU_EGL_COLOR_FORMAT_BGR: c_int = 5;
pub const CU_EGL_COLOR_FORMAT_ARGB: c_int = 6;
pub const CU_EGL_COLOR_FORMAT_RGBA: c_int = 7;
pub const CU_EGL_COLOR_FORMAT_L: c_int = 8;
pub const CU_EGL_COLOR_FORMAT_R: c_int = 9;
pub const CU_EGL_COLOR_FORMAT_YUV444_PLANAR: c_int = 10;
pub const CU_EGL_COLOR_FORMAT_YUV444_SEMIPLANAR: c_int = 11;
pub const CU_EGL_COLOR_FORMAT_YUYV_422: c_int = 12;
pub const CU_EGL_COLOR_FORMAT_UYVY_422: c_int = 13;
pub const CU_EGL_COLOR_FORMAT_ABGR: c_int = 14;
pub const CU_EGL_COLOR_FORMAT_BGRA: c_int = 15;
pub const CU_EGL_COLOR_FORMAT_A: c_int = 16;
pub const CU_EGL_COLOR_FORMAT_RG: c_int = 17;
pub const CU_EGL_COLOR_FORMAT_AYUV: c_int = 18;
pub const CU_EGL_COLOR_FORMAT_YVU444_SEMIPLANAR: c_int = 19;
pub const CU_EGL_COLOR_FORMAT_YVU422_SEMIPLANAR: c_int = 20;
pub const CU_EGL_COLOR_FORMAT_YVU420_SEMIPLANAR: c_int = 21;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_444_SEMIPLANAR: c_int = 22;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_420_SEMIPLANAR: c_int = 23;
pub const CU_EGL_COLOR_FORMAT_Y12V12U12_444_SEMIPLANAR: c_int = 24;
pub const CU_EGL_COLOR_FORMAT_Y12V12U12_420_SEMIPLANAR: c_int = 25;
pub const CU_EGL_COLOR_FORMAT_VYUY_ER: c_int = 26;
pub const CU_EGL_COLOR_FORMAT_UYVY_ER: c_int = 27;
pub const CU_EGL_COLOR_FORMAT_YUYV_ER: c_int = 28;
pub const CU_EGL_COLOR_FORMAT_YVYU_ER: c_int = 29;
pub const CU_EGL_COLOR_FORMAT_YUV_ER: c_int = 30;
pub const CU_EGL_COLOR_FORMAT_YUVA_ER: c_int = 31;
pub const CU_EGL_COLOR_FORMAT_AYUV_ER: c_int = 32;
pub const CU_EGL_COLOR_FORMAT_YUV444_PLANAR_ER: c_int = 33;
pub const CU_EGL_COLOR_FORMAT_YUV422_PLANAR_ER: c_int = 34;
pub const CU_EGL_COLOR_FORMAT_YUV420_PLANAR_ER: c_int = 35;
pub const CU_EGL_COLOR_FORMAT_YUV444_SEMIPLANAR_ER: c_int = 36;
pub const CU_EGL_COLOR_FORMAT_YUV422_SEMIPLANAR_ER: c_int = 37;
pub const CU_EGL_COLOR_FORMAT_YUV420_SEMIPLANAR_ER: c_int = 38;
pub const CU_EGL_COLOR_FORMAT_YVU444_PLANAR_ER: c_int = 39;
pub const CU_EGL_COLOR_FORMAT_YVU422_PLANAR_ER: c_int = 40;
pub const CU_EGL_COLOR_FORMAT_YVU420_PLANAR_ER: c_int = 41;
pub const CU_EGL_COLOR_FORMAT_YVU444_SEMIPLANAR_ER: c_int = 42;
pub const CU_EGL_COLOR_FORMAT_YVU422_SEMIPLANAR_ER: c_int = 43;
pub const CU_EGL_COLOR_FORMAT_YVU420_SEMIPLANAR_ER: c_int = 44;
pub const CU_EGL_COLOR_FORMAT_BAYER_RGGB: c_int = 45;
pub const CU_EGL_COLOR_FORMAT_BAYER_BGGR: c_int = 46;
pub const CU_EGL_COLOR_FORMAT_BAYER_GRBG: c_int = 47;
pub const CU_EGL_COLOR_FORMAT_BAYER_GBRG: c_int = 48;
pub const CU_EGL_COLOR_FORMAT_BAYER10_RGGB: c_int = 49;
pub const CU_EGL_COLOR_FORMAT_BAYER10_BGGR: c_int = 50;
pub const CU_EGL_COLOR_FORMAT_BAYER10_GRBG: c_int = 51;
pub const CU_EGL_COLOR_FORMAT_BAYER10_GBRG: c_int = 52;
pub const CU_EGL_COLOR_FORMAT_BAYER12_RGGB: c_int = 53;
pub const CU_EGL_COLOR_FORMAT_BAYER12_BGGR: c_int = 54;
pub const CU_EGL_COLOR_FORMAT_BAYER12_GRBG: c_int = 55;
pub const CU_EGL_COLOR_FORMAT_BAYER12_GBRG: c_int = 56;
pub const CU_EGL_COLOR_FORMAT_BAYER14_RGGB: c_int = 57;
pub const CU_EGL_COLOR_FORMAT_BAYER14_BGGR: c_int = 58;
pub const CU_EGL_COLOR_FORMAT_BAYER14_GRBG: c_int = 59;
pub const CU_EGL_COLOR_FORMAT_BAYER14_GBRG: c_int = 60;
pub const CU_EGL_COLOR_FORMAT_BAYER20_RGGB: c_int = 61;
pub const CU_EGL_COLOR_FORMAT_BAYER20_BGGR: c_int = 62;
pub const CU_EGL_COLOR_FORMAT_BAYER20_GRBG: c_int = 63;
pub const CU_EGL_COLOR_FORMAT_BAYER20_GBRG: c_int = 64;
pub const CU_EGL_COLOR_FORMAT_YVU444_PLANAR: c_int = 65;
pub const CU_EGL_COLOR_FORMAT_YVU422_PLANAR: c_int = 66;
pub const CU_EGL_COLOR_FORMAT_YVU420_PLANAR: c_int = 67;
pub const CU_EGL_COLOR_FORMAT_BAYER_ISP_RGGB: c_int = 68;
pub const CU_EGL_COLOR_FORMAT_BAYER_ISP_BGGR: c_int = 69;
pub const CU_EGL_COLOR_FORMAT_BAYER_ISP_GRBG: c_int = 70;
pub const CU_EGL_COLOR_FORMAT_BAYER_ISP_GBRG: c_int = 71;
pub const CU_EGL_COLOR_FORMAT_BAYER_BCCR: c_int = 72;
pub const CU_EGL_COLOR_FORMAT_BAYER_RCCB: c_int = 73;
pub const CU_EGL_COLOR_FORMAT_BAYER_CRBC: c_int = 74;
pub const CU_EGL_COLOR_FORMAT_BAYER_CBRC: c_int = 75;
pub const CU_EGL_COLOR_FORMAT_BAYER10_CCCC: c_int = 76;
pub const CU_EGL_COLOR_FORMAT_BAYER12_BCCR: c_int = 77;
pub const CU_EGL_COLOR_FORMAT_BAYER12_RCCB: c_int = 78;
pub const CU_EGL_COLOR_FORMAT_BAYER12_CRBC: c_int = 79;
pub const CU_EGL_COLOR_FORMAT_BAYER12_CBRC: c_int = 80;
pub const CU_EGL_COLOR_FORMAT_BAYER12_CCCC: c_int = 81;
pub const CU_EGL_COLOR_FORMAT_Y: c_int = 82;
pub const CU_EGL_COLOR_FORMAT_YUV420_SEMIPLANAR_2020: c_int = 83;
pub const CU_EGL_COLOR_FORMAT_YVU420_SEMIPLANAR_2020: c_int = 84;
pub const CU_EGL_COLOR_FORMAT_YUV420_PLANAR_2020: c_int = 85;
pub const CU_EGL_COLOR_FORMAT_YVU420_PLANAR_2020: c_int = 86;
pub const CU_EGL_COLOR_FORMAT_YUV420_SEMIPLANAR_709: c_int = 87;
pub const CU_EGL_COLOR_FORMAT_YVU420_SEMIPLANAR_709: c_int = 88;
pub const CU_EGL_COLOR_FORMAT_YUV420_PLANAR_709: c_int = 89;
pub const CU_EGL_COLOR_FORMAT_YVU420_PLANAR_709: c_int = 90;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_420_SEMIPLANAR_709: c_int = 91;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_420_SEMIPLANAR_2020: c_int = 92;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_422_SEMIPLANAR_2020: c_int = 93;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_422_SEMIPLANAR: c_int = 94;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_422_SEMIPLANAR_709: c_int = 95;
pub const CU_EGL_COLOR_FORMAT_Y_ER: c_int = 96;
pub const CU_EGL_COLOR_FORMAT_Y_709_ER: c_int = 97;
pub const CU_EGL_COLOR_FORMAT_Y10_ER: c_int = 98;
pub const CU_EGL_COLOR_FORMAT_Y10_709_ER: c_int = 99;
pub const CU_EGL_COLOR_FORMAT_Y12_ER: c_int = 100;
pub const CU_EGL_COLOR_FORMAT_Y12_709_ER: c_int = 101;
pub const CU_EGL_COLOR_FORMAT_YUVA: c_int = 102;
pub const CU_EGL_COLOR_FORMAT_YUV: c_int = 103;
pub const CU_EGL_COLOR_FORMAT_YVYU: c_int = 104;
pub const CU_EGL_COLOR_FORMAT_VYUY: c_int = 105;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_420_SEMIPLANAR_ER: c_int = 106;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_420_SEMIPLANAR_709_ER: c_int = 107;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_444_SEMIPLANAR_ER: c_int = 108;
pub const CU_EGL_COLOR_FORMAT_Y10V10U10_444_SEMIPLANAR_709_ER: c_int = 109;
pub const CU_EGL_COLOR_FORMAT_Y12V12U12_420_SEMIPLANAR_ER: c_int = 110;
pub const CU_EGL_COLOR_FORMAT_Y12V12U12_420_SEMIPLANAR_709_ER: c_int = 111;
pub const CU_EGL_COLOR_FORMAT_Y12V12U12_444_SEMIPLANAR_ER: c_int = 112;
pub const CU_EGL_COLOR_FORMAT_Y12V12U12_444_SEMIPLANAR_709_ER: c_int = 113;
pub const CU_EGL_COLOR_FORMAT_UYVY_709: c_int = 114;
pub const CU_EGL_COLOR_FORMAT_UYVY_709_ER: c_int = 115;
pub const CU_EGL_COLOR_FORMAT_UYVY_2020: c_int = 116;
pub const CU_EGL_COLOR_FORMAT_MAX: c_int = 117;

pub const CUDA_VERSION: c_uint = 13000;
pub const CU_IPC_HANDLE_SIZE: c_uint = 64;
pub const CU_COMPUTE_ACCELERATED_TARGET_BASE: c_uint = 0x10000;
pub const CU_COMPUTE_FAMILY_TARGET_BASE: c_uint = 0x20000;
pub const CU_GRAPH_COND_ASSIGN_DEFAULT: c_uint = 0x1;
pub const CU_GRAPH_KERNEL_NODE_PORT_DEFAULT: c_uint = 0;
pub const CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: c_uint = 1;
pub const CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER: c_uint = 2;
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 0x01;
pub const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 0x02;
pub const CU_MEMHOSTALLOC_WRITECOMBINED: c_uint = 0x04;
pub const CU_MEMHOSTREGISTER_PORTABLE: c_uint = 0x01;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: c_uint = 0x02;
pub const CU_MEMHOSTREGISTER_IOMEMORY: c_uint = 0x04;
pub const CU_MEMHOSTREGISTER_READ_ONLY: c_uint = 0x08;
pub const CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL: c_uint = 0x1;
pub const CU_TENSOR_MAP_NUM_QWORDS: c_uint = 16;
pub const CUDA_EXTERNAL_MEMORY_DEDICATED: c_uint = 0x1;
pub const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC: c_uint = 0x01;
pub const CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC: c_uint = 0x02;
pub const CUDA_NVSCISYNC_ATTR_SIGNAL: c_uint = 0x1;
pub const CUDA_NVSCISYNC_ATTR_WAIT: c_uint = 0x2;
pub const CU_MEM_CREATE_USAGE_TILE_POOL: c_uint = 0x1;
pub const CU_MEM_CREATE_USAGE_HW_DECOMPRESS: c_uint = 0x2;
pub const CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS: c_uint = 0x2;
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC: c_uint = 0x01;
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC: c_uint = 0x02;
pub const CUDA_ARRAY3D_LAYERED: c_uint = 0x01;
pub const CUDA_ARRAY3D_2DARRAY: c_uint = 0x01;
pub const CUDA_ARRAY3D_SURFACE_LDST: c_uint = 0x02;
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 0x04;
pub const CUDA_ARRAY3D_TEXTURE_GATHER: c_uint = 0x08;
pub const CUDA_ARRAY3D_DEPTH_TEXTURE: c_uint = 0x10;
pub const CUDA_ARRAY3D_COLOR_ATTACHMENT: c_uint = 0x20;
pub const CUDA_ARRAY3D_SPARSE: c_uint = 0x40;
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: c_uint = 0x80;
pub const CUDA_ARRAY3D_VIDEO_ENCODE_DECODE: c_uint = 0x100;
pub const CU_TRSA_OVERRIDE_FORMAT: c_uint = 0x01;
pub const CU_TRSF_READ_AS_INTEGER: c_uint = 0x01;
pub const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 0x02;
pub const CU_TRSF_SRGB: c_uint = 0x10;
pub const CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION: c_uint = 0x20;
pub const CU_TRSF_SEAMLESS_CUBEMAP: c_uint = 0x40;
pub const CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM: c_uint = 1;
pub const CU_LAUNCH_PARAM_END_AS_INT: c_uint = 0x00;
pub const CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT: c_uint = 0x01;
pub const CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT: c_uint = 0x02;
pub const CUDA_EGL_INFINITE_TIMEOUT: c_uint = 0xffffffff;
pub const CUDA_API_PER_THREAD_DEFAULT_STREAM: c_uint = 1;
