//! The driver's own figure of this process is the floor of what it is charged, whatever took the memory.
//!
//! A Vulkan driver takes device memory for more than vkAllocateMemory: what command buffers record (256 bytes a dispatch on an H200), swapchains, code of
//! pipelines. By how much the process's NVML row is beyond the books is noted in the ledger, where every sum counts it. A look at the row is taken
//!
//! * before a request when the process holds a 64th of the budget more than at the last look, and before a refusal;
//! * after each command that makes what a driver is known to take memory for ([`make`]);
//! * after a command buffer was recorded ([`recorded`]), but not before a hundred times what the last look took has gone by, some 4 ms, or 32 of them;
//! * after submissions ([`poll`]), by the processor's counter, every 20 to 100 ms at most as often. Never by a thread.
//!
//! A process that puts its tenant over the budget by such commands is refused the next of them and the next command buffer, and is told so once. Where NVML shows no row of ours there is
//! no floor but that of the tenant's other processes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ash::vk;
use budget::settings::ContextCharge;
use budget::{Bytes, DeviceIndex, DeviceSet, MAX_DEVICES};
use ledger::{Change, Changes, KeptErrno, Ledger};
use seeds::{Seed, planted};
use throttle::Nanos;

use crate::attachment::Attachment;
use crate::boundary::{nvml, os};
use crate::device::Found;
use crate::settings::settings;
use crate::trace;

/// A look is taken again if the books changed under it, so many times.
const TRIES: usize = 3;
/// Between two looks a process takes at most this part of the budget by vkAllocateMemory.
const PART: u64 = 64;
/// So many command buffers are recorded between two looks.
const RECORDINGS: u32 = 32;
/// Seeds that charge less than is taken: the look is the second line of defence against them.
const UNDERCHARGED: [Seed; 10] = [
    Seed::V17,
    Seed::V17a,
    Seed::V17e,
    Seed::V17f,
    Seed::V17h,
    Seed::V17k,
    Seed::V17l,
    Seed::V17n,
    Seed::V17o,
    Seed::V17r,
];
/// So many times longer than a look lasts nobody looks again in passing.
const SPACING: u64 = 100;

/// When this process looks at the driver's figures again.
pub struct Floor {
    /// What this library is about to take or to give back.
    changes: Changes,
    /// By the processor's counter, after a command buffer was recorded.
    soon: AtomicU64,
    /// Command buffers that were recorded since the last look.
    recordings: AtomicU32,
    /// As `soon`, after a submission.
    due: AtomicU64,
    /// At the last look the tenant was over its budget, by what this process took unasked.
    over: AtomicBool,
    /// By device: what the process may hold before the next look.
    next: [AtomicU64; MAX_DEVICES],
    told: AtomicBool,
    told_of_others: AtomicBool,
}

impl Floor {
    pub const fn new() -> Floor {
        Floor {
            changes: Changes::new(),
            soon: AtomicU64::new(0),
            recordings: AtomicU32::new(0),
            due: AtomicU64::new(0),
            over: AtomicBool::new(false),
            next: [const { AtomicU64::new(0) }; MAX_DEVICES],
            told: AtomicBool::new(false),
            told_of_others: AtomicBool::new(false),
        }
    }

    /// Looks where a request for so much more makes the process hold a 64th of the budget more than at the last look.
    #[inline]
    pub fn before(&self, ledger: &Ledger, targets: DeviceSet, bytes: Bytes) {
        for device in targets.iter() {
            let next = device.slot().and_then(|slot| self.next.get(slot));
            if let Some(next) = next
                && ledger.own_usage(device).saturating_add(bytes).0 > next.load(Ordering::Relaxed)
            {
                self.grown(ledger, device, next, bytes);
            }
        }
    }

    #[cold]
    fn grown(&self, ledger: &Ledger, device: DeviceIndex, next: &AtomicU64, bytes: Bytes) {
        self.look(ledger, device, None);
        let step = ledger
            .budget(device)
            .map_or(u64::MAX, |budget| budget.0 / PART);
        let held = ledger.own_usage(device).saturating_add(bytes).0;
        next.store(held.saturating_add(step), Ordering::Relaxed);
    }

