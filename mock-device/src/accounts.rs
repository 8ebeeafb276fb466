//! The device memory of the world: taken, given back, torn down after a death.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::engine::{self, Turn};
use crate::holds::{self, Holder};
use crate::memory::{Audit, DeviceAudit, Kind, ProcessUsage};
use crate::os::{self, ForkWord};
use crate::process::{Image, Place, Prober};
use crate::region::{MAX_ROWS, Region, Row, state};
use crate::units::Bytes;

/// Deaths are looked for at most this often, except before a refusal.
const PROBE_EVERY_NS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) region: Region,
    /// `None` for a private world, which no other program can open.
    pub(crate) place: Option<Place>,
    /// This process's row + 1.
    own_row: ForkWord,
    pub(crate) schedules: Mutex<engine::Schedules>,
}

impl Accounts {
    pub(crate) fn new(region: Region, place: Option<Place>) -> std::io::Result<Self> {
        Ok(Self {
            region,
            place,
            own_row: ForkWord::new()?,
            schedules: Mutex::default(),
        })
    }

    /// Takes `bytes`, or answers how much is free and takes nothing.
    #[inline]
    pub(crate) fn take(&self, device: usize, kind: Kind, bytes: Bytes) -> Result<(), Bytes> {
        // A card lets go of an object when its last descriptor is closed, and not when somebody looks.
        if self.region.header().objects_made.load(Relaxed) != 0 && holds::any_unheld(&self.region) {
            self.sweep(false);
        }
        match self
            .own_row()
            .map(|row| self.try_take(row, device, kind, bytes))
        {
            Some(Ok(())) => Ok(()),
            _ => self.take_after_sweep(device, kind, bytes),
        }
    }

    pub(crate) fn give_back(&self, device: usize, kind: Kind, bytes: Bytes) {
        let Some(row) = self.own_row() else {
            self.region.header().overreturns.fetch_add(1, Relaxed);
            return;
        };
        let _guard = self.region.lock();
        let cell = &row.bytes[device][kind as usize];
        let held = cell.load(Relaxed);
        let returned = bytes.0.min(held);
        if returned < bytes.0 {
            self.region.header().overreturns.fetch_add(1, Relaxed);
        }
        cell.store(held - returned, Relaxed);
        let total = &self.region.totals()[device];
        total
            .used
            .store(total.used.load(Relaxed) - returned, Relaxed);
    }

    pub(crate) fn used(&self, device: usize) -> Bytes {
        self.sweep(false);
        let _guard = self.region.lock();
        Bytes(self.region.totals()[device].used.load(Relaxed))
    }

    pub(crate) fn peak(&self, device: usize) -> Bytes {
        let _guard = self.region.lock();
        Bytes(self.region.totals()[device].peak.load(Relaxed))
    }

    pub(crate) fn reset_peaks(&self) {
        let _guard = self.region.lock();
        for total in self.region.totals() {
            total.peak.store(total.used.load(Relaxed), Relaxed);
        }
    }

    /// Processes that hold something on the device, by PID; the rows of one process (one per library) are added up. A dead
    /// one is listed until its memory is back: on an H200 its NVML row stayed for the whole teardown (100 to 147 ms).
    pub(crate) fn processes(&self, device: usize) -> Vec<ProcessUsage> {
        self.owners(device)
            .into_iter()
            .map(|(_, usage)| usage)
            .collect()
    }

    /// The same with the number by which each is seen from this process's PID namespace, which leaves out those that it does not show.
    pub(crate) fn seen(&self, device: usize) -> Vec<(u32, ProcessUsage)> {
        let own = Image::own();
        let all = self.owners(device).into_iter();
        let seen = all.filter_map(|(owner, usage)| Some((owner.seen_by(&own)?, usage)));
        let mut seen: Vec<_> = seen.collect();
        seen.sort_by_key(|(pid, _)| *pid);
        seen
    }

