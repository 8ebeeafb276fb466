//! What a module's image says it needs of a device: its variables and its code.
//!
//! PTX, cubins (ELF) and fat binaries of them are read as far as sizes need; nothing is checked, unpacked or trusted: any
//! bytes give an answer. What is packed tells nothing of its variables; the driver's figure does after the load. Layouts of fat
//! binaries are those that nvcc 11 to 13 write.

use crate::Bytes;
use crate::charge::BLOCK;

use seeds::{Seed, planted};

const ELF_MAGIC: &[u8] = b"\x7fELF";
const FAT_MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// Of the structure that compilers put around a fat binary: magic, version, address.
const WRAPPER_MAGIC: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

const FAT_HEADER: usize = 16;
const FAT_ELF: u64 = 2;
const FAT_PACKED: u64 = 0x2000 | 0x8000;

const SECTION_HEADER: usize = 64;
/// SHT_SYMTAB.
const SYMBOLS: u64 = 2;

/// Bytes of a device that an image takes, as far as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Of variables that have blocks of their own, in whole blocks.
    pub own: Bytes,
    /// Of smaller ones, which share blocks, and of code.
    pub rest: Bytes,
    /// The most that those smaller ones hold of the blocks that they share: twice their size, and no more than a block each. A driver that packs
    /// them first fit leaves one block no more than half full.
    pub shared: Bytes,
    /// The most that managed variables take, in whole blocks together: none of the above.
    pub managed: Bytes,
    /// It calls malloc, for which a context keeps what the first such module takes.
    pub calls_malloc: bool,
    /// All of it could be read: it needs nothing else.
    pub whole: bool,
}

impl Needs {
    /// The most that its load takes; what no device holds is [`Bytes::MAX`].
    #[must_use]
    pub fn bound(self) -> Bytes {
        let rest = self.rest.round_up(BLOCK).unwrap_or(Bytes::MAX);
        self.lasting().saturating_add(rest)
    }

    /// What is its alone from its load to its end: variables with blocks of their own, and managed ones.
    #[must_use]
    pub fn lasting(self) -> Bytes {
        self.own.saturating_add(self.managed)
    }

    fn add_managed(&mut self, bytes: Bytes) {
        // Side by side, each where its kind may lie.
        const ALIGNED: Bytes = Bytes(512);
        let bytes = bytes.round_up(ALIGNED).unwrap_or(Bytes::MAX);
        self.managed = self.managed.saturating_add(bytes);
    }

    /// What lies side by side takes whole blocks together.
    fn rounded(self) -> Needs {
        Needs {
            managed: self.managed.round_up(BLOCK).unwrap_or(Bytes::MAX),
            ..self
        }
    }

    fn add_variable(&mut self, bytes: Bytes) {
        if bytes < BLOCK {
            let held = bytes.saturating_add(bytes).min(BLOCK);
            // Of the larger ones a block holds one or two, and has room left that none of the others needs (R31c of `fixtures/defects.txt`).
            let alone = bytes.0 >= BLOCK.0 / 32 && !planted(Seed::R31c);
            let most = if alone { held } else { bytes };
            self.rest = self.rest.saturating_add(most);
            self.shared = self.shared.saturating_add(held);
        } else {
            let blocks = bytes.round_up(BLOCK).unwrap_or(Bytes::MAX);
            self.own = self.own.saturating_add(blocks);
        }
    }
}

/// What an image begins like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// So many bytes long.
    Sized(usize),
    /// A fat binary lies at this address.
    Elsewhere(u64),
    /// Up to its NUL.
    Text,
}

impl Form {
    /// How many bytes [`Form::of`] looks at, at most.
    pub const LOOKS_AT: usize = 64;
    /// The length of a magic number, of whose bytes none is 0.
    pub const MAGIC: usize = 4;

    /// How many bytes [`Form::of`] looks at of what begins with these: no more than the header has that the magic number is of.
    #[must_use]
    pub fn header(first: &[u8]) -> usize {
        if first.starts_with(&WRAPPER_MAGIC) || first.starts_with(&FAT_MAGIC) {
            16
        } else if first.starts_with(ELF_MAGIC) {
            Self::LOOKS_AT
        } else {
            0
        }
    }

