//! All the unsafe of this library: C arguments become [`Out`] and [`In`]; exports pass through [`enter`].
//!
//! `enter` is the one place where the fault plan is consulted and the trace written. It is never inlined and takes the
//! entry's own id, so that no two exports can be merged into one address.

mod trace;

pub use self::trace::Arguments;

use std::ffi::CStr;

use abi::nvml::*;
use mock_device::{Api, Consultation, fault};

use crate::entry::{Entry, Recorded};
use crate::library;

/// A pointer that the caller gave for an answer.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// INVALID_ARGUMENT where the caller gave NULL.
    pub fn required(self) -> Result<Slot<T>, nvmlReturn_t> {
        if self.0.is_null() {
            Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT)
        } else {
            Ok(Slot(self.0))
        }
    }
}

/// A non-NULL [`Out`].
pub struct Slot<T>(*mut T);

impl<T: Copy> Slot<T> {
    pub fn set(&self, value: T) {
        // SAFETY: the C contract of every entry point is that a non-NULL out-pointer may be written.
        unsafe { self.0.write_unaligned(value) }
    }

    pub fn get(&self) -> T {
        // SAFETY: as for `set`; in-out arguments are read before they are written.
        unsafe { self.0.read_unaligned() }
    }

    /// The `at`-th element of the array that begins here; the caller said that it is there.
    pub fn nth(&self, at: usize) -> Slot<T> {
        // SAFETY: handlers stay below the length that the client gave.
        Slot(unsafe { self.0.add(at) })
    }
}

impl Slot<c_char> {
    /// Text with its NUL; INSUFFICIENT_SIZE where `len` bytes do not hold it.
    pub fn set_text(&self, text: &str, len: c_uint) -> Answer {
        if (len as usize) <= text.len() {
            return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
        }
        for (at, byte) in text.bytes().chain([0]).enumerate() {
            self.nth(at).set(byte as c_char);
        }
        Ok(())
    }
}

/// A pointer to something the caller lets us read.
pub struct In<T>(*const T);

impl In<c_char> {
    pub fn text(&self) -> Option<&CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL; the C contract is a NUL-terminated string that lives as long as the call.
        Some(unsafe { CStr::from_ptr(self.0) })
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
macro_rules! as_it_is {
    ($($kind:ty)*) => { $( impl FromC<$kind> for $kind { fn from_c(raw: $kind) -> $kind { raw } } )* };
}
as_it_is! { u32 nvmlReturn_t nvmlDevice_t }

/// What a handler gives back.
pub type Answer = Result<(), nvmlReturn_t>;

/// What an entry point returns in C.
pub trait Returned: Copy {
    fn of_code(code: nvmlReturn_t) -> Self;
    /// As the trace shows it.
    fn code(self) -> nvmlReturn_t;
}

impl Returned for nvmlReturn_t {
    fn of_code(code: nvmlReturn_t) -> Self {
        code
    }
    fn code(self) -> nvmlReturn_t {
        self
    }
}

/// nvmlErrorString: a text whatever is asked; no fault can make it fail.
impl Returned for *const c_char {
    fn of_code(code: nvmlReturn_t) -> Self {
        crate::error::text(code).as_ptr()
    }
    fn code(self) -> nvmlReturn_t {
        nvmlReturn_t::SUCCESS
    }
}

/// What a handler gives back becomes what C gets.
pub trait IntoReturned<R> {
    fn returned(self) -> R;
}

impl IntoReturned<nvmlReturn_t> for Answer {
    fn returned(self) -> nvmlReturn_t {
        self.err().unwrap_or(nvmlReturn_t::SUCCESS)
    }
}

impl IntoReturned<*const c_char> for &'static CStr {
    fn returned(self) -> *const c_char {
        self.as_ptr()
    }
}

/// Dies as the real library does where the oracle recorded SIGSEGV.
pub fn crash() -> ! {
    // SAFETY: raise has no preconditions. Twice, because a handler such as Rust's own takes itself out and expects the
    // fault to come again; abort never returns, should a handler have swallowed both.
    unsafe {
        libc::raise(libc::SIGSEGV);
        libc::raise(libc::SIGSEGV);
        libc::abort()
    }
}

/// Runs one call of one entry point: fault plan, the handler, trace.
#[inline(never)]
pub fn enter<R: Returned>(
    entry: Entry,
    act: impl FnOnce() -> R,
    arguments: impl Fn(&mut Arguments),
) -> R {
    let Some(world) = library::world() else {
        return R::of_code(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let answer = match world.consult(Api::Nvml, entry.name()) {
        Consultation::Proceed => act(),
        Consultation::KillAfter => {
            act();
            fault::kill_self()
        }
        Consultation::KillBefore => fault::kill_self(),
        Consultation::Result(code) => R::of_code(nvmlReturn_t(code as u32)),
    };
    if world.tracing() {
        self::trace::write(world, entry, answer.code(), arguments);
    }
    answer
}

/// An entry point that is not simulated: what the oracle recorded of it where the call resembles the recorded one (NULL
/// for the device or for what follows it), else NOT_SUPPORTED. Never success.
fn unsimulated(entry: Entry, first: usize, second: usize) -> Answer {
    let answers = entry.recorded();
    let recorded = match (library::initialised(), first, second) {
        (false, ..) => answers.before_init,
        (true, 0, _) => answers.all_null,
        (true, _, 0) => answers.with_device,
        _ => Recorded::NotCalled,
    };
    match recorded {
        Recorded::Crash => crash(),
        Recorded::Code(code) if code != 0 => Err(nvmlReturn_t(code)),
        _ if !library::initialised() => Err(nvmlReturn_t::ERROR_UNINITIALIZED),
        _ => Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
    }
}

/// Expands a row of the table into an export.
macro_rules! export {
    (($handler:path) $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
        /// # Safety
        /// As the public `nvml.h` demands of this entry point.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> $answer {
            $crate::boundary::enter(
                $crate::entry::Entry::$name,
                || $crate::boundary::IntoReturned::returned($handler($($crate::boundary::FromC::from_c($arg)),*)),
                |_arguments| { $( ::trace::shape!(_arguments, $arg); )* },
            )
        }
    };
}
pub(crate) use export;

mod stubs {
    use super::*;

    macro_rules! entries {
        ($($name:ident { $device:expr, $null:expr, $before:expr })*) => {};
    }
    macro_rules! stubs {
        ($($name:ident)*) => { $(
            /// # Safety
            /// None: it reads nothing through its arguments.
            #[allow(non_snake_case, reason = "C names stay exact")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(first: usize, second: usize) -> nvmlReturn_t {
                enter(Entry::$name, || unsimulated(Entry::$name, first, second).returned(), |_| {})
            }
        )* };
    }
    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}
