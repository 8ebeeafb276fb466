//! Lists that the card answers and that no computation gives (fixtures/oracle/vulkan-lists-580.txt).

use ash::vk;

use crate::boundary::{Out, OutList, Outcome};
use crate::enumerate::enumerate_begun;

const LISTS: &str = include_str!("../../fixtures/oracle/vulkan-lists-580.txt");

/// The numbers of every row of a list.
fn rows(list: &str) -> Vec<Vec<u32>> {
    LISTS
        .lines()
        .filter_map(|line| line.strip_prefix(list)?.strip_prefix(' '))
        .map(|row| {
            row.split(' ')
                .filter_map(|number| number.parse().ok().or(u32::from_str_radix(number, 16).ok()))
                .collect()
        })
        .collect()
}

pub fn shading_rates(
    count: Out<u32>,
    list: OutList<vk::PhysicalDeviceFragmentShadingRateKHR<'_>>,
) -> Outcome {
    let rows = rows("shading-rate");
    enumerate_begun(count, list, rows.len(), |index, rate| {
        if let [width, height, samples] = rows[index][..] {
            rate.fragment_size = vk::Extent2D { width, height };
            rate.sample_counts = vk::SampleCountFlags::from_raw(samples);
        }
    })
}

pub fn sample_locations(
    samples: vk::SampleCountFlags,
    properties: Out<vk::MultisamplePropertiesEXT<'_>>,
) {
    let rows = rows("sample-locations");
    let grid = rows.iter().find(|row| row[0] == samples.as_raw());
    properties.edit(|properties| {
        properties.max_sample_location_grid_size = match grid.map(|row| &row[..]) {
            Some([_, width, height]) => vk::Extent2D {
                width: *width,
                height: *height,
            },
            _ => vk::Extent2D::default(),
        };
    });
}

pub fn cooperative_matrices(
    count: Out<u32>,
    list: OutList<vk::CooperativeMatrixPropertiesKHR<'_>>,
) -> Outcome {
    let rows = rows("cooperative-matrix");
    let kind = |number: u32| vk::ComponentTypeKHR::from_raw(number.cast_signed());
    enumerate_begun(count, list, rows.len(), |index, matrix| {
        if let [m, n, k, a, b, c, result, saturating, scope] = rows[index][..] {
            matrix.m_size = m;
            matrix.n_size = n;
            matrix.k_size = k;
            matrix.a_type = kind(a);
            matrix.b_type = kind(b);
            matrix.c_type = kind(c);
            matrix.result_type = kind(result);
            matrix.saturating_accumulation = saturating;
            matrix.scope = vk::ScopeKHR::from_raw(scope.cast_signed());
        }
    })
}

/// The priorities that a queue family can be asked for; of a family that the card does not have, the first one's.
pub fn queue_priorities(family: usize) -> Vec<vk::QueueGlobalPriorityKHR> {
    let rows = rows("queue-priorities");
    let row = rows
        .iter()
        .find(|row| row[0] as usize == family)
        .or(rows.first());
    let priorities = row.into_iter().flat_map(|row| &row[1..]);
    priorities
        .map(|priority| vk::QueueGlobalPriorityKHR::from_raw(priority.cast_signed()))
        .collect()
}
