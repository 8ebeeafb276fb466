//! The descriptor by which a process looks at others' locks. Programs close descriptors that are not theirs, so it is checked before
//! each use and opened again where it is gone.

use seeds::{Seed, planted};

use crate::Refusal;
use crate::displaced;
use crate::region::{self, Errno, Identity};
use core::sync::atomic::{AtomicI32, Ordering};
use std::ffi::CString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// The way to the ledger's file.
pub struct Probe {
    path: CString,
    identity: Identity,
    fd: AtomicI32,
    /// In which tree of files the path was looked up.
    tree: Option<Tree>,
}

impl Probe {
    /// Takes over `fd`, an open descriptor of the file at `path`.
    pub fn new(path: CString, identity: Identity, fd: RawFd) -> Probe {
        let fd = region::keep_high(fd);
        region::forget_in_child(fd, &identity);
        Probe {
            path,
            identity,
            fd: AtomicI32::new(fd),
            tree: Tree::now(),
        }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A descriptor that is certainly the ledger's.
    pub fn fd(&self) -> Result<RawFd, Errno> {
        let fd = self.fd.load(Ordering::Acquire);
        if fd >= 0 && self.is_ledger(fd) {
            return Ok(fd);
        }
        let fresh = self.reopen()?;
        // The number before is somebody else's by now: it is forgotten, not closed.
        match self
            .fd
            .compare_exchange(fd, fresh, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                region::keep_in_child(fd);
                region::forget_in_child(fresh, &self.identity);
                Ok(fresh)
            }
            Err(theirs) => {
                region::close(fresh);
                if self.is_ledger(theirs) {
                    Ok(theirs)
                } else {
                    Err(Errno {
                        call: "fstat",
                        code: libc::EBADF,
                    })
                }
            }
        }
    }

    /// Another open file description of the same file.
    pub fn reopen(&self) -> Result<RawFd, Errno> {
        let at_path = region::open(&self.path);
        match at_path {
            Ok(fd) if self.is_ledger(fd) => return Ok(region::keep_high(fd)),
            Ok(fd) => region::close(fd),
            Err(_) => {}
        }
        let elsewhere = displaced::reopen(&self.identity).map(region::keep_high);
        elsewhere.ok_or(at_path.err().unwrap_or(Errno {
            call: "open",
            code: libc::ESTALE,
        }))
    }

    pub fn is_ledger(&self, fd: RawFd) -> bool {
        region::identity_of(fd).is_ok_and(|found| found.is(&self.identity))
    }

    /// Whether the path still leads here, or nowhere while newcomers find this ledger by our descriptor of it: else they share another one, and nothing
    /// may be granted from this.
    pub fn still_at_path(&self) -> Result<(), Refusal> {
        let refusal = match region::identity_at(&self.path) {
            Ok(found) if found.is(&self.identity) => return Ok(()),
            Ok(_) => Refusal::Replaced,
            Err(Errno {
                code: libc::ENOENT | libc::ENOTDIR,
                ..
            }) => Refusal::Deleted,
            Err(Errno { code, .. }) => Refusal::Unreachable { errno: code },
        };
        let goes_on = if self.has_moved() {
            self.has_name() && !planted(Seed::P14)
        } else {
            match refusal {
                Refusal::Deleted => self.fd().is_ok() && !planted(Seed::R21),
                // After setuid(2): the folder is closed to the new user, who can put nothing there either.
                Refusal::Unreachable {
                    errno: libc::EACCES,
                } => self.has_name() && !planted(Seed::P14),
                _ => false,
            }
        };
        if goes_on { Ok(()) } else { Err(refusal) }
    }

    /// Whether this process looks up paths elsewhere than when it attached, after chroot(2), setns(2) or pivot_root(2): the ledger's path then says
    /// nothing of the ledger (P14 of `fixtures/defects.txt`).
    fn has_moved(&self) -> bool {
        self.tree.is_some() && Tree::now() != self.tree
    }

    /// Whether the file still has a name anywhere. A file that was deleted has none, whoever has it open.
    fn has_name(&self) -> bool {
        let links = self.fd().and_then(region::identity_of);
        links.is_ok_and(|found| found.is(&self.identity) && found.links > 0)
    }
}

/// A mount namespace and the root directory in it, by which a thread looks up absolute paths.
#[derive(PartialEq, Eq)]
pub struct Tree {
    /// 0 where /proc is not there, as in most directories that a process makes its root.
    namespace: u64,
    root: (u64, u64),
}

impl Tree {
    pub fn now() -> Option<Tree> {
        let root = region::identity_at(c"/").ok()?;
        // The thread's own: each may have its own root and namespace.
        let namespace = region::identity_at(c"/proc/thread-self/ns/mnt");
        Some(Tree {
            namespace: namespace.map_or(0, |found| found.inode),
            root: (root.device, root.inode),
        })
    }

    /// By which a process does, whose folder in /proc it is; `None` where that is not told.
    pub fn of(process: &Path) -> Option<Tree> {
        let identity = |name: &str| {
            let path = CString::new(process.join(name).into_os_string().into_vec()).ok()?;
            region::identity_at(&path).ok()
        };
        let root = identity("root")?;
        Some(Tree {
            namespace: identity("ns/mnt")?.inode,
            root: (root.device, root.inode),
        })
    }
}

impl Probe {
    /// Closes the descriptor. Not in a fork child, where the number may be another handle's.
    pub fn close(&self) {
        let fd = self.fd.swap(-1, Ordering::AcqRel);
        region::keep_in_child(fd);
        if fd >= 0 && self.is_ledger(fd) {
            region::close(fd);
        }
    }
}
