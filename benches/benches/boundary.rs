//! What the launch boundary (`suites/workloads/launch`) adds to a launch, on the mock without an enforcer. The same on a card, with our libraries and without:
//! `card`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::fns;
use harness::environment::{Environment, Request};
use harness::{Libraries, Target};

#[path = "measure/boundary.rs"]
mod boundary;
#[path = "measure/turns.rs"]
mod turns;

const CHILD: &str = "RINGFENCE_BENCH_CHILD";
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Of this program alone: the driver has its own.
struct Counting;

// SAFETY: the system's allocator, counted; what is not said here ends in these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligation.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        boundary::compare(by_name(), || Some(ASKED.load(Ordering::Relaxed)));
        return ExitCode::SUCCESS;
    }
    let target = Target::named("none").expect("a target");
    let driver = "mock:h200".parse().expect("a driver");
    let environment = Environment::create(&Request {
        machine: "h200",
        ..Request::new("bench", &target, &driver)
    })
    .expect("an environment");
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    environment
        .plan
        .apply(&mut command, Libraries::Neither)
        .expect("the target's variables");
    match command
        .env(CHILD, "1")
        .status()
        .expect("the child starts")
        .success()
    {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// cuLaunchKernel as any program finds it.
fn by_name() -> fns::cuLaunchKernel {
    // SAFETY: constant names; the library's constructors are Rust's own, and it stays.
    let address = unsafe {
        let handle = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "libcuda.so.1 is in LD_LIBRARY_PATH");
        libc::dlsym(handle, c"cuLaunchKernel".as_ptr())
    };
    assert!(!address.is_null(), "cuLaunchKernel");
    // SAFETY: the type is the one that `abi` gives the name.
    unsafe { std::mem::transmute::<*mut libc::c_void, fns::cuLaunchKernel>(address) }
}
