//! `libvgpu_vk.so`: a Vulkan implicit layer that keeps a tenant within its GPU memory budget.
//!
//! It draws on the same ledger as the interposer, and needs neither it nor libcuda. Without a budget it only passes calls on. It never answers for what
//! next does not have, and is not a place for policy: what a request costs and who a device is are decided in `budget`.
//!
//! | to read | where |
//! |---|---|
//! | the commands that are hooked | `boundary::hooks` |
//! | everything unsafe | `boundary` |
//! | instances, devices, memory objects | `instance`, `device`, `memory` |
//! | which GPU is whose | `physical`, `candidates` |
//! | what a tenant is told | `heaps` |
//!
//! A device's own memory is charged by what it was seen to take: the growth of this process's NVML rows, or of its heap usage where the driver has
//! VK_EXT_memory_budget, whichever is more, to 64 KiB. Where neither can be had it is 0: then at most one device's own memory per VkDevice escapes the
//! ledger. What CUDA allocates in the same process while a device is being created is counted to that device until it is destroyed.
#![deny(unsafe_code)]

mod arena;
mod attachment;
mod boundary;
mod candidates;
mod device;
mod exports;
mod heaps;
mod instance;
mod memory;
mod physical;
mod records;
mod settings;
mod table;
mod targets;
mod trace;
