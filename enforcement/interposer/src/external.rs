//! External memory: Vulkan's, another process's or our own cuMemCreate's, imported by a descriptor (R9 of DEFECTS).
//!
//! An import holds what its descriptor names in the ledger, and is charged to whoever that was. Where nobody has named it, it is charged here, as large
//! as the import says. Either lasts until the import is destroyed and all that was mapped of it is freed; the descriptor is the driver's, which closes it.
//!
//! As with physical memory, no lock is held while the driver is asked, and what is on its way out stays known until the driver has answered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::cuda::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUdeviceptr, CUexternalMemory, CUmipmappedArray,
    CUresult,
};
use budget::Bytes;
use ledger::KeptErrno;
use seeds::{Seed, planted};

use crate::boundary::cross::{Duplicate, In, Out};
use crate::boundary::entries::next;
use crate::devices::current_context;
use crate::memory::{IMPOSSIBLE, refused_unless_undone};
use crate::outcome::{Outcome, Reason, verdict};
use crate::process::Tenant;
use crate::sharing::Hold;

/// What this process imported and has not lost.
#[derive(Default)]
pub struct External(Mutex<Book>);

#[derive(Default)]
struct Book {
    imports: HashMap<u64, Id>,
    memories: HashMap<Id, Memory>,
    /// What is mapped, by its address or array.
    views: HashMap<u64, Vec<View>>,
    imported: u64,
}

/// One import. Its handle may come back for another as soon as the driver has let go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Id(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    hold: Hold,
    /// The import itself, what is mapped of it, and calls under way.
    users: u32,
}

#[derive(Clone, Copy)]
struct View {
    memory: Id,
    context: u64,
}

impl Book {
    fn enter(&mut self, handle: u64, hold: Hold) {
        self.imported += 1;
        let id = Id(self.imported);
        self.memories.insert(id, Memory { hold, users: 1 });
        self.imports.insert(handle, id);
    }

    /// Something is about to be mapped.
    fn begin_view(&mut self, handle: u64) -> Option<Id> {
        let id = *self.imports.get(&handle)?;
        self.memories.get_mut(&id)?.users += 1;
        Some(id)
    }

    fn enter_view(&mut self, place: u64, view: View) {
        self.views.entry(place).or_default().push(view);
    }

    fn take_view(&mut self, place: u64) -> Option<View> {
        let Entry::Occupied(mut found) = self.views.entry(place) else {
            return None;
        };
        let view = found.get_mut().pop();
        if found.get().is_empty() {
            found.remove();
        }
        view
    }

    /// One user less; answers the memory after the last.
    fn leave(&mut self, id: Id) -> Option<Memory> {
        let memory = self.memories.get_mut(&id)?;
        memory.users -= 1;
        (memory.users == 0)
            .then(|| self.memories.remove(&id))
            .flatten()
    }

    fn end_context(&mut self, context: u64) -> Vec<Memory> {
        let mut ended = Vec::new();
        self.views.retain(|_, all| {
            ended.extend(all.extract_if(.., |view| view.context == context));
            !all.is_empty()
        });
        let memories = ended.into_iter();
        memories
            .filter_map(|view| self.leave(view.memory))
            .collect()
    }
}

pub fn import(
    tenant: Tenant,
    out: Out<'_, CUexternalMemory>,
    asked: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
) -> Outcome<CUresult> {
    let size = asked.read().map_or(0, |asked| asked.size);
    if out.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let call = || next::cuImportExternalMemory(out, asked);
    let handle = || out.read().map(|memory| memory.0 as u64);
    // Held before the driver is asked, so that it is charged whoever lets go of it meanwhile.
    let named = asked.descriptor().filter(|_| !planted(Seed::R9));
    let row = named.and_then(|fd| tenant.hold_descriptor(fd));
    let (hold, grant) = match row {
        Some(object) => (Hold::Row(object), tenant.nothing()),
        None => {
            let device = tenant.current_device().ok();
            let Some(device) = device.filter(|_| size < IMPOSSIBLE as u64) else {
                return refused_unless_undone(call(), handle, &undo);
            };
            let (ordinal, bytes) = (device.ordinal, Bytes(size));
            match tenant.reserve_or_trim(device.indices, bytes) {
                Ok(grant) => (Hold::Own { ordinal, bytes }, grant),
                Err(refused) => return verdict(judged(asked), refused),
            }
        }
    };
    let code = call();
    match handle().filter(|_| code == CUresult::SUCCESS) {
        Some(handle) => {
            tenant.external(|book| book.enter(handle, hold));
            if let Hold::Own { bytes, .. } = hold {
                grant.commit_as(bytes);
            }
        }
        None => row.into_iter().for_each(|object| tenant.let_go(object)),
    }
    Outcome::Done(code)
}

