//! Between layers that give out handles of their own (`suites/wrapper`): above the layer, below it, and on both sides. Each promise runs
//! in a process of its own, started with a loader that finds them there.

use std::path::{Path, PathBuf};

use harness::{Bytes, Failure, Launch, Library, Session, cases, ensure, ensure_eq, fail, roles};
use mock_device::DeviceIndex;

use crate::clients::{Gpu, device_heap, first_gpu, gpus, instance, memory_type};
use crate::ffi::places::Places;
use crate::ffi::vulkan::validation;
use crate::ffi::vulkan::{Client, Code, Device, Instance, Place, Query, Wish};
use crate::greed::{VULKAN_ROOM, budget, fills};
use crate::tenant::Tenant;
use crate::vulkan::asked::{self, Asker};
use crate::vulkan::submits;

const REFUSED: Code = Code::OUT_OF_DEVICE_MEMORY;
/// Enables the wrappers, and makes them careless if it says so.
const SWITCH: &str = "RINGFENCE_WRAP";
/// What no XDG_DATA_DIRS means to the loader.
const DATA_DIRS: &str = "/usr/local/share:/usr/share";

/// Where wrappers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Above,
    Below,
    Both,
    /// Above, and it leaves the driver's own queues without the loader's word.
    Careless,
}

impl Stand {
    const ALL: [Stand; 4] = [Stand::Above, Stand::Below, Stand::Both, Stand::Careless];

    fn named(name: &str) -> Option<Stand> {
        Stand::ALL
            .into_iter()
            .find(|stand| format!("{stand:?}") == name)
    }

    const fn is_above(self) -> bool {
        !matches!(self, Stand::Below)
    }

    const fn is_below(self) -> bool {
        matches!(self, Stand::Below | Stand::Both)
    }
}

/// Has a process keep that promise with wrappers around it.
fn keeps(session: &Session, stand: Stand, promise: &str) -> Result<(), Failure> {
    let launch = between(session, stand, "between_wrappers")?;
    launch
        .args(&[&format!("{stand:?}"), promise])
        .start()?
        .finish()
}

/// A process in that role whose Vulkan loader finds wrappers there.
fn between<'a>(session: &'a Session, stand: Stand, role: &str) -> Result<Launch<'a>, Failure> {
    let switch = if stand == Stand::Careless {
        "careless"
    } else {
        "1"
    };
    let root = session.directory();
    // The loader looks into XDG_CONFIG_HOME first and into the last of XDG_DATA_DIRS last; what it finds first is the application's next.
    let (above, below) = (root.join("above"), root.join("below"));
    let wrapper = session.library(Library::Wrapper)?;
    if stand.is_above() {
        install(&above, "above", &wrapper, switch)?;
    }
    if stand.is_below() {
        // A file of its own: one that is mapped already is not mapped again, and two layers must not share a memory.
        let copy = root.join("below").join(Library::Wrapper.file_name());
        std::fs::create_dir_all(&below)?;
        std::fs::copy(&wrapper, &copy)?;
        install(&below, "below", &copy, switch)?;
    }
    let before = std::env::var_os("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
    let before = before.map_or_else(
        || DATA_DIRS.to_owned(),
        |dirs| dirs.to_string_lossy().into_owned(),
    );
    let mut launch = session.launch(role);
    if stand == Stand::Careless {
        // The validation layer is one of those that look at the word, and crash.
        launch = launch.env(validation::SWITCH, "");
    }
    Ok(launch
        .env("XDG_CONFIG_HOME", &above.display().to_string())
        .env("XDG_DATA_DIRS", &format!("{before}:{}", below.display()))
        .env(SWITCH, switch))
}

