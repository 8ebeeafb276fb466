//! A directory with a small driver, and C programs that are compiled into it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub struct Machine {
    pub directory: TempDir,
}

impl Machine {
    pub fn empty() -> Machine {
        Machine {
            directory: TempDir::new().expect("a temporary directory"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a source of `tests/c`.
    pub fn compile(&self, source: &str, output: &str, arguments: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/c")
            .join(source);
        std::fs::create_dir_all(self.path(output).parent().expect("a directory"))
            .expect("a directory");
        let compiled = Command::new("cc")
            .arg("-o")
            .arg(self.path(output))
            .arg(source)
            .args(arguments)
            .output()
            .expect("cc runs");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
    }
}
