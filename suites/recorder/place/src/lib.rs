//! A recorder stands in a driver's place: it has the driver's DT_SONAME and its names, is found where the driver would be
//! (`LD_LIBRARY_PATH`, or `LD_PRELOAD`), writes one trace line per call, and leaves the answer to the driver, whose file
//! it is told. It answers nothing itself.
//!
//! Standing there it needs no tricks to be met: linking, dlsym and dlvsym lead to it by name, and the addresses that
//! cuGetProcAddress answers are exchanged for its own. Before `libvgpu.so` nothing changes, which finds drivers by their
//! DT_SONAME: it finds the recorder, so **a recorder is beneath the enforcer** and writes what the driver is asked and
//! answers. Without an enforcer that is what the client asked.
//!
//! Not recorded: names without a row in `abi` (they are jumps), variables of the debugger's interface (not exported), what
//! the driver's parts ask each other, what is called through tables of cuGetExportTable, and calls that the driver makes
//! back into itself while it answers one.
//!
//! | variable | says |
//! |---|---|
//! | `RINGFENCE_RECORD` | the file that lines are appended to; without it nothing is written |
//! | `RINGFENCE_RECORDED_LIBCUDA`, `…_LIBNVML` | the driver's file |
//! | `RINGFENCE_ROLE` | what the process is called in each line |
//!
//! `libcuda/` and `libnvml/` beside this crate are the two libraries, one table each; `layer/` is the same for Vulkan.

pub mod boundary;
pub mod settings;
