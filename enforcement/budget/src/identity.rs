//! Which of the container's devices one API's device is (defects V1, V2).
//!
//! APIs disagree: a Vulkan driver in a container may give a UUID of 16 zero bytes, two devices one UUID, or another device's. What is sure is used,
//! what is not sure is charged to every candidate, never skipped.

use seeds::{Seed, planted};

use crate::{DeviceIndex, DeviceSet};

/// NVIDIA's PCI vendor id.
pub const NVIDIA: u32 = 0x10de;

/// Where a device sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pci {
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub function: u32,
}

/// What an API says of the device that is asked about. A UUID of zeros says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub uuid: Option<[u8; 16]>,
    pub pci: Option<Pci>,
    /// False for a CPU device or another vendor's: it passes through.
    pub tenant_gpu: bool,
}

/// One of the container's devices. Under MIG only the UUID identifies: `pci` is then `None`, so that no PCI address matches (decision 25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub index: DeviceIndex,
    pub uuid: Option<[u8; 16]>,
    pub pci: Option<Pci>,
}

/// By what a device was identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Uuid,
    Pci,
    OnlyGpu,
}

/// Whose budget a device draws on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    One(DeviceIndex, Rule),
    /// Ambiguous: each of these is charged. Empty where no candidate is known at all: then nothing can be granted.
    Every(DeviceSet),
    NotATenantGpu,
}

impl Asked {
    /// A device that is certainly NVIDIA's, as CUDA's are.
    #[must_use]
    pub const fn nvidia(uuid: Option<[u8; 16]>, pci: Option<Pci>) -> Asked {
        Asked {
            uuid,
            pci,
            tenant_gpu: true,
        }
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid.filter(|uuid| *uuid != [0; 16])
    }
}

impl Resolution {
    /// The devices to charge.
    #[must_use]
    pub fn devices(self) -> DeviceSet {
        match self {
            Resolution::One(index, _) => DeviceSet::from_iter([index]),
            Resolution::Every(devices) => devices,
            Resolution::NotATenantGpu => DeviceSet::EMPTY,
        }
    }
}

/// Resolves one device: by a UUID that is unique, not zero and not contradicted by the PCI address; else by a unique PCI address; else by there being only
/// one GPU; else to every candidate.
#[must_use]
pub fn resolve(asked: Asked, candidates: &[Candidate]) -> Resolution {
    if !asked.tenant_gpu {
        return Resolution::NotATenantGpu;
    }
    let by_uuid = asked
        .uuid()
        .and_then(|uuid| only(candidates, |candidate| candidate.uuid == Some(uuid)));
    let by_pci = asked
        .pci
        .and_then(|pci| only(candidates, |candidate| candidate.pci == Some(pci)));
    match (by_uuid, by_pci) {
        (Some(uuid), Some(pci)) if uuid == pci => Resolution::One(uuid.index, Rule::Uuid),
        (Some(uuid), None) if !contradicts(asked.pci, uuid) => {
            Resolution::One(uuid.index, Rule::Uuid)
        }
        (_, Some(pci)) if !planted(Seed::V1) => Resolution::One(pci.index, Rule::Pci),
        _ if planted(Seed::V1) => Resolution::NotATenantGpu,
        _ => match candidates {
            [first, ..] if planted(Seed::V2) => Resolution::One(first.index, Rule::OnlyGpu),
            [only] => Resolution::One(only.index, Rule::OnlyGpu),
            _ => Resolution::Every(candidates.iter().map(|candidate| candidate.index).collect()),
        },
    }
}

/// Resolves all devices of one API together: a UUID that two of them claim says nothing of either.
#[must_use]
pub fn resolve_all(asked: &[Asked], candidates: &[Candidate]) -> Vec<Resolution> {
    asked
        .iter()
        .map(|one| {
            let claims = asked
                .iter()
                .filter(|other| other.uuid() == one.uuid())
                .count();
            resolve(
                Asked {
                    uuid: one.uuid.filter(|_| claims == 1),
                    ..*one
                },
                candidates,
            )
        })
        .collect()
}

/// In order of their keys, equals as they came. For a machine's GPUs, which are few: the library's sort is larger than all else that is done with them.
#[must_use]
pub fn in_order<T, K: Ord>(all: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut ordered = Vec::new();
    for one in all {
        let place = ordered.partition_point(|before| key(before) <= key(&one));
        ordered.insert(place, one);
    }
    ordered
}

