//! A device with its primary context, what it can bear, and what was asked of it.

use std::cell::Cell;
use std::rc::Rc;

use abi::cuda::{CUcontext, CUdevice};

use crate::boundary::Calls;
use crate::error::LaunchError;
use crate::limits::Limits;

/// What a program asked of a device, each thing only where it succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels launched into a stream that runs.
    pub launches: u64,
    /// Launches written down in a capture. Not launched thereby.
    pub recorded: u64,
    /// Graphs launched.
    pub replays: u64,
    /// Points at which the program waited for a stream.
    pub synchronizations: u64,
    /// Modules that the driver was asked to load.
    pub modules: u64,
}

/// One counter. The device stays in its thread, so that it is a plain number.
#[derive(Debug, Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    #[inline]
    pub fn count(&self) {
        self.0.set(self.0.get() + 1);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub launches: Counter,
    pub recorded: Counter,
    pub replays: Counter,
    pub synchronizations: Counter,
    pub modules: Counter,
}

/// A device, with its primary context current in this thread. Belongs to the thread that opened it, because the context does.
pub struct Device {
    calls: Calls,
    device: CUdevice,
    context: CUcontext,
    limits: Limits,
    counters: Counters,
}

impl Device {
    /// The device of that number, by the process's libcuda.
    pub fn open(ordinal: i32) -> Result<Rc<Self>, LaunchError> {
        Self::open_by(Calls::open()?, ordinal)
    }

    /// The device of that number, by a libcuda that was found in another way.
    pub fn open_by(calls: Calls, ordinal: i32) -> Result<Rc<Self>, LaunchError> {
        let device = calls.device(ordinal)?;
        let limits = Limits::read(|attribute| calls.attribute(device, attribute))?;
        let context = calls.retain(device)?;
        // From here on its end releases what was retained.
        let opened = Self {
            calls,
            device,
            context,
            limits,
            counters: Counters::default(),
        };
        opened.calls.make_current(opened.context)?;
        Ok(Rc::new(opened))
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was asked of it so far.
    pub fn counts(&self) -> Counts {
        let of = |counter: &Counter| counter.0.get();
        Counts {
            launches: of(&self.counters.launches),
            recorded: of(&self.counters.recorded),
            replays: of(&self.counters.replays),
            synchronizations: of(&self.counters.synchronizations),
            modules: of(&self.counters.modules),
        }
    }

    #[inline]
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The context's other holders keep it; nobody is left here to be told of a failure.
        let _ = self.calls.release(self.device);
    }
}
