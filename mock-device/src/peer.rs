//! How the devices of a machine reach each other's memory: a fact of the profile, asked by libcuda and NVML alike.

use serde::{Deserialize, Serialize};

use crate::profile::MachineProfile;
use crate::units::DeviceIndex;

/// What joins two devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Nothing: as consumer cards refuse.
    #[default]
    None,
    Pcie,
    Nvlink,
}

/// The same for every pair of equal devices of a machine; a machine that says nothing has no links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peering {
    pub link: Link,
    /// NVLinks of each device that are up.
    #[serde(default)]
    pub nvlinks: u32,
    /// How many other devices' memory a device can reach at once; any number without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
}

impl Peering {
    pub(crate) fn is_unsaid(&self) -> bool {
        *self == Self::default()
    }
}

impl Link {
    /// Whether memory is reached at all.
    #[must_use]
    pub fn reaches(self) -> bool {
        self != Self::None
    }

    /// Whether atomic operations are carried out at the other end.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        self == Self::Nvlink
    }
}

impl MachineProfile {
    /// What joins two devices: nothing joins a device with itself, with one of another make, or with one in MIG mode.
    #[must_use]
    pub fn link(&self, one: DeviceIndex, other: DeviceIndex) -> Link {
        let device = |index: DeviceIndex| self.devices.get(index.as_usize());
        match (device(one), device(other)) {
            (Some(from), Some(to))
                if one != other
                    && from.name == to.name
                    && from.mig.is_empty()
                    && to.mig.is_empty() =>
            {
                self.peer.link
            }
            _ => Link::None,
        }
    }

    /// How many NVLinks of a device lead to another one.
    #[must_use]
    pub fn nvlinks(&self, device: DeviceIndex) -> u32 {
        let others = (0..self.devices.len() as u32).map(DeviceIndex);
        let joined = others
            .into_iter()
            .any(|other| self.link(device, other) == Link::Nvlink);
        if joined { self.peer.nvlinks } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::embedded;

    #[test]
    fn equal_devices_are_joined_as_the_machine_says_and_no_others() {
        let [zero, one, far] = [0, 1, 99].map(DeviceIndex);
        let link = |machine: &str, from, to| embedded(machine).expect("embedded").link(from, to);
        assert_eq!(link("h200x2", zero, one), Link::Nvlink);
        assert_eq!(link("h200*16", one, DeviceIndex(15)), Link::Nvlink);
        assert_eq!(link("rtx6000-ada*2", zero, one), Link::Pcie);
        assert_eq!(link("tiny*2", zero, one), Link::None);
        assert_eq!(link("h200x2", one, one), Link::None);
        assert_eq!(link("h200x2", one, far), Link::None);
        assert_eq!(link("h200-mig*2", zero, one), Link::None);
        let mut mixed = embedded("h200x2").expect("embedded");
        "Another card".clone_into(&mut mixed.devices[1].name);
        assert_eq!(mixed.link(zero, one), Link::None);
    }

    #[test]
    fn a_device_without_another_has_no_nvlink_up() {
        let links = |machine: &str| embedded(machine).expect("embedded").nvlinks(DeviceIndex(0));
        assert_eq!(["h200", "h200x2", "rtx6000-ada*2"].map(links), [0, 18, 0]);
    }
}
