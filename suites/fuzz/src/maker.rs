//! What an argument is made of: a call's bytes, handles that were given before, and what the driver does not survive.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use crate::input::CALL;
use crate::oracle::Deaths;

/// What a handle or an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Context,
    /// A green context.
    Green,
    Stream,
    Event,
    Pool,
    Array,
    Mipmap,
    Physical,
    Module,
    Function,
    Library,
    Kernel,
    Graph,
    Node,
    Exec,
    /// A device address.
    Address,
    /// One of the 32-bit entry points.
    Low,
    /// A descriptor of exported memory.
    Descriptor,
    /// Imported external memory.
    External,
    Texture,
    Surface,
    Link,
    UserObject,
    /// Of a part of a device.
    ResourceDescription,
    /// Page-locked memory.
    Host,
    /// A range of addresses that is reserved, and one that is mapped.
    Reserved,
    Mapped,
    Nvml,
}

/// What sequences over all exports are given to: what needs several rare things at once is reached by them alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Habit {
    #[default]
    None,
    /// Arrays are sparse, and physical memory is for their tiles.
    Sparse,
    /// Pools can be exported.
    Sharing,
}

impl Kind {
    /// In the order of their numbers.
    pub const ALL: [Kind; KINDS] = [
        Kind::Context,
        Kind::Green,
        Kind::Stream,
        Kind::Event,
        Kind::Pool,
        Kind::Array,
        Kind::Mipmap,
        Kind::Physical,
        Kind::Module,
        Kind::Function,
        Kind::Library,
        Kind::Kernel,
        Kind::Graph,
        Kind::Node,
        Kind::Exec,
        Kind::Address,
        Kind::Low,
        Kind::Descriptor,
        Kind::External,
        Kind::Texture,
        Kind::Surface,
        Kind::Link,
        Kind::UserObject,
        Kind::ResourceDescription,
        Kind::Host,
        Kind::Reserved,
        Kind::Mapped,
        Kind::Nvml,
    ];
}

/// More of one kind than a sequence can make.
const MOST_LIVE: usize = 32_768;
/// Of sizes that were granted, and of structures of one type that the driver wrote: the last so many.
const MOST_KEPT: usize = 8;
const KINDS: usize = Kind::Nvml as usize + 1;
/// What goes with a context.
const OF_CONTEXTS: [Kind; 12] = [
    Kind::Stream,
    Kind::Event,
    Kind::Array,
    Kind::Mipmap,
    Kind::Module,
    Kind::Function,
    Kind::Exec,
    Kind::Graph,
    Kind::Node,
    Kind::Pool,
    Kind::Texture,
    Kind::Surface,
];

/// What a sequence was given and has not ended, and what it has.
#[derive(Default)]
pub struct Handles {
    live: [Vec<u64>; KINDS],
    gone: [Vec<u64>; KINDS],
    /// Mapped ranges and reserved ones: address and size.
    pub mapped: Vec<(u64, u64)>,
    pub reserved: Vec<(u64, u64)>,
    /// Sizes that were granted last: what is mapped has to be as long as what it is mapped to.
    pub sizes: Vec<u64>,
    /// How much was asked for where one was given that lives, by its handle or address.
    of: HashMap<(usize, u64), u64>,
    /// Contexts that were attached to, once for each time.
    pub attached: Vec<u64>,
    /// Structures without handles and addresses that the driver wrote last, by type.
    pub written: Vec<(&'static str, Vec<u8>)>,
}

impl Handles {
    pub fn live(&self, kind: Kind) -> &[u64] {
        &self.live[kind as usize]
    }

