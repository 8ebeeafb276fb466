//! The owner's word, and whose settings hold where a ledger exists: its own, whatever a late-comer was told.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};
use ledger::DeviceIndex;

use crate::activation::scrubbed::install_layer_beside;
use crate::clients::{Gpu, cuda, device_heap, nvml, told};
use crate::cuda::launches::{Long, unbudgeted};
use crate::ffi::cuda::{Cuda, Stream};
use crate::ffi::nvml::Nvml;
use crate::ffi::process::overhear;
use crate::ffi::vulkan::{Code, Query};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const FIRST: DeviceIndex = DeviceIndex(0);
/// Beyond the compute budget in two seconds: idle time that was saved up, and a launch of a tenth of a second at either end.
const MARGIN: f64 = 12.0;

/// The owner's change, as `ringfence ledger set` makes it.
fn set(session: &Session, memory: Bytes) -> Result<(), Failure> {
    session.ledger()?.set_budget(FIRST, ledger::Bytes(memory.0));
    Ok(())
}

/// One process with all three APIs.
struct Onlooker {
    cuda: Cuda,
    nvml: Nvml,
    gpu: Gpu,
}

impl Onlooker {
    fn new() -> Result<Onlooker, Failure> {
        Ok(Onlooker {
            cuda: cuda()?,
            nvml: nvml()?,
            gpu: Gpu::first()?,
        })
    }

