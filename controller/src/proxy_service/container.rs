//! The container of a proxy.

use maglor_inject::{ADMIN_PORT, PROXY, PROXY_UID};
use serde_json::{Value, json};

use super::manifests::{DRAIN_SECONDS, FAREWELL_SECONDS, Listening, Settings, text, word};
use crate::crd::ProxyServiceSpec;
use crate::index::target_name;

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
    let mut args = vec![
        "service".to_owned(),
        format!("--control-plane={}", settings.control_plane),
        format!("--cluster-domain={}", settings.cluster_domain),
        format!("--admin-port={ADMIN_PORT}"),
        format!("--drain-timeout={DRAIN_SECONDS}s"),
    ];
    match &settings.trust_domain {
        Some(domain) => {
            args.push(format!("--trust-domain={domain}"));
            args.extend(maglor_inject::credentials());
        }
        None => args.push("--plain-text".to_owned()),
    }
    args.extend(listening.iter().map(|one| {
        let (number, protocol) = (one.number, word(one.protocol));
        format!("--forward={number}={protocol}/{host}:{}", one.service_port)
    }));
    let port = |one: &Listening| {
        let mut port = json!({"containerPort": one.number});
        if let Some(name) = &one.name {
            port["name"] = json!(name);
        }
        port
    };
    let variable = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": ADMIN_PORT},
            "periodSeconds": period,
            "failureThreshold": failures,
        })
    };
    let mut container = json!({
        "name": PROXY,
        "image": settings.image,
        "args": args,
        "env": [
            variable("POD_NAME", "metadata.name"),
            variable("POD_NAMESPACE", "metadata.namespace"),
            variable("POD_IPS", "status.podIPs"),
        ],
        "ports": listening.iter().map(port).collect::<Vec<_>>(),
        "resources": resources(claim),
        "readinessProbe": probe("/ready", 1, 2),
        "livenessProbe": probe("/live", 10, 3),
        "lifecycle": {"preStop": {"sleep": {"seconds": FAREWELL_SECONDS}}},
        "securityContext": {
            "runAsUser": PROXY_UID,
            "runAsNonRoot": true,
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    if settings.trust_domain.is_some() {
        container["volumeMounts"] = json!(maglor_inject::mounts());
    }
    if let Some(policy) = &settings.pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
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
