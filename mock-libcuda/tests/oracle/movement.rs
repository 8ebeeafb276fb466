//! How long a copy takes is the profile's figure and not the mock's, and whoever may look finds its bytes moved.

use std::time::{Duration, Instant};

use crate::boundary::{Ended, in_child, set_environment};
use crate::{CUDA, must, out, start};

const LEN: u64 = 64 << 20;
const LARGE: u64 = 64 << 30;

/// Device memory, and page-locked memory full of `byte`.
fn memory(byte: u8) -> (u64, u64) {
    let (mut device, mut host) = (0u64, 0u64);
    must("cuMemAlloc_v2", &[out(&mut device), LEN]);
    must("cuMemHostAlloc", &[out(&mut host), LEN, 0]);
    // SAFETY: LEN bytes that cuMemHostAlloc gave.
    unsafe { std::ptr::write_bytes(host as *mut u8, byte, LEN as usize) };
    (device, host)
}

/// A byte of page-locked memory, as it is now.
fn byte_at(address: u64) -> u8 {
    // SAFETY: inside what cuMemHostAlloc gave.
    unsafe { (address as *const u8).read_volatile() }
}

fn in_a_process(act: impl FnOnce()) {
    let ended = in_child(|| {
        set_environment("RINGFENCE_MACHINE", b"h200");
        start();
        act();
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}

#[test]
fn a_copy_takes_the_profiles_time_and_its_call_does_not_move_its_bytes() {
    in_a_process(|| {
        let machine = mock_device::profile::embedded("h200").expect("embedded");
        let cost = machine.devices[0].cost;
        let direction = mock_device::Direction::DeviceToHost;
        let copy = cost.copying(direction, false, mock_device::Bytes(LEN));
        let (device, host) = memory(7);
        must("cuMemcpyHtoD_v2", &[device, host, LEN]);
        let mut events = [0u64; 2];
        for event in &mut events {
            must("cuEventCreate", &[out(event), 0]);
        }
        let (mut large, mut back) = (0u64, 0u64);
        must("cuMemAlloc_v2", &[out(&mut large), LARGE]);
        must("cuMemHostAlloc", &[out(&mut back), LEN, 0]);
        // Work for longer than a client is ever kept from its next call.
        let fill = cost.filling(mock_device::Bytes(LARGE));
        for _ in 0..3_000_000_000 / fill.time.0 {
            must("cuMemsetD8Async", &[large, 1, LARGE, 0]);
        }
        must("cuEventRecord", &[events[0], 0]);
        must("cuMemcpyDtoHAsync_v2", &[back, device, LEN, 0]);
        must("cuEventRecord", &[events[1], 0]);
        assert_eq!(byte_at(back + LEN - 1), 0, "not during the call");
        must("cuStreamSynchronize", &[0]);
        assert_eq!(byte_at(back + LEN - 1), 7);
        let (wanted, mut elapsed) = (copy.time.0 as f32 / 1e6, 0f32);
        must(
            "cuEventElapsedTime",
            &[out(&mut elapsed), events[0], events[1]],
        );
        assert!((elapsed / wanted - 1.0).abs() < 0.01, "{elapsed} {wanted}");
    });
}

#[test]
fn whoever_may_look_finds_a_copy_done() {
    in_a_process(|| {
        let (device, host) = memory(7);
        let last = LEN - 1;
        let mut back = 0u64;
        must("cuMemHostAlloc", &[out(&mut back), LEN, 0]);
        must("cuMemcpyHtoDAsync_v2", &[device, host, LEN, 0]);
        must("cuMemsetD8Async", &[device, 9, 16, 0]);
        must("cuMemcpyDtoHAsync_v2", &[back, device, LEN, 0]);
        // Nothing asks the driver: the device writes by itself.
        let began = Instant::now();
        while byte_at(back + last) != 7 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(byte_at(back + last), 7, "a client that polls memory");
        // In the order of submission, over all streams.
        must("cuStreamSynchronize", &[0]);
        assert_eq!(
            (byte_at(back), byte_at(back + 15), byte_at(back + 16)),
            (9, 9, 7)
        );

        must("cuMemsetD8Async", &[device, 3, LEN, 0]);
        must("cuMemcpyDtoHAsync_v2", &[back, device, LEN, 0]);
        let query = || CUDA.call("cuStreamQuery", &[0]);
        while query() != 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(
            byte_at(back + last),
            3,
            "a client that asks until it is done"
        );

        must("cuMemcpyHtoDAsync_v2", &[device, host, LEN, 0]);
        let mut answer = [0u8; 1];
        must("cuMemcpyDtoH_v2", &[out(&mut answer), device + last, 1]);
        assert_eq!(answer, [7], "a copy that waits");
        must("cuMemFree_v2", &[device]);
    });
}
