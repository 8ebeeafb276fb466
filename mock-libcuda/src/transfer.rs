//! Copies and memsets as graphs' nodes describe them: checked, costed, and ready to act as often as they are launched.

use std::sync::Arc;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Direction};

use crate::copy::Place;
use crate::driver::Driver;
use crate::process::Process;
use crate::stream::Work;
use crate::timeline::Act;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// One side of a copy: where its first byte is, and how far apart its rows and slices are.
#[derive(Clone, Copy)]
struct Side {
    base: u64,
    row: u64,
    slice: u64,
}

struct Extent {
    x: u64,
    y: u64,
    z: u64,
    pitch: u64,
    height: u64,
}

const HOST: CUmemorytype = 1;
const DEVICE: CUmemorytype = 2;
const ARRAY: CUmemorytype = 3;
const UNIFIED: CUmemorytype = 4;

fn side(
    kind: CUmemorytype,
    host: u64,
    device: u64,
    at: &Extent,
    width: u64,
) -> Result<Side, CUresult> {
    let start = match kind {
        HOST => host,
        DEVICE | UNIFIED => device,
        ARRAY => return Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => return Err(INVALID),
    };
    let row = if at.pitch == 0 {
        width + at.x
    } else {
        at.pitch
    };
    if row < width + at.x || start == 0 {
        return Err(INVALID);
    }
    let slice = row * at.height.max(1);
    Ok(Side {
        base: start + at.x + at.y * row + at.z * slice,
        row,
        slice,
    })
}

/// What a copy node's parameters ask for.
pub fn copy(process: &Process, params: &CUDA_MEMCPY3D) -> Result<(Work, Act), CUresult> {
    let (width, height) = (params.WidthInBytes as u64, params.Height as u64);
    let depth = params.Depth as u64;
    if width == 0 || height == 0 || depth == 0 {
        return Err(INVALID);
    }
    let from = Extent {
        x: params.srcXInBytes as u64,
        y: params.srcY as u64,
        z: params.srcZ as u64,
        pitch: params.srcPitch as u64,
        height: if params.srcHeight == 0 {
            height
        } else {
            params.srcHeight as u64
        },
    };
    let to = Extent {
        x: params.dstXInBytes as u64,
        y: params.dstY as u64,
        z: params.dstZ as u64,
        pitch: params.dstPitch as u64,
        height: if params.dstHeight == 0 {
            height
        } else {
            params.dstHeight as u64
        },
    };
    let from = side(
        params.srcMemoryType,
        params.srcHost as u64,
        params.srcDevice,
        &from,
        width,
    )?;
    let to = side(
        params.dstMemoryType,
        params.dstHost as u64,
        params.dstDevice,
        &to,
        width,
    )?;
    let span = |side: &Side| side.slice * (depth - 1) + side.row * (height - 1) + width;
    let source = process.place(from.base, span(&from))?;
    let target = process.place(to.base, span(&to))?;
    let direction = match (source, target) {
        (Place::Host, Place::Device(_)) => Direction::HostToDevice,
        (Place::Device(_), Place::Host) => Direction::DeviceToHost,
        (Place::Device(from), Place::Device(to)) if from != to => Direction::Peer,
        _ => Direction::DeviceToDevice,
    };
    let work = Work::Copy {
        bytes: Bytes(width * height * depth),
        direction,
        pageable: false,
    };
    let act = move |process: &mut Process, driver: &Driver| {
        for z in 0..depth {
            for y in 0..height {
                let to = to.base + z * to.slice + y * to.row;
                let from = from.base + z * from.slice + y * from.row;
                // Memory freed since the graph was made is nobody's to copy.
                let _ = process.copy(driver, to, from, width);
            }
        }
    };
    Ok((work, Arc::new(act)))
}

/// What a memset node's parameters ask for.
pub fn fill(process: &Process, params: &CUDA_MEMSET_NODE_PARAMS) -> Result<(Work, Act), CUresult> {
    let (unit, rows) = (params.elementSize as usize, params.height as u64);
    let len = params.width as u64 * unit as u64;
    let pitch = params.pitch as u64;
    if !matches!(unit, 1 | 2 | 4) || len == 0 || rows == 0 || (rows > 1 && pitch < len) {
        return Err(INVALID);
    }
    let (to, span) = (params.dst, pitch * (rows - 1) + len);
    let Place::Device(device) = process.place(to, span)? else {
        return Err(INVALID);
    };
    let value = params.value.to_le_bytes();
    let act = move |process: &mut Process, driver: &Driver| {
        for row in 0..rows {
            if let Ok(arena) = process.arena(driver, device) {
                arena.contents.fill(to + row * pitch, len, &value[..unit]);
            }
        }
    };
    let bytes = Bytes(len * rows);
    Ok((Work::Fill { bytes }, Arc::new(act)))
}
