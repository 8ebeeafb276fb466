//! Access of one device to another's memory, on machines of two, four and sixteen devices, through the built libcuda.so.1.

#[path = "../oracle/boundary.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod boundary;

use std::sync::LazyLock;

use boundary::{Ended, Library, in_child, set_environment};
use mock_device::{Bytes, DeviceIndex, Direction, Engine, Nanos, World, WorldSpec, profile};

static CUDA: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_libcuda.so")));

const INVALID_VALUE: u32 = 1;
const INVALID_DEVICE: u32 = 101;
const UNSUPPORTED: u32 = 217;
const ALREADY_ENABLED: u32 = 704;
const NOT_ENABLED: u32 = 705;
const TOO_MANY: u32 = 711;

/// Makes what fork children use; see [`boundary::in_child`].
fn shared_with_children() {
    LazyLock::force(&CUDA);
}

fn out<T>(value: &mut T) -> u64 {
    std::ptr::from_mut(value) as u64
}

fn call(name: &str, words: &[u64]) -> u32 {
    CUDA.call(name, words)
}

fn must(name: &str, words: &[u64]) {
    assert_eq!(call(name, words), 0, "{name}");
}

/// Runs in a child whose private machine is that one, with every device's primary context; the first is current.
fn on(machine: &str, act: impl FnOnce(&[u64])) {
    with("RINGFENCE_MACHINE", machine.as_bytes(), act);
}

fn with(variable: &str, value: &[u8], act: impl FnOnce(&[u64])) {
    let ended = in_child(|| {
        set_environment(variable, value);
        let mut count = 0i32;
        must("cuInit", &[0]);
        must("cuDeviceGetCount", &[out(&mut count)]);
        let contexts: Vec<u64> = (0..count as u64)
            .map(|device| {
                let mut context = 0u64;
                must("cuDevicePrimaryCtxRetain", &[out(&mut context), device]);
                context
            })
            .collect();
        must("cuCtxSetCurrent", &[contexts[0]]);
        act(&contexts);
        0
    });
    assert_eq!(ended, Ended::Answered(0), "{}", value.escape_ascii());
}

fn can_access(device: usize, peer: usize) -> i32 {
    let mut can = 7i32;
    must(
        "cuDeviceCanAccessPeer",
        &[out(&mut can), device as u64, peer as u64],
    );
    can
}

/// Rank, access, atomics, arrays, partial atomics.
fn attributes(device: u64, peer: u64) -> [i32; 5] {
    std::array::from_fn(|at| {
        let mut value = 7i32;
        must(
            "cuDeviceGetP2PAttribute",
            &[out(&mut value), at as u64 + 1, device, peer],
        );
        value
    })
}

fn enable(peer: u64) -> u32 {
    call("cuCtxEnablePeerAccess", &[peer, 0])
}

fn disable(peer: u64) -> u32 {
    call("cuCtxDisablePeerAccess", &[peer])
}

fn alloc(context: u64, bytes: u64) -> u64 {
    let mut pointer = 0u64;
    must("cuCtxPushCurrent_v2", &[context]);
    must("cuMemAlloc_v2", &[out(&mut pointer), bytes]);
    must("cuCtxPopCurrent_v2", &[0]);
    pointer
}

/// CU_POINTER_ATTRIBUTE_DEVICE_POINTER: whether work of the current context finds it.
fn is_reached(pointer: u64) -> bool {
    const DEVICE_POINTER: u64 = 3;
    let mut found = 0u64;
    let words = [out(&mut found), DEVICE_POINTER, pointer];
    match call("cuPointerGetAttribute", &words) {
        0 => {
            assert_eq!(found, pointer);
            true
        }
        code => {
            assert_eq!(code, INVALID_VALUE);
            false
        }
    }
}

/// CUmemAccessDesc of a device.
fn access(device: u32, flags: u32) -> [u32; 3] {
    [1, device, flags]
}

