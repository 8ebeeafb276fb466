//! The public reader: what operators, the harness and its checkers see of a ledger. Takes no slot.

use crate::account::Account;
use crate::attach::{self, sweep_all};
use crate::driver::{Driver, NoDriver};
use crate::ledger::share_of;
use crate::probe::Probe;
use crate::reap::Reaper;
use crate::region::{LISTED, Map, PACE_WORDS, Pace, Slot};
use crate::{AttachError, SLOTS};
use budget::{Bytes, DeviceIndex};
use core::sync::atomic::{AtomicU64, Ordering};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A ledger seen from outside.
pub struct View {
    map: Map,
    probe: Probe,
    /// One thread reaps at a time: a byte lock does not tell threads apart.
    reaping: Mutex<()>,
}

/// One process's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    pub slot: usize,
    pub pid: u32,
    /// When the process started, in clock ticks since boot; 0 where that was not known.
    pub start: u64,
    /// It has seen a row of its own among the driver's.
    pub listed: bool,
    /// It never took the slot: others of the tenant saw its memory among the driver's rows.
    pub seen: bool,
    /// Its owner still holds the slot's lock, or never took the slot and lives.
    pub alive: bool,
    /// The devices on which it holds or leases anything.
    pub devices: Vec<DeviceShare>,
}

/// A slot's share of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    pub device: DeviceIndex,
    /// What is in use, the lease not included.
    pub usage: Bytes,
    /// The part of it that the driver was seen to hold for the process beyond all that it is charged.
    pub beyond: Bytes,
    pub leased: Bytes,
}

/// Counters since the file was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Attempts beyond the first, of all requests.
    pub retries: u64,
    /// Attempts beyond the first, of the request that needed most.
    pub most_retries: u64,
    pub refusals: u64,
    /// Dead processes found.
    pub reaps: u64,
    /// Nanoseconds of the longest request, waits for a driver's teardown not included.
    pub longest_stall: u64,
    /// Nanoseconds of the longest wait for a driver's teardown.
    pub longest_drain: u64,
}

impl View {
    /// Opens a ledger that exists.
    pub fn open(path: &Path) -> Result<View, AttachError> {
        View::look(path, false)
    }

    /// As [`View::open`], or where nothing is at the path the ledger that was made there and that processes use still. Walks the descriptors of all
    /// processes for it.
    pub fn find(path: &Path) -> Result<View, AttachError> {
        View::look(path, true)
    }

    fn look(path: &Path, wanted: bool) -> Result<View, AttachError> {
        let (map, probe) = attach::look(path, wanted)?;
        Ok(View {
            map,
            probe,
            reaping: Mutex::new(()),
        })
    }

    /// The budget of a device; `None` where it has none.
    pub fn budget(&self, device: DeviceIndex) -> Option<Bytes> {
        self.account(device)?.budget().limit().map(Bytes)
    }

    /// Whether some process of the tenant counts what its contexts take.
    pub fn counts_contexts(&self) -> bool {
        self.map.layout().counting().load(Ordering::Acquire) != 0
    }

    /// How much memory a device has, as far as any process of the tenant has seen it.
    pub fn total(&self, device: DeviceIndex) -> Option<Bytes> {
        let total = self.map.layout().total(device.slot()?)?;
        Some(Bytes(total.load(Ordering::Relaxed))).filter(|total| *total != Bytes::ZERO)
    }

    /// Whether anybody was told of a budget of a device's time.
    pub fn is_paced(&self, device: DeviceIndex) -> bool {
        self.pace(device)
            .is_some_and(|pace| pace.share.load(Ordering::Acquire) > 1)
    }

    /// The share of a device's time that the tenant may use, in hundredths of a percent; 0 where all of it.
    pub fn share(&self, device: DeviceIndex) -> u16 {
        self.pace(device)
            .map_or(0, |pace| share_of(pace.share.load(Ordering::Acquire)))
    }

    /// Changes that at once: for CUDA's launches in every process, for Vulkan's submissions where any such budget was known when the process
    /// began. 0 gives all of it.
    pub fn set_share(&self, device: DeviceIndex, hundredths: u16) {
        if let Some(pace) = self.pace(device) {
            pace.share
                .store(u64::from(hundredths.min(9_999)) + 1, Ordering::Release);
            // For good: who has begun to look at its launches goes on.
            self.map.layout().timed().store(1, Ordering::Release);
        }
    }

    /// The words by which that is kept.
    pub fn pace_words(&self, device: DeviceIndex) -> Option<&[AtomicU64; PACE_WORDS]> {
        self.pace(device).map(|pace| &pace.words)
    }

