//! What the dead leave behind. A slot whose byte lock is free has no owner; what was announced or leased there goes at once, what was
//! charged stays in its word, *draining*, until the driver has let go of it. It never moves, so there is no instant at which a sum
//! could miss it, and a reaper may be killed as well.
//!
//! A dead owner's words are written under one of the slot's other bytes, the reapers', once its first is seen free. Not under the first: a
//! reaper at work would make the dead look alive to all others, and they would refuse. The driver is asked before, never under it.

use seeds::{Seed, planted};

use crate::driver::Driver;
use crate::region::descriptors::is_closed;
use crate::region::{self, Errno, HEIRS, LISTED, Layout, Slot};
use crate::{DeviceIndex, SLOTS};
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

/// How long bytes drain where no driver can tell. Teardown of 100 GiB took 136 ms on an H200; this leaves room for a loaded host.
pub const DRAIN_MS: u64 = 2_000;
/// How long bytes drain of who has no row, at least: it may have had none when it died. What cuInit takes is in none, nor is what a process holds by
/// cuMemCreate or in pools on a device where it has no context.
const UNLISTED_MS: u64 = 250;
/// For whom is dead so long nobody waits any more.
const WAITED_FOR_MS: u64 = 5_000;
/// How long rows are believed that say a dead process still holds memory, where they are perhaps in terms of another PID namespace. Rows that once showed it by its own pid are believed as long as they do: children that it forked keep its memory
/// (H200, 580.159.04: `fixtures/oracle/held-580.txt`).
pub const DRAIN_MOST_MS: u64 = 30_000;

/// What looking for the dead came to, for one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Bytes that dead processes still hold.
    pub draining: u64,
    /// Something was freed.
    pub freed: bool,
    /// Another process was at one of the dead: what it frees is not known yet.
    pub busy: bool,
}

/// How much of what a dead process is charged on a device its driver has let go of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drained {
    Nothing,
    /// What its row showed, which is there no longer.
    Listed,
    All,
}

/// The file and the way to its locks.
#[derive(Clone, Copy)]
pub struct Reaper<'a> {
    pub layout: &'a Layout,
    pub fd: RawFd,
    /// The own slot, which this process can tell is alive.
    pub me: Option<usize>,
    /// The own PID namespace: pids of another mean nothing here.
    pub namespace: u32,
}

/// How many may be at one dead process's words at once: what each of them does there it may do beside another, and after it. One that is stopped there
/// keeps its byte, and the others go on by theirs (P15 of `fixtures/defects.txt`).
const REAPERS: usize = 64;

/// One of the reapers' bytes of a slot, or all of them, locked by this process for as long as it lives. A newcomer takes all before it looks whether the
/// slot is empty, so that nobody gets a slot at which a reaper still is; it holds the slot's own byte by then, so that no reaper begins after it.
struct ReapersLock {
    fd: RawFd,
    bytes: Range<usize>,
}

impl ReapersLock {
    fn one(fd: RawFd, slot: usize) -> Result<Option<ReapersLock>, Errno> {
        for byte in bytes_of(slot) {
            let bytes = byte..byte + 1;
            if region::lock_all(fd, &bytes)? {
                return Ok(Some(ReapersLock { fd, bytes }));
            }
        }
        Ok(None)
    }

    fn all(fd: RawFd, slot: usize) -> Result<Option<ReapersLock>, Errno> {
        let bytes = bytes_of(slot);
        Ok(region::lock_all(fd, &bytes)?.then_some(ReapersLock { fd, bytes }))
    }
}

/// Behind the slots' own bytes.
fn bytes_of(slot: usize) -> Range<usize> {
    let first = SLOTS + slot * REAPERS;
    let count = if planted(Seed::P15) { 1 } else { REAPERS };
    first..first + count
}

/// Behind those of all reapers: shared by a slot's owner and the children that it forked.
pub fn heirs_byte(slot: usize) -> usize {
    SLOTS + SLOTS * REAPERS + slot
}

impl Drop for ReapersLock {
    fn drop(&mut self) {
        region::unlock_all(self.fd, &self.bytes);
    }
}