    /// By its first bytes. Only what is no other form needs to be no longer than a text.
    #[must_use]
    pub fn of(first: &[u8]) -> Form {
        let sized = |length: Option<u64>| {
            let length = length.and_then(|length| usize::try_from(length).ok());
            Form::Sized(length.unwrap_or(0))
        };
        if first.starts_with(&WRAPPER_MAGIC) {
            Form::Elsewhere(number(first, 8, 8).unwrap_or(0))
        } else if first.starts_with(&FAT_MAGIC) {
            let own = number(first, 6, 2);
            sized(own.and_then(|own| number(first, 8, 8)?.checked_add(own)))
        } else if first.starts_with(ELF_MAGIC) {
            // The section headers lie at the end.
            sized(sections(first).and_then(|(at, count)| at.checked_add(count * 64)))
        } else {
            Form::Text
        }
    }
}

/// What the image `bytes` needs.
#[must_use]
pub fn needs(bytes: &[u8]) -> Needs {
    if bytes.starts_with(&FAT_MAGIC) {
        fat(bytes)
    } else if bytes.starts_with(ELF_MAGIC) {
        elf(bytes).rounded()
    } else {
        ptx(bytes).rounded()
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let mut word = [0; 8];
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    word.get_mut(..length)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

/// Of the images of one program the driver takes one: the most that any needs.
fn fat(bytes: &[u8]) -> Needs {
    let mut most = Needs::default();
    let mut packed = false;
    let own = number(bytes, 6, 2).unwrap_or(0) as usize;
    let mut rest = bytes.get(own.max(FAT_HEADER)..).unwrap_or_default();
    while let Some((one, behind)) = entry(rest) {
        most = Needs {
            own: most.own.max(one.own),
            rest: most.rest.max(one.rest),
            shared: most.shared.max(one.shared),
            managed: most.managed.max(one.managed),
            calls_malloc: most.calls_malloc | one.calls_malloc,
            whole: true,
        };
        packed |= !one.whole;
        rest = behind;
    }
    most.whole &= !packed;
    most
}

/// What the first entry needs, and what lies behind it.
fn entry(bytes: &[u8]) -> Option<(Needs, &[u8])> {
    let own = usize::try_from(number(bytes, 4, 4)?).ok()?;
    let padded = usize::try_from(number(bytes, 8, 8)?).ok()?;
    let end = own.checked_add(padded)?;
    let payload = bytes.get(own..end)?;
    let behind = bytes.get(end..).filter(|_| end > 0)?;
    let needs = if number(bytes, 40, 8)? & FAT_PACKED != 0 {
        Needs {
            own: Bytes::ZERO,
            rest: Bytes(number(bytes, 56, 8)?),
            shared: Bytes::ZERO,
            managed: Bytes::ZERO,
            calls_malloc: false,
            whole: false,
        }
    } else if number(bytes, 0, 2)? == FAT_ELF {
        elf(payload)
    } else {
        ptx(payload)
    };
    Some((needs.rounded(), behind))
}

/// Where an ELF file's section headers lie and how many there are.
fn sections(bytes: &[u8]) -> Option<(u64, u64)> {
    (number(bytes, 0x3a, 2)? == SECTION_HEADER as u64).then_some(())?;
    Some((number(bytes, 0x28, 8)?, number(bytes, 0x3c, 2)?))
}

/// A symbol's bytes in a section of symbols.
const SYMBOL: usize = 24;

/// By STO_CUDA_MANAGED, as cuda-gdb knows it.
fn is_managed(symbol: &[u8]) -> bool {
    const STO_CUDA_MANAGED: u64 = 4;
    number(symbol, 5, 1).unwrap_or(0) & STO_CUDA_MANAGED != 0
}

/// Bytes of managed variables that a section of symbols names, each rounded up by `needs`.
fn managed(symbols: &[u8], needs: &mut Needs) -> Bytes {
    let mut all = Bytes::ZERO;
    for symbol in symbols
        .chunks_exact(SYMBOL)
        .filter(|symbol| is_managed(symbol))
    {
        let size = Bytes(number(symbol, 16, 8).unwrap_or(0));
        needs.add_managed(size);
        all = all.saturating_add(size);
    }
    all
}

/// By the sections' names: `.nv.global` and its like are variables, as large as their section or their symbols say, code and constants are kept beside them. Which
/// variables are managed is said by their symbols.
fn elf(bytes: &[u8]) -> Needs {
    let mut needs = Needs::default();
    let Some(headers) = sections(bytes).and_then(|(at, count)| {
        let headers = bytes.get(usize::try_from(at).ok()?..)?;
        Some(headers.chunks_exact(SECTION_HEADER).take(count as usize))
    }) else {
        return needs;
    };
    let names = number(bytes, 0x3e, 2)
        .and_then(|at| headers.clone().nth(at as usize))
        .and_then(|header| {
            let at = usize::try_from(number(header, 24, 8)?).ok()?;
            bytes.get(at..)
        })
        .unwrap_or_default();
    let symbols = headers
        .clone()
        .filter(|header| number(header, 4, 4) == Some(SYMBOLS))
        .filter_map(|header| {
            let place = |at| usize::try_from(number(header, at, 8)?).ok();
            let (at, length) = place(24).zip(place(32))?;
            bytes.get(at..at.checked_add(length)?)
        });
    let mut apart = Bytes::ZERO;
    for symbols in symbols.clone() {
        apart = apart.saturating_add(managed(symbols, &mut needs));
    }
    for (index, header) in (0..).zip(headers) {
        let at = number(header, 0, 4).unwrap_or(0) as usize;
        let name = names.get(at..).unwrap_or_default();
        let size = Bytes(number(header, 32, 8).unwrap_or(0));
        if name.starts_with(b".nv.global") {
            let managed = apart.min(size);
            apart = apart.saturating_sub(managed);
            let own = symbols
                .clone()
                .flat_map(|symbols| symbols.chunks_exact(SYMBOL))
                .filter(|symbol| number(symbol, 6, 2) == Some(index) && !is_managed(symbol))
                .filter_map(|symbol| number(symbol, 16, 8))
                .fold(Bytes::ZERO, |sum, size| sum.saturating_add(Bytes(size)));
            needs.add_variable(size.saturating_sub(managed).max(own));
        } else if name.starts_with(b".text") || name.starts_with(b".nv.constant") {
            needs.rest = needs.rest.saturating_add(size);
        }
    }
    const MALLOC: &[u8] = b"\0malloc\0";
    needs.calls_malloc = bytes.windows(MALLOC.len()).any(|name| name == MALLOC);
    needs.whole = !names.is_empty();
    needs
}

/// Variables in global memory by their declarations; code is not longer than its text.
fn ptx(text: &[u8]) -> Needs {
    let mut needs = Needs {
        own: Bytes::ZERO,
        rest: Bytes(text.len() as u64),
        shared: Bytes::ZERO,
        managed: Bytes::ZERO,
        calls_malloc: false,
        whole: true,
    };
    let mut words = Words {
        rest: text,
        depth: 0,
    };
    let (mut before, mut points): (&[u8], bool) = (b"", false);
    while let Some(word) = words.next() {
        match word {
            // `.tex` is `.global .texref`, and of any type.
            b".global" | b".tex" if !points && before != b".extern" => {
                declared(&mut words, &mut needs);
            }
            // Where a parameter points: `.ptr .align 16 .global`.
            b".ptr" => points = true,
            b"," | b")" => points = false,
            b".pragma" => {
                let depth = words.depth;
                words
                    .by_ref()
                    .take_while(|word| *word != b";")
                    .for_each(drop);
                words.depth = depth;
            }
            _ => {}
        }
        needs.calls_malloc |= word == b"malloc";
        // `.extern .weak .global`.
        if before != b".extern" || word != b".weak" {
            before = word;
        }
    }
    needs
}

/// The words and signs of a text; comments and what is quoted are none.
struct Words<'t> {
    rest: &'t [u8],
    /// Braces that are open: outside of them there are no instructions.
    depth: usize,
}

impl<'t> Words<'t> {
    fn skip_to(&mut self, end: &[u8]) {
        let at = self
            .rest
            .windows(end.len())
            .position(|window| window == end);
        self.rest = at.map_or(&[][..], |at| &self.rest[at + end.len()..]);
    }
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        let is_word =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'%');
        loop {
            let first = *self.rest.first()?;
            if first == b'"' {
                self.rest = &self.rest[1..];
                self.skip_to(b"\"");
            } else if self.rest.starts_with(b"//") {
                self.skip_to(b"\n");
            } else if self.rest.starts_with(b"/*") {
                self.rest = &self.rest[2..];
                self.skip_to(b"*/");
            } else if first.is_ascii_whitespace() {
                self.rest = &self.rest[1..];
            } else {
                // Directives may stand without a space before them; an instruction's name has its own points.
                let is_more = |byte: &&u8| match first {
                    _ if self.depth == 0 && **byte == b'.' => false,
                    b'.' => is_word(byte) && **byte != b'.',
                    b'0'..=b'9' => byte.is_ascii_alphanumeric(),
                    _ => is_word(byte),
                };
                let length = 1 + self.rest[1..].iter().take_while(is_more).count();
                let length = if is_word(&first) { length } else { 1 };
                self.depth = match first {
                    b'{' => self.depth + 1,
                    b'}' => self.depth.saturating_sub(1),
                    _ => self.depth,
                };
                let (word, rest) = self.rest.split_at(length);
                self.rest = rest;
                return Some(word);
            }
        }
    }
}

