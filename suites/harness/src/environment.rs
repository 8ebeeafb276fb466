//! The directory that a case runs in: mock drivers under the names clients ask for, manifests, a home, the simulated
//! world and a ledger. Removed with its value.

use std::io::PipeWriter;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use mock_device::fault::{self, At, Effect, Fault};
use mock_device::generation;
use mock_device::{Api, FaultPlan, World, WorldError, WorldSpec};

use crate::artifacts::{self, ArtifactError, Library};
use crate::budgets::{BudgetError, Budgets};
use crate::case::{Absent, Case, Libraries};
use crate::driver::{Driver, Gpus};
use crate::plan::{PROXIES, Plan};
use crate::proxies::{self, ProxyError};
use crate::recording;
use crate::symbols::{self, SymbolError};
use crate::target::{LayerSpec, Target, TargetError};
use mock_device::Bytes;

/// The manifest that we ship, as an operator would install it.
const SHIPPED_MANIFEST: &str = include_str!("../../../enforcement/layer/hami.json");

/// What an environment is asked to be.
pub struct Request<'a> {
    pub name: &'a str,
    pub target: &'a Target,
    pub driver: &'a Driver,
    /// Mock profile; nothing to a real driver.
    pub machine: &'a str,
    /// Sizes of the real driver's GPUs; nothing to a mock.
    pub real_devices: &'a [Bytes],
    pub budget: &'a str,
    /// Fault plan, TOML.
    pub faults: &'a str,
    /// Rows that follow the plan's.
    pub further_faults: &'a [Fault],
    pub libraries: Libraries,
    pub absent: &'a [Absent],
    pub env: &'a [(&'a str, &'a str)],
    /// Whether the mocks write a trace, to `trace.jsonl`.
    pub traced: bool,
    /// Whether the Khronos validation layer is to watch the mock ICD, where it is installed.
    pub validated: bool,
}

impl<'a> Request<'a> {
    /// One GPU of the default profile without budgets and faults, both of the target's libraries, nothing written and nothing watched.
    pub fn new(name: &'a str, target: &'a Target, driver: &'a Driver) -> Self {
        Self {
            name,
            target,
            driver,
            machine: Case::BLANK.machine,
            real_devices: &[],
            budget: "",
            faults: "",
            further_faults: &[],
            libraries: Libraries::Both,
            absent: &[],
            env: &[],
            traced: false,
            validated: false,
        }
    }

    /// The circumstances of a case.
    pub fn of(case: &'a Case, target: &'a Target, driver: &'a Driver) -> Self {
        Self {
            machine: case.machine,
            budget: case.budget,
            faults: case.faults,
            libraries: case.libraries,
            absent: case.absent,
            env: case.env,
            ..Self::new(case.name, target, driver)
        }
    }
}

/// Why an environment could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: not a layer manifest: {source}", path.display())]
    Manifest {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}: a layer manifest without a \"layer\" object", path.display())]
    NoLayer { path: PathBuf },
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error(transparent)]
    World(#[from] WorldError),
    #[error(transparent)]
    Profile(#[from] mock_device::ProfileError),
    #[error(transparent)]
    Fault(#[from] mock_device::fault::FaultError),
    #[error("{input}: fault {row} at `{at}`: at: no driver generation exports such an entry point")]
    NoSuchEntry {
        input: String,
        row: usize,
        at: String,
    },
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// A directory with everything in it.
pub struct Environment {
    /// Ends before what it watches.
    _vigil: Option<Vigil>,
    pub plan: Plan,
    /// The simulated devices, as an onlooker sees them.
    pub world: Option<Arc<World>>,
    /// NVML answers truthfully, so that it can be compared with the simulated devices.
    pub nvml_answers: bool,
    _root: tempfile::TempDir,
    _shared: tempfile::TempDir,
}

impl Environment {
    pub fn create(request: &Request<'_>) -> Result<Self, EnvironmentError> {
        let root = temporary(&std::env::temp_dir())?;
        let shared_memory = Path::new("/dev/shm");
        let shared = temporary(if shared_memory.is_dir() {
            shared_memory
        } else {
            root.path()
        })?;
        let (path, ledger) = (root.path().to_owned(), shared.path().join("ledger"));
        for folder in ["lib", "home", "run", "data/vulkan/implicit_layer.d", "bare"] {
            let folder = path.join(folder);
            std::fs::create_dir_all(&folder).map_err(file_error(&folder))?;
        }
        let run = path.join("run");
        std::fs::set_permissions(&run, PermissionsExt::from_mode(0o700))
            .map_err(file_error(&run))?;

        let target = request.target.resolved(&path, &ledger)?;
        if let Some(layer) = &target.layer {
            install_layer(layer, &path.join("data/vulkan/implicit_layer.d/hami.json"))?;
        }
        // A fault plan may name devices by number, and what is true of two is not of sixteen.
        let gpus = match request.faults.is_empty() {
            true => Gpus::AtLeast,
            false => Gpus::Exactly,
        };
        let spec = request
            .driver
            .machine_for(request.machine, gpus)
            .map(|machine| world_spec(&machine, &path, request))
            .transpose()?;
        let sizes = match &spec {
            Some(spec) => spec
                .machine
                .devices
                .iter()
                .map(|device| Bytes(device.nvml_total.0))
                .collect(),
            None => request.real_devices.to_vec(),
        };
        let mut absent = request.absent.to_vec();
        let world = match &spec {
            Some(spec) => {
                absent.extend(spec.faults.absent().map(absent_library));
                install_mocks(spec, &absent, &path)?;
                Some(Arc::new(World::create(&path.join("world"), spec)?))
            }
            None => None,
        };
        let plan = Plan {
            name: request.name.to_owned(),
            executable: artifacts::program()?,
            target,
            driver: request.driver.clone(),
            gpus: sizes.len() as u32,
            budgets: Budgets::read(request.budget, &sizes)?,
            libraries: request.libraries,
            // Without a driver the loader complains through the layer, which is what such a case is about.
            validated: request.validated
                && !absent.contains(&Absent::Icd)
                && world.is_some()
                && crate::plan::has_validation_layer(),
            world: world.is_some().then(|| path.join("world")),
            ledger,
            recording: Default::default(),
            env: request
                .env
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            root: path,
        };
        put_proxies(&plan)?;
        plan.store().map_err(file_error(&plan.path()))?;
        let without = absent.contains(&Absent::Nvml);
        let nvml_answers = spec.is_none_or(|spec| !without && !faults_nvml(&spec.faults));
        let vigil = world.clone().map(Vigil::over).transpose();
        Ok(Self {
            _vigil: vigil.map_err(file_error(&plan.root))?,
            nvml_answers,
            plan,
            world,
            _root: root,
            _shared: shared,
        })
    }
}

/// A thread that sees to it that a dead process's teardown begins at its death, as a driver's does, and not when somebody looks.
struct Vigil {
    /// Closed, it ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Vigil {
    fn over(world: Arc<World>) -> std::io::Result<Self> {
        let (stopped, stop) = std::io::pipe()?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(world.begin_watch(stopped)?),
        })
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has told so itself.
            let _ = thread.join();
        }
    }
}

