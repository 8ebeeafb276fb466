//! Processes of one tenant that allocate, free and are killed at random. Short as a case, long as an example.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Peer, Session, fail, roles};
use mock_device::World;

use crate::clients::{self, Gpu};
use crate::ffi::cuda::Cuda;
use crate::ffi::vulkan::Code;
use crate::room::{Room, Wait, Waits};

/// How many processes rage at once.
pub const PROCESSES: usize = 12;
/// Set to the number of kills for the long form.
pub const KILLS: &str = "RINGFENCE_STORM_KILLS";

/// The long form's number.
pub fn asked_kills() -> Option<u64> {
    std::env::var_os(KILLS)?.to_str()?.parse().ok()
}

const NAP: Duration = Duration::from_millis(1);
/// A request that took longer than this is noted by itself: it waited for something.
const SLOW: Duration = Duration::from_millis(4);
/// Most allocations that one process holds.
const MOST_HELD: usize = 8;

/// SplitMix64: a seed reproduces a process's wishes, if not the race.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// By what a process allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Cuda,
    Vulkan,
}

impl Api {
    fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Vulkan => "vulkan",
        }
    }
}

/// What a process noted down before it was killed, or all of them together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notes {
    pub grants: u64,
    pub refusals: u64,
    /// Longest cuMemAlloc_v2 or vkAllocateMemory that was granted or refused, less what a control thread overslept meanwhile.
    pub longest: Duration,
}

impl Notes {
    fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let numbers = [self.grants, self.refusals, self.longest.as_micros() as u64];
        for (slot, number) in bytes.chunks_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn read(path: &PathBuf) -> Self {
        // A process that was killed before its first request left nothing.
        let bytes = std::fs::read(path).unwrap_or_default();
        let number = |index: usize| {
            let slot = bytes.get(index * 8..index * 8 + 8);
            slot.and_then(|slot| slot.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        };
        Self {
            grants: number(0),
            refusals: number(1),
            longest: Duration::from_micros(number(2)),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            grants: self.grants + other.grants,
            refusals: self.refusals + other.refusals,
            longest: self.longest.max(other.longest),
        }
    }
}

/// The raging processes.
pub struct Storm<'a> {
    session: &'a Session,
    /// Places take turns among them.
    apis: &'static [Api],
    dice: Dice,
    peers: Vec<Peer>,
    /// One file per process that ever raged, by its place among the twelve.
    notes: Vec<Vec<PathBuf>>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub grants: u64,
    pub refusals: u64,
    /// The longest request of each of the twelve places.
    pub longest: Vec<Duration>,
    /// The slow ones that were granted.
    pub waits: Waits,
}

impl<'a> Storm<'a> {
    pub fn start(
        session: &'a Session,
        seed: u64,
        processes: usize,
        apis: &'static [Api],
    ) -> Result<Self, Failure> {
        let mut storm = Self {
            session,
            apis,
            dice: Dice::new(seed),
            peers: Vec::new(),
            notes: vec![Vec::new(); processes],
        };
        for place in 0..processes {
            let peer = storm.another(place)?;
            storm.peers.push(peer);
        }
        Ok(storm)
    }

    fn another(&mut self, place: usize) -> Result<Peer, Failure> {
        let name = format!("storm-{place}-{}", self.notes[place].len());
        let notes = self.session.directory().join(name);
        let seed = self.dice.below(u64::MAX).to_string();
        let peer = self.session.spawn(
            "stormer",
            &[
                &seed,
                &notes.display().to_string(),
                self.apis[place % self.apis.len()].name(),
            ],
        )?;
        self.notes[place].push(notes);
        Ok(peer)
    }

    /// Kills a process at a random moment and starts another, that many times.
    pub fn rage(&mut self, kills: u64) -> Result<Outcome, Failure> {
        let world = self.session.world()?;
        let (raged, room) = Room::during(world, || self.kill_and_start(kills));
        raged.map(|()| self.outcome(&room))
    }

    fn kill_and_start(&mut self, kills: u64) -> Result<(), Failure> {
        // On a machine that is busy with other things nobody lives long enough to be granted anything: then they live longer.
        let mut longest = 8_000;
        for kill in 0..kills {
            if kill % 20 == 19 && self.grants() < kill {
                longest = (longest * 2).min(500_000);
            }
            let pause = self.dice.below(longest);
            std::thread::sleep(Duration::from_micros(pause));
            let place = self.dice.below(self.peers.len() as u64) as usize;
            // A process that died by itself shows a fault of the enforcer, not of the storm.
            self.peers[place].kill().map(drop)?;
            self.peers[place] = self.another(place)?;
        }
        Ok(())
    }

    fn grants(&self) -> u64 {
        let files = self.notes.iter().flatten();
        files.map(|file| Notes::read(file).grants).sum()
    }

    fn outcome(&self, room: &Room) -> Outcome {
        let budget = crate::greed::budget(self.session, 0).unwrap_or(Bytes(u64::MAX));
        let slow = self.notes.iter().flatten().flat_map(slow_of);
        let of_place = |files: &Vec<PathBuf>| {
            files
                .iter()
                .map(Notes::read)
                .fold(Notes::default(), Notes::with)
        };
        let places: Vec<Notes> = self.notes.iter().map(of_place).collect();
        Outcome {
            grants: places.iter().map(|place| place.grants).sum(),
            refusals: places.iter().map(|place| place.refusals).sum(),
            longest: places.iter().map(|place| place.longest).collect(),
            waits: Waits::of(slow, room, budget),
        }
    }

