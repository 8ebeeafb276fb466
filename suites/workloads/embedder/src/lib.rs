//! A GPU runtime that lives inside somebody else's Vulkan application, as image pipelines and inference engines do: the
//! application owns instance, device and queue, the runtime keeps an allocator and a cache of shader modules for them.
//! Written after what Halide's Vulkan pull requests 8871 and 9110 say of themselves; it shares no code with Halide.
//!
//! ```text
//! adopt(External)            the application's handles; nothing is loaded or made
//! acquire_memory_allocator   dispatch tables are loaded, once
//! allocate, wrap_buffer, crop, launch, wait, copy …
//! free, detach
//! release_memory_allocator   all that the runtime made is destroyed, nothing that the application owns
//! vkDestroyDevice            the application's own affair
//! ```
//!
//! * [`runtime`]: [`Runtime`], contexts and allocators acquired and released. * [`handle`]: what they are called.
//! * [`turn`]: a context is held for each submission, by a lock of the runtime's or a handler of the application's.
//! * [`buffer`]: [`Buffer`], owned, wrapped or cropped. * [`allocator`]: regions.
//! * [`blocks`], [`placement`]: blocks of device memory, and where in them regions lie.
//! * [`work`]: dispatches and copies. * [`modules`]: shader modules by device. * [`kernels`]: the kernels of this crate.
//! * [`boundary`]: the one room of unsafe: handles and callbacks that come in, and every call of Vulkan.
//! * [`error`]: each refusal is a variant with what one would ask about it.
//!
//! It is a workload, not a library to build on: what is simple was preferred to what is fast.

pub mod allocator;
pub mod blocks;
pub mod boundary;
pub mod buffer;
pub mod error;
pub mod handle;
pub mod kernels;
pub mod modules;
pub mod placement;
pub mod runtime;
pub mod turn;
pub mod work;

pub use boundary::{External, ForeignBuffer, Handles, Host, Loader, OwnContext, PICK_FIRST};
pub use buffer::{Buffer, Ownership, Usage};
pub use error::{Error, Result};
pub use handle::{AllocatorId, ContextId, DispatchId, RegionId};
pub use runtime::{Gone, Runtime, Settings};
pub use turn::{ContextHandler, Refused, Turn};
pub use work::{Kernel, Launch};
