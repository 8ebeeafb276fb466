//! What each API says of the devices: who they are, which there are, in what order. Views may disagree on purpose; their
//! falsehoods are rows of the fault plan.

use std::time::Duration;

use crate::fault::{DevicesFault, Effect, Fault, FaultPlan, IdentityFault, When, shows_devices};
use crate::identity::{Identity, PciAddress, Uuid};
use crate::profile::DeviceProfile;
use crate::units::{Api, Bytes, DeviceIndex};

/// The views of one process.
#[derive(Debug)]
pub(crate) struct Views {
    identities: [Vec<Identity>; 3],
    lists: [Vec<Row>; 3],
}

/// One falsehood about the list of devices, and how long after the first look it is told.
#[derive(Debug)]
struct Row {
    after: Duration,
    /// Which of the world's counters remembers the first look.
    counter: usize,
    device: Option<DeviceIndex>,
    fault: DevicesFault,
}

impl Views {
    pub(crate) fn new(plan: &FaultPlan, role: Option<&str>, devices: &[DeviceProfile]) -> Self {
        let own = || {
            plan.faults
                .iter()
                .enumerate()
                .filter(|(_, fault)| fault.role.is_none() || fault.role.as_deref() == role)
        };
        Self {
            identities: Api::ALL.map(|api| {
                let faults: Vec<&Fault> = own()
                    .map(|(_, fault)| fault)
                    .filter(|fault| fault.identity_api() == Some(api))
                    .collect();
                (0..devices.len())
                    .map(|device| identity(api, devices, device, &faults))
                    .collect()
            }),
            lists: Api::ALL.map(|api| {
                own()
                    .filter(|(_, fault)| shows_devices(&fault.place(), api))
                    .filter_map(Row::new)
                    .collect()
            }),
        }
    }

    pub(crate) fn identity(&self, api: Api, device: usize) -> Identity {
        self.identities[api as usize][device]
    }

    /// The list as an API shows it; `since_first` says how long ago a counter's row was first looked at.
    pub(crate) fn shown(
        &self,
        api: Api,
        since_first: impl Fn(usize) -> Duration,
        mut list: Vec<DeviceIndex>,
    ) -> Vec<DeviceIndex> {
        for row in self.told(api, since_first) {
            match &row.fault {
                DevicesFault::Reversed => list.reverse(),
                DevicesFault::Order(order) => list = ordered(&list, order),
                DevicesFault::Count(count) => list.truncate(*count as usize),
                DevicesFault::Hidden => {
                    list.retain(|device| row.device.is_some_and(|hidden| hidden != *device));
                }
                DevicesFault::Reserve(_) => {}
            }
        }
        list
    }

    /// Whether an API tells falsehoods about the list in a world of any age.
    pub(crate) fn is_true(&self, api: Api) -> bool {
        self.lists[api as usize].is_empty()
    }

    /// By how much NVML's reserve has grown.
    pub(crate) fn drift(
        &self,
        since_first: impl Fn(usize) -> Duration,
        device: DeviceIndex,
    ) -> Bytes {
        self.told(Api::Nvml, since_first)
            .filter(|row| row.device.is_none_or(|one| one == device))
            .map(|row| match row.fault {
                DevicesFault::Reserve(bytes) => bytes,
                _ => Bytes::ZERO,
            })
            .sum()
    }

    fn told(
        &self,
        api: Api,
        since_first: impl Fn(usize) -> Duration,
    ) -> impl Iterator<Item = &Row> {
        self.lists[api as usize]
            .iter()
            .filter(move |row| row.after.is_zero() || row.after <= since_first(row.counter))
    }
}

impl Row {
    fn new((counter, fault): (usize, &Fault)) -> Option<Self> {
        let Effect::Devices(effect) = &fault.then else {
            return None;
        };
        Some(Self {
            counter,
            after: match fault.when {
                When::AfterTime(time) => time,
                _ => Duration::ZERO,
            },
            device: fault.device,
            fault: effect.clone(),
        })
    }
}

