//! CUDA, Vulkan and NVML together: one budget, one story.

pub mod changed;
pub mod external;
pub mod lent;
pub mod objects;
pub mod share;
pub mod story;
pub mod whole;
