//! Reading the structures that applications chain.

use std::ffi::{CStr, c_char, c_void};

use ash::vk;
use budget::Bytes;
use seeds::{Seed, planted};

use super::next::Promoted;
use super::os;
use crate::memory::{Import, Request};

/// The first structure of a type in a pNext chain.
///
/// # Safety
/// `chain` is a valid pNext chain, and `T` is the structure that `s_type` names.
pub unsafe fn find<'a, T>(chain: *const c_void, s_type: vk::StructureType) -> Option<&'a T> {
    let mut at = chain.cast::<vk::BaseInStructure<'_>>();
    let mut read = 0;
    // SAFETY: every structure of a pNext chain begins as VkBaseInStructure does.
    unsafe {
        while let Some(structure) = at.as_ref() {
            read += 1;
            let unknown = structure.s_type.as_raw() >= 2_000_000_000;
            if planted(Seed::V17b) && read > 3
                || planted(Seed::V17c) && unknown
                || planted(Seed::V17d) && read > 1 && structure.p_next.is_null()
            {
                break;
            }
            if structure.s_type == s_type {
                return at.cast::<T>().as_ref();
            }
            at = structure.p_next;
        }
    }
    None
}

/// # Safety
/// As [`find`], for a chain that the driver may write.
pub unsafe fn find_mut<'a, T>(chain: *mut c_void, s_type: vk::StructureType) -> Option<&'a mut T> {
    let mut at = chain.cast::<vk::BaseOutStructure<'_>>();
    // SAFETY: as in `find`; the chain is the application's to be written.
    unsafe {
        while let Some(structure) = at.as_mut() {
            if structure.s_type == s_type {
                return at.cast::<T>().as_mut();
            }
            if planted(Seed::V17m) {
                break;
            }
            at = structure.p_next;
        }
    }
    None
}

/// # Safety
/// `info` is a VkMemoryAllocateInfo with a valid pNext chain.
pub unsafe fn request(info: &vk::MemoryAllocateInfo<'_>, callbacks: bool) -> Request {
    let plain = Request {
        size: Bytes(match planted(Seed::V17n) {
            true => u64::from(info.allocation_size as u32),
            false => info.allocation_size,
        }),
        memory_type: info.memory_type_index,
        device_mask: None,
        import: None,
        dedicated: false,
        callbacks,
    };
    if info.p_next.is_null() {
        return plain;
    }
    // SAFETY: the caller's obligation.
    unsafe {
        let flags = find::<vk::MemoryAllocateFlagsInfo<'_>>(
            info.p_next,
            vk::StructureType::MEMORY_ALLOCATE_FLAGS_INFO,
        );
        let masked = flags.filter(|flags| {
            flags.flags.contains(vk::MemoryAllocateFlags::DEVICE_MASK) || planted(Seed::V17e)
        });
        let dedicated = find::<vk::MemoryDedicatedAllocateInfo<'_>>(
            info.p_next,
            vk::StructureType::MEMORY_DEDICATED_ALLOCATE_INFO,
        );
        let alone = |info: &vk::MemoryDedicatedAllocateInfo<'_>| {
            info.buffer != vk::Buffer::null()
                || info.image != vk::Image::null() && !planted(Seed::V17)
        };
        let exported = planted(Seed::V17h)
            && find::<vk::ExportMemoryAllocateInfo<'_>>(
                info.p_next,
                vk::StructureType::EXPORT_MEMORY_ALLOCATE_INFO,
            )
            .is_some();
        Request {
            dedicated: dedicated.is_some_and(alone) && !exported,
            device_mask: masked.map(|flags| flags.device_mask),
            import: import(info.p_next),
            ..plain
        }
    }
}

