//! cuMemcpyBatchAsync and cuMemcpy3DBatchAsync: many copies in one call.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, In, Out, Slot, crash};
use crate::copy::{self, Need};
use crate::driver::{self, Driver};
use crate::process::Process;
use crate::region::{End, Extent};
use crate::stream;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// What the first versions write where no single copy is to blame.
const NO_COPY: usize = usize::MAX;

/// The copies of a batch and what the caller says about them.
pub struct Batch {
    targets: Out<CUdeviceptr>,
    sources: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    attributes: In<CUmemcpyAttributes>,
    indices: Out<usize>,
    groups: usize,
}

fn known_order(order: CUmemcpySrcAccessOrder) -> bool {
    (1..=3).contains(&order)
}

impl Batch {
    /// The attributes hold for groups of copies; the first begins with the first copy.
    fn check(&self) -> Answer {
        let empty = self.targets.is_null() || self.sources.is_null() || self.sizes.is_null();
        let told = !self.attributes.is_null() && !self.indices.is_null();
        if empty || self.count == 0 || !told || self.groups == 0 || self.groups > self.count {
            return Err(INVALID);
        }
        let indices = self.indices.slot().ok_or(INVALID)?;
        let mut least = 0;
        for at in 0..self.groups {
            let index = indices.nth(at).get();
            let begins = if at == 0 {
                index == 0
            } else {
                index >= least && index < self.count
            };
            let attributes = self.attributes.nth(at).ok_or(INVALID)?;
            if !begins || !known_order(attributes.srcAccessOrder) || attributes.flags & !1 != 0 {
                return Err(INVALID);
            }
            least = index + 1;
        }
        Ok(())
    }

    fn run(self, stream: CUstream, failed: &dyn Fn(usize)) -> Answer {
        let driver = driver::get()?;
        let mut process = driver.lock();
        process.stream_context(stream)?;
        failed(NO_COPY);
        self.check()?;
        let (targets, sources) = (self.targets.required()?, self.sources.required()?);
        let sizes = self.sizes.required()?;
        let mut copies = Vec::new();
        for at in 0..self.count {
            let len = sizes.nth(at).get() as u64;
            let pieces = |address| match len {
                0 => Err(INVALID),
                _ => process.pieces(address, len, Need::Any),
            };
            let ends = pieces(targets.nth(at).get())
                .and_then(|to| Ok((to, pieces(sources.nth(at).get())?)));
            copies.push(ends.inspect_err(|_| failed(at))?);
        }
        for (to, from) in copies {
            let work = copy::work(&to, &from, &process);
            let act = move |process: &mut Process, driver: &Driver| {
                // The ends were checked; contents that are gone by now have nowhere to go.
                let _ = process.transfer(driver, &to, &from);
            };
            stream::enqueue(&mut process, driver, stream, work, act)?;
        }
        Ok(())
    }
}

fn report(slot: Option<Slot<usize>>) -> impl Fn(usize) {
    move |at| {
        if let Some(slot) = &slot {
            slot.set(at);
        }
    }
}

