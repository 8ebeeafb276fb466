//! The settings, read once.

use std::sync::OnceLock;

use budget::settings::{LogLevel, Settings};

use seeds::{Seed, planted};

use crate::boundary::os;
use crate::trace;

/// What the tenant file said when the first instance was created, or the environment that the process began with: this library is opened by then at
/// the earliest, so that the kernel is asked for it. A process that writes over that environment has only what it made of it.
#[inline]
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let settings = sources::settings(os::own_path(), planted(Seed::R50).then_some(&[]));
        // Here, and not where enforcement begins: somebody may have meant to set a budget and set none.
        if settings.log_level != Some(LogLevel(0)) {
            for remark in &settings.remarks {
                trace::tell(format_args!("{remark}"));
            }
        }
        settings
    })
}
