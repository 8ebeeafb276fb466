//! What NVML's handles are called.

use abi::nvml::*;

use crate::arguments::{Arguments, Shown, Traced, handles};

/// The API's name in a line.
pub const API: &str = "nvml";

impl Traced for nvmlReturn_t {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.push(name, Shown::Unsigned(self.0.into()));
    }
}

handles! { nvmlDevice_t => "gpu" }
