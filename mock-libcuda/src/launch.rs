//! Launches: the driver's checks of geometry, parameters and residency, in its order. What passes goes to its stream.

use abi::cuda::*;

use crate::boundary::{Answer, Host, In, Out};
use crate::driver::{self, Driver};
use crate::function::Function;
use crate::image::{Attributes, Kernel};
use crate::occupancy::Sm;
use crate::process::{ContextId, Process};
use crate::stream;
use crate::{capture, context};

/// What a launch asks of a device: all that its stream and the profile's model of time need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// SMs that it may run on.
    pub sms: u32,
    pub blocks: u64,
    pub threads_per_block: u32,
    /// How many of its blocks one SM holds at a time; at least 1.
    pub blocks_per_sm: u32,
    /// Instructions of its code, each counted once.
    pub instructions: u32,
    /// Bytes of its parameters.
    pub parameters: u32,
    /// What its context has to have for it.
    pub needs: Attributes,
    /// How the launch ends, where that is known to be an error.
    pub fault: Option<CUresult>,
}

/// One launch, as any of the entry points asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub function: CUfunction,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: CUstream,
    pub cooperative: bool,
    /// Sides of a cluster, where the launch itself names them.
    pub cluster: Option<[u32; 3]>,
}

const PORTABLE_CLUSTER: u32 = 8;
const LARGEST_CLUSTER: u32 = 16;

/// The largest cluster that a function's settings allow.
pub fn cluster_bound(function: &Function, sm: &Sm) -> u32 {
    if sm.major < 9 {
        return 1;
    }
    let by_settings = match function.settings.non_portable {
        true => LARGEST_CLUSTER,
        false => PORTABLE_CLUSTER,
    };
    by_settings.min(function.kernel().bounds.max_cluster.unwrap_or(u32::MAX))
}

/// SMs of each GPC. An H200's were told by its counts of clusters: eight of its SMs hold clusters of two at most.
fn gpcs(sm: &Sm) -> Vec<u32> {
    const H200: (u32, [u32; 8]) = (132, [18, 18, 16, 16, 16, 16, 16, 8]);
    const GPC: u32 = 16;
    match sm.count {
        count if count == H200.0 => H200.1.to_vec(),
        count => vec![GPC; (count / GPC) as usize],
    }
}

/// Clusters of `size` blocks that are resident at once. A cluster stays within one GPC.
pub fn clusters(sm: &Sm, size: u32, resident: u32) -> u32 {
    match size {
        0 => 0,
        1 | 2 => sm.count * resident / size,
        size => {
            let wide = gpcs(sm).into_iter().filter(|sms| *sms >= size);
            wide.map(|sms| sms * resident / size).sum()
        }
    }
}

mod attribute {
    pub const IGNORE: i32 = 0;
    pub const ACCESS_POLICY_WINDOW: i32 = 1;
    pub const COOPERATIVE: i32 = 2;
    pub const SYNCHRONIZATION_POLICY: i32 = 3;
    pub const CLUSTER_DIMENSION: i32 = 4;
    pub const CLUSTER_POLICY: i32 = 5;
    pub const EVENT: i32 = 7;
    pub const PREFERRED_CLUSTER: i32 = 11;
    pub const COMPLETION_EVENT: i32 = 12;
    pub const UPDATABLE: i32 = 13;
    pub const SHARED_CARVEOUT: i32 = 14;
    pub const LAST: i32 = 16;
}

impl Request {
    pub fn threads(&self) -> u64 {
        self.block
            .iter()
            .fold(1u64, |product, side| product.saturating_mul((*side).into()))
    }

    fn blocks(&self) -> u64 {
        self.grid
            .iter()
            .fold(1u64, |product, side| product.saturating_mul((*side).into()))
    }

