//! Threads that wait for what others signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Failure, cases, ensure, ensure_eq, fail, skip};

use crate::clients::{first_gpu, instance};
use crate::ffi::vulkan::{Client, Code, Timeline};

#[derive(Clone, Copy, Debug)]
enum Wait {
    Semaphore,
    /// Of a submission that waits for the semaphore.
    Fence,
}

#[derive(Clone, Copy, Debug)]
enum Signal {
    Host,
    Submission,
}

/// Of the first GPU, where its first family has two queues.
fn timeline() -> Result<Timeline, Failure> {
    let instance = instance(Client::V1_3)?;
    match instance.timeline(first_gpu(&instance)?)? {
        Some(timeline) => Ok(timeline),
        None => skip!("the first family has one queue"),
    }
}

fn woken(timeline: &Timeline, value: u64, wait: Wait, signal: Signal) -> Result<(), Failure> {
    if let Wait::Fence = wait {
        timeline.submit_fence(value)?;
    }
    let signaled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waited = match wait {
                Wait::Semaphore => timeline.wait(value),
                Wait::Fence => timeline.wait_for_fence(),
            };
            (waited, signaled.load(Ordering::SeqCst))
        });
        // Long enough for the other thread to wait, on an idle machine; on a busy one the case shows less.
        std::thread::sleep(Duration::from_millis(20));
        signaled.store(true, Ordering::SeqCst);
        match signal {
            Signal::Host => timeline.signal(value)?,
            Signal::Submission => timeline.submit_signal(value)?,
        }
        let Ok((waited, after)) = waiter.join() else {
            fail!("the thread that waited died")
        };
        ensure_eq!(waited, Ok(()), "{wait:?}, woken by {signal:?}");
        ensure!(after, "{wait:?} was over before {signal:?}");
        Ok(())
    })
}

/// Frames whose little work, which `submit` gives the device, waits for the host.
fn frames(timeline: &Timeline, submit: impl Fn(u64) -> Result<(), Code>) -> Result<(), Failure> {
    const FRAMES: u32 = 64;
    const FRAME: Duration = Duration::from_millis(15);
    let first = Instant::now();
    let frame = |value| {
        let begun = Instant::now();
        let longest = 4 * FRAMES * FRAME;
        ensure!(
            first.elapsed() < longest,
            "{value} frames of {FRAME:?} took more than {longest:?}"
        );
        submit(u64::from(value))?;
        std::thread::sleep(FRAME);
        timeline.signal(u64::from(value))?;
        timeline.wait_for_fence()?;
        Ok::<_, Failure>(begun.elapsed())
    };
    let took = (1..=FRAMES).map(frame).collect::<Result<Vec<_>, _>>()?;
    // What is saved up pays for the first ones; a busy machine keeps some waiting.
    let late = &took[FRAMES as usize / 2..];
    let mean = late.iter().sum::<Duration>() / (FRAMES / 2);
    ensure!(
        mean < 3 * FRAME,
        "the last frames of {FRAME:?} took {mean:?} on average: {took:?}"
    );
    Ok(())
}

cases! {
    /// A thread that waits, with all the time there is, goes on as soon as another one signals: whatever it waits for, and whether the host
    /// signals or a submission does; under a compute budget too.
    who_waits_is_woken_by_whoever_signals {
        kind: Neutral, defects: ["K1"], entry_points: ["vkWaitSemaphores", "vkWaitForFences", "vkSignalSemaphore", "vkQueueSubmit"],
        env: [("CUDA_DEVICE_SM_LIMIT", "90")], unordered: "two threads",
    } (_session) {
        let timeline = timeline()?;
        let mut value = 0;
        for wait in [Wait::Semaphore, Wait::Fence] {
            for signal in [Signal::Host, Signal::Submission] {
                value += 1;
                woken(&timeline, value, wait, signal)?;
            }
        }
        Ok(())
    }

    /// Under a compute budget a batch that waits for one of another queue that is submitted later holds nobody up: not the one that it waits for.
    a_batch_that_waits_holds_nobody_up {
        kind: Neutral, defects: ["T5"], entry_points: ["vkQueueSubmit"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the drivers are asked more",
    } (_session) {
        const ROUNDS: u64 = 5;
        let timeline = timeline()?;
        let round = |value| {
            let begun = Instant::now();
            timeline.submit_work_behind(value)?;
            timeline.submit_work_to_signal(value)?;
            timeline.wait_for_fence()?;
            Ok::<_, Failure>(begun.elapsed())
        };
        // Who waits for what does not come gives up after a quarter of a second, and pays for that then: each time, and on a busy machine some take as long.
        let quickest = (1..=ROUNDS).map(round).collect::<Result<Vec<_>, _>>()?.into_iter().min();
        let quickest = quickest.unwrap_or_default();
        ensure!(quickest < Duration::from_millis(250), "of {ROUNDS} batches that wait, and what they wait for, the quickest took {quickest:?}");
        Ok(())
    }

    /// What a batch waits for is no work: frames that each wait for the host, as for a swapchain's image, come as often as without a budget.
    what_a_batch_waits_for_is_not_paid_for {
        kind: Neutral, defects: ["T13"], entry_points: ["vkQueueSubmit", "vkSignalSemaphore"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the drivers are asked more",
    } (_session) {
        let timeline = timeline()?;
        frames(&timeline, |value| timeline.submit_work_behind(value))
    }

    /// The same where a batch without command buffers waits, and the next one has the work.
    what_comes_behind_a_wait_is_not_paid_for_while_it_waits {
        kind: Neutral, defects: ["T14"], entry_points: ["vkQueueSubmit", "vkSignalSemaphore"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the drivers are asked more",
    } (_session) {
        let timeline = timeline()?;
        // What it takes is known by then.
        for _ in 0..20 {
            timeline.submit_work()?;
            timeline.wait_for_fence()?;
        }
        frames(&timeline, |value| {
            timeline.submit_wait(value)?;
            timeline.submit_work()
        })
    }
}
