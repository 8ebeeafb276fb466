//! What leaves a process or a device: memory and semaphores by descriptor, the application's own pages, groups of devices,
//! memory bound page by page.

use std::os::unix::net::UnixDatagram;

use ash::vk;
use mock_device::{DeviceIndex, WorldSpec, profile};

use crate::client::{Client, GIB, MESSAGES};
use crate::environment::{Environment, isolated, role};
use crate::picture::{Picture, flat, run};
use crate::transfer::Mapped;

const DEVICE: DeviceIndex = DeviceIndex(0);

pub const EXTENSIONS: [&std::ffi::CStr; 3] = [
    ash::khr::external_memory_fd::NAME,
    ash::khr::external_semaphore_fd::NAME,
    ash::ext::external_memory_host::NAME,
];

pub const OPAQUE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// A buffer on memory that is exported, or on what a descriptor brings.
pub fn buffer_on(
    client: &Client,
    size: u64,
    import: Option<i32>,
) -> (vk::Buffer, vk::DeviceMemory) {
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE);
    let info = vk::BufferCreateInfo::default()
        .push_next(&mut external)
        .size(size)
        .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST);
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE);
    let mut imported = vk::ImportMemoryFdInfoKHR::default()
        .handle_type(OPAQUE)
        .fd(import.unwrap_or(-1));
    // SAFETY: valid usage; the descriptor is given away.
    unsafe {
        let buffer = client.device.create_buffer(&info, None).expect("a buffer");
        let needs = client.device.get_buffer_memory_requirements(buffer);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(client.device_local());
        info = match import {
            Some(_) => info.push_next(&mut imported),
            None => info.push_next(&mut export),
        };
        let memory = client.device.allocate_memory(&info, None).expect("memory");
        client
            .device
            .bind_buffer_memory(buffer, memory, 0)
            .expect("binding");
        (buffer, memory)
    }
}

pub fn descriptor(client: &Client, memory: vk::DeviceMemory) -> i32 {
    let exporter = ash::khr::external_memory_fd::Device::new(&client.instance, &client.device);
    let info = vk::MemoryGetFdInfoKHR::default()
        .memory(memory)
        .handle_type(OPAQUE);
    // SAFETY: memory that was allocated for export.
    unsafe { exporter.get_memory_fd(&info) }.expect("a descriptor")
}

#[test]
fn exported_memory_is_counted_once_and_until_its_last_holder() {
    isolated(
        "shared::exported_memory_is_counted_once_and_until_its_last_holder",
        "h200",
        || {
            let client = Client::of(vk::API_VERSION_1_3, true, &[], &EXTENSIONS);
            let world = mock_device::World::ambient().expect("the world");
            let before = world.used(DEVICE).0;
            let (first, memory) = buffer_on(&client, GIB, None);
            assert_eq!(world.used(DEVICE).0 - before, GIB);
            let fd = descriptor(&client, memory);
            let (second, imported) = buffer_on(&client, GIB, Some(fd));
            assert_eq!(world.used(DEVICE).0 - before, GIB, "counted once");
            let read = Mapped::new(&client, 64);
            let region = [vk::BufferCopy::default().size(64)];
            run(&client, |commands| {
                // SAFETY: valid usage.
                unsafe {
                    let device = &client.device;
                    device.cmd_fill_buffer(commands, first, 0, 64, 0x0707_0707);
                    let barrier = vk::MemoryBarrier::default()
                        .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                        .dst_access_mask(vk::AccessFlags::TRANSFER_READ);
                    device.cmd_pipeline_barrier(
                        commands,
                        vk::PipelineStageFlags::TRANSFER,
                        vk::PipelineStageFlags::TRANSFER,
                        vk::DependencyFlags::empty(),
                        &[barrier],
                        &[],
                        &[],
                    );
                    device.cmd_copy_buffer(commands, second, read.buffer, &region);
                }
            });
            assert_eq!(read.bytes(&client), [7; 64], "the same bytes by both names");
            // SAFETY: nothing is in use.
            unsafe { client.device.destroy_buffer(first, None) };
            client.free(memory);
            assert_eq!(
                world.used(DEVICE).0 - before,
                GIB + (64 << 10),
                "the import holds it"
            );
            // SAFETY: as above.
            unsafe { client.device.destroy_buffer(second, None) };
            client.free(imported);
            read.destroy(&client);
            assert_eq!(world.used(DEVICE).0, before);
            client.destroy();
            assert_eq!(*MESSAGES.lock().unwrap(), Vec::<String>::new());
        },
    );
}