    /// Whether there is one.
    pub fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Reserved => !self.reserved.is_empty(),
            Kind::Mapped => !self.mapped.is_empty(),
            _ => !self.live(kind).is_empty(),
        }
    }

    pub fn gone(&self, kind: Kind) -> &[u64] {
        &self.gone[kind as usize]
    }

    pub fn enter(&mut self, kind: Kind, value: u64) {
        let live = &mut self.live[kind as usize];
        // A driver gives some handles again and again: a primary context, a module's function.
        if live.len() < MOST_LIVE && !live.contains(&value) {
            live.push(value);
        }
    }

    /// So much was granted.
    pub fn enter_size(&mut self, size: u64) {
        if self.sizes.len() == MOST_KEPT {
            self.sizes.remove(0);
        }
        self.sizes.push(size);
    }

    /// So much was asked for, and this was given.
    pub fn enter_size_of(&mut self, kind: Kind, value: u64, size: u64) {
        self.of.insert((kind as usize, value), size);
    }

    /// How much was asked for of all of a kind that were given.
    pub fn size_of_all(&self, kind: Kind) -> u64 {
        let sizes = self.of.iter().filter(|((of, _), _)| *of == kind as usize);
        sizes.map(|(_, size)| *size).sum()
    }

    /// How much was asked for when it was given: a mapped or reserved range is as long as it was made.
    pub fn size_of(&self, kind: Kind, value: u64) -> Option<u64> {
        let range = |ranges: &[(u64, u64)]| {
            let found = ranges.iter().find(|(start, _)| *start == value);
            found.map(|(_, size)| *size)
        };
        match kind {
            Kind::Address => range(&self.mapped).or_else(|| range(&self.reserved)),
            _ => self.of.get(&(kind as usize, value)).copied(),
        }
    }

    /// The driver wrote a structure of this type.
    pub fn enter_written(&mut self, kind: &'static str, bytes: Vec<u8>) {
        let same = |(of, _): &&(&str, _)| *of == kind;
        if self.written.iter().filter(same).count() == MOST_KEPT
            && let Some(first) = self.written.iter().position(|(of, _)| *of == kind)
        {
            self.written.remove(first);
        }
        self.written.push((kind, bytes));
    }

    /// It was ended, and what is inside it with it.
    pub fn leave(&mut self, kind: Kind, value: u64) {
        let live = &mut self.live[kind as usize];
        if let Some(at) = live.iter().position(|&one| one == value) {
            live.remove(at);
            // No driver survives one of those that is gone.
            if kind != Kind::External {
                self.gone[kind as usize].push(value);
            }
        }
        match kind {
            Kind::Module => self.all_gone(Kind::Function),
            Kind::Library => {
                self.all_gone(Kind::Kernel);
                self.all_gone(Kind::Function);
            }
            Kind::Graph => self.all_gone(Kind::Node),
            // Of a mipmap's levels nobody asks.
            Kind::Context => self.context_gone(),
            _ => {}
        }
    }

    pub fn context_gone(&mut self) {
        OF_CONTEXTS.into_iter().for_each(|kind| self.all_gone(kind));
    }

    fn all_gone(&mut self, kind: Kind) {
        let live = std::mem::take(&mut self.live[kind as usize]);
        self.gone[kind as usize].extend(live);
    }

    pub fn clear(&mut self) {
        self.live.iter_mut().for_each(Vec::clear);
        self.gone.iter_mut().for_each(Vec::clear);
        self.mapped.clear();
        self.reserved.clear();
        self.sizes.clear();
        self.of.clear();
        self.attached.clear();
        self.written.clear();
    }
}

/// Where the driver may write, and what it means then.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub address: usize,
    pub bytes: usize,
    pub kind: Option<Kind>,
    /// Whether every process is told the same number.
    pub exact: bool,
}

