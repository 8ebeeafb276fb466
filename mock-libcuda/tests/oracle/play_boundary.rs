//! The unsafe of the player: the functions that its scripts give to the driver.

use std::ffi::c_void;
use std::time::Duration;

use crate::boundary::{Library, built};

/// Writes into a test's own buffer.
pub fn poke(address: u64, bytes: &[u8]) {
    // SAFETY: the address lies in a live buffer of the test, with room for the bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
}

/// A word that a driver's pointer names; 0 behind NULL.
pub fn peek(address: u64) -> u64 {
    if address < 8 * 4096 {
        return 0;
    }
    // SAFETY: an array that the driver said is there.
    unsafe { (address as *const u64).read() }
}

fn bump(counter: *mut c_void, by: u32) {
    if !counter.is_null() {
        // SAFETY: the tests give the address of a 32-bit counter that outlives the call.
        unsafe {
            let counter = counter.cast::<u32>();
            counter.write(counter.read() + by);
        }
    }
}

extern "C" fn host(counter: *mut c_void) {
    bump(counter, 1);
}

extern "C" fn slow(counter: *mut c_void) {
    std::thread::sleep(Duration::from_millis(300));
    bump(counter, 1);
}

/// Leaves what the driver answers inside a host function.
extern "C" fn inner(word: *mut c_void) {
    let mut pointer = 0u64;
    // Not the test's own handle: programs that test another library share this file.
    let driver = Library::open(&built("libmock_libcuda.so"));
    let code = driver.call("cuMemAlloc_v2", &[&raw mut pointer as u64, 4096]);
    // SAFETY: as for the counters.
    unsafe { word.cast::<u32>().write(code) }
}

extern "C" fn callback(_stream: *mut c_void, status: u32, counter: *mut c_void) {
    bump(counter, 1 + status);
}

/// The address of one of the functions that scripts name.
pub fn host_functions(name: &str) -> u64 {
    match name {
        "host" => host as *const () as u64,
        "slow" => slow as *const () as u64,
        "inner" => inner as *const () as u64,
        "callback" => callback as *const () as u64,
        other => panic!("no function {other}"),
    }
}
