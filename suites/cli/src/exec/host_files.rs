//! What the simulated machine looks like to programs that look at files before they ask a driver: its GPUs on the PCI bus, its kernel
//! module, its device nodes. Written to a folder here, put over the host's own by [`super::boundary`].
//!
//! The files' forms and contents are those of an H200 under 580.159.04; where a GPU has no such fact, the file is left out.

use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use harness::{Api, World};

/// The PCI devices of the host, each a link to where its files are.
pub const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// What kernel modules say of themselves.
pub const PROC_DRIVER: &str = "/proc/driver";

const NVIDIA: &str = "0x10de";

/// Major numbers of the driver's nodes. Only the first is fixed; the others are those of the recorded machine.
const FRONTEND: u32 = 195;
const UVM: u32 = 238;
const CAPABILITIES: u32 = 241;

/// MIG's device nodes: so many compute instances in each GPU instance, so many GPU instances on each GPU.
const COMPUTE_INSTANCES: u32 = 8;
const GPU_INSTANCES: u32 = 15;

/// A device node below /dev.
pub struct Node {
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
}

/// One GPU, as files tell of it.
struct Gpu {
    index: u32,
    name: String,
    uuid: String,
    address: String,
    device: u32,
    /// GPU instances, with the compute instances in each.
    instances: Vec<(u32, Vec<u32>)>,
}

fn gpus(world: &World) -> Vec<Gpu> {
    let devices = world.shown(Api::Nvml).into_iter().zip(0..);
    devices
        .map(|(device, index)| {
            let profile = &world.devices()[device.as_usize()];
            let identity = world.identity(device, Api::Nvml);
            Gpu {
                index,
                name: profile.name.clone(),
                uuid: identity.uuid_text(),
                address: identity.pci.to_string(),
                device: profile.pci_device_id,
                instances: profile
                    .mig
                    .iter()
                    .map(|instance| {
                        let compute = instance.compute.iter().map(|one| one.id);
                        (instance.id, compute.collect())
                    })
                    .collect(),
            }
        })
        .collect()
}

