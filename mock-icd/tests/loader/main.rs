//! The built driver as a client meets it: through the Khronos loader, under the Khronos validation layer, from Debian's
//! vulkaninfo. Every client is a process of its own, in an environment with nothing else of Vulkan in it.

mod bits;
mod clears;
mod client;
mod cuda;
mod environment;
mod faults;
mod ffmpeg;
mod identity;
mod look_up;
mod memory;
#[path = "../../../suites/missing.rs"]
mod missing;
mod newer;
mod oracle;
mod picture;
mod presentation;
mod record;
mod shared;
mod transfer;
mod validation;
mod vulkaninfo;
mod wakes;
