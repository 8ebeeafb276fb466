//! The built libnvidia-ml.so.1 against what real drivers answered (`fixtures/oracle`), by generation.

mod answers;
#[path = "../../../mock-libcuda/tests/oracle/boundary.rs"]
mod boundary;
mod exports;
mod facts;
mod generations;
mod nulls;
#[path = "../../../mock-libcuda/tests/oracle/score.rs"]
mod score;
mod simulated;

use std::sync::LazyLock;

use boundary::Library;
use build_support::oracle::{self, Export};

/// The library under test. No test calls it in this process.
pub static NVML: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_nvml.so")));

/// Every export of any generation.
pub static EXPORTS: LazyLock<Vec<Export<'static>>> =
    LazyLock::new(|| oracle::exports(include_str!("../../../fixtures/oracle/nvml.txt")));

/// Makes what fork children use; see [`boundary::in_child`].
fn shared_with_children() {
    LazyLock::force(&NVML);
    LazyLock::force(&EXPORTS);
}

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
