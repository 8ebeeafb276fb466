//! How a budget is said, and what happens where it is said badly.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{Gpu, cuda, fill};
use crate::ffi::cuda::{Cuda, Stream};
use crate::ffi::process::overhear;
use crate::ffi::vulkan::Code;
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

/// Starts a process whose environment says the budget that way; what it gets by CUDA.
fn granted_under(
    session: &Session,
    number: usize,
    settings: &[(&str, &str)],
) -> Result<Bytes, Failure> {
    let ledger = session.directory().join(format!("ledger-{number}"));
    let mut launch = session
        .launch("tenant")
        .env("RINGFENCE_LEDGER", &ledger.display().to_string());
    for (variable, value) in settings {
        launch = launch.env(variable, value);
    }
    let mut tenant = Tenant::launch(launch)?;
    let granted = tenant.fill_cuda()?;
    tenant.peer.finish()?;
    Ok(granted)
}

/// CUDA grants nothing.
fn cuda_refuses() -> Result<(), Failure> {
    let cuda = Cuda::open()?;
    ensure_eq!(cuda.init(), OK, "cuInit");
    let retained = cuda.retain_primary(0);
    if retained.code == OK {
        cuda.set_current(retained.out);
        ensure_eq!(
            cuda.allocate(1).code,
            OUT_OF_MEMORY,
            "one byte by cuMemAlloc_v2"
        );
        let ordered = cuda.allocate_async(Stream::Legacy, 1);
        ensure_eq!(ordered.code, OUT_OF_MEMORY, "one byte by cuMemAllocAsync");
    } else {
        ensure_eq!(retained.code, OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain");
    }
    Ok(())
}

/// CUDA grants nothing, and one line on stderr names the place that says so.
pub fn cuda_fails_closed(place: &str) -> Result<(), Failure> {
    let (answers, heard) = overhear(cuda_refuses)?;
    answers?;
    says_once(place, &heard, 1)
}

/// At least one line on stderr names the place, at most `most` do, and stdout hears nothing.
fn says_once(place: &str, [stdout, stderr]: &[String; 2], most: usize) -> Result<(), Failure> {
    ensure!(stdout.is_empty(), "on stdout: {stdout}");
    let lines = stderr.lines().filter(|line| line.contains(place)).count();
    ensure!(
        (1..=most).contains(&lines),
        "lines that name {place}: {lines}; stderr: {stderr}"
    );
    Ok(())
}

/// No route grants anything, and one line on stderr names the variable.
fn fails_closed(variable: &str) -> Result<(), Failure> {
    let (answers, heard) = overhear(|| {
        cuda_refuses()?;
        // The layer may refuse the device itself.
        match Gpu::first() {
            Ok(gpu) => ensure_eq!(
                gpu.allocate(Bytes(1)).err(),
                Some(Code::OUT_OF_DEVICE_MEMORY),
                "one byte by Vulkan"
            ),
            Err(Failure::Broken(_)) => {}
            Err(skipped) => return Err(skipped),
        }
        Ok(())
    })?;
    answers?;
    // Each of the two libraries may say it once.
    says_once(variable, &heard, 2)
}

cases! {
    /// A budget that does not parse refuses every allocation, and one line on stderr names the variable.
    an_unparsable_budget_fails_closed {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "vkAllocateMemory"],
        env: [("CUDA_DEVICE_MEMORY_LIMIT_0", "junk")], unordered: "the case sets a budget of its own",
        unaccounted: "a context that is not refused has no budget to be within",
    } (_session) {
        fails_closed("CUDA_DEVICE_MEMORY_LIMIT_0")
    }

    /// It makes no VkDevice either, whose own memory would be in nobody's books, and so does every other reason for which there is no ledger.
    without_a_ledger_there_is_no_vkdevice {
        kind: Budget, defects: ["V26"], entry_points: ["vkCreateInstance", "vkCreateDevice"], budget: "0=4GiB",
        unordered: "processes that are refused", unaccounted: "nobody has a ledger", invalid_use: ["Failed to create device chain"],
    } (session) {
        let absent = session.directory().join("absent/ledger").display().to_string();
        for setting in [("CUDA_DEVICE_MEMORY_LIMIT_0", "junk"), ("RINGFENCE_LEDGER", "ledger"), ("RINGFENCE_LEDGER", &absent)] {
            let (made, heard) = overhear(|| -> Result<i64, Failure> {
                let mut tenant = Tenant::launch(session.launch("tenant").env(setting.0, setting.1))?;
                let made = tenant.ask("vkdevices 4")?;
                tenant.peer.finish()?;
                Ok(made)
            })?;
            ensure_eq!(made?, 0, "VkDevices with {setting:?}");
            // Each of the two libraries may say it once.
            says_once(setting.1, &heard, 2)?;
        }
        Ok(())
    }

    /// A negative budget refuses every allocation, as one that does not parse does.
    a_negative_budget_fails_closed {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "vkAllocateMemory"],
        env: [("RINGFENCE_MEMORY", "-4g")], unordered: "the case sets a budget of its own",
        unaccounted: "a context that is not refused has no budget to be within",
    } (_session) {
        fails_closed("RINGFENCE_MEMORY")
    }

    /// Where a budget is required and none is set nothing is granted, and one line says so: a container whose budget was lost on the way is no tenant
    /// without limits.
    a_required_budget_that_is_not_set_fails_closed {
        kind: Budget, defects: ["P11"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "vkAllocateMemory"],
        env: [("RINGFENCE_REQUIRED", "1")], unordered: "the case requires a budget",
        unaccounted: "a context that is not refused has no budget to be within",
    } (_session) {
        fails_closed("RINGFENCE_REQUIRED")
    }

    /// With a budget it changes nothing.
    a_required_budget_that_is_set_holds {
        kind: Budget, defects: ["P11"], entry_points: ["cuMemAlloc_v2"], budget: "0=2GiB", env: [("RINGFENCE_REQUIRED", "1")],
        unordered: "the case requires a budget",
    } (session) {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A budget for a device that there cannot be was meant for one: it refuses every allocation, and one line names it.
    an_index_that_is_no_devices_fails_closed {
        kind: Budget, defects: ["P11", "R11"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync", "vkAllocateMemory"],
        env: [("RINGFENCE_MEMORY_00", "4g")], unordered: "the case sets a budget of its own",
        unaccounted: "a context that is not refused has no budget to be within",
    } (_session) {
        fails_closed("RINGFENCE_MEMORY_00")
    }

    /// A variable of ours that is no setting is said once, with the setting that it is nearest to, and changes nothing.
    a_misspelt_setting_is_said {
        kind: Own, defects: ["P11"], entry_points: ["cuMemAlloc_v2"], env: [("RINGFENCE_MEMROY_0", "1g")], libraries: PreloadOnly,
        unordered: "the case has a setting of its own",
    } (_session) {
        let (answer, heard) = overhear(|| -> Result<CUresult, Failure> { Ok(cuda()?.allocate(Bytes::gib(2).0).code) })?;
        ensure_eq!(answer?, OK, "2 GiB");
        says_once("RINGFENCE_MEMROY_0", &heard, 1)?;
        says_once("RINGFENCE_MEMORY_0 is one", &heard, 1)
    }

    /// Sizes are read as people write them: all of these are 4 GiB.
    sizes_are_read_as_people_write_them {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2"],
        unordered: "the case sets budgets of its own", unaccounted: "each process has a ledger of its own",
    } (session) {
        let spellings = ["4g", "4096m", "4G", "4GB", "4Gi", "4GiB", " 4GiB ", "4294967296", "4194304k"];
        for (number, text) in spellings.iter().enumerate() {
            let granted = granted_under(session, number, &[("CUDA_DEVICE_MEMORY_LIMIT_0", text)])?;
            match fills(granted, Bytes::gib(4), CONTEXT_ROOM) {
                Err(Failure::Broken(seen)) => harness::fail!("\"{text}\": {seen}"),
                other => other?,
            }
        }
        let granted = granted_under(session, 99, &[("CUDA_DEVICE_MEMORY_LIMIT_0", "2.5g")])?;
        fills(granted, Bytes::mib(2560), CONTEXT_ROOM)
    }

    /// The variable of one device goes before the one for all, and our own name before HAMi-core's.
    the_nearer_variable_wins {
        kind: Budget, defects: ["P8", "R11"], entry_points: ["cuMemAlloc_v2"],
        unordered: "the case sets budgets of its own", unaccounted: "each process has a ledger of its own",
    } (session) {
        let all = ("CUDA_DEVICE_MEMORY_LIMIT", "3g");
        let one = ("CUDA_DEVICE_MEMORY_LIMIT_0", "5g");
        let own = ("RINGFENCE_MEMORY_0", "2g");
        fills(granted_under(session, 0, &[all])?, Bytes::gib(3), CONTEXT_ROOM)?;
        fills(granted_under(session, 1, &[all, one])?, Bytes::gib(5), CONTEXT_ROOM)?;
        fills(granted_under(session, 2, &[all, one, own])?, Bytes::gib(2), CONTEXT_ROOM)
    }

    /// A budget of 0 is none, as in HAMi-core.
    a_budget_of_zero_is_none {
        defects: ["R11"], entry_points: ["cuMemAlloc_v2", "cuMemGetInfo_v2"], env: [("CUDA_DEVICE_MEMORY_LIMIT_0", "0")],
    } (_session) {
        let cuda = cuda()?;
        let (free, total) = cuda.memory_info().out;
        ensure_eq!(cuda.allocate(free / 2).code, OK, "half of what is free");
        ensure_eq!(cuda.memory_info().out.1, total, "the total");
        Ok(())
    }

    /// The ledger lies beside HAMi-core's shared cache, which is left alone.
    the_ledger_lies_beside_the_shared_cache {
        kind: Own, defects: ["R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=2GiB",
        unaccounted: "the process has a ledger of its own",
    } (session) {
        let cache = session.directory().join("vgpu.cache");
        std::fs::write(&cache, "HAMi-core's own")?;
        let launch = session.launch("tenant").without("RINGFENCE_LEDGER");
        let mut tenant = Tenant::launch(launch.env("CUDA_DEVICE_MEMORY_SHARED_CACHE", &cache.display().to_string()))?;
        fills(tenant.fill_cuda()?, Bytes::gib(2), CONTEXT_ROOM)?;
        ensure_eq!(std::fs::read_to_string(&cache)?, "HAMi-core's own", "the shared cache");
        let beside = session.directory().join("vgpu.cache.ringfence");
        ensure!(beside.is_file(), "no ledger at {}", beside.display());
        tenant.peer.finish()
    }

    /// Where no ledger can be had, nothing is granted, and a line says why.
    without_a_ledger_nothing_is_granted {
        kind: Own, defects: ["P6"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=4GiB",
        env: [("RINGFENCE_LEDGER", "/proc/no/such/place")], unaccounted: "there is no ledger", invalid_use: ["Failed to create device chain"],
    } (_session) {
        fails_closed("/proc/no/such/place")
    }

    /// Contexts may be left out of the budget on request, as HAMi-core does.
    contexts_may_be_free_of_charge {
        kind: Own, defects: ["C10"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        env: [("RINGFENCE_CONTEXT_CHARGE", "free")], unaccounted: "contexts are left out of the account on purpose",
    } (_session) {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(taken.bytes, Bytes::gib(4), "granted beside an uncharged context");
        Ok(())
    }
}
