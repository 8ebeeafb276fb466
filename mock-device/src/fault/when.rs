//! Which calls a fault hits.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Which calls, counted from 1 over all processes of the world that the row's role selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum When {
    #[default]
    Every,
    /// `3`: the third.
    Nth(u64),
    /// `3..`: the third and all after it.
    From(u64),
    /// `one-in:50`: by chance, which the world's seed decides.
    OneIn(u64),
    /// `after:4GiB`: once these calls have asked for more than that, the one that passes it included.
    AfterBytes(Bytes),
    /// `after:250ms`: that long after the first of these calls, or after the first look at what the row shows. Not from the
    /// world's beginning: how long a process takes to come to its first call is nobody's promise.
    AfterTime(Duration),
}

const UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// `4GiB`, `64KiB`, `100B`.
pub(crate) fn bytes(text: &str) -> Option<Bytes> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    digits.parse::<u64>().ok()?.checked_mul(*unit).map(Bytes)
}

/// `250ms`, `3s`, `20us`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let number = |digits: &str| digits.parse::<u64>().ok();
    if let Some(digits) = text.strip_suffix("us") {
        number(digits).map(Duration::from_micros)
    } else if let Some(digits) = text.strip_suffix("ms") {
        number(digits).map(Duration::from_millis)
    } else {
        number(text.strip_suffix('s')?).map(Duration::from_secs)
    }
}

pub(crate) fn spell_bytes(bytes: Bytes) -> String {
    let (name, unit) = UNITS
        .into_iter()
        .find(|(_, unit)| bytes.0.is_multiple_of(*unit))
        .unwrap_or(("B", 1));
    format!("{}{name}", bytes.0 / unit)
}

pub(crate) fn spell_time(time: Duration) -> String {
    format!("{}us", time.as_micros())
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().filter(|n| *n > 0);
        let when = if text == "every" {
            Some(Self::Every)
        } else if let Some(first) = text.strip_suffix("..") {
            number(first).map(Self::From)
        } else if let Some(n) = text.strip_prefix("one-in:") {
            number(n).map(Self::OneIn)
        } else if let Some(after) = text.strip_prefix("after:") {
            time(after)
                .map(Self::AfterTime)
                .or_else(|| bytes(after).map(Self::AfterBytes))
        } else {
            number(text).map(Self::Nth)
        };
        when.ok_or_else(|| {
            format!(
                "`{text}` is not `every`, a number from 1 on, such a number followed by `..`, `one-in:N`, \
                 `after:` with a size (4GiB) or with a time (250ms)"
            )
        })
    }
}

impl TryFrom<String> for When {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        match when {
            When::Every => "every".to_owned(),
            When::Nth(n) => n.to_string(),
            When::From(n) => format!("{n}.."),
            When::OneIn(n) => format!("one-in:{n}"),
            When::AfterBytes(bytes) => format!("after:{}", spell_bytes(bytes)),
            When::AfterTime(time) => format!("after:{}", spell_time(time)),
        }
    }
}
