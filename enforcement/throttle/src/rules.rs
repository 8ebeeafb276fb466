//! What the controller does. Only models change it, to show that they would notice.

use core::fmt::Debug;

/// Each `false` is a defect.
pub trait Rules: Debug + Clone + Copy + Default {
    /// Idle time is credited up to a bound.
    const BOUNDED_CREDIT: bool = true;
    /// Work is paid for by the time it takes, not by the launch.
    const PAID_BY_TIME: bool = true;
    /// What was measured replaces what was believed.
    const SETTLED: bool = true;
    /// Time in which two processes have work counts once.
    const UNION: bool = true;
    /// Leases that end together are known to by their marks.
    const ENDS_ARE_SEEN: bool = true;
    /// What other streams had to do after a lease's last mark but one is no part of its last launch.
    const STREAMS_ARE_KNOWN: bool = true;
    /// Nothing is launched while work is late.
    const IN_FLIGHT_BOUND: bool = true;
    /// A lease begins while those before it are on the device.
    const AHEAD: bool = true;
    /// Work that has not begun is paid for when it was done, and keeps nobody waiting.
    const HELD_UP_IS_FREE: bool = true;
    /// What is held up has not all places of leases for itself.
    const PLACES_ARE_KEPT_FREE: bool = true;
    /// Time in a lease without work is not paid for.
    const IDLE_IS_FREE: bool = true;
    /// No more is charged than the device says it did.
    const TOLD: bool = true;
    /// What long leases are charged and the device did not do is forgiven.
    const DOUBTED: bool = true;
    /// A function whose launches differ is measured launch by launch where its leases are charged by belief.
    const UNEVEN_ARE_KNOWN: bool = true;
    /// That a launch takes longer is learned beside other tenants, too.
    const OWN_IS_LEARNED: bool = true;
    /// What marks themselves take of a launch between them is not the launch's.
    const MARKS_ARE_GAUGED: bool = true;
    /// What is over before the host sets the mark behind it does not take as long as the host.
    const HOSTS_MARKS_ARE_KNOWN: bool = true;
    /// What is not done long after it should be is paid for to its end, though nothing waits for it.
    const OVERDUE_IS_PAID: bool = true;
    /// What the device does for other tenants is theirs to pay.
    const OTHERS_PAY: bool = true;
    /// The time in which the device turns from one process to another is paid for.
    const TURNS_ARE_PAID: bool = true;
    /// A process that would give its turn away with every wait has the device to itself for a lease.
    const TURNS_ARE_KEPT: bool = true;
}

/// The rules as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Rules for Sound {}