impl Reaper<'_> {
    /// Finds the dead among those who hold anything of `device`, and takes back what has drained.
    pub fn sweep(&self, device: DeviceIndex, driver: &dyn Driver) -> Result<Swept, Errno> {
        let mut swept = Swept::default();
        let Some(ordinal) = device.slot().filter(|_| !planted(Seed::P3)) else {
            return Ok(swept);
        };
        let Some(account) = self.layout.account(ordinal) else {
            return Ok(swept);
        };
        for (slot, record) in self.records() {
            if account.is_empty(slot) && !self.layout.objects.concern_on(slot, ordinal) {
                continue;
            }
            if record.dying.load(Ordering::Acquire) == 0 {
                if self.lives(slot)? {
                    continue;
                }
                self.bury(slot, &mut swept)?;
            }
            self.drain(slot, device, driver, &mut swept)?;
            if record.dying.load(Ordering::Acquire) != 0 {
                let objects = self.layout.objects.kept_by(slot, ordinal);
                let used = account.held(slot).saturating_add(objects);
                // What stayed so long is held by somebody: its children, mostly.
                if self.is_fresh(record) {
                    swept.draining = swept.draining.saturating_add(used);
                }
            }
        }
        swept.freed |= self.layout.objects.give_up_closed(ordinal, is_closed);
        Ok(swept)
    }

    fn records(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let high = usize::try_from(self.layout.high().load(Ordering::Acquire)).unwrap_or(SLOTS);
        self.layout
            .slots
            .iter()
            .enumerate()
            .take(high)
            .filter(|(slot, _)| Some(*slot) != self.me)
    }

    /// Whether a dead one died so lately that its driver may be taking it apart.
    pub fn is_fresh(&self, record: &Slot) -> bool {
        let since = record.dying.load(Ordering::Acquire);
        since == 0 || region::clock::now_ms().abs_diff(since) < WAITED_FOR_MS
    }

    /// Whether the slot's owner lives: it holds the slot's byte, or it never took the slot and is there still.
    pub fn lives(&self, slot: usize) -> Result<bool, Errno> {
        Ok(region::is_locked(self.fd, slot)? || self.is_seen_alive(slot))
    }

    /// Whether a slot is for a process that never took one (see [`crate::seen`]), lives, and has none of its own by now. Of another PID namespace that
    /// cannot be told: there it is taken for dead, and charged again when it is seen again.
    fn is_seen_alive(&self, slot: usize) -> bool {
        let Some(record) = self.layout.slots.get(slot) else {
            return false;
        };
        let owner = record.owner.load(Ordering::Acquire);
        if !record.is_seen()
            || record.dying.load(Ordering::Acquire) != 0
            || owner as u32 != self.namespace
        {
            return false;
        }
        let (then, now) = (
            record.began(),
            region::start_of_living((owner >> 32) as u32),
        );
        // The offset of a time namespace is no multiple of a tick.
        now != 0 && then.abs_diff(now) <= 1 && !self.has_seat(owner)
    }

    /// Whether a process has taken a slot of its own.
    pub fn has_seat(&self, owner: u64) -> bool {
        let mut slots = self.layout.slots.iter();
        slots.any(|record| {
            record.owner.load(Ordering::Acquire) == owner
                && record.dying.load(Ordering::Acquire) == 0
                && !record.is_seen()
        })
    }

    /// Whether the slot's record names a process that lives, so that a newcomer need not try its byte: with each try the kernel walks all locks of the
    /// file. Where a dead one's pid is another's it is wrong: who finds nothing else tries all the same.
    fn seems_taken(&self, slot: usize) -> bool {
        self.layout.slots.get(slot).is_some_and(|record| {
            let owner = record.owner.load(Ordering::Acquire);
            owner != 0
                && owner as u32 == self.namespace
                && record.dying.load(Ordering::Acquire) == 0
                && region::exists((owner >> 32) as u32)
        })
    }

    /// Whether the slot is neither a living process's nor has anything charged that a dead one left, as far as can be seen without its byte: a newcomer
    /// that is stopped with a dead one's byte would have it look alive.
    pub fn seems_free(&self, slot: usize) -> bool {
        !self.seems_taken(slot) && (planted(Seed::P15) || self.layout.is_empty(slot))
    }

    /// Marks the slot's owner dead and drops what it had announced or leased: the driver never heard of that. What it had reserved stays, whether the driver was called or not.
    fn bury(&self, slot: usize, swept: &mut Swept) -> Result<(), Errno> {
        let Some(_lock) = ReapersLock::one(self.fd, slot)? else {
            swept.busy = true;
            return Ok(());
        };
        if !self.lives(slot)? {
            swept.freed |= self.bury_locked(slot);
        }
        Ok(())
    }

    /// As `bury`, under the reapers' byte and with the slot's own seen free. Whether anything was freed.
    fn bury_locked(&self, slot: usize) -> bool {
        let Some(record) = self.layout.slots.get(slot) else {
            return false;
        };
        if record.dying.load(Ordering::Acquire) != 0 {
            return false;
        }
        let before: u64 = self
            .layout
            .accounts()
            .map(|account| account.word(slot).charged())
            .fold(0, u64::saturating_add);
        if before > 0 {
            seeds::mark(seeds::Mark::DeadReaped);
        }
        for account in self.layout.accounts() {
            account.bury(slot);
        }
        if !self.has_heirs(slot) {
            record.start.fetch_and(!HEIRS, Ordering::AcqRel);
        }
        let (begin, now) = (Ordering::AcqRel, region::clock::now_ms());
        let is_first = if self.layout.is_empty(slot) {
            record.owner.swap(0, begin) != 0
        } else {
            let dying = &record.dying;
            dying
                .compare_exchange(0, now, begin, Ordering::Acquire)
                .is_ok()
        };
        if is_first {
            region::count(self.layout.reaps());
        }
        before > 0
    }

    /// Takes back the slot's bytes of `device` if its driver has let go of them.
    fn drain(
        &self,
        slot: usize,
        device: DeviceIndex,
        driver: &dyn Driver,
        swept: &mut Swept,
    ) -> Result<(), Errno> {
        let Some(record) = self.layout.slots.get(slot) else {
            return Ok(());
        };
        let read = || {
            (
                record.dying.load(Ordering::Acquire),
                record.owner.load(Ordering::Acquire),
            )
        };
        let (since, owner) = read();
        let outlived = record.start.load(Ordering::Acquire) & HEIRS != 0;
        if since != 0 && outlived && !self.has_heirs(slot) {
            return self.end_heirs(slot, record, swept);
        }
        let drained = match since {
            0 => Drained::Nothing,
            _ => self.drained(slot, (since, owner), device, driver),
        };
        if drained == Drained::Nothing {
            return Ok(());
        }
        let Some(_lock) = ReapersLock::one(self.fd, slot)? else {
            swept.busy = true;
            return Ok(());
        };
        if read() != (since, owner) || self.lives(slot)? {
            return Ok(());
        }
        if let Some(device) = device.slot()
            && let Some(account) = self.layout.account(device)
        {
            // What others hold on of it is charged before its word is emptied.
            self.layout.objects.bury(slot, Some(device));
            match drained {
                Drained::All => account.clear(slot),
                _ => account.clear_listed(slot),
            }
        }
        self.vacate(slot, record);
        swept.freed = true;
        Ok(())
    }

    /// The children have ended that outlived a slot's owner: only now is taken apart what they kept.
    fn end_heirs(&self, slot: usize, record: &Slot, swept: &mut Swept) -> Result<(), Errno> {
        let Some(_lock) = ReapersLock::one(self.fd, slot)? else {
            swept.busy = true;
            return Ok(());
        };
        let is_first = || record.start.fetch_and(!HEIRS, Ordering::AcqRel) & HEIRS != 0;
        if record.dying.load(Ordering::Acquire) != 0 && !self.lives(slot)? && is_first() {
            let now = region::clock::now_ms();
            record.dying.store(now, Ordering::Release);
        }
        Ok(())
    }

    fn drained(
        &self,
        slot: usize,
        (since, owner): (u64, u64),
        device: DeviceIndex,
        driver: &dyn Driver,
    ) -> Drained {
        // Both ways: a clock of before a reboot must not keep bytes for ever.
        let age = region::clock::now_ms().abs_diff(since);
        let pid = (owner >> 32) as u32;
        let record = self.layout.slots.get(slot);
        let listed =
            record.is_some_and(|record| record.start.load(Ordering::Acquire) & LISTED != 0);
        let told = if owner as u32 == self.namespace {
            // Who asks has perhaps no row yet, that would say in whose terms they are. The dead one had.
            let there = || driver.lists(device, pid).filter(|_| listed);
            driver.still_holds(device, pid).or_else(there)
        } else {
            None
        };
        // What no row shows its children keep all the same. Of who was shown the rows tell most, so that not for ever: they may have closed what they had.
        let is_kept = || (!listed || age < DRAIN_MOST_MS) && self.has_heirs(slot);
        let had_row = || {
            let account = device.slot().and_then(|slot| self.layout.account(slot));
            account.is_some_and(|account| account.is_listed(slot)) && !planted(Seed::P23)
        };
        let is_over = match told {
            // What was in no row has no end that the rows show, and is taken apart all the same.
            Some(false) if age < UNLISTED_MS && !planted(Seed::P3a) => {
                return match had_row() && !is_kept() {
                    true => Drained::Listed,
                    false => Drained::Nothing,
                };
            }
            Some(false) => !is_kept(),
            // The row is another's.
            Some(true) if self.has_namesake(slot, owner) => age >= DRAIN_MS && !is_kept(),
            Some(true) => !listed && age >= DRAIN_MOST_MS && !is_kept(),
            None => age >= DRAIN_MS && !self.has_heirs(slot),
        };
        match is_over {
            true => Drained::All,
            false => Drained::Nothing,
        }
    }

    /// Whether children live that a slot's dead owner forked while it had it, and have called no exec (P19 of `fixtures/defects.txt`).
    fn has_heirs(&self, slot: usize) -> bool {
        let has_some = |record: &Slot| record.start.load(Ordering::Acquire) & HEIRS != 0;
        self.layout.slots.get(slot).is_some_and(has_some)
            && self.is_inherited(slot)
            && !planted(Seed::P19)
    }

    /// Whether somebody shares the lock on a slot's byte of heirs.
    pub fn is_inherited(&self, slot: usize) -> bool {
        region::is_locked(self.fd, heirs_byte(slot)).unwrap_or(false)
    }

    /// Whether the pid of a slot's dead owner is another's now: the row that the driver shows under it says nothing of the dead (P12 of
    /// `fixtures/defects.txt`). That is so after execve, whose new program has the old one's pid and start, and where pids begin anew.
    fn has_namesake(&self, slot: usize, owner: u64) -> bool {
        if planted(Seed::P12) {
            return false;
        }
        let pid = (owner >> 32) as u32;
        let lives = |(other, record): (usize, &Slot)| {
            other != slot
                && record.owner.load(Ordering::Acquire) == owner
                && record.dying.load(Ordering::Acquire) == 0
        };
        let began = Slot::began;
        let now = region::start_of(pid);
        pid == std::process::id()
            || self.layout.slots.get(slot).is_some_and(|record| {
                let then = began(record);
                // The offset of a time namespace is no multiple of a tick.
                then != 0 && now != 0 && then.abs_diff(now) > 1
            })
            || self.records().any(lives)
    }

    /// This process begins. Who had its pid is dead, and what that is charged is none of its own; of the others those are buried whose pid is nobody's, so
    /// that they drain from now on and not from when somebody needs what they had (on an H200 cuInit takes 190 ms, most of what they are waited for).
    pub fn bury_predecessors(&self, owner: u64) -> Result<(), Errno> {
        for (slot, record) in self.records() {
            let of = record.owner.load(Ordering::Acquire);
            let is_meant = of == owner || of != 0 && !self.seems_taken(slot);
            if is_meant && record.dying.load(Ordering::Acquire) == 0 && !self.lives(slot)? {
                self.bury(slot, &mut Swept::default())?;
            }
        }
        Ok(())
    }

    fn vacate(&self, slot: usize, record: &Slot) {
        if self.layout.is_empty(slot) {
            record.owner.store(0, Ordering::Release);
            record.dying.store(0, Ordering::Release);
        }
    }

    /// Whether a newcomer who holds the slot's byte may have it: a dead owner's bytes must have drained. A newcomer asks no driver,
    /// so it takes them for drained only after `patience`, in milliseconds.
    pub fn is_free_locked(&self, slot: usize, patience: u64) -> bool {
        let Some(record) = self.layout.slots.get(slot) else {
            return false;
        };
        // Reapers that saw the slot's byte free just before may still be writing.
        let Ok(Some(_lock)) = ReapersLock::all(self.fd, slot) else {
            return false;
        };
        if !self.layout.is_empty(slot) {
            self.bury_locked(slot);
            let since = record.dying.load(Ordering::Acquire);
            let is_over = since != 0 && region::clock::now_ms().abs_diff(since) >= patience;
            if is_over && !self.has_heirs(slot) {
                self.layout.objects.bury(slot, None);
                for account in self.layout.accounts() {
                    account.clear(slot);
                }
            }
            self.vacate(slot, record);
        }
        self.layout.is_empty(slot)
    }

    /// Whether any slot is a dead process's, whose bytes have not drained.
    pub fn any_draining(&self) -> bool {
        let mut slots = self.layout.slots.iter();
        slots.any(|record| record.dying.load(Ordering::Acquire) != 0)
    }

    /// Lowers the high-water mark over vacant slots. It moves only while every vacated byte is held, so that nobody can be on the
    /// way into one of them.
    pub fn shrink(&self) -> Result<(), Errno> {
        let top = self.layout.high().load(Ordering::Acquire);
        let mut low = top.min(SLOTS as u64);
        let mut held = low..low;
        while low > 0 && Some(low as usize - 1) != self.me {
            let slot = low as usize - 1;
            // Looked at before it is locked: a dead owner's byte must not look held.
            if !self.layout.is_empty(slot) || !region::lock(self.fd, slot)? {
                break;
            }
            held.start = slot as u64;
            if !self.layout.is_empty(slot) {
                break;
            }
            low -= 1;
        }
        if low < top {
            // Fails where a newcomer above has raised it meanwhile.
            let _ =
                self.layout
                    .high()
                    .compare_exchange(top, low, Ordering::AcqRel, Ordering::Relaxed);
        }
        held.for_each(|slot| region::unlock(self.fd, slot as usize));
        Ok(())
    }
}
