//! Giving a device work, by every entry point that does.

use std::cell::OnceCell;
use std::ffi::CString;
use std::ptr::{null_mut, without_provenance_mut};

use abi::cuda::{
    CUDA_LAUNCH_PARAMS, CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchConfig,
    CUmodule, CUresult, CUstream,
};

use super::{Answer, Cuda, MISSING, OwnStream};

/// By which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Kernel,
    KernelPtsz,
    KernelEx,
    KernelExPtsz,
    Cooperative,
    CooperativePtsz,
    CooperativeMultiDevice,
    OneBlock,
    Grid,
    GridAsync,
    /// A graph of [`GRAPHED`] launches.
    Graph,
    GraphPtsz,
    /// A graph, while another context of its stream's device is current.
    GraphAside,
    /// By a thread that has no current context: its stream has one.
    Detached,
}

impl Route {
    pub const ALL: [Route; 14] = [
        Route::Kernel,
        Route::KernelPtsz,
        Route::KernelEx,
        Route::KernelExPtsz,
        Route::Cooperative,
        Route::CooperativePtsz,
        Route::CooperativeMultiDevice,
        Route::OneBlock,
        Route::Grid,
        Route::GridAsync,
        Route::Graph,
        Route::GraphPtsz,
        Route::GraphAside,
        Route::Detached,
    ];

    pub fn named(name: &str) -> Option<Route> {
        Route::ALL
            .into_iter()
            .find(|route| format!("{route:?}") == name)
    }
}

/// CU_STREAM_PER_THREAD.
pub const PER_THREAD: CUstream = CUstream(without_provenance_mut(2));
/// Launches in a graph.
pub const GRAPHED: usize = 8;
/// Instructions of a kernel: the simulated device takes its time for each.
const INSTRUCTIONS: usize = 6_000;

/// A kernel that takes its time, and a stream and a graph to launch it in.
pub struct Workload {
    function: CUfunction,
    stream: CUstream,
    graph: CUgraphExec,
    /// Of [`Route::GraphAside`].
    aside: OnceCell<CUcontext>,
    /// Nodes that the captured launches became.
    pub nodes: usize,
    events: [CUevent; 2],
    /// Of one launch by [`Route::Kernel`] or [`Route::Detached`].
    pub blocks: u32,
    /// Bytes of dynamic shared memory of one by [`Route::Kernel`].
    pub shared: u32,
}

fn kernel() -> CString {
    let body = "    add.u32 %r1, %r1, 1;\n".repeat(INSTRUCTIONS);
    let text = format!(
        ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry work()\n{{\n    .reg .u32 %r<2>;\n    mov.u32 %r1, 0;\n{body}    ret;\n}}\n"
    );
    CString::new(text).unwrap_or_default()
}

impl Workload {
    /// Its launches are in another stream.
    pub fn in_stream(&mut self, stream: OwnStream) {
        self.stream = stream.0;
    }

    /// In which its launches are.
    pub fn own_stream(&self) -> OwnStream {
        OwnStream(self.stream)
    }
}

impl Cuda {
    /// Loads the kernel and captures a graph of it.
    pub fn workload(&self) -> Result<Workload, CUresult> {
        let good = |code| {
            if code == CUresult::SUCCESS {
                Ok(())
            } else {
                Err(code)
            }
        };
        let image = kernel();
        let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
        good(call!(
            self.cuModuleLoadData(&mut module, image.as_ptr().cast())
        ))?;
        good(call!(self.cuModuleGetFunction(
            &mut function,
            module,
            c"work".as_ptr()
        )))?;
        let mut stream = CUstream::NULL;
        good(call!(self.cuStreamCreate(&mut stream, 1)))?;
        let mut events = [CUevent::NULL; 2];
        for event in &mut events {
            good(call!(self.cuEventCreate(event, 0)))?;
        }
        let mut work = Workload {
            function,
            stream,
            graph: CUgraphExec::NULL,
            aside: OnceCell::new(),
            nodes: 0,
            events,
            blocks: 1,
            shared: 0,
        };
        good(call!(self.cuStreamBeginCapture_v2(stream, 1)))?;
        for _ in 0..GRAPHED {
            good(self.launch(&work, Route::Kernel))?;
        }
        let mut graph = CUgraph::NULL;
        good(call!(self.cuStreamEndCapture(stream, &mut graph)))?;
        good(call!(self.cuGraphGetNodes(
            graph,
            null_mut(),
            &mut work.nodes
        )))?;
        good(call!(self.cuGraphInstantiateWithFlags(
            &mut work.graph,
            graph,
            0
        )))?;
        Ok(work)
    }

