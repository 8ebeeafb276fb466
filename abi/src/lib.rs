//! The C ABI of libcuda and NVML, declared once: types and one signature row per entry point. No logic.
//!
//! Everything that answers, hooks or calls an entry point expands a row of these tables, so an argument
//! list stands in one place. `suites/c` compares sizes, offsets and constants with the public headers,
//! because a shared table means shared mistakes.
//!
//! * [`cuda`]: libcuda types and rows; `cuda_signature!(cuInit => callback!(context))`.
//! * [`nvml`]: NVML types and rows; `nvml_signature!(nvmlInit_v2 => callback!(context))`.

pub mod cuda;
pub mod layout;
pub mod nvml;
mod table;
