//! Validates Kubernetes tokens with the API server (`authentication.k8s.io/v1` TokenReview).

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;

use super::authenticate::{AUDIENCE, Authenticated, Authenticator, Caller, TokenError};

/// Maximum number of concurrent requests to the API server, so that a rollout of thousands of pods does not overload
/// it.
const AT_ONCE: usize = 32;
/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(5);
/// The prefix of service account names (`serviceaccount.ServiceAccountUsernamePrefix`).
const PREFIX: &str = "system:serviceaccount:";
/// The key of the name of the pod to which a token is bound.
const POD: &str = "authentication.kubernetes.io/pod-name";

/// Validates tokens by TokenReviews.
pub struct Reviews {
    api: Api<TokenReview>,
    at_once: Semaphore,
}

impl Reviews {
    /// Creates a validator with this client, whose account needs the permission to `create` `tokenreviews`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
            at_once: Semaphore::new(AT_ONCE),
        }
    }

    async fn review(&self, token: &str) -> Result<Caller, TokenError> {
        let unavailable =
            |error: &dyn std::fmt::Display| TokenError::Unavailable(error.to_string());
        let place = tokio::time::timeout(LIMIT, self.at_once.acquire()).await;
        let _place = place.map_err(|error| unavailable(&error))?;
        let question = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let params = PostParams::default();
        let asked = tokio::time::timeout(LIMIT, self.api.create(&params, &question)).await;
        let answer = asked
            .map_err(|error| unavailable(&error))?
            .map_err(|error| unavailable(&error))?;
        judge(answer.status.unwrap_or_default())
    }
}

impl Authenticator for Reviews {
    fn authenticate<'a>(&'a self, token: &'a str) -> Authenticated<'a> {
        Box::pin(self.review(token))
    }
}

/// Interprets a response. A server that does not return the audience has not checked it.
fn judge(status: TokenReviewStatus) -> Result<Caller, TokenError> {
    if let Some(error) = status.error.filter(|error| !error.is_empty()) {
        return Err(TokenError::Invalid(error));
    }
    if status.authenticated != Some(true) {
        return Err(TokenError::Invalid("not authenticated".to_owned()));
    }
    let audiences = status.audiences.unwrap_or_default();
    if !audiences.iter().any(|audience| audience == AUDIENCE) {
        return Err(TokenError::Audience);
    }
    let user = status.user.unwrap_or_default();
    let name = user.username.unwrap_or_default();
    let account = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once(':'));
    let Some((namespace, account)) =
        account.filter(|(ns, name)| !ns.is_empty() && !name.is_empty())
    else {
        return Err(TokenError::NoServiceAccount(name));
    };
    let pod = user
        .extra
        .as_ref()
        .and_then(|extra| extra.get(POD)?.first());
    Ok(Caller {
        namespace: namespace.to_owned(),
        service_account: account.to_owned(),
        pod: pod.cloned(),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    /// Returns the response of an API server to a valid token.
    fn good() -> TokenReviewStatus {
        let extra = [(POD.to_owned(), vec!["cart-0".to_owned()])];
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![AUDIENCE.to_owned()]),
            error: None,
            user: Some(UserInfo {
                username: Some("system:serviceaccount:shop:cart".to_owned()),
                extra: Some(extra.into()),
                ..UserInfo::default()
            }),
        }
    }

    #[test]
    fn a_service_account_is_known_by_its_token() {
        let caller = Caller {
            namespace: "shop".to_owned(),
            service_account: "cart".to_owned(),
            pod: Some("cart-0".to_owned()),
        };
        assert_eq!(judge(good()), Ok(caller));
    }

    #[test]
    fn in_doubt_no_token_is_accepted() {
        let user = |name: &str| TokenReviewStatus {
            user: Some(UserInfo {
                username: Some(name.to_owned()),
                ..UserInfo::default()
            }),
            ..good()
        };
        let invalid = |status| judge(status).unwrap_err().word();
        assert_eq!(invalid(TokenReviewStatus::default()), "invalid-token");
        let error = Some("cannot say".to_owned());
        assert_eq!(
            invalid(TokenReviewStatus { error, ..good() }),
            "invalid-token"
        );
        let authenticated = None;
        assert_eq!(
            invalid(TokenReviewStatus {
                authenticated,
                ..good()
            }),
            "invalid-token"
        );
        for audiences in [
            None,
            Some(vec![]),
            Some(vec!["https://kubernetes".to_owned()]),
        ] {
            assert_eq!(
                invalid(TokenReviewStatus {
                    audiences,
                    ..good()
                }),
                "audience"
            );
        }
        for name in [
            "",
            "admin",
            "system:node:a",
            "system:serviceaccount:",
            "system:serviceaccount:shop",
            "system:serviceaccount::cart",
            "system:serviceaccount:shop:",
        ] {
            assert_eq!(invalid(user(name)), "no-service-account", "{name}");
        }
    }
}
