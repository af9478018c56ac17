//! Checks that the cluster's definition of `AuthorizationPolicy` has all fields of this program. The API server drops
//! unknown fields, and a rule without one of its conditions matches more requests.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::Event;
use crate::{api_server, crd};

const NAME: &str = "authorizationpolicies.maglor.dev";
/// Pause after a failure.
const REST: Duration = Duration::from_secs(2);

/// Follows the definition until the receiver is dropped. `known` is set after the first event; policies are not read
/// before that.
pub(super) async fn follow(
    client: Client,
    events: mpsc::Sender<Event>,
    known: watch::Sender<bool>,
) {
    let own = crd::definitions().ok().and_then(|all| {
        let named = |one: &CustomResourceDefinition| one.metadata.name.as_deref() == Some(NAME);
        all.into_iter().find(named)
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let mut stream = pin!(watch_object(definitions, NAME));
    let mut reported = None;
    while let Some(watched) = stream.next().await {
        let field = match watched {
            // Policies are deleted with their definition.
            Ok(there) => own
                .as_ref()
                .zip(there)
                .and_then(|(own, there)| crd::pruned(own, &there)),
            Err(error) => {
                tracing::warn!(definition = NAME, %error, "watch of a CustomResourceDefinition failed; retrying");
                tokio::time::sleep(REST).await;
                if !api_server::failed_with(&error, 403) || reported.is_some() {
                    continue;
                }
                // The definition may not be read. Pruned fields cannot be detected, so policies are read as they are
                // stored.
                None
            }
        };
        if reported.as_ref() == Some(&field) {
            continue;
        }
        if let Some(field) = &field {
            tracing::error!(
                definition = NAME,
                field,
                "the CustomResourceDefinition in the cluster is older than this controller and lacks the field; policies are not applied until the current definitions are installed"
            );
        }
        reported = Some(field.clone());
        if events.send(Event::Pruned(field)).await.is_err() {
            return;
        }
        known.send_replace(true);
    }
}
