//! Deletes objects of the controller that Kubernetes does not delete with it: trust bundles in every namespace, its
//! Secrets, Leases, and the communication graph. Run it only after the controller has ended, which would restore
//! them.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::ListParams;
use kube::{Api, Client};

use super::{LifecycleError, Say, asked, unless_missing};
use crate::crd::{CommunicationGraph, GRAPH_NAME};
use crate::writes::{self, Seen};

/// The prefix of the names of Leases: that of the leader, and one for each replica.
const LEASES: &str = "maglor-";
/// The ConfigMap with the roots.
const ROOTS: &str = "maglor-trust-bundle";
/// Secrets that the controller creates.
const SECRETS: [&str; 3] = ["maglor-ca", "maglor-ca-in-force", "maglor-webhook"];

/// Deletes the objects; `namespace` is the mesh's. The authority is deleted as well: copy its Secret before to keep
/// it.
///
/// # Errors
/// The API server rejects a request, or does not respond.
pub async fn clean_up(
    client: &Client,
    namespace: &str,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    let any = Seen::default();
    let all: Api<Namespace> = Api::all(client.clone());
    let all = all.list(&ListParams::default()).await;
    for one in all.map_err(asked("namespaces"))?.items {
        let name = one.metadata.name.unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
        let deleted = unless_missing(writes::delete(&maps, ROOTS, &any).await);
        if deleted
            .map_err(asked(format!("ConfigMap {name}/{ROOTS}")))?
            .is_some()
        {
            say(&format!("ConfigMap {name}/{ROOTS}: deleted"));
        }
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for name in SECRETS {
        let deleted = unless_missing(writes::delete(&secrets, name, &any).await);
        if deleted.map_err(asked(format!("Secret {name}")))?.is_some() {
            say(&format!("Secret {namespace}/{name}: deleted"));
        }
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let ours = leases.list(&ListParams::default()).await;
    for lease in ours.map_err(asked("Leases"))?.items {
        let name = lease.metadata.name.unwrap_or_default();
        if name.starts_with(LEASES) {
            let deleted = unless_missing(writes::delete(&leases, &name, &any).await);
            deleted.map_err(asked(format!("Lease {name}")))?;
            say(&format!("Lease {namespace}/{name}: deleted"));
        }
    }
    let graphs: Api<CommunicationGraph> = Api::all(client.clone());
    let deleted = unless_missing(writes::delete(&graphs, GRAPH_NAME, &any).await);
    if deleted.map_err(asked("CommunicationGraph"))?.is_some() {
        say(&format!("CommunicationGraph {GRAPH_NAME}: deleted"));
    }
    Ok(())
}
