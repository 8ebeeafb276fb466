//! What a guest must never do, for the builds that do it (`seeds`).

use seeds::{Seed, planted};

/// Does what the seed says, if it is about manners.
pub fn forget() {
    if planted(Seed::P9) {
        // SAFETY: umask has no preconditions.
        unsafe { libc::umask(0) };
    }
    if planted(Seed::P10) {
        drop(std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::MAX)
        }));
    }
}
