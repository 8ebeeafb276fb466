//! All the unsafe of this library: C arguments become [`Out`] and [`In`]; exports pass through [`enter`].
//!
//! `enter` is the one place where the fault plan is consulted and the trace written. It is never inlined and takes the
//! entry's own id, so that no two exports can be merged into one address.

pub mod private;
mod trace;

floor::provide!();

pub use self::trace::Arguments;

use std::ffi::CStr;

use abi::nvml::*;
use mock_device::{Api, Parameters};

use crate::entry::Entry;
use crate::library;
use crate::lost;

/// A pointer that the caller gave for an answer.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A pointer that stood in a structure which the caller gave.
    pub fn at(pointer: *mut T) -> Out<T> {
        Out(pointer)
    }

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

    /// The same place for another handler.
    pub fn again(&self) -> Out<T> {
        Out(self.0)
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

impl In<nvmlUUID_v1_t> {
    pub fn get(&self) -> Option<nvmlUUID_v1_t> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL; the C contract of an in-pointer.
        Some(unsafe { self.0.read_unaligned() })
    }
}

/// The union of a UUID as bytes, whichever member was meant.
pub fn uuid_bytes(uuid: &nvmlUUID_v1_t) -> [u8; 41] {
    // SAFETY: both members are plain bytes, the text the longer one; it was read as a whole.
    unsafe { uuid.value.str }.map(|byte| byte as u8)
}

/// All bytes of a value, whichever member was meant.
pub fn value_bits(value: nvmlValue_t) -> u64 {
    // SAFETY: the largest member, and every bit pattern of it is a number.
    unsafe { value.ullVal }
}

impl In<c_void> {
    /// The 16 bytes of an identifier.
    pub fn sixteen(&self) -> Option<[u8; 16]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL; the entry points that take one read 16 bytes.
        Some(unsafe { self.0.cast::<[u8; 16]>().read_unaligned() })
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
as_it_is! { u32 i32 u64 nvmlReturn_t nvmlDevice_t nvmlEventSet_t nvmlGpuInstance_t nvmlComputeInstance_t nvmlGpmSample_t }

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
    parameters: impl Fn() -> Parameters,
    arguments: impl Fn(&mut Arguments),
) -> R {
    let Some(world) = library::world() else {
        return R::of_code(nvmlReturn_t::ERROR_UNKNOWN);
    };
    let consultation = world.consult(Api::Nvml, entry.name(), || parameters().asked());
    let lost = |after| {
        let found = || lost::answer(world, entry.name(), &parameters(), after);
        world.any_lost().then(found).flatten().map(R::of_code)
    };
    let carried_out = || {
        lost(false).unwrap_or_else(|| {
            let answer = act();
            lost(true).unwrap_or(answer)
        })
    };
    let answer = consultation.carry_out(
        |code| Some(R::of_code(nvmlReturn_t(code as u32))),
        &parameters,
        fields,
        carried_out,
    );
    if world.tracing() {
        self::trace::write(world, entry, answer.code(), arguments);
    }
    consultation.afterwards();
    answer
}

/// The fields of a structure, for faults that set one.
fn fields(structure: &str) -> &'static [(&'static str, usize)] {
    macro_rules! own {
        ($($name:ident { $($field:ident)* })*) => {
            match structure {
                $(stringify!($name) => {
                    return &[$((stringify!($field), std::mem::offset_of!($name, $field))),*];
                })*
                _ => {}
            }
        };
    }
    // Those that `abi` declares by hand.
    own! {
        nvmlMemory_t { total free used }
        nvmlMemory_v2_t { version total reserved free used }
        nvmlUtilization_t { gpu memory }
    }
    abi::nvml::LAYOUTS
        .iter()
        .find(|layout| layout.rust == structure)
        .map_or(&[], |layout| layout.fields)
}

/// Memory that the caller gave, with the size of what its C type points to.
pub struct Memory {
    at: *mut u8,
    size: usize,
}

impl Memory {
    pub fn is_null(&self) -> bool {
        self.at.is_null()
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes `bytes` at `offset`. The caller of the library said how much room there is: the size of the C type, or a
    /// length or count among the arguments.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        debug_assert!(!self.is_null());
        // SAFETY: the C contract of every entry point is that a non-NULL out-pointer may be written as far as its type, or
        // the length that goes with it, says; callers of `put` stay within that.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) }
    }

