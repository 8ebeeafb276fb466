//! A fault plan as one process asks it: rows of other roles left out, look-ups prepared, so that a call without a fault
//! costs a load and a branch.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::fault::{Consultation, Effect, Fault, FaultPlan, IdentityFault, When};
use crate::identity::{Identity, PciAddress, Uuid};
use crate::profile::DeviceProfile;
use crate::units::Api;

#[derive(Debug)]
pub(crate) struct Plan {
    rules: [Vec<Rule>; 3],
    missing: [Vec<String>; 3],
    identities: [Vec<Identity>; 3],
}

#[derive(Debug)]
struct Rule {
    /// `None`: every entry point of the API.
    entry: Option<String>,
    when: When,
    answer: Consultation,
    /// Which of the world's counters counts its calls.
    counter: usize,
}

impl Plan {
    pub(crate) fn new(plan: &FaultPlan, role: Option<&str>, devices: &[DeviceProfile]) -> Self {
        let own = || {
            plan.faults
                .iter()
                .enumerate()
                .filter(|(_, fault)| fault.role.is_none() || fault.role.as_deref() == role)
        };
        Self {
            rules: Api::ALL.map(|api| {
                own()
                    .filter_map(|(row, fault)| Rule::new(api, row, fault))
                    .collect()
            }),
            missing: Api::ALL.map(|api| {
                own()
                    .filter(|(_, fault)| {
                        fault.then == Effect::Missing && Api::of_symbol(&fault.at) == Some(api)
                    })
                    .map(|(_, fault)| fault.at.clone())
                    .collect()
            }),
            identities: Api::ALL.map(|api| {
                let faults: Vec<&Fault> = own()
                    .map(|(_, fault)| fault)
                    .filter(|fault| fault.identity_api() == Some(api))
                    .collect();
                (0..devices.len())
                    .map(|device| identity(api, devices, device, &faults))
                    .collect()
            }),
        }
    }

    #[inline]
    pub(crate) fn consult(&self, api: Api, entry: &str, counters: &[AtomicU64]) -> Consultation {
        let rules = &self.rules[api as usize];
        if rules.is_empty() {
            Consultation::Proceed
        } else {
            consult(rules, entry, counters)
        }
    }

    pub(crate) fn missing(&self, api: Api) -> &[String] {
        &self.missing[api as usize]
    }

    pub(crate) fn identity(&self, api: Api, device: usize) -> Identity {
        self.identities[api as usize][device]
    }
}

/// Every matching row counts the call; the first that fires decides it.
fn consult(rules: &[Rule], entry: &str, counters: &[AtomicU64]) -> Consultation {
    let mut decided = Consultation::Proceed;
    for rule in rules
        .iter()
        .filter(|rule| rule.entry.as_deref().is_none_or(|wanted| wanted == entry))
    {
        let call = counters[rule.counter].fetch_add(1, Relaxed) + 1;
        let fires = match rule.when {
            When::Every => true,
            When::Nth(n) => call == n,
            When::From(n) => call >= n,
        };
        if fires && decided == Consultation::Proceed {
            decided = rule.answer;
        }
    }
    decided
}

impl Rule {
    fn new(api: Api, row: usize, fault: &Fault) -> Option<Self> {
        let answer = match fault.then {
            Effect::Result(code) => Consultation::Result(code),
            Effect::KillBefore => Consultation::KillBefore,
            Effect::KillAfter => Consultation::KillAfter,
            Effect::Missing | Effect::Identity(_) => return None,
        };
        let entry = if fault.at == "*" || fault.at.strip_suffix(".*") == Some(api.name()) {
            None
        } else if Api::of_symbol(&fault.at) == Some(api) {
            Some(fault.at.clone())
        } else {
            return None;
        };
        Some(Self {
            entry,
            when: fault.when,
            answer,
            counter: row,
        })
    }
}

fn identity(api: Api, devices: &[DeviceProfile], device: usize, faults: &[&Fault]) -> Identity {
    let own = &devices[device];
    let uuid = if api == Api::Vulkan {
        own.vulkan_uuid.unwrap_or(own.uuid)
    } else {
        own.uuid
    };
    let mut shown = Identity {
        uuid: uuid.0,
        pci: own.pci,
    };
    for fault in faults {
        let Effect::Identity(falsehood) = fault.then else {
            continue;
        };
        let selected = fault.device.map(|device| device.as_usize());
        let affected = match (selected, falsehood) {
            (None, _) => true,
            (Some(one), IdentityFault::SwappedUuid | IdentityFault::SwappedPci) => {
                device == one || device == neighbour(one, devices.len())
            }
            (Some(one), _) => device == one,
        };
        if !affected {
            continue;
        }
        // An exchange with a selector is between the selected device and its neighbour, whoever asks.
        let partner = match selected {
            Some(one) if device != one => one,
            Some(one) => neighbour(one, devices.len()),
            // An odd last one has nobody left to exchange with.
            None if device ^ 1 < devices.len() => device ^ 1,
            None => device,
        };
        match falsehood {
            IdentityFault::ZeroUuid => shown.uuid = Uuid::ZERO.0,
            IdentityFault::DuplicateUuid => {
                shown.uuid = devices[if selected.is_some() { partner } else { 0 }].uuid.0;
            }
            IdentityFault::SwappedUuid => shown.uuid = devices[partner].uuid.0,
            IdentityFault::BytesSwappedUuid => shown.uuid = own.uuid.bytes_swapped().0,
            IdentityFault::ZeroPci => shown.pci = PciAddress::default(),
            IdentityFault::SwappedPci => shown.pci = devices[partner].pci,
        }
    }
    shown
}

/// Whom a selected device exchanges with: 0 and 1, 2 and 3, …; an odd last one its predecessor, a single one itself.
fn neighbour(device: usize, count: usize) -> usize {
    let other = device ^ 1;
    if other < count {
        other
    } else {
        device.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_selects_processes_and_others_are_not_counted() {
        let text = "[[fault]]\nat = \"cuInit\"\nwhen = \"2\"\nthen = \"result:3\"\nrole = \"child\"\n\
                    [[fault]]\nat = \"cuda.identity\"\nthen = \"uuid:zero\"\nrole = \"child\"\n\
                    [[fault]]\nat = \"cuMemFree_v2\"\nthen = \"missing\"\nrole = \"child\"";
        let plan = FaultPlan::parse("test", text).unwrap();
        let devices = crate::profile::embedded("tiny").unwrap().devices;
        let [child, parent, unnamed] =
            [Some("child"), Some("parent"), None].map(|role| Plan::new(&plan, role, &devices));
        let counters = [const { AtomicU64::new(0) }; 3];
        let ask = |plan: &Plan| plan.consult(Api::Cuda, "cuInit", &counters);
        for other in [&parent, &unnamed, &child, &parent, &unnamed] {
            assert_eq!(ask(other), Consultation::Proceed);
        }
        assert_eq!(ask(&child), Consultation::Result(3));
        assert_eq!(child.identity(Api::Cuda, 0).uuid, [0; 16]);
        assert_eq!(parent.identity(Api::Cuda, 0).uuid, devices[0].uuid.0);
        assert_eq!(
            (child.missing(Api::Cuda), unnamed.missing(Api::Cuda)),
            (&["cuMemFree_v2".to_owned()][..], &[][..])
        );
    }
}
