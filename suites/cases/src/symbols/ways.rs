//! Every route to device memory by every look-up: a case for each pair.
//!
//! A route is asked for far more than the budget, which must be refused as a full card refuses it, and then for a little, which must be
//! granted: so that no refusal is mistaken that has another reason.

use abi::cuda::CUresult;
use harness::{Bytes, Case, Failure, Session, ensure_eq};

use crate::clients::context;
use crate::cuda::functions;
use crate::cuda::modules::program;
use crate::ffi::cuda::{Add, Begin, Cuda, Graph, Image, Instantiate, Ordered, Run, Stream, Way};

const OK: CUresult = CUresult::SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

/// A way to device memory: what it is asked for in vain under 2 GiB, what it is granted, and how it is asked.
struct Route {
    context: Context,
    vain: u64,
    granted: u64,
    take: fn(&Cuda, u64) -> CUresult,
}

/// Where it is asked.
enum Context {
    Primary,
    /// Of the 32-bit calls' days: they work in no other.
    Narrow,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A row of a texture that a card may have, in bytes.
const ROW: u64 = 32_768 * 4;

fn keeps_the_budget(way: Way, route: &Route) -> Result<(), Failure> {
    let cuda = Cuda::found_by(way)?;
    ensure_eq!(cuda.init(), OK, "cuInit");
    match route.context {
        Context::Primary => {
            context(&cuda, 0)?;
        }
        Context::Narrow => ensure_eq!(cuda.create_context_v1(0).code, OK, "cuCtxCreate"),
    }
    let vain = (route.take)(&cuda, route.vain);
    ensure_eq!(vain, OUT_OF_MEMORY, "{} under 2 GiB", Bytes(route.vain));
    let granted = (route.take)(&cuda, route.granted);
    ensure_eq!(granted, OK, "{} under 2 GiB", Bytes(route.granted));
    Ok(())
}

/// By a pool that is asked by the stream's call.
fn from_pool(
    cuda: &Cuda,
    stream: Stream,
    pool: crate::ffi::cuda::Answer<crate::ffi::cuda::Pool>,
    bytes: u64,
) -> CUresult {
    match pool.code {
        OK => cuda.allocate_from_pool(stream, pool.out, bytes).code,
        code => code,
    }
}

/// A graph runs, whose node allocates.
fn by_node(cuda: &Cuda, add: Add, bytes: u64) -> CUresult {
    let graph = cuda.create_graph();
    if graph.code != OK {
        return graph.code;
    }
    match cuda.add_allocation(add, graph.out, None, 0, bytes).code {
        OK => runs(cuda, graph.out),
        code => code,
    }
}

fn runs(cuda: &Cuda, graph: Graph) -> CUresult {
    let exec = cuda.instantiate(Instantiate::WithFlags, graph);
    match exec.code {
        OK => cuda.run_graph(Run::Launch, exec.out),
        code => code,
    }
}

/// A graph runs that a stream captured while it allocated.
fn by_capture(cuda: &Cuda, bytes: u64) -> CUresult {
    let graph = cuda.create_graph().out;
    let pool = cuda.default_pool(0).out;
    let begun = cuda.begin_capture(Begin::Second, graph);
    let asked = cuda.allocate_ordered(Ordered::Plain, pool, bytes).code;
    let ended = cuda.end_capture();
    match [begun, asked, ended.code] {
        [OK, OK, OK] => runs(cuda, ended.out),
        codes => codes.into_iter().find(|code| *code != OK).unwrap_or(OK),
    }
}

/// Memory that is mapped, and whose handle is given back: the mapping holds it.
fn mapped(cuda: &Cuda, bytes: u64) -> CUresult {
    let memory = cuda.create_memory(0, bytes);
    if memory.code != OK {
        return memory.code;
    }
    let range = cuda.reserve_addresses(bytes);
    let codes = [
        range.code,
        cuda.map_memory(range.out, bytes, memory.out),
        cuda.release_memory(memory.out),
    ];
    codes.into_iter().find(|code| *code != OK).unwrap_or(OK)
}

/// A kernel of so many KiB of local memory a thread is launched.
fn local_memory(cuda: &Cuda, kibibytes: u64) -> CUresult {
    let module = cuda.load_module(&functions::image());
    let name = if kibibytes == 64 { "large" } else { "small" };
    if module.code != OK {
        return module.code;
    }
    let (function, memory) = (cuda.function(module.out, name), cuda.allocate(4096));
    match [function.code, memory.code]
        .into_iter()
        .find(|code| *code != OK)
    {
        Some(code) => code,
        None => cuda.launch_function(function.out, memory.out),
    }
}

macro_rules! ways {
    ($($route:ident [$($entry:literal),+] [$($defect:literal),+] $context:ident $vain:expr, $granted:expr, $take:expr;)*) => {
        /// Each route by each look-up.
        pub const CASES: &[Case] = &[$(
            ways!(@case $route, dlsym, Dlsym, [$($entry),+], [$($defect),+], $context, $vain, $granted, $take, []),
            ways!(@case $route, dlsym_of_all, DlsymDefault, [$($entry),+], [$($defect),+], $context, $vain, $granted, $take, []),
            ways!(@case $route, dlsym_of_the_next, DlsymNext, [$($entry),+], [$($defect),+], $context, $vain, $granted, $take, []),
            ways!(@case $route, proc_address, ProcAddress, [$($entry),+], [$($defect),+], $context, $vain, $granted, $take, ["cuGetProcAddress_v2"]),
            ways!(@case $route, the_older_proc_address, OlderProcAddress, [$($entry),+], [$($defect),+], $context, $vain, $granted, $take, ["cuGetProcAddress"]),
        )*];
    };
    (@case $route:ident, $name:ident, $way:ident, [$($entry:literal),+], [$($defect:literal),+], $context:ident, $vain:expr, $granted:expr, $take:expr, [$($call:literal)?]) => {
        Case {
            name: concat!(stringify!($route), "_by_", stringify!($name)),
            module: module_path!(),
            promise: concat!(
                "What ", stringify!($route), " is asked for beyond the budget is refused as a full card refuses it, and a little is granted, where its functions were found by ",
                stringify!($name), "."
            ),
            kind: harness::case::Kind::Budget,
            defects: &[$($defect),+],
            entry_points: &[$($entry,)+ $($call)?],
            needs: &[$($entry,)+ $($call)?],
            budget: "0=2GiB",
            body: |_: &mut Session| {
                keeps_the_budget(Way::$way, &Route { context: Context::$context, vain: $vain, granted: $granted, take: $take })
            },
            ..Case::BLANK
        }
    };
}

ways! {
    plain_memory ["cuMemAlloc_v2"] ["C1", "R8"] Primary 4 * GIB, MIB, |cuda, bytes| cuda.allocate(bytes).code;
    unsuffixed_memory ["cuCtxCreate", "cuMemAlloc"] ["R7"] Narrow 3 * GIB, MIB, |cuda, bytes| cuda.allocate_v1(bytes as u32).code;
    pitched_memory ["cuMemAllocPitch_v2"] ["R7"] Primary 4 * GIB, MIB, |cuda, bytes| cuda.allocate_pitch(1 << 10, bytes >> 10).code;
    unsuffixed_pitched_memory ["cuCtxCreate", "cuMemAllocPitch"] ["R7"] Narrow 3 * GIB, MIB, |cuda, bytes| cuda.allocate_pitch_v1(1 << 10, (bytes >> 10) as u32).code;
    managed_memory ["cuMemAllocManaged"] ["R15"] Primary 4 * GIB, MIB, |cuda, bytes| cuda.allocate_managed(bytes).code;
    ordered_memory ["cuMemAllocAsync"] ["R1"] Primary 4 * GIB, MIB, |cuda, bytes| cuda.allocate_async(Stream::Legacy, bytes).code;
    ordered_memory_of_the_thread ["cuMemAllocAsync_ptsz"] ["R1", "R4"] Primary 4 * GIB, MIB, |cuda, bytes| cuda.allocate_async(Stream::PerThread, bytes).code;
    the_default_pool ["cuDeviceGetDefaultMemPool", "cuMemAllocFromPoolAsync"] ["R1"] Primary 4 * GIB, MIB,
        |cuda, bytes| from_pool(cuda, Stream::Legacy, cuda.default_pool(0), bytes);
    the_default_pool_of_the_thread ["cuDeviceGetDefaultMemPool", "cuMemAllocFromPoolAsync_ptsz"] ["R1", "R4"] Primary 4 * GIB, MIB,
        |cuda, bytes| from_pool(cuda, Stream::PerThread, cuda.default_pool(0), bytes);
    an_own_pool ["cuMemPoolCreate", "cuMemAllocFromPoolAsync"] ["R1"] Primary 4 * GIB, MIB, |cuda, bytes| from_pool(cuda, Stream::Legacy, cuda.create_pool(0), bytes);
    a_managed_pool ["cuMemGetDefaultMemPool", "cuMemAllocFromPoolAsync"] ["R1", "R15"] Primary 4 * GIB, MIB,
        |cuda, bytes| from_pool(cuda, Stream::Legacy, cuda.managed_pool(0), bytes);
    an_array ["cuArrayCreate_v2"] ["R2"] Primary 4 * GIB, 4 * MIB, |cuda, bytes| cuda.create_array(32_768, bytes / ROW).code;
    a_layered_array ["cuArray3DCreate_v2"] ["R2"] Primary 4 * GIB, 4 * MIB, |cuda, bytes| cuda.create_array_3d(1024, 512, bytes / 4 / 1024 / 512).code;
    a_mipmapped_array ["cuMipmappedArrayCreate"] ["R2"] Primary 4 * GIB, 4 * MIB, |cuda, bytes| cuda.create_mipmap(32_768, bytes / ROW, 1).code;
    physical_memory ["cuMemCreate"] ["R5"] Primary 4 * GIB, 2 * MIB, |cuda, bytes| cuda.create_memory(0, bytes).code;
    mapped_memory ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemRelease"] ["R5"] Primary 4 * GIB, 2 * MIB, mapped;
    a_graphs_node ["cuGraphAddMemAllocNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch"] ["R3"] Primary 4 * GIB, MIB, |cuda, bytes| by_node(cuda, Add::Own, bytes);
    a_graphs_node_of_any_kind ["cuGraphAddNode_v2", "cuGraphInstantiateWithFlags", "cuGraphLaunch"] ["R3"] Primary 4 * GIB, MIB, |cuda, bytes| by_node(cuda, Add::AnySecond, bytes);
    a_captured_allocation ["cuStreamBeginCapture_v2", "cuMemAllocAsync", "cuGraphInstantiateWithFlags", "cuGraphLaunch"] ["R3"] Primary 4 * GIB, MIB, by_capture;
    the_malloc_heap ["cuCtxSetLimit"] ["R6"] Primary 4 * GIB, 16 * MIB, |cuda, bytes| cuda.set_limit(2, bytes);
    the_stack ["cuCtxSetLimit"] ["R14"] Primary 128 << 10, 2 << 10, |cuda, bytes| cuda.set_limit(0, bytes);
    a_modules_variables ["cuModuleLoadData"] ["R13"] Primary 4 * GIB, MIB, |cuda, bytes| cuda.load_module(&Image::ptx(&program(Bytes(bytes)))).code;
    local_memory ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"] ["R12"] Primary 64, 4, local_memory;
}
