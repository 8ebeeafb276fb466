//! What a difference means: rules by part, as few as there are ways to be hurt. docs/internals/driver-upgrades.md has them in words.

use std::collections::BTreeSet;

use budget::Bytes;
use budget::charge::{self, Shape};

use super::compare::{Context, Difference, Judged, Pair, Verdict, difference};
use super::enforcer::Touch;
use super::file::{
    AGREEMENT, CUDA_ORDER, DISTINCT, Facts, LOCAL_HEAPS, NEWER_LOOK_UPS, Part, Record,
};
use super::look_ups;

pub fn judge(context: &Context<'_>, pair: Pair<'_>) -> Vec<Difference> {
    let judged = match pair.part {
        Part::LookUps => return look_ups::judge(context, pair),
        Part::Driver => driver(context, pair),
        Part::Symbols => symbol(context, pair),
        Part::Answers => answer(context, pair),
        Part::Structures => structure(context, pair),
        Part::Identities => identity(context, pair),
        Part::Totals => totals(context),
        Part::Heaps => heap(context, pair),
        Part::Granularities => granularity(context, pair),
        Part::Attributes => attribute(context, pair),
        Part::Extensions => extension(context, pair),
    };
    vec![difference(pair, pair.subject, judged)]
}

fn driver(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    const LOOK_UPS: &[&str] = &["cuGetProcAddress", "cuGetProcAddress_v2"];
    if pair.subject == NEWER_LOOK_UPS {
        let touch = context.enforcer.touch(LOOK_UPS, &["S1"]);
        return Judged::new(
            Verdict::Look,
            "programs built for a newer CUDA are answered otherwise",
            touch,
        );
    }
    let parts = |text: Option<&str>| -> Vec<u64> {
        let parts = text.unwrap_or_default().split('.');
        parts.map(|part| part.parse().unwrap_or(0)).collect()
    };
    let lower = parts(pair.new) < parts(pair.old);
    match pair.subject {
        "Vulkan driver UUID" => Judged::nothing("another driver has another"),
        _ if lower => Judged::new(
            Verdict::Look,
            "lower than before: no upgrade",
            Touch::default(),
        ),
        _ => Judged::nothing("an upgrade"),
    }
}

/// Defects of functions that are gone, by library.
fn absent(name: &str) -> &'static [&'static str] {
    match name.starts_with("nvml") {
        true => &["S8", "S2"],
        false => &["S2"],
    }
}

fn symbol(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let name = pair.subject;
    match pair.new {
        None => gone(context, name),
        Some(_) => new(context, name),
    }
}

fn gone(context: &Context<'_>, name: &str) -> Judged {
    let enforcer = context.enforcer;
    let touch = enforcer.touch(&[name], absent(name));
    let exported = |other: &&&str| exports(context.new, other);
    let siblings = enforcer.siblings(name);
    let twin = siblings
        .iter()
        .filter(|other| **other != name && enforcer.same_abi(name, other))
        .find(exported);
    if enforcer.hooks(name) {
        return match twin {
            Some(twin) => Judged::new(
                Verdict::Look,
                format!("hooked, and gone; {twin} has the same ABI, a hook, and is there"),
                touch,
            ),
            None => Judged::new(
                Verdict::Breaks,
                "hooked, and gone: no look-up finds it, its hook is dead",
                touch,
            ),
        };
    }
    if enforcer.calls(name) {
        let mut others = enforcer.called_siblings(name);
        return match others.find(|other| exports(context.new, other)) {
            Some(other) => Judged::new(
                Verdict::Look,
                format!("our libraries ask the driver by it, and by {other}, which is there"),
                touch,
            ),
            None => Judged::new(Verdict::Breaks, "our libraries ask the driver by it", touch),
        };
    }
    match touch.is_nothing() {
        true => Judged::nothing("gone: no hook and no case is about it"),
        false => Judged::new(Verdict::Look, "gone: cases meet it", touch),
    }
}

fn exports(record: &Record, name: &str) -> bool {
    let facts = record.parts.get(&Part::Symbols);
    facts.is_some_and(|facts| facts.as_ref().is_ok_and(|facts| facts.contains_key(name)))
}

