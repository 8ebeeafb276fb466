//! A thread that waits is woken by whoever signals: every way to wait, by every way to signal.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ash::vk;

use crate::client::Client;
use crate::cuda::{Cuda, hear, say, sockets};
use crate::environment::{Environment, role};
use crate::shared::{EXTENSIONS, receive, send};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    /// vkWaitForFences, of a submission that waits for the semaphore.
    Fence,
    /// The same, begun before the submission.
    FenceToBeSubmitted,
    /// One of two fences.
    AnyFence,
    /// A fence behind a binary semaphore of another queue, whose work waits for the semaphore.
    FenceBehindBinary,
    /// vkWaitSemaphores.
    Semaphore,
    /// One of two semaphores.
    AnySemaphore,
    /// vkQueueWaitIdle, with a submission that waits for the semaphore.
    Queue,
    /// vkDeviceWaitIdle.
    Device,
    /// cuStreamSynchronize, behind cuWaitExternalSemaphoresAsync.
    Stream,
}

const WAITS: [Wait; 9] = [
    Wait::Fence,
    Wait::FenceToBeSubmitted,
    Wait::AnyFence,
    Wait::FenceBehindBinary,
    Wait::Semaphore,
    Wait::AnySemaphore,
    Wait::Queue,
    Wait::Device,
    Wait::Stream,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Signal {
    /// vkSignalSemaphore.
    Host,
    /// vkQueueSubmit to another queue.
    Queue,
    /// cuSignalExternalSemaphoresAsync.
    Cuda,
    /// vkSignalSemaphore in another process.
    HostElsewhere,
    /// vkQueueSubmit in another process.
    QueueElsewhere,
}

const SIGNALS: [Signal; 5] = [
    Signal::Host,
    Signal::Queue,
    Signal::Cuda,
    Signal::HostElsewhere,
    Signal::QueueElsewhere,
];

const TEST: &str = "wakes::whoever_waits_is_woken_by_whoever_signals";
const HANDLE: vk::ExternalSemaphoreHandleTypeFlags =
    vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
/// CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD.
const TIMELINE_FD: u64 = 9;
/// For ever, as far as these waits go: who is not woken must not be helped by the end of its time.
const EVER: u64 = u64::MAX;

/// A device with three queues. The first two are given what waits, the third what signals.
struct Device {
    raw: ash::Device,
    fds: ash::khr::external_semaphore_fd::Device,
    queues: [vk::Queue; 3],
}

impl Device {
    fn new(client: &Client) -> Self {
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0; 3])];
        let names: Vec<_> = EXTENSIONS.iter().map(|name| name.as_ptr()).collect();
        let mut features = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(&mut features);
        // SAFETY: valid usage.
        unsafe {
            let raw = client.instance.create_device(client.physical, &info, None);
            let raw = raw.expect("a device");
            Self {
                fds: ash::khr::external_semaphore_fd::Device::new(&client.instance, &raw),
                queues: [0, 1, 2].map(|index| raw.get_device_queue(0, index)),
                raw,
            }
        }
    }

    fn semaphore(&self, kind: vk::SemaphoreType, exported: bool) -> vk::Semaphore {
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(HANDLE);
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
        let mut info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        if exported {
            info = info.push_next(&mut export);
        }
        // SAFETY: valid usage.
        unsafe { self.raw.create_semaphore(&info, None) }.expect("a semaphore")
    }

    fn fence(&self) -> vk::Fence {
        // SAFETY: valid usage.
        unsafe { self.raw.create_fence(&vk::FenceCreateInfo::default(), None) }.expect("a fence")
    }

    fn descriptor(&self, semaphore: vk::Semaphore) -> i32 {
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(semaphore)
            .handle_type(HANDLE);
        // SAFETY: a semaphore that was made for export.
        unsafe { self.fds.get_semaphore_fd(&info) }.expect("a descriptor")
    }

    /// Waits for the first semaphore's value 1 and signals the second one's, as far as they are there.
    fn submit(
        &self,
        queue: usize,
        wait: Option<vk::Semaphore>,
        signal: Option<vk::Semaphore>,
        fence: vk::Fence,
    ) {
        let (waits, signals) = (Vec::from_iter(wait), Vec::from_iter(signal));
        let values = [1];
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values[..waits.len()])
            .signal_semaphore_values(&values[..signals.len()]);
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        // SAFETY: valid usage: no other thread uses this queue now.
        unsafe { self.raw.queue_submit(self.queues[queue], &[info], fence) }.expect("submit");
    }

    fn signal_by_host(&self, semaphore: vk::Semaphore) {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(semaphore)
            .value(1);
        // SAFETY: valid usage.
        unsafe { self.raw.signal_semaphore(&info) }.expect("a signal");
    }
}

