//! Reads parameters by name from text, and checks them against ranges.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::SpecError;
use super::spelling::{nearest, shorten};
use crate::policy::Choices;
use crate::policy::fallback::Fallback;
use crate::policy::peak_ewma::PeakEwmaParams;
use crate::prime;

/// Creates errors about the parameters of one policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    pub(super) policy: &'static str,
}

impl Check {
    pub(super) fn range(
        self,
        parameter: &'static str,
        value: u32,
        valid: RangeInclusive<u32>,
    ) -> Result<(), SpecError> {
        if valid.contains(&value) {
            return Ok(());
        }
        Err(self.invalid(parameter, value, "is out of range", range_text(&valid)))
    }

    pub(super) fn choices(self, choices: Choices) -> Result<(), SpecError> {
        match choices {
            Choices::All => Ok(()),
            Choices::Some(d) => self.range("choices", d.get(), 1..=Choices::MAX),
        }
    }

    /// Checks that a duration is a whole number of milliseconds between 1 ms and 1 h.
    pub(super) fn millis(self, parameter: &'static str, value: Duration) -> Result<(), SpecError> {
        let valid = 1..=PeakEwmaParams::MAX_MS;
        let millis = value.as_millis();
        let in_range = u32::try_from(millis).is_ok_and(|ms| valid.contains(&ms));
        if in_range && value.subsec_nanos().is_multiple_of(1_000_000) {
            return Ok(());
        }
        Err(self.invalid(
            parameter,
            format!("{value:?}"),
            "is out of range",
            range_text(&valid),
        ))
    }

    pub(super) fn balance_factor(self, percent: Option<u32>) -> Result<(), SpecError> {
        percent.map_or(Ok(()), |p| {
            self.range("hash_balance_factor", p, 100..=100_000)
        })
    }

    pub(super) fn not_prime(self, parameter: &'static str, value: u32) -> SpecError {
        let next = prime::next_prime(value).unwrap_or(value);
        let reason = format!("is not a prime number; the next one is {next}");
        self.invalid(parameter, value, reason, "a prime, 2-5000011".into())
    }

    pub(super) fn above_max(self, min: u32, max: u32) -> SpecError {
        self.invalid(
            "min",
            min,
            format!("is above max={max}"),
            format!("1-{max}"),
        )
    }

    pub(super) fn invalid(
        self,
        parameter: &'static str,
        value: impl Display,
        reason: impl Into<String>,
        valid: String,
    ) -> SpecError {
        let value = shorten(&value.to_string());
        SpecError::InvalidParameter {
            policy: self.policy,
            parameter,
            value,
            reason: reason.into(),
            valid,
        }
    }
}

fn range_text(valid: &RangeInclusive<u32>) -> String {
    format!("{}-{}", valid.start(), valid.end())
}

/// The parameters of a policy as written, from which the policy takes its own. The error about an invalid parameter
/// names the valid range.
#[derive(Debug)]
pub struct Parameters {
    check: Check,
    given: Vec<(String, String)>,
}

impl Parameters {
    /// Creates the parameters of a policy.
    ///
    /// # Errors
    ///
    /// A parameter is not among `known`, or is repeated.
    pub fn new(
        policy: &'static str,
        known: &'static [&'static str],
        given: Vec<(String, String)>,
    ) -> Result<Self, SpecError> {
        for (at, (name, _)) in given.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let suggestion = nearest(name, known);
                let parameter = shorten(name);
                return Err(SpecError::UnknownParameter {
                    policy,
                    parameter,
                    suggestion,
                    known,
                });
            }
            if given[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(SpecError::DuplicateParameter {
                    policy,
                    parameter: name.clone(),
                });
            }
        }
        Ok(Self {
            check: Check { policy },
            given,
        })
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.given
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns a whole number in `valid`; `None` if the parameter is absent.
    ///
    /// # Errors
    ///
    /// The value is not such a number.
    pub fn number(
        &self,
        name: &'static str,
        valid: RangeInclusive<u32>,
    ) -> Result<Option<u32>, SpecError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            let reason = "is not a whole number";
            return Err(self.check.invalid(name, text, reason, range_text(&valid)));
        }
        match text.parse::<u32>() {
            Ok(value) if valid.contains(&value) => Ok(Some(value)),
            _ => Err(self
                .check
                .invalid(name, text, "is out of range", range_text(&valid))),
        }
    }

    /// Returns a whole number from 1 to `max`; `default` if the parameter is absent.
    ///
    /// # Errors
    ///
    /// The value is not such a number.
    pub fn positive(
        &self,
        name: &'static str,
        max: u32,
        default: NonZeroU32,
    ) -> Result<NonZeroU32, SpecError> {
        let given = self.number(name, 1..=max)?;
        Ok(given.and_then(NonZeroU32::new).unwrap_or(default))
    }

    /// Returns `choices`, which may be `all`; two if it is absent.
    pub(super) fn choices(&self) -> Result<Choices, SpecError> {
        match self.text("choices") {
            None => Ok(Choices::TWO),
            Some("all") => Ok(Choices::All),
            Some(text) if text.parse::<u32>().is_err() => {
                let valid = format!("1-{} or all", Choices::MAX);
                let reason = "is neither a whole number nor `all`";
                Err(self.check.invalid("choices", text, reason, valid))
            }
            Some(_) => {
                let d = self.positive("choices", Choices::MAX, NonZeroU32::MIN)?;
                Ok(Choices::Some(d))
            }
        }
    }

    /// Returns the fallback; `default` if the parameter is absent.
    ///
    /// # Errors
    ///
    /// There is no such fallback.
    pub fn fallback(&self, default: Fallback) -> Result<Fallback, SpecError> {
        let Some(word) = self.text("fallback") else {
            return Ok(default);
        };
        Fallback::from_word(word).ok_or_else(|| {
            let suggestion = nearest(word, Fallback::WORDS);
            let reason = match suggestion {
                None => "is not a fallback policy".to_owned(),
                Some(near) => format!("is not a fallback policy; did you mean `{near}`?"),
            };
            let valid = Fallback::WORDS.join(", ");
            self.check.invalid("fallback", word, reason, valid)
        })
    }

    pub(super) fn millis(&self, name: &'static str) -> Result<Option<Duration>, SpecError> {
        let millis = self.number(name, 1..=PeakEwmaParams::MAX_MS)?;
        Ok(millis.map(|ms| Duration::from_millis(u64::from(ms))))
    }
}
