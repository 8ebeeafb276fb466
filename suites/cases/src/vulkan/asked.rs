//! What vkAllocateMemory is asked beside a size: each structure of its chain is charged as any other memory, and passed on as it is.

use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, fail};
use mock_device::DeviceIndex;

use crate::clients::{device_heap, first_gpu, gpus, instance, memory_type, nvml};
use crate::ffi::vulkan::{
    Client, Code, Device, Instance, Memory, Pages, PhysicalDevice, Place, Query, Wish,
};
use crate::greed::{STEPS, VULKAN_ROOM, budget, fills, until_refused};
use crate::vulkan::floor::row;

const REFUSED: Code = Code::OUT_OF_DEVICE_MEMORY;

/// The first GPU of a 1.3 client, and a device that can all that may be asked of it.
pub struct Asker {
    pub instance: Instance,
    pub physical: PhysicalDevice,
    pub device: Device,
    memory_type: u32,
}

impl Asker {
    pub fn new() -> Result<Self, Failure> {
        let instance = instance(Client::V1_3)?;
        let physical = first_gpu(&instance)?;
        Ok(Self {
            memory_type: memory_type(&instance, physical, Place::Device)?,
            device: instance.device_with_all(&[physical])?,
            instance,
            physical,
        })
    }

    pub fn ask(&self, bytes: Bytes, wish: Wish<'_>) -> Result<Memory, Code> {
        let answer = self.device.ask_for(self.memory_type, bytes.0, wish);
        answer.memory.ok_or(answer.code)
    }

    /// Takes to the budget, and frees it again; what that was.
    pub fn fill(&self) -> Result<Bytes, Failure> {
        let taken = until_refused(&STEPS, |bytes| self.ask(bytes, Wish::default()));
        taken.refused_with(REFUSED)?;
        for memory in taken.held {
            self.device.free(memory);
        }
        Ok(taken.bytes)
    }

    fn has(&self, extension: &str) -> Result<bool, Failure> {
        let known = self.instance.extensions(self.physical)?;
        Ok(known.iter().any(|name| name == extension))
    }
}

/// What one buffer or image has to itself is charged, in the driver's blocks, and given back.
pub fn alone(asker: &Asker) -> Result<(), Failure> {
    let all = asker.fill()?;
    let (buffer, image) = (
        asker.device.buffer(Bytes::mib(100).0, None)?,
        asker.device.image(4096)?,
    );
    let wishes = [
        (
            buffer.needs().0,
            Wish {
                buffer: Some(&buffer),
                ..Wish::default()
            },
        ),
        (
            image.needs().0,
            Wish {
                image: Some(&image),
                ..Wish::default()
            },
        ),
    ];
    let mut held = Vec::new();
    for (bytes, wish) in wishes {
        match asker.ask(Bytes(bytes), wish) {
            Ok(memory) => held.push(memory),
            Err(code) => fail!("{bytes} bytes for one resource alone were answered {code:?}"),
        }
    }
    buffer.bind(held[0])?;
    image.bind(held[1])?;
    drop((buffer, image));
    ensure!(
        asker.fill()? + Bytes::mib(164) <= all,
        "what resources have to themselves is not charged"
    );
    for memory in held {
        asker.device.free(memory);
    }
    ensure_eq!(asker.fill()?, all, "granted after all was freed");
    Ok(())
}

/// What is exported and imported is charged once, until both are gone. Under 6 GiB.
pub fn sharing(asker: &Asker) -> Result<(), Failure> {
    let all = asker.fill()?;
    let most = Bytes::gib(4);
    let exportable = || Wish {
        exportable: true,
        ..Wish::default()
    };
    let made = asker.ask(most, exportable())?;
    let descriptor = asker.device.export(&asker.instance, made)?;
    let imported = match asker.ask(
        most,
        Wish {
            import: Some(descriptor),
            ..Wish::default()
        },
    ) {
        Ok(imported) => imported,
        Err(code) => fail!("an import of 4 GiB beside the 4 of 6 that it is was answered {code:?}"),
    };
    ensure_eq!(
        asker.ask(most, exportable()).err(),
        Some(REFUSED),
        "4 GiB more of 6"
    );
    asker.device.free(made);
    ensure_eq!(
        asker.ask(most, exportable()).err(),
        Some(REFUSED),
        "4 GiB beside the 4 of 6 that are imported"
    );
    asker.device.free(imported);
    ensure_eq!(asker.fill()?, all, "granted after both were freed");
    Ok(())
}

