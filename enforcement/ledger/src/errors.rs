//! Why a ledger could not be attached, and why a request was refused.

use budget::{Bytes, DeviceIndex};
use core::fmt;
use std::path::PathBuf;

/// A ledger that cannot be used, and why. Enforcement must then refuse every allocation.
#[derive(Debug)]
pub struct AttachError {
    pub path: PathBuf,
    pub reason: Reason,
}

/// What stood in the way of attaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A system call failed.
    System { call: &'static str, errno: i32 },
    /// The file is not a ledger of this version; `field` is the first that differs.
    ForeignFile {
        field: &'static str,
        found: u64,
        expected: u64,
    },
    /// Every slot belongs to a living process, or its memory is not back yet.
    NoFreeSlot,
    /// Neither the mapping nor a kept descriptor holds this file system's locks, so that a death could not be noticed.
    NotLockable,
    /// The path names no file that could be created: empty, or with a NUL byte.
    BadPath,
    /// A symbolic link that leads nowhere: what it names is not for us to make.
    DanglingLink,
    /// The file was replaced while it was being attached.
    Replaced,
}

impl fmt::Display for AttachError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ledger {}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for AttachError {}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::System { call, errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(formatter, "{call}: {error}")
            }
            Reason::ForeignFile {
                field,
                found,
                expected,
            } => {
                write!(
                    formatter,
                    "not a ledger of this version: {field} is {found:#x}, expected {expected:#x}"
                )
            }
            Reason::NoFreeSlot => formatter.write_str("no free slot"),
            Reason::NotLockable => {
                formatter.write_str("the file system keeps no lock for a mapping or a descriptor")
            }
            Reason::BadPath => formatter.write_str("not a path"),
            Reason::DanglingLink => formatter.write_str("a symbolic link that leads nowhere"),
            Reason::Replaced => formatter.write_str("the file was replaced meanwhile"),
        }
    }
}

/// Why a request was not granted. Nothing is charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant's charges leave no room.
    OverBudget {
        requested: Bytes,
        usage: Bytes,
        budget: Bytes,
    },
    /// It would fit once the driver lets go of dead processes' memory, which it did not in time.
    Draining {
        requested: Bytes,
        draining: Bytes,
        budget: Bytes,
    },
    /// It fits the charges, but other processes' requests in flight stood in its way for the whole wait.
    Contended {
        requested: Bytes,
        usage: Bytes,
        budget: Bytes,
    },
    /// The charges leave no room, and the dead could not be looked for: no descriptor to the ledger could be had.
    Unreaped {
        requested: Bytes,
        usage: Bytes,
        budget: Bytes,
        errno: i32,
    },
    /// The ledger's file is gone from its path: newcomers would share another one.
    Deleted,
    /// Another file lies at the ledger's path.
    Replaced,
    /// The ledger's path cannot be looked at.
    Unreachable { errno: i32 },
    /// The slot's lock was lost (its descriptor was closed, on a file system that drops a mapping's) and the slot given away.
    Evicted,
    /// This is a fork child with its parent's handle: attach again.
    Forked,
    /// A device beyond what a ledger holds.
    UnknownDevice(DeviceIndex),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OverBudget {
                requested,
                usage,
                budget,
            } => {
                write!(
                    formatter,
                    "{requested} do not fit: {usage} of {budget} are in use"
                )
            }
            Refusal::Draining {
                requested,
                draining,
                budget,
            } => {
                write!(
                    formatter,
                    "{requested} do not fit {budget} until {draining} of dead processes are back"
                )
            }
            Refusal::Contended {
                requested,
                usage,
                budget,
            } => {
                write!(
                    formatter,
                    "{requested} fit beside {usage} of {budget}, but other requests stood in the way"
                )
            }
            Refusal::Unreaped {
                requested,
                usage,
                budget,
                errno,
            } => write!(
                formatter,
                "{requested} do not fit: {usage} of {budget} are in use, and the dead cannot be looked for (errno {errno})"
            ),
            Refusal::Deleted => formatter.write_str("the ledger's file was deleted"),
            Refusal::Replaced => formatter.write_str("the ledger's file was replaced"),
            Refusal::Unreachable { errno } => write!(
                formatter,
                "the ledger's path cannot be looked at (errno {errno})"
            ),
            Refusal::Evicted => {
                formatter.write_str("the slot's lock was lost and the slot given away")
            }
            Refusal::Forked => formatter.write_str("the ledger belongs to the parent process"),
            Refusal::UnknownDevice(device) => {
                write!(formatter, "device {device} is beyond the ledger")
            }
        }
    }
}

impl std::error::Error for Refusal {}
