//! Data of a program's own that is named like a driver's function (C13).

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library as Built, Session, cases, ensure_eq};

use crate::ffi::library::{Library, Visibility};

/// A library with such pointers is asked for so much.
fn filled(session: &Session, bytes: Bytes) -> Result<CUresult, Failure> {
    let path = session.library(Built::Plugin)?;
    let core = Library::open(&path.display().to_string(), Visibility::Local)?;
    let Some(code) = core.fill(bytes.0) else {
        harness::fail!("the plugin exports no core_fill")
    };
    Ok(code)
}

cases! {
    /// A library that fills pointers of its own named cuInit and cuMemAllocManaged by dlsym lives, and calls through them.
    pointers_named_like_the_drivers_functions_stay_their_librarys {
        defects: ["C13"], entry_points: ["cuInit", "cuMemAllocManaged"], budget: "0=4GiB",
    } (session) {
        ensure_eq!(filled(session, Bytes::gib(1))?, CUresult::SUCCESS, "1 GiB under 4");
        Ok(())
    }

    /// And is held to its budget.
    what_calls_through_such_pointers_is_held {
        kind: Budget, defects: ["C13"], entry_points: ["cuMemAllocManaged"], budget: "0=4GiB",
    } (session) {
        ensure_eq!(filled(session, Bytes::gib(8))?, CUresult::ERROR_OUT_OF_MEMORY, "8 GiB under 4");
        Ok(())
    }
}
