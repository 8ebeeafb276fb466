//! All the unsafe of this library: C arguments become [`Out`], [`In`] and [`Host`]; exports pass through [`enter`].
//!
//! `enter` is the one place where the fault plan is consulted and the trace written. It is never inlined and takes
//! the entry's own id, so that no two exports can be merged into one address.

mod backing;
mod canary;
mod client_call;
mod image;
mod node_params;
mod trace;

floor::provide!();

pub use self::trace::Arguments;
pub use backing::{AddressRange, Backing, HostPages, copy_host, fill_host, is_mapped};
pub use canary::Canary;
pub use client_call::{ClientCall, Kept, batch_fields, first_word};
pub use image::{bytes, image, unwrapped};
pub use node_params::{alloc_v2, node_params};

use std::ffi::CStr;

use abi::cuda::*;
use mock_device::{Api, Parameters};

use crate::driver;
use crate::entry::{Entry, Recorded};
use crate::lost;

/// A pointer that the caller gave for an answer.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// INVALID_VALUE where the caller gave NULL.
    pub fn required(self) -> Result<Slot<T>, CUresult> {
        if self.0.is_null() {
            Err(CUresult::ERROR_INVALID_VALUE)
        } else {
            Ok(Slot(self.0))
        }
    }

    pub fn optional(self) -> Option<Slot<T>> {
        (!self.0.is_null()).then_some(Slot(self.0))
    }

    /// Where the real driver writes without looking, NULL ends the process.
    pub fn or_crash(self) -> Slot<T> {
        if self.0.is_null() {
            crash();
        }
        Slot(self.0)
    }

    /// As the caller gave it, to be given back to him.
    pub fn raw(&self) -> *mut T {
        self.0
    }

    pub fn slot(&self) -> Option<Slot<T>> {
        (!self.0.is_null()).then_some(Slot(self.0))
    }

    pub fn as_in(&self) -> In<T> {
        In(self.0)
    }

    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// A non-NULL [`Out`].
pub struct Slot<T>(*mut T);

impl<T> Slot<T> {
    pub fn set(&self, value: T) {
        // SAFETY: the C contract of every entry point is that a non-NULL out-pointer may be written; callers with
        // packed structures may pass unaligned ones.
        unsafe { self.0.write_unaligned(value) }
    }

    pub fn get(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: as for `set`; the entry points that use this read before they write (in-out arguments).
        unsafe { self.0.read_unaligned() }
    }
}

impl<T> Slot<T> {
    pub fn out(&self) -> Out<T> {
        Out(self.0)
    }

    /// The `at`-th element of the array that begins here; the caller said that it is there.
    pub fn nth(&self, at: usize) -> Slot<T> {
        // SAFETY: handlers stay below the length that the client gave.
        Slot(unsafe { self.0.add(at) })
    }
}

impl<T> Slot<T> {
    pub fn cast<U>(&self) -> Slot<U> {
        Slot(self.0.cast())
    }
}

impl Slot<c_char> {
    /// Text with its NUL, cut to `len` bytes as snprintf cuts it. Of no bytes none is written.
    pub fn set_text(&self, text: &str, len: usize) {
        let bytes = text.as_bytes();
        let kept = &bytes[..bytes.len().min(len.saturating_sub(1))];
        for (at, byte) in kept.iter().chain([&0]).enumerate().take(len) {
            // SAFETY: the caller said that `len` bytes are there.
            unsafe { self.0.add(at).write(*byte as c_char) }
        }
    }

    /// Text and zeros, `len` bytes in all, the last of them a NUL, as strncpy fills them.
    pub fn fill_text(&self, text: &str, len: usize) {
        self.set_text(text, len);
        for at in (text.len() + 1).min(len)..len {
            // SAFETY: the caller said that `len` bytes are there.
            unsafe { self.0.add(at).write(0) }
        }
    }
}

/// A pointer to something the caller lets us read.
pub struct In<T>(*const T);

impl<T> In<T> {
    pub fn null() -> In<T> {
        In(std::ptr::null())
    }

