//! The promise by Vulkan, through the real Khronos loader.

pub mod asked;
pub mod budget;
pub mod chains;
pub mod devices;
pub mod floor;
pub mod heaps;
pub mod identity;
pub mod lifetime;
pub mod loader;
pub mod screen;
pub mod submits;
pub mod waits;
pub mod wrapped;