    /// The 32-bit number that it begins with: a count, or a structure's version.
    pub fn number(&self) -> u32 {
        // SAFETY: as for `put`; in-out arguments are read before they are written.
        unsafe { self.at.cast::<u32>().read_unaligned() }
    }

    /// The `at`-th element of the array that begins here.
    pub fn nth(&self, at: usize) -> Memory {
        Memory {
            // SAFETY: handlers stay below the length that the client gave.
            at: unsafe { self.at.add(at * self.size) },
            size: self.size,
        }
    }
}

/// One argument as C passed it, for entry points that are answered by data.
pub struct Word {
    pub name: &'static str,
    /// The C type, as `abi` spells it (macros put blanks between its tokens).
    pub kind: &'static str,
    pub value: WordValue,
}

impl Word {
    /// What a pointer points to.
    pub fn pointee(&self) -> &'static str {
        self.kind.rsplit(' ').next().unwrap_or(self.kind)
    }

    /// Whether it is an out-pointer to that.
    pub fn is_out(&self, pointee: &str) -> bool {
        matches!(self.value, WordValue::Out(_)) && self.pointee() == pointee
    }
}

pub enum WordValue {
    Number(i64),
    /// A device, an instance, an event set: an opaque number that is not NULL unless 0.
    Handle(u64),
    Out(Memory),
    In {
        null: bool,
    },
}

/// How an argument becomes a [`WordValue`].
pub trait AsWord {
    fn word(self) -> WordValue;
}

impl<T> AsWord for *mut T {
    fn word(self) -> WordValue {
        WordValue::Out(Memory {
            at: self.cast(),
            size: size_of::<T>(),
        })
    }
}
impl<T> AsWord for *const T {
    fn word(self) -> WordValue {
        WordValue::In {
            null: self.is_null(),
        }
    }
}
macro_rules! words {
    (numbers: $($number:ty)*; handles: $($handle:ty)*) => {
        $( impl AsWord for $number {
            fn word(self) -> WordValue {
                WordValue::Number(self as i64)
            }
        } )*
        $( impl AsWord for $handle {
            fn word(self) -> WordValue {
                WordValue::Handle(self.0 as u64)
            }
        } )*
    };
}
impl AsWord for nvmlReturn_t {
    fn word(self) -> WordValue {
        WordValue::Number(self.0.into())
    }
}
words! {
    numbers: u32 i32 u64;
    handles: nvmlDevice_t nvmlUnit_t nvmlGpuInstance_t nvmlComputeInstance_t nvmlEventSet_t nvmlGpmSample_t
}

/// Expands a row of the table into an export. `recorded::…` handlers take the entry and its arguments as [`Word`]s.
macro_rules! export {
    ((recorded::$how:ident) $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
        $crate::boundary::export!{@ $name ($($arg: $kind),*) -> $answer;
            $crate::recorded::$how($crate::entry::Entry::$name, &[$( $crate::boundary::Word {
                name: stringify!($arg),
                kind: stringify!($kind),
                value: $crate::boundary::AsWord::word($arg),
            } ),*])
        }
    };
    (($($handler:ident)::+) $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
        $crate::boundary::export!{@ $name ($($arg: $kind),*) -> $answer; {
            $crate::recorded::survive(
                $crate::entry::Entry::$name,
                [$( $crate::boundary::AsWord::word($arg) ),*].first(),
            );
            $($handler)::+($($crate::boundary::FromC::from_c($arg)),*)
        } }
    };
    (@ $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty; $act:expr) => {
        /// # Safety
        /// As the public `nvml.h` demands of this entry point.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> $answer {
            $crate::boundary::enter(
                $crate::entry::Entry::$name,
                || $crate::boundary::IntoReturned::returned($act),
                || ::mock_device::parameters!($($arg: $kind),*),
                |_arguments| { $( ::trace::shape!(_arguments, $arg); )* },
            )
        }
    };
}
pub(crate) use export;

/// What is not simulated: the card's own answers, from the profile's NVML table.
mod stubs {
    #![allow(non_snake_case, reason = "C names stay exact")]

    use abi::nvml::enumerations::*;
    use abi::nvml::*;

    macro_rules! entries {
        ($($name:ident $row:tt)*) => {};
    }
    macro_rules! stubs {
        ($($name:ident)*) => { $( abi::nvml_signature!($name => export!(recorded::answer)); )* };
    }
    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}
