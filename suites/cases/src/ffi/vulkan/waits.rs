//! Threads that wait for work, and others that give it.

use super::work::Program;
use super::{Arc, Code, Inner, Instance, PhysicalDevice, vk};

/// A device with two queues and a timeline. Its calls may come from several threads as the specification has it: one queue each.
pub struct Timeline {
    raw: ash::Device,
    queues: [vk::Queue; 2],
    semaphore: vk::Semaphore,
    fence: vk::Fence,
    pool: vk::CommandPool,
    program: Program,
    /// Of a few dispatches.
    buffer: vk::CommandBuffer,
    /// Destroyed after the device.
    _instance: Arc<Inner>,
}

impl Instance {
    /// Of a client of Vulkan 1.3. `None` where the first family has a single queue.
    pub fn timeline(&self, physical: PhysicalDevice) -> Result<Option<Timeline>, Code> {
        let instance = &self.inner.raw;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0; 2])];
        let mut features = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .push_next(&mut features);
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let timeline = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the physical device is this instance's, its first family has the queues; every structure outlives its call.
        unsafe {
            let families = instance.get_physical_device_queue_family_properties(physical.0);
            if families.first().is_none_or(|family| family.queue_count < 2) {
                return Ok(None);
            }
            let raw = instance.create_device(physical.0, &create, None)?;
            let pool = raw.create_command_pool(&vk::CommandPoolCreateInfo::default(), None)?;
            let buffers = vk::CommandBufferAllocateInfo::default()
                .command_pool(pool)
                .command_buffer_count(1);
            let buffer = raw.allocate_command_buffers(&buffers)?[0];
            let often = vk::CommandBufferUsageFlags::SIMULTANEOUS_USE;
            raw.begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default().flags(often))?;
            let program = Program::new(&raw)?;
            program.record(&raw, buffer, 4);
            raw.end_command_buffer(buffer)?;
            Ok(Some(Timeline {
                program,
                pool,
                buffer,
                queues: [0, 1].map(|index| raw.get_device_queue(0, index)),
                semaphore: raw.create_semaphore(&timeline, None)?,
                fence: raw.create_fence(&vk::FenceCreateInfo::default(), None)?,
                raw,
                _instance: Arc::clone(&self.inner),
            }))
        }
    }
}

impl Timeline {
    /// vkWaitSemaphores, for ever.
    pub fn wait(&self, value: u64) -> Result<(), Code> {
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        // SAFETY: the semaphore is this device's.
        Ok(unsafe { self.raw.wait_semaphores(&info, u64::MAX) }?)
    }

    /// vkWaitForFences, for ever; the fence is as new then.
    pub fn wait_for_fence(&self) -> Result<(), Code> {
        let fences = [self.fence];
        // SAFETY: the fence is this device's, and nobody else waits for it.
        unsafe {
            self.raw.wait_for_fences(&fences, true, u64::MAX)?;
            Ok(self.raw.reset_fences(&fences)?)
        }
    }

    /// vkSignalSemaphore.
    pub fn signal(&self, value: u64) -> Result<(), Code> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.semaphore)
            .value(value);
        // SAFETY: the semaphore is this device's, and the value larger than all before.
        Ok(unsafe { self.raw.signal_semaphore(&info) }?)
    }

    /// vkQueueSubmit to the first queue, of nothing that waits for a value and signals the fence.
    pub fn submit_fence(&self, value: u64) -> Result<(), Code> {
        self.submit_behind(value, &[])
    }

    /// The same of a command buffer.
    pub fn submit_work_behind(&self, value: u64) -> Result<(), Code> {
        self.submit_behind(value, &[self.buffer])
    }

    /// The same of nothing, which signals nothing.
    pub fn submit_wait(&self, value: u64) -> Result<(), Code> {
        self.submit_first(value, &[], vk::Fence::null())
    }

    /// vkQueueSubmit to the first queue, of a command buffer that waits for nothing and signals the fence.
    pub fn submit_work(&self) -> Result<(), Code> {
        let buffers = [self.buffer];
        let info = [vk::SubmitInfo::default().command_buffers(&buffers)];
        // SAFETY: one thread uses this queue.
        Ok(unsafe { self.raw.queue_submit(self.queues[0], &info, self.fence) }?)
    }

    fn submit_behind(&self, value: u64, buffers: &[vk::CommandBuffer]) -> Result<(), Code> {
        self.submit_first(value, buffers, self.fence)
    }

    fn submit_first(
        &self,
        value: u64,
        buffers: &[vk::CommandBuffer],
        fence: vk::Fence,
    ) -> Result<(), Code> {
        let (semaphores, values) = ([self.semaphore], [value]);
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values);
        let info = [vk::SubmitInfo::default()
            .command_buffers(buffers)
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .push_next(&mut timeline)];
        // SAFETY: one thread uses this queue.
        Ok(unsafe { self.raw.queue_submit(self.queues[0], &info, fence) }?)
    }

    /// vkQueueSubmit to the second queue, of nothing that signals a value.
    pub fn submit_signal(&self, value: u64) -> Result<(), Code> {
        self.submit_to_signal(value, &[])
    }

    /// The same of a command buffer.
    pub fn submit_work_to_signal(&self, value: u64) -> Result<(), Code> {
        self.submit_to_signal(value, &[self.buffer])
    }

    fn submit_to_signal(&self, value: u64, buffers: &[vk::CommandBuffer]) -> Result<(), Code> {
        let (semaphores, values) = ([self.semaphore], [value]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = [vk::SubmitInfo::default()
            .command_buffers(buffers)
            .signal_semaphores(&semaphores)
            .push_next(&mut timeline)];
        // SAFETY: one thread uses this queue.
        Ok(unsafe {
            self.raw
                .queue_submit(self.queues[1], &info, vk::Fence::null())
        }?)
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: nobody else holds the device; its objects go once and before it, when it is done with them.
        unsafe {
            let _lost = self.raw.device_wait_idle();
            self.raw.destroy_command_pool(self.pool, None);
            self.program.end(&self.raw);
            self.raw.destroy_fence(self.fence, None);
            self.raw.destroy_semaphore(self.semaphore, None);
            self.raw.destroy_device(None);
        }
    }
}
