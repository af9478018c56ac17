//! Traffic policies of a route: retries, hedging, mirrors, rate limits, faults. Parameters of decisions are those of
//! [`maglor_balance::guard`].

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use maglor_balance::guard::Percent;
use maglor_balance::guard::fault::FaultParams;
use maglor_balance::guard::rate::RateParams;
use maglor_balance::guard::retry::RetryPolicy;

use crate::route::HeaderMatch;

/// When a request is sent again.
///
/// # Defaults
/// [`RetryPolicy`]'s: what is safe for any request. No per-try timeout.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// Attempts, conditions, pauses.
    pub policy: RetryPolicy,
    /// For each try, up to the head of its response; at most the route's timeout. With
    /// [`Forward::hedge`](crate::route::Forward::hedge) of no delay of its own it ends no try but
    /// starts the next.
    pub per_try_timeout: Option<Duration>,
    /// A response with one of these meets the condition `retriable-headers`.
    pub retriable_headers: Vec<HeaderMatch>,
}

/// Copies of requests for another cluster; what comes back is thrown away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mirror {
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Which share of the requests is copied.
    pub percent: Percent,
}

/// A limit on the rate of requests; above it 429.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// Rate and burst of the bucket, or of each key's.
    pub params: RateParams,
    /// What is limited apart; `None` = all requests together.
    pub key: Option<RateKey>,
    /// Keys that are remembered.
    pub max_keys: usize,
}

/// What of a request is limited apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RateKey {
    /// The value of this header; requests without it share one bucket.
    Header(HeaderName),
    /// The client's address, without port.
    SourceAddress,
}

/// Faults on purpose.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which shares, which delay, which answer.
    pub params: FaultParams,
    /// Only requests that match all of these; empty = all requests.
    pub headers: Vec<HeaderMatch>,
}