    /// The next request looks.
    pub fn look_later(&self, targets: DeviceSet) {
        let slots = targets.iter().filter_map(DeviceIndex::slot);
        for next in slots.filter_map(|slot| self.next.get(slot)) {
            next.store(0, Ordering::Relaxed);
        }
    }

    /// Looks at every target. Answers whether the tenant has more left than before.
    #[cold]
    pub fn look_all(&self, ledger: &Ledger, targets: DeviceSet, call: Option<&str>) -> bool {
        let before = crate::targets::available(ledger, targets);
        let over = targets
            .iter()
            .fold(false, |over, device| over | self.look(ledger, device, call));
        self.over.store(over, Ordering::Relaxed);
        crate::targets::available(ledger, targets) > before
    }

    /// Answers whether the tenant is over its budget, by what this process took unasked.
    fn look(&self, ledger: &Ledger, device: DeviceIndex, call: Option<&str>) -> bool {
        let _errno = KeptErrno::keep();
        let told = settings().context_charge == ContextCharge::Count;
        // A look would charge what these leave out, too.
        let blind = planted(Seed::F1c) || UNDERCHARGED.into_iter().any(planted);
        if !told || ledger.budget(device).is_none() || blind {
            return false;
        }
        let others = ledger.others(device);
        let mut least = Bytes::ZERO;
        for _ in 0..TRIES {
            let books = self.books(ledger, device, 0);
            let Some(rows) = nvml::listed(device) else {
                break;
            };
            ledger.note_beyond(device, &others, &|pid| rows.of(pid));
            let own = rows.of(std::process::id());
            if own.is_some() {
                ledger.note_listed(device);
            }
            self.note_seen(ledger, device, &rows);
            let Some(row) = own else {
                ledger.note_no_row(device);
                break;
            };
            let shown = ledger.shown_imports(device, &|pid| rows.of(pid)).most();
            if row <= shown && !planted(Seed::P24a) {
                ledger.note_unlisted(device);
            }
            let after = self.books(ledger, device, 0);
            if after.stood_since(&books) {
                let beyond = books.beyond(row, shown);
                ledger.note_own_beyond(device, beyond);
                return self.is_over(ledger, device, beyond, call);
            }
            // Others charge before the driver takes and give back after it: what the row is beyond the most that was charged around it is beyond the
            // books in any case.
            if after.releases == books.releases {
                least = least.max(after.beyond(row, shown));
            }
        }
        if least > ledger.own_beyond(device) {
            ledger.note_own_beyond(device, least);
        }
        self.is_over(ledger, device, least, call)
    }

    /// Driver and ledger are about to differ.
    #[inline]
    pub fn change<'a>(&'a self, ledger: Option<&'a Ledger>) -> Change<'a> {
        self.changes.begin_told(ledger)
    }

    /// How the books stand, with so many changes of the caller's own under way.
    fn books(&self, ledger: &Ledger, device: DeviceIndex, own_changes: u64) -> Books {
        Books {
            changes: self.changes.quiet(own_changes),
            beside: match planted(Seed::V30) {
                true => Some(0),
                false => ledger.changes_beside(),
            },
            charged: ledger.process_usage(device),
            unlisted: match planted(Seed::R17d) {
                true => Bytes::ZERO,
                false => ledger.process_unlisted(device),
            },
            shared: ledger.shared_usage(device),
            releases: ledger.process_releases(device),
        }
    }

    /// Reads what `read` reads while no other thread changes the books of `targets`, which have so many changes of the caller's own under way, and answers
    /// how those stood. `None` where the others never leave them alone.
    pub fn read_quietly<R>(
        &self,
        ledger: &Ledger,
        targets: DeviceSet,
        own_changes: u64,
        mut read: impl FnMut() -> R,
    ) -> Option<(R, Vec<Books>)> {
        /// Of some 100 us each, where what is measured takes 10 ms and more.
        const TRIES: usize = 16;
        /// Then others are waited for, but no longer than a user would not notice: who never leaves the books alone costs a bound, not 100 ms.
        const WAITS: usize = 8;
        const WAIT: Nanos = Nanos::millis(1);
        let books = || {
            let of = |device| self.books(ledger, device, own_changes);
            targets.iter().map(of).collect::<Vec<_>>()
        };
        for tried in 0..TRIES + WAITS {
            let before = books();
            let found = read();
            let after = books();
            let mut both = after.iter().zip(&before);
            if both.all(|(now, then)| now.stood_since(then)) || planted(Seed::V25) {
                return Some((found, before));
            }
            match tried < TRIES {
                true => std::thread::yield_now(),
                false => os::sleep_until(os::now().plus(WAIT)),
            }
        }
        None
    }

