//! What an operator writes to choose a policy, and the one place where a policy is built from it.
//!
//! The words are the same in YAML, on the command line, in the simulator and in metrics:
//! `lor(choices=2)`. Parsing, checking and printing are in the submodules.
//!
//! Invariant: a `Spec` obtained by parsing or deserializing is valid, and prints to a form that
//! parses to the same `Spec`.

mod error;
mod parameters;
mod parse;
mod serialize;

use std::fmt;

pub use error::SpecError;

use crate::policy::hashed::Hashed;
use crate::policy::least_outstanding::LeastOutstanding;
use crate::policy::maglev::{MaglevParams, MaglevTable};
use crate::policy::peak_ewma::{PeakEwma, PeakEwmaParams};
use crate::policy::random::Random;
use crate::policy::ring_hash::{Ring, RingHashParams, RingSize};
use crate::policy::round_robin::RoundRobin;
use crate::policy::{Choices, Policy, SharedTables};
use crate::{View, prime};

/// A policy and its parameters.
///
/// Written `name` or `name(parameter=value, …)`; in YAML also `{name: …, parameter: value}`.
///
/// | written | default of the parameters |
/// | --- | --- |
/// | `lor(choices=…)`, a number or `all` | `choices=2` |
/// | `maglev(table_size=…, hash_balance_factor=…)` | `table_size=65537`, no bound |
/// | `peak-ewma(choices=…, decay_ms=…, default_rtt_ms=…)` | 2, 10000, 30 |
/// | `random` | |
/// | `ring-hash(min=…, max=…, hash_balance_factor=…)` | 1024, 8388608, no bound |
/// | `round-robin` | |
///
/// The default is `lor(choices=2)`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Spec {
    /// Least outstanding requests.
    LeastOutstanding {
        /// How many candidates are compared.
        choices: Choices,
    },
    /// Maglev hashing.
    Maglev(MaglevParams),
    /// Latency average × (outstanding + 1).
    PeakEwma(PeakEwmaParams),
    /// Weighted random.
    Random,
    /// Ketama-like consistent hashing.
    RingHash(RingHashParams),
    /// Smooth weighted round robin.
    RoundRobin,
}

impl Spec {
    /// The policy's name without parameters: what metrics are labelled with.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LeastOutstanding { .. } => "lor",
            Self::Maglev(_) => "maglev",
            Self::PeakEwma(_) => "peak-ewma",
            Self::Random => "random",
            Self::RingHash(_) => "ring-hash",
            Self::RoundRobin => "round-robin",
        }
    }

    /// Whether the policy picks by the hash of a request's key.
    #[must_use]
    pub const fn uses_hash(&self) -> bool {
        matches!(self, Self::Maglev(_) | Self::RingHash(_))
    }

    /// Builds the policy, with its tables, for a view.
    ///
    /// # Errors
    ///
    /// If a parameter is out of range. That cannot happen for a parsed `Spec`, only for one put
    /// together in code.
    pub fn build(&self, view: &View) -> Result<Box<dyn Policy>, SpecError> {
        self.validate()?;
        Ok(self.build_valid(view, None))
    }

    /// Builds a spec known to be valid, sharing `previous` tables if they fit.
    pub(crate) fn build_valid(
        &self,
        view: &View,
        previous: Option<SharedTables>,
    ) -> Box<dyn Policy> {
        match self {
            Self::LeastOutstanding { choices } => Box::new(LeastOutstanding::new(*choices)),
            Self::Maglev(p) => {
                let (size, bound) = (p.table_size, p.hash_balance_factor);
                Box::new(Hashed::<MaglevTable>::new(view, size, bound, previous))
            }
            Self::PeakEwma(p) => Box::new(PeakEwma::new(p, view)),
            Self::Random => Box::new(Random),
            Self::RingHash(p) => {
                let size = RingSize {
                    min: p.min,
                    max: p.max,
                };
                Box::new(Hashed::<Ring>::new(
                    view,
                    size,
                    p.hash_balance_factor,
                    previous,
                ))
            }
            Self::RoundRobin => Box::new(RoundRobin::new(view)),
        }
    }

    /// Checks every parameter against its range.
    ///
    /// # Errors
    ///
    /// The first parameter that is out of range.
    pub fn validate(&self) -> Result<(), SpecError> {
        let check = parameters::Check {
            policy: self.name(),
        };
        match self {
            Self::LeastOutstanding {
                choices: Choices::Some(d),
            } => check.range("choices", d.get(), 1..=Choices::MAX),
            Self::LeastOutstanding {
                choices: Choices::All,
            }
            | Self::Random
            | Self::RoundRobin => Ok(()),
            Self::Maglev(p) => {
                check.range("table_size", p.table_size, 2..=MaglevParams::MAX_TABLE_SIZE)?;
                if !prime::is_prime(p.table_size) {
                    return Err(check.not_prime("table_size", p.table_size));
                }
                check.balance_factor(p.hash_balance_factor)
            }
            Self::PeakEwma(p) => {
                check.range("choices", p.choices.get(), 1..=PeakEwmaParams::MAX_CHOICES)?;
                check.millis("decay_ms", p.decay)?;
                check.millis("default_rtt_ms", p.default_rtt)
            }
            Self::RingHash(p) => {
                check.range("min", p.min, 1..=RingHashParams::LIMIT)?;
                check.range("max", p.max, 1..=RingHashParams::LIMIT)?;
                if p.min > p.max {
                    return Err(check.above_max(p.min, p.max));
                }
                check.balance_factor(p.hash_balance_factor)
            }
        }
    }
}

impl Default for Spec {
    fn default() -> Self {
        Self::LeastOutstanding {
            choices: Choices::TWO,
        }
    }
}

/// The canonical form: the first parameter of `lor`, `maglev` and `ring-hash` always, others when
/// they differ from their default.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = Vec::new();
        let mut put = |name: &str, value: &dyn fmt::Display| list.push(format!("{name}={value}"));
        match self {
            Self::LeastOutstanding { choices } => put("choices", choices),
            Self::Maglev(p) => {
                put("table_size", &p.table_size);
                if let Some(percent) = p.hash_balance_factor {
                    put("hash_balance_factor", &percent);
                }
            }
            Self::PeakEwma(p) => {
                let default = PeakEwmaParams::default();
                if p.choices != default.choices {
                    put("choices", &p.choices);
                }
                if p.decay != default.decay {
                    put("decay_ms", &p.decay.as_millis());
                }
                if p.default_rtt != default.default_rtt {
                    put("default_rtt_ms", &p.default_rtt.as_millis());
                }
            }
            Self::Random | Self::RoundRobin => {}
            Self::RingHash(p) => {
                put("min", &p.min);
                if p.max != RingHashParams::LIMIT {
                    put("max", &p.max);
                }
                if let Some(percent) = p.hash_balance_factor {
                    put("hash_balance_factor", &percent);
                }
            }
        }
        if list.is_empty() {
            f.write_str(self.name())
        } else {
            write!(f, "{}({})", self.name(), list.join(","))
        }
    }
}

#[cfg(test)]
mod tests;