/// The minor number of a GPU instance's node, and of those of its compute instances behind it.
fn instance_minor(gpu: u32, instance: u32) -> u32 {
    3 + (gpu * GPU_INSTANCES + instance) * (1 + COMPUTE_INSTANCES)
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// The PCI bus: the host's devices but for its own GPUs, and the simulated ones.
pub fn write_pci(world: &World, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let gpus = gpus(world);
    for entry in fs::read_dir(PCI_DEVICES)? {
        let entry = entry?;
        let simulated = gpus
            .iter()
            .any(|gpu| entry.file_name() == gpu.address.as_str());
        let vendor = fs::read_to_string(entry.path().join("vendor")).unwrap_or_default();
        if !simulated && vendor.trim() != NVIDIA {
            symlink(fs::read_link(entry.path())?, folder.join(entry.file_name()))?;
        }
    }
    for gpu in &gpus {
        let place = folder.join(&gpu.address);
        let device = gpu.device & 0xffff;
        for (name, text) in [
            ("vendor", NVIDIA.to_owned()),
            ("device", format!("{device:#06x}")),
            ("class", "0x030200".to_owned()),
            ("revision", "0xa1".to_owned()),
            ("irq", "0".to_owned()),
            ("numa_node", "-1".to_owned()),
            ("enable", "1".to_owned()),
            ("power_state", "D0".to_owned()),
            (
                "modalias",
                format!("pci:v000010DEd{device:08X}sv00000000sd00000000bc03sc02i00"),
            ),
            (
                "uevent",
                format!(
                    "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:{device:04X}\nPCI_SLOT_NAME={}",
                    gpu.address
                ),
            ),
            // No region is mapped: six of the device, and its ROM.
            (
                "resource",
                ["0x0000000000000000 0x0000000000000000 0x0000000000000000"; 7].join("\n"),
            ),
        ] {
            put(&place.join(name), &format!("{text}\n"))?;
        }
        fs::write(place.join("config"), configuration(device))?;
    }
    Ok(())
}

/// The header of the device's configuration space, which lspci reads: who made it, what it is, no regions.
fn configuration(device: u32) -> [u8; 256] {
    let mut space = [0; 256];
    space[..2].copy_from_slice(&0x10de_u16.to_le_bytes());
    space[2..4].copy_from_slice(&device.to_le_bytes()[..2]);
    // Memory space and bus mastering are enabled.
    space[4] = 0x06;
    // Revision, then the class of a 3D controller.
    space[8..12].copy_from_slice(&[0xa1, 0x00, 0x02, 0x03]);
    space
}

/// What the kernel module says of itself and of the GPUs, below /proc/driver; and what of the host's is kept beside.
pub fn write_proc(world: &World, folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(PROC_DRIVER)? {
        let entry = entry?;
        let known = entry.file_name().to_string_lossy().starts_with("nvidia");
        if !known && entry.file_type()?.is_file() {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            put(
                &folder.join(entry.file_name()),
                &String::from_utf8_lossy(&bytes),
            )?;
        }
    }
    let version = &world.machine().driver.version;
    let nvidia = folder.join("nvidia");
    let module = format!(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  (simulated by ringfence)\n\
         GCC version:  none\n"
    );
    put(&nvidia.join("version"), &module)?;
    put(
        &nvidia.join("params"),
        "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
    )?;
    put(&nvidia.join("registry"), "")?;
    let gpus = gpus(world);
    for gpu in &gpus {
        let information = format!(
            "Model: \t\t {}\nIRQ:   \t\t 0\nGPU UUID: \t {}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n\
             DMA Mask: \t 0xfffffffffffff\nBus Location: \t {}\nDevice Minor: \t {}\nGPU Firmware: \t {version}\n\
             GPU Excluded:\t No\n",
            gpu.name, gpu.uuid, gpu.address, gpu.index
        );
        put(
            &nvidia.join("gpus").join(&gpu.address).join("information"),
            &information,
        )?;
        fs::create_dir_all(nvidia.join(format!("capabilities/gpu{}/mig", gpu.index)))?;
    }
    for (capability, minor, mode) in capabilities(&gpus) {
        let text =
            format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n");
        put(&nvidia.join("capabilities").join(capability), &text)?;
    }
    put(
        &folder.join("nvidia-caps/mig-minors"),
        &mig_minors(gpus.len() as u32),
    )
}

/// MIG's capabilities: where the module tells of each, the minor number of its node, and the node's mode.
fn capabilities(gpus: &[Gpu]) -> Vec<(String, u32, u32)> {
    let mut all = vec![
        ("mig/config".to_owned(), 1, 0o400),
        ("mig/monitor".to_owned(), 2, 0o444),
    ];
    for gpu in gpus {
        for (instance, compute) in &gpu.instances {
            let minor = instance_minor(gpu.index, *instance);
            let place = format!("gpu{}/mig/gi{instance}", gpu.index);
            all.push((format!("{place}/access"), minor, 0o444));
            for id in compute {
                all.push((format!("{place}/ci{id}/access"), minor + 1 + id, 0o444));
            }
        }
    }
    all
}

/// The numbers of every MIG capability that there may be.
fn mig_minors(gpus: u32) -> String {
    let mut text = "config 1\nmonitor 2\n".to_owned();
    for (gpu, instance) in (0..gpus).flat_map(|gpu| (0..GPU_INSTANCES).map(move |one| (gpu, one))) {
        let minor = instance_minor(gpu, instance);
        let _ = writeln!(text, "gpu{gpu}/gi{instance}/access {minor}");
        for compute in 0..COMPUTE_INSTANCES {
            let minor = minor + 1 + compute;
            let _ = writeln!(text, "gpu{gpu}/gi{instance}/ci{compute}/access {minor}");
        }
    }
    text
}

/// The driver's nodes.
pub fn nodes(world: &World) -> Vec<Node> {
    let node = |path: String, major, minor, mode| Node {
        path: path.into(),
        major,
        minor,
        mode,
    };
    let gpus = gpus(world);
    let mut all = vec![
        node("nvidiactl".to_owned(), FRONTEND, 255, 0o666),
        node("nvidia-uvm".to_owned(), UVM, 0, 0o666),
        node("nvidia-uvm-tools".to_owned(), UVM, 1, 0o666),
    ];
    all.extend(
        gpus.iter()
            .map(|gpu| node(format!("nvidia{}", gpu.index), FRONTEND, gpu.index, 0o666)),
    );
    all.extend(capabilities(&gpus).into_iter().map(|(_, minor, mode)| {
        node(
            format!("nvidia-caps/nvidia-cap{minor}"),
            CAPABILITIES,
            minor,
            mode,
        )
    }));
    all
}
