//! Authentication of clients by token.

use std::future::Future;
use std::pin::Pin;

/// The required audience of tokens. A token for the API server, or for another service, is rejected: the other
/// recipient could replay it here.
pub const AUDIENCE: &str = "maglor.dev/identity";

/// The owner of a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The namespace of its service account.
    pub namespace: String,
    /// Its service account.
    pub service_account: String,
    /// The pod that the token is bound to, if known.
    pub pod: Option<String>,
}

/// The reason why a token is rejected. The errors never contain the token.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// The token has another audience.
    #[error("the token's audience is not {AUDIENCE}")]
    Audience,
    /// The token has expired, was never issued, or its pod is gone.
    #[error("invalid token: {0}")]
    Invalid(String),
    /// The request contains no token.
    #[error("token missing")]
    Missing,
    /// The owner is a user, or a component of Kubernetes.
    #[error("`{0}` is not a service account")]
    NoServiceAccount(String),
    /// Validation is currently unavailable.
    #[error("cannot validate tokens now: {0}")]
    Unavailable(String),
}

impl TokenError {
    /// Returns the label in metrics and logs.
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

/// The future of [`Authenticator::authenticate`].
pub type Authenticated<'a> = Pin<Box<dyn Future<Output = Result<Caller, TokenError>> + Send + 'a>>;

/// Validates tokens; rejects a token in doubt.
pub trait Authenticator: Send + Sync {
    /// Returns the owner of a token; the token is not empty.
    fn authenticate<'a>(&'a self, token: &'a str) -> Authenticated<'a>;
}