/// One process exports memory and a semaphore; the other, which got the descriptors over a socket, waits for the semaphore
/// and reads the bytes.
#[test]
fn two_processes_share_memory_and_a_semaphore() {
    const TEST: &str = "shared::two_processes_share_memory_and_a_semaphore";
    match role().as_deref() {
        None => Environment::new("h200").run(TEST, "exporter"),
        Some("exporter") => {
            let client = Client::of(vk::API_VERSION_1_3, false, &[], &EXTENSIONS);
            let (here, there) = UnixDatagram::pair().expect("sockets");
            // The child inherits its end as descriptor 0.
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child
                .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
                .env("RINGFENCE_ICD_ROLE", "importer")
                .stdin(std::os::fd::OwnedFd::from(there));
            let child = child.spawn().expect("the other process");
            let (buffer, memory) = buffer_on(&client, 4096, None);
            let mut export = vk::ExportSemaphoreCreateInfo::default()
                .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
            let info = vk::SemaphoreCreateInfo::default().push_next(&mut export);
            let fds =
                ash::khr::external_semaphore_fd::Device::new(&client.instance, &client.device);
            // SAFETY: valid usage.
            unsafe {
                let semaphore = client
                    .device
                    .create_semaphore(&info, None)
                    .expect("a semaphore");
                let info = vk::SemaphoreGetFdInfoKHR::default()
                    .semaphore(semaphore)
                    .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
                let signal = fds.get_semaphore_fd(&info).expect("a descriptor");
                send(&here, [descriptor(&client, memory), signal]);
                std::thread::sleep(std::time::Duration::from_millis(50));
                let (pool, commands) = crate::transfer::record(&client, |commands| {
                    client
                        .device
                        .cmd_fill_buffer(commands, buffer, 0, 4096, 0x2a2a_2a2a);
                });
                let submit = vk::SubmitInfo::default()
                    .command_buffers(std::slice::from_ref(&commands))
                    .signal_semaphores(std::slice::from_ref(&semaphore));
                client
                    .device
                    .queue_submit(client.queue, &[submit], vk::Fence::null())
                    .expect("submit");
                let output = child.wait_with_output().expect("the other process's end");
                assert!(output.status.success(), "{}", output.status);
                client.device.queue_wait_idle(client.queue).expect("idle");
                client.device.destroy_semaphore(semaphore, None);
                client.device.destroy_command_pool(pool, None);
                client.device.destroy_buffer(buffer, None);
            }
            client.free(memory);
            client.destroy();
        }
        Some(_) => {
            let client = Client::of(vk::API_VERSION_1_3, false, &[], &EXTENSIONS);
            use std::os::fd::AsFd;
            let socket = std::io::stdin().as_fd().try_clone_to_owned();
            let socket = UnixDatagram::from(socket.expect("the socket"));
            let [memory, signal] = receive(&socket);
            let (buffer, memory) = buffer_on(&client, 4096, Some(memory));
            let fds =
                ash::khr::external_semaphore_fd::Device::new(&client.instance, &client.device);
            let read = Mapped::new(&client, 4096);
            let region = [vk::BufferCopy::default().size(4096)];
            // SAFETY: valid usage.
            unsafe {
                let info = vk::SemaphoreCreateInfo::default();
                let semaphore = client
                    .device
                    .create_semaphore(&info, None)
                    .expect("a semaphore");
                let info = vk::ImportSemaphoreFdInfoKHR::default()
                    .semaphore(semaphore)
                    .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
                    .fd(signal);
                fds.import_semaphore_fd(&info).expect("an import");
                let (pool, commands) = crate::transfer::record(&client, |commands| {
                    client
                        .device
                        .cmd_copy_buffer(commands, buffer, read.buffer, &region);
                });
                let stage = [vk::PipelineStageFlags::TRANSFER];
                let submit = vk::SubmitInfo::default()
                    .wait_semaphores(std::slice::from_ref(&semaphore))
                    .wait_dst_stage_mask(&stage)
                    .command_buffers(std::slice::from_ref(&commands));
                client
                    .device
                    .queue_submit(client.queue, &[submit], vk::Fence::null())
                    .expect("submit");
                client.device.queue_wait_idle(client.queue).expect("idle");
                client.device.destroy_semaphore(semaphore, None);
                client.device.destroy_command_pool(pool, None);
                client.device.destroy_buffer(buffer, None);
            }
            assert_eq!(read.bytes(&client), [0x2a; 4096]);
            read.destroy(&client);
            client.free(memory);
            client.destroy();
        }
    }
}

