//! The recorder of Vulkan: a layer that writes one line per command and leaves the answer to the next.
//!
//! It is found through the manifest that the harness writes, and sees the commands of the client and of the layers above
//! it; what the loader asks a driver for itself it does not see. Look-ups are not recorded, as by the mock ICD.

#![allow(
    clippy::missing_safety_doc,
    reason = "each command's obligation is the specification's"
)]

mod boundary;
mod commands;
