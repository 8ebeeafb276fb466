//! mock-libcuda: a libcuda.so.1 without a GPU, one face of the simulated device world ([`mock_device`]).
//!
//! `table.rs` lists what is simulated; every other export of driver 580 answers what the oracle recorded for it, or
//! NOT_SUPPORTED. [`boundary`] holds all the unsafe; the nouns below hold safe functions.
//! What it is not: it runs no kernels, and it does not answer libcudart's authenticity handshake.

#![cfg_attr(
    test,
    expect(
        dead_code,
        reason = "exports are roots in the library, not in its unit tests"
    )
)]

mod boundary;
mod exports;

mod admission;
mod advice;
mod arena;
mod array;
mod batch;
mod capture;
mod conditional;
mod contents;
mod context;
mod copy;
mod device;
mod driver;
mod entry;
mod error;
mod event;
mod exec;
mod external;
mod external_semaphore;
mod fill;
mod function;
mod graph;
mod graph_memory;
mod green;
mod handle;
mod host;
mod host_function;
mod image;
mod init;
mod ipc;
mod ipc_event;
mod jit;
mod launch;
mod library;
mod limits;
mod link;
mod lookup;
mod lost;
mod managed;
mod memop;
mod memory;
mod module;
mod movement;
mod narrow;
mod node;
mod occupancy;
mod peer;
mod pointer;
mod pool;
mod pool_sharing;
mod prefetch;
mod process;
mod region;
mod reservation;
mod settings;
mod shape;
mod sharing;
mod stream;
mod texture_reference;
mod timeline;
mod transfer;
mod unowned;
mod user_object;
mod view;
mod visible;
mod vmm;
