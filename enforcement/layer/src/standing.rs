//! What a process's VkInstances take of each GPU before there is any VkDevice: on an H200 16.4 MiB from the first until the last
//! is gone, of which the process's NVML row names 7.1.
//!
//! It is reserved before the first instance is made, so that it is refused where the budget has no room for it, and trued up by the
//! row and by what the device lost. Where the tenant has no ledger yet nobody shares the budget: then it is charged afterwards, if
//! a GPU was used at all, so that programs on other devices take no slot. What nothing could tell then is charged with the first
//! VkDevice ([`late`]).

use ledger::{KeptErrno, Shown};
use std::sync::{Mutex, MutexGuard, PoisonError};

use budget::{Bytes, DeviceIndex, DeviceSet};
use seeds::{Seed, planted};

use crate::arena::Id;
use crate::attachment::{self, Attachment, Refused};
use crate::boundary::nvml::{self, Own};
use crate::floor::Books;
use crate::settings::settings;
use crate::targets::Held;
use crate::{candidates, memory, trace};

/// Reserved for a first instance, or an eighth of a small budget.
const BOUND: Bytes = Bytes::mib(32);
/// Of what an instance takes: 9.2 MiB on an H200.
const UNSAID: Unsaid = Unsaid {
    usual: Bytes::mib(10),
    most: Bytes::mib(16),
};

/// What a device loses beyond what the process's NVML row gains.
#[derive(Clone, Copy, Debug)]
pub struct Unsaid {
    /// As it was measured, rounded up: assumed where nothing can be measured.
    pub usual: Bytes,
    /// So much is believed of a measurement.
    pub most: Bytes,
}

/// The instances of one attachment, which a fork child has another of.
struct Standing {
    of: Option<Id>,
    instances: usize,
    charged: Vec<Charged>,
    /// What did not fit when the first instance was made, and is charged before a VkDevice is.
    owed: Vec<Charged>,
}

/// What the instances are charged on a GPU.
struct Charged {
    targets: DeviceSet,
    bytes: Bytes,
    /// Of that, what no row of the driver's shows.
    unlisted: Bytes,
}

static STANDING: Mutex<Standing> = Mutex::new(Standing {
    of: None,
    instances: 0,
    charged: Vec::new(),
    owed: Vec::new(),
});

/// An instance that is being made. Dropping it cancels what is reserved.
pub struct Making {
    standing: MutexGuard<'static, Standing>,
    shares: Vec<Share>,
}

/// A GPU that a first instance may take something of.
struct Share {
    device: DeviceIndex,
    /// `None` where the tenant has no ledger yet: one is made only if a GPU turns out to be used.
    held: Option<(Bytes, Held<'static>)>,
    /// `None` where the books were never left alone.
    before: Option<Figures>,
}

#[derive(Clone, Copy)]
struct Figures {
    own: Own,
    device: Option<Bytes>,
    /// How the books stood; `None` where there were none.
    books: Option<Books>,
    /// Imported, and in this process's row if it has one.
    imported: Shown,
}

impl Figures {
    /// While no other thread takes or gives back, with so many changes of the caller's under way. `None` where they never leave the books alone.
    fn of(
        device: DeviceIndex,
        attachment: Option<&Attachment>,
        own_changes: u64,
    ) -> Option<Figures> {
        let read = || Figures {
            own: nvml::own(device),
            device: nvml::device_usage(device),
            books: None,
            imported: attachment
                .map_or_else(Shown::default, |attachment| attachment.imported(device)),
        };
        let Some(attachment) = attachment.filter(|attachment| attachment.stands()) else {
            return Some(read());
        };
        let targets = DeviceSet::of(device);
        let (figures, books) = attachment.read_quietly(targets, own_changes, read)?;
        Some(Figures {
            books: books.first().copied(),
            ..figures
        })
    }

    /// By how much the row grew since `before`, when so much was reserved, less what other threads took. `None` where there is none. With its first row all
    /// that the process held before is listed too (V28 of `fixtures/defects.txt`).
    fn listed(self, before: Figures, reserved: Bytes) -> Option<Bytes> {
        if !before.own.told && !planted(Seed::R146) {
            return None;
        }
        let now = self.own.row?;
        // A row that holds no more than what was imported names nothing else (R120a).
        let nothing_else = before
            .own
            .row
            .is_none_or(|row| row <= Bytes(before.imported.certain) && !planted(Seed::R120a));
        Some(match (self.books.zip(before.books), before.own.row) {
            (Some((books, stood)), _) if nothing_else && !planted(Seed::V28) => {
                let imported = match planted(Seed::V28a) {
                    true => Bytes::ZERO,
                    false => self.imported.most(),
                };
                let before = stood.awaits_row(reserved).saturating_add(imported);
                let grown = books.grown_since(&stood, before, now);
                // Books that hold more than the driver has taken explain no row.
                grown.max(Bytes(1))
            }
            (Some((books, stood)), then) => {
                books.grown_since(&stood, then.unwrap_or_default(), now)
            }
            (None, then) => now.saturating_sub(then.unwrap_or_default()),
        })
    }

