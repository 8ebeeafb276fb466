//! The same on a driver that computes: Mesa's, on the processor. It is no tenant's GPU, so the enforcer leaves it alone.

use harness::{Failure, Session, cases, skip};

use super::{SMALL, buffers, contexts, embedded, memory, modules, regions};
use crate::ffi::vulkan::embedding::Application;

const MANIFEST: &str = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json";
/// Puts lavapipe in every driver's place.
const DRIVER: [(&str, &str); 2] = [
    ("VK_DRIVER_FILES", MANIFEST),
    ("VK_ICD_FILENAMES", MANIFEST),
];

fn there() -> Result<(), Failure> {
    if !std::path::Path::new(MANIFEST).exists() {
        skip!("lavapipe (mesa-vulkan-drivers) is not installed");
    }
    Ok(())
}

fn on_lavapipe(
    session: &Session,
    body: impl FnOnce(&Application) -> Result<(), Failure>,
) -> Result<(), Failure> {
    there()?;
    embedded(session, SMALL, |application| body(application))
}

cases! {
    /// Lavapipe computes both planes of one VkBuffer where they lie.
    lavapipe_computes_two_planes_of_a_buffer {
        entry_points: ["vkCmdDispatch"], env: DRIVER,
    } (session) {
        on_lavapipe(session, |application| buffers::two_planes(session, application))
    }

    /// Lavapipe reads and writes a crop of a crop where it begins, and no other word.
    lavapipe_computes_in_a_crop_of_a_crop {
        entry_points: ["vkCmdDispatch"], env: DRIVER,
    } (session) {
        on_lavapipe(session, |application| buffers::odd_dispatch(session, application))
    }

    /// Lavapipe copies from and to a crop of a crop at odd bytes.
    lavapipe_copies_a_crop_of_a_crop {
        entry_points: ["vkCmdCopyBuffer"], env: DRIVER,
    } (session) {
        on_lavapipe(session, buffers::odd_copies)
    }

    /// On lavapipe too regions share blocks, and no byte.
    lavapipe_keeps_regions_apart {
        entry_points: ["vkAllocateMemory", "vkBindBufferMemory"], env: DRIVER,
    } (session) {
        on_lavapipe(session, regions::regions)
    }

    /// On lavapipe too contexts share modules, and make again what another took along.
    lavapipe_shares_modules_between_contexts {
        entry_points: ["vkCreateShaderModule", "vkDestroyShaderModule"], env: DRIVER,
    } (session) {
        on_lavapipe(session, modules::shared_modules)
    }

    /// Four threads dispatch to lavapipe in two contexts that share one queue.
    lavapipe_works_for_several_threads {
        entry_points: ["vkQueueSubmit"], env: DRIVER, unordered: "threads take turns as they come",
    } (session) {
        on_lavapipe(session, contexts::threads)
    }

    /// Lavapipe asks the application for host memory itself: each of its requests may be refused as well, and all that it got
    /// comes back. Recordings are left out, where Mesa's own crash.
    lavapipe_bears_refusals_of_host_memory {
        entry_points: ["vkAllocateMemory", "vkCreateBuffer"], env: DRIVER,
        // What Mesa says by VK_EXT_debug_utils when it answers so.
        invalid_use: ["VK_ERROR_OUT_OF_HOST_MEMORY"],
    } (session) {
        there()?;
        memory::host_refusals(session, memory::Life::Unrecorded, 8)
    }
}
