//! Reviews the tokens of users: valid for the API server (TokenReview), and permitted to `get` the URL
//! `/maglor/dashboard` (SubjectAccessReview).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::dashboard::page::{Denied, Review, Reviewer};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

/// Timeout of a review.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// The URL that stands for the dashboard in permissions.
pub(crate) const URL: &str = "/maglor/dashboard";

/// Reviews tokens by requests to the API server.
pub(crate) struct Reviews {
    client: Client,
}

impl Reviews {
    /// Creates a reviewer with a client that may create `tokenreviews` and `subjectaccessreviews`.
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Reviewer for Reviews {
    fn review(&self, token: &str) -> Review {
        let (client, token) = (self.client.clone(), token.to_owned());
        Box::pin(async move {
            let reviewed = tokio::time::timeout(LIMIT, review(client, token)).await;
            let reviewed = reviewed.map_err(|_| Denied::Unavailable)?;
            if reviewed == Err(Denied::Unavailable) {
                tracing::warn!("dashboard: the API server cannot review a token");
            }
            reviewed
        })
    }
}

async fn review(client: Client, token: String) -> Result<(), Denied> {
    let question = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token),
            audiences: None,
        },
        ..TokenReview::default()
    };
    let params = PostParams::default();
    let answer = Api::<TokenReview>::all(client.clone())
        .create(&params, &question)
        .await;
    let status = answer
        .map_err(|_| Denied::Unavailable)?
        .status
        .unwrap_or_default();
    let (Some(true), Some(user)) = (status.authenticated, status.user) else {
        return Err(Denied::Invalid);
    };
    let question = access(user);
    let answer = Api::<SubjectAccessReview>::all(client)
        .create(&params, &question)
        .await;
    let status = answer.map_err(|_| Denied::Unavailable)?.status;
    match status.is_some_and(|status| status.allowed) {
        true => Ok(()),
        false => Err(Denied::Forbidden),
    }
}

/// Returns the question whether a user may read the dashboard.
fn access(user: UserInfo) -> SubjectAccessReview {
    let extra: Option<BTreeMap<String, Vec<String>>> = user.extra;
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            extra,
            groups: user.groups,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(URL.to_owned()),
                verb: Some("get".to_owned()),
            }),
            uid: user.uid,
            user: user.username,
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
