//! Percentages as people write them.

use core::fmt;

use crate::size::{SizeError, digits};

/// Hundredths of a percent as people read them; 0 is no budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u16);

impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.0 / 100, self.0 % 100) {
            (0, ..) => out.write_str("none"),
            (_, whole, 0) => write!(out, "{whole}%"),
            (_, whole, part) => write!(out, "{whole}.{part:02}%"),
        }
    }
}

/// Reads `50`, `50%`, `12.5`, in hundredths of a percent; blanks around are trimmed. HAMi-core reads whole numbers only.
///
/// Digits beyond the second decimal are dropped; what is more than nothing stays so.
pub fn parse(text: &[u8]) -> Result<u64, SizeError> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b"%").unwrap_or(text).trim_ascii_end();
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b"0"[..]),
    };
    let whole = digits(whole)?.saturating_mul(100);
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return Err(SizeError::NotASize);
    }
    let digit = |place: usize| fraction.get(place).map_or(0, |byte| u64::from(byte - b'0'));
    let hundredths = whole.saturating_add(digit(0) * 10 + digit(1));
    let nothing = text.iter().all(|byte| matches!(byte, b'0' | b'.'));
    Ok(if nothing { 0 } else { hundredths.max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("50", Ok(5000))]
    #[case(" 50% ", Ok(5000))]
    #[case("12.5", Ok(1250))]
    #[case("0.001", Ok(1))]
    #[case("100", Ok(10_000))]
    #[case("250", Ok(25_000))]
    #[case("0", Ok(0))]
    #[case("0.0%", Ok(0))]
    #[case("", Err(SizeError::Empty))]
    #[case("%", Err(SizeError::Empty))]
    #[case("-5", Err(SizeError::NotASize))]
    #[case("5.", Err(SizeError::NotASize))]
    #[case("half", Err(SizeError::NotASize))]
    #[case("5 0", Err(SizeError::NotASize))]
    #[case("99999999999999999999", Err(SizeError::TooLarge))]
    fn percentages_are_read(#[case] text: &str, #[case] read: Result<u64, SizeError>) {
        assert_eq!(parse(text.as_bytes()), read);
    }
}
