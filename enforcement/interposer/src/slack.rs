//! Pools that may hold less than they are charged for: what was freed marks them, whoever waits has them read, and before a refusal they are trimmed.

use core::sync::atomic::Ordering;

use abi::cuda::{CUcontext, CUresult, CUstream};
use budget::Bytes;
use ledger::KeptErrno;
use seeds::{Seed, planted};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::deferred::Freed;
use crate::devices::{Device, Devices};
use crate::frees::Waiter;
use crate::memory::When;
use crate::mirror::{Occasion, Pool};
use crate::poll::poll;
use crate::pools::Known;
use crate::process::Tenant;
use crate::records::owner_of;

/// Something was freed since the pools were read.
pub const FREED: u32 = 1;
/// A wait did not bring back all that it might: what was freed in the order of another stream goes back when that is waited for.
pub const SURPLUS: u32 = 2;
/// Somebody waited while requests were on their way, and nobody could tell what the pool holds: the next of them to be answered has it read.
pub const OWED: u32 = 4;

/// Of a device's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetGo {
    /// At most so much, of pools that something was freed of since they were read.
    pub bytes: Bytes,
    /// Of one that the driver tells of.
    pub told: bool,
}

impl Tenant {
    /// An allocation of a pool is freed. What the pool holds is known at the next synchronisation.
    #[inline]
    pub fn leave_pool(self, place: u32, size: Bytes, when: When) {
        if let Some(pool) = self.mirror(place) {
            if let When::InStreamOrder(stream) = when {
                // First: what is deferred in a stream that is not remembered is done.
                self.freed_in(stream, pool.last_freed_in());
                // Before nothing is in use of it any more.
                if self.any_doomed() && self.is_doomed_at(place) {
                    self.defer(stream, Freed::OfPool(place));
                }
            }
            pool.give(self.memory.threads.number(), size);
            self.mark_pool(pool);
        }
    }

    /// Every next free in stream order is remembered.
    pub fn forget_last_frees(self) {
        for known in self.pools() {
            known.pool.last_freed_in().store(0, Ordering::SeqCst);
        }
    }

    #[inline]
    pub fn mark_pool(self, pool: &Pool) {
        if pool.slack().load(Ordering::Relaxed) & FREED == 0 {
            pool.slack().fetch_or(FREED, Ordering::Release);
            self.memory
                .slack
                .fetch_or(u64::from(FREED), Ordering::Release);
        }
    }

    /// Marks every pool that is charged for anything.
    pub fn mark_pools(self) {
        for known in self.pools() {
            if known.pool.charged() != Bytes::ZERO {
                self.mark_pool(known.pool);
            }
        }
    }

    /// Reads the pools that were freed from, and only those.
    #[inline]
    pub fn after_synchronisation(self, code: CUresult) -> CUresult {
        poll();
        if code == CUresult::SUCCESS {
            if self.any_deferred() || self.any_doomed() {
                let buried = self.buried_pools();
                let _ = self.end_deferred_after(Waiter::Program);
                if self.buried_pools() != buried && !planted(Seed::R142) {
                    self.look_behind_pools();
                }
            }
            if self.memory.slack.load(Ordering::Relaxed) != 0 {
                self.read_marked();
            }
        }
        code
    }

    /// Destroyed pools are gone, and what they were charged hid what else this process holds, or what it holds no more: nobody else looks before it needs that.
    #[cold]
    fn look_behind_pools(self) {
        let devices = self.devices().into_iter().flat_map(Devices::iter);
        devices
            .filter(|device| self.memory.contexts.has_any(device.ordinal))
            .for_each(|device| _ = self.look_at(device));
    }

    /// Reads all pools of a device: any of them may have grown unseen.
    #[cold]
    pub fn read_pools_of(self, device: &Device) {
        let all = self.pools();
        let of_device = all.filter(|known| known.device.ordinal == device.ordinal);
        // What cannot be charged stays marked.
        of_device.for_each(|known| _ = self.read_pool(known, Occasion::Waited));
    }

    /// Reads all pools that are charged for anything: the driver may have trimmed any.
    #[cold]
    pub fn read_pools(self) {
        let _errno = KeptErrno::keep();
        let charged = self
            .pools()
            .filter(|known| known.pool.charged() != Bytes::ZERO);
        // What cannot be charged stays marked.
        charged.for_each(|known| _ = self.read_pool(known, Occasion::Trimmed));
    }

    /// Each pool's mark is taken under its lock: where another thread took it, what that one finds is charged when this one goes on.
    #[cold]
    fn read_marked(self) {
        for known in self.pools() {
            let pool = known.pool;
            if pool.slack().load(Ordering::SeqCst) == 0 && pool.charged() == Bytes::ZERO {
                continue;
            }
            let _change = self.change();
            let _held = pool.hold();
            if pool.slack().swap(0, Ordering::SeqCst) != 0 {
                // What cannot be charged stays marked by its next free; a refusal here has nobody to be told to.
                let _ = self.read_held(known, Occasion::Waited);
            }
        }
        // At the end, and what came meanwhile again: as long as a pool is read, whoever waits comes here.
        self.memory.slack.store(0, Ordering::SeqCst);
        let marks = |sum: u32, known: Known| sum | known.pool.slack().load(Ordering::SeqCst);
        let left = self.pools().fold(0, marks);
        self.memory
            .slack
            .fetch_or(u64::from(left), Ordering::SeqCst);
    }

