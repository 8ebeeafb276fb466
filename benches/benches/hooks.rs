//! What a hook adds to a call, against the same mock driver called past the hooks, in one process.
//!
//! The benchmark starts itself again in an environment of the harness, with libvgpu.so preloaded and the layer
//! enabled. There the *bare* entry points are found in the mock's own symbol table (base address plus symbol value),
//! which no hook sees, and the *hooked* ones as any client would find them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use abi::cuda::{CUcontext, CUresult, CUstream, fns};
use criterion::Criterion;
use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Target};
use object::{Object, ObjectSymbol};

#[path = "measure/chain.rs"]
mod chain;

use chain::Chain;

const CHILD: &str = "RINGFENCE_BENCH_CHILD";

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        let mut criterion = Criterion::default().configure_from_args();
        look_ups(&mut criterion);
        allocations(&mut criterion);
        vulkan(&mut criterion);
        criterion.final_summary();
        return ExitCode::SUCCESS;
    }
    let driver: Driver = "mock:h200".parse().expect("a driver");
    let target = Target::named("ours").expect("a target");
    let environment = Environment::create(&Request {
        machine: "h200",
        budget: "0=100GiB",
        ..Request::new("bench", &target, &driver)
    })
    .expect("an environment");
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    command.args(std::env::args_os().skip(1));
    environment
        .plan
        .apply(&mut command, Libraries::Both)
        .expect("the target's variables");
    command.env(CHILD, "1");
    // Criterion finds the target directory by this, and by nothing else once the environment is cleared.
    for name in ["CARGO", "CARGO_TARGET_DIR", "CARGO_MANIFEST_DIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    match command.status().expect("the child starts").success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Where a loaded library lies: its load address and its file.
fn loaded(name: &str) -> (usize, PathBuf) {
    struct Search<'a> {
        name: &'a str,
        found: Option<(usize, PathBuf)>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid record and the pointer that we gave it.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search<'_>>()) };
        // SAFETY: dlpi_name is a C string.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_string_lossy()
            .into_owned();
        if path.contains(search.name) {
            search.found = Some((info.dlpi_addr as usize, PathBuf::from(path)));
        }
        0
    }
    let mut search = Search { name, found: None };
    // SAFETY: `visit` keeps to the callback's contract and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search
        .found
        .unwrap_or_else(|| panic!("{name} is not loaded"))
}

