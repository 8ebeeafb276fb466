//! Everything that a case's processes must know of the environment they run in: one JSON file, whose path they get as an
//! argument, so that the environment's own variables are only what the target and the drivers need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::budgets::Budgets;
use crate::case::Libraries;
use crate::driver::Driver;
use crate::target::{Target, TargetError};

/// What processes keep of the runner's own environment.
const KEPT: [&str; 7] = [
    "PATH",
    "LANG",
    "TERM",
    "TMPDIR",
    "RUST_BACKTRACE",
    "LLVM_PROFILE_FILE",
    crate::artifacts::DIRECTORY_VARIABLE,
];
/// What they keep besides over the system's own driver.
const KEPT_ON_REAL: [&str; 6] = [
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
];
/// What would tell a program about another enforcer or machine than the one it is put on.
const FOREIGN: [&str; 4] = ["LD_PRELOAD", "RINGFENCE_", "CUDA_DEVICE_", "HAMI_"];
/// Of those, what a user sets to hear or choose how the enforcer decides: theirs to keep.
const SETTINGS: [&str; 4] = [
    "RINGFENCE_TRACE",
    "RINGFENCE_CONTEXT_CHARGE",
    "RINGFENCE_VK_BUDGET",
    "HAMI_VK_TRACE",
];

/// Where Debian's Khronos validation layer is. Explicit layers are looked for here alone, as no system directory is.
pub const EXPLICIT_LAYERS: &str = "/usr/share/vulkan/explicit_layer.d";

/// Whether the Khronos validation layer is installed, to be put over the mock ICD.
pub fn has_validation_layer() -> bool {
    Path::new(EXPLICIT_LAYERS)
        .join("VkLayer_khronos_validation.json")
        .is_file()
}

/// Where, below a case's root, proxies lie.
pub const PROXIES: &str = "proxies";

/// A case's circumstances, resolved.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// The case's name, or the command's.
    pub name: String,
    /// The directory of this run.
    pub root: PathBuf,
    /// What to start for another role.
    pub executable: PathBuf,
    /// With all paths filled in.
    pub target: Target,
    pub driver: Driver,
    pub gpus: u32,
    pub budgets: Budgets,
    pub libraries: Libraries,
    /// The simulated devices; none over a real driver.
    pub world: Option<PathBuf>,
    pub ledger: PathBuf,
    /// The Khronos validation layer watches.
    pub validated: bool,
    /// What recorders before the drivers need, where there are any.
    #[serde(default)]
    pub recording: BTreeMap<String, String>,
    /// The case's further variables.
    pub env: Vec<(String, String)>,
}

impl Plan {
    /// Where the plan itself lies.
    pub fn path(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// Where the mocks write what they are asked, if they do.
    pub fn trace_path(&self) -> PathBuf {
        self.root.join("trace.jsonl")
    }

    /// Where recorders do.
    pub fn record_path(&self) -> PathBuf {
        self.root.join("record.jsonl")
    }

    pub fn load(path: &Path) -> std::io::Result<Self> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(std::io::Error::other)
    }

    pub fn store(&self) -> std::io::Result<()> {
        std::fs::write(
            self.path(),
            serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?,
        )
    }

    /// Gives a process of a case exactly the environment that it should have.
    pub fn apply(&self, command: &mut Command, libraries: Libraries) -> Result<(), TargetError> {
        command.env_clear();
        let on_real = if self.driver.is_real() {
            &KEPT_ON_REAL[..]
        } else {
            &[]
        };
        for name in KEPT.iter().chain(on_real) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.driver.is_real()
            && let Some(search) = self.system_search()
        {
            command.env("LD_LIBRARY_PATH", search);
        }
        for (name, folder) in [("HOME", "home"), ("XDG_RUNTIME_DIR", "run")] {
            command.env(name, self.root.join(folder));
        }
        if self.validated {
            command.env("RINGFENCE_VALIDATION", "1");
        }
        command.envs(self.variables(libraries)?);
        Ok(())
    }

    /// Where this process looks for libraries, but for the proxies: not each process that it starts is to meet them.
    fn system_search(&self) -> Option<String> {
        let proxies = self.root.join(PROXIES);
        let inherited = crate::recording::inherited("LD_LIBRARY_PATH")?;
        let others = inherited
            .split(':')
            .filter(|directory| Path::new(directory) != proxies);
        Some(others.collect::<Vec<_>>().join(":"))
    }

    /// Whether a process finds the target's proxies in the drivers' place.
    pub fn proxied(&self, libraries: Libraries) -> bool {
        let alone = self.target.preload.is_empty() && libraries.preloads();
        !self.target.proxies.is_empty() && (alone || libraries.proxies())
    }