    /// Charges what processes of the tenant hold that never asked any hook for anything (R8 of `fixtures/defects.txt`).
    fn note_seen(&self, ledger: &Ledger, device: DeviceIndex, rows: &nvml::Listed) {
        if planted(Seed::R8a) {
            return;
        }
        let library = os::own_path();
        let is_ours = |pid| sources::is_of_tenant(pid, settings(), library);
        let seen = ledger.note_seen(device, &rows.pids(), &|pid| rows.of(pid), &is_ours);
        if let Some((pid, bytes)) = seen
            && !self.told_of_others.swap(true, Ordering::Relaxed)
        {
            trace::tell(format_args!(
                "process {pid} of this tenant holds {bytes} of device {} that no library of ours was asked for there; it is charged",
                device.0
            ));
        }
    }

    /// Whether the driver holds more for this process than the budget has room for, which is said once.
    fn is_over(
        &self,
        ledger: &Ledger,
        device: DeviceIndex,
        beyond: Bytes,
        call: Option<&str>,
    ) -> bool {
        let Some(budget) = ledger.budget(device).filter(|_| beyond > Bytes::ZERO) else {
            return false;
        };
        let by = ledger.usage(device).saturating_sub(budget);
        if by > Bytes::ZERO && !self.told.swap(true, Ordering::Relaxed) {
            let last = call.map_or(String::new(), |call| format!(", at last by {call}"));
            trace::tell(format_args!(
                "this process holds {beyond} of device {} beyond what it asked vkAllocateMemory for (recorded command buffers, pipelines, swapchains, a driver opened directly){last}; it is charged: the budget of {budget} is exceeded by {by}, and nothing more is granted",
                device.0
            ));
        }
        by > Bytes::ZERO
    }

    /// Looks if it is time to, by either counter. One thread does; the others see that the time is not yet.
    #[inline]
    fn pass(&self, clock: &AtomicU64, attachment: &Attachment, targets: DeviceSet) {
        let (now, due) = (os::ticks(), clock.load(Ordering::Relaxed));
        let later = now.saturating_add(os::look_interval());
        let mine = now >= due
            && clock
                .compare_exchange(due, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            self.pass_now(attachment, targets);
        }
    }

    #[cold]
    fn pass_now(&self, attachment: &Attachment, targets: DeviceSet) {
        let before = os::ticks();
        self.recordings.store(0, Ordering::Relaxed);
        attachment.look(targets, Some("commands that were recorded"));
        let after = os::ticks();
        let pause = after.saturating_sub(before).saturating_mul(SPACING);
        let soon = after.saturating_add(pause);
        self.soon.store(soon, Ordering::Relaxed);
        let interval = pause.max(os::look_interval());
        self.due
            .store(after.saturating_add(interval), Ordering::Relaxed);
    }
}

/// What a look compares with the driver's row, and what must stand still around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Books {
    charged: Bytes,
    /// Charged, and in no row.
    unlisted: Bytes,
    /// Imported, and charged to others or nobody.
    shared: Bytes,
    releases: u64,
    /// How many changes have begun; `None` while one is under way that is not the caller's.
    changes: Option<u64>,
    /// The same of the process's other libraries of ours, whose charges explain nothing before the driver has taken what they are for (V30 of
    /// `fixtures/defects.txt`).
    beside: Option<u64>,
}

impl Books {
    /// Nothing but that.
    #[cfg(test)]
    pub fn charged(bytes: Bytes) -> Books {
        Books {
            charged: bytes,
            unlisted: Bytes::ZERO,
            shared: Bytes::ZERO,
            releases: 0,
            changes: Some(0),
            beside: Some(0),
        }
    }

    /// Whether nobody has changed them since they were `before`, or was about to.
    pub fn stood_since(&self, before: &Books) -> bool {
        self.changes.is_some() && self.beside.is_some() && self == before
    }

