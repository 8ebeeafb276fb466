//! Functions and kernels: a launch may need their local memory for every thread that can be resident (R12).
//!
//! A card takes it at the launch that needs more than any before it in its context, not at the load (`fixtures/oracle/held-580.txt`): what each
//! function needs is noted where it is obtained, and charged there where it is launched (R28). Most programs have none that needs more than every
//! context has, and their launches compare two words.

use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use abi::cuda::{CUdevice, CUfunction, CUgraphExec, CUkernel, CUlibrary, CUmodule, CUresult};

use ledger::KeptErrno;
use seeds::{Seed, planted};

use crate::boundary::arena::{self, Forever, Owned};
use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::devices::{Device, NoDevice, current_context};
use crate::graphs::Code;
use crate::limits::{Launching, Raised, Raising};
use crate::outcome::{Outcome, Refused};
use crate::process::Tenant;

/// CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES.
const LOCAL_SIZE: c_int = 3;

/// Code may be loaded with any function: after so many the driver's figure is looked at.
const LOOK_EVERY: u32 = 16;

pub fn module_function(
    tenant: Tenant,
    place: Out<'_, CUfunction>,
    module: CUmodule,
    name: In<'_, c_char>,
) -> Outcome<CUresult> {
    one(
        tenant,
        place,
        || next::cuModuleGetFunction(place, module, name),
        |function| tenant.note_functions(module.0 as u64, &[function]),
    )
}

pub fn library_kernel(
    tenant: Tenant,
    place: Out<'_, CUkernel>,
    library: CUlibrary,
    name: In<'_, c_char>,
) -> Outcome<CUresult> {
    one(
        tenant,
        place,
        || next::cuLibraryGetKernel(place, library, name),
        |kernel| tenant.note_kernels(library.0 as u64, &[kernel]),
    )
}

/// A kernel's function in the current context.
pub fn kernel_function(
    tenant: Tenant,
    place: Out<'_, CUfunction>,
    kernel: CUkernel,
) -> Outcome<CUresult> {
    let library = tenant.memory.local.source_of(kernel.0 as u64);
    one(
        tenant,
        place,
        || next::cuKernelGetFunction(place, kernel),
        |function| tenant.note_functions(library, &[function]),
    )
}

pub fn module_functions(
    tenant: Tenant,
    places: Out<'_, CUfunction>,
    count: c_uint,
    module: CUmodule,
) -> Outcome<CUresult> {
    all(
        tenant,
        places,
        count.min(there(|count| next::cuModuleGetFunctionCount(count, module))),
        || next::cuModuleEnumerateFunctions(places, count, module),
        |functions| tenant.note_functions(module.0 as u64, functions),
    )
}

pub fn library_kernels(
    tenant: Tenant,
    places: Out<'_, CUkernel>,
    count: c_uint,
    library: CUlibrary,
) -> Outcome<CUresult> {
    all(
        tenant,
        places,
        count.min(there(|count| next::cuLibraryGetKernelCount(count, library))),
        || next::cuLibraryEnumerateKernels(places, count, library),
        |kernels| tenant.note_kernels(library.0 as u64, kernels),
    )
}

/// Nobody gets a handle of what the driver does not tell the needs of.
fn one<T: Copy>(
    tenant: Tenant,
    place: Out<'_, T>,
    call: impl FnOnce() -> CUresult,
    may: impl FnOnce(T) -> Result<(), Refused>,
) -> Outcome<CUresult> {
    if let Err(refused) = tenant.room_for_unasked() {
        return Outcome::Refused(refused);
    }
    let before = place.read();
    let code = call();
    let Some(obtained) = place.read().filter(|_| code == CUresult::SUCCESS) else {
        return Outcome::Done(code);
    };
    match may(obtained) {
        Ok(()) => {
            tenant.obtained();
            Outcome::Done(code)
        }
        Err(refused) => {
            if let Some(before) = before {
                place.write(before);
            }
            Outcome::Refused(refused)
        }
    }
}

