//! Handles, result codes and structures of libcuda.

#![allow(non_camel_case_types, non_snake_case, reason = "C names stay exact")]

pub use std::ffi::{c_char, c_float, c_int, c_longlong, c_uint, c_ulonglong, c_void};

/// A result code. Any value may come back from a driver newer than this table.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CUresult(pub u32);

macro_rules! results {
    ($( $name:ident = $value:literal; )*) => {
        impl CUresult { $( pub const $name: CUresult = CUresult($value); )* }

        impl CUresult {
            /// The field's name of the code, without the `CUDA_` prefix, if this table knows it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $( $value => Some(stringify!($name)), )* _ => None }
            }
        }
    };
}

results! {
    SUCCESS = 0;
    ERROR_INVALID_VALUE = 1;
    ERROR_OUT_OF_MEMORY = 2;
    ERROR_NOT_INITIALIZED = 3;
    ERROR_DEINITIALIZED = 4;
    ERROR_PROFILER_DISABLED = 5;
    ERROR_PROFILER_NOT_INITIALIZED = 6;
    ERROR_PROFILER_ALREADY_STARTED = 7;
    ERROR_PROFILER_ALREADY_STOPPED = 8;
    ERROR_STUB_LIBRARY = 34;
    ERROR_CALL_REQUIRES_NEWER_DRIVER = 36;
    ERROR_DEVICE_UNAVAILABLE = 46;
    ERROR_NO_DEVICE = 100;
    ERROR_INVALID_DEVICE = 101;
    ERROR_DEVICE_NOT_LICENSED = 102;
    ERROR_INVALID_IMAGE = 200;
    ERROR_INVALID_CONTEXT = 201;
    ERROR_CONTEXT_ALREADY_CURRENT = 202;
    ERROR_MAP_FAILED = 205;
    ERROR_UNMAP_FAILED = 206;
    ERROR_ARRAY_IS_MAPPED = 207;
    ERROR_ALREADY_MAPPED = 208;
    ERROR_NO_BINARY_FOR_GPU = 209;
    ERROR_ALREADY_ACQUIRED = 210;
    ERROR_NOT_MAPPED = 211;
    ERROR_NOT_MAPPED_AS_ARRAY = 212;
    ERROR_NOT_MAPPED_AS_POINTER = 213;
    ERROR_ECC_UNCORRECTABLE = 214;
    ERROR_UNSUPPORTED_LIMIT = 215;
    ERROR_CONTEXT_ALREADY_IN_USE = 216;
    ERROR_PEER_ACCESS_UNSUPPORTED = 217;
    ERROR_INVALID_PTX = 218;
    ERROR_INVALID_GRAPHICS_CONTEXT = 219;
    ERROR_NVLINK_UNCORRECTABLE = 220;
    ERROR_JIT_COMPILER_NOT_FOUND = 221;
    ERROR_UNSUPPORTED_PTX_VERSION = 222;
    ERROR_JIT_COMPILATION_DISABLED = 223;
    ERROR_UNSUPPORTED_EXEC_AFFINITY = 224;
    ERROR_UNSUPPORTED_DEVSIDE_SYNC = 225;
    ERROR_CONTAINED = 226;
    ERROR_INVALID_SOURCE = 300;
    ERROR_FILE_NOT_FOUND = 301;
    ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302;
    ERROR_SHARED_OBJECT_INIT_FAILED = 303;
    ERROR_OPERATING_SYSTEM = 304;
    ERROR_INVALID_HANDLE = 400;
    ERROR_ILLEGAL_STATE = 401;
    ERROR_LOSSY_QUERY = 402;
    ERROR_NOT_FOUND = 500;
    ERROR_NOT_READY = 600;
    ERROR_ILLEGAL_ADDRESS = 700;
    ERROR_LAUNCH_OUT_OF_RESOURCES = 701;
    ERROR_LAUNCH_TIMEOUT = 702;
    ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = 703;
    ERROR_PEER_ACCESS_ALREADY_ENABLED = 704;
    ERROR_PEER_ACCESS_NOT_ENABLED = 705;
    ERROR_PRIMARY_CONTEXT_ACTIVE = 708;
    ERROR_CONTEXT_IS_DESTROYED = 709;
    ERROR_ASSERT = 710;
    ERROR_TOO_MANY_PEERS = 711;
    ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712;
    ERROR_HOST_MEMORY_NOT_REGISTERED = 713;
    ERROR_HARDWARE_STACK_ERROR = 714;
    ERROR_ILLEGAL_INSTRUCTION = 715;
    ERROR_MISALIGNED_ADDRESS = 716;
    ERROR_INVALID_ADDRESS_SPACE = 717;
    ERROR_INVALID_PC = 718;
    ERROR_LAUNCH_FAILED = 719;
    ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720;
    ERROR_TENSOR_MEMORY_LEAK = 721;
    ERROR_NOT_PERMITTED = 800;
    ERROR_NOT_SUPPORTED = 801;
    ERROR_SYSTEM_NOT_READY = 802;
    ERROR_SYSTEM_DRIVER_MISMATCH = 803;
    ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804;
    ERROR_MPS_CONNECTION_FAILED = 805;
    ERROR_MPS_RPC_FAILURE = 806;
    ERROR_MPS_SERVER_NOT_READY = 807;
    ERROR_MPS_MAX_CLIENTS_REACHED = 808;
    ERROR_MPS_MAX_CONNECTIONS_REACHED = 809;
    ERROR_MPS_CLIENT_TERMINATED = 810;
    ERROR_CDP_NOT_SUPPORTED = 811;
    ERROR_CDP_VERSION_MISMATCH = 812;
    ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
    ERROR_STREAM_CAPTURE_INVALIDATED = 901;
    ERROR_STREAM_CAPTURE_MERGE = 902;
    ERROR_STREAM_CAPTURE_UNMATCHED = 903;
    ERROR_STREAM_CAPTURE_UNJOINED = 904;
    ERROR_STREAM_CAPTURE_ISOLATION = 905;
    ERROR_STREAM_CAPTURE_IMPLICIT = 906;
    ERROR_CAPTURED_EVENT = 907;
    ERROR_STREAM_CAPTURE_WRONG_THREAD = 908;
    ERROR_TIMEOUT = 909;
    ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910;
    ERROR_EXTERNAL_DEVICE = 911;
    ERROR_INVALID_CLUSTER_SIZE = 912;
    ERROR_FUNCTION_NOT_LOADED = 913;
    ERROR_INVALID_RESOURCE_TYPE = 914;
    ERROR_INVALID_RESOURCE_CONFIGURATION = 915;
    ERROR_KEY_ROTATION = 916;
    ERROR_UNKNOWN = 999;
}

