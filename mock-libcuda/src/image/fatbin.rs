//! Fat binaries: several images of one program, of which the best for a device is chosen.
//!
//! Layout, little-endian, as nvcc and nvFatbin write it: a header (magic, u16 version, u16 its own bytes, u64 bytes of all
//! entries), then entries, each with a header of its own.

use super::{Image, Refusal, Runner, cubin, ptx};

pub const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// Of the structure that compilers put around one: magic, u32 version, address of the fat binary.
pub const WRAPPER_MAGIC: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();
pub const HEADER: usize = 16;

const VERSION: u16 = 1;
const PTX: u16 = 1;
const ELF: u16 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// No entry unpacks to more.
const MOST: usize = 1 << 30;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(at..)?.get(..2)?.try_into().ok()?,
    ))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..)?.get(..4)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..)?.get(..8)?.try_into().ok()?,
    ))
}

struct Entry<'b> {
    kind: u16,
    architecture: u32,
    flags: u64,
    payload: &'b [u8],
    unpacked: usize,
}

/// Bytes of a whole fat binary, by its header.
pub fn length(header: &[u8]) -> Option<usize> {
    let own = u16_at(header, 6)?;
    usize::try_from(u64_at(header, 8)?)
        .ok()?
        .checked_add(own.into())
}

impl<'b> Entry<'b> {
    /// The entry at the beginning of `bytes`, and what lies behind it.
    fn read(bytes: &'b [u8]) -> Option<(Entry<'b>, &'b [u8])> {
        let own = u32_at(bytes, 4)? as usize;
        let padded = usize::try_from(u64_at(bytes, 8)?).ok()?;
        let packed = u32_at(bytes, 16)? as usize;
        let behind = bytes.get(own..)?;
        let payload = behind.get(..padded)?;
        let entry = Entry {
            kind: u16_at(bytes, 0)?,
            architecture: u32_at(bytes, 28)?,
            flags: u64_at(bytes, 40)?,
            payload: if packed == 0 {
                payload
            } else {
                payload.get(..packed)?
            },
            unpacked: usize::try_from(u64_at(bytes, 56)?).ok()?,
        };
        Some((entry, &behind[padded..]))
    }

    fn unpack(&self) -> Option<Vec<u8>> {
        if self.unpacked > MOST {
            return None;
        }
        if self.flags & ZSTD != 0 {
            use std::io::Read;
            let decoder = ruzstd::decoding::StreamingDecoder::new(self.payload).ok()?;
            let mut bytes = Vec::new();
            decoder.take(MOST as u64).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        } else if self.flags & LZ4 != 0 {
            lz4_flex::block::decompress(self.payload, self.unpacked).ok()
        } else {
            Some(self.payload.to_vec())
        }
    }
}

pub fn open(bytes: &[u8], runner: &Runner) -> Result<Image, Refusal> {
    if u16_at(bytes, 4) != Some(VERSION) {
        return Err(Refusal::NotAnImage);
    }
    let own = usize::from(u16_at(bytes, 6).ok_or(Refusal::NotAnImage)?);
    let end = length(bytes).ok_or(Refusal::Broken)?;
    // A header of an impossible size has no entries behind it.
    let mut rest = bytes.get(own.max(HEADER)..end).unwrap_or_default();
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, behind) = Entry::read(rest).ok_or(Refusal::Architecture)?;
        if behind.len() == rest.len() {
            return Err(Refusal::Architecture);
        }
        entries.push(entry);
        rest = behind;
    }
    let best = best(&entries, runner).ok_or(Refusal::Architecture)?;
    let image = best.unpack().ok_or(Refusal::Broken)?;
    match best.kind {
        ELF => cubin::open(&image, runner),
        _ => ptx::open(&image, runner),
    }
}

/// Machine code for the device before PTX, and the newest of each.
fn best<'e, 'b>(entries: &'e [Entry<'b>], runner: &Runner) -> Option<&'e Entry<'b>> {
    let of = |kind: u16, fits: &dyn Fn(u32) -> bool| {
        entries
            .iter()
            .filter(|entry| entry.kind == kind && fits(entry.architecture))
            .max_by_key(|entry| entry.architecture)
    };
    of(ELF, &|architecture| {
        cubin::runs(architecture, false, runner)
    })
    .or_else(|| of(PTX, &|architecture| architecture <= runner.architecture))
}
