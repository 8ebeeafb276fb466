//! A probe file as facts: what each part says, by subject, as text. A driver's library, or a list of its symbols, has one part.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use harness::symbols;

use crate::arguments::Section;
use crate::probe::document::FORMAT;
use crate::probe::nulls::PRESUMED;

/// What is compared by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Driver,
    Symbols,
    LookUps,
    Answers,
    Structures,
    Identities,
    Totals,
    Heaps,
    Granularities,
    Attributes,
    Extensions,
}

impl Part {
    pub const ALL: [Part; 11] = [
        Self::Driver,
        Self::Symbols,
        Self::LookUps,
        Self::Answers,
        Self::Structures,
        Self::Identities,
        Self::Totals,
        Self::Heaps,
        Self::Granularities,
        Self::Attributes,
        Self::Extensions,
    ];

    /// As reports, lists and JSON name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Symbols => "symbols",
            Self::LookUps => "look-ups",
            Self::Answers => "answers",
            Self::Structures => "structures",
            Self::Identities => "identities",
            Self::Totals => "totals",
            Self::Heaps => "heaps",
            Self::Granularities => "granularities",
            Self::Attributes => "attributes",
            Self::Extensions => "extensions",
        }
    }

    /// Whose section of the probe it comes from.
    fn section(self) -> Section {
        match self {
            Self::Driver | Self::Identities | Self::Totals | Self::Attributes => Section::Devices,
            Self::Symbols => Section::Symbols,
            Self::LookUps => Section::ProcAddress,
            Self::Answers => Section::Nulls,
            Self::Structures => Section::Structures,
            Self::Heaps | Self::Extensions => Section::Vulkan,
            Self::Granularities => Section::Memory,
        }
    }
}

/// By subject.
pub type Facts = BTreeMap<String, String>;

/// What a part says, or why nobody knows.
pub type Known = Result<Facts, String>;

/// Whether a value is what nobody knows: not asked, or a mock's alone.
pub fn is_unknown(value: &str) -> bool {
    value == "-" || value.starts_with(PRESUMED)
}

/// A probe file.
#[derive(Clone, Debug)]
pub struct Record {
    pub file: String,
    /// `real`, or a mock's spelling.
    pub driver: String,
    pub is_mock: bool,
    pub version: Option<String>,
    pub cuda_version: Option<i32>,
    pub parts: BTreeMap<Part, Known>,
}

/// Why a file cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: no ELF library: {reason}", path.display())]
    NoLibrary { path: PathBuf, reason: String },
    #[error("{}: neither a probe file nor a driver's symbols: no name begins with cu or nvml", path.display())]
    NoSymbols { path: PathBuf },
    #[error("{}: no TOML, or cut off: {source}", path.display())]
    Syntax {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
    #[error("{}: not written by ringfence probe: it has no [probe] with a driver", path.display())]
    NoProbe { path: PathBuf },
    #[error("{}: its format is {format}; this ringfence reads up to {FORMAT}", path.display())]
    Newer { path: PathBuf, format: i64 },
    #[error("{}: a mock's file of format {format} does not say what is only the mock's: probe again", path.display())]
    OldMock { path: PathBuf, format: i64 },
    #[error("{}: it says that it has the section {section}, and lacks it: cut off?", path.display())]
    Lacks { path: PathBuf, section: String },
}

