//! Sizes as people write them.

use crate::Bytes;

/// Why a text is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// Nothing but blanks.
    Empty,
    /// Not a number followed by at most one unit.
    NotASize,
    /// A fraction of a byte, or so small a fraction of a unit that no byte is left: reading it as 0 would lift the budget.
    LessThanAByte,
    /// More than 64 bits of bytes.
    TooLarge,
}

/// Reads `4g`, `4096m`, `4G`, `4GB`, `4Gi`, `4GiB` (all powers of 1024), `1.5g`, plain bytes; blanks around are trimmed.
///
/// A fraction of a unit is rounded down to whole bytes.
pub fn parse(text: &[u8]) -> Result<Bytes, SizeError> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    let (number, suffix) = text.split_at(
        text.iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'.'))
            .unwrap_or(text.len()),
    );
    let unit = unit(suffix.trim_ascii_start()).ok_or(SizeError::NotASize)?;
    let (whole, fraction) = match number.iter().position(|byte| *byte == b'.') {
        Some(point) => (&number[..point], Some(&number[point + 1..])),
        None => (number, None),
    };
    let bytes = u128::from(digits(whole)?) * u128::from(unit);
    let part = match fraction {
        None => 0,
        Some(_) if unit == 1 => return Err(SizeError::LessThanAByte),
        Some(fraction) => part_of(fraction, unit)?,
    };
    let bytes = u64::try_from(bytes + u128::from(part)).map_err(|_| SizeError::TooLarge)?;
    if bytes == 0 && number.iter().any(|byte| matches!(byte, b'1'..=b'9')) {
        return Err(SizeError::LessThanAByte);
    }
    Ok(Bytes(bytes))
}

/// Bytes in one unit: none or `b`, or `k m g t p` followed by nothing, `b`, `i` or `ib`, in any case.
fn unit(suffix: &[u8]) -> Option<u64> {
    let power = match suffix.first().map(u8::to_ascii_lowercase) {
        None => return Some(1),
        Some(b'b') => return (suffix.len() == 1).then_some(1),
        Some(b'k') => 1,
        Some(b'm') => 2,
        Some(b'g') => 3,
        Some(b't') => 4,
        Some(b'p') => 5,
        Some(_) => return None,
    };
    let rest = suffix[1..].to_ascii_lowercase();
    matches!(rest.as_slice(), b"" | b"b" | b"i" | b"ib").then(|| 1 << (10 * power))
}

pub(crate) fn digits(text: &[u8]) -> Result<u64, SizeError> {
    if text.is_empty() {
        return Err(SizeError::NotASize);
    }
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte
            .is_ascii_digit()
            .then(|| u64::from(byte - b'0'))
            .ok_or(SizeError::NotASize)?;
        value
            .checked_mul(10)
            .and_then(|value| value.checked_add(digit))
            .ok_or(SizeError::TooLarge)
    })
}

/// Whole bytes in the decimal fraction `0.<digits>` of a unit. Digits beyond the 18th are below a byte of any unit and only checked.
fn part_of(fraction: &[u8], unit: u64) -> Result<u64, SizeError> {
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(SizeError::NotASize);
    }
    let kept = &fraction[..fraction.len().min(18)];
    let value = digits(kept)?;
    let scale = 10_u128.pow(kept.len() as u32);
    Ok((u128::from(value) * u128::from(unit) / scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const GIB: u64 = 1 << 30;

    #[rstest]
    #[case("4g", 4 * GIB)]
    #[case("4096m", 4 * GIB)]
    #[case("4G", 4 * GIB)]
    #[case("4GB", 4 * GIB)]
    #[case("4Gi", 4 * GIB)]
    #[case("4GiB", 4 * GIB)]
    #[case("4gib", 4 * GIB)]
    #[case("4 GiB", 4 * GIB)]
    #[case("1.5g", 3 * GIB / 2)]
    #[case("0.5k", 512)]
    #[case("0.3g", 322_122_547)]
    #[case("1g ", GIB)]
    #[case("\t 1g\n", GIB)]
    #[case("4294967296", 4 * GIB)]
    #[case("1024b", 1024)]
    #[case("2t", 2048 * GIB)]
    #[case("0", 0)]
    #[case("0g", 0)]
    #[case("0.0g", 0)]
    #[case("007k", 7 * 1024)]
    #[case("23552MiB", 23_552 << 20)]
    #[case("18446744073709551615", u64::MAX)]
    fn sizes_read_as_people_write_them(#[case] text: &str, #[case] bytes: u64) {
        assert_eq!(parse(text.as_bytes()), Ok(Bytes(bytes)));
    }

    #[rstest]
    #[case("", SizeError::Empty)]
    #[case(" \t", SizeError::Empty)]
    #[case("junk", SizeError::NotASize)]
    #[case("g", SizeError::NotASize)]
    #[case("-1", SizeError::NotASize)]
    #[case("+1g", SizeError::NotASize)]
    #[case("1e9", SizeError::NotASize)]
    #[case("0x10", SizeError::NotASize)]
    #[case("4gg", SizeError::NotASize)]
    #[case("4ig", SizeError::NotASize)]
    #[case("4i", SizeError::NotASize)]
    #[case("4bb", SizeError::NotASize)]
    #[case("4g4", SizeError::NotASize)]
    #[case("4g 4", SizeError::NotASize)]
    #[case("1,5g", SizeError::NotASize)]
    #[case("1.2.3g", SizeError::NotASize)]
    #[case("1.g", SizeError::NotASize)]
    #[case(".5g", SizeError::NotASize)]
    #[case("4 % g", SizeError::NotASize)]
    #[case("1.5", SizeError::LessThanAByte)]
    #[case("0.0001k", SizeError::LessThanAByte)]
    #[case("18446744073709551616", SizeError::TooLarge)]
    #[case("17179869184g", SizeError::TooLarge)]
    fn junk_is_no_size(#[case] text: &str, #[case] error: SizeError) {
        assert_eq!(parse(text.as_bytes()), Err(error));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn a_whole_number_of_units_is_exact(count in 0_u64..=(u64::MAX >> 30), blank in "[ \t]{0,3}", unit in "(g|G)(i|I)?(b|B)?") {
            prop_assert_eq!(parse(format!("{blank}{count}{unit}{blank}").as_bytes()), Ok(Bytes(count << 30)));
        }

        #[test]
        fn a_size_of_something_is_never_read_as_none(text in "[0-9]{0,3}[.]?[0-9]{0,22}[kmgtp]?") {
            if text.bytes().any(|byte| matches!(byte, b'1'..=b'9')) {
                prop_assert_ne!(parse(text.as_bytes()), Ok(Bytes(0)));
            }
        }
    }
}
