//! A device with its primary context, what it can bear, and what was asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::{CUcontext, CUdevice};

use crate::boundary::{Calls, Handle};
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

/// One counter, of all threads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
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

/// A device with its primary context. Each call for it makes that context current in the thread that calls, and leaves it so: a program may have several
/// devices, and use each from any thread.
pub struct Device {
    calls: Calls,
    device: CUdevice,
    context: Handle<CUcontext>,
    limits: Limits,
    counters: Counters,
}

impl Device {
    /// The device of that number, by the process's libcuda.
    ///
    /// # Errors
    /// `NoDriver` and `Missing` where libcuda is not there or lacks a function, `Attribute` where it tells of no usable device, `Call` with the driver's
    /// code where it refuses (a number that is no device's, no memory for the context).
    ///
    /// # Examples
    /// ```no_run
    /// let (first, second) = (launch::Device::open(0)?, launch::Device::open(1)?);
    /// let stream = launch::Stream::create(&first)?;
    /// std::thread::spawn(move || launch::Buffer::holding(&second, &[1, 2, 3])?.read());
    /// stream.synchronize()?;
    /// # Ok::<(), launch::LaunchError>(())
    /// ```
    pub fn open(ordinal: i32) -> Result<Arc<Self>, LaunchError> {
        Self::open_by(Calls::open()?, ordinal)
    }

    /// The device of that number, by a libcuda that was found in another way.
    ///
    /// # Errors
    /// As [`Device::open`], less what finding libcuda may say.
    pub fn open_by(calls: Calls, ordinal: i32) -> Result<Arc<Self>, LaunchError> {
        let device = calls.device(ordinal)?;
        let limits = Limits::read(|attribute| calls.attribute(device, attribute))?;
        let context = calls.retain(device)?;
        // From here on its end releases what was retained.
        let opened = Self {
            calls,
            device,
            context: Handle(context),
            limits,
            counters: Counters::default(),
        };
        opened.enter()?;
        Ok(Arc::new(opened))
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was asked of it so far.
    pub fn counts(&self) -> Counts {
        let of = |counter: &Counter| counter.0.load(Ordering::Relaxed);
        Counts {
            launches: of(&self.counters.launches),
            recorded: of(&self.counters.recorded),
            replays: of(&self.counters.replays),
            synchronizations: of(&self.counters.synchronizations),
            modules: of(&self.counters.modules),
        }
    }

    /// The driver's functions, with this device's context current in the calling thread.
    #[inline]
    pub(crate) fn enter(&self) -> Result<&Calls, LaunchError> {
        self.calls.make_current(self.context.0)?;
        Ok(&self.calls)
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
