//! The container of a proxy.

use maglor_manifests::inject::quantity;
use serde_json::{Value, json};

use super::fields::text;
use super::listening::Listening;
use crate::crd::ProxyServiceSpec;
use crate::index::{spoken, target_name};
use crate::proxy_pod::{self, Settings};

/// Returns the container of a proxy that serves one Service.
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
    let admin = container["ports"].take();
    let admin = admin.as_array().into_iter().flatten().cloned();
    container["ports"] = listening.iter().map(port).chain(admin).collect();
    if settings.trust_domain.is_some() {
        container["volumeMounts"] = json!(maglor_manifests::inject::mounts());
    }
    container
}

/// Returns the container of a proxy that a group shares. The ports are configured by discovery, so they can change
/// without replacing pods.
pub(super) fn shared(claim: &ProxyServiceSpec, settings: &Settings) -> Value {
    let mut args = proxy_pod::arguments("service", claim.drain_seconds(), settings);
    let [identity, cache] = maglor_manifests::inject::mounts();
    let mounts = match settings.trust_domain.is_some() {
        true => vec![identity, cache],
        false => {
            let [_, _, folder] = maglor_manifests::inject::credentials();
            args.push(folder);
            vec![cache]
        }
    };
    let mut container = proxy_pod::container(&args, &resources(claim), settings);
    container["volumeMounts"] = json!(mounts);
    container
}

/// Returns the container's resources. If only a request or only a limit is set and conflicts with the default of the
/// other, the default is adjusted, because an API server rejects requests above the limit.
fn resources(claim: &ProxyServiceSpec) -> Value {
    let mut resources = json!({
        "requests": {"cpu": "100m", "memory": "16Mi"},
        "limits": {"memory": "128Mi"},
    });
    let wanted = claim.resources.clone().unwrap_or_default();
    for (kind, amounts) in [("requests", &wanted.requests), ("limits", &wanted.limits)] {
        for (name, amount) in amounts {
            resources[kind][name] = json!(amount);
        }
    }
    for name in ["cpu", "memory"] {
        let amount = |kind: &str| resources[kind][name].as_str().and_then(quantity);
        if let (Some(request), Some(limit)) = (amount("requests"), amount("limits"))
            && request > limit
        {
            let (said, default) = match wanted.limits.contains_key(name) {
                true => ("limits", "requests"),
                false => ("requests", "limits"),
            };
            resources[default][name] = resources[said][name].clone();
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API server rejects a request above its limit.
    #[test]
    fn a_default_yields_to_an_explicit_value() {
        let made = |asked: &str| {
            let text = format!("{{targetRef: {{name: web}}, resources: {asked}}}");
            resources(&serde_yaml::from_str(&text).unwrap())
        };
        let big = made("{requests: {memory: 256Mi}}");
        assert_eq!(big["limits"]["memory"], "256Mi");
        let slow = made("{limits: {cpu: 50m, memory: 8Mi}}");
        let both = json!({"cpu": "50m", "memory": "8Mi"});
        assert_eq!((&slow["requests"], &slow["limits"]), (&both, &both));
        let usual = made("{limits: {cpu: '1'}}");
        assert_eq!(usual["requests"], json!({"cpu": "100m", "memory": "16Mi"}));
    }
}
