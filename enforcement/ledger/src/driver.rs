//! What the ledger asks of a driver: whether a dead process's memory is really back.

use budget::DeviceIndex;

/// Consulted about the bytes of a dead process, before they are granted again.
pub trait Driver {
    /// Whether the driver still holds memory of process `pid` on `device`. `None` where it cannot tell: a bounded wait decides.
    fn still_holds(&self, device: DeviceIndex, pid: u32) -> Option<bool>;

    /// Whether the driver's rows show `pid`, whatever PID namespace they are in terms of. `None` where there are none.
    fn lists(&self, device: DeviceIndex, pid: u32) -> Option<bool> {
        let _ = (device, pid);
        None
    }
}

/// A driver that can never tell.
pub struct NoDriver;

impl Driver for NoDriver {
    fn still_holds(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
        None
    }
}
