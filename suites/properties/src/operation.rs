//! What a tenant's program does, an operation at a time, and how sequences of them are made.
//!
//! An operation names what it is about by a number that is taken modulo what there is when it runs: so any part of a sequence is
//! a sequence, which is what shrinking makes of it.

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How much a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Size {
    Bytes(u64),
    /// The most that the model says must fit, less so many blocks.
    Fits(u8),
    /// The least that it says cannot, and so many blocks more.
    Over(u8),
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Operation {
    /// Makes another device's context current.
    Device(u8),
    /// cuMemAlloc_v2.
    Allocate(Size),
    /// cuMemAllocPitch_v2.
    Pitched {
        width: u64,
        height: u64,
    },
    /// cuMemAllocManaged.
    Managed(Size),
    /// cuMemAllocAsync, or cuMemAllocFromPoolAsync of the n-th pool that was created.
    Ordered {
        size: Size,
        pool: u8,
        stream: u8,
    },
    /// cuMemCreate.
    Physical(Size),
    /// cuMemAddressReserve and cuMemMap of the n-th physical memory.
    Map(u8),
    /// cuArrayCreate_v2, in steps of 64 by 128 words (32 KiB).
    Array {
        width: u8,
        height: u8,
    },
    /// vkAllocateMemory from the device's heap.
    Vulkan(Size),
    /// vkAllocateMemory from the host's.
    VulkanHost(Size),
    /// Whatever ends the n-th of what is held.
    Free(u16),
    /// The same in the order of a stream, where that is possible.
    FreeOrdered {
        nth: u16,
        stream: u8,
    },
    /// Frees an address that was freed before, or never given.
    FreeWrong(u64),
    Synchronize,
    CreatePool,
    DestroyPool(u8),
    /// cuMemPoolTrimTo.
    Trim {
        pool: u8,
        keep: u64,
    },
    CreateStream,
    DestroyStream(u8),
    /// cuCtxCreate_v2, which becomes current.
    CreateContext,
    /// cuCtxDestroy_v2, with all that was allocated in it.
    DestroyContext(u8),
    /// A request with a NULL out-parameter, which takes nothing.
    IntoNothing(Size),
    /// Everything is ended, contexts too, and the program begins anew. Stands between sequences that together break a promise.
    End,
    /// The process ends by a signal. Never made by chance: how a crash is told can be shown by it.
    Die,
}

/// What is known of a sequence while it is made: an upper bound of what there is to end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    held: u32,
    physical: u32,
    pools: u32,
    streams: u32,
    contexts: u32,
}

/// The machine whose sequences are run.
pub struct Programs;

impl ReferenceStateMachine for Programs {
    type State = Shape;
    type Transition = Operation;

    fn init_state() -> BoxedStrategy<Shape> {
        Just(Shape::default()).boxed()
    }

    fn transitions(shape: &Shape) -> BoxedStrategy<Operation> {
        use Operation::*;
        let taking = prop_oneof![
            4 => size().prop_map(Allocate),
            1 => (any::<u64>(), 0_u64..5).prop_map(|(bits, kind)| pitched(bits, kind)),
            1 => size().prop_map(Managed),
            4 => (size(), any::<u8>(), any::<u8>())
                .prop_map(|(size, pool, stream)| Ordered { size, pool, stream }),
            2 => size().prop_map(Physical),
            1 => (1_u8..=16, 1_u8..=64).prop_map(|(width, height)| Array { width, height }),
            3 => size().prop_map(Vulkan),
            1 => size().prop_map(VulkanHost),
            1 => size().prop_map(IntoNothing),
        ];
        let beside = prop_oneof![
            4 => any::<u8>().prop_map(Device),
            2 => prop_oneof![any::<u64>(), (0_u64..8).prop_map(|n| n << 21)].prop_map(FreeWrong),
            6 => Just(Synchronize),
            2 => Just(CreatePool),
            2 => (any::<u8>(), prop_oneof![Just(0), 0..GIB]).prop_map(|(pool, keep)| Trim { pool, keep }),
            2 => Just(CreateStream),
        ];
        let ending = prop_oneof![
            6 => any::<u16>().prop_map(Free),
            3 => (any::<u16>(), any::<u8>()).prop_map(|(nth, stream)| FreeOrdered { nth, stream }),
        ];
        let few = |count: u32, some: u32| if count > 0 { some } else { 0 };
        // A weight of nothing is none: what is not there is neither mapped nor ended.
        proptest::strategy::Union::new_weighted(
            [
                (if shape.held > 40 { 4 } else { 12 }, taking.boxed()),
                (few(shape.held, 8), ending.boxed()),
                (5, beside.boxed()),
                (few(shape.physical, 1), any::<u8>().prop_map(Map).boxed()),
                (
                    few(shape.pools, 1),
                    any::<u8>().prop_map(DestroyPool).boxed(),
                ),
                (
                    few(shape.streams, 1),
                    any::<u8>().prop_map(DestroyStream).boxed(),
                ),
                (
                    if shape.contexts < 2 { 1 } else { 0 },
                    Just(CreateContext).boxed(),
                ),
                (
                    few(shape.contexts, 1),
                    any::<u8>().prop_map(DestroyContext).boxed(),
                ),
            ]
            .into_iter()
            .filter(|(weight, _)| *weight > 0)
            .collect(),
        )
        .boxed()
    }

