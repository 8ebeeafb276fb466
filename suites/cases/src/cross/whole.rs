//! Everything that a tenant can ask of a device's memory, at once; and that nothing else is another's answer than the driver's.

use abi::cuda::CUresult;
use abi::nvml::nvmlReturn_t;
use harness::{Bytes, Failure, Libraries, Session, cases, ensure, ensure_eq, roles};

use crate::clients::{Gpu, context, cuda_without_context, gpus, instance, nvml, told};
use crate::ffi::cuda::Cuda;
use crate::ffi::nvml::{Device, Nvml};
use crate::ffi::vulkan::{Client, Instance, PhysicalDevice, Query};
use crate::greed::budget;
use crate::tenant::Tenant;

const OK: CUresult = CUresult::SUCCESS;
/// Numbers of device attributes that are asked: more than any driver knows.
const ATTRIBUTES: i32 = 200;
/// Process rows of one API are a version each.
const VERSIONS: usize = 3;

/// One device, as each API calls it.
struct Asked {
    index: u32,
    nvml: Device,
    instance: Instance,
    physical: PhysicalDevice,
}

/// The devices that have a budget, told apart by their PCI addresses.
fn asked(session: &Session, nvml: &Nvml) -> Result<Vec<Asked>, Failure> {
    let instance = instance(Client::V1_1)?;
    let shown = gpus(&instance)?;
    let mut all = Vec::new();
    for index in (0..session.gpus()).filter(|&index| session.budget(index).is_some()) {
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(index))?;
        let wanted = told("nvmlDeviceGetPciInfo_v3", nvml.pci(device))?;
        let mut physical = None;
        for &candidate in &shown {
            if instance.pci(candidate)? == Some(wanted) {
                physical = Some(candidate);
            }
        }
        let Some(physical) = physical else {
            harness::fail!("Vulkan has no device at {wanted:?}");
        };
        all.push(Asked {
            index,
            nvml: device,
            instance: instance.clone(),
            physical,
        });
    }
    Ok(all)
}

/// Asks everything of one device, whose context becomes current, and compares. What is free.
fn one_story(
    session: &Session,
    cuda: &Cuda,
    nvml: &Nvml,
    asked: &Asked,
    tenant: &[u32],
) -> Result<u64, Failure> {
    let (index, budget) = (asked.index, budget(session, asked.index)?.0);
    context(cuda, index as i32)?;
    let (free, total) = cuda.memory_info().out;
    ensure_eq!(total, budget, "cuMemGetInfo_v2's total of device {index}");
    let whole = cuda.total_memory(index as i32).out;
    ensure_eq!(whole, budget, "cuDeviceTotalMem_v2 of device {index}");
    // Those of 32-bit days tell 4 GiB at most.
    let (free_v1, total_v1) = cuda.memory_info_v1().out;
    let whole_v1 = cuda.total_memory_v1(index as i32).out;
    ensure!(
        u64::from(total_v1) <= budget
            && u64::from(whole_v1) <= budget
            && u64::from(free_v1) <= free,
        "cuMemGetInfo and cuDeviceTotalMem of device {index}: {free_v1} of {total_v1}, {whole_v1}"
    );

    let first = told("nvmlDeviceGetMemoryInfo", nvml.memory(asked.nvml))?;
    let told_first = (first.total, first.free, first.used);
    ensure_eq!(
        told_first,
        (budget, free, budget - free),
        "NVML's total, free, used of device {index}"
    );
    if session.exports("nvmlDeviceGetMemoryInfo_v2")? {
        let second = told("nvmlDeviceGetMemoryInfo_v2", nvml.memory_v2(asked.nvml))?;
        let told_second = (second.total, second.free, second.used, second.reserved);
        ensure_eq!(
            told_second,
            (budget, free, budget - free, 0),
            "the same by version 2"
        );
    }

    let heaps = asked.instance.heap_budgets(asked.physical, Query::Second);
    let Some(at) = heaps.heaps.iter().position(|heap| heap.device_local) else {
        harness::fail!("device {index} has no device-local heap");
    };
    let (size, usage) = (heaps.heaps[at].size, heaps.usage[at]);
    ensure_eq!(size, budget, "the heap of device {index}");
    ensure_eq!(
        heaps.budget[at],
        size.min(usage + free),
        "heapBudget of device {index}, beside a usage of {usage} and {free} free"
    );

    let used = budget - free;
    ensure!(
        usage <= used,
        "heapUsage {usage} of device {index}, of {used} in use"
    );
    let rows = nvml.process_rows(asked.nvml);
    for versions in rows.chunks(VERSIONS) {
        for (what, code, rows) in versions {
            if *code != nvmlReturn_t::SUCCESS {
                continue;
            }
            let rows = rows
                .chunks(2)
                .filter(|row| tenant.contains(&(row[0] as u32)));
            let sum: u64 = rows.map(|row| row[1]).sum();
            ensure!(
                sum <= used,
                "{what} of device {index}: {sum} of the tenant's, of {used} in use"
            );
        }
    }
    Ok(free)
}

