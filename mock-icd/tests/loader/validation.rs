//! The Khronos validation layer over this driver: nothing to say about a correct client, and something about a wrong one.

use std::path::Path;

use ash::vk;

use crate::client::{Client, MESSAGES, load};
use crate::environment::{LAYERS, isolated};
use crate::transfer::{Mapped, record};

fn messages() -> Vec<String> {
    MESSAGES.lock().unwrap().clone()
}

fn installed() -> bool {
    let installed = Path::new(LAYERS)
        .join("VkLayer_khronos_validation.json")
        .exists();
    if !installed {
        crate::missing::skip("no validation layer (Debian: vulkan-validationlayers)");
    }
    installed
}

#[test]
fn a_correct_client_hears_nothing() {
    isolated(
        "validation::a_correct_client_hears_nothing",
        "rtx6000-ada",
        || {
            if !installed() {
                return;
            }
            let client = Client::validated();
            let big = client
                .allocate(20 << 30, client.device_local())
                .expect("20 GiB");
            let (from, to) = (Mapped::new(&client, 1 << 20), Mapped::new(&client, 1 << 20));
            let (image, image_memory) = image(&client);
            submit_both_ways(&client, &from, &to, image);
            assert_eq!(to.bytes(&client)[..4], [1, 0, 0, 0]);
            queries(&client);
            // SAFETY: idle after the submissions above.
            unsafe { client.device.destroy_image(image, None) };
            client.free(image_memory);
            from.destroy(&client);
            to.destroy(&client);
            client.free(big);
            client.destroy();
            assert_eq!(messages(), Vec::<String>::new());
        },
    );
}

#[test]
fn a_client_of_vulkan_1_0_hears_nothing() {
    isolated(
        "validation::a_client_of_vulkan_1_0_hears_nothing",
        "h200",
        || {
            if !installed() {
                return;
            }
            let extensions = [ash::khr::get_physical_device_properties2::NAME];
            let client = Client::with(vk::API_VERSION_1_0, true, &extensions);
            same_heaps_by_every_name(&client);
            let target = Mapped::new(&client, 4096);
            assert_eq!(target.bytes(&client), [0; 4096]);
            target.destroy(&client);
            client.destroy();
            assert_eq!(messages(), Vec::<String>::new());
        },
    );
}

/// Otherwise the silence above would mean nothing.
#[test]
fn a_wrong_client_is_heard_of() {
    isolated("validation::a_wrong_client_is_heard_of", "tiny", || {
        if !installed() {
            return;
        }
        let client = Client::validated();
        assert!(client.allocate(0, client.device_local()).is_err());
        assert!(
            messages()
                .iter()
                .any(|message| message.contains("VUID-VkMemoryAllocateInfo-")),
            "{:?}",
            messages()
        );
        client.destroy();
    });
}

#[test]
fn instances_of_every_version_show_the_device() {
    isolated(
        "validation::instances_of_every_version_show_the_device",
        "h200x2",
        || {
            let entry = load();
            for version in [
                vk::API_VERSION_1_0,
                vk::API_VERSION_1_1,
                vk::API_VERSION_1_2,
                vk::API_VERSION_1_3,
            ] {
                let application = vk::ApplicationInfo::default().api_version(version);
                let info = vk::InstanceCreateInfo::default().application_info(&application);
                // SAFETY: valid usage.
                unsafe {
                    let instance = entry.create_instance(&info, None).expect("an instance");
                    assert_eq!(
                        instance
                            .enumerate_physical_devices()
                            .expect("devices")
                            .len(),
                        2
                    );
                    if version >= vk::API_VERSION_1_1 {
                        let count = instance
                            .enumerate_physical_device_groups_len()
                            .expect("groups");
                        let mut groups = vec![vk::PhysicalDeviceGroupProperties::default(); count];
                        instance
                            .enumerate_physical_device_groups(&mut groups)
                            .expect("groups");
                        assert!(groups.iter().all(|group| group.physical_device_count == 1));
                        assert_eq!(count, 2);
                    }
                    instance.destroy_instance(None);
                }
            }
        },
    );
}

/// vkGetPhysicalDeviceMemoryProperties2KHR is what a client of 1.0 has (V3).
fn same_heaps_by_every_name(client: &Client) {
    let named =
        ash::khr::get_physical_device_properties2::Instance::new(&client.entry, &client.instance);
    let mut by_extension = vk::PhysicalDeviceMemoryProperties2::default();
    // SAFETY: the extension is enabled.
    let by_core = unsafe {
        named.get_physical_device_memory_properties2(client.physical, &mut by_extension);
        client
            .instance
            .get_physical_device_memory_properties(client.physical)
    };
    let sizes = |memory: &vk::PhysicalDeviceMemoryProperties| {
        memory
            .memory_heaps_as_slice()
            .iter()
            .map(|heap| heap.size)
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(&by_extension.memory_properties), sizes(&by_core));
    assert_eq!(sizes(&by_core), [150_754_820_096, 101_361_423_360]);
}

