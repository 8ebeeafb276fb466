//! What hooks cost beside a driver that does nothing, and beside one that works: calls past the hooks, the same once more (the null
//! test) and calls through them in turns, batch by batch, in one process, so that whatever the machine does falls on all alike.
//!
//! Alone, with 5,000 live allocations, and beside 64 processes of the tenant.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use abi::cuda::{CUresult, CUstream, fns};

#[path = "measure/driver.rs"]
mod driver;
#[path = "measure/turns.rs"]
mod turns;

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
    assert!(
        child(folder.path(), MEASURE)
            .wait()
            .expect("a child")
            .success()
    );
    println!("beside {PROCESSES} processes of the tenant");
    let mut others: Vec<Child> = (0..PROCESSES)
        .map(|_| child(folder.path(), STAND_BY))
        .collect();
    for other in &mut others {
        let mut line = String::new();
        let output = other.stdout.as_mut().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), STAND_BY);
    }
    assert!(
        child(folder.path(), MEASURE)
            .wait()
            .expect("a child")
            .success()
    );
    for other in &mut others {
        drop(other.stdin.take());
        other.wait().expect("an end");
    }
}

fn built(file: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("this executable");
    let mut folders = executable.ancestors().skip(1).take(2);
    folders
        .find_map(|folder| Some(folder.join(file)).filter(|path| path.exists()))
        .unwrap_or_else(|| panic!("{file} is not beside this executable"))
}

/// A process of the tenant's, over the driver in that folder.
fn child(folder: &Path, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    command
        .env(ROLE, role)
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_PRELOAD", built("libvgpu.so"))
        .env("CUDA_DEVICE_MEMORY_LIMIT_0", "64g")
        .env("RINGFENCE_LEDGER", folder.join("ledger"));
    if role == STAND_BY {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    }
    command.spawn().expect("a child")
}

/// A process that holds something, until its standard input ends.
fn stand_by() {
    let driver = Driver::open();
    assert_eq!(driver.begin(), CUresult::SUCCESS);
    println!("{STAND_BY}");
    let _ = std::io::stdin().read(&mut [0]);
}

#[derive(Clone, Copy)]
struct Calls {
    alloc: fns::cuMemAllocAsync,
    free: fns::cuMemFreeAsync,
    information: fns::cuMemGetInfo_v2,
    look_up: fns::cuGetProcAddress_v2,
}

impl Calls {
    fn allocate(&self) -> u64 {
        let mut pointer = 0;
        // SAFETY: a live out-parameter and the NULL stream.
        let code = unsafe { (self.alloc)(&mut pointer, 4096, CUstream::NULL) };
        assert_eq!(code, CUresult::SUCCESS);
        pointer
    }

    fn pair(&self) {
        let pointer = self.allocate();
        // SAFETY: the pointer just granted, and the NULL stream.
        let code = unsafe { (self.free)(pointer, CUstream::NULL) };
        assert_eq!(code, CUresult::SUCCESS);
    }

    fn ask(&self) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: live out-parameters.
        let code = unsafe { (self.information)(&mut free, &mut total) };
        assert_eq!(code, CUresult::SUCCESS);
    }

    fn proc_address(&self) {
        let (mut found, mut status) = (std::ptr::null_mut(), 0);
        let name = CString::from(c"cuCtxGetFlags");
        for _ in 0..10 {
            // SAFETY: a C string and live out-parameters.
            let code = unsafe {
                (self.look_up)(
                    name.as_ptr(),
                    &mut found,
                    13000,
                    0,
                    (&raw mut status).cast(),
                )
            };
            assert_eq!(code, CUresult::SUCCESS);
        }
    }
}

fn measure() {
    let driver = Driver::open();
    assert_eq!(driver.begin(), CUresult::SUCCESS);
    // SAFETY: the types are those that `abi` gives the names; the last is the null driver's own.
    let (bare, ours, works) = unsafe {
        let bare = Calls {
            alloc: driver.bare(c"cuMemAllocAsync"),
            free: driver.bare(c"cuMemFreeAsync"),
            information: driver.bare(c"cuMemGetInfo_v2"),
            look_up: driver.bare(c"cuGetProcAddress_v2"),
        };
        let ours = Calls {
            alloc: driver.hooked(c"cuMemAllocAsync"),
            free: driver.hooked(c"cuMemFreeAsync"),
            information: driver.hooked(c"cuMemGetInfo_v2"),
            look_up: driver.hooked(c"cuGetProcAddress_v2"),
        };
        let works: unsafe extern "C" fn(u32, u32) = driver.bare(c"null_driver_works");
        (bare, ours, works)
    };
    assert_ne!(
        bare.alloc as usize, ours.alloc as usize,
        "nothing is hooked"
    );
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
    in_turns("ten times cuGetProcAddress_v2", Calls::proc_address);
    for _ in 0..LIVE {
        ours.allocate();
    }
    in_turns("cuMemAllocAsync + free, 5,000 live", Calls::pair);
}