/// Memory and a buffer at addresses that can be had again, under 6 GiB: charged, refused, and had again where they were.
fn replayed(session: &Session) -> Result<(), Failure> {
    let asker = Asker::new()?;
    let (all, size) = (asker.fill()?, Bytes::gib(2));
    let at = |address| Wish {
        address: Some(address),
        ..Wish::default()
    };
    let mut captured = (0, 0, 0);
    for round in 0..3 {
        let memory = asker.ask(size, at(captured.0))?;
        let buffer = asker.device.buffer(Bytes::mib(1).0, Some(captured.1))?;
        buffer.bind(memory)?;
        let (address, capture) = buffer.addresses();
        let now = (asker.device.capture_address(memory), capture, address);
        ensure!(
            now.0 != 0 && now.2 != 0,
            "no addresses of the {round}. allocation: {now:x?}"
        );
        if round > 0 {
            ensure_eq!(now, captured, "the addresses of the {round}. replay");
        }
        captured = now;
        let refused = asker
            .device
            .ask_for(asker.memory_type, Bytes::gib(5).0, at(0));
        ensure_eq!(
            (refused.code, refused.untouched),
            (REFUSED, true),
            "5 GiB beside 2 of 6"
        );
        let beside = asker.fill()?;
        ensure_eq!(beside + size, all, "granted beside 2 GiB at an address");
        drop(buffer);
        asker.device.free(memory);
    }
    fills(asker.fill()?, budget(session, 0)?, VULKAN_ROOM)
}

