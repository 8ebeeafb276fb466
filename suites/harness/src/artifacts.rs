//! Finds the shared libraries that cargo built beside this executable.
//!
//! Cargo puts the libraries a program depends on into `target/<profile>/deps`; a copy in `target/<profile>` is only
//! there after `cargo build -p <library>` and may be stale, so it is asked last. An installed program has them in its
//! own directory or in `../lib`.

use std::path::{Path, PathBuf};

/// Names one directory to look in before all others: for executables carried to another machine.
pub const DIRECTORY_VARIABLE: &str = "RINGFENCE_LIB_DIR";

/// The cdylibs of the workspace, by target name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Library {
    MockLibcuda,
    MockNvml,
    MockIcd,
    Interposer,
    ProxyLibcuda,
    ProxyLibnvml,
    Layer,
    /// The same with a defect on demand (`enforcement/seeds`); there after `cargo test` or `cargo build --workspace`.
    SeededInterposer,
    SeededLayer,
    Plugin,
    RecorderLibcuda,
    RecorderLibnvml,
    RecorderLayer,
    Wrapper,
}

impl Library {
    pub const ALL: [Library; 14] = [
        Self::MockLibcuda,
        Self::MockNvml,
        Self::MockIcd,
        Self::Interposer,
        Self::ProxyLibcuda,
        Self::ProxyLibnvml,
        Self::Layer,
        Self::SeededInterposer,
        Self::SeededLayer,
        Self::Plugin,
        Self::RecorderLibcuda,
        Self::RecorderLibnvml,
        Self::RecorderLayer,
        Self::Wrapper,
    ];

    pub fn file_name(self) -> &'static str {
        match self {
            Self::MockLibcuda => "libmock_libcuda.so",
            Self::MockNvml => "libmock_nvml.so",
            Self::MockIcd => "libmock_icd.so",
            Self::Interposer => "libvgpu.so",
            Self::ProxyLibcuda => "libvgpu_cuda.so",
            Self::ProxyLibnvml => "libvgpu_nvml.so",
            Self::Layer => "libvgpu_vk.so",
            Self::SeededInterposer => "libvgpu_seeded.so",
            Self::SeededLayer => "libvgpu_vk_seeded.so",
            Self::Plugin => "libplugin.so",
            Self::RecorderLibcuda => "librecorder_libcuda.so",
            Self::RecorderLibnvml => "librecorder_libnvml.so",
            Self::RecorderLayer => "librecorder_layer.so",
            Self::Wrapper => "libwrapper.so",
        }
    }
}

/// A library that is nowhere to be found.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("this executable's own path cannot be read: {0}")]
    NoExecutable(#[source] std::io::Error),
    #[error("{file} is not beside this program; looked in {}. Set {DIRECTORY_VARIABLE} to where it is", list(.searched))]
    NotFound {
        file: &'static str,
        searched: Vec<PathBuf>,
    },
}

/// How to start this program once more, as long as it runs: by its own path or, where that holds nothing any longer (cargo has built it again
/// meanwhile), by what the kernel keeps of it.
pub fn program() -> Result<PathBuf, ArtifactError> {
    let path = std::env::current_exe().map_err(ArtifactError::NoExecutable)?;
    let kept = || format!("/proc/{}/exe", std::process::id()).into();
    Ok(match path.is_file() {
        true => path,
        false => kept(),
    })
}

/// Absolute path of a built library.
pub fn find(library: Library) -> Result<PathBuf, ArtifactError> {
    let executable = std::env::current_exe().map_err(ArtifactError::NoExecutable)?;
    find_from(
        library,
        &executable,
        std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from),
    )
}

fn find_from(
    library: Library,
    executable: &Path,
    named: Option<PathBuf>,
) -> Result<PathBuf, ArtifactError> {
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let above = beside.parent().unwrap_or(beside);
    let searched = match named {
        Some(directory) => vec![directory],
        None => vec![
            beside.join("deps"),
            beside.to_owned(),
            above.join("deps"),
            above.join("lib"),
        ],
    };
    searched
        .iter()
        .map(|directory| directory.join(library.file_name()))
        .find(|path| path.is_file())
        .ok_or(ArtifactError::NotFound {
            file: library.file_name(),
            searched,
        })
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_that_cargo_keeps_fresh_wins_over_the_one_beside_the_program() {
        let target = tempfile::tempdir().expect("a directory");
        let executable = target.path().join("ringfence");
        let (fresh, stale) = (
            target.path().join("deps/libvgpu.so"),
            target.path().join("libvgpu.so"),
        );
        std::fs::create_dir(target.path().join("deps")).expect("writable");
        std::fs::write(&stale, "").expect("writable");
        assert_eq!(
            find_from(Library::Interposer, &executable, None).expect("found"),
            stale
        );
        std::fs::write(&fresh, "").expect("writable");
        assert_eq!(
            find_from(Library::Interposer, &executable, None).expect("found"),
            fresh
        );
    }

    #[test]
    fn a_named_directory_is_the_only_one_searched() {
        let target = tempfile::tempdir().expect("a directory");
        std::fs::write(target.path().join("libvgpu.so"), "").expect("writable");
        let elsewhere = target.path().join("elsewhere");
        let answer = find_from(
            Library::Interposer,
            &target.path().join("ringfence"),
            Some(elsewhere.clone()),
        );
        assert!(
            matches!(answer, Err(ArtifactError::NotFound { searched, .. }) if searched == [elsewhere])
        );
    }
}
