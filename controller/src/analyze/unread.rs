//! Reports unsupported fields of Gateway API resources, unsupported kinds of Istio and the Gateway API, and
//! unsupported Istio labels.

use maglor_config::suggest;
use serde_json::Value;

use super::{Place, Problem, Severity};
use crate::crd::{GROUP, VERSION};
use crate::index::facts;

/// Returns a warning for each field of a resource that the mesh does not support.
pub(super) fn fields(place: Place<'_>, value: &Value) -> impl Iterator<Item = Problem> {
    facts::unread(value).into_iter().map(move |path| {
        let what = format!("{path}: not supported");
        place.problem(value, Severity::Warning, "PartiallySupported", what)
    })
}

/// Returns the kind and version of the mesh that were probably intended; `None` if none is similar.
pub(super) fn kind_meant(version: &str, kind: &str) -> Option<String> {
    let definitions = crate::crd::definitions().unwrap_or_default();
    let kinds: Vec<_> = definitions
        .iter()
        .map(|one| one.spec.names.kind.as_str())
        .collect();
    let own = format!("{GROUP}/{VERSION}");
    let near = suggest::nearest(kind, kinds.iter().copied());
    match near {
        Some(near) if near == kind && version != own => Some(format!("write `apiVersion: {own}`")),
        Some(near) if near != kind => Some(format!("did you mean `{near}`?")),
        _ => Some(format!("the kinds are {}", suggest::one_of(&kinds))),
    }
}

/// Returns what to use instead of a resource of an unsupported kind.
pub(super) fn alternative(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "BackendTLSPolicy" => {
            "proxies use TLS only within the mesh, without configuration; to other servers they forward the application's bytes"
        }
        "EnvoyFilter" | "TrafficExtension" | "WasmPlugin" => {
            "proxies have no extensions; use a TrafficPolicy for rate limits, faults, retries and limits, an HTTPRoute for headers"
        }
        "Gateway" => "use a Gateway of `gateway.networking.k8s.io/v1` and an HTTPRoute",
        "IstioOperator" => "install with Helm or `maglor install`",
        "ListenerSet" | "XListenerSet" => "define the listeners in the Gateway",
        "ProxyConfig" => {
            "set annotations on the pod or its namespace, such as `maglor.dev/cpu-limit`"
        }
        "RequestAuthentication" => {
            "proxies do not validate tokens (JWT); validate them in the application"
        }
        "ServiceEntry" => {
            "for a host use a Service of type ExternalName, for addresses a Service without a \
             selector and an EndpointSlice"
        }
        "Sidecar" => {
            "not needed: each sidecar subscribes only to the Services that its application calls; to exclude ports or networks, annotate the pod (`maglor.dev/skip-outbound-ports`, `maglor.dev/skip-subnets`)"
        }
        "TCPRoute" | "TLSRoute" | "UDPRoute" => {
            "Gateways support HTTP and HTTPS; for other protocols use a Service of type LoadBalancer"
        }
        "WorkloadEntry" | "WorkloadGroup" => {
            "use a Service without a selector and an EndpointSlice with the addresses"
        }
        _ => return None,
    })
}

/// Returns a warning for each Istio label and annotation that adds or configures Istio's sidecars, because this mesh
/// uses other keys.
pub(super) fn keys(place: Place<'_>, value: &Value) -> Vec<Problem> {
    let kind = value["kind"].as_str().unwrap_or_default();
    let own = matches!(kind, "Namespace" | "Pod" | "Service").then_some("metadata");
    let templates = [
        "spec.template.metadata",
        "spec.jobTemplate.spec.template.metadata",
    ];
    let mut found = Vec::new();
    for path in own.into_iter().chain(templates) {
        let pointer = format!("/{}", path.replace('.', "/"));
        for part in ["annotations", "labels"] {
            let pairs = value.pointer(&format!("{pointer}/{part}"));
            for key in pairs.and_then(Value::as_object).into_iter().flatten() {
                let domain = key.0.split_once('/').map_or("", |(domain, _)| domain);
                let is_theirs = domain == "istio.io" || domain.ends_with(".istio.io");
                if !is_theirs && key.0 != "istio-injection" {
                    continue;
                }
                let mut what = format!("{path}.{part}.{}: ignored", key.0);
                if let Some(own) = own_key(key.0) {
                    what = format!("{what}; write `{own}`");
                }
                found.push(place.problem(value, Severity::Warning, "UnknownKey", what));
            }
        }
    }
    found
}

/// Returns the key of this mesh that corresponds to an Istio key.
fn own_key(theirs: &str) -> Option<&'static str> {
    Some(match theirs {
        "istio-injection"
        | "istio.io/dataplane-mode"
        | "istio.io/rev"
        | "sidecar.istio.io/inject" => "maglor.dev/inject",
        "sidecar.istio.io/proxyCPU" => "maglor.dev/cpu-request",
        "sidecar.istio.io/proxyCPULimit" => "maglor.dev/cpu-limit",
        "sidecar.istio.io/proxyMemory" => "maglor.dev/memory-request",
        "sidecar.istio.io/proxyMemoryLimit" => "maglor.dev/memory-limit",
        "traffic.sidecar.istio.io/excludeInboundPorts" => "maglor.dev/skip-inbound-ports",
        "traffic.sidecar.istio.io/excludeOutboundIPRanges" => "maglor.dev/skip-subnets",
        "traffic.sidecar.istio.io/excludeOutboundPorts" => "maglor.dev/skip-outbound-ports",
        _ => return None,
    })
}
