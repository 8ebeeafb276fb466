//! One process after the other: what the ledger answers is what a plain sum would.

use ledger::{Bytes, DeviceIndex, Ledger, NoDriver, Refusal, Setup, View};
use proptest::prelude::*;

const DEVICES: usize = 3;
const LEDGERS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        ledger: usize,
        device: usize,
        bytes: u64,
    },
    Cancel {
        ledger: usize,
        device: usize,
        bytes: u64,
    },
    TrueUp {
        ledger: usize,
        device: usize,
        bytes: u64,
        actual: u64,
    },
    Release {
        pick: usize,
    },
    /// What the driver took already.
    Overdraw {
        ledger: usize,
        device: usize,
        bytes: u64,
    },
    Budget {
        device: usize,
        bytes: Option<u64>,
    },
    Rejoin {
        ledger: usize,
    },
}

fn amount() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        0..100_000_u64,
        (0..40_u64).prop_map(|blocks| blocks << 21),
        (0..4_u64).prop_map(|large| large << 28)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (ledger, device) = (0..LEDGERS, 0..DEVICES);
    let place = (ledger.clone(), device.clone(), amount());
    prop_oneof![
        4 => place.clone().prop_map(|(ledger, device, bytes)| Step::Reserve { ledger, device, bytes }),
        1 => place.clone().prop_map(|(ledger, device, bytes)| Step::Cancel { ledger, device, bytes }),
        2 => (place, amount()).prop_map(|((ledger, device, bytes), actual)| Step::TrueUp { ledger, device, bytes, actual: actual.min(bytes) }),
        4 => any::<usize>().prop_map(|pick| Step::Release { pick }),
        1 => (0..LEDGERS, 0..DEVICES, amount()).prop_map(|(ledger, device, bytes)| Step::Overdraw { ledger, device, bytes }),
        1 => (device, proptest::option::weighted(0.9, amount())).prop_map(|(device, bytes)| Step::Budget { device, bytes }),
        1 => ledger.prop_map(|ledger| Step::Rejoin { ledger }),
    ]
}

/// What should be: each charge by itself, and each budget.
#[derive(Default)]
struct Model {
    charges: Vec<(usize, usize, u64)>,
    budgets: [Option<u64>; DEVICES],
}

impl Model {
    fn usage(&self, device: usize) -> u64 {
        self.charges
            .iter()
            .filter(|charge| charge.1 == device)
            .map(|charge| charge.2)
            .sum()
    }

    fn fits(&self, device: usize, bytes: u64) -> bool {
        self.budgets[device].is_none_or(|budget| self.usage(device) + bytes <= budget)
    }
}

fn setup(budgets: [u64; DEVICES]) -> Setup {
    let mut setup = Setup::default();
    for (device, budget) in budgets.into_iter().enumerate() {
        setup.budgets[device] = Some(Bytes(budget));
    }
    setup
}

fn index(device: usize) -> DeviceIndex {
    DeviceIndex(device as u32)
}

/// Reserves, and holds the answer against the model's.
fn reserve(
    ledger: &Ledger,
    model: &Model,
    device: usize,
    bytes: u64,
    actual: Option<u64>,
) -> Result<bool, TestCaseError> {
    let verdict = ledger.reserve_with(index(device), Bytes(bytes), &NoDriver);
    prop_assert_eq!(
        verdict.is_ok(),
        model.fits(device, bytes),
        "{:?} of device {}",
        bytes,
        device
    );
    match (verdict, actual) {
        (Ok(reservation), Some(actual)) => reservation.commit_as(Bytes(actual)),
        (Ok(reservation), None) => drop(reservation),
        (Err(refusal), _) => {
            let (usage, budget) = (
                Bytes(model.usage(device)),
                Bytes(model.budgets[device].unwrap_or(0)),
            );
            prop_assert_eq!(
                refusal,
                Refusal::OverBudget {
                    requested: Bytes(bytes),
                    usage,
                    budget
                }
            );
            return Ok(false);
        }
    }
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_a_plain_sum(budgets in prop::array::uniform3(amount()), steps in prop::collection::vec(step(), 1..60)) {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("ledger");
        let attach = || Ledger::attach(&path, &setup(budgets)).unwrap();
        let mut ledgers: Vec<Ledger> = (0..LEDGERS).map(|_| attach()).collect();
        let view = View::open(&path).unwrap();
        let mut model = Model { budgets: budgets.map(Some), ..Model::default() };
        for step in steps {
            match step {
                Step::Reserve { ledger, device, bytes } => {
                    if reserve(&ledgers[ledger], &model, device, bytes, Some(bytes))? {
                        model.charges.push((ledger, device, bytes));
                    }
                }
                Step::Cancel { ledger, device, bytes } => {
                    reserve(&ledgers[ledger], &model, device, bytes, None)?;
                }
                Step::TrueUp { ledger, device, bytes, actual } => {
                    if reserve(&ledgers[ledger], &model, device, bytes, Some(actual))? {
                        model.charges.push((ledger, device, actual));
                    }
                }
                Step::Release { pick } if !model.charges.is_empty() => {
                    let (ledger, device, bytes) = model.charges.swap_remove(pick % model.charges.len());
                    ledgers[ledger].release(index(device), Bytes(bytes));
                }
                Step::Release { .. } => {}
                Step::Overdraw { ledger, device, bytes } => {
                    prop_assert!(ledgers[ledger].overdraw(index(device), Bytes(bytes)));
                    model.charges.push((ledger, device, bytes));
                }
                Step::Budget { device, bytes } => {
                    let usage = match bytes {
                        Some(bytes) => view.set_budget(index(device), Bytes(bytes)),
                        None => view.clear_budget(index(device)),
                    };
                    prop_assert_eq!(usage, Bytes(model.usage(device)));
                    model.budgets[device] = bytes;
                }
                Step::Rejoin { ledger } if model.charges.iter().all(|charge| charge.0 != ledger) => ledgers[ledger] = attach(),
                Step::Rejoin { .. } => {}
            }
            for device in 0..DEVICES {
                prop_assert_eq!(view.usage(index(device)), Bytes(model.usage(device)));
                prop_assert_eq!(view.budget(index(device)), model.budgets[device].map(Bytes));
            }
            for (slot, ledger) in ledgers.iter().enumerate() {
                let own: u64 = model.charges.iter().filter(|charge| (charge.0, charge.1) == (slot, 0)).map(|charge| charge.2).sum();
                prop_assert_eq!(ledger.own_usage(index(0)), Bytes(own));
            }
        }
    }
}
