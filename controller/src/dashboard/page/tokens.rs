//! Who may read the API from the network: users whose bearer token is accepted.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header;
use http::request::Parts;
use maglor_telemetry::admin::network_of;
use tokio::time::Instant;

/// Time for which an accepted token is not reviewed again.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Interval in which the token of a stream is checked.
const CHECKED: Duration = Duration::from_secs(5);
/// Maximum number of accepted tokens that are remembered.
const MOST_TOKENS: usize = 64;
/// Maximum length of a token.
const LONGEST: usize = 8 * 1024;
/// Number of reviews that a source of the network may cause in the interval.
const REVIEWS: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of sources that are counted.
const MOST_SOURCES: usize = 1024;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Denied {
    /// The user may not read the dashboard.
    Forbidden,
    /// The token is invalid or expired.
    Invalid,
    /// There were too many reviews of this source's tokens.
    TooOften,
    /// The reviewer cannot be reached.
    Unavailable,
}

/// The result of a review.
pub type Review = Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>;

/// Reviews tokens.
pub trait Reviewer: Send + Sync {
    /// Returns whether the user of a token may read the dashboard.
    fn review(&self, token: &str) -> Review;
}

/// Reviewed tokens.
pub(crate) struct Tokens {
    reviewer: Arc<dyn Reviewer>,
    accepted: Mutex<Vec<(String, Instant)>>,
    sources: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Tokens {
    pub(crate) fn new(reviewer: Arc<dyn Reviewer>) -> Self {
        Self {
            reviewer,
            accepted: Mutex::default(),
            sources: Mutex::default(),
        }
    }

    /// Checks a token from a source.
    pub(crate) async fn check(&self, token: &str, source: IpAddr) -> Result<(), Denied> {
        if token.is_empty() || token.len() > LONGEST {
            return Err(Denied::Invalid);
        }
        {
            let mut accepted = locked(&self.accepted);
            accepted.retain(|(_, at)| at.elapsed() < REMEMBERED);
            if accepted.iter().any(|(own, _)| own == token) {
                return Ok(());
            }
        }
        if !self.may_review(network_of(source)) {
            return Err(Denied::TooOften);
        }
        self.reviewer.review(token).await?;
        let mut accepted = locked(&self.accepted);
        if accepted.len() >= MOST_TOKENS {
            accepted.remove(0);
        }
        accepted.push((token.to_owned(), Instant::now()));
        Ok(())
    }

    /// Resolves when an accepted token is no longer accepted; it is reviewed as often as for requests.
    pub(crate) async fn revoked(self: Arc<Self>, token: String, source: IpAddr) {
        loop {
            tokio::time::sleep(CHECKED).await;
            // An outage of the API server ends no stream.
            if let Err(Denied::Forbidden | Denied::Invalid) = self.check(&token, source).await {
                return;
            }
        }
    }

    fn may_review(&self, source: IpAddr) -> bool {
        let mut sources = locked(&self.sources);
        let now = Instant::now();
        sources.retain(|_, (begun, _)| now - *begun < INTERVAL);
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            return false;
        }
        let (_, count) = sources.entry(source).or_insert((now, 0));
        *count += 1;
        *count <= REVIEWS
    }
}

/// Returns the bearer token of a request; `None` if it has none.
pub(crate) fn bearer(head: &Parts) -> Option<&str> {
    let value = head.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// Accepts `good`, until it is revoked.
    #[derive(Default)]
    struct Revocable(AtomicBool);

    impl Reviewer for Revocable {
        fn review(&self, token: &str) -> Review {
            let revoked = self.0.load(Ordering::Relaxed);
            let result = match (token, revoked) {
                ("good", false) => Ok(()),
                ("good", true) => Err(Denied::Forbidden),
                _ => Err(Denied::Unavailable),
            };
            Box::pin(async move { result })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_token_is_noticed_within_a_minute_and_an_outage_revokes_none() {
        let reviewer = Arc::new(Revocable::default());
        let tokens = Arc::new(Tokens::new(Arc::<Revocable>::clone(&reviewer)));
        let source = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(tokens.check("good", source).await, Ok(()));
        let revoked = |token: &str| Arc::clone(&tokens).revoked(token.to_owned(), source);
        let hour = Duration::from_secs(3600);
        let later = tokio::time::timeout(hour, revoked("good")).await;
        assert!(later.is_err(), "it is still accepted");
        let later = tokio::time::timeout(hour, revoked("unknown")).await;
        assert!(later.is_err(), "the API server does not respond");
        let begun = Instant::now();
        reviewer.0.store(true, Ordering::Relaxed);
        revoked("good").await;
        let noticed = begun.elapsed();
        assert!(noticed <= REMEMBERED + CHECKED, "{noticed:?}");
    }

    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Reviewer for Counting {
        fn review(&self, token: &str) -> Review {
            self.0.fetch_add(1, Ordering::Relaxed);
            let result = match token {
                "good" => Ok(()),
                _ => Err(Denied::Invalid),
            };
            Box::pin(async move { result })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_accepted_token_is_reviewed_once_a_minute_and_others_at_a_limited_rate() {
        let reviewer = Arc::new(Counting::default());
        let tokens = Tokens::new(Arc::<Counting>::clone(&reviewer));
        let source = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..100 {
            assert_eq!(tokens.check("good", source).await, Ok(()));
        }
        assert_eq!(reviewer.0.load(Ordering::Relaxed), 1);
        tokio::time::advance(REMEMBERED).await;
        assert_eq!(tokens.check("good", source).await, Ok(()));
        assert_eq!(reviewer.0.load(Ordering::Relaxed), 2);
        let mut denied = Vec::new();
        for _ in 0..100 {
            denied.push(tokens.check("bad", source).await);
        }
        assert_eq!(denied.first(), Some(&Err(Denied::Invalid)));
        assert_eq!(denied.last(), Some(&Err(Denied::TooOften)));
        assert_eq!(reviewer.0.load(Ordering::Relaxed), 2 + REVIEWS - 1);
        // An accepted token needs no review.
        assert_eq!(tokens.check("good", source).await, Ok(()));
        let other = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(tokens.check("bad", other).await, Err(Denied::Invalid));
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(tokens.check(&long, other).await, Err(Denied::Invalid));
    }
}