    /// A request was answered that somebody who waited could not see the end of. The last of several reads the pool: nobody is kept
    /// waiting for the others.
    #[cold]
    pub fn read_owed(self, known: Known) {
        if known.pool.is_busy() {
            return;
        }
        if known.pool.slack().fetch_and(!OWED, Ordering::SeqCst) & OWED != 0 {
            // As after a wait.
            let _ = self.read_pool(known, Occasion::Waited);
        }
    }

    /// Gives back what our pools hold without need. Answers whether anything came back.
    pub fn trim_pools(self) -> bool {
        let mut freed = false;
        for known in self.pools() {
            let charged = known.pool.charged();
            if charged == Bytes::ZERO {
                continue;
            }
            self.trim_pool(known);
            freed |= known.pool.charged() < charged;
        }
        if freed {
            seeds::mark(seeds::Mark::Trimmed);
        }
        freed
    }

    /// The driver is asked under the pool's lock: a pool that another thread destroys may not be named to it.
    pub fn trim_pool(self, known: Known) {
        let _change = self.change();
        let held = known.pool.hold();
        let handle = self.handle_of_pool(known);
        let mut freed = 0;
        if let Some(handle) = handle {
            let _relaxed = Relaxed::begin(self);
            let _ = next::cuMemPoolTrimTo(handle, 0);
            // What it may have let go of is read now.
            freed = known.pool.slack().fetch_and(!FREED, Ordering::SeqCst) & FREED;
        }
        drop(held);
        // What cannot be charged stays marked; nobody is asking for anything here.
        if self.read_pool(known, Occasion::Trimmed).is_err() && freed != 0 {
            self.mark_pool(known.pool);
        }
    }

    /// What a device's pools are charged for that the driver may have let go of, as far as it is not known to have.
    pub fn let_go_of(self, device: &Device) -> LetGo {
        let of_device = self
            .pools()
            .filter(|known| known.device.ordinal == device.ordinal);
        let all = of_device.fold(LetGo::default(), |sum, known| {
            let slack = known.pool.slack().load(Ordering::SeqCst);
            // Of a surplus, too, whoever waits next may have the driver take back any.
            let bytes = match slack & (FREED | SURPLUS) {
                0 => Bytes::ZERO,
                _ => known.pool.charged().saturating_sub(known.pool.in_use()),
            };
            LetGo {
                bytes: sum.bytes.saturating_add(bytes),
                told: sum.told | (slack & FREED != 0 && !self.is_doomed(known)),
            }
        });
        let relieved = match planted(Seed::R141) {
            true => Bytes::ZERO,
            false => self.relieved_on(device),
        };
        LetGo {
            bytes: all.bytes.saturating_sub(relieved),
            ..all
        }
    }

    /// What a device's pools are charged for and the driver has given back: nobody has read them since. What [`Tenant::spares`] tells is none of it, nor what is
    /// charged for destroyed pools, of which nobody tells.
    pub fn given_back(self, device: &Device) -> Bytes {
        let of_device = self.pools().filter(|known| {
            known.device.ordinal == device.ordinal
                && known.pool.slack().load(Ordering::SeqCst) & (FREED | SURPLUS) != 0
                && known.pool.spare() == Bytes::ZERO
                && !known.pool.is_lendable()
                && !self.is_doomed(*known)
        });
        let given = of_device.map(|known| {
            let charged = known.pool.charged();
            let told = self.told_reserved(known);
            charged.saturating_sub(told.unwrap_or_else(|| known.pool.in_use()))
        });
        given.fold(Bytes::ZERO, Bytes::saturating_add)
    }

    /// A device's last context is gone. Pools that are empty then have no records.
    pub fn forget_pools(self, device: &Device) {
        let of_device = self
            .pools()
            .filter(|known| known.device.ordinal == device.ordinal);
        for known in of_device {
            let pool = known.pool;
            if self.is_doomed(known) {
                self.bury_pool(known);
                continue;
            }
            let _held = pool.hold();
            if pool.charged() == Bytes::ZERO || self.reserved(known) != Some(Bytes::ZERO) {
                continue;
            }
            self.memory
                .records
                .take_owned(owner_of(known.place), |_| {});
            pool.end_use();
            let _ = self.bring(known, Bytes::ZERO, Occasion::Ends);
        }
    }
}

/// The context of a stream that is not one of the current context's own.
pub fn context_of(stream: CUstream) -> Option<u64> {
    const PER_THREAD: usize = 2;
    let mut context = CUcontext::NULL;
    (stream.0 as usize > PER_THREAD
        && next::cuStreamGetCtx(stream, Out::to(&mut context)) == CUresult::SUCCESS)
        .then_some(context.0 as u64)
}
