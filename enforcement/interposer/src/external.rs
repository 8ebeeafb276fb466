//! External memory: Vulkan's, another process's or our own cuMemCreate's, imported by a descriptor (R9).
//!
//! An import holds what its descriptor names in the ledger, and is charged to whoever that was. Where nobody has named it, it is charged here, as large
//! as the import says. Either lasts until the import is destroyed and all that was mapped of it is freed; the descriptor is the driver's, which closes it.
//!
//! As with physical memory, no lock is held while the driver is asked, and what is on its way out stays known until the driver has answered.

use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::cuda::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUdeviceptr, CUexternalMemory, CUmipmappedArray,
    CUresult,
};
use budget::{Bytes, DeviceSet};
use ledger::KeptErrno;
use seeds::{Seed, planted};

use crate::boundary::cross::{Duplicate, In, Out};
use crate::boundary::entries::next;
use crate::devices::{Owner, current_context};
use crate::memory::{IMPOSSIBLE, end_stale};
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;
use crate::sharing::Hold;

/// What this process imported and has not lost.
#[derive(Default)]
pub struct External(Mutex<Book>);

/// Lists, not maps, whose code would be a good part of what the library makes every process load: imports are few and large.
#[derive(Default)]
struct Book {
    /// By handle.
    imports: Vec<(u64, Id)>,
    memories: Vec<(Id, Memory)>,
    /// What is mapped, by its address or array.
    views: Vec<(u64, View)>,
    imported: u64,
}

/// One import. Its handle may come back for another as soon as the driver has let go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    hold: Hold,
    /// The import itself, what is mapped of it, and calls under way.
    users: u32,
}

/// Something that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    memory: Id,
    context: u64,
}

fn take<T>(list: &mut Vec<(u64, T)>, name: u64) -> Option<T> {
    let at = list.iter().rposition(|(of, _)| *of == name)?;
    Some(list.swap_remove(at).1)
}

impl Book {
    fn enter(&mut self, handle: u64, hold: Hold) {
        self.imported += 1;
        let id = Id(self.imported);
        self.memories.push((id, Memory { hold, users: 1 }));
        self.imports.push((handle, id));
    }

    /// Something is about to be mapped.
    fn begin_view(&mut self, handle: u64) -> Option<Id> {
        let (_, id) = *self.imports.iter().find(|(of, _)| *of == handle)?;
        let (_, memory) = self.memories.iter_mut().find(|(of, _)| *of == id)?;
        memory.users += 1;
        Some(id)
    }

    /// One user less; answers who paid, after the last.
    fn leave(&mut self, id: Id) -> Option<Hold> {
        let at = self.memories.iter().position(|(of, _)| *of == id)?;
        let (_, memory) = self.memories.get_mut(at)?;
        memory.users -= 1;
        (memory.users == 0).then(|| self.memories.swap_remove(at).1.hold)
    }
}