/// The control message of two descriptors.
#[repr(C, align(8))]
struct Rights([u8; 64]);

fn message(rights: &mut Rights, byte: &mut [u8; 1], act: impl FnOnce(&mut libc::msghdr) -> isize) {
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: all zero is a message; its parts are this frame's.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = rights.0.as_mut_ptr().cast();
    // SAFETY: arithmetic.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(8) } as usize;
    assert_eq!(act(&mut header), 1);
}

pub fn send(socket: &UnixDatagram, descriptors: [i32; 2]) {
    use std::os::fd::AsRawFd;
    message(&mut Rights([0; 64]), &mut [1], |header| {
        // SAFETY: the control buffer has room for one message of two descriptors.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(8) as usize;
            libc::CMSG_DATA(control)
                .cast::<[i32; 2]>()
                .write_unaligned(descriptors);
            libc::sendmsg(socket.as_raw_fd(), header, 0)
        }
    });
}

pub fn receive(socket: &UnixDatagram) -> [i32; 2] {
    use std::os::fd::AsRawFd;
    let mut descriptors = [-1; 2];
    message(&mut Rights([0; 64]), &mut [0], |header| {
        // SAFETY: as above.
        unsafe {
            let length = libc::recvmsg(socket.as_raw_fd(), header, 0);
            let control = libc::CMSG_FIRSTHDR(header);
            descriptors = libc::CMSG_DATA(control).cast::<[i32; 2]>().read_unaligned();
            length
        }
    });
    descriptors
}

#[test]
fn the_applications_own_pages_are_memory() {
    isolated(
        "shared::the_applications_own_pages_are_memory",
        "h200",
        || {
            let client = Client::of(vk::API_VERSION_1_3, true, &[], &EXTENSIONS);
            let host = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
            let pages = Box::leak(Box::new(Pages([5; 65536])));
            let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(host);
            let info = vk::BufferCreateInfo::default()
                .push_next(&mut external)
                .size(65536)
                .usage(vk::BufferUsageFlags::TRANSFER_DST);
            let asked =
                ash::ext::external_memory_host::Device::new(&client.instance, &client.device);
            let mut properties = vk::MemoryHostPointerPropertiesEXT::default();
            let pointer = (&raw mut pages.0).cast::<std::ffi::c_void>();
            // SAFETY: valid usage: whole pages, which are never freed.
            unsafe {
                let answer = (asked.fp().get_memory_host_pointer_properties_ext)(
                    client.device.handle(),
                    host,
                    pointer,
                    &mut properties,
                );
                assert_eq!(answer, vk::Result::SUCCESS);
                assert_eq!(properties.memory_type_bits, 0b1100, "as the card");
                let buffer = client.device.create_buffer(&info, None).expect("a buffer");
                let mut import = vk::ImportMemoryHostPointerInfoEXT::default()
                    .handle_type(host)
                    .host_pointer(pointer);
                let info = vk::MemoryAllocateInfo::default()
                    .push_next(&mut import)
                    .allocation_size(65536)
                    .memory_type_index(3);
                let memory = client
                    .device
                    .allocate_memory(&info, None)
                    .expect("an import");
                client
                    .device
                    .bind_buffer_memory(buffer, memory, 0)
                    .expect("binding");
                run(&client, |commands| {
                    client
                        .device
                        .cmd_fill_buffer(commands, buffer, 0, 8, 0x0101_0101);
                });
                client.device.destroy_buffer(buffer, None);
                client.free(memory);
            }
            assert_eq!(pages.0[..10], [1, 1, 1, 1, 1, 1, 1, 1, 5, 5]);
            client.destroy();
            assert_eq!(*MESSAGES.lock().unwrap(), Vec::<String>::new());
        },
    );
}

#[repr(align(4096))]
struct Pages([u8; 65536]);

