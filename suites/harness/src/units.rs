//! Byte counts as the harness writes and reads them; shares no parser with the enforcer it judges.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);

    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0 & ((1 << shift) - 1) == 0 {
                return write!(out, "{} {unit}", self.0 >> shift);
            }
        }
        write!(out, "{} B", self.0)
    }
}

/// Why a size does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a size: write a whole number with B, KiB, MiB or GiB, as in 4GiB")]
pub struct SizeError {
    pub text: String,
}

impl FromStr for Bytes {
    type Err = SizeError;

    /// `4GiB`, `23552MiB`, `512KiB`, `4096B`; the unit must be there, so that nobody gets four bytes.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let wrong = || SizeError {
            text: text.to_owned(),
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let shift = match text[digits..].trim() {
            "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(wrong()),
        };
        count.checked_mul(1 << shift).map(Self).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_written() {
        for text in ["4 GiB", "23552 MiB", "12 KiB", "7 B"] {
            assert_eq!(
                text.parse::<Bytes>()
                    .map(|size| size.to_string())
                    .as_deref(),
                Ok(if text == "23552 MiB" { "23 GiB" } else { text })
            );
        }
    }

    #[test]
    fn a_size_without_unit_or_beyond_64_bits_is_refused() {
        for text in ["4", "", "GiB", "4Gi", "-1GiB", "99999999999999GiB"] {
            assert_eq!(
                text.parse::<Bytes>(),
                Err(SizeError {
                    text: text.to_owned()
                })
            );
        }
    }
}
