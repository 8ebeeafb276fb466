//! What copies and memsets of graphs do: the same boxes as cuMemcpy3D's, and rows.

use std::sync::Arc;

use abi::cuda::*;
use mock_device::Bytes;

use crate::copy::Need;
use crate::driver::Driver;
use crate::process::Process;
use crate::region;
use crate::stream::Work;
use crate::timeline::Act;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// What a copy node's parameters ask for. A node copies something.
pub fn copy(process: &Process, params: &CUDA_MEMCPY3D) -> Result<(Work, Act), CUresult> {
    let runs = region::checked(process, params)?;
    if runs.is_empty() {
        return Err(INVALID);
    }
    let work = runs.work(process);
    let act = move |process: &mut Process, driver: &Driver| runs.carry_out(process, driver);
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
    process.pieces(to, span, Need::Known)?;
    let value = params.value.to_le_bytes();
    let act = move |process: &mut Process, driver: &Driver| {
        for row in 0..rows {
            // Memory freed since the graph was made is nobody's to fill.
            if let Ok(pieces) = process.pieces(to + row * pitch, len, Need::Known) {
                let _ = process.fill(driver, &pieces, &value[..unit]);
            }
        }
    };
    let bytes = Bytes(len * rows);
    Ok((Work::Fill { bytes }, Arc::new(act)))
}
