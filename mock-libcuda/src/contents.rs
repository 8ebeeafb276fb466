//! What device memory holds: nothing (zero), a repeated pattern, or bytes that the backing stores.
//!
//! A fill is remembered, not carried out, so that a 20 GiB memset costs nothing. Written bytes are stored: the first GiB whatever
//! the machine has, more as long as it has memory to spare, and then a part of a write that only repeats a word is remembered as
//! a fill. Where the machine has none a write is remembered by its first word alone, which is said on stderr once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Once;

use crate::boundary::{Backing, copy_host, fill_host};

/// A repeated unit of 1, 2 or 4 bytes whose phase follows the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    bytes: [u8; 4],
    len: usize,
}

impl Pattern {
    pub fn new(bytes: &[u8]) -> Pattern {
        let mut pattern = Pattern {
            bytes: [0; 4],
            len: bytes.len(),
        };
        pattern.bytes[..bytes.len()].copy_from_slice(bytes);
        pattern
    }

    /// The unit in the phase that makes `at` its beginning.
    fn anchored(bytes: &[u8], at: u64) -> Pattern {
        let mut turned = bytes.to_vec();
        turned.rotate_right((at % bytes.len() as u64) as usize);
        Pattern::new(&turned)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn is_zero(&self) -> bool {
        self.bytes().iter().all(|byte| *byte == 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Pattern(Pattern),
    Stored,
    /// Managed memory, which the client reads and writes itself: as stored, but outside the bound.
    Exposed,
    /// A file that other processes and APIs map too.
    Shared,
}

/// Bytes of a device's memory that are stored without a look at what the machine has.
const STORED_FIRST: u64 = 1 << 30;
/// So many at least are asked of the machine at once.
const STEP: u64 = 64 << 20;
/// What the machine is left.
const SPARED: u64 = 2 << 30;
/// A larger fill of memory that others see too is not carried out.
const FILLED_BOUND: u64 = 1 << 30;
/// Beyond [`STORED_FIRST`] a write is looked through in such parts.
const PART: u64 = 1 << 20;
/// Whether it was said that the machine has no more.
static BEYOND: Once = Once::new();
/// Fills up to this size are carried out, so that many small ones do not become many extents.
const SMALL_FILL: u64 = 64 << 10;

pub struct Contents {
    backing: Backing,
    /// Start → (end, content). What no extent covers is zero.
    extents: BTreeMap<u64, (u64, Content)>,
    stored: u64,
    /// Up to where `stored` may grow before the machine is asked again.
    granted: u64,
    /// What the machine has left.
    available: fn() -> u64,
    /// Extents that are a file's.
    shared: usize,
}

/// Bytes of memory that this machine, or this process's control group, can give away without pushing anything out; 0 where
/// nobody tells.
fn available() -> u64 {
    let number = |text: &str| {
        text.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<u64>()
            .ok()
    };
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = machine
        .lines()
        .find_map(|line| number(line.strip_prefix("MemAvailable:")?))
        .map_or(0, |kib| kib << 10);
    let of_group = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}"));
        number(&text.unwrap_or_default())
    };
    match (of_group("memory.max"), of_group("memory.current")) {
        (Some(most), Some(used)) => machine.min(most.saturating_sub(used)),
        _ => machine,
    }
}

/// The word that bytes of the client's repeat, if they are a word's repetition.
fn repeated(host: u64, len: u64) -> Option<[u8; 4]> {
    let mut bytes = vec![0; len as usize];
    copy_host(bytes.as_mut_ptr() as u64, host, len);
    let word = [
        *bytes.first()?,
        *bytes.get(1)?,
        *bytes.get(2)?,
        *bytes.get(3)?,
    ];
    let same = |part: &[u8]| part.iter().zip(word).all(|(byte, known)| *byte == known);
    bytes.chunks(4).all(same).then_some(word)
}

impl Contents {
    pub fn new(backing: Backing) -> Contents {
        Contents {
            backing,
            extents: BTreeMap::new(),
            stored: 0,
            granted: STORED_FIRST,
            available,
            shared: 0,
        }
    }

    pub fn base(&self) -> u64 {
        self.backing.base()
    }

