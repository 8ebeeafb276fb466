//! Memory and semaphores that Vulkan and CUDA have together, by descriptor, in one process and in two: the same bytes,
//! counted once, until the last of them lets go; and work of one that waits for work of the other.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use abi::cuda::*;
use ash::vk;
use mock_device::{DeviceIndex, World};

use crate::client::Client;
use crate::environment::{Environment, beside, isolated, role};
use crate::picture::{Picture, flat, run};
use crate::shared::{EXTENSIONS, OPAQUE, buffer_on, descriptor, receive, send};
use crate::transfer::Mapped;

const DEVICE: DeviceIndex = DeviceIndex(0);
const SIZE: u64 = 4 << 20;
const SEMAPHORE: vk::ExternalSemaphoreHandleTypeFlags =
    vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

fn used() -> u64 {
    World::ambient().expect("the world").used(DEVICE).0
}

/// The mock's libcuda, with a context.
pub struct Cuda(*mut c_void);

/// Calls an entry point by its C name and asserts its success.
macro_rules! cuda {
    ($cuda:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let name = CString::new(stringify!($name)).expect("a name");
        // SAFETY: the name has the type that `abi` gives it; the arguments are live for the call.
        let code = unsafe {
            let function: fns::$name = std::mem::transmute_copy(&$cuda.address(&name));
            function($($argument),*)
        };
        assert_eq!(code, CUresult::SUCCESS, stringify!($name));
    }};
}

impl Cuda {
    pub fn new() -> Self {
        let path = beside("libmock_libcuda.so")
            .into_os_string()
            .into_encoded_bytes();
        let path = CString::new(path).expect("a path");
        // SAFETY: a path; the library's constructors are Rust's own.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "libmock_libcuda.so");
        let cuda = Self(library);
        let mut context = CUcontext::NULL;
        cuda!(cuda, cuInit(0));
        cuda!(cuda, cuDevicePrimaryCtxRetain(&mut context, 0));
        cuda!(cuda, cuCtxSetCurrent(context));
        cuda
    }

    fn address(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    }

    fn import(&self, fd: c_int, size: u64) -> CUexternalMemory {
        // CUDA_EXTERNAL_MEMORY_HANDLE_DESC: an opaque descriptor, its size.
        let mut words = [0u64; size_of::<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>().div_ceil(8)];
        (words[0], words[1], words[3]) = (1, fd as u64, size);
        let mut memory = CUexternalMemory(std::ptr::null_mut());
        cuda!(
            self,
            cuImportExternalMemory(&mut memory, words.as_ptr().cast())
        );
        memory
    }

    /// All of an imported memory, as a buffer.
    fn buffer(&self, memory: CUexternalMemory, size: u64) -> CUdeviceptr {
        let mut words = [0u64; size_of::<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>().div_ceil(8)];
        words[1] = size;
        let mut pointer = 0;
        cuda!(
            self,
            cuExternalMemoryGetMappedBuffer(&mut pointer, memory, words.as_ptr().cast())
        );
        pointer
    }

    fn bytes(&self, pointer: CUdeviceptr, count: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; count];
        cuda!(
            self,
            cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointer, count)
        );
        bytes
    }

    pub fn semaphore(&self, fd: c_int, kind: u64) -> CUexternalSemaphore {
        let mut words = [0u64; size_of::<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>().div_ceil(8)];
        (words[0], words[1]) = (kind, fd as u64);
        let mut semaphore = CUexternalSemaphore(std::ptr::null_mut());
        cuda!(
            self,
            cuImportExternalSemaphore(&mut semaphore, words.as_ptr().cast())
        );
        semaphore
    }

    pub fn signal(&self, semaphore: CUexternalSemaphore, value: u64, stream: CUstream) {
        let mut words = [0u64; size_of::<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>().div_ceil(8)];
        words[0] = value;
        cuda!(
            self,
            cuSignalExternalSemaphoresAsync(&semaphore, words.as_ptr().cast(), 1, stream)
        );
    }

    pub fn wait(&self, semaphore: CUexternalSemaphore, value: u64, stream: CUstream) {
        let mut words = [0u64; size_of::<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>().div_ceil(8)];
        words[0] = value;
        cuda!(
            self,
            cuWaitExternalSemaphoresAsync(&semaphore, words.as_ptr().cast(), 1, stream)
        );
    }

    /// A stream that does not wait for the default one.
    pub fn stream(&self) -> CUstream {
        let mut stream = CUstream::NULL;
        cuda!(self, cuStreamCreate(&mut stream, 1 as c_uint));
        stream
    }

    pub fn synchronize(&self, stream: CUstream) {
        cuda!(self, cuStreamSynchronize(stream));
    }
}