#[test]
fn a_group_of_devices_has_memory_on_each_of_them() {
    const TEST: &str = "shared::a_group_of_devices_has_memory_on_each_of_them";
    if role().is_none() {
        let mut spec = WorldSpec::new(profile::embedded("h200*3").expect("a profile"));
        spec.machine.driver.vulkan_groups = vec![vec![0, 2]];
        return Environment::of(spec).run(TEST, "client");
    }
    let client = Client::grouped();
    let world = mock_device::World::ambient().expect("the world");
    let used = || [0, 1, 2].map(|index| world.used(DeviceIndex(index)).0);
    let before = used();
    // SAFETY: a live physical device.
    let heaps = unsafe {
        client
            .instance
            .get_physical_device_memory_properties(client.physical)
    };
    assert!(
        heaps.memory_heaps[0]
            .flags
            .contains(vk::MemoryHeapFlags::MULTI_INSTANCE)
    );
    let both = client.allocate(GIB, client.device_local()).expect("memory");
    let grown = |now: [u64; 3]| [0, 1, 2].map(|index| now[index] - before[index]);
    assert_eq!(
        grown(used()),
        [GIB, 0, GIB],
        "without a mask on every member"
    );
    let mut second = vk::MemoryAllocateFlagsInfo::default()
        .flags(vk::MemoryAllocateFlags::DEVICE_MASK)
        .device_mask(2);
    let info = vk::MemoryAllocateInfo::default()
        .push_next(&mut second)
        .allocation_size(GIB)
        .memory_type_index(client.device_local());
    // SAFETY: valid usage.
    unsafe {
        let one = client.device.allocate_memory(&info, None).expect("memory");
        assert_eq!(grown(used()), [GIB, 0, 2 * GIB]);
        let peers = client.device.get_device_group_peer_memory_features(0, 0, 1);
        assert!(peers.contains(vk::PeerMemoryFeatureFlags::COPY_DST));
        client.device.free_memory(one, None);
    }
    client.free(both);
    assert_eq!(used(), before);
    client.destroy();
    assert_eq!(*MESSAGES.lock().unwrap(), Vec::<String>::new());
}

/// Two tiles of an image are bound to different places; what is not bound reads as zeros.
#[test]
fn a_sparse_image_is_where_its_tiles_are_bound() {
    isolated(
        "shared::a_sparse_image_is_where_its_tiles_are_bound",
        "h200",
        || {
            let client = Client::validated();
            let info = flat(vk::Format::R8G8B8A8_UNORM, 256, 128).flags(
                vk::ImageCreateFlags::SPARSE_BINDING | vk::ImageCreateFlags::SPARSE_RESIDENCY,
            );
            // SAFETY: valid usage.
            unsafe {
                let image = client.device.create_image(&info, None).expect("an image");
                let needs = client.device.get_image_sparse_memory_requirements(image);
                let tile = needs[0].format_properties.image_granularity;
                assert_eq!((tile.width, tile.height), (128, 128));
                let memory = client
                    .allocate(1 << 20, client.device_local())
                    .expect("memory");
                let bind = |x: i32, offset: u64| {
                    vk::SparseImageMemoryBind::default()
                        .subresource(
                            vk::ImageSubresource::default()
                                .aspect_mask(vk::ImageAspectFlags::COLOR),
                        )
                        .offset(vk::Offset3D { x, y: 0, z: 0 })
                        .extent(tile)
                        .memory(memory)
                        .memory_offset(offset)
                };
                let binds = [bind(128, 3 << 16)];
                let images = [vk::SparseImageMemoryBindInfo::default()
                    .image(image)
                    .binds(&binds)];
                let info = [vk::BindSparseInfo::default().image_binds(&images)];
                client
                    .device
                    .queue_bind_sparse(client.queue, &info, vk::Fence::null())
                    .expect("binding");
                client.device.queue_wait_idle(client.queue).expect("idle");
                let size = 256 * 128 * 4;
                let (from, to) = (
                    Mapped::with(&client, &vec![9; size]),
                    Mapped::new(&client, size as u64),
                );
                let picture = Picture::around(image, flat(vk::Format::R8G8B8A8_UNORM, 256, 128));
                run(&client, |commands| {
                    let device = &client.device;
                    picture.ready(&client, commands);
                    let all = [picture.copy(0)];
                    let (src, dst) = (
                        vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
                        vk::ImageLayout::TRANSFER_DST_OPTIMAL,
                    );
                    device.cmd_copy_buffer_to_image(commands, from.buffer, image, dst, &all);
                    picture.read(&client, commands);
                    device.cmd_copy_image_to_buffer(commands, image, src, to.buffer, &all);
                });
                let read = to.bytes(&client);
                for row in read.chunks(256 * 4) {
                    assert_eq!(row[..512], [0; 512]);
                    assert_eq!(row[512..], [9; 512]);
                }
                client.device.destroy_image(image, None);
                client.free(memory);
                from.destroy(&client);
                to.destroy(&client);
            }
            client.destroy();
            assert_eq!(*MESSAGES.lock().unwrap(), Vec::<String>::new());
        },
    );
}
