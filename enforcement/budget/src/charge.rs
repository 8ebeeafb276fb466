//! What a request costs: by what the device really loses, not by what was asked for (decisions 10 to 15).

use crate::Bytes;
pub use crate::pages::{Blocks, Full, Span};

/// cuMemAlloc takes device memory in blocks of this size.
pub const BLOCK: Bytes = Bytes::mib(2);

/// Two allocations within a block lie a multiple of this apart.
pub const SUBALLOCATION: Bytes = Bytes(512);

/// A stream-ordered pool grows by at least this much.
pub const POOL_STEP: Bytes = Bytes::mib(32);

/// What a device keeps for managed memory, and takes ahead of need, from the first managed byte there to its last context's end:
/// measured on an H200 under 580.159.04.
pub const MANAGED: Bytes = Bytes::mib(128);

/// What cuInit takes on a device, measured on an H200 under 580.159.04.
pub const INIT: Bytes = Bytes(13 << 18);

/// An allocation of `size` by itself: at most so many blocks. `None` where the sum does not fit 64 bits, which no device can hold.
#[must_use]
pub const fn blocks(size: Bytes) -> Option<Bytes> {
    size.round_up(BLOCK)
}

/// No row of cuMemAllocPitch is padded beyond a multiple of this; `None` where that does not fit 64 bits.
#[must_use]
pub const fn pitch(width: Bytes) -> Option<Bytes> {
    width.round_up(SUBALLOCATION)
}

/// What a device says of itself, as far as it decides what a context takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub total: Bytes,
    pub multiprocessors: u32,
    pub threads_per_multiprocessor: u32,
}

impl Shape {
    /// That can be resident at a time; a device that does not tell is taken for a large one.
    #[must_use]
    pub fn threads(self) -> u64 {
        const LARGE: u64 = 320 << 10;
        match u64::from(self.multiprocessors) * u64::from(self.threads_per_multiprocessor) {
            0 => LARGE,
            threads => threads,
        }
    }
}

/// What every thread that can be resident has of stack from the beginning; a context's own charge includes it.
pub const FRESH_STACK: u64 = 1024;

/// What raising stack and local memory, which are one, to `bytes` for each of `threads` takes beside a context's own
/// (exact on an H200 but for less than a block, which finds room beside other memory of the context).
#[must_use]
pub fn stacks(threads: u64, bytes: u64) -> Bytes {
    let each = bytes
        .checked_next_multiple_of(16)
        .unwrap_or(u64::MAX)
        .saturating_sub(FRESH_STACK);
    let all = Bytes(threads.saturating_mul(each));
    all.round_up(BLOCK).unwrap_or(Bytes::MAX)
}

/// What a context gives back of its own when its threads' stack and local memory are lowered to `bytes`, to the block as an H200 does (580.159.04:
/// `fixtures/oracle/held-580.txt`); 0 of a fresh one's.
#[must_use]
pub fn lowered_stacks(threads: u64, bytes: u64) -> Bytes {
    let kept = bytes.next_multiple_of(16);
    let each = FRESH_STACK.saturating_sub(kept);
    let all = Bytes(threads.saturating_mul(each));
    all.round_up(BLOCK).unwrap_or(Bytes::MAX)
}

/// What so many streams of a context take beside its own: each 512 KiB of one kind and 48 KiB of another, in blocks, the first of
/// which the context has already (H200, 580.159.04: every step of 1 to 271 streams).
#[must_use]
pub const fn streams(count: u64) -> Bytes {
    let large = count.saturating_mul(512 << 10).saturating_add(1024 << 10);
    let small = count.saturating_mul(48 << 10).saturating_add(320 << 10);
    Bytes((large / BLOCK.0 + small / BLOCK.0).saturating_mul(BLOCK.0))
}

/// Addresses of page-locked host memory that one page table maps: 512 pages of 4 KiB.
pub const MAPPED_BY_TABLE: Bytes = Bytes::mib(2);

