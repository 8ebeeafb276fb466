//! `libvgpu.so`: preloaded in front of libcuda and NVML, it holds a tenant's processes to their budgets.
//!
//! `hooks` is the table of what we change; everything else falls through to the drivers. `boundary` is where C and the loader are met, and all unsafe code
//! is there; the bodies of the hooks are safe functions, one file per noun.
//!
//! `enforcement/proxy` compiles the same source with `cfg(proxy)`: a library in a driver's place, which exports that driver's hooks and no dlsym.
#![cfg_attr(
    any(test, proxy),
    allow(
        dead_code,
        reason = "an executable of unit tests exports no hooks, and a proxy no look-ups, so nothing leads to their bodies"
    )
)]

mod array;
mod boundary;
mod branches;
mod capture;
mod context;
mod contexts;
mod deferred;
mod devices;
mod external;
mod frees;
mod function;
mod grant;
mod graph;
mod graphs;
mod green;
mod hooks;
mod info;
mod lent;
mod limits;
mod location;
mod marks;
mod memory;
mod memset;
mod mirror;
mod module;
mod modules;
mod nvml;
mod ordered;
mod outcome;
mod physical;
mod pinned;
mod poll;
mod pool;
mod pools;
mod proc_address;
mod process;
mod records;
mod report;
#[cfg(not(proxy))]
mod scope;
mod sharing;
mod slack;
mod stream;
mod texels;
mod threads;
mod throttle;
mod truth;
mod variants;
mod view;