    pub fn launch(&self, work: &Workload, route: Route) -> CUresult {
        let (function, stream, none) = (work.function, work.stream, null_mut());
        let blocks = work.blocks;
        let mut config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream,
            attrs: null_mut(),
            numAttrs: 0,
        };
        let mut list = CUDA_LAUNCH_PARAMS {
            function,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream,
            kernelParams: null_mut(),
        };
        match route {
            Route::Kernel => {
                call!(self.cuLaunchKernel(
                    function,
                    blocks,
                    1,
                    1,
                    1,
                    1,
                    1,
                    work.shared,
                    stream,
                    none,
                    none
                ))
            }
            Route::KernelPtsz => {
                call!(self.cuLaunchKernel_ptsz(
                    function,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    CUstream::NULL,
                    none,
                    none
                ))
            }
            Route::KernelEx => call!(self.cuLaunchKernelEx(&config, function, none, none)),
            Route::KernelExPtsz => {
                config.hStream = CUstream::NULL;
                call!(self.cuLaunchKernelEx_ptsz(&config, function, none, none))
            }
            Route::Cooperative => {
                call!(self.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none))
            }
            Route::CooperativePtsz => {
                call!(self.cuLaunchCooperativeKernel_ptsz(
                    function,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    CUstream::NULL,
                    none
                ))
            }
            Route::CooperativeMultiDevice => {
                call!(self.cuLaunchCooperativeKernelMultiDevice(&mut list, 1, 0))
            }
            Route::OneBlock => {
                call!(self.cuFuncSetBlockShape(function, 1, 1, 1));
                call!(self.cuLaunch(function))
            }
            Route::Grid => {
                call!(self.cuFuncSetBlockShape(function, 1, 1, 1));
                call!(self.cuLaunchGrid(function, 1, 1))
            }
            Route::GridAsync => {
                call!(self.cuFuncSetBlockShape(function, 1, 1, 1));
                call!(self.cuLaunchGridAsync(function, 1, 1, stream))
            }
            Route::Detached => {
                let mut current = CUcontext::NULL;
                call!(self.cuCtxPopCurrent_v2(&mut current));
                let code = call!(
                    self.cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, none, none)
                );
                call!(self.cuCtxPushCurrent_v2(current));
                code
            }
            Route::Graph => call!(self.cuGraphLaunch(work.graph, stream)),
            Route::GraphAside => {
                let mut current = CUcontext::NULL;
                let aside = *work.aside.get_or_init(|| {
                    let mut made = CUcontext::NULL;
                    call!(self.cuCtxCreate_v2(&mut made, 0, 0));
                    call!(self.cuCtxPopCurrent_v2(&mut current));
                    made
                });
                call!(self.cuCtxPushCurrent_v2(aside));
                let code = call!(self.cuGraphLaunch(work.graph, stream));
                call!(self.cuCtxPopCurrent_v2(&mut current));
                code
            }
            Route::GraphPtsz => call!(self.cuGraphLaunch_ptsz(work.graph, CUstream::NULL)),
        }
    }

    /// What one launch takes on the device, in nanoseconds.
    pub fn time(&self, work: &Workload, route: Route) -> Answer<u64> {
        let stream = match route {
            Route::Kernel
            | Route::KernelEx
            | Route::Cooperative
            | Route::CooperativeMultiDevice
            | Route::GridAsync
            | Route::Detached
            | Route::Graph
            | Route::GraphAside => work.stream,
            Route::OneBlock | Route::Grid => CUstream::NULL,
            _ => PER_THREAD,
        };
        let times = if work.blocks == 1 { 5 } else { 3 };
        self.time_of(work.events, stream, times, || self.launch(work, route))
    }

    /// What `call` has done by the stream, in nanoseconds: the least of several times.
    pub fn time_of(
        &self,
        [start, end]: [CUevent; 2],
        stream: CUstream,
        times: usize,
        call: impl Fn() -> CUresult,
    ) -> Answer<u64> {
        let mut least = f32::INFINITY;
        let mut code = CUresult::SUCCESS;
        for _ in 0..times {
            let mut took = f32::INFINITY;
            // The stream has work until all that is measured is in it, so that it is the device's time and not the host's.
            for _ in 0..8 {
                call();
            }
            let answers = [
                call!(self.cuEventRecord(start, stream)),
                call(),
                call(),
                call(),
                call(),
                call!(self.cuEventRecord(end, stream)),
                call!(self.cuEventSynchronize(end)),
                call!(self.cuEventElapsedTime(&mut took, start, end)),
            ];
            code = answers
                .into_iter()
                .find(|code| *code != CUresult::SUCCESS)
                .unwrap_or(code);
            least = least.min(took / 4.0);
        }
        Answer {
            code,
            out: (f64::from(least) * 1e6) as u64,
        }
    }
}
