//! The tenant file: settings under the names that they have in the environment, one on a line, in the part of TOML that needs no library.
//!
//! ```toml
//! # what the tenant was promised
//! CUDA_DEVICE_MEMORY_LIMIT_0 = "4GiB"
//! RINGFENCE_COMPUTE = 50
//! ```

use std::fmt;

use crate::settings::is_setting;

/// A tenant file's settings. A name that stands there twice has its last value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantFile {
    settings: Vec<(String, Vec<u8>)>,
}

/// A line that is no setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongLine {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
}

impl fmt::Display for WrongLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} is no setting of NAME = \"value\"", self.text)
    }
}

impl TenantFile {
    /// # Errors
    /// The first line that is neither empty, a comment nor a setting that we know, with a string or a number.
    pub fn parse(text: &[u8]) -> Result<TenantFile, WrongLine> {
        let mut file = TenantFile::default();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = || WrongLine {
                line: number + 1,
                text: String::from_utf8_lossy(line.trim_ascii()).into_owned(),
            };
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            file.settings.push(setting(line).ok_or_else(wrong)?);
        }
        Ok(file)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.settings.iter().rfind(|(of, _)| of == name);
        found.map(|(_, value)| value.as_slice())
    }
}

fn setting(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    let name = std::str::from_utf8(line[..at].trim_ascii()).ok()?;
    let (value, rest) = value(line[at + 1..].trim_ascii())?;
    let rest = rest.trim_ascii();
    let ends = rest.is_empty() || rest[0] == b'#';
    (is_setting(name) && ends).then(|| (name.to_owned(), value.to_vec()))
}

/// A quoted string without escapes, or a bare number; and what follows it.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match *text.first()? {
        quote @ (b'"' | b'\'') => {
            let end = text[1..].iter().position(|byte| *byte == quote)? + 1;
            let value = &text[1..end];
            (!value.contains(&b'\\')).then_some((value, &text[end + 1..]))
        }
        _ => {
            let end = text
                .iter()
                .position(|byte| !byte.is_ascii_digit() && *byte != b'.')
                .unwrap_or(text.len());
            (end > 0).then(|| text.split_at(end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_stand_in_the_environment() {
        let text = b"# a comment\n\n  RINGFENCE_MEMORY_1=\"4 GiB\"  # and why\nRINGFENCE_LEDGER = '/run/led\xffger'\nRINGFENCE_COMPUTE = 12.5\r\nRINGFENCE_COMPUTE = 13";
        let file = TenantFile::parse(text).expect("a tenant file");
        assert_eq!(file.get("RINGFENCE_MEMORY_1"), Some(&b"4 GiB"[..]));
        assert_eq!(file.get("RINGFENCE_LEDGER"), Some(&b"/run/led\xffger"[..]));
        assert_eq!(file.get("RINGFENCE_COMPUTE"), Some(&b"13"[..]));
        assert_eq!(file.get("RINGFENCE_MEMORY"), None);
    }

    #[test]
    fn a_line_that_is_no_setting_is_named_by_its_number() {
        for wrong in [
            "RINGFENCE_MEMORY",
            "RINGFENCE_MEMORY_0 = 4g",
            "RINGFENCE_MEMORY_0 = \"4g",
            "RINGFENCE_MEMORY_0 = \"4g\" 5",
            "RINGFENCE_MEMORY_0 = \"4\\u0067\"",
            "RINGFENCE_MEMORY_x = \"4g\"",
            "LD_PRELOAD = \"libother.so\"",
            "[tenant]",
            "= \"4g\"",
            "RINGFENCE_MEMORY_0 =",
        ] {
            let text = format!("RINGFENCE_MEMORY = 1\n{wrong}\n");
            let expected = WrongLine {
                line: 2,
                text: wrong.to_owned(),
            };
            assert_eq!(TenantFile::parse(text.as_bytes()), Err(expected));
        }
    }
}
