//! Any word of a live ledger may hold anything at any time: other processes write the file. No process crashes, hangs or looks beyond its tables for it,
//! and whoever joins afterwards either understands the file or says what is wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;

use budget::DeviceSet;
use ledger::{
    Authority, Bytes, DeviceIndex, Driver, Key, Ledger, MAX_DEVICES, Object, Reason, SLOTS, Setup,
    View,
};
use proptest::prelude::*;

/// Where the parts of the file begin, in words: tried more often than by chance.
const PAGE: usize = 512;
const LINE: usize = 8;
const LINES: usize = PAGE + SLOTS * LINE;

/// A driver that has let go of whatever it is asked about.
struct Gone;

impl Driver for Gone {
    fn still_holds(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
        Some(false)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        place: f64,
        value: u64,
    },
    /// Near the beginning of a part, and in the first slots.
    WriteAt {
        word: usize,
        value: u64,
    },
    Reserve {
        device: u32,
        bytes: u64,
    },
    Release {
        device: u32,
        bytes: u64,
    },
    Overdraw {
        device: u32,
        bytes: u64,
    },
    Name {
        key: u64,
        devices: u32,
        bytes: u64,
    },
    Hold {
        key: u64,
    },
    LetGo,
    Share {
        device: u32,
        hundredths: u16,
    },
    Budget {
        device: u32,
        bytes: Option<u64>,
    },
    Look,
    Reap,
    Rejoin,
}

fn value() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        any::<u64>(),
        (0..64_u32).prop_map(|bit| 1 << bit),
        Just(0),
        Just(u64::MAX),
        0..2_000_u64,
        (0..2_000_u64).prop_map(|number| number << 2 | 3),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let device = 0..MAX_DEVICES as u32 + 2;
    let part = prop_oneof![
        Just(0_usize),
        Just(PAGE),
        Just(LINES),
        Just(LINES + SLOTS * LINE),
        Just(LINES + MAX_DEVICES * SLOTS * LINE),
    ];
    let place = (part, 0..4 * LINE).prop_map(|(part, word)| part + word);
    let amount = prop_oneof![0..1_u64 << 33, any::<u64>()];
    let object = (0..4_u64, any::<u32>(), amount.clone());
    prop_oneof![
        4 => (0.0..1.0, value()).prop_map(|(place, value)| Step::Write { place, value }),
        8 => (place, value()).prop_map(|(word, value)| Step::WriteAt { word, value }),
        2 => (device.clone(), amount.clone()).prop_map(|(device, bytes)| Step::Reserve { device, bytes }),
        1 => (device.clone(), amount.clone()).prop_map(|(device, bytes)| Step::Release { device, bytes }),
        1 => (device.clone(), amount.clone()).prop_map(|(device, bytes)| Step::Overdraw { device, bytes }),
        1 => object.prop_map(|(key, devices, bytes)| Step::Name { key, devices, bytes }),
        1 => (0..4_u64).prop_map(|key| Step::Hold { key }),
        1 => Just(Step::LetGo),
        1 => (device.clone(), any::<u16>()).prop_map(|(device, hundredths)| Step::Share { device, hundredths }),
        1 => (device, proptest::option::of(amount)).prop_map(|(device, bytes)| Step::Budget { device, bytes }),
        1 => Just(Step::Look),
        1 => Just(Step::Reap),
        1 => Just(Step::Rejoin),
    ]
}

struct Tenant {
    file: File,
    path: std::path::PathBuf,
    first: Ledger,
    second: Option<Ledger>,
    held: Vec<Object>,
    view: View,
}

impl Tenant {
    fn new(path: std::path::PathBuf) -> Tenant {
        let mut setup = Setup::default();
        setup.budgets[0] = Some(Bytes(8 << 30));
        let attach = || Ledger::attach(&path, &setup).expect("a ledger");
        Tenant {
            first: attach(),
            second: Some(attach()),
            view: View::open(&path).expect("a ledger"),
            file: File::options().write(true).open(&path).expect("its file"),
            held: Vec::new(),
            path,
        }
    }

