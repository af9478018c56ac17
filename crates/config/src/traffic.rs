//! Traffic policies of a route: retries, hedging, mirrors, rate limits, faults. The parameters of decisions are types
//! of [`maglor_balance::guard`].

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
///
/// Those of [`RetryPolicy`]: retries that are safe for any request. No per-try timeout.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// The attempts, conditions and backoff.
    pub policy: RetryPolicy,
    /// The timeout of each attempt, up to the head of its response; at most the route's timeout. `None` = only the
    /// route's timeout applies. If the route has a [`hedge`](crate::route::Forward::hedge) without a delay, this
    /// timeout does not cancel the attempt but starts the next one.
    pub per_try_timeout: Option<Duration>,
    /// Conditions on response headers; a response that matches one of them meets the retry condition
    /// `retriable-headers`.
    pub retriable_headers: Vec<HeaderMatch>,
}

/// Copies of requests for another cluster; the responses are discarded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mirror {
    /// The name of the cluster that gets the copies.
    pub cluster: Arc<str>,
    /// The share of the requests that is copied.
    pub percent: Percent,
}

/// A limit on the rate of requests; requests above it get a 429 response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// The rate and burst of the bucket, or of the bucket of each key.
    pub params: RateParams,
    /// The key of separate limits; `None` = all requests share one limit.
    pub key: Option<RateKey>,
    /// The maximum number of keys with a bucket.
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

/// The fault injection of a route.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The shares of affected requests, the delay and the error response.
    pub params: FaultParams,
    /// Only requests that match all of these are affected; empty = all requests.
    pub headers: Vec<HeaderMatch>,
}
