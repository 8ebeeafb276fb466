//! A sequence of calls as bytes: so many for each call, so that any part of a sequence is a sequence.

use fastrand::Rng;

/// Bytes of a call. What a call needs beyond them is drawn from them.
pub const CALL: usize = 32;
/// Most calls of a sequence.
pub const LONGEST: usize = 256;

/// Arbitrary calls.
pub fn random(rng: &mut Rng) -> Vec<u8> {
    let calls = match rng.u8(..) {
        0..64 => rng.usize(1..=16),
        _ => rng.usize(17..=LONGEST),
    };
    let mut bytes = vec![0; calls * CALL];
    rng.fill(&mut bytes);
    bytes
}

/// Something like `parent`, with a part of `other` perhaps.
pub fn mutated(rng: &mut Rng, parent: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = parent.to_vec();
    for _ in 0..1 << rng.u32(0..5) {
        let calls = bytes.len() / CALL;
        if calls == 0 {
            return random(rng);
        }
        let at = rng.usize(0..calls) * CALL;
        match rng.u8(0..8) {
            0 => {
                let bit = rng.usize(0..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            1 | 2 => {
                let byte = rng.usize(0..bytes.len());
                bytes[byte] = [0, 1, 0x7f, 0x80, 0xff, rng.u8(..)][rng.usize(0..6)];
            }
            3 => rng.fill(&mut bytes[at..at + CALL]),
            4 if calls > 1 => {
                bytes.drain(at..at + CALL);
            }
            5 => {
                let copy = bytes[at..at + CALL].to_vec();
                bytes.splice(at..at, copy);
            }
            6 if other.len() >= CALL => {
                let from = rng.usize(0..other.len() / CALL) * CALL;
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let mut call = [0; CALL];
                rng.fill(&mut call);
                bytes.splice(at..at, call);
            }
        }
    }
    bytes.truncate(LONGEST * CALL);
    bytes
}

/// The least of `bytes` of which `fails` says so, in at most `tries` tries: fewer calls first, then calls of zeros.
pub fn shrunk(bytes: Vec<u8>, mut tries: u32, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut least = bytes;
    let mut try_one = |candidate: Vec<u8>, least: &mut Vec<u8>| {
        if tries == 0 {
            return false;
        }
        tries -= 1;
        let smaller = fails(&candidate);
        if smaller {
            *least = candidate;
        }
        smaller
    };
    let mut chunk = (least.len() / CALL).next_power_of_two() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < least.len() {
            let mut candidate = least.clone();
            candidate.drain(at..(at + chunk * CALL).min(least.len()));
            if !try_one(candidate, &mut least) {
                at += chunk * CALL;
            }
        }
        chunk /= 2;
    }
    for at in 1..least.len() {
        if least[at] != 0 && at % CALL != 0 {
            let mut candidate = least.clone();
            candidate[at] = 0;
            try_one(candidate, &mut least);
        }
    }
    least
}

/// As a file holds it: a line of hexadecimal digits for each call.
pub fn written(bytes: &[u8]) -> Vec<String> {
    let line = |call: &[u8]| call.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.chunks(CALL).map(line).collect()
}

/// What [`written`] wrote.
pub fn read(lines: &[String]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        for at in (0..line.len()).step_by(2) {
            bytes.push(u8::from_str_radix(line.get(at..at + 2)?, 16).ok()?);
        }
    }
    (bytes.len() % CALL == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_fails_is_found() {
        let mut rng = Rng::with_seed(1);
        let mut bytes = random(&mut rng);
        bytes.resize(40 * CALL, 9);
        bytes[17 * CALL] = 77;
        let fails = |bytes: &[u8]| bytes.chunks(CALL).any(|call| call[0] == 77);
        let least = shrunk(bytes, 10_000, fails);
        let mut expected = vec![0; CALL];
        expected[0] = 77;
        assert_eq!(least, expected);
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = random(&mut Rng::with_seed(2));
        assert_eq!(read(&written(&bytes)), Some(bytes));
        assert_eq!(read(&["0".to_owned()]), None);
    }
}
