//! How long a device takes: medians of repeated work, by its own events. Lines `KEY NANOSECONDS` or `KEY BYTES-PER-SECOND`.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use abi::cuda::{CUcontext, CUevent, CUfunction, CUmodule, CUresult, CUstream, fns};

use super::{Library, call, say};

const BYTES: usize = 256 << 20;
const ROUNDS: usize = 9;
/// Copies so short that only their beginning counts.
const SHORT: usize = 4;

const NOTHING: &str =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n\0";

/// Measures on device 0.
pub fn cost() -> Result<(), String> {
    let library = Library::open("libcuda.so.1")?;
    let mut context = CUcontext::NULL;
    let (mut device, mut other, mut host) = (0, 0, null_mut::<c_void>());
    let (mut start, mut end) = (CUevent::NULL, CUevent::NULL);
    let answers = [
        call!(library, cuInit(0)),
        call!(library, cuDevicePrimaryCtxRetain(&mut context, 0)),
        call!(library, cuCtxSetCurrent(context)),
        call!(library, cuMemAlloc_v2(&mut device, BYTES)),
        call!(library, cuMemAlloc_v2(&mut other, BYTES)),
        call!(library, cuMemAllocHost_v2(&mut host, BYTES)),
        call!(library, cuEventCreate(&mut start, 0)),
        call!(library, cuEventCreate(&mut end, 0)),
    ];
    if answers != [CUresult::SUCCESS; 8] {
        return Err(format!("nothing to measure with: {answers:?}"));
    }
    let stream = CUstream::NULL;
    let timed = |work: &dyn Fn() -> CUresult| {
        let mut took: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let _ = call!(library, cuEventRecord(start, stream));
                let _ = work();
                let _ = call!(library, cuEventRecord(end, stream));
                let _ = call!(library, cuEventSynchronize(end));
                let mut milliseconds = 0.0;
                let _ = call!(library, cuEventElapsedTime(&mut milliseconds, start, end));
                f64::from(milliseconds) * 1e6
            })
            .collect();
        took.sort_by(f64::total_cmp);
        took[ROUNDS / 2]
    };
    let short = timed(&|| call!(library, cuMemcpyHtoDAsync_v2(device, host, SHORT, stream)));
    say(&format!("transfer_ns {short:.0}"));
    let rate = |nanoseconds: f64| BYTES as f64 * 1e9 / (nanoseconds - short).max(1.0);
    let up = timed(&|| call!(library, cuMemcpyHtoDAsync_v2(device, host, BYTES, stream)));
    say(&format!("h2d {:.0}", rate(up)));
    let down = timed(&|| call!(library, cuMemcpyDtoHAsync_v2(host, device, BYTES, stream)));
    say(&format!("d2h {:.0}", rate(down)));
    let across = timed(&|| call!(library, cuMemcpyDtoDAsync_v2(other, device, BYTES, stream)));
    say(&format!("d2d {:.0}", rate(across)));
    let filled = timed(&|| call!(library, cuMemsetD8Async(device, 1, BYTES, stream)));
    say(&format!("memset {:.0}", rate(filled)));
    launches(library, &timed)?;
    let _ = call!(library, cuMemFree_v2(device));
    let _ = call!(library, cuMemFree_v2(other));
    let _ = call!(library, cuMemFreeHost(host));
    let _ = call!(library, cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn launches(library: Library, timed: &dyn Fn(&dyn Fn() -> CUresult) -> f64) -> Result<(), String> {
    const MANY: u32 = 1000;
    let (mut module, mut function) = (CUmodule(null_mut()), CUfunction(null_mut()));
    let loaded = call!(
        library,
        cuModuleLoadData(&mut module, NOTHING.as_ptr().cast())
    );
    let found = call!(
        library,
        cuModuleGetFunction(&mut function, module, c"nothing".as_ptr())
    );
    if [loaded, found] != [CUresult::SUCCESS; 2] {
        return Err(format!("no kernel to launch: {loaded:?}, {found:?}"));
    }
    let launch = |blocks: u32| {
        call!(
            library,
            cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                32,
                1,
                1,
                0,
                CUstream::NULL,
                null_mut(),
                null_mut()
            )
        )
    };
    let _ = launch(1);
    let _ = call!(library, cuCtxSynchronize());
    say(&format!("kernel_ns {:.0}", timed(&|| launch(1))));
    let started = Instant::now();
    for _ in 0..MANY {
        let _ = launch(1);
    }
    say(&format!(
        "launch_call_ns {}",
        started.elapsed().as_nanos() / u128::from(MANY)
    ));
    let _ = call!(library, cuCtxSynchronize());
    let back_to_back = timed(&|| {
        (0..MANY)
            .map(|_| launch(1))
            .fold(CUresult::SUCCESS, |_, one| one)
    });
    say(&format!(
        "kernel_back_to_back_ns {:.0}",
        back_to_back / f64::from(MANY)
    ));
    let _ = call!(library, cuModuleUnload(module));
    Ok(())
}
