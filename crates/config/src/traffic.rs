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

/// The retries of a route.
///
/// # Defaults
/// [`RetryPolicy`]'s: retries that are safe for any request. No per-try timeout.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// Attempts, conditions, pauses.
    pub policy: RetryPolicy,
    /// The timeout of each attempt, up to the head of its response; at most the route's timeout.
    /// With [`Forward::hedge`](crate::route::Forward::hedge) without a delay of its own it does not
    /// end the attempt but starts the next.
    pub per_try_timeout: Option<Duration>,
    /// A response with one of these meets the condition `retriable-headers`.
    pub retriable_headers: Vec<HeaderMatch>,
}

/// Copies of requests for another cluster; the responses are discarded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mirror {
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// The share of the requests that is copied.
    pub percent: Percent,
}

/// A limit on the rate of requests; above it they get 429.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// The rate and burst of the bucket, or of each key's.
    pub params: RateParams,
    /// The key of separate limits; `None` = all requests together.
    pub key: Option<RateKey>,
    /// The maximum number of remembered keys.
    pub max_keys: usize,
}

/// The part of a request that is the key of separate limits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RateKey {
    /// The value of this header; requests without it share one bucket.
    Header(HeaderName),
    /// The client's address, without port.
    SourceAddress,
}

/// Fault injection.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The shares, the delay and the response.
    pub params: FaultParams,
    /// Only requests that match all of these are affected; empty = all requests.
    pub headers: Vec<HeaderMatch>,
}
