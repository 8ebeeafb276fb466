//! How a slot's word and a device's budget are packed into 64 bits each, and the arithmetic on them.
//!
//! A slot's word holds what the process has charged, and how much of that is a lease: granted already, not in use yet. Both in one
//! word, so that taking from the lease, giving back to it and stealing it are each one compare-and-swap. Every value is possible
//! here, since the words lie in memory that other processes write: nothing in this file panics or overflows.

/// Leases are counted in these units; amounts in use are exact bytes.
pub const LEASE_UNIT: u64 = 4096;
/// What a slot may hold back as its lease, on one device.
pub const LEASE_MOST: u64 = 64 << 20;
/// The largest amount one slot, or one budget, can name: 4 TiB less the value that means "no budget".
pub const MOST: u64 = UNLIMITED - 1;

const CHARGED_BITS: u32 = 42;
const LEASED_BITS: u32 = 16;
const UNLIMITED: u64 = (1 << CHARGED_BITS) - 1;
const EPOCH_MASK: u64 = 63;

/// A slot's share of one device: bytes charged, units leased of them, and the budget's epoch under which the lease was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    fn pack(charged: u64, leased: u64, epoch: u64) -> Word {
        let units = (leased / LEASE_UNIT) & ((1 << LEASED_BITS) - 1);
        let epoch = (epoch & EPOCH_MASK) << (CHARGED_BITS + LEASED_BITS);
        Word((charged & UNLIMITED) | (units << CHARGED_BITS) | epoch)
    }

    /// Everything that counts against the budget.
    pub fn charged(self) -> u64 {
        self.0 & UNLIMITED
    }

    /// The part of it that is not in use.
    pub fn leased(self) -> u64 {
        let units = (self.0 >> CHARGED_BITS) & ((1 << LEASED_BITS) - 1);
        (units * LEASE_UNIT).min(self.charged())
    }

    /// The part of it that is in use.
    pub fn used(self) -> u64 {
        self.charged() - self.leased()
    }

    fn epoch(self) -> u64 {
        self.0 >> (CHARGED_BITS + LEASED_BITS)
    }

    /// `bytes` out of the lease, where it covers them and was verified under the present budget.
    pub fn take(self, bytes: u64, budget: Budget) -> Option<Word> {
        let rest = self.leased().checked_sub(bytes)?;
        if self.epoch() != budget.epoch() & EPOCH_MASK {
            return None;
        }
        // What is left of the last unit leaves the charge: less than granted is always right.
        let leased = rest - rest % LEASE_UNIT;
        Some(Word::pack(
            self.charged() - (rest - leased),
            leased,
            self.epoch(),
        ))
    }

    /// `bytes` put to use and `lease` put by, as verified under `budget`. `None` where the word cannot name the sum.
    pub fn charge(self, bytes: u64, lease: u64, budget: Budget) -> Option<Word> {
        let kept = if self.epoch() == budget.epoch() & EPOCH_MASK {
            self
        } else {
            self.without_lease()
        };
        let lease = lease.min(LEASE_MOST.saturating_sub(kept.leased()));
        let lease = lease - lease % LEASE_UNIT;
        let charged = kept.charged().checked_add(bytes)?.checked_add(lease)?;
        (charged <= MOST).then(|| Word::pack(charged, kept.leased() + lease, budget.epoch()))
    }

    /// `bytes` put to use that nobody was asked for: what is verified stays what it was. `None` where the word cannot name the sum.
    pub fn overdrawn(self, bytes: u64) -> Option<Word> {
        let charged = self.charged().checked_add(bytes)?;
        (charged <= MOST).then(|| Word::pack(charged, self.leased(), self.epoch()))
    }

    /// `bytes` out of use: kept as a lease while the lease is small and the budget the one it was verified under.
    pub fn give_back(self, bytes: u64, budget: Budget) -> Word {
        let bytes = bytes.min(self.used());
        let kept = bytes - bytes % LEASE_UNIT;
        let leased = self.leased() + kept;
        if budget.limit().is_some()
            && self.epoch() == budget.epoch() & EPOCH_MASK
            && leased <= LEASE_MOST
        {
            Word::pack(self.charged() - (bytes - kept), leased, self.epoch())
        } else {
            Word::pack(self.charged() - bytes, self.leased(), self.epoch())
        }
    }

    /// The word without a lease, and with what is given back kept as none before the next request was verified.
    pub fn unverified(self, budget: Budget) -> Word {
        Word::pack(self.used(), 0, budget.epoch().wrapping_sub(1) & EPOCH_MASK)
    }

    /// Of a dead owner's word, no more than so much.
    pub fn at_most(self, bytes: u64) -> Word {
        Word::pack(self.used().min(bytes), 0, self.epoch())
    }

    /// The word once its lease is revoked.
    pub fn without_lease(self) -> Word {
        Word::pack(self.used(), 0, self.epoch())
    }
}

/// A device's budget, and how often it was lowered or exceeded: leases of an older epoch are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u64);

impl Budget {
    /// The first budget of a new ledger.
    pub fn first(limit: Option<u64>) -> Budget {
        Budget(limit.map_or(UNLIMITED, |bytes| bytes.min(MOST)))
    }

    pub fn limit(self) -> Option<u64> {
        let bytes = self.0 & UNLIMITED;
        (bytes != UNLIMITED).then_some(bytes)
    }

    pub fn epoch(self) -> u64 {
        self.0 >> CHARGED_BITS
    }

    /// The budget in a new epoch.
    pub fn exceeded(self) -> Budget {
        Budget(self.0 & UNLIMITED | (self.epoch() + 1) << CHARGED_BITS)
    }

    /// The budget after a change. A lowered one begins an epoch.
    pub fn changed_to(self, limit: Option<u64>) -> Budget {
        let next = Budget::first(limit).0;
        let epoch = if next < self.0 & UNLIMITED {
            self.epoch() + 1
        } else {
            self.epoch()
        };
        Budget(next | (epoch << CHARGED_BITS))
    }
}
