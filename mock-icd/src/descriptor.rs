//! Descriptor pools and sets. What a set points to is not kept: nothing reads through it.

use std::sync::Mutex;
use std::sync::PoisonError;

use ash::vk::{self, Handle};

use crate::boundary::{ChainOut, In, List, New, Out, OutList, Outcome};
use crate::state::{Child, STATE};

pub struct DescriptorPool {
    device: u64,
    sets_left: Mutex<u32>,
    sets: u32,
}

pub struct DescriptorSet {
    device: u64,
    pool: u64,
}

impl Child for DescriptorPool {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Child for DescriptorSet {
    fn device(&self) -> u64 {
        self.device
    }
}

pub fn create_pool(
    device: vk::Device,
    info: In<vk::DescriptorPoolCreateInfo<'_>>,
    pool: New<vk::DescriptorPool>,
) -> Outcome {
    STATE.devices.find(device)?;
    let sets = info.demand()?.max_sets;
    pool.put(STATE.descriptor_pools.insert(DescriptorPool {
        device: device.as_raw(),
        sets_left: Mutex::new(sets),
        sets,
    }));
    Ok(())
}

/// The pool's sets go with it.
pub fn destroy_pool(pool: vk::DescriptorPool) -> Outcome {
    if pool.is_null() {
        return Ok(());
    }
    STATE
        .descriptor_sets
        .remove_where(|set| set.pool == pool.as_raw());
    STATE.descriptor_pools.remove(pool).map(drop)
}

pub fn reset_pool(pool: vk::DescriptorPool) -> Outcome {
    STATE
        .descriptor_sets
        .remove_where(|set| set.pool == pool.as_raw());
    let pool = STATE.descriptor_pools.find(pool)?;
    *pool
        .sets_left
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = pool.sets;
    Ok(())
}

/// # Errors
/// VK_ERROR_OUT_OF_POOL_MEMORY, with every handle NULL, beyond maxSets.
pub fn allocate(
    info: In<vk::DescriptorSetAllocateInfo<'_>>,
    sets: OutList<vk::DescriptorSet>,
) -> Outcome {
    let info = info.demand()?;
    let count = info.descriptor_set_count;
    let pool = STATE.descriptor_pools.find(info.descriptor_pool)?;
    let mut left = pool
        .sets_left
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(rest) = left.checked_sub(count) else {
        sets.put((0..count).map(|_| vk::DescriptorSet::null()));
        return Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY);
    };
    *left = rest;
    sets.put((0..count).map(|_| {
        let set = DescriptorSet {
            device: pool.device,
            pool: info.descriptor_pool.as_raw(),
        };
        vk::DescriptorSet::from_raw(STATE.descriptor_sets.insert(set))
    }));
    Ok(())
}

pub fn free(pool: vk::DescriptorPool, count: u32, sets: List<vk::DescriptorSet>) -> Outcome {
    let pool = STATE.descriptor_pools.find(pool)?;
    for set in sets.of(count as usize).iter().filter(|set| !set.is_null()) {
        STATE.descriptor_sets.remove(*set)?;
        *pool
            .sets_left
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
    }
    Ok(())
}

/// How long an array of variable length may be.
const VARIABLE: u32 = 1 << 20;

/// Any layout within maxPerSetDescriptors.
pub fn layout_support(
    info: In<vk::DescriptorSetLayoutCreateInfo<'_>>,
    support: Out<vk::DescriptorSetLayoutSupport<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let bindings = List::field(info.p_bindings);
    let total: u64 = bindings
        .of(info.binding_count as usize)
        .iter()
        .map(|binding| u64::from(binding.descriptor_count))
        .sum();
    support.edit(|support| {
        support.supported = (total <= u64::from(u32::MAX)).into();
        ChainOut::of(support.p_next)
            .edit::<vk::DescriptorSetVariableDescriptorCountLayoutSupport<'_>>(|variable| {
                variable.max_variable_descriptor_count = VARIABLE;
            });
    });
    Ok(())
}