pub fn import(
    tenant: Tenant,
    out: Out<'_, CUexternalMemory>,
    asked: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
) -> Outcome<CUresult> {
    asked.by_own(|asked| {
        let size = asked.read().map_or(0, |asked| asked.size);
        if out.is_null() || size == 0 {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        let call = || next::cuImportExternalMemory(out, asked);
        let handle = || out.read().map(|memory| memory.0 as u64);
        // Held before the driver is asked, so that it is charged whoever lets go of it meanwhile.
        let named = asked.descriptor().filter(|_| !planted(Seed::R9));
        let row = named.and_then(|fd| tenant.hold_descriptor(fd));
        let row = row.map(|named| named.object);
        let (hold, grant) = match row {
            Some(object) => (Hold::Row(object), tenant.nothing()),
            None => {
                let device = tenant.current_device().ok();
                let Some(device) = device.filter(|_| size < IMPOSSIBLE as u64) else {
                    return tenant.verdict(
                        judged(tenant, asked, DeviceSet::EMPTY),
                        Refused::UnknownDevice,
                    );
                };
                let (ordinal, bytes) = (device.ordinal, Bytes(size));
                match tenant.reserve_or_trim(device.indices, bytes) {
                    Ok(grant) => (Hold::Own { ordinal, bytes }, grant),
                    Err(refused) => {
                        return tenant.verdict(judged(tenant, asked, device.indices), refused);
                    }
                }
            }
        };
        let code = call();
        match handle().filter(|_| code == CUresult::SUCCESS) {
            Some(handle) => {
                tenant.external().enter(handle, hold);
                if let Hold::Own { bytes, .. } = hold {
                    grant.commit_as(bytes);
                }
            }
            None => row.into_iter().for_each(|object| tenant.let_go(object)),
        }
        Outcome::Done(code)
    })
}

/// What the driver says to an import that is to be refused. By a descriptor of our own: the caller's stays the caller's.
fn judged(
    tenant: Tenant,
    asked: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
    devices: DeviceSet,
) -> CUresult {
    let own = Duplicate::of(asked);
    // Of no descriptor, or of one that is not open, the driver takes nothing.
    let by_own = own.as_ref().map_or(asked, |own| In::of(own.description()));
    let mut made = CUexternalMemory::NULL;
    let code = next::cuImportExternalMemory(Out::to(&mut made), by_own);
    if code != CUresult::SUCCESS {
        return code;
    }
    own.into_iter().for_each(Duplicate::leave);
    let ended = (0..2).any(|_| next::cuDestroyExternalMemory(made) == CUresult::SUCCESS);
    if !ended {
        // It is held all the same, until this process ends.
        tenant.charge_anyway(
            devices,
            asked.read().map_or(Bytes::ZERO, |it| Bytes(it.size)),
        );
    }
    code
}

pub fn destroy(tenant: Tenant, memory: CUexternalMemory) -> Outcome<CUresult> {
    let handle = memory.0 as u64;
    // It leaves first: the handle may come back to another thread at once.
    let Some(id) = take(&mut tenant.external().imports, handle) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let _change = tenant.change();
    let code = next::cuDestroyExternalMemory(memory);
    if code == CUresult::SUCCESS {
        tenant.leave_external(id);
    } else {
        tenant.external().imports.push((handle, id));
    }
    Outcome::Done(code)
}

pub fn map_buffer(
    tenant: Tenant,
    out: Out<'_, CUdeviceptr>,
    memory: CUexternalMemory,
    asked: In<'_, CUDA_EXTERNAL_MEMORY_BUFFER_DESC>,
) -> Outcome<CUresult> {
    let call = || next::cuExternalMemoryGetMappedBuffer(out, memory, asked);
    // Whoever frees it would be taken to free what another thread's context had there until now, and the view would stay for ever (R131).
    let place = || {
        let address = out.read()?;
        let device = tenant.current_device().ok();
        device
            .filter(|_| !planted(Seed::R131))
            .into_iter()
            .for_each(|device| end_stale(tenant, address, device.ordinal));
        Some(address)
    };
    tenant.map_external(memory, &call, &place)
}

pub fn map_array(
    tenant: Tenant,
    out: Out<'_, CUmipmappedArray>,
    memory: CUexternalMemory,
    asked: In<'_, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>,
) -> Outcome<CUresult> {
    let call = || next::cuExternalMemoryGetMappedMipmappedArray(out, memory, asked);
    tenant.map_external(memory, &call, &|| out.read().map(|array| array.0 as u64))
}

impl Tenant {
    fn map_external(
        self,
        memory: CUexternalMemory,
        call: &dyn Fn() -> CUresult,
        place: &dyn Fn() -> Option<u64>,
    ) -> Outcome<CUresult> {
        let handle = memory.0 as u64;
        let Some(memory) = self.external().begin_view(handle) else {
            return Outcome::PassThrough(Reason::TakesNothing);
        };
        let owner = self.ending_context();
        let code = call();
        let place = (code == CUresult::SUCCESS).then(place).flatten();
        match place {
            Some(place) => {
                let context = owner.context;
                let view = View { memory, context };
                self.external().views.push((place, view));
                if self.has_ended(owner) {
                    self.end_views(context);
                }
            }
            None => self.leave_external(memory),
        }
        Outcome::Done(code)
    }

    /// The context whose end takes along what is mapped or opened in the current one.
    pub fn ending_context(self) -> Owner {
        let owner = self.owner();
        match planted(Seed::R16a) {
            true => Owner {
                context: current_context(),
                known: false,
            },
            false => owner,
        }
    }

    /// What is nobody's record is about to be freed: it may be mapped external memory. It leaves first, because the place may come back to another
    /// thread at once.
    pub fn take_view(self, place: u64) -> Option<View> {
        self.memory.external.get()?;
        take(&mut self.external().views, place)
    }

    /// The end of what `take_view` began.
    pub fn end_view(self, place: u64, view: View, code: CUresult) {
        match code {
            CUresult::SUCCESS => self.leave_external(view.memory),
            _ => self.external().views.push((place, view)),
        }
    }

    /// A context is gone, and with it what was mapped in it. An import lives on.
    pub fn end_views(self, context: u64) {
        if self.memory.external.get().is_none() {
            return;
        }
        let mut ended = Vec::new();
        self.external().views.retain(|(_, view)| {
            if view.context == context {
                ended.push(view.memory);
            }
            view.context != context
        });
        ended.into_iter().for_each(|id| self.leave_external(id));
    }

    fn leave_external(self, id: Id) {
        let ended = self.external().leave(id);
        ended.into_iter().for_each(|hold| self.end_hold(hold));
    }

    #[inline(never)]
    fn external(self) -> Held {
        let errno = KeptErrno::keep();
        let external = self.memory.external.get_or_default();
        let book = external.0.lock().unwrap_or_else(PoisonError::into_inner);
        Held(book, errno)
    }
}

/// The book, with errno kept for as long.
struct Held(
    MutexGuard<'static, Book>,
    #[expect(dead_code, reason = "for its end")] KeptErrno,
);

impl Deref for Held {
    type Target = Book;
    fn deref(&self) -> &Book {
        &self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Book {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Hold = Hold::Own {
        ordinal: 3,
        bytes: Bytes(1 << 20),
    };

    fn book() -> (Book, Id) {
        let mut book = Book::default();
        book.enter(7, HOLD);
        let (_, id) = book.imports[0];
        (book, id)
    }

    #[test]
    fn memory_ends_with_the_last_of_its_import_and_its_views() {
        let (mut book, id) = book();
        assert_eq!(book.begin_view(7), Some(id));
        assert_eq!(book.begin_view(7), Some(id));
        assert_eq!(take(&mut book.imports, 7), Some(id));
        assert_eq!(book.begin_view(7), None);
        assert_eq!(book.leave(id), None);
        assert_eq!(book.leave(id), None);
        assert_eq!(book.leave(id), Some(HOLD));
        assert!(book.imports.is_empty() && book.memories.is_empty());
    }

    #[test]
    fn the_last_of_several_views_at_one_place_leaves_first() {
        let (mut book, memory) = book();
        for context in [1, 2] {
            book.views.push((64, View { memory, context }));
        }
        let context = |view: Option<View>| view.map(|view| view.context);
        assert_eq!(context(take(&mut book.views, 64)), Some(2));
        assert_eq!(context(take(&mut book.views, 64)), Some(1));
        assert_eq!(take(&mut book.views, 64), None);
    }

    #[test]
    fn a_handle_that_comes_back_is_its_new_owners() {
        let (mut book, id) = book();
        assert_eq!(take(&mut book.imports, 7), Some(id));
        book.enter(7, HOLD);
        assert_eq!(book.leave(id), Some(HOLD));
        let next = book.begin_view(7).unwrap();
        assert_ne!(next, id);
        assert_eq!(book.leave(next), None);
    }
}