fn client() -> Client {
    Client::of(vk::API_VERSION_1_3, false, &[], &EXTENSIONS)
}

/// What a buffer of Vulkan's holds.
fn read(client: &Client, buffer: vk::Buffer, into: &Mapped, count: u64) {
    let region = [vk::BufferCopy::default().size(count)];
    run(client, |commands| {
        // SAFETY: valid usage.
        unsafe {
            client
                .device
                .cmd_copy_buffer(commands, buffer, into.buffer, &region);
        }
    });
}

fn fill(client: &Client, buffer: vk::Buffer, word: u32) {
    run(client, |commands| {
        // SAFETY: valid usage.
        unsafe {
            client
                .device
                .cmd_fill_buffer(commands, buffer, 0, vk::WHOLE_SIZE, word);
        }
    });
}

#[test]
fn vulkans_memory_is_cudas_by_its_descriptor() {
    isolated(
        "cuda::vulkans_memory_is_cudas_by_its_descriptor",
        "h200",
        || {
            let (client, cuda) = (client(), Cuda::new());
            let into = Mapped::new(&client, SIZE);
            let before = used();
            let (buffer, memory) = buffer_on(&client, SIZE, None);
            let taken = used() - before;
            assert!(taken >= SIZE);
            let imported = cuda.import(descriptor(&client, memory), SIZE);
            let pointer = cuda.buffer(imported, SIZE);
            assert_eq!(used() - before, taken, "counted once");
            fill(&client, buffer, 0x0707_0707);
            assert_eq!(cuda.bytes(pointer, SIZE as usize), vec![7; SIZE as usize]);
            cuda!(cuda, cuMemsetD8_v2(pointer, 0x5a, SIZE as usize));
            cuda!(cuda, cuCtxSynchronize());
            read(&client, buffer, &into, SIZE);
            assert_eq!(into.bytes(&client), vec![0x5a; SIZE as usize]);
            // SAFETY: nothing is in use.
            unsafe { client.device.destroy_buffer(buffer, None) };
            client.free(memory);
            assert_eq!(used() - before, taken, "CUDA holds it");
            assert_eq!(cuda.bytes(pointer, 16), [0x5a; 16]);
            cuda!(cuda, cuMemFree_v2(pointer));
            assert_eq!(used() - before, taken, "the import does");
            cuda!(cuda, cuDestroyExternalMemory(imported));
            assert_eq!(used(), before);
            into.destroy(&client);
            client.destroy();
        },
    );
}

