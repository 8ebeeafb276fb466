//! The environment, read once.

use std::sync::OnceLock;

/// The variable that enables the layer (its manifest says so), and what it may say.
const SWITCH: &str = "RINGFENCE_WRAP";

/// Whether queues and command buffers of the layer below are left without the loader's word: the loader writes it into what it sees,
/// which is ours, and careful layers pass it on.
pub fn leaves_lower_words() -> bool {
    static CARELESS: OnceLock<bool> = OnceLock::new();
    *CARELESS.get_or_init(|| std::env::var_os(SWITCH).is_some_and(|value| value == "careless"))
}