fn install(data: &Path, name: &str, library: &Path, switch: &str) -> Result<(), Failure> {
    let folder = data.join("vulkan/implicit_layer.d");
    std::fs::create_dir_all(&folder)?;
    let manifest = format!(
        r#"{{"file_format_version": "1.0.0", "layer": {{
            "name": "VK_LAYER_RINGFENCE_wrapper_{name}", "type": "GLOBAL", "library_path": "{}", "api_version": "1.3.0",
            "implementation_version": "1", "description": "Gives out handles of its own",
            "functions": {{"vkNegotiateLoaderLayerInterfaceVersion": "vkNegotiateLoaderLayerInterfaceVersion"}},
            "enable_environment": {{"{SWITCH}": "{switch}"}}, "disable_environment": {{"{SWITCH}_NOT": "1"}} }} }}"#,
        library.display(),
    );
    std::fs::write(folder.join(format!("{name}.json")), manifest)?;
    Ok(())
}

/// The wrappers are where they should be: a device's first function is the uppermost layer's.
fn stands(
    session: &Session,
    stand: Stand,
    instance: &Instance,
    device: &Device,
) -> Result<(), Failure> {
    let wrapper = session.library(Library::Wrapper)?;
    let copy = session
        .directory()
        .join("below")
        .join(Library::Wrapper.file_name());
    let expected = |wanted: bool, file: &PathBuf| -> Result<(), Failure> {
        let mapped = session.maps()?.files().contains(&file.canonicalize()?);
        ensure_eq!(mapped, wanted, "{} is mapped", file.display());
        Ok(())
    };
    expected(stand.is_above(), &wrapper)?;
    if stand.is_below() {
        expected(true, &copy)?;
    }
    let uppermost = if stand.is_above() {
        wrapper
    } else {
        session.library(Library::Layer)?
    };
    let address = device.address_of(instance, c"vkAllocateMemory");
    let places = Places::of_this_process()?;
    let file = address.and_then(|address| Some(places.of(address)?.file));
    ensure_eq!(
        file,
        Some(uppermost.canonicalize()?),
        "the library of a device's vkAllocateMemory"
    );
    Ok(())
}

/// A device that can all, of a GPU that is told of as large as its budget, with the wrappers there.
fn ready(session: &Session, stand: Stand) -> Result<Asker, Failure> {
    let asker = Asker::new()?;
    for query in [Query::First, Query::Second] {
        let heap = device_heap(&asker.instance.heaps(asker.physical, query))?;
        ensure_eq!(heap, budget(session, 0)?, "the heap by {query:?}");
    }
    stands(session, stand, &asker.instance, &asker.device)?;
    Ok(asker)
}

/// Heaps clamped, a budget that is exact however often it is used up, and memory for one buffer or image alone.
fn memory(session: &Session, stand: Stand) -> Result<(), Failure> {
    let asker = ready(session, stand)?;
    let budget = budget(session, 0)?;
    let told = asker.instance.heap_budgets(asker.physical, Query::Second);
    ensure!(
        told.budget[0] <= budget.0,
        "heapBudget {} of {budget}",
        told.budget[0]
    );
    fills(asker.fill()?, budget, VULKAN_ROOM)?;
    asked::alone(&asker)
}

/// What is exported and imported is charged once, until both are gone.
fn sharing(session: &Session, stand: Stand) -> Result<(), Failure> {
    asked::sharing(&ready(session, stand)?)
}

/// Buffers, memory, fences, a timeline and command buffers reach the driver as what they are: bytes arrive.
fn transfers(session: &Session, stand: Stand) -> Result<(), Failure> {
    const WORD: u32 = 0x5eed_f00d;
    let asker = ready(session, stand)?;
    let size = Bytes::kib(64).0;
    let (from, to) = (
        asker.device.buffer(size, None)?,
        asker.device.buffer(size, None)?,
    );
    let host = memory_type(&asker.instance, asker.physical, Place::Host)?;
    let visible = asker.device.allocate(host, to.needs().0)?;
    from.bind_by_structure(asker.ask(Bytes(from.needs().0), Wish::default())?)?;
    to.bind(visible)?;
    let carried = asker.device.carry(WORD, &from, &to, visible)?;
    ensure_eq!(carried, WORD, "the word that was carried");
    Ok(())
}

