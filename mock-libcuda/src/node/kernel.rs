//! Kernel nodes and their attributes.

use super::*;

fn from_v1(old: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: old.func,
        gridDimX: old.gridDimX,
        gridDimY: old.gridDimY,
        gridDimZ: old.gridDimZ,
        blockDimX: old.blockDimX,
        blockDimY: old.blockDimY,
        blockDimZ: old.blockDimZ,
        sharedMemBytes: old.sharedMemBytes,
        kernelParams: old.kernelParams,
        extra: old.extra,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

pub(super) fn kernel(
    process: &mut Process,
    driver: &Driver,
    mut params: CUDA_KERNEL_NODE_PARAMS,
) -> Result<Payload, CUresult> {
    // A function runs in its own context, whatever is named (H200, 580.159.04: *a graph's context* in `fixtures/oracle/held-580.txt`).
    let context = match process.own_function(params.func) {
        Ok(function) => process.modules.functions[&function].context,
        Err(_) => context_of(process, params.ctx)?,
    };
    if params.func.is_null() {
        let function = process.function_of_kernel(driver, params.kern, context)?;
        params.func = crate::function::handle_of(function);
    } else {
        params.kern = CUkernel::NULL;
    }
    params.ctx = crate::context::handle_of(context);
    let cost = launch::of_node(process, driver, &params)?;
    Ok(Payload::Kernel(KernelNode::new(
        Kept(params),
        cost,
        context,
    )))
}

pub fn add_kernel(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    die_without_context();
    Place::plain(node, graph, after, count)
        .add(|process, driver, _, _| kernel(process, driver, params))
}

pub fn add_kernel_v1(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    die_without_context();
    let params = from_v1(params.required()?);
    Place::plain(node, graph, after, count)
        .add(|process, driver, _, _| kernel(process, driver, params))
}

/// Adding a kernel's node the driver follows the current context without looking (H200, 580.159.04).
fn die_without_context() {
    if driver::refuse_without_context() == Err(CUresult::ERROR_INVALID_CONTEXT) {
        crash();
    }
}

fn kernel_of(payload: &Payload) -> Result<&KernelNode, CUresult> {
    match payload {
        Payload::Kernel(kernel) => Ok(kernel),
        _ => Err(INVALID),
    }
}

pub fn get_kernel(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    with(node, |_, payload| {
        params.set(kernel_of(payload)?.params.0);
        Ok(())
    })
}

pub fn get_kernel_v1(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    let params = params.required()?;
    with(node, |_, payload| {
        let new = kernel_of(payload)?.params.0;
        params.set(CUDA_KERNEL_NODE_PARAMS_v1 {
            func: new.func,
            gridDimX: new.gridDimX,
            gridDimY: new.gridDimY,
            gridDimZ: new.gridDimZ,
            blockDimX: new.blockDimX,
            blockDimY: new.blockDimY,
            blockDimZ: new.blockDimZ,
            sharedMemBytes: new.sharedMemBytes,
            kernelParams: new.kernelParams,
            extra: new.extra,
        });
        Ok(())
    })
}

pub fn set_kernel(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) -> Answer {
    let params = params.required()?;
    change(node, |process, driver, _| kernel(process, driver, params))
}

pub fn set_kernel_v1(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    let params = from_v1(params.required()?);
    change(node, |process, driver, _| kernel(process, driver, params))
}

pub fn set_exec_kernel(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let params = params.required()?;
    change_exec(exec, node, |process, driver| {
        kernel(process, driver, params)
    })
}

pub fn set_exec_kernel_v1(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    let params = from_v1(params.required()?);
    change_exec(exec, node, |process, driver| {
        kernel(process, driver, params)
    })
}

/// CU_LAUNCH_ATTRIBUTE_… that a kernel node has.
const KERNEL_ATTRIBUTES: &[CUlaunchAttributeID] = &[1, 2, 4, 8, 9, 10, 11, 13, 14];

pub fn get_kernel_attribute(
    node: CUgraphNode,
    attr: CUlaunchAttributeID,
    value: Out<CUkernelNodeAttrValue_v1>,
) -> Answer {
    let value = value.required()?;
    with(node, |_, payload| {
        let kernel = kernel_of(payload)?;
        if !KERNEL_ATTRIBUTES.contains(&attr) {
            return Err(INVALID);
        }
        let kept = kernel.attributes.get(&attr).map(|kept| kept.0);
        value.set(kept.unwrap_or_else(CUkernelNodeAttrValue_v1::zeroed));
        Ok(())
    })
}

pub fn set_kernel_attribute(
    node: CUgraphNode,
    attr: CUlaunchAttributeID,
    value: In<CUkernelNodeAttrValue_v1>,
) -> Answer {
    let value = value.required()?;
    change(node, |_, _, old| {
        let mut kernel = kernel_of(old)?.clone();
        if !KERNEL_ATTRIBUTES.contains(&attr) {
            return Err(INVALID);
        }
        kernel.attributes.insert(attr, Kept(value));
        Ok(Payload::Kernel(kernel))
    })
}

pub fn copy_kernel_attributes(to: CUgraphNode, from: CUgraphNode) -> Answer {
    let mut attributes = Default::default();
    with(from, |_, payload| {
        attributes = kernel_of(payload)?.attributes.clone();
        Ok(())
    })?;
    change(to, |_, _, old| {
        let mut kernel = kernel_of(old)?.clone();
        kernel.attributes = attributes;
        Ok(Payload::Kernel(kernel))
    })
}
