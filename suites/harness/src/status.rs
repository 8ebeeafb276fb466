//! What a case did, what was expected of it, and what that means: two enums and one match.

use std::fmt;
use std::str::FromStr;

/// What the case did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Status {
    Pass,
    Fail,
    Skip,
    /// It died, by a signal or without a word.
    Crash,
    Timeout,
}

/// What the expectation files, or the target's nature, say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    Pass,
    /// It ends like this, and a different end is news.
    Ends(Status),
    /// It sometimes ends like this.
    Flakes(Status),
}

/// What the status means.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Verdict {
    Pass,
    ExpectedFail,
    KnownFlake,
    Skip,
    Fail,
    Crash,
    Timeout,
    /// An expected failure is none any more: its line must go.
    UnexpectedImprovement,
    /// The case could not be run.
    Missing,
}

/// Judges a status; `None` is a case that could not be run.
pub fn judge(status: Option<Status>, expectation: Expectation) -> Verdict {
    match (status, expectation) {
        (None, _) => Verdict::Missing,
        // This machine cannot show it, which neither confirms nor refutes an expectation.
        (Some(Status::Skip), _) => Verdict::Skip,
        (Some(Status::Pass), Expectation::Ends(_)) => Verdict::UnexpectedImprovement,
        (Some(Status::Pass), Expectation::Pass | Expectation::Flakes(_)) => Verdict::Pass,
        (Some(seen), Expectation::Ends(known)) if seen == known => Verdict::ExpectedFail,
        (Some(seen), Expectation::Flakes(known)) if seen == known => Verdict::KnownFlake,
        (Some(Status::Fail), _) => Verdict::Fail,
        (Some(Status::Crash), _) => Verdict::Crash,
        (Some(Status::Timeout), _) => Verdict::Timeout,
    }
}

impl Verdict {
    /// Whether a run with this verdict is as it should be.
    pub fn is_expected(self) -> bool {
        matches!(
            self,
            Self::Pass | Self::ExpectedFail | Self::KnownFlake | Self::Skip
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

impl FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [
            Self::Pass,
            Self::Fail,
            Self::Skip,
            Self::Crash,
            Self::Timeout,
        ]
        .into_iter()
        .find(|status| format!("{status:?}") == text)
        .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(Some(Status::Pass), Expectation::Pass, Verdict::Pass)]
    #[case(Some(Status::Fail), Expectation::Pass, Verdict::Fail)]
    #[case(
        Some(Status::Fail),
        Expectation::Ends(Status::Fail),
        Verdict::ExpectedFail
    )]
    #[case(Some(Status::Crash), Expectation::Ends(Status::Fail), Verdict::Crash)]
    #[case(
        Some(Status::Pass),
        Expectation::Ends(Status::Fail),
        Verdict::UnexpectedImprovement
    )]
    #[case(Some(Status::Skip), Expectation::Ends(Status::Fail), Verdict::Skip)]
    #[case(
        Some(Status::Fail),
        Expectation::Flakes(Status::Fail),
        Verdict::KnownFlake
    )]
    #[case(
        Some(Status::Timeout),
        Expectation::Flakes(Status::Fail),
        Verdict::Timeout
    )]
    #[case(Some(Status::Pass), Expectation::Flakes(Status::Fail), Verdict::Pass)]
    #[case(None, Expectation::Ends(Status::Fail), Verdict::Missing)]
    fn a_status_means_what_the_expectation_makes_of_it(
        #[case] status: Option<Status>,
        #[case] expectation: Expectation,
        #[case] verdict: Verdict,
    ) {
        assert_eq!(judge(status, expectation), verdict);
    }
}
