//! Giving a device work, by every command that does.

use super::{Arc, Code, Inner, Instance, PhysicalDevice, vk};

/// By which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Submit,
    Submit2,
    Submit2Khr,
    /// vkQueueSubmit, to a queue that vkGetDeviceQueue2 gave out.
    SubmitToSecond,
    /// By vkQueueSubmit and vkQueueSubmit2, behind a semaphore that a batch of nothing before it signals.
    Behind,
    Behind2,
}

impl Route {
    pub const ALL: [Route; 6] = [
        Route::Submit,
        Route::Submit2,
        Route::Submit2Khr,
        Route::SubmitToSecond,
        Route::Behind,
        Route::Behind2,
    ];

    pub fn named(name: &str) -> Option<Route> {
        Route::ALL
            .into_iter()
            .find(|route| format!("{route:?}") == name)
    }
}

/// Additions in the shader: a simulated device takes its time for each.
const ADDITIONS: u32 = 6_000;
const DISPATCHES: u32 = 4;

/// A device with work for its queue: a command buffer of dispatches, and the same between two timestamps.
pub struct Worker {
    raw: ash::Device,
    khr: ash::khr::synchronization2::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    queries: vk::QueryPool,
    program: Program,
    work: vk::CommandBuffer,
    timed: vk::CommandBuffer,
    semaphore: vk::Semaphore,
    /// What the driver has.
    pub routes: Vec<Route>,
    /// Nanoseconds per tick.
    period: f32,
    /// Destroyed after the device.
    _instance: Arc<Inner>,
}

/// SPIR-V of a compute shader that adds.
fn shader() -> Vec<u32> {
    let ids = 6 + ADDITIONS + 1;
    let mut words = vec![0x0723_0203, 0x0001_0000, 0, ids, 0];
    let mut put = |code: u32, operands: &[u32]| {
        words.push((operands.len() as u32 + 1) << 16 | code);
        words.extend_from_slice(operands);
    };
    let (function, void, kind, number, one, label) = (1, 2, 3, 4, 5, 6);
    put(17, &[1]); // Shader
    put(14, &[0, 1]); // Logical GLSL450
    put(15, &[5, function, u32::from_le_bytes(*b"main"), 0]); // GLCompute
    put(16, &[function, 17, 1, 1, 1]); // LocalSize
    put(19, &[void]);
    put(33, &[kind, void]);
    put(21, &[number, 32, 0]);
    put(43, &[number, one, 1]);
    put(54, &[void, function, 0, kind]);
    put(248, &[label]);
    let mut last = one;
    for id in (label + 1..).take(ADDITIONS as usize) {
        put(128, &[number, id, last, one]);
        last = id;
    }
    put(253, &[]);
    put(56, &[]);
    words
}

/// A shader that computes for a while, and its pipeline.
pub(super) struct Program {
    module: vk::ShaderModule,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

impl Program {
    /// Of this device, until [`Program::end`].
    pub(super) fn new(raw: &ash::Device) -> Result<Program, Code> {
        let words = shader();
        // SAFETY: every structure outlives its call.
        unsafe {
            let module = raw
                .create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&words), None)?;
            let layout =
                raw.create_pipeline_layout(&vk::PipelineLayoutCreateInfo::default(), None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let pipeline = raw
                .create_compute_pipelines(
                    vk::PipelineCache::null(),
                    &[vk::ComputePipelineCreateInfo::default()
                        .stage(stage)
                        .layout(layout)],
                    None,
                )
                .map_err(|(_, code)| code)?[0];
            Ok(Program {
                module,
                layout,
                pipeline,
            })
        }
    }

    /// Into a command buffer of this device's that is being recorded.
    pub(super) fn record(&self, raw: &ash::Device, buffer: vk::CommandBuffer, dispatches: u32) {
        // SAFETY: the pipeline is the device's, and nobody else records.
        unsafe {
            raw.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::COMPUTE, self.pipeline);
            (0..dispatches).for_each(|_| raw.cmd_dispatch(buffer, 1, 1, 1));
        }
    }

    /// The device is done with it.
    pub(super) fn end(&self, raw: &ash::Device) {
        // SAFETY: the objects are the device's, and go once.
        unsafe {
            raw.destroy_pipeline(self.pipeline, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_shader_module(self.module, None);
        }
    }
}

