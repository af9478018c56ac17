//! Deletes objects of the controller that Kubernetes does not delete with it: trust bundles in every namespace,
//! Secrets, Leases, and the communication graph. Must be run after the controller has ended, because a running
//! controller would restore them.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::ListParams;
use kube::{Api, Client};

use super::{LifecycleError, Say, asked, unless_missing};
use crate::conditional_writes::{self, Precondition};
use crate::crd::{CommunicationGraph, GRAPH_NAME};
use crate::revision::Revision;
use crate::webhook::SECRET;

/// The prefix of the names of Leases: that of the leader, and one for each replica.
const LEASES: &str = "maglor-";
/// The ConfigMap that contains the roots.
const ROOTS: &str = "maglor-trust-bundle";
/// Secrets of the certificate authority.
const AUTHORITY: [&str; 2] = ["maglor-ca", "maglor-ca-in-force"];

/// Deletes the objects; `namespace` is the namespace of the mesh. For a named revision, only objects that it does not
/// share with the default control plane are deleted. For the default control plane, the certificate authority is also
/// deleted; copy its Secret first to keep it.
///
/// # Errors
/// If the API server rejects a request or does not respond.
pub async fn clean_up(
    client: &Client,
    namespace: &str,
    revision: &Revision,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    delete_secret(client, namespace, &revision.object(SECRET), say).await?;
    delete_leases(client, namespace, revision, say).await?;
    match revision.is_default() {
        true => clean_up_shared(client, namespace, say).await,
        false => Ok(()),
    }
}

/// Deletes objects that all revisions share.
async fn clean_up_shared(
    client: &Client,
    namespace: &str,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    let any = Precondition::default();
    let all: Api<Namespace> = Api::all(client.clone());
    let all = all.list(&ListParams::default()).await;
    for one in all.map_err(asked("namespaces"))?.items {
        let name = one.metadata.name.unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
        let deleted = unless_missing(conditional_writes::delete(&maps, ROOTS, &any).await);
        if deleted
            .map_err(asked(format!("ConfigMap {name}/{ROOTS}")))?
            .is_some()
        {
            say(&format!("ConfigMap {name}/{ROOTS}: deleted"));
        }
    }
    for name in AUTHORITY {
        delete_secret(client, namespace, name, say).await?;
    }
    let graphs: Api<CommunicationGraph> = Api::all(client.clone());
    let deleted = unless_missing(conditional_writes::delete(&graphs, GRAPH_NAME, &any).await);
    if deleted.map_err(asked("CommunicationGraph"))?.is_some() {
        say(&format!("CommunicationGraph {GRAPH_NAME}: deleted"));
    }
    Ok(())
}

async fn delete_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let deleted =
        unless_missing(conditional_writes::delete(&secrets, name, &Precondition::default()).await);
    if deleted.map_err(asked(format!("Secret {name}")))?.is_some() {
        say(&format!("Secret {namespace}/{name}: deleted"));
    }
    Ok(())
}

/// Deletes the Leases of the leader and of the replicas. Leases of a revision's replicas are deleted by the default
/// control plane, some minutes after the replicas end.
async fn delete_leases(
    client: &Client,
    namespace: &str,
    revision: &Revision,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let all = leases.list(&ListParams::default()).await;
    for lease in all.map_err(asked("Leases"))?.items {
        let name = lease.metadata.name.unwrap_or_default();
        let is_own = match revision.is_default() {
            true => name.starts_with(LEASES),
            false => name == revision.lease(),
        };
        if is_own {
            let deleted = unless_missing(
                conditional_writes::delete(&leases, &name, &Precondition::default()).await,
            );
            deleted.map_err(asked(format!("Lease {name}")))?;
            say(&format!("Lease {namespace}/{name}: deleted"));
        }
    }
    Ok(())
}
