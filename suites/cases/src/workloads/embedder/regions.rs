//! Regions in blocks of device memory.

use embedder::{Buffer, ContextId, Runtime, Usage};
use harness::{Failure, cases, ensure, ensure_eq};

use super::{SMALL, adopted, embedded};
use crate::ffi::vulkan::embedding::{Application, Placed, Seen};

/// Buffers at a time: together smaller than a block, however a driver rounds them up to a kibibyte or four.
const BUFFERS: u8 = 40;

/// A buffer of an odd size that nothing else is as long as, filled with its number.
fn numbered(runtime: &Runtime, context: ContextId, number: u8) -> Result<Buffer, Failure> {
    let mut buffer = Buffer::new(u64::from(number) * 97 + 1);
    runtime.allocate(context, &mut buffer, Usage::HostVisible)?;
    runtime.write(&buffer, 0, &vec![number; buffer.bytes() as usize])?;
    Ok(buffer)
}

/// Every byte of it is its number.
fn kept(runtime: &Runtime, buffer: &Buffer, number: u8) -> Result<(), Failure> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    runtime.read(buffer, 0, &mut bytes)?;
    ensure!(
        bytes.iter().all(|&byte| byte == number),
        "the bytes of buffer {number} are not all its own"
    );
    Ok(())
}

fn well_placed(placed: &[Placed]) -> Result<(), Failure> {
    for (index, one) in placed.iter().enumerate() {
        ensure_eq!(
            one.start % one.alignment,
            0,
            "bytes beyond {one:?}'s alignment"
        );
        for other in &placed[..index] {
            ensure!(
                one.memory != other.memory
                    || one.start + one.bytes <= other.start
                    || other.start + other.bytes <= one.start,
                "{one:?} lies over {other:?}"
            );
        }
    }
    Ok(())
}

pub(super) fn regions(application: &Application) -> Result<(), Failure> {
    let runtime = &application.runtime;
    let (context, allocator) = adopted(application)?;
    let mut held: Vec<(u8, Buffer)> = (0..BUFFERS)
        .map(|number| Ok((number, numbered(runtime, context, number)?)))
        .collect::<Result<_, Failure>>()?;
    well_placed(&Seen::now().placed)?;
    ensure_eq!(
        (Seen::now().memory_made, runtime.held(context)?),
        (1, SMALL.block),
        "blocks for {BUFFERS} small buffers, and their bytes"
    );
    // Every second one makes room for another.
    for (number, buffer) in held.iter_mut().filter(|(number, _)| number % 2 == 0) {
        runtime.free(buffer)?;
        *number += BUFFERS;
        *buffer = numbered(runtime, context, *number - BUFFERS)?;
        runtime.write(buffer, 0, &vec![*number; buffer.bytes() as usize])?;
    }
    for (number, buffer) in &held {
        kept(runtime, buffer, *number)?;
    }
    ensure_eq!(
        Seen::now().memory_made,
        1,
        "blocks when places are taken again"
    );
    large_and_local(runtime, context, &held[1].1)?;
    for (_, mut buffer) in held {
        runtime.free(&mut buffer)?;
    }
    let spare = runtime.held(context)?;
    ensure!(
        spare >= SMALL.block,
        "{spare} bytes are kept for the next buffer"
    );
    ensure_eq!(runtime.trim(context)?, spare, "what is given back");
    ensure_eq!(runtime.held(context)?, 0, "what is held then");
    let seen = Seen::now();
    ensure_eq!(
        seen.memory_freed,
        seen.memory_made,
        "memory freed, of what was allocated"
    );
    Ok(runtime.release_memory_allocator(context, allocator)?)
}

/// A buffer that is larger than a block takes one of its own along; one on the device keeps what is copied there and back.
fn large_and_local(runtime: &Runtime, context: ContextId, from: &Buffer) -> Result<(), Failure> {
    let before = (Seen::now(), runtime.held(context)?);
    let mut large = Buffer::new(3 * SMALL.block);
    runtime.allocate(context, &mut large, Usage::HostVisible)?;
    ensure_eq!(
        Seen::now().memory_made,
        before.0.memory_made + 1,
        "blocks, with a large one"
    );
    ensure!(
        runtime.held(context)? >= before.1 + large.bytes(),
        "less is held than the large buffer has"
    );
    runtime.free(&mut large)?;
    ensure_eq!(
        (Seen::now().memory_freed, runtime.held(context)?),
        (before.0.memory_freed + 1, before.1),
        "blocks given back with the large buffer, and bytes that are held"
    );
    let (mut local, mut back) = (Buffer::new(from.bytes()), Buffer::new(from.bytes()));
    runtime.allocate(context, &mut local, Usage::DeviceLocal)?;
    runtime.allocate(context, &mut back, Usage::HostVisible)?;
    runtime.copy(from, &local)?;
    runtime.copy(&local, &back)?;
    kept(runtime, &back, 1)?;
    runtime.free(&mut local)?;
    Ok(runtime.free(&mut back)?)
}

cases! {
    /// Small buffers share a block, each at its alignment and none over another; a freed place is taken again; what is larger
    /// than a block has its own and takes it along; an empty block is kept until it is asked back.
    regions_share_blocks_and_no_byte {
        entry_points: ["vkAllocateMemory", "vkBindBufferMemory", "vkFreeMemory"],
    } (session) {
        embedded(session, SMALL, |application| regions(application))
    }
}