fn new(context: &Context<'_>, name: &str) -> Judged {
    let enforcer = context.enforcer;
    if enforcer.hooks(name) {
        return Judged::nothing("new, hooked already");
    }
    if enforcer.calls(name) {
        return Judged::nothing("new, our libraries ask by it already");
    }
    let with = |relatives: Vec<&str>, rows: &[&'static str]| {
        let mut touch = enforcer.touch(&relatives, rows);
        touch.hooks = relatives.into_iter().map(str::to_owned).collect();
        touch
    };
    let siblings = enforcer.siblings(name);
    if !siblings.is_empty() {
        let rows: &[&str] = match () {
            () if name.starts_with("nvml") => &["T4", "S8"],
            () if name.ends_with("_ptsz") || name.ends_with("_ptds") => &["R4", "S1"],
            () => &["S1", "R7"],
        };
        return Judged::new(
            Verdict::Breaks,
            "a new version of a hooked function, which no hook stands before",
            with(siblings, rows),
        );
    }
    if enforcer.knows(name) {
        return Judged::nothing("new, known from drivers that were asked: it needs no hook");
    }
    let relatives = enforcer.relatives(name);
    let why = match relatives.is_empty() {
        true => {
            "new, and no driver that was asked has it: nobody has judged whether it takes memory or gives work"
        }
        false => {
            "new, no driver that was asked has it, and by its name it is a relative of hooked ones"
        }
    };
    Judged::new(Verdict::Look, why, with(relatives, &[]))
}

/// Answers to zeros. A hook forwards what the driver would refuse; which that is was learned from these.
fn answer(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let name = pair.subject.split(' ').next().unwrap_or_default();
    let rows: &[&str] = match name.starts_with("nvml") {
        true => &["S8"],
        false => &["C1"],
    };
    let enforcer = context.enforcer;
    let touch = enforcer.touch(&[name], rows);
    let dies = |answer: Option<&str>| matches!(answer, Some("S" | "T"));
    let succeeds = |answer: Option<&str>| answer == Some("0");
    match enforcer.answers(name) {
        true if dies(pair.new) => Judged::new(
            Verdict::Breaks,
            "the driver of a hooked function does not survive it any more",
            touch,
        ),
        true if succeeds(pair.old) != succeeds(pair.new) && !dies(pair.old) => Judged::new(
            Verdict::Breaks,
            "what a hook takes for refused is granted, or the other way about",
            touch,
        ),
        true => Judged::new(
            Verdict::Look,
            "a hooked function is refused otherwise",
            touch,
        ),
        false if touch.is_nothing() => Judged::nothing("no hook and no case is about it"),
        false if enforcer.calls(name) => {
            Judged::new(Verdict::Look, "our libraries ask the driver by it", touch)
        }
        false => Judged::new(Verdict::Look, "not hooked, and cases meet it", touch),
    }
}

/// What NVML's getters take: `VERSION:SIZE …`, `plain`, `none`.
fn structure(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let name = pair.subject;
    let (old, new) = (versions(pair.old), versions(pair.new));
    let lost: Vec<&str> = old.difference(&new).copied().collect();
    let gained: Vec<&str> = new.difference(&old).copied().collect();
    let version = |pair: &&str| pair.split(':').next().unwrap_or_default().to_owned();
    let resized = lost
        .iter()
        .map(version)
        .find(|one| gained.iter().map(version).any(|other| other == *one));
    let touch = context.enforcer.touch(&[name], &["T4", "S8"]);
    let ours = context.enforcer.hooks(name) || context.enforcer.calls(name);
    let why = match (&resized, lost.is_empty()) {
        (Some(version), _) => format!("version {version} of its structure has another size"),
        (None, false) => format!("{} is refused", lost.join(", ")),
        (None, true) => format!("{} is taken", gained.join(", ")),
    };
    match (ours, lost.is_empty()) {
        (true, false) => Judged::new(Verdict::Breaks, why, touch),
        (true, true) if context.enforcer.hooks(name) => Judged::new(
            Verdict::Breaks,
            format!("{why}, which its hook does not know"),
            touch,
        ),
        _ if touch.cases.is_empty() || lost.is_empty() => Judged::nothing(why),
        _ => Judged::new(Verdict::Look, why, touch),
    }
}

fn versions(text: Option<&str>) -> BTreeSet<&str> {
    text.unwrap_or_default().split(' ').collect()
}

/// Sixteen bytes of nothing.
fn is_zero(uuid: Option<&str>) -> bool {
    let digits = uuid.unwrap_or_default().trim_start_matches("GPU-");
    !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0' | b'-'))
}

