//! Token authentication.

use std::future::Future;
use std::pin::Pin;

/// The required audience of tokens. A token for the API server, or for another service, is rejected: a recipient of
/// it could replay it here.
pub const AUDIENCE: &str = "maglor.dev/identity";

/// Who has shown a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The namespace of its account.
    pub namespace: String,
    /// The account.
    pub service_account: String,
    /// The pod that the token was made for, if known.
    pub pod: Option<String>,
}

/// Why a token is rejected. The errors never contain the token.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// It has another audience.
    #[error("the token's audience is not {AUDIENCE}")]
    Audience,
    /// It has expired, was never issued, or its pod has gone.
    #[error("invalid token: {0}")]
    Invalid(String),
    /// There is none.
    #[error("token missing")]
    Missing,
    /// Its owner is a person, or a part of Kubernetes.
    #[error("`{0}` is not a service account")]
    NoServiceAccount(String),
    /// Validation is currently unavailable.
    #[error("cannot validate tokens now: {0}")]
    Unavailable(String),
}

impl TokenError {
    /// The word in metrics and logs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Audience => "audience",
            Self::Invalid(_) => "invalid-token",
            Self::Missing => "no-token",
            Self::NoServiceAccount(_) => "no-service-account",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// The outcome of [`Authenticator::authenticate`], some time later.
pub type Authenticated<'a> = Pin<Box<dyn Future<Output = Result<Caller, TokenError>> + Send + 'a>>;

/// Validates a token; in doubt it is rejected.
pub trait Authenticator: Send + Sync {
    /// Who stands behind the token; it is not empty.
    fn authenticate<'a>(&'a self, token: &'a str) -> Authenticated<'a>;
}
