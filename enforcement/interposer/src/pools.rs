//! Which pools there are: each device's default one, and those that the program made.
//!
//! A pool is known by its place in a fixed table: the default pools by their device's ordinal, the program's behind them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::cuda::{CUdevice, CUmemoryPool, CUresult, pool_attribute};
use budget::{Bytes, charge};
use seeds::{Seed, planted};

use crate::boundary::arena::{Held, Lock};
use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::devices::Device;
use crate::grant::Grant;
use crate::mirror::{Occasion, Pool};
use crate::outcome::Refused;
use crate::process::{ORDINALS, Tenant};

/// Pools that a process can have at a time: several times what a driver allows (466 on an H200 under 580.159.04, whose addresses end there), and
/// those that are destroyed and not given back. Memory is taken for those alone that there were.
const ROOM: usize = 1 << 13;

/// All zeros is no pool but the default ones, unused.
#[repr(C)]
pub struct Pools {
    /// By ordinal: the place of the pool that plain requests come from; 0 is the default one.
    current: [AtomicU32; ORDINALS],
    pools: [Pool; ROOM],
    seats: [Seat; ROOM],
    /// Held while a place is taken or vacated.
    seating: Lock,
    /// Held while the driver is told another current pool or destroys a current one, and by requests that met too many such.
    changing: Lock,
    /// Held while the driver destroys a pool, which is `leaving`, by its handle: whoever names that waits.
    destroying: Lock,
    leaving: AtomicU64,
    /// Odd while it is; each time has another number.
    era: AtomicU64,
    /// Places of the program's own pools lie below.
    high: AtomicU32,
    /// How many are destroyed with allocations that live on.
    doomed: AtomicU32,
    /// Held while less is charged for those of which nothing is in use, or one of them is buried.
    relieving: Lock,
    /// How many of them were.
    buried: AtomicU64,
    /// By ordinal: how much less is charged for a device's than for each of them, since the driver's row says that it has given back so much, and nobody which.
    relieved: [AtomicU64; ORDINALS],
    /// By ordinal: the default pool's handle as the driver told it last, to know it by when the driver does not tell.
    defaults: [AtomicU64; ORDINALS],
    /// By ordinal: not 0 where what a device keeps for managed memory is charged.
    managed: [AtomicU32; ORDINALS],
}

#[repr(C)]
struct Seat {
    /// 0 where nobody sits, [`DOOMED`] once the driver may no longer be asked.
    handle: AtomicU64,
    /// For good, as is the kind: who knows a pool by its place while that changes hands is of the right device still.
    ordinal: AtomicU32,
    /// 0 where nobody ever sat, [`PLAIN`] or [`OF_MANAGED`].
    kind: AtomicU32,
    /// Once it is destroyed: the number of the last deferred free that may be of it, its own later ones beside.
    owed: AtomicU64,
}

/// Destroyed, with allocations that live on. No pool has so small a handle.
const DOOMED: u64 = 1;

/// Kinds of pools.
const PLAIN: u32 = 1;
const OF_MANAGED: u32 = 2;

/// While it lives, another pool may become current, or one end.
pub struct Changing {
    pools: &'static Pools,
    _held: Held<'static>,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.pools.era.fetch_add(1, Ordering::SeqCst);
    }
}

/// A pool is being destroyed, until dropped.
#[must_use]
pub struct Leaving {
    pools: &'static Pools,
    /// Nobody else's call waits for it where plain requests do not come from that pool.
    _changing: Option<Changing>,
    /// Let go of last.
    _held: Held<'static>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.pools.leaving.store(0, Ordering::Release);
    }
}

/// Destroyed pools of a device of which nothing is in use are charged for something: when so many such had been buried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused {
    buried: u64,
}

/// A pool and its place.
#[derive(Clone, Copy)]
pub struct Known {
    pub place: u32,
    pub pool: &'static Pool,
    pub device: &'static Device,
}

impl Tenant {
    /// Begins a change of which pool plain requests come from, or of which there are.
    pub fn change_pools(self) -> Changing {
        let pools = &self.memory.pools;
        let held = pools.changing.hold();
        pools.era.fetch_add(1, Ordering::SeqCst);
        Changing { pools, _held: held }
    }