impl Record {
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::File {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::read(path).map_err(failed)?;
        if bytes.starts_with(b"\x7fELF") {
            let exports = symbols::exports(&bytes).map_err(|error| FileError::NoLibrary {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
            let names = exports.into_iter().map(|(name, _)| name);
            return Self::of_names(path, names);
        }
        let text = String::from_utf8(bytes).map_err(|_| FileError::NoProbe {
            path: path.to_owned(),
        })?;
        match listed(&text) {
            Some(names) => Self::of_names(path, names.into_iter()),
            None => Self::parse(path, &text),
        }
    }

    /// What one of a driver's libraries exports, and nothing else.
    fn of_names(path: &Path, names: impl Iterator<Item = String>) -> Result<Self, FileError> {
        const WHY: &str = "the file has symbols alone";
        let facts: Facts = names
            .filter(|name| API_OF.iter().any(|api| name.starts_with(api)))
            .map(|name| (name, "exported".to_owned()))
            .collect();
        if facts.is_empty() {
            return Err(FileError::NoSymbols {
                path: path.to_owned(),
            });
        }
        let parts = Part::ALL.map(|part| match part {
            Part::Symbols => (part, Ok(facts.clone())),
            _ => (part, Err(WHY.to_owned())),
        });
        Ok(Self {
            file: path.display().to_string(),
            driver: "symbols".to_owned(),
            is_mock: false,
            version: None,
            cuda_version: None,
            parts: parts.into_iter().collect(),
        })
    }

    /// Leaves the symbols of those libraries that the other file has any of: what one library alone lacks is not gone.
    pub fn narrow_to(&mut self, other: &Record) {
        let Some(Ok(theirs)) = other.parts.get(&Part::Symbols) else {
            return;
        };
        let told = API_OF.map(|api| theirs.keys().any(|name| name.starts_with(api)));
        if let Some(Ok(ours)) = self.parts.get_mut(&Part::Symbols) {
            ours.retain(|name, _| {
                let of = API_OF.iter().position(|api| name.starts_with(api));
                of.is_none_or(|of| told[of])
            });
        }
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        let table: Table = text.parse().map_err(|source| FileError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let no_probe = || FileError::NoProbe {
            path: path.to_owned(),
        };
        let probe = table.get("probe").and_then(Value::as_table);
        let probe = probe.ok_or_else(no_probe)?;
        let driver = probe.get("driver").and_then(Value::as_str);
        let driver = driver.ok_or_else(no_probe)?.to_owned();
        let format = probe.get("format").and_then(Value::as_integer).unwrap_or(1);
        if format > FORMAT {
            let path = path.to_owned();
            return Err(FileError::Newer { path, format });
        }
        let is_mock = match probe.get("source").and_then(Value::as_str) {
            Some(source) => source == "mock",
            None => driver != "real",
        };
        if is_mock && format < 2 {
            let path = path.to_owned();
            return Err(FileError::OldMock { path, format });
        }
        let reader = Reader::new(&table, probe);
        reader.complete(path)?;
        let parts = Part::ALL.map(|part| (part, reader.part(part)));
        Ok(Self {
            file: path.display().to_string(),
            driver,
            is_mock,
            version: reader.of_driver("version"),
            cuda_version: reader.cuda_version(),
            parts: parts.into_iter().collect(),
        })
    }
}

/// How the names of libcuda's functions begin, and NVML's.
const API_OF: [&str; 2] = ["cu", "nvml"];

/// The names of a list, one a line, as `nm -D --defined-only` writes them too; `None` for what is no list.
fn listed(text: &str) -> Option<Vec<String>> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let name = line.rsplit(' ').next()?;
            let name = name.split('@').next()?;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let plain = !name.is_empty() && name.bytes().all(is_name) && !line.contains('=');
            (plain && !line.starts_with('[')).then(|| name.to_owned())
        })
        .collect()
}

struct Reader<'a> {
    table: &'a Table,
    probe: &'a Table,
    profile: Option<&'a Table>,
    devices: Vec<&'a Table>,
}

impl<'a> Reader<'a> {
    fn new(table: &'a Table, probe: &'a Table) -> Self {
        let profile = table.get("profile").and_then(Value::as_table);
        let devices = profile
            .and_then(|profile| profile.get("device")?.as_array())
            .map_or_else(Vec::new, |devices| {
                devices.iter().filter_map(Value::as_table).collect()
            });
        Self {
            table,
            probe,
            profile,
            devices,
        }
    }

