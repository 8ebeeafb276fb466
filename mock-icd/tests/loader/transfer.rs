//! Transfer commands, host-visible memory, and the order of work.

use ash::vk;

use crate::client::Client;
use crate::environment::isolated;

/// Host-visible memory with a buffer on it.
pub struct Mapped {
    pub buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    size: usize,
}

impl Mapped {
    pub fn new(client: &Client, size: u64) -> Self {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: valid usage: sizes above 0, a memory type that the buffer takes, bound once at offset 0.
        unsafe {
            let buffer = client.device.create_buffer(&info, None).expect("a buffer");
            let needs = client.device.get_buffer_memory_requirements(buffer);
            let kind = client.memory_type(
                vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT,
                true,
            );
            assert_ne!(needs.memory_type_bits & (1 << kind), 0);
            let memory = client.allocate(needs.size, kind).expect("memory");
            client
                .device
                .bind_buffer_memory(buffer, memory, 0)
                .expect("binding");
            Self {
                buffer,
                memory,
                size: usize::try_from(size).unwrap(),
            }
        }
    }

    /// Holding these bytes.
    pub fn with(client: &Client, bytes: &[u8]) -> Self {
        let mapped = Self::new(client, bytes.len() as u64);
        // SAFETY: mapped in full, not in use by the device, unmapped after the copy.
        unsafe {
            let address = client
                .device
                .map_memory(
                    mapped.memory,
                    0,
                    vk::WHOLE_SIZE,
                    vk::MemoryMapFlags::empty(),
                )
                .expect("a mapping");
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len());
            client.device.unmap_memory(mapped.memory);
        }
        mapped
    }

    pub fn bytes(&self, client: &Client) -> Vec<u8> {
        // SAFETY: mapped in full, not in use by the device, unmapped after the copy.
        unsafe {
            let address = client
                .device
                .map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
                .expect("a mapping");
            let bytes = std::slice::from_raw_parts(address.cast::<u8>(), self.size).to_vec();
            client.device.unmap_memory(self.memory);
            bytes
        }
    }

    pub fn destroy(self, client: &Client) {
        // SAFETY: no work is left that uses them.
        unsafe { client.device.destroy_buffer(self.buffer, None) };
        client.free(self.memory);
    }
}

/// Records commands into a fresh buffer of a fresh pool.
pub fn record(
    client: &Client,
    commands: impl FnOnce(vk::CommandBuffer),
) -> (vk::CommandPool, vk::CommandBuffer) {
    let pool = vk::CommandPoolCreateInfo::default().queue_family_index(0);
    // SAFETY: valid usage: one pool, one buffer, begun and ended once.
    unsafe {
        let pool = client
            .device
            .create_command_pool(&pool, None)
            .expect("a pool");
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(1);
        let buffer = client
            .device
            .allocate_command_buffers(&info)
            .expect("a command buffer")[0];
        client
            .device
            .begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default())
            .expect("begin");
        commands(buffer);
        client.device.end_command_buffer(buffer).expect("end");
        (pool, buffer)
    }
}

#[test]
fn fills_updates_and_copies_move_the_bytes_they_say() {
    isolated(
        "transfer::fills_updates_and_copies_move_the_bytes_they_say",
        "tiny",
        || {
            let client = Client::new();
            let (from, to) = (Mapped::new(&client, 64), Mapped::new(&client, 64));
            // SAFETY: valid usage: offsets and sizes are multiples of 4 within the buffers.
            let (pool, commands) = record(&client, |commands| unsafe {
                client.device.cmd_fill_buffer(
                    commands,
                    from.buffer,
                    0,
                    vk::WHOLE_SIZE,
                    0x0403_0201,
                );
                client
                    .device
                    .cmd_update_buffer(commands, from.buffer, 8, &[9; 4]);
                let region = vk::BufferCopy {
                    src_offset: 4,
                    dst_offset: 0,
                    size: 12,
                };
                client
                    .device
                    .cmd_copy_buffer(commands, from.buffer, to.buffer, &[region]);
            });
            let submits =
                [vk::SubmitInfo::default().command_buffers(std::slice::from_ref(&commands))];
            // SAFETY: as above; the queue is idle before anything is destroyed.
            unsafe {
                client
                    .device
                    .queue_submit(client.queue, &submits, vk::Fence::null())
                    .expect("submit");
                client.device.queue_wait_idle(client.queue).expect("idle");
            }
            assert_eq!(
                to.bytes(&client)[..16],
                [1, 2, 3, 4, 9, 9, 9, 9, 1, 2, 3, 4, 0, 0, 0, 0]
            );
            // SAFETY: idle.
            unsafe { client.device.destroy_command_pool(pool, None) };
            from.destroy(&client);
            to.destroy(&client);
            client.destroy();
        },
    );
}

