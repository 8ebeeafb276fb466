//! Arguments as the trace shows them: canonical names, no addresses, no times.

use std::sync::{Mutex, PoisonError};

use abi::cuda::*;
use mock_device::trace::Names;
use mock_device::{Api, TraceRecord, Value, World};

use crate::entry::Entry;

enum Shown {
    Null,
    Signed(i64),
    Unsigned(u64),
    Text(String),
}

/// The arguments of the call that is being traced.
pub struct Arguments<'n> {
    shown: Vec<(&'static str, Shown)>,
    names: &'n mut Names,
    ok: bool,
    /// Whether the call, if it succeeded, ended the life of the handle that it was given.
    ends: bool,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Writes the line of one finished call.
pub fn write(world: &World, entry: Entry, answer: CUresult, arguments: impl Fn(&mut Arguments)) {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let ok = answer == CUresult::SUCCESS;
    let ends = ["Free", "Destroy", "cuMemRelease"]
        .iter()
        .any(|word| entry.name().contains(word));
    let names = names.get_or_insert_with(Names::default);
    let mut list = Arguments {
        shown: Vec::new(),
        names,
        ok,
        ends,
    };
    arguments(&mut list);
    let args: Vec<(&str, Value<'_>)> = list
        .shown
        .iter()
        .map(|(name, shown)| (*name, shown.value()))
        .collect();
    world.trace(&TraceRecord {
        api: Api::Cuda,
        entry: entry.name(),
        args: &args,
        answer: Value::Unsigned(answer.0.into()),
    });
}

impl Shown {
    fn value(&self) -> Value<'_> {
        match self {
            Shown::Null => Value::Null,
            Shown::Signed(value) => Value::Signed(*value),
            Shown::Unsigned(value) => Value::Unsigned(*value),
            Shown::Text(text) => Value::Name(text),
        }
    }
}

impl Arguments<'_> {
    fn text(&mut self, name: &'static str, text: &str) {
        self.shown.push((name, Shown::Text(text.to_owned())));
    }

    fn null_or(&mut self, name: &'static str, null: bool, text: &str) {
        if null {
            self.shown.push((name, Shown::Null))
        } else {
            self.text(name, text)
        }
    }

    /// A handle that the caller gave.
    fn handle(&mut self, name: &'static str, kind: &'static str, value: u64) {
        if value == 0 {
            return self.shown.push((name, Shown::Null));
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

    /// A handle that the caller got.
    fn got(&mut self, name: &'static str, kind: &'static str, value: u64) {
        if value == 0 {
            return self.shown.push((name, Shown::Null));
        }
        let text = self.names.of(kind, value).to_owned();
        self.text(name, &text);
    }
}

/// What a 64-bit number is, by the name that the signature gives it.
fn number_kind(name: &str) -> Option<&'static str> {
    match name {
        "dptr" | "dst" | "src" | "ptr" | "pbase" => Some("mem"),
        "handle" => Some("vmm"),
        _ => None,
    }
}

/// How an argument of a C type is shown.
pub trait Traced: Copy {
    fn trace(self, name: &'static str, list: &mut Arguments);
}

macro_rules! numbers {
    ($($kind:ty => $shown:ident),*) => { $(
        impl Traced for $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.shown.push((name, Shown::$shown(self.into())));
            }
        }
        impl Traced for *mut $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                match read(self, list.ok) {
                    Some(value) => list.shown.push((name, Shown::$shown(value.into()))),
                    None => list.null_or(name, self.is_null(), "out"),
                }
            }
        }
    )* };
}
numbers! { u8 => Unsigned, u16 => Unsigned, i32 => Signed, u32 => Unsigned }

impl Traced for usize {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.shown.push((name, Shown::Unsigned(self as u64)));
    }
}

impl Traced for *mut usize {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match read(self, list.ok) {
            Some(value) => list.shown.push((name, Shown::Unsigned(value as u64))),
            None => list.null_or(name, self.is_null(), "out"),
        }
    }
}

impl Traced for u64 {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match number_kind(name) {
            Some(kind) => list.handle(name, kind, self),
            None => list.shown.push((name, Shown::Unsigned(self))),
        }
    }
}

impl Traced for *mut u64 {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match (read(self, list.ok), number_kind(name)) {
            (Some(value), Some(kind)) => list.got(name, kind, value),
            (Some(value), None) => list.shown.push((name, Shown::Unsigned(value))),
            (None, _) => list.null_or(name, self.is_null(), "out"),
        }
    }
}

impl Traced for CUresult {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.shown.push((name, Shown::Unsigned(self.0.into())));
    }
}

macro_rules! handles {
    ($($kind:ty => $text:literal),*) => { $(
        impl Traced for $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                match (self.0 as u64, $text) {
                    (1, "stream") => list.text(name, "stream-legacy"),
                    (2, "stream") => list.text(name, "stream-per-thread"),
                    (value, kind) => list.handle(name, kind, value),
                }
            }
        }
        impl Traced for *mut $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                match read(self, list.ok) {
                    Some(value) => list.got(name, $text, value.0 as u64),
                    None => list.null_or(name, self.is_null(), "out"),
                }
            }
        }
    )* };
}
handles! { CUcontext => "ctx", CUstream => "stream", CUevent => "event", CUmemoryPool => "pool", CUarray => "array" }

macro_rules! opaque {
    ($($kind:ty => $text:literal),*) => { $(
        impl Traced for $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                list.null_or(name, self.is_null(), $text);
            }
        }
    )* };
}
opaque! {
    *mut c_void => "host", *const c_void => "host", *mut *mut c_void => "out", *mut *const c_void => "out",
    *mut *const c_char => "out", *mut c_char => "out", *mut f32 => "out", *mut CUuuid => "out", *const CUuuid => "in",
    *mut CUdevprop => "out", *const CUmemPoolProps => "in", *const CUmemAllocationProp => "in",
    *const CUDA_ARRAY_DESCRIPTOR => "in"
}

impl Traced for *const c_char {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        match super::In(self).text() {
            None => list.shown.push((name, Shown::Null)),
            Some(text) => list.text(name, &text.to_string_lossy()),
        }
    }
}

/// What a successful call left in an out-parameter.
fn read<T: Copy>(at: *mut T, ok: bool) -> Option<T> {
    if at.is_null() || !ok {
        return None;
    }
    // SAFETY: not NULL, and the call that just succeeded was allowed to write it.
    Some(unsafe { at.read_unaligned() })
}