    /// Whether the process's other libraries of ours took or gave back nothing since: what they are charged may be more than the driver has taken for them.
    pub fn alone_since(&self, before: &Books) -> bool {
        self.beside == before.beside
    }

    /// By how much a row grew, less what was charged meanwhile for other reasons: what was given back is added.
    pub fn grown_since(&self, before: &Books, then: Bytes, now: Bytes) -> Bytes {
        let unlisted = |books: &Books| match planted(Seed::V30) {
            true => Bytes::ZERO,
            false => books.unlisted,
        };
        let listed = |books: &Books| books.charged.saturating_sub(unlisted(books));
        let charged = |books: &Books| listed(books).saturating_add(books.shared);
        let (stood, stands) = match (charged(before), charged(self)) {
            (stood, stands) if planted(Seed::V25) => (stood.min(stands), stands),
            both => both,
        };
        let now = now.saturating_add(stood);
        now.saturating_sub(then.saturating_add(stands))
    }

    /// What a row will show that the process has none of yet, beside what is only `reserved`.
    pub fn awaits_row(&self, reserved: Bytes) -> Bytes {
        let listed = self.charged.saturating_sub(self.unlisted);
        listed.saturating_sub(reserved)
    }

    /// Of a row in which so much is that others are charged, or nobody.
    fn beyond(self, row: Bytes, shown: Bytes) -> Bytes {
        let listed = self.charged.saturating_sub(self.unlisted);
        row.saturating_sub(listed.saturating_add(shown))
    }
}

/// Whether this process gets no more of what a driver takes unasked: it is over its budget by that, and still is when it is looked at again.
#[inline]
pub fn refuses(found: Found, name: &str) -> bool {
    let enforced = found.device.enforced.as_ref();
    enforced.is_some_and(|enforced| {
        let floor = enforced.attachment.floor();
        floor.is_some_and(|floor| floor.over.load(Ordering::Relaxed))
            && still_over(enforced.attachment, enforced.all, name)
    })
}

#[cold]
fn still_over(attachment: &Attachment, targets: DeviceSet, name: &str) -> bool {
    attachment.look(targets, None);
    let over = attachment
        .floor()
        .is_some_and(|floor| floor.over.load(Ordering::Relaxed));
    if over {
        trace::refusal(format_args!("{name}: the budget is exceeded already"));
    }
    over
}

/// A command that makes what a driver may take device memory for, beside vkAllocateMemory. Refused where the process is over its budget by such memory
/// already; a look follows.
pub fn make(
    found: Found,
    name: &str,
    refuse: impl FnOnce() -> vk::Result,
    call: impl FnOnce() -> vk::Result,
) -> vk::Result {
    if refuses(found, name) {
        return refuse();
    }
    let answer = call();
    if let Some(enforced) = &found.device.enforced {
        enforced.attachment.look(enforced.all, Some(name));
    }
    answer
}

/// After a submission: a look now and then.
#[inline]
pub fn poll(found: Found) {
    if let Some(enforced) = &found.device.enforced
        && let Some(floor) = enforced.attachment.floor()
    {
        floor.pass(&floor.due, enforced.attachment, enforced.all);
    }
}

/// After a command buffer was recorded: a look, but a hundred times as long as it takes after the last, or at the 32nd.
pub fn recorded(found: Found) {
    if let Some(enforced) = &found.device.enforced
        && let Some(floor) = enforced.attachment.floor()
    {
        if floor.recordings.fetch_add(1, Ordering::Relaxed) >= RECORDINGS {
            floor.pass_now(enforced.attachment, enforced.all);
        } else {
            floor.pass(&floor.soon, enforced.attachment, enforced.all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_explains_is_beyond() {
        let beyond = |charged, unlisted, shown, row| {
            let books = Books {
                unlisted: Bytes(unlisted),
                ..Books::charged(Bytes(charged))
            };
            books.beyond(Bytes(row), Bytes(shown))
        };
        assert_eq!(beyond(100, 0, 0, 140), Bytes(40));
        assert_eq!(beyond(100, 0, 0, 60), Bytes::ZERO);
        assert_eq!(beyond(100, 30, 0, 100), Bytes(30));
        assert_eq!(beyond(100, 30, 20, 100), Bytes(10));
        assert_eq!(beyond(10, 30, 0, 5), Bytes(5));
    }
}
