//! The union of all nodes' parameters.

use abi::cuda::*;

use crate::node::General;

/// The parameters of a node by its kind; `None` where the number is no kind or a reserved word is set.
pub fn node_params(params: &CUgraphNodeParams) -> Option<General> {
    if params.reserved0 != [0; 3] || params.reserved2 != 0 {
        return None;
    }
    let anon = &params.anon;
    // SAFETY: every member of the union is numbers, addresses and optional functions, and the caller filled in the one
    // that the kind names, over zeros.
    unsafe {
        Some(match params.type_ {
            0 => General::Kernel(std::mem::transmute::<
                CUDA_KERNEL_NODE_PARAMS_v3,
                CUDA_KERNEL_NODE_PARAMS,
            >(anon.kernel)),
            1 => General::Copy(anon.memcpy.copyParams, anon.memcpy.copyCtx),
            2 => {
                let fill = anon.memset;
                let params = CUDA_MEMSET_NODE_PARAMS {
                    dst: fill.dst,
                    pitch: fill.pitch,
                    value: fill.value,
                    elementSize: fill.elementSize,
                    width: fill.width,
                    height: fill.height,
                };
                General::Fill(params, fill.ctx)
            }
            3 => General::Host(CUDA_HOST_NODE_PARAMS {
                fn_: anon.host.fn_,
                userData: anon.host.userData,
            }),
            4 => General::Child(anon.graph.graph, anon.graph.ownership),
            5 => General::Empty,
            6 => General::Wait(anon.eventWait.event),
            7 => General::Record(anon.eventRecord.event),
            10 => General::Alloc(std::mem::transmute::<
                CUDA_MEM_ALLOC_NODE_PARAMS_v2,
                CUDA_MEM_ALLOC_NODE_PARAMS,
            >(anon.alloc)),
            11 => General::Free(anon.free.dptr),
            12 => General::MemOps(std::mem::transmute::<
                CUDA_BATCH_MEM_OP_NODE_PARAMS_v2,
                CUDA_BATCH_MEM_OP_NODE_PARAMS,
            >(anon.memOp)),
            13 => General::Conditional(anon.conditional),
            8 | 9 => General::Unsupported,
            _ => return None,
        })
    }
}

/// The same fields under the name that the union uses.
pub fn alloc_v2(params: CUDA_MEM_ALLOC_NODE_PARAMS) -> CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
        poolProps: params.poolProps,
        accessDescs: params.accessDescs,
        accessDescCount: params.accessDescCount,
        bytesize: params.bytesize,
        dptr: params.dptr,
    }
}