    /// What the file says that it has is there.
    fn complete(&self, path: &Path) -> Result<(), FileError> {
        let sections = self.probe.get("sections").and_then(Value::as_array);
        for section in sections.into_iter().flatten().filter_map(Value::as_str) {
            let there = match section {
                "devices" | "vulkan" | "memory" | "teardown" => !self.devices.is_empty(),
                "cost" => self.table.contains_key("measured"),
                "symbols" => {
                    self.text("libcuda_exports").is_some() && self.text("nvml_exports").is_some()
                }
                "proc-address" => self.text("proc_address").is_some(),
                "nulls" => self.text("libcuda").is_some() && self.text("nvml").is_some(),
                "structures" => self.text("nvml_structures").is_some(),
                _ => true,
            };
            if !there {
                return Err(FileError::Lacks {
                    path: path.to_owned(),
                    section: section.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn text(&self, table: &str) -> Option<&'a str> {
        self.table.get("tables")?.get(table)?.as_str()
    }

    fn rows(&self, table: &str) -> Option<impl Iterator<Item = (&'a str, &'a str)> + use<'a>> {
        let lines = self.text(table)?.lines().filter(|line| !line.is_empty());
        Some(lines.map(|line| line.split_once(' ').unwrap_or((line, ""))))
    }

    fn of_driver(&self, key: &str) -> Option<String> {
        self.profile?.get("driver")?.get(key).map(plain)
    }

    fn cuda_version(&self) -> Option<i32> {
        self.of_driver("cuda_version")?.parse().ok()
    }

    fn why(&self, table: &str, section: &str) -> Option<String> {
        let why = self.probe.get(table)?.get(section)?.as_str()?;
        Some(why.to_owned())
    }

    fn part(&self, part: Part) -> Known {
        let section = part.section().name();
        // A driver's version is recorded wherever its symbols are.
        let presumed = self.why("presumed", &section);
        if let Some(why) = presumed.filter(|_| part != Part::Driver) {
            return Err(why);
        }
        let facts = match part {
            Part::Driver => self.driver(),
            Part::Symbols => self.symbols(),
            Part::LookUps => self.by_row("proc_address"),
            Part::Answers => self.answers(),
            Part::Structures => self.by_row("nvml_structures"),
            Part::Identities => self.identities(),
            Part::Totals => self.by_field(TOTALS),
            Part::Heaps => self.heaps(),
            Part::Granularities => self.granularities(),
            Part::Attributes => self.attributes(),
            Part::Extensions => self.by_row("vulkan_extensions"),
        };
        facts.filter(|facts| !facts.is_empty()).ok_or_else(|| {
            self.why("lacking", &section)
                .unwrap_or_else(|| "not probed".to_owned())
        })
    }

    fn driver(&self) -> Option<Facts> {
        let inferred = self.why("presumed", &Section::Vulkan.name()).is_some();
        let mut facts = Facts::new();
        for (subject, key, vulkan) in [
            ("version", "version", false),
            ("CUDA version", "cuda_version", false),
            ("Vulkan version of the driver", "vulkan_version", false),
            ("Vulkan API", "vulkan_api", true),
            ("Vulkan driver UUID", "vulkan_driver_uuid", true),
        ] {
            if let Some(value) = self.of_driver(key) {
                let mark = if vulkan && inferred { "~" } else { "" };
                facts.insert(subject.to_owned(), format!("{mark}{value}"));
            }
        }
        let known = self.cuda_version().zip(self.rows("proc_address"));
        if let Some((version, mut rows)) = known
            && self.why("presumed", &Section::ProcAddress.name()).is_none()
        {
            let refused = rows.any(|(_, runs)| {
                let mut runs = runs.split(' ').filter_map(|run| run.split_once(':'));
                runs.any(|(from, answer)| {
                    answer == "X" && from.parse::<i32>().is_ok_and(|from| from > version)
                })
            });
            let answer = if refused {
                "refused"
            } else {
                "answered as its own"
            };
            facts.insert(NEWER_LOOK_UPS.to_owned(), answer.to_owned());
        }
        Some(facts)
    }

    fn symbols(&self) -> Option<Facts> {
        let exported = ["libcuda_exports", "nvml_exports"].map(|table| self.rows(table));
        let [Some(cuda), Some(nvml)] = exported else {
            return None;
        };
        let names = cuda.chain(nvml).map(|(name, _)| name);
        Some(
            names
                .map(|name| (name.to_owned(), "exported".to_owned()))
                .collect(),
        )
    }

    fn by_row(&self, table: &str) -> Option<Facts> {
        let rows = self.rows(table)?;
        Some(
            rows.map(|(name, rest)| (name.to_owned(), rest.to_owned()))
                .collect(),
        )
    }

    fn answers(&self) -> Option<Facts> {
        const CUDA: &[&str] = &["before cuInit", "with a context"];
        const NVML: &[&str] = &["of a device", "of nothing", "before nvmlInit"];
        let mut facts = Facts::new();
        for (table, columns) in [("libcuda", CUDA), ("nvml", NVML)] {
            for (name, answers) in self.rows(table)? {
                for (column, answer) in columns.iter().zip(answers.split(' ')) {
                    facts.insert(format!("{name} {column}"), answer.to_owned());
                }
            }
        }
        Some(facts)
    }

    /// Facts of each device that stand in its fields.
    fn by_field(&self, fields: &[(&str, &str)]) -> Option<Facts> {
        let mut facts = Facts::new();
        for (index, device) in self.devices.iter().enumerate() {
            for (field, subject) in fields {
                if let Some(value) = device.get(*field) {
                    facts.insert(format!("device {index}: {subject}"), plain(value));
                }
            }
        }
        Some(facts)
    }

    fn granularities(&self) -> Option<Facts> {
        let mut facts = self.by_field(GRANULARITIES)?;
        let measured = self.table.get("measured").and_then(Value::as_table);
        for (key, value) in measured.into_iter().flatten() {
            if let Some((call, bytes)) = key.split_once('.') {
                facts.insert(format!("{call} of {bytes}"), plain(value));
            }
        }
        Some(facts)
    }

    fn attributes(&self) -> Option<Facts> {
        let mut facts = Facts::new();
        for (index, device) in self.devices.iter().enumerate() {
            let attributes = device.get("attributes").and_then(Value::as_table);
            for (number, value) in attributes.into_iter().flatten() {
                facts.insert(format!("device {index}: attribute {number}"), plain(value));
            }
        }
        Some(facts)
    }

    fn heaps(&self) -> Option<Facts> {
        const LISTS: [(&str, &str, [&str; 2]); 3] = [
            ("heaps", "heap", ["size", "flags"]),
            ("memory_types", "memory type", ["heap", "flags"]),
            ("queue_families", "queue family", ["count", "flags"]),
        ];
        let mut facts = Facts::new();
        for (index, device) in self.devices.iter().enumerate() {
            for (field, subject, keys) in LISTS {
                let rows = device.get(field).and_then(Value::as_array);
                for (at, row) in rows.into_iter().flatten().enumerate() {
                    let said = keys.map(|key| {
                        let value = row.get(key).map_or_else(|| "?".to_owned(), plain);
                        format!("{key} {value}")
                    });
                    facts.insert(format!("device {index}: {subject} {at}"), said.join(", "));
                }
            }
            if let Some(heaps) = device.get("heaps").and_then(Value::as_array) {
                let local = heaps.iter().enumerate().filter(|(_, heap)| {
                    let flags = heap.get("flags").and_then(Value::as_integer);
                    flags.is_some_and(|flags| flags & 1 != 0)
                });
                let local: Vec<String> = local.map(|(at, _)| at.to_string()).collect();
                let said = if local.is_empty() {
                    "none".to_owned()
                } else {
                    local.join(" ")
                };
                facts.insert(format!("device {index}: {LOCAL_HEAPS}"), said);
            }
        }
        Some(facts)
    }

    /// What each API calls each device, and whether they mean the same one.
    fn identities(&self) -> Option<Facts> {
        let mut facts = self.by_field(NAMES)?;
        facts.insert("devices".to_owned(), self.devices.len().to_string());
        let names = |api: &str| -> Vec<String> {
            let identity = self.table.get("identity").and_then(|all| all.get(api));
            let names = identity.and_then(Value::as_array);
            names.into_iter().flatten().map(plain).collect()
        };
        let (cuda, vulkan) = (names("cuda"), names("vulkan"));
        // An API that was asked and does not have the device says so.
        let told = |asked: &[String], name: Option<&str>| match asked {
            [] => None,
            _ => Some(name.unwrap_or("none").to_owned()),
        };
        let mut seen: Vec<String> = Vec::new();
        let mut twice = false;
        for (index, device) in self.devices.iter().enumerate() {
            let of = |field: &str| device.get(field).map(plain);
            let nvml = of("uuid")?;
            let place = of("pci").unwrap_or_default();
            let by_cuda = match cuda.contains(&nvml) {
                true => Some(nvml.clone()),
                false => told(&cuda, cuda.get(index).map(String::as_str)),
            };
            let by_place = vulkan
                .iter()
                .find_map(|name| name.strip_prefix(&format!("{place} ")));
            let by_vulkan = told(&vulkan, by_place)
                // A file of format 1 has it in the profile where it differs; Vulkan was asked if there are heaps.
                .or_else(|| of("vulkan_uuid"))
                .or_else(|| of("heaps").map(|_| nvml.clone()));
            let said = [
                ("NVML", Some(nvml.clone())),
                ("CUDA", by_cuda),
                ("Vulkan", by_vulkan),
            ];
            let others = said[1..].iter().filter_map(|(_, uuid)| uuid.as_ref());
            let one = others.clone().all(|uuid| *uuid == nvml);
            let complete = others.count() == 2;
            facts.insert(
                format!("device {index}: {AGREEMENT}"),
                match (one, complete) {
                    (true, true) => "one".to_owned(),
                    (true, false) => "-".to_owned(),
                    (false, _) => "several".to_owned(),
                },
            );
            for (api, uuid) in said {
                if let Some(uuid) = uuid {
                    facts.insert(format!("device {index}: UUID by {api}"), uuid.clone());
                    let own = format!("{api} {uuid}");
                    twice |= seen.contains(&own);
                    seen.push(own);
                }
            }
        }
        facts.insert(
            DISTINCT.to_owned(),
            if twice { "no" } else { "yes" }.to_owned(),
        );
        if !cuda.is_empty() {
            let place = |uuid: &String| {
                let mut devices = self.devices.iter();
                let at =
                    devices.position(|device| device.get("uuid").map(plain).as_ref() == Some(uuid));
                at.map_or_else(|| "?".to_owned(), |at| at.to_string())
            };
            let order: Vec<String> = cuda.iter().map(place).collect();
            facts.insert(CUDA_ORDER.to_owned(), order.join(" "));
        }
        Some(facts)
    }
}

/// Subjects that rules name too.
pub const NEWER_LOOK_UPS: &str = "look-ups of a CUDA version above its own";
pub const LOCAL_HEAPS: &str = "device-local heaps";
pub const AGREEMENT: &str = "UUIDs of the three APIs";
pub const DISTINCT: &str = "each UUID names one device";
pub const CUDA_ORDER: &str = "NVML's numbers in CUDA's order";

const NAMES: &[(&str, &str)] = &[
    ("name", "name"),
    ("pci", "PCI address"),
    ("pci_device_id", "PCI device id"),
];
const TOTALS: &[(&str, &str)] = &[
    ("cuda_total", "total by CUDA"),
    ("nvml_total", "total by NVML"),
    ("nvml_reserve", "NVML's reserve"),
    ("sm_count", "multiprocessors"),
    ("compute_capability", "compute capability"),
];
const GRANULARITIES: &[(&str, &str)] = &[
    ("block", "block"),
    ("suballocation", "suballocation"),
    ("vmm_granularity", "granularity of cuMemCreate"),
    ("vulkan_granularity", "granularity of vkAllocateMemory"),
    ("pool_step", "step of a pool"),
    ("context_overhead", "a context"),
    ("init_overhead", "cuInit"),
    ("vulkan_instance_overhead", "a VkInstance"),
    ("vulkan_device_overhead", "a VkDevice"),
];

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join("."),
        value => value.to_string(),
    }
}
