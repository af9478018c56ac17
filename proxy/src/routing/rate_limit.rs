//! Rate limits of requests, and the response fields that describe them.
//!
//! The fields are defined by draft-ietf-httpapi-ratelimit-headers-10.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::rate::{KeyedBuckets, RateParams, TokenBucket, Verdict};
use maglor_balance::{Rng, Time, hash_bytes};
use maglor_config::traffic::{RateKey, RateLimit};

use crate::protocol::fields::{Fields, Key, Known};
use crate::protocol::message::Request;

/// A rate limit at run time, shared by all workers.
#[derive(Debug)]
pub(crate) struct Limiter {
    config: RateLimit,
    buckets: Buckets,
}

#[derive(Debug)]
enum Buckets {
    One(TokenBucket),
    Keyed(RateKey, KeyedBuckets),
}

impl Limiter {
    /// Creates a full limiter, or returns `before` if its configuration is unchanged.
    pub(crate) fn build(config: &RateLimit, before: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(before) = before.filter(|before| before.config == *config) {
            return Arc::clone(before);
        }
        let buckets = match &config.key {
            None => Buckets::One(TokenBucket::new(config.params)),
            Some(key) => {
                // A client that knew the seed could choose a key that collides with those of others.
                let mut rng = Rng::seed(rand_seed());
                let buckets = KeyedBuckets::new(config.params, config.max_keys, &mut rng);
                Buckets::Keyed(key.clone(), buckets)
            }
        };
        Arc::new(Self {
            config: config.clone(),
            buckets,
        })
    }

    /// Returns whether a state is one of this limit.
    pub(crate) fn is_of(&self, state: &RateLimitState<'_>) -> bool {
        std::ptr::eq(&self.config.params, state.params)
    }

    /// Takes a token for a request of this client.
    pub(crate) fn take(
        &self,
        request: &Request,
        client: Option<IpAddr>,
        now: Time,
    ) -> RateLimitState<'_> {
        let verdict = match &self.buckets {
            Buckets::One(bucket) => bucket.take(now),
            Buckets::Keyed(key, buckets) => buckets.take(hash_of(key, request, client), now),
        };
        RateLimitState {
            params: &self.config.params,
            verdict,
        }
    }
}

/// State of a limit after a request.
#[derive(Debug)]
pub(crate) struct RateLimitState<'a> {
    params: &'a RateParams,
    verdict: Verdict,
}

impl RateLimitState<'_> {
    pub(crate) fn is_allowed(&self) -> bool {
        self.verdict.allowed
    }

    /// Returns the limit as a text.
    pub(crate) fn params(&self) -> String {
        let RateParams {
            burst,
            per,
            requests,
        } = self.params;
        format!("{requests} requests per {per:?}, burst {burst}")
    }

    /// Time until a rejected request would be allowed.
    pub(crate) fn retry_after(&self) -> Duration {
        self.verdict.retry_after
    }

    /// Sets the response fields that describe the limit.
    pub(crate) fn describe(&self, fields: &mut Fields) {
        let RateParams {
            burst,
            per,
            requests,
        } = self.params;
        // The draft describes a limit by a quota and a window; the window is the time in which the whole bucket
        // fills.
        let window = whole_seconds(per.mul_f64(f64::from(*burst) / f64::from((*requests).max(1))));
        let policy = format!("\"default\";q={burst};w={window}");
        fields.set(Known::RateLimitPolicy, policy.as_bytes());
        let reset = whole_seconds(self.verdict.reset);
        let state = format!("\"default\";r={};t={reset}", self.verdict.remaining);
        fields.set(Known::RateLimit, state.as_bytes());
    }
}

fn hash_of(key: &RateKey, request: &Request, client: Option<IpAddr>) -> u64 {
    match (key, client) {
        (RateKey::Header(name), _) => {
            let value = request.fields.get(Key::from(name));
            hash_bytes(value.unwrap_or_default())
        }
        (RateKey::SourceAddress, Some(IpAddr::V4(address))) => hash_bytes(&address.octets()),
        (RateKey::SourceAddress, Some(IpAddr::V6(address))) => hash_bytes(&address.octets()),
        // Clients of a Unix socket cannot be distinguished, so they share a bucket.
        (RateKey::SourceAddress, None) => hash_bytes(&[]),
    }
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

/// Rounds up to whole seconds, so that a client that waits this long does not retry too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
