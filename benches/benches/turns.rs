//! What hooks cost beside a driver that does nothing, and beside one that works: calls past the hooks, the same once more (the null
//! test) and calls through them in turns, batch by batch, in one process, so that whatever the machine does falls on all alike.
//!
//! Alone, with 5,000 live allocations, and beside 64 processes of the tenant.

use std::ffi::{CStr, CString, c_void};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use abi::cuda::{CUcontext, CUresult, CUstream, fns};
use object::{Object, ObjectSymbol};

/// What a child of the benchmark is to do.
const ROLE: &str = "RINGFENCE_BENCH_CHILD";
const MEASURE: &str = "measure";
const STAND_BY: &str = "stand by";
const BATCHES: usize = 301;
const CALLS: u32 = 200;
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

struct Driver {
    handle: *mut c_void,
    file: Vec<u8>,
    base: usize,
}

impl Driver {
    fn open() -> Self {
        // SAFETY: a constant name; the library's constructors are Rust's own.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "libcuda.so.1 is in LD_LIBRARY_PATH");
        let path = PathBuf::from(std::env::var_os("LD_LIBRARY_PATH").expect("a folder"));
        let path = std::fs::canonicalize(path.join("libcuda.so.1")).expect("a file");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own maps");
        // The first mapping of a file is that of its beginning.
        let line = maps
            .lines()
            .find(|line| line.ends_with(path.to_str().expect("a path")))
            .expect("it is mapped");
        let base = line.split('-').next().expect("an address");
        Self {
            handle,
            file: std::fs::read(&path).expect("a library"),
            base: usize::from_str_radix(base, 16).expect("a number"),
        }
    }

    /// As a program finds it.
    ///
    /// # Safety
    /// `F` is the type of the function of that name.
    unsafe fn hooked<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        // SAFETY: the caller's obligation.
        unsafe { std::mem::transmute_copy(&address) }
    }

    /// The driver's own, past every hook.
    ///
    /// # Safety
    /// As `hooked`.
    unsafe fn bare<F: Copy>(&self, name: &CStr) -> F {
        let file = object::File::parse(&*self.file).expect("an ELF file");
        let symbol = file
            .dynamic_symbols()
            .find(|symbol| symbol.name_bytes() == Ok(name.to_bytes()) && symbol.is_definition())
            .unwrap_or_else(|| panic!("{name:?}"));
        let address = self.base + symbol.address() as usize;
        // SAFETY: the caller's obligation.
        unsafe { std::mem::transmute_copy(&address) }
    }

    fn begin(&self) -> CUresult {
        // SAFETY: the types are those that `abi` gives the names; live out-parameters.
        unsafe {
            let init: fns::cuInit = self.hooked(c"cuInit");
            let retain: fns::cuDevicePrimaryCtxRetain = self.hooked(c"cuDevicePrimaryCtxRetain");
            let mut context = CUcontext::NULL;
            assert_eq!(init(0), CUresult::SUCCESS);
            retain(&mut context, 0)
        }
    }
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
    let in_turns = |name: &str, call: fn(&Calls)| compare(name, &bare, &ours, call);
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

/// Prints the least of each, and what the hooked ones differ by from the mean of those beside them, in the middle of all batches.
fn compare(name: &str, bare: &Calls, ours: &Calls, call: fn(&Calls)) {
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..BATCHES {
        for turn in 0..3 {
            let which = (turn + round) % 3;
            let calls = if which == 2 { ours } else { bare };
            (0..10).for_each(|_| call(calls));
            let began = Instant::now();
            (0..CALLS).for_each(|_| call(calls));
            times[which].push(began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
        }
    }
    let [bare, again, ours] = &times;
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = |mut differences: Vec<f64>| {
        differences.sort_by(f64::total_cmp);
        differences[BATCHES / 2]
    };
    let beyond = (0..BATCHES).map(|at| ours[at] - f64::midpoint(bare[at], again[at]));
    let null = (0..BATCHES).map(|at| again[at] - bare[at]);
    println!(
        "{name:<44} bare {:>8.1}  again {:>8.1}  ours {:>8.1}  in the middle {:>+6.1}, null test {:>+5.1}",
        least(bare),
        least(again),
        least(ours),
        middle(beyond.collect()),
        middle(null.collect()),
    );
}
