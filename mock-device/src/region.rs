//! The mapped file: its layout, its mutex, and how a dead holder of that mutex is made good. All unsafe access to shared
//! memory is here.
//!
//! Truth is in the rows, one per process and library, each written only by its process (and, once that is dead, by who
//! buries it). The totals per device are a cache of their sums, kept under the mutex; whoever gets the mutex from a dead
//! holder recomputes them before anything else.

pub(crate) mod words;

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::engine::{Engine, SLOTS};
use crate::fault::MAX_FAULTS;
use crate::os::Mapping;
use crate::profile::MAX_DEVICES;

pub(crate) const MAX_ROWS: usize = 4096;
/// Room for kinds to come.
pub(crate) const KIND_SLOTS: usize = 16;
/// One per process, device and engine that it uses, or kind of traffic that it moves.
pub(crate) const MAX_METERS: usize = 16384;
/// Spans of time that a meter remembers: 2.1 s.
pub(crate) const GRAINS: usize = 128;
/// Stretches of work that a meter keeps apart until they are over.
pub(crate) const RUNS: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"ringwrld");
const VERSION: u32 = 7;
const SPEC_SIZE: usize = 2 << 20;

#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    devices: AtomicU32,
    layout: AtomicU64,
    spec_length: AtomicU64,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// Rows at and above this were never used.
    pub(crate) row_bound: AtomicU32,
    /// Every row below this is in use. Lowered before a row is freed, raised after one is claimed.
    pub(crate) free_from: AtomicU32,
    /// Times that a holder of the mutex was found dead and the totals recomputed.
    pub(crate) recoveries: AtomicU64,
    /// Times that more was given back than was held: a mock's mistake, never a client's.
    pub(crate) overreturns: AtomicU64,
    /// Processes that found no free row.
    pub(crate) rows_exhausted: AtomicU64,
    pub(crate) last_probe_ns: AtomicU64,
    pub(crate) deaths: AtomicU64,
    /// Objects ever made; the next one's identity.
    pub(crate) objects_made: AtomicU64,
    /// Entries at and above these were never used.
    pub(crate) object_bound: AtomicU32,
    pub(crate) hold_bound: AtomicU32,
    /// Holds ever begun.
    pub(crate) opened: AtomicU64,
    /// A bit for each device that fell off the bus.
    pub(crate) lost: AtomicU64,
    pub(crate) counters: [AtomicU64; MAX_FAULTS],
    pub(crate) totals: [Total; MAX_DEVICES],
    /// Meters at and above this were never used.
    meter_bound: AtomicU32,
    /// How many processes share an engine: the count, below the time (in 4,096 ns) at which it was made.
    pub(crate) users: [[AtomicU64; Engine::COUNT]; MAX_DEVICES],
    /// What the dead did, as in [`Meter::grains`].
    pub(crate) departed: [[[AtomicU64; GRAINS]; SLOTS]; MAX_DEVICES],
    pub(crate) worked: [Worked; MAX_DEVICES],
}

