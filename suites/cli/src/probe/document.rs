//! The file: a machine profile as `fixtures/profiles` has them, and tables as `fixtures/oracle` has them.

use std::error::Error;

use harness::Driver;
use harness::evidence::Grounds;
use toml::{Table, Value};

use super::lines::{number, split};
use crate::arguments::Section;

/// What was found so far.
pub struct Document {
    driver: Table,
    devices: Vec<Table>,
    tables: Table,
    measured: Table,
    meta: Table,
    identity: Table,
    grounds: Option<Grounds>,
}

/// What a file says that it is: 1 had neither source nor sections.
pub const FORMAT: i64 = 2;

type Outcome = Result<(), Box<dyn Error>>;

impl Document {
    pub fn new(driver: &Driver) -> Self {
        let mut meta = Table::new();
        let grounds = driver.grounds();
        let source = if grounds.is_some() { "mock" } else { "driver" };
        meta.insert("driver".to_owned(), driver.to_string().into());
        meta.insert("source".to_owned(), source.into());
        meta.insert("format".to_owned(), FORMAT.into());
        meta.insert("sections".to_owned(), Value::Array(Vec::new()));
        Self {
            driver: Table::new(),
            devices: Vec::new(),
            tables: Table::new(),
            measured: Table::new(),
            meta,
            identity: Table::new(),
            grounds,
        }
    }

    /// What a mock's answers rest on.
    pub fn grounds(&self) -> Option<&Grounds> {
        self.grounds.as_ref()
    }

    /// A section is filled. What is only a mock's there is said with the reason.
    pub fn has(&mut self, section: Section) {
        if let Some(Value::Array(sections)) = self.meta.get_mut("sections") {
            sections.push(section.name().into());
        }
        let presumed = self.grounds.as_ref().and_then(|grounds| match section {
            Section::ProcAddress => grounds.no_look_ups(),
            Section::Symbols | Section::Nulls | Section::Structures => None,
            _ => grounds.no_devices(),
        });
        if let Some(why) = presumed {
            let table = self.meta.entry("presumed");
            if let Value::Table(table) = table.or_insert_with(|| Table::new().into()) {
                table.insert(section.name(), why.into());
            }
        }
    }

    /// What one of the three APIs calls its next device.
    fn names(&mut self, api: &str, name: &str) {
        let names = self.identity.entry(api);
        if let Value::Array(names) = names.or_insert_with(|| Value::Array(Vec::new())) {
            names.push(name.into());
        }
    }

    /// A section could not be filled.
    pub fn lacks(&mut self, section: Section, why: &str) {
        let lacking = self
            .meta
            .entry("lacking")
            .or_insert_with(|| Table::new().into());
        if let Value::Table(lacking) = lacking {
            lacking.insert(section.name(), why.into());
        }
    }

    pub fn is_complete(&self) -> bool {
        !self.meta.contains_key("lacking")
    }

    pub fn nvml_identity(&mut self, lines: &[String]) -> Outcome {
        for line in lines {
            let (who, rest) = split(line);
            let (key, value) = split(rest);
            if who == "driver" {
                self.driver.insert(key.to_owned(), value.into());
                continue;
            }
            let index = usize::try_from(number(line, who)?)?;
            while self.devices.len() <= index {
                self.devices.push(Table::new());
            }
            if key == "uuid" {
                self.names("nvml", value);
            }
            let value: Value = match key {
                "name" | "uuid" | "pci" => value.into(),
                _ => number(line, value)?.into(),
            };
            self.devices[index].insert(key.to_owned(), value);
        }
        Ok(())
    }

