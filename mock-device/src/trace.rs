//! The trace: one JSON line per call, written by one write(2), with canonical names instead of addresses, pids and times,
//! so that two runs (or the mock and a card) can be compared line by line.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// The file that lines are appended to.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    /// Never closed by us: a guest that closes every descriptor may have given the number to another file since.
    file: ManuallyDrop<File>,
    inode: (u64, u64),
}

impl TraceFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = append(path)?;
        let inode = inode(&file)?;
        Ok(Self {
            path: path.to_owned(),
            file: ManuallyDrop::new(file),
            inode,
        })
    }

    pub(crate) fn write(&self, role: Option<&str>, record: &TraceRecord<'_>) {
        let line = line(role, record);
        // One write(2) with O_APPEND: lines of several processes never mix.
        let _ = if inode(&self.file).is_ok_and(|inode| inode == self.inode) {
            (&*self.file).write(line.as_bytes())
        } else {
            append(&self.path).and_then(|mut file| file.write(line.as_bytes()))
        };
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_fields_in_a_fixed_order_and_is_json() {
        let args: [(&str, Value<'_>); 5] = [
            ("dptr", "mem#1".into()),
            ("bytesize", u64::MAX.into()),
            ("flags", (-1).into()),
            ("null", Value::Null),
            ("odd\"\n\\name", true.into()),
        ];
        let record = TraceRecord {
            api: Api::Cuda,
            entry: "cuMemAlloc_v2",
            args: &args,
            answer: 2.into(),
        };
        let text = line(Some("tenant"), &record);
        assert_eq!(
            text,
            "{\"role\":\"tenant\",\"api\":\"cuda\",\"entry\":\"cuMemAlloc_v2\",\"args\":{\"dptr\":\"mem#1\",\
             \"bytesize\":18446744073709551615,\"flags\":-1,\"null\":null,\"odd\\\"\\u000a\\\\name\":true},\"answer\":2}\n"
        );
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["args"]["odd\"\n\\name"], true);
        assert_eq!(line(None, &record).find("role"), None);
    }

    #[test]
    fn a_handle_keeps_its_name_until_it_is_forgotten() {
        let mut names = Names::default();
        assert_eq!(names.of("mem", 0x7000), "mem#1");
        assert_eq!(names.of("ctx", 0x7000), "ctx#1");
        assert_eq!(names.of("mem", 0x8000), "mem#2");
        assert_eq!(names.of("mem", 0x7000), "mem#1");
        names.forget("mem", 0x7000);
        assert_eq!(names.known("mem", 0x7000), None);
        assert_eq!(names.of("mem", 0x7000), "mem#3");
    }
}
