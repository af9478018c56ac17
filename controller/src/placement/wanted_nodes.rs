//! The wanted nodes of Deployments' pods. Every controller replica reads them, for the admission of new pods.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use maglor_service_graph::relocate::Spread;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::affinity::{Place, choose};
use super::api::Server;
use super::pod::Pod;
use super::status::is_wanted;
use crate::crd::{PlacementMode, PlacementPolicy};
use crate::index::facts::Key;
use crate::names::is_subdomain;

/// Pause after a failed watch, and while the kind is not defined.
const REST: Duration = Duration::from_secs(5);
/// Maximum time for which the admission of a pod is delayed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The wanted nodes of a policy, by Deployment.
type Wanted = BTreeMap<Key, Spread>;

/// The wanted nodes by policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct WantedNodes(Arc<RwLock<BTreeMap<String, Wanted>>>);

impl WantedNodes {
    /// Follows the policies; never returns.
    pub(crate) async fn follow(self, client: Client) {
        let api: Api<PlacementPolicy> = Api::all(client);
        let mut stream = pin!(watcher(api, watcher::Config::default()));
        // A list replaces the state only when the list is complete.
        let mut listed = BTreeMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(policy)) => drop(listed.insert(name(&policy), wanted(&policy))),
                Ok(Event::InitDone) => self.change(|all| *all = std::mem::take(&mut listed)),
                Ok(Event::Apply(policy)) => {
                    self.change(|all| drop(all.insert(name(&policy), wanted(&policy))));
                }
                Ok(Event::Delete(policy)) => self.change(|all| drop(all.remove(&name(&policy)))),
                Err(error) => {
                    tracing::debug!(%error, "watch of PlacementPolicies failed; retrying");
                    sleep(REST).await;
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Wanted>)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn of(&self, deployment: &Key) -> Option<Spread> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.values()
            .find_map(|wanted| wanted.get(deployment))
            .cloned()
    }

    /// Returns the preferred node of a pod that is about to be created; `None` if there is none or too little is
    /// known.
    pub(crate) async fn place(
        &self,
        client: &Client,
        namespace: &str,
        pod: &Value,
    ) -> Option<Place> {
        let pod = Pod::read(pod);
        let (hash, deployment) = pod.deployment()?;
        let wanted = self.of(&Key::new(namespace, deployment))?;
        let set = pod.replica_set().filter(|set| is_subdomain(set))?;
        let server = Server::new(client.clone());
        let asked = async {
            let ticket = server.ticket(namespace, set).await?;
            let siblings = server.siblings(namespace, set, hash).await?;
            Ok::<_, kube::Error>((ticket, siblings))
        };
        match timeout(PATIENCE, asked).await {
            Ok(Ok((ticket, siblings))) => choose(&wanted, &siblings, ticket.as_ref()),
            Ok(Err(error)) => {
                tracing::warn!(namespace, deployment, %error, "cannot compute the preferred node of a new pod; the scheduler decides alone");
                None
            }
            Err(_) => {
                tracing::warn!(
                    namespace,
                    deployment,
                    "timeout while computing the preferred node of a new pod; the scheduler decides alone"
                );
                None
            }
        }
    }
}

fn name(policy: &PlacementPolicy) -> String {
    policy.metadata.name.clone().unwrap_or_default()
}

/// Returns the wanted nodes of a policy; empty unless the policy is valid and has the mode `Apply`. If it was changed
/// to an invalid one, its old status is ignored.
fn wanted(policy: &PlacementPolicy) -> Wanted {
    let mut wanted = Wanted::new();
    let refused = policy.status.iter().any(|status| !status.is_accepted());
    if policy.spec.mode() != PlacementMode::Apply || refused || policy.spec.check().is_err() {
        return wanted;
    }
    let services = policy.status.iter().flat_map(|status| &status.services);
    for service in services.filter(|service| is_wanted(service)) {
        let Some((namespace, _)) = service.name.split_once('/') else {
            continue;
        };
        for deployment in &service.deployments {
            wanted.insert(Key::new(namespace, deployment), service.wanted.clone());
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::{PlacementPolicySpec, PlacementPolicyStatus, ServicePlacement};
    use crate::placement::status::refused;

    #[test]
    fn only_what_is_applied_is_wanted() {
        let service = |name: &str, state: &str| ServicePlacement {
            name: format!("shop/{name}"),
            state: state.to_owned(),
            deployments: vec![format!("{name}-v1"), format!("{name}-v2")],
            wanted: [("n1".to_owned(), 2)].into(),
            ..ServicePlacement::default()
        };
        let spec = PlacementPolicySpec {
            namespaces: vec!["shop".to_owned()],
            ..PlacementPolicySpec::default()
        };
        let mut policy = PlacementPolicy::new("p", spec);
        policy.status = Some(PlacementPolicyStatus {
            services: vec![service("web", "Moving"), service("cart", "Planned")],
            ..PlacementPolicyStatus::default()
        });
        assert!(wanted(&policy).is_empty());
        policy.spec.mode = Some(PlacementMode::Apply);
        let keys: Vec<String> = wanted(&policy).keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["shop/web-v1", "shop/web-v2"]);
        let wanted_nodes = WantedNodes::default();
        wanted_nodes.change(|all| drop(all.insert("p".to_owned(), wanted(&policy))));
        assert_eq!(
            wanted_nodes.of(&Key::new("shop", "web-v1")),
            Some([("n1".to_owned(), 2)].into())
        );
        assert_eq!(wanted_nodes.of(&Key::new("shop", "cart-v1")), None);
        // An invalid policy wants no nodes.
        let mut invalid = policy.clone();
        invalid.spec.namespaces.clear();
        assert!(invalid.spec.check().is_err() && wanted(&invalid).is_empty());
        let before = policy.status.clone().unwrap_or_default();
        let why = "the nodes: there is no node `n9`";
        policy.status = Some(refused(&before, "Invalid", why, None));
        assert!(wanted(&policy).is_empty());
    }
}
