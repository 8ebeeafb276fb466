//! What hooks cost beside a driver that does nothing, and beside one that works: calls past the hooks, the same once more (the null
//! test) and calls through them in turns, batch by batch, in one process, so that whatever the machine does falls on all alike.
//!
//! Alone, with 5,000 live allocations, and beside 64 processes of the tenant.

use std::path::{Path, PathBuf};
use std::process::Command;

use abi::cuda::CUresult;

#[path = "measure/beside.rs"]
mod beside;
#[path = "measure/calls.rs"]
mod calls;
#[path = "measure/driver.rs"]
mod driver;
#[path = "measure/turns.rs"]
mod turns;

use beside::{beside, stand_by};
use calls::Calls;
use driver::Driver;
use turns::Turns;

/// What a child of the benchmark is to do.
const ROLE: &str = "RINGFENCE_BENCH_CHILD";
const MEASURE: &str = "measure";
const STAND_BY: &str = "stand by";
const PROCESSES: usize = 64;
const LIVE: usize = 5000;
/// Steps and lines of a call: nothing, about 200 and about 250 ns, the latter mostly of stores.
const WORK: [(u32, u32); 3] = [(0, 0), (40, 30), (30, 200)];

fn main() {
    match std::env::var_os(ROLE) {
        Some(role) if role == MEASURE => return measure(),
        Some(_) => return stand_by(),
        None => {}
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let link = folder.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(built("libnull_driver.so"), link).expect("a link");
    println!("alone");
    done(command(folder.path(), MEASURE));
    let stand = || command(folder.path(), STAND_BY);
    beside(PROCESSES, stand, || done(command(folder.path(), MEASURE)));
}

fn done(mut command: Command) {
    assert!(command.status().expect("a child").success());
}

fn built(file: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("this executable");
    let mut folders = executable.ancestors().skip(1).take(2);
    folders
        .find_map(|folder| Some(folder.join(file)).filter(|path| path.exists()))
        .unwrap_or_else(|| panic!("{file} is not beside this executable"))
}

/// A process of the tenant's, over the driver in that folder.
fn command(folder: &Path, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    command
        .env(ROLE, role)
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_PRELOAD", built("libvgpu.so"))
        .env("CUDA_DEVICE_MEMORY_LIMIT_0", "64g")
        .env("RINGFENCE_LEDGER", folder.join("ledger"));
    command
}

fn measure() {
    let driver = Driver::open();
    assert_eq!(driver.begin(), CUresult::SUCCESS);
    // SAFETY: the null driver's own, which takes two numbers.
    let works: unsafe extern "C" fn(u32, u32) = unsafe { driver.bare(c"null_driver_works") };
    let [bare, ours] = Calls::of(&driver);
    let in_turns = |name: &str, call: fn(&Calls)| {
        Turns::default().compare(name, || call(&bare), || call(&ours));
    };
    for (steps, lines) in WORK {
        // SAFETY: takes two numbers.
        unsafe { works(steps, lines) };
        let name = format!("cuMemAllocAsync + free, {steps} steps, {lines} lines");
        in_turns(&name, Calls::pair);
    }
    // SAFETY: as above.
    unsafe { works(0, 0) };
    in_turns("cuMemGetInfo_v2", Calls::ask);
    in_turns("ten times cuGetProcAddress_v2", |calls| {
        (0..10).for_each(|_| calls.proc_address(c"cuCtxGetFlags"));
    });
    for _ in 0..LIVE {
        ours.allocate();
    }
    in_turns("cuMemAllocAsync + free, 5,000 live", Calls::pair);
}
