//! Command pools and buffers. What moves bytes, changes events or queries is kept and carried out at submission; drawing
//! and dispatching take the time that the profile says, and compute nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk::{self, Handle};
use mock_device::{Bytes, Direction, Engine, Nanos};

use crate::binding::Member;
use crate::boundary::{Chain, In, List, New, OutList, Outcome};
use crate::instance::PhysicalDevice;
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
    steps: Mutex<Vec<Step>>,
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
    Kernel {
        waves: u64,
    },
}

/// When and where a recorded command is carried out.
#[derive(Clone, Copy)]
pub struct Moment {
    pub on: Member,
    /// When it ends.
    pub at: Nanos,
}

type Act = Box<dyn Fn(Moment) + Send + Sync>;

struct Step {
    mask: u32,
    takes: Takes,
    act: What,
}

enum What {
    Act(Act),
    Nothing,
    Execute(Vec<Arc<CommandBuffer>>),
}

impl Takes {
    fn cost(self, lane: &Lane, member: Member) -> Option<(Engine, Nanos)> {
        let device = lane.devices.get(member.0 as usize)?;
        let cost = &device.profile().cost;
        let (engine, cost) = match self {
            Self::Nothing => return None,
            Self::Copy { from, to, bytes } => {
                let direction = match (from, to) {
                    (true, true) => Direction::DeviceToDevice,
                    (true, false) => Direction::DeviceToHost,
                    _ => Direction::HostToDevice,
                };
                let engine = if from && !to {
                    Engine::CopyOut
                } else {
                    Engine::Copy
                };
                (engine, cost.copy(direction, Bytes(bytes)))
            }
            Self::Fill { bytes } => (Engine::Copy, cost.memset(Bytes(bytes))),
            Self::Kernel { waves } => return Some((Engine::Compute, cost.kernel(waves, 0))),
        };
        Some((
            if lane.transfer_only {
                engine
            } else {
                Engine::Compute
            },
            cost,
        ))
    }
}

impl CommandBuffer {
    /// Carries out what was recorded, one after the other; answers when the last is done.
    pub fn execute(&self, lane: &Lane, on: Member, ready: Nanos) -> Nanos {
        let mut here = ready;
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        for step in steps.iter().filter(|step| step.mask >> on.0 & 1 != 0) {
            if let Some((engine, cost)) = step.takes.cost(lane, on)
                && let Some(device) = lane.devices.get(on.0 as usize)
            {
                here = device.world.submit(device.index, engine, here, cost).end;
            }
            match &step.act {
                What::Act(act) => act(Moment { on, at: here }),
                What::Execute(secondaries) => {
                    for secondary in secondaries {
                        here = secondary.execute(lane, on, here);
                    }
                }
                What::Nothing => {}
            }
        }
        here
    }

    fn clear(&self) {
        self.mask.store(u32::MAX, Ordering::Relaxed);
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn push(&self, takes: Takes, act: What) {
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
            steps: Mutex::default(),
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

/// Ending, and every command without an effect that the mock models.
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

/// A dispatch of so many workgroups: as many waves as the device needs for them at its fullest.
pub fn dispatch(buffer: vk::CommandBuffer, groups: [u32; 3]) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    let device = STATE.devices.find(buffer.device)?;
    let groups = groups.iter().fold(1_u64, |product, side| {
        product.saturating_mul((*side).into())
    });
    let profile = device.physical.profile();
    let at_once = u64::from(profile.sm_count) * GROUPS_PER_SM;
    let waves = groups.div_ceil(at_once.max(1));
    buffer.push(Takes::Kernel { waves }, What::Nothing);
    Ok(())
}

/// How many workgroups an SM holds, their size being unknown here.
const GROUPS_PER_SM: u64 = 16;

/// A draw, or a dispatch whose size lies in device memory: one wave.
pub fn draw(buffer: vk::CommandBuffer) -> Outcome {
    STATE
        .command_buffers
        .find(buffer)?
        .push(Takes::Kernel { waves: 1 }, What::Nothing);
    Ok(())
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
    STATE
        .command_buffers
        .find(buffer)?
        .push(Takes::Nothing, What::Execute(secondaries));
    Ok(())
}