    fn owners(&self, device: usize) -> Vec<(Image, ProcessUsage)> {
        self.sweep(false);
        let mut found: Vec<(Image, ProcessUsage)> = Vec::new();
        let guard = self.region.lock();
        for row in self
            .region
            .rows()
            .iter()
            .filter(|row| row.state.load(Relaxed) != state::FREE)
        {
            let by_kind = std::array::from_fn(|kind| Bytes(row.bytes[device][kind].load(Relaxed)));
            let usage = ProcessUsage {
                pid: row.pid.load(Relaxed),
                by_kind,
            };
            if usage.total() == Bytes::ZERO {
                continue;
            }
            let owner = Image::read(row);
            match found.iter_mut().find(|(image, _)| *image == owner) {
                None => found.push((owner, usage)),
                Some((_, sum)) => sum
                    .by_kind
                    .iter_mut()
                    .zip(by_kind)
                    .for_each(|(sum, more)| *sum += more),
            }
        }
        for (owner, kind, bytes) in holds::attributed(&self.region, device, self.place.as_ref()) {
            let at = found.iter().position(|(image, _)| *image == owner);
            let at = at.unwrap_or_else(|| {
                let (pid, by_kind) = (owner.pid, [Bytes::ZERO; Kind::COUNT]);
                found.push((owner, ProcessUsage { pid, by_kind }));
                found.len() - 1
            });
            found[at].1.by_kind[kind] += bytes;
        }
        drop(guard);
        found.sort_by_key(|(_, usage)| usage.pid);
        found
    }

    /// Looks for dead processes, starts their teardown, and finishes every teardown whose time has come. Without
    /// `thorough` deaths are looked for once a millisecond at most.
    pub(crate) fn sweep(&self, thorough: bool) {
        let now = os::now_ns();
        let header = self.region.header();
        let due =
            thorough || now.saturating_sub(header.last_probe_ns.load(Relaxed)) >= PROBE_EVERY_NS;
        let gone = if due { self.find_gone() } else { Vec::new() };
        if due {
            header.last_probe_ns.store(now, Relaxed);
        }
        let dying = self
            .region
            .rows()
            .iter()
            .any(|row| row.state.load(Relaxed) == state::DYING);
        if gone.is_empty() && !dying && !holds::any_unheld(&self.region) {
            return;
        }
        let _guard = self.region.lock();
        for (index, generation) in gone {
            let row = &self.region.all_rows()[index];
            if row.state.load(Relaxed) == state::LIVE && row.generation.load(Relaxed) == generation
            {
                row.died_ns.store(now, Relaxed);
                row.state.store(state::DYING, Release);
                header.deaths.fetch_add(1, Relaxed);
            }
        }
        for (index, row) in self.region.rows().iter().enumerate() {
            if row.state.load(Relaxed) == state::DYING {
                self.tear_down(index, row, now);
            }
        }
        holds::bury_unheld(&self.region, self.place.as_ref());
    }

    /// Counters against rows, with the mutex held.
    pub(crate) fn audit(&self) -> Audit {
        self.sweep(true);
        let _guard = self.region.lock();
        let header = self.region.header();
        let count = |wanted| {
            self.region
                .rows()
                .iter()
                .filter(|row| row.state.load(Relaxed) == wanted)
                .count()
        };
        let devices = self
            .region
            .totals()
            .iter()
            .enumerate()
            .map(|(device, total)| DeviceAudit {
                counted: Bytes(total.used.load(Relaxed)),
                in_rows: Bytes(self.region.sum_of_rows(device)),
                in_free_rows: self
                    .region
                    .rows()
                    .iter()
                    .filter(|row| row.state.load(Relaxed) == state::FREE)
                    .map(|row| Bytes(row.held(device)))
                    .sum(),
                peak: Bytes(total.peak.load(Relaxed)),
                capacity: Bytes(total.capacity.load(Relaxed)),
            });
        Audit {
            devices: devices.collect(),
            live: count(state::LIVE),
            dying: count(state::DYING),
            row_bound: self.region.rows().len(),
            deaths: header.deaths.load(Relaxed),
            recoveries: header.recoveries.load(Relaxed),
            overreturns: header.overreturns.load(Relaxed),
            rows_exhausted: header.rows_exhausted.load(Relaxed),
        }
    }

