//! mock-nvml: a libnvidia-ml.so.1 without a GPU, one face of the simulated device world ([`mock_device`]).
//!
//! `table.rs` lists what is simulated; every other export of driver 580 answers what the oracle recorded for it, or
//! NOT_SUPPORTED. [`boundary`] holds all the unsafe; the nouns below hold safe functions.

#![cfg_attr(
    test,
    expect(
        dead_code,
        reason = "exports are roots in the library, not in its unit tests"
    )
)]

mod boundary;
mod exports;

mod device;
mod entry;
mod error;
mod event;
mod field;
mod gpm;
mod layout;
mod library;
mod lost;
mod memory;
mod mig;
mod private;
mod process;
mod recorded;
mod system;
mod topology;
mod traffic;
mod utilization;
mod version;
mod vgpu;