/// How many there are to list: a program may say that it has room for more than it has.
fn there(ask: impl FnOnce(Out<'_, c_uint>) -> CUresult) -> c_uint {
    let mut count = 0;
    match ask(Out::to(&mut count)) {
        CUresult::SUCCESS => count,
        _ => 0,
    }
}

fn all<T: Copy>(
    tenant: Tenant,
    places: Out<'_, T>,
    count: c_uint,
    call: impl FnOnce() -> CUresult,
    may: impl FnOnce(&[T]) -> Result<(), Refused>,
) -> Outcome<CUresult> {
    if let Err(refused) = tenant.room_for_unasked() {
        return Outcome::Refused(refused);
    }
    let listed = || (0..count as usize).map_while(|at| places.read_at(at));
    let before: Vec<T> = listed().collect();
    let code = call();
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    let obtained: Vec<T> = listed().collect();
    match may(&obtained) {
        Ok(()) => {
            tenant.obtained();
            Outcome::Done(code)
        }
        Err(refused) => {
            for (at, before) in before.into_iter().enumerate() {
                places.write_at(at, before);
            }
            Outcome::Refused(refused)
        }
    }
}

/// What a driver told of local memory: nothing where there is no such function, unknown where it fails.
fn told(code: CUresult, bytes: c_int) -> Result<u64, Refused> {
    match code {
        CUresult::SUCCESS => Ok(u64::try_from(bytes).unwrap_or(0)),
        CUresult::ERROR_INVALID_VALUE
        | CUresult::ERROR_INVALID_DEVICE
        | CUresult::ERROR_INVALID_CONTEXT
        | CUresult::ERROR_INVALID_HANDLE
        | CUresult::ERROR_NO_BINARY_FOR_GPU
        | CUresult::ERROR_NOT_FOUND => Ok(0),
        _ => Err(Refused::UnknownDevice),
    }
}

/// The most of them.
fn most(mut each: impl Iterator<Item = Result<u64, Refused>>) -> Result<u64, Refused> {
    each.try_fold(0, |most, local| Ok(most.max(local?)))
}

fn function_local(function: &CUfunction) -> Result<u64, Refused> {
    let mut bytes = 0;
    let code = next::cuFuncGetAttribute(Out::to(&mut bytes), LOCAL_SIZE, *function);
    told(code, bytes)
}

fn kernel_local(kernel: &CUkernel, ordinal: CUdevice) -> Result<u64, Refused> {
    let mut bytes = 0;
    let code = next::cuKernelGetAttribute(Out::to(&mut bytes), LOCAL_SIZE, *kernel, ordinal);
    told(code, bytes)
}

/// What functions need. All zeros is the state of a process that has obtained none.
#[repr(C)]
pub struct LocalMemory {
    /// The most that any function or kernel needs that was obtained, in bytes a thread.
    obtained: AtomicU64,
    functions: Forever<Functions>,
    /// Some of those functions, each at a place that its handle gives.
    lately: Lately,
    graphs: Forever<Graphs>,
}

#[derive(Default)]
struct Functions(Mutex<Book>);

/// Functions and kernels that were obtained, as long as what they are of is loaded: their handles come again for others.
#[derive(Default)]
struct Book {
    known: HashMap<u64, Obtained>,
    /// Those of each module and library, by its handle; one that has become another's may be among them.
    by_source: HashMap<u64, Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Obtained {
    /// What it needs, in bytes a thread.
    local: u64,
    /// The context that was current: a function's own, as a rule. 0 for kernels, which have none.
    context: u64,
    /// The module or the library; 0 where nobody saw that.
    source: u64,
}

/// What was obtained of a module that is unloaded, by handle.
pub struct Forgotten(Vec<(u64, Obtained)>);

impl Book {
    fn enter(&mut self, handle: u64, obtained: Obtained) {
        let before = self.known.insert(handle, obtained);
        let source = obtained.source;
        if source != 0 && before.is_none_or(|before| before.source != source) {
            self.by_source.entry(source).or_default().push(handle);
        }
    }

    fn take_source(&mut self, source: u64) -> Vec<(u64, Obtained)> {
        let handles = self.by_source.remove(&source).unwrap_or_default();
        let known = &mut self.known;
        let taken = handles.into_iter().filter_map(|handle| {
            let is_its = known.get(&handle)?.source == source;
            Some((handle, is_its.then(|| known.remove(&handle))??))
        });
        taken.collect()
    }

    fn take_context(&mut self, context: u64) -> Vec<(u64, Obtained)> {
        let taken = self.known.extract_if(|_, one| one.context == context);
        let taken: Vec<_> = taken.collect();
        let known = &self.known;
        let sources: HashSet<u64> = taken.iter().map(|(_, one)| one.source).collect();
        for source in sources {
            if let Some(handles) = self.by_source.get_mut(&source) {
                handles.retain(|handle| known.get(handle).is_some_and(|one| one.source == source));
                if handles.is_empty() {
                    self.by_source.remove(&source);
                }
            }
        }
        taken
    }
}

/// Of executable graphs, by handle: what their kernels have needed since they were made.
#[derive(Default)]
struct Graphs(Mutex<HashMap<u64, Vec<Needed>>>);

/// Local memory that kernels need in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// 0 is whichever is current.
    pub context: u64,
    /// The most of them, in bytes a thread.
    pub local: u64,
}

/// Adds what a kernel needs to what others do.
pub fn add_needed(all: &mut Vec<Needed>, needed: Needed) {
    let same = |other: &&mut Needed| other.context == needed.context;
    match all.iter_mut().find(same) {
        Some(other) => other.local = other.local.max(needed.local),
        None => all.push(needed),
    }
}

/// What every thread has of a context that was never asked for more (CU_LIMIT_STACK_SIZE; H200, 580.159.04), in bytes.
const HAD_BY_ALL: u64 = 1024;

/// Functions that were launched or obtained lately, so that a launch takes no lock and hashes nothing: each word has a handle and what it needs, in units
/// of 16 bytes. Written under the lock of the functions alone, so that none is older than what is on record.
#[repr(C)]
struct Lately([AtomicU64; Lately::ROOM]);

impl Lately {
    const ROOM: usize = 1024;
    const UNIT: u64 = 16;

    fn place(&self, handle: u64) -> Option<&AtomicU64> {
        // Functions are some hundred bytes apart; handles with more bits are none that a word has room for.
        let at = (handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        self.0.get(at).filter(|_| handle >> 48 == 0)
    }

    fn of(&self, handle: u64) -> Option<u64> {
        let word = self.place(handle)?.load(Ordering::Acquire);
        (word >> 16 == handle).then_some((word & 0xFFFF) * Self::UNIT)
    }

    fn note(&self, handle: u64, local: u64) {
        let units = local.div_ceil(Self::UNIT);
        if let Some(place) = self.place(handle) {
            let word = handle << 16 | units;
            place.store(if units >> 16 == 0 { word } else { 0 }, Ordering::Release);
        }
    }

    fn forget(&self, handle: u64) {
        if let Some(place) = self.place(handle).filter(|_| self.of(handle).is_some()) {
            place.store(0, Ordering::Release);
        }
    }
}

impl LocalMemory {
    /// Whether some launch takes more than every context has.
    #[inline(always)]
    fn is_needed(&self) -> bool {
        self.obtained.load(Ordering::Relaxed) > HAD_BY_ALL
    }

    fn functions<R>(&self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        let functions = &self.functions.get_or_default().0;
        act(&mut functions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn graphs<R>(&self, act: impl FnOnce(&mut HashMap<u64, Vec<Needed>>) -> R) -> R {
        let _errno = KeptErrno::keep();
        let graphs = &self.graphs.get_or_default().0;
        act(&mut graphs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a function or kernel needs that was obtained, in bytes a thread.
    fn of(&self, handle: u64) -> Option<u64> {
        self.lately.of(handle).or_else(|| {
            self.functions(|book| {
                let local = book.known.get(&handle).map(|obtained| obtained.local);
                local.inspect(|local| self.lately.note(handle, *local))
            })
        })
    }

    /// Of what a function or kernel is: a module's or a library's handle, or 0.
    fn source_of(&self, handle: u64) -> u64 {
        let source = |book: &mut Book| book.known.get(&handle).map(|obtained| obtained.source);
        self.functions(source).unwrap_or_default()
    }

    /// Functions or kernels of a module or library, if it is known, with what each needs.
    fn note(&self, source: u64, context: u64, handles: impl Iterator<Item = (u64, u64)>) {
        let most = self.functions(|book| {
            let needs = handles.map(|(handle, local)| {
                let obtained = Obtained {
                    local,
                    context,
                    source,
                };
                book.enter(handle, obtained);
                self.lately.note(handle, local);
                local
            });
            needs.max().unwrap_or(0)
        });
        self.obtained.fetch_max(most, Ordering::AcqRel);
    }

    fn forget(&self, take: impl FnOnce(&mut Book) -> Vec<(u64, Obtained)>) -> Forgotten {
        if self.functions.get().is_none() || planted(Seed::R109) {
            return Forgotten(Vec::new());
        }
        self.functions(|book| {
            let taken = take(book);
            taken
                .iter()
                .for_each(|(handle, _)| self.lately.forget(*handle));
            Forgotten(taken)
        })
    }
}

/// Whether some launch of this process takes local memory that is charged for it.
#[inline(always)]
pub fn is_local_needed() -> bool {
    arena::enforcing().is_some_and(|memory| memory.local.is_needed())
}

/// What is launched.
#[derive(Clone, Copy)]
pub enum Launched<'a> {
    /// A function or a kernel, by its handle.
    One(u64),
    /// An executable graph.
    Graph(CUgraphExec),
    /// Kernels that become part of an executable graph.
    Kernels(&'a [Needed]),
    /// Any of what was obtained.
    Any,
    /// None of the program's: a memset.
    None,
}

/// A launch whose local memory is charged, until the driver has answered.
struct Afforded {
    charged: Option<(Launching, Option<Raised>)>,
    /// Where its context is known by nobody: while the driver is asked none is made (R103 of `fixtures/defects.txt`).
    _held: Option<Owned<'static>>,
}

impl Tenant {
    /// Before a module or library is unloaded: handles of its functions may come to another at once.
    pub fn forget_functions_of(self, source: u64) -> Forgotten {
        self.memory.local.forget(|book| book.take_source(source))
    }

    /// It was not unloaded after all.
    pub fn restore_functions(self, forgotten: Forgotten) {
        let memory = &self.memory.local;
        memory.functions(|book| {
            let all = forgotten.0.into_iter();
            all.for_each(|(handle, obtained)| book.enter(handle, obtained));
        });
    }

    /// A context has ended, and its functions with it.
    pub fn forget_functions_in(self, context: u64) {
        let _gone = self.memory.local.forget(|book| book.take_context(context));
    }

    /// These functions of a module or library were obtained.
    fn note_functions(self, source: u64, functions: &[CUfunction]) -> Result<(), Refused> {
        let handles = functions.iter().map(|function| function.0 as u64);
        let needs = functions.iter().map(function_local);
        let needs: Vec<u64> = needs.collect::<Result<_, _>>()?;
        self.memory
            .local
            .note(source, current_context(), handles.zip(needs));
        if planted(Seed::R28) {
            let most = self.memory.local.obtained.load(Ordering::Acquire);
            self.afford(current_context(), most, || false)?;
        }
        Ok(())
    }

    /// These kernels of a library were obtained: each may be launched on every device.
    fn note_kernels(self, source: u64, kernels: &[CUkernel]) -> Result<(), Refused> {
        let devices = || self.devices().into_iter().flat_map(|known| known.iter());
        let used = |ordinal| self.memory.contexts.has_any(ordinal);
        let local = |kernel: &CUkernel| {
            let asked = devices().filter(|device| used(device.ordinal));
            let asked = asked.chain(devices().take(1));
            most(asked.map(|device: &Device| kernel_local(kernel, device.ordinal as CUdevice)))
        };
        let handles = kernels.iter().map(|kernel| kernel.0 as u64);
        let needs: Vec<u64> = kernels.iter().map(local).collect::<Result<_, _>>()?;
        self.memory.local.note(source, 0, handles.zip(needs));
        Ok(())
    }

    /// A kernel node of a graph runs this: what it needs, in bytes a thread. What was obtained by a way that no hook sees the driver tells; of what it does
    /// not tell any of what was obtained may be meant.
    pub fn local_of(self, code: Code) -> u64 {
        let memory = &self.memory.local;
        let handle = code.handle();
        if let Some(local) = memory.of(handle) {
            return local;
        }
        let mut bytes = 0;
        let place = Out::to(&mut bytes);
        let answer = match code {
            Code::Function(function) => next::cuFuncGetAttribute(place, LOCAL_SIZE, function),
            Code::Kernel(kernel) => {
                let device = self.current_device().map_or(0, |device| device.ordinal);
                next::cuKernelGetAttribute(place, LOCAL_SIZE, kernel, device as CUdevice)
            }
        };
        match answer {
            CUresult::SUCCESS => {
                let local = u64::try_from(bytes).unwrap_or(0);
                memory.note(0, 0, core::iter::once((handle, local)));
                local
            }
            _ => memory.obtained.load(Ordering::Acquire),
        }
    }

    /// The context in which a function was obtained: its own, as a rule. 0 where nobody saw that.
    pub fn context_of(self, code: Code) -> u64 {
        let obtained = |book: &mut Book| book.known.get(&code.handle()).copied();
        let obtained = self.memory.local.functions(obtained);
        obtained.map_or(0, |obtained| obtained.context)
    }

    /// What an executable graph's kernels need; of one that is not known, the most that any function does in the current context.
    pub fn local_of_graph(self, exec: CUgraphExec) -> Vec<Needed> {
        let memory = &self.memory.local;
        let known = memory.graphs(|known| known.get(&(exec.0 as u64)).cloned());
        known.unwrap_or_else(|| {
            vec![Needed {
                context: 0,
                local: memory.obtained.load(Ordering::Acquire),
            }]
        })
    }

    /// An executable graph has kernels that need so much, whatever it had before.
    pub fn note_graph(self, exec: CUgraphExec, needed: &[Needed]) {
        self.memory
            .local
            .graphs(|graphs| graphs.insert(exec.0 as u64, needed.to_vec()));
    }

    /// A kernel or more of it are others from now on, which need so much. One of which nothing is known stays so.
    pub fn add_to_graph(self, exec: CUgraphExec, needed: &[Needed]) {
        self.memory.local.graphs(|graphs| {
            if let Some(known) = graphs.get_mut(&(exec.0 as u64)) {
                needed.iter().for_each(|one| add_needed(known, *one));
            }
        });
    }

    pub fn forget_graph(self, exec: CUgraphExec) {
        if self.memory.local.graphs.get().is_some() {
            self.memory
                .local
                .graphs(|graphs| graphs.remove(&(exec.0 as u64)));
        }
    }

    /// Makes a call that launches: what local memory it may take is charged before, or it is refused. `context` tells where, and is asked where some launch
    /// may take something; `is_captured` whether nothing is taken yet, and is asked where something would be charged. `through` is the driver's call.
    #[inline(always)]
    pub fn with_local(
        self,
        launched: Launched<'_>,
        context: impl Fn() -> u64,
        is_captured: impl Fn() -> bool,
        call: impl FnOnce() -> Outcome<CUresult>,
        through: impl FnOnce() -> CUresult,
    ) -> Outcome<CUresult> {
        if self.memory.local.is_needed() && !matches!(launched, Launched::None) {
            return self.afford_for(launched, context, is_captured, call, through);
        }
        call()
    }

    #[cold]
    #[inline(never)]
    fn afford_for(
        self,
        launched: Launched<'_>,
        context: impl Fn() -> u64,
        is_captured: impl Fn() -> bool,
        call: impl FnOnce() -> Outcome<CUresult>,
        through: impl FnOnce() -> CUresult,
    ) -> Outcome<CUresult> {
        let memory = &self.memory.local;
        let most = || memory.obtained.load(Ordering::Acquire);
        let here = |local| Needed { context: 0, local };
        let (several, one);
        let needed = match launched {
            Launched::Kernels(needed) if !planted(Seed::R28a) => needed,
            Launched::Graph(exec) if !planted(Seed::R28a) => {
                several = self.local_of_graph(exec);
                &several[..]
            }
            Launched::None => &[],
            // What was obtained by a way that no hook sees may be any of them.
            Launched::One(handle) => {
                one = [here(memory.of(handle).unwrap_or_else(most))];
                &one[..]
            }
            Launched::Any | Launched::Kernels(_) | Launched::Graph(_) => {
                one = [here(most())];
                &one[..]
            }
        };
        let mut first = None;
        let mut others = Vec::new();
        for Needed { context: of, local } in needed.iter().copied() {
            if local <= HAD_BY_ALL {
                continue;
            }
            let of = match of {
                0 => context(),
                _ if planted(Seed::R28f) => context(),
                of => of,
            };
            match self.afford(of, local, &is_captured) {
                Ok(None) => {}
                Ok(afforded) if first.is_none() => first = afforded,
                Ok(afforded) => others.extend(afforded),
                Err(refused) => {
                    self.back_out(first.into_iter().chain(others));
                    return Outcome::Refused(refused);
                }
            }
        }
        if first.is_none() {
            return call();
        }
        // The driver's own call as well: until then whoever sets the stack must know of it (R33c of `fixtures/defects.txt`).
        let outcome = match call() {
            Outcome::PassThrough(_) => Outcome::Done(through()),
            decided => decided,
        };
        if !matches!(outcome, Outcome::Done(CUresult::SUCCESS)) {
            self.back_out(first.into_iter().chain(others));
        }
        outcome
    }

    /// The driver took nothing for these.
    fn back_out(self, all: impl Iterator<Item = Afforded>) {
        for (launching, raised) in all.filter_map(|afforded| afforded.charged) {
            if let Some(raised) = raised {
                self.lower_local(&launching, &raised);
            }
        }
    }

    /// Charges a context for kernels that need so much, in bytes a thread. Nothing where it has ended; `None` where what is launched is captured.
    fn afford(
        self,
        context: u64,
        local: u64,
        is_captured: impl Fn() -> bool,
    ) -> Result<Option<Afforded>, Refused> {
        let ordinal = self.memory.contexts.ordinal_of(context);
        let device = ordinal.and_then(|ordinal| self.device(ordinal));
        let device = match device.map_or_else(|| self.current_device(), Ok) {
            Ok(device) => device,
            Err(NoDevice::NoContext) => return Ok(None),
            Err(NoDevice::Unknown) => return Err(Refused::UnknownDevice),
        };
        // A context that ends meanwhile may be made anew, with a library's kernels as they were.
        const ROUNDS: usize = 8;
        for _ in 0..ROUNDS {
            let Some(limits) = self.limits_in_life(context, device) else {
                if context == 0 {
                    return Err(Refused::UnknownDevice);
                }
                let held = (!planted(Seed::R103)).then(|| self.memory.changing.hold());
                if held.is_some() && self.limits_in_life(context, device).is_some() {
                    continue;
                }
                return Ok(Some(Afforded {
                    charged: None,
                    _held: held.flatten(),
                }));
            };
            // First: whoever makes one anew waits for it.
            let launching = limits.begin_launch();
            if !limits.has_local(local) && is_captured() {
                return Ok(None);
            }
            let raised = match self.raise_local(device, limits, local)? {
                Raising::Stood => None,
                Raising::Raised(raised) => Some(raised),
                Raising::Ended if planted(Seed::R103) => None,
                Raising::Ended => continue,
            };
            return Ok(Some(Afforded {
                charged: Some((launching, raised)),
                _held: None,
            }));
        }
        Err(Refused::UnknownDevice)
    }

    /// A function was obtained.
    fn obtained(self) {
        let count = &self.memory.obtained;
        if (count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(LOOK_EVERY)
            && let Ok(device) = self.current_device()
        {
            self.look_at(device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obtained(source: u64, context: u64, local: u64) -> Obtained {
        Obtained {
            local,
            context,
            source,
        }
    }

    #[test]
    fn functions_go_with_what_they_are_of() {
        let mut book = Book::default();
        for round in 0..3 {
            book.enter(1, obtained(10, 100, round));
        }
        book.enter(2, obtained(10, 100, 7));
        book.enter(3, obtained(11, 100, 8));
        assert_eq!(book.by_source[&10], [1, 2]);
        // A handle that came again for another module's function.
        book.enter(2, obtained(11, 100, 9));
        assert_eq!(book.take_source(10), [(1, obtained(10, 100, 2))]);
        assert!(book.take_source(10).is_empty());
        let left: u64 = book.take_source(11).iter().map(|(_, one)| one.local).sum();
        assert_eq!(left, 17);
        assert!(book.known.is_empty() && book.by_source.is_empty());
    }

    #[test]
    fn functions_go_with_their_context_and_kernels_stay() {
        let mut book = Book::default();
        book.enter(1, obtained(10, 0, 1));
        book.enter(2, obtained(10, 100, 1));
        book.enter(3, obtained(11, 100, 1));
        assert_eq!(book.take_context(100).len(), 2);
        assert_eq!((&book.by_source[&10], book.by_source.len()), (&vec![1], 1));
        assert!(book.take_context(100).is_empty());
    }

    #[test]
    fn what_is_forgotten_is_not_known_lately_either() {
        let memory = LocalMemory {
            obtained: AtomicU64::new(0),
            functions: Forever::none(),
            lately: Lately([const { AtomicU64::new(0) }; Lately::ROOM]),
            graphs: Forever::none(),
        };
        let (first, other) = (0x1000, 0x2000);
        memory.note(10, 100, [(first, 4096), (other, 2048)].into_iter());
        assert_eq!(
            (memory.of(first), memory.of(other)),
            (Some(4096), Some(2048))
        );
        let _gone = memory.forget(|book| book.take_source(10));
        assert_eq!((memory.of(first), memory.of(other)), (None, None));
    }
}
