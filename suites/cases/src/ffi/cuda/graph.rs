//! Graphs that allocate.

use std::ffi::c_void;
use std::ptr::{null, null_mut, without_provenance_mut};

use abi::cuda::{
    CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v3,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS_v2, CUDA_MEMSET_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUdevice, CUdeviceptr, CUgraph, CUgraphExec,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUmemLocation, CUmemPoolProps,
    CUresult, CUstream, fns,
};

use super::module::Function;
use super::{Address, Answer, Cuda, MISSING, OwnStream, Pool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph(CUgraph);

impl Graph {
    pub const NONE: Graph = Graph(CUgraph::NULL);
}

/// An executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exec(CUgraphExec);

impl Exec {
    pub const NONE: Exec = Exec(CUgraphExec::NULL);
}

/// A node that allocates, frees or is a graph, to hang others behind.
#[derive(Clone, Copy, Debug)]
pub struct Node(CUgraphNode);

/// By which call a node that allocates is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Add {
    /// cuGraphAddMemAllocNode.
    Own,
    /// cuGraphAddNode, with a structure for nodes of any kind.
    Any,
    /// cuGraphAddNode_v2.
    AnySecond,
    /// cuGraphAddNode_v3, of CUDA 13.4.
    AnyThird,
}

/// By which call a graph becomes executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instantiate {
    First,
    Second,
    WithFlags,
    /// cuGraphInstantiateWithFlags that asks for an upload, for which it has no stream: refused.
    WithFlagsUploading,
    WithParams,
    /// cuGraphInstantiateWithParams_ptsz.
    WithParamsOfThread,
    /// With parameters that say it is to be uploaded.
    Uploading,
    UploadingOfThread,
}

/// By which call a kernel of an executable graph is exchanged for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// cuGraphExecKernelNodeSetParams.
    First,
    Second,
    /// cuGraphExecNodeSetParams.
    Any,
}

/// By which call its memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    Launch,
    LaunchOfThread,
    Upload,
    UploadOfThread,
}

/// By which call the thread's own stream begins to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    First,
    /// cuStreamBeginCapture_ptsz.
    FirstOfThread,
    Second,
    SecondOfThread,
    ToGraph,
    ToGraphOfThread,
    /// Over the nodes that a graph has already: CUDA 13.3.
    Again,
    AgainOfThread,
}

/// By which call the thread's own stream allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    Plain,
    /// cuMemAllocAsync_ptsz.
    PlainOfThread,
    FromPool,
    FromPoolOfThread,
}

/// CU_STREAM_PER_THREAD.
pub(super) fn threads_stream() -> CUstream {
    CUstream(without_provenance_mut(2))
}

fn pool_props(device: CUdevice) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: 1,
        handleTypes: 0,
        location: CUmemLocation {
            type_: 1,
            id: device,
        },
        win32SecurityAttributes: null_mut(),
        maxSize: 0,
        usage: 0,
        reserved: [0; 54],
    }
}

impl Cuda {
    pub fn create_graph(&self) -> Answer<Graph> {
        let mut graph = CUgraph::NULL;
        let code = call!(self.cuGraphCreate(&mut graph, 0));
        Answer {
            code,
            out: Graph(graph),
        }
    }

