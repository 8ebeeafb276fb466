//! Processes of the tenant that never took a slot, because nothing of ours was ever asked for anything there: what they hold went past the hooks (a core
//! that was opened with RTLD_DEEPBIND, a driver opened by its own path, a scrubbed environment; R8 of `fixtures/defects.txt`). Whoever of the tenant reads
//! the driver's rows takes a slot for each. Nobody holds its byte; it is alive as long as the process is, and dies like any other: what it held drains
//! until the driver has let go of it. All that it is charged is what the driver's row shows, noted by whoever looks.

use seeds::{Seed, planted};

use core::sync::atomic::Ordering;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use crate::account::{Account, Sound};
use crate::attach::{Seat, claim};
use crate::probe::Tree;
use crate::reap::Reaper;
use crate::region::processes::{folder_of, own};
use crate::region::{self, Errno, LISTED, SEEN, Slot};

/// The first PID namespace of a machine, in whose terms a driver's rows are (`PROC_PID_INIT_INO` of Linux).
pub const INITIAL: u32 = 0xEFFF_FFFC;

/// Takes a slot for each process of `rows` that has none and is the tenant's: it is of this PID namespace, looks up paths where this process does, and
/// `is_ours` says so. Answers those.
pub fn enrol(seat: &Seat, rows: &[u32], is_ours: &dyn Fn(u32) -> bool) -> Vec<u32> {
    let owner = |pid: u32| (u64::from(pid) << 32) | u64::from(seat.namespace);
    let mut found: Vec<u32> = rows.to_vec();
    found.retain(|pid| !is_known(seat, owner(*pid)));
    found.sort_unstable();
    found.dedup();
    if found.is_empty() || !are_ours(seat) {
        return Vec::new();
    }
    let here = Tree::now();
    found.retain(|pid| {
        let is_meant = match is_near(*pid, seat.namespace, here.as_ref()) {
            Some(is_near) => is_near && is_ours(*pid),
            None => !planted(Seed::R8c) && is_like_us(*pid),
        };
        is_meant && take_slot(seat, owner(*pid))
    });
    found
}

/// Whether the pids of the driver's rows are this PID namespace's: it is the first, or somebody here has found its own. A container may be told those of its
/// host, where one of its own processes has the number of a stranger.
fn are_ours(seat: &Seat) -> bool {
    let has_found = |record: &Slot| {
        record.owner.load(Ordering::Acquire) as u32 == seat.namespace
            && record.start.load(Ordering::Acquire) & (LISTED | SEEN) == LISTED
    };
    seat.namespace == INITIAL || seat.layout().slots.iter().any(has_found)
}

/// Whether a process is of this PID namespace, and looks up absolute paths where this one does; `None` for one that lets nobody see that: another user's,
/// or one that said so (PR_SET_DUMPABLE, a change of its user).
fn is_near(pid: u32, namespace: u32, here: Option<&Tree>) -> Option<bool> {
    let process = folder_of(pid);
    let theirs = process.join("ns/pid").into_os_string().into_vec();
    let theirs = CString::new(theirs).ok()?;
    match region::identity_at(&theirs) {
        Ok(found) => Some(
            found.inode as u32 == namespace
                && here.is_some()
                && Tree::of(&process).as_ref() == here,
        ),
        Err(Errno { code, .. }) if code == libc::EACCES || code == libc::EPERM => None,
        Err(_) => Some(false),
    }
}

/// Whether a process that hides what it is can be no other tenant's, as far as anybody is told: it is this process's user's, in its control groups, as a
/// container or a job has them for itself, and in its PID namespace.
fn is_like_us(pid: u32) -> bool {
    let of = |process: &Path, name: &str| {
        let told = std::fs::read_to_string(process.join(name)).ok()?;
        Some(told).filter(|told| !told.is_empty())
    };
    let identity = |process: &Path| {
        let status = of(process, "status")?;
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let words = |name| Some(line(name)?.split_ascii_whitespace().map(str::to_owned));
        let user = words("Uid:")?.next()?;
        let namespaces = words("NSpid:")?.count();
        Some((user, namespaces, of(process, "cgroup")?))
    };
    let ours = identity(&own(""));
    ours.is_some() && identity(&folder_of(pid)) == ours
}

/// Whether a slot has that owner, alive or dead.
fn is_known(seat: &Seat, owner: u64) -> bool {
    let layout = seat.layout();
    let high = usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(usize::MAX);
    let mut slots = layout.slots.iter().take(high);
    slots.any(|record| record.owner.load(Ordering::Acquire) == owner)
}

/// Nothing is charged there yet. Two that see the same process at once take two slots: whoever notes what it holds notes it in one of them.
fn take_slot(seat: &Seat, owner: u64) -> bool {
    let Ok(fd) = seat.probe.fd() else {
        return false;
    };
    let reaper = Reaper {
        layout: seat.layout(),
        fd,
        me: Some(seat.slot),
        namespace: seat.namespace,
    };
    let taken = seat.arena.alone(|| {
        let slot = claim(&reaper).ok()?;
        let record = seat.layout().slots.get(slot)?;
        let start = region::start_of_living((owner >> 32) as u32);
        let mut is_taken = start != 0;
        if is_taken {
            record.dying.store(0, Ordering::Release);
            record.start.store(start | LISTED | SEEN, Ordering::Release);
            record.owner.store(owner, Ordering::SeqCst);
            Account::<Sound>::join(seat.layout().high(), slot);
            // It may have taken one itself meanwhile: then either it sees this one, or this sees it.
            if reaper.has_seat(owner) {
                record.owner.store(0, Ordering::SeqCst);
                is_taken = false;
            }
        }
        region::unlock(fd, slot);
        Some(is_taken)
    });
    taken.flatten().unwrap_or(false)
}

/// A process has taken a slot that others took one for: what they saw is charged to its own from now on, until it looks itself.
pub fn take_over(seat: &Seat) {
    let layout = seat.layout();
    let high = usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(usize::MAX);
    for (slot, record) in layout.slots.iter().enumerate().take(high) {
        let is_meant = record.owner.load(Ordering::SeqCst) == seat.owner()
            && record.dying.load(Ordering::Acquire) == 0
            && record.is_seen();
        if !is_meant {
            continue;
        }
        for account in layout.accounts() {
            let beyond = account.beyond(slot);
            if beyond > 0 {
                account.set_beyond(seat.slot, account.beyond(seat.slot).saturating_add(beyond));
                account.set_beyond(slot, 0);
            }
        }
    }
}
