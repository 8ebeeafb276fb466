//! Programs that ask one API for what tenants ask it for, and say each answer: what a snapshot shows of a machine, with our libraries before its
//! drivers and without.

use std::fmt::Debug;

use abi::nvml::nvmlReturn_t;
use cases::clients::{gpus, memory_type};
use cases::ffi::cuda::{Answer, Cuda, Stream};
use cases::ffi::nvml::Nvml;
use cases::ffi::vulkan::{Client, Place, Query, Vulkan};
use harness::{Bytes, cases};

/// What precedes the lines that are the program's own, on its stderr.
pub const SAYS: &str = "| ";

const FITS: Bytes = Bytes::mib(64);
/// More than any budget of the tours.
const TOO_MUCH: Bytes = Bytes::gib(8);

/// What a machine with all four budgets is given.
pub const BUDGETS: [&str; 4] = ["0=4GiB", "1=2GiB", "2=3GiB", "3=4GiB"];

fn say(call: &str, answer: impl Debug) {
    eprintln!("{SAYS}{call} = {answer:?}");
}

/// An answer, and what the out-parameter holds if it is a success.
fn tell<T: Debug>(call: &str, answer: Answer<T>) {
    match answer.granted() {
        Ok(out) => say(call, out),
        Err(code) => say(call, code),
    }
}

/// A call whose out-parameter is a pointer or a handle, another in every process.
fn tell_code<T>(call: &str, answer: Answer<T>) {
    say(call, answer.code);
}

fn tell_nvml<T: Debug>(call: &str, answer: Result<T, nvmlReturn_t>) -> Option<T> {
    match answer {
        Ok(out) => {
            say(call, &out);
            Some(out)
        }
        Err(code) => {
            say(call, code);
            None
        }
    }
}

fn free_and_total(answer: Answer<(u64, u64)>) -> Answer<(Bytes, Bytes)> {
    let (free, total) = answer.out;
    Answer {
        code: answer.code,
        out: (Bytes(free), Bytes(total)),
    }
}

