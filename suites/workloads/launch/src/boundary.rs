//! The one room of unsafe: libcuda's functions, found by name, and every call of them. What leaves it is a plain value or an error.
//!
//! [`Calls::launch`] is the only place from which a kernel is launched, into a stream that runs and into one that is being captured alike.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{NonNull, null_mut};

use abi::cuda::enumerations::{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING};
use abi::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgraph, CUgraphExec, CUmodule, CUresult,
    CUstream, fns,
};
use libloading::os::unix as dl;

use crate::error::{LaunchError, Launcher};
use crate::staging::{Arguments, Staging};

mod adopt;

/// An address that a look-up found.
pub type Found = NonNull<c_void>;

macro_rules! table {
    ($($name:ident)*; where there $($maybe:ident)*) => {
        /// libcuda's functions.
        #[allow(non_snake_case, reason = "C names stay exact")]
        pub struct Calls { $($name: fns::$name,)* $($maybe: Option<fns::$maybe>,)* }

        impl Calls {
            /// The functions as a look-up finds them.
            ///
            /// # Safety
            /// What is found under a name is a function of that name's signature in `abi`, and stays.
            pub unsafe fn find(look_up: impl Fn(&'static str) -> Option<Found>) -> Result<Self, LaunchError> {
                Ok(Self {
                    $($name: {
                        let name = stringify!($name);
                        let found = look_up(name).ok_or(LaunchError::Missing { name })?;
                        // SAFETY: the caller's obligation; a function's address has the size of any address.
                        unsafe { std::mem::transmute_copy::<Found, fns::$name>(&found) }
                    },)*
                    // SAFETY: as above.
                    $($maybe: look_up(stringify!($maybe)).map(|found| unsafe {
                        std::mem::transmute_copy::<Found, fns::$maybe>(&found)
                    }),)*
                })
            }
        }
    };
}

table! {
    cuInit cuDeviceGet cuDeviceGetAttribute cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent
    cuModuleLoadData cuModuleUnload cuModuleGetFunction cuFuncGetAttribute cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamBeginCapture_v2 cuStreamEndCapture
    cuGraphInstantiateWithFlags cuGraphLaunch cuGraphDestroy cuGraphExecDestroy
    cuMemAlloc_v2 cuMemFree_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2
    cuLaunchKernel cuLaunchCooperativeKernel;
    where there cuFuncGetParamInfo
}

/// Calls, and gives what the out-parameter holds then.
macro_rules! ask {
    ($self:ident.$name:ident($out:ident = $zero:expr; $($argument:expr),*)) => {{
        let mut $out = $zero;
        // SAFETY: the signature is the table's; the out-parameter is a local, and all else a value that this module or the driver made.
        let code = unsafe { ($self.$name)($($argument),*) };
        told(stringify!($name), code).map(|()| $out)
    }};
}

/// Calls.
macro_rules! tell {
    ($self:ident.$name:ident($($argument:expr),*)) => {{
        // SAFETY: the signature is the table's; addresses are of borrowed memory that the call does not outlive.
        let code = unsafe { ($self.$name)($($argument),*) };
        told(stringify!($name), code)
    }};
}

fn told(call: &'static str, code: CUresult) -> Result<(), LaunchError> {
    match code {
        CUresult::SUCCESS => Ok(()),
        code => Err(LaunchError::Call { call, code }),
    }
}

/// A handle of the driver's. It belongs to the process, not to a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle<T>(pub T);

// SAFETY: the driver takes its handles from any thread; what is not to be done at once from several, ending a thing while it is used, is what owners and
// borrows keep apart.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

// SAFETY: the addresses in it are of places that it owns.
unsafe impl Send for Staging {}

/// What a launch tells the driver each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub function: Handle<CUfunction>,
    pub grid: [u32; 3],
    pub workgroup: [u32; 3],
    pub shared: u32,
    pub launcher: Launcher,
}

impl Calls {
    /// libcuda as this process finds it. It is never closed: drivers do not bear it.
    pub fn open() -> Result<Self, LaunchError> {
        // SAFETY: the driver's constructors are what every client runs.
        let library = unsafe { dl::Library::open(Some("libcuda.so.1"), dl::RTLD_NOW) };
        let library = library.map_err(|error| LaunchError::NoDriver {
            reason: error.to_string(),
        })?;
        // SAFETY: names and signatures are one table's, and the library is leaked below.
        let found = unsafe {
            Self::find(|name| {
                let symbol = library.get::<*mut c_void>(name.as_bytes()).ok()?;
                NonNull::new(*symbol)
            })
        };
        let _ = library.into_raw();
        found
    }