    /// A pool is about to be destroyed: `end` takes it off the books.
    pub fn begin_to_destroy<T>(
        self,
        known: Known,
        handle: CUmemoryPool,
        end: impl FnOnce() -> T,
    ) -> (Leaving, T) {
        let pools = &self.memory.pools;
        let held = pools.destroying.hold();
        let changing = self.change_pools();
        // Before its handle is nobody's. Who keeps the pools from changing waits for none that waits for that.
        pools.leaving.store(handle.0 as u64, Ordering::Release);
        let ended = end();
        let current = pools.current[known.device.ordinal as usize].load(Ordering::Acquire);
        let leaving = Leaving {
            pools,
            _changing: (current == known.place).then_some(changing),
            _held: held,
        };
        (leaving, ended)
    }

    /// Keeps them from changing.
    pub fn hold_pools(self) -> Held<'static> {
        self.memory.pools.changing.hold()
    }

    /// By which number it is known later whether they have changed since.
    #[inline(always)]
    pub fn era_of_pools(self) -> u64 {
        let pools = &self.memory.pools;
        let era = pools.era.load(Ordering::SeqCst);
        if era.is_multiple_of(2) {
            return era;
        }
        self.next_era()
    }

    #[cold]
    fn next_era(self) -> u64 {
        let _held = self.hold_pools();
        self.memory.pools.era.load(Ordering::SeqCst)
    }

    /// Whether they have, or do.
    #[inline(always)]
    pub fn have_pools_changed(self, since: u64) -> bool {
        self.memory.pools.era.load(Ordering::SeqCst) != since && !planted(Seed::R90)
    }

    /// The pool at a place.
    pub fn pool_at(self, place: u32) -> Option<Known> {
        let pools = &self.memory.pools;
        let pool = pools.pools.get(place as usize)?;
        let ordinal = if (place as usize) < ORDINALS {
            place
        } else {
            pools.seats[place as usize].ordinal.load(Ordering::Acquire)
        };
        let device = self.device(ordinal)?;
        Some(Known {
            place,
            pool,
            device,
        })
    }

    /// The pool that a device's plain requests come from. Its ordinal beside it: where there is but one, it need not be looked up.
    #[inline(always)]
    pub fn current_pool(self, ordinal: u32, device: &'static Device) -> Option<Known> {
        let pools = &self.memory.pools;
        let place = match pools.current.get(ordinal as usize)?.load(Ordering::Acquire) {
            0 => ordinal,
            own => own,
        };
        let pool = pools.pools.get(place as usize)?;
        Some(Known {
            place,
            pool,
            device,
        })
    }

    /// What is known of a pool without its device.
    #[inline]
    pub fn mirror(self, place: u32) -> Option<&'static Pool> {
        self.memory.pools.pools.get(place as usize)
    }

    /// The pool of a handle. `None` for those that take no device memory by themselves: the host's, imported ones. Refused where the driver
    /// does not tell a device's default pool, which it may be.
    pub fn pool_of_handle(self, handle: CUmemoryPool) -> Result<Option<Known>, Refused> {
        if handle.0 as u64 <= DOOMED {
            return Ok(None);
        }
        if let Some(own) = self.own_pool(handle) {
            return Ok(Some(own));
        }
        let pools = &self.memory.pools;
        if pools.leaving.load(Ordering::Acquire) == handle.0 as u64 {
            // It is destroyed or the program's again then, or its handle another's.
            drop(pools.destroying.hold());
            if let Some(own) = self.own_pool(handle) {
                return Ok(Some(own));
            }
        }
        let devices = || self.devices().into_iter().flat_map(|known| known.iter());
        let is_remembered = |device: &&Device| self.remembered(device.ordinal) == handle.0 as u64;
        if let Some(device) = devices().find(is_remembered) {
            return Ok(self.pool_at(device.ordinal));
        }
        let mut untold = false;
        for device in devices() {
            match self.default_pool(device.ordinal) {
                Some(told) if told == handle => return Ok(self.pool_at(device.ordinal)),
                Some(_) => {}
                None => untold = true,
            }
        }
        if untold {
            return Err(Refused::UnknownDevice);
        }
        Ok(None)
    }

    /// A pool that the program made, by its handle.
    pub fn own_pool(self, handle: CUmemoryPool) -> Option<Known> {
        let pools = &self.memory.pools;
        let wanted = handle.0 as u64;
        // No handle: an empty seat's word is none's.
        if wanted <= DOOMED {
            return None;
        }
        let high = pools.high.load(Ordering::Acquire) as usize;
        let own = (ORDINALS..high.clamp(ORDINALS, ROOM))
            .find(|place| pools.seats[*place].handle.load(Ordering::Acquire) == wanted)?;
        self.pool_at(own as u32)
    }

    fn remembered(self, ordinal: u32) -> u64 {
        let word = self.memory.pools.defaults.get(ordinal as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn default_pool(self, ordinal: u32) -> Option<CUmemoryPool> {
        let mut pool = CUmemoryPool::NULL;
        let code = next::cuDeviceGetDefaultMemPool(Out::to(&mut pool), ordinal as CUdevice);
        let told = (code == CUresult::SUCCESS).then_some(pool)?;
        if let Some(word) = self.memory.pools.defaults.get(ordinal as usize) {
            word.store(told.0 as u64, Ordering::Release);
        }
        Some(told)
    }

    /// A pool that the program made on a device. False if there is no room.
    #[must_use]
    pub fn seat_pool(self, handle: CUmemoryPool, ordinal: u32, managed: bool) -> bool {
        let pools = &self.memory.pools;
        let _held = pools.seating.hold();
        let kind = if managed { OF_MANAGED } else { PLAIN };
        let is_free = |place: &usize| {
            let seat = &pools.seats[*place];
            let had = seat.kind.load(Ordering::Acquire);
            let fits = had == 0
                || planted(Seed::R90)
                || (had, seat.ordinal.load(Ordering::Acquire)) == (kind, ordinal);
            seat.handle.load(Ordering::Acquire) == 0 && fits
        };
        let Some(place) = (ORDINALS..ROOM).find(is_free) else {
            return false;
        };
        let seat = &pools.seats[place];
        seat.ordinal.store(ordinal, Ordering::Release);
        seat.kind.store(kind, Ordering::Release);
        pools.pools[place].begin();
        seat.handle.store(handle.0 as u64, Ordering::Release);
        pools.high.fetch_max(place as u32 + 1, Ordering::AcqRel);
        true
    }

    pub fn is_managed(self, known: Known) -> bool {
        let seat = self.memory.pools.seats.get(known.place as usize);
        seat.is_some_and(|seat| seat.kind.load(Ordering::Acquire) == OF_MANAGED)
    }

    /// A pool's first growth takes what a device keeps for managed memory, `kept` until then. Where it did not grow that goes back, and so
    /// does the pool's spare: what grows into one unseen would take the rest unseen too.
    pub fn keep_for_managed(
        self,
        known: Known,
        kept: Option<Grant>,
        reserved: Option<Bytes>,
    ) -> Option<Occasion> {
        let grant = kept?;
        if reserved == Some(Bytes::ZERO) {
            return Some(Occasion::Ends);
        }
        self.keeps_for_managed(known.device, Some(grant));
        None
    }

    /// Whether a pool's next growth takes what its device keeps for managed memory too.
    pub fn awaits_managed(self, known: Known) -> bool {
        let word = &self.memory.pools.managed[known.device.ordinal as usize];
        self.is_managed(known) && word.load(Ordering::Acquire) == 0
    }

    /// Room for what a device keeps for managed memory; `None` where that is charged already.
    pub fn room_for_managed(self, device: &Device) -> Result<Option<Grant>, Refused> {
        let word = &self.memory.pools.managed[device.ordinal as usize];
        match word.load(Ordering::Acquire) {
            0 => self
                .reserve_or_trim(device.indices, charge::MANAGED)
                .map(Some),
            _ => Ok(None),
        }
    }

    /// The first managed memory is there: its first page takes what the device keeps for it, which is in no row. No `room`: that is charged
    /// already.
    pub fn keeps_for_managed(self, device: &Device, room: Option<Grant>) {
        let Some(grant) = room else {
            return;
        };
        let word = &self.memory.pools.managed[device.ordinal as usize];
        let first = word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.manage(device.indices, charge::MANAGED);
            grant.commit_as(charge::MANAGED);
        }
    }

    /// A pool's destruction has begun: its handle may come back for another.
    pub fn doom_pool(self, known: Known) {
        let pools = &self.memory.pools;
        pools.doomed.fetch_add(1, Ordering::AcqRel);
        pools.seats[known.place as usize]
            .handle
            .store(DOOMED, Ordering::Release);
    }

    /// What was freed of a pool that is about to be destroyed is in the book, up to this number.
    pub fn owe_until(self, place: u32, number: u64) {
        if let Some(seat) = self.memory.pools.seats.get(place as usize) {
            seat.owed.store(number, Ordering::Release);
        }
    }

    pub fn owed_until(self, place: u32) -> u64 {
        let seat = self.memory.pools.seats.get(place as usize);
        seat.map_or(u64::MAX, |seat| seat.owed.load(Ordering::Acquire))
    }

    /// It is destroyed: the default pool takes its place.
    pub fn succeed_pool(self, known: Known) {
        let current = &self.memory.pools.current[known.device.ordinal as usize];
        let _ = current.compare_exchange(known.place, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// It was not destroyed after all.
    pub fn revive_pool(self, known: Known, handle: CUmemoryPool) {
        let pools = &self.memory.pools;
        pools.seats[known.place as usize]
            .handle
            .store(handle.0 as u64, Ordering::Release);
        pools.doomed.fetch_sub(1, Ordering::AcqRel);
    }

    #[inline]
    pub fn any_doomed(self) -> bool {
        self.memory.pools.doomed.load(Ordering::Relaxed) != 0
    }

    /// Whether a pool of the program's has left its place to nobody.
    pub fn is_vacant(self, known: Known) -> bool {
        let own = self.memory.pools.seats.get(known.place as usize);
        let own = own.filter(|_| known.place as usize >= ORDINALS);
        own.is_some_and(|seat| seat.handle.load(Ordering::Acquire) == 0)
    }

    /// Whether the driver has been told to destroy it.
    pub fn is_doomed(self, known: Known) -> bool {
        self.is_doomed_at(known.place)
    }

    /// The same of a pool's place.
    pub fn is_doomed_at(self, place: u32) -> bool {
        let seat = self.memory.pools.seats.get(place as usize);
        seat.is_some_and(|seat| seat.handle.load(Ordering::Acquire) == DOOMED)
    }

    /// What is charged for a device's destroyed pools and not in use, as they are now; `None` where that is nothing.
    pub fn unused_on(self, device: &Device) -> Option<Unused> {
        let buried = self.buried_pools();
        let any = self.any_doomed() && self.charged_for_unused(device) != Bytes::ZERO;
        any.then_some(Unused { buried })
    }

    /// What a device's destroyed pools are charged beyond what is in use of them, less what the driver is known to have given back: it may give that back unseen.
    pub fn charged_for_destroyed(self, device: &Device) -> Bytes {
        if !self.any_doomed() {
            return Bytes::ZERO;
        }
        let charged = self.beyond_use(device, |_| true);
        match planted(Seed::R141) {
            true => charged,
            false => charged.saturating_sub(self.relieved_on(device)),
        }
    }

    /// How many destroyed pools are gone for good.
    pub fn buried_pools(self) -> u64 {
        self.memory.pools.buried.load(Ordering::SeqCst)
    }

    /// That of those which nobody else may hold, less what the driver is known to have given back.
    fn charged_for_unused(self, device: &Device) -> Bytes {
        let charged = self.beyond_use(device, |known| {
            let may_be_held = known.pool.is_lendable() && self.is_lent(known.place);
            !(may_be_held || known.pool.is_in_use() && planted(Seed::R115))
        });
        charged.saturating_sub(self.relieved_on(device))
    }

    fn beyond_use(self, device: &Device, is_meant: impl Fn(Known) -> bool) -> Bytes {
        self.pools()
            .filter(|known| known.device.ordinal == device.ordinal && self.is_doomed(*known))
            .filter(|known| is_meant(*known))
            .map(|known| known.pool.charged().saturating_sub(known.pool.in_use()))
            .fold(Bytes::ZERO, Bytes::saturating_add)
    }

    pub fn relieved_on(self, device: &Device) -> Bytes {
        let relieved = self.memory.pools.relieved.get(device.ordinal as usize);
        relieved.map_or(Bytes::ZERO, |word| Bytes(word.load(Ordering::SeqCst)))
    }

    /// So much of what they were charged, at most, the driver has given back, though no wait of ours may have told it to (R101 of `fixtures/defects.txt`).
    /// Nothing where one was buried since: it may have been that one's. Answers how much it was.
    #[cold]
    pub fn relieve(self, device: &Device, unused: Unused, most: Bytes) -> Bytes {
        let pools = &self.memory.pools;
        let _held = pools.relieving.hold();
        if pools.buried.load(Ordering::SeqCst) != unused.buried {
            return Bytes::ZERO;
        }
        let relieved = most.min(self.charged_for_unused(device));
        if let Some(word) = pools.relieved.get(device.ordinal as usize) {
            word.fetch_add(relieved.0, Ordering::SeqCst);
            self.release(device.indices, relieved);
        }
        relieved
    }

    /// One of them is about to be buried: what they were relieved of may have been its own. Answers that, which is not given back once more.
    pub fn take_relief(self, known: Known) -> (Bytes, Held<'static>) {
        let pools = &self.memory.pools;
        let held = pools.relieving.hold();
        pools.buried.fetch_add(1, Ordering::SeqCst);
        let relieved = known.pool.charged().min(self.relieved_on(known.device));
        if let Some(word) = pools.relieved.get(known.device.ordinal as usize) {
            word.fetch_sub(relieved.0, Ordering::SeqCst);
        }
        (relieved, held)
    }

    /// The last of a destroyed pool is gone.
    pub fn unseat_pool(self, known: Known) {
        let pools = &self.memory.pools;
        let _held = pools.seating.hold();
        let seat = &pools.seats[known.place as usize].handle;
        if seat
            .compare_exchange(DOOMED, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        pools.doomed.fetch_sub(1, Ordering::AcqRel);
        let high = pools.high.load(Ordering::Acquire) as usize;
        let last = (ORDINALS..high.clamp(ORDINALS, ROOM))
            .rfind(|place| pools.seats[*place].handle.load(Ordering::Acquire) != 0);
        let high = last.map_or(0, |place| place as u32 + 1);
        pools.high.store(high, Ordering::Release);
    }

    /// Plain requests of a device come from this pool now; an unknown one takes nothing that is charged.
    pub fn set_current_pool(self, device: &Device, known: Option<Known>) {
        let place = known.map_or(0, |known| known.place);
        let place = if place == device.ordinal { 0 } else { place };
        self.memory.pools.current[device.ordinal as usize].store(place, Ordering::Release);
    }

    /// Every pool that is or was of use.
    pub fn pools(self) -> impl Iterator<Item = Known> {
        let high = self.memory.pools.high.load(Ordering::Acquire);
        let own = (ORDINALS as u32..high.max(ORDINALS as u32)).filter(move |place| {
            let handle = self.memory.pools.seats[*place as usize]
                .handle
                .load(Ordering::Acquire);
            handle != 0
        });
        let defaults = self.devices().into_iter().flat_map(|known| known.iter());
        defaults
            .map(|device| device.ordinal)
            .chain(own)
            .filter_map(move |place| self.pool_at(place))
    }

    /// What a pool holds: what it reserves, and what it lends beside that. `None` where the driver does not say, or can no longer be asked.
    pub fn reserved(self, known: Known) -> Option<Bytes> {
        let told = self.told_reserved(known)?;
        Some(told.saturating_add(self.lent_beside(known, told)))
    }

    /// What a pool reserves, by the driver.
    pub fn told_reserved(self, known: Known) -> Option<Bytes> {
        self.told_of_pool(known, pool_attribute::RESERVED_MEM_CURRENT)
    }

    /// What a device's pools reserve: of one that is destroyed, which the driver tells nothing of, what is charged.
    pub fn pooled_on(self, device: &Device) -> Bytes {
        let charged = |known: &Known| known.pool.charged() != Bytes::ZERO;
        self.pools()
            .filter(|known| known.device.ordinal == device.ordinal)
            .filter(charged)
            .map(|known| {
                let told = self.told_reserved(known);
                told.unwrap_or_else(|| known.pool.charged())
            })
            .fold(Bytes::ZERO, Bytes::saturating_add)
    }

    /// What a pool keeps of what is freed, when somebody waits for it.
    pub fn threshold(self, known: Known) -> Option<Bytes> {
        self.told_of_pool(known, pool_attribute::RELEASE_THRESHOLD)
    }

    fn told_of_pool(self, known: Known, attribute: i32) -> Option<Bytes> {
        let handle = self.handle_of_pool(known)?;
        let mut value = 0;
        let code = next::cuMemPoolGetAttribute(handle, attribute, Out::word(&mut value));
        (code == CUresult::SUCCESS).then_some(Bytes(value))
    }

    /// The driver's handle, while there is one.
    pub fn handle_of_pool(self, known: Known) -> Option<CUmemoryPool> {
        if (known.place as usize) < ORDINALS {
            return self.default_pool(known.place);
        }
        let handle = self.memory.pools.seats[known.place as usize]
            .handle
            .load(Ordering::Acquire);
        (handle > DOOMED).then_some(CUmemoryPool(handle as *mut _))
    }
}
