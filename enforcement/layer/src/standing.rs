//! What a process's VkInstances take of each GPU before there is any VkDevice: on an H200 16.4 MiB from the first until the last
//! is gone, of which the process's NVML row names 7.1.
//!
//! It is reserved before the first instance is made, so that it is refused where the budget has no room for it, and trued up by the
//! row and by what the device lost. Where the tenant has no ledger yet nobody shares the budget: then it is charged afterwards, if
//! a GPU was used at all, so that programs on other devices take no slot.

use std::sync::{Mutex, MutexGuard, PoisonError};

use budget::{Bytes, DeviceIndex};

use crate::arena::Id;
use crate::attachment::{self, Attachment, Refused};
use crate::boundary::nvml;
use crate::targets::{Held, Targets};
use crate::{candidates, memory, trace};

/// Reserved for a first instance, or an eighth of a small budget.
const BOUND: Bytes = Bytes::mib(32);
/// The most that a device was ever seen to lose to an instance beyond what the row gained, rounded up generously.
const UNSAID: Bytes = Bytes::mib(16);

/// The instances of one attachment, which a fork child has another of.
struct Standing {
    of: Option<Id>,
    instances: usize,
    charged: Vec<(Targets, Bytes)>,
}

static STANDING: Mutex<Standing> = Mutex::new(Standing {
    of: None,
    instances: 0,
    charged: Vec::new(),
});

/// An instance that is being made. Dropping it cancels what is reserved.
pub struct Making {
    /// `None` where the tenant has no ledger yet: one is made only if a GPU turns out to be used.
    attachment: Option<&'static Attachment>,
    standing: MutexGuard<'static, Standing>,
    shares: Vec<Share>,
}

struct Share {
    device: DeviceIndex,
    bound: Bytes,
    held: Option<Held<'static>>,
    before: Figures,
}

#[derive(Clone, Copy)]
struct Figures {
    row: Option<Bytes>,
    device: Option<Bytes>,
}

impl Figures {
    fn of(device: DeviceIndex) -> Self {
        Self {
            row: nvml::own_usage(device),
            device: nvml::device_usage(device),
        }
    }

    /// What the device lost since `before` by all that can be known.
    fn since(self, before: Self, bound: Bytes) -> Bytes {
        let lost = match (before.device, self.device) {
            (Some(before), Some(now)) => Some(now.saturating_sub(before)),
            _ => None,
        };
        match self.row {
            Some(now) => taken(
                now.saturating_sub(before.row.unwrap_or_default()),
                lost,
                UNSAID,
                bound,
            ),
            None => lost.map_or(bound, |lost| lost.min(bound)),
        }
    }
}

/// By how much a row grew, and what its device lost meanwhile, told apart from what others took or gave back: no device loses less
/// than a row gains. Where the loss says nothing, as much as rows leave `unsaid` is assumed, within what was reserved.
pub fn taken(grown: Bytes, lost: Option<Bytes>, unsaid: Bytes, bound: Bytes) -> Bytes {
    let most = grown.saturating_add(unsaid);
    match lost {
        _ if grown == Bytes::ZERO => Bytes::ZERO,
        Some(lost) if grown <= lost && lost <= most => lost,
        _ => most.min(bound).max(grown),
    }
}

/// Before next makes an instance. `None` where nothing is to be charged.
pub fn begin() -> Result<Option<Making>, Refused> {
    if !attachment::enforcing() {
        return Ok(None);
    }
    let known = candidates::candidates(&[]);
    let attachment = attachment::begun().then(attachment::current).flatten();
    if known.is_empty() || attachment.is_some_and(|attachment| !attachment.stands()) {
        return Ok(None);
    }
    let mut standing = lock();
    if let Some(attachment) = attachment {
        standing.belong_to(attachment);
    }
    let first = standing.instances == 0;
    let mut shares = Vec::new();
    for device in known.iter().map(|one| one.index).filter(|_| first) {
        let (bound, held) = match attachment {
            None => (Bytes::ZERO, None),
            Some(attachment) => {
                let Some(bound) = bound(attachment, target(device)) else {
                    continue;
                };
                let held = memory::reserve(attachment, target(device), bound)?;
                (bound, Some(held))
            }
        };
        shares.push(Share {
            device,
            bound,
            held,
            before: Figures::of(device),
        });
    }
    Ok(Some(Making {
        attachment,
        standing,
        shares,
    }))
}

