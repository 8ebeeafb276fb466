//! A Vulkan application over the Khronos loader, as unsafe as any. Its environment is hermetic: one driver, our layer, nobody else's.

use std::fs;
use std::path::{Path, PathBuf};

use ash::vk;

#[path = "../../../../suites/missing.rs"]
mod missing;
pub use missing::skip;

const MANIFEST: &str = include_str!("../../hami.json");
const LAVAPIPE: &str = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json";

/// Directory and variables of an application's environment. The directory goes with it.
pub struct Environment {
    pub place: tempfile::TempDir,
    pub variables: Vec<(String, String)>,
}

pub enum Driver {
    Mock,
    Lavapipe,
}

impl Environment {
    /// `None`, said loudly, where lavapipe is asked for and not installed.
    pub fn new(driver: &Driver, variables: &[(&str, &str)]) -> Option<Environment> {
        let place = tempfile::Builder::new()
            .prefix("layer-")
            .tempdir_in("/dev/shm")
            .expect("a directory");
        let layers = place.path().join("vulkan/implicit_layer.d");
        fs::create_dir_all(&layers).expect("a directory");
        let library = super::driver::library_path();
        let manifest = MANIFEST.replace(
            "/usr/local/vgpu/libvgpu_vk.so",
            library.to_str().expect("UTF-8"),
        );
        fs::write(layers.join("hami.json"), manifest).expect("a file");
        let icd = match driver {
            Driver::Lavapipe if !Path::new(LAVAPIPE).exists() => {
                missing::skip(format_args!(
                    "{LAVAPIPE} is not there (Debian: mesa-vulkan-drivers)"
                ));
                return None;
            }
            Driver::Lavapipe => PathBuf::from(LAVAPIPE),
            Driver::Mock => mock_icd(place.path()),
        };
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let own = [
            ("VK_DRIVER_FILES", text(&icd)),
            // By its older name: loaders before 1.3.207 know no other.
            ("VK_ICD_FILENAMES", text(&icd)),
            ("XDG_DATA_HOME", text(place.path())),
            ("XDG_DATA_DIRS", text(&place.path().join("none"))),
            ("XDG_CONFIG_DIRS", text(&place.path().join("none"))),
            ("XDG_RUNTIME_DIR", text(place.path())),
            ("HOME", text(place.path())),
            ("RINGFENCE_LEDGER", text(&place.path().join("ledger"))),
        ];
        let given = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables = own
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .chain(given)
            .collect();
        Some(Environment { place, variables })
    }
}

fn mock_icd(place: &Path) -> PathBuf {
    let library = super::driver::library_path().with_file_name("libmock_icd.so");
    assert!(library.exists(), "{} was not built", library.display());
    let manifest = place.join("icd.json");
    let text = format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{}", "api_version": "1.3.0"}}}}"#,
        library.display()
    );
    fs::write(&manifest, text).expect("a file");
    manifest
}

/// Whether a library of this name is mapped here.
pub fn is_mapped(name: &str) -> bool {
    fs::read_to_string("/proc/self/maps")
        .expect("readable")
        .lines()
        .any(|line| line.ends_with(name))
}

/// Names another loader than the system's.
pub const LOADER: &str = "RINGFENCE_LAYER_LOADER";

/// The loader, opened for good.
pub fn entry() -> ash::Entry {
    let loader = std::env::var_os(LOADER).unwrap_or_else(|| "libvulkan.so.1".into());
    // SAFETY: libvulkan is the loader; its look-up is the specification's.
    unsafe {
        let library: &'static libloading::Library = Box::leak(Box::new(
            libloading::Library::new(loader).expect("the Khronos loader; install libvulkan1"),
        ));
        let get = *library
            .get::<vk::PFN_vkGetInstanceProcAddr>(b"vkGetInstanceProcAddr")
            .expect("exported");
        ash::Entry::from_static_fn(ash::StaticFn {
            get_instance_proc_addr: get,
        })
    }
}

pub fn instance(
    entry: &ash::Entry,
    version: u32,
    extensions: &[*const std::ffi::c_char],
) -> ash::Instance {
    let application = vk::ApplicationInfo::default().api_version(version);
    let info = vk::InstanceCreateInfo::default()
        .application_info(&application)
        .enabled_extension_names(extensions);
    // SAFETY: valid usage.
    unsafe { entry.create_instance(&info, None) }.expect("an instance")
}

pub fn destroy_instance(instance: &ash::Instance) {
    // SAFETY: nobody uses it any more.
    unsafe { instance.destroy_instance(None) }
}

pub fn gpu(instance: &ash::Instance) -> vk::PhysicalDevice {
    // SAFETY: valid usage.
    unsafe { instance.enumerate_physical_devices() }.expect("physical devices")[0]
}

pub fn device(instance: &ash::Instance, gpu: vk::PhysicalDevice) -> ash::Device {
    let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    // SAFETY: valid usage.
    unsafe { instance.create_device(gpu, &info, None) }.expect("a device")
}

pub fn destroy_device(device: &ash::Device) {
    // SAFETY: nobody uses it any more.
    unsafe { device.destroy_device(None) }
}

pub fn memory(
    instance: &ash::Instance,
    gpu: vk::PhysicalDevice,
) -> vk::PhysicalDeviceMemoryProperties {
    // SAFETY: valid usage.
    unsafe { instance.get_physical_device_memory_properties(gpu) }
}

/// The size of the largest device-local heap.
pub fn local_heap(memory: &vk::PhysicalDeviceMemoryProperties) -> u64 {
    let local = |heap: &&vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    memory
        .memory_heaps_as_slice()
        .iter()
        .filter(local)
        .map(|heap| heap.size)
        .max()
        .expect("a device-local heap")
}

/// Heap size, budget and usage of the largest device-local heap by VkPhysicalDeviceMemoryProperties2.
pub fn budget(instance: &ash::Instance, gpu: vk::PhysicalDevice) -> (u64, u64, u64) {
    let mut report = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut report);
    // SAFETY: valid usage.
    unsafe { instance.get_physical_device_memory_properties2(gpu, &mut memory) };
    let memory = memory.memory_properties;
    let largest = local_heap(&memory);
    let number = memory
        .memory_heaps_as_slice()
        .iter()
        .position(|heap| heap.size == largest)
        .expect("just found");
    (
        largest,
        report.heap_budget[number],
        report.heap_usage[number],
    )
}

pub fn allocate(
    device: &ash::Device,
    memory: &vk::PhysicalDeviceMemoryProperties,
    size: u64,
) -> Result<vk::DeviceMemory, vk::Result> {
    let kind = memory.memory_types_as_slice().iter().position(|kind| {
        kind.property_flags
            .contains(vk::MemoryPropertyFlags::DEVICE_LOCAL)
    });
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(size)
        .memory_type_index(kind.expect("a type") as u32);
    // SAFETY: valid usage.
    unsafe { device.allocate_memory(&info, None) }
}

pub fn free(device: &ash::Device, memory: vk::DeviceMemory) {
    // SAFETY: nobody uses it any more.
    unsafe { device.free_memory(memory, None) }
}
