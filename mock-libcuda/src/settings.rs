//! The environment, read once, by cuInit.

use std::os::unix::ffi::OsStringExt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// CUDA_VISIBLE_DEVICES, if set.
    pub visible: Option<Vec<u8>>,
    /// CUDA_DEVICE_ORDER=PCI_BUS_ID.
    pub by_pci: bool,
}

impl Settings {
    pub fn read() -> Settings {
        Settings {
            visible: std::env::var_os("CUDA_VISIBLE_DEVICES").map(OsStringExt::into_vec),
            by_pci: std::env::var_os("CUDA_DEVICE_ORDER")
                .is_some_and(|order| order == "PCI_BUS_ID"),
        }
    }
}

/// CUDA_MODULE_LOADING=EAGER; lazy is what drivers since 12.2 do unasked.
pub fn eager_loading() -> bool {
    static EAGER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *EAGER
        .get_or_init(|| std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|mode| mode == "EAGER"))
}