    /// A configuration with its attributes; INVALID_VALUE for attributes that are no launch's.
    pub fn of_config(config: &CUlaunchConfig, function: CUfunction) -> Result<Request, CUresult> {
        /// `CUlaunchAttribute` as words: the id, padding, the value.
        type Words = [u32; 18];
        let mut request = Request {
            function,
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes,
            stream: config.hStream,
            cooperative: false,
            cluster: None,
        };
        if config.numAttrs == 0 {
            return Ok(request);
        }
        let list = Host(config.attrs as u64).out::<Words>().required()?;
        for at in 0..config.numAttrs as usize {
            let words = list.nth(at).get();
            let value = &words[2..];
            match words[0] as i32 {
                attribute::IGNORE | attribute::ACCESS_POLICY_WINDOW => {}
                attribute::COOPERATIVE => request.cooperative = value[0] != 0,
                attribute::CLUSTER_DIMENSION => {
                    let sides = [value[0], value[1], value[2]];
                    request.cluster = (sides != [0; 3]).then_some(sides);
                }
                attribute::CLUSTER_POLICY if value[0] > 2 => {
                    return Err(CUresult::ERROR_INVALID_VALUE);
                }
                attribute::SYNCHRONIZATION_POLICY => return Err(CUresult::ERROR_INVALID_VALUE),
                attribute::EVENT | attribute::COMPLETION_EVENT if value[..2] == [0, 0] => {
                    return Err(CUresult::ERROR_INVALID_HANDLE);
                }
                attribute::PREFERRED_CLUSTER if value[..3] != [0; 3] && value[..3].contains(&0) => {
                    return Err(CUresult::ERROR_INVALID_CLUSTER_SIZE);
                }
                attribute::UPDATABLE => return Err(CUresult::ERROR_NOT_SUPPORTED),
                // One above the carve-out is no attribute of a launch.
                number if number == attribute::SHARED_CARVEOUT + 1 => {
                    return Err(CUresult::ERROR_INVALID_VALUE);
                }
                0..=attribute::LAST => {}
                _ => return Err(CUresult::ERROR_INVALID_VALUE),
            }
        }
        Ok(request)
    }

    /// The launch's cluster: its own, else the function's.
    pub fn cluster_of(&self, function: &Function) -> Option<[u32; 3]> {
        let settings = function.settings.cluster.map(|side| side as u32);
        self.cluster.or((settings != [0; 3]).then_some(settings))
    }

    fn check_geometry(&self, sm: &Sm) -> Answer {
        const MOST: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
        const MOST_BLOCK: [u32; 3] = [1024, 1024, 64];
        let within = |sides: &[u32; 3], most: [u32; 3]| {
            sides
                .iter()
                .zip(most)
                .all(|(side, most)| (1..=most).contains(side))
        };
        if within(&self.grid, MOST)
            && within(&self.block, MOST_BLOCK)
            && self.threads() <= sm.threads_per_block.into()
        {
            Ok(())
        } else {
            Err(CUresult::ERROR_INVALID_VALUE)
        }
    }

