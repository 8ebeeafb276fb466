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
//! | what instances take by themselves | `standing` |
//! | what the driver takes unasked | `floor` |
//! | which GPU is whose | `physical`, `candidates` |
//! | what a tenant is told | `heaps` |
//! | submissions under a compute budget | `pace`, `boundary::marks` |
//!
//! A device's own memory is charged by what it was seen to take, to 64 KiB: the growth of this process's NVML row, and what the device lost besides as
//! VK_EXT_memory_budget tells it (17.4 MiB on an H200; 24 where it does not tell); else the growth of its heap usage or that loss, whichever is more. Before it is created an upper bound is reserved: 256 MiB or an
//! eighth of the budget, from the second device on what the first one took. Bounds of the error: what CUDA or a neighbour allocates in the same moment is
//! counted to the device until it is destroyed (a neighbour's never above the reservation); where nothing can
//! be measured, as on a Vulkan 1.0 instance without NVML whose driver hides its 1.1 commands, the reservation stays charged.
#![deny(unsafe_code)]

mod arena;
mod attachment;
mod boundary;
mod candidates;
mod device;
mod exports;
mod floor;
mod heaps;
mod instance;
mod memory;
mod pace;
mod physical;
mod records;
mod settings;
mod standing;
mod swapchains;
mod table;
mod targets;
mod trace;
