//! Handles: numbers that look like addresses and are never followed.

use abi::cuda::CUresult;

use crate::boundary::crash;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Context = 1,
    Stream,
    Event,
    Pool,
    Array,
    Physical,
    Mipmap,
    TextureReference,
    External,
    Partition,
    Semaphore,
    Function = 17,
    Module,
    Library,
    Kernel,
    Link,
    Graph = 33,
    GraphNode,
    GraphExec,
    UserObject,
}

/// Above what an x86-64 or aarch64 process can map, so that no handle is ever a valid address.
const BASE: u64 = 0x00c0_0000_0000_0000;

pub fn encode(kind: Kind, id: u32) -> u64 {
    BASE | (kind as u64) << 40 | u64::from(id) << 4
}

/// The id of a handle of this kind; `null` for 0. The real driver follows any other number, and dies of it.
pub fn followed(kind: Kind, value: u64, null: CUresult) -> Result<u32, CUresult> {
    if value == 0 {
        return Err(null);
    }
    Ok(decode(kind, value).unwrap_or_else(|| crash()))
}

/// The id of a handle of this kind; `None` for any other number.
pub fn decode(kind: Kind, value: u64) -> Option<u32> {
    let id = u32::try_from((value ^ encode(kind, 0)) >> 4).ok()?;
    (encode(kind, id) == value).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_decodes_as_its_own_kind_only() {
        for id in [0, 1, 77, u32::MAX] {
            let value = encode(Kind::Stream, id);
            assert_eq!(decode(Kind::Stream, value), Some(id));
            assert_eq!(decode(Kind::Event, value), None);
            assert_eq!(decode(Kind::Stream, value + 1), None);
        }
        assert_eq!(decode(Kind::Context, 0), None);
    }
}
