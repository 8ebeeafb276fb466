//! What a row of the table yields: the name, the export, the typed call of the driver's function.

use core::any::Any;
use core::cell::Cell;
use core::ffi::CStr;
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use abi::cuda::{CUresult, CUstream};
use ledger::{Cancelability, KeptErrno};
use seeds::{Seed, planted};

use super::cross::{Answer, Cross};
use super::drivers::Library;
use super::{elf, loader, sign};
use crate::context;
use crate::function;
use crate::memset::{self, Memset};
use crate::outcome::{Outcome, Refused};
use crate::poll;
use crate::pool::Wait;
use crate::process::{self, Standing, Tenant};
use crate::report;
use crate::variants;

// Exports are "C-unwind", though no panic leaves them: "C" has a landing pad for every call, and what has one is not unwound but where it calls. All that may
// panic is in `contain`, or catches by itself.

/// An export's address.
struct Address(*const ());
// SAFETY: the address of a function, never written through.
unsafe impl Sync for Address {}

// The first argument of a row: where its function is not exported. A proxy exports the hooks of its own driver alone.
macro_rules! export {
    { (($inner:meta) $when:ident $body:path) $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty } => {
        /// # Safety
        /// As the driver's function of this name.
        #[cfg_attr(not($inner), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            let next = enter(Entry::$name);
            if next == 0 {
                let Some(behind) = behind(Entry::$name) else {
                    return missing(Entry::$name);
                };
                // SAFETY: another library's function of this name, for which the caller's reference was, with the caller's own arguments.
                return unsafe { transmute::<usize, fns::$name>(behind)($($arg),*) };
            }
            // SAFETY: the address of the bound driver's function of this name, whose signature is the row's.
            let next = unsafe { transmute::<usize, fns::$name>(next) };
            let own = const { is_per_thread(stringify!($name)) } $(|| names_own_stream(&$arg))*;
            // SAFETY: the caller's own arguments.
            let forward = move || unsafe { next($($arg),*) };
            if seeds::unhooked(stringify!($name)) {
                return forward();
            }
            let taking = own && const { !gives_back(stringify!($name)) };
            if taking && poll::is_unmet() && let Some(refused) = turned_away(Entry::$name) {
                return refused;
            }
            // SAFETY: the caller keeps the function's contract.
            export!(@$when $name $body, own, forward, $(unsafe { <$ty as Cross>::cross($arg) }),*)
        }
    };
    (@always $name:ident $body:path, $own:ident, $forward:ident, $($arg:expr),*) => {
        met($own, contain(Entry::$name, || ended($body($($arg),*), $forward)))
    };
    (@paced $name:ident $body:path, $own:ident, $forward:ident, $($arg:expr),*) => {{
        poll::poll();
        if process::is_paced() || function::is_local_needed() {
            export!(@tenant $name $body, $own, $forward, $($arg),*)
        } else {
            met($own, $forward())
        }
    }};
    (@waits $name:ident $body:path, $own:ident, $forward:ident, $($arg:expr),*) => {
        met($own, wait(Entry::$name, |tenant| $body(tenant, $($arg),*), $forward))
    };
    (@set $name:ident $body:path, $own:ident, $forward:ident, $($arg:expr),*) => {
        set(Entry::$name, $own, &$body($($arg),*), &$forward)
    };
    // What the driver writes is read before another thread can change it (R51 of `fixtures/defects.txt`).
    (@makes $name:ident $body:path, $own:ident, $forward:ident, $place:expr $(, $arg:expr)*) => {{
        let place = $place;
        let body = |tenant| place.answered_by_own(|place| $body(tenant, place $(, $arg)*));
        export!(@tenant $name body, $own, $forward,)
    }};
    (@tenant $name:ident $body:expr, $own:ident, $forward:ident, $($arg:expr),*) => {
        match process::standing() {
            Standing::Enforce(tenant) => contain(Entry::$name, || {
                let outcome = $body(tenant $(, $arg)*);
                report::outcome(Entry::$name, &outcome);
                met($own, ended(outcome, $forward))
            }),
            Standing::Forward => $forward(),
            Standing::Impossible => Answer::refused(Refused::NoMemory),
        }
    };
}

