//! Command pools and buffers. What changes bytes, events or queries is kept and carried out at submission; drawing and
//! dispatching are accepted and compute nothing.

use std::sync::{Arc, Mutex, PoisonError};

use ash::vk::{self, Handle};

use crate::boundary::{In, List, New, OutList, Outcome};
use crate::effect::Effect;
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
    effects: Mutex<Vec<Effect>>,
}

impl CommandBuffer {
    pub fn execute(&self) {
        self.effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .for_each(Effect::carry_out);
    }

    fn clear(&self) {
        self.effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
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
            effects: Mutex::default(),
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

/// Ending, and every command without an effect that the mock models.
pub fn accept(buffer: vk::CommandBuffer) -> Outcome {
    STATE.command_buffers.find(buffer).map(drop)
}

pub fn record(buffer: vk::CommandBuffer, effect: Effect) -> Outcome {
    let buffer = STATE.command_buffers.find(buffer)?;
    buffer
        .effects
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(effect);
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
    record(buffer, Effect::Execute(secondaries))
}