    /// Repeats `unit` over a range, from its start on.
    pub fn fill(&mut self, start: u64, len: u64, unit: &[u8]) {
        let pattern = Pattern::anchored(unit, start);
        for (from, to) in self.parts(start, start + len) {
            self.fill_part(from, to, pattern);
        }
    }

    fn fill_part(&mut self, start: u64, end: u64, pattern: Pattern) {
        let len = end - start;
        if self.is(Content::Exposed, start, end) {
            // Zeros, and what would eat the machine, are not written: the pages go back instead.
            if pattern.is_zero() || len > FILLED_BOUND {
                self.backing.punch(start, end);
            } else {
                fill_host(start, len, pattern.bytes());
            }
            return;
        }
        if self.is(Content::Shared, start, end) {
            if pattern.is_zero() || len > FILLED_BOUND {
                self.backing.punch_attached(start, end);
            } else {
                fill_host(start, len, pattern.bytes());
            }
            return;
        }
        let in_place =
            self.is(Content::Stored, start, end) || (len <= SMALL_FILL && !pattern.is_zero());
        if in_place && self.store(start, end) {
            fill_host(start, len, pattern.bytes());
        } else if pattern.is_zero() {
            self.forget(start, end);
        } else {
            self.forget(start, end);
            self.extents.insert(start, (end, Content::Pattern(pattern)));
        }
    }

    /// Host memory into device memory.
    pub fn write(&mut self, to: u64, from_host: u64, len: u64) {
        for (start, end) in self.parts(to, to + len) {
            self.write_part(start, from_host + (start - to), end - start);
        }
    }

    fn write_part(&mut self, to: u64, from_host: u64, len: u64) {
        let in_place = [Content::Exposed, Content::Shared];
        let is_in_place = in_place
            .iter()
            .any(|content| self.is(*content, to, to + len));
        if self.stored + len <= STORED_FIRST || is_in_place {
            return self.write_some(to, from_host, len);
        }
        let mut at = 0;
        while at < len {
            let part = PART.min(len - at);
            match repeated(from_host + at, part) {
                Some(word) if part > SMALL_FILL => {
                    self.fill_part(to + at, to + at + part, Pattern::anchored(&word, to + at));
                }
                _ => self.write_some(to + at, from_host + at, part),
            }
            at += part;
        }
    }

    fn write_some(&mut self, to: u64, from_host: u64, len: u64) {
        if self.store(to, to + len) {
            return copy_host(to, from_host, len);
        }
        BEYOND.call_once(|| {
            eprintln!(
                "mock-libcuda: this machine has no memory left for more than the {} MiB of different bytes that this process \
                 wrote to a device's; of what it writes beyond them only the first four bytes of each MiB are kept, repeated",
                self.stored >> 20
            );
        });
        let mut word = [0; 4];
        let known = len.min(4) as usize;
        copy_host(word.as_mut_ptr() as u64, from_host, known as u64);
        self.forget(to, to + len);
        self.extents.insert(
            to,
            (to + len, Content::Pattern(Pattern::anchored(&word, to))),
        );
    }

    /// Device memory into host memory.
    pub fn read(&self, from: u64, to_host: u64, len: u64) {
        for (start, end, content) in self.pieces(from, from + len) {
            let to = to_host + (start - from);
            match content {
                Some(Content::Stored | Content::Exposed | Content::Shared) => {
                    copy_host(to, start, end - start);
                }
                Some(Content::Pattern(pattern)) => {
                    let mut turned = pattern.bytes().to_vec();
                    let phase = (start % turned.len() as u64) as usize;
                    turned.rotate_left(phase);
                    let at_target = Pattern::anchored(&turned, to);
                    fill_host(to, end - start, at_target.bytes());
                }
                None => fill_host(to, end - start, &[0]),
            }
        }
    }

    /// Makes a range host-readable and -writable as it stands, for managed memory.
    pub fn expose(&mut self, start: u64, len: u64) {
        self.forget(start, start + len);
        self.extents.insert(start, (start + len, Content::Exposed));
    }

