//! The driver's own symbols, read from its loaded object: dlsym may be another's, who would answer with us.

use core::ffi::{CStr, c_void};

use libc::Elf64_Sym;

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const SHN_UNDEF: u16 = 0;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// What the loader's handles point to: the public part of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const i8,
    dynamic: *const Dyn,
}

/// The symbols of one loaded object, which stays loaded.
pub struct Symbols {
    base: usize,
    strings: *const u8,
    symbols: *const Elf64_Sym,
    hash: *const u32,
}

impl Symbols {
    /// # Safety
    /// `handle` is one that dlopen answered and that is never closed.
    pub unsafe fn of(handle: *mut c_void) -> Option<Symbols> {
        // SAFETY: glibc's handles are link maps; the dynamic section ends with DT_NULL and is relocated in place.
        unsafe {
            let map = &*handle.cast::<LinkMap>();
            let mut found = Symbols {
                base: map.base,
                strings: core::ptr::null(),
                symbols: core::ptr::null(),
                hash: core::ptr::null(),
            };
            let mut entry = map.dynamic;
            while (*entry).tag != DT_NULL {
                let at = (*entry).value as usize;
                match (*entry).tag {
                    DT_STRTAB => found.strings = at as *const u8,
                    DT_SYMTAB => found.symbols = at as *const Elf64_Sym,
                    DT_GNU_HASH => found.hash = at as *const u32,
                    _ => {}
                }
                entry = entry.add(1);
            }
            (!found.strings.is_null() && !found.symbols.is_null() && !found.hash.is_null())
                .then_some(found)
        }
    }

    /// The address of a defined function.
    pub fn find(&self, name: &CStr) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: the layout of DT_GNU_HASH: four counts, the filter's words, the buckets, the chains.
        unsafe {
            let (buckets_len, first, filter_len) =
                (*self.hash, *self.hash.add(1), *self.hash.add(2));
            let buckets = self.hash.add(4 + 2 * filter_len as usize);
            let chains = buckets.add(buckets_len as usize);
            let mut index = *buckets.add((hash % buckets_len) as usize);
            if index < first {
                return None;
            }
            loop {
                let chained = *chains.add((index - first) as usize);
                let symbol = &*self.symbols.add(index as usize);
                let text = CStr::from_ptr(self.strings.add(symbol.st_name as usize).cast());
                if chained | 1 == hash | 1 && symbol.st_shndx != SHN_UNDEF && text == name {
                    return Some(self.base + symbol.st_value as usize);
                }
                if chained & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}
