//! The launch boundary (`suites/workloads/launch`), and the driver beneath it: what the one refuses and what the other answers, side by side.

pub mod bounds;
pub mod chance;
pub mod devices;
pub mod edges;
pub mod graphs;
pub mod kernels;
pub mod modules;
pub mod oracle;
pub mod pace;
pub mod residency;

use std::sync::Arc;

use harness::Failure;
use launch::{Device, Kernel, Module, Modules, Staging, Stream};

use crate::ffi::launch::kernel;

/// A kernel that does nothing with its one argument.
pub const IDLE: &str = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry idle(.param .u64 p)\n{\nret;\n}\n";

/// What every case of launches begins with.
pub struct Bench {
    pub device: Arc<Device>,
    pub modules: Modules,
    pub stream: Stream,
    pub staging: Staging,
}

impl Bench {
    pub fn open() -> Result<Self, Failure> {
        let device = Device::open(0)?;
        Ok(Self {
            modules: Modules::new(&device),
            stream: Stream::create(&device)?,
            staging: Staging::default(),
            device,
        })
    }

    pub fn module(&mut self, ptx: &str) -> Result<Arc<Module>, Failure> {
        Ok(self.modules.load(ptx)?)
    }

    pub fn idle(&mut self) -> Result<Arc<Kernel>, Failure> {
        kernel(&self.module(IDLE)?, "idle", &[8])
    }
}