    /// Every API tells that total, and one free figure.
    fn is_told(&self, total: Bytes) -> Result<Bytes, Failure> {
        let device = told("nvmlDeviceGetHandleByIndex_v2", self.nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo", self.nvml.memory(device))?;
        let heaps = self.gpu.instance.heaps(self.gpu.physical, Query::First);
        let (free, all) = self.cuda.memory_info().out;
        ensure_eq!(Bytes(all), total, "cuMemGetInfo_v2's total");
        ensure_eq!(
            Bytes(self.cuda.total_memory(0).out),
            total,
            "cuDeviceTotalMem_v2"
        );
        ensure_eq!(Bytes(memory.total), total, "NVML's total");
        ensure_eq!(device_heap(&heaps)?, total, "Vulkan's heap");
        ensure_eq!(memory.free, free, "free by NVML and by CUDA");
        ensure_eq!(
            memory.used + memory.free,
            memory.total,
            "NVML's used and free"
        );
        Ok(Bytes(free))
    }

    /// No API grants a MiB.
    fn is_refused(&self) -> Result<(), Failure> {
        ensure_eq!(
            self.cuda.allocate(1 << 21).code,
            OUT_OF_MEMORY,
            "2 MiB by cuMemAlloc_v2"
        );
        let ordered = self.cuda.allocate_async(Stream::Legacy, 1 << 21);
        ensure_eq!(ordered.code, OUT_OF_MEMORY, "2 MiB by cuMemAllocAsync");
        let vulkan = self.gpu.allocate(Bytes::mib(1)).err();
        ensure_eq!(
            vulkan,
            Some(Code::OUT_OF_DEVICE_MEMORY),
            "1 MiB by vkAllocateMemory"
        );
        Ok(())
    }
}

/// What a late-comer with such settings gets, and what it says on stderr.
fn late(session: &Session, settings: &[(&str, Option<&str>)]) -> Result<(Bytes, String), Failure> {
    let (granted, [_, stderr]) = overhear(|| -> Result<Bytes, Failure> {
        let launch =
            settings.iter().fold(
                session.launch("tenant"),
                |launch, (name, value)| match value {
                    Some(value) => launch.env(name, value),
                    None => launch.without(name),
                },
            );
        let mut tenant = Tenant::launch(launch)?;
        let granted = tenant.fill_cuda()?;
        tenant.peer.finish()?;
        Ok(granted)
    })?;
    Ok((granted?, stderr))
}

/// The lines that speak of the ledger.
fn lines(stderr: &str) -> Vec<&str> {
    stderr
        .lines()
        .filter(|line| line.contains("ledger"))
        .collect()
}

/// A tenant file with a share for each of two devices.
fn shares(session: &Session) -> String {
    format!(
        "RINGFENCE_MEMORY = \"4GiB\"\nRINGFENCE_COMPUTE_0 = 50\nRINGFENCE_COMPUTE_1 = 30\nRINGFENCE_LEDGER = \"{}\"\n",
        session.ledger_path().display()
    )
}

/// The ledger has less than the file for the first device and more for the second; a further process that begins as `ready` says lowers what is more.
fn shares_are_lowered(session: &Session, ready: &str) -> Result<(), Failure> {
    const SECOND: DeviceIndex = DeviceIndex(1);
    let mut first = Tenant::start(session)?;
    first.ask(ready)?;
    let ledger = session.ledger()?;
    ledger.set_share(FIRST, 2_000);
    ledger.set_share(SECOND, 6_000);
    let mut second = Tenant::start(session)?;
    second.ask(ready)?;
    ensure_eq!(
        (ledger.share(FIRST), ledger.share(SECOND)),
        (2_000, 3_000),
        "the shares in hundredths of a percent"
    );
    first.peer.finish()?;
    second.peer.finish()
}

cases! {
    /// The owner's new figure is told by CUDA, NVML and Vulkan in a process that runs: when it grows more is granted at once; when it shrinks
    /// below what is in use nothing is taken away, all is refused, and as much as has been freed below it is granted again.
    the_owners_new_figure_is_every_apis {
        kind: Own, defects: ["P8", "T4"], budget: "0=4GiB",
        entry_points: ["cuMemGetInfo_v2", "cuDeviceTotalMem_v2", "nvmlDeviceGetMemoryInfo", "vkGetPhysicalDeviceMemoryProperties"],
    } (session) {
        let tenant = Onlooker::new()?;
        tenant.is_told(Bytes::gib(4))?;
        ensure_eq!(tenant.cuda.allocate(Bytes::gib(6).0).code, OUT_OF_MEMORY, "6 of 4 GiB");
        set(session, Bytes::gib(12))?;
        tenant.is_told(Bytes::gib(12))?;
        let six = tenant.cuda.allocate(Bytes::gib(6).0);
        ensure_eq!(six.code, OK, "6 of 12 GiB");
        let two = tenant.gpu.allocate(Bytes::gib(2))?;
        set(session, Bytes::gib(3))?;
        ensure_eq!(tenant.is_told(Bytes::gib(3))?, Bytes::ZERO, "free while usage is above the budget");
        tenant.is_refused()?;
        ensure_eq!(tenant.cuda.write(six.out, &[7; 64]), OK, "memory beyond the new budget is written");
        tenant.gpu.device.free(two);
        tenant.is_refused()?;
        ensure_eq!(tenant.cuda.free(six.out), OK, "cuMemFree_v2");
        ensure_eq!(tenant.cuda.allocate(Bytes::gib(2).0).code, OK, "2 of 3 GiB");
        tenant.is_told(Bytes::gib(3))?;
        // So that the checkers, which know the case's budget, see it kept at the end; the peak was the owner's wish.
        set(session, Bytes::gib(12))
    }

    /// A process that was told of no budget at all, or of none but for another device, is held by the ledger that its tenant has.
    who_was_told_of_nothing_is_held_by_the_ledger {
        kind: Budget, defects: ["P8", "R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        unordered: "the late-comers' settings are their own",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(1 << 21).code, OK, "2 MiB of the first comer");
        let unset = ("CUDA_DEVICE_MEMORY_LIMIT_0", None);
        for settings in [
            &[unset][..],
            &[("CUDA_DEVICE_MEMORY_LIMIT_0", Some("0"))],
            &[unset, ("CUDA_DEVICE_MEMORY_LIMIT_1", Some("30g"))],
        ] {
            let (granted, _) = late(session, settings)?;
            fills(granted, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        }
        Ok(())
    }

    /// A late-comer with other settings hears once, with both figures, that the ledger's budget holds; one with the same settings hears nothing.
    a_late_comer_hears_once_whose_budget_holds {
        kind: Own, defects: ["P8", "P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        unordered: "the late-comers' settings are their own",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(1 << 21).code, OK, "2 MiB of the first comer");
        let (_, stderr) = late(session, &[("CUDA_DEVICE_MEMORY_LIMIT_0", Some("20g"))])?;
        let path = session.ledger_path().display().to_string();
        let said = lines(&stderr);
        let names = |line: &&str| [&path[..], "4294967296", "21474836480", "device 0"].iter().all(|word| line.contains(word));
        ensure!(said.len() == 1 && said.iter().all(names), "the late-comer said: {stderr}");
        let (_, stderr) = late(session, &[])?;
        ensure!(lines(&stderr).is_empty(), "one with the same settings said: {stderr}");
        Ok(())
    }

    /// Where one process counts contexts, those that come later do, whatever their environment says: a budget is none that one can leave them out of.
    contexts_count_for_all_where_they_do_for_one {
        kind: Own, defects: ["P18", "P8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", unordered: "the late-comers' settings are their own",
    } (session) {
        let mut first = Tenant::start(session)?;
        first.ask("ready-cuda")?;
        let charged = session.ledger()?.usage(FIRST);
        let mut late = Tenant::launch(session.launch("tenant").env("RINGFENCE_CONTEXT_CHARGE", "free"))?;
        late.ask("ready-cuda")?;
        ensure_eq!(late.cuda(Bytes::mib(2))?, OK, "2 MiB of the late-comer");
        let more = session.ledger()?.usage(FIRST).0 - charged.0;
        ensure!(Bytes(more) > Bytes::mib(64), "{more} are charged for a late-comer's context and 2 MiB");
        first.peer.finish()?;
        late.peer.finish()
    }

    /// A process that was told of no compute budget is held to the ledger's; so is one that wants the policy disabled.
    who_was_told_of_no_compute_budget_is_held_by_the_ledger {
        kind: Budget, defects: ["P8", "T1"], entry_points: ["cuLaunchKernel"], env: [("CUDA_DEVICE_SM_LIMIT", "10")],
        unordered: "how much is done depends on the time", on_real: No("measures the simulated device's time"),
    } (session) {
        let long = Long::of(&mut unbudgeted(session)?)?;
        let mut first = Tenant::start(session)?;
        first.ask("ready-cuda")?;
        for (what, launch) in [
            ("told of nothing", session.launch("tenant").without("CUDA_DEVICE_SM_LIMIT")),
            ("told to disable it", session.launch("tenant").env("GPU_CORE_UTILIZATION_POLICY", "disable")),
        ] {
            let mut late = Tenant::launch(launch)?;
            let share = late.ask(&format!("work {}", long.work("Kernel", 2000, 1)))? as f64 / 100.0;
            ensure!(share <= 10.0 + MARGIN, "{what}: {share} % of the time, of 10");
            late.peer.finish()?;
        }
        first.peer.finish()
    }

    /// The owner's first compute budget holds in a process that began when there was none, and runs; so does the next, and none.
    the_owners_first_compute_budget_holds_in_a_process_that_runs {
        kind: Own, defects: ["P8", "T1"], entry_points: ["cuLaunchKernel"], budget: "0=4GiB",
        unordered: "how much is done depends on the time", on_real: No("measures the simulated device's time"),
    } (session) {
        let mut tenant = Tenant::start(session)?;
        let long = Long::of(&mut tenant)?;
        let mut share = |milliseconds| -> Result<f64, Failure> {
            Ok(tenant.ask(&format!("work {}", long.work("Kernel", milliseconds, 1)))? as f64 / 100.0)
        };
        let before = share(500)?;
        ensure!(before > 10.0 + MARGIN, "{before} % of the time without a compute budget");
        let ledger = session.ledger()?;
        ledger.set_share(FIRST, 1_000);
        let held = share(2000)?;
        ensure!(held <= 10.0 + MARGIN, "{held} % of the time, of 10");
        ledger.set_share(FIRST, 4_000);
        let raised = share(2000)?;
        ensure!(raised <= 40.0 + MARGIN, "{raised} % of the time, of 40");
        ledger.set_share(FIRST, 0);
        let after = share(500)?;
        ensure!(after > 10.0 + MARGIN, "{after} % of the time after it was taken away");
        Ok(())
    }

    /// A ledger that allows more than the owner's tenant file was meddled with: whoever begins next holds it to the file, and says so once.
    a_tenant_file_lowers_a_ledger_that_was_meddled_with {
        kind: Own, defects: ["R11", "P8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"), unordered: "the tenant's settings are a file's",
    } (session) {
        let text = format!(
            "CUDA_DEVICE_MEMORY_LIMIT_0 = \"{}\"\nRINGFENCE_LEDGER = \"{}\"\n",
            budget(session, 0)?.0, session.ledger_path().display()
        );
        std::fs::write(session.directory().join("proxies/tenant.toml"), text)?;
        let mut first = Tenant::start(session)?;
        first.ask("ready-cuda")?;
        set(session, Bytes::gib(40))?;
        let (granted, stderr) = late(session, &[])?;
        fills(granted, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        let said = lines(&stderr);
        ensure!(said.len() == 1 && said[0].contains("tenant file"), "said: {stderr}");
        ensure_eq!(first.cuda(Bytes::gib(5))?, OUT_OF_MEMORY, "5 GiB of the first comer, after it");
        first.peer.finish()
    }

    /// The owner's compute budgets lower a ledger's one by one: a device whose share there is less already keeps no other from its own.
    a_tenant_file_lowers_every_devices_share {
        kind: Own, defects: ["V18", "P8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB,1=4GiB", libraries: Proxies, machine: "rtx6000-ada*2", needs_gpus: 2,
        on_real: No("the proxies are put before a mock"), unordered: "the tenant's settings are a file's",
    } (session) {
        let text = shares(session);
        std::fs::write(session.directory().join("proxies/tenant.toml"), text)?;
        shares_are_lowered(session, "ready-cuda")
    }

    /// The same where the layer alone, beside which the file lies, begins last.
    a_tenant_file_lowers_every_devices_share_by_the_layer {
        kind: Own, defects: ["V18", "P8"], entry_points: ["vkCreateDevice"], budget: "0=4GiB,1=4GiB", libraries: IdleLayer, machine: "rtx6000-ada*2", needs_gpus: 2,
        on_real: No("the layer's directory is the mock's session's"), unordered: "the tenant's settings are a file's",
    } (session) {
        install_layer_beside(session, &shares(session))?;
        shares_are_lowered(session, "ready-vulkan")
    }
}