/// Addresses of device memory that one page directory of 4 KiB maps by pages of 2 MiB (H200, 580.159.04: 16 MiB for 4,096 mappings that lie so far apart).
pub const MAPPED_BY_DIRECTORY: Bytes = Bytes::mib(512);

/// What so many page tables of 4 KiB take beside a context's own, in blocks, the first of which the context has already (H200, 580.159.04: nothing for
/// 512 MiB, 2 MiB for 1 and 1.5 GiB, 16 for 8).
#[must_use]
pub const fn page_tables(count: u64) -> Bytes {
    Bytes(count.saturating_mul(4 << 10) / BLOCK.0 * BLOCK.0)
}

/// More than any context takes when it is created: a base for the driver's own code and queues, and one
/// KiB of stack for every thread that can be resident.
///
/// On an H200 that is 616 MiB against 524 measured. A small device never gives an eighth of itself to a
/// context; a device that does not tell its shape is taken for a large one.
#[must_use]
pub fn context_bound(shape: Shape) -> Bytes {
    const BASE: Bytes = Bytes::mib(352);
    let stacks = shape.threads().saturating_mul(FRESH_STACK);
    let bound = BASE.saturating_add(Bytes(stacks));
    let bound = match shape.total {
        Bytes::ZERO => bound,
        total => bound.min(Bytes(total.0 / 8)),
    };
    bound.round_up(BLOCK).unwrap_or(bound)
}

/// What a pool of known reservation must be grown by before `used` (including the new request) fits: whole steps, `None` on overflow.
#[must_use]
pub fn pool_growth(reserved: Bytes, used: Bytes) -> Option<Bytes> {
    used.saturating_sub(reserved).round_up(POOL_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, Some(0))]
    #[case(1, Some(2 << 20))]
    #[case(2 << 20, Some(2 << 20))]
    #[case((2 << 20) + 1, Some(4 << 20))]
    #[case(u64::MAX, None)]
    #[case(u64::MAX - (2 << 20) + 1, Some(u64::MAX - (2 << 20) + 1))]
    fn an_allocation_costs_whole_blocks(#[case] size: u64, #[case] cost: Option<u64>) {
        assert_eq!(blocks(Bytes(size)), cost.map(Bytes));
    }

    #[test]
    fn the_context_bound_is_above_what_was_measured() {
        let h200 = context_bound(Shape {
            total: Bytes(150_109_880_320),
            multiprocessors: 132,
            threads_per_multiprocessor: 2048,
        });
        assert!(h200 > Bytes::mib(526) && h200 < Bytes::mib(640), "{h200}");
    }

    #[test]
    fn a_small_device_gives_a_context_at_most_an_eighth() {
        let tiny = Shape {
            total: Bytes::gib(1),
            multiprocessors: 4,
            threads_per_multiprocessor: 1024,
        };
        assert_eq!(context_bound(tiny), Bytes::mib(128));
    }

    #[rstest]
    #[case(0, 0)]
    #[case(1, 0)]
    #[case(2, 2)]
    #[case(128, 70)]
    fn streams_are_taken_in_blocks(#[case] count: u64, #[case] mib: u64) {
        assert_eq!(streams(count), Bytes::mib(mib));
    }

    #[rstest]
    #[case(256, 0)]
    #[case(512, 2)]
    #[case(768, 2)]
    #[case(4096, 16)]
    fn page_tables_are_taken_in_blocks(#[case] count: u64, #[case] mib: u64) {
        assert_eq!(page_tables(count), Bytes::mib(mib));
    }

    #[rstest]
    #[case(0, 512, Some(32 << 20))]
    #[case(32 << 20, 32 << 20, Some(0))]
    #[case(32 << 20, (32 << 20) + 512, Some(32 << 20))]
    #[case(0, u64::MAX, None)]
    fn a_pool_grows_by_whole_steps(
        #[case] reserved: u64,
        #[case] used: u64,
        #[case] growth: Option<u64>,
    ) {
        assert_eq!(pool_growth(Bytes(reserved), Bytes(used)), growth.map(Bytes));
    }
}
