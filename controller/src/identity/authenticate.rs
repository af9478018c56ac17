//! Authentication of clients by token.

use std::future::Future;
use std::pin::Pin;

/// The required audience of tokens. Tokens for the API server or another service are rejected, because other
/// recipients of such a token could replay it here.
pub const AUDIENCE: &str = "maglor.dev/identity";

/// The owner of a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The namespace of the owner's service account.
    pub namespace: String,
    /// The name of the owner's service account.
    pub service_account: String,
    /// The pod to which the token is bound; `None` if unknown.
    pub pod: Option<String>,
}

/// Reason why a token is rejected. The errors never contain the token.
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
    /// Returns the label of the error in metrics and logs.
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

/// Validates tokens. A token that cannot be validated is rejected.
pub trait Authenticator: Send + Sync {
    /// Returns the owner of a token, which is not empty.
    fn authenticate<'a>(&'a self, token: &'a str) -> Authenticated<'a>;
}