impl Instance {
    /// A device with a queue that computes, got as `route` has it, and synchronization2 by those of its names that the driver has.
    pub fn worker(&self, physical: PhysicalDevice, route: Route) -> Result<Worker, Code> {
        let instance = &self.inner.raw;
        let extended = self
            .extensions(physical)?
            .iter()
            .any(|name| name == "VK_KHR_synchronization2");
        // SAFETY: the physical device is this instance's.
        let properties = unsafe { instance.get_physical_device_properties(physical.0) };
        let core = properties.api_version >= vk::API_VERSION_1_3;
        let routes = [
            (Route::Submit, true),
            (Route::Submit2, core),
            (Route::Submit2Khr, extended),
            (
                Route::SubmitToSecond,
                properties.api_version >= vk::API_VERSION_1_1,
            ),
            (Route::Behind, true),
            (Route::Behind2, core),
        ];
        let first = vk::DeviceQueueInfo2::default();
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0])];
        let names = [ash::khr::synchronization2::NAME.as_ptr()];
        let mut features =
            vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let mut create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names[..usize::from(extended)]);
        if core || extended {
            create = create.push_next(&mut features);
        }
        // SAFETY: the physical device is this instance's; family 0 of every GPU computes; every object is the new device's, and every
        // structure outlives its call.
        unsafe {
            let raw = instance.create_device(physical.0, &create, None)?;
            let program = Program::new(&raw)?;
            let pool = raw.create_command_pool(&vk::CommandPoolCreateInfo::default(), None)?;
            let queries = raw.create_query_pool(
                &vk::QueryPoolCreateInfo::default()
                    .query_type(vk::QueryType::TIMESTAMP)
                    .query_count(2),
                None,
            )?;
            let buffers = raw.allocate_command_buffers(
                &vk::CommandBufferAllocateInfo::default()
                    .command_pool(pool)
                    .command_buffer_count(2),
            )?;
            let semaphore = raw.create_semaphore(&vk::SemaphoreCreateInfo::default(), None)?;
            let worker = Worker {
                khr: ash::khr::synchronization2::Device::new(instance, &raw),
                queue: match route {
                    Route::SubmitToSecond => raw.get_device_queue2(&first),
                    _ => raw.get_device_queue(0, 0),
                },
                raw,
                pool,
                queries,
                program,
                work: buffers[0],
                timed: buffers[1],
                semaphore,
                period: properties.limits.timestamp_period,
                routes: routes
                    .into_iter()
                    .filter_map(|(route, is_there)| is_there.then_some(route))
                    .collect(),
                _instance: Arc::clone(&self.inner),
            };
            worker.record()?;
            Ok(worker)
        }
    }
}

impl Worker {
    fn record(&self) -> Result<(), Code> {
        let raw = &self.raw;
        let often = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        let end = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        for (buffer, timed) in [(self.work, false), (self.timed, true)] {
            // SAFETY: command buffers and objects of this device, recorded by nobody else.
            unsafe {
                raw.begin_command_buffer(buffer, &often)?;
                if timed {
                    raw.cmd_reset_query_pool(buffer, self.queries, 0, 2);
                    raw.cmd_write_timestamp(buffer, end, self.queries, 0);
                }
                self.program.record(raw, buffer, DISPATCHES);
                if timed {
                    raw.cmd_write_timestamp(buffer, end, self.queries, 1);
                }
                raw.end_command_buffer(buffer)?;
            }
        }
        Ok(())
    }

