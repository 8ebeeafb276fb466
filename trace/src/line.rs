//! One JSON line per call, with canonical names instead of addresses, pids and times.

use std::fmt::Write as _;

/// One call. Fields come out in this order: role, thread, api, entry, args (as given), answer.
#[derive(Clone, Copy, Debug)]
pub struct TraceRecord<'a> {
    /// `cuda`, `nvml` or `vulkan`.
    pub api: &'a str,
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

/// The whole line, its newline included. The first thread of a process has no number.
#[must_use]
pub fn line(role: Option<&str>, thread: u32, record: &TraceRecord<'_>) -> String {
    let mut line = String::with_capacity(160);
    line.push('{');
    if let Some(role) = role {
        line.push_str("\"role\":");
        quote(&mut line, role);
        line.push(',');
    }
    if thread > 1 {
        let _ = write!(line, "\"thread\":{thread},");
    }
    line.push_str("\"api\":");
    quote(&mut line, record.api);
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
            api: "cuda",
            entry: "cuMemAlloc_v2",
            args: &args,
            answer: 2.into(),
        };
        let text = line(Some("tenant"), 1, &record);
        assert_eq!(
            text,
            "{\"role\":\"tenant\",\"api\":\"cuda\",\"entry\":\"cuMemAlloc_v2\",\"args\":{\"dptr\":\"mem#1\",\
             \"bytesize\":18446744073709551615,\"flags\":-1,\"null\":null,\"odd\\\"\\u000a\\\\name\":true},\"answer\":2}\n"
        );
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["args"]["odd\"\n\\name"], true);
        assert_eq!(line(None, 1, &record).find("role"), None);
        assert!(line(None, 2, &record).starts_with("{\"thread\":2,\"api\""));
    }
}