    /// Kills all that are left.
    pub fn end(&mut self) -> Result<(), Failure> {
        for peer in &mut self.peers {
            peer.kill().map(drop)?;
        }
        Ok(())
    }
}

roles! {
    /// Allocates and frees at random until it is killed.
    stormer(session, parent) {
        let mut dice = Dice::new(parent.number(0)?);
        let Some(path) = parent.args().get(1).cloned() else { fail!("a stormer is told where to note") };
        let file = File::create(path)?;
        let by_vulkan = parent.args().get(2).is_some_and(|api| api == Api::Vulkan.name());
        let control = Control::default();
        let pen = Pen { world: session.world()?, file };
        std::thread::scope(|scope| {
            scope.spawn(|| control.watch());
            let raged = match by_vulkan {
                true => by_vulkan_rage(&mut dice, &pen, &control),
                false => by_cuda_rage(&mut dice, &pen, &control),
            };
            control.stop.store(true, Ordering::Relaxed);
            raged
        })
    }
}

fn by_cuda_rage(dice: &mut Dice, pen: &Pen<'_>, control: &Control) -> Result<(), Failure> {
    let cuda = Cuda::open()?;
    // The budget may be used up to the last MiB: there may be no room for a context for a while.
    while cuda.init() != CUresult::SUCCESS || clients::context(&cuda, 0).is_err() {
        std::thread::sleep(NAP);
    }
    let take = |bytes| match cuda.allocate(bytes).granted() {
        Ok(pointer) => Ok(Some(pointer)),
        Err(CUresult::ERROR_OUT_OF_MEMORY) => Ok(None),
        Err(other) => fail!("cuMemAlloc_v2 of {bytes} bytes answered {other:?}"),
    };
    let free = |pointer| {
        harness::ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
        Ok(())
    };
    rage(dice, pen, control, take, free)
}

fn by_vulkan_rage(dice: &mut Dice, pen: &Pen<'_>, control: &Control) -> Result<(), Failure> {
    // As above: neither an instance nor a device may be granted at once.
    let gpu = loop {
        match Gpu::first() {
            Ok(gpu) => break gpu,
            Err(_) => std::thread::sleep(NAP),
        }
    };
    let take = |bytes| match gpu.allocate(Bytes(bytes)) {
        Ok(memory) => Ok(Some(memory)),
        Err(Code::OUT_OF_DEVICE_MEMORY) => Ok(None),
        Err(other) => fail!("vkAllocateMemory of {bytes} bytes answered {other:?}"),
    };
    let free = |memory| {
        gpu.device.free(memory);
        Ok(())
    };
    rage(dice, pen, control, take, free)
}

/// Where a process notes down what came of its requests, and by which clock: after the sums the slow ones, each as it comes.
struct Pen<'a> {
    world: &'a World,
    file: File,
}

impl Pen<'_> {
    fn slow(&self, nth: u64, wait: &Wait) -> std::io::Result<()> {
        let sums = Notes::default().bytes().len();
        let at = sums as u64 + nth * Wait::SIZE as u64;
        self.file.write_all_at(&wait.bytes(), at)
    }
}

/// The slow requests of a process.
fn slow_of(notes: &PathBuf) -> Vec<Wait> {
    let bytes = std::fs::read(notes).unwrap_or_default();
    let sums = Notes::default().bytes().len();
    let slow = bytes.get(sums..).unwrap_or_default();
    slow.chunks_exact(Wait::SIZE)
        .filter_map(Wait::read)
        .collect()
}

/// Takes and frees until it is killed; `take` answers none where it was refused for want of memory.
fn rage<H>(
    dice: &mut Dice,
    pen: &Pen<'_>,
    control: &Control,
    mut take: impl FnMut(u64) -> Result<Option<H>, Failure>,
    mut free: impl FnMut(H) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut notes = Notes::default();
    let mut slow = 0;
    let mut held = Vec::new();
    loop {
        let full = held.len() == MOST_HELD;
        if full || (!held.is_empty() && dice.below(2) == 0) {
            free(held.swap_remove(dice.below(held.len() as u64) as usize))?;
            continue;
        }
        // Small and large requests alike: 2 MiB to 2 GiB by powers, off by a byte now and then.
        let bytes = (Bytes::mib(2).0 << dice.below(11)) - dice.below(2);
        control.overslept.store(0, Ordering::Relaxed);
        let start = Instant::now();
        let taken = take(bytes)?;
        let took = start.elapsed();
        let granted_at = pen.world.now();
        let overslept = Duration::from_micros(control.overslept.load(Ordering::Relaxed));
        notes.longest = notes.longest.max(took.saturating_sub(overslept));
        match taken {
            Some(memory) => {
                held.push(memory);
                notes.grants += 1;
                if took >= SLOW {
                    pen.slow(slow, &Wait::ending(granted_at, took, Bytes(bytes)))?;
                    slow += 1;
                }
            }
            None => notes.refusals += 1,
        }
        pen.file.write_all_at(&notes.bytes(), 0)?;
    }
}

/// A thread that only sleeps: what it oversleeps is the machine's doing, not the ledger's.
#[derive(Default)]
pub struct Control {
    pub stop: AtomicBool,
    /// Microseconds, the most since it was last set to 0.
    pub overslept: AtomicU64,
}

impl Control {
    pub fn watch(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            std::thread::sleep(NAP);
            let overslept = start.elapsed().saturating_sub(NAP).as_micros() as u64;
            self.overslept.fetch_max(overslept, Ordering::Relaxed);
        }
    }
}
