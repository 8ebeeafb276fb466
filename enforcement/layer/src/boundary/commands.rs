//! The hooks' outer side: reads what the application passed, calls next, leaves the deciding to safe code.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use ash::vk;
use ash::vk::Handle;
use seeds::{Seed, planted};

use super::marks::{self, Marking};
use super::next::{DeviceNext, InstanceNext, MarkNext};
use super::{chain, guard, key, structures};
use crate::device::Made;
use crate::physical::Told;
use crate::records::{Charge, Object};
use crate::swapchains::{self, Images};
use crate::{attachment, device, floor, heaps, instance, memory, pace, standing};

const FAILED: vk::Result = vk::Result::ERROR_INITIALIZATION_FAILED;
const LAYER: &CStr = c"VK_LAYER_HAMI_vgpu";

// Every function below is a Vulkan command: its obligations towards its caller are the specification's, and they are what the SAFETY notes lean on.

pub unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Instance,
) -> vk::Result {
    guard(FAILED, || {
        // SAFETY: valid usage; the chain's functions are called as what their names say, on the instance they just made.
        unsafe {
            let Some(get) = chain::take_instance_link(info) else {
                return FAILED;
            };
            let create = get(vk::Instance::null(), c"vkCreateInstance".as_ptr());
            let Some(create) = std::mem::transmute::<
                vk::PFN_vkVoidFunction,
                Option<vk::PFN_vkCreateInstance>,
            >(create) else {
                return FAILED;
            };
            let Ok(making) = standing::begin() else {
                return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
            };
            let result = create(info, allocator, out);
            if result == vk::Result::SUCCESS
                && let Some(created) = out.as_ref()
                && let Some(key) = key(*created)
            {
                let next = InstanceNext::load(get, *created);
                let fits = making.is_none_or(|making| making.end().is_ok());
                if !fits && planted(Seed::V22) {
                    if let Some(destroy) = next.destroy {
                        destroy(*created, allocator);
                    }
                    return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
                }
                let engine = structures::engine(&*info);
                instance::register(key, next, structures::promoted(&*info), engine.as_deref());
            }
            result
        }
    })
}

pub unsafe extern "system" fn destroy_instance(
    handle: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            let Some(key) = key(handle) else {
                return;
            };
            let next = instance::unregister(key)
                .or_else(|| instance::find(None))
                .and_then(|known| known.next.destroy);
            standing::end(|| {
                if let Some(destroy) = next {
                    destroy(handle, allocator);
                }
            });
        }
    });
}

/// Whether it names each physical device once, and the one that the device is made from (VUID-VkDeviceGroupDeviceCreateInfo-pPhysicalDevices-00375,
/// VUID-VkDeviceGroupDeviceCreateInfo-physicalDeviceCount-00377). What another takes of whom cannot be told from what it names (V27).
fn is_group(group: &[vk::PhysicalDevice], physical: vk::PhysicalDevice) -> bool {
    let once = |(at, one): (usize, &vk::PhysicalDevice)| !group[..at].contains(one);
    planted(Seed::V27) || group.contains(&physical) && group.iter().enumerate().all(once)
}

pub unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Device,
) -> vk::Result {
    guard(FAILED, || {
        // SAFETY: valid usage; the link is the loader's, and its functions are called as what their names say.
        unsafe {
            let (Some(instance), Some((get, get_device))) =
                (instance::find(key(physical)), chain::take_device_link(info))
            else {
                return FAILED;
            };
            let create = get(instance.next.handle(), c"vkCreateDevice".as_ptr());
            let Some(create) = std::mem::transmute::<
                vk::PFN_vkVoidFunction,
                Option<vk::PFN_vkCreateDevice>,
            >(create) else {
                return FAILED;
            };
            let (group, wanted) = (
                structures::group(&*info, physical),
                structures::extensions(&*info),
            );
            if attachment::enforcing() && !is_group(&group, physical) {
                return FAILED;
            }
            let hopeless = || {
                let known = instance.next.device_extensions(physical);
                wanted.iter().any(|name| {
                    known
                        .iter()
                        .all(|one| one.extension_name_as_c_str() != Ok(name))
                })
            };
            let before = out.as_ref().copied();
            // A group's members would each write their own times.
            let set_loader_data = marks::set_loader_data(info).filter(|_| group.len() == 1);
            let result = device::create(instance, &group, hopeless, || {
                match create(physical, info, allocator, out) {
                    vk::Result::SUCCESS => {
                        let created = *out;
                        let key = key(created).ok_or(FAILED)?;
                        let marking = attachment::pacing().then(|| {
                            let (families, period) =
                                instance.next.queue_families(physical).unwrap_or_default();
                            let next = MarkNext::load(get_device, created);
                            Marking::new(next, set_loader_data, families, period)
                        });
                        Ok(Made {
                            key,
                            next: DeviceNext::load(get_device, created),
                            marking,
                        })
                    }
                    code => Err(code),
                }
            });
            if let (true, Some(out), Some(before)) = (result.as_raw() < 0, out.as_mut(), before) {
                *out = before;
            }
            result
        }
    })
}

