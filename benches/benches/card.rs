//! What hooks cost over the driver that this machine has, bare against ours in one process, in turns, with a null test beside each.
//!
//! `ringfence exec --driver real --memory 0=100GiB -- card` (the built executable, by itself: it needs nothing beside it), or with `--profile h200` on the mock. A
//! compute budget, and how often a process is started for `cuInit`, are its arguments: `card [--compute PERCENT] [--starts N] [--processes N]`.

use std::ffi::c_void;
use std::process::Command;
use std::time::Instant;

use abi::cuda::{CUfunction, CUmodule, CUresult, CUstream, fns};

#[path = "measure/beside.rs"]
mod beside;
#[path = "measure/boundary.rs"]
mod boundary;
#[path = "measure/calls.rs"]
mod calls;
#[path = "measure/chain.rs"]
mod chain;
#[path = "measure/driver.rs"]
mod driver;
#[path = "measure/turns.rs"]
mod turns;

use beside::{beside, stand_by};
use calls::Calls;
use chain::Chain;
use driver::Driver;
use turns::{Clock, Figure, Turns};

/// What a child of the benchmark is to do.
const ROLE: &str = "RINGFENCE_BENCH_CHILD";
const LIVE: usize = 5000;
/// A kernel that does nothing.
const IMAGE: &[u8] =
    b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n\0";

fn main() {
    let asked = std::env::var_os(ROLE);
    match asked.as_deref().and_then(|role| role.to_str()) {
        Some("start") => return start(),
        Some("stand by") => return stand_by(),
        Some("pairs") => return pairs(),
        Some("launches") => return launches(),
        Some("vulkan") => return vulkan(),
        Some("submissions") => return submissions(&chains()),
        _ => {}
    }
    let (mut compute, mut starts, mut processes) = (90_u32, 20_usize, 64_usize);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { continue };
        match (name.as_str(), value.parse::<u32>()) {
            ("--compute", Ok(percent)) => compute = percent,
            ("--starts", Ok(count)) => starts = count as usize,
            ("--processes", Ok(count)) => processes = count as usize,
            _ => panic!("{name} {value}"),
        }
    }
    println!("alone");
    done(role("pairs"));
    done(role("launches"));
    done(role("vulkan"));
    begun(starts);
    beside(processes, || role("stand by"), || done(role("pairs")));
    // Last, because the ledger keeps what it was told: from here on every process of this tenant is paced.
    println!("with a compute budget of {compute} %");
    for what in ["launches", "submissions"] {
        let mut budgeted = role(what);
        budgeted.env("CUDA_DEVICE_SM_LIMIT", compute.to_string());
        budgeted.env("GPU_CORE_UTILIZATION_POLICY", "force");
        done(budgeted);
    }
}

fn role(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    command.env(ROLE, role);
    command
}

fn done(mut command: Command) {
    assert!(command.status().expect("a child").success());
}

/// cuInit and the primary context, in processes of their own, with the library and without in turns.
fn begun(starts: usize) {
    let mut times: [Vec<[f64; 2]>; 2] = Default::default();
    for round in 0..starts * 2 {
        let mut command = role("start");
        if round % 2 == 0 {
            command.env_remove("LD_PRELOAD");
        }
        let output = command.output().expect("a child");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("figures");
        let figures: Vec<f64> = text
            .split_whitespace()
            .map(|figure| figure.parse().expect("a figure"))
            .collect();
        times[round % 2].push([figures[0], figures[1]]);
    }
    for (at, name) in ["cuInit", "cuDevicePrimaryCtxRetain"].iter().enumerate() {
        let sorted = |which: usize| {
            let mut all: Vec<f64> = times[which].iter().map(|times| times[at]).collect();
            all.sort_by(f64::total_cmp);
            (all[0], all[all.len() / 2])
        };
        let (bare, ours) = (sorted(0), sorted(1));
        println!(
            "{name:<52} bare {:.2} ms, middle {:.2}  ours {:.2}, middle {:.2}  differ by {:+.2} and {:+.2}",
            bare.0,
            bare.1,
            ours.0,
            ours.1,
            ours.0 - bare.0,
            ours.1 - bare.1
        );
    }
}

fn start() {
    let driver = Driver::open();
    let began = Instant::now();
    driver.init();
    let after = Instant::now();
    assert_eq!(driver.begin(), CUresult::SUCCESS);
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    println!(
        "{} {}",
        milliseconds(after - began),
        milliseconds(after.elapsed())
    );
}

/// For calls of some 20 ns: a batch is longer than what the clock costs, and than the turn to it.
fn short() -> Turns<'static> {
    Turns {
        calls: 2_000,
        ..Turns::default()
    }
}