impl std::fmt::Debug for CUresult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "CUDA_{name} ({})", self.0),
            None => write!(f, "CUresult({})", self.0),
        }
    }
}

/// A device ordinal.
pub type CUdevice = c_int;
/// A device address.
pub type CUdeviceptr = u64;
/// A device address of the unsuffixed, 32-bit entry points of CUDA 2 and 3.
pub type CUdeviceptr_v1 = c_uint;
/// `cuuint64_t`.
pub type cuuint64_t = u64;

macro_rules! handles {
    ($( $(#[$doc:meta])* $name:ident; )*) => { $(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub *mut c_void);
        impl $name {
            pub const NULL: $name = $name(std::ptr::null_mut());
            pub fn is_null(self) -> bool { self.0.is_null() }
        }
    )* };
}
handles! {
    CUcontext;
    CUstream;
    CUevent;
    CUmemoryPool;
    CUarray;
    CUmodule;
    CUfunction;
    CUlibrary;
    CUkernel;
    CUmipmappedArray;
    CUtexref;
    CUsurfref;
    CUgraphicsResource;
    CUexternalMemory;
    CUexternalSemaphore;
    CUgraph;
    CUgraphNode;
    CUgraphExec;
    CUuserObject;
    CUgraphDeviceNode;
    CUasyncCallbackHandle;
    CUgreenCtx;
    CUlinkState;
    CUdevResourceDesc;
    CUlogsCallbackHandle;
    CUeglStreamConnection;
}

/// Functions of the client that the driver calls.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;
pub type CUasyncCallback = Option<
    unsafe extern "C" fn(
        *mut super::structures::CUasyncNotificationInfo,
        *mut c_void,
        CUasyncCallbackHandle,
    ),
>;
pub type CUlogsCallback =
    Option<unsafe extern "C" fn(*mut c_void, super::enumerations::CUlogLevel, *mut c_char, usize)>;
/// A texture or surface object.
pub type CUtexObject = c_ulonglong;
pub type CUsurfObject = c_ulonglong;
/// A conditional node's handle.
pub type CUgraphConditionalHandle = cuuint64_t;
/// A place in the log of messages.
pub type CUlogIterator = c_uint;

/// A handle of `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;

/// Sixteen bytes that identify a device or an export table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// `CUdevice_attribute`.
pub type CUdevice_attribute = c_int;
/// `CUpointer_attribute`.
pub type CUpointer_attribute = c_int;
/// `CUlimit`.
pub type CUlimit = c_int;
/// `CUmemPool_attribute`.
pub type CUmemPool_attribute = c_int;
/// `CUstreamCaptureStatus`.
pub type CUstreamCaptureStatus = c_int;
/// `CUdriverProcAddressQueryResult`: 0 found, 1 unknown name, 2 newer than the version asked.
pub type CUdriverProcAddressQueryResult = c_int;

/// `CUmemPool_attribute` values (`cuda.h`).
pub mod pool_attribute {
    pub const REUSE_FOLLOW_EVENT_DEPENDENCIES: i32 = 1;
    pub const REUSE_ALLOW_OPPORTUNISTIC: i32 = 2;
    pub const REUSE_ALLOW_INTERNAL_DEPENDENCIES: i32 = 3;
    pub const RELEASE_THRESHOLD: i32 = 4;
    pub const RESERVED_MEM_CURRENT: i32 = 5;
    pub const RESERVED_MEM_HIGH: i32 = 6;
    pub const USED_MEM_CURRENT: i32 = 7;
    pub const USED_MEM_HIGH: i32 = 8;
}

/// `CUdevprop`: the answer of `cuDeviceGetProperties`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUdevprop {
    pub maxThreadsPerBlock: c_int,
    pub maxThreadsDim: [c_int; 3],
    pub maxGridSize: [c_int; 3],
    pub sharedMemPerBlock: c_int,
    pub totalConstantMemory: c_int,
    pub SIMDWidth: c_int,
    pub memPitch: c_int,
    pub regsPerBlock: c_int,
    pub clockRate: c_int,
    pub textureAlign: c_int,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUmemLocation {
    /// 1 device, 2 host, …
    pub type_: c_int,
    pub id: c_int,
}

/// `CUmemPoolProps`, 88 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemPoolProps {
    /// 1 pinned.
    pub allocType: c_int,
    pub handleTypes: c_int,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemAllocationProp {
    /// 1 pinned.
    pub type_: c_int,
    pub requestedHandleTypes: c_int,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUDA_ARRAY_DESCRIPTOR`, of the `_v2` array calls.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    /// `CUarray_format`: 1 u8, 2 u16, 3 u32, 8 i8, 9 i16, 10 i32, 16 half, 32 float.
    pub Format: c_int,
    pub NumChannels: c_uint,
}
