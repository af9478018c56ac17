//! Runs the controller of a cluster, and the commands for clusters.

use std::io::Write as _;

use maglor_service_graph::policy_choice::Limits;

use super::{Command, Run, block_on, termination};
use crate::app::on_kubernetes::{self, Settings};
use crate::crd;
use crate::gateway;
use crate::lifecycle;
use crate::proxy_service;
use crate::scope::{Certificates, Scope};
use crate::webhook;

/// Runs a command.
pub(super) fn command(command: &Command) -> Result<(), String> {
    match command {
        Command::CleanUp {
            namespace,
            revision,
        } => once(async |client| {
            let revision = revision.clone().unwrap_or_default();
            lifecycle::clean_up::clean_up(&client, namespace, &revision, &say).await
        }),
        Command::Crds { apply: false } => crds(),
        Command::Crds { apply: true } => {
            once(async |client| lifecycle::definitions::apply(&client, &say).await)
        }
        Command::Uninject { patience, revision } => once(async |client| {
            let revision = revision.clone().unwrap_or_default();
            lifecycle::uninject(&client, &revision, *patience, &say).await
        }),
    }
}

fn say(line: &str) {
    println!("{line}");
}

/// Runs a task on the cluster of the kubeconfig, or of the pod's service account, and exits.
fn once<F>(task: impl FnOnce(kube::Client) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), lifecycle::LifecycleError>>,
{
    block_on(async {
        let client = crate::api_server::client().await;
        let client = client.map_err(|error| format!("no cluster: {error}"))?;
        task(client).await.map_err(|error| error.to_string())
    })
}

fn crds() -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for (_, text) in crd::yaml().map_err(|error| error.to_string())? {
        write!(out, "---\n{text}").map_err(|error| format!("cannot write: {error}"))?;
    }
    Ok(())
}

/// Serves a cluster until the process is terminated.
pub(super) fn serve(run: &Run) -> Result<(), String> {
    let (options, settings) = (super::options(run), settings(run));
    block_on(async {
        let outcome = on_kubernetes::run(options, settings, termination()?).await;
        outcome.map_err(|error| error.to_string())
    })
}

fn settings(run: &Run) -> Settings {
    let revision = run.revision.clone().unwrap_or_default();
    let mut sidecar = run.sidecar.clone();
    revision
        .name()
        .unwrap_or_default()
        .clone_into(&mut sidecar.revision);
    sidecar.complete(&run.namespace, run.identity.trust_domain.as_str());
    let identity = &run.identity;
    let trust_domain = (!identity.plain_text).then(|| identity.trust_domain.to_string());
    let arguments = &run.proxies;
    // A revision leaves ProxyServices to the default control plane.
    let on = arguments.proxy_services && revision.is_default();
    let proxies = proxies(arguments, &sidecar, trust_domain);
    let process = || format!("process-{}", std::process::id());
    Settings {
        namespace: run.namespace.clone(),
        replica: run.replica.clone().unwrap_or_else(process),
        revision,
        inserts: Scope::new(on, &arguments.proxy_services_in),
        gateways: arguments
            .gateways
            .then(|| gateways(arguments, proxies.clone())),
        proxies,
        moves: Scope::new(run.placement, &run.placement_in),
        tunes: Scope::new(run.tuning, &run.tuning_in),
        webhook: run.webhook.map(|listen| webhook::Options {
            listen,
            settings: sidecar,
        }),
        external_metrics: run.external_metrics,
        auto: Limits::patient(arguments.auto_patience),
    }
}

/// Returns the settings of all proxies.
fn proxies(
    arguments: &super::Proxies,
    sidecar: &maglor_manifests::inject::Settings,
    trust_domain: Option<String>,
) -> proxy_service::Settings {
    let or = |input: &Option<String>, other: &String| input.as_ref().unwrap_or(other).clone();
    let policy = serde_json::to_value(sidecar.image_pull_policy);
    let policy = policy
        .ok()
        .and_then(|policy| Some(policy.as_str()?.to_owned()));
    proxy_service::Settings {
        trust_domain,
        // Assumed until the version of the cluster is known.
        sleeps: true,
        prometheus_annotations: sidecar.prometheus_annotations,
        image: or(&arguments.proxy_image, &sidecar.image),
        pull_policy: arguments.proxy_pull_policy.clone().or(policy),
        control_plane: or(&arguments.proxy_control_plane, &sidecar.control_plane),
        cluster_domain: or(&arguments.cluster_domain, &sidecar.cluster_domain),
    }
}

fn gateways(
    arguments: &super::Proxies,
    settings: proxy_service::Settings,
) -> Box<gateway::run::Options> {
    let scope = Scope::new(true, &arguments.gateways_in);
    let certificates = match arguments.gateway_all_certificates {
        true => Certificates::All(scope.clone()),
        false => Certificates::Named(arguments.gateway_certificates.iter().cloned().collect()),
    };
    Box::new(gateway::run::Options {
        settings,
        service_type: arguments.gateway_service_type.clone(),
        replicas: arguments.gateway_replicas,
        scope,
        certificates,
    })
}