/// Whether a list can be that of the machine: it names at least as many GPUs as an API shows. One that names fewer is another machine's, or a part of
/// it, and there being but one in it identifies nothing.
#[must_use]
pub fn may_be_all(candidates: usize, asked: &[Asked]) -> bool {
    let place = |asked: &Asked| asked.pci.filter(|_| asked.tenant_gpu);
    let first = |(at, one): &(usize, &Asked)| {
        place(one).is_some_and(|pci| asked[..*at].iter().all(|before| place(before) != Some(pci)))
    };
    asked.iter().enumerate().filter(first).count() <= candidates
}

/// The container's devices where nobody lists them: those that an API shows, in PCI order, one that two of its drivers show being one. Where it does not
/// tell of each where it sits, or the budgets tell more devices apart than it shows, each may be any of them.
#[must_use]
pub fn of_shown(asked: &[Asked], told_apart: usize) -> Vec<Candidate> {
    let shown = || asked.iter().filter(|asked| asked.tenant_gpu);
    let nameless = |count: usize| {
        let candidate = |index| Candidate {
            index: DeviceIndex(index),
            uuid: None,
            pci: None,
        };
        (0..count as u32).map(candidate).collect()
    };
    let placed: Option<Vec<_>> = shown().map(|one| Some((one.pci?, one.uuid()))).collect();
    let Some(placed) = placed else {
        return nameless(shown().count().max(told_apart));
    };
    let mut placed = in_order(placed, |place| *place);
    placed.dedup_by_key(|(pci, _)| *pci);
    if placed.len() < told_apart {
        return nameless(told_apart);
    }
    let numbered = (0..).zip(placed);
    numbered
        .map(|(index, (pci, uuid))| Candidate {
            index: DeviceIndex(index),
            uuid,
            pci: Some(pci),
        })
        .collect()
}

fn only(candidates: &[Candidate], matches: impl Fn(&Candidate) -> bool) -> Option<&Candidate> {
    let mut found = candidates.iter().filter(|candidate| matches(candidate));
    found.next().filter(|_| found.next().is_none())
}

