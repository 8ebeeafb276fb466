//! Reads the loaded objects as the dynamic loader sees them. Allocates nothing.

use core::ffi::{CStr, c_int, c_void};
use core::mem::size_of;

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTRELSZ: i64 = 2;
const DT_JMPREL: i64 = 23;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// As in a table of relocations.
#[derive(Clone, Copy)]
#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: u64,
}

/// A place that the loader has filled with the address of a named symbol, or with what lies there.
pub struct Relocation<'a> {
    pub place: usize,
    pub name: &'a CStr,
    pub addend: usize,
    /// It has a copy of the symbol's bytes, not its address.
    pub copies: bool,
    /// The symbol is no function, as far as its object knows.
    pub may_be_data: bool,
}

#[cfg(target_arch = "x86_64")]
mod kind {
    pub const ABSOLUTE: u32 = 1;
    pub const COPY: u32 = 5;
    pub const GLOBAL: u32 = 6;
}
#[cfg(target_arch = "aarch64")]
mod kind {
    pub const ABSOLUTE: u32 = 257;
    pub const COPY: u32 = 1024;
    pub const GLOBAL: u32 = 1025;
}

/// How often the loader has loaded an object: another figure is another set of objects.
pub fn generation() -> u64 {
    unsafe extern "C" fn one(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, which has had this member since glibc 2.4; `data` is the place below.
        unsafe { *data.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loaded = 0_u64;
    // SAFETY: `one` has the expected signature and only uses `data` as the place it is.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut loaded).cast()) };
    loaded
}

/// The word at an address that the loader has filled, or of a mapped function's text.
pub fn word(address: usize) -> usize {
    // SAFETY: callers name places of relocations, symbols and exports of mapped objects, each a word long at least.
    unsafe { (address as *const usize).read_unaligned() }
}

/// A loaded object. Valid as long as the loader's lock is held or the object cannot be unloaded.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    pub base: usize,
    name: *const core::ffi::c_char,
    headers: &'a [Elf64_Phdr],
    dynamic: *const Dyn,
    strings: *const u8,
    symbols: *const Elf64_Sym,
    gnu_hash: *const u32,
    hash: *const u32,
    soname: u64,
}

/// Calls `visit` for each object of our namespace in the loader's order, under the loader's lock, until it answers true.
///
/// `visit` must not call the loader: the lock that is held here is the inner one of two.
pub fn each(visit: &mut dyn FnMut(&Object<'_>) -> bool) {
    unsafe extern "C" fn one(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the pointer that `each` passes below, alive for its whole call.
        let visit = unsafe { &mut *data.cast::<&mut dyn FnMut(&Object<'_>) -> bool>() };
        // SAFETY: the loader passes a valid record, and the object stays mapped while its lock is held.
        let object = unsafe { Object::of(&*info) };
        c_int::from(object.is_some_and(|object| visit(&object)))
    }
    let mut visit = visit;
    // SAFETY: `one` has the expected signature and only uses `data` as the pointer it is.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut visit).cast()) };
}

impl<'a> Object<'a> {
    /// # Safety
    /// `info` describes an object that stays mapped for `'a`.
    unsafe fn of(info: &'a dl_phdr_info) -> Option<Object<'a>> {
        let base = info.dlpi_addr as usize;
        // SAFETY: the loader gives the table and its length.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let dynamic = headers
            .iter()
            .find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut object = Object {
            base,
            name: info.dlpi_name,
            headers,
            dynamic: (base + dynamic.p_vaddr as usize) as *const Dyn,
            strings: core::ptr::null(),
            symbols: core::ptr::null(),
            gnu_hash: core::ptr::null(),
            hash: core::ptr::null(),
            soname: 0,
        };
        for (tag, value) in object.dynamic() {
            // glibc relocates these entries in place, other loaders and the vdso do not.
            let address = if (value as usize) < base {
                value as usize + base
            } else {
                value as usize
            };
            match tag {
                DT_STRTAB => object.strings = address as *const u8,
                DT_SYMTAB => object.symbols = address as *const Elf64_Sym,
                DT_GNU_HASH => object.gnu_hash = address as *const u32,
                DT_HASH => object.hash = address as *const u32,
                DT_SONAME => object.soname = value,
                _ => {}
            }
        }
        (!object.strings.is_null() && !object.symbols.is_null()).then_some(object)
    }

    fn dynamic(&self) -> impl Iterator<Item = (i64, u64)> + use<> {
        let mut entry = self.dynamic;
        core::iter::from_fn(move || {
            // SAFETY: a dynamic section is a mapped table that ends with DT_NULL.
            let (tag, value) = unsafe { ((*entry).tag, (*entry).value) };
            if tag == DT_NULL {
                return None;
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
            Some((tag, value))
        })
    }

    fn string(&self, offset: u64) -> &'a CStr {
        // SAFETY: the string table ends with a NUL, and the linker's offsets lie within it.
        unsafe { CStr::from_ptr(self.strings.add(offset as usize).cast()) }
    }

    /// The path that the loader knows it by; empty for the program.
    pub fn name(&self) -> &'a CStr {
        if self.name.is_null() {
            c""
        } else {
            // SAFETY: the loader's own string.
            unsafe { CStr::from_ptr(self.name) }
        }
    }

    /// The same into a buffer of zeros, whole or not at all: nothing may be allocated while the loader's lock is held.
    pub fn copy_name(&self, buffer: &mut [u8]) {
        let name = self.name().to_bytes_with_nul();
        if let Some(buffer) = buffer.get_mut(..name.len()) {
            buffer.copy_from_slice(name);
        }
    }

    pub fn soname(&self) -> Option<&'a CStr> {
        (self.soname != 0).then(|| self.string(self.soname))
    }

    pub fn needed(&self) -> impl Iterator<Item = &'a CStr> {
        let object = *self;
        self.dynamic()
            .filter(|(tag, _)| *tag == DT_NEEDED)
            .map(move |(_, offset)| object.string(offset))
    }

    /// Whether an address lies in one of its segments.
    pub fn contains(&self, address: usize) -> bool {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .any(|header| {
                let start = self.base + header.p_vaddr as usize;
                (start..start + header.p_memsz as usize).contains(&address)
            })
    }

    /// From its first to past its last mapped byte.
    pub fn range(&self) -> core::ops::Range<usize> {
        let loads = || {
            self.headers
                .iter()
                .filter(|header| header.p_type == libc::PT_LOAD)
        };
        let start = loads()
            .map(|header| self.base + header.p_vaddr as usize)
            .min()
            .unwrap_or(self.base);
        let end = loads()
            .map(|header| self.base + (header.p_vaddr + header.p_memsz) as usize)
            .max()
            .unwrap_or(self.base);
        start..end
    }

    /// The address of a datum, a pointer at least, that it defines and exports.
    pub fn data(&self, name: &CStr) -> Option<usize> {
        let found = self.definition(name)?;
        let is_data =
            found.st_info & 0xf == STT_OBJECT && found.st_size >= size_of::<usize>() as u64;
        is_data.then_some(self.base + found.st_value as usize)
    }

    /// Visits its relocations that name a symbol and are words of data.
    pub fn relocations(&self, visit: &mut dyn FnMut(&Relocation<'_>)) {
        let mut tables = [(0, 0); 2];
        for (tag, value) in self.dynamic() {
            let address = if (value as usize) < self.base {
                value as usize + self.base
            } else {
                value as usize
            };
            match tag {
                DT_RELA => tables[0].0 = address,
                DT_RELASZ => tables[0].1 = value as usize,
                DT_JMPREL => tables[1].0 = address,
                DT_PLTRELSZ => tables[1].1 = value as usize,
                _ => {}
            }
        }
        for (table, bytes) in tables.into_iter().filter(|(table, _)| *table != 0) {
            // SAFETY: the dynamic section says where the table is and how long.
            let rows = unsafe {
                core::slice::from_raw_parts(table as *const Rela, bytes / size_of::<Rela>())
            };
            for row in rows {
                let (symbol, kind) = ((row.info >> 32) as u32, row.info as u32);
                if symbol == 0 || !matches!(kind, kind::ABSOLUTE | kind::COPY | kind::GLOBAL) {
                    continue;
                }
                let symbol = self.at(symbol);
                visit(&Relocation {
                    place: self.base + row.offset as usize,
                    name: self.string(u64::from(symbol.st_name)),
                    addend: if kind == kind::ABSOLUTE {
                        row.addend as usize
                    } else {
                        0
                    },
                    copies: kind == kind::COPY,
                    may_be_data: matches!(symbol.st_info & 0xf, STT_NOTYPE | STT_OBJECT),
                });
            }
        }
    }

    /// Writes a word into its data, where the loader has made that read-only too.
    pub fn store(&self, place: usize, value: usize) {
        const PAGE: usize = 4096;
        let relro = self
            .headers
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_RELRO)
            .map(|header| {
                let start = self.base + header.p_vaddr as usize;
                start / PAGE * PAGE..start + header.p_memsz as usize
            });
        let page = (place / PAGE * PAGE) as *mut c_void;
        let length = place + size_of::<usize>() - page as usize;
        let protected = relro.is_some_and(|range| range.contains(&place));
        // SAFETY: pages of the object's own, which stays mapped while the loader's lock is held.
        let writable = !protected
            || unsafe { libc::mprotect(page, length, libc::PROT_READ | libc::PROT_WRITE) } == 0;
        if writable {
            // SAFETY: a place that the loader has filled itself, writable now; whoever reads it has the old word or the new one.
            unsafe { (place as *mut usize).write_unaligned(value) };
        }
        if protected && writable {
            // SAFETY: as above; it becomes what it was.
            unsafe { libc::mprotect(page, length, libc::PROT_READ) };
        }
    }

    /// The address of a function or object that it defines and exports. Versions are not looked at: the drivers have none, and of libc's
    /// versions of one name any will do here.
    pub fn symbol(&self, name: &CStr) -> Option<usize> {
        let found = self.definition(name)?;
        let address = self.base + found.st_value as usize;
        if found.st_info & 0xf == STT_GNU_IFUNC {
            // SAFETY: an indirect function's symbol is its resolver, which takes nothing we must pass on the architectures built for.
            let resolve: unsafe extern "C" fn() -> usize = unsafe { core::mem::transmute(address) };
            // SAFETY: as above; the object is relocated.
            return Some(unsafe { resolve() });
        }
        Some(address)
    }

    fn definition(&self, name: &CStr) -> Option<Elf64_Sym> {
        if !self.gnu_hash.is_null() {
            self.by_gnu_hash(name)
        } else if !self.hash.is_null() {
            self.by_hash(name)
        } else {
            None
        }
    }

    /// Whether one of its notes is of this owner: the name of an ELF note, its NUL included.
    pub fn has_note(&self, owner: &[u8]) -> bool {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE)
            .any(|header| {
                let start = self.base + header.p_vaddr as usize;
                // SAFETY: the segment is mapped and that long.
                let bytes = unsafe {
                    core::slice::from_raw_parts(start as *const u8, header.p_memsz as usize)
                };
                notes(bytes, header.p_align).any(|name| name == owner)
            })
    }

    /// Names of functions that it exports, in no order, none if it has no GNU hash table.
    pub fn exports(&self) -> impl Iterator<Item = &'a CStr> {
        let object = *self;
        let (first, count) = self.gnu_hash_extent();
        (first..count)
            .map(move |index| object.at(index))
            .filter(move |symbol| object.is_definition(symbol))
            .map(move |symbol| object.string(u64::from(symbol.st_name)))
    }

    fn at(&self, index: u32) -> Elf64_Sym {
        // SAFETY: indices come from the object's own hash tables.
        unsafe { *self.symbols.add(index as usize) }
    }

    fn is_definition(&self, symbol: &Elf64_Sym) -> bool {
        let (kind, binding, visibility) = (
            symbol.st_info & 0xf,
            symbol.st_info >> 4,
            symbol.st_other & 3,
        );
        symbol.st_shndx != 0
            && symbol.st_value != 0
            && kind != STT_TLS
            && matches!(binding, 1 | 2 | 10)
            && matches!(visibility, 0 | 3)
    }

    fn named(&self, index: u32, name: &CStr) -> Option<Elf64_Sym> {
        let symbol = self.at(index);
        (self.is_definition(&symbol) && self.string(u64::from(symbol.st_name)) == name)
            .then_some(symbol)
    }

    fn by_gnu_hash(&self, name: &CStr) -> Option<Elf64_Sym> {
        let hash = name.to_bytes().iter().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: the layout of DT_GNU_HASH: four counts, the Bloom filter of 64-bit words, the buckets, the chains.
        unsafe {
            let (buckets_len, first, bloom_len) =
                (*self.gnu_hash, *self.gnu_hash.add(1), *self.gnu_hash.add(2));
            if buckets_len == 0 {
                return None;
            }
            let buckets = self.gnu_hash.add(4 + 2 * bloom_len as usize);
            let chains = buckets.add(buckets_len as usize);
            let mut index = *buckets.add((hash % buckets_len) as usize);
            if index < first {
                return None;
            }
            loop {
                let chained = *chains.add((index - first) as usize);
                if chained | 1 == hash | 1
                    && let Some(symbol) = self.named(index, name)
                {
                    return Some(symbol);
                }
                if chained & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn by_hash(&self, name: &CStr) -> Option<Elf64_Sym> {
        let hash = name.to_bytes().iter().fold(0_u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(u32::from(*byte));
            let high = hash & 0xf000_0000;
            (hash ^ (high >> 24)) & !high
        });
        // SAFETY: the layout of DT_HASH: two counts, the buckets, the chains.
        unsafe {
            let buckets_len = *self.hash;
            if buckets_len == 0 {
                return None;
            }
            let chains = self.hash.add(2 + buckets_len as usize);
            let mut index = *self.hash.add(2 + (hash % buckets_len) as usize);
            while index != 0 {
                if let Some(symbol) = self.named(index, name) {
                    return Some(symbol);
                }
                index = *chains.add(index as usize);
            }
        }
        None
    }

    /// First hashed symbol and one past the last.
    fn gnu_hash_extent(&self) -> (u32, u32) {
        if self.gnu_hash.is_null() {
            return (0, 0);
        }
        // SAFETY: the layout as above.
        unsafe {
            let (buckets_len, first, bloom_len) =
                (*self.gnu_hash, *self.gnu_hash.add(1), *self.gnu_hash.add(2));
            let buckets = self.gnu_hash.add(4 + 2 * bloom_len as usize);
            let chains = buckets.add(buckets_len as usize);
            let mut last = (0..buckets_len as usize)
                .map(|bucket| *buckets.add(bucket))
                .max()
                .unwrap_or(0);
            if last < first {
                return (0, 0);
            }
            while *chains.add((last - first) as usize) & 1 == 0 {
                last += 1;
            }
            (first, last + 1)
        }
    }
}

/// The owners of a note segment's notes. Stops at what is no note.
fn notes(mut bytes: &[u8], align: u64) -> impl Iterator<Item = &[u8]> {
    // Entries are padded to 8 bytes only where the segment says so.
    let align = if align == 8 { 8 } else { 4 };
    core::iter::from_fn(move || {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (name, description) = (word(0)? as usize, word(4)? as usize);
        let owner = bytes.get(12..12usize.checked_add(name)?)?;
        let described = (12 + name).next_multiple_of(align);
        let next = described.checked_add(description)?.next_multiple_of(align);
        bytes = bytes.get(next..).unwrap_or_default();
        Some(owner)
    })
}

const _: () = assert!(size_of::<Dyn>() == 16);
