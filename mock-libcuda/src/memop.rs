//! Values in memory that streams write and wait for.

use abi::cuda::*;

use crate::boundary::{Answer, Host, In};
use crate::capture;
use crate::driver::{self, Driver};
use crate::process::Process;
use crate::stream::Work;
use crate::timeline::{LineId, Load, Op};

/// What a value in memory is waited to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub address: u64,
    pub value: u64,
    pub wide: bool,
    pub compare: Compare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    NotBelow,
    Equal,
    And,
    Nor,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemOp {
    Wait(Condition),
    Write {
        address: u64,
        value: u64,
        wide: bool,
    },
    /// Barriers and flushes: memory here is always in order.
    Fence,
}

/// CU_STREAM_WAIT_VALUE_FLUSH: no device of the profiles can flush remote writes.
const FLUSH: u32 = 1 << 30;
/// Operations of one batch.
const MOST: u32 = 256;

impl Process {
    pub fn satisfied(&mut self, driver: &Driver, condition: &Condition) -> bool {
        let mut bytes = [0u8; 8];
        let len = if condition.wide { 8 } else { 4 };
        // Memory that is gone answers nothing: the wait is over, as it is when a context ends.
        let into = bytes.as_mut_ptr() as u64;
        if self.copy(driver, into, condition.address, len).is_err() {
            return true;
        }
        let found = u64::from_le_bytes(bytes);
        let value = condition.value;
        match (condition.compare, condition.wide) {
            (Compare::NotBelow, true) => found.wrapping_sub(value) as i64 >= 0,
            (Compare::NotBelow, false) => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
            (Compare::Equal, true) => found == value,
            (Compare::Equal, false) => found as u32 == value as u32,
            (Compare::And, _) => found & value != 0,
            (Compare::Nor, true) => !(found | value) != 0,
            (Compare::Nor, false) => !(found as u32 | value as u32) != 0,
        }
    }
}

fn aligned(process: &Process, address: u64, wide: bool) -> Answer {
    let size = if wide { 8 } else { 4 };
    let there = process.holding(address, size).is_some() || process.host_holding(address, size);
    if !address.is_multiple_of(size) || !there {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn wait_of(
    process: &Process,
    address: u64,
    value: u64,
    wide: bool,
    flags: u32,
) -> Result<MemOp, CUresult> {
    aligned(process, address, wide)?;
    if flags & FLUSH != 0 {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let compare = match flags {
        0 => Compare::NotBelow,
        1 => Compare::Equal,
        2 => Compare::And,
        3 => Compare::Nor,
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    Ok(MemOp::Wait(Condition {
        address,
        value,
        wide,
        compare,
    }))
}

fn write_of(
    process: &Process,
    address: u64,
    value: u64,
    wide: bool,
    flags: u32,
) -> Result<MemOp, CUresult> {
    aligned(process, address, wide)?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Ok(MemOp::Write {
        address,
        value,
        wide,
    })
}

/// Puts checked operations on a line.
pub fn put(process: &mut Process, driver: &Driver, line: LineId, ops: &[MemOp]) {
    for op in ops {
        match *op {
            MemOp::Wait(condition) => process.put(driver, line, Op::Until(condition)),
            MemOp::Write {
                address,
                value,
                wide,
            } => {
                let bytes = value.to_le_bytes();
                let len = if wide { 8 } else { 4 };
                let act = move |process: &mut Process, driver: &Driver| {
                    let _ = process.copy(driver, address, bytes.as_ptr() as u64, len);
                };
                let load = Load::nothing();
                let act = Some(std::sync::Arc::new(act) as crate::timeline::Act);
                process.put(driver, line, Op::Work { load, act });
                process.settle(driver);
            }
            MemOp::Fence => {}
        }
    }
}

fn submit(process: &mut Process, driver: &Driver, stream: CUstream, ops: Vec<MemOp>) -> Answer {
    let line = process.line_of(stream)?;
    if capture::takes(process, stream, line)? {
        let context = process.stream_context(stream)?;
        let shape = capture::Shape::MemOps(ops);
        return capture::add_work(
            process,
            line,
            context,
            Work::Nothing,
            shape,
            std::sync::Arc::new(|_, _| {}),
        );
    }
    put(process, driver, line, &ops);
    Ok(())
}

type Read = fn(&Process, u64, u64, bool, u32) -> Result<MemOp, CUresult>;

fn one(stream: CUstream, address: u64, value: u64, wide: bool, flags: u32, read: Read) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    let op = read(&process, address, value, wide, flags)?;
    submit(&mut process, driver, stream, vec![op])
}

pub fn wait_32(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) -> Answer {
    one(stream, address, value.into(), false, flags, wait_of)
}

pub fn wait_64(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) -> Answer {
    one(stream, address, value, true, flags, wait_of)
}

pub fn write_32(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) -> Answer {
    one(stream, address, value.into(), false, flags, write_of)
}

pub fn write_64(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) -> Answer {
    one(stream, address, value, true, flags, write_of)
}

/// The first generation of these calls was an option of the kernel module's and is gone.
pub fn unsupported_32(stream: CUstream, _: CUdeviceptr, _: c_uint, _: c_uint) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
}

pub fn unsupported_64(stream: CUstream, _: CUdeviceptr, _: u64, _: c_uint) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
}

pub fn unsupported_batch(
    stream: CUstream,
    _: c_uint,
    _: crate::boundary::Out<CUstreamBatchMemOpParams>,
    _: c_uint,
) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
}

/// The operations of a batch, checked.
pub fn read_batch(process: &Process, count: u32, ops: Host) -> Result<Vec<MemOp>, CUresult> {
    if count > MOST {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if count > 0 && ops.0 == 0 {
        crate::boundary::crash();
    }
    (0..u64::from(count))
        .map(|at| {
            let size = size_of::<CUstreamBatchMemOpParams>() as u64;
            let op = In::<CUstreamBatchMemOpParams>::at(ops.0 + at * size).required()?;
            let (operation, address, value, flags) = crate::boundary::batch_fields(&op);
            match operation {
                1 => wait_of(process, address, value & 0xffff_ffff, false, flags),
                4 => wait_of(process, address, value, true, flags),
                2 => write_of(process, address, value & 0xffff_ffff, false, flags),
                5 => write_of(process, address, value, true, flags),
                6 => Ok(MemOp::Fence),
                3 => Err(CUresult::ERROR_NOT_SUPPORTED),
                _ => Err(CUresult::ERROR_INVALID_VALUE),
            }
        })
        .collect()
}

pub fn batch(stream: CUstream, count: c_uint, ops: Host, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let ops = read_batch(&process, count, ops)?;
    submit(&mut process, driver, stream, ops)
}