/// The default stream takes no batches; only the per-thread family of the first version forgot to look.
#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn copies(
    targets: Out<CUdeviceptr>,
    sources: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    attributes: Out<CUmemcpyAttributes>,
    indices: Out<usize>,
    groups: usize,
    stream: CUstream,
) -> Answer {
    if stream.is_null() {
        return Err(INVALID);
    }
    let batch = Batch {
        targets,
        sources,
        sizes,
        count,
        attributes: attributes.into(),
        indices,
        groups,
    };
    batch.run(stream, &|_| {})
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn copies_with_failure(
    targets: Out<CUdeviceptr>,
    sources: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    attributes: Out<CUmemcpyAttributes>,
    indices: Out<usize>,
    groups: usize,
    failed: Out<usize>,
    stream: CUstream,
) -> Answer {
    if stream.is_null() {
        return Err(INVALID);
    }
    copies_per_thread(
        targets, sources, sizes, count, attributes, indices, groups, failed, stream,
    )
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn copies_per_thread(
    targets: Out<CUdeviceptr>,
    sources: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    attributes: Out<CUmemcpyAttributes>,
    indices: Out<usize>,
    groups: usize,
    failed: Out<usize>,
    stream: CUstream,
) -> Answer {
    let batch = Batch {
        targets,
        sources,
        sizes,
        count,
        attributes: attributes.into(),
        indices,
        groups,
    };
    batch.run(stream, &report(failed.optional()))
}

/// CUDA_MEMCPY3D_BATCH_OP: two operands of five words, three of extent, order and flags.
type Words = [u64; 14];

/// Bytes of an element of a copy: of its array's, or one between addresses.
fn element(process: &Process, words: &Words) -> Result<u64, CUresult> {
    for operand in [&words[..5], &words[5..10]] {
        if operand[0] as u32 == 2 {
            // The real driver follows NULL too.
            let array = CUarray(operand[1] as *mut c_void);
            if array.is_null() {
                crash();
            }
            return Ok(process.array_of(array, INVALID)?.shape.element());
        }
    }
    Ok(1)
}

/// An operand: kind, then address, row length, layer height, hint; or array and origin. Lengths in x count elements.
fn operand(words: &[u64], element: u64) -> Result<End, CUresult> {
    let pointer = match words[0] as u32 {
        1 => true,
        2 => false,
        _ => return Err(INVALID),
    };
    let array = if pointer { 0 } else { words[1] };
    Ok(End {
        memory: if pointer { 4 } else { 3 },
        host: 0,
        device: if pointer { words[1] } else { 0 },
        array: CUarray(array as *mut c_void),
        origin: if pointer {
            [0; 3]
        } else {
            [words[2].saturating_mul(element), words[3], words[4]]
        },
        pitch: if pointer {
            words[2].saturating_mul(element)
        } else {
            0
        },
        height: if pointer { words[3] } else { 0 },
    })
}

fn boxes(
    count: usize,
    list: &Out<CUDA_MEMCPY3D_BATCH_OP>,
    flags: c_ulonglong,
    stream: CUstream,
    failed: &dyn Fn(usize),
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    failed(NO_COPY);
    let list = list.slot().ok_or(INVALID)?.cast::<Words>();
    if count == 0 || flags != 0 {
        return Err(INVALID);
    }
    for at in 0..count {
        let words = list.nth(at).get();
        let element = element(&process, &words)?;
        let width = words[10].saturating_mul(element);
        let extent: Extent = [width, words[11], words[12]];
        let order = words[13] as u32 as CUmemcpySrcAccessOrder;
        let flags = words[13] >> 32;
        let ends = operand(&words[..5], element)
            .and_then(|from| Ok((operand(&words[5..10], element)?, from)));
        let copied = ends.and_then(|(to, from)| {
            if extent.contains(&0) || !known_order(order) || flags > 1 {
                return Err(INVALID);
            }
            let runs = process.runs(&to, &from, extent)?;
            let work = runs.work(&process);
            let act = move |process: &mut Process, driver: &Driver| runs.carry_out(process, driver);
            stream::enqueue(&mut process, driver, stream, work, act)
        });
        // Of an array's refusal nobody is told which copy it was.
        let arrays = [words[0], words[5]].iter().any(|kind| *kind as u32 == 2);
        copied.inspect_err(|_| {
            if !arrays {
                failed(at);
            }
        })?;
    }
    Ok(())
}

pub fn copies_3d(
    count: usize,
    list: Out<CUDA_MEMCPY3D_BATCH_OP>,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    if stream.is_null() {
        return Err(INVALID);
    }
    boxes(count, &list, flags, stream, &|_| {})
}

pub fn copies_3d_with_failure(
    count: usize,
    list: Out<CUDA_MEMCPY3D_BATCH_OP>,
    failed: Out<usize>,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    if stream.is_null() {
        return Err(INVALID);
    }
    boxes(count, &list, flags, stream, &report(failed.optional()))
}