impl Making {
    /// Next made it. Refused if it took more than there is; it is then the caller's to destroy.
    pub fn end(mut self) -> Result<(), Refused> {
        let took: Vec<Bytes> = self.shares.iter().map(Share::took).collect();
        if self.attachment.is_none() && took.iter().all(|took| *took == Bytes::ZERO) {
            return Ok(());
        }
        let Some(attachment) = self.attachment.or_else(attachment::current) else {
            return Ok(());
        };
        self.standing.belong_to(attachment);
        let mut charges = Vec::new();
        for (share, took) in std::mem::take(&mut self.shares).into_iter().zip(took) {
            let targets = target(share.device);
            let beyond = match took.saturating_sub(share.bound) {
                Bytes::ZERO => None,
                _ if attachment.budget(targets).is_none() => continue,
                beyond => Some(memory::reserve(attachment, targets, beyond)?),
            };
            charges.push((targets, took, share, beyond));
        }
        for (targets, took, share, beyond) in charges {
            trace::line(format_args!("create instance charged={}", took.0));
            if let Some(held) = share.held {
                held.commit_as(took.min(share.bound));
            }
            beyond.into_iter().for_each(Held::commit);
            self.standing.charged.push((targets, took));
        }
        self.standing.instances += 1;
        Ok(())
    }
}

impl Share {
    fn took(&self) -> Bytes {
        let now = Figures::of(self.device);
        now.since(self.before, self.bound)
            .round_up(memory::GRANULARITY)
            .unwrap_or(Bytes::MAX)
    }
}

/// Before a VkDevice is made on GPUs that only Vulkan itself knows, without NVML and /proc: what its instance took could be charged
/// to nobody then, so it is now, and nothing can true it up.
pub fn late(attachment: &'static Attachment, targets: Targets) -> Result<(), Refused> {
    let mut standing = lock();
    standing.belong_to(attachment);
    for device in targets.iter() {
        let targets = target(device);
        let known = standing.charged.iter().any(|(of, _)| *of == targets);
        if let Some(bound) = bound(attachment, targets).filter(|_| !known) {
            memory::reserve(attachment, targets, bound)?.commit();
            standing.charged.push((targets, bound));
            standing.instances = standing.instances.max(1);
        }
    }
    Ok(())
}

/// What is reserved for a first instance; `None` for a GPU without a budget.
fn bound(attachment: &Attachment, targets: Targets) -> Option<Bytes> {
    let eighth = Bytes(attachment.budget(targets)?.0 / 8);
    BOUND.min(eighth).round_up(memory::GRANULARITY)
}

impl Standing {
    /// A fork child begins with none.
    fn belong_to(&mut self, attachment: &Attachment) {
        if self.of != Some(attachment.id()) {
            *self = Standing {
                of: Some(attachment.id()),
                instances: 0,
                charged: Vec::new(),
            };
        }
    }
}

/// An instance is gone: with the last one all that they took.
pub fn ended() {
    if !attachment::enforcing() {
        return;
    }
    let mut standing = lock();
    if standing.of.is_none() {
        return;
    }
    let Some(attachment) =
        attachment::current().filter(|attachment| standing.of == Some(attachment.id()))
    else {
        return;
    };
    standing.instances = standing.instances.saturating_sub(1);
    if standing.instances == 0 {
        for (targets, bytes) in standing.charged.drain(..) {
            attachment.release(targets, bytes);
        }
    }
}

fn lock() -> MutexGuard<'static, Standing> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn target(device: DeviceIndex) -> Targets {
    Targets(1_u32.unbounded_shl(device.0))
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
        let most = ROW.saturating_add(UNSAID);
        for lost in [None, Some(Bytes::ZERO), Some(Bytes::gib(1))] {
            assert_eq!(taken(ROW, lost, UNSAID, BOUND), most, "{lost:?}");
        }
        assert_eq!(
            taken(ROW, None, UNSAID, Bytes::mib(1)),
            ROW,
            "never below the row"
        );
    }

    #[test]
    fn without_a_row_the_device_tells_and_without_that_the_reservation_stays() {
        let none = |device| Figures { row: None, device };
        let (before, now) = (Some(Bytes::gib(1)), Some(Bytes(LOST.0 + (1 << 30))));
        assert_eq!(none(now).since(none(before), BOUND), LOST);
        assert_eq!(none(None).since(none(None), BOUND), BOUND);
    }
}
