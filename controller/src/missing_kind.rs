//! Waits for the definition of a kind that the API server does not serve.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::sleep;

/// Pause after the definition is established, until the API server serves the kind.
const ESTABLISHED: Duration = Duration::from_millis(50);
/// Pause if definitions cannot be read, or if the definition was already established.
const UNEXPLAINED: Duration = Duration::from_secs(10);

/// Returns when the definition of a kind is established, and after a pause if the definition does not explain why the
/// kind is not served. `definition` is the name of the CustomResourceDefinition: `httproutes.gateway.networking.k8s.io`.
pub(crate) async fn wait(client: Client, definition: &str) {
    let config = watcher::Config::default().fields(&format!("metadata.name={definition}"));
    let mut definitions = pin!(watcher(Api::all(client), config));
    while let Some(event) = definitions.next().await {
        match event {
            Ok(Event::InitApply(one)) if is_established(&one) => return sleep(UNEXPLAINED).await,
            Ok(Event::Apply(one)) if is_established(&one) => return sleep(ESTABLISHED).await,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(definition, %error, "cannot read the CustomResourceDefinition");
                return sleep(UNEXPLAINED).await;
            }
        }
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut established = conditions.filter(|one| one.type_ == "Established");
    established.any(|one| one.status == "True")
}
