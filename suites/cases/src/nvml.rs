//! What NVML tells a tenant.

use abi::nvml::nvmlReturn_t;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, skip};

use crate::clients::{cuda, fill, nvml, told};
use crate::ffi::nvml::{Device, MISSING, Nvml};
use crate::greed::budget;

/// The answer of both memory calls where one code is right for both: drivers before 510 have no second one.
fn both(session: &Session, code: nvmlReturn_t) -> Result<[nvmlReturn_t; 2], Failure> {
    let second = session.exports("nvmlDeviceGetMemoryInfo_v2")?;
    Ok([code, if second { code } else { MISSING }])
}

cases! {
    /// nvmlDeviceGetMemoryInfo tells the budget as the total, and used and free that add up to it.
    nvml_tells_the_budget {
        kind: Budget, defects: ["T4"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=23552MiB",
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "total");
        ensure_eq!(memory.used + memory.free, memory.total, "used and free");
        Ok(())
    }

    /// Where the driver does not tell a device's index, each is told its own budget all the same.
    nvml_tells_the_budget_without_an_index {
        kind: Budget, defects: ["S9"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=4GiB,1=3GiB", machine: "rtx6000-ada*2", needs_gpus: 2,
        faults: r#"fault = [{ at = "nvmlDeviceGetIndex", when = "1..", then = "result:999" }]"#,
    } (session) {
        let nvml = nvml()?;
        for index in [0, 1] {
            let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(index))?;
            let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
            ensure_eq!(Bytes(memory.total), budget(session, index)?, "the total of device {index}");
            ensure_eq!(memory.used + memory.free, memory.total, "used and free");
        }
        Ok(())
    }

    /// And where it does not tell which handle an index has either, the strictest of them.
    nvml_tells_the_strictest_budget_of_a_device_that_is_not_known {
        kind: Budget, defects: ["S9"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=4GiB,1=3GiB", machine: "rtx6000-ada*2", needs_gpus: 2,
        faults: r#"fault = [
            { at = "nvmlDeviceGetIndex", when = "1..", then = "result:999" },
            { at = "nvmlDeviceGetCount_v2", when = "1..", then = "result:999" },
        ]"#,
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure!(Bytes(memory.total) <= budget(session, 0)?, "a total of {} is told", memory.total);
        ensure_eq!(memory.used + memory.free, memory.total, "used and free");
        Ok(())
    }

    /// Version 2 tells the same, with nothing reserved.
    nvml_version_2_tells_the_same {
        kind: Budget, defects: ["T4"], entry_points: ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"],
        needs: ["nvmlDeviceGetMemoryInfo_v2"], budget: "0=23552MiB",
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let first = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        let second = told("nvmlDeviceGetMemoryInfo_v2", nvml.memory_v2(device))?;
        ensure_eq!(Bytes(second.total), budget(session, 0)?, "total");
        ensure_eq!(second.reserved, 0, "reserved");
        ensure_eq!((second.used, second.free), (first.used, first.free), "used and free of both versions");
        Ok(())
    }

    /// What a tenant allocated is used, and once all of its budget is, less than a block is free; free never wraps.
    nvml_follows_what_is_allocated {
        kind: Budget, defects: ["C4", "T4"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuMemAlloc_v2"], budget: "0=8GiB",
    } (session) {
        let (cuda, nvml) = (cuda()?, nvml()?);
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let before = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        cuda.allocate(Bytes::gib(2).0);
        let after = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(after.used - before.used, Bytes::gib(2).0, "what 2 GiB added to used");
        fill(&cuda);
        let full = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure!(full.free < Bytes::mib(2).0, "{} bytes are told free, 2 MiB were refused", full.free);
        ensure_eq!(Bytes(full.used + full.free), budget(session, 0)?, "used and free at the end");
        Ok(())
    }

    /// The memory calls answer NULL pointers, before and after initialisation and shutdown, as the driver does.
    nvml_null_arguments_get_the_drivers_answer {
        defects: ["S8", "C1"], entry_points: ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"], budget: "0=4GiB",
    } (session) {
        let invalid = both(session, nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
        let uninitialized = both(session, nvmlReturn_t::ERROR_UNINITIALIZED)?;
        let nvml = Nvml::open()?;
        ensure_eq!(nvml.memory_into_nothing(Device::NULL), uninitialized, "both before nvmlInit_v2");
        ensure_eq!(nvml.init(), nvmlReturn_t::SUCCESS, "nvmlInit_v2");
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        ensure_eq!(nvml.memory_into_nothing(Device::NULL), invalid, "both with neither device nor structure");
        ensure_eq!(nvml.memory_into_nothing(device), invalid, "both without a structure");
        ensure_eq!(nvml.memory_answers(Device::NULL), invalid, "both without a device");
        ensure_eq!(nvml.shutdown(), nvmlReturn_t::SUCCESS, "nvmlShutdown");
        ensure_eq!(nvml.memory_answers(device), uninitialized, "both after nvmlShutdown");
        Ok(())
    }

    /// A fault of the driver's memory call comes through as it is.
    nvml_failures_come_through {
        defects: ["S8"], entry_points: ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"], budget: "0=4GiB",
        faults: r#"
            fault = [
                { at = "nvmlDeviceGetMemoryInfo", then = "result:999" },
                { at = "nvmlDeviceGetMemoryInfo_v2", then = "result:15" },
            ]
        "#,
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let answers = nvml.memory_answers(device);
        let second = both(session, nvmlReturn_t(15))?[1];
        ensure_eq!(answers, [nvmlReturn_t::ERROR_UNKNOWN, second], "both calls");
        Ok(())
    }

    /// With several GPUs each handle tells its own device's budget, whatever the order of CUDA.
    nvml_tells_each_devices_budget {
        kind: Budget, defects: ["R10", "T4"], entry_points: ["nvmlDeviceGetMemoryInfo"], machine: "rtx6000-ada*4",
        needs_gpus: 4, budget: "0=2GiB,1=3GiB,2=4GiB,3=5GiB", env: [("CUDA_VISIBLE_DEVICES", "2,0")],
    } (session) {
        let nvml = nvml()?;
        if told("nvmlDeviceGetCount_v2", nvml.device_count())? < 4 {
            skip!("NVML shows fewer than four devices");
        }
        for index in 0..4 {
            let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(index))?;
            let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
            ensure_eq!(Bytes(memory.total), budget(session, index)?, "total of device {index}");
        }
        Ok(())
    }
}