    fn check_function(&self, function: &Function, sm: &Sm) -> Answer {
        let bounds = &function.kernel().bounds;
        let threads = self.threads() as u32;
        // Of a cooperative launch too much shared memory is a matter of residency.
        if !self.cooperative && self.shared > function.settings.max_dynamic
            || bounds.max_threads.is_some_and(|most| threads > most)
            || bounds
                .required
                .is_some_and(|required| required != self.block)
        {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        if threads > sm.threads_by_registers(function.kernel().attributes.registers) {
            return Err(CUresult::ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        Ok(())
    }

    fn check_cluster(&self, function: &Function, sm: &Sm) -> Answer {
        let Some(sides) = self.cluster_of(function) else {
            return Ok(());
        };
        let fixed = function.kernel().bounds.cluster;
        if fixed.is_some_and(|fixed| fixed != sides) {
            return Err(CUresult::ERROR_INVALID_CLUSTER_SIZE);
        }
        let size = sides
            .iter()
            .try_fold(1u32, |product, side| product.checked_mul(*side))
            .unwrap_or(0);
        let divides = sides
            .iter()
            .zip(self.grid)
            .all(|(side, grid)| *side != 0 && grid % side == 0);
        if !divides || size > cluster_bound(function, sm) {
            return Err(CUresult::ERROR_INVALID_CLUSTER_SIZE);
        }
        Ok(())
    }

    /// As a node of a graph shows it.
    fn node(
        &self,
        ctx: CUcontext,
        params: &Out<*mut c_void>,
        extra: &Out<*mut c_void>,
    ) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared,
            kernelParams: params.raw(),
            extra: extra.raw(),
            kern: CUkernel::NULL,
            ctx,
        }
    }

    /// Everything but parameters and stream.
    fn check(&self, function: &Function, sm: &Sm) -> Result<KernelCost, CUresult> {
        self.check_function(function, sm)?;
        self.check_cluster(function, sm)?;
        let resident = sm.resident_of(function, self.threads() as u32, self.shared.into());
        if self.cooperative && self.blocks() > u64::from(resident) * u64::from(sm.count) {
            return Err(CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(KernelCost {
            sms: sm.count,
            blocks: self.blocks(),
            threads_per_block: self.threads() as u32,
            blocks_per_sm: resident.max(1),
            instructions: function.kernel().instructions.max(1),
            parameters: function.kernel().param_bytes(),
            needs: function.kernel().attributes,
            fault: None,
        })
    }
}

/// What a kernel node of a graph costs, if its launch would be taken.
pub fn of_node(
    process: &mut Process,
    driver: &Driver,
    node: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<KernelCost, CUresult> {
    let function = match node.func.is_null() {
        true => CUfunction(node.kern.0),
        false => node.func,
    };
    let request = Request {
        function,
        grid: [node.gridDimX, node.gridDimY, node.gridDimZ],
        block: [node.blockDimX, node.blockDimY, node.blockDimZ],
        shared: node.sharedMemBytes,
        stream: CUstream::NULL,
        cooperative: false,
        cluster: None,
    };
    let id = process.function_id(driver, function)?;
    let sm = process.sm_of(driver, id);
    request.check_geometry(&sm)?;
    let function = &process.modules.functions[&id];
    let kernel = function.kernel();
    check_params(
        kernel,
        &Host(node.kernelParams as u64).out(),
        &Host(node.extra as u64).out(),
    )?;
    let mut cost = request.check(function, &sm)?;
    cost.fault = fault_of(kernel, &Host(node.kernelParams as u64).out());
    Ok(cost)
}

/// How a launch with these parameters is known to end. Of parameters in one buffer nothing is known.
fn fault_of(kernel: &Kernel, params: &Out<*mut c_void>) -> Option<CUresult> {
    let wide = |at: usize| {
        let size = kernel.params.get(at)?.size;
        let address = params.slot().filter(|_| size == 8)?.nth(at).get();
        Some(Host(address as u64).out::<u64>().slot()?.get())
    };
    kernel.hazards.iter().find_map(|hazard| hazard.fault(wide))
}

/// The parameters by one of two ways: an address for each, or a buffer for all.
fn check_params(kernel: &Kernel, params: &Out<*mut c_void>, extra: &Out<*mut c_void>) -> Answer {
    let invalid = Err(CUresult::ERROR_INVALID_VALUE);
    match (params.slot(), extra.slot()) {
        (Some(_), Some(_)) => invalid,
        (Some(slots), None) => {
            let given = (0..kernel.params.len()).all(|at| !slots.nth(at).get().is_null());
            if given { Ok(()) } else { invalid }
        }
        (None, Some(list)) => check_extra(kernel, &list),
        (None, None) if kernel.params.is_empty() => Ok(()),
        (None, None) => invalid,
    }
}

/// `CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END`
fn check_extra(kernel: &Kernel, list: &crate::boundary::Slot<*mut c_void>) -> Answer {
    const END: u64 = 0;
    const POINTER: u64 = 1;
    const SIZE: u64 = 2;
    /// No list has more.
    const MOST: usize = 16;
    let (mut buffer, mut size) = (0u64, 0usize);
    for at in (0..MOST).step_by(2) {
        let key = list.nth(at).get() as u64;
        if key == END {
            break;
        }
        let value = list.nth(at + 1).get() as u64;
        match key {
            POINTER => buffer = value,
            SIZE => size = Host(value).out::<usize>().required()?.get(),
            _ => return Err(CUresult::ERROR_INVALID_VALUE),
        }
    }
    let wanted = kernel.param_bytes() as usize;
    if size < wanted || (wanted > 0 && buffer == 0) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn launch(request: &Request, params: Out<*mut c_void>, extra: Out<*mut c_void>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if request.function.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    // A stream that the client made has a context of its own.
    let current = match process.current() {
        Err(CUresult::ERROR_INVALID_CONTEXT) => process.stream_context(request.stream)?,
        known => known?,
    };
    let id = process.function_id(driver, request.function)?;
    let mut sm = process.sm_of(driver, id);
    if let Some(count) = process.partition_of(request.stream) {
        sm.count = count;
    }
    let function = process.modules.functions[&id].clone();
    let checked = request
        .check_geometry(&sm)
        .and_then(|()| check_params(function.kernel(), &params, &extra))
        .and_then(|()| request.check(&function, &sm));
    // A launch that is refused breaks the capture that it would have been part of.
    let mut cost = checked.inspect_err(|_| capture::refused(&mut process, request.stream))?;
    cost.fault = fault_of(function.kernel(), &params);
    if function.context != current || process.stream_context(request.stream)? != current {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    reserve(&mut process, driver, current, request.stream, &cost)?;
    let node = request.node(context::handle_of(current), &params, &extra);
    stream::enqueue_kernel(&mut process, driver, request.stream, &cost, node)
}

/// What is captured takes nothing yet (H200, 580.159.04: *local memory in graphs* in `fixtures/oracle/held-580.txt`).
fn reserve(
    process: &mut Process,
    driver: &Driver,
    context: ContextId,
    stream: CUstream,
    cost: &KernelCost,
) -> Answer {
    let line = process.line_of(stream)?;
    match capture::takes(process, stream, line)? {
        true => Ok(()),
        false => process.reserve_for_launch(driver, context, &cost.needs),
    }
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn kernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Answer {
    let request = Request {
        function,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared,
        stream,
        cooperative: false,
        cluster: None,
    };
    launch(&request, params, extra)
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn cooperative(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: Out<*mut c_void>,
) -> Answer {
    let request = Request {
        function,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared,
        stream,
        cooperative: true,
        cluster: None,
    };
    launch(&request, params, Host(0).out())
}

pub fn with_config(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Answer {
    let config = config.required()?;
    driver::get()?;
    if function.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    launch(&Request::of_config(&config, function)?, params, extra)
}

/// One cooperative launch per device; the devices' launches are not tied together in time.
pub fn multi_device(list: Out<CUDA_LAUNCH_PARAMS>, count: c_uint, flags: c_uint) -> Answer {
    /// CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC and …_NO_POST_…
    const FLAGS: c_uint = 3;
    let driver = driver::get()?;
    let list = list.required()?;
    if count == 0 || count as usize > driver.count() || flags > FLAGS {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    for at in 0..count as usize {
        let one = list.nth(at).get();
        let request = Request {
            function: one.function,
            grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
            block: [one.blockDimX, one.blockDimY, one.blockDimZ],
            shared: one.sharedMemBytes,
            stream: one.hStream,
            cooperative: true,
            cluster: None,
        };
        launch(&request, Host(one.kernelParams as u64).out(), Host(0).out())?;
    }
    Ok(())
}

/// A launch of the first generation: geometry and parameters are the function's.
fn legacy(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_function(function)?;
    let current = process.current()?;
    let sm = process.sm_of(driver, id);
    let known = process.modules.functions[&id].clone();
    let grid = [width, height, 1].map(|side| u32::try_from(side).unwrap_or(0));
    let request = Request {
        function,
        grid,
        block: known.legacy.block,
        shared: known.legacy.shared,
        stream,
        cooperative: false,
        cluster: None,
    };
    request.check_geometry(&sm)?;
    let cost = request.check(&known, &sm)?;
    if known.context != current || process.stream_context(stream)? != current {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    reserve(&mut process, driver, current, stream, &cost)?;
    let (none, no_extra) = (Host(0).out(), Host(0).out());
    let node = request.node(context::handle_of(current), &none, &no_extra);
    stream::enqueue_kernel(&mut process, driver, stream, &cost, node)
}

pub fn one_block(function: CUfunction) -> Answer {
    legacy(function, 1, 1, CUstream::NULL)
}

pub fn grid(function: CUfunction, width: c_int, height: c_int) -> Answer {
    legacy(function, width, height, CUstream::NULL)
}

pub fn grid_async(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Answer {
    legacy(function, width, height, stream)
}