    /// The number of this process's row, and the generation that tells this life of it.
    pub(crate) fn own_place(&self) -> Option<Holder> {
        self.own_row()?;
        self.known_place()
    }

    /// The same, if the process has a row already.
    pub(crate) fn known_place(&self) -> Option<Holder> {
        let index = usize::try_from(self.own_row.get()).ok()?.checked_sub(1)?;
        let row = self.region.all_rows().get(index)?;
        Some(Holder {
            row: index,
            generation: row.generation.load(Relaxed),
        })
    }

    #[inline]
    pub(crate) fn own_row(&self) -> Option<&Row> {
        match self.own_row.get() {
            0 => self.register(),
            row => self.region.all_rows().get(usize::try_from(row).ok()? - 1),
        }
    }

    /// Threads of this process one at a time.
    #[inline]
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn::take(self.own_row.turn(), self.own_row.pid())
    }

    #[inline]
    fn try_take(&self, row: &Row, device: usize, kind: Kind, bytes: Bytes) -> Result<(), Bytes> {
        let _guard = self.region.lock();
        let total = &self.region.totals()[device];
        let (used, capacity) = (total.used.load(Relaxed), total.capacity.load(Relaxed));
        let sum = used.checked_add(bytes.0).filter(|sum| *sum <= capacity);
        let Some(sum) = sum else {
            return Err(Bytes(capacity.saturating_sub(used)));
        };
        // The row first: if this process dies here, the sum over rows is what the next holder finds.
        let cell = &row.bytes[device][kind as usize];
        cell.store(cell.load(Relaxed) + bytes.0, Relaxed);
        total.used.store(sum, Relaxed);
        if sum > total.peak.load(Relaxed) {
            total.peak.store(sum, Relaxed);
        }
        Ok(())
    }

    #[cold]
    fn take_after_sweep(&self, device: usize, kind: Kind, bytes: Bytes) -> Result<(), Bytes> {
        self.sweep(true);
        match self.own_row() {
            Some(row) => self.try_take(row, device, kind, bytes),
            // No row for this process: nothing is free for it.
            None => Err(Bytes::ZERO),
        }
    }

    /// A row for this process: at its first need, and anew in a fork child.
    #[cold]
    fn register(&self) -> Option<&Row> {
        let own = Image::own();
        for last_try in [false, true] {
            let guard = self.region.lock();
            if let Some(row) = usize::try_from(self.own_row.get())
                .ok()
                .filter(|row| *row != 0)
            {
                // Another thread of this process was first.
                return self.region.all_rows().get(row - 1);
            }
            if let Some((index, row)) = self.claim(&own) {
                self.own_row.set(index as u64 + 1);
                drop(guard);
                if let Some(pin) = self.place.as_ref().and_then(|place| place.pin(index, row)) {
                    self.own_row.keep(pin);
                }
                return Some(row);
            }
            drop(guard);
            if !last_try {
                self.sweep(true);
            }
        }
        self.region.header().rows_exhausted.fetch_add(1, Relaxed);
        None
    }

    /// The first free row, with the mutex held.
    fn claim(&self, own: &Image) -> Option<(usize, &Row)> {
        let header = self.region.header();
        let first = header.free_from.load(Relaxed) as usize;
        let mut rows = self.region.all_rows().iter().enumerate().skip(first);
        let (index, row) = rows.find(|(_, row)| row.state.load(Relaxed) == state::FREE)?;
        own.write(row);
        row.generation.fetch_add(1, Relaxed);
        let bound = u32::try_from(index + 1).unwrap_or(MAX_ROWS as u32);
        header.row_bound.fetch_max(bound, Release);
        row.state.store(state::LIVE, Release);
        header.free_from.store(bound, Relaxed);
        Some((index, row))
    }

    fn find_gone(&self) -> Vec<(usize, u64)> {
        let own = match usize::try_from(self.own_row.get()) {
            Ok(row @ 1..) => Image::read(&self.region.all_rows()[row - 1]),
            _ => Image::own(),
        };
        let mut prober = None;
        let mut gone = Vec::new();
        for (index, row) in self.region.rows().iter().enumerate() {
            if row.state.load(Acquire) != state::LIVE {
                continue;
            }
            // The generation is read before the question: whoever takes the row over meanwhile has another one.
            let generation = row.generation.load(Acquire);
            let prober = prober.get_or_insert_with(|| Prober::new(&own, self.place.as_ref()));
            if prober.is_gone(index, row) {
                gone.push((index, generation));
            }
        }
        gone
    }

    /// Frees what is due of a dead row, and the row when nothing is left. Any part may be done again after a kill.
    fn tear_down(&self, index: usize, row: &Row, now: u64) {
        let age = now.saturating_sub(row.died_ns.load(Relaxed));
        let mut left = false;
        for (device, total) in self.region.totals().iter().enumerate() {
            let held = row.held(device);
            if held == 0 {
                continue;
            }
            if age < total.lag_ns.load(Relaxed) {
                left = true;
                continue;
            }
            row.bytes[device]
                .iter()
                .for_each(|bytes| bytes.store(0, Relaxed));
            total.used.store(total.used.load(Relaxed) - held, Relaxed);
        }
        left |= holds::end_row(&self.region, index, row, age);
        if !left {
            engine::bury(&self.region, row, row.died_ns.load(Relaxed).min(now));
            self.region
                .header()
                .free_from
                .fetch_min(u32::try_from(index).unwrap_or(0), Relaxed);
            row.state.store(state::FREE, Release);
        }
    }
}

