//! The kernel's clock by the code that it maps into each process (vdso(7)): a tenth of a system call's cost, and by an address that the kernel itself says.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

type Read = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

#[cfg(target_arch = "x86_64")]
const NAME: &[u8] = b"__vdso_clock_gettime\0";
#[cfg(target_arch = "aarch64")]
const NAME: &[u8] = b"__kernel_clock_gettime\0";

/// Where the function is, once that was looked for.
static FUNCTION: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = 0;
const NONE: usize = 1;

/// The least that any kernel maps, its headers included.
const PAGE: usize = 4096;

/// Writes the time; `false` where the kernel maps no such function (under gVisor, valgrind, `vdso=0`), or it does not know that clock. Async-signal-safe.
pub fn read(clock: libc::clockid_t, now: &mut libc::timespec) -> bool {
    let function = match FUNCTION.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = look_up().unwrap_or(NONE);
            FUNCTION.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    };
    if function == NONE {
        return false;
    }
    // SAFETY: the kernel's function of that name and type, which stays mapped; it writes one timespec, which is the caller's.
    unsafe { core::mem::transmute::<usize, Read>(function)(clock, now) == 0 }
}

fn look_up() -> Option<usize> {
    // SAFETY: only asks.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if start == 0 {
        return None;
    }
    // SAFETY: the kernel's image, which is read-only and begins with its headers.
    let headers = unsafe { core::slice::from_raw_parts(start as *const u8, PAGE) };
    let length = usize::try_from(loaded(headers)?.length).ok()?;
    // SAFETY: the image is mapped as far as its one loadable segment says.
    let image = unsafe { core::slice::from_raw_parts(start as *const u8, length) };
    Some(start + usize::try_from(function(image, NAME)?).ok()?)
}

/// An ELF64 segment that is loaded at the file's beginning.
struct Loaded {
    address: u64,
    length: u64,
}

fn word<const BYTES: usize>(image: &[u8], at: u64) -> Option<[u8; BYTES]> {
    let at = usize::try_from(at).ok()?;
    image.get(at..at.checked_add(BYTES)?)?.try_into().ok()
}

fn half(image: &[u8], at: u64) -> Option<u16> {
    word(image, at).map(u16::from_le_bytes)
}

fn long(image: &[u8], at: u64) -> Option<u64> {
    word(image, at).map(u64::from_le_bytes)
}

/// Where each segment's header of that type is (elf(5)).
fn segments(image: &[u8], kind: u32) -> impl Iterator<Item = u64> {
    let first = long(image, 32).unwrap_or(0);
    let [size, count] = [54, 56].map(|at| u64::from(half(image, at).unwrap_or(0)));
    (0..count)
        .map(move |index| first.saturating_add(index * size))
        .filter(move |at| word(image, *at).map(u32::from_le_bytes) == Some(kind))
}

fn loaded(image: &[u8]) -> Option<Loaded> {
    let header: [u8; 56] = word(image, segments(image, libc::PT_LOAD).next()?)?;
    (long(&header, 8)? == 0).then_some(())?;
    Some(Loaded {
        address: long(&header, 16)?,
        length: long(&header, 32)?,
    })
}

/// How far from the image's beginning the function of that name is, which ends in NUL.
fn function(image: &[u8], name: &[u8]) -> Option<u64> {
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const ENTRY: u64 = 24;
    let base = loaded(image)?.address;
    let header: [u8; 56] = word(image, segments(image, libc::PT_DYNAMIC).next()?)?;
    let dynamic = long(&header, 8)?;
    let told = |tag| {
        (0..)
            .map_while(|index| {
                let entry: [u8; 16] = word(image, dynamic.checked_add(index * 16)?)?;
                let tag = long(&entry, 0).filter(|tag| *tag != 0)?;
                Some((tag, long(&entry, 8)?))
            })
            .find_map(|(found, value)| (found == tag).then(|| value.checked_sub(base))?)
    };
    let (names, symbols) = (told(DT_STRTAB)?, told(DT_SYMTAB)?);
    // The names lie behind the symbols in every kernel's.
    let count = names.checked_sub(symbols)? / ENTRY;
    (0..count)
        .map_while(|index| word::<24>(image, symbols.checked_add(index * ENTRY)?))
        .filter(|symbol| {
            // Its name's place, a byte of kind and one of visibility, its section (0 where it is defined elsewhere), its address.
            let begin = word(symbol, 0).and_then(|place| {
                let begin = names.checked_add(u32::from_le_bytes(place).into())?;
                usize::try_from(begin).ok()
            });
            let named = begin.and_then(|begin| image.get(begin..));
            named.is_some_and(|named| named.starts_with(name)) && half(symbol, 6) != Some(0)
        })
        .find_map(|symbol| long(&symbol, 8)?.checked_sub(base))
        .filter(|at| *at < image.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_system_call(clock: libc::clockid_t) -> u128 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes one timespec, which is ours.
        unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut now) };
        nanoseconds(&now)
    }

    fn nanoseconds(time: &libc::timespec) -> u128 {
        time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
    }

    #[test]
    fn it_tells_what_a_system_call_tells() {
        let clock = libc::CLOCK_MONOTONIC;
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let before = by_system_call(clock);
        // SAFETY: only asks.
        let is_mapped = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } != 0;
        assert_eq!(read(clock, &mut now), is_mapped);
        if is_mapped {
            assert!((before..=by_system_call(clock)).contains(&nanoseconds(&now)));
        }
        assert!(
            !read(-1, &mut now) || !is_mapped,
            "a clock that there is not"
        );
    }

    #[test]
    fn an_image_that_is_cut_or_overwritten_has_no_function_beyond_its_end() {
        // SAFETY: as in `look_up`.
        let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as *const u8;
        if start.is_null() {
            return;
        }
        // SAFETY: as in `look_up`.
        let image = unsafe { core::slice::from_raw_parts(start, PAGE) }.to_vec();
        assert!(function(&image, NAME).is_some_and(|at| at < PAGE as u64));
        assert_eq!(function(&image, b"__vdso_no_such_function\0"), None);
        for length in 0..image.len() {
            let found = function(&image[..length], NAME);
            assert!(found.is_none_or(|at| at < length as u64), "{length}");
        }
        let mut image = image;
        for at in 0..1024 {
            let kept = core::mem::replace(&mut image[at], 0xff);
            assert!(function(&image, NAME).is_none_or(|at| at < PAGE as u64));
            image[at] = kept;
        }
    }
}