    /// CUDA numbers devices as it likes: its lines find their device by UUID.
    pub fn cuda_identity(&mut self, lines: &[String]) -> Outcome {
        let mut ordinals: Vec<Vec<(&str, &str, &str)>> = Vec::new();
        for line in lines {
            let (who, rest) = split(line);
            let (key, value) = split(rest);
            if who == "driver" {
                self.driver
                    .insert(key.to_owned(), number(line, value)?.into());
                continue;
            }
            let index = usize::try_from(number(line, who)?)?;
            while ordinals.len() <= index {
                ordinals.push(Vec::new());
            }
            ordinals[index].push((line, key, value));
        }
        for (ordinal, told) in ordinals.iter().enumerate() {
            let uuid = told
                .iter()
                .find(|(_, key, _)| *key == "uuid")
                .map_or("", |(_, _, value)| value);
            self.names("cuda", uuid);
            let device = self.device_of(uuid, ordinal)?;
            for (line, key, value) in told {
                match *key {
                    "cuda_total" => {
                        device.insert("cuda_total".to_owned(), number(line, value)?.into());
                    }
                    "compute_capability" => {
                        let (major, minor) = split(value);
                        let pair = [number(line, major)?, number(line, minor)?];
                        device.insert("compute_capability".to_owned(), pair.to_vec().into());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn device_of(&mut self, uuid: &str, ordinal: usize) -> Result<&mut Table, String> {
        let at = self
            .devices
            .iter()
            .position(|device| device.get("uuid").and_then(Value::as_str) == Some(uuid))
            .unwrap_or(ordinal);
        self.devices
            .get_mut(at)
            .ok_or_else(|| format!("CUDA has a device {uuid} that NVML does not know"))
    }

    /// Attributes that other fields give stand there alone.
    pub fn attributes(&mut self, lines: &[String]) -> Outcome {
        const SM_COUNT: &str = "16";
        const ELSEWHERE: [&str; 5] = ["33", "34", "50", "75", "76"];
        for line in lines {
            let (who, rest) = split(line);
            let (attribute, value) = split(rest);
            let index = usize::try_from(number(line, who)?)?;
            let device = self
                .devices
                .get_mut(index)
                .ok_or_else(|| format!("\"{line}\": no such device"))?;
            if attribute == SM_COUNT {
                device.insert("sm_count".to_owned(), number(line, value)?.into());
            } else if !ELSEWHERE.contains(&attribute) {
                let attributes = device
                    .entry("attributes")
                    .or_insert_with(|| Table::new().into());
                if let Value::Table(attributes) = attributes {
                    attributes.insert(attribute.to_owned(), number(line, value)?.into());
                }
            }
        }
        Ok(())
    }

    pub fn vulkan(&mut self, lines: &[String]) -> Outcome {
        let mut extensions = Vec::new();
        for line in lines {
            let (who, rest) = split(line);
            let (key, value) = split(rest);
            if key == "vulkan_uuid" {
                self.names("vulkan", &format!("{who} {value}"));
            }
            if who == "driver" {
                let value: Value = match key {
                    "vulkan_api" => numbers(line, value)?.into(),
                    "vulkan_driver_uuid" => value.into(),
                    _ => number(line, value)?.into(),
                };
                self.driver.insert(key.to_owned(), value);
                continue;
            }
            let device = self
                .devices
                .iter_mut()
                .find(|device| device.get("pci").and_then(Value::as_str) == Some(who))
                .ok_or_else(|| format!("Vulkan has a device at {who} that NVML does not know"))?;
            match key {
                "extension" => {
                    if self
                        .identity
                        .get("vulkan")
                        .and_then(Value::as_array)
                        .map_or(0, Vec::len)
                        == 1
                    {
                        extensions.push(value.to_owned());
                    }
                }
                "heap" => push(device, "heaps", line, value, ["size", "flags"])?,
                "memory_type" => push(device, "memory_types", line, value, ["heap", "flags"])?,
                "queue_family" => push(device, "queue_families", line, value, ["flags", "count"])?,
                "vulkan_uuid" => {
                    if device.get("uuid").and_then(Value::as_str) != Some(value) {
                        device.insert(key.to_owned(), value.into());
                    }
                }
                "vkAllocateMemory.1" => {
                    device.insert("vulkan_granularity".to_owned(), number(line, value)?.into());
                    self.measured
                        .insert(key.to_owned(), number(line, value)?.into());
                }
                _ if key.starts_with("vk") => {
                    self.measured
                        .insert(key.to_owned(), number(line, value)?.into());
                }
                _ => {
                    device.insert(key.to_owned(), number(line, value)?.into());
                }
            }
        }
        extensions.sort();
        self.table("vulkan_extensions", &extensions);
        Ok(())
    }

    /// What CUDA takes. The first context's bytes beyond a second one's are what initialisation keeps.
    pub fn memory(&mut self, lines: &[String]) -> Outcome {
        let mut found = Table::new();
        for line in lines {
            let (key, value) = split(line);
            found.insert(key.to_owned(), number(line, value)?.into());
        }
        let of = |key: &str| found.get(key).and_then(Value::as_integer);
        if let (Some(device), Some(first), Some(second)) = (
            self.devices.first_mut(),
            of("first_context"),
            of("second_context"),
        ) {
            device.insert("context_overhead".to_owned(), second.into());
            device.insert("init_overhead".to_owned(), (first - second).into());
            for (field, key) in [
                ("block", "cuMemAlloc_v2.1"),
                ("suballocation", "suballocation"),
                ("vmm_granularity", "vmm_granularity"),
                ("pool_step", "pool_step"),
            ] {
                if let Some(value) = of(key) {
                    device.insert(field.to_owned(), value.into());
                }
            }
        }
        self.measured.extend(found);
        Ok(())
    }

    pub fn cost(&mut self, lines: &[String]) -> Outcome {
        let mut cost = Table::new();
        for line in lines {
            let (key, value) = split(line);
            cost.insert(key.to_owned(), number(line, value)?.into());
        }
        self.measured.insert("cost".to_owned(), cost.into());
        Ok(())
    }

    pub fn teardown(&mut self, lines: &[String]) -> Outcome {
        for line in lines {
            let (key, value) = split(line);
            if let Some(device) = self.devices.first_mut() {
                device.insert(key.to_owned(), number(line, value)?.into());
            }
        }
        Ok(())
    }

    pub fn exports(&mut self, library: &str, names: &[String]) {
        self.table(&format!("{library}_exports"), names);
    }

    pub fn table(&mut self, name: &str, rows: &[String]) {
        self.tables
            .insert(name.to_owned(), format!("{}\n", rows.join("\n")).into());
    }

    /// The text. A profile gets its own name, or one made from its first device's.
    pub fn finish(mut self, name: Option<&str>) -> Result<String, toml::ser::Error> {
        let first = self
            .devices
            .first()
            .and_then(|device| device.get("name"))
            .and_then(Value::as_str)
            .unwrap_or("unknown");
        let made = || {
            let words = first.trim_start_matches("NVIDIA ").to_lowercase();
            words.replace([' ', '/'], "-")
        };
        let mut profile = Table::new();
        profile.insert(
            "name".to_owned(),
            name.map_or_else(made, str::to_owned).into(),
        );
        profile.insert("driver".to_owned(), self.driver.into());
        profile.insert("device".to_owned(), self.devices.into());
        let mut all = Table::new();
        self.meta
            .insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        all.insert("probe".to_owned(), self.meta.into());
        if !self.identity.is_empty() {
            all.insert("identity".to_owned(), self.identity.into());
        }
        all.insert("profile".to_owned(), profile.into());
        all.insert("measured".to_owned(), self.measured.into());
        all.insert("tables".to_owned(), self.tables.into());
        Ok(format!("{HEAD}{}", toml::to_string_pretty(&all)?))
    }
}

const HEAD: &str = "\
# Written by `ringfence probe`. [profile] is a file of fixtures/profiles; each text in [tables] is one of fixtures/oracle:
# libcuda: export, its answer to ten zeros before cuInit, and with a primary context current
# nvml: export, its answer to a device and zeros, to zeros, and to zeros before nvmlInit
# proc_address: base name, runs of version:answer
# nvml_structures: getter, versions and sizes of the structures that it takes; plain minds none
# vulkan_extensions: of the first device, with their versions. [identity]: what each API calls its devices, in its order
# `-` was not called, S died, T never came back. Of a mock, ~ is before what no driver of its generation answered, and
# [probe.presumed] says which sections none of them stands behind. [measured] is in bytes, nanoseconds, bytes per second.
";

fn numbers(line: &str, text: &str) -> Result<Vec<i64>, String> {
    text.split(' ').map(|one| number(line, one)).collect()
}

fn push(
    device: &mut Table,
    field: &str,
    line: &str,
    value: &str,
    names: [&str; 2],
) -> Result<(), String> {
    let (left, right) = split(value);
    let mut row = Table::new();
    row.insert(names[0].to_owned(), number(line, left)?.into());
    row.insert(names[1].to_owned(), number(line, right)?.into());
    let rows = device
        .entry(field)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(rows) = rows {
        rows.push(row.into());
    }
    Ok(())
}