/// Makes the arguments of one call.
pub struct Maker<'a> {
    bytes: &'a [u8; CALL],
    at: usize,
    chance: u64,
    pub name: &'static str,
    /// Which argument.
    pub place: usize,
    pub deaths: &'static Deaths,
    pub handles: &'a mut Handles,
    pub outs: Vec<Out>,
    /// The first handle that was given by value.
    pub first: Option<(Kind, u64)>,
    /// The driver would not survive what could be made.
    pub skip: bool,
    /// The last list is none, so its length is 0.
    pub no_list: bool,
    /// What an address and a size were, of what maps.
    pub sizes: Vec<u64>,
    /// How much is asked for.
    pub asked: Option<u64>,
    /// It is a call over all exports, of which each needs what a budget grants.
    pub surface: bool,
    pub habit: Habit,
    /// What its addresses are of, where that is ranges.
    pub ranges: Option<Kind>,
    /// Structures that the driver may write, without handles and addresses: type, place, bytes.
    pub written: Vec<(&'static str, usize, usize)>,
    /// A descriptor of ours that the driver takes if it grants the call.
    pub lent: Option<OwnedFd>,
    /// The arguments in words, where they are wanted.
    pub told: Option<String>,
}

impl<'a> Maker<'a> {
    /// The first of the bytes says which call it is.
    pub fn new(
        bytes: &'a [u8; CALL],
        name: &'static str,
        deaths: &'static Deaths,
        handles: &'a mut Handles,
        outs: Vec<Out>,
        told: bool,
    ) -> Self {
        Self::after(1, bytes, name, deaths, handles, outs, told)
    }

