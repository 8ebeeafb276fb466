//! Sizes as cases and commands write them; shares no parser with the enforcer it judges.

use mock_device::Bytes;

/// Why a size does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a size: write a whole number with B, KiB, MiB or GiB, as in 4GiB")]
pub struct SizeError {
    pub text: String,
}

/// `4GiB`, `23552MiB`, `512KiB`, `4096B`; the unit must be there, so that nobody gets four bytes.
pub fn read(text: &str) -> Result<Bytes, SizeError> {
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
    count.checked_mul(1 << shift).map(Bytes).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("4GiB", Bytes::gib(4))]
    #[case("23552 MiB", Bytes::gib(23))]
    #[case("12KiB", Bytes::kib(12))]
    #[case("7B", Bytes(7))]
    fn a_size_is_a_number_and_a_unit(#[case] text: &str, #[case] size: Bytes) {
        assert_eq!(read(text), Ok(size));
    }

    #[rstest::rstest]
    fn a_size_without_unit_or_beyond_64_bits_is_refused(
        #[values("4", "", "GiB", "4Gi", "-1GiB", "99999999999999GiB")] text: &str,
    ) {
        assert_eq!(
            read(text),
            Err(SizeError {
                text: text.to_owned()
            })
        );
    }
}
