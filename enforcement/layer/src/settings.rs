//! The settings, read once.

use std::sync::OnceLock;

use budget::settings::Settings;

use crate::boundary::os;

/// What the tenant file or the environment said when the first instance was created.
#[inline]
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| sources::settings(os::own_path().as_deref()))
}