/// The story at every step of a program that uses all APIs beside another process.
fn everything_agrees(session: &Session) -> Result<(), Failure> {
    let nvml = nvml()?;
    let cuda = cuda_without_context()?;
    let asked = asked(session, &nvml)?;
    let mut other = Tenant::start(session)?;
    ensure_eq!(other.cuda(Bytes::gib(1))?, OK, "1 GiB of another process");
    let pids = [std::process::id(), other.peer.pid()];
    let gpus: Vec<Gpu> = asked
        .iter()
        .map(|asked| Gpu::on(&asked.instance, asked.physical))
        .collect::<Result<_, _>>()?;
    let story = || -> Result<Vec<u64>, Failure> {
        let each = asked.iter();
        each.map(|asked| one_story(session, &cuda, &nvml, asked, &pids))
            .collect()
    };
    story()?;
    let mut before = story()?;
    for (at, asked) in asked.iter().enumerate() {
        context(&cuda, asked.index as i32)?;
        let held = cuda.allocate(Bytes::gib(1).0);
        ensure_eq!(held.code, OK, "1 GiB by CUDA of device {}", asked.index);
        before[at] -= Bytes::gib(1).0;
        ensure_eq!(story()?, before, "free of each device after it");
        gpus[at].allocate(Bytes::mib(512))?;
        before[at] -= Bytes::mib(512).0;
        ensure_eq!(story()?, before, "free of each after 512 MiB by Vulkan");
    }
    ensure_eq!(
        other.cuda(Bytes::mib(512))?,
        OK,
        "512 MiB more of the other process"
    );
    before[0] -= Bytes::mib(512).0;
    ensure_eq!(story()?, before, "free of each after the other's");
    other.peer.finish()
}

/// What is no answer about memory's size, a line each: every attribute of CUDA's, NVML's rows, shares of time and accounting.
fn beside(session: &Session, pid: u32) -> Result<Vec<String>, Failure> {
    let (nvml, cuda) = (nvml()?, cuda_without_context()?);
    let mut lines = Vec::new();
    for index in 0..session.gpus().min(2) {
        let attributes = (0..ATTRIBUTES).map(|number| cuda.attribute(number, index as i32));
        let attributes: Vec<(u32, i32)> = attributes
            .map(|answer| (answer.code.0, answer.out))
            .collect();
        lines.push(format!("attributes of device {index}: {attributes:?}"));
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(index))?;
        for (what, code, told) in nvml
            .process_rows(device)
            .into_iter()
            .chain(nvml.beside_memory(device, pid))
        {
            lines.push(format!("{what} of device {index}: {} {told:?}", code.0));
        }
    }
    Ok(lines)
}

cases! {
    /// CUDA, NVML and Vulkan, each by all of its versions, heapBudget and the tenant's process rows tell one story, whoever of the tenant's
    /// processes takes what.
    everything_that_can_be_asked_tells_one_story {
        kind: Budget, defects: ["T4", "C4", "V4", "C10"], budget: "0=6GiB",
        entry_points: [
            "cuMemGetInfo_v2", "cuMemGetInfo", "cuDeviceTotalMem_v2", "cuDeviceTotalMem", "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetMemoryInfo_v2", "vkGetPhysicalDeviceMemoryProperties2",
        ],
    } (session) {
        everything_agrees(session)
    }

    /// So they do of each of two devices, whose budgets differ.
    everything_that_can_be_asked_tells_one_story_of_each_device {
        kind: Budget, defects: ["T4", "C4", "R10", "C9"], budget: "0=5GiB,1=9GiB", machine: "rtx6000-ada*2", needs_gpus: 2,
        entry_points: [
            "cuMemGetInfo_v2", "cuDeviceTotalMem_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
            "vkGetPhysicalDeviceMemoryProperties2",
        ],
    } (session) {
        everything_agrees(session)
    }

    /// Nothing else is changed: every device attribute, NVML's rows of every process, BAR1, utilisation and accounting are told as the bare
    /// driver tells them, of a device that two of the tenant's processes use.
    what_is_not_about_memorys_size_is_the_drivers {
        defects: ["C7", "T4"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=6GiB", unordered: "looks from two processes",
        on_real: No("what other programs of the machine do may change between two looks"),
    } (session) {
        let mut other = Tenant::start(session)?;
        ensure_eq!(other.cuda(Bytes::gib(2))?, OK, "2 GiB of another process");
        let cuda = crate::clients::cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OK, "1 GiB of this one");
        let pid = std::process::id().to_string();
        let bare = session.launch("asks_beside_memory").args(&[&pid]).libraries(Libraries::Neither).without("LD_PRELOAD");
        let mut bare = bare.start()?;
        let mut rows = 0;
        for told in beside(session, std::process::id())? {
            ensure_eq!(told, bare.line()?, "what the bare driver tells");
            rows += usize::from(told.contains(&format!("[{pid}, ")) || told.contains(&format!(" {pid}, ")));
        }
        ensure!(rows > 0, "no row names this process");
        bare.finish()?;
        other.peer.finish()
    }
}

roles! {
    /// Says what the driver tells beside memory's size; its argument is the process whose accounting is asked for.
    asks_beside_memory(session, parent) {
        let pid = parent.args().first().and_then(|pid| pid.parse().ok()).unwrap_or_default();
        for line in beside(session, pid)? {
            parent.say(&line)?;
        }
        Ok(())
    }
}
