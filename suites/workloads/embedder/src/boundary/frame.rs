//! One recording at a time, with its own pools, so that frames need no lock between them.

use std::sync::Arc;
use std::time::Duration;

use ash::vk::{self, Handle};

use super::tables::{Object, Tables};
use crate::error::{Error, Result};

/// Most storage buffers of a kernel: what every device can bind is 4, what a kernel of this crate needs fewer.
pub(crate) const BUFFERS: usize = 4;

/// A buffer as a descriptor has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Binding {
    pub buffer: vk::Buffer,
    pub offset: u64,
    pub range: u64,
}

pub(crate) struct Frame {
    commands: vk::CommandBuffer,
    fence: Object<vk::Fence>,
    sets: Object<vk::DescriptorPool>,
    pool: Object<vk::CommandPool>,
    tables: Arc<Tables>,
}

/// What a submission and the wait for it need: used while the frame is under way, which its owner sees to.
pub(crate) struct Ticket {
    commands: vk::CommandBuffer,
    fence: vk::Fence,
    tables: Arc<Tables>,
}

impl Frame {
    pub fn new(tables: &Arc<Tables>) -> Result<Self> {
        let (pool, sets, fence) = (
            tables.command_pool()?,
            tables.descriptor_pool()?,
            tables.fence()?,
        );
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool.raw())
            .command_buffer_count(1);
        // SAFETY: a live pool, which nobody else uses.
        let made = unsafe { tables.raw.allocate_command_buffers(&info) };
        let made = made.map_err(Error::of("vkAllocateCommandBuffers"))?;
        // The loader looks into it: a driver that wrote none ends the process there.
        let commands = made.first().copied().filter(|made| !made.is_null());
        Ok(Self {
            commands: commands.ok_or(Error::Null {
                which: "what vkAllocateCommandBuffers wrote",
            })?,
            fence,
            sets,
            pool,
            tables: Arc::clone(tables),
        })
    }

    /// Ready for the next recording. What it recorded before is done.
    pub fn reset(&mut self) -> Result<()> {
        let raw = &self.tables.raw;
        // SAFETY: nothing of the frame is in a queue.
        unsafe {
            raw.reset_fences(&[self.fence.raw()])
                .map_err(Error::of("vkResetFences"))?;
            raw.reset_descriptor_pool(self.sets.raw(), vk::DescriptorPoolResetFlags::empty())
                .map_err(Error::of("vkResetDescriptorPool"))?;
            raw.reset_command_pool(self.pool.raw(), vk::CommandPoolResetFlags::empty())
                .map_err(Error::of("vkResetCommandPool"))
        }
    }

    pub fn ticket(&self) -> Ticket {
        Ticket {
            commands: self.commands,
            fence: self.fence.raw(),
            tables: Arc::clone(&self.tables),
        }
    }

    /// Between barriers: what was submitted to the queue before is done and seen, and what is recorded is seen by all that follows.
    fn record(&mut self, body: impl FnOnce(&ash::Device, vk::CommandBuffer)) -> Result<()> {
        let raw = &self.tables.raw;
        let once = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let wrote = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let used = vk::AccessFlags::SHADER_READ
            | vk::AccessFlags::TRANSFER_READ
            | vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_WRITE;
        let before = [vk::MemoryBarrier::default()
            .src_access_mask(wrote)
            .dst_access_mask(used)];
        let after = [vk::MemoryBarrier::default()
            .src_access_mask(wrote)
            .dst_access_mask(used | vk::AccessFlags::HOST_READ)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: a command buffer of this frame, recorded by nobody else; what `body` names lives until the frame is done.
        unsafe {
            raw.begin_command_buffer(self.commands, &once)
                .map_err(Error::of("vkBeginCommandBuffer"))?;
            raw.cmd_pipeline_barrier(self.commands, work, work, none, &before, &[], &[]);
            body(raw, self.commands);
            let next = work | vk::PipelineStageFlags::HOST;
            raw.cmd_pipeline_barrier(self.commands, work, next, none, &after, &[], &[]);
            raw.end_command_buffer(self.commands)
                .map_err(Error::of("vkEndCommandBuffer"))
        }
    }

    /// The set's layout has as many storage buffers as there are bindings, the pipeline's as many constants.
    pub fn record_dispatch(
        &mut self,
        pipeline: &Object<vk::Pipeline>,
        layout: &Object<vk::PipelineLayout>,
        set: &Object<vk::DescriptorSetLayout>,
        bindings: &[Binding],
        constants: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        let set = self.bound(set, bindings)?;
        let (pipeline, layout) = (pipeline.raw(), layout.raw());
        self.record(|raw, commands| {
            let point = vk::PipelineBindPoint::COMPUTE;
            // SAFETY: by `record`; the counts agree by the promise above.
            unsafe {
                raw.cmd_bind_pipeline(commands, point, pipeline);
                if let Some(set) = set {
                    raw.cmd_bind_descriptor_sets(commands, point, layout, 0, &[set], &[]);
                }
                if !constants.is_empty() {
                    let stage = vk::ShaderStageFlags::COMPUTE;
                    raw.cmd_push_constants(commands, layout, stage, 0, constants);
                }
                raw.cmd_dispatch(commands, groups[0], groups[1], groups[2]);
            }
        })
    }

    /// A set with these bindings; none for a kernel that has no buffers, since a write of no descriptors is none.
    fn bound(
        &mut self,
        layout: &Object<vk::DescriptorSetLayout>,
        bindings: &[Binding],
    ) -> Result<Option<vk::DescriptorSet>> {
        if bindings.is_empty() {
            return Ok(None);
        }
        let layouts = [layout.raw()];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.sets.raw())
            .set_layouts(&layouts);
        // SAFETY: the pool has room for one set, and was reset.
        let sets = unsafe { self.tables.raw.allocate_descriptor_sets(&info) };
        let sets = sets.map_err(Error::of("vkAllocateDescriptorSets"))?;
        let set = sets.first().copied().unwrap_or_default();
        let mut infos = [vk::DescriptorBufferInfo::default(); BUFFERS];
        for (info, binding) in infos.iter_mut().zip(bindings) {
            *info = vk::DescriptorBufferInfo::default()
                .buffer(binding.buffer)
                .offset(binding.offset)
                .range(binding.range);
        }
        let writes = [vk::WriteDescriptorSet::default()
            .dst_set(set)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&infos[..bindings.len()])];
        // SAFETY: consecutive bindings of one descriptor each, as the specification lets one write go on.
        unsafe { self.tables.raw.update_descriptor_sets(&writes, &[]) };
        Ok(Some(set))
    }

    pub fn record_copy(
        &mut self,
        from: vk::Buffer,
        to: vk::Buffer,
        region: vk::BufferCopy,
    ) -> Result<()> {
        self.record(|raw, commands| {
            // SAFETY: by `record`; the ranges were checked and do not overlap.
            unsafe { raw.cmd_copy_buffer(commands, from, to, &[region]) };
        })
    }
}

impl Ticket {
    /// The caller holds the context.
    pub fn submit(&self) -> Result<()> {
        let commands = [self.commands];
        let submits = [vk::SubmitInfo::default().command_buffers(&commands)];
        let queue = self.tables.handles().queue;
        // SAFETY: recorded and submitted once; the queue is the holder's.
        unsafe { self.tables.raw.queue_submit(queue, &submits, self.fence) }
            .map_err(Error::of("vkQueueSubmit"))
    }

    /// Until the submission is done, or for so long: whether it is done.
    pub fn wait(&self, patience: Duration) -> Result<bool> {
        let nanoseconds = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let fences = [self.fence];
        // SAFETY: the fence is the frame's, which outlives the wait.
        match unsafe { self.tables.raw.wait_for_fences(&fences, true, nanoseconds) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(code) => Err(Error::of("vkWaitForFences")(code)),
        }
    }
}
