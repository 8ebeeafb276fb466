//! The built libnvidia-ml.so.1 against what an H200 with driver 580.159.04 answered (`fixtures/oracle`).

#[path = "../../../mock-libcuda/tests/oracle/boundary.rs"]
mod boundary;
mod exports;
mod facts;
mod nulls;

use std::sync::LazyLock;

use boundary::Library;

/// The library under test. No test calls it in this process.
pub static NVML: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_nvml.so")));

pub const ANSWERS: &str = include_str!("../../../fixtures/oracle/nvml-580.txt");

/// An address for an answer.
pub fn out<T>(value: &mut T) -> u64 {
    std::ptr::from_mut(value) as u64
}

pub fn must(name: &str, words: &[u64]) {
    assert_eq!(NVML.call(name, words), 0, "{name}");
}

/// nvmlInit, and the handle of the first device.
pub fn start() -> u64 {
    let mut device = 0u64;
    must("nvmlInit_v2", &[]);
    must("nvmlDeviceGetHandleByIndex_v2", &[0, out(&mut device)]);
    device
}
