//! The built libcuda.so.1 against what real drivers answered (`fixtures/oracle`), by generation.

mod arguments;
mod boundary;
mod captures;
mod contexts;
mod edge_table;
mod edges;
mod errors;
mod exports;
mod generations;
mod lookup;
mod matrix;
mod memory;
#[path = "../../../suites/missing.rs"]
mod missing;
mod modules;
mod movement;
mod nulls;
mod play;
mod play_boundary;
mod processes;
mod score;
mod told;
mod values;
mod visible;

use std::sync::LazyLock;

use boundary::Library;
use build_support::oracle::{self, Export};

/// The library under test. No test calls it in this process.
pub static CUDA: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_libcuda.so")));

/// Every export of any generation.
pub static EXPORTS: LazyLock<Vec<Export<'static>>> =
    LazyLock::new(|| oracle::exports(include_str!("../../../fixtures/oracle/libcuda.txt")));

/// Makes what fork children use; see [`boundary::in_child`].
fn shared_with_children() {
    LazyLock::force(&CUDA);
    LazyLock::force(&EXPORTS);
}

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
