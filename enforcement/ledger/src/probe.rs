//! The descriptor by which a process looks at others' locks. Programs close descriptors that are not theirs, so it is checked before
//! each use and opened again where it is gone.

use crate::Refusal;
use crate::region::{self, Errno, Identity};
use core::sync::atomic::{AtomicI32, Ordering};
use std::ffi::CString;
use std::os::fd::RawFd;

/// The way to the ledger's file.
pub struct Probe {
    path: CString,
    identity: Identity,
    fd: AtomicI32,
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
        let fd = region::open(&self.path)?;
        if self.is_ledger(fd) {
            return Ok(region::keep_high(fd));
        }
        region::close(fd);
        Err(Errno {
            call: "open",
            code: libc::ESTALE,
        })
    }

    pub fn is_ledger(&self, fd: RawFd) -> bool {
        region::identity_of(fd).is_ok_and(|found| found.is(&self.identity))
    }

    /// Whether the path still leads here: else newcomers share another ledger, and nothing may be granted from this one.
    pub fn still_at_path(&self) -> Result<(), Refusal> {
        match region::identity_at(&self.path) {
            Ok(found) if found.is(&self.identity) => Ok(()),
            Ok(_) => Err(Refusal::Replaced),
            Err(Errno {
                code: libc::ENOENT | libc::ENOTDIR,
                ..
            }) => Err(Refusal::Deleted),
            Err(Errno { code, .. }) => Err(Refusal::Unreachable { errno: code }),
        }
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
