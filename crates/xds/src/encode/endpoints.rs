//! Encodes endpoints, by priority and locality.

use std::collections::BTreeMap;

use maglor_config::{UnixAddress, raw};

use super::EncodeError;
use crate::proto::envoy::config::core::v3::{self as core, address, socket_address::PortSpecifier};
use crate::proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
};
use crate::{Health, Kind, ServedEndpoint};

pub(super) fn encode(
    cluster: &str,
    all: &[ServedEndpoint],
) -> Result<ClusterLoadAssignment, EncodeError> {
    let mut groups = Groups::default();
    for (i, endpoint) in all.iter().enumerate() {
        if !groups.add(&endpoint.described, endpoint.health) {
            return Err(EncodeError::Missing {
                kind: Kind::Endpoints,
                name: cluster.to_owned(),
                field: format!("endpoints[{i}].address"),
            });
        }
    }
    Ok(groups.assignment(cluster))
}

/// Returns the inline endpoints of a cluster, and whether some of them are host names. Endpoints without an address are
/// sent only in the metadata.
pub(super) fn inline(
    cluster: &str,
    all: &[raw::Short<raw::Endpoint>],
) -> (ClusterLoadAssignment, bool) {
    let mut groups = Groups::default();
    for raw::Short(endpoint) in all {
        groups.add(endpoint, Health::Healthy);
    }
    let names = groups.names;
    (groups.assignment(cluster), names)
}

#[derive(Default)]
struct Groups {
    by_place: BTreeMap<(u32, Option<String>), Vec<LbEndpoint>>,
    names: bool,
}

impl Groups {
    /// Adds an endpoint; returns `false` if it has no address that can be sent.
    fn add(&mut self, endpoint: &raw::Endpoint, health: Health) -> bool {
        let Some(address) = endpoint.address.as_deref().and_then(address) else {
            return false;
        };
        if let address::Address::SocketAddress(socket) = &address {
            self.names |= socket.address.parse::<std::net::IpAddr>().is_err();
        }
        let health = match health {
            Health::Draining => core::HealthStatus::Draining,
            Health::Healthy => core::HealthStatus::Healthy,
            Health::Unhealthy => core::HealthStatus::Unhealthy,
        };
        let place = (endpoint.priority.unwrap_or(0), endpoint.locality.clone());
        self.by_place.entry(place).or_default().push(LbEndpoint {
            health_status: health.into(),
            load_balancing_weight: endpoint.weight,
            host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
                address: Some(core::Address {
                    address: Some(address),
                }),
                hostname: String::new(),
            })),
        });
        true
    }

    fn assignment(self, cluster: &str) -> ClusterLoadAssignment {
        let locality = |((priority, locality), endpoints): ((u32, Option<String>), Vec<_>)| {
            let weight = |endpoint: &LbEndpoint| endpoint.load_balancing_weight.unwrap_or(1);
            let sum = endpoints.iter().map(weight).fold(0, u32::saturating_add);
            LocalityLbEndpoints {
                locality: Some(
                    locality
                        .as_deref()
                        .map_or_else(Default::default, self::locality),
                ),
                lb_endpoints: endpoints,
                // gRPC ignores a locality without a weight.
                load_balancing_weight: Some(sum.max(1)),
                priority,
            }
        };
        ClusterLoadAssignment {
            cluster_name: cluster.to_owned(),
            endpoints: self.by_place.into_iter().map(locality).collect(),
            policy: None,
        }
    }
}

/// Parses the address of an endpoint: a Unix socket, or a host and a port.
fn address(text: &str) -> Option<address::Address> {
    if let Some(unix) = UnixAddress::parse(text) {
        return Some(address::Address::Pipe(core::Pipe {
            path: unix.ok()?.as_str().to_owned(),
            mode: 0,
        }));
    }
    let (host, port) = host_and_port(text)?;
    Some(address::Address::SocketAddress(core::SocketAddress {
        address: host.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
    }))
}

/// Splits `IP:PORT`, `[IPv6]:PORT` or `NAME:PORT` into the host, without brackets, and the port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    Some((bare.unwrap_or(host), port.parse().ok()?))
}

/// Parses `REGION/ZONE/NODE`.
fn locality(text: &str) -> core::Locality {
    let mut parts = text.splitn(3, '/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    core::Locality {
        region: next(),
        zone: next(),
        sub_zone: next(),
    }
}