/// How long a device's compute engine had work until a time: written under the mutex.
#[repr(C)]
pub(crate) struct Worked {
    pub(crate) until: AtomicU64,
    pub(crate) sum: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct Total {
    pub(crate) used: AtomicU64,
    pub(crate) peak: AtomicU64,
    pub(crate) capacity: AtomicU64,
    pub(crate) lag_ns: AtomicU64,
}

/// One process through one library. `state` is written last on birth and on burial, so that a kill in between leaves the
/// row as it was.
#[repr(C, align(64))]
pub(crate) struct Row {
    pub(crate) state: AtomicU32,
    pub(crate) pid: AtomicU32,
    /// 1 when the owner holds the row's byte lock through a mapping.
    pub(crate) pinned: AtomicU32,
    pub(crate) start: AtomicU64,
    pub(crate) namespace: AtomicU64,
    pub(crate) image: AtomicU64,
    pub(crate) generation: AtomicU64,
    pub(crate) died_ns: AtomicU64,
    /// The index of each engine's and each traffic's meter + 1.
    pub(crate) meters: [[AtomicU32; SLOTS]; MAX_DEVICES],
    pub(crate) bytes: [[AtomicU64; KIND_SLOTS]; MAX_DEVICES],
}

/// One process's work on one engine: see `engine.rs`. It belongs to `row` while `tag` is not 0.
#[repr(C, align(64))]
pub(crate) struct Meter {
    /// Which engine of which device; 0: the meter is free.
    pub(crate) tag: AtomicU32,
    pub(crate) row: AtomicU32,
    /// Odd while it is being written.
    pub(crate) sequence: AtomicU32,
    /// When its last work ends.
    pub(crate) until: AtomicU64,
    /// Stretches of time with work that were not over when last looked at, ascending, unused ones last.
    pub(crate) runs: [Run; RUNS],
    /// Of what is over: a grain's number (its low 32 bits) over the nanoseconds of it that had work.
    pub(crate) grains: [AtomicU64; GRAINS],
}

#[repr(C)]
pub(crate) struct Run {
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
}

/// Values of [`Row::state`].
pub(crate) mod state {
    pub const FREE: u32 = 0;
    pub const LIVE: u32 = 1;
    /// Dead, its memory not yet torn down.
    pub const DYING: u32 = 2;
}

/// Device memory that several processes may hold (`object.rs`). It counts itself, in no row: who dies takes nothing of it
/// along. `live` is written last on birth and first on burial.
#[repr(C, align(64))]
pub(crate) struct ObjectEntry {
    pub(crate) live: AtomicU32,
    pub(crate) device: AtomicU32,
    pub(crate) kind: AtomicU32,
    pub(crate) id: AtomicU64,
    pub(crate) size: AtomicU64,
    /// The file of its contents, by which an importer of a descriptor knows it.
    pub(crate) file_device: AtomicU64,
    pub(crate) file_inode: AtomicU64,
    /// The number of the hold that it was made with: whose that is, as long as it lasts, has made it.
    pub(crate) made_with: AtomicU64,
    /// 1 for a store, whose size its maker changes.
    pub(crate) store: AtomicU32,
    /// Of a store: how much of its size is in its maker's row.
    pub(crate) shown: AtomicU64,
}

/// One row's hold on an object. `object`, an identity or 0, is written last.
#[repr(C)]
pub(crate) struct Hold {
    pub(crate) object: AtomicU64,
    pub(crate) row_generation: AtomicU64,
    pub(crate) row: AtomicU32,
    /// Its number among all holds.
    pub(crate) opened: AtomicU64,
}

pub(crate) const MAX_OBJECTS: usize = 4096;
pub(crate) const MAX_HOLDS: usize = 8192;

const SPEC_AT: usize = size_of::<Header>().next_multiple_of(4096);
const ROWS_AT: usize = SPEC_AT + SPEC_SIZE;
const METERS_AT: usize = ROWS_AT + MAX_ROWS * size_of::<Row>();
const OBJECTS_AT: usize = METERS_AT + MAX_METERS * size_of::<Meter>();
const HOLDS_AT: usize = OBJECTS_AT + MAX_OBJECTS * size_of::<ObjectEntry>();
const SIZE: usize = HOLDS_AT + MAX_HOLDS * size_of::<Hold>();
/// Changes whenever a size or a place does: a world of another build is refused, not misread.
const LAYOUT: u64 = (SIZE as u64) << 24
    | (offset_of!(Row, bytes) as u64) << 12
    | offset_of!(Header, counters) as u64;

#[derive(Debug)]
pub(crate) struct Region {
    mapping: Mapping,
    devices: usize,
}

impl Region {
    /// Makes a world in an empty file that nobody else has yet. `devices` are capacity and teardown lag (ns) of each.
    pub(crate) fn create(file: &File, spec: &[u8], devices: &[(u64, u64)]) -> io::Result<Self> {
        if spec.len() > SPEC_SIZE {
            return Err(io::Error::other(format!(
                "the specification takes {} bytes of {SPEC_SIZE}",
                spec.len()
            )));
        }
        file.set_len(SIZE as u64)?;
        let region = Self {
            mapping: Mapping::shared(file, SIZE)?,
            devices: devices.len(),
        };
        // SAFETY: the file is ours alone and the place is SPEC_SIZE bytes long; the mutex is initialised once, here.
        unsafe {
            std::ptr::copy_nonoverlapping(
                spec.as_ptr(),
                region.mapping.start.add(SPEC_AT),
                spec.len(),
            );
            initialise(region.header().mutex.get())?;
        }
        let header = region.header();
        for (total, (capacity, lag_ns)) in header.totals.iter().zip(devices) {
            total.capacity.store(*capacity, Relaxed);
            total.lag_ns.store(*lag_ns, Relaxed);
        }
        header
            .devices
            .store(u32::try_from(devices.len()).unwrap_or(u32::MAX), Relaxed);
        header.spec_length.store(spec.len() as u64, Relaxed);
        header.layout.store(LAYOUT, Relaxed);
        header.version.store(VERSION, Relaxed);
        header.magic.store(MAGIC, Release);
        Ok(region)
    }

