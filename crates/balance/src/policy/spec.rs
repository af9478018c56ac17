//! The notation of policies, and the construction of a policy from it.
//!
//! The notation is the same in YAML, on the command line, in the simulator and in metrics:
//! `lor(choices=2)`. Parsing, checking and printing are in the submodules.
//!
//! Invariant: a `PolicySpec` obtained by parsing or deserializing is valid, and prints to a form that
//! parses to the same `PolicySpec`.

mod display;
mod error;
mod forms;
mod notation;
mod parameters;
mod parse;
mod serialize;
mod spelling;

use std::num::NonZeroU32;

pub use error::SpecError;
pub use forms::{Form, Parameter};
pub use notation::{WrittenParameters, named};
pub use parameters::Parameters;

use crate::policy::bounce::Bounce;
use crate::policy::fallback::Fallback;
use crate::policy::hashing::Hashed;
use crate::policy::least_outstanding::LeastOutstanding;
use crate::policy::ledger::Hosted;
use crate::policy::maglev::{MaglevParams, MaglevTable};
use crate::policy::peak_ewma::{PeakEwma, PeakEwmaParams};
use crate::policy::probe::Probe;
use crate::policy::random::Random;
use crate::policy::ring_hash::{Ring, RingHashParams, RingSize};
use crate::policy::round_robin::RoundRobin;
use crate::policy::subset::{Subset, SubsetParams};
use crate::policy::{BuildPolicy, Choices, Policy, SharedTables};
use crate::queue_protocol::{Announce, Groups};
use crate::{View, prime};

/// A policy and its parameters.
///
/// Written `name` or `name(parameter=value, …)`; in YAML also `{name: …, parameter: value}`.
///
/// | written | default of the parameters |
/// | --- | --- |
/// | `a-lsq(choices=…, overhead=…)` | 2, 10 |
/// | `bounce(tries=…)` | 3 |
/// | `ledger(group=…, fallback=…)`, `bounce`, `lor` or `probe` | 40, `bounce` |
/// | `lor(choices=…)`, a number or `all` | `choices=2` |
/// | `maglev(table_size=…, hash_balance_factor=…)` | `table_size=65537`, no bound |
/// | `peak-ewma(choices=…, decay_ms=…, default_rtt_ms=…)` | 2, 10000, 30 |
/// | `probe(choices=…)` | 2 |
/// | `random` | |
/// | `ring-hash(min=…, max=…, hash_balance_factor=…)` | 1024, 8388608, no bound |
/// | `round-robin` | |
/// | `subset(size=…, client=…, choices=…)` | 20, 0, 2 |
///
/// The default is `lor(choices=2)`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PolicySpec {
    /// Least outstanding requests, with counts that are corrected by servers' reports.
    ALsq {
        /// The number of compared candidates.
        choices: Choices,
        /// The average number of reports that a server sends per request, 1–10000.
        overhead: NonZeroU32,
    },
    /// Sends to one server after another until one is not too busy.
    Bounce {
        /// The maximum number of servers to try, 1–16.
        attempts: NonZeroU32,
    },
    /// Least outstanding requests.
    LeastOutstanding {
        /// The number of compared candidates.
        choices: Choices,
    },
    /// Queries a ledger for the least loaded server of a group.
    Ledger {
        /// The approximate number of servers that share a ledger, 1–65536.
        group: NonZeroU32,
        /// The policy to use when the ledger does not answer.
        fallback: Fallback,
    },
    /// Maglev hashing.
    Maglev(MaglevParams),
    /// Least latency average × (outstanding + 1).
    PeakEwma(PeakEwmaParams),
    /// Queries servers for their load.
    Probe {
        /// The number of queried servers, 1–16.
        choices: NonZeroU32,
    },
    /// Weighted random.
    Random,
    /// Ketama-like consistent hashing.
    RingHash(RingHashParams),
    /// Smooth weighted round robin.
    RoundRobin,
    /// Least outstanding requests within a subset of the endpoints.
    Subset(SubsetParams),
}

/// A table of a hashing policy that is too small for its endpoints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnevenShares {
    /// The name of the parameter that bounds the table.
    pub parameter: &'static str,
    /// The present value of the parameter.
    pub value: u32,
    /// The smallest value that is sufficient.
    pub wanted: u32,
}

/// The bounds of parameters that their types do not express.
mod bounds {
    pub(super) const OVERHEAD: u32 = 10_000;
    pub(super) const ATTEMPTS: u32 = 16;
    pub(super) const GROUP: u32 = 65_536;
}

