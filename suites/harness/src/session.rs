//! What a case's body and its roles hold: what was set for them, and the way to further processes.

use crate::failure::Failure;
use crate::peer::{Launch, Peer};
use crate::units::Bytes;

/// One run of a case, seen from one of its processes.
pub struct Session {}

impl Session {
    /// The budget that the case set for this device, whether or not the target enforces it.
    pub fn budget(&self, device: u32) -> Option<Bytes> {
        let _ = device;
        None
    }

    /// Starts another process of this executable in that role.
    pub fn spawn(&self, role: &str, args: &[&str]) -> Result<Peer, Failure> {
        self.launch(role).args(args).start()
    }

    /// The same, with more to say before it starts.
    pub fn launch(&self, role: &str) -> Launch {
        Launch::new(role)
    }
}