/// `.align 4 .v2 .f32 name[8][2] = {…}, other;` and the like, behind `.global`.
fn declared(words: &mut Words<'_>, needs: &mut Needs) {
    let mut each = 1_u64;
    let mut variable = Variable::default();
    let mut depth = 0;
    let mut is_managed = false;
    let mut add = |variable: Variable, each: u64, is_managed| {
        needs.whole &= !variable.unread;
        match is_managed {
            // No row of the driver's shows it: of a type that is not known the largest.
            true if variable.unread => {
                needs.add_managed(variable.bytes(each.saturating_mul(LARGEST)))
            }
            true => needs.add_managed(variable.bytes(each)),
            false => needs.add_variable(variable.bytes(each)),
        }
    };
    let mut align = 1;
    while let Some(word) = words.next() {
        match word {
            b";" => break,
            b".attribute" => is_managed |= is_managed_by(words),
            b"," if depth == 0 => add(
                std::mem::take(&mut variable).aligned(align),
                each,
                is_managed,
            ),
            b"[" if variable.written.is_none() => variable.dimension(words),
            b"=" => variable.written = Some(1),
            b"{" | b"(" => depth += 1,
            b"}" | b")" => depth -= 1,
            b"," => variable.written = variable.written.map(|count| count + 1),
            b".align" => align = words.next().and_then(number_of).unwrap_or(u64::MAX),
            word if variable.written.is_some() || !word.starts_with(b".") => {}
            word => match width(word) {
                Some(width) => each = each.saturating_mul(width),
                None => variable.unread = true,
            },
        }
    }
    let variable = variable.aligned(align);
    add(variable, each, is_managed);
}