/// As [`export`], of what has no body.
macro_rules! export_per_thread {
    { ($inner:meta) $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty } => {
        /// # Safety
        /// As the driver's function of this name.
        #[cfg_attr(not($inner), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            let next = enter(Entry::$name);
            if next == 0 {
                let Some(behind) = behind(Entry::$name) else {
                    return missing(Entry::$name);
                };
                // SAFETY: another library's function of this name, for which the caller's reference was, with the caller's own arguments.
                return unsafe { transmute::<usize, fns::$name>(behind)($($arg),*) };
            }
            // SAFETY: the address of the bound driver's function of this name, whose signature is the row's.
            let next = unsafe { transmute::<usize, fns::$name>(next) };
            let own = const { is_per_thread(stringify!($name)) } $(|| names_own_stream(&$arg))*;
            let own = own && !seeds::unhooked(stringify!($name));
            if own && poll::is_unmet() && let Some(refused) = turned_away(Entry::$name) {
                return refused;
            }
            if const { is_no_work(stringify!($name)) } && process::is_paced() {
                crate::throttle::note_wait();
            }
            // SAFETY: the caller's own arguments.
            met(own, unsafe { next($($arg),*) })
        }
    };
}

/// Whether an argument is the handle that stands for the calling thread's own default stream: CU_STREAM_PER_THREAD.
#[inline(always)]
fn names_own_stream<T: Any>(argument: &T) -> bool {
    const PER_THREAD: usize = 2;
    (argument as &dyn Any)
        .downcast_ref::<CUstream>()
        .is_some_and(|stream| stream.0 as usize == PER_THREAD)
}

/// Whether a function of this name takes a thread's own default stream for the stream 0.
const fn is_per_thread(name: &str) -> bool {
    let name = name.as_bytes();
    let Some((_, [b'_', b'p', b't', kind, last])) = name.split_last_chunk::<5>() else {
        return false;
    };
    matches!((*kind, *last), (b's', b'z') | (b'd', b's'))
}

/// Whether a function of this name puts something into a stream that may wait for the host, another stream or another process, or a copy: a compute
/// budget is of what the device computes.
const fn is_no_work(name: &str) -> bool {
    const BEGINNINGS: [&[u8]; 7] = [
        b"cuStreamWait",
        b"cuStreamBatchMemOp",
        b"cuStreamAddCallback",
        b"cuLaunchHostFunc",
        b"cuWaitExternalSemaphores",
        b"cuMemcpy",
        b"cuMemPrefetch",
    ];
    let mut at = 0;
    while at < BEGINNINGS.len() {
        if begins(name.as_bytes(), BEGINNINGS[at]) {
            return true;
        }
        at += 1;
    }
    false
}

