//! How an argument is shown: numbers as they are, handles by name, pointers as given or not, never an address.

use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::boundary;
use crate::line::{TraceRecord, Value};
use crate::names::Names;

/// An owned [`Value`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Null,
    Signed(i64),
    Unsigned(u64),
    Text(String),
}

impl Shown {
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Signed(value) => Value::Signed(*value),
            Self::Unsigned(value) => Value::Unsigned(*value),
            Self::Text(text) => Value::Name(text),
        }
    }
}

/// The arguments of the call that is being traced.
pub struct Arguments<'n> {
    shown: Vec<(&'static str, Shown)>,
    names: &'n mut Names,
    /// Whether the call succeeded, so that out-parameters mean something.
    ok: bool,
    /// Whether the call, if it succeeded, ended the life of the handle that it was given.
    ends: bool,
    /// The last handle that was named whether or not it was known.
    last: Option<(&'static str, u64)>,
    /// What [`forget`] was told during the call.
    #[cfg_attr(
        not(feature = "vulkan"),
        expect(dead_code, reason = "only `named` reads it")
    )]
    ended: Vec<((&'static str, u64), String)>,
}

/// The names of one process. A fork's child begins anew: another thread may have held its parent's lock, and no driver's
/// handle outlives a fork.
struct Store {
    process: u32,
    names: Mutex<Names>,
}

thread_local! {
    /// Handles that the call under way has ended, with the names that they had.
    static ENDED: RefCell<Vec<((&'static str, u64), String)>> = const { RefCell::new(Vec::new()) };
}

/// The handle is gone, says who knows it before the line of the call that ends it is written: that line alone still has
/// its name, and whatever recurs at its value, on any thread, is another thing.
pub fn forget(kind: &'static str, handle: u64) {
    // A process that traces nothing has no names.
    let Some(store) = boundary::leaked(STORE.load(Ordering::Acquire)) else {
        return;
    };
    if store.process != std::process::id() {
        return;
    }
    let mut names = store.names.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names.forget(kind, handle) {
        let _ = ENDED.try_with(|ended| ended.borrow_mut().push(((kind, handle), name)));
    }
}

static STORE: AtomicPtr<Store> = AtomicPtr::new(std::ptr::null_mut());

fn names() -> &'static Mutex<Names> {
    let process = std::process::id();
    let known = STORE.load(Ordering::Acquire);
    if let Some(store) = boundary::leaked(known)
        && store.process == process
    {
        return &store.names;
    }
    let fresh = Box::leak(Box::new(Store {
        process,
        names: Mutex::default(),
    }));
    match STORE.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => &fresh.names,
        // Another thread was first.
        Err(other) => boundary::leaked(other).map_or(&fresh.names, |store| &store.names),
    }
}

/// The record of one finished call, handed to `write`. `ends` says that a success ended the handle that was given.
pub fn finished(
    api: &str,
    entry: &str,
    answer: u64,
    ends: bool,
    arguments: impl FnOnce(&mut Arguments),
    write: impl FnOnce(&TraceRecord<'_>),
) {
    let shown = Shown::Unsigned(answer);
    answered(api, entry, (&shown, answer == 0), ends, arguments, write);
}

/// The same where an answer is not a code: how it is shown, and whether it was a success.
pub fn answered(
    api: &str,
    entry: &str,
    (answer, ok): (&Shown, bool),
    ends: bool,
    arguments: impl FnOnce(&mut Arguments),
    write: impl FnOnce(&TraceRecord<'_>),
) {
    let mut names = names().lock().unwrap_or_else(PoisonError::into_inner);
    let mut list = Arguments {
        shown: Vec::new(),
        names: &mut names,
        ok,
        ends,
        last: None,
        ended: ENDED.try_with(RefCell::take).unwrap_or_default(),
    };
    arguments(&mut list);
    if let (true, Some((kind, value))) = (ends, list.last) {
        list.names.forget(kind, value);
    }
    let args: Vec<(&str, Value<'_>)> = list
        .shown
        .iter()
        .map(|(name, shown)| (*name, shown.value()))
        .collect();
    write(&TraceRecord {
        api,
        entry,
        args: &args,
        answer: answer.value(),
    });
}

impl Arguments<'_> {
    pub(crate) fn push(&mut self, name: &'static str, shown: Shown) {
        self.shown.push((name, shown));
    }

    pub(crate) fn text(&mut self, name: &'static str, text: &str) {
        self.push(name, Shown::Text(text.to_owned()));
    }

    pub(crate) fn null_or(&mut self, name: &'static str, null: bool, text: &str) {
        if null {
            self.push(name, Shown::Null);
        } else {
            self.text(name, text);
        }
    }

    /// A handle that the caller gave.
    pub(crate) fn handle(&mut self, name: &'static str, kind: &'static str, value: u64) {
        if value == 0 {
            return self.push(name, Shown::Null);
        }
        let text = self
            .names
            .known(kind, value)
            .unwrap_or("unknown")
            .to_owned();
        if self.ok && self.ends {
            self.names.forget(kind, value);
        }
        self.text(name, &text);
    }

    /// A handle that the caller gave, where every handle is one that somebody made.
    #[cfg(feature = "vulkan")]
    pub(crate) fn named(&mut self, name: &'static str, kind: &'static str, value: u64) {
        if value != 0 {
            self.last = Some((kind, value));
        }
        let ended = self.ended.iter().find(|(it, _)| *it == (kind, value));
        match ended.map(|(_, text)| text.clone()) {
            Some(text) => self.text(name, &text),
            None => self.got(name, kind, value),
        }
    }

    /// What a success left in a place for one thing; nothing yet without one.
    #[cfg(feature = "vulkan")]
    pub(crate) fn made<T: Copy>(
        &mut self,
        name: &'static str,
        at: *const T,
        show: impl FnOnce(&mut Self, T),
    ) {
        match boundary::read(at, self.ok) {
            Some(value) => show(self, value),
            None => self.push(name, Shown::Null),
        }
    }

    /// A handle that the caller got.
    pub(crate) fn got(&mut self, name: &'static str, kind: &'static str, value: u64) {
        if value == 0 {
            return self.push(name, Shown::Null);
        }
        let text = self.names.of(kind, value).to_owned();
        self.text(name, &text);
    }

    /// An out-parameter: after a success what `show` makes of it.
    pub(crate) fn out<T: Copy>(
        &mut self,
        name: &'static str,
        at: *const T,
        show: impl FnOnce(&mut Self, T),
    ) {
        match boundary::read(at, self.ok) {
            Some(value) => show(self, value),
            None => self.null_or(name, at.is_null(), "out"),
        }
    }
}

/// An argument whose type has a way of its own to be shown.
pub trait Traced: Copy {
    fn trace(self, name: &'static str, list: &mut Arguments);
}

/// An argument on its way into the trace. The three traits below are one choice by type, the first that fits:
/// [`ByType`], [`ByPointer`], [`BySize`]. [`shape!`] makes it, so that a row of `abi` needs nothing here.
pub struct Given<T>(pub T);

pub trait ByType {
    fn show(&self, name: &'static str, list: &mut Arguments);
}

impl<T: Traced> ByType for &&Given<T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        self.0.trace(name, list);
    }
}

/// A pointer to something that nobody named.
pub trait ByPointer {
    fn show(&self, name: &'static str, list: &mut Arguments);
}

impl<T> ByPointer for &Given<*mut T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.0.is_null(), "out");
    }
}

impl<T> ByPointer for &Given<*const T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.0.is_null(), "in");
    }
}