/// Only for a case that asks for them: they are large, and the machine's own drivers take time to find.
fn put_proxies(plan: &Plan) -> Result<(), EnvironmentError> {
    if !plan.proxied(plan.libraries) {
        return Ok(());
    }
    for (soname, proxy) in &plan.target.proxies {
        // The link that a recorder may be put into later.
        let mock = plan.root.join("lib").join(soname);
        let driver = match &plan.world {
            Some(_) => mock.exists().then_some(mock),
            None => recording::driver_of(plan, soname)?,
        };
        if let Some(driver) = driver {
            proxies::put(&plan.root.join(PROXIES), soname, Path::new(proxy), &driver)?;
        }
    }
    Ok(())
}

fn temporary(parent: &Path) -> Result<tempfile::TempDir, EnvironmentError> {
    tempfile::Builder::new()
        .prefix("ringfence-")
        .tempdir_in(parent)
        .map_err(file_error(parent))
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> EnvironmentError {
    let path = path.to_owned();
    move |source| EnvironmentError::File { path, source }
}

fn world_spec(
    machine: &str,
    root: &Path,
    request: &Request<'_>,
) -> Result<WorldSpec, EnvironmentError> {
    let mut spec = WorldSpec::new(mock_device::profile::of(machine)?);
    spec.faults = FaultPlan::parse(request.name, request.faults)?;
    check_entries(request.name, &spec.faults)?;
    for symbol in request.driver.without() {
        let row = format!("[[fault]]\nat = \"{symbol}\"\nthen = \"missing\"\n");
        let plan = FaultPlan::parse(request.name, &row)?;
        spec.faults.faults.extend(plan.faults);
    }
    spec.faults.faults.extend_from_slice(request.further_faults);
    spec.trace = request.traced.then(|| root.join("trace.jsonl"));
    Ok(spec)
}

/// A row whose entry point no driver has would never take effect. Vulkan's commands are not exported: any name may be one.
fn check_entries(input: &str, plan: &FaultPlan) -> Result<(), EnvironmentError> {
    let unknown = |fault: &Fault| {
        let At::Calls(patterns) = fault.place() else {
            return false;
        };
        patterns.iter().all(|pattern| {
            let stem = pattern.split('*').next().unwrap_or_default();
            match Api::of_symbol(stem) {
                Some(api @ (Api::Cuda | Api::Nvml)) => !symbols::of_any_generation(api)
                    .iter()
                    .any(|name| fault::fits(pattern, name)),
                _ => false,
            }
        })
    };
    match plan.faults.iter().position(unknown) {
        None => Ok(()),
        Some(row) => Err(EnvironmentError::NoSuchEntry {
            input: input.to_owned(),
            row,
            at: plan.faults[row].at.clone(),
        }),
    }
}

/// Whether a fault keeps NVML from answering, or makes it show other devices; a false identity or a delay does not.
fn faults_nvml(plan: &FaultPlan) -> bool {
    plan.faults.iter().any(|fault| match fault.then {
        Effect::Delay(_) | Effect::Identity(_) => false,
        Effect::Lost => true,
        Effect::Devices(_) => fault::shows_devices(&fault.place(), Api::Nvml),
        _ => fault.hits(Api::Nvml),
    })
}

fn absent_library(api: Api) -> Absent {
    match api {
        Api::Cuda => Absent::Cuda,
        Api::Nvml => Absent::Nvml,
        Api::Vulkan => Absent::Icd,
    }
}

/// Links the mocks under the names that clients ask for. They export what any driver generation does, so that each machine
/// has copies without the exports of others, and without those that the fault plan takes away.
fn install_mocks(spec: &WorldSpec, absent: &[Absent], root: &Path) -> Result<(), EnvironmentError> {
    let mocks = [
        (
            Absent::Cuda,
            Api::Cuda,
            Library::MockLibcuda,
            ["libcuda.so.1", "libcuda.so"],
        ),
        (
            Absent::Nvml,
            Api::Nvml,
            Library::MockNvml,
            ["libnvidia-ml.so.1", "libnvidia-ml.so"],
        ),
    ];
    for (kind, api, library, names) in mocks {
        if absent.contains(&kind) {
            // The machine's own would be found instead: what is no library ends the search.
            for name in names.iter().filter(|name| is_installed(name)) {
                let place = root.join("lib").join(name);
                std::fs::write(&place, "no library").map_err(file_error(&place))?;
            }
            continue;
        }
        let mut built = artifacts::find(library)?;
        let mut missing = symbols::not_of_generation(api, generation::number(&spec.machine.driver));
        let taken = spec.faults.faults.iter().filter_map(Fault::missing);
        missing.extend(taken.filter(|(of, _)| *of == api).map(|(_, name)| name));
        if !missing.is_empty() {
            built = symbols::kept_without(&built, &missing).or_else(|_| {
                symbols::copy_without(&built, &root.join(library.file_name()), &missing)
            })?;
        }
        for name in names {
            let link = root.join("lib").join(name);
            symlink(&built, &link).map_err(file_error(&link))?;
        }
    }
    if !absent.contains(&Absent::Icd) {
        let [major, minor, patch] = spec.machine.driver.vulkan_api;
        let manifest = serde_json::json!({
            "file_format_version": "1.0.1",
            "ICD": {
                "library_path": artifacts::find(Library::MockIcd)?,
                "api_version": format!("{major}.{minor}.{patch}"),
            },
        });
        let path = root.join("icd.json");
        std::fs::write(&path, manifest.to_string()).map_err(file_error(&path))?;
    }
    Ok(())
}

/// Whether the dynamic loader's cache names a library.
fn is_installed(name: &str) -> bool {
    // As the end of a path, or by itself.
    let ends = [b"/", b"\0"].map(|before| [before, name.as_bytes(), b"\0"].concat());
    std::fs::read("/etc/ld.so.cache").is_ok_and(|cache| {
        let mut parts = cache.windows(name.len() + 2);
        parts.any(|part| ends.iter().any(|end| part == end))
    })
}

/// Installs a layer's manifest with nothing changed but where its library lies, and the version that the target gives.
fn install_layer(layer: &LayerSpec, manifest: &Path) -> Result<(), EnvironmentError> {
    let (path, text) = match &layer.manifest {
        Some(path) => (
            path.clone(),
            std::fs::read_to_string(path).map_err(file_error(path))?,
        ),
        None => (PathBuf::from("hami.json"), SHIPPED_MANIFEST.to_owned()),
    };
    let mut value: serde_json::Value =
        serde_json::from_str(&text).map_err(|source| EnvironmentError::Manifest {
            path: path.clone(),
            source,
        })?;
    let entry = value
        .get_mut("layer")
        .and_then(serde_json::Value::as_object_mut)
        .ok_or(EnvironmentError::NoLayer { path })?;
    entry.insert("library_path".to_owned(), layer.library.clone().into());
    if let Some(version) = &layer.api_version {
        entry.insert("api_version".to_owned(), version.clone().into());
    }
    std::fs::write(manifest, value.to_string()).map_err(file_error(manifest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_cache_tells_what_is_installed() {
        assert!(is_installed("libc.so.6"));
        assert!(!is_installed("ibc.so.6"));
        assert!(!is_installed("libnobody-has-this.so.1"));
    }

    #[test]
    fn a_fault_at_an_entry_point_that_no_driver_has_is_refused_by_name() {
        let row = |at: &str| format!("[[fault]]\nat = \"{at}\"\nthen = \"result:1\"\n");
        let check = |at: &str| {
            let text = row("cuInit") + &row(at);
            check_entries("plan", &FaultPlan::parse("plan", &text).expect("a plan"))
        };
        for at in [
            "cuMemAlloc_v2",
            "cuMem*",
            "cuda.alloc",
            "nvml.*",
            "*",
            "vkAnything",
        ] {
            assert!(check(at).is_ok(), "{at}");
        }
        for wrong in ["cuMemAloc_v2", "cuMemo*", "nvmlDeviceGetMemory"] {
            match check(wrong) {
                Err(EnvironmentError::NoSuchEntry { row: 1, at, .. }) => assert_eq!(at, wrong),
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }
}