    fn write(&self, word: usize, value: u64) {
        let words = self.file.metadata().expect("its size").len() / 8;
        let at = (word as u64).min(words - 1) * 8;
        let written = self.file.write_all_at(&value.to_le_bytes(), at);
        written.expect("a word is written");
    }

    fn take(&mut self, step: &Step) {
        let ledger = self.second.as_ref().unwrap_or(&self.first);
        match *step {
            Step::Write { place, value } => {
                let words = self.file.metadata().expect("its size").len() / 8;
                self.write((place * words as f64) as usize, value);
            }
            Step::WriteAt { word, value } => self.write(word, value),
            Step::Reserve { device, bytes } => {
                let granted = ledger.reserve_with(DeviceIndex(device), Bytes(bytes), &Gone);
                assert!(granted.is_err() || device < MAX_DEVICES as u32);
                granted.into_iter().for_each(ledger::Reservation::commit);
            }
            Step::Release { device, bytes } => ledger.release(DeviceIndex(device), Bytes(bytes)),
            Step::Overdraw { device, bytes } => {
                let _ = ledger.overdraw(DeviceIndex(device), Bytes(bytes));
            }
            Step::Name {
                key,
                devices,
                bytes,
            } => {
                let devices = (0..32)
                    .filter(|bit| devices >> bit & 1 != 0)
                    .map(DeviceIndex);
                let devices = DeviceSet::from_iter(devices);
                let named = ledger.name_object(Key([key, 7]), devices, Bytes(bytes), None);
                self.held.extend(named);
            }
            Step::Hold { key } => self.held.extend(ledger.hold_object(Key([key, 7]))),
            Step::LetGo => {
                if let Some(object) = self.held.pop() {
                    ledger.pass_object_on(object);
                    ledger.let_go_of_object(object);
                }
            }
            Step::Share { device, hundredths } => {
                let held = ledger.join_share(DeviceIndex(device), hundredths, Authority::Owner);
                assert!(held <= hundredths || hundredths == 0);
            }
            Step::Budget { device, bytes } => {
                match bytes {
                    Some(bytes) => self.view.set_budget(DeviceIndex(device), Bytes(bytes)),
                    None => self.view.clear_budget(DeviceIndex(device)),
                };
            }
            Step::Look => self.look(),
            Step::Reap => {
                ledger.reap(&Gone);
                self.view.reap_with(&Gone);
            }
            Step::Rejoin => self.rejoin(),
        }
    }

    fn look(&self) {
        assert!(self.view.slots().len() <= SLOTS);
        let _ = self.view.stats();
        for device in DeviceIndex::all() {
            assert!(self.view.draining(device) <= self.view.usage(device));
            assert!(self.view.share(device) < 10_000);
            let ledger = &self.first;
            let (budget, left) = (ledger.budget(device), ledger.available(device));
            assert!(left <= budget, "{left:?} of {budget:?}");
            let _ = (ledger.process_usage(device), ledger.own_usage(device));
            let _ = (ledger.share(device), self.view.total(device));
        }
    }

    /// Either the file is understood, or what is wrong is named.
    fn rejoin(&mut self) {
        self.held.clear();
        self.second = None;
        match Ledger::attach(&self.path, &Setup::default()) {
            Ok(ledger) => self.second = Some(ledger),
            Err(error) => assert!(
                matches!(
                    error.reason,
                    Reason::ForeignFile { .. } | Reason::NoFreeSlot
                ),
                "{error}"
            ),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_word_may_hold_anything(steps in proptest::collection::vec(step(), 1..40)) {
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let mut tenant = Tenant::new(place.path().join("ledger"));
        steps.iter().for_each(|step| tenant.take(step));
        tenant.look();
    }
}
