//! The application's vkGetInstanceProcAddr: the loader's, but for a few functions of devices, before which it stands. What
//! the runtime asks for is seen there over every driver, the mock and a card alike.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::vk;

/// A storage buffer as a descriptor has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub buffer: vk::Buffer,
    pub offset: u64,
    pub range: u64,
}

/// Where a buffer was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub memory: vk::DeviceMemory,
    pub start: u64,
    /// What the driver says that it needs.
    pub bytes: u64,
    pub alignment: u64,
}

/// What was recorded, as far as the order of dispatches is about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// From stages to stages, from accesses to accesses, of all memory: Vulkan's bits.
    Barrier {
        stages: [u32; 2],
        accesses: [u32; 2],
    },
    Dispatch,
}

impl Recorded {
    /// Whether what shaders and copies wrote before is seen by the shaders that follow, which do not write over what is still written.
    pub fn shows_shaders(&self) -> bool {
        self.shows(
            vk::PipelineStageFlags::COMPUTE_SHADER,
            vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE,
        )
    }

    /// Whether the host sees it.
    pub fn shows_the_host(&self) -> bool {
        self.shows(vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ)
    }

    fn shows(&self, next: vk::PipelineStageFlags, sees: vk::AccessFlags) -> bool {
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let wrote = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let has = |bits: u32, wanted: u32| bits & wanted == wanted;
        match self {
            Self::Barrier { stages, accesses } => {
                has(stages[0], work.as_raw())
                    && has(stages[1], next.as_raw())
                    && has(accesses[0], wrote.as_raw())
                    && has(accesses[1], sees.as_raw())
            }
            Self::Dispatch => false,
        }
    }
}

/// What was asked for since [`Seen::begin`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Names looked up, of instances and devices.
    pub look_ups: usize,
    pub modules_made: usize,
    pub modules_destroyed: usize,
    pub devices_destroyed: usize,
    /// In the order of their writing.
    pub bound: Vec<Bound>,
    /// Push constants of each dispatch.
    pub constants: Vec<Vec<u32>>,
    /// Barriers and dispatches in the order of their recording.
    pub recorded: Vec<Recorded>,
    pub submissions: usize,
    /// For fences.
    pub waits: usize,
    /// By vkAllocateMemory, with success.
    pub memory_made: usize,
    pub memory_freed: usize,
    pub placed: Vec<Placed>,
    /// Calls of all functions before which the witness stands.
    pub calls: usize,
}

#[derive(Default)]
struct State {
    seen: Seen,
    get: Option<vk::PFN_vkGetInstanceProcAddr>,
    /// Buffers are said to fit no type of memory.
    no_types: bool,
    /// By name.
    next: BTreeMap<&'static CStr, unsafe extern "system" fn()>,
}

static STATE: Mutex<State> = Mutex::new(State {
    seen: Seen {
        look_ups: 0,
        modules_made: 0,
        modules_destroyed: 0,
        devices_destroyed: 0,
        bound: Vec::new(),
        constants: Vec::new(),
        recorded: Vec::new(),
        submissions: 0,
        waits: 0,
        memory_made: 0,
        memory_freed: 0,
        placed: Vec::new(),
        calls: 0,
    },
    get: None,
    no_types: false,
    next: BTreeMap::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    /// Forgets all until now.
    pub fn begin() {
        state().seen = Self::default();
    }

    /// From now on buffers are said to fit no type of memory, or what the driver says.
    pub fn say_no_types(no_types: bool) {
        state().no_types = no_types;
    }

    pub fn now() -> Self {
        state().seen.clone()
    }
}

/// Stands before that loader.
pub fn before(get: vk::PFN_vkGetInstanceProcAddr) -> vk::PFN_vkGetInstanceProcAddr {
    state().get = Some(get);
    look_up
}

/// # Safety
/// As vkGetInstanceProcAddr's.
unsafe extern "system" fn look_up(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let mut state = state();
    state.seen.look_ups += 1;
    let get = state.get?;
    // SAFETY: the caller's promise.
    let (found, name) = unsafe { (get(instance, name)?, CStr::from_ptr(name)) };
    if name != c"vkGetDeviceProcAddr" {
        return Some(found);
    }
    state.next.insert(c"vkGetDeviceProcAddr", found);
    // SAFETY: a function of this type is handed out as one without.
    Some(unsafe { erased(look_up_of_device as vk::PFN_vkGetDeviceProcAddr) })
}

/// # Safety
/// `F` is a function pointer.
unsafe fn erased<F: Copy>(function: F) -> unsafe extern "system" fn() {
    const { assert!(size_of::<F>() == size_of::<unsafe extern "system" fn()>()) };
    // SAFETY: the caller's promise; the sizes are compared above.
    unsafe { std::mem::transmute_copy(&function) }
}

/// # Safety
/// `F` is the type of the function of that name.
unsafe fn next<F: Copy>(name: &'static CStr, count: impl FnOnce(&mut Seen)) -> F {
    const { assert!(size_of::<F>() == size_of::<unsafe extern "system" fn()>()) };
    let mut state = state();
    state.seen.calls += 1;
    count(&mut state.seen);
    let found = state.next.get(name).copied();
    // Who calls had the function by the look-up that noted the next one.
    let found = found.expect("looked up before it is called");
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute_copy(&found) }
}

