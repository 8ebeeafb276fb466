//! What the examples share.

use std::error::Error;

/// The machine's Vulkan loader, which stays loaded.
///
/// # Errors
/// There is none, or it is no Vulkan loader.
pub fn loader() -> Result<embedder::Loader, Box<dyn Error>> {
    // SAFETY: the loader's own initialisation; it exports this name with this type, and is never unloaded.
    unsafe {
        let library = libloading::Library::new("libvulkan.so.1")?;
        let get = *library.get::<ash::vk::PFN_vkGetInstanceProcAddr>(b"vkGetInstanceProcAddr")?;
        std::mem::forget(library);
        Ok(embedder::Loader::new(get))
    }
}