const fn begins(name: &[u8], with: &[u8]) -> bool {
    let mut at = 0;
    while at < with.len() {
        if at == name.len() || name[at] != with[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a function of this name gives memory back: it is never refused.
const fn gives_back(name: &str) -> bool {
    matches!(
        name.as_bytes(),
        [b'c', b'u', b'M', b'e', b'm', b'F', b'r', b'e', b'e', ..]
    )
}

/// The answer to a call that would be a thread's first on its own default stream, if it is not made.
#[cold]
#[inline(never)]
fn turned_away<R: Answer>(entry: Entry) -> Option<R> {
    let Standing::Enforce(tenant) = process::standing() else {
        return None;
    };
    if planted(Seed::R18a) {
        return None;
    }
    let why = Cell::new(None);
    let code: CUresult = contain(entry, || {
        let Err(refused) = tenant.let_thread_in() else {
            return CUresult::SUCCESS;
        };
        why.set(Some(refused));
        report::outcome(entry, &Outcome::<()>::Refused(refused));
        Answer::refused(refused)
    });
    (code != CUresult::SUCCESS).then(|| R::refused(why.get().unwrap_or(Refused::Panicked)))
}

/// The answer of a call, which may have been a thread's first on its own default stream.
#[inline(always)]
fn met<R>(per_thread: bool, answer: R) -> R {
    if per_thread {
        poll::meet_thread();
    }
    answer
}

macro_rules! call {
    { () $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty } => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C names and arguments stay exact")]
        pub fn $name($($arg: <$ty as Cross>::Safe<'_>),*) -> $ret {
            let next = library(Entry::$name).next(Entry::$name);
            if next == 0 {
                return missing(Entry::$name);
            }
            // SAFETY: the address of the bound driver's function of this name, whose signature is the row's.
            let next = unsafe { transmute::<usize, fns::$name>(next) };
            // SAFETY: pointers are a caller's own or to places of ours of the type that the row names.
            unsafe { next($(<$ty as Cross>::back($arg)),*) }
        }
    };
}

/// A memset is made by its own hook alone, and so are waits but for an event.
macro_rules! next {
    (set $name:ident) => {};
    (waits cuCtxSynchronize) => {};
    (waits cuCtxSynchronize_v2) => {};
    (waits cuStreamSynchronize) => {};
    (waits cuStreamSynchronize_ptsz) => {};
    ($when:ident $name:ident) => { abi::cuda_signature!($name => call!()); };
}

macro_rules! entries {
    (
        cuda { $($cuda:ident => $cuda_when:ident $cuda_body:path;)* }
        nvml { $($nvml:ident => $nvml_when:ident $nvml_body:path;)* }
        per_thread { $($thread:ident;)* }
        per_thread called { $($called_thread:ident;)* }
        called cuda { $($called_cuda:ident;)* }
        called nvml { $($called_nvml:ident;)* }
    ) => {
        /// An entry point that we hook or call.
        #[allow(non_camel_case_types, reason = "C names stay exact")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Entry { $($cuda,)* $($thread,)* $($called_thread,)* $($nvml,)* $($called_cuda,)* $($called_nvml,)* }

        /// The hooks are the first entries.
        pub const HOOKS: usize = CUDA_HOOKS + [$(stringify!($nvml),)*].len();
        pub const ENTRIES: usize = HOOKS + [$(stringify!($called_cuda),)* $(stringify!($called_nvml),)*].len();

        const CUDA_HOOKS: usize = [$(stringify!($cuda),)* $(stringify!($thread),)* $(stringify!($called_thread),)*].len();
        const CUDA_CALLED: usize = [$(stringify!($called_cuda),)*].len();

        /// All names, each with its NUL: a table of pointers would be thrice as large, and most of it relocations.
        static TEXT: &str = concat!(
            $(stringify!($cuda), "\0",)* $(stringify!($thread), "\0",)* $(stringify!($called_thread), "\0",)* $(stringify!($nvml), "\0",)* $(stringify!($called_cuda), "\0",)* $(stringify!($called_nvml), "\0",)*
        );
        static HOOK_ENTRIES: [Entry; HOOKS] = [$(Entry::$cuda,)* $(Entry::$thread,)* $(Entry::$called_thread,)* $(Entry::$nvml,)*];
        static NEEDED: [Needed; HOOKS] = [
            $(Needed::$cuda_when,)* $(Needed::of(stringify!($thread)),)* $(Needed::of(stringify!($called_thread)),)* $(Needed::$nvml_when,)*
        ];
        static EXPORTS: [Address; HOOKS] = [
            $(Address(cuda::$cuda as *const ()),)*
            $(Address(cuda::$thread as *const ()),)*
            $(Address(cuda::$called_thread as *const ()),)*
            $(Address(nvml::$nvml as *const ()),)*
        ];

        #[allow(non_snake_case, reason = "C names stay exact")]
        mod cuda {
            use super::*;
            use abi::cuda::enumerations::*;
            use abi::cuda::*;
            $( abi::cuda_signature!($cuda => export!((any(test, stands_for = "libnvml")) $cuda_when $cuda_body)); )*
            $( abi::cuda_signature!($thread => export_per_thread!(any(test, stands_for = "libnvml"))); )*
            $( abi::cuda_signature!($called_thread => export_per_thread!(any(test, stands_for = "libnvml"))); )*
        }
        #[allow(non_snake_case, reason = "C names stay exact")]
        mod nvml {
            use super::*;
            use abi::nvml::*;
            $( abi::nvml_signature!($nvml => export!((any(test, stands_for = "libcuda")) $nvml_when $nvml_body)); )*
        }

        /// The CUDA driver's own functions.
        pub mod next {
            use super::*;
            use abi::cuda::enumerations::*;
            use abi::cuda::*;
            $( next!($cuda_when $cuda); )*
            $( abi::cuda_signature!($called_thread => call!()); )*
            $( abi::cuda_signature!($called_cuda => call!()); )*
        }
        /// NVML's own functions.
        pub mod next_nvml {
            use super::*;
            use abi::nvml::*;
            use abi::nvml::enumerations::{nvmlSamplingType_t, nvmlValueType_t};
            $( abi::nvml_signature!($nvml => call!()); )*
            $( abi::nvml_signature!($called_nvml => call!()); )*
        }
    };
}

crate::hooks::table!(entries);

/// The driver's function behind an export, 0 if there is none. Each export looks at its own entry's place, so that none is merged with another (decision 19).
#[inline(always)]
fn enter(entry: Entry) -> usize {
    if planted(Seed::S6) && comes_too_early(entry) {
        return 0;
    }
    library(entry).next(entry)
}

/// The table is filled by cuInit, and by nothing else.
fn comes_too_early(entry: Entry) -> bool {
    static FILLED: AtomicBool = AtomicBool::new(false);
    FILLED.fetch_or(entry == Entry::cuInit, Ordering::Relaxed);
    library(entry) == Library::Cuda && !FILLED.load(Ordering::Relaxed)
}

/// Where there is no driver yet, the function of this name that another library has: libraries have stubs of the driver's functions that open it when the
/// first of them is called (TensorFlow's, those that implib.so makes), and without us the call had gone there (attack 25).
#[cold]
#[inline(never)]
fn behind(entry: Entry) -> Option<usize> {
    let library = library(entry);
    if library.is_bound() || !Library::hears_look_ups() {
        return None;
    }
    let (name, mut found) = (name_at(entry as usize), None);
    loader::locked(&mut || {
        elf::each(&mut |object| {
            found = (!sign::is_ours(object))
                .then(|| object.function(name))
                .flatten();
            found.is_some()
        });
    });
    found
}

#[cold]
#[inline(never)]
fn missing<R: Answer>(entry: Entry) -> R {
    if library(entry).is_bound() {
        R::ABSENT
    } else {
        R::NO_DRIVER
    }
}

/// A memset, which `forward` makes.
#[inline(never)]
fn set(entry: Entry, own: bool, memset: &Memset, forward: &dyn Fn() -> CUresult) -> CUresult {
    poll::poll();
    if !process::is_paced() {
        return met(own, forward());
    }
    match process::standing() {
        Standing::Enforce(tenant) => contain(entry, || {
            let outcome = memset::pace(tenant, memset, forward);
            report::outcome(entry, &outcome);
            met(own, ended(outcome, forward))
        }),
        Standing::Forward => forward(),
        Standing::Impossible => Answer::refused(Refused::NoMemory),
    }
}

/// What a hook answers. Within `contain`, whose own result then is one register: an `Outcome` would go through memory on the way of
/// every call.
#[inline]
fn ended<R: Answer>(outcome: Outcome<R>, forward: impl FnOnce() -> R) -> R {
    match outcome {
        Outcome::Done(answer) => answer,
        Outcome::PassThrough(_) => forward(),
        Outcome::Refused(refused) => R::refused(refused),
    }
}

/// No panic crosses C: it refuses. Nor is the thread cancelled meanwhile: our locks are held, and we sleep and read files where a driver does not
/// (C12 and C30 of `fixtures/defects.txt`).
#[inline]
fn contain<R: Answer>(entry: Entry, body: impl FnOnce() -> R) -> R {
    if planted(Seed::C12) {
        return caught(entry, body);
    }
    if planted(Seed::C30) {
        return guarded(entry, body);
    }
    let before = Cancelability::withhold();
    let answer = caught(entry, body);
    before.restore();
    answer
}

/// A frame of its own, where nobody can be cancelled: the frames of exports have no landing pads, so that an asynchronous cancellation may unwind
/// them anywhere.
#[inline(never)]
fn caught<R: Answer>(entry: Entry, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| panicked(entry))
}

/// What the end of a guard restores is restored from within a landing pad's frame.
#[inline(never)]
fn guarded<R: Answer>(entry: Entry, body: impl FnOnce() -> R) -> R {
    struct Guard(Cancelability);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.restore();
        }
    }
    // Dropped after it, so that there is something to land for.
    let _errno = KeptErrno::keep();
    let _guard = Guard(Cancelability::withhold());
    caught(entry, body)
}

