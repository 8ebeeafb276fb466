//! What each live allocation was charged: tables without locks, keyed by address.
//!
//! Buckets of seven keys and a count of those that had to go further: a look-up of an unknown address ends at the first bucket that nothing overflowed.
//! What finds no place in [`REACH`] buckets is entered in a further table, as large as the first, and so on (C11 of `fixtures/defects.txt`).
//!
//! The first keys of each bucket have an owner each, a thread that alone enters there, and only what came from pools. Such a key
//! changes hands without a locked instruction: by its owner when it is free, else by whoever frees the address, which is one thread
//! unless a program frees it twice at once. Then a pool's mirror may be wrong by it, which the next reading of the pool makes good.

use core::sync::atomic::{AtomicU64, Ordering};

use budget::Bytes;

use crate::boundary::arena::Forever;

use seeds::{Seed, planted};

use crate::threads::Number;

const WAYS: usize = 7;
/// So many of them have an owner.
const OWNED: usize = 2;
/// Buckets in which a record may lie, its own the first.
const REACH: usize = 64;

const FREE: u64 = 0;
const BUSY: u64 = 1;

/// How an allocation was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By 2 MiB blocks.
    Blocks,
    /// By 2 MiB blocks, of which the device may have none.
    Managed,
    /// By its device's pool.
    Pool,
    /// Host memory, by the page tables that map it.
    PageLocked,
}

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub address: u64,
    pub size: Bytes,
    pub kind: Kind,
    pub ordinal: u32,
    /// The context that it dies with, 0 for none.
    pub owner: u64,
}

/// One allocation of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooled {
    pub address: u64,
    pub size: Bytes,
    /// The pool's place.
    pub pool: u32,
}

impl Pooled {
    pub fn record(self) -> Record {
        Record {
            address: self.address,
            size: self.size,
            kind: Kind::Pool,
            ordinal: self.pool,
            owner: owner_of(self.pool),
        }
    }
}

/// Records of a pool die with it; no context has so small a handle.
pub fn owner_of(pool: u32) -> u64 {
    u64::from(pool) + 1
}

/// A table with room for nearly five times as many allocations, and for those of two threads that come from pools seven times. All zeros is
/// an empty one.
#[repr(C)]
pub struct Records<const BUCKETS: usize> {
    buckets: [Bucket; BUCKETS],
    /// What has no place here.
    further: Forever<Records<BUCKETS>>,
}

/// Keys and values on one page.
#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    overflowed: AtomicU64,
    values: [Value; WAYS],
}

#[repr(C)]
struct Value {
    size: AtomicU64,
    meta: AtomicU64,
    owner: AtomicU64,
}

impl Value {
    #[inline(always)]
    fn store(&self, record: Record) {
        let meta = u64::from(record.ordinal) << 2 | record.kind as u64;
        self.size.store(record.size.0, Ordering::Relaxed);
        self.meta.store(meta, Ordering::Relaxed);
        self.owner.store(record.owner, Ordering::Relaxed);
    }
}

impl<const BUCKETS: usize> Records<BUCKETS> {
    const REACHED: usize = if BUCKETS < REACH { BUCKETS } else { REACH };