fn contradicts(asked: Option<Pci>, candidate: &Candidate) -> bool {
    matches!((asked, candidate.pci), (Some(asked), Some(known)) if asked != known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const fn pci(bus: u32) -> Pci {
        Pci {
            domain: 0,
            bus,
            device: 0,
            function: 0,
        }
    }

    fn machine(devices: u32) -> Vec<Candidate> {
        (0..devices)
            .map(|index| Candidate {
                index: DeviceIndex(index),
                uuid: Some([index as u8 + 1; 16]),
                pci: Some(pci(index + 1)),
            })
            .collect()
    }

    fn every(devices: u32) -> Resolution {
        Resolution::Every((0..devices).map(DeviceIndex).collect())
    }

    #[rstest]
    #[case::plain(2, Some([2; 16]), Some(pci(2)), Resolution::One(DeviceIndex(1), Rule::Uuid))]
    #[case::no_pci(2, Some([2; 16]), None, Resolution::One(DeviceIndex(1), Rule::Uuid))]
    #[case::zero_uuid(2, Some([0; 16]), Some(pci(2)), Resolution::One(DeviceIndex(1), Rule::Pci))]
    #[case::swapped_uuid(2, Some([1; 16]), Some(pci(2)), Resolution::One(DeviceIndex(1), Rule::Pci))]
    #[case::byte_swapped(2, Some([9; 16]), Some(pci(1)), Resolution::One(DeviceIndex(0), Rule::Pci))]
    #[case::only_gpu(1, Some([0; 16]), None, Resolution::One(DeviceIndex(0), Rule::OnlyGpu))]
    #[case::only_gpu_elsewhere(1, Some([9; 16]), Some(pci(9)), Resolution::One(DeviceIndex(0), Rule::OnlyGpu))]
    #[case::nothing_known(2, None, None, every(2))]
    #[case::zero_without_pci(4, Some([0; 16]), None, every(4))]
    #[case::contradicted(2, Some([2; 16]), Some(pci(9)), every(2))]
    #[case::no_candidates(0, Some([2; 16]), Some(pci(2)), every(0))]
    fn a_device_resolves_by_what_is_sure(
        #[case] devices: u32,
        #[case] uuid: Option<[u8; 16]>,
        #[case] pci: Option<Pci>,
        #[case] resolution: Resolution,
    ) {
        assert_eq!(
            resolve(Asked::nvidia(uuid, pci), &machine(devices)),
            resolution
        );
    }

    #[test]
    fn a_uuid_that_two_candidates_share_identifies_neither() {
        let mut candidates = machine(2);
        candidates[1].uuid = candidates[0].uuid;
        assert_eq!(
            resolve(Asked::nvidia(candidates[0].uuid, None), &candidates),
            every(2)
        );
        assert_eq!(
            resolve(Asked::nvidia(candidates[0].uuid, Some(pci(2))), &candidates),
            Resolution::One(DeviceIndex(1), Rule::Pci)
        );
    }

    #[test]
    fn a_uuid_that_two_devices_claim_identifies_neither() {
        let claims = [
            Asked::nvidia(Some([1; 16]), None),
            Asked::nvidia(Some([1; 16]), None),
        ];
        assert_eq!(resolve_all(&claims, &machine(2)), [every(2), every(2)]);
    }

    #[test]
    fn a_mig_instance_is_never_found_by_its_card() {
        let candidates: Vec<_> = machine(2)
            .into_iter()
            .map(|candidate| Candidate {
                pci: None,
                ..candidate
            })
            .collect();
        assert_eq!(
            resolve(Asked::nvidia(None, Some(pci(1))), &candidates),
            every(2)
        );
    }

    #[test]
    fn without_a_list_a_device_is_what_its_place_says_unless_it_may_be_another() {
        let shown = |bus| Asked::nvidia(Some([bus as u8; 16]), Some(pci(bus)));
        let [first, second] = [shown(7), shown(3)];
        let told = |asked: &[Asked], told_apart| resolve_all(asked, &of_shown(asked, told_apart));
        let own = |index| Resolution::One(DeviceIndex(index), Rule::Uuid);
        assert_eq!(told(&[first, second], 0), [own(1), own(0)]);
        assert_eq!(told(&[first, second], 2), [own(1), own(0)]);
        assert_eq!(
            of_shown(&[first, first, second], 0).len(),
            2,
            "two drivers show one"
        );
        let foreign = Asked {
            tenant_gpu: false,
            ..first
        };
        assert_eq!(of_shown(&[foreign, second], 0).len(), 1);
        // The second of two, or the first: nobody can say.
        assert_eq!(told(&[first], 2), [every(2)]);
        assert_eq!(told(&[first, second], 3), [every(3), every(3)]);
        let nowhere = Asked::nvidia(Some([9; 16]), None);
        assert_eq!(told(&[first, nowhere], 0), [every(2), every(2)]);
        assert_eq!(
            told(&[nowhere], 0),
            [Resolution::One(DeviceIndex(0), Rule::OnlyGpu)]
        );
        assert_eq!(told(&[nowhere], 2), [every(2)]);
    }

    #[test]
    fn equals_keep_their_order() {
        let all = [(2, 'a'), (1, 'b'), (2, 'c'), (0, 'd'), (1, 'e')];
        let ordered = in_order(all, |(key, _)| *key);
        assert_eq!(ordered, [(0, 'd'), (1, 'b'), (1, 'e'), (2, 'a'), (2, 'c')]);
    }

    #[test]
    fn a_list_of_fewer_gpus_than_are_shown_is_not_the_machines() {
        let shown = |bus| Asked::nvidia(Some([9; 16]), Some(pci(bus)));
        let foreign = Asked {
            tenant_gpu: false,
            ..shown(3)
        };
        assert!(may_be_all(1, &[shown(1)]));
        assert!(!may_be_all(1, &[shown(1), shown(2)]));
        assert!(may_be_all(2, &[shown(1), shown(2), foreign]));
        // Two drivers show one GPU, and one whose place is not told may be any.
        assert!(may_be_all(
            1,
            &[shown(1), shown(1), Asked::nvidia(None, None)]
        ));
        assert!(may_be_all(0, &[]));
    }

    #[test]
    fn another_vendors_device_passes_through() {
        let asked = Asked {
            tenant_gpu: false,
            ..Asked::nvidia(Some([1; 16]), Some(pci(1)))
        };
        assert_eq!(resolve(asked, &machine(2)), Resolution::NotATenantGpu);
        assert!(resolve(asked, &machine(2)).devices().is_empty());
    }

    proptest! {
        /// Whatever an API does to its UUIDs, as long as the PCI address is right the right device is among those charged.
        #[test]
        fn the_right_device_is_always_charged(devices in 1_u32..=8, right in 0_u32..8, uuid in proptest::option::of(0_u8..12), has_pci: bool) {
            let right = right % devices;
            let truthful = uuid == Some(right as u8 + 1);
            let misnamed = uuid.is_some_and(|uuid| uuid != 0 && u32::from(uuid) <= devices) && !truthful;
            prop_assume!(has_pci || !misnamed);
            let asked = Asked::nvidia(uuid.map(|uuid| [uuid; 16]), has_pci.then(|| pci(right + 1)));
            prop_assert!(resolve(asked, &machine(devices)).devices().contains(DeviceIndex(right)));
        }
    }
}