/// A wait of the program's, which may last for ever: the thread can be cancelled in it where the driver lets it be, as without us. `body` tells
/// what there is to wait for, before.
#[inline]
fn wait(
    entry: Entry,
    body: impl FnOnce(Tenant) -> Wait,
    forward: impl FnOnce() -> CUresult,
) -> CUresult {
    let tenant = match process::standing() {
        Standing::Enforce(tenant) => tenant,
        Standing::Forward => return forward(),
        Standing::Impossible => return Answer::refused(Refused::NoMemory),
    };
    let end = |wait: Wait, code| {
        let outcome = Outcome::Done(wait.end(tenant, code));
        report::outcome(entry, &outcome);
        ended(outcome, || code)
    };
    let wait = body(tenant);
    let code = forward();
    contain(entry, || end(wait, code))
}

#[cold]
fn panicked<R: Answer>(entry: Entry) -> R {
    report::outcome(entry, &Outcome::<()>::Refused(Refused::Panicked));
    R::refused(Refused::Panicked)
}

pub fn library(entry: Entry) -> Library {
    library_at(entry as usize)
}

/// Of the entry of that number.
pub const fn library_at(entry: usize) -> Library {
    if entry < CUDA_HOOKS || HOOKS <= entry && entry < HOOKS + CUDA_CALLED {
        Library::Cuda
    } else {
        Library::Nvml
    }
}

