//! Which part of a suite a run is of: `2/8`. Where a case belongs depends on its name and on how many parts there are, on nothing else: not on
//! other cases, their order or a filter.

use std::fmt;
use std::str::FromStr;

/// One of several parts, counted from 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    index: u32,
    count: u32,
}

/// Why a shard's spelling does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a shard: write 2/8 for the second of eight, or 1+1/8 where an index counts from 0"
)]
pub struct ShardError(String);

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 1, count: 1 };

    pub fn count(self) -> u32 {
        self.count
    }

    /// All the parts that this is one of.
    pub fn all(self) -> impl Iterator<Item = Self> {
        let count = self.count;
        (1..=count).map(move |index| Self { index, count })
    }

    /// The part, of as many, that a case belongs to.
    pub fn of(case: &str, count: u32) -> Self {
        // The high half of a product spreads better than a remainder of the hash's low bits.
        let part = (u128::from(hash(case)) * u128::from(count)) >> 64;
        Self {
            index: part as u32 + 1,
            count,
        }
    }

    pub fn holds(self, case: &str) -> bool {
        Self::of(case, self.count) == self
    }
}

/// FNV-1a with splitmix64's last step: written down here, so that it is the same with every toolchain.
fn hash(text: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let read = || {
            let (index, count) = text.split_once('/')?;
            let index: u32 = match index.split_once('+') {
                // What counts from 0, as Kubernetes' JOB_COMPLETION_INDEX does.
                Some((from_zero, "1")) => from_zero.parse::<u32>().ok()?.checked_add(1)?,
                Some(_) => return None,
                None => index.parse().ok()?,
            };
            let count = count.parse().ok()?;
            (1..=count)
                .contains(&index)
                .then_some(Self { index, count })
        };
        read().ok_or_else(|| ShardError(text.to_owned()))
    }
}

impl TryFrom<String> for Shard {
    type Error = ShardError;

    fn try_from(text: String) -> Result<Self, ShardError> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("2/8", "2/8")]
    #[case("1/1", "1/1")]
    #[case("0+1/8", "1/8")]
    #[case("7+1/8", "8/8")]
    fn a_shard_reads_back_as_it_counts(#[case] text: &str, #[case] full: &str) {
        let read = text.parse::<Shard>().map(|shard| shard.to_string());
        assert_eq!(read, Ok(full.to_owned()));
    }

    #[rstest::rstest]
    fn what_is_no_shard_is_named(
        #[values(
            "",
            "8",
            "0/8",
            "9/8",
            "8+1/8",
            "1+2/8",
            "-1/8",
            "1/0",
            "a/b",
            "1/2/3",
            "4294967295+1/8"
        )]
        text: &str,
    ) {
        assert_eq!(text.parse::<Shard>(), Err(ShardError(text.to_owned())));
    }

    /// A new toolchain or an edit that moves cases would leave some out of a run whose shards are of two builds.
    #[test]
    fn a_case_stays_where_it_is() {
        let of = |case, count| Shard::of(case, count).to_string();
        assert_eq!(of("a_refusal_looks_like_a_full_card", 8), "5/8");
        assert_eq!(of("a_refusal_looks_like_a_full_card", 3), "2/3");
        assert_eq!(of("", 8), "8/8");
    }

    #[test]
    fn every_case_is_in_one_shard_and_none_is_empty() {
        for count in [1, 2, 8, 16] {
            let mut sizes = vec![0; count as usize];
            for case in 0..400 {
                let name = format!("a_case_called_{case}");
                let holding = Shard::WHOLE.all().count();
                assert_eq!(holding, 1);
                let shard = Shard::of(&name, count);
                assert_eq!(
                    shard.all().filter(|shard| shard.holds(&name)).count(),
                    1,
                    "{name}"
                );
                sizes[shard.index as usize - 1] += 1;
            }
            let fair = 400 / count;
            assert!(
                sizes.iter().all(|&size| size > fair / 2 && size < fair * 2),
                "{sizes:?}"
            );
        }
    }
}
