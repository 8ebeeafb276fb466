//! The reference: what a tenant holds of one device, by what it asked for and was given. Written from docs/concepts/charging.md, the model of what a
//! device loses, not from the enforcer's code, of which it shares none.
//!
//! It keeps three figures of what is held beside the structures that were there before:
//!
//! * [`Account::least`]: what the device has lost at least.
//! * [`Account::needed`]: what may be charged at most once a refusal is at stake, when pools have given back what they need not hold.
//! * [`Account::most`]: what may be charged at most at any time.

use std::collections::{BTreeMap, BTreeSet};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// cuMemAlloc takes these.
pub const BLOCK: u64 = 2 * MIB;
/// A pool takes these.
pub const STEP: u64 = 32 * MIB;
/// vkAllocateMemory takes these.
pub const PAGE: u64 = 64 * KIB;
/// Most that a context takes: its bound before it is measured.
pub const CONTEXT: u64 = 640 * MIB;
/// What is not known more closely: a context beside others is charged by its row and 16 MiB, what is taken unasked in between too.
pub const SLACK: u64 = 17 * MIB;

/// Up to whole `unit`s; saturating, which no device can hold.
pub fn up(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

/// A stream-ordered pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Where its addresses begin: the first that it ever gave.
    base: Option<u64>,
    /// How much lives in each step.
    steps: BTreeMap<u64, u32>,
    /// Steps that it may still keep, though nothing lives there.
    kept: BTreeSet<u64>,
    /// A request that is smaller than a block came since somebody waited for an empty pool: it is charged a step beyond what it holds.
    small: bool,
    /// Destroyed: the driver no longer tells what it holds, so that all of it stays charged until its last memory is freed and waited for.
    doomed: bool,
}

impl Pool {
    fn spanned(&self, address: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        let base = self.base.unwrap_or(address);
        let offset = address.wrapping_sub(base);
        offset / STEP..=(offset + bytes - 1) / STEP
    }

    pub fn enter(&mut self, address: u64, bytes: u64) {
        self.base.get_or_insert(address);
        self.small |= bytes < BLOCK;
        for step in self.spanned(address, bytes) {
            *self.steps.entry(step).or_insert(0) += 1;
            self.kept.remove(&step);
        }
    }

    pub fn leave(&mut self, address: u64, bytes: u64) {
        for step in self.spanned(address, bytes) {
            if let Some(live) = self.steps.get_mut(&step) {
                *live -= 1;
                if *live == 0 {
                    self.steps.remove(&step);
                    self.kept.insert(step);
                }
            }
        }
    }

    pub fn doom(&mut self) {
        self.doomed = true;
        self.small = false;
    }

    /// The step that it is charged for, beyond what it holds.
    fn spare(&self) -> u64 {
        if self.small { STEP } else { 0 }
    }

    fn settle(&mut self) {
        if !self.doomed || self.steps.is_empty() {
            self.kept.clear();
        }
        self.small &= !self.steps.is_empty();
    }

    fn keeps(&self) -> u64 {
        self.kept.len() as u64 * STEP
    }

    /// What no trim brings back.
    fn stuck(&self) -> u64 {
        if self.doomed { self.keeps() } else { 0 }
    }

    pub fn living(&self) -> u64 {
        self.steps.len() as u64 * STEP
    }
}

/// What the tenant holds of one device.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub budget: u64,
    /// Before the sequence: what the device had lost, and what was charged.
    pub lost_before: u64,
    pub charged_before: u64,
    /// cuMemAlloc's blocks, by how much lies in each.
    blocks: BTreeMap<u64, u32>,
    /// Of cuMemCreate and vkAllocateMemory.
    exact: u64,
    managed: u64,
    large_arrays: u64,
    small_arrays: u64,
    small_arrays_ever: u64,
    streams_ever: u64,
    streams: u64,
    pub contexts: u64,
    /// Freed in a stream's order without being of a pool: held until the stream comes to it, charged until somebody waited.
    lingering: u64,
    /// A stream or a context ended in whose order something may have been freed, of which the program alone could have told when it
    /// was waited for: what pools keep is no longer known to come back before the device's last context is gone.
    order_lost: bool,
    /// The default pool, and those that were created.
    pub pools: BTreeMap<u64, Pool>,
}

impl Account {
    /// Of a device with nothing on it but what was there before.
    pub fn begin(budget: u64, (lost_before, charged_before): (u64, u64)) -> Self {
        Self {
            budget,
            lost_before,
            charged_before,
            ..Self::default()
        }
    }

    pub fn enter_blocks(&mut self, address: u64, bytes: u64) {
        for block in address / BLOCK..=(address + bytes - 1) / BLOCK {
            *self.blocks.entry(block).or_insert(0) += 1;
        }
    }

    /// Blocks that nothing lies in any more.
    pub fn leave_blocks(&mut self, address: u64, bytes: u64) -> u64 {
        let before = self.of_blocks();
        for block in address / BLOCK..=(address + bytes - 1) / BLOCK {
            if let Some(live) = self.blocks.get_mut(&block) {
                *live -= 1;
                if *live == 0 {
                    self.blocks.remove(&block);
                }
            }
        }
        before - self.of_blocks()
    }

    pub fn linger(&mut self, bytes: u64) {
        self.lingering += bytes;
    }

    /// A stream or a context of the device ended.
    pub fn lose_order(&mut self) {
        self.order_lost = true;
    }

    fn kept(&self) -> u64 {
        self.pools.values().map(Pool::keeps).sum()
    }