/// Instances and devices of one process each have a chain of their own, whose ends give back what they had.
fn several(session: &Session, stand: Stand) -> Result<(), Failure> {
    let asker = ready(session, stand)?;
    let all = asker.fill()?;
    let (older, second) = (instance(Client::V1_0)?, instance(Client::V1_1)?);
    let groups = asker.instance.groups()?;
    let listed = groups.iter().flatten().count();
    ensure_eq!(
        listed,
        asker.instance.physical_devices()?.len(),
        "physical devices in groups"
    );
    ensure!(
        groups.iter().flatten().any(|one| *one == asker.physical),
        "the first GPU is in no group"
    );
    for _ in 0..3 {
        let (one, other) = (
            Gpu::on(&older, first_gpu(&older)?)?,
            Gpu::on(&second, first_gpu(&second)?)?,
        );
        ensure_eq!(
            one.allocate(Bytes::gib(2)).err(),
            None,
            "2 GiB by one instance"
        );
        ensure_eq!(
            other.allocate(Bytes::gib(2)).err(),
            None,
            "2 GiB by another"
        );
        ensure_eq!(
            asker.ask(Bytes::gib(2), Wish::default()).err(),
            Some(REFUSED),
            "2 GiB more of 6"
        );
    }
    drop((older, second));
    ensure_eq!(
        asker.fill()?,
        all,
        "granted after their devices and instances were destroyed"
    );
    asker.ask(Bytes::gib(3), Wish::default())?;
    drop(asker);
    let held = session.world()?.used(DeviceIndex(0));
    ensure_eq!(
        held,
        Bytes::ZERO,
        "held of the device after the last instance"
    );
    let charged = Bytes(session.ledger()?.usage(ledger::DeviceIndex(0)).0);
    ensure_eq!(charged, Bytes::ZERO, "charged after the last instance");
    Ok(())
}

/// Two GPUs that are one group: what the device takes is charged to each of them, memory to those of its mask.
fn group(session: &Session, stand: Stand) -> Result<(), Failure> {
    let instance = instance(Client::V1_3)?;
    let members = gpus(&instance)?;
    ensure_eq!(instance.groups()?, vec![members.clone()], "groups");
    for (index, physical) in (0..).zip(&members) {
        let heap = device_heap(&instance.heaps(*physical, Query::Second))?;
        ensure_eq!(heap, budget(session, index)?, "the heap of GPU {index}");
    }
    let device = instance.device_with_all(&members)?;
    stands(session, stand, &instance, &device)?;
    asked::masks(session, &instance, &device, members[0])
}

/// By every command that submits, a process with wrappers around it is held to the compute budget.
fn paced(session: &Session, stand: Stand) -> Result<(), Failure> {
    let unit = submits::unbudgeted(session)?.ask("time-vulkan")?;
    submits::held(
        unit,
        &mut Tenant::launch(between(session, stand, "tenant")?)?,
    )
}

macro_rules! wrapped_cases {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident($stand:ident, $promise:literal, [$($entry:literal),*], $budget:literal, $machine:literal, $gpus:literal);
    )*) => {
        cases! { $(
            $(#[doc = $doc])+
            $name {
                kind: Budget, defects: ["V14", "V12", "V9"], entry_points: [$($entry),*], budget: $budget, machine: $machine, needs_gpus: $gpus,

            } (session) { keeps(session, Stand::$stand, $promise) }
        )* }
    };
}

/// Memory, sharing, transfers, several instances and groups, with wrappers on either side and on both.
mod sides {
    use super::*;