/// The address of an entry point inside one loaded library, past every hook.
fn bare(library: &str, symbol: &str) -> usize {
    let (base, path) = loaded(library);
    let bytes = std::fs::read(&path).expect("reading a loaded library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let value = file
        .dynamic_symbols()
        .find(|found| found.name() == Ok(symbol) && found.is_definition())
        .unwrap_or_else(|| panic!("{symbol} in {}", path.display()))
        .address();
    base + value as usize
}

/// A function at an address, as the type that the caller names.
///
/// # Safety
/// `F` is the type of the C function at `address`.
unsafe fn function<F: Copy>(address: usize) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: the caller's obligation.
    unsafe { std::mem::transmute_copy(&address) }
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

fn driver() -> *mut c_void {
    // SAFETY: a constant name; the library stays loaded.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "libcuda.so.1 is in LD_LIBRARY_PATH");
    handle
}

/// An entry point as a client finds it: by dlsym in the driver's handle.
fn hooked(symbol: &str) -> usize {
    let name = CString::new(symbol).expect("a name");
    // SAFETY: a live handle and a C string.
    unsafe { libc::dlsym(driver(), name.as_ptr()) as usize }
}

fn look_ups(criterion: &mut Criterion) {
    let handle = driver();
    // SAFETY: the addresses are those of the functions named, whose types these are.
    let (bare_dlsym, our_dlsym, bare_proc, our_proc) = unsafe {
        (
            function::<Dlsym>(bare("libc.so.6", "dlsym")),
            libc::dlsym as Dlsym,
            function::<fns::cuGetProcAddress_v2>(bare("libcuda", "cuGetProcAddress_v2")),
            function::<fns::cuGetProcAddress_v2>(hooked("cuGetProcAddress_v2")),
        )
    };
    let mut group = criterion.benchmark_group("look-up of a name without a hook");
    for (name, dlsym) in [
        ("dlsym bare", bare_dlsym),
        ("dlsym bare, null test", bare_dlsym),
        ("dlsym ours", our_dlsym),
    ] {
        group.bench_function(name, |bench| {
            // SAFETY: a live handle and a C string.
            bench.iter(|| unsafe { dlsym(black_box(handle), c"cuCtxGetFlags".as_ptr()) });
        });
    }
    for (name, look_up) in [
        ("cuGetProcAddress bare", bare_proc),
        ("cuGetProcAddress bare, null test", bare_proc),
        ("cuGetProcAddress ours", our_proc),
    ] {
        group.bench_function(name, |bench| {
            let (mut found, mut status) = (std::ptr::null_mut(), 0);
            bench.iter(|| {
                // SAFETY: a C string and two live out-parameters.
                unsafe {
                    look_up(
                        c"cuCtxGetFlags".as_ptr(),
                        &mut found,
                        black_box(13000),
                        0,
                        &mut status,
                    )
                }
            });
            assert!(!found.is_null());
        });
    }
    group.finish();
}

/// Makes device 0's primary context current.
fn context() {
    // SAFETY: the addresses are those of the functions named; live out-parameters.
    unsafe {
        let init: fns::cuInit = function(hooked("cuInit"));
        let retain: fns::cuDevicePrimaryCtxRetain = function(hooked("cuDevicePrimaryCtxRetain"));
        let set: fns::cuCtxSetCurrent = function(hooked("cuCtxSetCurrent"));
        let mut context = CUcontext::NULL;
        assert_eq!(init(0), CUresult::SUCCESS);
        assert_eq!(retain(&mut context, 0), CUresult::SUCCESS);
        assert_eq!(set(context), CUresult::SUCCESS);
    }
}

fn allocations(criterion: &mut Criterion) {
    context();
    // SAFETY: the addresses are those of the functions named.
    let pairs = unsafe {
        let bare_pair = (
            function::<fns::cuMemAllocAsync>(bare("libcuda", "cuMemAllocAsync")),
            function::<fns::cuMemFreeAsync>(bare("libcuda", "cuMemFreeAsync")),
        );
        let our_pair = (
            function::<fns::cuMemAllocAsync>(hooked("cuMemAllocAsync")),
            function::<fns::cuMemFreeAsync>(hooked("cuMemFreeAsync")),
        );
        [
            ("bare", bare_pair),
            ("bare, null test", bare_pair),
            ("ours", our_pair),
        ]
    };
    for live in [0, 5000] {
        let title = match live {
            0 => "cuMemAllocAsync and cuMemFreeAsync of 4 KiB",
            _ => "cuMemAllocAsync and cuMemFreeAsync of 4 KiB, 5,000 live",
        };
        let mut group = criterion.benchmark_group(title);
        for (name, (alloc, free)) in pairs {
            let held: Vec<u64> = (0..live).map(|_| allocated(alloc)).collect();
            group.bench_function(name, |bench| {
                bench.iter(|| {
                    let pointer = allocated(alloc);
                    // SAFETY: the pointer just granted, and the NULL stream.
                    assert_eq!(unsafe { free(pointer, CUstream::NULL) }, CUresult::SUCCESS);
                });
            });
            for pointer in held {
                // SAFETY: as above.
                assert_eq!(unsafe { free(pointer, CUstream::NULL) }, CUresult::SUCCESS);
            }
        }
        group.finish();
    }
}

#[inline(always)]
fn allocated(alloc: fns::cuMemAllocAsync) -> u64 {
    let mut pointer = 0;
    // SAFETY: a live out-parameter and the NULL stream.
    let code = unsafe { alloc(&mut pointer, 4096, CUstream::NULL) };
    assert_eq!(code, CUresult::SUCCESS);
    pointer
}

/// What is measured of a chain, and its name.
type Call = (&'static str, fn(&Chain));

fn vulkan(criterion: &mut Criterion) {
    let (bare_chain, our_chain) = (Chain::without_the_layer(), Chain::create());
    let mut group = criterion.benchmark_group("vkAllocateMemory and vkFreeMemory of 64 KiB");
    for (name, chain) in [
        ("bare", &bare_chain),
        ("bare, null test", &bare_chain),
        ("ours", &our_chain),
    ] {
        group.bench_function(name, |bench| bench.iter(|| chain.allocate_and_free()));
    }
    group.finish();
    let calls: [Call; 3] = [
        ("vkQueueSubmit of nothing", Chain::submit_nothing),
        ("vkGetPhysicalDeviceMemoryProperties", |chain| {
            black_box(chain.properties());
        }),
        ("vkGetPhysicalDeviceMemoryProperties2", |chain| {
            black_box(chain.properties2());
        }),
    ];
    for (title, call) in calls {
        let mut group = criterion.benchmark_group(title);
        for (name, chain) in [
            ("bare", &bare_chain),
            ("bare, null test", &bare_chain),
            ("ours", &our_chain),
        ] {
            group.bench_function(name, |bench| bench.iter(|| call(chain)));
        }
        group.finish();
    }
}