/// # Safety
/// As vkGetDeviceProcAddr's.
unsafe extern "system" fn look_up_of_device(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let get: vk::PFN_vkGetDeviceProcAddr =
        // SAFETY: noted under this name.
        unsafe { next(c"vkGetDeviceProcAddr", |seen| {
            seen.look_ups += 1;
            seen.calls -= 1;
        }) };
    // SAFETY: the caller's promise.
    let (found, name) = unsafe { (get(device, name)?, CStr::from_ptr(name)) };
    // SAFETY: each is of its own type.
    let ours = unsafe {
        [
            (
                c"vkCreateShaderModule",
                erased(create_module as vk::PFN_vkCreateShaderModule),
            ),
            (
                c"vkDestroyShaderModule",
                erased(destroy_module as vk::PFN_vkDestroyShaderModule),
            ),
            (
                c"vkDestroyDevice",
                erased(destroy_device as vk::PFN_vkDestroyDevice),
            ),
            (
                c"vkUpdateDescriptorSets",
                erased(update_sets as vk::PFN_vkUpdateDescriptorSets),
            ),
            (
                c"vkCmdPushConstants",
                erased(push_constants as vk::PFN_vkCmdPushConstants),
            ),
            (
                c"vkCmdPipelineBarrier",
                erased(barrier as vk::PFN_vkCmdPipelineBarrier),
            ),
            (c"vkCmdDispatch", erased(dispatch as vk::PFN_vkCmdDispatch)),
            (c"vkWaitForFences", erased(wait as vk::PFN_vkWaitForFences)),
            (c"vkQueueSubmit", erased(submit as vk::PFN_vkQueueSubmit)),
            (
                c"vkAllocateMemory",
                erased(allocate_memory as vk::PFN_vkAllocateMemory),
            ),
            (c"vkFreeMemory", erased(free_memory as vk::PFN_vkFreeMemory)),
            (
                c"vkGetBufferMemoryRequirements",
                erased(requirements as vk::PFN_vkGetBufferMemoryRequirements),
            ),
            (
                c"vkBindBufferMemory",
                erased(bind as vk::PFN_vkBindBufferMemory),
            ),
        ]
    };
    let Some((known, ours)) = ours.into_iter().find(|(known, _)| *known == name) else {
        return Some(found);
    };
    state().next.insert(known, found);
    Some(ours)
}

/// # Safety
/// As vkCreateShaderModule's; the same of the following.
unsafe extern "system" fn create_module(
    device: vk::Device,
    info: *const vk::ShaderModuleCreateInfo<'_>,
    host: *const vk::AllocationCallbacks<'_>,
    module: *mut vk::ShaderModule,
) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe {
        let create: vk::PFN_vkCreateShaderModule =
            next(c"vkCreateShaderModule", |seen| seen.modules_made += 1);
        create(device, info, host, module)
    }
}

unsafe extern "system" fn destroy_module(
    device: vk::Device,
    module: vk::ShaderModule,
    host: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let destroy: vk::PFN_vkDestroyShaderModule =
            next(c"vkDestroyShaderModule", |seen| seen.modules_destroyed += 1);
        destroy(device, module, host);
    }
}

unsafe extern "system" fn destroy_device(
    device: vk::Device,
    host: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let destroy: vk::PFN_vkDestroyDevice =
            next(c"vkDestroyDevice", |seen| seen.devices_destroyed += 1);
        destroy(device, host);
    }
}

unsafe extern "system" fn update_sets(
    device: vk::Device,
    count: u32,
    writes: *const vk::WriteDescriptorSet<'_>,
    copies: u32,
    copied: *const vk::CopyDescriptorSet<'_>,
) {
    // SAFETY: the caller's promise: so many writes, each of so many buffers.
    unsafe {
        let writes_slice = std::slice::from_raw_parts(writes, count as usize);
        let bound = writes_slice.iter().flat_map(|write| {
            std::slice::from_raw_parts(write.p_buffer_info, write.descriptor_count as usize)
        });
        let bound: Vec<Bound> = bound
            .map(|info| Bound {
                buffer: info.buffer,
                offset: info.offset,
                range: info.range,
            })
            .collect();
        let update: vk::PFN_vkUpdateDescriptorSets =
            next(c"vkUpdateDescriptorSets", |seen| seen.bound.extend(bound));
        update(device, count, writes, copies, copied);
    }
}