/// What stands between parentheses behind `.attribute`: whether `.managed` does.
fn is_managed_by(words: &mut Words<'_>) -> bool {
    let (mut depth, mut is_managed) = (0, false);
    for word in words {
        match word {
            b"(" => depth += 1,
            b")" => depth -= 1,
            b".managed" => is_managed = true,
            _ => {}
        }
        if depth <= 0 {
            break;
        }
    }
    is_managed
}

/// Bytes of the largest type (`.b128`).
const LARGEST: u64 = 16;

/// What is known of a variable while its declaration is read.
#[derive(Default)]
struct Variable {
    elements: Option<u64>,
    /// An array without a size has its initializer's, which has a comma between any two.
    unsized_: bool,
    written: Option<u64>,
    /// Its size or its type is written otherwise than drivers are known to take it.
    unread: bool,
    /// Bytes of which its address is a multiple; 0 and 1 are any.
    align: u64,
}

impl Variable {
    /// Reads what stands between brackets: a number, for drivers take no expression there (H200, 580.159.04). What is none is left to the driver.
    fn dimension(&mut self, words: &mut Words<'_>) {
        let mut inside = words.take_while(|word| *word != b"]");
        let (size, is_more) = (inside.next(), inside.count() != 0);
        let Some(size) = size else {
            self.unsized_ = true;
            return;
        };
        match number_of(size).filter(|_| !is_more) {
            Some(count) => self.elements = Some(self.elements.unwrap_or(1).saturating_mul(count)),
            None if planted(Seed::R46) => self.elements = Some(0),
            None => self.unread = true,
        }
    }

    /// One that is aligned more widely than blocks are is the driver's to place.
    fn aligned(self, align: u64) -> Variable {
        Variable {
            align,
            unread: self.unread || align > BLOCK.0,
            ..self
        }
    }

