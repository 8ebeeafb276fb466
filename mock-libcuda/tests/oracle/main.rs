//! The built libcuda.so.1 against what an H200 with driver 580.159.04 answered (`fixtures/oracle`).

mod boundary;
mod edges;
mod exports;
mod lookup;
mod nulls;
mod visible;

use std::sync::LazyLock;

use boundary::Library;

/// The library under test. No test calls it in this process.
pub static CUDA: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_libcuda.so")));

pub const ANSWERS: &str = include_str!("../../../fixtures/oracle/libcuda-580.txt");

/// An address for an answer.
pub fn out<T>(value: &mut T) -> u64 {
    std::ptr::from_mut(value) as u64
}

pub fn must(name: &str, words: &[u64]) {
    assert_eq!(CUDA.call(name, words), 0, "{name}");
}

/// cuInit, and the first device's primary context made current.
pub fn start() {
    let mut context = 0u64;
    must("cuInit", &[0]);
    must("cuDevicePrimaryCtxRetain", &[out(&mut context), 0]);
    must("cuCtxSetCurrent", &[context]);
}