#[test]
fn work_waits_for_a_timeline_that_the_host_signals() {
    isolated(
        "transfer::work_waits_for_a_timeline_that_the_host_signals",
        "tiny",
        || {
            let client = Client::new();
            let target = Mapped::new(&client, 4);
            // SAFETY: valid usage throughout: wait-before-signal is what timelines are for.
            unsafe {
                let mut kind = vk::SemaphoreTypeCreateInfo::default()
                    .semaphore_type(vk::SemaphoreType::TIMELINE);
                let timeline = client
                    .device
                    .create_semaphore(
                        &vk::SemaphoreCreateInfo::default().push_next(&mut kind),
                        None,
                    )
                    .expect("a timeline");
                let fence = client
                    .device
                    .create_fence(&vk::FenceCreateInfo::default(), None)
                    .expect("a fence");
                let (pool, commands) = record(&client, |commands| {
                    client
                        .device
                        .cmd_fill_buffer(commands, target.buffer, 0, 4, 7)
                });
                let mut values = vk::TimelineSemaphoreSubmitInfo::default()
                    .wait_semaphore_values(&[3])
                    .signal_semaphore_values(&[5]);
                let submit = vk::SubmitInfo::default()
                    .wait_semaphores(std::slice::from_ref(&timeline))
                    .wait_dst_stage_mask(&[vk::PipelineStageFlags::TRANSFER])
                    .command_buffers(std::slice::from_ref(&commands))
                    .signal_semaphores(std::slice::from_ref(&timeline))
                    .push_next(&mut values);
                client
                    .device
                    .queue_submit(client.queue, &[submit], fence)
                    .expect("submit");
                assert_eq!(client.device.get_fence_status(fence), Ok(false));
                assert_eq!(
                    client.device.wait_for_fences(&[fence], true, 1_000_000),
                    Err(vk::Result::TIMEOUT)
                );
                assert_eq!(target.bytes(&client), [0; 4]);
                client
                    .device
                    .signal_semaphore(
                        &vk::SemaphoreSignalInfo::default()
                            .semaphore(timeline)
                            .value(3),
                    )
                    .expect("signal");
                client
                    .device
                    .wait_for_fences(&[fence], true, u64::MAX)
                    .expect("the work is done");
                assert_eq!(client.device.get_semaphore_counter_value(timeline), Ok(5));
                assert_eq!(target.bytes(&client), [7, 0, 0, 0]);
                client.device.destroy_command_pool(pool, None);
                client.device.destroy_fence(fence, None);
                client.device.destroy_semaphore(timeline, None);
            }
            target.destroy(&client);
            client.destroy();
        },
    );
}

#[test]
fn forty_gibibytes_of_fill_do_not_eat_the_host() {
    isolated(
        "transfer::forty_gibibytes_of_fill_do_not_eat_the_host",
        "rtx6000-ada",
        || {
            let client = Client::new();
            let target = Mapped::new(&client, 40 << 30);
            // SAFETY: valid usage.
            let (pool, commands) = record(&client, |commands| unsafe {
                client
                    .device
                    .cmd_fill_buffer(commands, target.buffer, 0, vk::WHOLE_SIZE, 1);
            });
            let submits =
                [vk::SubmitInfo::default().command_buffers(std::slice::from_ref(&commands))];
            // SAFETY: as above.
            unsafe {
                client
                    .device
                    .queue_submit(client.queue, &submits, vk::Fence::null())
                    .expect("submit");
                client.device.device_wait_idle().expect("idle");
                client.device.destroy_command_pool(pool, None);
            }
            let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
            let peak = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))
                .expect("a peak");
            let kib: u64 = peak
                .trim()
                .trim_end_matches(" kB")
                .trim()
                .parse()
                .expect("a number");
            assert!(kib < 1536 << 10, "{kib} KiB resident");
            target.destroy(&client);
            client.destroy();
        },
    );
}
