//! Memsets under a compute budget: a card does them by kernels of its driver's, so they are paced as launches are.
//!
//! Copies are not: they are the copy engines' work. A memset that is captured is a graph's, whose launch pays. There are thirty entry
//! points, so a hook is no more than what it makes of its arguments; [`pace`] does the rest for all of them.

use core::ffi::c_uint;

use abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};
use throttle::Key;

use crate::marks::{Line, NoStream};
use crate::outcome::Outcome;
use crate::process::Tenant;
use crate::throttle::set_memory;

/// What is set: elements of so many bytes, in a row or in rows.
pub struct Memset {
    element: usize,
    width: usize,
    height: usize,
    line: Line,
}

/// Lets `call`, which sets memory, happen when it may.
pub fn pace(tenant: Tenant, memset: &Memset, call: &dyn Fn() -> CUresult) -> Outcome<CUresult> {
    let [element, width, height] =
        [memset.element, memset.width, memset.height].map(|number| number as u64);
    let bytes = width.saturating_mul(height).saturating_mul(element);
    set_memory(
        tenant,
        Key::memset(element, height > 1, bytes),
        memset.line,
        call,
    )
}

/// The synchronous ones wait for nothing and lie in a default stream.
const fn line(default: NoStream) -> Line {
    Line {
        stream: CUstream::NULL,
        default,
    }
}

macro_rules! flat {
    ($($hook:ident $address:ident $value:ident $size:ident $default:ident;)*) => { $(
        pub fn $hook(_: $address, _: $value, count: $size) -> Memset {
            Memset { element: size_of::<$value>(), width: count as usize, height: 1, line: line(NoStream::$default) }
        }
    )* };
}
flat! {
    d8 CUdeviceptr u8 usize Legacy;
    d8_ptds CUdeviceptr u8 usize PerThread;
    d8_v1 CUdeviceptr_v1 u8 c_uint Legacy;
    d16 CUdeviceptr u16 usize Legacy;
    d16_ptds CUdeviceptr u16 usize PerThread;
    d16_v1 CUdeviceptr_v1 u16 c_uint Legacy;
    d32 CUdeviceptr c_uint usize Legacy;
    d32_ptds CUdeviceptr c_uint usize PerThread;
    d32_v1 CUdeviceptr_v1 c_uint c_uint Legacy;
}

macro_rules! flat_async {
    ($($hook:ident $value:ident $default:ident;)*) => { $(
        pub fn $hook(_: CUdeviceptr, _: $value, count: usize, stream: CUstream) -> Memset {
            Memset { element: size_of::<$value>(), width: count, height: 1, line: Line { stream, default: NoStream::$default } }
        }
    )* };
}
flat_async! {
    d8_async u8 Legacy;
    d8_async_ptsz u8 PerThread;
    d16_async u16 Legacy;
    d16_async_ptsz u16 PerThread;
    d32_async c_uint Legacy;
    d32_async_ptsz c_uint PerThread;
}

macro_rules! rows {
    ($($hook:ident $address:ident $value:ident $size:ident $default:ident;)*) => { $(
        pub fn $hook(_: $address, _: $size, _: $value, width: $size, height: $size) -> Memset {
            let (width, height) = (width as usize, height as usize);
            Memset { element: size_of::<$value>(), width, height, line: line(NoStream::$default) }
        }
    )* };
}
rows! {
    rows_d8 CUdeviceptr u8 usize Legacy;
    rows_d8_ptds CUdeviceptr u8 usize PerThread;
    rows_d8_v1 CUdeviceptr_v1 u8 c_uint Legacy;
    rows_d16 CUdeviceptr u16 usize Legacy;
    rows_d16_ptds CUdeviceptr u16 usize PerThread;
    rows_d16_v1 CUdeviceptr_v1 u16 c_uint Legacy;
    rows_d32 CUdeviceptr c_uint usize Legacy;
    rows_d32_ptds CUdeviceptr c_uint usize PerThread;
    rows_d32_v1 CUdeviceptr_v1 c_uint c_uint Legacy;
}

macro_rules! rows_async {
    ($($hook:ident $value:ident $default:ident;)*) => { $(
        pub fn $hook(_: CUdeviceptr, _: usize, _: $value, width: usize, height: usize, stream: CUstream) -> Memset {
            Memset { element: size_of::<$value>(), width, height, line: Line { stream, default: NoStream::$default } }
        }
    )* };
}
rows_async! {
    rows_d8_async u8 Legacy;
    rows_d8_async_ptsz u8 PerThread;
    rows_d16_async u16 Legacy;
    rows_d16_async_ptsz u16 PerThread;
    rows_d32_async c_uint Legacy;
    rows_d32_async_ptsz c_uint PerThread;
}