impl Drop for Accounts {
    /// A closed world is a library unloaded: what this process held through it is free at once.
    fn drop(&mut self) {
        let Some(row) = usize::try_from(self.own_row.get())
            .ok()
            .filter(|row| *row != 0)
        else {
            return;
        };
        let (index, row) = (row - 1, &self.region.all_rows()[row - 1]);
        let _guard = self.region.lock();
        engine::bury(&self.region, row, os::now_ns());
        // A teardown without lag: the row's own time of death is now, its age endless. Killed from here on, others finish
        // it; killed before, the pin is still the row's sign of life. So the pin goes in between, before the row is free.
        row.died_ns.store(0, Relaxed);
        row.state.store(state::DYING, Release);
        drop(self.own_row.kept());
        self.tear_down(index, row, u64::MAX);
        holds::bury_unheld(&self.region, self.place.as_ref());
    }
}

#[cfg(test)]
#[path = "../tests/support/child.rs"]
mod child;

#[cfg(test)]
mod tests {
    use super::child::{End, fork};
    use super::*;

    const CAPACITY: u64 = 1000;

    /// Without a place there are no byte locks: PID and start time alone judge, as on overlayfs and gVisor.
    fn accounts(lag_ns: u64) -> Accounts {
        let region = Region::create(&os::memfd().unwrap(), b"{}", &[(CAPACITY, lag_ns)]).unwrap();
        Accounts::new(region, None).unwrap()
    }

    fn take(accounts: &Accounts, bytes: u64) -> bool {
        accounts.take(0, Kind::Memory, Bytes(bytes)).is_ok()
    }

