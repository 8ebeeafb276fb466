//! Reads the loaded objects as the dynamic loader sees them: its list, as `<link.h>` shows it to everybody. Allocates nothing.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;

use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Sym};

use super::loader;

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_RELACOUNT: i64 = 0x6fff_fff9;
const DT_PLTRELSZ: i64 = 2;
const DT_JMPREL: i64 = 23;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;
const PAGE: usize = 4096;

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

/// What DT_GNU_HASH has a name by.
pub const fn gnu_hash(name: &[u8]) -> u32 {
    let (mut hash, mut at) = (5381_u32, 0);
    while at < name.len() {
        hash = hash.wrapping_mul(33).wrapping_add(name[at] as u32);
        at += 1;
    }
    hash
}

fn is_weak_reference(symbol: &Elf64_Sym) -> bool {
    const STB_WEAK: u8 = 2;
    symbol.st_shndx == 0 && symbol.st_info >> 4 == STB_WEAK
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
    /// Calls alone go by it. One that is yet to be bound, at its first call, leads to the loader.
    pub is_called: bool,
    /// Its object does without a definition: then the address is 0.
    pub is_weak: bool,
}

#[cfg(target_arch = "x86_64")]
mod kind {
    pub const ABSOLUTE: u32 = 1;
    pub const COPY: u32 = 5;
    pub const GLOBAL: u32 = 6;
    pub const CALL: u32 = 7;
}
#[cfg(target_arch = "aarch64")]
mod kind {
    pub const ABSOLUTE: u32 = 257;
    pub const COPY: u32 = 1024;
    pub const GLOBAL: u32 = 1025;
    pub const CALL: u32 = 1026;
}

/// glibc's `struct link_map`, as far as `<link.h>` shows it. A handle of dlopen's is a pointer to one.
#[repr(C)]
pub struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
    previous: *const LinkMap,
}

impl LinkMap {
    pub fn dynamic(&self) -> *const u8 {
        self.dynamic.cast()
    }

    pub fn next(&self) -> *const LinkMap {
        self.next
    }

    /// The path that the loader knows the object by; empty for the program.
    pub fn name(&self) -> &CStr {
        if self.name.is_null() {
            c""
        } else {
            // SAFETY: the loader's own string, there as long as the entry.
            unsafe { CStr::from_ptr(self.name) }
        }
    }
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
    pub map: &'a LinkMap,
    strings: *const u8,
    symbols: *const Elf64_Sym,
    gnu_hash: *const u32,
    hash: *const u32,
    soname: u64,
}

