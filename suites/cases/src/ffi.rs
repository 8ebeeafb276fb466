//! The one room of unsafe: how a case calls the C APIs, as any client does. Everything that leaves it is a plain value.
//!
//! Nothing here knows who answers: the libraries are opened by the names that clients use, and every look-up goes through
//! the process's own `dlsym`, so that a preloaded interposer meets it.
//!
//! * [`library`]: opening and looking up. * [`places`]: where an address lies. * [`cuda`], [`nvml`], [`vulkan`]: typed clients. * [`launch`]: the launch boundary's obligations.
//! * [`process`]: fork, signals and descriptors. * [`race`]: arguments that another thread changes. * [`negotiation`]: a Vulkan layer's own entry points, called without a loader.

pub mod cuda;
pub mod launch;
pub mod library;
pub mod negotiation;
pub mod nvml;
pub mod places;
pub mod process;
pub mod race;
pub mod vulkan;
