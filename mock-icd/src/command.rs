//! Command pools and buffers. What moves bytes, changes events or queries is kept and carried out at submission; drawing
//! and dispatching take the time that the profile says, and compute nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk::{self, Handle};
use mock_device::{Bytes, Direction, Engine, Grid, Nanos, Task};

use crate::binding::Member;
use crate::boundary::{Chain, In, List, New, OutList, Outcome};
use crate::instance::PhysicalDevice;
use crate::own;
use crate::pass::{Current, Targets};
use crate::shader::{Shader, WARP};
use crate::state::{Child, STATE};

pub struct CommandPool {
    device: u64,
}

impl Child for CommandPool {
    fn device(&self) -> u64 {
        self.device
    }
}

pub struct CommandBuffer {
    pub device: u64,
    pool: u64,
    /// Which members execute what is recorded next.
    mask: AtomicU32,
    bound: Mutex<Bound>,
    /// Inside a render pass: its attachments.
    pass: Mutex<Option<Current>>,
    steps: Mutex<Vec<Step>>,
    memory: Mutex<Recorded>,
}

/// What was recorded, as the driver keeps it on the device.
#[derive(Default)]
struct Recorded {
    bytes: u64,
    taken: u64,
    /// There was no room for some of it.
    full: bool,
}

/// Command buffers are given the device's memory in pieces of this.
const PIECE: u64 = 64 << 10;

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        self.forget();
    }
}

/// The pipelines that what is recorded next uses.
#[derive(Clone, Copy, Default)]
struct Bound {
    compute: Shader,
    graphics: Shader,
}

/// Which devices a queue puts its work on, and on which of their engines.
#[derive(Clone)]
pub struct Lane {
    pub devices: Vec<PhysicalDevice>,
    /// Neither graphics nor compute: the copy engines' own queue.
    pub transfer_only: bool,
}

impl Lane {
    pub fn members(&self) -> u32 {
        u32::MAX >> (32 - self.devices.len().clamp(1, 32))
    }
}

/// What a recorded command takes of an engine's time.
#[derive(Clone, Copy)]
pub enum Takes {
    Nothing,
    /// Bytes from memory of the device or the host, to memory of the device or the host.
    Copy {
        from: bool,
        to: bool,
        bytes: u64,
    },
    Fill {
        bytes: u64,
    },
    Kernel(Grid),
}

/// When and where a recorded command is carried out.
#[derive(Clone, Copy)]
pub struct Moment {
    pub on: Member,
    /// When it ends.
    pub at: Nanos,
}

type Act = Box<dyn Fn(Moment) + Send + Sync>;
type ActInPass = Box<dyn Fn(Moment, &Targets) + Send + Sync>;

struct Step {
    mask: u32,
    takes: Takes,
    act: What,
}

enum What {
    Act(Act),
    /// With the attachments of the render pass in which the command buffer is executed, where it begins none itself.
    InPass(Option<Arc<Targets>>, ActInPass),
    Nothing,
    Execute(Option<Arc<Targets>>, Vec<Arc<CommandBuffer>>),
}

impl Takes {
    fn task(self, lane: &Lane, member: Member) -> Option<Task> {
        let device = lane.devices.get(member.0 as usize)?;
        let profile = device.profile();
        let task = match self {
            Self::Nothing => return None,
            Self::Copy { from, to, bytes } => {
                let direction = match (from, to) {
                    (true, true) => Direction::DeviceToDevice,
                    (true, false) => Direction::DeviceToHost,
                    _ => Direction::HostToDevice,
                };
                profile.cost.copying(direction, false, Bytes(bytes))
            }
            // A queue for transfers alone has no other engine.
            Self::Fill { bytes } => Task {
                engine: Engine::Copy,
                ..profile.cost.filling(Bytes(bytes))
            },
            Self::Kernel(grid) => return Some(profile.cost.launching(&grid)),
        };
        let engine = if lane.transfer_only {
            task.engine
        } else {
            Engine::Compute
        };
        Some(Task { engine, ..task })
    }
}

impl CommandBuffer {
    /// Puts what was recorded on the device's engines, one after the other; answers when the last is done. `ends` are told
    /// when each step is done, in the order in which [`CommandBuffer::act`] asks for them: how long the mock takes for
    /// its bytes is no time of the device.
    pub fn schedule(&self, lane: &Lane, on: Member, ready: Nanos, ends: &mut Vec<Nanos>) -> Nanos {
        let mut here = ready;
        self.each(on, |step| {
            if let Some(task) = step.takes.task(lane, on)
                && let Some(device) = lane.devices.get(on.0 as usize)
            {
                here = device.world.carry(device.index, here, &task).end;
            }
            match &step.act {
                What::Act(_) | What::InPass(..) => ends.push(here),
                What::Execute(_, secondaries) => {
                    for secondary in secondaries {
                        here = secondary.schedule(lane, on, here, ends);
                    }
                }
                What::Nothing => {}
            }
        });
        here
    }