#[test]
fn every_pair_is_joined_as_the_machine_says_and_no_device_with_itself() {
    for (machine, devices, joined, atomic) in [
        ("h200x2", 2, 1, 1),
        ("h200*4", 4, 1, 1),
        ("h200*16", 16, 1, 1),
        ("rtx6000-ada*2", 2, 1, 0),
        ("tiny*16", 16, 0, 0),
    ] {
        on(machine, |contexts| {
            assert_eq!(contexts.len(), devices);
            for device in 0..devices {
                for peer in 0..devices {
                    let expected = if device == peer { 0 } else { joined };
                    assert_eq!(can_access(device, peer), expected, "{machine}");
                }
            }
            assert_eq!(attributes(0, 1), [0, joined, atomic, joined, 0]);
            let mut value = 7i32;
            let same = [out(&mut value), 2, 1, 1];
            assert_eq!(call("cuDeviceGetP2PAttribute", &same), INVALID_DEVICE);
            let unknown = [out(&mut value), 6, 0, 1];
            assert_eq!(call("cuDeviceGetP2PAttribute", &unknown), INVALID_VALUE);
        });
    }
}

#[test]
fn access_is_enabled_once_and_in_one_direction_and_ends_with_the_context() {
    on("h200x2", |contexts| {
        let far = alloc(contexts[1], 1 << 20);
        assert_eq!(disable(contexts[1]), NOT_ENABLED);
        assert!(!is_reached(far));
        assert_eq!(
            call("cuCtxEnablePeerAccess", &[contexts[1], 1]),
            INVALID_VALUE
        );
        assert_eq!(enable(contexts[0]), UNSUPPORTED, "with itself");
        assert_eq!(enable(contexts[1]), 0);
        assert_eq!(enable(contexts[1]), ALREADY_ENABLED);
        assert!(is_reached(far));
        must("cuCtxSetCurrent", &[contexts[1]]);
        assert_eq!(disable(contexts[0]), NOT_ENABLED, "the other direction");
        let near = alloc(contexts[0], 1 << 20);
        assert!(is_reached(far) && !is_reached(near));
        must("cuCtxSetCurrent", &[contexts[0]]);
        assert_eq!(disable(contexts[1]), 0);
        assert!(!is_reached(far));
        assert_eq!(enable(contexts[1]), 0);
        must("cuDevicePrimaryCtxReset_v2", &[1]);
        let mut again = 0u64;
        must("cuDevicePrimaryCtxRetain", &[out(&mut again), 1]);
        assert_eq!(
            disable(again),
            NOT_ENABLED,
            "the context before it was enabled"
        );
    });
}

#[test]
fn what_no_link_joins_is_refused_everywhere() {
    on("tiny*4", |contexts| {
        assert_eq!(enable(contexts[3]), UNSUPPORTED);
        assert_eq!(disable(contexts[3]), NOT_ENABLED);
        let (mut pool, mut pointer) = (0u64, 0u64);
        must("cuDeviceGetDefaultMemPool", &[out(&mut pool), 0]);
        let mut far = access(2, 3);
        // An empty pool takes the promise, and breaks it with the first allocation.
        must("cuMemPoolSetAccess", &[pool, out(&mut far), 1]);
        let ask = [out(&mut pointer), 100, 0];
        assert_eq!(call("cuMemAllocAsync", &ask), INVALID_DEVICE);
        far[2] = 0;
        must("cuMemPoolSetAccess", &[pool, out(&mut far), 1]);
        let ask = [out(&mut pointer), 100, 0];
        must("cuMemAllocAsync", &ask);
        far[2] = 3;
        let words = [pool, out(&mut far), 1];
        assert_eq!(call("cuMemPoolSetAccess", &words), INVALID_DEVICE);
        assert_eq!(mapped_for(0, 2), INVALID_DEVICE);
        assert_eq!(mapped_for(2, 2), 0);
    });
}

/// cuMemSetAccess for a device of memory of another.
fn mapped_for(memory: u32, device: u32) -> u32 {
    const SIZE: u64 = 2 << 20;
    let mut prop = [0u32; 8];
    prop[0] = 1;
    prop[2..4].copy_from_slice(&[1, memory]);
    let (mut handle, mut address) = (0u64, 0u64);
    must("cuMemCreate", &[out(&mut handle), SIZE, out(&mut prop), 0]);
    must("cuMemAddressReserve", &[out(&mut address), SIZE, 0, 0, 0]);
    must("cuMemMap", &[address, SIZE, 0, handle, 0]);
    let mut desc = access(device, 3);
    let code = call("cuMemSetAccess", &[address, SIZE, out(&mut desc), 1]);
    let (mut flags, mut location) = (7u64, [1u32, device]);
    must(
        "cuMemGetAccess",
        &[out(&mut flags), out(&mut location), address],
    );
    assert_eq!(flags, if code == 0 { 3 } else { 0 });
    code
}

