//! Launches written down, and replayed as one.

use std::marker::PhantomData;
use std::sync::Arc;

use abi::cuda::{CUgraph, CUgraphExec};

use crate::boundary::{Calls, Handle};
use crate::device::Device;
use crate::error::LaunchError;
use crate::kernel::Kernel;
use crate::stream::Stream;

/// A stream while it is captured. It is none meanwhile: nothing can be launched in it or waited for, because that would break the capture. It stays in its
/// thread, where the driver wants it ended.
pub struct Capture {
    /// Taken when the capture ends.
    stream: Option<Stream>,
    device: Arc<Device>,
    kernels: Vec<Arc<Kernel>>,
    _of_thread: PhantomData<*const ()>,
}

impl Capture {
    /// Where it cannot begin the stream is given back with the reason.
    ///
    /// # Errors
    /// `Call` with the driver's code.
    pub fn begin(stream: Stream) -> Result<Self, (Stream, LaunchError)> {
        let device = Arc::clone(stream.device());
        let begun = |calls: &Calls| calls.begin_capture(stream.handle());
        match device.enter().and_then(begun) {
            Err(error) => Err((stream, error)),
            Ok(()) => Ok(Self {
                stream: Some(stream),
                device,
                kernels: Vec::new(),
                _of_thread: PhantomData,
            }),
        }
    }

    /// Gives the stream back, and what was written down: nothing if the driver refused one of the launches.
    pub fn end(mut self) -> (Stream, Result<Graph, LaunchError>) {
        let Some(stream) = self.stream.take() else {
            unreachable!("only the end takes the stream")
        };
        let kernels = std::mem::take(&mut self.kernels);
        let ended = |calls: &Calls| calls.end_capture(stream.handle());
        let written = self.device.enter().and_then(ended);
        let graph = written.and_then(|graph| Graph::of(&self.device, graph, kernels));
        (stream, graph)
    }

    pub(crate) fn stream(&self) -> &Stream {
        match &self.stream {
            Some(stream) => stream,
            None => unreachable!("only the end takes the stream"),
        }
    }

    /// What is written down outlives this, and with it the kernel.
    pub(crate) fn keep(&mut self, kernel: &Arc<Kernel>) {
        self.kernels.push(Arc::clone(kernel));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && let Ok(calls) = self.device.enter()
            && let Ok(graph) = calls.end_capture(stream.handle())
        {
            let _ = calls.destroy_graph(graph);
        }
    }
}

/// Launches that were written down, made ready. They have their arguments in them.
pub struct Graph {
    device: Arc<Device>,
    graph: Handle<CUgraph>,
    exec: Handle<CUgraphExec>,
    kernels: Vec<Arc<Kernel>>,
}

impl Graph {
    fn of(
        device: &Arc<Device>,
        graph: CUgraph,
        kernels: Vec<Arc<Kernel>>,
    ) -> Result<Self, LaunchError> {
        let calls = device.enter()?;
        match calls.instantiate(graph) {
            Ok(exec) => Ok(Self {
                device: Arc::clone(device),
                graph: Handle(graph),
                exec: Handle(exec),
                kernels,
            }),
            Err(error) => {
                let _ = calls.destroy_graph(graph);
                Err(error)
            }
        }
    }

    /// How many launches it holds.
    pub fn launches(&self) -> usize {
        self.kernels.len()
    }

    /// Launches all of it.
    ///
    /// # Errors
    /// `ForeignStream` where the stream is another device's, `Call` where the driver refuses.
    pub fn replay(&self, stream: &Stream) -> Result<(), LaunchError> {
        if !Arc::ptr_eq(stream.device(), &self.device) {
            return Err(LaunchError::ForeignStream);
        }
        self.device.enter()?.replay(self.exec.0, stream.handle())?;
        self.device.counters().replays.count();
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(calls) = self.device.enter() {
            let _ = calls.destroy_exec(self.exec.0);
            let _ = calls.destroy_graph(self.graph.0);
        }
    }
}