/// What is imported. Where a chain names more than one thing nobody knows which of them a driver takes, or whether it takes new memory: that is charged
/// like new memory.
///
/// # Safety
/// `chain` is a valid pNext chain.
unsafe fn import(chain: *const c_void) -> Option<Import> {
    // SAFETY: the caller's obligation.
    unsafe {
        let by_fd = find::<vk::ImportMemoryFdInfoKHR<'_>>(
            chain,
            vk::StructureType::IMPORT_MEMORY_FD_INFO_KHR,
        );
        // A handle type of 0 says that there is no import.
        let imports = |info: &&vk::ImportMemoryFdInfoKHR<'_>| {
            let opaque = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
            !info.handle_type.is_empty() && (info.handle_type == opaque || !planted(Seed::V17g))
                || planted(Seed::V17a)
        };
        let by_fd = by_fd.filter(imports);
        let by_pointer = find::<vk::ImportMemoryHostPointerInfoEXT<'_>>(
            chain,
            vk::StructureType::IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        )
        .is_some_and(|info| !info.handle_type.is_empty());
        let again = by_fd.is_some_and(|info| {
            find::<vk::ImportMemoryFdInfoKHR<'_>>(
                info.p_next,
                vk::StructureType::IMPORT_MEMORY_FD_INFO_KHR,
            )
            .is_some()
        });
        match by_fd {
            Some(info) if !by_pointer && !again || planted(Seed::V17t) => {
                let open = info.fd > 0 || !planted(Seed::V17q);
                let descriptor = open.then(|| os::descriptor(info.fd)).flatten();
                Some(Import::Descriptor(descriptor))
            }
            None if !by_pointer => None,
            _ => Some(Import::Other),
        }
    }
}

/// The physical devices a VkDevice is to be made of.
///
/// # Safety
/// `info` has a valid pNext chain.
pub unsafe fn group(
    info: &vk::DeviceCreateInfo<'_>,
    first: vk::PhysicalDevice,
) -> Vec<vk::PhysicalDevice> {
    // SAFETY: the caller's obligation; the array has as many members as its count says.
    unsafe {
        let asked = find::<vk::DeviceGroupDeviceCreateInfo<'_>>(
            info.p_next,
            vk::StructureType::DEVICE_GROUP_DEVICE_CREATE_INFO,
        );
        match asked.filter(|asked| {
            asked.physical_device_count > 0
                && !asked.p_physical_devices.is_null()
                && !planted(Seed::V17r)
        }) {
            Some(asked) => std::slice::from_raw_parts(
                asked.p_physical_devices,
                asked.physical_device_count as usize,
            )
            .to_vec(),
            None => vec![first],
        }
    }
}

/// The name of the engine that the application says it is built on.
///
/// # Safety
/// Valid usage: what `info` points to is what it says.
pub unsafe fn engine(info: &vk::InstanceCreateInfo<'_>) -> Option<String> {
    // SAFETY: the caller's obligation.
    let application = unsafe { info.p_application_info.as_ref() }?;
    let name = application.p_engine_name;
    if name.is_null() {
        return None;
    }
    // SAFETY: as above: a C string.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}

/// What the application of a new instance may ask physical devices by.
///
/// # Safety
/// `info` is valid.
pub unsafe fn promoted(info: &vk::InstanceCreateInfo<'_>) -> Promoted {
    // SAFETY: the caller's obligation.
    unsafe {
        let version = info
            .p_application_info
            .as_ref()
            .map_or(0, |application| application.api_version);
        let enabled = names(
            info.pp_enabled_extension_names,
            info.enabled_extension_count,
        );
        Promoted {
            core: version >= vk::API_VERSION_1_1,
            extension: enabled.contains(&vk::KHR_GET_PHYSICAL_DEVICE_PROPERTIES2_NAME),
        }
    }
}

/// The extensions a VkDevice is to have.
///
/// # Safety
/// `info` is valid.
pub unsafe fn extensions<'a>(info: &'a vk::DeviceCreateInfo<'_>) -> Vec<&'a CStr> {
    // SAFETY: the caller's obligation.
    unsafe {
        names(
            info.pp_enabled_extension_names,
            info.enabled_extension_count,
        )
    }
}

/// # Safety
/// The names are as many as the count says, and end in NUL.
unsafe fn names<'a>(names: *const *const c_char, count: u32) -> Vec<&'a CStr> {
    let names: &[*const c_char] = if names.is_null() {
        &[]
    } else {
        // SAFETY: the caller's obligation.
        unsafe { std::slice::from_raw_parts(names, count as usize) }
    };
    // SAFETY: the caller's obligation.
    names
        .iter()
        .filter(|name| !name.is_null())
        .map(|name| unsafe { CStr::from_ptr(*name) })
        .collect()
}