/// A picture that Vulkan drew is an array of CUDA's, texel by texel, and the other way.
#[test]
fn vulkans_image_is_cudas_array() {
    const SIDE: u32 = 128;
    const BYTES: usize = (SIDE * SIDE * 4) as usize;
    isolated("cuda::vulkans_image_is_cudas_array", "h200", || {
        let (client, cuda) = (client(), Cuda::new());
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(OPAQUE);
        let plain = flat(vk::Format::R8G8B8A8_UNORM, SIDE, SIDE);
        let info = plain.push_next(&mut external);
        let pattern: Vec<u8> = (0..BYTES).map(|at| (at * 31 + at / 509) as u8).collect();
        // SAFETY: valid usage.
        let (image, memory, size) = unsafe {
            let image = client.device.create_image(&info, None).expect("an image");
            let needs = client.device.get_image_memory_requirements(image);
            let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE);
            let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().image(image);
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(client.device_local())
                .push_next(&mut export)
                .push_next(&mut dedicated);
            let memory = client.device.allocate_memory(&info, None).expect("memory");
            client
                .device
                .bind_image_memory(image, memory, 0)
                .expect("binding");
            (image, memory, needs.size)
        };
        let imported = cuda.import(descriptor(&client, memory), size);
        // CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC: offset, CUDA_ARRAY3D_DESCRIPTOR (width, height, depth, format and
        // channels, flags), levels.
        let mut words = [0u64; size_of::<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>().div_ceil(8)];
        (words[1], words[2], words[4]) = (SIDE.into(), SIDE.into(), 4 << 32 | 1);
        words[6] = 1;
        let mut mipmap = CUmipmappedArray(std::ptr::null_mut());
        cuda!(
            cuda,
            cuExternalMemoryGetMappedMipmappedArray(&mut mipmap, imported, words.as_ptr().cast())
        );
        let mut level = CUarray(std::ptr::null_mut());
        cuda!(cuda, cuMipmappedArrayGetLevel(&mut level, mipmap, 0));
        let row = (SIDE * 4) as usize;
        // CUDA_MEMCPY2D: the source's x, y, kind, host, device, array, pitch; the target's; width and height.
        let copy = |from: [u64; 7], to: [u64; 7]| {
            let mut words = [0u64; 16];
            words[..7].copy_from_slice(&from);
            words[7..14].copy_from_slice(&to);
            (words[14], words[15]) = (row as u64, SIDE.into());
            cuda!(cuda, cuMemcpy2D_v2(words.as_ptr().cast()));
        };
        let host = |at: *const u8| [0, 0, 1, at as u64, 0, 0, row as u64];
        let array = [0, 0, 3, 0, 0, level.0 as u64, 0];
        let (from, to) = (
            Mapped::with(&client, &pattern),
            Mapped::new(&client, BYTES as u64),
        );
        let picture = Picture::around(image, plain);
        run(&client, |commands| {
            picture.ready(&client, commands);
            let (all, layout) = ([picture.copy(0)], vk::ImageLayout::TRANSFER_DST_OPTIMAL);
            // SAFETY: valid usage.
            unsafe {
                client
                    .device
                    .cmd_copy_buffer_to_image(commands, from.buffer, image, layout, &all);
            }
        });
        let mut seen = vec![0u8; BYTES];
        copy(array, host(seen.as_mut_ptr()));
        assert!(seen == pattern, "what Vulkan drew");
        let turned: Vec<u8> = pattern.iter().map(|byte| !byte).collect();
        copy(host(turned.as_ptr()), array);
        run(&client, |commands| {
            picture.read(&client, commands);
            let (all, layout) = ([picture.copy(0)], vk::ImageLayout::TRANSFER_SRC_OPTIMAL);
            // SAFETY: valid usage.
            unsafe {
                client
                    .device
                    .cmd_copy_image_to_buffer(commands, image, layout, to.buffer, &all);
            }
        });
        assert!(to.bytes(&client) == turned, "what CUDA drew");
        cuda!(cuda, cuMipmappedArrayDestroy(mipmap));
        cuda!(cuda, cuDestroyExternalMemory(imported));
        // SAFETY: nothing is in use.
        unsafe { client.device.destroy_image(image, None) };
        client.free(memory);
        from.destroy(&client);
        to.destroy(&client);
        client.destroy();
    });
}

#[test]
fn cudas_memory_is_vulkans_by_its_descriptor() {
    isolated(
        "cuda::cudas_memory_is_vulkans_by_its_descriptor",
        "h200",
        || {
            let (client, cuda) = (client(), Cuda::new());
            let into = Mapped::new(&client, SIZE);
            let before = used();
            let size = SIZE as usize;
            // CUmemAllocationProp: pinned, exported as a descriptor; on device 0.
            let mut words = [0u64; size_of::<CUmemAllocationProp>().div_ceil(8)];
            (words[0], words[1]) = (1 << 32 | 1, 1);
            let (mut handle, mut pointer, mut fd): (_, _, c_int) = (0, 0, -1);
            cuda!(
                cuda,
                cuMemCreate(&mut handle, size, words.as_ptr().cast(), 0)
            );
            cuda!(cuda, cuMemAddressReserve(&mut pointer, size, 0, 0, 0));
            cuda!(cuda, cuMemMap(pointer, size, 0, handle, 0));
            // CUmemAccessDesc: device 0, read and write.
            let access: [u32; 3] = [1, 0, 3];
            cuda!(
                cuda,
                cuMemSetAccess(pointer, size, access.as_ptr().cast(), 1)
            );
            let at: *mut c_void = (&raw mut fd).cast();
            cuda!(cuda, cuMemExportToShareableHandle(at, handle, 1, 0));
            let (buffer, memory) = buffer_on(&client, SIZE, Some(fd));
            assert_eq!(used() - before, SIZE, "counted once");
            cuda!(cuda, cuMemsetD8_v2(pointer, 0x11, size));
            cuda!(cuda, cuCtxSynchronize());
            read(&client, buffer, &into, SIZE);
            assert_eq!(into.bytes(&client), vec![0x11; size]);
            fill(&client, buffer, 0x2222_2222);
            assert_eq!(cuda.bytes(pointer, size), vec![0x22; size]);
            cuda!(cuda, cuMemUnmap(pointer, size));
            cuda!(cuda, cuMemAddressFree(pointer, size));
            cuda!(cuda, cuMemRelease(handle));
            assert_eq!(used() - before, SIZE, "Vulkan holds it");
            // SAFETY: nothing is in use.
            unsafe { client.device.destroy_buffer(buffer, None) };
            client.free(memory);
            assert_eq!(used(), before);
            into.destroy(&client);
            client.destroy();
        },
    );
}