    /// Records so many dispatches into a command buffer that stays until the worker goes.
    pub fn record_dispatches(&self, dispatches: u32) -> Result<(), Code> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .command_buffer_count(1);
        // SAFETY: the pool and what is recorded are this device's, used by nobody else.
        unsafe {
            let buffer = self.raw.allocate_command_buffers(&info)?[0];
            self.raw
                .begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default())?;
            self.program.record(&self.raw, buffer, dispatches);
            Ok(self.raw.end_command_buffer(buffer)?)
        }
    }

    pub fn submit(&self, route: Route) -> Result<(), Code> {
        let buffers = [self.work];
        let infos = [vk::CommandBufferSubmitInfo::default().command_buffer(self.work)];
        let (first, second) = (
            [vk::SubmitInfo::default().command_buffers(&buffers)],
            // Behind a batch of nothing.
            [
                vk::SubmitInfo2::default(),
                vk::SubmitInfo2::default().command_buffer_infos(&infos),
            ],
        );
        let none = vk::Fence::null();
        let semaphores = [self.semaphore];
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let behind = [first[0]
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)];
        let signals = [vk::SubmitInfo::default().signal_semaphores(&semaphores)];
        let waits = [vk::SemaphoreSubmitInfo::default()
            .semaphore(self.semaphore)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
        let behind2 = [second[1].wait_semaphore_infos(&waits)];
        // SAFETY: the queue and its command buffer are this device's, and nobody else submits.
        unsafe {
            match route {
                Route::Submit | Route::SubmitToSecond => {
                    self.raw.queue_submit(self.queue, &first, none)?;
                }
                Route::Submit2 => self.raw.queue_submit2(self.queue, &second, none)?,
                Route::Submit2Khr => self.khr.queue_submit2(self.queue, &second, none)?,
                Route::Behind => {
                    self.raw.queue_submit(self.queue, &signals, none)?;
                    self.raw.queue_submit(self.queue, &behind, none)?;
                }
                Route::Behind2 => {
                    self.raw.queue_submit(self.queue, &signals, none)?;
                    self.raw.queue_submit2(self.queue, &behind2, none)?;
                }
            }
        }
        Ok(())
    }

    /// The command buffer so many times at once.
    pub fn submit_often(&self, times: usize) -> Result<(), Code> {
        let buffers = vec![self.work; times];
        let submit = [vk::SubmitInfo::default().command_buffers(&buffers)];
        // SAFETY: as in `submit`; the command buffer may be in use at the same time.
        Ok(unsafe {
            self.raw
                .queue_submit(self.queue, &submit, vk::Fence::null())
        }?)
    }

    /// A binding of nothing to nothing, which every queue of the family takes.
    pub fn bind_nothing(&self) -> Result<(), Code> {
        let binds = [vk::BindSparseInfo::default()];
        // SAFETY: the queue is this device's.
        Ok(unsafe {
            self.raw
                .queue_bind_sparse(self.queue, &binds, vk::Fence::null())
        }?)
    }

    pub fn wait(&self) -> Result<(), Code> {
        // SAFETY: the queue is this device's, and nobody else submits.
        Ok(unsafe { self.raw.queue_wait_idle(self.queue) }?)
    }

    /// What one submission takes on the device, in nanoseconds: the least of several.
    pub fn time(&self) -> Result<u64, Code> {
        let buffers = [self.timed];
        let submit = [vk::SubmitInfo::default().command_buffers(&buffers)];
        let mut least = u64::MAX;
        for _ in 0..5 {
            let mut ticks = [0_u64; 2];
            // SAFETY: as in `submit`; the results are of two queries that were written.
            unsafe {
                self.raw
                    .queue_submit(self.queue, &submit, vk::Fence::null())?;
                self.raw.queue_wait_idle(self.queue)?;
                self.raw.get_query_pool_results(
                    self.queries,
                    0,
                    &mut ticks,
                    vk::QueryResultFlags::TYPE_64,
                )?;
            }
            least = least.min(ticks[1].saturating_sub(ticks[0]));
        }
        Ok((least as f64 * f64::from(self.period)) as u64)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: nobody else holds the device; its objects go once and before it, when it is done with them.
        unsafe {
            let _lost = self.raw.device_wait_idle();
            self.raw.destroy_semaphore(self.semaphore, None);
            self.raw.destroy_command_pool(self.pool, None);
            self.raw.destroy_query_pool(self.queries, None);
            self.program.end(&self.raw);
            self.raw.destroy_device(None);
        }
    }
}
