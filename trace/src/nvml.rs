//! What NVML's handles are called.

use abi::nvml::*;

use crate::arguments::{Arguments, Shown, Traced, handles};

/// The API's name in a line.
pub const API: &str = "nvml";

/// Whether a success of this entry point ends the life of the handle that it is given.
#[must_use]
pub fn ends(entry: &str) -> bool {
    matches!(
        entry,
        "nvmlEventSetFree" | "nvmlGpmSampleFree" | "nvmlGpuInstanceDestroy"
    )
}

impl Traced for nvmlReturn_t {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.push(name, Shown::Unsigned(self.0.into()));
    }
}

handles! {
    nvmlDevice_t => "gpu", nvmlUnit_t => "unit", nvmlEventSet_t => "events", nvmlSystemEventSet_t => "system-events",
    nvmlGpuInstance_t => "gi", nvmlComputeInstance_t => "ci", nvmlGpmSample_t => "sample",
}