cases! {
    /// Memory that is to have the address it had before (opaque capture and replay) is charged as any other, refused over the budget, and
    /// given where it is asked for.
    memory_at_a_captured_address_is_charged_and_stays_there {
        kind: Budget, defects: ["V10", "C3"], budget: "0=6GiB",
        entry_points: ["vkAllocateMemory", "vkGetDeviceMemoryOpaqueCaptureAddress", "vkGetBufferOpaqueCaptureAddress", "vkGetBufferDeviceAddress"],
    } (session) {
        replayed(session)
    }

    /// An address that somebody has is the driver's to refuse: its code comes back, and nothing is charged.
    a_captured_address_that_is_taken_costs_nothing {
        kind: Budget, defects: ["V10", "V13"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB",
        on_real: No("what the vendor's driver answers there was not recorded"),
    } (session) {
        let asker = Asker::new()?;
        let all = asker.fill()?;
        let at = |address| Wish { address: Some(address), ..Wish::default() };
        let memory = asker.ask(Bytes::gib(1), at(0))?;
        let address = asker.device.capture_address(memory);
        for _ in 0..4 {
            let answer = asker.ask(Bytes::gib(2), at(address)).err();
            ensure!(answer.is_some_and(|code| code != REFUSED), "2 GiB at an address that is taken: {answer:?}");
        }
        asker.device.free(memory);
        ensure_eq!(asker.fill()?, all, "granted afterwards");
        fills(all, budget(session, 0)?, VULKAN_ROOM)
    }

    /// A priority changes nothing about a charge.
    memory_of_any_priority_is_charged {
        kind: Budget, defects: ["V10"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB",
    } (_session) {
        let asker = Asker::new()?;
        if !asker.has("VK_EXT_memory_priority")? {
            harness::skip!("the driver has no VK_EXT_memory_priority");
        }
        let all = asker.fill()?;
        for priority in [0.0, 1.0] {
            let wish = || Wish { priority: Some(priority), ..Wish::default() };
            let memory = asker.ask(Bytes::gib(4), wish())?;
            ensure_eq!(asker.ask(Bytes::gib(4), wish()).err(), Some(REFUSED), "4 GiB more of 6, priority {priority}");
            ensure_eq!(asker.fill()? + Bytes::gib(4), all, "granted beside 4 GiB of priority {priority}");
            asker.device.free(memory);
        }
        Ok(())
    }

    /// What one buffer or image has to itself is charged and given back.
    what_a_resource_has_to_itself_is_charged {
        kind: Budget, defects: ["V10"], entry_points: ["vkAllocateMemory", "vkBindBufferMemory", "vkBindImageMemory"], budget: "0=6GiB",
    } (session) {
        let asker = Asker::new()?;
        alone(&asker)?;
        fills(asker.fill()?, budget(session, 0)?, VULKAN_ROOM)
    }

    /// What is exported and imported in one process is charged once, until both are gone.
    an_imported_vulkan_descriptor_is_charged_once {
        kind: Budget, defects: ["V10"], entry_points: ["vkAllocateMemory", "vkGetMemoryFdKHR"], budget: "0=6GiB",
    } (_session) {
        sharing(&Asker::new()?)
    }

    /// What was imported and is exported again is held by that descriptor, or a copy of it, when everything else of it is gone.
    what_is_exported_again_by_vulkan_stays_charged {
        kind: Budget, defects: ["R44"], entry_points: ["vkAllocateMemory", "vkGetMemoryFdKHR", "vkFreeMemory"], budget: "0=6GiB",
    } (session) {
        const PART: Bytes = Bytes::gib(1);
        let asker = Asker::new()?;
        let exportable = || Wish { exportable: true, ..Wish::default() };
        let mut left = Vec::new();
        let refused = loop {
            ensure!(left.len() < 32, "32 descriptors of {PART} were left behind");
            let made = match asker.ask(PART, exportable()) {
                Ok(made) => made,
                Err(refused) => break refused,
            };
            let first = asker.device.export(&asker.instance, made)?;
            let imported = asker.ask(PART, Wish { import: Some(first), ..exportable() })?;
            let again = asker.device.export(&asker.instance, imported)?;
            left.push(again.try_clone()?);
            drop(again);
            asker.device.free(imported);
            asker.device.free(made);
        };
        ensure_eq!(refused, REFUSED, "after {} descriptors of {PART}", left.len());
        ensure!((4..=6).contains(&left.len()), "{} descriptors of {PART} under 6 GiB", left.len());
        left.clear();
        let held = row(&nvml()?)?;
        ensure!(held <= PART, "the driver still has {held} after all descriptors were closed");
        let named = named()?;
        let granted = asker.fill()?;
        ensure!(granted + VULKAN_ROOM >= budget(session, 0)?, "only {granted} were granted; descriptors that are open with a lock: {named:?}");
        fills(granted, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Memory that one thread frees while another makes a descriptor of it is not left with that, charged to nobody.
    a_descriptor_of_what_is_being_freed_is_no_way_past_the_budget {
        kind: Budget, defects: ["R44a"], entry_points: ["vkAllocateMemory", "vkGetMemoryFdKHR", "vkFreeMemory"], budget: "0=2GiB",
        faults: r#"fault = [{ at = "vkFreeMemory", when = "1", then = "delay:300ms" }]"#, unordered: "threads race",
        on_real: No("an application has to keep other calls away from vkFreeMemory; the mock does it by itself"),
        // The validation layer keeps the call from the driver.
        env: [("RINGFENCE_VALIDATION", "")],
    } (session) {
        let asker = Asker::new()?;
        let made = asker.ask(Bytes::gib(1), Wish { exportable: true, ..Wish::default() });
        let made = made.or_else(|code| fail!("1 GiB that can be exported: {code:?}"))?;
        let descriptor = std::thread::scope(|scope| {
            scope.spawn(|| asker.device.free(made));
            std::thread::sleep(std::time::Duration::from_millis(100));
            asker.device.export(&asker.instance, made)
        });
        let granted = asker.fill()?;
        let kept = descriptor.map_or(Bytes::ZERO, |_open| Bytes::gib(1));
        fills(granted + kept, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Pages of the host that are imported are no device memory: they can be had with the budget used up.
    imported_host_pages_are_not_charged {
        kind: Budget, defects: ["V10"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB",
    } (session) {
        let asker = Asker::new()?;
        if !asker.has("VK_EXT_external_memory_host")? {
            harness::skip!("the driver has no VK_EXT_external_memory_host");
        }
        let host = memory_type(&asker.instance, asker.physical, Place::Host)?;
        let pages: Vec<_> = (0..4).map(|_| Pages::new(64 << 20)).collect::<Result<_, _>>()?;
        let taken = until_refused(&STEPS, |bytes| asker.ask(bytes, Wish::default()));
        taken.refused_with(REFUSED)?;
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)?;
        let mut held = Vec::new();
        for pages in &pages {
            let answer = asker.device.ask_for(host, 64 << 20, Wish { host: Some(pages), ..Wish::default() });
            ensure_eq!(answer.code, Code::SUCCESS, "64 MiB of the host's pages with the budget used up");
            held.extend(answer.memory);
        }
        let told = device_heap(&asker.instance.heaps(asker.physical, Query::Second))?;
        ensure_eq!(told, budget(session, 0)?, "the heap");
        for memory in held.into_iter().chain(taken.held) {
            asker.device.free(memory);
        }
        Ok(())
    }

    /// A device of two GPUs draws on both budgets, and each allocation on those of its mask.
    a_device_group_draws_on_the_budgets_of_the_mask {
        kind: Budget, defects: ["V10", "V14"], entry_points: ["vkEnumeratePhysicalDeviceGroups", "vkCreateDevice", "vkAllocateMemory"],
        budget: "0=8GiB,1=6GiB", machine: "h200x2-group", needs_gpus: 2,
        on_real: No("no machine was seen whose driver joins GPUs"),
    } (session) {
        let instance = instance(Client::V1_3)?;
        let members = gpus(&instance)?;
        let device = instance.device_with_all(&members)?;
        masks(session, &instance, &device, members[0])
    }

    /// A group that names a GPU twice, or not the one that the device is made from, takes of GPUs what it does not name: it is none.
    a_group_that_is_none_makes_no_device {
        kind: Budget, defects: ["V27"], entry_points: ["vkCreateDevice"], budget: "0=8GiB,1=6GiB", machine: "h200x2-group", needs_gpus: 2,
        invalid_use: ["VUID-VkDeviceGroupDeviceCreateInfo", "VUID-VkDeviceCreateInfo", "Failed to create device chain"],
        on_real: No("invalid use, which no driver has to survive"),
    } (_session) {
        let instance = instance(Client::V1_3)?;
        let members = gpus(&instance)?;
        let (one, other) = (members[0], members[1]);
        for (first, group) in [(one, vec![one, one]), (other, vec![one])] {
            let made = instance.device_of_group(first, &group).err();
            ensure_eq!(made, Some(Code::INITIALIZATION_FAILED), "vkCreateDevice of a group of {}", group.len());
        }
        Ok(())
    }
}

/// This process's open descriptors that carry locks, as names of shared memory are.
fn named() -> Result<Vec<String>, Failure> {
    let mut named = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        let told = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let number = entry.file_name();
        let target = std::fs::read_link(std::path::Path::new("/proc/self/fd").join(&number));
        let locks = told.lines().filter(|line| line.starts_with("lock:"));
        named.extend(locks.map(|lock| format!("{number:?} {target:?} {lock}")));
    }
    Ok(named)
}

/// A device of two GPUs under 8 and 6 GiB: an allocation draws on those of its mask, and on both where it says none.
pub fn masks(
    session: &Session,
    instance: &Instance,
    device: &Device,
    first: PhysicalDevice,
) -> Result<(), Failure> {
    let memory_type = memory_type(instance, first, Place::Device)?;
    let ask = |gib, mask| {
        let wish = Wish {
            mask,
            ..Wish::default()
        };
        let answer = device.ask_for(memory_type, Bytes::gib(gib).0, wish);
        answer.memory.ok_or(answer.code)
    };
    let used = |index| Ok::<_, Failure>(session.world()?.used(DeviceIndex(index)));
    let before = [used(0)?, used(1)?];
    let steps = [
        (4, Some(0b01), true),
        (4, Some(0b01), false),
        (4, Some(0b10), true),
        (2, Some(0b10), false),
        (1, Some(0b11), true),
        (1, None, false),
        (2, Some(0b01), true),
    ];
    for (gib, mask, granted) in steps {
        let answer = ask(gib, mask).err();
        let promised = (!granted).then_some(REFUSED);
        ensure_eq!(answer, promised, "{gib} GiB of mask {mask:?}");
    }
    let grown = [used(0)? - before[0], used(1)? - before[1]];
    ensure_eq!(grown, [Bytes::gib(7), Bytes::gib(5)], "taken of each");
    Ok(())
}