/// A value that nobody named: a number up to 8 bytes, beyond that only that it was given. Callbacks and handles that are
/// addresses are told from numbers by their size, and shown as given or not.
pub trait BySize {
    fn show(&self, name: &'static str, list: &mut Arguments);
}

impl<T: Copy> BySize for Given<T> {
    fn show(&self, name: &'static str, list: &mut Arguments) {
        match boundary::number(self.0) {
            Some(0) if size_of::<T>() == 8 => list.push(name, Shown::Null),
            Some(_) if size_of::<T>() == 8 => list.text(name, "given"),
            Some(number) => list.push(name, Shown::Unsigned(number)),
            None => list.text(name, "given"),
        }
    }
}

/// Shows one argument: `shape!(list, dptr)`.
#[macro_export]
macro_rules! shape {
    ($list:expr, $argument:ident) => {{
        #[allow(unused_imports, reason = "which of the three fits depends on the type")]
        use $crate::arguments::{ByPointer as _, BySize as _, ByType as _};
        (&&&$crate::arguments::Given($argument)).show(stringify!($argument), $list)
    }};
}

macro_rules! numbers {
    ($($kind:ty => $shown:ident),*) => { $(
        impl Traced for $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.push(name, Shown::$shown(self.into()));
            }
        }
        impl Traced for *mut $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.out(name, self, |list, value| list.push(name, Shown::$shown(value.into())));
            }
        }
    )* };
}
numbers! { u8 => Unsigned, u16 => Unsigned, i32 => Signed, u32 => Unsigned }