/// Where each name begins in [`TEXT`], and where the last ends.
static STARTS: [u16; ENTRIES + 1] = {
    let mut starts = [0; ENTRIES + 1];
    let (mut at, mut entry) = (0, 0);
    while at < TEXT.len() {
        if TEXT.as_bytes()[at] == 0 {
            entry += 1;
            starts[entry] = at as u16 + 1;
        }
        at += 1;
    }
    assert!(entry == ENTRIES && at <= u16::MAX as usize);
    starts
};

/// With its NUL.
const fn text(entry: usize) -> &'static [u8] {
    let (start, end) = (STARTS[entry] as usize, STARTS[entry + 1] as usize);
    TEXT.as_bytes().split_at(end).0.split_at(start).1
}

/// The name of the entry of that number.
pub fn name_at(entry: usize) -> &'static CStr {
    CStr::from_bytes_with_nul(text(entry)).unwrap_or_default()
}

/// By entry: what DT_GNU_HASH has its name by.
static HASHES: [u32; ENTRIES] = {
    let (mut hashes, mut entry) = ([0; ENTRIES], 0);
    while entry < ENTRIES {
        let name = text(entry);
        hashes[entry] = elf::gnu_hash(name.split_at(name.len() - 1).0);
        entry += 1;
    }
    hashes
};

/// What DT_GNU_HASH has the name of the entry of that number by.
pub fn hash_at(entry: usize) -> u32 {
    HASHES[entry]
}

/// The address of our export of a hooked entry point, 0 of one that is only called.
pub fn export_address(entry: Entry) -> usize {
    export_at(entry as usize)
}