cases! {
    /// Asks CUDA for its devices, their memory, some of it and too much of it.
    cuda_tour {} (_session) {
        let cuda = Cuda::open()?;
        say("cuInit(0)", cuda.init());
        let count = cuda.device_count();
        tell("cuDeviceGetCount", count);
        for device in 0..count.out {
            let total = cuda.total_memory(device);
            tell(&format!("cuDeviceTotalMem_v2(device {device})"), Answer { code: total.code, out: Bytes(total.out) });
            let context = cuda.retain_primary(device);
            tell_code("cuDevicePrimaryCtxRetain", context);
            say("cuCtxSetCurrent", cuda.set_current(context.out));
            tell("cuMemGetInfo_v2", free_and_total(cuda.memory_info()));
            let fits = cuda.allocate(FITS.0);
            tell_code("cuMemAlloc_v2(64 MiB)", fits);
            tell("cuMemGetInfo_v2", free_and_total(cuda.memory_info()));
            let too_much = cuda.allocate(TOO_MUCH.0);
            tell_code("cuMemAlloc_v2(8 GiB)", too_much);
            for pointer in [fits, too_much].into_iter().filter_map(|answer| answer.granted().ok()) {
                say("cuMemFree_v2", cuda.free(pointer));
            }
            let ordered = cuda.allocate_async(Stream::Legacy, FITS.0);
            tell_code("cuMemAllocAsync(64 MiB)", ordered);
            say("cuMemFreeAsync", cuda.free_async(Stream::Legacy, ordered.out));
            tell_code("cuMemAllocAsync(8 GiB)", cuda.allocate_async(Stream::Legacy, TOO_MUCH.0));
            say("cuCtxSynchronize", cuda.synchronize());
        }
        Ok(())
    }

    /// Gives CUDA's calls NULL where they write.
    cuda_nulls {} (_session) {
        let cuda = Cuda::open()?;
        say("cuInit(0)", cuda.init());
        say("cuDeviceTotalMem_v2(NULL, 0)", cuda.total_memory_into_nothing(0));
        let context = cuda.retain_primary(0);
        tell_code("cuDevicePrimaryCtxRetain", context);
        say("cuCtxSetCurrent", cuda.set_current(context.out));
        say("cuMemGetInfo_v2(NULL, NULL)", cuda.memory_info_into_nothing());
        let (free, total) = (cuda.memory_info_free(), cuda.memory_info_total());
        tell("cuMemGetInfo_v2(free, NULL)", Answer { code: free.code, out: Bytes(free.out) });
        tell("cuMemGetInfo_v2(NULL, total)", Answer { code: total.code, out: Bytes(total.out) });
        for bytes in [FITS, TOO_MUCH] {
            say(&format!("cuMemAlloc_v2(NULL, {bytes})"), cuda.allocate_into_nothing(bytes.0));
            say(&format!("cuMemAllocAsync(NULL, {bytes})"), cuda.allocate_async_into_nothing(Stream::Legacy, bytes.0));
        }
        tell_code("cuMemAlloc_v2(0)", cuda.allocate(0));
        say("cuMemFree_v2(NULL)", cuda.free(0));
        Ok(())
    }

    /// Asks NVML for its devices, who they are and what memory they have.
    nvml_tour {} (_session) {
        let nvml = Nvml::open()?;
        say("nvmlInit_v2", nvml.init());
        let count = tell_nvml("nvmlDeviceGetCount_v2", nvml.device_count());
        for index in 0..count.unwrap_or(0) {
            let Ok(device) = nvml.device(index) else {
                say("nvmlDeviceGetHandleByIndex_v2", "refused");
                continue;
            };
            tell_nvml("nvmlDeviceGetUUID", nvml.uuid(device));
            tell_nvml("nvmlDeviceGetPciInfo_v3", nvml.pci(device));
            let first = nvml.memory(device);
            let figures = first.map(|memory| [memory.total, memory.free, memory.used].map(Bytes));
            tell_nvml("nvmlDeviceGetMemoryInfo: total, free, used", figures);
            let second = nvml.memory_v2(device);
            let figures = second.map(|memory| [memory.total, memory.reserved, memory.free, memory.used].map(Bytes));
            tell_nvml("nvmlDeviceGetMemoryInfo_v2: total, reserved, free, used", figures);
            tell_nvml("nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes(device));
        }
        say("nvmlShutdown", nvml.shutdown());
        Ok(())
    }

    /// Gives NVML's calls NULL where they write.
    nvml_nulls {} (_session) {
        let nvml = Nvml::open()?;
        say("nvmlInit_v2", nvml.init());
        if let Ok(device) = nvml.device(0) {
            say("nvmlDeviceGetMemoryInfo(NULL), _v2(NULL)", nvml.memory_into_nothing(device));
            say("nvmlDeviceGetMemoryInfo, _v2", nvml.memory_answers(device));
        }
        say("nvmlShutdown", nvml.shutdown());
        Ok(())
    }

    /// Asks Vulkan for its devices, who they are, their heaps and budgets, some memory and too much of it.
    vulkan_tour {} (_session) {
        let vulkan = Vulkan::open()?;
        let instance = vulkan.instance(Client::V1_1)?;
        for physical in gpus(&instance)? {
            say("vkGetPhysicalDeviceProperties2: deviceUUID", uuid(instance.uuid(physical)));
            let sizes = |query| {
                let heaps = instance.heaps(physical, query).into_iter();
                heaps.filter(|heap| heap.device_local).map(|heap| Bytes(heap.size)).collect::<Vec<_>>()
            };
            say("vkGetPhysicalDeviceMemoryProperties: device-local heaps", sizes(Query::First));
            say("vkGetPhysicalDeviceMemoryProperties2: device-local heaps", sizes(Query::Second));
            if instance.extensions(physical)?.iter().any(|name| name == "VK_EXT_memory_budget") {
                let told = instance.heap_budgets(physical, Query::Second);
                let first = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
                say("VK_EXT_memory_budget: budget, usage", [told.budget[first], told.usage[first]].map(Bytes));
            } else {
                say("VK_EXT_memory_budget", "is not there");
            }
            let kind = memory_type(&instance, physical, Place::Device)?;
            let device = instance.device(physical)?;
            for bytes in [FITS, TOO_MUCH] {
                let asked = device.ask(kind, bytes.0);
                say(&format!("vkAllocateMemory({bytes})"), asked.code);
                if let Some(memory) = asked.memory {
                    device.free(memory);
                }
            }
        }
        Ok(())
    }

    /// Asks Vulkan's lists for their lengths, with NULL for the list itself, and what a refused allocation leaves of its out-parameter.
    vulkan_nulls {} (_session) {
        let vulkan = Vulkan::open()?;
        let instance = vulkan.instance(Client::V1_1)?;
        let devices = gpus(&instance)?;
        say("vkEnumeratePhysicalDevices", devices.len());
        for physical in devices {
            let kind = memory_type(&instance, physical, Place::Device)?;
            let device = instance.device(physical)?;
            let asked = device.ask(kind, TOO_MUCH.0);
            say("vkAllocateMemory(8 GiB): its answer, and whether the handle is untouched", (asked.code, asked.untouched));
            if let Some(memory) = asked.memory {
                device.free(memory);
            }
        }
        Ok(())
    }
}

fn uuid(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
