//! Semaphores of other APIs by descriptor: streams signal them and wait for them.

use std::collections::HashMap;
use std::sync::Arc;

use abi::cuda::*;
use mock_device::payload::{Counting, PayloadError, Words};

use crate::boundary::{Answer, In, Out};
use crate::driver;
use crate::handle;
use crate::process::Process;
use crate::timeline::Op;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const OPAQUE_DESCRIPTOR: u32 = 1;
const TIMELINE_DESCRIPTOR: u32 = 9;

/// A value of somebody's semaphore: reached, or to be reached.
#[derive(Clone)]
pub struct Point {
    words: Arc<Words>,
    counting: Counting,
    value: u64,
}

impl Point {
    pub fn signal(&self, at: mock_device::Nanos) {
        self.words.signal(self.counting, self.value, at);
    }

    /// From when on the wait is over, which it then is; `None` while nobody has submitted the signal.
    pub fn take(&self) -> Option<mock_device::Nanos> {
        let at = self.words.reached_at(self.counting, self.value)?;
        self.words.consume(self.counting);
        Some(at)
    }
}

/// Imported semaphores by id.
pub type Semaphores = HashMap<u32, (Arc<Words>, Counting)>;

/// On success the descriptor is the driver's, and closed.
pub fn import(
    out: Out<CUexternalSemaphore>,
    desc: In<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>,
) -> Answer {
    /// CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC up to its reserved words: kind, (padding), descriptor, (three words), flags.
    type Words32 = [u32; 7];
    let mut process = driver::get()?.lock();
    process.current()?;
    let out = out.required()?;
    let desc = desc.cast::<Words32>().required()?;
    let counting = match desc[0] {
        OPAQUE_DESCRIPTOR => Counting::Binary,
        TIMELINE_DESCRIPTOR => Counting::Timeline,
        2..=8 | 10 => return Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => return Err(INVALID),
    };
    if desc[6] != 0 {
        return Err(INVALID);
    }
    let words = Words::import(desc[2] as i32).map_err(|error| match error {
        PayloadError::Full => CUresult::ERROR_OPERATING_SYSTEM,
        PayloadError::Foreign | PayloadError::Own => CUresult::ERROR_UNKNOWN,
    })?;
    let id = process.next_handle();
    process.semaphores.insert(id, (Arc::new(words), counting));
    let value = handle::encode(handle::Kind::Semaphore, id);
    out.set(CUexternalSemaphore(value as *mut c_void));
    Ok(())
}

fn id_of(process: &Process, semaphore: CUexternalSemaphore) -> Result<u32, CUresult> {
    let id = handle::followed(handle::Kind::Semaphore, semaphore.0 as u64, INVALID)?;
    match process.semaphores.contains_key(&id) {
        true => Ok(id),
        false => Err(INVALID),
    }
}

pub fn signal(
    semaphores: In<CUexternalSemaphore>,
    params: In<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>,
    count: c_uint,
    stream: CUstream,
) -> Answer {
    let value = |at| params.nth(at).map(|params| params.params.fence.value);
    put(&semaphores, value, count, stream, Op::Signal)
}

pub fn wait(
    semaphores: In<CUexternalSemaphore>,
    params: In<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>,
    count: c_uint,
    stream: CUstream,
) -> Answer {
    let value = |at| params.nth(at).map(|params| params.params.fence.value);
    put(&semaphores, value, count, stream, Op::Await)
}

/// All semaphores are looked up before any of them is touched. A capture does not take them: graphs have no such nodes here.
fn put(
    semaphores: &In<CUexternalSemaphore>,
    value: impl Fn(usize) -> Option<u64>,
    count: u32,
    stream: CUstream,
    op: fn(Point) -> Op,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let line = process.line_of(stream)?;
    if count == 0 {
        return Err(INVALID);
    }
    let mut points = Vec::new();
    for at in 0..count as usize {
        let (semaphore, value) = semaphores.nth(at).zip(value(at)).ok_or(INVALID)?;
        let (words, counting) = process.semaphores[&id_of(&process, semaphore)?].clone();
        points.push(Point {
            words,
            counting,
            value,
        });
    }
    if crate::capture::takes(&mut process, stream, line)? {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    for point in points {
        process.put(driver, line, op(point));
    }
    Ok(())
}

pub fn destroy(semaphore: CUexternalSemaphore) -> Answer {
    let mut process = driver::get()?.lock();
    let id = id_of(&process, semaphore)?;
    process.semaphores.remove(&id);
    Ok(())
}