    fn pace(&self, device: DeviceIndex) -> Option<&Pace> {
        self.map.layout().pace(device.slot()?)
    }

    /// What the tenant holds of a device, draining bytes included, unused leases not.
    pub fn usage(&self, device: DeviceIndex) -> Bytes {
        self.account(device)
            .map_or(Bytes::ZERO, |account| Bytes(account.survey().used))
    }

    /// What processes known to be dead still hold of a device.
    pub fn draining(&self, device: DeviceIndex) -> Bytes {
        let Some(account) = self.account(device) else {
            return Bytes::ZERO;
        };
        let dying = self
            .records()
            .filter(|(_, record)| record.dying.load(Ordering::Acquire) != 0);
        dying.fold(Bytes::ZERO, |sum, (slot, _)| {
            sum.saturating_add(Bytes(account.held(slot)))
        })
    }

    /// The slots that have an owner, or bytes of a dead one.
    pub fn slots(&self) -> Vec<SlotView> {
        self.records()
            .filter_map(|(slot, record)| self.slot(slot, record))
            .collect()
    }

    fn slot(&self, slot: usize, record: &Slot) -> Option<SlotView> {
        let owner = record.owner.load(Ordering::Acquire);
        let alive = self.probe.fd().is_ok_and(|fd| {
            let reaper = Reaper {
                layout: self.map.layout(),
                fd,
                me: None,
                namespace: attach::pid_namespace(),
            };
            reaper.lives(slot).unwrap_or(false)
        });
        let shares = DeviceIndex::all().filter_map(|device| {
            let word = self.account(device)?.word(slot);
            let beyond = Bytes(self.account(device)?.beyond(slot));
            let share = DeviceShare {
                device,
                usage: Bytes(word.used()).saturating_add(beyond),
                beyond,
                leased: Bytes(word.leased()),
            };
            (word.charged() > 0 || beyond > Bytes::ZERO).then_some(share)
        });
        let view = SlotView {
            slot,
            pid: (owner >> 32) as u32,
            start: record.began(),
            listed: record.start.load(Ordering::Acquire) & LISTED != 0,
            seen: record.is_seen(),
            alive,
            devices: shares.collect(),
        };
        (alive || !view.devices.is_empty()).then_some(view)
    }

    /// Changes a budget at once, for every process; answers what was in use or in flight under the new one. Lowering it below that
    /// only refuses further requests.
    pub fn set_budget(&self, device: DeviceIndex, budget: Bytes) -> Bytes {
        self.change(device, Some(budget))
    }

    /// Takes a device's budget away.
    pub fn clear_budget(&self, device: DeviceIndex) -> Bytes {
        self.change(device, None)
    }

    fn change(&self, device: DeviceIndex, budget: Option<Bytes>) -> Bytes {
        let limit = budget.map(|budget| budget.0);
        self.account(device)
            .map_or(Bytes::ZERO, |account| Bytes(account.set_budget(limit)))
    }

    /// Looks for the dead and takes back what has had its time to drain. Never waits.
    pub fn reap(&self) {
        self.reap_with(&NoDriver);
    }

    /// As [`View::reap`], with a driver that may know when a dead process's memory is back.
    pub fn reap_with(&self, driver: &dyn Driver) {
        let _alone = self.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(fd) = self.probe.fd() {
            let namespace = attach::pid_namespace();
            let reaper = Reaper {
                layout: self.map.layout(),
                fd,
                me: None,
                namespace,
            };
            // A file system that lost its locks shows in `slots`: nobody is alive.
            let _ = sweep_all(&reaper, driver);
        }
    }

    pub fn stats(&self) -> Stats {
        let layout = self.map.layout();
        let first = Stats {
            reaps: layout.reaps().load(Ordering::Relaxed),
            ..Stats::default()
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        layout.slots.iter().fold(first, |stats, record| Stats {
            retries: stats.retries.saturating_add(read(&record.retries)),
            most_retries: stats.most_retries.max(read(&record.most_retries)),
            refusals: stats.refusals.saturating_add(read(&record.refusals)),
            longest_stall: stats.longest_stall.max(read(&record.longest_stall)),
            longest_drain: stats.longest_drain.max(read(&record.longest_drain)),
            ..stats
        })
    }

    fn records(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let layout = self.map.layout();
        let high = usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(SLOTS);
        layout.slots.iter().enumerate().take(high)
    }

    fn account(&self, device: DeviceIndex) -> Option<Account<'_>> {
        self.map.layout().account(device.slot()?)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.probe.close();
    }
}