    pub fn at(address: u64) -> In<T> {
        In(address as *const T)
    }
}

impl<T: Copy> In<T> {
    /// The `at`-th element of the array that begins here, whose length the caller gave; `None` for NULL.
    pub fn nth(&self, at: usize) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL, and handlers stay below the length that the client gave.
        Some(unsafe { self.0.add(at).read_unaligned() })
    }

    pub fn required(self) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        // SAFETY: not NULL, and the C contract lets the driver read it.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

impl<T: Copy> In<T> {
    /// Where the real driver reads without looking, NULL ends the process.
    pub fn or_crash(&self) -> T {
        if self.0.is_null() {
            crash();
        }
        // SAFETY: not NULL, and the C contract lets the driver read it.
        unsafe { self.0.read_unaligned() }
    }
}

impl<T> In<T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The same place read as something else: a structure with a union in it as words.
    pub fn cast<U>(&self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T> From<Out<T>> for In<T> {
    /// An array that C passes without const and the driver only reads.
    fn from(out: Out<T>) -> Self {
        In(out.0)
    }
}

impl In<c_char> {
    pub fn text(&self) -> Option<&CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL; the C contract is a NUL-terminated string that lives as long as the call.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}

/// The address of host memory: a number until [`copy_host`] or [`fill_host`] uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host(pub u64);

impl Host {
    /// What lies there, as something that may be written.
    pub fn out<T>(self) -> Out<T> {
        Out(self.0 as *mut T)
    }
}

/// What a client's function says of the dynamic shared memory of a block of this size.
pub fn ask_dynamic_shared(function: CUoccupancyB2DSize, block: c_int) -> Option<usize> {
    // SAFETY: the client gave its own function for this very call.
    function.map(|function| unsafe { function(block) })
}

/// A descriptor that the client names by its number; `None` where the process has none of it.
pub fn descriptor(number: u64) -> Option<std::os::fd::BorrowedFd<'static>> {
    // An int in a pointer's clothes: the upper half is nobody's.
    let number = number as i32;
    // SAFETY: fcntl looks a number up; where it is open, the client keeps it so during the call, as the C contract says.
    unsafe {
        (libc::fcntl(number, libc::F_GETFD) >= 0)
            .then(|| std::os::fd::BorrowedFd::borrow_raw(number))
    }
}

/// Closes a descriptor that the client gave away.
pub fn close(number: c_int) {
    // SAFETY: the entry points that use this take their descriptor over.
    unsafe {
        libc::close(number);
    }
}

/// How a C argument becomes a handler's argument.
pub trait FromC<Raw> {
    fn from_c(raw: Raw) -> Self;
}

impl<T> FromC<*mut T> for Out<T> {
    fn from_c(raw: *mut T) -> Self {
        Out(raw)
    }
}
impl<T> FromC<*const T> for In<T> {
    fn from_c(raw: *const T) -> Self {
        In(raw)
    }
}
impl FromC<*mut c_void> for Host {
    fn from_c(raw: *mut c_void) -> Self {
        Host(raw as u64)
    }
}
impl FromC<*const CUdevResource> for Host {
    fn from_c(raw: *const CUdevResource) -> Self {
        Host(raw as u64)
    }
}
impl FromC<*const c_void> for Host {
    fn from_c(raw: *const c_void) -> Self {
        Host(raw as u64)
    }
}
macro_rules! as_it_is {
    ($($kind:ty)*) => { $( impl FromC<$kind> for $kind { fn from_c(raw: $kind) -> $kind { raw } } )* };
}
as_it_is! { u8 u16 i32 u32 u64 usize CUresult CUcontext CUstream CUevent CUmemoryPool CUarray CUfunction CUmodule CUlibrary CUkernel CUlinkState CUtexref CUoccupancyB2DSize f32 CUgraph CUgraphNode CUgraphExec CUuserObject CUgreenCtx CUhostFn CUstreamCallback CUipcEventHandle
CUdevResourceDesc CUmipmappedArray CUsurfref CUexternalMemory CUexternalSemaphore CUmemLocation CUipcMemHandle }

