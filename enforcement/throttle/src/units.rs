//! Time, and a share of it.

/// A time of the clock that all processes of a machine share, or a span of it, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);

    pub const fn micros(count: u64) -> Nanos {
        Nanos(count * 1_000)
    }

    pub const fn millis(count: u64) -> Nanos {
        Nanos(count * 1_000_000)
    }

    pub const fn seconds(count: u64) -> Nanos {
        Nanos(count * 1_000_000_000)
    }

    #[must_use]
    pub const fn plus(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }

    /// Zero where `other` is more.
    #[must_use]
    pub const fn less(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }

    /// `numerator / denominator` of it.
    #[must_use]
    pub fn scaled(self, numerator: u64, denominator: u64) -> Nanos {
        let scaled = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// A share of a device's time, in hundredths of a percent: more than nothing, at most all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Share(u16);

impl Share {
    pub const ALL: Share = Share(10_000);

    /// `None` for nothing, and for all and more than all: both mean that there is no budget.
    pub const fn of_hundredths(hundredths: u64) -> Option<Share> {
        if hundredths == 0 || hundredths >= Share::ALL.0 as u64 {
            None
        } else {
            Some(Share(hundredths as u16))
        }
    }

    pub const fn percent(percent: u64) -> Option<Share> {
        Share::of_hundredths(percent.saturating_mul(100))
    }

    pub const fn hundredths(self) -> u64 {
        self.0 as u64
    }

    /// The time in which `work` is this share.
    #[must_use]
    pub fn period(self, work: Nanos) -> Nanos {
        work.scaled(u64::from(Share::ALL.0), self.hundredths())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_everything_are_no_budget() {
        assert_eq!(Share::percent(0), None);
        assert_eq!(Share::percent(100), None);
        assert_eq!(Share::percent(u64::MAX), None);
        assert_eq!(
            Share::percent(25).map(|share| share.period(Nanos(10))),
            Some(Nanos(40))
        );
    }
}
