//! Drivers that lack what others have.

use std::collections::BTreeSet;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq, symbols};
use mock_device::Api;

use crate::clients::{cuda, fill, nvml, told};
use crate::ffi::cuda::MISSING;
use crate::ffi::library::take_error;
use crate::ffi::vulkan::Client;
use crate::greed::{CONTEXT_ROOM, budget, fills};
use abi::nvml::nvmlReturn_t;

cases! {
    /// What is preloaded shows the program no name but the drivers' and the look-ups': a generic one would take the place of the program's own.
    a_preload_exports_no_name_of_its_own {
        defects: ["S7"], entry_points: ["dlclose", "dlsym", "dlvsym"],
    } (session) {
        let drivers = [Api::Cuda, Api::Nvml].into_iter().flat_map(symbols::of_any_generation);
        let known: BTreeSet<&str> = drivers.chain(["dlclose", "dlsym", "dlvsym"]).collect();
        for library in session.preloads() {
            let exports = symbols::exports(&std::fs::read(library)?).map_err(|error| Failure::Broken(error.to_string()))?;
            let own = exports.iter().map(|(name, _)| name.as_str()).filter(|name| !known.contains(name));
            let own: Vec<_> = own.collect();
            ensure!(own.is_empty(), "{library} exports {own:?}");
        }
        Ok(())
    }

    /// cuMemAlloc_v2 that the driver lacks is absent by handle and by cuGetProcAddress: no other ABI takes its place.
    a_missing_v2_stays_missing {
        defects: ["S2"], entry_points: ["cuMemAlloc_v2", "cuGetProcAddress_v2"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuMemAlloc_v2", then = "missing" }]"#,
    } (_session) {
        let cuda = cuda()?;
        take_error();
        ensure_eq!(cuda.library.address("cuMemAlloc_v2"), None, "cuMemAlloc_v2 by handle");
        ensure!(take_error(), "dlerror says nothing about it");
        let answer = cuda.proc_address("cuMemAlloc", 12000, 0);
        let older = cuda.library.address("cuMemAlloc");
        ensure!(answer.address.is_none() || answer.address == older, "cuGetProcAddress names an export that is not there");
        ensure_eq!(cuda.allocate(1).code, MISSING, "the client's own table");
        Ok(())
    }

    /// Without the stream-ordered entry points the plain ones keep the budget.
    a_driver_without_stream_ordered_allocation_keeps_the_budget {
        kind: Budget, defects: ["S2"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        faults: r#"
            fault = [
                { at = "cuMemAllocAsync", then = "missing" },
                { at = "cuMemAllocAsync_ptsz", then = "missing" },
                { at = "cuMemFreeAsync", then = "missing" },
                { at = "cuMemFreeAsync_ptsz", then = "missing" },
                { at = "cuGetProcAddress_v2", then = "missing" },
            ]
        "#,
    } (session) {
        let cuda = cuda()?;
        ensure_eq!(cuda.library.address("cuMemAllocAsync"), None, "cuMemAllocAsync by handle");
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// An older NVML without version 2 of the memory call tells the budget by version 1.
    an_nvml_without_version_2_tells_the_budget {
        kind: Budget, defects: ["S2", "S8"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "nvmlDeviceGetMemoryInfo_v2", then = "missing" }]"#,
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        ensure_eq!(nvml.memory_v2(device).err(), Some(crate::ffi::nvml::MISSING), "version 2");
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "total by version 1");
        ensure_eq!(nvml.shutdown(), nvmlReturn_t::SUCCESS, "nvmlShutdown");
        Ok(())
    }

    /// A Vulkan driver without VK_EXT_memory_budget gets none from the layer.
    a_missing_extension_stays_missing {
        defects: ["V12", "V4"], entry_points: ["vkEnumerateDeviceExtensionProperties"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "VK_EXT_memory_budget", then = "missing" }]"#,
    } (_session) {
        let instance = crate::clients::instance(Client::V1_1)?;
        let physical = crate::clients::first_gpu(&instance)?;
        let extensions = instance.extensions(physical)?;
        ensure!(!extensions.is_empty(), "the driver has no extension at all");
        ensure!(!extensions.iter().any(|name| name == "VK_EXT_memory_budget"), "VK_EXT_memory_budget is offered");
        Ok(())
    }
}