/// What a handler gives back.
pub type Answer = Result<(), CUresult>;

/// Dies as the real driver does where the oracle recorded SIGSEGV.
pub fn crash() -> ! {
    // SAFETY: raise has no preconditions. Twice, because a handler such as Rust's own takes itself out and expects the
    // fault to come again; abort never returns, should a handler have swallowed both.
    unsafe {
        libc::raise(libc::SIGSEGV);
        libc::raise(libc::SIGSEGV);
        libc::abort()
    }
}

/// The caller's errno, put back when this is dropped. A driver may leave it as it likes; this one has a thread of its own, and who meets it at a lock would
/// find EAGAIN there now and then: then nobody could tell what an enforcer does to it.
struct KeptErrno(libc::c_int);

impl KeptErrno {
    fn keep() -> KeptErrno {
        // SAFETY: the thread's own errno.
        KeptErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Runs one call of one entry point: fault plan, initialisation, the handler, trace.
#[inline(never)]
pub fn enter(
    entry: Entry,
    act: impl FnOnce() -> Answer,
    parameters: impl Fn() -> Parameters,
    arguments: impl Fn(&mut Arguments),
) -> CUresult {
    let _errno = KeptErrno::keep();
    let Some(world) = driver::world() else {
        return CUresult::ERROR_UNKNOWN;
    };
    let consultation = world.consult(Api::Cuda, entry.name(), || parameters().asked());
    let carried_out = || {
        if world.any_lost()
            && let Some(code) = lost::answer(world, entry, &parameters())
        {
            return code;
        }
        if entry.refuses_before_init() && driver::get().is_err() {
            return CUresult::ERROR_NOT_INITIALIZED;
        }
        if crate::narrow::refuses(entry) {
            // Numbers that it would have answered become 0, as with every failure of theirs.
            for out in parameters().0.iter().filter(|one| one.is_number_out()) {
                out.write(0, out.size, 0);
            }
            return CUresult::ERROR_INVALID_CONTEXT;
        }
        crate::movement::before(entry);
        let answer = crate::admission::check(entry).and_then(|()| act());
        crate::movement::after(entry);
        let answer = crate::admission::afterwards(entry, answer);
        answer.err().unwrap_or(CUresult::SUCCESS)
    };
    let carried_out = || match consultation.kernel_fault() {
        Some(code) => crate::admission::with_fault(CUresult(code as u32), carried_out),
        None => carried_out(),
    };
    let answer = consultation.carry_out(
        |code| Some(crate::admission::injected(CUresult(code as u32))),
        &parameters,
        fields,
        carried_out,
    );
    if world.tracing() {
        self::trace::write(world, entry, answer, arguments);
    }
    consultation.afterwards();
    answer
}

/// The fields of a structure, for faults that set one.
fn fields(structure: &str) -> &'static [(&'static str, usize)] {
    abi::cuda::LAYOUTS
        .iter()
        .find(|layout| layout.rust == structure)
        .map_or(&[], |layout| layout.fields)
}

/// An entry point that is not simulated: what the oracle recorded of it where the call resembles the recorded one, else
/// NOT_SUPPORTED. Never success.
fn unsimulated(entry: Entry, words: &[Word]) -> Answer {
    let recorded = if driver::get().is_ok() {
        entry.initialised()
    } else {
        entry.before_init()
    };
    let alike = resembles(words);
    match recorded {
        Recorded::Crash if alike => crash(),
        // What refuses every context but its own generation's looks at nothing else.
        Recorded::Code(code) if code == CUresult::ERROR_INVALID_CONTEXT.0 => Err(CUresult(code)),
        Recorded::Code(code) if code != 0 && (alike || driver::get().is_err()) => {
            Err(CUresult(code))
        }
        _ if driver::get().is_err() => Err(CUresult::ERROR_NOT_INITIALIZED),
        _ => Err(CUresult::ERROR_NOT_SUPPORTED),
    }
}