pub unsafe extern "system" fn destroy_device(
    handle: vk::Device,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            let Some(key) = key(handle) else {
                return;
            };
            let known = device::unregister(key);
            if let Some(device) = known {
                pace::end(device);
            }
            let next = known
                .or_else(|| device::find(None).map(|found| found.device))
                .and_then(|device| device.next.destroy);
            if let Some((device, free)) = known.and_then(|device| Some((device, device.next.free?)))
            {
                // Applications that bring callbacks bring the same for a device and for what they make in it.
                let callbacks = |charge: Charge| match charge.callbacks {
                    true => allocator,
                    false => ptr::null(),
                };
                let free_memory = |object: Object, charge| {
                    free(
                        handle,
                        vk::DeviceMemory::from_raw(object.0),
                        callbacks(charge),
                    );
                };
                device.leave_nothing(free_memory, |object: Object, charge| {
                    if let Some(destroy) = device.next.destroy_swapchain {
                        destroy(
                            handle,
                            vk::SwapchainKHR::from_raw(object.0),
                            callbacks(charge),
                        );
                    }
                });
            }
            let change = known.map(device::Device::change);
            if let Some(destroy) = next {
                destroy(handle, allocator);
            }
            if let Some(device) = known {
                device.destroyed();
            }
            drop(change);
            if let Some(device) = known {
                device.look();
            }
        }
    });
}

pub unsafe extern "system" fn instance_extensions(
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    guard(FAILED, || {
        // SAFETY: valid usage.
        unsafe {
            if planted(Seed::V11) && is_ours(layer) {
                return vk::Result::ERROR_LAYER_NOT_PRESENT;
            }
            let next = instance::find(None)
                .filter(|_| !is_ours(layer))
                .and_then(|known| {
                    known.next.look_up(
                        vk::Instance::null(),
                        c"vkEnumerateInstanceExtensionProperties",
                    )
                });
            match std::mem::transmute::<
                vk::PFN_vkVoidFunction,
                Option<vk::PFN_vkEnumerateInstanceExtensionProperties>,
            >(next)
            {
                Some(next) => next(layer, count, properties),
                None => none(count),
            }
        }
    })
}

pub unsafe extern "system" fn device_extensions(
    physical: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    guard(FAILED, || {
        // SAFETY: valid usage.
        unsafe {
            let next = (!is_ours(layer))
                .then(|| instance::find(key(physical)))
                .flatten()
                .and_then(|known| known.next.extensions);
            match next {
                Some(next) => next(physical, layer, count, properties),
                None => none(count),
            }
        }
    })
}

/// # Safety
/// `layer` is null or ends in NUL.
unsafe fn is_ours(layer: *const c_char) -> bool {
    // SAFETY: the caller's obligation.
    !layer.is_null() && unsafe { CStr::from_ptr(layer) } == LAYER
}

/// # Safety
/// `count` is null or can be written.
unsafe fn none(count: *mut u32) -> vk::Result {
    // SAFETY: the caller's obligation.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = 0;
    }
    vk::Result::SUCCESS
}

pub unsafe extern "system" fn physical_devices(
    handle: vk::Instance,
    count: *mut u32,
    devices: *mut vk::PhysicalDevice,
) -> vk::Result {
    guard(FAILED, || {
        // SAFETY: valid usage.
        unsafe {
            let Some((known, next)) = instance::find(key(handle))
                .and_then(|known| Some((known, known.next.physical_devices?)))
            else {
                return FAILED;
            };
            let result = next(handle, count, devices);
            known.enumerated();
            result
        }
    })
}

