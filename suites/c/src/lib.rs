//! C programs built against the public headers: witnesses that share none of our types.
//!
//! The mocks, the enforcer and the cases all read one ABI crate, so a mistake in it would be invisible to
//! every one of them. A C compiler with the vendor's headers is the second opinion. The headers come from
//! PyPI (`suites/setup` fetches them to `.clients/`) and are never committed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a witness could not be built.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    #[error("{0} is not there: run suites/setup first")]
    NoHeaders(PathBuf),
    #[error("the C compiler refused {source_file}: {message}")]
    Compiler {
        source_file: PathBuf,
        message: String,
    },
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
}

/// The CUDA and NVML headers of one release.
#[derive(Clone, Debug)]
pub struct Headers {
    pub version: &'static str,
    directories: Vec<PathBuf>,
}

impl Headers {
    /// CUDA 12.9's, which programs are built against.
    pub fn usual() -> Result<Headers, WitnessError> {
        Headers::find(
            "12.9",
            &[
                "headers/nvidia/cuda_runtime/include",
                "headers/nvidia/nvml_dev/include",
            ],
        )
    }

    /// Every release that `suites/setup` fetches, in the order in which they decide: driver 580's own, what was before it,
    /// what came after.
    pub fn all() -> Result<[Headers; 3], WitnessError> {
        let own = "headers13/nvidia/cu13/include";
        let later = [
            "headers135/nvidia/cu13/include",
            "runtime135/nvidia/cu13/include",
        ];
        Ok([
            Headers::find("13.0", &[own])?,
            Headers::usual()?,
            Headers::find("13.5", &later)?,
        ])
    }

    fn find(version: &'static str, directories: &[&str]) -> Result<Headers, WitnessError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.clients");
        let directories: Vec<PathBuf> = directories.iter().map(|path| root.join(path)).collect();
        match directories.iter().find(|directory| !directory.is_dir()) {
            Some(absent) => Err(WitnessError::NoHeaders(absent.clone())),
            None => Ok(Headers {
                version,
                directories,
            }),
        }
    }
}

/// Compiles one C source file to an executable or, with `-shared` among the flags, a library.
pub fn compile(
    headers: &Headers,
    source: &Path,
    output: &Path,
    flags: &[&str],
) -> Result<(), WitnessError> {
    // Outside a build script nobody sets TARGET and friends for `cc`.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new()
        .target(&triple)
        .host(&triple)
        .opt_level(1)
        .cargo_metadata(false)
        .get_compiler();
    let mut command: Command = compiler.to_command();
    for directory in &headers.directories {
        command.arg("-I").arg(directory);
    }
    command
        .arg("-Wall")
        .arg("-Werror")
        .arg(source)
        .arg("-o")
        .arg(output)
        .args(flags);
    let done = command.output().map_err(|error| WitnessError::Io {
        path: compiler.path().to_owned(),
        error,
    })?;
    if done.status.success() {
        return Ok(());
    }
    Err(WitnessError::Compiler {
        source_file: source.to_owned(),
        message: String::from_utf8_lossy(&done.stderr).into_owned(),
    })
}
