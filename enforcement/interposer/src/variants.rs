//! Versions and stream variants of hooked functions that have no hook: a newer driver's. What such a function takes is known to nobody
//! here, so with a budget the driver is as one that lacks it (R23 of `fixtures/defects.txt`).
//!
//! Every export of libcuda 470 to 580 and every declaration of CUDA 13.5 whose stem is a hook's is a hook itself: `ringfence list --coverage`.

use core::ffi::CStr;

use seeds::{Seed, planted};

use crate::process::{Standing, standing};
use crate::report::{self, Once};

/// A name without the suffix of its version and of its stream variant: `cuMemAllocAsync` of `cuMemAllocAsync_v2_ptsz`.
pub const fn stem(name: &[u8]) -> &[u8] {
    let name = match name.split_last_chunk::<5>() {
        Some((stem, b"_ptsz" | b"_ptds")) => stem,
        _ => name,
    };
    let mut end = name.len();
    while end > 0 && name[end - 1].is_ascii_digit() {
        end -= 1;
    }
    let (before, digits) = name.split_at(end);
    match before.split_last_chunk::<2>() {
        Some((stem, b"_v")) if !digits.is_empty() => stem,
        _ => name,
    }
}

/// Whether the name of an unknown variant, of which the driver has one, is answered as not found. Says so once.
#[cold]
pub fn is_withheld(name: &CStr) -> bool {
    if planted(Seed::R23) || matches!(standing(), Standing::Forward) {
        return false;
    }
    report::once(
        Once::UnknownVariant,
        format_args!(
            "{}: the driver has a version of it that this library does not know; it is answered as not found",
            name.to_str().unwrap_or("a hooked function"),
        ),
    );
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_has_neither_version_nor_stream() {
        for (name, expected) in [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemAlloc_v13", "cuMemAlloc"),
            ("cuMemAllocAsync_ptsz", "cuMemAllocAsync"),
            ("cuMemsetD8_v2_ptds", "cuMemsetD8"),
            ("cuMemsetD2D32", "cuMemsetD2D32"),
            ("cuArray3DCreate_v2", "cuArray3DCreate"),
            ("cuX_v", "cuX_v"),
            ("_v2", ""),
            ("", ""),
        ] {
            assert_eq!(stem(name.as_bytes()), expected.as_bytes(), "{name}");
        }
    }
}