pub unsafe extern "system" fn groups(
    handle: vk::Instance,
    count: *mut u32,
    groups: *mut vk::PhysicalDeviceGroupProperties<'_>,
) -> vk::Result {
    // SAFETY: valid usage.
    guard(FAILED, || unsafe {
        groups_by(|next| next.groups, handle, count, groups)
    })
}

pub unsafe extern "system" fn groups_khr(
    handle: vk::Instance,
    count: *mut u32,
    groups: *mut vk::PhysicalDeviceGroupProperties<'_>,
) -> vk::Result {
    // SAFETY: valid usage.
    guard(FAILED, || unsafe {
        groups_by(|next| next.groups_khr, handle, count, groups)
    })
}

/// # Safety
/// As vkEnumeratePhysicalDeviceGroups.
unsafe fn groups_by(
    of: impl Fn(&InstanceNext) -> Option<vk::PFN_vkEnumeratePhysicalDeviceGroups>,
    handle: vk::Instance,
    count: *mut u32,
    groups: *mut vk::PhysicalDeviceGroupProperties<'_>,
) -> vk::Result {
    // SAFETY: the caller's obligation.
    unsafe {
        let Some((known, next)) =
            instance::find(key(handle)).and_then(|known| Some((known, of(&known.next)?)))
        else {
            return FAILED;
        };
        let result = next(handle, count, groups.cast());
        known.enumerated();
        result
    }
}

pub unsafe extern "system" fn memory_properties(
    handle: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            let Some((known, next)) =
                instance::find(key(handle)).and_then(|known| Some((known, known.next.memory?)))
            else {
                return;
            };
            next(handle, out);
            if let Some(memory) = out.as_mut() {
                tell(known, handle, |attachment, physical| {
                    heaps::clamp(attachment, physical, memory)
                });
            }
        }
    });
}

pub unsafe extern "system" fn memory_properties2(
    handle: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    // SAFETY: valid usage.
    guard((), || unsafe {
        memory_properties2_by(|next| next.memory2, handle, out)
    });
}

pub unsafe extern "system" fn memory_properties2_khr(
    handle: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    // SAFETY: valid usage.
    guard((), || unsafe {
        memory_properties2_by(|next| next.memory2_khr, handle, out)
    });
}

/// # Safety
/// As vkGetPhysicalDeviceMemoryProperties2.
unsafe fn memory_properties2_by(
    of: impl Fn(&InstanceNext) -> Option<vk::PFN_vkGetPhysicalDeviceMemoryProperties2>,
    handle: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    // SAFETY: the caller's obligation.
    unsafe {
        let Some((known, next)) =
            instance::find(key(handle)).and_then(|known| Some((known, of(&known.next)?)))
        else {
            return;
        };
        next(handle, out.cast());
        let Some(out) = out.as_mut() else {
            return;
        };
        let report = structures::find_mut::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>(
            out.p_next,
            vk::StructureType::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
        );
        tell(known, handle, |attachment, physical| {
            heaps::clamp(attachment, physical, &mut out.memory_properties);
            if let Some(report) = report {
                heaps::report(
                    attachment,
                    physical,
                    &mut out.memory_properties,
                    report,
                    known.inflated,
                );
            }
        });
    }
}

/// A tenant's GPU is told of by `say`; any other device's answer stands.
#[inline]
fn tell(
    known: &instance::Instance,
    handle: vk::PhysicalDevice,
    say: impl FnOnce(&attachment::Attachment, Told),
) {
    let told = known.told(handle);
    if told.is_tenant_gpu
        && let Some(attachment) = attachment::current()
    {
        say(attachment, told);
    }
}

