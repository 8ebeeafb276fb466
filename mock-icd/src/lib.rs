//! A mock Vulkan driver over the simulated device world, loaded by the Khronos loader as any vendor's is. `commands` is the
//! table of what it answers, one file per noun answers it, `boundary` holds the unsafe code.

#![deny(unsafe_code)]

mod accounts;
mod binding;
#[expect(unsafe_code, reason = "the one place where C's pointers are followed")]
mod boundary;
mod buffer;
mod command;
mod commands;
mod descriptor;
mod device;
mod effect;
mod enumerate;
mod extension;
mod format;
mod host_copy;
mod image;
mod instance;
mod layout;
mod lists;
mod loader;
mod lost;
mod memory;
mod needs;
mod object;
mod own;
mod pass;
mod physical_device;
mod presentation;
mod properties;
mod query;
mod queue;
mod raster;
mod recorded;
mod shader;
mod sparse;
mod state;
mod sync;
mod time;
mod touched;
mod transfer;
mod work;

// Exported by name from the built library; public here so that a test build, which exports nothing, keeps them alive.
pub use boundary::{
    vk_icdGetInstanceProcAddr, vk_icdGetPhysicalDeviceProcAddr,
    vk_icdNegotiateLoaderICDInterfaceVersion,
};