    fn apply(mut shape: Shape, operation: &Operation) -> Shape {
        use Operation::*;
        match operation {
            Allocate(_)
            | Pitched { .. }
            | Managed(_)
            | Ordered { .. }
            | Array { .. }
            | Vulkan(_)
            | VulkanHost(_) => shape.held += 1,
            Physical(_) => (shape.held, shape.physical) = (shape.held + 1, shape.physical + 1),
            Free(_) | FreeOrdered { .. } => shape.held = shape.held.saturating_sub(1),
            CreatePool => shape.pools += 1,
            DestroyPool(_) => shape.pools = shape.pools.saturating_sub(1),
            CreateStream => shape.streams += 1,
            DestroyStream(_) => shape.streams = shape.streams.saturating_sub(1),
            CreateContext => shape.contexts += 1,
            DestroyContext(_) => shape.contexts = shape.contexts.saturating_sub(1),
            Device(_)
            | Map(_)
            | FreeWrong(_)
            | Synchronize
            | Trim { .. }
            | IntoNothing(_)
            | End
            | Die => {}
        }
        shape
    }

    fn preconditions(shape: &Shape, operation: &Operation) -> bool {
        use Operation::*;
        match operation {
            Free(_) | FreeOrdered { .. } => shape.held > 0,
            Map(_) => shape.physical > 0,
            DestroyPool(_) => shape.pools > 0,
            DestroyStream(_) => shape.streams > 0,
            DestroyContext(_) => shape.contexts > 0,
            _ => true,
        }
    }
}

/// Sizes near every edge that rounding has, any at all, and what just fits or does not.
fn size() -> impl Strategy<Value = Size> {
    let edges = prop::sample::select(vec![512, 64 * KIB, 2 * MIB, 32 * MIB, 256 * MIB, GIB]);
    let near = (edges, 1_u64..4, -1_i64..=1);
    prop_oneof![
        8 => near.prop_map(|(edge, times, off)| Size::Bytes((edge * times).saturating_add_signed(off))),
        6 => (1..64 * MIB).prop_map(Size::Bytes),
        4 => (1..4 * KIB).prop_map(Size::Bytes),
        1 => (0_u32..64, -1_i64..=1).prop_map(|(bit, off)| Size::Bytes((1_u64 << bit).saturating_add_signed(off))),
        1 => (0_u64..4).prop_map(|off| Size::Bytes(u64::MAX - off)),
        2 => (0_u8..4).prop_map(Size::Fits),
        2 => (0_u8..4).prop_map(Size::Over),
    ]
}

fn pitched(bits: u64, kind: u64) -> Operation {
    let (width, height) = match kind {
        0 => (bits, bits.rotate_left(32)),
        1 => (bits % (1 << 20), bits >> 32 & 0xfff),
        _ => (bits % 5000, bits >> 32 & 0x7ff),
    };
    Operation::Pitched { width, height }
}
