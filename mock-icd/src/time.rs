//! VK_KHR_calibrated_timestamps: the device's clock is the world's, CLOCK_MONOTONIC in nanoseconds.

use ash::vk;

use crate::boundary::{List, Out, OutList, Outcome, clock};
use crate::enumerate::enumerate;

const DOMAINS: [vk::TimeDomainKHR; 3] = [
    vk::TimeDomainKHR::DEVICE,
    vk::TimeDomainKHR::CLOCK_MONOTONIC,
    vk::TimeDomainKHR::CLOCK_MONOTONIC_RAW,
];

pub fn domains(count: Out<u32>, list: OutList<vk::TimeDomainKHR>) -> Outcome {
    enumerate(count, list, DOMAINS.into_iter())
}

pub fn calibrated(
    count: u32,
    infos: List<vk::CalibratedTimestampInfoKHR<'_>>,
    timestamps: OutList<u64>,
    deviation: Out<u64>,
) -> Outcome {
    let begun = clock(vk::TimeDomainKHR::DEVICE);
    let infos = infos.of(count as usize).iter();
    timestamps.put(infos.map(|info| clock(info.time_domain)));
    deviation.put(
        clock(vk::TimeDomainKHR::DEVICE)
            .saturating_sub(begun)
            .max(1),
    );
    Ok(())
}