    fn alone_since(self, before: Figures) -> bool {
        let books = self.books.zip(before.books);
        books.is_none_or(|(books, stood)| books.alone_since(&stood))
    }

    fn stood_since(self, before: Figures) -> bool {
        let books = self.books.zip(before.books);
        books.is_none_or(|(books, stood)| books.stood_since(&stood))
    }

    /// What the device lost since `before` by all that can be known.
    fn since(self, before: Self, reserved: Bytes, bound: Bytes) -> Bytes {
        let lost = match (before.device, self.device) {
            (Some(before), Some(now)) => Some(now.saturating_sub(before)),
            _ => None,
        };
        let alone = before.own.alone && self.own.alone && self.stood_since(before);
        match self.listed(before, reserved) {
            // What contexts are charged that are made beside it may be more than the driver has taken for them.
            Some(_) if !self.alone_since(before) => bound,
            Some(grown) => taken(grown, lost.filter(|_| alone), UNSAID, bound),
            None => lost.map_or(bound, |lost| lost.min(bound)),
        }
    }
}

/// By how much a row grew, and what its device lost meanwhile where no other process has a row: what others take or give back in
/// this moment must not pass for ours, and no device loses less than a row gains, unless that gains what the process held before. Where the loss says nothing,
/// as much as rows leave `unsaid` is assumed, within what was reserved. The row itself, which is what NVML says of the tenant, is charged in any case.
pub fn taken(grown: Bytes, lost: Option<Bytes>, unsaid: Unsaid, bound: Bytes) -> Bytes {
    let most = grown.saturating_add(unsaid.most);
    match lost {
        _ if grown == Bytes::ZERO => Bytes::ZERO,
        Some(lost) if grown <= lost && lost <= most => lost,
        Some(lost) if grown <= lost => most.min(bound).max(grown),
        _ => grown.saturating_add(unsaid.usual).min(bound).max(grown),
    }
}

/// Before next makes an instance. `None` where no budget is set.
pub fn begin() -> Result<Option<Making>, Refused> {
    let _errno = KeptErrno::keep();
    if !attachment::enforcing() {
        return Ok(None);
    }
    let known = candidates::candidates(&[]);
    let begun = attachment::begun() || settings().refusal().is_some();
    let begun = !known.is_empty() && begun;
    let attachment = begun.then(attachment::current).flatten();
    let mut standing = lock();
    if let Some(attachment) = attachment {
        standing.belong_to(attachment);
    }
    if attachment.is_some_and(|attachment| !attachment.stands()) && !planted(Seed::V26) {
        return Err(Refused);
    }
    let mut making = Making {
        shares: Vec::new(),
        standing,
    };
    if making.standing.instances > 0 {
        return Ok(Some(making));
    }
    for device in known.iter().map(|one| one.index) {
        let held = match attachment {
            None => None,
            Some(attachment) => {
                attachment.await_predecessors(DeviceSet::of(device));
                let Some(bound) = bound(attachment, DeviceSet::of(device)) else {
                    continue;
                };
                Some((
                    bound,
                    memory::reserve(attachment, DeviceSet::of(device), bound)?,
                ))
            }
        };
        making.shares.push(Share {
            device,
            held,
            before: None,
        });
    }
    let own_changes = making.own_changes();
    for share in &mut making.shares {
        share.before = Figures::of(share.device, attachment, own_changes);
    }
    Ok(Some(making))
}

impl Making {
    /// What is reserved.
    fn own_changes(&self) -> u64 {
        let held = self.shares.iter().filter(|share| share.held.is_some());
        held.count() as u64
    }

