//! The settings, read once.

use std::sync::OnceLock;

use budget::settings::{LogLevel, Settings};

use crate::boundary::os;
use crate::trace;

/// What the tenant file or the environment said when the first instance was created.
#[inline]
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let settings = sources::settings(os::own_path().as_deref());
        // Here, and not where enforcement begins: somebody may have meant to set a budget and set none.
        if settings.log_level != Some(LogLevel(0)) {
            for remark in &settings.remarks {
                trace::tell(format_args!("{remark}"));
            }
        }
        settings
    })
}
