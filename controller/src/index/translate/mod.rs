//! Builds the resources of Services and workloads from facts.

pub(super) mod endpoints;
pub(super) mod gateway;
pub(super) mod inbound;
mod local;
pub(super) mod members;
pub(super) mod routes;
pub(super) mod service;
mod settings;

use maglor_balance::hash_bytes;
use maglor_config::raw;
use maglor_xds::encode::NOWHERE;

use super::facts::{Key, Protocol};
use super::resource::Listener;
use super::{Index, Resource, ResourceId, ResourceKind};

/// Returns the name of the resources of a Service's port, which clients request.
pub(super) fn port_name(index: &Index, service: &Key, port: u16) -> String {
    format!("{}:{port}", host(index, service))
}

/// Returns the name of the resources of a subset of a Service's pods on a port of the Service.
pub(super) fn subset_name(port_name: &str, subset: &str) -> String {
    shown_name(&format!("{port_name}/{subset}"))
}

/// Returns the DNS name of a Service.
pub(super) fn host(index: &Index, service: &Key) -> String {
    let domain = index.cluster_domain();
    format!("{}.{}.svc.{domain}", service.name, service.namespace)
}

/// Maximum length of a name of a cluster, route or rule that proxies accept, in bytes.
const LONGEST_NAME: usize = 253;

/// Makes a name valid for proxies by removing blanks and limiting its length. The beginning keeps it readable, and a
/// hash keeps it unique.
pub(super) fn shown_name(name: &str) -> String {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    let plain = name.replace(odd, "-");
    if plain.len() <= LONGEST_NAME {
        return plain;
    }
    let hash = format!("~{:016x}", hash_bytes(name.as_bytes()));
    let ends = (0..=LONGEST_NAME - hash.len()).rev();
    let end = ends.into_iter().find(|at| plain.is_char_boundary(*at));
    plain[..end.unwrap_or(0)].to_owned() + &hash
}

/// Returns the rule that replaces an invalid policy: it denies everything, and is named after the policy.
pub(super) fn closed(policy: &str) -> raw::AuthorizationRule {
    raw::AuthorizationRule {
        name: Some(shown_name(&format!("{policy}/unusable"))),
        action: Some(raw::AuthorizationAction::Deny),
        ..raw::AuthorizationRule::default()
    }
}

/// Returns the listener for connections to a port.
pub(super) fn listener(protocol: Protocol, name: &str) -> Listener {
    let name = name.to_owned();
    match protocol {
        Protocol::Auto => Listener::Http {
            bytes: Some(name.clone()),
            routes: name,
        },
        Protocol::Http | Protocol::Http2 => Listener::Http {
            routes: name,
            bytes: None,
        },
        Protocol::Tcp | Protocol::Tls => Listener::Tcp { cluster: name },
    }
}

/// Returns the protocol of connections to endpoints.
pub(super) fn upstream(protocol: Protocol) -> raw::UpstreamProtocol {
    match protocol {
        Protocol::Http2 => raw::UpstreamProtocol::Http2,
        _ => raw::UpstreamProtocol::Downstream,
    }
}

/// Returns the resources without a particular owner.
pub(super) fn shared() -> Vec<(ResourceId, Resource)> {
    let cluster = raw::Cluster {
        name: Some(NOWHERE.to_owned()),
        ..raw::Cluster::default()
    };
    vec![
        (
            ResourceId::new(ResourceKind::Cluster, NOWHERE),
            Resource::Cluster(Box::new(cluster)),
        ),
        (
            ResourceId::new(ResourceKind::Endpoints, NOWHERE),
            Resource::Endpoints(Vec::new()),
        ),
    ]
}
