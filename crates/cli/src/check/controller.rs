//! Checks the controller: whether it runs, is ready, is of this version, and has exactly one
//! leader.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use maglor_controller::revision::{PODS, Revision};
use maglor_manifests::inject::keys::REVISION;
use maglor_telemetry::scrape::Meter;
use serde::Deserialize;

use super::report::{Advice, Report, some_of};
use crate::live::LiveError;
use crate::live::access::{Cluster, Instance, asked};

const ABOUT: &str = "controller";
const NAME: &str = "maglor-controller";

/// A client session of a replica.
#[derive(Debug, Deserialize)]
struct Session {
    node: String,
    nacks: Vec<Nack>,
}

#[derive(Debug, Deserialize)]
struct Nack {
    kind: String,
    reason: String,
}

/// Checks every replica; returns those that respond.
///
/// # Errors
/// If the API server does not respond.
pub(super) async fn check(
    cluster: &Cluster,
    report: &mut Report,
) -> Result<Vec<Instance>, LiveError> {
    let install = || {
        let command = "maglor install | kubectl apply --server-side -f -";
        Advice(command.to_owned(), "controller.md#running-it")
    };
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), &cluster.mesh_namespace);
    let found = deployments.get_opt(NAME).await;
    let mut ready = 0;
    match found.map_err(asked("the controller's Deployment"))? {
        None => {
            let what = format!(
                "Deployment {NAME} not found in namespace `{}`",
                cluster.mesh_namespace
            );
            report.bad(ABOUT, what, install());
        }
        Some(deployment) => {
            let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let status = deployment.status.and_then(|status| status.ready_replicas);
            ready = status.unwrap_or(0);
            let what = format!("{ready} of {wanted} replicas are ready");
            let advice = Advice(
                format!("kubectl logs -n {} deploy/{NAME}", cluster.mesh_namespace),
                "controller.md#replicas",
            );
            match ready {
                0 => report.bad(ABOUT, what, advice),
                some if some < wanted => report.warning(ABOUT, what, advice),
                _ => report.good(ABOUT, what),
            }
        }
    }
    revisions(cluster, report).await?;
    let found = cluster.controllers().await?;
    if ready > 0 && found.is_empty() {
        unlabeled(report);
    }
    Ok(replicas(found, report).await)
}

/// Reports replicas without the labels by which commands and other replicas find them, as in a Deployment written by
/// hand.
fn unlabeled(report: &mut Report) {
    report.bad(
        ABOUT,
        format!("no pod of Deployment {NAME} has the labels of a controller replica: no replica can be queried"),
        Advice(
            format!(
                "add the labels `app.kubernetes.io/name={NAME}` and `{PODS}` to the pod template of the Deployment"
            ),
            "controller.md#replicas",
        ),
    );
}

/// Reports namespaces that name a revision which is not installed, so that their pods get no sidecars.
async fn revisions(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let named = namespaces
        .list_metadata(&ListParams::default().labels(REVISION))
        .await;
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), &cluster.mesh_namespace);
    for namespace in named.map_err(asked("namespaces"))?.items {
        let label = namespace.labels()[REVISION].clone();
        let service = label.parse::<Revision>().map(|revision| revision.service());
        let installed = match &service {
            Ok(name) => deployments.get_metadata_opt(name).await,
            Err(_) => Ok(None),
        };
        let what = format!(
            "namespace {} is served by revision `{label}`",
            namespace.name_any()
        );
        match installed.map_err(asked("the Deployment of a revision"))? {
            Some(_) => report.good(ABOUT, what),
            None => report.bad(
                ABOUT,
                format!("{what}, which is not installed: pods of the namespace get no sidecars"),
                Advice(
                    format!(
                        "kubectl label namespace {} {REVISION}-",
                        namespace.name_any()
                    ),
                    "lifecycle.md#a-second-control-plane",
                ),
            ),
        }
    }
    Ok(())
}

/// Checks these replicas; returns those that respond.
pub(super) async fn replicas(all: Vec<Instance>, report: &mut Report) -> Vec<Instance> {
    let mut answering = Vec::new();
    let mut leaders = 0;
    for replica in all {
        match look(&replica, report).await {
            Ok(leads) => {
                leaders += usize::from(leads);
                answering.push(replica);
            }
            Err(error) => report.bad(
                ABOUT,
                error.to_string(),
                Advice(
                    error
                        .hint()
                        .unwrap_or("see the log of the replica")
                        .to_owned(),
                    "controller.md#admin-port",
                ),
            ),
        }
    }
    if !answering.is_empty() {
        match leaders {
            1 => report.good(ABOUT, "one replica is the leader"),
            other => report.warning(
                ABOUT,
                format!("{other} replicas claim to be the leader"),
                Advice(
                    "check again in 15 s: a leader election may be in progress".to_owned(),
                    "controller.md#replicas",
                ),
            ),
        }
    }
    answering
}

/// Checks a replica; returns whether it is the leader.
async fn look(replica: &Instance, report: &mut Report) -> Result<bool, LiveError> {
    let page = replica.admin.get("/metrics").await?;
    let page = String::from_utf8_lossy(&page);
    let samples = Meter::default().grown(&page);
    let value = |name: &str| samples.iter().find(|sample| sample.name == name);
    let version = value("maglor_build_info").and_then(|sample| sample.label("version"));
    let version = version.unwrap_or("unknown");
    let own = env!("CARGO_PKG_VERSION");
    match version == own {
        true => report.good(ABOUT, format!("{} has version {version}", replica.name)),
        false => report.warning(
            ABOUT,
            format!(
                "{} has version {version}, this program has version {own}",
                replica.name
            ),
            Advice(
                "use the same version of the controller and of this program".to_owned(),
                "controller.md",
            ),
        ),
    }
    let sessions: Vec<Session> = replica.admin.json("/sessions").await?;
    let refusals = sessions.iter().flat_map(|session| {
        let each = session.nacks.iter();
        each.map(|nack| format!("{}: {} {}", session.node, nack.kind, nack.reason))
    });
    let refusals: Vec<_> = refusals.collect();
    match refusals.is_empty() {
        true => report.good(
            ABOUT,
            format!("{} serves {} proxies", replica.name, sessions.len()),
        ),
        false => report.warning(
            ABOUT,
            format!(
                "proxies reject resources of {}: {}",
                replica.name,
                some_of(&refusals)
            ),
            Advice(
                "the proxies keep the last valid state; correct the named resource".to_owned(),
                "xds.md#receipts",
            ),
        ),
    }
    Ok(value("maglor_controller_leader").is_some_and(|leader| leader.value > 0.0))
}