/// What the driver says to the same import, which takes no memory. By a descriptor of our own: where it is refused, the caller's stays the caller's.
fn judged(asked: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) -> CUresult {
    let Some(own) = Duplicate::of(asked) else {
        // Of no descriptor, or of one that is not open, the driver takes nothing.
        let mut made = CUexternalMemory::NULL;
        let code = next::cuImportExternalMemory(Out::to(&mut made), asked);
        if code == CUresult::SUCCESS {
            let _ = next::cuDestroyExternalMemory(made);
        }
        return code;
    };
    let mut made = CUexternalMemory::NULL;
    let code = next::cuImportExternalMemory(Out::to(&mut made), In::of(own.description()));
    if code == CUresult::SUCCESS {
        own.leave();
        let _ = next::cuDestroyExternalMemory(made);
    }
    code
}

fn undo(handle: u64) -> CUresult {
    next::cuDestroyExternalMemory(CUexternalMemory(handle as *mut _))
}

pub fn destroy(tenant: Tenant, memory: CUexternalMemory) -> Outcome<CUresult> {
    let handle = memory.0 as u64;
    // It leaves first: the handle may come back to another thread at once.
    let Some(id) = tenant.external(|book| book.imports.remove(&handle)) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let _change = tenant.change();
    let code = next::cuDestroyExternalMemory(memory);
    if code == CUresult::SUCCESS {
        let ended = tenant.external(|book| book.leave(id));
        tenant.end_external(ended);
    } else {
        tenant.external(|book| book.imports.insert(handle, id));
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
    tenant.map_external(memory, &call, &|| out.read())
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
        let Some(memory) = self.external(|book| book.begin_view(handle)) else {
            return Outcome::PassThrough(Reason::TakesNothing);
        };
        let code = call();
        match place().filter(|_| code == CUresult::SUCCESS) {
            Some(place) => {
                let context = current_context();
                self.external(|book| book.enter_view(place, View { memory, context }));
            }
            None => {
                let ended = self.external(|book| book.leave(memory));
                self.end_external(ended);
            }
        }
        Outcome::Done(code)
    }

    /// Frees what is nobody's record: it may be mapped external memory.
    pub fn free_view(self, place: u64, call: impl FnOnce() -> CUresult) -> CUresult {
        if self.memory.external.get().is_none() {
            return call();
        }
        // It leaves first: the place may come back to another thread at once.
        let Some(view) = self.external(|book| book.take_view(place)) else {
            return call();
        };
        let _change = self.change();
        let code = call();
        let ended = self.external(|book| match code {
            CUresult::SUCCESS => book.leave(view.memory),
            _ => {
                book.enter_view(place, view);
                None
            }
        });
        self.end_external(ended);
        code
    }

    /// A context is gone, and with it what was mapped in it. An import lives on.
    pub fn end_views(self, context: u64) {
        if self.memory.external.get().is_some() {
            let ended = self.external(|book| book.end_context(context));
            self.end_external(ended);
        }
    }

    fn end_external(self, ended: impl IntoIterator<Item = Memory>) {
        ended
            .into_iter()
            .for_each(|memory| self.end_hold(memory.hold));
    }

    fn external<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        act(&mut self.external_book())
    }

    /// Not in each of its callers: the library stays small.
    #[inline(never)]
    fn external_book(self) -> MutexGuard<'static, Book> {
        let external = &self.memory.external;
        let external = external
            .get()
            .unwrap_or_else(|| external.set(External::default()));
        external.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let id = book.imports[&7];
        (book, id)
    }

    #[test]
    fn memory_ends_with_the_last_of_its_import_and_its_views() {
        let (mut book, id) = book();
        for context in [1, 2] {
            assert_eq!(book.begin_view(7), Some(id));
            let view = View {
                memory: id,
                context,
            };
            book.enter_view(64, view);
        }
        assert_eq!(book.imports.remove(&7), Some(id));
        assert_eq!(book.begin_view(7), None);
        assert_eq!(book.leave(id), None);
        assert_eq!(book.end_context(1), []);
        let view = book.take_view(64).unwrap();
        assert_eq!(view.context, 2);
        assert_eq!(book.leave(view.memory).unwrap().hold, HOLD);
        assert!(book.take_view(64).is_none() && book.views.is_empty() && book.memories.is_empty());
    }

    #[test]
    fn a_handle_that_comes_back_is_its_new_owners() {
        let (mut book, id) = book();
        assert_eq!(book.imports.remove(&7), Some(id));
        book.enter(7, HOLD);
        assert!(book.leave(id).is_some());
        let next = book.begin_view(7).unwrap();
        assert_ne!(next, id);
        assert_eq!(book.leave(next), None);
    }
}