/// Those that `order` names by their place, then the others as they stood.
fn ordered(list: &[DeviceIndex], order: &[u32]) -> Vec<DeviceIndex> {
    let mut left: Vec<Option<DeviceIndex>> = list.iter().copied().map(Some).collect();
    let mut take = |at: usize| left.get_mut(at).and_then(Option::take);
    let mut ordered: Vec<DeviceIndex> = order.iter().filter_map(|at| take(*at as usize)).collect();
    ordered.extend(left.into_iter().flatten());
    ordered
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
        mig: false,
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
            IdentityFault::MigUuid => {
                shown.uuid = mig_instance(own.uuid);
                shown.mig = true;
            }
            IdentityFault::ZeroPci => shown.pci = PciAddress::default(),
            IdentityFault::SwappedPci => shown.pci = devices[partner].pci,
        }
    }
    shown
}

/// The UUID of an instance has nothing in common with its device's.
fn mig_instance(device: Uuid) -> [u8; 16] {
    let mut bytes = device.0;
    bytes.reverse();
    bytes.map(|byte| byte ^ 0x5a)
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

    fn list(count: u32) -> Vec<DeviceIndex> {
        (0..count).map(DeviceIndex).collect()
    }

    fn views(text: &str) -> Views {
        let devices = crate::profile::embedded("tiny*4").unwrap().devices;
        Views::new(&FaultPlan::parse("test", text).unwrap(), None, &devices)
    }

    #[test]
    fn each_api_may_show_another_list() {
        let views = views(
            r#"fault = [
                { at = "cuda.devices", then = "order:reversed" },
                { at = "nvml.devices", then = "hidden", device = 1 },
                { at = "vulkan.devices", then = "order:2,0" },
                { at = "vulkan.devices", then = "count:3" },
            ]"#,
        );
        let shown = |api| -> Vec<u32> {
            let shown = views.shown(api, |_| Duration::ZERO, list(4));
            shown.into_iter().map(|device| device.0).collect()
        };
        assert_eq!(shown(Api::Cuda), [3, 2, 1, 0]);
        assert_eq!(shown(Api::Nvml), [0, 2, 3]);
        assert_eq!(shown(Api::Vulkan), [2, 0, 1]);
    }

    #[test]
    fn a_device_disappears_and_a_reserve_grows_long_enough_after_the_first_look() {
        let views = views(
            r#"fault = [
                { at = "*.devices", when = "after:5s", then = "hidden", device = 0 },
                { at = "nvml.devices", when = "after:2s", then = "reserve:64MiB", device = 1 },
                { at = "nvml.devices", then = "reserve:1MiB" },
            ]"#,
        );
        let at = |seconds| move |_| Duration::from_secs(seconds);
        for api in Api::ALL {
            assert_eq!(views.shown(api, at(4), list(2)), list(2));
            assert_eq!(views.shown(api, at(5), list(2)), [DeviceIndex(1)]);
        }
        let drift = |seconds, device| views.drift(at(seconds), DeviceIndex(device));
        assert_eq!([drift(0, 1), drift(2, 1)], [Bytes::mib(1), Bytes::mib(65)]);
        assert_eq!(drift(9, 0), Bytes::mib(1));
    }

    #[test]
    fn a_mig_uuid_is_nobodys_and_says_so() {
        let views = views(r#"fault = [{ at = "nvml.identity", then = "uuid:mig" }]"#);
        let devices = crate::profile::embedded("tiny*4").unwrap().devices;
        for device in 0..4 {
            let shown = views.identity(Api::Nvml, device);
            assert!(shown.mig && devices.iter().all(|known| known.uuid.0 != shown.uuid));
            assert!(
                shown.uuid_text().starts_with("MIG-"),
                "{}",
                shown.uuid_text()
            );
            assert!(
                views
                    .identity(Api::Cuda, device)
                    .uuid_text()
                    .starts_with("GPU-")
            );
        }
    }
}
