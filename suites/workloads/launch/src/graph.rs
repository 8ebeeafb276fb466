//! Launches written down, and replayed as one.

use std::rc::Rc;

use abi::cuda::{CUgraph, CUgraphExec};

use crate::device::Device;
use crate::error::LaunchError;
use crate::kernel::Kernel;
use crate::stream::Stream;

/// A stream while it is captured. It is none meanwhile: nothing can be launched in it or waited for, because that would break the capture.
pub struct Capture {
    /// Taken when the capture ends.
    stream: Option<Stream>,
    device: Rc<Device>,
    kernels: Vec<Rc<Kernel>>,
}

impl Capture {
    /// Where it cannot begin the stream is given back with the reason.
    pub fn begin(stream: Stream) -> Result<Self, (Stream, LaunchError)> {
        let device = Rc::clone(stream.device());
        match device.calls().begin_capture(stream.handle()) {
            Err(error) => Err((stream, error)),
            Ok(()) => Ok(Self {
                stream: Some(stream),
                device,
                kernels: Vec::new(),
            }),
        }
    }

    /// Gives the stream back, and what was written down: nothing if the driver refused one of the launches.
    pub fn end(mut self) -> (Stream, Result<Graph, LaunchError>) {
        let Some(stream) = self.stream.take() else {
            unreachable!("only the end takes the stream")
        };
        let kernels = std::mem::take(&mut self.kernels);
        let written = self.device.calls().end_capture(stream.handle());
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
    pub(crate) fn keep(&mut self, kernel: &Rc<Kernel>) {
        self.kernels.push(Rc::clone(kernel));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && let Ok(graph) = self.device.calls().end_capture(stream.handle())
        {
            let _ = self.device.calls().destroy_graph(graph);
        }
    }
}

/// Launches that were written down, made ready. They have their arguments in them.
pub struct Graph {
    device: Rc<Device>,
    graph: CUgraph,
    exec: CUgraphExec,
    kernels: Vec<Rc<Kernel>>,
}

impl Graph {
    fn of(
        device: &Rc<Device>,
        graph: CUgraph,
        kernels: Vec<Rc<Kernel>>,
    ) -> Result<Self, LaunchError> {
        match device.calls().instantiate(graph) {
            Ok(exec) => Ok(Self {
                device: Rc::clone(device),
                graph,
                exec,
                kernels,
            }),
            Err(error) => {
                let _ = device.calls().destroy_graph(graph);
                Err(error)
            }
        }
    }

    /// How many launches it holds.
    pub fn launches(&self) -> usize {
        self.kernels.len()
    }

    pub fn replay(&self, stream: &Stream) -> Result<(), LaunchError> {
        if !Rc::ptr_eq(stream.device(), &self.device) {
            return Err(LaunchError::ForeignStream);
        }
        self.device.calls().replay(self.exec, stream.handle())?;
        self.device.counters().replays.count();
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let calls = self.device.calls();
        let _ = calls.destroy_exec(self.exec);
        let _ = calls.destroy_graph(self.graph);
    }
}
