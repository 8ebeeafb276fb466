//! The environment, read once.

use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use budget::settings::Settings;

/// What the environment said when the first instance was created.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS
        .get_or_init(|| Settings::read(&|name| std::env::var_os(name).map(OsStringExt::into_vec)))
}
