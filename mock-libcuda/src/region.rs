//! cuMemcpy2D and cuMemcpy3D: boxes of bytes between host, device, array and unified memory.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, Host, In};
use crate::copy::{self, Need, Piece};
use crate::driver::{self, Driver};
use crate::process::Process;
use crate::stream::{self, Work};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// One end of a box as the caller describes it. Bytes in x, rows in y, slices in z.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub memory: CUmemorytype,
    pub host: u64,
    pub device: u64,
    pub array: CUarray,
    pub origin: [u64; 3],
    /// 0: as wide as the box.
    pub pitch: u64,
    /// 0: as high as the box.
    pub height: u64,
}

/// Bytes, rows, slices.
pub type Extent = [u64; 3];

/// An end whose bytes have addresses.
#[derive(Clone, Copy)]
enum Layout {
    Rows {
        start: u64,
        pitch: u64,
        slice: u64,
        need: Need,
    },
    Array {
        start: u64,
        pitch: u64,
        slice: u64,
        device: crate::driver::Ordinal,
    },
}

impl End {
    /// INVALID_VALUE where the box does not fit into what the end is.
    fn layout(&self, process: &Process, extent: Extent) -> Result<Layout, CUresult> {
        let (address, need) = match self.memory {
            1 => (self.host, Need::Any),
            2 => (self.device, Need::Known),
            4 => (self.device, Need::Any),
            3 => return self.in_array(process, extent),
            _ => return Err(INVALID),
        };
        let width = self.origin[0].checked_add(extent[0]).ok_or(INVALID)?;
        let rows = self.origin[1].checked_add(extent[1]).ok_or(INVALID)?;
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let height = if self.height == 0 { rows } else { self.height };
        if address == 0 || pitch < width || height < rows {
            return Err(INVALID);
        }
        let slice = pitch.checked_mul(height).ok_or(INVALID)?;
        let offset = |at: [u64; 3]| {
            let z = slice.checked_mul(at[2])?;
            let y = pitch.checked_mul(at[1])?;
            z.checked_add(y)?.checked_add(at[0])
        };
        let start = address
            .checked_add(offset(self.origin).ok_or(INVALID)?)
            .ok_or(INVALID)?;
        let span = offset([extent[0], extent[1] - 1, extent[2] - 1]).ok_or(INVALID)?;
        start.checked_add(span).ok_or(INVALID)?;
        if need == Need::Known || process.device_at(address).is_some() {
            process.pieces(start, span, need)?;
        }
        Ok(Layout::Rows {
            start,
            pitch,
            slice,
            need,
        })
    }

    fn in_array(&self, process: &Process, extent: Extent) -> Result<Layout, CUresult> {
        let array = process.array_of(self.array, INVALID)?;
        let size = array.shape.extent();
        for ((origin, length), bound) in self.origin.iter().zip(extent).zip(size) {
            if origin.checked_add(length).is_none_or(|end| end > bound) {
                return Err(INVALID);
            }
        }
        let (pitch, slice) = (size[0], size[0] * size[1]);
        let [x, y, z] = self.origin;
        Ok(Layout::Array {
            start: array.base + z * slice + y * pitch + x,
            pitch,
            slice,
            device: array.device,
        })
    }
}

impl Layout {
    fn row(&self, process: &Process, y: u64, z: u64, len: u64) -> Result<Vec<Piece>, CUresult> {
        match *self {
            Layout::Rows {
                start,
                pitch,
                slice,
                need,
            } => process.pieces(start + z * slice + y * pitch, len, need),
            Layout::Array {
                start,
                pitch,
                slice,
                device,
            } => Ok(vec![Piece {
                at: start + z * slice + y * pitch,
                len,
                device: Some(device),
            }]),
        }
    }

    /// Whether rows follow each other without a gap.
    fn is_dense(&self, width: u64) -> bool {
        match *self {
            Layout::Rows { pitch, .. } | Layout::Array { pitch, .. } => pitch == width,
        }
    }
}

/// A box that was checked, as runs of bytes.
pub struct Runs(Vec<(Vec<Piece>, Vec<Piece>)>);

impl Runs {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the box is to the device's engines.
    pub fn work(&self, process: &Process) -> Work {
        let (to, from): (Vec<&Vec<Piece>>, Vec<&Vec<Piece>>) =
            self.0.iter().map(|(to, from)| (to, from)).unzip();
        let all = |runs: Vec<&Vec<Piece>>| runs.into_iter().flatten().copied().collect::<Vec<_>>();
        copy::work(&all(to), &all(from), process)
    }

    pub fn carry_out(&self, process: &mut Process, driver: &Driver) {
        for (to, from) in &self.0 {
            // The ends were checked; contents that are gone by now have nowhere to go.
            let _ = process.transfer(driver, to, from);
        }
    }
}

impl Process {
    /// The runs of a box; INVALID_VALUE where anything about it is. An empty one has none.
    pub fn runs(&self, to: &End, from: &End, extent: Extent) -> Result<Runs, CUresult> {
        let mut runs = Vec::new();
        if extent.contains(&0) {
            return Ok(Runs(runs));
        }
        let from = from.layout(self, extent)?;
        let to = to.layout(self, extent)?;
        let [width, height, depth] = extent;
        let dense = from.is_dense(width) && to.is_dense(width);
        let (len, rows) = if dense {
            (width * height, 1)
        } else {
            (width, height)
        };
        for z in 0..depth {
            for y in 0..rows {
                runs.push((to.row(self, y, z, len)?, from.row(self, y, z, len)?));
            }
        }
        Ok(Runs(runs))
    }
}

