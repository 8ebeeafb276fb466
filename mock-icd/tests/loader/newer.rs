//! A newer Khronos loader, of Vulkan 1.4 (the one inside Debian's chromium-common, which suites/setup unpacks): clients of
//! every version find the device, allocate and transfer through it. Skipped, aloud, where it is absent.

use std::path::{Path, PathBuf};

use ash::vk;

use crate::client::{Client, LOADER};
use crate::environment::{Environment, role};
use crate::picture::run;
use crate::transfer::Mapped;

fn newer() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.clients/loader/libvulkan.so.1");
    if !path.exists() {
        crate::missing::skip(format_args!("{} is not there", path.display()));
        return None;
    }
    Some(path)
}

#[test]
fn clients_of_every_version_work_through_a_loader_of_1_4() {
    const TEST: &str = "newer::clients_of_every_version_work_through_a_loader_of_1_4";
    if role().is_none() {
        let Some(path) = newer() else {
            return;
        };
        let environment = Environment::new("h200");
        let mut command = environment.role(TEST, "client");
        command.env(LOADER, path);
        return environment.run_command(TEST, "client", command);
    }
    for minor in 0..=4 {
        let version = vk::make_api_version(0, 1, minor, 0);
        let client = Client::with(version, false, &[]);
        // SAFETY: a live entry and physical device.
        let (loader, device) = unsafe {
            (
                client
                    .entry
                    .try_enumerate_instance_version()
                    .expect("a version")
                    .expect("not 1.0"),
                client
                    .instance
                    .get_physical_device_properties(client.physical)
                    .api_version,
            )
        };
        assert_eq!(vk::api_version_minor(loader), 4, "the loader's own version");
        assert_eq!(device, vk::make_api_version(0, 1, 4, 312));
        let (from, to) = (Mapped::with(&client, &[3; 256]), Mapped::new(&client, 256));
        let region = [vk::BufferCopy::default().size(256)];
        run(&client, |commands| {
            // SAFETY: valid usage.
            unsafe {
                client
                    .device
                    .cmd_copy_buffer(commands, from.buffer, to.buffer, &region);
            }
        });
        assert_eq!(to.bytes(&client), [3; 256]);
        for name in ["vkMapMemory2", "vkCmdPushConstants2", "vkCopyMemoryToImage"] {
            let name = std::ffi::CString::new(name).unwrap();
            // SAFETY: a live device and a C string.
            let found = unsafe {
                client
                    .instance
                    .get_device_proc_addr(client.device.handle(), name.as_ptr())
            };
            assert!(found.is_some(), "{name:?} in a client of 1.{minor}");
        }
        from.destroy(&client);
        to.destroy(&client);
        client.destroy();
    }
}