    /// Does what was recorded; in a render pass that another command buffer began, with its attachments.
    pub fn act(&self, on: Member, ends: &mut impl Iterator<Item = Nanos>, outer: Option<&Targets>) {
        self.each(on, |step| match &step.act {
            What::Act(act) => {
                if let Some(at) = ends.next() {
                    act(Moment { on, at });
                }
            }
            What::InPass(own, act) => {
                if let (Some(at), Some(targets)) = (ends.next(), own.as_deref().or(outer)) {
                    act(Moment { on, at }, targets);
                }
            }
            What::Execute(own, secondaries) => {
                for secondary in secondaries {
                    secondary.act(on, ends, own.as_deref().or(outer));
                }
            }
            What::Nothing => {}
        });
    }

    fn each(&self, on: Member, mut step: impl FnMut(&Step)) {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps
            .iter()
            .filter(|recorded| recorded.mask >> on.0 & 1 != 0)
            .for_each(&mut step);
    }

    fn bound(&self) -> Bound {
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_kernel(&self, shader: Shader, blocks: u64) -> Outcome {
        let device = STATE.devices.find(vk::Device::from_raw(self.device))?;
        let profile = device.physical.profile();
        let grid = Grid {
            blocks,
            sms: profile.sm_count,
            // Its registers and shared memory are known to the compiler that there is not.
            blocks_per_sm: profile.blocks_per_sm(shader.threads),
            instructions: shader.instructions.into(),
        };
        self.push(Takes::Kernel(grid), What::Nothing);
        Ok(())
    }

    /// What is recorded next has these attachments; those that it had before.
    pub fn set_pass(&self, pass: Option<Current>) -> Option<Current> {
        std::mem::replace(&mut *self.pass(), pass)
    }

    fn pass(&self) -> MutexGuard<'_, Option<Current>> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn targets(&self) -> Option<Arc<Targets>> {
        self.pass()
            .as_ref()
            .map(|current| Arc::clone(&current.targets))
    }

    /// Records what needs the attachments of the render pass.
    pub fn record_in_pass(
        &self,
        takes: Takes,
        act: impl Fn(Moment, &Targets) + Send + Sync + 'static,
    ) {
        self.push(takes, What::InPass(self.targets(), Box::new(act)));
    }

    fn clear(&self) {
        self.set_pass(None);
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = Bound::default();
        self.mask.store(u32::MAX, Ordering::Relaxed);
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        self.forget();
    }

    fn memory(&self) -> MutexGuard<'_, Recorded> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one command more.
    fn grow(&self) {
        let mut memory = self.memory();
        memory.bytes += own::COMMAND;
        if memory.bytes > memory.taken && !memory.full {
            let device = STATE.devices.find(vk::Device::from_raw(self.device));
            match device.and_then(|device| own::take(&device, PIECE)) {
                Ok(()) => memory.taken += PIECE,
                Err(_) => memory.full = true,
            }
        }
    }

    fn forget(&self) {
        let recorded = std::mem::take(&mut *self.memory());
        if recorded.taken > 0 {
            own::forget(self.device, recorded.taken);
        }
    }

    fn push(&self, takes: Takes, act: What) {
        self.grow();
        let mask = self.mask.load(Ordering::Relaxed);
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Step { mask, takes, act });
    }
}

pub fn create_pool(device: vk::Device, pool: New<vk::CommandPool>) -> Outcome {
    STATE.devices.find(device)?;
    pool.put(STATE.command_pools.insert(CommandPool {
        device: device.as_raw(),
    }));
    Ok(())
}

/// The pool's buffers go with it.
pub fn destroy_pool(pool: vk::CommandPool) -> Outcome {
    if pool.is_null() {
        return Ok(());
    }
    STATE
        .command_buffers
        .remove_where(|buffer| buffer.pool == pool.as_raw());
    STATE.command_pools.remove(pool).map(drop)
}

pub fn reset_pool(pool: vk::CommandPool) -> Outcome {
    STATE.command_pools.find(pool)?;
    STATE.command_buffers.each(|buffer| {
        if buffer.pool == pool.as_raw() {
            buffer.clear();
        }
    });
    Ok(())
}

/// Nothing is cached, so nothing is trimmed.
pub fn trim_pool(pool: vk::CommandPool) -> Outcome {
    STATE.command_pools.find(pool).map(drop)
}

pub fn allocate(
    info: In<vk::CommandBufferAllocateInfo<'_>>,
    buffers: OutList<vk::CommandBuffer>,
) -> Outcome {
    let info = info.demand()?;
    let device = STATE.command_pools.find(info.command_pool)?.device;
    let pool = info.command_pool.as_raw();
    buffers.put((0..info.command_buffer_count).map(|_| {
        let buffer = CommandBuffer {
            device,
            pool,
            mask: AtomicU32::new(u32::MAX),
            bound: Mutex::default(),
            pass: Mutex::default(),
            steps: Mutex::default(),
            memory: Mutex::default(),
        };
        vk::CommandBuffer::from_raw(STATE.command_buffers.insert(buffer))
    }));
    Ok(())
}