/// Two ends. Who hears nothing for so long has lost the other one: a datagram socket tells of no end.
pub fn sockets() -> (UnixDatagram, UnixDatagram) {
    let (here, there) = UnixDatagram::pair().expect("sockets");
    for end in [&here, &there] {
        let patience = std::time::Duration::from_secs(120);
        end.set_read_timeout(Some(patience)).expect("a timeout");
    }
    (here, there)
}

/// Says that it has come so far.
pub fn say(socket: &UnixDatagram) {
    assert_eq!(socket.send(&[1]).expect("the other end"), 1);
}

pub fn hear(socket: &UnixDatagram) {
    assert_eq!(socket.recv(&mut [0]).expect("the other end"), 1);
}

/// Vulkan's side: makes memory and semaphores, fills the memory, reads what CUDA made of it, frees it.
fn vulkans_side(client: &Client, other: &UnixDatagram) {
    hear(other);
    let into = Mapped::new(client, SIZE);
    let before = used();
    let (buffer, memory) = buffer_on(client, SIZE, None);
    let fds = ash::khr::external_semaphore_fd::Device::new(&client.instance, &client.device);
    let device = &client.device;
    let semaphore = |kind: vk::SemaphoreType| {
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(SEMAPHORE);
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
        let info = vk::SemaphoreCreateInfo::default()
            .push_next(&mut export)
            .push_next(&mut kind);
        // SAFETY: valid usage.
        unsafe {
            let semaphore = device.create_semaphore(&info, None).expect("a semaphore");
            let info = vk::SemaphoreGetFdInfoKHR::default()
                .semaphore(semaphore)
                .handle_type(SEMAPHORE);
            (
                semaphore,
                fds.get_semaphore_fd(&info).expect("a descriptor"),
            )
        }
    };
    let (filled, filled_fd) = semaphore(vk::SemaphoreType::BINARY);
    let (turned, turned_fd) = semaphore(vk::SemaphoreType::BINARY);
    let (steps, steps_fd) = semaphore(vk::SemaphoreType::TIMELINE);
    let memory_fd = descriptor(client, memory);
    send(other, [memory_fd, filled_fd]);
    send(other, [turned_fd, steps_fd]);
    // The other one has copies; ours would hold the memory.
    for fd in [memory_fd, filled_fd, turned_fd, steps_fd] {
        // SAFETY: given to us, and not used again.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // The other one waits for work that is not there yet, unless the machine is slow.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let submit = |commands: vk::CommandBuffer, info: vk::SubmitInfo<'_>| {
        let info = info.command_buffers(std::slice::from_ref(&commands));
        // SAFETY: valid usage.
        unsafe { device.queue_submit(client.queue, &[info], vk::Fence::null()) }.expect("submit");
    };
    let (first, commands) = crate::transfer::record(client, |commands| {
        // SAFETY: valid usage.
        unsafe { device.cmd_fill_buffer(commands, buffer, 0, SIZE, 0x2a2a_2a2a) };
    });
    let signal = [filled];
    submit(
        commands,
        vk::SubmitInfo::default().signal_semaphores(&signal),
    );
    let region = [vk::BufferCopy::default().size(SIZE)];
    let (second, commands) = crate::transfer::record(client, |commands| {
        // SAFETY: valid usage.
        unsafe { device.cmd_copy_buffer(commands, buffer, into.buffer, &region) };
    });
    let (wait, stage) = ([turned], [vk::PipelineStageFlags::TRANSFER]);
    let info = vk::SubmitInfo::default();
    submit(
        commands,
        info.wait_semaphores(&wait).wait_dst_stage_mask(&stage),
    );
    let info = vk::SemaphoreWaitInfo::default();
    let (semaphores, values) = ([steps], [5]);
    let info = info.semaphores(&semaphores).values(&values);
    // SAFETY: valid usage; idle before anything goes.
    unsafe {
        device.wait_semaphores(&info, u64::MAX).expect("step 5");
        assert_eq!(device.get_semaphore_counter_value(steps), Ok(5));
        device.queue_wait_idle(client.queue).expect("idle");
    }
    assert_eq!(
        into.bytes(client),
        vec![0x3b; SIZE as usize],
        "CUDA's bytes"
    );
    // SAFETY: as above.
    unsafe {
        device.destroy_buffer(buffer, None);
        client.free(memory);
        assert_eq!(used() - before, SIZE, "CUDA holds it");
        let info = vk::SemaphoreSignalInfo::default().semaphore(steps).value(6);
        device.signal_semaphore(&info).expect("step 6");
        hear(other);
        assert_eq!(used(), before);
        for pool in [first, second] {
            device.destroy_command_pool(pool, None);
        }
        for semaphore in [filled, turned, steps] {
            device.destroy_semaphore(semaphore, None);
        }
    }
    into.destroy(client);
    say(other);
}