    /// Adds a node that allocates; its address.
    pub fn add_allocation(
        &self,
        way: Add,
        graph: Graph,
        after: Option<Node>,
        device: CUdevice,
        bytes: u64,
    ) -> Answer<(Node, CUdeviceptr)> {
        let mut node = CUgraphNode::NULL;
        let before = after.map(|node| node.0);
        let (list, count) = (
            before.as_ref().map_or(null(), |node| &raw const *node),
            before.iter().count(),
        );
        if way == Add::Own {
            let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
                poolProps: pool_props(device),
                accessDescs: null_mut(),
                accessDescCount: 0,
                bytesize: bytes as usize,
                dptr: 0,
            };
            let code =
                call!(self.cuGraphAddMemAllocNode(&mut node, graph.0, list, count, &mut params));
            let out = (Node(node), params.dptr);
            return Answer { code, out };
        }
        let mut params = CUgraphNodeParams::zeroed();
        params.type_ = 10;
        params.anon.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
            poolProps: pool_props(device),
            accessDescs: null_mut(),
            accessDescCount: 0,
            bytesize: bytes as usize,
            dptr: 0,
        };
        let params_at = &raw mut params;
        let code = match way {
            Add::Any => call!(self.cuGraphAddNode(&mut node, graph.0, list, count, params_at)),
            Add::AnyThird => {
                call!(self.cuGraphAddNode_v3(&mut node, graph.0, list, null(), count, params_at))
            }
            _ => {
                call!(self.cuGraphAddNode_v2(&mut node, graph.0, list, null(), count, params_at))
            }
        };
        // SAFETY: the member that was written above, which the driver completed.
        let address = unsafe { params.anon.alloc.dptr };
        Answer {
            code,
            out: (Node(node), address),
        }
    }

    /// Adds a node that sets one byte, after others: it may run beside all that do not wait for it.
    pub fn add_branch(&self, graph: Graph, after: &[Node], address: CUdeviceptr) -> Answer<Node> {
        let params = CUDA_MEMSET_NODE_PARAMS {
            dst: address,
            pitch: 0,
            value: 0,
            elementSize: 1,
            width: 1,
            height: 1,
        };
        let mut node = CUgraphNode::NULL;
        let code = call!(self.cuGraphAddMemsetNode(
            &mut node,
            graph.0,
            after.as_ptr().cast(),
            after.len(),
            &params,
            CUcontext::NULL
        ));
        Answer {
            code,
            out: Node(node),
        }
    }

    /// Lets a node of [`Cuda::add_branch`] set another byte, by cuGraphNodeSetParams, or its second version.
    pub fn set_branch(&self, second: bool, node: Node, address: CUdeviceptr) -> CUresult {
        let mut params = CUgraphNodeParams::zeroed();
        params.type_ = 2;
        params.anon.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: address,
            pitch: 0,
            value: 1,
            elementSize: 1,
            width: 1,
            height: 1,
            ctx: CUcontext::NULL,
        };
        match second {
            true => call!(self.cuGraphNodeSetParams_v2(node.0, &mut params)),
            false => call!(self.cuGraphNodeSetParams(node.0, &mut params)),
        }
    }

    /// The nodes of a graph, as the driver lists them.
    pub fn nodes(&self, graph: Graph) -> Answer<Vec<Node>> {
        let mut count = 0;
        let mut code = call!(self.cuGraphGetNodes(graph.0, null_mut(), &mut count));
        let mut nodes = vec![CUgraphNode::NULL; count];
        if code == CUresult::SUCCESS {
            code = call!(self.cuGraphGetNodes(graph.0, nodes.as_mut_ptr(), &mut count));
        }
        let out = nodes.into_iter().map(Node).collect();
        Answer { code, out }
    }

    /// Lets a node of an executable graph run one thread of another kernel, whose one parameter is these bytes.
    pub fn set_exec_kernel(
        &self,
        way: Exchange,
        exec: Exec,
        node: Node,
        function: Function,
        parameter: &mut [u8],
    ) -> CUresult {
        let mut parameters = [parameter.as_mut_ptr().cast::<c_void>()];
        let one = 1;
        let first = CUDA_KERNEL_NODE_PARAMS_v1 {
            func: function.0,
            gridDimX: one,
            gridDimY: one,
            gridDimZ: one,
            blockDimX: one,
            blockDimY: one,
            blockDimZ: one,
            sharedMemBytes: 0,
            kernelParams: parameters.as_mut_ptr(),
            extra: null_mut(),
        };
        let second = CUDA_KERNEL_NODE_PARAMS {
            func: first.func,
            gridDimX: one,
            gridDimY: one,
            gridDimZ: one,
            blockDimX: one,
            blockDimY: one,
            blockDimZ: one,
            kernelParams: first.kernelParams,
            ..CUDA_KERNEL_NODE_PARAMS::zeroed()
        };
        let mut any = CUgraphNodeParams::zeroed();
        any.anon.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
            func: first.func,
            gridDimX: one,
            gridDimY: one,
            gridDimZ: one,
            blockDimX: one,
            blockDimY: one,
            blockDimZ: one,
            kernelParams: first.kernelParams,
            ..CUDA_KERNEL_NODE_PARAMS_v3::zeroed()
        };
        match way {
            Exchange::First => call!(self.cuGraphExecKernelNodeSetParams(exec.0, node.0, &first)),
            Exchange::Second => {
                call!(self.cuGraphExecKernelNodeSetParams_v2(exec.0, node.0, &second))
            }
            Exchange::Any => call!(self.cuGraphExecNodeSetParams(exec.0, node.0, &mut any)),
        }
    }

    /// Adds a node that runs its body if a handle of the graph's says so; the body.
    pub fn add_conditional(&self, graph: Graph) -> Answer<Graph> {
        let mut params = CUgraphNodeParams::zeroed();
        params.type_ = 13;
        let (mut context, mut handle) = (CUcontext::NULL, 0);
        let codes = [
            call!(self.cuCtxPopCurrent_v2(&mut context)),
            call!(self.cuCtxPushCurrent_v2(context)),
            call!(self.cuGraphConditionalHandleCreate(&mut handle, graph.0, context, 0, 0)),
        ];
        if let Some(code) = codes.into_iter().find(|code| *code != CUresult::SUCCESS) {
            let out = Graph::NONE;
            return Answer { code, out };
        }
        params.anon.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: 0,
            size: 1,
            phGraph_out: null_mut(),
            ctx: context,
        };
        let mut node = CUgraphNode::NULL;
        let code = match self.exports("cuGraphAddNode_v2") {
            true => {
                call!(self.cuGraphAddNode_v2(&mut node, graph.0, null(), null(), 0, &mut params))
            }
            false => call!(self.cuGraphAddNode(&mut node, graph.0, null(), 0, &mut params)),
        };
        // SAFETY: the member that was written above.
        let bodies = unsafe { params.anon.conditional.phGraph_out };
        let made = code == CUresult::SUCCESS && !bodies.is_null();
        // SAFETY: the driver's list of one body.
        let body = made.then(|| unsafe { bodies.read() });
        let out = body.map_or(Graph::NONE, Graph);
        Answer { code, out }
    }

    /// Adds a node that frees what another allocates.
    pub fn add_free(&self, graph: Graph, after: Node, address: CUdeviceptr) -> Answer<Node> {
        let mut node = CUgraphNode::NULL;
        let code = call!(self.cuGraphAddMemFreeNode(&mut node, graph.0, &after.0, 1, address));
        Answer {
            code,
            out: Node(node),
        }
    }

    /// Adds a graph as a node: a copy of it.
    pub fn add_child(&self, graph: Graph, child: Graph) -> CUresult {
        self.add_child_node(graph, child).code
    }

    /// The same; its node.
    pub fn add_child_node(&self, graph: Graph, child: Graph) -> Answer<Node> {
        let mut node = CUgraphNode::NULL;
        let code = call!(self.cuGraphAddChildGraphNode(&mut node, graph.0, null(), 0, child.0));
        Answer {
            code,
            out: Node(node),
        }
    }

    /// Lets the child of an executable graph be another graph of its shape.
    pub fn set_exec_child(&self, exec: Exec, node: Node, child: Graph) -> CUresult {
        call!(self.cuGraphExecChildGraphNodeSetParams(exec.0, node.0, child.0))
    }

    /// Adds a graph as a node: itself, which the other owns from then on.
    pub fn move_child(&self, graph: Graph, child: Graph) -> CUresult {
        self.move_child_node(graph, child).code
    }

    /// The same; its node.
    pub fn move_child_node(&self, graph: Graph, child: Graph) -> Answer<Node> {
        const MOVE: i32 = 1;
        let mut node = CUgraphNode::NULL;
        let mut params = CUgraphNodeParams::zeroed();
        params.type_ = 4;
        params.anon.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
            graph: child.0,
            ownership: MOVE,
        };
        let code =
            call!(self.cuGraphAddNode_v2(&mut node, graph.0, null(), null(), 0, &mut params));
        Answer {
            code,
            out: Node(node),
        }
    }

    pub fn clone_graph(&self, graph: Graph) -> Answer<Graph> {
        let mut copy = CUgraph::NULL;
        let code = call!(self.cuGraphClone(&mut copy, graph.0));
        Answer {
            code,
            out: Graph(copy),
        }
    }

    pub fn instantiate(&self, way: Instantiate, graph: Graph) -> Answer<Exec> {
        const UPLOAD: u64 = 2;
        let mut exec = CUgraphExec::NULL;
        let place = &raw mut exec;
        let uploads = matches!(way, Instantiate::Uploading | Instantiate::UploadingOfThread);
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: if uploads { UPLOAD } else { 0 },
            hUploadStream: CUstream::NULL,
            hErrNode_out: CUgraphNode::NULL,
            result_out: 0,
        };
        let code = match way {
            Instantiate::First => {
                call!(self.cuGraphInstantiate(place, graph.0, null_mut(), null_mut(), 0))
            }
            Instantiate::Second => {
                call!(self.cuGraphInstantiate_v2(place, graph.0, null_mut(), null_mut(), 0))
            }
            Instantiate::WithFlags => call!(self.cuGraphInstantiateWithFlags(place, graph.0, 0)),
            Instantiate::WithFlagsUploading => {
                call!(self.cuGraphInstantiateWithFlags(place, graph.0, UPLOAD))
            }
            Instantiate::WithParams | Instantiate::Uploading => {
                call!(self.cuGraphInstantiateWithParams(place, graph.0, &mut params))
            }
            Instantiate::WithParamsOfThread | Instantiate::UploadingOfThread => {
                call!(self.cuGraphInstantiateWithParams_ptsz(place, graph.0, &mut params))
            }
        };
        Answer {
            code,
            out: Exec(exec),
        }
    }

    /// cuGraphExecUpdate.
    pub fn update_exec_v1(&self, exec: Exec, graph: Graph) -> CUresult {
        let (mut node, mut result) = (CUgraphNode::NULL, 0);
        call!(self.cuGraphExecUpdate(exec.0, graph.0, &mut node, &mut result))
    }

    pub fn update_exec(&self, exec: Exec, graph: Graph) -> CUresult {
        let mut info = CUgraphExecUpdateResultInfo::zeroed();
        call!(self.cuGraphExecUpdate_v2(exec.0, graph.0, &mut info))
    }

    /// On the default stream.
    pub fn run_graph(&self, way: Run, exec: Exec) -> CUresult {
        match way {
            Run::Launch => call!(self.cuGraphLaunch(exec.0, CUstream::NULL)),
            Run::LaunchOfThread => call!(self.cuGraphLaunch_ptsz(exec.0, CUstream::NULL)),
            Run::Upload => call!(self.cuGraphUpload(exec.0, CUstream::NULL)),
            Run::UploadOfThread => call!(self.cuGraphUpload_ptsz(exec.0, CUstream::NULL)),
        }
    }

    pub fn launch_graph_in(&self, stream: OwnStream, exec: Exec) -> CUresult {
        call!(self.cuGraphLaunch(exec.0, stream.0))
    }

    /// cuGraphLaunch by an address that some look-up gave.
    pub fn launch_graph_by(&self, address: Address, exec: Exec) -> CUresult {
        // SAFETY: cases hand in addresses that were looked up under the name cuGraphLaunch, with or without _ptsz.
        let function: fns::cuGraphLaunch = unsafe { address.as_function() };
        // SAFETY: the handle is the driver's, the stream is the default one.
        unsafe { function(exec.0, CUstream::NULL) }
    }

    pub fn destroy_exec(&self, exec: Exec) -> CUresult {
        call!(self.cuGraphExecDestroy(exec.0))
    }

    pub fn destroy_graph(&self, graph: Graph) -> CUresult {
        call!(self.cuGraphDestroy(graph.0))
    }

    pub fn trim_graphs(&self, device: CUdevice) -> CUresult {
        call!(self.cuDeviceGraphMemTrim(device))
    }

    /// Lets a stream capture, so that no thread may do what could end that.
    pub fn begin_capture_on(&self, stream: OwnStream) -> CUresult {
        const GLOBAL: i32 = 0;
        call!(self.cuStreamBeginCapture_v2(stream.0, GLOBAL))
    }

    /// Lets a stream capture, so that every thread may do what it likes beside it.
    pub fn begin_relaxed_capture_on(&self, stream: OwnStream) -> CUresult {
        const RELAXED: i32 = 2;
        call!(self.cuStreamBeginCapture_v2(stream.0, RELAXED))
    }

    pub fn end_capture_on(&self, stream: OwnStream) -> Answer<Graph> {
        let mut graph = CUgraph::NULL;
        let code = call!(self.cuStreamEndCapture(stream.0, &mut graph));
        Answer {
            code,
            out: Graph(graph),
        }
    }

    /// Lets the thread's own stream capture, into `graph` where the call takes one.
    pub fn begin_capture(&self, way: Begin, graph: Graph) -> CUresult {
        const THREAD_LOCAL: i32 = 1;
        let (own, none, mode) = (threads_stream(), CUstream::NULL, THREAD_LOCAL);
        let (after, edges) = (null(), null());
        match way {
            Begin::First => call!(self.cuStreamBeginCapture(own)),
            Begin::FirstOfThread => call!(self.cuStreamBeginCapture_ptsz(none)),
            Begin::Second => call!(self.cuStreamBeginCapture_v2(own, mode)),
            Begin::SecondOfThread => call!(self.cuStreamBeginCapture_v2_ptsz(none, mode)),
            Begin::ToGraph => {
                call!(self.cuStreamBeginCaptureToGraph(own, graph.0, after, edges, 0, mode))
            }
            Begin::ToGraphOfThread => {
                call!(self.cuStreamBeginCaptureToGraph_ptsz(none, graph.0, after, edges, 0, mode))
            }
            Begin::Again => {
                let (callback, data) = (null_mut(), null_mut());
                call!(self.cuStreamBeginRecaptureToGraph(own, mode, graph.0, callback, data))
            }
            Begin::AgainOfThread => {
                let (callback, data) = (null_mut(), null_mut());
                call!(self.cuStreamBeginRecaptureToGraph_ptsz(none, mode, graph.0, callback, data))
            }
        }
    }

    pub fn end_capture(&self) -> Answer<Graph> {
        self.end_capture_on(OwnStream(threads_stream()))
    }

    /// Allocates on the thread's own stream.
    pub fn allocate_ordered(&self, way: Ordered, pool: Pool, bytes: u64) -> Answer<CUdeviceptr> {
        let (own, none, bytes) = (threads_stream(), CUstream::NULL, bytes as usize);
        let mut out = super::UNTOUCHED;
        let at = &raw mut out;
        let code = match way {
            Ordered::Plain => call!(self.cuMemAllocAsync(at, bytes, own)),
            Ordered::PlainOfThread => call!(self.cuMemAllocAsync_ptsz(at, bytes, none)),
            Ordered::FromPool => call!(self.cuMemAllocFromPoolAsync(at, bytes, pool.0, own)),
            Ordered::FromPoolOfThread => {
                call!(self.cuMemAllocFromPoolAsync_ptsz(at, bytes, pool.0, none))
            }
        };
        Answer { code, out }
    }
}