    /// Every store of a take and of a give_back, with SIGKILL after it, the mutex held.
    #[test]
    fn a_kill_after_any_store_inside_the_mutex_leaves_the_row_as_the_truth() {
        type Stores = &'static [fn(&Accounts)];
        let row = |accounts: &Accounts, bytes: u64| {
            accounts.own_row().unwrap().bytes[0][0].store(bytes, Relaxed)
        };
        let stores: [(Stores, u64); 4] = [
            (&[], 100),
            (
                &[|accounts| accounts.own_row().unwrap().bytes[0][2].store(400, Relaxed)],
                400,
            ),
            (
                &[
                    |accounts| accounts.own_row().unwrap().bytes[0][2].store(400, Relaxed),
                    |accounts| accounts.region.totals()[0].used.store(450, Relaxed),
                ],
                400,
            ),
            (
                &[|accounts| accounts.own_row().unwrap().bytes[0][2].store(30, Relaxed)],
                30,
            ),
        ];
        for (stores, expected) in stores {
            let accounts = accounts(u64::MAX);
            assert!(take(&accounts, 50));
            let mut victim = fork(|_| {
                assert!(take(&accounts, 100));
                row(&accounts, 0);
                let _guard = accounts.region.lock();
                stores.iter().for_each(|store| store(&accounts));
                os::kill_self()
            });
            assert_eq!(victim.reap(), End::Signal(libc::SIGKILL));
            let audit = accounts.audit();
            assert!(audit.is_consistent(), "{audit:#?}");
            assert_eq!(audit.devices[0].counted, Bytes(50 + expected));
            assert_eq!(audit.devices[0].peak, Bytes(50 + expected.max(100)));
            assert_eq!((audit.recoveries, audit.dying), (1, 1));
        }
    }

    #[test]
    fn a_kill_in_the_middle_of_a_burial_is_made_good_by_the_next_one() {
        let accounts = accounts(0);
        for _ in 0..2 {
            let mut holder = fork(|_| i32::from(!take(&accounts, 300)));
            assert_eq!(holder.reap(), End::Exit(0));
        }
        let mut undertaker = fork(|_| {
            let _guard = accounts.region.lock();
            let row = &accounts.region.rows()[0];
            row.died_ns.store(0, Relaxed);
            row.state.store(state::DYING, Release);
            row.bytes[0][2].store(0, Relaxed);
            os::kill_self()
        });
        assert_eq!(undertaker.reap(), End::Signal(libc::SIGKILL));
        let audit = accounts.audit();
        assert!(audit.is_consistent() && audit.is_empty(), "{audit:#?}");
    }

    #[test]
    fn without_byte_locks_a_death_is_seen_by_process_number_even_unreaped() {
        let accounts = accounts(0);
        let mut holder = fork(|line| {
            let taken = take(&accounts, 700);
            line.say(1);
            line.hear();
            i32::from(!taken)
        });
        assert_eq!(holder.line.hear(), 1);
        assert_eq!(
            accounts.own_row().map(|row| row.pinned.load(Relaxed)),
            Some(0)
        );
        assert!(!take(&accounts, 700), "the holder lives");
        holder.line.say(1);
        while accounts.used(0) > Bytes::ZERO {
            std::thread::yield_now();
        }
        assert_eq!(holder.reap(), End::Exit(0));
    }

    #[test]
    fn a_process_number_that_another_process_has_now_is_a_death() {
        let accounts = accounts(0);
        let mut holder = fork(|_| i32::from(!take(&accounts, 700)));
        assert_eq!(holder.reap(), End::Exit(0));
        // The test's parent stands for whoever got the number: it exists, and began at another time.
        let parent = std::os::unix::process::parent_id();
        accounts.region.rows()[0].pid.store(parent, Relaxed);
        assert_eq!(accounts.used(0), Bytes::ZERO);
        assert_eq!(accounts.audit().deaths, 1);
    }

    #[test]
    fn the_image_before_an_exec_is_dead_to_the_image_after() {
        let accounts = accounts(0);
        assert!(take(&accounts, 10));
        let before = accounts.own_row().unwrap();
        before.image.fetch_xor(1, Relaxed);
        // What the program that was called by exec finds: no row of its own, and its own number in another's.
        accounts.own_row.set(0);
        assert!(
            take(&accounts, 995),
            "what the former image held is free again"
        );
        assert_eq!(accounts.used(0), Bytes(995));
    }
}