    /// The first `at` of the bytes say what is called, and how.
    pub fn after(
        at: usize,
        bytes: &'a [u8; CALL],
        name: &'static str,
        deaths: &'static Deaths,
        handles: &'a mut Handles,
        outs: Vec<Out>,
        told: bool,
    ) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self {
            bytes,
            at,
            chance: word(0) ^ word(8).rotate_left(17) ^ word(16).rotate_left(31) ^ word(24),
            name,
            place: 0,
            deaths,
            handles,
            outs,
            first: None,
            skip: false,
            no_list: false,
            sizes: Vec::new(),
            asked: None,
            surface: false,
            habit: Habit::None,
            ranges: None,
            written: Vec::new(),
            lent: None,
            told: told.then(String::new),
        }
    }

    pub fn byte(&mut self) -> u8 {
        if let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            return byte;
        }
        // splitmix64: what is left of a long call follows from its bytes.
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 32) as u8
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Whether a pointer is to be NULL; never where the driver would not look.
    pub fn is_null(&mut self) -> bool {
        self.byte() < 12 && !self.deaths.by_null(self.place)
    }

    /// A size: near every edge that rounding has, or anything.
    pub fn size(&mut self) -> u64 {
        const EDGES: [u64; 8] = [
            512,
            4 << 10,
            64 << 10,
            2 << 20,
            32 << 20,
            128 << 20,
            512 << 20,
            1 << 30,
        ];
        let size = match self.byte() {
            0..=7 => 0,
            8..=31 => u64::from(self.byte()),
            32..=119 => {
                let edge = self.one_of(&EDGES[..5]);
                let times = u64::from(self.byte() % 4);
                (edge * times)
                    .wrapping_add(u64::from(self.byte() % 3))
                    .wrapping_sub(1)
            }
            120..=135 => self.one_of(&EDGES) * u64::from(self.byte() % 64),
            // Whole blocks: what maps takes no other.
            136..=223 => u64::from(self.byte() % 8) << 21,
            224..=239 => {
                let bit = self.byte() % 64;
                (1_u64 << bit)
                    .wrapping_add(u64::from(self.byte() % 3))
                    .wrapping_sub(1)
            }
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => self.word(),
        };
        self.sizes.push(size);
        size
    }

    /// Something small, mostly one of the first `known`; or anything.
    pub fn number(&mut self, known: u64) -> u64 {
        let number = match self.byte() {
            0..=199 => u64::from(self.byte()) % known.max(1),
            200..=223 => u64::from(self.byte()),
            224..=239 => 1 << (self.byte() % 64),
            _ => self.word(),
        };
        match self.deaths.by_number(self.place, number) {
            true => 0,
            false => number,
        }
    }

    /// Flags: none, one of the low bits, or anything.
    pub fn flags(&mut self) -> u64 {
        let flags = match self.byte() {
            0..=159 => 0,
            160..=231 if self.habit == Habit::Sharing => 0,
            160..=231 => 1 << (self.byte() % 5),
            232..=247 => u64::from(self.byte()),
            _ => self.word(),
        };
        self.deaths.without(self.place, flags)
    }

    /// A handle of a kind: one that lives, none, or one that is gone where the driver survives it.
    pub fn handle(&mut self, kind: Kind) -> u64 {
        let chosen = self.byte();
        let nth = usize::from(self.byte());
        let of = |list: &[u64]| (!list.is_empty()).then(|| list[nth % list.len()]);
        let stale = !self.deaths.by_stale(self.place);
        let found = match chosen {
            0..=11 => None,
            12..=27 if stale => of(self.handles.gone(kind)),
            28..=43 if kind == Kind::Stream => Some(1 + u64::from(chosen % 2)),
            44..=75 if kind == Kind::Stream => None,
            // What came last is what a client works with.
            76..=139 => self.handles.live(kind).last().copied(),
            _ => of(self.handles.live(kind)),
        };
        let value = found.unwrap_or(0);
        if value == 0 && self.deaths.by_null(self.place) {
            self.skip = true;
        }
        self.first = self.first.or(Some((kind, value)));
        value
    }

    /// A device address: one that was given, inside or behind one, one that is gone, in a reserved range, none, or anything.
    pub fn address(&mut self, kind: Kind) -> u64 {
        let ranges = match self.ranges {
            Some(Kind::Mapped) => &self.handles.mapped,
            _ => &self.handles.reserved,
        };
        let ranges = ranges.len() * usize::from(self.ranges.is_some() && kind == Kind::Address);
        let value = match self.byte() {
            64.. if ranges > 0 => {
                let nth = usize::from(self.byte()) % ranges;
                match self.ranges {
                    Some(Kind::Mapped) => self.handles.mapped[nth].0,
                    _ => self.handles.reserved[nth].0,
                }
            }
            0..=7 => 0,
            8..=15 => self.word(),
            // Inside or just behind: what lies further off differs from process to process.
            16..=31 => {
                let from = self.handle(kind);
                let off = self.one_of(&[1, 256]);
                from.wrapping_add(off)
            }
            32..=111 if kind == Kind::Address && self.looks_for_ranges() => {
                let nth = usize::from(self.byte());
                let blocks = u64::from(self.byte() % 4);
                match self.handles.reserved.len() {
                    // What is mapped, as often as where it could be.
                    _ if self.surface && nth % 2 == 0 && !self.handles.mapped.is_empty() => {
                        let mapped = &self.handles.mapped;
                        mapped[nth / 2 % mapped.len()].0
                    }
                    // The beginning more often than anything inside: what is mapped there mostly fills it.
                    some if self.surface && some > 0 && blocks < 2 => {
                        self.handles.reserved[nth % some].0
                    }
                    0 => 0,
                    some => {
                        let (start, size) = self.handles.reserved[nth % some];
                        start + (blocks << 21) % size.max(1)
                    }
                }
            }
            _ => self.handle(kind),
        };
        self.first = Some((kind, value));
        self.sizes.push(value);
        value
    }

    /// Over all exports none is looked for where there is none.
    fn looks_for_ranges(&self) -> bool {
        !self.surface || self.handles.has(Kind::Reserved)
    }

    /// The length of the last list, which has room for so many.
    pub fn length(&mut self, room: u64) -> u64 {
        let length = u64::from(self.byte()) % (room + 1);
        let dies = self.deaths.by_number(self.place, length);
        if self.no_list || dies { 0 } else { length }
    }

    pub fn tell(&mut self, argument: &str, value: std::fmt::Arguments<'_>) {
        if let Some(told) = &mut self.told {
            let comma = if told.is_empty() { "" } else { ", " };
            told.push_str(&format!("{comma}{argument} {value}"));
        }
    }
}
