//! What the proc-address commands answer, asked of the library directly.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};

use ash::vk::{self, Handle};
use mock_device::{WorldSpec, profile};
use object::{Object, ObjectSymbol};

use crate::client::Client;
use crate::environment::{Environment, isolated, library, role};

pub type LookUp = unsafe extern "system" fn(u64, *const c_char) -> *const c_void;

/// The library, opened as the loader opens it. Never closed.
pub struct Driver {
    pub by_instance: LookUp,
    pub by_physical_device: LookUp,
}

impl Driver {
    pub fn open() -> Self {
        let path = CString::new(library().into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the two exports have this signature (vk_icd.h); the library stays loaded.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let find = |name: &std::ffi::CStr| {
                std::mem::transmute::<*mut c_void, LookUp>(libc::dlsym(handle, name.as_ptr()))
            };
            Self {
                by_instance: find(c"vk_icdGetInstanceProcAddr"),
                by_physical_device: find(c"vk_icdGetPhysicalDeviceProcAddr"),
            }
        }
    }

    pub fn ask(look_up: LookUp, handle: u64, name: &str) -> usize {
        let name = CString::new(name).unwrap();
        // SAFETY: a live handle or NULL, and a C string.
        unsafe { look_up(handle, name.as_ptr()) as usize }
    }

    fn global(&self, name: &str) -> usize {
        Self::ask(self.by_instance, 0, name)
    }

    fn create_instance(&self) -> u64 {
        self.instance_of(&vk::InstanceCreateInfo::default())
    }

    pub fn instance_of(&self, info: &vk::InstanceCreateInfo<'_>) -> u64 {
        let mut instance = vk::Instance::null();
        // SAFETY: the answer for this name is a function of this type.
        let result = unsafe {
            let create = std::mem::transmute::<usize, vk::PFN_vkCreateInstance>(
                self.global("vkCreateInstance"),
            );
            create(info, std::ptr::null(), &mut instance)
        };
        assert_eq!(result, vk::Result::SUCCESS);
        instance.as_raw()
    }
}

/// Names of the registry's commands of Vulkan 1.0 to 1.3, which are all advertised.
fn core_commands(registry: &str) -> Vec<String> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = roxmltree::Document::parse_with_options(registry, options).expect("vk.xml");
    let features = document.descendants().filter(|node| {
        let of_vulkan = node
            .attribute("api")
            .is_none_or(|api| api.split(',').any(|api| api == "vulkan"));
        node.has_tag_name("feature")
            && of_vulkan
            && node
                .attribute("number")
                .is_some_and(|number| number <= "1.3")
    });
    let commands = features.flat_map(|node| {
        node.descendants()
            .filter(|node| node.has_tag_name("command"))
    });
    commands
        .filter_map(|node| node.attribute("name").map(str::to_owned))
        .collect()
}

#[test]
fn every_core_command_is_answered_by_a_function_of_its_own() {
    isolated(
        "look_up::every_core_command_is_answered_by_a_function_of_its_own",
        "tiny",
        || {
            let Ok(registry) = std::fs::read_to_string("/usr/share/vulkan/registry/vk.xml") else {
                return eprintln!("SKIP: no registry (Debian: libvulkan-dev)");
            };
            let driver = Driver::open();
            let instance = driver.create_instance();
            let mut by_address = BTreeMap::new();
            let names = core_commands(&registry);
            assert!(names.len() > 200, "{}", names.len());
            for name in names {
                let global = matches!(&*name, "vkCreateInstance" | "vkEnumerateInstanceVersion")
                    || name.starts_with("vkEnumerateInstanceExt")
                    || name.starts_with("vkEnumerateInstanceLay");
                let address =
                    Driver::ask(driver.by_instance, if global { 0 } else { instance }, &name);
                assert_ne!(address, 0, "{name}");
                assert_eq!(
                    by_address.insert(address, name.clone()),
                    None,
                    "{name} shares its address"
                );
            }
        },
    );
}