    /// The range reads as zero again and costs nothing.
    pub fn forget(&mut self, start: u64, end: u64) {
        if self.extents.is_empty() {
            return;
        }
        for (from, to) in self.parts(start, end) {
            // A part of what others map too: they go on with the rest.
            if self.is(Content::Shared, from, to)
                && self.extents.get(&from) != Some(&(to, Content::Shared))
            {
                self.backing.punch_attached(from, to);
            } else {
                self.forget_part(from, to);
            }
        }
    }

    fn forget_part(&mut self, start: u64, end: u64) {
        let pieces = self.pieces(start, end);
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.extents.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.extents.remove(&at);
        }
        for (from, to, content) in pieces {
            match content {
                Some(Content::Stored) => {
                    self.backing.punch(from, to);
                    self.stored -= to - from;
                }
                Some(Content::Exposed) => self.backing.punch(from, to),
                Some(Content::Shared) => {
                    self.backing.detach(from, to);
                    self.shared -= 1;
                }
                Some(Content::Pattern(_)) | None => {}
            }
        }
    }

    /// From here on the range is the file's from an offset on, which gets what the range held; or, for an importer, which has
    /// it already.
    pub fn share(
        &mut self,
        start: u64,
        end: u64,
        (file, offset): (&File, u64),
        keep: bool,
    ) -> io::Result<()> {
        if keep {
            for (from, to, content) in self.pieces(start, end) {
                let place = offset + (from - start);
                match content {
                    Some(Content::Stored | Content::Exposed) => save(file, place, from, to)?,
                    Some(Content::Pattern(pattern)) if to - from <= FILLED_BOUND => {
                        fill_host(from, to - from, pattern.bytes());
                        save(file, place, from, to)?;
                        self.backing.punch(from, to);
                    }
                    Some(Content::Pattern(_) | Content::Shared) | None => {}
                }
            }
        }
        self.forget(start, end);
        self.backing.attach(start, end, file, offset)?;
        self.extents.insert(start, (end, Content::Shared));
        self.shared += 1;
        Ok(())
    }

    /// A range cut where something begins or ends that others map too.
    fn parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        if self.shared == 0 {
            return vec![(start, end)];
        }
        let (mut parts, mut at) = (Vec::new(), start);
        for (from, to, content) in self.pieces(start, end) {
            if content == Some(Content::Shared) {
                parts.extend((at < from).then_some((at, from)));
                parts.push((from, to));
                at = to;
            }
        }
        parts.extend((at < end).then_some((at, end)));
        parts
    }

    /// Every piece of a range with its content, in order.
    fn pieces(&self, start: u64, end: u64) -> Vec<(u64, u64, Option<Content>)> {
        let mut pieces = Vec::new();
        let mut at = start;
        let first = self
            .extents
            .range(..=start)
            .next_back()
            .map_or(start, |(from, _)| *from);
        for (&from, &(to, content)) in self.extents.range(first..end) {
            if to <= at {
                continue;
            }
            if from > at {
                pieces.push((at, from, None));
                at = from;
            }
            pieces.push((at, to.min(end), Some(content)));
            at = to.min(end);
        }
        if at < end {
            pieces.push((at, end, None));
        }
        pieces
    }

    /// Whether one extent of this content holds all of a range.
    fn is(&self, wanted: Content, start: u64, end: u64) -> bool {
        let holder = self.extents.range(..=start).next_back();
        holder.is_some_and(|(_, (to, content))| *to >= end && *content == wanted)
    }

    /// Makes a range stored, its present content kept; false where the machine has no room for it.
    fn store(&mut self, start: u64, end: u64) -> bool {
        let in_place = [Content::Stored, Content::Exposed, Content::Shared];
        if in_place.iter().any(|content| self.is(*content, start, end)) {
            return true;
        }
        let pieces = self.pieces(start, end);
        let more: u64 = pieces
            .iter()
            .filter(|piece| piece.2 != Some(Content::Stored))
            .map(|piece| piece.1 - piece.0)
            .sum();
        if !self.may_store(self.stored + more) {
            return false;
        }
        for (from, to, content) in pieces {
            if let Some(Content::Pattern(pattern)) = content {
                fill_host(from, to - from, pattern.bytes());
            }
        }
        self.stored += more;
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.extents.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.extents.remove(&at);
        }
        self.insert_stored(start, end);
        true
    }

    /// Whether the machine has room for so many stored bytes in all. It is asked now and then: what was granted before is written by
    /// then, and no longer available.
    fn may_store(&mut self, wanted: u64) -> bool {
        if wanted <= self.granted {
            return true;
        }
        let more = (wanted - self.granted).next_multiple_of(STEP);
        let enough = (self.available)() >= more.saturating_add(SPARED);
        if enough {
            self.granted += more;
        }
        enough
    }

    /// Joined with stored neighbours, so that writing in pieces leaves one extent.
    fn insert_stored(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        if let Some(&(to, Content::Stored)) = self.extents.get(&end) {
            self.extents.remove(&end);
            end = to;
        }
        if let Some((&from, &(to, Content::Stored))) = self.extents.range(..start).next_back()
            && to == start
        {
            start = from;
        }
        self.extents.insert(start, (end, Content::Stored));
    }

    fn split(&mut self, at: u64) {
        if let Some((&from, &(to, content))) = self.extents.range(..at).next_back()
            && to > at
        {
            self.extents.insert(from, (at, content));
            self.extents.insert(at, (to, content));
        }
    }
}