/// CUDA's side. It keeps its context until the other one has looked.
fn cudas_side(other: &UnixDatagram) {
    let cuda = Cuda::new();
    let stream = cuda.stream();
    say(other);
    let [memory, filled] = receive(other);
    let [turned, steps] = receive(other);
    let before = used();
    let imported = cuda.import(memory, SIZE);
    let pointer = cuda.buffer(imported, SIZE);
    assert_eq!(used(), before, "counted once");
    let (filled, turned) = (cuda.semaphore(filled, 1), cuda.semaphore(turned, 1));
    let steps = cuda.semaphore(steps, 9);
    let size = SIZE as usize;
    let mut seen = vec![0u8; size];
    cuda.wait(filled, 0, stream);
    cuda!(
        cuda,
        cuMemcpyDtoHAsync_v2(seen.as_mut_ptr().cast(), pointer, size, stream)
    );
    cuda!(cuda, cuMemsetD8Async(pointer, 0x3b, size, stream));
    cuda.signal(turned, 0, stream);
    cuda.signal(steps, 5, stream);
    cuda!(cuda, cuStreamSynchronize(stream));
    assert_eq!(seen, vec![0x2a; size], "Vulkan's bytes");
    cuda.wait(steps, 6, stream);
    cuda!(cuda, cuStreamSynchronize(stream));
    assert_eq!(
        cuda.bytes(pointer, 16),
        [0x3b; 16],
        "without Vulkan's handle"
    );
    cuda!(cuda, cuMemFree_v2(pointer));
    cuda!(cuda, cuDestroyExternalMemory(imported));
    for semaphore in [filled, turned, steps] {
        cuda!(cuda, cuDestroyExternalSemaphore(semaphore));
    }
    say(other);
    hear(other);
}

#[test]
fn one_process_passes_memory_and_semaphores_between_its_apis() {
    isolated(
        "cuda::one_process_passes_memory_and_semaphores_between_its_apis",
        "h200",
        || {
            let client = client();
            let (here, there) = sockets();
            let other = std::thread::spawn(move || cudas_side(&there));
            vulkans_side(&client, &here);
            other.join().expect("CUDA's side");
            client.destroy();
        },
    );
}

#[test]
fn a_vulkan_process_passes_memory_and_semaphores_to_a_cuda_process() {
    const TEST: &str = "cuda::a_vulkan_process_passes_memory_and_semaphores_to_a_cuda_process";
    match role().as_deref() {
        None => Environment::new("h200").run(TEST, "vulkan"),
        Some("vulkan") => {
            let client = client();
            let (here, there) = sockets();
            // The child inherits its end as descriptor 0.
            let child = Command::new(std::env::current_exe().expect("the test's own path"))
                .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
                .env("RINGFENCE_ICD_ROLE", "cuda")
                .stdin(OwnedFd::from(there))
                .spawn()
                .expect("the other process");
            vulkans_side(&client, &here);
            let output = child.wait_with_output().expect("the other process's end");
            assert!(output.status.success(), "{}", output.status);
            client.destroy();
        }
        Some(_) => {
            use std::os::fd::AsFd;
            let socket = std::io::stdin().as_fd().try_clone_to_owned();
            cudas_side(&UnixDatagram::from(socket.expect("the socket")));
        }
    }
}