#[test]
fn without_an_instance_only_global_commands_are_answered() {
    isolated(
        "look_up::without_an_instance_only_global_commands_are_answered",
        "tiny",
        || {
            let driver = Driver::open();
            let instance = driver.create_instance();
            for name in [
                "vkCreateInstance",
                "vkEnumerateInstanceVersion",
                "vkGetInstanceProcAddr",
            ] {
                assert_ne!(driver.global(name), 0, "{name}");
            }
            for name in ["vkCreateDevice", "vkAllocateMemory", "vkNoSuchCommand", ""] {
                assert_eq!(driver.global(name), 0, "{name}");
            }
            assert_ne!(
                Driver::ask(driver.by_instance, instance, "vkCreateInstance"),
                0,
                "as the card"
            );
            assert_ne!(
                Driver::ask(driver.by_instance, instance, "vkAllocateMemory"),
                0
            );
            assert_eq!(
                Driver::ask(
                    driver.by_instance,
                    instance,
                    "vkGetPhysicalDeviceMemoryProperties2KHR"
                ),
                0,
                "not enabled"
            );
            assert_eq!(
                Driver::ask(driver.by_physical_device, instance, "vkCreateDevice"),
                0,
                "no loader asks for what it knows"
            );
            assert_ne!(
                Driver::ask(
                    driver.by_physical_device,
                    instance,
                    "vkGetPhysicalDeviceFeatures2"
                ),
                0
            );
            assert_eq!(
                Driver::ask(driver.by_physical_device, instance, "vkAllocateMemory"),
                0
            );
        },
    );
}

/// Whether vkGetDeviceProcAddr, through the loader, answers a name.
fn device_has(client: &Client, name: &std::ffi::CStr) -> bool {
    // SAFETY: a live device and a C string.
    unsafe {
        (client.instance.fp_v1_0().get_device_proc_addr)(client.device.handle(), name.as_ptr())
    }
    .is_some()
}

#[test]
fn a_device_answers_its_own_commands_and_enabled_extensions_only() {
    isolated(
        "look_up::a_device_answers_its_own_commands_and_enabled_extensions_only",
        "tiny",
        || {
            let client = Client::new();
            for name in [
                c"vkAllocateMemory",
                c"vkQueueSubmit2",
                c"vkCmdFillBuffer",
                c"vkGetDeviceProcAddr",
            ] {
                assert!(device_has(&client, name), "{name:?}");
            }
            for name in [
                c"vkQueueSubmit2KHR",
                c"vkCreateInstance",
                c"vkGetPhysicalDeviceProperties",
                c"vkNoSuchCommand",
            ] {
                assert!(!device_has(&client, name), "{name:?}");
            }
            client.destroy();
        },
    );
}

#[test]
fn an_older_driver_lacks_the_commands_of_newer_versions() {
    const TEST: &str = "look_up::an_older_driver_lacks_the_commands_of_newer_versions";
    if role().is_some() {
        let client = Client::with(vk::API_VERSION_1_2, false, &[]);
        assert!(device_has(&client, c"vkSignalSemaphore"));
        assert!(!device_has(&client, c"vkQueueSubmit2"));
        client.destroy();
    } else {
        let mut spec = WorldSpec::new(profile::embedded("tiny").expect("an embedded profile"));
        spec.machine.driver.vulkan_api = [1, 2, 175];
        Environment::of(spec).run(TEST, "client");
    }
}

#[test]
fn a_missing_command_of_the_fault_plan_is_not_answered() {
    const TEST: &str = "look_up::a_missing_command_of_the_fault_plan_is_not_answered";
    if role().is_some() {
        let client = Client::new();
        assert!(!device_has(&client, c"vkQueueSubmit2"));
        client.destroy();
    } else {
        let faults = "[[fault]]\nat = \"vkQueueSubmit2\"\nthen = \"missing\"\n";
        Environment::with_faults("tiny", faults).run(TEST, "client");
    }
}

#[test]
fn the_library_exports_the_loaders_three_and_binds_its_own_names_itself() {
    let bytes = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let mut exports: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().unwrap())
        .collect();
    exports.sort_unstable();
    let three = [
        "vk_icdGetInstanceProcAddr",
        "vk_icdGetPhysicalDeviceProcAddr",
        "vk_icdNegotiateLoaderICDInterfaceVersion",
    ];
    assert_eq!(exports, three);
    let named: Vec<_> = file
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .filter_map(|(_, relocation)| match relocation.target() {
            object::RelocationTarget::Symbol(index) => file
                .dynamic_symbol_table()?
                .symbol_by_index(index)
                .ok()?
                .name()
                .ok()
                .map(str::to_owned),
            _ => None,
        })
        .filter(|name| exports.contains(&&**name))
        .collect();
    assert_eq!(named, Vec::<String>::new());
    use object::ObjectSymbolTable;
}