/// What a thread waits for, made ready before it does.
struct Waiting {
    device: Arc<Device>,
    wait: Wait,
    semaphore: vk::Semaphore,
    /// Binary and timeline ones that nobody outside needs.
    others: [vk::Semaphore; 2],
    fences: [vk::Fence; 2],
}

impl Waiting {
    fn new(device: &Arc<Device>, wait: Wait, semaphore: vk::Semaphore) -> Self {
        let new = Self {
            device: Arc::clone(device),
            wait,
            semaphore,
            others: [
                device.semaphore(vk::SemaphoreType::BINARY, false),
                device.semaphore(vk::SemaphoreType::TIMELINE, false),
            ],
            fences: [device.fence(), device.fence()],
        };
        let none = vk::Fence::null();
        match wait {
            Wait::Fence | Wait::AnyFence => new.submit_fence(),
            Wait::FenceBehindBinary => {
                device.submit(0, Some(semaphore), Some(new.others[0]), none);
                device.submit(1, Some(new.others[0]), None, new.fences[0]);
            }
            Wait::Queue | Wait::Device => device.submit(0, Some(semaphore), None, none),
            Wait::FenceToBeSubmitted | Wait::Semaphore | Wait::AnySemaphore | Wait::Stream => {}
        }
        new
    }

    fn submit_fence(&self) {
        self.device
            .submit(0, Some(self.semaphore), None, self.fences[0]);
    }

    /// In the thread; `ready` is called when nothing is left but to wait.
    fn wait(&self, ready: impl FnOnce()) {
        let raw = &self.device.raw;
        if self.wait == Wait::Stream {
            let cuda = Cuda::new();
            let stream = cuda.stream();
            let semaphore = cuda.semaphore(self.device.descriptor(self.semaphore), TIMELINE_FD);
            cuda.wait(semaphore, 1, stream);
            ready();
            return cuda.synchronize(stream);
        }
        ready();
        let semaphores = |list: &[vk::Semaphore], flags| {
            let values = [1; 2];
            let info = vk::SemaphoreWaitInfo::default()
                .flags(flags)
                .semaphores(list)
                .values(&values[..list.len()]);
            // SAFETY: valid usage.
            unsafe { raw.wait_semaphores(&info, EVER) }
        };
        // SAFETY: valid usage: nobody else uses these queues meanwhile.
        let waited = unsafe {
            match self.wait {
                Wait::Fence | Wait::FenceToBeSubmitted | Wait::FenceBehindBinary => {
                    raw.wait_for_fences(&self.fences[..1], true, EVER)
                }
                Wait::AnyFence => raw.wait_for_fences(&self.fences, false, EVER),
                Wait::Semaphore => semaphores(&[self.semaphore], vk::SemaphoreWaitFlags::empty()),
                Wait::AnySemaphore => {
                    let both = [self.others[1], self.semaphore];
                    semaphores(&both, vk::SemaphoreWaitFlags::ANY)
                }
                Wait::Queue => raw.queue_wait_idle(self.device.queues[0]),
                Wait::Device | Wait::Stream => raw.device_wait_idle(),
            }
        };
        assert_eq!(waited, Ok(()), "{:?}", self.wait);
    }

    fn destroy(&self) {
        let raw = &self.device.raw;
        // SAFETY: nobody waits for them any longer, and no work is left.
        unsafe {
            raw.device_wait_idle().expect("idle");
            self.fences
                .iter()
                .for_each(|fence| raw.destroy_fence(*fence, None));
            for semaphore in self.others.iter().chain([&self.semaphore]) {
                raw.destroy_semaphore(*semaphore, None);
            }
        }
    }
}

