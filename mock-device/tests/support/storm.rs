//! Processes that take and give back without pause, and are killed at random. No enforcer takes part: this is what the
//! world itself must survive before any verdict of its counts.

use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mock_device::{Audit, Bytes, DeviceIndex, Kind, World, WorldSpec, profile};

use crate::child::{Child, End, fork};

pub struct Storm {
    pub kills: u64,
    pub workers: usize,
    pub seed: u64,
}

pub struct Report {
    pub kills: u64,
    pub audits: u64,
    pub calls: u64,
    pub refusals: u64,
    /// The longest single call into the world that any worker saw, its time off the CPU included.
    pub longest_call: Duration,
    pub elapsed: Duration,
    pub last: Audit,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kills,
            audits,
            calls,
            refusals,
            longest_call,
            elapsed,
            last,
        } = self;
        writeln!(
            f,
            "{kills} kills in {elapsed:.1?}, {} deaths noticed, {audits} audits, all consistent",
            last.deaths
        )?;
        writeln!(
            f,
            "{calls} calls into the world, {refusals} refusals, longest call {longest_call:?}"
        )?;
        writeln!(
            f,
            "{} times the mutex came from a dead holder; {} rows ever in use",
            last.recoveries, last.row_bound
        )?;
        for (index, device) in last.devices.iter().enumerate() {
            writeln!(
                f,
                "dev{index}: {} left, peak {} of {}",
                device.counted, device.peak, device.capacity
            )?;
        }
        Ok(())
    }
}

/// Words that all workers add to.
struct Tally {
    calls: AtomicU64,
    refusals: AtomicU64,
    longest_ns: AtomicU64,
}

impl Tally {
    /// Whether the workers did less than a storm is.
    fn is_calm(&self, kills: u64) -> bool {
        self.calls.load(Relaxed) <= kills + 100 || self.refusals.load(Relaxed) == 0
    }
}

impl Storm {
    /// Panics at the first inconsistency, with the audit that shows it.
    pub fn run(&self, path: &Path) -> Report {
        let mut machine = profile::embedded("tiny*2").expect("an embedded profile");
        machine.devices[0].teardown_lag_ms = 0;
        machine.devices[1].teardown_lag_ms = 20;
        let world = World::create(path, &WorldSpec::new(machine)).expect("a fresh path");
        let tally = shared_tally();
        let mut random = Random(self.seed);
        let started = Instant::now();
        let mut audits = 0;
        let mut workers: Vec<Child> = (0..self.workers)
            .map(|_| start(path, &world, &mut random, tally))
            .collect();
        let mut kills = 0;
        // On a busy machine the workers may come to little between two kills: it goes on until it is a storm.
        while kills < self.kills
            || (tally.is_calm(kills) && started.elapsed() < Duration::from_secs(60))
        {
            std::thread::sleep(Duration::from_micros(random.below(1500)));
            let victim = usize::try_from(random.below(self.workers as u64)).expect("small");
            let end = workers.swap_remove(victim).kill();
            assert_eq!(
                end,
                End::Signal(libc::SIGKILL),
                "a worker ended by itself: its books were not the world's"
            );
            workers.push(start(path, &world, &mut random, tally));
            kills += 1;
            if kills % 16 == 1 {
                let audit = world.audit();
                assert!(audit.is_consistent(), "after {kills} kills: {audit:#?}");
                audits += 1;
            }
        }
        for worker in workers {
            assert_eq!(worker.kill(), End::Signal(libc::SIGKILL));
        }
        assert!(world.audit().is_consistent(), "{:#?}", world.audit());
        std::thread::sleep(world.teardown_lag());
        let last = world.audit();
        assert!(
            last.is_consistent() && last.is_empty(),
            "after the last teardown: {last:#?}"
        );
        Report {
            kills: kills + self.workers as u64,
            audits: audits + 2,
            calls: tally.calls.load(Relaxed),
            refusals: tally.refusals.load(Relaxed),
            longest_call: Duration::from_nanos(tally.longest_ns.load(Relaxed)),
            elapsed: started.elapsed(),
            last,
        }
    }
}

/// Half of the workers open the world anew, half inherit the parent's: both happen to the mocks. Comes back once the
/// worker has its row, so that every kill is a death that the world must notice.
fn start(path: &Path, inherited: &World, random: &mut Random, tally: &'static Tally) -> Child {
    let seed = random.next();
    let mut worker = fork(move |line| {
        let own = if seed & 1 == 0 {
            None
        } else {
            Some(World::open(path).expect("the world is there"))
        };
        let world = own.as_ref().unwrap_or(inherited);
        // Nothing at all, which even a full device grants: it is the row that counts.
        world
            .take(DeviceIndex(0), Kind::Unlisted, Bytes::ZERO)
            .expect("a row");
        line.say(b'r');
        // From here on behind the parent and the newcomers, which a dozen busy workers would otherwise keep waiting.
        // SAFETY: changes this process's priority only.
        unsafe { libc::nice(10) };
        work(world, seed, tally)
    });
    assert_eq!(worker.line.hear(), b'r', "a worker ended before it began");
    worker
}

/// Takes and gives back for ever; comes back only if the world's books differ from its own.
fn work(world: &World, seed: u64, tally: &Tally) -> i32 {
    let mut random = Random(seed);
    let mut held: Vec<(DeviceIndex, Kind, Bytes)> = Vec::new();
    for round in 1_u64.. {
        let began = Instant::now();
        let device = DeviceIndex(u32::try_from(random.below(2)).unwrap_or(0));
        let kind = Kind::ALL[usize::try_from(random.below(Kind::COUNT as u64)).unwrap_or(0)];
        if held.len() < 64 && random.below(5) < 3 {
            let bytes = Bytes(1 + random.below(5 << 20));
            match world.take(device, kind, bytes) {
                Ok(()) => held.push((device, kind, bytes)),
                Err(refusal) if refusal.free >= bytes => return 5,
                Err(_) => {
                    tally.refusals.fetch_add(1, Relaxed);
                }
            }
        } else if let Some(victim) = held.len().checked_sub(1) {
            let (device, kind, bytes) =
                held.swap_remove(usize::try_from(random.below(victim as u64 + 1)).unwrap_or(0));
            world.give_back(device, kind, bytes);
        }
        tally.calls.fetch_add(1, Relaxed);
        tally.longest_ns.fetch_max(
            u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Relaxed,
        );
        if round % 512 == 0 {
            let own: Bytes = held
                .iter()
                .filter(|(on, ..)| *on == device)
                .map(|(.., bytes)| *bytes)
                .sum();
            if world.used_by(device, std::process::id()) != own {
                return 3;
            }
        }
    }
    0
}

fn shared_tally() -> &'static Tally {
    // SAFETY: a new anonymous mapping, zeroed, large enough for three atomic words, and never unmapped.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            access,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast::<Tally>()
    }
}

/// xorshift64*: a seed reproduces what the storm asked for (not when the scheduler let it).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0 = self.0.max(1);
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
