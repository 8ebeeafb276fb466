//! The trace: one JSON line per call, written by one write(2), with canonical names instead of addresses, pids and times,
//! so that two runs (or the mock and a card) can be compared line by line.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::units::Api;

/// One call. Fields come out in this order: role, api, entry, args (as given), answer.
#[derive(Clone, Copy, Debug)]
pub struct TraceRecord<'a> {
    pub api: Api,
    pub entry: &'a str,
    pub args: &'a [(&'a str, Value<'a>)],
    pub answer: Value<'a>,
}

/// A traced value. Handles and pointers come as [`Value::Name`] from [`Names`], never as numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Name(&'a str),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),+) => {$(
        impl From<$from> for Value<'_> {
            fn from(value: $from) -> Self {
                Value::$variant(value.into())
            }
        }
    )+};
}
value_from!(bool => Bool, i32 => Signed, i64 => Signed, u32 => Unsigned, u64 => Unsigned);

impl<'a> From<&'a str> for Value<'a> {
    fn from(name: &'a str) -> Self {
        Value::Name(name)
    }
}

/// Canonical names of one process's handles: `ctx#1`, `mem#3`. A handle keeps its name until it is forgotten; numbers are
/// never used twice, whatever addresses recur.
#[derive(Debug, Default)]
pub struct Names {
    names: HashMap<(&'static str, u64), String>,
    next: HashMap<&'static str, u64>,
}

impl Names {
    /// The name of `handle` among things of this `kind`; given now if it has none.
    pub fn of(&mut self, kind: &'static str, handle: u64) -> &str {
        let next = &mut self.next;
        self.names.entry((kind, handle)).or_insert_with(|| {
            let number = next.entry(kind).or_insert(0);
            *number += 1;
            format!("{kind}#{number}")
        })
    }

    /// The name that `handle` already has.
    #[must_use]
    pub fn known(&self, kind: &'static str, handle: u64) -> Option<&str> {
        self.names.get(&(kind, handle)).map(String::as_str)
    }

    /// The handle is gone; whatever recurs at its address is another thing.
    pub fn forget(&mut self, kind: &'static str, handle: u64) {
        self.names.remove(&(kind, handle));
    }
}

/// The whole line, its newline included.
pub(crate) fn line(role: Option<&str>, record: &TraceRecord<'_>) -> String {
    let mut line = String::with_capacity(160);
    line.push('{');
    if let Some(role) = role {
        line.push_str("\"role\":");
        quote(&mut line, role);
        line.push(',');
    }
    line.push_str("\"api\":");
    quote(&mut line, record.api.name());
    line.push_str(",\"entry\":");
    quote(&mut line, record.entry);
    line.push_str(",\"args\":{");
    for (index, (name, value)) in record.args.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        quote(&mut line, name);
        line.push(':');
        put(&mut line, *value);
    }
    line.push_str("},\"answer\":");
    put(&mut line, record.answer);
    line.push_str("}\n");
    line
}

fn put(line: &mut String, value: Value<'_>) {
    // Writing into a String cannot fail.
    let _ = match value {
        Value::Null => line.write_str("null"),
        Value::Bool(value) => write!(line, "{value}"),
        Value::Signed(value) => write!(line, "{value}"),
        Value::Unsigned(value) => write!(line, "{value}"),
        Value::Name(name) => {
            quote(line, name);
            Ok(())
        }
    };
}

fn quote(line: &mut String, text: &str) {
    line.push('"');
    for symbol in text.chars() {
        match symbol {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}