fn pairs() {
    let driver = Driver::open();
    assert_eq!(driver.begin(), CUresult::SUCCESS);
    let [bare, ours] = Calls::of(&driver);
    let turns = Turns::default();
    let in_turns = |name: &str| turns.compare(name, || bare.pair(), || ours.pair());
    // Something lives in the pool, as in any program that uses one: it is not given back at each wait.
    ours.allocate();
    in_turns("cuMemAllocAsync + cuMemFreeAsync, 4 KiB");
    for name in [c"cuMemAlloc", c"cuCtxGetFlags"] {
        let told = format!("cuGetProcAddress_v2 of {name:?}");
        short().compare(
            &told,
            || bare.proc_address(name),
            || ours.proc_address(name),
        );
    }
    turns.compare("cuMemGetInfo_v2", || bare.ask(), || ours.ask());
    for _ in 0..LIVE {
        ours.allocate();
    }
    in_turns("cuMemAllocAsync + cuMemFreeAsync, 5,000 live");
}

fn launches() {
    let driver = Driver::open();
    assert_eq!(driver.begin(), CUresult::SUCCESS);
    let (mut module, mut nothing) = (CUmodule::NULL, CUfunction::NULL);
    // SAFETY: the types are those that `abi` gives the names; a PTX text that ends with 0, and live out-parameters.
    let (bare, ours) = unsafe {
        let load: fns::cuModuleLoadData = driver.hooked(c"cuModuleLoadData");
        let get: fns::cuModuleGetFunction = driver.hooked(c"cuModuleGetFunction");
        assert_eq!(load(&mut module, IMAGE.as_ptr().cast()), CUresult::SUCCESS);
        assert_eq!(
            get(&mut nothing, module, c"nothing".as_ptr()),
            CUresult::SUCCESS
        );
        let bare: fns::cuLaunchKernel = driver.bare(c"cuLaunchKernel");
        let ours: fns::cuLaunchKernel = driver.hooked(c"cuLaunchKernel");
        (bare, ours)
    };
    let launch = |launch: fns::cuLaunchKernel| {
        let none = std::ptr::null_mut::<*mut c_void>();
        // SAFETY: a function without parameters, one thread, the NULL stream.
        let code = unsafe { launch(nothing, 1, 1, 1, 1, 1, 1, 0, CUstream::NULL, none, none) };
        assert_eq!(code, CUresult::SUCCESS);
    };
    // SAFETY: the type is the one that `abi` gives the name.
    let synchronize: fns::cuCtxSynchronize = unsafe { driver.hooked(c"cuCtxSynchronize") };
    let settle = || {
        // SAFETY: it takes nothing.
        let code = unsafe { synchronize() };
        assert_eq!(code, CUresult::SUCCESS);
    };
    let turns = Turns {
        batches: 301,
        calls: 400,
        between: &settle,
        row: 20,
        ..Turns::default()
    };
    turns.compare("cuLaunchKernel", || launch(bare), || launch(ours));
    // What most launches cost: under a compute budget a few wait, and a few set marks.
    let middle = Turns {
        figure: Figure::Middle,
        ..turns
    };
    middle.compare("cuLaunchKernel, most", || launch(bare), || launch(ours));
    let turns = Turns {
        clock: Clock::Thread,
        ..turns
    };
    // What is waited for, because a budget's time is spent, is no cost of the call.
    turns.compare(
        "cuLaunchKernel, processor time",
        || launch(bare),
        || launch(ours),
    );
    // By hand and by the launch boundary: both meet the hooks.
    boundary::compare(ours, || None);
}

/// Two without the layer, for the null test, and one with it.
fn chains() -> [Chain; 3] {
    [
        Chain::without_the_layer(),
        Chain::without_the_layer(),
        Chain::create(),
    ]
}

fn in_turns(turns: Turns<'_>, chains: &[Chain; 3], name: &str, call: fn(&Chain)) {
    let [bare, again, ours] = chains;
    turns.compare_objects(name, &|| call(bare), &|| call(again), &|| call(ours));
}

fn submissions(chains: &[Chain; 3]) {
    in_turns(
        Turns::default(),
        chains,
        "vkQueueSubmit of nothing",
        |chain| {
            chain.submit_nothing();
        },
    );
}

fn vulkan() {
    let chains = chains();
    let compare = |turns, name, call| in_turns(turns, &chains, name, call);
    submissions(&chains);
    compare(short(), "vkGetPhysicalDeviceMemoryProperties", |chain| {
        assert!(chain.properties() > 0);
    });
    compare(short(), "vkGetPhysicalDeviceMemoryProperties2", |chain| {
        assert!(chain.properties2() > 0);
    });
    // Each takes the card's driver some 100 µs.
    let turns = Turns {
        batches: 101,
        calls: 20,
        ..Turns::default()
    };
    compare(
        turns,
        "vkAllocateMemory + vkFreeMemory of 64 KiB",
        |chain| {
            chain.allocate_and_free();
        },
    );
}