    fn bytes(self, each: u64) -> Bytes {
        let elements = self.elements.unwrap_or(1);
        let all = match (self.unsized_, self.written) {
            // Of more dimensions that is too much: rows may be short.
            (true, Some(written)) => elements.saturating_mul(written),
            _ => elements,
        };
        Bytes(each.saturating_mul(all).max(self.align.min(BLOCK.0)))
    }
}

/// By how much a word of a declaration makes its elements larger. `None` for a word that is not known.
fn width(word: &[u8]) -> Option<u64> {
    match word {
        b".v2" => Some(2),
        b".f16x2" if planted(Seed::R68) => Some(1),
        b".e4m3" | b".e5m2" => Some(1),
        b".bf16" | b".e4m3x2" | b".e5m2x2" => Some(2),
        b".v4" | b".f16x2" | b".bf16x2" | b".tf32" => Some(4),
        b".v8" | b".texref" | b".samplerref" | b".surfref" => Some(8),
        b".b128" => Some(LARGEST),
        _ => bits(word).map(|bits| (bits / 8).max(1)),
    }
}

/// `.u8` to `.f64`: how many bits.
fn bits(word: &[u8]) -> Option<u64> {
    let (kind, digits) = word.strip_prefix(b".")?.split_first()?;
    matches!(kind, b'b' | b'u' | b's' | b'f').then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// As PTX writes integers (PTX ISA, "Integer Constants"), after which `U` may follow, and the one constant that a size may be (ptxas 12.9).
fn number_of(word: &[u8]) -> Option<u64> {
    if word == b"WARP_SZ" {
        return Some(32);
    }
    let text = std::str::from_utf8(word).ok()?.trim_end_matches('U');
    let is_decimal = !text.starts_with('0');
    if planted(Seed::R46) && !is_decimal {
        return None;
    }
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const MIB: u64 = 1 << 20;

    #[rstest]
    #[case(".global .align 4 .b8 x[2147483648];", 2048 * MIB)]
    #[case(".visible .global .align 8 .f64 table[512][0x400];", 4 * MIB)]
    #[case("\t.global .v4 .f32 p[1000000];", 16 * MIB)]
    #[case(".global .u32 a[1048576], b, c[1048577];", 4 * MIB + 6 * MIB)]
    #[case(
        "// .global .b8 x[2147483648];\n/* .global .b8 y[2147483648]; */ .file 1 \".global .b8 z[2147483648];\"",
        0
    )]
    #[case(".extern .weak .global .b8 there[4194304];", 0)]
    #[case(".extern .global .u32 there;\n.const .b8 c[2097152];", 0)]
    #[case(
        ".entry k(.param .u64 .ptr .global .align 16 a, .param .b8 c[4194304]) { { ld.global.u32 %r1, [%d1]; } st.global.u32 [%d1], 4194304; }",
        0
    )]
    #[case(".extern .global .b8 theirs[104857600];\n.global .b8 ours[2097152];", 2 * MIB)]
    #[case(".global .u64 x[18446744073709551615][4];", u64::MAX)]
    #[case(".global .attribute(.managed) .b8 m[2097152];", 0)]
    #[case(".visible.global.align 4.b8 glued[4194304];", 4 * MIB)]
    #[case(".version 7.0.target sm_70.global.b8 glued[4194304];", 4 * MIB)]
    #[case(
        ".entry k.maxntid 1, 1, 1 { ret; }.entry other { ld.global.u32 %r1, [%d1]; }.global.b8 glued[4194304];",
        4 * MIB
    )]
    #[case(".tex .align 8 .b8 t[4194304];", 4 * MIB)]
    #[case(".global .v8 .b64 x[65536];", 4 * MIB)]
    #[case(".global .bf16x2 x[1048576]; .global .texref t[524288];", 8 * MIB)]
    #[case(".pragma \"x\" { ;\n.loc 1 2 3, function_name foo.global .b8 x[4194304];", 4 * MIB)]
    #[case(
        ".entry q(.param .u64 .ptr .align 8 .global a, .param .u64 b) .attribute([0]) {} .global .b8 x[4194304];",
        4 * MIB
    )]
    #[case(".global .attribute(.unified(=)) .b8 x[4194304];", 4 * MIB)]
    #[case(".global .b8 x[0b10000000000000000000000];", 4 * MIB)]
    #[case(".global .b8 x[020000000U];", 4 * MIB)]
    #[case(".global", 0)]
    #[case(".global [", 0)]
    fn a_text_says_what_its_large_variables_take(#[case] text: &str, #[case] bytes: u64) {
        assert_eq!(needs(text.as_bytes()).own, Bytes(bytes));
    }

    #[rstest]
    #[case(".global .f16x2 x[1048576];", 4 * MIB, true)]
    #[case(".global .b8 x[WARP_SZ][131072];", 4 * MIB, true)]
    #[case(".global .align 2097152 .b8 x[1], y[1];", 4 * MIB, true)]
    #[case(".global .align 4194304 .b8 x[1];", 2 * MIB, false)]
    #[case(".global .f8x4 x[4194304];", 4 * MIB, false)]
    #[case(
        ".global .attribute(.managed, .unified(1, 2)) .f32 x[2097152] = {0.5, .5};",
        0,
        true
    )]
    fn what_a_declaration_says_is_read_or_left_to_the_driver(
        #[case] text: &str,
        #[case] own: u64,
        #[case] whole: bool,
    ) {
        let read = needs(text.as_bytes());
        assert_eq!((read.own, read.whole), (Bytes(own), whole));
    }

    #[rstest]
    #[case(".tex .attribute(.managed) .b8 m[4194304];", 4 * MIB)]
    #[case(".global .attribute(.unified(=), .managed) .b8 m[4194304];", 4 * MIB)]
    #[case(".global .attribute(.unified(0x1,[0]), .managed) .b8 m[4194304];", 4 * MIB)]
    #[case(".global .attribute(.managed) .f8x4 m[4194304];", 64 * MIB)]
    fn managed_variables_are_read_however_they_are_written(
        #[case] text: &str,
        #[case] managed: u64,
    ) {
        assert_eq!(needs(text.as_bytes()).managed, Bytes(managed));
    }

    #[rstest]
    #[case("1024*1024*4")]
    #[case("(1 + 3) << 20")]
    #[case("9x00000")]
    #[case("-1")]
    #[case("name")]
    #[case("18446744073709551616")]
    fn a_size_that_is_no_number_is_left_to_the_driver(#[case] size: &str) {
        let read = needs(format!(".global .b8 x[{size}], y[4194304];").as_bytes());
        assert_eq!((read.own, read.whole), (Bytes(4 * MIB), false));
    }

    #[rstest]
    #[case(".global .u32 a[] = {1, 2, 3};", 12)]
    #[case(".global .f32 h[4] = {0f3F000000, 0.5, 1.5, 2.0};", 16)]
    #[case(".global .u64 where = counter;", 8)]
    #[case(".global .v4 .f32 p;", 16)]
    fn small_ones_are_counted_with_the_code(#[case] text: &str, #[case] bytes: u64) {
        let expected = Needs {
            own: Bytes::ZERO,
            rest: Bytes(text.len() as u64 + bytes),
            shared: Bytes(2 * bytes),
            managed: Bytes::ZERO,
            calls_malloc: false,
            whole: true,
        };
        assert_eq!(needs(text.as_bytes()), expected);
        assert_eq!(expected.bound(), BLOCK);
    }

    #[rstest]
    #[case(".global .attribute(.managed) .b8 m[2097152];", 2 * MIB)]
    #[case(".visible .global .attribute(.managed, .unified(1, 2)) .align 4 .u32 m[3];", 2 * MIB)]
    #[case(".global .attribute(.managed) .b8 a[4194304], b;\n.global .u32 c;", 6 * MIB)]
    #[case(".global .b8 managed[2097152];", 0)]
    fn a_text_says_what_its_managed_variables_take(#[case] text: &str, #[case] bytes: u64) {
        assert_eq!(needs(text.as_bytes()).managed, Bytes(bytes));
    }

    #[test]
    fn a_cubins_symbols_say_which_variables_are_managed() {
        let mut bytes = cubin(&[(".nv.global", 5 * MIB), (".symtab", 72)]);
        let symbols = bytes.len() as u64;
        // The headers: none, .nv.global, .symtab.
        let headers = bytes.len() - 3 * 64;
        bytes[headers + 128 + 4] = 2;
        bytes[headers + 128 + 24..][..8].copy_from_slice(&symbols.to_le_bytes());
        for (other, size) in [(0, 0), (0, 2 * MIB), (4, 3 * MIB)] {
            let mut symbol = [0; 24];
            symbol[5] = other;
            symbol[16..].copy_from_slice(&u64::to_le_bytes(size));
            bytes.extend(symbol);
        }
        let needs = needs(&bytes);
        assert_eq!((needs.own, needs.managed), (Bytes::mib(2), Bytes::mib(4)));
        // A table that lies nowhere names nothing.
        bytes.truncate(symbols as usize);
        assert_eq!(super::needs(&bytes).managed, Bytes::ZERO);
    }

    /// An ELF file whose sections have these names and sizes.
    fn cubin(sections: &[(&str, u64)]) -> Vec<u8> {
        let mut names = vec![0];
        let places: Vec<u32> = sections
            .iter()
            .map(|(name, _)| {
                let at = names.len() as u32;
                names.extend(name.bytes().chain([0]));
                at
            })
            .collect();
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(ELF_MAGIC);
        bytes[0x28..0x30].copy_from_slice(&(64 + names.len() as u64).to_le_bytes());
        bytes[0x3a] = 64;
        bytes[0x3c] = u8::try_from(sections.len() + 1).unwrap();
        bytes.extend(&names);
        let mut header = [0; 64];
        header[24] = 64;
        bytes.extend(header);
        for ((_, size), place) in sections.iter().zip(places) {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&place.to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            bytes.extend(header);
        }
        bytes
    }

    fn fat_of(kind: u8, flags: u64, payload: &[u8], unpacked: u64) -> Vec<u8> {
        let mut entry = vec![0; 64];
        entry[0] = kind;
        entry[4] = 64;
        entry[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        entry[40..48].copy_from_slice(&flags.to_le_bytes());
        entry[56..64].copy_from_slice(&unpacked.to_le_bytes());
        entry.extend(payload);
        let mut bytes = FAT_MAGIC.to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((entry.len() as u64).to_le_bytes());
        bytes.extend(entry);
        bytes
    }

    #[test]
    fn a_cubin_says_it_by_its_sections() {
        let bytes = cubin(&[
            (".nv.global", 1 << 30),
            (".nv.global.init", 100),
            (".text.k", 4096),
            (".nv.shared.k", 1 << 30),
            (".symtab", 1 << 30),
        ]);
        let expected = Needs {
            own: Bytes(1 << 30),
            rest: Bytes(4196),
            shared: Bytes(200),
            managed: Bytes::ZERO,
            calls_malloc: false,
            whole: true,
        };
        assert_eq!(needs(&bytes), expected);
        assert_eq!(Form::of(&bytes), Form::Sized(bytes.len()));
        assert_eq!(needs(&fat_of(2, 0, &bytes, 0)), expected);
    }

    #[test]
    fn small_variables_hold_no_more_than_a_block_each() {
        let bytes = cubin(&[(".nv.global.a", (2 << 20) - 1), (".nv.global.b", 100)]);
        assert_eq!(needs(&bytes).shared, Bytes((2 << 20) + 200));
        assert_eq!(needs(&bytes).own, Bytes::ZERO);
    }

    #[test]
    fn what_is_packed_tells_its_size_alone() {
        let bytes = fat_of(2, 0x2000, b"packed", 12345);
        assert_eq!(needs(&bytes).rest, Bytes(12345));
        assert_eq!(Form::of(&bytes), Form::Sized(bytes.len()));
    }

    #[test]
    fn a_wrapper_points_elsewhere() {
        let mut bytes = WRAPPER_MAGIC.to_vec();
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(0x7f00_1234_u64.to_le_bytes());
        assert_eq!(Form::of(&bytes), Form::Elsewhere(0x7f00_1234));
        assert_eq!(Form::of(b".version 7.0"), Form::Text);
        assert_eq!(Form::of(b""), Form::Text);
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(start in 0_usize..4, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let magic: &[u8] = [ELF_MAGIC, &FAT_MAGIC, &WRAPPER_MAGIC, b".global "][start];
            let bytes = [magic, &bytes].concat();
            let _ = (needs(&bytes), needs(&bytes).bound(), Form::of(&bytes));
        }
    }
}
