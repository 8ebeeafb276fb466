//! Arguments as the trace shows them: devices by number, no addresses.

use abi::nvml::*;
use mock_device::{Api, TraceRecord, Value, World};

use crate::entry::Entry;
use crate::library;

enum Shown {
    Null,
    Signed(i64),
    Unsigned(u64),
    Text(String),
}

/// The arguments of the call that is being traced.
pub struct Arguments {
    shown: Vec<(&'static str, Shown)>,
    ok: bool,
}

/// Writes the line of one finished call.
pub fn write(
    world: &World,
    entry: Entry,
    answer: nvmlReturn_t,
    arguments: impl Fn(&mut Arguments),
) {
    let mut list = Arguments {
        shown: Vec::new(),
        ok: answer == nvmlReturn_t::SUCCESS,
    };
    arguments(&mut list);
    let args: Vec<(&str, Value<'_>)> = list
        .shown
        .iter()
        .map(|(name, shown)| (*name, shown.value()))
        .collect();
    world.trace(&TraceRecord {
        api: Api::Nvml,
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

    fn device(device: nvmlDevice_t) -> Shown {
        match library::device(device) {
            _ if device.0.is_null() => Shown::Null,
            Ok(index) => Shown::Text(index.to_string()),
            Err(_) => Shown::Text("unknown".into()),
        }
    }
}

/// How an argument of a C type is shown.
pub trait Traced: Copy {
    fn trace(self, name: &'static str, list: &mut Arguments);
}

impl Traced for u32 {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.shown.push((name, Shown::Unsigned(self.into())));
    }
}

impl Traced for nvmlReturn_t {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.shown.push((name, Shown::Unsigned(self.0.into())));
    }
}

impl Traced for nvmlDevice_t {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        list.shown.push((name, Shown::device(self)));
    }
}

impl Traced for *const c_char {
    fn trace(self, name: &'static str, list: &mut Arguments) {
        let shown = super::In(self).text().map_or(Shown::Null, |text| {
            Shown::Text(text.to_string_lossy().into())
        });
        list.shown.push((name, shown));
    }
}

/// An out-parameter: its value after a success where it is a number or a device.
macro_rules! outs {
    ($($kind:ty => $show:expr),* $(,)?) => { $(
        impl Traced for *mut $kind {
            fn trace(self, name: &'static str, list: &mut Arguments) {
                let show: fn($kind) -> Shown = $show;
                list.shown.push((name, out(self, list.ok, show)));
            }
        }
    )* };
}
outs! {
    c_uint => |value| Shown::Unsigned(value.into()),
    c_int => |value| Shown::Signed(value.into()),
    nvmlDevice_t => Shown::device,
    c_char => opaque,
    nvmlMemory_t => opaque,
    nvmlMemory_v2_t => opaque,
    nvmlUtilization_t => opaque,
    nvmlPciInfo_t => opaque,
    nvmlPciInfo_v2_t => opaque,
    nvmlProcessInfo_v1_t => opaque,
    nvmlProcessInfo_t => opaque,
}

fn opaque<T>(_value: T) -> Shown {
    Shown::Text("out".into())
}

fn out<T: Copy>(at: *mut T, ok: bool, show: fn(T) -> Shown) -> Shown {
    if at.is_null() {
        return Shown::Null;
    }
    if !ok {
        return Shown::Text("out".into());
    }
    // SAFETY: not NULL, and the call that just succeeded was allowed to write it.
    show(unsafe { at.read_unaligned() })
}
