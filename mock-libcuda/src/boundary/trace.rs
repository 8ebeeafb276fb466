//! The line that a finished call leaves in the trace.

pub use ::trace::Arguments;
use abi::cuda::CUresult;
use mock_device::World;

use crate::entry::Entry;

/// Writes the line of one finished call.
pub fn write(world: &World, entry: Entry, answer: CUresult, arguments: impl Fn(&mut Arguments)) {
    ::trace::arguments::finished(
        ::trace::cuda::API,
        entry.name(),
        answer.0.into(),
        ::trace::cuda::ends(entry.name()),
        arguments,
        |record| world.trace(record),
    );
}
