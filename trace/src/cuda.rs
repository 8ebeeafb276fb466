//! What libcuda's handles are called.

use abi::cuda::*;

use crate::arguments::{Arguments, Shown, Traced, handles};

/// The API's name in a line.
pub const API: &str = "cuda";

/// Whether a success of this entry point ends the life of the handle that it is given.
#[must_use]
pub fn ends(entry: &str) -> bool {
    ["Free", "Destroy", "cuMemRelease"]
        .iter()
        .any(|word| entry.contains(word))
}

impl Traced for CUresult {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.push(name, Shown::Unsigned(self.0.into()));
    }
}

impl Traced for CUstream {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match self.0 as u64 {
            1 => list.text(name, "stream-legacy"),
            2 => list.text(name, "stream-per-thread"),
            value => list.handle(name, "stream", value),
        }
    }
}

impl Traced for *mut CUstream {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.out(name, self, |list, value| {
            list.got(name, "stream", value.0 as u64);
        });
    }
}

handles! {
    CUcontext => "ctx", CUevent => "event", CUmemoryPool => "pool", CUarray => "array", CUmodule => "module",
    CUfunction => "function", CUlibrary => "library", CUkernel => "kernel", CUmipmappedArray => "mipmap",
    CUtexref => "texref", CUsurfref => "surfref", CUgraphicsResource => "resource", CUexternalMemory => "extmem",
    CUexternalSemaphore => "extsem", CUgraph => "graph", CUgraphNode => "node", CUgraphExec => "exec",
    CUuserObject => "object", CUgraphDeviceNode => "devnode", CUasyncCallbackHandle => "callback",
    CUgreenCtx => "green", CUlinkState => "link", CUdevResourceDesc => "desc", CUlogsCallbackHandle => "logs",
    CUeglStreamConnection => "egl",
}