    /// All contexts of the device were waited for.
    pub fn settle(&mut self) {
        self.lingering = 0;
        if !self.order_lost {
            self.pools.values_mut().for_each(Pool::settle);
        }
    }

    pub fn enter_exact(&mut self, bytes: u64) {
        self.exact += bytes;
    }

    pub fn leave_exact(&mut self, bytes: u64) {
        self.exact -= bytes;
    }

    pub fn enter_managed(&mut self, bytes: u64) {
        self.managed += up(bytes, BLOCK);
    }

    pub fn leave_managed(&mut self, bytes: u64) {
        self.managed -= up(bytes, BLOCK);
    }

    pub fn enter_array(&mut self, bytes: u64) {
        match bytes < BLOCK {
            true => self.small_arrays += bytes,
            false => self.large_arrays += up(bytes, BLOCK),
        }
        self.small_arrays_ever = self.small_arrays_ever.max(self.small_arrays);
    }

    pub fn leave_array(&mut self, bytes: u64) {
        match bytes < BLOCK {
            true => self.small_arrays -= bytes,
            false => self.large_arrays -= up(bytes, BLOCK),
        }
    }

    pub fn enter_stream(&mut self) {
        self.streams += 1;
        self.streams_ever = self.streams_ever.max(self.streams);
    }

    pub fn leave_stream(&mut self) {
        self.streams -= 1;
    }

    fn of_blocks(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    fn living_pools(&self) -> u64 {
        self.pools.values().map(Pool::living).sum()
    }

    /// Nobody but the program can have the driver give back what was freed: a stream or a context ended, or a wait by the enforcer would find more
    /// than one destroyed pool to give back, or one in which something lives, which a card's driver does not outlive.
    fn waits_for_program(&self) -> bool {
        let pending =
            |pool: &&Pool| pool.doomed && (!pool.steps.is_empty() || !pool.kept.is_empty());
        let mut pending = self.pools.values().filter(pending);
        let first = pending.next();
        self.order_lost
            || first.is_some_and(|pool| !pool.steps.is_empty())
            || pending.next().is_some()
    }

    /// Of pools that are in use, or of those that are not.
    fn spares(&self, in_use: bool) -> u64 {
        let waits = self.waits_for_program();
        let meant = |pool: &&Pool| (waits || !pool.steps.is_empty()) == in_use;
        self.pools.values().filter(meant).map(Pool::spare).sum()
    }

    /// What structures may have come to.
    fn structures(&self) -> u64 {
        let arrays = match self.small_arrays_ever {
            0 => 0,
            ever => up(2 * ever, BLOCK) + BLOCK,
        };
        let streams = match self.streams_ever {
            0 => 0,
            ever => up(ever * 560 * KIB, BLOCK) + BLOCK,
        };
        arrays + streams + self.contexts * CONTEXT
    }

    pub fn least(&self) -> u64 {
        self.of_blocks() + self.exact + self.large_arrays + self.living_pools()
    }

    pub fn needed(&self) -> u64 {
        let stuck: u64 = match self.waits_for_program() {
            true => self.kept(),
            false => self.pools.values().map(Pool::stuck).sum(),
        };
        self.least() + self.managed + self.lingering + self.structures() + stuck + self.spares(true)
    }

    pub fn most(&self) -> u64 {
        self.needed() + self.kept() + self.spares(false)
    }

    /// Whether a request that costs `most` may be refused.
    pub fn may_refuse(&self, most: u64) -> bool {
        let held = self.charged_before + self.needed() + SLACK;
        held.saturating_add(most) > self.budget
    }

    /// The same by who cannot have CUDA's pools give back what they do not need: Vulkan.
    pub fn may_refuse_beside_pools(&self, most: u64) -> bool {
        let held = self.charged_before + self.most() + SLACK;
        held.saturating_add(most) > self.budget
    }

    /// What must fit, whatever rounding is yet to come: whole blocks.
    pub fn must_fit(&self) -> u64 {
        let held = self.charged_before + self.needed() + SLACK;
        self.budget.saturating_sub(held) / BLOCK * BLOCK
    }

    /// What cannot fit.
    pub fn cannot_fit(&self) -> u64 {
        let held = self.lost_before + self.least();
        up(self.budget.saturating_sub(held) + 1, BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_of_one_block_hold_it_until_the_last_is_gone() {
        let mut account = Account::default();
        account.enter_blocks(BLOCK, 512);
        account.enter_blocks(BLOCK + 512, 512);
        assert_eq!(account.least(), BLOCK);
        account.leave_blocks(BLOCK, 512);
        assert_eq!(account.least(), BLOCK);
        account.leave_blocks(BLOCK + 512, 512);
        assert_eq!(account.most(), 0);
    }

    #[test]
    fn what_a_pool_keeps_counts_until_somebody_waited() {
        let mut account = Account::default();
        let pool = account.pools.entry(0).or_default();
        pool.enter(7 << 21, STEP + 1);
        pool.leave(7 << 21, STEP + 1);
        assert_eq!((account.needed(), account.most()), (0, 2 * STEP));
        account.settle();
        assert_eq!(account.most(), 0);
    }

    #[test]
    fn what_cannot_fit_is_refused_and_what_must_is_not() {
        let account = Account {
            budget: 1 << 30,
            lost_before: 500 * MIB,
            charged_before: 510 * MIB,
            ..Account::default()
        };
        assert!(account.may_refuse(account.cannot_fit()));
        assert!(!account.may_refuse(account.must_fit()));
    }
}
