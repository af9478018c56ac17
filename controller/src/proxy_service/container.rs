//! The container of a proxy.

use serde_json::{Value, json};

use super::manifests::{Listening, text};
use crate::crd::ProxyServiceSpec;
use crate::index::{spoken, target_name};
use crate::proxy_pod::{self, Settings};

/// The container: what it listens on, and for whom.
pub(super) fn container(
    service: &Value,
    listening: &[Listening],
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Value {
    let meta = &service["metadata"];
    let (name, namespace) = (text(&meta["name"]), text(&meta["namespace"]));
    let host = format!(
        "{}.{namespace}.svc.{}",
        target_name(name),
        settings.cluster_domain
    );
    let mut args = proxy_pod::arguments("service", claim.drain_seconds(), settings);
    args.extend(listening.iter().map(|one| {
        let (number, protocol) = (one.number, spoken(one.protocol));
        format!("--forward={number}={protocol}/{host}:{}", one.service_port)
    }));
    let port = |one: &Listening| {
        let mut port = json!({"containerPort": one.number});
        if let Some(name) = &one.name {
            port["name"] = json!(name);
        }
        port
    };
    let mut container = proxy_pod::container(&args, &resources(claim), settings);
    container["ports"] = listening.iter().map(port).collect();
    if settings.trust_domain.is_some() {
        container["volumeMounts"] = json!(maglor_inject::mounts());
    }
    container
}

/// The container of a proxy that a group shares. Which ports there are it is told: they come and go without another pod.
pub(super) fn shared(claim: &ProxyServiceSpec, settings: &Settings) -> Value {
    let mut args = proxy_pod::arguments("service", claim.drain_seconds(), settings);
    let [identity, cache] = maglor_inject::mounts();
    let mounts = match settings.trust_domain.is_some() {
        true => vec![identity, cache],
        false => {
            let [_, _, folder] = maglor_inject::credentials();
            args.push(folder);
            vec![cache]
        }
    };
    let mut container = proxy_pod::container(&args, &resources(claim), settings);
    container["volumeMounts"] = json!(mounts);
    container
}

fn resources(claim: &ProxyServiceSpec) -> Value {
    let mut resources = json!({
        "requests": {"cpu": "100m", "memory": "16Mi"},
        "limits": {"memory": "128Mi"},
    });
    let wanted = claim.resources.clone().unwrap_or_default();
    for (kind, amounts) in [("requests", wanted.requests), ("limits", wanted.limits)] {
        for (name, amount) in amounts {
            resources[kind][name] = json!(amount);
        }
    }
    resources
}