fn image(client: &Client) -> (vk::Image, vk::DeviceMemory) {
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D {
            width: 256,
            height: 256,
            depth: 1,
        })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(vk::ImageUsageFlags::TRANSFER_DST | vk::ImageUsageFlags::SAMPLED);
    // SAFETY: valid usage: the format supports this usage, the memory is what the image asks for.
    unsafe {
        let image = client.device.create_image(&info, None).expect("an image");
        let needs = client.device.get_image_memory_requirements(image);
        assert!(needs.size >= 256 * 256 * 4);
        let memory = client
            .allocate(needs.size, client.device_local())
            .expect("memory");
        client
            .device
            .bind_image_memory(image, memory, 0)
            .expect("binding");
        (image, memory)
    }
}

/// vkQueueSubmit with a binary semaphore to vkQueueSubmit2 with a fence.
fn submit_both_ways(client: &Client, from: &Mapped, to: &Mapped, image: vk::Image) {
    let device = &client.device;
    let range = vk::ImageSubresourceRange {
        aspect_mask: vk::ImageAspectFlags::COLOR,
        level_count: 1,
        layer_count: 1,
        ..Default::default()
    };
    // SAFETY: valid usage, as the layer is asked to confirm.
    unsafe {
        let (first_pool, first) = record(client, |commands| {
            device.cmd_fill_buffer(commands, from.buffer, 0, vk::WHOLE_SIZE, 1);
            let barrier = vk::ImageMemoryBarrier::default()
                .dst_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .new_layout(vk::ImageLayout::TRANSFER_DST_OPTIMAL)
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .image(image)
                .subresource_range(range);
            let (top, transfer) = (
                vk::PipelineStageFlags::TOP_OF_PIPE,
                vk::PipelineStageFlags::TRANSFER,
            );
            device.cmd_pipeline_barrier(
                commands,
                top,
                transfer,
                vk::DependencyFlags::empty(),
                &[],
                &[],
                &[barrier],
            );
            let color = vk::ClearColorValue { float32: [0.0; 4] };
            device.cmd_clear_color_image(
                commands,
                image,
                vk::ImageLayout::TRANSFER_DST_OPTIMAL,
                &color,
                &[range],
            );
        });
        let (second_pool, second) = record(client, |commands| {
            let region = vk::BufferCopy {
                src_offset: 0,
                dst_offset: 0,
                size: 1 << 20,
            };
            device.cmd_copy_buffer(commands, from.buffer, to.buffer, &[region]);
        });
        let done = device
            .create_semaphore(&vk::SemaphoreCreateInfo::default(), None)
            .expect("a semaphore");
        let fence = device
            .create_fence(&vk::FenceCreateInfo::default(), None)
            .expect("a fence");
        let submit = vk::SubmitInfo::default()
            .command_buffers(std::slice::from_ref(&first))
            .signal_semaphores(std::slice::from_ref(&done));
        device
            .queue_submit(client.queue, &[submit], vk::Fence::null())
            .expect("submit");
        let waits = [vk::SemaphoreSubmitInfo::default()
            .semaphore(done)
            .stage_mask(vk::PipelineStageFlags2::TRANSFER)];
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(second)];
        let submit = vk::SubmitInfo2::default()
            .wait_semaphore_infos(&waits)
            .command_buffer_infos(&commands);
        device
            .queue_submit2(client.queue, &[submit], fence)
            .expect("submit");
        device
            .wait_for_fences(&[fence], true, 10_000_000_000)
            .expect("done");
        device.destroy_fence(fence, None);
        device.destroy_semaphore(done, None);
        device.destroy_command_pool(first_pool, None);
        device.destroy_command_pool(second_pool, None);
    }
}

fn queries(client: &Client) {
    let info = vk::QueryPoolCreateInfo::default()
        .query_type(vk::QueryType::TIMESTAMP)
        .query_count(2);
    let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
    // SAFETY: valid usage.
    unsafe {
        let pool = client
            .device
            .create_query_pool(&info, None)
            .expect("queries");
        let (commands_pool, commands) = record(client, |commands| {
            client.device.cmd_reset_query_pool(commands, pool, 0, 2);
            client.device.cmd_write_timestamp(
                commands,
                vk::PipelineStageFlags::TOP_OF_PIPE,
                pool,
                0,
            );
            client.device.cmd_write_timestamp(
                commands,
                vk::PipelineStageFlags::BOTTOM_OF_PIPE,
                pool,
                1,
            );
        });
        let submit = vk::SubmitInfo::default().command_buffers(std::slice::from_ref(&commands));
        client
            .device
            .queue_submit(client.queue, &[submit], vk::Fence::null())
            .expect("submit");
        let mut times = [0_u64; 2];
        client
            .device
            .get_query_pool_results(pool, 0, &mut times, flags)
            .expect("results");
        assert!(times[0] > 0 && times[0] <= times[1], "{times:?}");
        client.device.queue_wait_idle(client.queue).expect("idle");
        client.device.destroy_command_pool(commands_pool, None);
        client.device.destroy_query_pool(pool, None);
    }
}
