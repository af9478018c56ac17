//! What goes wrong at servers, and what each balancer has against it: the guards of
//! [`maglor_balance::guard`], as in one proxy.

use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::budget::BudgetParams;
use maglor_balance::guard::outlier::OutlierParams;
use maglor_balance::guard::retry::{Condition, Conditions, RetryPolicy};

/// Servers that answer some requests with an error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// How many of each service's servers: its first ones; at most all of them.
    pub servers: u32,
    /// The share of their requests that fails, 0–1.
    pub share: f64,
    /// What a failure costs of the work of a good answer: 0 fails at once, 1 after all of it.
    pub work: f64,
    /// The status of HTTP that they answer with, 400–599.
    pub status: u16,
}

impl Faults {
    /// The status of a failure where none is given.
    pub const STATUS: u16 = 500;
}

/// What a balancer does about failures.
///
/// # Defaults
///
/// Nothing: neither retries nor ejection, breaker or limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guards {
    /// When a request that failed is sent again, to another server; at most 20 attempts.
    pub retries: Option<RetryPolicy>,
    /// How many retries there may be.
    pub budget: BudgetParams,
    /// When a server is left out. Probes of its return are answered as requests are.
    pub ejection: Option<OutlierParams>,
    /// When no request is sent at all for a while.
    pub breaker: Option<BreakerParams>,
    /// Requests that a balancer may have under way, 1 or more; one more is answered with an error at once.
    pub max_requests: Option<u32>,
}

impl Guards {
    /// Retries of answers with a server error, so many for a request, with the default budget.
    #[must_use]
    pub fn retrying(attempts: u32) -> Self {
        let policy = RetryPolicy {
            attempts,
            conditions: Conditions::of(&[Condition::FiveXx]),
            ..RetryPolicy::default()
        };
        Self {
            retries: Some(policy),
            ..Self::default()
        }
    }

    pub(super) fn are_on(&self) -> bool {
        self.retries.is_some()
            || self.ejection.is_some()
            || self.breaker.is_some()
            || self.max_requests.is_some()
    }
}
