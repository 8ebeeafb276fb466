//! Several devices, and several threads.

use std::sync::Arc;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure_eq, fail};
use launch::{Buffer, Device, Kernel, LaunchPlan, Modules, Staging, Stream};

use super::IDLE;
use crate::ffi::launch::kernel;

/// A device with what a program has of it.
struct Worker {
    device: Arc<Device>,
    kernel: Arc<Kernel>,
    stream: Stream,
}

impl Worker {
    fn on(device: &Arc<Device>) -> Result<Self, Failure> {
        let module = Modules::new(device).load(IDLE)?;
        Ok(Self {
            kernel: kernel(&module, "idle", &[8])?,
            stream: Stream::create(device)?,
            device: Arc::clone(device),
        })
    }

    fn work(&self) -> Result<(), Failure> {
        let launch = self.kernel.validate(&LaunchPlan::over(64, 64)?)?;
        let mut staging = Staging::default();
        let arguments = staging.begin(&self.kernel)?.put(0_u64).finish()?;
        launch.enqueue(&self.stream, &arguments)?;
        Ok(self.stream.synchronize()?)
    }
}

/// What a device is asked for, in words.
fn words(bytes: Bytes) -> Vec<u32> {
    vec![7; bytes.0 as usize / size_of::<u32>()]
}

cases! {
    /// Whatever names a device is made on that device, whichever was opened last: each one's budget decides what is granted there, and kernels of both are launched in turns.
    each_of_two_devices_is_used_as_itself {
        kind: Budget, defects: ["W1"], entry_points: ["cuLaunchKernel", "cuMemAlloc_v2", "cuCtxSetCurrent"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=1GiB,1=3GiB",
    } (_session) {
        let devices = [Device::open(0)?, Device::open(1)?];
        let of = |at: usize, bytes| Buffer::holding(&devices[at], &words(bytes));
        let workers = [Worker::on(&devices[0])?, Worker::on(&devices[1])?];
        let larger = Bytes::mib(768);
        match of(0, larger) {
            Err(refused) => ensure_eq!(refused.code(), Some(CUresult::ERROR_OUT_OF_MEMORY), "{larger} of a budget of 1 GiB"),
            Ok(_) => fail!("{larger} were granted under a budget of 1 GiB"),
        }
        let granted = [of(0, Bytes::mib(64))?, of(1, larger)?];
        for at in [0, 1, 1, 0] {
            workers[at].work()?;
        }
        let launches = workers.each_ref().map(|worker| worker.device.counts().launches);
        ensure_eq!(launches, [2, 2], "launches of either device");
        ensure_eq!(granted[0].read()?.first(), Some(&7), "what was written to the first device");
        drop(granted);
        // All of it came back where it was.
        drop((of(0, Bytes::mib(256))?, of(1, larger)?));
        Ok(())
    }

    /// A program's worker threads, in which no context is current, launch what another thread made, on both devices at once.
    threads_share_what_another_made {
        defects: ["W2"], entry_points: ["cuLaunchKernel", "cuCtxSetCurrent"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=2GiB,1=2GiB", unordered: "four threads",
    } (_session) {
        let workers = [Worker::on(&Device::open(0)?)?, Worker::on(&Device::open(1)?)?];
        let workers = &workers;
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| scope.spawn(move || (0..50).try_for_each(|round| workers[(thread + round) % 2].work())))
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        for worked in done {
            match worked {
                Ok(worked) => worked?,
                Err(_) => fail!("a worker thread panicked"),
            }
        }
        ensure_eq!(workers.each_ref().map(|worker| worker.device.counts().launches), [100, 100], "launches of either device");
        Ok(())
    }
}