    wrapped_cases! {
        /// Below a layer that gives out handles of its own, heaps are told as large as the budget, which is granted to the last byte, and again when it was freed.
        below_a_wrapper_the_budget_is_exact(Above, "memory", ["vkAllocateMemory", "vkGetPhysicalDeviceMemoryProperties2"], "0=6GiB", "rtx6000-ada", 1);
        /// The same above one.
        above_a_wrapper_the_budget_is_exact(Below, "memory", ["vkAllocateMemory", "vkGetPhysicalDeviceMemoryProperties2"], "0=6GiB", "rtx6000-ada", 1);
        /// The same between two.
        between_wrappers_the_budget_is_exact(Both, "memory", ["vkAllocateMemory", "vkGetPhysicalDeviceMemoryProperties2"], "0=6GiB", "rtx6000-ada", 1);
        /// Below a wrapper what is exported and imported is charged once, until both are gone.
        below_a_wrapper_shared_memory_is_charged_once(Above, "sharing", ["vkAllocateMemory", "vkGetMemoryFdKHR"], "0=6GiB", "rtx6000-ada", 1);
        /// The same above one.
        above_a_wrapper_shared_memory_is_charged_once(Below, "sharing", ["vkAllocateMemory", "vkGetMemoryFdKHR"], "0=6GiB", "rtx6000-ada", 1);
        /// The same between two.
        between_wrappers_shared_memory_is_charged_once(Both, "sharing", ["vkAllocateMemory", "vkGetMemoryFdKHR"], "0=6GiB", "rtx6000-ada", 1);
        /// Between two wrappers every handle reaches the driver as what it is: a word is filled in, copied, waited for and read.
        between_wrappers_bytes_arrive(Both, "transfers", ["vkQueueSubmit"], "0=6GiB", "rtx6000-ada", 1);
        /// The same under a wrapper that leaves the driver's own queues without the loader's word.
        below_a_careless_wrapper_bytes_arrive(Careless, "transfers", ["vkQueueSubmit"], "0=6GiB", "rtx6000-ada", 1);
        /// Below a wrapper each instance and device keeps to its own chain, and its end gives back all that it had.
        below_a_wrapper_instances_keep_apart(Above, "several", ["vkCreateInstance", "vkDestroyInstance", "vkEnumeratePhysicalDeviceGroups"], "0=6GiB", "rtx6000-ada", 1);
        /// The same above one.
        above_a_wrapper_instances_keep_apart(Below, "several", ["vkCreateInstance", "vkDestroyInstance", "vkEnumeratePhysicalDeviceGroups"], "0=6GiB", "rtx6000-ada", 1);
        /// The same between two.
        between_wrappers_instances_keep_apart(Both, "several", ["vkCreateInstance", "vkDestroyInstance", "vkEnumeratePhysicalDeviceGroups"], "0=6GiB", "rtx6000-ada", 1);
        /// Between two wrappers a device of two GPUs draws on both budgets, and each allocation on those of its mask.
        between_wrappers_a_device_group_draws_on_both(Both, "group", ["vkEnumeratePhysicalDeviceGroups", "vkCreateDevice", "vkAllocateMemory"], "0=8GiB,1=6GiB", "h200x2-group", 2);
    }
}

/// The rows of the table above.
pub const SIDES: &[harness::Case] = sides::CASES;

cases! {
    /// Below a wrapper every submission is held to the compute budget, even where the wrapper leaves the driver's queues without the
    /// loader's word: a queue is known by itself.
    below_a_careless_wrapper_submissions_are_paced {
        kind: Budget, defects: ["T1", "V12"], entry_points: ["vkQueueSubmit", "vkQueueSubmit2", "vkQueueSubmit2KHR"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", seconds: 60,
        on_real: submits::SIMULATED,
    } (session) {
        paced(session, Stand::Careless)
    }

    /// The same between two careful ones, below one of which the layer's own marks are.
    between_wrappers_submissions_are_paced {
        kind: Budget, defects: ["T1", "V12"], entry_points: ["vkQueueSubmit", "vkQueueSubmit2", "vkQueueSubmit2KHR"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", seconds: 60,
        on_real: submits::SIMULATED,
    } (session) {
        paced(session, Stand::Both)
    }
}

roles! {
    /// `STAND PROMISE`: keeps it with wrappers there.
    between_wrappers(session, parent) {
        let [stand, promise] = parent.args() else {
            fail!("a stand and a promise, not {:?}", parent.args());
        };
        let Some(stand) = Stand::named(stand) else {
            fail!("wrappers cannot stand {stand}");
        };
        match promise.as_str() {
            "memory" => memory(session, stand),
            "sharing" => sharing(session, stand),
            "transfers" => transfers(session, stand),
            "several" => several(session, stand),
            "group" => group(session, stand),
            other => fail!("no promise is called {other}"),
        }
    }
}
