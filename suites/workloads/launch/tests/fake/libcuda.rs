//! A libcuda of a few lines, in the test's own process: it answers what a test wants of it, does nothing, and asks nobody for memory.

#![allow(dead_code, reason = "each test wants some of it")]

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::{NonNull, without_provenance_mut};
use std::sync::Arc;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use launch::boundary::Calls;
use launch::{Device, Kernel, LaunchError};

thread_local! {
    /// What launches answer.
    pub static LAUNCH: Cell<CUresult> = const { Cell::new(CUresult::SUCCESS) };
    /// Blocks that a multiprocessor is said to hold.
    pub static ACTIVE: Cell<c_int> = const { Cell::new(2) };
    /// An attribute that is answered otherwise.
    pub static ODD: Cell<(c_int, c_int)> = const { Cell::new((-1, 0)) };
    /// The stream and the first two words of arguments that the last launch came with.
    pub static LAST: Cell<(usize, u64, u32)> = const { Cell::new((0, 0, 0)) };
    /// Launches, of either kind, and modules loaded less those unloaded.
    pub static CALLS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    pub static MODULES: Cell<i64> = const { Cell::new(0) };
    /// The context that is current in this thread: 0x10 of the first device, 0x11 of the second.
    pub static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The first device's context.
const FIRST: usize = 0x10;
pub const PARAMETERS: &[usize] = &[8, 4];
const OK: CUresult = CUresult::SUCCESS;

fn attribute(number: c_int) -> c_int {
    let (odd, value) = ODD.get();
    match number {
        number if number == odd => value,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => c_int::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 132,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH => 1,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        _ => 0,
    }
}

/// Functions that write a value to their first parameter, or do nothing, and succeed.
macro_rules! answers {
    ($( $name:ident($($out:ident: $kind:ty = $value:expr)?; $($rest:ty),*) $($act:block)?; )*) => { $(
        #[allow(non_snake_case, reason = "C names stay exact")]
        unsafe extern "C" fn $name($($out: *mut $kind,)? $(_: $rest),*) -> CUresult {
            // SAFETY: the boundary hands in places of its own.
            $( unsafe { $out.write($value) }; )?
            $( $act )?
            OK
        }
    )* };
}

fn handle(number: usize) -> *mut c_void {
    without_provenance_mut(number)
}

answers! {
    cuInit(; c_uint);
    cuDevicePrimaryCtxRelease_v2(; CUdevice);
    cuModuleLoadData(module: CUmodule = CUmodule(handle(0x20)); *const c_void) { MODULES.set(MODULES.get() + 1) };
    cuModuleUnload(; CUmodule) { MODULES.set(MODULES.get() - 1) };
    cuModuleGetFunction(function: CUfunction = CUfunction(handle(0x30)); CUmodule, *const c_char);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(active: c_int = ACTIVE.get(); CUfunction, c_int, usize);
    cuStreamCreate(stream: CUstream = CUstream(handle(0x40 + ((CURRENT.get() - FIRST) << 8))); c_uint);
    cuStreamDestroy_v2(; CUstream);
    cuStreamSynchronize(; CUstream);
    cuStreamBeginCapture_v2(; CUstream, CUstreamCaptureMode);
    cuGraphInstantiateWithFlags(exec: CUgraphExec = CUgraphExec(handle(0x60)); CUgraph, c_ulonglong);
    cuGraphLaunch(; CUgraphExec, CUstream);
    cuGraphDestroy(; CUgraph);
    cuGraphExecDestroy(; CUgraphExec);
    cuMemAlloc_v2(address: CUdeviceptr = 0x7000; usize);
    cuMemFree_v2(; CUdeviceptr);
    cuMemcpyHtoD_v2(; CUdeviceptr, *const c_void, usize);
    cuMemcpyDtoH_v2(; *mut c_void, CUdeviceptr, usize);
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    // SAFETY: the boundary hands in a place of its own.
    unsafe { device.write(ordinal) };
    OK
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the boundary hands in a place of its own.
    unsafe { context.write(CUcontext(handle(FIRST + device as usize))) };
    OK
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    CURRENT.set(context.0.addr());
    OK
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    number: c_int,
    _: CUdevice,
) -> CUresult {
    // SAFETY: the boundary hands in a place of its own.
    unsafe { value.write(attribute(number)) };
    OK
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    number: c_int,
    _: CUfunction,
) -> CUresult {
    let told = match number {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 768,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => 49_152,
        _ => 0,
    };
    // SAFETY: the boundary hands in a place of its own.
    unsafe { value.write(told) };
    OK
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuStreamEndCapture(_: CUstream, graph: *mut CUgraph) -> CUresult {
    // SAFETY: the boundary hands in a place of its own.
    unsafe { graph.write(CUgraph(handle(0x50))) };
    OK
}

/// What both kinds of launches do.
///
/// # Safety
/// The table has addresses of eight and of four bytes.
unsafe fn launched(stream: CUstream, slots: *mut *mut c_void) -> CUresult {
    // SAFETY: the boundary's table has an address of each of [`PARAMETERS`].
    let (first, second) = unsafe {
        (
            (*slots).cast::<u64>().read(),
            (*slots.add(1)).cast::<u32>().read(),
        )
    };
    LAST.set((stream.0.addr(), first, second));
    // A stream of another context than the current one.
    if stream.0.addr() >> 8 != CURRENT.get() - FIRST {
        return CUresult::ERROR_INVALID_HANDLE;
    }
    LAUNCH.get()
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuLaunchKernel(
    _: CUfunction,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: CUstream,
    slots: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    CALLS.set((CALLS.get().0 + 1, CALLS.get().1));
    // SAFETY: the tests' kernel has these parameters.
    unsafe { launched(stream, slots) }
}

#[allow(non_snake_case, reason = "C names stay exact")]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    _: CUfunction,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: CUstream,
    slots: *mut *mut c_void,
) -> CUresult {
    CALLS.set((CALLS.get().0, CALLS.get().1 + 1));
    // SAFETY: the tests' kernel has these parameters.
    unsafe { launched(stream, slots) }
}

macro_rules! table {
    ($wanted:ident: $($name:ident)*) => {
        match $wanted {
            $( stringify!($name) => NonNull::new($name as fns::$name as *mut c_void), )*
            _ => None,
        }
    };
}

fn look_up(wanted: &str) -> Option<NonNull<c_void>> {
    table!(wanted: cuInit cuDeviceGet cuDeviceGetAttribute cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent
        cuModuleLoadData cuModuleUnload cuModuleGetFunction cuFuncGetAttribute cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamBeginCapture_v2 cuStreamEndCapture
        cuGraphInstantiateWithFlags cuGraphLaunch cuGraphDestroy cuGraphExecDestroy
        cuMemAlloc_v2 cuMemFree_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuLaunchKernel cuLaunchCooperativeKernel)
}

/// A libcuda without one of its functions.
pub fn without(name: &str) -> Result<Calls, LaunchError> {
    // SAFETY: each name has its own function, of the signature that `abi` gives it.
    unsafe { Calls::find(|wanted| look_up(wanted).filter(|_| wanted != name)) }
}

pub fn device() -> Result<Arc<Device>, LaunchError> {
    device_of(0)
}

pub fn device_of(ordinal: i32) -> Result<Arc<Device>, LaunchError> {
    Device::open_by(without("")?, ordinal)
}

/// A kernel of [`PARAMETERS`].
pub fn kernel(device: &Arc<Device>) -> Arc<Kernel> {
    // SAFETY: what the functions above do is lawful with any arguments.
    unsafe { Kernel::adopt(device, CUfunction(handle(0x30)), PARAMETERS) }.expect("a kernel")
}