/// Bytes of a range into a place of the file.
fn save(file: &File, place: u64, from: u64, to: u64) -> io::Result<()> {
    const PIECE: u64 = 1 << 20;
    let mut at = from;
    let mut piece = vec![0u8; PIECE.min(to - from) as usize];
    while at < to {
        let len = PIECE.min(to - at);
        copy_host(piece.as_mut_ptr() as u64, at, len);
        file.write_all_at(&piece[..len as usize], place + (at - from))?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 64 << 30;

    fn contents() -> Contents {
        Contents::new(Backing::reserve(SPAN).expect("address space"))
    }

    fn bytes(contents: &Contents, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        contents.read(at, bytes.as_mut_ptr() as u64, len as u64);
        bytes
    }

    #[test]
    fn untouched_memory_reads_as_zero() {
        let contents = contents();
        assert_eq!(bytes(&contents, contents.base() + 12345, 3), [0, 0, 0]);
    }

    #[test]
    fn a_fill_of_32_gib_is_remembered_and_can_be_written_over() {
        let mut contents = contents();
        let base = contents.base();
        contents.fill(base, 32 << 30, &[1, 2, 3, 4]);
        assert_eq!(bytes(&contents, base + (20 << 30) + 2, 4), [3, 4, 1, 2]);
        let data = [9u8, 8, 7];
        contents.write(base + 5, data.as_ptr() as u64, 3);
        assert_eq!(bytes(&contents, base + 3, 7), [4, 1, 9, 8, 7, 1, 2]);
        contents.fill(base, 32 << 30, &[0]);
        assert_eq!(bytes(&contents, base + 3, 4), [0; 4]);
        assert_eq!((contents.stored, contents.extents.len()), (0, 0));
    }

    #[test]
    fn a_forgotten_range_gives_its_bytes_back() {
        let mut contents = contents();
        let base = contents.base();
        let data = vec![7u8; 1 << 20];
        contents.write(base, data.as_ptr() as u64, 1 << 20);
        contents.write(base + (1 << 20), data.as_ptr() as u64, 1 << 20);
        assert_eq!((contents.stored, contents.extents.len()), (2 << 20, 1));
        contents.forget(base + 4096, base + (2 << 20));
        assert_eq!(contents.stored, 4096);
        assert_eq!(bytes(&contents, base + 4094, 4), [7, 7, 0, 0]);
    }

    #[test]
    fn managed_memory_is_written_in_place_and_not_counted() {
        let mut contents = contents();
        let base = contents.base();
        contents.expose(base, 32 << 30);
        contents.fill(base, 8, &[5]);
        fill_host(base + 2, 2, &[6]);
        assert_eq!(bytes(&contents, base, 6), [5, 5, 6, 6, 5, 5]);
        contents.fill(base, 32 << 30, &[0]);
        assert_eq!(bytes(&contents, base, 6), [0; 6]);
        contents.write(base, [9u8].as_ptr() as u64, 1);
        contents.forget(base, base + (32 << 30));
        assert_eq!((contents.stored, contents.extents.len()), (0, 0));
    }

    #[test]
    fn what_lies_across_two_shared_ranges_is_in_both_files_and_beside_them() {
        const PART: u64 = 2 << 20;
        let mut contents = contents();
        let base = contents.base();
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 * PART).expect("room");
        let before = [1u8; 8];
        contents.write(base + PART, before.as_ptr() as u64, 8);
        for at in [0, 1] {
            let start = base + at * PART;
            let place = (&file, (at + 1) * PART);
            contents
                .share(start, start + PART, place, true)
                .expect("mapped");
        }
        let mut seen = [0u8; 8];
        file.read_exact_at(&mut seen, 2 * PART).expect("read");
        assert_eq!(seen, before, "as it was when it became the file's");
        let all: Vec<u8> = (0..PART as usize + 8).map(|at| at as u8).collect();
        contents.write(base + PART - 4, all.as_ptr() as u64, all.len() as u64);
        file.read_exact_at(&mut seen, 2 * PART - 4).expect("read");
        assert_eq!(seen[..], all[..8]);
        assert_eq!(
            bytes(&contents, base + 2 * PART - 4, 8),
            all[PART as usize..]
        );
        contents.fill(base + PART - 4, PART + 8, &[1, 2, 3]);
        file.read_exact_at(&mut seen, 2 * PART - 4).expect("read");
        assert_eq!(seen, [1, 2, 3, 1, 2, 3, 1, 2]);
        assert_eq!(bytes(&contents, base + PART - 4, 8), seen);
        contents.forget(base, base + 3 * PART);
        assert_eq!(bytes(&contents, base + PART - 4, 8), [0; 8]);
        assert_eq!(
            (contents.shared, contents.stored, contents.extents.len()),
            (0, 0, 0)
        );
        file.read_exact_at(&mut seen, 2 * PART - 4).expect("read");
        assert_eq!(seen, [1, 2, 3, 1, 2, 3, 1, 2], "the file's own");
    }

    #[test]
    fn beyond_the_first_gib_bytes_are_kept_while_the_machine_has_room() {
        let mut contents = contents();
        let base = contents.base();
        contents.stored = STORED_FIRST;
        contents.available = || SPARED + STEP;
        let data = [1u8, 2, 3, 4, 5, 6, 7, 8];
        contents.write(base + 1, data.as_ptr() as u64, 8);
        assert_eq!(bytes(&contents, base + 1, 8), data);
        assert_eq!(contents.granted, STORED_FIRST + STEP);
        contents.available = || SPARED + STEP - 1;
        let many: Vec<u8> = (0..2 * STEP).map(|at| (at % 251) as u8).collect();
        contents.write(base + 4096, many.as_ptr() as u64, 2 * STEP);
        let kept = STEP as usize - (1 << 20);
        assert_eq!(
            bytes(&contents, base + 4096, kept),
            many[..kept],
            "what was granted before"
        );
        let last = bytes(&contents, base + 4096 + 2 * STEP - 8, 8);
        assert_ne!(last, many[many.len() - 8..], "the machine has no more");
    }

    #[test]
    fn without_room_a_write_is_kept_as_its_first_word() {
        let mut contents = contents();
        let base = contents.base();
        contents.stored = STORED_FIRST;
        contents.available = || 0;
        let data = [1u8, 2, 3, 4, 5, 6, 7, 8];
        contents.write(base + 1, data.as_ptr() as u64, 8);
        assert_eq!(bytes(&contents, base + 1, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn beyond_the_first_gib_a_repeated_word_takes_no_room() {
        let mut contents = contents();
        let base = contents.base();
        contents.stored = STORED_FIRST;
        contents.available = || 0;
        let data = [5u8, 6, 7, 8].repeat(1 << 19);
        contents.write(base + 2, data.as_ptr() as u64, data.len() as u64);
        assert_eq!(contents.stored, STORED_FIRST);
        assert_eq!(bytes(&contents, base + 2, data.len()), data);
    }

    #[test]
    fn this_machine_tells_what_it_has() {
        assert!(available() > 0, "/proc/meminfo");
    }
}