#[test]
fn a_pool_and_mapped_memory_are_opened_to_a_joined_device() {
    on("h200*4", |contexts| {
        assert_eq!(mapped_for(1, 3), 0);
        let (mut pool, mut pointer) = (0u64, 0u64);
        must("cuDeviceGetDefaultMemPool", &[out(&mut pool), 2]);
        must("cuCtxSetCurrent", &[contexts[2]]);
        must("cuMemAllocAsync", &[out(&mut pointer), 100, 0]);
        must("cuCtxSetCurrent", &[contexts[0]]);
        assert!(!is_reached(pointer));
        let mut near = access(0, 3);
        must("cuMemPoolSetAccess", &[pool, out(&mut near), 1]);
        assert!(is_reached(pointer));
        // Memory from another device's pool is that device's.
        let mut other = 0u64;
        must("cuMemAllocFromPoolAsync", &[out(&mut other), 100, pool, 0]);
        let mut device = 7i32;
        const ORDINAL: u64 = 9;
        must("cuPointerGetAttribute", &[out(&mut device), ORDINAL, other]);
        assert_eq!(device, 2);
    });
}

#[test]
fn a_card_without_a_switch_has_so_many_peers_and_no_more() {
    on("rtx6000-ada*16", |contexts| {
        for peer in &contexts[1..9] {
            assert_eq!(enable(*peer), 0);
        }
        assert_eq!(enable(contexts[9]), TOO_MANY);
        assert_eq!(disable(contexts[3]), 0);
        assert_eq!(enable(contexts[9]), 0);
    });
    on("h200*16", |contexts| {
        assert!(contexts[1..].iter().all(|peer| enable(*peer) == 0));
    });
}

#[test]
fn bytes_travel_between_devices_whether_they_are_joined_or_not() {
    for machine in ["h200x2", "tiny*4"] {
        on(machine, |contexts| {
            let last = contexts[contexts.len() - 1];
            let (from, to) = (alloc(contexts[0], 4096), alloc(last, 4096));
            let (mut sent, mut received) = (*b"between!", [0u8; 8]);
            must("cuMemcpyHtoD_v2", &[from, out(&mut sent), 8]);
            must("cuMemcpyPeer", &[to, last, from, contexts[0], 8]);
            must("cuMemcpyDtoH_v2", &[out(&mut received), to, 8]);
            assert_eq!(received, sent);
            sent = *b"and back";
            must("cuMemcpyHtoD_v2", &[to, out(&mut sent), 8]);
            must("cuMemcpyPeerAsync", &[from, contexts[0], to, last, 8, 0]);
            must("cuCtxSynchronize", &[]);
            must("cuMemcpyDtoH_v2", &[out(&mut received), from, 8]);
            assert_eq!(received, sent);
        });
    }
}

/// How long the first device's copy engine works on a copy to the second, whatever the host is doing meanwhile.
fn copy_takes(world: &World, contexts: &[u64], bytes: u64) -> Nanos {
    let (from, to) = (alloc(contexts[0], bytes), alloc(contexts[1], bytes));
    let begin = world.now();
    must(
        "cuMemcpyPeerAsync",
        &[to, contexts[1], from, contexts[0], bytes, 0],
    );
    must("cuCtxSynchronize", &[]);
    world.busy(DeviceIndex(0), Engine::Copy, begin, world.now())
}

#[test]
fn a_copy_takes_the_detour_through_the_host_until_access_is_enabled() {
    const BYTES: u64 = 4 << 20;
    let machine = profile::embedded("h200x2").expect("embedded");
    let cost = machine.devices[0].cost;
    let [staged, direct] =
        [Direction::Staged, Direction::Peer].map(|way| cost.copying(way, false, Bytes(BYTES)).time);
    assert!(direct.0 * 4 < staged.0);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    let _world = World::create(&path, &WorldSpec::new(machine)).expect("a world");
    let place = path.to_str().expect("UTF-8").as_bytes();
    with("RINGFENCE_WORLD", place, |contexts| {
        let world = World::open(&path).expect("the same world");
        assert_eq!(copy_takes(&world, contexts, BYTES), staged);
        assert_eq!(enable(contexts[1]), 0);
        // What came before it in the same grain of time is not counted with it.
        assert_eq!(copy_takes(&world, contexts, BYTES), direct);
    });
}