    /// The one launch.
    #[inline]
    pub(crate) fn launch(
        &self,
        raw: &Raw,
        stream: CUstream,
        arguments: &Arguments<'_>,
    ) -> CUresult {
        let ([x, y, z], [width, height, depth]) = (raw.grid, raw.workgroup);
        let (function, shared, slots) = (raw.function.0, raw.shared, arguments.slots());
        // SAFETY: the function is alive, because its kernel is; the table has an address for each of its parameters (`Arguments`), and lives as long
        // as the call, which copies what they hold.
        unsafe {
            match raw.launcher {
                Launcher::Kernel => (self.cuLaunchKernel)(
                    function,
                    x,
                    y,
                    z,
                    width,
                    height,
                    depth,
                    shared,
                    stream,
                    slots,
                    null_mut(),
                ),
                Launcher::Cooperative => (self.cuLaunchCooperativeKernel)(
                    function, x, y, z, width, height, depth, shared, stream, slots,
                ),
            }
        }
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<CUdevice, LaunchError> {
        tell!(self.cuInit(0))?;
        ask!(self.cuDeviceGet(device = 0; &mut device, ordinal))
    }

    pub(crate) fn attribute(&self, device: CUdevice, attribute: i32) -> Result<i32, LaunchError> {
        ask!(self.cuDeviceGetAttribute(value = 0; &mut value, attribute, device))
    }

    pub(crate) fn retain(&self, device: CUdevice) -> Result<CUcontext, LaunchError> {
        ask!(self.cuDevicePrimaryCtxRetain(context = CUcontext::NULL; &mut context, device))
    }

    pub(crate) fn release(&self, device: CUdevice) -> Result<(), LaunchError> {
        tell!(self.cuDevicePrimaryCtxRelease_v2(device))
    }

    pub(crate) fn make_current(&self, context: CUcontext) -> Result<(), LaunchError> {
        tell!(self.cuCtxSetCurrent(context))
    }

    pub(crate) fn load(&self, ptx: &CStr) -> Result<CUmodule, LaunchError> {
        ask!(self.cuModuleLoadData(module = CUmodule::NULL; &mut module, ptx.as_ptr().cast()))
    }

    pub(crate) fn unload(&self, module: CUmodule) -> Result<(), LaunchError> {
        tell!(self.cuModuleUnload(module))
    }

    pub(crate) fn function(
        &self,
        module: CUmodule,
        name: &CStr,
    ) -> Result<CUfunction, LaunchError> {
        ask!(self.cuModuleGetFunction(function = CUfunction::NULL; &mut function, module, name.as_ptr()))
    }

    pub(crate) fn function_attribute(
        &self,
        function: CUfunction,
        attribute: i32,
    ) -> Result<i32, LaunchError> {
        ask!(self.cuFuncGetAttribute(value = 0; &mut value, attribute, function))
    }

    /// Whether the driver can tell of parameters: from 550 on.
    pub(crate) fn knows_parameters(&self) -> bool {
        self.cuFuncGetParamInfo.is_some()
    }

    /// A parameter's bytes; `None` where the function has no such parameter, or the driver cannot tell.
    pub(crate) fn parameter(
        &self,
        function: CUfunction,
        index: usize,
    ) -> Result<Option<usize>, LaunchError> {
        let Some(info) = self.cuFuncGetParamInfo else {
            return Ok(None);
        };
        let (mut offset, mut size) = (0, 0);
        // SAFETY: two locals to write to.
        let code = unsafe { info(function, index, &mut offset, &mut size) };
        match code {
            CUresult::ERROR_INVALID_VALUE => Ok(None),
            code => told("cuFuncGetParamInfo", code).map(|()| Some(size)),
        }
    }

    /// Workgroups of that many threads that a multiprocessor holds.
    pub(crate) fn active_blocks(
        &self,
        function: CUfunction,
        threads: i32,
        shared: usize,
    ) -> Result<i32, LaunchError> {
        ask!(self.cuOccupancyMaxActiveBlocksPerMultiprocessor(active = 0; &mut active, function, threads, shared))
    }

    /// A stream that does not wait for the default one.
    pub(crate) fn create_stream(&self) -> Result<CUstream, LaunchError> {
        ask!(self.cuStreamCreate(stream = CUstream::NULL; &mut stream, CU_STREAM_NON_BLOCKING as u32))
    }

    pub(crate) fn destroy_stream(&self, stream: CUstream) -> Result<(), LaunchError> {
        tell!(self.cuStreamDestroy_v2(stream))
    }

    pub(crate) fn synchronize(&self, stream: CUstream) -> Result<(), LaunchError> {
        tell!(self.cuStreamSynchronize(stream))
    }

    pub(crate) fn begin_capture(&self, stream: CUstream) -> Result<(), LaunchError> {
        tell!(self.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    }

    pub(crate) fn end_capture(&self, stream: CUstream) -> Result<CUgraph, LaunchError> {
        ask!(self.cuStreamEndCapture(graph = CUgraph::NULL; stream, &mut graph))
    }

    pub(crate) fn instantiate(&self, graph: CUgraph) -> Result<CUgraphExec, LaunchError> {
        ask!(self.cuGraphInstantiateWithFlags(exec = CUgraphExec::NULL; &mut exec, graph, 0))
    }

    pub(crate) fn replay(&self, exec: CUgraphExec, stream: CUstream) -> Result<(), LaunchError> {
        tell!(self.cuGraphLaunch(exec, stream))
    }

    pub(crate) fn destroy_graph(&self, graph: CUgraph) -> Result<(), LaunchError> {
        tell!(self.cuGraphDestroy(graph))
    }

    pub(crate) fn destroy_exec(&self, exec: CUgraphExec) -> Result<(), LaunchError> {
        tell!(self.cuGraphExecDestroy(exec))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, LaunchError> {
        ask!(self.cuMemAlloc_v2(address = 0; &mut address, bytes))
    }

    pub(crate) fn free(&self, address: CUdeviceptr) -> Result<(), LaunchError> {
        tell!(self.cuMemFree_v2(address))
    }

    pub(crate) fn write(&self, address: CUdeviceptr, words: &[u32]) -> Result<(), LaunchError> {
        tell!(self.cuMemcpyHtoD_v2(address, words.as_ptr().cast(), size_of_val(words)))
    }

    pub(crate) fn read(&self, address: CUdeviceptr, words: &mut [u32]) -> Result<(), LaunchError> {
        tell!(self.cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, size_of_val(words)))
    }
}

/// A name as C has it.
pub(crate) fn c_string(name: &str) -> Result<CString, LaunchError> {
    CString::new(name).map_err(|_| LaunchError::Name {
        name: name.to_owned(),
    })
}
