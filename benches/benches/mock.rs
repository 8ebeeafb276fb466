//! How fast the mocks are, beside a library that does nothing, and on 16 GPUs beside one.
//!
//! Not criterion's way: what is compared is called in turns, batch by batch, so that whatever else the machine does falls
//! on all of it alike, and the least of many batches is what the code takes. Every line has its null test, the same thing
//! measured once more. Worlds of one and of 16 GPUs are two processes each, in turns.

use std::ffi::{CStr, CString, c_char, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use abi::cuda::{CUcontext, CUresult, CUstream, fns};
use ash::vk;
use mock_device::{World, WorldSpec, profile};

const CHILD: &str = "RINGFENCE_BENCH_CHILD";
const BATCHES: usize = 300;
const CALLS: u32 = 1000;
/// Processes per world.
const TURNS: usize = 2;

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return measure();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let machines = ["h200", "h200*16"];
    let mut tables: Vec<Vec<Line>> = vec![Vec::new(), Vec::new()];
    for (machine, path) in machines.iter().zip(["one", "sixteen"]) {
        let spec = WorldSpec::new(profile::embedded(machine).expect("a profile"));
        World::create(&folder.path().join(path), &spec).expect("a world");
    }
    for _ in 0..TURNS {
        for (path, table) in ["one", "sixteen"].iter().zip(&mut tables) {
            let lines = child(&folder.path().join(path));
            if table.is_empty() {
                *table = lines;
            } else {
                table
                    .iter_mut()
                    .zip(lines)
                    .for_each(|(old, new)| old.join(&new));
            }
        }
    }
    println!(
        "least ns a call of {} batches (half of the batches below); ratio to the null library",
        BATCHES * TURNS
    );
    for (one, sixteen) in tables[0].iter().zip(&tables[1]) {
        println!(
            "{:<34} null {:>6.1}  mock {:>6.1} ({:.1})  again {:>6.1}  ratio {:>5.1}  on 16 GPUs {:>6.1} ({:.1}), {:.2} of one's",
            one.name,
            one.null.0,
            one.mock.0,
            one.mock.1,
            one.again.0,
            one.mock.0 / one.null.0.max(0.1),
            sixteen.mock.0,
            sixteen.mock.1,
            sixteen.mock.0 / one.mock.0,
        );
    }
    for path in ["one", "sixteen"] {
        let path = folder.path().join(path);
        let open = || {
            let began = Instant::now();
            drop(black_box(World::open(&path).expect("the world")));
            began.elapsed().as_secs_f64() * 1e6
        };
        let mut times: Vec<f64> = (0..200).map(|_| open()).collect();
        times.sort_by(f64::total_cmp);
        println!(
            "a world opened and closed: {:.0} µs at least, {:.0} in the middle, {:.0} at most",
            times[0], times[100], times[199]
        );
    }
}

/// Least and median of one thing.
type Times = (f64, f64);

struct Line {
    name: String,
    null: Times,
    mock: Times,
    again: Times,
}

impl Line {
    fn join(&mut self, other: &Line) {
        let least = |into: &mut Times, more: &Times| {
            *into = (into.0.min(more.0), into.1.min(more.1));
        };
        least(&mut self.null, &other.null);
        least(&mut self.mock, &other.mock);
        least(&mut self.again, &other.again);
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('\t');
        let name = parts.next()?.to_owned();
        let mut times = || Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?));
        Some(Self {
            name,
            null: times()?,
            mock: times()?,
            again: times()?,
        })
    }
}

fn child(world: &std::path::Path) -> Vec<Line> {
    let output = Command::new(std::env::current_exe().expect("this executable"))
        .env(CHILD, "1")
        .env("RINGFENCE_WORLD", world)
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", output.status);
    text.lines().filter_map(Line::read).collect()
}

fn built(file: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("this executable");
    let mut folders = executable.ancestors().skip(1).take(2);
    folders
        .find_map(|folder| Some(folder.join(file)).filter(|path| path.exists()))
        .unwrap_or_else(|| panic!("{file} is not beside this executable"))
}

struct Library(*mut c_void);

impl Library {
    fn open(file: &str) -> Self {
        let path = CString::new(built(file).into_os_string().into_encoded_bytes()).expect("a path");
        // SAFETY: a path; the libraries' constructors are Rust's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{file}");
        Self(handle)
    }

