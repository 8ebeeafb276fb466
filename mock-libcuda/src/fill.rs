//! Fills. All are done when the call returns.

use abi::cuda::*;
use mock_device::Bytes;

use crate::boundary::Answer;
use crate::copy::Need;
use crate::driver::{self, Driver};
use crate::process::Process;
use crate::stream::{self, Work};

/// Rows of equal length, `pitch` bytes apart.
struct Rows {
    pitch: u64,
    width: u64,
    height: u64,
}

fn filled(to: u64, unit: &[u8], rows: &Rows, stream: Option<CUstream>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    match stream {
        Some(stream) => process.stream_context(stream)?,
        None => process.current()?,
    };
    // All ones are nothing too (H200, 580.159.04: cuMemsetD8, D16 and D32 of 2^64 - 1).
    if matches!(rows.width, 0 | u64::MAX) || rows.height == 0 {
        return Ok(());
    }
    let invalid = CUresult::ERROR_INVALID_VALUE;
    let size = unit.len() as u64;
    let len = rows.width.checked_mul(size).ok_or(invalid)?;
    let aligned = to.is_multiple_of(size) && (rows.height == 1 || rows.pitch.is_multiple_of(size));
    if !aligned || (rows.height > 1 && rows.pitch < len) {
        return Err(invalid);
    }
    let before_last = rows.pitch.checked_mul(rows.height - 1).ok_or(invalid)?;
    let span = before_last.checked_add(len).ok_or(invalid)?;
    process.pieces(to, span, Need::Known)?;
    let runs = if rows.height == 1 || rows.pitch == len {
        vec![process.pieces(to, span, Need::Known)?]
    } else {
        let row = |row| process.pieces(to + row * rows.pitch, len, Need::Known);
        (0..rows.height)
            .map(row)
            .collect::<Result<Vec<_>, CUresult>>()?
    };
    let unit = unit.to_vec();
    let work = Work::Fill {
        bytes: Bytes(len * rows.height),
    };
    let act = move |process: &mut Process, driver: &Driver| {
        for pieces in &runs {
            // The range was checked; contents that are gone by now have nowhere to go.
            let _ = process.fill(driver, pieces, &unit);
        }
    };
    // A fill of device memory returns before it is done, whether its name says so or not.
    stream::enqueue(
        &mut process,
        driver,
        stream.unwrap_or(CUstream::NULL),
        work,
        act,
    )
}

fn row(count: usize) -> Rows {
    Rows {
        pitch: 0,
        width: count as u64,
        height: 1,
    }
}

macro_rules! fills {
    ($($unit:ty: $set:ident $set_async:ident $rows:ident $rows_async:ident;)*) => { $(
        pub fn $set(to: CUdeviceptr, value: $unit, count: usize) -> Answer {
            filled(to, &value.to_ne_bytes(), &row(count), None)
        }

        pub fn $set_async(to: CUdeviceptr, value: $unit, count: usize, stream: CUstream) -> Answer {
            filled(to, &value.to_ne_bytes(), &row(count), Some(stream))
        }

        pub fn $rows(to: CUdeviceptr, pitch: usize, value: $unit, width: usize, height: usize) -> Answer {
            let rows = Rows { pitch: pitch as u64, width: width as u64, height: height as u64 };
            filled(to, &value.to_ne_bytes(), &rows, None)
        }

        pub fn $rows_async(
            to: CUdeviceptr,
            pitch: usize,
            value: $unit,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> Answer {
            let rows = Rows { pitch: pitch as u64, width: width as u64, height: height as u64 };
            filled(to, &value.to_ne_bytes(), &rows, Some(stream))
        }
    )* };
}
fills! {
    u8: set_8 set_8_async set_rows_8 set_rows_8_async;
    u16: set_16 set_16_async set_rows_16 set_rows_16_async;
    u32: set_32 set_32_async set_rows_32 set_rows_32_async;
}
