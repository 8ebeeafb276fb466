//! Libraries of the driver that are not there.

use abi::cuda::CUresult;
use harness::{Bytes, Libraries, cases, ensure, ensure_eq, fail};

use crate::clients::{cuda, fill, told};
use crate::ffi::cuda::Cuda;
use crate::ffi::library::{Scope, look_up};
use crate::ffi::nvml::Nvml;
use crate::ffi::vulkan::Vulkan;
use crate::greed::{CONTEXT_ROOM, budget, fills};

cases! {
    /// Without libcuda a program runs as if nothing were preloaded: opening it fails, and nothing else does.
    without_libcuda_a_program_runs {
        defects: ["S5"], entry_points: ["cuInit"], budget: "0=4GiB", absent: [Cuda, Nvml],
    } (session) {
        let Err(absent) = Cuda::open() else { fail!("libcuda.so.1 was opened where there is none") };
        ensure!(absent.reason.contains("libcuda.so.1"), "the dynamic loader says: {absent}");
        ensure!(Nvml::open().is_err(), "libnvidia-ml.so.1 was opened where there is none");
        ensure_eq!(look_up(Scope::Next, "cuMemAlloc_v2"), None, "cuMemAlloc_v2 by RTLD_NEXT");
        let output = session.program("/bin/true", Libraries::Both)?.output()?;
        ensure!(output.status.success(), "/bin/true ended with {}", output.status);
        ensure!(output.stderr.is_empty(), "/bin/true says {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Without NVML the budget is kept by CUDA all the same.
    without_nvml_the_budget_is_kept {
        kind: Budget, defects: ["S5", "R10"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB", absent: [Nvml],
    } (session) {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        ensure_eq!(Bytes(cuda.memory_info().out.1), budget(session, 0)?, "the total told");
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Without NVML two GPUs keep their own budgets.
    without_nvml_two_gpus_keep_their_budgets {
        kind: Budget, defects: ["R10", "V2"], entry_points: ["cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=4GiB,1=2GiB", absent: [Nvml],
    } (session) {
        let cuda = crate::clients::cuda_without_context()?;
        for device in [1, 0] {
            crate::clients::context(&cuda, device)?;
            fills(fill(&cuda).bytes, budget(session, device as u32)?, CONTEXT_ROOM)?;
        }
        Ok(())
    }

    /// Where nobody lists the machine's GPUs, and budgets are told of two, the only one that CUDA shows may be either: it keeps both.
    without_nvml_one_visible_gpu_of_two_keeps_both_budgets {
        kind: Budget, defects: ["R10", "V2"], entry_points: ["cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=4GiB,1=2GiB", absent: [Nvml], env: [("CUDA_VISIBLE_DEVICES", "1")],
        unaccounted: "what the one holds is charged to both",
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.device_count().out, 1, "visible devices");
        ensure_eq!(Bytes(cuda.memory_info().out.1), budget(session, 1)?, "the total told");
        fills(fill(&cuda).bytes, budget(session, 1)?, CONTEXT_ROOM)
    }

    /// Without libcuda NVML works and tells the budget.
    without_libcuda_nvml_tells_the_budget {
        kind: Budget, defects: ["S5", "S8"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=6GiB", absent: [Cuda],
    } (session) {
        let nvml = crate::clients::nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "the total told");
        Ok(())
    }

    /// CUDA alone needs no libvulkan: none is loaded by a program that uses none.
    cuda_alone_loads_no_libvulkan {
        defects: ["V5", "S5"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the vendor's driver may load what it likes"),
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, CUresult::SUCCESS, "1 GiB");
        let maps = session.maps()?;
        let stray: Vec<_> = maps.files().iter().filter(|file| file.to_string_lossy().contains("libvulkan")).collect();
        ensure!(stray.is_empty(), "mapped by a CUDA program: {stray:?}");
        Ok(())
    }

    /// Where libvulkan cannot be opened the CUDA side keeps its budget; an application that asks for it is told so.
    without_libvulkan_cuda_keeps_the_budget {
        kind: Budget, defects: ["S5"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("puts a file that is no library before the system's libvulkan.so.1"),
    } (session) {
        std::fs::write(session.directory().join("lib/libvulkan.so.1"), "no library")?;
        ensure!(Vulkan::open().is_err(), "libvulkan.so.1 was opened though it is no library");
        fills(fill(&cuda()?).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}
