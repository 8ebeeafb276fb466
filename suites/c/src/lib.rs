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

/// The include directories of the CUDA and NVML headers.
pub fn include_directories() -> Result<[PathBuf; 2], WitnessError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.clients/headers/nvidia");
    let found = [
        root.join("cuda_runtime/include"),
        root.join("nvml_dev/include"),
    ];
    match found.iter().find(|directory| !directory.is_dir()) {
        Some(absent) => Err(WitnessError::NoHeaders(absent.clone())),
        None => Ok(found),
    }
}

/// Compiles one C source file to an executable or, with `-shared` among the flags, a library.
pub fn compile(source: &Path, output: &Path, flags: &[&str]) -> Result<(), WitnessError> {
    // Outside a build script nobody sets TARGET and friends for `cc`.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new()
        .target(&triple)
        .host(&triple)
        .opt_level(1)
        .cargo_metadata(false)
        .get_compiler();
    let mut command: Command = compiler.to_command();
    for directory in include_directories()? {
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