pub fn free(count: u32, buffers: List<vk::CommandBuffer>) -> Outcome {
    for buffer in buffers
        .of(count as usize)
        .iter()
        .filter(|buffer| !buffer.is_null())
    {
        STATE.command_buffers.remove(*buffer)?;
    }
    Ok(())
}

/// Begin and reset both forget what was recorded.
pub fn restart(buffer: vk::CommandBuffer) -> Outcome {
    STATE.command_buffers.find(buffer)?.clear();
    Ok(())
}

pub fn begin(buffer: vk::CommandBuffer, info: In<vk::CommandBufferBeginInfo<'_>>) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    buffer.clear();
    if let Some(group) =
        Chain::of(info.demand()?.p_next).find::<vk::DeviceGroupCommandBufferBeginInfo<'_>>()
    {
        buffer.mask.store(group.device_mask, Ordering::Relaxed);
    }
    Ok(())
}

/// Which members of a device group execute what is recorded from here on.
pub fn set_mask(buffer: vk::CommandBuffer, mask: u32) -> Outcome {
    STATE
        .command_buffers
        .find(buffer)?
        .mask
        .store(mask, Ordering::Relaxed);
    Ok(())
}

/// # Errors
/// VK_ERROR_OUT_OF_DEVICE_MEMORY where what was recorded found no room on the device.
pub fn end(buffer: vk::CommandBuffer) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    if buffer.memory().full {
        return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    }
    Ok(())
}

/// Every command without an effect that the mock models.
pub fn accept(buffer: vk::CommandBuffer) -> Outcome {
    STATE.command_buffers.find(buffer).map(drop)
}

pub fn record(
    buffer: vk::CommandBuffer,
    takes: Takes,
    act: impl Fn(Moment) + Send + Sync + 'static,
) -> Outcome {
    STATE
        .command_buffers
        .find(buffer)?
        .push(takes, What::Act(Box::new(act)));
    Ok(())
}

/// What is dispatched or drawn next.
pub fn bind(
    buffer: vk::CommandBuffer,
    point: vk::PipelineBindPoint,
    pipeline: vk::Pipeline,
) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    let shader = STATE.objects.find(pipeline)?.shader();
    let mut bound = buffer.bound.lock().unwrap_or_else(PoisonError::into_inner);
    match point {
        vk::PipelineBindPoint::COMPUTE => bound.compute = shader,
        _ => bound.graphics = shader,
    }
    Ok(())
}

/// A dispatch of so many workgroups: a kernel of as many blocks, at the cost that the CUDA mock gives it too. One whose
/// size lies in device memory counts as one group.
pub fn dispatch(buffer: vk::CommandBuffer, groups: [u32; 3]) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    let shader = buffer.bound().compute;
    buffer.push_kernel(shader, product(groups))
}

/// The estimate for draws: a kernel of one warp for every 32 vertices of all instances, which executes the vertex shader.
/// What is drawn is not rasterised, so nobody knows how many fragments there are: they cost nothing.
pub fn draw(buffer: vk::CommandBuffer, vertices: u32, instances: u32) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    let threads = u64::from(vertices) * u64::from(instances);
    let shader = Shader {
        threads: WARP,
        ..buffer.bound().graphics
    };
    buffer.push_kernel(shader, threads.div_ceil(WARP.into()))
}

/// So many draws whose vertices nobody has counted here, because their number lies in memory: a warp each.
pub fn draw_unknown(buffer: vk::CommandBuffer, draws: u32) -> Outcome {
    draw(buffer, WARP, draws)
}

/// Workgroups of a task or mesh shader.
pub fn draw_groups(buffer: vk::CommandBuffer, groups: [u32; 3]) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    let shader = buffer.bound().graphics;
    buffer.push_kernel(shader, product(groups))
}

fn product(sides: [u32; 3]) -> u64 {
    sides.iter().fold(1_u64, |product, side| {
        product.saturating_mul((*side).into())
    })
}

pub fn execute(
    buffer: vk::CommandBuffer,
    count: u32,
    secondaries: List<vk::CommandBuffer>,
) -> Outcome {
    let secondaries: Vec<Arc<CommandBuffer>> = secondaries
        .of(count as usize)
        .iter()
        .map(|secondary| STATE.command_buffers.find(*secondary))
        .collect::<Result<_, _>>()?;
    let buffer = STATE.command_buffers.find(buffer)?;
    buffer.push(Takes::Nothing, What::Execute(buffer.targets(), secondaries));
    Ok(())
}