    /// Gives a user's own program the runner's environment, with the machine and the enforcer put into it.
    pub fn apply_over_ours(&self, command: &mut Command) -> Result<(), TargetError> {
        for (name, _) in std::env::vars_os() {
            let foreign = FOREIGN
                .iter()
                .any(|foreign| name.as_encoded_bytes().starts_with(foreign.as_bytes()));
            if foreign && !SETTINGS.iter().any(|setting| name == *setting) {
                command.env_remove(name);
            }
        }
        let mut set = self.variables(self.libraries)?;
        set.retain(|name, _| name != "VK_LAYER_PATH" || std::env::var_os(name).is_none());
        if self.world.is_some() {
            self.append_inherited(&mut set, &crate::recording::inherited);
        }
        command.envs(set);
        Ok(())
    }

    /// What a case is cut off from, a user's own program keeps: the libraries, data and settings that it finds by LD_LIBRARY_PATH and the
    /// XDG variables stay, behind ours. The target's layer goes where the Vulkan loader looks before it looks into any installed
    /// directory but the user's own XDG_CONFIG_HOME, so that what is installed does not stand in for what is run.
    fn append_inherited(
        &self,
        set: &mut BTreeMap<String, String>,
        inherited: &dyn Fn(&str) -> Option<String>,
    ) {
        let inherited = |name: &str| inherited(name).filter(|value| !value.is_empty());
        let behind = |first: Option<String>, rest: Option<String>| {
            let all: Vec<String> = first.into_iter().chain(rest).collect();
            (!all.is_empty()).then(|| all.join(":"))
        };
        set.remove("XDG_CONFIG_HOME");
        set.remove("XDG_DATA_HOME");
        let bare = self.root.join("bare").display().to_string();
        let recorder = set
            .remove("XDG_DATA_DIRS")
            .map(|dirs| {
                dirs.split(':')
                    .filter(|dir| *dir != bare)
                    .collect::<Vec<_>>()
                    .join(":")
            })
            .filter(|dirs| !dirs.is_empty());
        set.remove("XDG_CONFIG_DIRS");
        let layer = self.libraries.installs_layer();
        let layer = layer.then(|| self.root.join("data").display().to_string());
        let lists = [
            ("LD_LIBRARY_PATH", set.remove("LD_LIBRARY_PATH"), None),
            ("XDG_CONFIG_DIRS", layer, Some("/etc/xdg")),
            ("XDG_DATA_DIRS", recorder, Some(crate::recording::DATA_DIRS)),
        ];
        for (name, ours, default) in lists {
            let theirs = inherited(name).or(default.map(str::to_owned));
            if let Some(all) = behind(ours, theirs) {
                set.insert(name.to_owned(), all);
            }
        }
    }

    /// What the drivers, the target and the case need, for whatever program.
    fn variables(&self, libraries: Libraries) -> Result<BTreeMap<String, String>, TargetError> {
        let mut set = BTreeMap::new();
        let mut put =
            |name: &str, value: &Path| set.insert(name.to_owned(), value.display().to_string());
        put("XDG_CONFIG_HOME", &self.root.join("home"));
        let data = if libraries.installs_layer() {
            "data"
        } else {
            "bare"
        };
        put("XDG_DATA_HOME", &self.root.join(data));
        if let Some(world) = &self.world {
            put("RINGFENCE_WORLD", world);
            put("LD_LIBRARY_PATH", &self.root.join("lib"));
            put("VK_DRIVER_FILES", &self.root.join("icd.json"));
            put("VK_ICD_FILENAMES", &self.root.join("icd.json"));
            put("VK_LAYER_PATH", Path::new(EXPLICIT_LAYERS));
            // An empty value means the system's directories to loader 1.3.239: a directory with nothing in it is needed.
            put("XDG_DATA_DIRS", &self.root.join("bare"));
            put("XDG_CONFIG_DIRS", &self.root.join("bare"));
        }
        set.extend(self.recording.clone());
        set.extend(self.target.environment.clone());
        if libraries.preloads() && !self.target.preload.is_empty() {
            set.insert("LD_PRELOAD".to_owned(), self.target.preload.join(":"));
        }
        if self.proxied(libraries) {
            let inherited = || self.system_search().filter(|search| !search.is_empty());
            let search = set.remove("LD_LIBRARY_PATH").or_else(inherited);
            let proxies = self.root.join(PROXIES).display().to_string();
            let search = search.map_or_else(|| proxies.clone(), |rest| format!("{proxies}:{rest}"));
            set.insert("LD_LIBRARY_PATH".to_owned(), search);
        }
        if let Some(layer) = self
            .target
            .layer
            .as_ref()
            .filter(|_| libraries.enables_layer())
        {
            set.extend(layer.enable.clone());
        }
        for (device, budget) in self.budgets.iter() {
            set.extend(self.target.budget_variables(device, budget)?);
        }
        set.extend(self.env.iter().cloned());
        Ok(set)
    }
}
