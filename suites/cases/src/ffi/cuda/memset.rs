//! Setting memory, by every entry point that does.

use std::ptr::null_mut;

use abi::cuda::{CUcontext, CUdeviceptr, CUevent, CUgraph, CUresult, CUstream};

use super::launch::PER_THREAD;
use super::{Answer, Cuda, MISSING};

/// What is set at once: more than ten microseconds of every device's time.
const BYTES: u64 = 128 << 20;
/// By a few rows that lie apart: each costs the mock time of the host.
const PITCH: u64 = 32 << 20;
const WIDTH: u64 = PITCH - 4096;

/// An entry point.
pub struct Memset {
    pub name: &'static str,
    /// Works in a 32-bit context alone.
    is_narrow: bool,
    stream: In,
    run: fn(&Cuda, &Area) -> CUresult,
}

/// Which stream it works in.
enum In {
    Legacy,
    PerThread,
    Own,
}

/// Memory of the current context's, and a stream and events of it.
pub struct Area {
    at: CUdeviceptr,
    stream: CUstream,
    events: [CUevent; 2],
    narrow: Option<CUcontext>,
}

fn own(area: &Area) -> CUstream {
    area.stream
}

/// To the suffixed call that is the thread's.
fn none(_: &Area) -> CUstream {
    CUstream::NULL
}

macro_rules! memsets {
    ($($shape:ident $element:literal: $wide:ident $per_thread:ident $narrow:ident $own:ident $own_per_thread:ident;)*) => {
        /// Those that set device memory.
        pub const MEMSETS: &[Memset] = &[$(
            memsets!($shape $element $wide false Legacy),
            memsets!($shape $element $per_thread false PerThread),
            memsets!($shape $element $narrow true Legacy),
            memsets!($shape $element $own false Own, own),
            memsets!($shape $element $own_per_thread false PerThread, none),
        )*];
    };
    (flat $element:literal $name:ident $narrow:literal $in:ident $(, $stream:ident)?) => {
        Memset {
            name: stringify!($name),
            is_narrow: $narrow,
            stream: In::$in,
            run: |cuda, area| {
                call!(cuda.$name(area.at as _, 1, (BYTES / $element) as _ $(, $stream(area))?))
            },
        }
    };
    (rows $element:literal $name:ident $narrow:literal $in:ident $(, $stream:ident)?) => {
        Memset {
            name: stringify!($name),
            is_narrow: $narrow,
            stream: In::$in,
            run: |cuda, area| {
                call!(cuda.$name(
                    area.at as _, PITCH as _, 1, (WIDTH / $element) as _, (BYTES / PITCH) as _ $(, $stream(area))?
                ))
            },
        }
    };
}
memsets! {
    flat 1: cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8 cuMemsetD8Async cuMemsetD8Async_ptsz;
    flat 2: cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD16 cuMemsetD16Async cuMemsetD16Async_ptsz;
    flat 4: cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32 cuMemsetD32Async cuMemsetD32Async_ptsz;
    rows 1: cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8 cuMemsetD2D8Async cuMemsetD2D8Async_ptsz;
    rows 2: cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16 cuMemsetD2D16Async cuMemsetD2D16Async_ptsz;
    rows 4: cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D32 cuMemsetD2D32Async cuMemsetD2D32Async_ptsz;
}

impl Memset {
    pub fn named(name: &str) -> Option<&'static Memset> {
        MEMSETS.iter().find(|memset| memset.name == name)
    }
}

impl Cuda {
    /// Takes what an entry point works on, in the first device's primary context or in one of 32 bits, which stands no other beside it.
    pub fn area(&self, memset: &Memset) -> Result<Area, CUresult> {
        let good = |code| match code {
            CUresult::SUCCESS => Ok(()),
            code => Err(code),
        };
        let mut context = CUcontext::NULL;
        let (mut at, mut low) = (0, 0);
        if memset.is_narrow {
            good(call!(self.cuCtxCreate(&mut context, 0, 0)))?;
            good(call!(self.cuMemAlloc(&mut low, BYTES as u32)))?;
            at = CUdeviceptr::from(low);
        } else {
            good(call!(self.cuDevicePrimaryCtxRetain(&mut context, 0)))?;
            good(call!(self.cuCtxSetCurrent(context)))?;
            good(call!(self.cuMemAlloc_v2(&mut at, BYTES as usize)))?;
        }
        let mut stream = CUstream::NULL;
        good(call!(self.cuStreamCreate(&mut stream, 1)))?;
        let mut events = [CUevent::NULL; 2];
        for event in &mut events {
            good(call!(self.cuEventCreate(event, 0)))?;
        }
        let narrow = memset.is_narrow.then_some(context);
        Ok(Area {
            at,
            stream,
            events,
            narrow,
        })
    }

    /// Gives all of it back.
    pub fn leave(&self, area: Area) -> CUresult {
        match area.narrow {
            Some(context) => call!(self.cuCtxDestroy(context)),
            None => call!(self.cuDevicePrimaryCtxRelease_v2(0)),
        }
    }

    pub fn set_memory(&self, area: &Area, memset: &Memset) -> CUresult {
        (memset.run)(self, area)
    }

    /// Nodes of the graph that so many calls on its stream became.
    pub fn captured_memsets(&self, area: &Area, calls: usize) -> Answer<usize> {
        let (mut graph, mut nodes) = (CUgraph::NULL, 0);
        let mut answers = vec![call!(self.cuStreamBeginCapture_v2(area.stream, 1))];
        for _ in 0..calls {
            answers.push(call!(self.cuMemsetD8Async(
                area.at,
                1,
                BYTES as usize,
                area.stream
            )));
        }
        answers.push(call!(self.cuStreamEndCapture(area.stream, &mut graph)));
        answers.push(call!(self.cuGraphGetNodes(graph, null_mut(), &mut nodes)));
        let refused = answers.into_iter().find(|code| *code != CUresult::SUCCESS);
        Answer {
            code: refused.unwrap_or(CUresult::SUCCESS),
            out: nodes,
        }
    }

    /// What one call takes on the device, in nanoseconds.
    pub fn time_memset(&self, area: &Area, memset: &Memset) -> Answer<u64> {
        let stream = match memset.stream {
            In::Legacy => CUstream::NULL,
            In::PerThread => PER_THREAD,
            In::Own => area.stream,
        };
        self.time_of(area.events, stream, 5, || self.set_memory(area, memset))
    }
}
