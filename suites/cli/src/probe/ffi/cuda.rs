//! What libcuda says of itself and its devices, and what calls take from a device.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use abi::cuda::{CUcontext, CUmemAllocationProp, CUmemLocation, CUresult, CUstream, CUuuid, fns};

use super::nvml::Onlooker;
use super::{Library, by_address, call, say, text, uuid};

/// cuGetProcAddress_v2 is asked for every release up to one that no driver knows.
const VERSIONS: [i32; 47] = [
    1000, 1010, 2000, 2010, 2020, 2030, 3000, 3010, 3020, 4000, 4010, 4020, 5000, 5050, 6000, 6050,
    7000, 7050, 8000, 9000, 9010, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040,
    11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090,
    13000, 13010, 13020, 14000,
];
const FLAGS: [u64; 3] = [0, 1, 2];

/// Lines `NAME RUN RUN …`, as the oracle's tables have them.
pub fn proc_addresses(bases: &[String], exports: &[String]) -> Result<(), String> {
    let library = Library::open("libcuda.so.1")?;
    let known = by_address(library, exports);
    for base in bases {
        let Ok(name) = CString::new(base.as_str()) else {
            continue;
        };
        let answer = |version: i32, flags: u64| {
            let (mut found, mut status) = (null_mut::<c_void>(), -1);
            let code = call!(
                library,
                cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status)
            );
            match (code, status) {
                (CUresult::SUCCESS, 1) => "!".to_owned(),
                (CUresult::SUCCESS, 2) => "?".to_owned(),
                (CUresult::SUCCESS, 0) => {
                    let names = known.get(&(found as usize)).cloned().unwrap_or_default();
                    let suffix = names
                        .iter()
                        .find_map(|name| name.strip_prefix(base.as_str()));
                    suffix.map_or_else(|| "+#unexported".to_owned(), |suffix| format!("+{suffix}"))
                }
                _ => "X".to_owned(),
            }
        };
        let mut runs: Vec<(i32, String)> = Vec::new();
        for version in VERSIONS {
            let mut three: Vec<String> =
                FLAGS.iter().map(|&flags| answer(version, flags)).collect();
            if three.iter().all(|one| *one == three[0]) {
                three.truncate(1);
            }
            let three = three.join(",");
            if runs.last().is_none_or(|(_, last)| *last != three) {
                runs.push((version, three));
            }
        }
        let runs: Vec<String> = runs
            .iter()
            .map(|(from, answer)| format!("{from}:{answer}"))
            .collect();
        say(&format!("{base} {}", runs.join(" ")));
    }
    Ok(())
}

fn ready() -> Result<Library, String> {
    let library = Library::open("libcuda.so.1")?;
    match call!(library, cuInit(0)) {
        CUresult::SUCCESS => Ok(library),
        refused => Err(format!("cuInit: {refused:?}")),
    }
}

/// Lines `driver KEY VALUE` and `N KEY VALUE`.
pub fn identity() -> Result<(), String> {
    let library = ready()?;
    let (mut version, mut count) = (0, 0);
    let _ = call!(library, cuDriverGetVersion(&mut version));
    let _ = call!(library, cuDeviceGetCount(&mut count));
    say(&format!("driver cuda_version {version}"));
    for device in 0..count {
        let (mut name, mut id, mut total) = ([0; 96], CUuuid::default(), 0);
        let (mut major, mut minor) = (0, 0);
        let answers = [
            call!(library, cuDeviceGetName(name.as_mut_ptr(), 96, device)),
            call!(library, cuDeviceGetUuid_v2(&mut id, device)),
            call!(library, cuDeviceTotalMem_v2(&mut total, device)),
            call!(
                library,
                cuDeviceComputeCapability(&mut major, &mut minor, device)
            ),
        ];
        if answers != [CUresult::SUCCESS; 4] {
            return Err(format!("device {device}: {answers:?}"));
        }
        say(&format!("{device} name {}", text(&name)));
        say(&format!("{device} uuid {}", uuid(id.bytes)));
        say(&format!("{device} cuda_total {total}"));
        say(&format!("{device} compute_capability {major} {minor}"));
    }
    Ok(())
}

/// Lines `DEVICE NUMBER VALUE`.
pub fn attributes() -> Result<(), String> {
    const BEYOND: i32 = 256;
    let library = ready()?;
    let mut count = 0;
    let _ = call!(library, cuDeviceGetCount(&mut count));
    for device in 0..count {
        for number in 1..BEYOND {
            let mut value = 0;
            if call!(library, cuDeviceGetAttribute(&mut value, number, device)) == CUresult::SUCCESS
            {
                say(&format!("{device} {number} {value}"));
            }
        }
    }
    Ok(())
}

