//! What a process has mapped: the proof that a library was, or was not, loaded.

use std::path::PathBuf;

/// The files in a process's address space.
#[derive(Clone, Debug)]
pub struct Maps {
    files: Vec<PathBuf>,
    ranges: usize,
}

impl Maps {
    pub fn of_this_process() -> std::io::Result<Self> {
        Self::read("/proc/self/maps")
    }

    pub fn of(pid: u32) -> std::io::Result<Self> {
        Self::read(&format!("/proc/{pid}/maps"))
    }

    fn read(path: &str) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        // address perms offset dev inode path; the path may contain blanks.
        let name = |line: &str| line.find('/').map(|start| PathBuf::from(&line[start..]));
        let mut files: Vec<PathBuf> = text.lines().filter_map(name).collect();
        let ranges = files.len();
        files.sort();
        files.dedup();
        Ok(Self { files, ranges })
    }

    /// Whether a file of this name is mapped. Symbolic links are resolved: a mock shows as `libmock_libcuda.so`.
    pub fn has(&self, file_name: &str) -> bool {
        self.files
            .iter()
            .any(|path| path.file_name().is_some_and(|found| found == file_name))
    }

    /// How many ranges of addresses the files have.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_own_executable_mapped_and_no_absent_library() {
        let maps = Maps::of_this_process().expect("Linux");
        let executable = std::env::current_exe().expect("Linux");
        assert!(maps.files().contains(&executable));
        assert!(!maps.has("libvgpu.so"));
    }
}