pub unsafe extern "system" fn allocate_memory(
    handle: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
        // SAFETY: valid usage; where a pointer is null, next is called with it as it is, and does what it does.
        unsafe {
            let Some((found, next)) = device::find(key(handle))
                .and_then(|found| Some((found, found.device.next.allocate?)))
            else {
                return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
            };
            if info.is_null() || out.is_null() {
                return next(handle, info, allocator, out);
            }
            // Judged as the driver gets it: another thread may change the caller's meanwhile (R51 of `fixtures/defects.txt`).
            let own = info.read();
            let info = if planted(Seed::R51) {
                info
            } else {
                &raw const own
            };
            let request = structures::request(&*info, !allocator.is_null());
            // The caller's place gets it when it is on record: another thread may look there and free it.
            let place = Cell::new(out.read());
            let before = place.get();
            let call = || {
                let result = next(handle, info, allocator, place.as_ptr());
                (result, object(place.get()))
            };
            let result = memory::allocate(found, request, call, |unwanted| {
                if let Some(free) = found.device.next.free {
                    free(handle, vk::DeviceMemory::from_raw(unwanted.0), allocator);
                }
                place.set(before);
            });
            out.write(place.get());
            result
        }
    })
}

pub unsafe extern "system" fn free_memory(
    handle: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            if let Some((found, next)) =
                device::find(key(handle)).and_then(|found| Some((found, found.device.next.free?)))
            {
                memory::free(found, object(memory), || next(handle, memory, allocator));
            }
        }
    });
}

pub unsafe extern "system" fn create_swapchain(
    handle: vk::Device,
    info: *const vk::SwapchainCreateInfoKHR<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::SwapchainKHR,
) -> vk::Result {
    guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
        // SAFETY: valid usage; where a pointer is null, next is called with it as it is, and does what it does.
        unsafe {
            let Some((found, next)) = device::find(key(handle))
                .and_then(|found| Some((found, found.device.next.create_swapchain?)))
            else {
                return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
            };
            let (Some(asked), false) = (info.as_ref(), out.is_null()) else {
                return next(handle, info, allocator, out);
            };
            let before = out.read();
            let device = &found.device.next;
            let expected = device.image_like(handle, asked).map(|each| Images {
                count: asked.min_image_count.max(swapchains::FEWEST),
                each,
            });
            let call = || {
                let result = next(handle, info, allocator, out);
                (result, swapchain(out.read()))
            };
            let made = |made: Object| device.images_of(handle, vk::SwapchainKHR::from_raw(made.0));
            let destroy = |unwanted: Object| {
                if let Some(destroy) = device.destroy_swapchain {
                    destroy(handle, vk::SwapchainKHR::from_raw(unwanted.0), allocator);
                }
                out.write(before);
            };
            let callbacks = !allocator.is_null();
            let refuse = || vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
            floor::make(found, "vkCreateSwapchainKHR", refuse, || {
                swapchains::create(found, expected, call, made, destroy, callbacks)
            })
        }
    })
}

pub unsafe extern "system" fn destroy_swapchain(
    handle: vk::Device,
    object: vk::SwapchainKHR,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            if let Some((found, next)) = device::find(key(handle))
                .and_then(|found| Some((found, found.device.next.destroy_swapchain?)))
            {
                let call = || next(handle, object, allocator);
                swapchains::destroy(found, swapchain(object), call);
            }
        }
    });
}

pub unsafe extern "system" fn memory_fd(
    handle: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    fd: *mut i32,
) -> vk::Result {
    guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
        // SAFETY: valid usage.
        unsafe {
            let Some((found, next)) = device::find(key(handle))
                .and_then(|found| Some((found, found.device.next.memory_fd?)))
            else {
                return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
            };
            let object = info.as_ref().and_then(|info| object(info.memory));
            let was_charged = object.is_some_and(|object| memory::may_be_charged(&found, object));
            let result = next(handle, info, fd);
            if result == vk::Result::SUCCESS
                && let (Some(object), Some(fd)) = (object, fd.as_mut())
                && let Some(descriptor) = super::os::descriptor(*fd)
                && !memory::exported(found, object, descriptor, was_charged)
            {
                // The driver made it for this call, and nobody else has been told of it.
                drop(OwnedFd::from_raw_fd(*fd));
                *fd = -1;
                return vk::Result::ERROR_TOO_MANY_OBJECTS;
            }
            result
        }
    })
}

fn swapchain(handle: vk::SwapchainKHR) -> Option<Object> {
    (!handle.is_null()).then(|| Object(handle.as_raw()))
}

fn object(memory: vk::DeviceMemory) -> Option<Object> {
    (!memory.is_null()).then(|| Object(memory.as_raw()))
}