fn two(copy: &CUDA_MEMCPY2D) -> (End, End, Extent) {
    let from = End {
        memory: copy.srcMemoryType,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray,
        origin: [copy.srcXInBytes as u64, copy.srcY as u64, 0],
        pitch: copy.srcPitch as u64,
        height: 0,
    };
    let to = End {
        memory: copy.dstMemoryType,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray,
        origin: [copy.dstXInBytes as u64, copy.dstY as u64, 0],
        pitch: copy.dstPitch as u64,
        height: 0,
    };
    (to, from, [copy.WidthInBytes as u64, copy.Height as u64, 1])
}

macro_rules! three {
    ($copy:expr) => {{
        let copy = $copy;
        let from = End {
            memory: copy.srcMemoryType,
            host: copy.srcHost as u64,
            device: copy.srcDevice,
            array: copy.srcArray,
            origin: [copy.srcXInBytes, copy.srcY, copy.srcZ].map(|at| at as u64),
            pitch: copy.srcPitch as u64,
            height: copy.srcHeight as u64,
        };
        let to = End {
            memory: copy.dstMemoryType,
            host: copy.dstHost as u64,
            device: copy.dstDevice,
            array: copy.dstArray,
            origin: [copy.dstXInBytes, copy.dstY, copy.dstZ].map(|at| at as u64),
            pitch: copy.dstPitch as u64,
            height: copy.dstHeight as u64,
        };
        let extent = [copy.WidthInBytes, copy.Height, copy.Depth].map(|at| at as u64);
        (to, from, extent)
    }};
}

/// The runs of a 3D copy.
pub fn checked(process: &Process, copy: &CUDA_MEMCPY3D) -> Result<Runs, CUresult> {
    let (to, from, extent) = three!(copy);
    process.runs(&to, &from, extent)
}

fn copied(stream: Option<CUstream>, (to, from, extent): (End, End, Extent)) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    match stream {
        Some(stream) => process.stream_context(stream)?,
        None => process.current()?,
    };
    let runs = process.runs(&to, &from, extent)?;
    if runs.is_empty() {
        return Ok(());
    }
    let work = runs.work(&process);
    let act = move |process: &mut Process, driver: &Driver| runs.carry_out(process, driver);
    match stream {
        Some(stream) => stream::enqueue(&mut process, driver, stream, work, act),
        None => stream::enqueue_and_wait(driver, process, work, act),
    }
}

pub fn copy_2d(copy: In<CUDA_MEMCPY2D>) -> Answer {
    driver::refuse_without_context()?;
    copied(None, two(&copy.required()?))
}

pub fn copy_2d_async(copy: In<CUDA_MEMCPY2D>, stream: CUstream) -> Answer {
    copied(Some(stream), two(&copy.required()?))
}

pub fn copy_3d(copy: In<CUDA_MEMCPY3D>) -> Answer {
    driver::refuse_without_context()?;
    copied(None, three!(copy.required()?))
}

pub fn copy_3d_async(copy: In<CUDA_MEMCPY3D>, stream: CUstream) -> Answer {
    copied(Some(stream), three!(copy.required()?))
}

/// The real driver reads the structure before it looks at the pointer.
fn between(copy: &In<CUDA_MEMCPY3D_PEER>) -> Result<(End, End, Extent), CUresult> {
    let copy = copy.or_crash();
    let process = driver::get()?.lock();
    for context in [copy.srcContext, copy.dstContext] {
        if !context.is_null() {
            process.context_followed(context)?;
        }
    }
    Ok(three!(copy))
}

pub fn copy_3d_peer(copy: In<CUDA_MEMCPY3D_PEER>) -> Answer {
    copied(None, between(&copy)?)
}

pub fn copy_3d_peer_async(copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) -> Answer {
    copied(Some(stream), between(&copy)?)
}

/// An end of a copy of one row: an array's first, from `offset` on.
fn row_of(array: CUarray, offset: usize) -> End {
    End {
        memory: 3,
        host: 0,
        device: 0,
        array,
        origin: [offset as u64, 0, 0],
        pitch: 0,
        height: 0,
    }
}

fn linear(memory: CUmemorytype, address: u64) -> End {
    End {
        memory,
        host: address,
        device: address,
        array: CUarray::NULL,
        origin: [0; 3],
        pitch: 0,
        height: 0,
    }
}

fn row(stream: Option<CUstream>, to: End, from: End, len: usize) -> Answer {
    copied(stream, (to, from, [len as u64, 1, 1]))
}

pub fn array_to_array(to: CUarray, at: usize, from: CUarray, begin: usize, len: usize) -> Answer {
    row(None, row_of(to, at), row_of(from, begin), len)
}

pub fn array_to_device(to: CUdeviceptr, from: CUarray, begin: usize, len: usize) -> Answer {
    row(None, linear(2, to), row_of(from, begin), len)
}

pub fn device_to_array(to: CUarray, at: usize, from: CUdeviceptr, len: usize) -> Answer {
    row(None, row_of(to, at), linear(2, from), len)
}

pub fn array_to_host(to: Host, from: CUarray, begin: usize, len: usize) -> Answer {
    row(None, linear(1, to.0), row_of(from, begin), len)
}

pub fn array_to_host_async(
    to: Host,
    from: CUarray,
    begin: usize,
    len: usize,
    stream: CUstream,
) -> Answer {
    row(Some(stream), linear(1, to.0), row_of(from, begin), len)
}

pub fn host_to_array(to: CUarray, at: usize, from: Host, len: usize) -> Answer {
    row(None, row_of(to, at), linear(1, from.0), len)
}

pub fn host_to_array_async(
    to: CUarray,
    at: usize,
    from: Host,
    len: usize,
    stream: CUstream,
) -> Answer {
    row(Some(stream), row_of(to, at), linear(1, from.0), len)
}
