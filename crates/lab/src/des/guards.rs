//! Server failures, and each balancer's protection against them: the guards of
//! [`maglor_balance::guard`], as in one proxy.

use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::outlier::OutlierParams;
use maglor_balance::guard::retry::{Condition, Conditions, RetryPolicy};
use maglor_balance::guard::retry_budget::BudgetParams;

/// Servers with a share of error responses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The number of failing servers of each service: its first ones; at most all of them.
    pub servers: u32,
    /// The share of their requests that fails, 0–1.
    pub share: f64,
    /// The work of a failure relative to that of a good response: 0 fails immediately, 1 after all of
    /// it.
    pub work: f64,
    /// The HTTP status of failures, 400–599.
    pub status: u16,
}

impl Faults {
    /// The default status of a failure.
    pub const STATUS: u16 = 500;
}

/// The guards of a balancer.
///
/// # Defaults
///
/// None: neither retries nor ejection, breaker or limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guards {
    /// When a failed request is sent again, to another server; at most 20 attempts.
    pub retries: Option<RetryPolicy>,
    /// The budget of retries.
    pub budget: BudgetParams,
    /// When a server is ejected. Probes of its recovery get the response that a request would get.
    pub ejection: Option<OutlierParams>,
    /// When all requests are rejected for a while.
    pub breaker: Option<BreakerParams>,
    /// The limit of a balancer's requests in progress, 1 or more; further ones get an error
    /// response at once.
    pub max_requests: Option<u32>,
}

impl Guards {
    /// Returns retries of responses with a server error, with this number of attempts per request
    /// and the default budget.
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