fn identity(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let enforcer = context.enforcer;
    let touch = |rows: &[&'static str]| enforcer.touch_rows(&[], rows);
    let ends = |what: &str| pair.subject.ends_with(what);
    if pair.subject.contains("UUID by") {
        if is_zero(pair.new) {
            return Judged::new(
                Verdict::Breaks,
                "zero: the device has no identity by this API",
                touch(&["V1", "V2"]),
            );
        }
        if pair.new == Some("none") {
            return Judged::new(Verdict::Breaks, "not told any more", touch(&["V1", "V2"]));
        }
        let why = "another card, or the same by another name";
        return Judged::new(Verdict::Look, why, touch(&["V1", "R10"]));
    }
    if ends(AGREEMENT) {
        return match pair.new {
            Some("one") => Judged::nothing("they agree now"),
            _ => Judged::new(
                Verdict::Breaks,
                "NVML, CUDA and Vulkan no longer call the device by one UUID",
                touch(&["V1", "V2"]),
            ),
        };
    }
    if ends(DISTINCT) {
        return match pair.new {
            Some("yes") => Judged::nothing("they are distinct now"),
            _ => Judged::new(Verdict::Breaks, "two devices have one UUID", touch(&["V2"])),
        };
    }
    let rows: &[&str] = match () {
        () if ends(CUDA_ORDER) => &["R10"],
        () if ends("PCI address") => &["V1", "R10"],
        () if ends("devices") => &["V2", "P6", "R10"],
        () => &[],
    };
    let why = match rows {
        [] => "another GPU",
        _ if ends(CUDA_ORDER) => "CUDA numbers the devices otherwise",
        _ => "another machine, or the same told otherwise",
    };
    Judged::new(Verdict::Look, why, touch(rows))
}

fn totals(context: &Context<'_>) -> Judged {
    const TOLD_BY: &[&str] = &[
        "cuDeviceTotalMem",
        "cuDeviceTotalMem_v2",
        "cuMemGetInfo",
        "cuMemGetInfo_v2",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
    ];
    let touch = context.enforcer.touch(TOLD_BY, &["T4"]);
    Judged::new(Verdict::Look, "what a budget is a share of", touch)
}

const HEAPS_TOLD_BY: &[&str] = &[
    "vkGetPhysicalDeviceMemoryProperties",
    "vkGetPhysicalDeviceMemoryProperties2",
    "vkGetPhysicalDeviceMemoryProperties2KHR",
    "vkAllocateMemory",
];

const QUEUES: &[&str] = &["vkGetDeviceQueue", "vkGetDeviceQueue2", "vkQueueSubmit"];

fn heap(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let enforcer = context.enforcer;
    if pair.subject.ends_with(LOCAL_HEAPS) {
        let touch = enforcer.touch(HEAPS_TOLD_BY, &["V4", "V10"]);
        return match pair.new {
            Some("none") | None => Judged::new(
                Verdict::Breaks,
                "no heap is device-local: no allocation is charged",
                touch,
            ),
            _ => Judged::new(Verdict::Look, "other heaps are charged", touch),
        };
    }
    if pair.subject.contains(": queue family") {
        let touch = enforcer.touch(QUEUES, &["V12", "T1"]);
        return Judged::new(Verdict::Look, "work can be given otherwise", touch);
    }
    let touch = enforcer.touch(HEAPS_TOLD_BY, &["V3", "V4", "V10"]);
    Judged::new(Verdict::Look, "what is charged and shown", touch)
}

/// What a device loses to a call, against what we charge for it: more than that is over the budget by so much.
fn granularity(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    let (Some(old), Some(new)) = (number(pair.old), number(pair.new)) else {
        return Judged::new(Verdict::Look, "only one file has it", Touch::default());
    };
    let subject = pair.subject;
    let (what, device) = match subject.split_once(": ") {
        Some((device, what)) => (what, device),
        None => (subject, "device 0"),
    };
    let size = |call: &str| what.strip_prefix(call).and_then(|size| number(Some(size)));
    // The most that is charged for it; what is charged by what the driver says of itself has none.
    let (names, charged): (&[&str], Option<Bytes>) = match what {
        "block" => (
            &["cuMemAlloc_v2", "cuMemAllocPitch_v2"],
            Some(charge::BLOCK),
        ),
        "suballocation" => (
            &["cuMemAlloc_v2", "cuMemAllocPitch_v2"],
            Some(charge::SUBALLOCATION),
        ),
        "step of a pool" => (
            &["cuMemAllocAsync", "cuMemAllocFromPoolAsync"],
            Some(charge::POOL_STEP),
        ),
        "cuInit" => (&["cuInit"], Some(charge::INIT)),
        "a context" => (
            &["cuDevicePrimaryCtxRetain", "cuCtxCreate_v2"],
            context_bound(context.new, device),
        ),
        "granularity of cuMemCreate" => (&["cuMemCreate"], Some(Bytes(old))),
        "granularity of vkAllocateMemory" => (&["vkAllocateMemory"], Some(Bytes(old))),
        "a VkInstance" => (&["vkCreateInstance"], None),
        "a VkDevice" => (&["vkCreateDevice"], None),
        _ => match (size("cuMemAlloc_v2 of "), size("vkAllocateMemory of ")) {
            (Some(size), _) => (&["cuMemAlloc_v2"], charge::blocks(Bytes(size))),
            (None, Some(_)) => (&["vkAllocateMemory"], Some(Bytes(old))),
            _ => (&[], None),
        },
    };
    let touch = context.enforcer.touch(names, &["C10"]);
    match charged {
        None => Judged::nothing("charged by what the device loses"),
        Some(charged) if new > charged.0 => Judged::new(
            Verdict::Breaks,
            format!("more than the {charged} that are charged"),
            touch,
        ),
        Some(_) if matches!(what, "a context" | "cuInit") => {
            Judged::nothing("within what is charged for it")
        }
        Some(_) => Judged::new(Verdict::Look, "within what is charged for it", touch),
    }
}

fn context_bound(record: &Record, device: &str) -> Option<Bytes> {
    let fact = |part: Part, subject: &str| -> Option<u64> {
        let facts: &Facts = record.parts.get(&part)?.as_ref().ok()?;
        facts.get(&format!("{device}: {subject}"))?.parse().ok()
    };
    let narrow = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    Some(charge::context_bound(Shape {
        total: Bytes(fact(Part::Totals, "total by CUDA")?),
        multiprocessors: narrow(fact(Part::Totals, "multiprocessors"))?,
        threads_per_multiprocessor: narrow(fact(Part::Attributes, "attribute 39"))?,
    }))
}

/// Threads of a multiprocessor, the one attribute that decides what is charged and has no other field.
const THREADS: &str = "attribute 39";

fn attribute(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    match (pair.subject.ends_with(THREADS), pair.old, pair.new) {
        (true, ..) => {
            let names = [
                "cuDevicePrimaryCtxRetain",
                "cuCtxSetLimit",
                "cuModuleGetFunction",
            ];
            let touch = context.enforcer.touch(&names, &["R12", "R14", "C10"]);
            Judged::new(
                Verdict::Look,
                "contexts and local memory are charged by it",
                touch,
            )
        }
        (_, None, _) => Judged::nothing("new attribute"),
        (_, _, None) => Judged::nothing("attribute that is gone"),
        _ => Judged::nothing("says nothing of memory: forwarded"),
    }
}

/// Extensions that a hook or an identity stands on: name, commands, defects.
const STANDING: [(&str, &[&str], &[&str]); 6] = [
    ("VK_EXT_pci_bus_info", &[], &["V1"]),
    (
        "VK_EXT_memory_budget",
        &["vkGetPhysicalDeviceMemoryProperties2"],
        &["V4", "T4"],
    ),
    (
        "VK_KHR_external_memory_fd",
        &["vkGetMemoryFdKHR"],
        &["V10", "R9"],
    ),
    (
        "VK_KHR_external_memory",
        &["vkAllocateMemory"],
        &["V10", "R9"],
    ),
    ("VK_KHR_synchronization2", &["vkQueueSubmit2KHR"], &["V12"]),
    ("VK_KHR_device_group", &["vkAllocateMemory"], &["V10"]),
];

/// What the newest driver that was asked has: whoever made the hooks went through these.
const ASKED: &str = include_str!("../../../../fixtures/oracle/vulkan-extensions-580.txt");

fn extension(context: &Context<'_>, pair: Pair<'_>) -> Judged {
    let enforcer = context.enforcer;
    let name = pair.subject;
    let standing = STANDING.iter().find(|(standing, ..)| *standing == name);
    match (pair.old, pair.new) {
        (_, None) => match standing {
            Some((_, names, rows)) => Judged::new(
                Verdict::Breaks,
                "gone, and the layer stands on it",
                match names.is_empty() {
                    true => enforcer.touch_rows(&[], rows),
                    false => enforcer.touch(names, rows),
                },
            ),
            None => Judged::nothing("gone: the layer does not stand on it"),
        },
        (None, _) => {
            let row = format!("device {name} ");
            match ASKED.lines().any(|line| line.starts_with(&row)) {
                true => Judged::nothing("new, and known from driver 580"),
                false => Judged::new(
                    Verdict::Look,
                    "new, and no driver that was asked has it: nobody has judged whether it takes memory or gives work",
                    Touch::default(),
                ),
            }
        }
        (old, new) => {
            let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
            match number(new) < number(old) {
                true => Judged::new(Verdict::Look, "a lower version", Touch::default()),
                false => Judged::nothing("a newer version"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::enforcer::Enforcer;

    #[test]
    fn what_the_rules_of_vulkan_name_is_hooked_and_has_cases() {
        let enforcer = Enforcer::ours();
        let standing = STANDING.iter().map(|(_, names, _)| *names);
        let groups = standing.filter(|names| !names.is_empty());
        for names in groups.chain([HEAPS_TOLD_BY, QUEUES]) {
            for name in names {
                assert!(enforcer.hooks(name), "{name}");
            }
            assert!(!enforcer.touch(names, &[]).cases.is_empty(), "{names:?}");
        }
        for (extension, ..) in STANDING {
            let row = format!("device {extension} ");
            assert!(
                ASKED.lines().any(|line| line.starts_with(&row)),
                "{extension}"
            );
        }
    }
}