impl Traced for usize {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.push(name, Shown::Unsigned(self as u64));
    }
}

impl Traced for *mut usize {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.out(name, self, |list, value| {
            list.push(name, Shown::Unsigned(value as u64));
        });
    }
}

/// What a 64-bit number is, by the name that the signature gives it.
fn number_kind(name: &str) -> Option<&'static str> {
    match name {
        "dptr" | "dst" | "src" | "ptr" | "pbase" | "dst_device" | "src_device" | "dev_ptr"
        | "pdptr" | "p_dev_ptr" | "ptr_out" | "dptr_out" | "memptr" | "addr" | "dptrs" | "dsts"
        | "srcs" => Some("mem"),
        "handle" => Some("vmm"),
        "p_tex_object" | "tex_object" => Some("texture"),
        "p_surf_object" | "surf_object" => Some("surface"),
        _ => None,
    }
}

impl Traced for u64 {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match number_kind(name) {
            Some(kind) => list.handle(name, kind, self),
            None => list.push(name, Shown::Unsigned(self)),
        }
    }
}

impl Traced for *mut u64 {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.out(name, self, |list, value| match number_kind(name) {
            Some(kind) => list.got(name, kind, value),
            None => list.push(name, Shown::Unsigned(value)),
        });
    }
}

/// Text that the caller gave; what a call writes into a caller's text is only "out".
impl Traced for *const std::ffi::c_char {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match boundary::text(self) {
            None => list.push(name, Shown::Null),
            Some(text) => list.text(name, &text),
        }
    }
}

impl Traced for *mut std::ffi::c_char {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.null_or(name, self.is_null(), "out");
    }
}

macro_rules! host {
    ($($kind:ty => $text:literal),*) => { $(
        impl Traced for $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.null_or(name, self.is_null(), $text);
            }
        }
    )* };
}
host! { *mut std::ffi::c_void => "host", *const std::ffi::c_void => "host" }

/// Handle types of an API, with the word that names begin with.
macro_rules! handles {
    ($($kind:ty => $word:literal),* $(,)?) => { $(
        impl $crate::arguments::Traced for $kind {
            fn trace(self, name: &'static str, list: &mut $crate::Arguments) {
                list.handle(name, $word, self.0 as u64);
            }
        }
        impl $crate::arguments::Traced for *mut $kind {
            fn trace(self, name: &'static str, list: &mut $crate::Arguments) {
                list.out(name, self, |list, value| list.got(name, $word, value.0 as u64));
            }
        }
    )* };
}
pub(crate) use handles;