/// One thread waits, another one signals. The thread that waits must be woken, and not before.
fn woken(device: &Arc<Device>, other: &UnixDatagram, wait: Wait, signal: Signal) {
    let elsewhere = matches!(signal, Signal::HostElsewhere | Signal::QueueElsewhere);
    let exported = elsewhere || signal == Signal::Cuda || wait == Wait::Stream;
    let semaphore = device.semaphore(vk::SemaphoreType::TIMELINE, exported);
    if elsewhere {
        send(
            other,
            [device.descriptor(semaphore), device.descriptor(semaphore)],
        );
        hear(other);
    }
    let waiting = Arc::new(Waiting::new(device, wait, semaphore));
    let signaled = Arc::new(AtomicBool::new(false));
    let ((begun, has_begun), (done, is_done)) = (channel(), channel());
    let (theirs, seen) = (Arc::clone(&waiting), Arc::clone(&signaled));
    // Not joined: a thread that waits for ever would keep this test for ever.
    std::thread::spawn(move || {
        theirs.wait(|| begun.send(()).expect("the other thread"));
        let after = seen.load(Ordering::SeqCst);
        done.send(after).expect("the other thread");
    });
    has_begun.recv().expect("the thread");
    let still_waits = || {
        let early = is_done.recv_timeout(Duration::from_millis(20));
        assert_eq!(
            early,
            Err(RecvTimeoutError::Timeout),
            "{wait:?}, before {signal:?}"
        );
    };
    still_waits();
    if wait == Wait::FenceToBeSubmitted {
        waiting.submit_fence();
        still_waits();
    }
    signaled.store(true, Ordering::SeqCst);
    match signal {
        Signal::Host => device.signal_by_host(semaphore),
        Signal::Queue => device.submit(2, None, Some(semaphore), vk::Fence::null()),
        Signal::Cuda => {
            let cuda = Cuda::new();
            let imported = cuda.semaphore(device.descriptor(semaphore), TIMELINE_FD);
            cuda.signal(imported, 1, cuda.stream());
        }
        Signal::HostElsewhere => assert_eq!(other.send(&[0]).expect("the other end"), 1),
        Signal::QueueElsewhere => assert_eq!(other.send(&[1]).expect("the other end"), 1),
    }
    let woken = is_done.recv_timeout(Duration::from_secs(60));
    assert_eq!(woken, Ok(true), "{wait:?}, woken by {signal:?}");
    if elsewhere {
        hear(other);
    }
    waiting.destroy();
}

/// Imports a semaphore and signals it when told to, until nobody asks any more.
fn signals_for_others(client: &Client, socket: &UnixDatagram) {
    let device = Device::new(client);
    for _ in WAITS
        .iter()
        .flat_map(|_| [Signal::HostElsewhere, Signal::QueueElsewhere])
    {
        let [fd, spare] = receive(socket);
        // SAFETY: given to us, and used no more.
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(spare) });
        let semaphore = device.semaphore(vk::SemaphoreType::TIMELINE, false);
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(semaphore)
            .handle_type(HANDLE)
            .fd(fd);
        // SAFETY: valid usage; the descriptor is given away.
        unsafe { device.fds.import_semaphore_fd(&info) }.expect("an import");
        say(socket);
        let mut how = [0];
        assert_eq!(socket.recv(&mut how).expect("the other end"), 1);
        match how {
            [0] => device.signal_by_host(semaphore),
            _ => device.submit(2, None, Some(semaphore), vk::Fence::null()),
        }
        // SAFETY: no work is left that uses it.
        unsafe {
            device.raw.device_wait_idle().expect("idle");
            device.raw.destroy_semaphore(semaphore, None);
        }
        say(socket);
    }
    // SAFETY: nothing is left of it.
    unsafe { device.raw.destroy_device(None) };
}

#[test]
fn whoever_waits_is_woken_by_whoever_signals() {
    match role().as_deref() {
        None => Environment::new("h200").run(TEST, "waiter"),
        Some("waiter") => {
            let client = Client::of(vk::API_VERSION_1_3, false, &[], &EXTENSIONS);
            let (here, there) = sockets();
            // The child inherits its end as descriptor 0.
            let child = Command::new(std::env::current_exe().expect("the test's own path"))
                .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
                .env("RINGFENCE_ICD_ROLE", "signaller")
                .stdin(OwnedFd::from(there))
                .spawn()
                .expect("the other process");
            let device = Arc::new(Device::new(&client));
            for wait in WAITS {
                for signal in SIGNALS {
                    // vkDeviceWaitIdle lets no other thread use a queue meanwhile.
                    if (wait, signal) != (Wait::Device, Signal::Queue) {
                        woken(&device, &here, wait, signal);
                    }
                }
            }
            let output = child.wait_with_output().expect("the other process's end");
            assert!(output.status.success(), "{}", output.status);
            // SAFETY: nothing is left of it.
            unsafe { device.raw.destroy_device(None) };
            client.destroy();
        }
        Some(_) => {
            use std::os::fd::AsFd;
            let client = Client::of(vk::API_VERSION_1_3, false, &[], &EXTENSIONS);
            let socket = std::io::stdin().as_fd().try_clone_to_owned();
            signals_for_others(&client, &UnixDatagram::from(socket.expect("the socket")));
            client.destroy();
        }
    }
}
