//! Validates the control plane, and chains that use it for discovery.

use std::time::Duration;

use super::rule::{self, DAY, MILLISECOND, MINUTE, SECOND};
use super::{Scope, host};
use crate::control_plane::{ControlPlane, Discovery};
use crate::raw;
use crate::report::At;

pub(super) fn control_plane(
    raw: &raw::Document,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Option<ControlPlane> {
    let raw = raw.control_plane.as_ref()?;
    let at = at.field("control_plane");
    match &raw.cluster {
        None => at.missing("cluster", "set the cluster of the control plane's servers"),
        Some(name) => drop(scope.resolve_cluster(name, &at.field("cluster"))),
    }
    let node = raw.node.clone().unwrap_or_default();
    let id = node.id.unwrap_or_default();
    if id.is_empty() {
        let help =
            "write `node: {id: NAMESPACE/POD}`, by which the control plane identifies the proxy";
        at.field("node").missing("id", help);
    }
    if raw.cache_dir.as_deref() == Some("") {
        at.field("cache_dir").error("the path is empty");
    }
    let gateway = raw.gateway.as_deref();
    if gateway.is_some() {
        scope.needs_control_plane(&at);
    }
    if gateway.is_some() && raw.cache_dir.is_none() {
        at.field("gateway")
            .error("`gateway` needs a directory for certificates and other resources of the control plane")
            .on_key()
            .help("add `cache_dir: DIR`, preferably on a file system in memory");
    }
    Some(ControlPlane {
        gateway: gateway.map(Into::into),
        cluster: raw.cluster.as_deref().unwrap_or_default().into(),
        node_id: id,
        node_cluster: node.cluster.unwrap_or_default(),
        cache_dir: raw.cache_dir.as_ref().map(Into::into),
    })
}

pub(super) fn discovery(raw: &raw::Discovery, at: &At<'_>, scope: &Scope<'_>) -> Discovery {
    scope.needs_control_plane(at);
    scope.may_use_identity();
    let name = |set: Option<&String>, field: &str, default: &str| {
        let name = set.map_or(default, String::as_str);
        if host::exact(name).is_err() {
            at.field(field).error(format!(
                "`{}` is not a valid DNS name",
                crate::yaml::short(name)
            ));
        }
        name.to_ascii_lowercase()
    };
    let time = |set, field: &str, default: Duration, range| {
        rule::time(set, &at.field(field), default, range)
    };
    let mut discovery = Discovery {
        host: None,
        by_virtual_host: raw.by_virtual_host.unwrap_or(false),
        namespace: name(raw.namespace.as_ref(), "namespace", "default"),
        domain: name(raw.domain.as_ref(), "domain", "cluster.local"),
        timeout: time(raw.timeout, "timeout", 5 * SECOND, MILLISECOND..=MINUTE),
        idle_timeout: time(raw.idle_timeout, "idle_timeout", 10 * MINUTE, SECOND..=DAY),
    };
    if discovery.by_virtual_host && raw.host.is_none() {
        at.field("by_virtual_host")
            .error("`by_virtual_host` has no effect without `host`")
            .on_key()
            .help("remove `by_virtual_host`, or add `host: NAME:PORT`");
    }
    discovery.host = raw.host.as_deref().and_then(|text| {
        let split = text.rsplit_once(':');
        let parsed = split.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
        let whole = parsed.filter(|(_, port)| *port > 0);
        let target = whole.and_then(|(name, port)| discovery.complete(name, port));
        if target.is_none() {
            at.field("host")
                .error(format!("`{}` is not `NAME:PORT`", crate::yaml::short(text)))
                .help("use a Service with its port, such as `reviews.shop:80`");
        }
        target
    });
    discovery
}
