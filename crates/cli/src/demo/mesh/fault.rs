//! Fault injection: before the start (`--fault`) or by a line while the demo runs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::services::{NameError, Replica};

/// The additional latency of each request at a slow replica.
pub(super) const SLOWER: Duration = Duration::from_millis(500);
/// The share of requests to which a failing replica responds with 500.
pub(super) const ERRORS: f64 = 0.3;

/// The kind of fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Responds to some requests with 500.
    Errors,
    /// Restores the normal state; a killed replica is started again.
    Heal,
    /// Kills its sidecar and its server.
    Kill,
    /// Adds latency.
    Slow,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::Heal => "heal",
            Self::Kill => "kill",
            Self::Slow => "slow",
        }
    }
}

impl FromStr for Kind {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        match text {
            "errors" | "fail" => Ok(Self::Errors),
            "heal" => Ok(Self::Heal),
            "kill" => Ok(Self::Kill),
            "slow" => Ok(Self::Slow),
            _ => Err(FaultError::Kind(text.into())),
        }
    }
}

/// The reason why a text is not a fault.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum FaultError {
    #[error("`{0}` is not SERVICE-N:KIND@SECONDS, such as reviews-2:slow@5")]
    Form(String),
    #[error("`{0}` is not a fault; expected slow, errors, kill or heal")]
    Kind(String),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("`{0}` is not a number of seconds")]
    Seconds(String),
    #[error("`{0}` is not a line such as `slow reviews-2`, `help` or `quit`")]
    Line(String),
}

/// A fault of a replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fault {
    pub(super) replica: Replica,
    pub(super) kind: Kind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.replica)
    }
}

/// A fault with its time: `reviews-2:slow@5`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct At {
    pub(super) fault: Fault,
    /// The time since the first request.
    pub(super) after: Duration,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { replica, kind } = self.fault;
        let seconds = self.after.as_secs_f64();
        write!(f, "{replica}:{}@{seconds}", kind.name())
    }
}

impl FromStr for At {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let form = || FaultError::Form(text.into());
        let (replica, rest) = text.split_once(':').ok_or_else(form)?;
        let (kind, seconds) = rest.split_once('@').ok_or_else(form)?;
        let fault = Fault {
            replica: replica.parse()?,
            kind: kind.parse()?,
        };
        let after = seconds.parse().ok();
        let after = after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let after = after.ok_or_else(|| FaultError::Seconds(seconds.into()))?;
        Ok(Self { fault, after })
    }
}

/// A line of standard input while the demo runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Line {
    Fault(Fault),
    Help,
    Quit,
}

impl FromStr for Line {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let words: Vec<_> = text.split_whitespace().collect();
        match words[..] {
            ["help" | "?"] => Ok(Self::Help),
            ["quit" | "exit" | "q"] => Ok(Self::Quit),
            [kind, replica] => Ok(Self::Fault(Fault {
                kind: kind.parse()?,
                replica: replica.parse()?,
            })),
            _ => Err(FaultError::Line(text.trim().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in [
            "reviews-2:slow@5",
            "ratings-1:kill@0.5",
            "details-16:heal@0",
        ] {
            assert_eq!(text.parse::<At>().unwrap().to_string(), text);
        }
        let line: Line = " fail  reviews-2\n".parse().unwrap();
        let Line::Fault(fault) = line else {
            unreachable!("it is a fault")
        };
        assert_eq!(fault.to_string(), "errors reviews-2");
        assert_eq!("quit".parse(), Ok(Line::Quit));
        assert_eq!("help".parse(), Ok(Line::Help));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let at = |text: &str| text.parse::<At>().unwrap_err().to_string();
        assert!(at("reviews-2").contains("such as reviews-2:slow@5"));
        assert!(at("reviews-2:slow").contains("such as reviews-2:slow@5"));
        assert!(at("reviews-2:sleepy@5").contains("slow, errors, kill or heal"));
        assert!(at("review-2:slow@5").contains("no service `review`"));
        for seconds in ["-1", "NaN", "1e300", "soon", ""] {
            let error = at(&format!("reviews-2:slow@{seconds}"));
            assert!(error.contains("not a number of seconds"), "{error}");
        }
        let line = |text: &str| text.parse::<Line>().unwrap_err().to_string();
        assert!(line("slow").contains("such as `slow reviews-2`"));
        assert!(line("").contains("such as"));
    }
}