/// Converts a non-zero constant.
const fn positive(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

impl PolicySpec {
    /// Returns the policy's name without parameters, which is a label in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ALsq { .. } => "a-lsq",
            Self::Bounce { .. } => "bounce",
            Self::LeastOutstanding { .. } => "lor",
            Self::Ledger { .. } => "ledger",
            Self::Maglev(_) => "maglev",
            Self::PeakEwma(_) => "peak-ewma",
            Self::Probe { .. } => "probe",
            Self::Random => "random",
            Self::RingHash(_) => "ring-hash",
            Self::RoundRobin => "round-robin",
            Self::Subset(_) => "subset",
        }
    }

    /// Returns the notation of each policy.
    #[must_use]
    pub const fn forms() -> &'static [Form] {
        forms::FORMS
    }

    /// Returns whether the policy picks by the hash of a request's key.
    #[must_use]
    pub const fn uses_hash(&self) -> bool {
        matches!(self, Self::Maglev(_) | Self::RingHash(_))
    }

    /// Returns whether the policy picks by the latency that
    /// [`Outstanding::finish`](crate::Outstanding) records.
    #[must_use]
    pub const fn uses_latency(&self) -> bool {
        matches!(self, Self::PeakEwma(_))
    }

    /// Returns whether equally healthy endpoints have shares in proportion to their weights at every load. The other
    /// policies draw candidates by weight, and prefer those that respond fast (`peak-ewma`) or that are in the client's
    /// subset (`subset`).
    #[must_use]
    pub const fn keeps_weights(&self) -> bool {
        !matches!(self, Self::PeakEwma(_) | Self::Subset(_))
    }

    /// Returns whether the policy needs the help of inbound proxies, without which it behaves like `lor`.
    #[must_use]
    pub const fn is_collaborative(&self) -> bool {
        matches!(
            self,
            Self::ALsq { .. } | Self::Bounce { .. } | Self::Ledger { .. } | Self::Probe { .. }
        )
    }

    /// Returns the unsolicited messages that the inbound proxies of servers send when their clients
    /// use this policy.
    #[must_use]
    pub fn announce(&self) -> Announce {
        match self {
            Self::ALsq { overhead, .. } => Announce::Balancers {
                overhead: f64::from(overhead.get()),
            },
            Self::Ledger { .. } => Announce::Ledger,
            _ => Announce::Never,
        }
    }

    /// Returns the groups that servers form under this policy, one for each ledger; `None` if it has no groups.
    #[must_use]
    pub fn groups(&self, view: &View) -> Option<Groups> {
        match self {
            Self::Ledger { group, .. } => Some(Groups::of_size(view, group.get())),
            _ => None,
        }
    }

    /// Returns a parameter that leaves `endpoints` with visibly unequal shares, and a better value; `None` = shares are
    /// as equal as the policy can make them.
    #[must_use]
    pub fn uneven_shares(&self, endpoints: usize) -> Option<UnevenShares> {
        let (parameter, value, wanted) = match self {
            Self::Maglev(p) => ("table_size", p.table_size, p.wanted_table_size(endpoints)?),
            Self::RingHash(p) => ("max", p.max, p.wanted_max(endpoints)?),
            _ => return None,
        };
        Some(UnevenShares {
            parameter,
            value,
            wanted,
        })
    }

    /// Builds the policy, with its tables, for a view.
    ///
    /// # Errors
    ///
    /// If a parameter is out of range, which is possible only for a `PolicySpec` that was constructed in code and not
    /// parsed.
    pub fn build(&self, view: &View) -> Result<Box<dyn Policy>, SpecError> {
        self.validate()?;
        Ok(self.build_valid(view, None))
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
            Self::ALsq { choices, overhead } => {
                check.choices(*choices)?;
                check.range("overhead", overhead.get(), 1..=bounds::OVERHEAD)
            }
            Self::Bounce { attempts } => check.range("tries", attempts.get(), 1..=bounds::ATTEMPTS),
            Self::LeastOutstanding { choices } => check.choices(*choices),
            Self::Ledger { group, .. } => check.range("group", group.get(), 1..=bounds::GROUP),
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
            Self::Probe { choices } => {
                check.range("choices", choices.get(), 1..=Probe::MAX_CHOICES)
            }
            Self::Random | Self::RoundRobin => Ok(()),
            Self::RingHash(p) => {
                check.range("min", p.min, 1..=RingHashParams::LIMIT)?;
                check.range("max", p.max, 1..=RingHashParams::LIMIT)?;
                if p.min > p.max {
                    return Err(check.above_max(p.min, p.max));
                }
                check.balance_factor(p.hash_balance_factor)
            }
            Self::Subset(p) => {
                check.range("size", p.size, 1..=SubsetParams::MAX_SIZE)?;
                check.range("client", p.client, 0..=SubsetParams::MAX_CLIENT)?;
                check.range("choices", p.choices, 1..=SubsetParams::MAX_CHOICES)
            }
        }
    }
}

impl BuildPolicy for PolicySpec {
    fn validate(&self) -> Result<(), SpecError> {
        self.validate()
    }

    fn build_valid(&self, view: &View, previous: Option<SharedTables>) -> Box<dyn Policy> {
        match self {
            Self::ALsq { choices, .. } => Box::new(LeastOutstanding::<true>::new(*choices)),
            Self::Bounce { attempts } => Box::new(Bounce::of(view, attempts.get())),
            Self::LeastOutstanding { choices } => {
                Box::new(LeastOutstanding::<false>::new(*choices))
            }
            Self::Ledger { group, fallback } => {
                Box::new(Hosted::new(view, group.get(), *fallback, previous))
            }
            Self::Maglev(p) => {
                let (size, bound) = (p.table_size, p.hash_balance_factor);
                Box::new(Hashed::<MaglevTable>::new(view, size, bound, previous))
            }
            Self::PeakEwma(p) => Box::new(PeakEwma::new(p, view)),
            Self::Probe { choices } => Box::new(Probe::of(view, choices.get(), previous)),
            Self::Random => Box::new(Random),
            Self::RingHash(p) => {
                let size = RingSize {
                    min: p.min,
                    max: p.max,
                };
                let bound = p.hash_balance_factor;
                Box::new(Hashed::<Ring>::new(view, size, bound, previous))
            }
            Self::RoundRobin => Box::new(RoundRobin::new(view)),
            Self::Subset(p) => Box::new(Subset::new(p, view)),
        }
    }
}

impl Default for PolicySpec {
    fn default() -> Self {
        Self::LeastOutstanding {
            choices: Choices::TWO,
        }
    }
}

#[cfg(test)]
mod tests;
