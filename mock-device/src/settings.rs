//! The environment, read once when a world is opened.

use std::path::PathBuf;
use std::sync::OnceLock;

/// What the environment says of the world.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `RINGFENCE_WORLD`: the file of the experiment.
    pub(crate) world: Option<PathBuf>,
    /// `RINGFENCE_ROLE`: what this process is called in fault plans and traces.
    pub(crate) role: Option<String>,
    /// `RINGFENCE_MACHINE`: the profile of a private world, instead of the default one.
    pub(crate) machine: Option<String>,
}

pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let lossy = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        Settings {
            world: text("RINGFENCE_WORLD").map(PathBuf::from),
            role: text("RINGFENCE_ROLE").map(lossy),
            machine: text("RINGFENCE_MACHINE").map(lossy),
        }
    })
}
