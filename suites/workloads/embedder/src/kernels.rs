//! The kernels of this crate, from `kernels/*.wgsl`.

use crate::work::Kernel;

mod words {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// Invocations of a workgroup of each kernel here.
pub const GROUP: u32 = 64;

/// `result[i] = source[i] * factor + addend`. Buffers: source, result. Scalars: count, factor, addend.
pub const AFFINE: Kernel<'static> = Kernel {
    words: words::AFFINE,
    entry: c"main",
    buffers: 2,
    scalars: 3,
};

/// `result[count - 1 - i] = source[i]`. Buffers: source, result. Scalars: count.
pub const REVERSE: Kernel<'static> = Kernel {
    words: words::REVERSE,
    entry: c"main",
    buffers: 2,
    scalars: 1,
};

/// Does nothing. No buffers, no scalars.
pub const IDLE: Kernel<'static> = Kernel {
    words: words::IDLE,
    entry: c"main",
    buffers: 0,
    scalars: 0,
};

/// Workgroups for so many invocations.
#[must_use]
pub const fn groups(count: u32) -> [u32; 3] {
    [count.div_ceil(GROUP), 1, 1]
}
