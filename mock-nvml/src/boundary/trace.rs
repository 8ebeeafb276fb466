//! The line that a finished call leaves in the trace.

pub use ::trace::Arguments;
use abi::nvml::nvmlReturn_t;
use mock_device::World;

use crate::entry::Entry;

/// Writes the line of one finished call.
pub fn write(
    world: &World,
    entry: Entry,
    answer: nvmlReturn_t,
    arguments: impl Fn(&mut Arguments),
) {
    ::trace::arguments::finished(
        ::trace::nvml::API,
        entry.name(),
        answer.0.into(),
        ::trace::nvml::ends(entry.name()),
        arguments,
        |record| world.trace(record),
    );
}
