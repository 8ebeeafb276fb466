//! Kernels as PTX, which every driver compiles for its own device. Their parameters are beside them, as [`crate::Module::kernel`] wants them.

/// `vector_add(u64 a, u64 b, u64 sum, u32 elements)`: a sum of two arrays of `u32`, wrapping.
pub const VECTOR_ADD: &str = include_str!("../kernels/vector_add.ptx");
pub const VECTOR_ADD_PARAMETERS: &[usize] = &[8, 8, 8, 4];

/// `meet(u64 arrived, u64 seen, u32 blocks)`: each block's first thread counts itself in, waits until all blocks have, and writes how many it then
/// saw into its place. It ends only if all blocks are on the device at once, so it is for cooperative launches alone.
pub const MEET: &str = include_str!("../kernels/meet.ptx");
pub const MEET_PARAMETERS: &[usize] = &[8, 8, 4];