/// Lines `KEY VALUE`: what one device loses to what. Everything is given back; a process of its own sees to the rest.
pub fn memory(device: i32) -> Result<(), String> {
    let onlooker = Onlooker::open(u32::try_from(device).unwrap_or_default())?;
    let idle = onlooker.used();
    let library = ready()?;
    let after_init = onlooker.used();
    let mut first = CUcontext::NULL;
    check(
        "cuDevicePrimaryCtxRetain",
        call!(library, cuDevicePrimaryCtxRetain(&mut first, device)),
    )?;
    check("cuCtxSetCurrent", call!(library, cuCtxSetCurrent(first)))?;
    let with_context = onlooker.used();
    let free = || {
        let (mut free, mut total) = (0, 0);
        let _ = call!(library, cuMemGetInfo_v2(&mut free, &mut total));
        free as u64
    };
    say(&format!("cuInit {}", after_init.saturating_sub(idle)));
    say(&format!(
        "first_context {}",
        with_context.saturating_sub(idle)
    ));

    let before = free();
    let mut second = CUcontext::NULL;
    check(
        "cuCtxCreate_v2",
        call!(library, cuCtxCreate_v2(&mut second, 0, device)),
    )?;
    say(&format!("second_context {}", before.saturating_sub(free())));
    let _ = call!(library, cuCtxDestroy_v2(second));
    let _ = call!(library, cuCtxSetCurrent(first));

    for bytes in [
        1,
        512,
        4096,
        65536,
        1 << 20,
        (1 << 20) + 1,
        2 << 20,
        (2 << 20) + 1,
        3 << 20,
        64 << 20,
    ] {
        let (before, mut at) = (free(), 0);
        let answer = call!(library, cuMemAlloc_v2(&mut at, bytes));
        let lost = before.saturating_sub(free());
        say(&format!("cuMemAlloc_v2.{bytes} {lost}"));
        if answer == CUresult::SUCCESS {
            let _ = call!(library, cuMemFree_v2(at));
        }
    }
    let (mut one, mut other) = (0, 0);
    let _ = call!(library, cuMemAlloc_v2(&mut one, 1));
    let _ = call!(library, cuMemAlloc_v2(&mut other, 1));
    say(&format!("suballocation {}", other.abs_diff(one)));
    let _ = call!(library, cuMemFree_v2(one));
    let _ = call!(library, cuMemFree_v2(other));

    let place = CUmemAllocationProp {
        type_: 1,
        requestedHandleTypes: 0,
        location: CUmemLocation {
            type_: 1,
            id: device,
        },
        win32HandleMetaData: null_mut(),
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    };
    let mut granularity = 0;
    check(
        "cuMemGetAllocationGranularity",
        call!(
            library,
            cuMemGetAllocationGranularity(&mut granularity, &place, 0)
        ),
    )?;
    say(&format!("vmm_granularity {granularity}"));

    let before = free();
    let mut at = 0;
    let answer = call!(library, cuMemAllocAsync(&mut at, 512, CUstream::NULL));
    let _ = call!(library, cuStreamSynchronize(CUstream::NULL));
    say(&format!("pool_step {}", before.saturating_sub(free())));
    if answer == CUresult::SUCCESS {
        let _ = call!(library, cuMemFreeAsync(at, CUstream::NULL));
        let _ = call!(library, cuStreamSynchronize(CUstream::NULL));
    }
    let _ = call!(library, cuDevicePrimaryCtxRelease_v2(device));
    Ok(())
}

fn check(what: &str, answer: CUresult) -> Result<(), String> {
    match answer {
        CUresult::SUCCESS => Ok(()),
        refused => Err(format!("{what}: {refused:?}")),
    }
}

/// Takes 1 GiB, says so and waits to be killed.
pub fn hold() -> Result<(), String> {
    let library = ready()?;
    let (mut context, mut at) = (CUcontext::NULL, 0);
    check(
        "cuDevicePrimaryCtxRetain",
        call!(library, cuDevicePrimaryCtxRetain(&mut context, 0)),
    )?;
    check("cuCtxSetCurrent", call!(library, cuCtxSetCurrent(context)))?;
    check(
        "cuMemAlloc_v2",
        call!(library, cuMemAlloc_v2(&mut at, 1 << 30)),
    )?;
    say("held");
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(())
}
