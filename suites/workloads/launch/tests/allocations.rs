//! The hot path asks nobody for memory: a global allocator counts. The driver beneath is the test's own, so that what is counted is ours.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use launch::{LaunchPlan, Staging, Stream};

#[path = "fake/libcuda.rs"]
mod libcuda;

struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn asked() {
    ASKED.set(ASKED.get() + 1);
}

// SAFETY: the system's allocator, counted; the counter is a plain number that needs none itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        asked();
        // SAFETY: the caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        asked();
        // SAFETY: the caller's obligation.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        asked();
        // SAFETY: the caller's obligation.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_launch_asks_for_no_memory_from_the_second_on() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let stream = Stream::create(&device).expect("a stream");
    let plan = LaunchPlan::over(1_000, 256).expect("a plan");
    let launches = [plan, plan.cooperative()].map(|plan| kernel.validate(&plan).expect("valid"));
    let mut staging = Staging::default();
    let before = ASKED.get();
    let mut launch = |round: u64| {
        for launch in &launches {
            let filling = staging.begin(&kernel).expect("room");
            let arguments = filling.put(round).put(7_u32).finish().expect("both");
            launch.enqueue(&stream, &arguments).expect("launched");
        }
        assert_eq!(libcuda::LAST.get(), (0x40, round, 7));
    };
    launch(0);
    let (first, begun) = (ASKED.get() - before, ASKED.get());
    (1..=10_000).for_each(&mut launch);
    assert_eq!(ASKED.get(), begun, "the allocator was asked");
    // The counter does count.
    assert!(first > 0, "the first launch made room");
    assert_eq!(device.counts().launches, 20_002);
}

#[test]
fn a_refused_launch_asks_for_no_memory_either() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let stream = Stream::create(&device).expect("a stream");
    let launch = kernel
        .validate(&LaunchPlan::over(1, 1).expect("a plan"))
        .expect("valid");
    let mut staging = Staging::default();
    staging.reserve(2).expect("room");
    let filling = staging.begin(&kernel).expect("room");
    let arguments = filling.put(1_u64).put(2_u32).finish().expect("both");
    libcuda::LAUNCH.set(abi::cuda::CUresult::ERROR_LAUNCH_OUT_OF_RESOURCES);
    let begun = ASKED.get();
    let refused = launch.enqueue(&stream, &arguments);
    assert_eq!(ASKED.get(), begun, "the allocator was asked");
    refused.expect_err("refused");
}
