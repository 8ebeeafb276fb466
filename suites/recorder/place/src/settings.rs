//! The environment, read once.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use trace::TraceFile;

/// What a recorder was told.
pub struct Settings {
    /// Where lines go.
    pub file: Option<TraceFile>,
    /// What this process is called.
    pub role: Option<String>,
}

/// The same for the whole life of the process. A file that cannot be opened records nothing: the guest must not notice.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Settings {
            file: text("RINGFENCE_RECORD").and_then(|path| TraceFile::open(path.as_ref()).ok()),
            role: text("RINGFENCE_ROLE").map(|role| role.to_string_lossy().into_owned()),
        }
    })
}

/// The driver's file, as the variable names it.
pub fn driver(variable: &str) -> Option<CString> {
    let path = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    CString::new(path.into_vec()).ok()
}