    /// Next made it. Refused if it took more than there is.
    ///
    /// The instance is to stay all the same: Khronos's loader (1.3.239 and 1.4.304 were seen) frees its own memory twice and aborts where a layer fails
    /// vkCreateInstance after it destroyed what next made. What it took is owed then, seen by every look, and [`late`] lets nobody make a VkDevice
    /// before it fits.
    pub fn end(mut self) -> Result<(), Refused> {
        let mut fits = Ok(());
        let _errno = KeptErrno::keep();
        let own_changes = self.own_changes();
        let shares = std::mem::take(&mut self.shares);
        let measured = |share: Share| share.measured(own_changes);
        let shares: Vec<_> = shares.into_iter().map(measured).collect();
        let mut changed = DeviceSet::EMPTY;
        if shares.iter().any(|(share, now)| share.used(*now))
            && let Some(attachment) = attachment::current()
        {
            self.standing.belong_to(attachment);
            for (share, now) in shares {
                let Some((charged, held)) = share.charge(attachment, now) else {
                    continue;
                };
                let targets = charged.targets;
                // Until it is said what of it no row shows.
                let _change = attachment.change();
                match held {
                    Ok(held) => {
                        trace::line(format_args!("create instance charged={}", charged.bytes.0));
                        held.into_iter()
                            .for_each(|(part, bytes)| part.commit_as(bytes));
                        attachment.unlist(targets, charged.unlisted);
                        self.standing.charged.push(charged);
                    }
                    Err(Refused) => {
                        trace::line(format_args!("create instance owed={}", charged.bytes.0));
                        self.standing.owed.push(charged);
                        fits = Err(Refused);
                    }
                }
                changed = changed.union(targets);
            }
            attachment.look(changed, None);
        }
        self.standing.instances += 1;
        fits
    }
}

/// What is to be charged to whom, and the reservations that are to be committed for it, each as so much, if it fits.
type Charge = (Charged, Result<Vec<(Held<'static>, Bytes)>, Refused>);

impl Share {
    fn measured(self, own_changes: u64) -> (Self, Option<Figures>) {
        let attachment = self.held.as_ref().and_then(|_| attachment::mine());
        let now = Figures::of(self.device, attachment, own_changes);
        (self, now)
    }

    /// What was taken; `bound` where that cannot be known.
    fn taken(&self, now: Option<Figures>, bound: Bytes) -> Bytes {
        let known = now.zip(self.before);
        known.map_or(bound, |(now, before)| {
            now.since(before, self.reserved(), bound)
        })
    }

    fn reserved(&self) -> Bytes {
        self.held
            .as_ref()
            .map_or(Bytes::ZERO, |(reserved, _)| *reserved)
    }

    fn used(&self, now: Option<Figures>) -> bool {
        self.taken(now, BOUND) != Bytes::ZERO
    }

    /// `None` where nothing was taken, or there is no budget.
    fn charge(mut self, attachment: &'static Attachment, now: Option<Figures>) -> Option<Charge> {
        let targets = DeviceSet::of(self.device);
        let part = match &self.held {
            Some((reserved, _)) => *reserved,
            None => bound(attachment, targets)?,
        };
        if now.is_some_and(|now| now.own.row.is_some()) {
            attachment.note_listed(targets);
        }
        // All of it, though a small budget's part for it is less (V32 of `fixtures/defects.txt`).
        let bound = match planted(Seed::V32) {
            true => part,
            false => BOUND,
        };
        let took = self
            .taken(now, bound)
            .round_up(memory::GRANULARITY)
            .unwrap_or(Bytes::MAX);
        let listed = now.zip(self.before);
        let listed = listed.filter(|(now, before)| now.alone_since(*before));
        let listed = listed.and_then(|(now, before)| now.listed(before, self.reserved()));
        if took == Bytes::ZERO {
            return None;
        }
        let mut parts = Vec::new();
        let reserved = self.held.take().map_or(Bytes::ZERO, |(reserved, held)| {
            parts.push((held, took.min(reserved)));
            reserved
        });
        let beyond = took.saturating_sub(reserved);
        let rest = (beyond != Bytes::ZERO)
            .then(|| memory::reserve_taken(attachment, targets, beyond))
            .transpose();
        let held = rest.map(|rest| {
            parts.extend(rest.map(|rest| (rest, beyond)));
            parts
        });
        // What was not measured has as much in no row as is usual.
        let unlisted = listed.map_or(UNSAID.usual, |listed| took.saturating_sub(listed));
        let charged = Charged {
            targets,
            bytes: took,
            unlisted: unlisted.min(UNSAID.most).min(took),
        };
        Some((charged, held))
    }
}

/// Before a VkDevice is made. On GPUs that only Vulkan itself knows, without NVML and /proc, what its instance took could be charged
/// to nobody then, so it is now, and nothing can true it up. What did not fit then has to fit now.
pub fn late(attachment: &'static Attachment, targets: DeviceSet) -> Result<(), Refused> {
    let mut standing = lock();
    standing.belong_to(attachment);
    for device in targets.iter() {
        let targets = DeviceSet::of(device);
        if let Some(at) = standing.owed.iter().position(|one| one.targets == targets) {
            let bytes = standing.owed[at].bytes;
            let held = memory::reserve_taken(attachment, targets, bytes);
            let Ok(held) = held else {
                attachment.look(targets, None);
                return Err(Refused);
            };
            held.commit();
            let owed = standing.owed.swap_remove(at);
            attachment.unlist(targets, owed.unlisted);
            standing.charged.push(owed);
        }
        let known = standing.charged.iter().any(|one| one.targets == targets);
        if let Some(bound) = bound(attachment, targets).filter(|_| !known) {
            memory::reserve(attachment, targets, bound)?.commit();
            standing.charged.push(Charged {
                targets,
                bytes: bound,
                unlisted: Bytes::ZERO,
            });
            standing.instances = standing.instances.max(1);
        }
    }
    Ok(())
}

/// What is reserved for a first instance; `None` for a GPU without a budget.
fn bound(attachment: &Attachment, targets: DeviceSet) -> Option<Bytes> {
    let eighth = Bytes(attachment.budget(targets)?.0 / 8);
    BOUND.min(eighth).round_up(memory::GRANULARITY)
}

impl Standing {
    /// A fork child begins with none. Those that were made before there was a ledger stay counted.
    fn belong_to(&mut self, attachment: &Attachment) {
        match self.of.replace(attachment.id()) {
            Some(other) if other != attachment.id() => {
                self.instances = 0;
                self.charged.clear();
                self.owed.clear();
            }
            _ => {}
        }
    }
}

/// Destroys an instance: with the last one all is gone that they took.
pub fn end(destroy: impl FnOnce()) {
    let enforced = attachment::enforcing();
    let attachment = attachment::mine().filter(|_| enforced);
    let change = attachment.map(Attachment::change);
    destroy();
    if !enforced {
        return;
    }
    let changed = ended();
    drop(change);
    // What was owed, and what anything took beyond the books.
    if let Some(attachment) = attachment.filter(|_| !changed.is_empty()) {
        attachment.look(changed, None);
    }
}

/// Answers where that changed anything.
fn ended() -> DeviceSet {
    let _errno = KeptErrno::keep();
    let mut changed = DeviceSet::EMPTY;
    let mut standing = lock();
    let mine = attachment::mine().filter(|attachment| standing.of == Some(attachment.id()));
    if standing.of.is_some() && mine.is_none() {
        return changed;
    }
    standing.instances = standing.instances.saturating_sub(1);
    if standing.instances == 0 {
        for owed in standing.owed.drain(..) {
            changed = changed.union(owed.targets);
        }
        for charged in standing.charged.drain(..) {
            changed = changed.union(charged.targets);
            if let Some(attachment) = mine {
                attachment.list(charged.targets, charged.unlisted);
                attachment.release(charged.targets, charged.bytes);
            }
        }
    }
    changed
}

fn lock() -> MutexGuard<'static, Standing> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Bytes = Bytes(7_495_680);
    const LOST: Bytes = Bytes(17_170_432);

    #[test]
    fn a_device_loses_more_than_a_row_says() {
        assert_eq!(taken(ROW, Some(LOST), UNSAID, BOUND), LOST);
        assert_eq!(taken(Bytes::ZERO, Some(LOST), UNSAID, BOUND), Bytes::ZERO);
    }

    #[test]
    fn what_others_do_meanwhile_is_not_ours() {
        let most = ROW.saturating_add(UNSAID.most);
        assert_eq!(taken(ROW, Some(Bytes::gib(1)), UNSAID, BOUND), most);
        let usual = taken(ROW, None, UNSAID, BOUND);
        assert_eq!(taken(ROW, Some(Bytes::ZERO), UNSAID, BOUND), usual);
        assert!(
            LOST <= usual && usual <= Bytes(LOST.0 + (1 << 20)),
            "{usual}"
        );
        assert_eq!(
            taken(ROW, None, UNSAID, Bytes::mib(1)),
            ROW,
            "never below the row"
        );
    }

    #[test]
    fn beside_others_the_loss_is_not_believed() {
        let at = |alone, row, device| Figures {
            own: Own {
                told: true,
                row,
                alone,
            },
            device: Some(device),
            books: None,
            imported: Shown::default(),
        };
        let took = |before, after| {
            at(after, Some(ROW), LOST).since(at(before, None, Bytes::ZERO), Bytes::ZERO, BOUND)
        };
        assert_eq!(took(true, true), LOST);
        let usual = ROW.saturating_add(UNSAID.usual);
        assert_eq!(took(false, true), usual);
        assert_eq!(took(true, false), usual);
    }

    #[test]
    fn without_a_row_the_device_tells_and_without_that_the_reservation_stays() {
        let none = |device| Figures {
            own: Own::default(),
            device,
            books: None,
            imported: Shown::default(),
        };
        let (before, now) = (Some(Bytes::gib(1)), Some(Bytes(LOST.0 + (1 << 30))));
        assert_eq!(none(now).since(none(before), Bytes::ZERO, BOUND), LOST);
        assert_eq!(none(None).since(none(None), Bytes::ZERO, BOUND), BOUND);
    }
}