    /// # Safety
    /// `F` is the type of the function of that name.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: a live handle and a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        // SAFETY: the caller's obligation.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

fn batch(call: &mut dyn FnMut()) -> f64 {
    let began = Instant::now();
    (0..CALLS).for_each(|_| call());
    began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// Prints one line: the null library's, the mock's, and the mock's once more, in turns.
fn compare(name: &str, mut null: impl FnMut(), mut mock: impl FnMut()) {
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..BATCHES {
        times[0].push(batch(&mut null));
        times[1].push(batch(&mut mock));
        times[2].push(batch(&mut mock));
    }
    print!("{name}");
    for times in &mut times {
        times.sort_by(f64::total_cmp);
        print!("\t{}\t{}", times[0], times[BATCHES / 2]);
    }
    println!();
}

struct Cuda {
    library: Library,
    alloc: fns::cuMemAlloc_v2,
    free: fns::cuMemFree_v2,
    alloc_async: fns::cuMemAllocAsync,
    free_async: fns::cuMemFreeAsync,
    look_up: fns::cuGetProcAddress_v2,
}

impl Cuda {
    fn open(file: &str) -> Self {
        let library = Library::open(file);
        // SAFETY: each name has the type that `abi` gives it.
        unsafe {
            Self {
                alloc: library.function(c"cuMemAlloc_v2"),
                free: library.function(c"cuMemFree_v2"),
                alloc_async: library.function(c"cuMemAllocAsync"),
                free_async: library.function(c"cuMemFreeAsync"),
                look_up: library.function(c"cuGetProcAddress_v2"),
                library,
            }
        }
    }

    fn pair(&self, bytes: usize) {
        let mut pointer = 0;
        // SAFETY: a live out-parameter, and the pointer just granted.
        let codes = unsafe { ((self.alloc)(&mut pointer, bytes), (self.free)(pointer)) };
        assert_eq!(codes, (CUresult::SUCCESS, CUresult::SUCCESS));
    }

    fn pair_async(&self) {
        let mut pointer = 0;
        // SAFETY: as above, on the NULL stream.
        let codes = unsafe {
            (
                (self.alloc_async)(&mut pointer, 4096, CUstream::NULL),
                (self.free_async)(pointer, CUstream::NULL),
            )
        };
        assert_eq!(codes, (CUresult::SUCCESS, CUresult::SUCCESS));
    }

    fn proc_address(&self) {
        let (mut found, mut status) = (std::ptr::null_mut(), 0);
        let name: *const c_char = black_box(c"cuCtxGetFlags".as_ptr());
        // SAFETY: a C string and two live out-parameters.
        let code = unsafe { (self.look_up)(name, &mut found, 13000, 0, (&raw mut status).cast()) };
        assert!(code == CUresult::SUCCESS && !found.is_null());
    }

    fn dlsym(&self) {
        let name = black_box(c"cuCtxGetFlags".as_ptr());
        // SAFETY: a live handle and a C string.
        assert!(!unsafe { libc::dlsym(self.library.0, name) }.is_null());
    }

    fn start(&self) {
        // SAFETY: the types are those that `abi` gives the names; live out-parameters.
        unsafe {
            let init: fns::cuInit = self.library.function(c"cuInit");
            let retain: fns::cuDevicePrimaryCtxRetain =
                self.library.function(c"cuDevicePrimaryCtxRetain");
            let set: fns::cuCtxSetCurrent = self.library.function(c"cuCtxSetCurrent");
            let mut context = CUcontext::NULL;
            assert_eq!(init(0), CUresult::SUCCESS);
            assert_eq!(retain(&mut context, 0), CUresult::SUCCESS);
            assert_eq!(set(context), CUresult::SUCCESS);
        }
    }
}

fn measure() {
    let (null, mock) = (
        Cuda::open("libnull_driver.so"),
        Cuda::open("libmock_libcuda.so"),
    );
    mock.start();
    compare(
        "cuMemAlloc_v2 + free, 4 KiB",
        || null.pair(4096),
        || mock.pair(4096),
    );
    compare(
        "cuMemAlloc_v2 + free, 2 MiB",
        || null.pair(2 << 20),
        || mock.pair(2 << 20),
    );
    compare(
        "cuMemAllocAsync + free, 4 KiB",
        || null.pair_async(),
        || mock.pair_async(),
    );
    compare(
        "cuGetProcAddress_v2",
        || null.proc_address(),
        || mock.proc_address(),
    );
    compare("dlsym", || null.dlsym(), || mock.dlsym());
    let icd = Icd::open();
    compare(
        "vkAllocateMemory + free, 64 KiB",
        || null.pair(65536),
        || icd.pair(),
    );
}

struct Icd {
    _entry: ash::Entry,
    _instance: ash::Instance,
    device: ash::Device,
    memory_type: u32,
}

impl Icd {
    /// The driver without the loader.
    fn open() -> Self {
        let library = Library::open("libmock_icd.so");
        // SAFETY: the export has this type; valid usage of the specification after that.
        unsafe {
            let get_instance_proc_addr = library.function(c"vk_icdGetInstanceProcAddr");
            let entry = ash::Entry::from_static_fn(ash::StaticFn {
                get_instance_proc_addr,
            });
            let instance = entry
                .create_instance(&vk::InstanceCreateInfo::default(), None)
                .expect("an instance");
            let physical = instance.enumerate_physical_devices().expect("devices")[0];
            let memory = instance.get_physical_device_memory_properties(physical);
            let local = |kind: &vk::MemoryType| {
                kind.property_flags == vk::MemoryPropertyFlags::DEVICE_LOCAL
            };
            let memory_type = memory.memory_types_as_slice().iter().position(local);
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
            Self {
                device: instance
                    .create_device(physical, &info, None)
                    .expect("a device"),
                memory_type: memory_type.expect("a device-local type") as u32,
                _entry: entry,
                _instance: instance,
            }
        }
    }

    fn pair(&self) {
        let request = vk::MemoryAllocateInfo::default()
            .allocation_size(65536)
            .memory_type_index(self.memory_type);
        // SAFETY: a live device; the memory is freed at once.
        unsafe {
            let memory = self.device.allocate_memory(&request, None).expect("memory");
            self.device.free_memory(memory, None);
        }
    }
}
