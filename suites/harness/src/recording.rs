//! Recorders put into the drivers' places: the mocks' or the machine's own libraries lie behind them, and what those are
//! asked and answer goes to `record.jsonl`, the same way for both.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::artifacts::{self, ArtifactError, Library};
use crate::environment::{Environment, EnvironmentError};
use crate::plan::Plan;
use crate::symbols;

/// A driver library: the recorder for it, the names that clients ask for, and how the recorder is told of the driver.
const PLACES: [(Library, [&str; 2], &str); 2] = [
    (
        Library::RecorderLibcuda,
        ["libcuda.so.1", "libcuda.so"],
        "RINGFENCE_RECORDED_LIBCUDA",
    ),
    (
        Library::RecorderLibnvml,
        ["libnvidia-ml.so.1", "libnvidia-ml.so"],
        "RINGFENCE_RECORDED_LIBNVML",
    ),
];

/// Names the file that recorders write to.
pub const FILE_VARIABLE: &str = "RINGFENCE_RECORD";

impl Environment {
    /// Has the drivers recorded from here on, beneath whatever target is before them. Answers the file.
    pub fn record(&mut self) -> Result<PathBuf, EnvironmentError> {
        let root = self.plan.root.clone();
        let (lib, file) = (root.join("lib"), self.plan.record_path());
        let mut variables = BTreeMap::new();
        for (library, names, variable) in PLACES {
            let Some(driver) = driver_of(&self.plan, names[0])? else {
                continue;
            };
            let recorder = without_absent(library, &driver, &root)?;
            for name in names {
                let link = lib.join(name);
                let failed = |source| EnvironmentError::File {
                    path: link.clone(),
                    source,
                };
                if link.symlink_metadata().is_ok() {
                    std::fs::remove_file(&link).map_err(failed)?;
                }
                symlink(&recorder, &link).map_err(failed)?;
            }
            variables.insert(variable.to_owned(), driver.display().to_string());
        }
        self.record_vulkan(&mut variables)?;
        let inherited = match self.plan.world {
            Some(_) => None,
            None => inherited("LD_LIBRARY_PATH"),
        };
        let search = match inherited {
            Some(inherited) => format!("{}:{inherited}", lib.display()),
            None => lib.display().to_string(),
        };
        variables.insert("LD_LIBRARY_PATH".to_owned(), search);
        variables.insert(FILE_VARIABLE.to_owned(), file.display().to_string());
        self.plan.recording = variables;
        let path = self.plan.path();
        self.plan
            .store()
            .map_err(|source| EnvironmentError::File { path, source })?;
        Ok(file)
    }

    /// Installs the recorder's layer. It lies where the loader looks last, so that it stands beneath the layers of targets.
    fn record_vulkan(
        &self,
        variables: &mut BTreeMap<String, String>,
    ) -> Result<(), EnvironmentError> {
        let manifest = serde_json::json!({
            "file_format_version": "1.0.0",
            "layer": {
                "name": LAYER,
                "type": "GLOBAL",
                "library_path": artifacts::find(Library::RecorderLayer)?,
                "api_version": "1.3.0",
                "implementation_version": "1",
                "description": "Records what the driver is asked",
                "functions": {
                    "vkNegotiateLoaderLayerInterfaceVersion": "vkNegotiateLoaderLayerInterfaceVersion",
                },
                "enable_environment": { "RINGFENCE_RECORD_VULKAN": "1" },
                "disable_environment": { "RINGFENCE_RECORD_VULKAN_NOT": "1" },
            },
        });
        let folder = self.plan.root.join("recorder/vulkan/implicit_layer.d");
        let path = folder.join("recorder.json");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, manifest.to_string()))
            .map_err(|source| EnvironmentError::File { path, source })?;
        variables.insert("RINGFENCE_RECORD_VULKAN".to_owned(), "1".to_owned());
        let others = match self.plan.world {
            Some(_) => self.plan.root.join("bare").display().to_string(),
            None => inherited("XDG_DATA_DIRS").unwrap_or_else(|| DATA_DIRS.to_owned()),
        };
        let own = self.plan.root.join("recorder");
        variables.insert(
            "XDG_DATA_DIRS".to_owned(),
            format!("{}:{others}", own.display()),
        );
        Ok(())
    }
}

/// A variable of the runner's own environment.
pub(crate) fn inherited(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// What no XDG_DATA_DIRS means to the loader.
pub(crate) const DATA_DIRS: &str = "/usr/local/share:/usr/share";
/// What the recorder's layer is called.
const LAYER: &str = "VK_LAYER_RINGFENCE_recorder";

/// The file of the driver's library under this name: a mock, or the machine's own; none where there is none.
pub fn driver_of(plan: &Plan, soname: &str) -> Result<Option<PathBuf>, EnvironmentError> {
    match plan.world {
        Some(_) => Ok(plan.root.join("lib").join(soname).canonicalize().ok()),
        None => path_of(soname),
    }
}

/// The recorder as this driver's twin: a copy without the names that the driver lacks, if there are any.
fn without_absent(
    library: Library,
    driver: &Path,
    root: &Path,
) -> Result<PathBuf, EnvironmentError> {
    let copy = root.join(library.file_name());
    Ok(symbols::twin(&artifacts::find(library)?, driver, &copy)?)
}

/// Where the machine's own library of this name lies; none where it has none. Another process looks, so that this one
/// stays without drivers.
fn path_of(soname: &str) -> Result<Option<PathBuf>, EnvironmentError> {
    let executable = std::env::current_exe().map_err(ArtifactError::NoExecutable)?;
    let output = Command::new(&executable)
        .args(["__where", soname])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| EnvironmentError::File {
            path: executable,
            source,
        })?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((output.status.success() && !path.is_empty()).then(|| PathBuf::from(path)))
}

/// The `__where` process.
pub(crate) fn print_path(soname: &str) -> ExitCode {
    let mapped = |line: &str| {
        let path = line.split_once('/').map(|(_, path)| format!("/{path}"))?;
        let stem = soname.split(".so").next().unwrap_or(soname);
        let file = path.rsplit('/').next().unwrap_or_default();
        file.starts_with(&format!("{stem}.so")).then_some(path)
    };
    if !crate::nvml::load(soname) {
        return ExitCode::FAILURE;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    match maps.lines().find_map(mapped) {
        Some(path) => {
            println!("{path}");
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}