unsafe extern "system" fn push_constants(
    commands: vk::CommandBuffer,
    layout: vk::PipelineLayout,
    stages: vk::ShaderStageFlags,
    offset: u32,
    size: u32,
    values: *const std::ffi::c_void,
) {
    // SAFETY: the caller's promise: so many bytes, whole words.
    unsafe {
        let bytes = std::slice::from_raw_parts(values.cast::<u8>(), size as usize);
        let words = bytes.chunks_exact(4).map(|word| {
            let mut value = [0; 4];
            value.copy_from_slice(word);
            u32::from_ne_bytes(value)
        });
        let words: Vec<u32> = words.collect();
        let push: vk::PFN_vkCmdPushConstants =
            next(c"vkCmdPushConstants", |seen| seen.constants.push(words));
        push(commands, layout, stages, offset, size, values);
    }
}

unsafe extern "system" fn barrier(
    commands: vk::CommandBuffer,
    from: vk::PipelineStageFlags,
    to: vk::PipelineStageFlags,
    how: vk::DependencyFlags,
    count: u32,
    barriers: *const vk::MemoryBarrier<'_>,
    buffer_count: u32,
    buffers: *const vk::BufferMemoryBarrier<'_>,
    image_count: u32,
    images: *const vk::ImageMemoryBarrier<'_>,
) {
    // SAFETY: the caller's promise: so many barriers.
    unsafe {
        let all = match count {
            0 => &[],
            count => std::slice::from_raw_parts(barriers, count as usize),
        };
        let seen_now: Vec<_> = all
            .iter()
            .map(|one| Recorded::Barrier {
                stages: [from.as_raw(), to.as_raw()],
                accesses: [one.src_access_mask.as_raw(), one.dst_access_mask.as_raw()],
            })
            .collect();
        let record: vk::PFN_vkCmdPipelineBarrier = next(c"vkCmdPipelineBarrier", |seen| {
            seen.recorded.extend(seen_now)
        });
        record(
            commands,
            from,
            to,
            how,
            count,
            barriers,
            buffer_count,
            buffers,
            image_count,
            images,
        );
    }
}

unsafe extern "system" fn dispatch(commands: vk::CommandBuffer, x: u32, y: u32, z: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let record: vk::PFN_vkCmdDispatch = next(c"vkCmdDispatch", |seen| {
            seen.recorded.push(Recorded::Dispatch);
        });
        record(commands, x, y, z);
    }
}

unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe {
        let submit: vk::PFN_vkQueueSubmit = next(c"vkQueueSubmit", |seen| seen.submissions += 1);
        submit(queue, count, submits, fence)
    }
}

unsafe extern "system" fn wait(
    device: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    timeout: u64,
) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe {
        let wait: vk::PFN_vkWaitForFences = next(c"vkWaitForFences", |seen| seen.waits += 1);
        wait(device, count, fences, all, timeout)
    }
}

unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    host: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let free: vk::PFN_vkFreeMemory = next(c"vkFreeMemory", |seen| seen.memory_freed += 1);
        free(device, memory, host);
    }
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    host: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe {
        let allocate: vk::PFN_vkAllocateMemory = next(c"vkAllocateMemory", |_| {});
        let code = allocate(device, info, host, memory);
        state().seen.memory_made += usize::from(code == vk::Result::SUCCESS);
        code
    }
}

unsafe extern "system" fn requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    needs: *mut vk::MemoryRequirements,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let ask: vk::PFN_vkGetBufferMemoryRequirements =
            next(c"vkGetBufferMemoryRequirements", |_| {});
        ask(device, buffer, needs);
        if state().no_types {
            (*needs).memory_type_bits = 0;
        }
    }
}

unsafe extern "system" fn bind(
    device: vk::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    start: u64,
) -> vk::Result {
    let mut needs = vk::MemoryRequirements::default();
    // SAFETY: the caller's promise: the buffer is this device's.
    unsafe {
        requirements(device, buffer, &mut needs);
        let placed = Placed {
            memory,
            start,
            bytes: needs.size,
            alignment: needs.alignment,
        };
        let bind: vk::PFN_vkBindBufferMemory =
            next(c"vkBindBufferMemory", |seen| seen.placed.push(placed));
        bind(device, buffer, memory, start)
    }
}
