//! What the oracle's odd calls say together: sizes, pointers and deltas of free memory. Row by row they are in `edge_table`.

use crate::boundary::{Ended, in_child};
use crate::edge_table::{MIB, free_memory};
use crate::{CUDA, must, out, start};

/// (answer, out-parameter) of an allocation.
fn alloc(size: u64) -> (u32, u64) {
    let mut pointer = 7u64;
    (
        CUDA.call("cuMemAlloc_v2", &[out(&mut pointer), size]),
        pointer,
    )
}

fn alloc_async(size: u64) -> u64 {
    let mut pointer = 7u64;
    must("cuMemAllocAsync", &[out(&mut pointer), size, 0]);
    pointer
}

fn free(pointer: u64) -> u32 {
    CUDA.call("cuMemFree_v2", &[pointer])
}

fn on_the_device(act: impl FnOnce()) {
    let ended = in_child(|| {
        start();
        act();
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}

#[test]
fn allocations_take_whole_blocks_and_lie_512_bytes_apart() {
    on_the_device(|| {
        let deltas = [
            (1, 2),
            (512, 2),
            (4096, 2),
            (65536, 2),
            (MIB, 2),
            (MIB + 1, 2),
            (2 * MIB, 2),
            (2 * MIB + 1, 4),
            (3 * MIB, 4),
            (64 * MIB, 64),
        ];
        for (size, blocks) in deltas {
            let before = free_memory();
            let (code, pointer) = alloc(size);
            assert_eq!(
                (code, before - free_memory()),
                (0, blocks * MIB),
                "{size} bytes"
            );
            assert_eq!(free(pointer), 0);
            assert_eq!(free_memory(), before, "{size} bytes freed");
        }
        let (first, second) = (alloc(1).1, alloc(1).1);
        assert_eq!(second - first, 512);
    });
}

#[test]
fn a_failing_allocation_writes_zero() {
    on_the_device(|| {
        assert_eq!(CUDA.call("cuMemAlloc_v2", &[0, MIB]), 1);
        assert_eq!(alloc(0), (1, 0));
        assert_eq!(alloc(u64::MAX), (2, 0));
        assert_eq!(alloc(1 << 50), (2, 0));
    });
}

#[test]
fn frees_know_what_begins_where() {
    on_the_device(|| {
        assert_eq!(free(0), 0);
        assert_eq!(free(0x1000), 1);
        let (_, pointer) = alloc(MIB);
        assert_eq!(free(pointer + 512), 1, "interior");
        assert_eq!((free(pointer), free(pointer)), (0, 1), "twice");
        assert_eq!(CUDA.call("cuMemFreeAsync", &[0, 0]), 0);
        let (_, pointer) = alloc(MIB);
        assert_eq!(CUDA.call("cuMemFreeAsync", &[pointer, 0]), 0);
        assert_eq!(free(alloc_async(MIB)), 0);
    });
}

#[test]
fn questions_with_null_or_unknown_devices_answer_as_recorded() {
    on_the_device(|| {
        let mut value = 0u64;
        assert_eq!(CUDA.call("cuMemGetInfo_v2", &[0, 0]), 0);
        assert_eq!(CUDA.call("cuMemGetInfo_v2", &[0, out(&mut value)]), 0);
        assert!(value > 0);
        assert_eq!(CUDA.call("cuDeviceTotalMem_v2", &[0, 0]), 1);
        assert_eq!(
            CUDA.call("cuDeviceTotalMem_v2", &[out(&mut value), 99]),
            101
        );
        let mut device = 7i32;
        assert_eq!(
            (CUDA.call("cuDeviceGet", &[out(&mut device), 99]), device),
            (101, 7)
        );
        assert_eq!(CUDA.call("cuCtxGetDevice", &[0]), 1);
        assert_eq!(CUDA.call("cuMemAllocHost_v2", &[0, 64]), 1);
        assert_eq!(CUDA.call("cuMemHostAlloc", &[0, 64]), 1);
        assert_eq!(CUDA.call("cuMemHostRegister_v2", &[0, 64]), 1);
        assert_eq!(CUDA.call("cuLaunchKernel", &[0]), 400);
        assert_eq!(CUDA.call("cuLaunchCooperativeKernel", &[0]), 400);
    });
}

#[test]
fn pitched_and_managed_allocations_check_their_arguments() {
    on_the_device(|| {
        let (mut pointer, mut pitch) = (0u64, 0u64);
        let pitched = |pointer, pitch, element| {
            CUDA.call("cuMemAllocPitch_v2", &[pointer, pitch, 1000, 10, element])
        };
        assert_eq!(pitched(out(&mut pointer), 0, 4), 1);
        assert_eq!(pitched(0, out(&mut pitch), 4), 1);
        assert_eq!(pitched(out(&mut pointer), out(&mut pitch), 3), 1);
        assert_eq!(pitched(out(&mut pointer), out(&mut pitch), 4), 0);
        assert_eq!(pitch, 1024);
        assert_eq!(CUDA.call("cuMemAllocManaged", &[0, 4096, 1]), 1);
        assert_eq!(
            CUDA.call("cuMemAllocManaged", &[out(&mut pointer), 4096, 0]),
            1
        );
        assert_eq!(
            CUDA.call("cuMemAllocManaged", &[out(&mut pointer), 0, 1]),
            1
        );
        assert_eq!(
            CUDA.call("cuMemAllocManaged", &[out(&mut pointer), 4096, 1]),
            0
        );
    });
}

#[test]
fn a_pool_returns_its_memory_at_a_synchronisation_or_a_trim() {
    on_the_device(|| {
        let before = free_memory();
        let held = || before - free_memory();
        let pointer = alloc_async(512);
        assert_eq!(held(), 32 * MIB, "one step");
        must("cuMemFreeAsync", &[pointer, 0]);
        assert_eq!(held(), 32 * MIB, "a free alone returns nothing");
        must("cuStreamSynchronize", &[0]);
        assert_eq!(held(), 0);

        let (mut pool, mut threshold) = (0u64, u64::MAX);
        must("cuDeviceGetDefaultMemPool", &[out(&mut pool), 0]);
        must("cuMemPoolSetAttribute", &[pool, 4, out(&mut threshold)]);
        let pointer = alloc_async(64 * MIB);
        must("cuMemFreeAsync", &[pointer, 0]);
        must("cuStreamSynchronize", &[0]);
        assert_eq!(held(), 64 * MIB, "kept by the threshold");
        must("cuMemPoolTrimTo", &[pool, 0]);
        assert_eq!(held(), 0);
    });
}

#[test]
fn physical_memory_and_arrays_take_what_the_card_took() {
    on_the_device(|| {
        let before = free_memory();
        // CUDA_ARRAY_DESCRIPTOR: 1024 × 1024 floats.
        let descriptor = [1024u64, 1024, 1 << 32 | 32];
        let mut array = 0u64;
        must(
            "cuArrayCreate_v2",
            &[out(&mut array), descriptor.as_ptr() as u64],
        );
        assert_eq!(before - free_memory(), 4 * MIB);
        must("cuArrayDestroy", &[array]);
        // CUmemAllocationProp: pinned, on device 0.
        let prop = [1u64, 1, 0, 0];
        let (mut handle, mut granularity) = (0u64, 0u64);
        must(
            "cuMemGetAllocationGranularity",
            &[out(&mut granularity), prop.as_ptr() as u64, 0],
        );
        assert_eq!(granularity, 2 * MIB);
        assert_eq!(
            CUDA.call("cuMemCreate", &[0, 2 * MIB, prop.as_ptr() as u64]),
            1
        );
        assert_eq!(
            CUDA.call("cuMemCreate", &[out(&mut handle), 1, prop.as_ptr() as u64]),
            1
        );
        must(
            "cuMemCreate",
            &[out(&mut handle), 2 * MIB, prop.as_ptr() as u64],
        );
        assert_eq!(before - free_memory(), 2 * MIB);
        must("cuMemRelease", &[handle]);
        assert_eq!(before, free_memory());
    });
}

#[test]
fn contexts_cost_their_overhead_and_take_their_memory_with_them() {
    on_the_device(|| {
        let before = free_memory();
        let mut context = 0u64;
        must("cuCtxCreate_v2", &[out(&mut context), 0, 0]);
        assert_eq!(before - free_memory(), 548_995_072);
        for size in [1, 5 * MIB] {
            assert_eq!(alloc(size).0, 0);
        }
        must("cuCtxDestroy_v2", &[context]);
        assert_eq!(free_memory(), before);
        assert_eq!(CUDA.call("cuCtxSetCurrent", &[context]), 0, "destroyed");
        assert_eq!(alloc(1).0, 709);
    });
}

#[test]
fn without_a_context_there_is_nothing_to_allocate_in() {
    let ended = in_child(|| {
        must("cuInit", &[0]);
        alloc(1).0.into()
    });
    assert_eq!(ended, Ended::Answered(201));
}

#[test]
fn a_device_runs_out_at_its_total() {
    on_the_device(|| {
        let all = free_memory();
        let mut pointers = vec![];
        while let (0, pointer) = alloc(1 << 30) {
            pointers.push(pointer);
        }
        assert_eq!(pointers.len() as u64, all >> 30);
        let rest = free_memory();
        let (code, last) = alloc(rest / (2 * MIB) * (2 * MIB));
        assert_eq!((code, alloc(1).0), (0, 2));
        assert_eq!(CUDA.call("cuMemAllocAsync", &[out(&mut 0u64), 1, 0]), 2);
        pointers.push(last);
        assert!(pointers.into_iter().all(|pointer| free(pointer) == 0));
        assert_eq!(free_memory(), all);
    });
}
