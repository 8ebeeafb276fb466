//! Versions of structures: what a caller may write into `version`.

use abi::nvml::*;

use crate::boundary::{Answer, Memory};
use crate::entry::Entry;
use crate::layout;

/// A structure whose version is none of its family's is refused.
pub fn check(_entry: Entry, kind: &str, memory: &Memory) -> Answer {
    let Some(known) = layout::structure(kind).filter(|known| layout::is_versioned(known)) else {
        return Ok(());
    };
    let _ = known;
    if memory.is_null() || layout::of_version(kind, memory.number()).is_some() {
        Ok(())
    } else {
        Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH)
    }
}
