//! mock-device: the simulated GPU world under the three mocks.
//!
//! One file, mapped by every process of an experiment: devices whose memory really runs out across processes and comes
//! back when one dies, a fault plan, identities, a trace. The mocks are its faces and hold no truth of their own; the
//! harness makes a world with [`World::create`], passes its path in `RINGFENCE_WORLD`, and checks it with [`World::audit`].
//!
//! | to | call |
//! |---|---|
//! | choose a machine | [`profile::embedded`] (`rtx6000-ada`, `h200`, `h200x2`, `tiny`, `name*N`, `name+535`), [`profile::parse`], [`mod@generation`] |
//! | say what goes wrong | [`FaultPlan::parse`], then in each mock's `boundary::enter` [`World::consult`], [`Consultation::carry_out`] and [`World::lost`] |
//! | know the devices | [`World::devices`], what an API shows: [`World::shown`], [`World::identity`], [`World::reserve`], [`World::missing_symbols`] |
//! | account memory | [`World::take`], [`World::give_back`]; [`World::used`], [`World::free`], [`World::processes`], [`World::peak`] |
//! | spend time | [`World::now`], [`World::submit`], [`DeviceProfile`]'s `cost`; [`World::busy`], [`World::busy_by`] |
//! | have a death's teardown begin at the death | [`World::keep_watch`] |
//! | know which devices reach each other's memory | [`MachineProfile::link`], [`mod@peer`] |
//! | share memory between processes and APIs | [`mod@object`]: [`World::new_object`], [`World::share`], [`World::open_object`], [`World::import_object`]; one that grows: [`mod@store`] |
//! | let one API's work wait for another's | [`mod@payload`]: [`payload::Words`], a fence's or semaphore's |
//! | record a call | [`World::tracing`], [`World::trace`]; how calls look is the crate `trace`'s |
//!
//! What it is not: it knows no C type, no handle and no error code of any API, and shares no code with `enforcement/`, which
//! it judges. Decision 32 asks it to be more crash-safe than that: see [`mod@world`], and `region.rs` for how.
//!
//! unsafe is in `os.rs` (system calls), `region.rs` (shared memory) and `boundary.rs` (a faulty call's arguments).

mod accounts;
pub mod boundary;
mod busy;
pub mod cost;
pub mod engine;
pub mod fault;
pub mod generation;
mod holds;
pub mod identity;
pub mod memory;
mod meter;
pub mod nvml;
pub mod object;
mod os;
pub mod payload;
pub mod peer;
mod plan;
mod process;
pub mod profile;
mod region;
mod schedule;
mod settings;
pub mod store;
pub mod units;
mod view;
mod watch;
pub mod world;

pub use boundary::{Parameter, Parameters};
pub use cost::{Cost, Direction, Grid, Task, Traffic};
pub use engine::{Engine, Interval, Nanos};
pub use fault::{
    Alteration, Consultation, DevicesFault, Effect, Fault, FaultError, FaultPlan, IdentityFault,
    When,
};
pub use identity::{Identity, PciAddress, Uuid};
pub use memory::{Audit, DeviceAudit, Kind, OutOfDeviceMemory, Overhead, ProcessUsage};
pub use object::{Object, ObjectError, ObjectId};
pub use peer::{Link, Peering};
pub use profile::{
    ComputeInstance, DeviceProfile, DriverProfile, GpuInstance, Heap, MachineProfile, MemoryType,
    ProfileError, QueueFamily,
};
pub use schedule::Share;
pub use trace::{TraceRecord, Value};
pub use units::{Api, Bytes, DeviceIndex};
pub use world::{World, WorldError, WorldSpec};