    /// Maps a finished world; the inner error says what is foreign about the file.
    pub(crate) fn open(file: &File) -> io::Result<Result<Self, String>> {
        let length = file.metadata()?.len();
        if length != SIZE as u64 {
            return Ok(Err(format!("{length} bytes long, a world has {SIZE}")));
        }
        let mut region = Self {
            mapping: Mapping::shared(file, SIZE)?,
            devices: 0,
        };
        let header = region.header();
        let (magic, version) = (header.magic.load(Acquire), header.version.load(Relaxed));
        let (layout, devices) = (
            header.layout.load(Relaxed),
            header.devices.load(Relaxed) as usize,
        );
        if magic != MAGIC {
            return Ok(Err(format!("magic {magic:#x}")));
        }
        if version != VERSION || layout != LAYOUT {
            return Ok(Err(format!(
                "version {version} of layout {layout:#x}, this is {VERSION} of {LAYOUT:#x}"
            )));
        }
        if devices == 0
            || devices > MAX_DEVICES
            || header.spec_length.load(Relaxed) > SPEC_SIZE as u64
        {
            return Ok(Err(format!("{devices} devices")));
        }
        region.devices = devices;
        Ok(Ok(region))
    }

    pub(crate) fn spec(&self) -> Vec<u8> {
        let length = usize::try_from(self.header().spec_length.load(Relaxed))
            .unwrap_or(0)
            .min(SPEC_SIZE);
        // SAFETY: `length` bytes lie inside the mapping, and nobody writes them after creation.
        unsafe { std::slice::from_raw_parts(self.mapping.start.add(SPEC_AT), length).to_vec() }
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping is SIZE bytes long, page-aligned, lives as long as `self`, and its fields are atomics.
        unsafe { &*self.mapping.start.cast::<Header>() }
    }

    #[inline]
    pub(crate) fn totals(&self) -> &[Total] {
        &self.header().totals[..self.devices]
    }

    /// Every row that may be in use.
    #[inline]
    pub(crate) fn rows(&self) -> &[Row] {
        &self.all_rows()[..(self.header().row_bound.load(Acquire) as usize).min(MAX_ROWS)]
    }

    #[inline]
    pub(crate) fn all_rows(&self) -> &[Row] {
        // SAFETY: MAX_ROWS rows of atomics lie at ROWS_AT inside the mapping, aligned to 64.
        unsafe {
            std::slice::from_raw_parts(self.mapping.start.add(ROWS_AT).cast::<Row>(), MAX_ROWS)
        }
    }

    /// Every meter that may be in use.
    #[inline]
    pub(crate) fn meters(&self) -> &[Meter] {
        let bound = self.header().meter_bound.load(Acquire) as usize;
        &self.all_meters()[..bound.min(MAX_METERS)]
    }

    #[inline]
    pub(crate) fn all_meters(&self) -> &[Meter] {
        // SAFETY: MAX_METERS meters of atomics lie at METERS_AT inside the mapping, aligned to 64.
        unsafe {
            std::slice::from_raw_parts(
                self.mapping.start.add(METERS_AT).cast::<Meter>(),
                MAX_METERS,
            )
        }
    }

    /// The first free meter, with the mutex held.
    pub(crate) fn free_meter(&self) -> Option<(u32, &Meter)> {
        let mut meters = (0u32..).zip(self.all_meters());
        let (index, meter) = meters.find(|(_, meter)| meter.tag.load(Relaxed) == 0)?;
        self.header().meter_bound.fetch_max(index + 1, Release);
        Some((index, meter))
    }

    pub(crate) fn owner(&self, meter: &Meter) -> Option<&Row> {
        self.all_rows().get(meter.row.load(Relaxed) as usize)
    }

    pub(crate) fn index_of(&self, row: &Row) -> usize {
        (std::ptr::from_ref(row) as usize - self.all_rows().as_ptr() as usize) / size_of::<Row>()
    }