    /// False if there is no memory for a further table, or the address cannot be one of a device.
    #[must_use]
    pub fn insert(&self, record: Record) -> bool {
        if record.address <= BUSY {
            return false;
        }
        let start = Self::bucket_of(record.address);
        for distance in 0..Self::REACHED {
            let at = (start + distance) % BUCKETS;
            let bucket = &self.buckets[at];
            for (key, value) in bucket.keys.iter().zip(&bucket.values).skip(OWNED) {
                if key.load(Ordering::Relaxed) == FREE
                    && key
                        .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    value.store(record);
                    key.store(record.address, Ordering::Release);
                    return true;
                }
            }
            self.buckets[at].overflowed.fetch_add(1, Ordering::AcqRel);
        }
        let entered = !planted(Seed::C11) && self.enter_further(record);
        if !entered {
            self.settle_overflow(start, Self::REACHED);
        }
        entered
    }

    #[cold]
    fn enter_further(&self, record: Record) -> bool {
        self.further
            .get_or_zeroed()
            .is_some_and(|further| further.insert(record))
    }

    /// As `insert`, of what came from a pool, where the thread of that number alone enters. False if there is no place: it goes among others.
    #[must_use]
    #[inline(always)]
    pub fn insert_first(&self, thread: Number, pooled: Pooled) -> bool {
        if let Some(way) = thread.of(OWNED)
            && pooled.address > BUSY
        {
            let bucket = &self.buckets[Self::bucket_of(pooled.address)];
            let key = &bucket.keys[way];
            if key.load(Ordering::Acquire) == FREE {
                bucket.values[way].store(pooled.record());
                key.store(pooled.address, Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Takes the record of exactly this address out if it is where its owner enters it first.
    #[inline(always)]
    pub fn take_pooled(&self, address: u64) -> Option<Pooled> {
        let bucket = &self.buckets[Self::bucket_of(address)];
        let way = (0..OWNED).find(|way| bucket.keys[*way].load(Ordering::Acquire) == address)?;
        let value = &bucket.values[way];
        let pooled = Pooled {
            address,
            size: Bytes(value.size.load(Ordering::Relaxed)),
            pool: (value.meta.load(Ordering::Relaxed) >> 2) as u32,
        };
        (address > BUSY).then(|| {
            bucket.keys[way].store(FREE, Ordering::Release);
            pooled
        })
    }

    /// Takes the record of exactly this address out.
    pub fn take(&self, address: u64) -> Option<Record> {
        if address <= BUSY {
            return None;
        }
        let start = Self::bucket_of(address);
        for distance in 0..Self::REACHED {
            let at = (start + distance) % BUCKETS;
            for way in 0..WAYS {
                if self.buckets[at].keys[way].load(Ordering::Acquire) == address
                    && let Some(record) = self.take_live(at, way, address)
                {
                    self.settle_overflow(start, distance);
                    return Some(record);
                }
            }
            if self.buckets[at].overflowed.load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        let record = self.further.get()?.take(address)?;
        self.settle_overflow(start, Self::REACHED);
        Some(record)
    }

    /// The record of exactly this address, for who knows that nobody frees it meanwhile.
    pub fn find(&self, address: u64) -> Option<Record> {
        if address <= BUSY {
            return None;
        }
        let start = Self::bucket_of(address);
        for distance in 0..Self::REACHED {
            let at = (start + distance) % BUCKETS;
            let keys = &self.buckets[at].keys;
            let way = (0..WAYS).find(|way| keys[*way].load(Ordering::Acquire) == address);
            if let Some(way) = way {
                return Some(self.read_at(at, way, address));
            }
            if self.buckets[at].overflowed.load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        self.further.get()?.find(address)
    }

    /// The record of an allocation that an address lies in, by a walk over all: for calls that are few.
    pub fn around(&self, address: u64) -> Option<Record> {
        let within = |record: &Record| address.wrapping_sub(record.address) < record.size.0;
        let of_bucket = |(at, bucket): (usize, &Bucket)| {
            bucket.keys.iter().enumerate().find_map(|(way, key)| {
                let key = key.load(Ordering::Acquire);
                let record = (key > BUSY && key <= address).then(|| self.read_at(at, way, key));
                record.filter(within)
            })
        };
        let here = self.buckets.iter().enumerate().find_map(of_bucket);
        here.or_else(|| self.further.get()?.around(address))
    }

    /// Takes every record of one owner out.
    pub fn take_owned(&self, owner: u64, mut each: impl FnMut(Record)) {
        self.take_all_owned(owner, &mut each);
    }

    fn take_all_owned(&self, owner: u64, each: &mut dyn FnMut(Record)) {
        if let Some(further) = self.further.get() {
            further.take_all_owned(owner, &mut |record| {
                self.settle_overflow(Self::bucket_of(record.address), Self::REACHED);
                each(record);
            });
        }
        for at in 0..BUCKETS {
            for way in 0..WAYS {
                let address = self.buckets[at].keys[way].load(Ordering::Acquire);
                if address > BUSY
                    && self.buckets[at].values[way].owner.load(Ordering::Relaxed) == owner
                    && let Some(record) = self.take_at(at, way, address)
                {
                    let start = Self::bucket_of(address);
                    self.settle_overflow(start, (at + BUCKETS - start) % BUCKETS);
                    if record.owner == owner {
                        each(record);
                    } else if !self.insert(record) {
                        // Its place was taken meanwhile by others: it stays charged until the process ends.
                    }
                }
            }
        }
    }

    /// For who owns the address: it cannot come back under another record meanwhile, unless a program frees
    /// one address twice at once, so that the values can be read before the key is given up.
    #[inline]
    fn take_live(&self, at: usize, way: usize, address: u64) -> Option<Record> {
        let record = self.read_at(at, way, address);
        let key = &self.buckets[at].keys[way];
        if way < OWNED {
            key.store(FREE, Ordering::Release);
        } else {
            key.compare_exchange(address, FREE, Ordering::AcqRel, Ordering::Relaxed)
                .ok()?;
        }
        Some(record)
    }

    /// For who merely passes by: the place is held while its values are read.
    fn take_at(&self, at: usize, way: usize, address: u64) -> Option<Record> {
        let key = &self.buckets[at].keys[way];
        key.compare_exchange(address, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let record = self.read_at(at, way, address);
        key.store(FREE, Ordering::Release);
        Some(record)
    }

    #[inline]
    fn read_at(&self, at: usize, way: usize, address: u64) -> Record {
        let value = &self.buckets[at].values[way];
        let meta = value.meta.load(Ordering::Relaxed);
        Record {
            address,
            size: Bytes(value.size.load(Ordering::Relaxed)),
            kind: match meta & 3 {
                0 => Kind::Blocks,
                1 => Kind::Managed,
                2 => Kind::Pool,
                _ => Kind::PageLocked,
            },
            ordinal: (meta >> 2) as u32,
            owner: value.owner.load(Ordering::Relaxed),
        }
    }

    /// A record that lay `distance` buckets from its own is gone.
    #[inline]
    fn settle_overflow(&self, start: usize, distance: usize) {
        for passed in 0..distance {
            self.buckets[(start + passed) % BUCKETS]
                .overflowed
                .fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn bucket_of(address: u64) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % BUCKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::FIRST;

    impl Records<512> {
        fn insert_pooled(&self, thread: Number, pooled: Pooled) -> bool {
            self.insert_first(thread, pooled) || self.insert(pooled.record())
        }
    }

    fn table() -> Box<Records<512>> {
        Box::new(Records {
            buckets: [const {
                Bucket {
                    keys: [const { AtomicU64::new(0) }; WAYS],
                    overflowed: AtomicU64::new(0),
                    values: [const {
                        Value {
                            size: AtomicU64::new(0),
                            meta: AtomicU64::new(0),
                            owner: AtomicU64::new(0),
                        }
                    }; WAYS],
                }
            }; 512],
            further: Forever::none(),
        })
    }

    #[test]
    fn what_a_full_table_has_no_room_for_lies_in_the_next() {
        let table = table();
        let most = 3 * 512 * WAYS as u64;
        for count in 1..=most {
            assert!(table.insert(record(count * 512)));
        }
        let next = table.further.get().expect("a further table");
        assert!(next.further.get().is_some());
        for count in 1..=most {
            let address = count * 512;
            assert_eq!(table.find(address), Some(record(address)));
            if count % 2 == 0 {
                assert_eq!(table.take(address), Some(record(address)));
                assert_eq!(table.take(address), None);
            }
        }
        let mut taken = 0;
        for owner in 0..5 {
            table.take_owned(owner, |record| {
                assert_eq!(record.address / 512 % 2, 1);
                taken += 1;
            });
        }
        assert_eq!(taken, most.div_ceil(2));
        let tables = core::iter::successors(Some(&*table), |table| table.further.get());
        assert!(
            tables
                .flat_map(|table| &table.buckets)
                .all(|bucket| bucket.overflowed.load(Ordering::Relaxed) == 0)
        );
    }

    fn record(address: u64) -> Record {
        Record {
            address,
            size: Bytes(address / 2),
            kind: Kind::Pool,
            ordinal: 3,
            owner: address % 5,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_went_in_and_once() {
        let table = table();
        assert!(table.insert(record(0x7000)));
        assert_eq!(table.take(0x7200), None);
        assert_eq!(table.take(0x7000), Some(record(0x7000)));
        assert_eq!(table.take(0x7000), None);
        assert!(!table.insert(record(0)));
    }

    #[test]
    fn an_owner_takes_its_records_along_and_no_others() {
        let table = table();
        for address in (1..=2_000).map(|count| count * 512) {
            assert!(table.insert(record(address)));
        }
        let mut taken = 0;
        table.take_owned(2, |record| {
            assert_eq!(record.address % 5, 2);
            taken += 1;
        });
        assert_eq!(taken, 400);
        let left = (1..=2_000)
            .filter(|count| table.take(count * 512).is_some())
            .count();
        assert_eq!(left, 1_600);
        assert!(
            table
                .buckets
                .iter()
                .all(|bucket| bucket.overflowed.load(Ordering::Relaxed) == 0)
        );
    }

    fn pooled(address: u64) -> Pooled {
        Pooled {
            address,
            size: Bytes(address / 2),
            pool: 3,
        }
    }

    #[test]
    fn what_one_thread_enters_alone_is_found_and_the_next_of_its_bucket_lies_among_others() {
        let table = table();
        let first = pooled(512);
        let same =
            |address: &u64| Records::<512>::bucket_of(*address) == Records::<512>::bucket_of(512);
        let second = (2..).map(|count| count * 512).find(same).map(pooled);
        let second = second.expect("the hash comes back");
        assert!(table.insert_pooled(FIRST, first) && table.insert_pooled(FIRST, second));
        assert_eq!(table.find(first.address), Some(first.record()));
        assert_eq!(table.take_pooled(second.address), None);
        assert_eq!(table.take(second.address), Some(second.record()));
        assert_eq!(table.take_pooled(first.address), Some(first));
        assert_eq!(table.take_pooled(first.address), None);
        assert_eq!(table.take(first.address), None);
        assert_eq!((table.take_pooled(0), table.take_pooled(1)), (None, None));
        assert!(table.insert_pooled(FIRST, first));
        assert_eq!(table.take(first.address), Some(first.record()));
    }

    #[test]
    fn an_owner_of_pools_takes_along_what_one_thread_entered() {
        let table = table();
        assert!(table.insert_pooled(FIRST, pooled(512)));
        let mut taken = Vec::new();
        table.take_owned(owner_of(3), |record| taken.push(record));
        assert_eq!(taken, [pooled(512).record()]);
        assert_eq!(table.take(512), None);
    }

    /// One enters, another takes out, and the addresses come back.
    #[test]
    fn what_one_thread_enters_another_takes_out_whole() {
        let table = table();
        let (entered, taken) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        for count in 1..=64_u64 {
            taken.0.send(count * 512).unwrap();
        }
        std::thread::scope(|scope| {
            let table = &table;
            scope.spawn(move || {
                for size in 1..20_000 {
                    let address = taken.1.recv().unwrap();
                    let pooled = Pooled {
                        size: Bytes(size),
                        ..pooled(address)
                    };
                    assert!(table.insert_pooled(FIRST, pooled));
                    entered.0.send(pooled).unwrap();
                }
            });
            scope.spawn(move || {
                for pooled in entered.1 {
                    let found = table.take_pooled(pooled.address).map(Pooled::record);
                    let found = found.or_else(|| table.take(pooled.address));
                    assert_eq!(found, Some(pooled.record()));
                    // The other thread ends first.
                    let _ = taken.0.send(pooled.address);
                }
            });
        });
    }

    #[test]
    fn threads_lose_nothing() {
        let table = table();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    for count in 1..20_000_u64 {
                        let address = (count % 257 * 4 + thread) * 512 + (1 << 30);
                        assert!(table.insert(record(address)));
                        assert_eq!(table.take(address), Some(record(address)));
                    }
                });
            }
        });
    }
}