/// Calls `visit` for each object of our namespace in the loader's order, under the loader's lock, until it answers true. `visit` may call the loader
/// for what loads and unloads nothing.
pub fn each(visit: &mut dyn FnMut(&Object<'_>) -> bool) {
    // SAFETY: the objects of the list stay mapped while the loader's lock is held.
    each_map(&mut |map| unsafe { Object::of(map) }.is_some_and(|object| visit(&object)));
}

/// As `each`, for the loader's entries, of which some have no symbols.
pub fn each_map(visit: &mut dyn FnMut(&LinkMap) -> bool) {
    loader::locked(&mut || {
        let Some(mut map) = loader::own() else {
            return;
        };
        // SAFETY: the list's entries stay while the loader's lock is held.
        while let Some(previous) = unsafe { map.previous.as_ref() } {
            map = previous;
        }
        let mut left = match loader::is_unloading() {
            true => loader::started(),
            false => usize::MAX,
        };
        let mut next = core::ptr::from_ref(map);
        // SAFETY: as above.
        while let Some(map) = unsafe { next.as_ref() }
            && left > 0
        {
            if visit(map) {
                break;
            }
            (next, left) = (map.next, left - 1);
        }
    });
}

impl<'a> Object<'a> {
    /// `None` for what has no dynamic section with symbols.
    ///
    /// # Safety
    /// `map` is the loader's entry of an object that stays mapped for `'a`.
    pub unsafe fn of(map: &'a LinkMap) -> Option<Object<'a>> {
        if map.dynamic.is_null() {
            return None;
        }
        let base = map.base;
        let mut object = Object {
            base,
            map,
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
        let mut entry = self.map.dynamic;
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

    /// Whether this is the object of a loader's entry.
    pub fn is(&self, map: Option<*const LinkMap>) -> bool {
        map.is_some_and(|map| core::ptr::eq(self.map, map))
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

    /// The address of a datum, a pointer at least, that it defines and exports.
    pub fn data(&self, name: &CStr) -> Option<usize> {
        let found = self.definition(name)?;
        let is_data =
            found.st_info & 0xf == STT_OBJECT && found.st_size >= size_of::<usize>() as u64;
        is_data.then(|| self.base + found.st_value as usize)
    }

    /// The address of a function that it defines and exports.
    pub fn function(&self, name: &CStr) -> Option<usize> {
        let found = self.definition(name)?;
        (found.st_info & 0xf == STT_FUNC).then(|| self.base + found.st_value as usize)
    }

    /// Whether the loader has relocated it, as far as its first relocation tells: of an object that a dlopen is about to, the list shows all the rest.
    pub fn is_relocated(&self) -> bool {
        let ([(table, bytes), _], nameless) = self.relocation_tables();
        if table == 0 || nameless == 0 || bytes < size_of::<Rela>() {
            return true;
        }
        // SAFETY: the dynamic section says where the table is, and that it has a row.
        let row = unsafe { *(table as *const Rela) };
        word(self.base + row.offset as usize) == self.base.wrapping_add(row.addend as usize)
    }

    /// The address and the bytes of its table of relocations and of that for calls, and how many of the first name no symbol: they stand first, and are most.
    fn relocation_tables(&self) -> ([(usize, usize); 2], usize) {
        let (mut tables, mut nameless) = ([(0, 0); 2], 0);
        for (tag, value) in self.dynamic() {
            let address = if (value as usize) < self.base {
                value as usize + self.base
            } else {
                value as usize
            };
            match tag {
                DT_RELA => tables[0].0 = address,
                DT_RELASZ => tables[0].1 = value as usize,
                DT_RELACOUNT => nameless = value as usize,
                DT_JMPREL => tables[1].0 = address,
                DT_PLTRELSZ => tables[1].1 = value as usize,
                _ => {}
            }
        }
        (tables, nameless)
    }

    /// Visits its relocations that name a symbol and are words of data: addresses, copies, and slots of calls.
    pub fn relocations(&self, visit: &mut dyn FnMut(&Relocation<'_>)) {
        let (mut tables, nameless) = self.relocation_tables();
        let nameless = (nameless * size_of::<Rela>()).min(tables[0].1);
        tables[0] = match tables[0] {
            (0, _) => (0, 0),
            (table, bytes) => (table + nameless, bytes - nameless),
        };
        for (table, bytes) in tables.into_iter().filter(|(table, _)| *table != 0) {
            // SAFETY: the dynamic section says where the table is and how long.
            let rows = unsafe {
                core::slice::from_raw_parts(table as *const Rela, bytes / size_of::<Rela>())
            };
            for row in rows {
                let (symbol, kind) = ((row.info >> 32) as u32, row.info as u32);
                let kinds = [kind::ABSOLUTE, kind::COPY, kind::GLOBAL, kind::CALL];
                if symbol == 0 || !kinds.contains(&kind) {
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
                    is_called: kind == kind::CALL,
                    is_weak: is_weak_reference(&symbol),
                });
            }
        }
    }

    /// Writes a word that the loader has filled, where it has made that read-only too (relocations may be of text). One that cannot be written stays.
    pub fn store(&self, place: usize, value: usize) {
        let relro = self
            .program_headers()
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_RELRO);
        let is_relro = relro.is_some_and(|header| {
            let start = self.base + header.p_vaddr as usize;
            (start / PAGE * PAGE..start + header.p_memsz as usize).contains(&place)
        });
        match self.protection(place) {
            Some(_) if is_relro => {
                self.write_protected(place, value, libc::PROT_READ);
            }
            Some(protection) if protection & libc::PROT_WRITE == 0 => {
                self.write_protected(place, value, protection);
            }
            // SAFETY: a place that the loader has filled itself, writable; whoever reads it has the old word or the new one.
            Some(_) => unsafe { (place as *mut usize).write_unaligned(value) },
            None => {}
        }
    }

    /// Writes a word of the object's own into pages that have this protection and no right to be written. Answers whether the kernel let it.
    fn write_protected(&self, place: usize, value: usize, protection: c_int) -> bool {
        let page = (place / PAGE * PAGE) as *mut c_void;
        let length = place + size_of::<usize>() - page as usize;
        // SAFETY: pages of the object's own, which stays mapped while the loader's lock is held. What may be executed there stays so.
        if unsafe { libc::mprotect(page, length, protection | libc::PROT_WRITE) } != 0 {
            return false;
        }
        // SAFETY: writable now; whoever reads it has the old word or the new one.
        unsafe { (place as *mut usize).write_unaligned(value) };
        // SAFETY: as above; it becomes what it was.
        unsafe { libc::mprotect(page, length, protection) };
        true
    }

    /// How the loader has mapped the segment that a place lies in.
    fn protection(&self, place: usize) -> Option<c_int> {
        let headers = self.program_headers().iter();
        let mut segments = headers.filter(|header| header.p_type == libc::PT_LOAD);
        let segment = segments.find(|header| {
            let start = self.base + header.p_vaddr as usize;
            (start..start + header.p_memsz as usize).contains(&place)
        })?;
        let rights = [
            (libc::PF_R, libc::PROT_READ),
            (libc::PF_W, libc::PROT_WRITE),
            (libc::PF_X, libc::PROT_EXEC),
        ];
        let held = rights
            .iter()
            .filter(|(flag, _)| segment.p_flags & flag != 0);
        Some(held.fold(0, |all, (_, right)| all | right))
    }

    /// Has the loader find this address by a name that the object exports, whoever is bound to it or looks it up from now on. A name that it does not export
    /// stays unknown. Answers whether that is so; not where the kernel lets nobody write to the table of symbols.
    pub fn redirect(&self, name: &CStr, address: usize) -> bool {
        let Some(index) = self.index_of(name) else {
            return true;
        };
        // SAFETY: of the object's own table, within which its hash table's indices lie.
        let place = unsafe { &raw const (*self.symbols.add(index as usize)).st_value } as usize;
        let Some(protection) = self.protection(place) else {
            return false;
        };
        let value = address.wrapping_sub(self.base);
        self.write_protected(place, value, protection)
    }

    /// The address of a function or object that it defines and exports. Versions are not looked at: the drivers have none, and of libc's
    /// versions of one name any will do here.
    pub fn symbol(&self, name: &CStr) -> Option<usize> {
        let found = self.definition(name)?;
        // One that was redirected may lie before the object.
        let address = self.base.wrapping_add(found.st_value as usize);
        if found.st_info & 0xf == STT_GNU_IFUNC {
            // SAFETY: an indirect function's symbol is its resolver, which takes nothing we must pass on the architectures built for.
            let resolve: unsafe extern "C" fn() -> usize = unsafe { core::mem::transmute(address) };
            // SAFETY: as above; the object is relocated.
            return Some(unsafe { resolve() });
        }
        Some(address)
    }

    fn definition(&self, name: &CStr) -> Option<Elf64_Sym> {
        Some(self.at(self.index_of(name)?))
    }

    /// Where a definition that it exports stands in its table of symbols.
    fn index_of(&self, name: &CStr) -> Option<u32> {
        if !self.gnu_hash.is_null() {
            self.by_gnu_hash(name, gnu_hash(name.to_bytes()))
        } else if !self.hash.is_null() {
            self.by_hash(name)
        } else {
            None
        }
    }

    /// Whether it exports this name.
    pub fn exports_name(&self, name: &CStr) -> bool {
        self.definition(name).is_some()
    }

    /// Whether it exports this name, of which [`gnu_hash`] is `hash`.
    pub fn exports_hashed(&self, name: &CStr, hash: u32) -> bool {
        match self.gnu_hash.is_null() {
            true => self.exports_name(name),
            false => self.by_gnu_hash(name, hash).is_some(),
        }
    }

    /// By the ELF header at its beginning; none where there is no such.
    fn program_headers(&self) -> &'a [Elf64_Phdr] {
        let Some(start) = loader::start_of(self.map.dynamic as usize) else {
            return &[];
        };
        // SAFETY: the object's first mapped page, which its ELF header lies in if it begins with the magic number.
        let header = unsafe { &*(start as *const Elf64_Ehdr) };
        if header.e_ident[..4] != *b"\x7fELF" {
            return &[];
        }
        // SAFETY: the table lies behind the header, in the same segment as the loader needs it.
        unsafe {
            core::slice::from_raw_parts(
                (start + header.e_phoff as usize) as *const Elf64_Phdr,
                usize::from(header.e_phnum),
            )
        }
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

    /// Whether it may refer to such a name: to be told from its table of symbols, where that shows its end.
    pub fn may_refer(&self, is_meant: &dyn Fn(&CStr) -> bool) -> bool {
        // What is hashed stands behind what is only referred to; the linker tells no place where it hashes nothing.
        let (end, _) = self.gnu_hash_extent();
        end == 0
            || (1..end).any(|index| {
                let symbol = self.at(index);
                symbol.st_shndx == 0 && is_meant(self.string(u64::from(symbol.st_name)))
            })
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

    fn is_named(&self, index: u32, name: &CStr) -> bool {
        let symbol = self.at(index);
        self.is_definition(&symbol) && self.string(u64::from(symbol.st_name)) == name
    }

    fn by_gnu_hash(&self, name: &CStr, hash: u32) -> Option<u32> {
        // SAFETY: the layout of DT_GNU_HASH: four counts, the Bloom filter of 64-bit words, the buckets, the chains.
        unsafe {
            let (buckets_len, first, bloom_len) =
                (*self.gnu_hash, *self.gnu_hash.add(1), *self.gnu_hash.add(2));
            if buckets_len == 0 || bloom_len == 0 {
                return None;
            }
            let bloom = self.gnu_hash.add(4).cast::<u64>();
            let word = bloom.add((hash / 64 % bloom_len) as usize).read_unaligned();
            let second = hash >> (*self.gnu_hash.add(3) & 31);
            if word >> (hash % 64) & word >> (second % 64) & 1 == 0 {
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
                if chained | 1 == hash | 1 && self.is_named(index, name) {
                    return Some(index);
                }
                if chained & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn by_hash(&self, name: &CStr) -> Option<u32> {
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
                if self.is_named(index, name) {
                    return Some(index);
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

const _: () = assert!(size_of::<Dyn>() == 16);
