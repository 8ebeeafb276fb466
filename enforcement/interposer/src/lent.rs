//! Pools that several processes share (R9; `fixtures/oracle/shared-pools-580.txt`).
//!
//! A pool's memory lies in steps of 32 MiB of its addresses. A step of which a pointer was exported is *lent*: whatever the pool's maker
//! frees, trims or destroys, the driver keeps it until the pool, every import of it and every descriptor are gone. Once the maker's pool
//! no longer reserves it, it is in no attribute and in no process's row. So a pool is charged for it beside what it reserves, and a row
//! of the ledger, named as the pool's descriptors are, is charged for it when the pool is gone or its maker dead.
//!
//! Which steps a pool reserves nobody tells, only how many. A lent step in which an exported allocation lives is among them; of the
//! others there are at most as many beside them as the pool ever spread over and does not reserve.

use core::ffi::{c_ulonglong, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::cuda::enumerations::CUmemAllocationHandleType;
use abi::cuda::{CUdeviceptr, CUmemPoolPtrExportData, CUmemoryPool, CUresult};
use budget::Bytes;
use budget::charge::POOL_STEP;
use ledger::{KeptErrno, Named, Object};
use seeds::{Seed, planted};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::devices::Device;
use crate::memory::devices_of;
use crate::outcome::{Outcome, Reason, Refused};
use crate::pools::Known;
use crate::process::Tenant;
use crate::records::{Kind, Record};
use crate::sharing::{DESCRIPTOR, range_of};

/// What this process lends, and what it has imported.
#[derive(Default)]
pub struct Lent(Mutex<Book>);

/// Few of each, in vectors: maps would be a good part of what the library makes every process load.
#[derive(Default)]
struct Book {
    /// Pools that can be exported.
    loans: Vec<Loan>,
    /// Other processes' pools.
    imports: Vec<Import>,
}

/// Numbers of steps, in order.
#[derive(Clone, Default)]
struct Steps(Vec<u64>);

/// A pool of ours that others may hold.
#[derive(Default)]
struct Loan {
    place: u32,
    /// Every step that anything of the pool ever lay in.
    spread: Steps,
    lent: Steps,
    /// Exported allocations that may live: address and end.
    pieces: Vec<(u64, u64)>,
    /// Its row, and its descriptors' name.
    named: Option<Named>,
    /// A handle without a name holds it too, whose end is not seen.
    held_elsewhere: bool,
}

/// A pool of another process. The driver gives it one handle, as often as it is imported.
#[derive(Default)]
struct Import {
    handle: u64,
    count: u32,
    /// Its maker has named it.
    hold: Option<Object>,
    /// Nobody has: the steps of its imported pointers, which are charged to us, and where.
    own: Steps,
    ordinal: u32,
}

/// The steps that an allocation lies in.
fn steps(address: u64, end: u64) -> impl Iterator<Item = u64> {
    address / POOL_STEP.0..end.div_ceil(POOL_STEP.0).max(address / POOL_STEP.0)
}

fn bytes(steps: usize) -> Bytes {
    Bytes(POOL_STEP.0.saturating_mul(steps as u64))
}

impl Steps {
    fn extend(&mut self, steps: impl Iterator<Item = u64>) {
        for step in steps {
            self.insert(step);
        }
    }

    /// Whether it is new.
    fn insert(&mut self, step: u64) -> bool {
        let place = self.0.binary_search(&step);
        if let Err(at) = place {
            self.0.insert(at, step);
        }
        place.is_err()
    }

    fn remove(&mut self, step: u64) {
        if let Ok(at) = self.0.binary_search(&step) {
            self.0.remove(at);
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// How many are not among the others.
    fn without(&self, others: &Steps) -> usize {
        let other = |step: &&u64| others.0.binary_search(step).is_err();
        self.0.iter().filter(other).count()
    }
}

impl Loan {
    fn lent(&self) -> Bytes {
        bytes(self.lent.len())
    }

    /// What the driver keeps at most beside the `reserved` that it tells.
    fn beside(&mut self, reserved: Bytes, lives: impl Fn(u64, u64) -> bool) -> Bytes {
        self.pieces.retain(|(address, end)| lives(*address, *end));
        let mut in_use = Steps::default();
        for (address, end) in &self.pieces {
            in_use.extend(steps(*address, *end));
        }
        let idle = bytes(self.lent.without(&in_use));
        idle.min(bytes(self.spread.len()).saturating_sub(reserved))
    }
}

pub fn export(
    tenant: Tenant,
    out: Out<'_, c_void>,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    let before = out.descriptor().filter(|_| kind == DESCRIPTOR);
    let code = next::cuMemPoolExportToShareableHandle(out, pool, kind, flags);
    if code == CUresult::SUCCESS
        && let Some(known) = tenant.own_pool(pool)
    {
        let descriptor = out.descriptor().filter(|_| kind == DESCRIPTOR);
        if let Err(refused) = tenant.name_pool(known, descriptor) {
            out.take_back_descriptor(before);
            return Outcome::Refused(refused);
        }
    }
    Outcome::Done(code)
}

/// Its steps are lent before the driver is asked: whoever kills us in between leaves nothing uncharged.
pub fn export_pointer(
    tenant: Tenant,
    out: Out<'_, CUmemPoolPtrExportData>,
    address: CUdeviceptr,
) -> Outcome<CUresult> {
    let Some(record) = tenant.pooled_at(address) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let added = tenant.lend(record);
    let code = next::cuMemPoolExportPointer(out, address);
    if code != CUresult::SUCCESS {
        tenant.take_back(record.ordinal, &added);
    }
    Outcome::Done(code)
}

/// What another process exported is held before the driver is asked, so that it is charged whoever lets go of it meanwhile.
pub fn import(
    tenant: Tenant,
    place: Out<'_, CUmemoryPool>,
    descriptor: Out<'_, c_void>,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    let hold = (kind == DESCRIPTOR)
        .then(|| tenant.hold_descriptor(descriptor.address() as i32))
        .flatten()
        .map(|named| named.object);
    let code = next::cuMemPoolImportFromShareableHandle(place, descriptor, kind, flags);
    let handle = place.read().filter(|_| code == CUresult::SUCCESS);
    let surplus = match handle {
        Some(handle) => tenant.enter_import(handle, hold),
        None => hold,
    };
    surplus.into_iter().for_each(|object| tenant.let_go(object));
    Outcome::Done(code)
}

/// A pointer takes nothing: its pool holds the memory. Where nobody in the ledger made that, whoever imports a pointer is charged for
/// its steps until the import ends.
pub fn import_pointer(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    pool: CUmemoryPool,
    data: Out<'_, CUmemPoolPtrExportData>,
) -> Outcome<CUresult> {
    let foreign = tenant.lent(|book| {
        let import = book.import(pool)?;
        import.hold.is_none().then_some(())
    });
    if foreign.is_none() {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let before = place.read();
    let code = next::cuMemPoolImportPointer(place, pool, data);
    let (CUresult::SUCCESS, Some(address)) = (code, place.read()) else {
        return Outcome::Done(code);
    };
    match tenant.pay_for_import(pool, address) {
        Ok(()) => Outcome::Done(code),
        Err(refused) => {
            let _relaxed = Relaxed::begin(tenant);
            let _ = next::cuMemFree_v2(address);
            before.into_iter().for_each(|before| place.write(before));
            Outcome::Refused(refused)
        }
    }
}

/// The end of an import. The record leaves first: the handle may come back to another thread at once.
pub fn destroy(tenant: Tenant, pool: CUmemoryPool) -> Outcome<CUresult> {
    let Some(left) = tenant.lent(|book| book.leave_import(pool)) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let _change = tenant.change();
    let code = next::cuMemPoolDestroy(pool);
    if code != CUresult::SUCCESS {
        tenant.lent(|book| book.rejoin_import(pool, left));
    } else if let Some(import) = left {
        import
            .hold
            .into_iter()
            .for_each(|object| tenant.let_go(object));
        let devices = devices_of(tenant, import.ordinal);
        tenant.release(devices, bytes(import.own.len()));
    }
    Outcome::Done(code)
}

impl Book {
    fn loan(&mut self, place: u32) -> Option<&mut Loan> {
        self.loans.iter_mut().find(|loan| loan.place == place)
    }

    fn import(&mut self, pool: CUmemoryPool) -> Option<&mut Import> {
        let handle = pool.0 as u64;
        self.imports
            .iter_mut()
            .find(|import| import.handle == handle)
    }

    /// One import less: the last of them leaves.
    fn leave_import(&mut self, pool: CUmemoryPool) -> Option<Option<Import>> {
        let handle = pool.0 as u64;
        let at = self
            .imports
            .iter()
            .position(|import| import.handle == handle)?;
        match self.imports.get_mut(at) {
            Some(import) if import.count > 1 => {
                import.count -= 1;
                Some(None)
            }
            _ => Some(Some(self.imports.swap_remove(at))),
        }
    }

    fn rejoin_import(&mut self, pool: CUmemoryPool, left: Option<Import>) {
        match (self.import(pool), left) {
            (Some(import), _) => import.count += 1,
            (None, Some(left)) => self.imports.push(left),
            (None, None) => {}
        }
    }
}

impl Tenant {
    fn lent<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        act(&mut self.lent_book())
    }

    /// Not in each of its callers: the library stays small.
    #[inline(never)]
    fn lent_book(self) -> MutexGuard<'static, Book> {
        let lent = self.memory.lent.get_or_default();
        lent.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pool that can be exported begins.
    pub fn begin_loan(self, known: Known) {
        let place = known.place;
        self.lent(|book| {
            book.loans.retain(|loan| loan.place != place);
            book.loans.push(Loan {
                place,
                ..Loan::default()
            });
        });
        known.pool.set_lendable();
    }

    /// Whether others may hold anything of a pool that can be exported: it was.
    pub fn is_lent(self, place: u32) -> bool {
        let is_held = |loan: &mut Loan| {
            loan.named.is_some() || loan.held_elsewhere || !loan.lent.0.is_empty()
        };
        planted(Seed::R143) || self.lent(|book| book.loan(place).is_some_and(is_held))
    }

    /// Something of a pool that can be exported lies there now.
    #[cold]
    pub fn spread_over(self, place: u32, address: u64, size: Bytes) {
        self.lent(|book| {
            if let Some(loan) = book.loan(place) {
                loan.spread
                    .extend(steps(address, address.saturating_add(size.0)));
            }
        });
    }

    /// Names a pool's descriptor, as its others are.
    fn name_pool(self, known: Known, descriptor: Option<i32>) -> Result<(), Refused> {
        self.lent(|book| {
            let Some(loan) = book.loan(known.place) else {
                return Ok(());
            };
            let devices = known.device.indices;
            let named = match descriptor {
                Some(fd) => self.name_descriptor(fd, loan.named, devices, loan.lent())?,
                None => None,
            };
            if let (Some(named), Some(ledger), false) = (named, self.ledger(), planted(Seed::R117))
            {
                ledger.unlist_object(named.object);
            }
            loan.held_elsewhere |= named.is_none();
            loan.named = loan.named.or(named);
            Ok(())
        })
    }

    /// The allocation of a pool around an address.
    fn pooled_at(self, address: u64) -> Option<Record> {
        let records = &self.memory.records;
        let found = records.find(address);
        found
            .or_else(|| records.find(range_of(address)?.0))
            .filter(|record| record.kind == Kind::Pool)
    }

    /// Answers the steps that were not lent before.
    fn lend(self, record: Record) -> Vec<u64> {
        let end = record.address.saturating_add(record.size.0);
        self.lent(|book| {
            let Some(loan) = book.loan(record.ordinal) else {
                return Vec::new();
            };
            loan.pieces
                .retain(|(address, _)| *address != record.address);
            loan.pieces.push((record.address, end));
            let lent = &mut loan.lent;
            let added = steps(record.address, end).filter(|step| lent.insert(*step));
            let added = added.collect();
            self.tell_lent(loan);
            added
        })
    }

    fn take_back(self, place: u32, added: &[u64]) {
        self.lent(|book| {
            if let Some(loan) = book.loan(place) {
                added.iter().for_each(|step| loan.lent.remove(*step));
                self.tell_lent(loan);
            }
        });
    }

    fn tell_lent(self, loan: &Loan) {
        if let (Some(named), Some(ledger)) = (loan.named, self.ledger()) {
            ledger.resize_object(named.object, loan.lent());
        }
    }

    /// What the driver keeps of a pool at most beside the `reserved` that it tells.
    pub fn lent_beside(self, known: Known, reserved: Bytes) -> Bytes {
        if !known.pool.is_lendable() {
            return Bytes::ZERO;
        }
        let lives = |address: u64, end: u64| {
            let found = self.memory.records.find(address);
            found.is_some_and(|record| {
                record.kind == Kind::Pool
                    && record.ordinal == known.place
                    && address.saturating_add(record.size.0) == end
            })
        };
        self.lent(|book| {
            let loan = book.loan(known.place);
            loan.map_or(Bytes::ZERO, |loan| loan.beside(reserved, lives))
        })
    }

    /// A pool is gone, and nothing of it lives: its row is charged for what others hold on. Answers what stays charged to this process,
    /// because nobody sees its end.
    pub fn end_loan(self, known: Known) -> Bytes {
        if !known.pool.is_lendable() {
            return Bytes::ZERO;
        }
        self.lent(|book| {
            let Some(loan) = book.loan(known.place) else {
                return Bytes::ZERO;
            };
            if loan.held_elsewhere && loan.lent.len() != 0 {
                return loan.lent();
            }
            if let (Some(named), Some(ledger)) = (loan.named, self.ledger()) {
                ledger.pass_object_on(named.object);
            }
            book.loans.retain(|loan| loan.place != known.place);
            Bytes::ZERO
        })
    }

    /// Answers the hold that is one too many.
    fn enter_import(self, handle: CUmemoryPool, hold: Option<Object>) -> Option<Object> {
        self.lent(|book| {
            if let Some(import) = book.import(handle) {
                import.count += 1;
                return hold;
            }
            book.imports.push(Import {
                handle: handle.0 as u64,
                count: 1,
                hold,
                ..Import::default()
            });
            None
        })
    }

    fn pay_for_import(self, pool: CUmemoryPool, address: u64) -> Result<(), Refused> {
        let device: &Device = self.device_at(address).ok_or(Refused::UnknownDevice)?;
        let (base, size) = range_of(address).ok_or(Refused::UnknownDevice)?;
        let mut touched = Steps::default();
        touched.extend(steps(base, base.saturating_add(size.0)));
        let own = self.lent(|book| Some(book.import(pool)?.own.clone()));
        let most = bytes(touched.without(&own.unwrap_or_default()));
        let grant = self.reserve_or_trim(device.indices, most)?;
        let taken = self.lent(|book| {
            let import = book.import(pool)?;
            let before = import.own.len();
            import.own.extend(touched.0.iter().copied());
            import.ordinal = device.ordinal;
            Some(bytes(import.own.len() - before))
        });
        // Gone meanwhile, by another thread: then nothing is held.
        let taken = taken.unwrap_or_default();
        // Another thread may have been charged for them meanwhile.
        grant.commit_as(taken.min(most));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn loan(spread: u64, pieces: &[(u64, u64)]) -> Loan {
        let mut loan = Loan::default();
        loan.spread.extend(steps(0, spread * MIB));
        for (address, end) in pieces {
            let (address, end) = (address * MIB, end * MIB);
            loan.pieces.push((address, end));
            loan.lent.extend(steps(address, end));
        }
        loan
    }

    fn beside(loan: &mut Loan, reserved: u64, live: bool) -> u64 {
        loan.beside(Bytes::mib(reserved), |_, _| live).0 / MIB
    }

    #[test]
    fn an_allocation_lies_in_every_step_that_it_touches() {
        let of = |address: u64, end: u64| steps(address * MIB, end * MIB).collect::<Vec<_>>();
        assert_eq!(of(20, 40), [0, 1]);
        assert_eq!(of(32, 64), [1]);
        assert_eq!(of(33, 34), [1]);
        assert_eq!(of(0, 0), []);
    }

    /// The figures of `shared-pools-580.txt`: what is used beside what is reserved.
    #[test]
    fn what_the_card_keeps_is_what_is_charged() {
        // again and again
        let mut again = loan(256, &[(0, 256)]);
        assert_eq!(beside(&mut again, 256, true), 0);
        assert_eq!(beside(&mut again, 0, false), 256);
        assert_eq!(beside(&mut again, 256, false), 0);
        // other sizes
        let mut other = loan(512, &[(0, 512)]);
        assert_eq!(beside(&mut other, 64, false), 448);
        // in a large gap
        let mut gap = loan(256, &[(0, 1)]);
        assert_eq!(
            (beside(&mut gap, 256, true), beside(&mut gap, 0, false)),
            (0, 32)
        );
        // the descriptor is closed first
        let mut first = loan(384, &[(0, 256)]);
        assert_eq!(beside(&mut first, 128, false), 256);
    }

    #[test]
    fn what_lives_is_reserved_and_nothing_beside_it() {
        let mut lives = loan(1024, &[(0, 256)]);
        assert_eq!(beside(&mut lives, 256, true), 0);
        assert_eq!(beside(&mut lives, 256, false), 256);
    }

    #[test]
    fn an_import_ends_with_the_last_of_its_handles_and_comes_back_where_the_driver_refuses() {
        let pool = CUmemoryPool(core::ptr::without_provenance_mut(64));
        let mut book = Book::default();
        assert!(book.leave_import(pool).is_none());
        book.imports.push(Import {
            handle: 64,
            count: 2,
            ..Import::default()
        });
        assert!(book.leave_import(pool).is_some_and(|left| left.is_none()));
        let left = book.leave_import(pool).flatten();
        assert!(left.is_some() && book.imports.is_empty());
        book.rejoin_import(pool, left);
        assert_eq!(book.import(pool).map(|import| import.count), Some(1));
    }
}
