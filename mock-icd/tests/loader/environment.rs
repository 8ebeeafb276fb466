//! A directory with one driver manifest and one world; and this executable run again inside it.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use mock_device::{FaultPlan, World, WorldSpec, profile};
use tempfile::TempDir;

const ROLE: &str = "RINGFENCE_ICD_ROLE";

pub struct Environment {
    directory: TempDir,
    pub world: World,
}

impl Environment {
    pub fn new(machine: &str) -> Self {
        Self::with_faults(machine, "")
    }

    pub fn with_faults(machine: &str, faults: &str) -> Self {
        let mut spec = WorldSpec::new(profile::embedded(machine).expect("an embedded profile"));
        spec.faults = FaultPlan::parse("faults", faults).expect("a fault plan");
        Self::of(spec)
    }

    pub fn of(mut spec: WorldSpec) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let manifest = format!(
            r#"{{"file_format_version":"1.0.1","ICD":{{"library_path":"{}","api_version":"1.3.281"}}}}"#,
            library().display()
        );
        fs::write(directory.path().join("icd.json"), manifest).expect("the manifest");
        spec.trace = Some(directory.path().join("trace"));
        let world = World::create(&directory.path().join("world"), &spec).expect("a world");
        Self { directory, world }
    }

    /// A program that sees this driver and no other, and no layer but the validation layer where it is asked for.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let directory = self.directory.path();
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("VK_DRIVER_FILES", directory.join("icd.json"))
            .env("VK_LAYER_PATH", LAYERS)
            .env("XDG_DATA_HOME", directory)
            .env("XDG_DATA_DIRS", "")
            .env("HOME", directory)
            .env("TMPDIR", directory)
            .env("XDG_RUNTIME_DIR", directory)
            .env("RINGFENCE_WORLD", directory.join("world"))
            .envs(crate::missing::passed_on());
        command
    }

    /// This executable, running the same test in a role.
    pub fn role(&self, test: &str, role: &str) -> Command {
        let mut command = self.command(env::current_exe().expect("the test's own path"));
        command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("RINGFENCE_ROLE", role);
        command
    }

    /// Runs a role to its end.
    pub fn run(&self, test: &str, role: &str) {
        self.run_command(test, role, self.role(test, role));
    }

    pub fn run_command(&self, test: &str, role: &str, mut command: Command) {
        let output = command.output().expect("this executable again");
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success() && out.contains("1 passed"),
            "{test} as {role}: {}\n{out}\n{err}",
            output.status
        );
        out.lines()
            .filter(|line| line.contains(" rows as the card"))
            .for_each(|line| println!("{line}"));
    }

    pub fn trace(&self) -> String {
        fs::read_to_string(self.directory.path().join("trace")).unwrap_or_default()
    }
}

pub const LAYERS: &str = "/usr/share/vulkan/explicit_layer.d";

/// The role this process was started in; `None` in the test run itself.
pub fn role() -> Option<String> {
    env::var_os(ROLE).map(|role| role.to_string_lossy().into_owned())
}

/// Runs `body` as a client of a fresh environment.
pub fn isolated(test: &str, machine: &str, body: fn()) {
    match role() {
        Some(_) => body(),
        None => Environment::new(machine).run(test, "client"),
    }
}

/// What cargo built for this run lies beside the test executable.
pub fn library() -> PathBuf {
    beside("libmock_icd.so")
}

pub fn beside(file: &str) -> PathBuf {
    let executable = env::current_exe().expect("the test's own path");
    let mut beside = executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(file));
    beside
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{file} beside the test executable"))
}