/// As [`export_address`], of the entry of that number.
pub fn export_at(entry: usize) -> usize {
    EXPORTS.get(entry).map_or(0, |export| export.0 as usize)
}

/// When a look-up answers a hook.
#[allow(non_camel_case_types, reason = "as the table's rows say it")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    always,
    tenant,
    makes,
    paced,
    set,
    waits,
    per_thread,
}

impl Needed {
    /// Of a row without a body.
    const fn of(_: &str) -> Needed {
        Needed::per_thread
    }
}

/// What a look-up answers that means the driver's function at `address`: our export, but that itself where the hook would do
/// nothing and its cost be all that there is of it.
pub fn answer(entry: Entry, address: usize) -> usize {
    if entry == Entry::cuInit {
        context::is_at_hand();
    }
    match NEEDED.get(entry as usize) {
        Some(Needed::paced | Needed::set | Needed::per_thread) if !process::may_be_paced() => {
            address
        }
        _ => export_address(entry),
    }
}

/// One bit per class of names that a hook's name falls into: most names are none of ours, and one load says so.
static CLASSES: [u64; CLASS_WORDS] = classes(false);
/// Likewise of hooks' names without version and stream variant.
static STEM_CLASSES: [u64; CLASS_WORDS] = classes(true);

const fn classes(of_stems: bool) -> [u64; CLASS_WORDS] {
    let mut classes = [0; CLASS_WORDS];
    let mut hook = 0;
    while hook < HOOKS {
        let name = text(hook);
        let name = name.split_at(name.len() - 1).0;
        let (word, bit) = class(if of_stems { variants::stem(name) } else { name });
        classes[word] |= bit;
        hook += 1;
    }
    classes
}

const CLASS_WORDS: usize = 16;

/// Word and bit of a name: by its length and two letters that tell entry points apart.
const fn class(name: &[u8]) -> (usize, u64) {
    let length = name.len();
    if length < 6 {
        return (0, 1);
    }
    let class = length * 37
        + name[length - 1] as usize * 3
        + name[length / 2] as usize * 5
        + name[5] as usize;
    ((class >> 6) % CLASS_WORDS, 1 << (class & 63))
}

/// The hook of exactly this name.
pub fn exported(name: &CStr) -> Option<Entry> {
    // The first letter is looked at before the length is known: a program looks up many names, few of them a driver's.
    // SAFETY: a C string has at least its NUL.
    if !matches!(unsafe { name.as_ptr().read() } as u8, b'c' | b'n') {
        return None;
    }
    let bytes = name.to_bytes();
    let (word, bit) = class(bytes);
    if CLASSES[word] & bit == 0 {
        return None;
    }
    let hook = (0..HOOKS).find(|hook| text(*hook) == name.to_bytes_with_nul())?;
    Some(HOOK_ENTRIES[hook])
}

/// Whether some version of this function has a hook that keeps books, paces or tells the share: of `cuMemAlloc` that of `cuMemAlloc_v2`. A function that
/// is only followed by a look may have any versions: what they take is the next look's.
pub fn has_hook(stem: &[u8]) -> bool {
    let (word, bit) = class(stem);
    if STEM_CLASSES[word] & bit == 0 {
        return false;
    }
    (0..HOOKS).any(|hook| {
        let name = text(hook);
        name.starts_with(stem)
            && NEEDED[hook] != Needed::per_thread
            && variants::stem(&name[..name.len() - 1]) == stem
    })
}

/// Whether this is a version or a stream variant of a hooked function, and has no hook itself.
pub fn is_unknown_variant(name: &CStr) -> bool {
    // SAFETY: a C string has at least its NUL.
    if !matches!(unsafe { name.as_ptr().read() } as u8, b'c' | b'n') {
        return false;
    }
    let name = name.to_bytes();
    let stem = variants::stem(name);
    stem.len() < name.len() && has_hook(stem)
}

/// Our export in place of the driver's function at `address`, if that is a hooked one.
pub fn hook_of(library: Library, address: usize) -> Option<usize> {
    let hook = library.hook_at(address)?;
    Some(answer(HOOK_ENTRIES[hook], address))
}
