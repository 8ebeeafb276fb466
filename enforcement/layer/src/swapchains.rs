//! Swapchains. Their images are device memory that the driver takes by itself, charged as if the application had allocated it:
//! what their like needs is reserved before the driver is asked, and what it made is charged once it is there. What a driver takes
//! for a swapchain beside its images is found by the look that follows ([`crate::floor`]).

use ash::vk;
use budget::Bytes;
use seeds::{Seed, planted};

use crate::arena::Id;
use crate::attachment::Attachment;
use crate::candidates;
use crate::device::{Enforced, Found};
use crate::memory::{image_bytes, reserve, reserve_taken};
use crate::records::{Charge, Object};
use crate::trace;

/// Images of a swapchain at least, whatever an application asks for: one is shown while another is drawn.
pub const FEWEST: u32 = 2;

/// So many images of this size each, as the driver says what each needs.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    pub count: u32,
    pub each: Bytes,
}

impl Images {
    /// What they take; `None` beyond all memory.
    fn bytes(self) -> Option<Bytes> {
        let one = image_bytes(self.each)?;
        let count = match planted(Seed::V17o) {
            true => FEWEST,
            false => self.count,
        };
        one.0.checked_mul(count.into()).map(Bytes)
    }
}

/// Creates. `expected` is what the application's request takes at least, where the driver can tell; `call` asks next and answers
/// the new swapchain; `made` tells what it has; `destroy` is next's, for one that must not be kept. `callbacks`: the application
/// brought VkAllocationCallbacks.
pub fn create(
    found: Found,
    expected: Option<Images>,
    call: impl FnOnce() -> (vk::Result, Option<Object>),
    made: impl FnOnce(Object) -> Option<Images>,
    destroy: impl FnOnce(Object),
    callbacks: bool,
) -> vk::Result {
    let device = found.device;
    let Some(enforced) = &device.enforced else {
        return call().0;
    };
    let targets = if found.registered {
        enforced.masked(None)
    } else {
        candidates::everyone()
    };
    let refused = || {
        trace::line(format_args!("swapchain {expected:?} verdict=refused"));
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
    };
    let Some(least) = expected.map_or(Some(Bytes::ZERO), Images::bytes) else {
        return refused();
    };
    let held = match least {
        Bytes::ZERO => None,
        least => match reserve(enforced.attachment, targets, least) {
            Ok(held) => Some(held),
            Err(_) => return refused(),
        },
    };
    let (result, object) = call();
    let (true, Some(object)) = (result.as_raw() >= 0, object) else {
        return result;
    };
    // A swapchain that tells nothing of itself has what was expected.
    let bytes = made(object).and_then(Images::bytes).unwrap_or(least);
    let more = Bytes(bytes.0.saturating_sub(least.0));
    let charge = Charge {
        targets,
        bytes,
        shared: None,
        callbacks,
    };
    let rest = match more {
        Bytes::ZERO => None,
        more => match reserve_taken(enforced.attachment, targets, more) {
            Ok(rest) => Some(rest),
            Err(_) => {
                destroy(object);
                return refused();
            }
        },
    };
    let records = &enforced.attachment.objects.swapchains;
    if !records.insert(device.id, object, charge) {
        destroy(object);
        return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    }
    if let Some(held) = held {
        held.commit_as(bytes.min(least));
    }
    if let Some(rest) = rest {
        rest.commit();
    }
    trace::line(format_args!(
        "swapchain charged={} verdict=granted",
        bytes.0
    ));
    result
}

/// Destroys. The record goes first: once next has destroyed it, its handle may be another's.
pub fn destroy(found: Found, object: Option<Object>, call: impl FnOnce()) {
    let take = |object| found.objects()?.swapchains.take(found.device.id, object);
    let charge = object.and_then(take);
    let _change = found.device.enforced.as_ref().map(Enforced::change);
    call();
    if let (Some(charge), Some(enforced)) = (charge, &found.device.enforced) {
        enforced.attachment.release(charge.targets, charge.bytes);
        trace::line(format_args!("swapchain released={}", charge.bytes.0));
    }
}

/// Destroys what an application left behind in a device that it is about to destroy, and gives the charges back.
pub fn drain(device: Id, attachment: &Attachment, destroy: impl Fn(Object, Charge)) {
    for (object, charge) in attachment.objects.swapchains.drain(device) {
        let _change = attachment.change();
        destroy(object, charge);
        attachment.release(charge.targets, charge.bytes);
    }
}
