//! The cross-process account book: what each process of a tenant holds of each device's memory, and who may take more.
//!
//! It knows no GPU API. One mapped file per tenant; every process has one slot in it and one word per device; the words are the
//! only truth. See `account` for why nothing is ever granted twice, `region` for the file, `reap` for what the dead leave behind.

mod account;
mod attach;
mod changes;
mod contest;
mod displaced;
mod driver;
mod errors;
mod ledger;
mod named;
mod objects;
mod probe;
mod reap;
mod region;
mod seen;
mod sync;
mod view;
mod word;

pub use attach::turn;
pub use budget::{Bytes, DeviceIndex, MAX_DEVICES};
pub use changes::{Change, Changes};
pub use driver::{Driver, NoDriver};
pub use errors::{AttachError, Reason, Refusal};
pub use ledger::{Authority, Charged, Disagreement, Ledger, Reservation, Setup};
pub use named::{Holds, Named, Unnamed, size_by_descriptor};
pub use objects::{Key, OBJECTS, Object, Shown};
pub use region::PACE_WORDS;
pub use region::clock::{now, sleep_until};
pub use region::descriptors::{Descriptor, mark as name_descriptor};
pub use region::folders::entries;
pub use region::processes::{folder_of, own_environment};
pub use region::{Cancelability, KeptErrno, Turn, complain, write_quietly};
pub use view::{DeviceShare, SlotView, Stats, View};
pub use word::MOST;

/// Processes that one ledger has room for. One more is refused at attach.
pub const SLOTS: usize = 1024;
