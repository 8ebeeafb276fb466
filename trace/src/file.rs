//! Where the lines go: appended by one write(2) each, so that lines of several processes never mix.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::line::{TraceRecord, line};
use crate::thread;

/// The file that lines are appended to.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    /// Never closed by us: a guest that closes every descriptor may have given the number to another file since.
    file: ManuallyDrop<File>,
    inode: (u64, u64),
}

impl TraceFile {
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = append(path)?;
        let inode = inode(&file)?;
        Ok(Self {
            path: path.to_owned(),
            file: ManuallyDrop::new(file),
            inode,
        })
    }

    /// A line that cannot be written is lost silently: the guest must not notice.
    pub fn write(&self, role: Option<&str>, record: &TraceRecord<'_>) {
        let line = line(role, thread::number(), record);
        // One write(2) with O_APPEND: lines of several processes never mix.
        let _ = if inode(&self.file).is_ok_and(|inode| inode == self.inode) {
            (&*self.file).write(line.as_bytes())
        } else {
            append(&self.path).and_then(|mut file| file.write(line.as_bytes()))
        };
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}
