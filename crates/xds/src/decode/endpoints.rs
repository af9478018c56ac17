//! Decodes endpoints.

use maglor_config::raw;

use super::Fault;
use crate::proto::envoy::config::core::v3::{
    HealthStatus, Locality, address::Address, socket_address::PortSpecifier,
};
use crate::proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, lb_endpoint::HostIdentifier,
};
use crate::{Health, ServedEndpoint};

pub(super) fn decode(message: &ClusterLoadAssignment) -> Result<Vec<ServedEndpoint>, Fault> {
    let policy = message.policy.clone().unwrap_or_default();
    if !policy.drop_overloads.is_empty() {
        return Err(Fault::unsupported("policy.drop_overloads"));
    }
    let mut all = Vec::new();
    for (i, group) in message.endpoints.iter().enumerate() {
        let locality = group.locality.as_ref().and_then(locality);
        for (j, endpoint) in group.lb_endpoints.iter().enumerate() {
            let place = format!("endpoints[{i}].lb_endpoints[{j}]");
            let address = address(endpoint).map_err(|fault| fault.within(&place))?;
            all.push(ServedEndpoint {
                described: raw::Endpoint {
                    address: Some(address),
                    weight: endpoint.load_balancing_weight,
                    priority: (group.priority > 0).then_some(group.priority),
                    locality: locality.clone(),
                },
                health: match endpoint.health_status() {
                    HealthStatus::Draining => Health::Draining,
                    HealthStatus::Unhealthy | HealthStatus::Timeout => Health::Unhealthy,
                    HealthStatus::Unknown | HealthStatus::Healthy | HealthStatus::Degraded => {
                        Health::Healthy
                    }
                },
            });
        }
    }
    Ok(all)
}

fn address(endpoint: &LbEndpoint) -> Result<String, Fault> {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
        return Err(Fault::new("endpoint", "the field is missing"));
    };
    let address = endpoint.address.as_ref().and_then(|a| a.address.as_ref());
    let socket = match address {
        Some(Address::Pipe(pipe)) => return Ok(format!("unix:{}", pipe.path)),
        Some(Address::SocketAddress(socket)) => socket,
        None => {
            let what = "socket_address or pipe is missing";
            return Err(Fault::new("endpoint.address", what));
        }
    };
    let port = match &socket.port_specifier {
        Some(PortSpecifier::PortValue(port)) if (1..=65_535).contains(port) => *port,
        _ => {
            let field = "endpoint.address.socket_address.port_value";
            return Err(Fault::new(field, "expected a port from 1 to 65535"));
        }
    };
    let host = &socket.address;
    Ok(match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    })
}

/// Returns `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`, up to the first empty part; `None` without a region.
fn locality(locality: &Locality) -> Option<String> {
    let parts = [&locality.region, &locality.zone, &locality.sub_zone];
    let known = parts.iter().take_while(|part| !part.is_empty());
    let known: Vec<&str> = known.map(|part| part.as_str()).collect();
    (!known.is_empty()).then(|| known.join("/"))
}
