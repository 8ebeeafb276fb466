//! Where the arguments of one call lie that are passed by pointer.

use std::cell::RefCell;

/// What stands where a driver may write, so that one sees whether it did.
pub const PATTERN: u8 = 0xa5;
/// Of each place where something is written: longer than any structure that a hook writes.
pub const ROOM: usize = 512;
const WORDS: usize = 1 << 11;

struct Frame {
    words: Box<[u128; WORDS]>,
    used: usize,
}

thread_local! {
    static FRAME: RefCell<Frame> = RefCell::new(Frame { words: Box::new([0; WORDS]), used: 0 });
}

/// Everything is taken back.
pub fn clear() {
    FRAME.with_borrow_mut(|frame| frame.used = 0);
}

/// Room for so many bytes, each of them `fill`, until [`clear`].
pub fn room(bytes: usize, fill: u8) -> *mut u8 {
    FRAME.with_borrow_mut(|frame| {
        let words = bytes.div_ceil(size_of::<u128>());
        let from = frame.used;
        // A call that wants more than there is shares with its own beginning.
        let from = if from + words > WORDS { 0 } else { from };
        frame.used = from + words;
        frame.words[from..from + words].fill(u128::from_ne_bytes([fill; 16]));
        frame.words[from..].as_mut_ptr().cast()
    })
}

/// A place for a value.
pub fn put<T>(value: T) -> *mut T {
    const { assert!(align_of::<T>() <= align_of::<u128>() && size_of::<T>() <= ROOM) };
    let place: *mut T = room(ROOM, 0).cast();
    // SAFETY: room for 512 bytes at an address that is aligned for any of C's types, nobody else's until the call is over.
    unsafe { place.write(value) };
    place
}

/// What lies there now.
pub fn bytes(address: usize, bytes: usize) -> [u8; 8] {
    let mut read = [0; 8];
    let from: *const u8 = std::ptr::with_exposed_provenance(address);
    for (at, byte) in read.iter_mut().enumerate().take(bytes) {
        // SAFETY: a place that `room` gave for this call, of at least eight bytes.
        *byte = unsafe { from.add(at).read() };
    }
    read
}

/// The beginning of what lies there, in words.
pub fn words(address: usize, bytes: usize) -> String {
    let place: *const u8 = std::ptr::with_exposed_provenance(address);
    let mut told = String::from("{");
    for at in (0..bytes.min(64)).step_by(4) {
        let mut word = [0; 4];
        for (nth, byte) in word.iter_mut().enumerate().take(bytes - at) {
            // SAFETY: within the structure that lies at this place.
            *byte = unsafe { place.add(at + nth).read() };
        }
        told.push_str(&format!("{:x} ", u32::from_le_bytes(word)));
    }
    told.trim_end().to_owned() + "}"
}