/// An argument of a call: what C calls its type, and what it says, where it is as wide as a pointer.
struct Word {
    kind: &'static str,
    wide: Option<u64>,
}

impl Word {
    fn of<T: Copy>(kind: &'static str, argument: &T) -> Word {
        let is_wide = size_of::<T>() == size_of::<u64>();
        let wide = is_wide.then(|| mock_device::boundary::bits(argument));
        Word { kind, wide }
    }

    /// What a pointer or a handle says; `None` for a number: device 0 is a device, not NULL.
    fn pointer(&self) -> Option<u64> {
        let number = matches!(self.kind, "usize" | "u64" | "cuuint64_t" | "c_ulonglong");
        self.wide.filter(|_| !number)
    }
}

/// Whether a call is as the recorded one, whose arguments were all zero: its first pointer is NULL.
fn resembles(words: &[Word]) -> bool {
    words.iter().find_map(Word::pointer).unwrap_or(0) == 0
}

/// Expands a row of the table into an export.
macro_rules! export {
    (($handler:path) $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
        /// # Safety
        /// As the public `cuda.h` demands of this entry point.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> $answer {
            $crate::boundary::enter(
                $crate::entry::Entry::$name,
                || $crate::stream::as_called(stringify!($name), || {
                    $handler($($crate::boundary::FromC::from_c($arg)),*)
                }),
                || ::mock_device::parameters!($($arg: $kind),*),
                |_arguments| { $( ::trace::shape!(_arguments, $arg); )* },
            )
        }
    };
}
pub(crate) use export;

mod stubs {
    #![allow(non_snake_case, reason = "C names stay exact")]

    use abi::cuda::enumerations::*;

    use super::*;

    macro_rules! entries {
        ($($name:ident $row:tt)*) => {};
    }
    macro_rules! stub {
        (() $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
            /// # Safety
            /// As the public `cuda.h` demands of this entry point: a fault may write what its arguments point to.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($arg: $kind),*) -> $answer {
                let words = [$(Word::of(stringify!($kind), &$arg)),*];
                enter(
                    Entry::$name,
                    || unsimulated(Entry::$name, &words),
                    || ::mock_device::parameters!($($arg: $kind),*),
                    |_| {},
                )
            }
        };
    }
    macro_rules! stubs {
        ($($name:ident)*) => { $( abi::cuda_signature!($name => stub!()); )* };
    }
    macro_rules! undeclared {
        ($($name:ident)*) => { $(
            /// # Safety
            /// None: it reads nothing through its arguments.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(first: *const c_void) -> CUresult {
                let words = [Word::of("*const c_void", &first)];
                enter(Entry::$name, || unsimulated(Entry::$name, &words), Parameters::default, |_| {})
            }
        )* };
    }
    macro_rules! data {
        ($($name:ident)*) => { $(
            // The debugger's interface: variables that it would read and write. Nobody debugs a mock with cuda-gdb.
            #[allow(non_upper_case_globals, reason = "C names stay exact")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub static $name: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        )* };
    }
    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}

/// The address of an export, as cuGetProcAddress answers it.
#[derive(Clone, Copy)]
pub struct Address(*const c_void);

// SAFETY: the address of a function is the same for every thread and is never read through.
unsafe impl Sync for Address {}

impl Address {
    pub fn pointer(self) -> *mut c_void {
        self.0.cast_mut()
    }
}

mod addresses {
    use super::stubs::*;
    use super::*;
    use crate::exports::*;

    macro_rules! entries {
        ($($name:ident $row:tt)*) => {
            pub static ALL: &[Address] = &[$(Address($name as *const c_void),)*];
        };
    }
    macro_rules! stubs {
        ($($name:ident)*) => {};
    }
    macro_rules! undeclared {
        ($($name:ident)*) => {};
    }
    macro_rules! data {
        ($($name:ident)*) => {};
    }
    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}

pub fn address(entry: Entry) -> Address {
    addresses::ALL[entry as usize]
}