    /// Every object that there may be.
    #[inline]
    pub(crate) fn objects(&self) -> &[ObjectEntry] {
        &self.all_objects()[..(self.header().object_bound.load(Acquire) as usize).min(MAX_OBJECTS)]
    }

    pub(crate) fn all_objects(&self) -> &[ObjectEntry] {
        // SAFETY: MAX_OBJECTS entries of atomics lie at OBJECTS_AT inside the mapping, aligned to 64.
        unsafe {
            std::slice::from_raw_parts(
                self.mapping.start.add(OBJECTS_AT).cast::<ObjectEntry>(),
                MAX_OBJECTS,
            )
        }
    }

    /// Every hold that there may be.
    #[inline]
    pub(crate) fn holds(&self) -> &[Hold] {
        &self.all_holds()[..(self.header().hold_bound.load(Acquire) as usize).min(MAX_HOLDS)]
    }

    pub(crate) fn all_holds(&self) -> &[Hold] {
        // SAFETY: MAX_HOLDS entries of atomics lie at HOLDS_AT inside the mapping, aligned to 8.
        unsafe {
            std::slice::from_raw_parts(self.mapping.start.add(HOLDS_AT).cast::<Hold>(), MAX_HOLDS)
        }
    }

    /// Takes the world's mutex. From a dead holder it comes with totals recomputed.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_> {
        // SAFETY: the mutex was initialised at creation and lives in the mapping.
        let answer = unsafe { libc::pthread_mutex_lock(self.header().mutex.get()) };
        match answer {
            0 => {}
            libc::EOWNERDEAD => self.recover(),
            // Only a broken mutex answers anything else, and going on without it would falsify every verdict.
            other => panic!(
                "the world's mutex answers {}",
                io::Error::from_raw_os_error(other)
            ),
        }
        Guard { region: self }
    }

    #[cold]
    fn recover(&self) {
        for (device, total) in self.totals().iter().enumerate() {
            let used = self.sum_of_rows(device);
            total.used.store(used, Relaxed);
            total.peak.fetch_max(used, Relaxed);
        }
        self.header().recoveries.fetch_add(1, Relaxed);
        // SAFETY: this thread holds the mutex, in the inconsistent state that EOWNERDEAD announced.
        unsafe { libc::pthread_mutex_consistent(self.header().mutex.get()) };
    }

    /// What rows and objects say: the truth that totals cache. Call it with the mutex held.
    pub(crate) fn sum_of_rows(&self, device: usize) -> u64 {
        let rows = self.rows().iter();
        let in_rows: u64 = rows
            .filter(|row| row.state.load(Relaxed) != state::FREE)
            .map(|row| row.held(device))
            .sum();
        let in_objects: u64 = self
            .objects()
            .iter()
            .filter(|object| object.is_live() && object.device.load(Relaxed) as usize == device)
            .map(|object| object.size.load(Relaxed))
            .sum();
        in_rows + in_objects
    }
}

impl Row {
    pub(crate) fn held(&self, device: usize) -> u64 {
        self.bytes[device]
            .iter()
            .map(|bytes| bytes.load(Relaxed))
            .sum()
    }
}

impl ObjectEntry {
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Acquire) == 1
    }
}

impl Hold {
    /// Whether this row, in this life of it, has the hold.
    pub(crate) fn is_of(&self, row: usize, generation: u64) -> bool {
        self.object.load(Acquire) != 0
            && self.row.load(Relaxed) as usize == row
            && self.row_generation.load(Relaxed) == generation
    }
}

/// The mutex, held.
pub(crate) struct Guard<'a> {
    region: &'a Region,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard exists only while this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.region.header().mutex.get()) };
    }
}

/// # Safety
/// `mutex` is in zeroed shared memory that no other process or thread uses yet.
unsafe fn initialise(mutex: *mut libc::pthread_mutex_t) -> io::Result<()> {
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: the attributes are initialised before use and destroyed after; the caller vouches for `mutex`.
    let answers = unsafe {
        let answers = [
            libc::pthread_mutexattr_init(attributes.as_mut_ptr()),
            libc::pthread_mutexattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            ),
            libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST),
            libc::pthread_mutex_init(mutex, attributes.as_ptr()),
        ];
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
        answers
    };
    match answers.into_iter().find(|answer| *answer != 0) {
        None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
    }
}
