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

/// Envoy's default of `overprovisioning_factor` in percent, which is also ours.
const OVERPROVISIONING: u32 = 140;

pub(super) fn decode(message: &ClusterLoadAssignment) -> Result<Vec<ServedEndpoint>, Fault> {
    let policy = message.policy.clone().unwrap_or_default();
    if !policy.drop_overloads.is_empty() {
        return Err(Fault::unsupported("policy.drop_overloads"));
    }
    if policy
        .overprovisioning_factor
        .is_some_and(|percent| percent != OVERPROVISIONING)
    {
        let what = "only 140 is supported; set overprovisioning_factor in the maglor.dev metadata of the cluster";
        return Err(Fault::new("policy.overprovisioning_factor", what));
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
                health: health(endpoint).map_err(|fault| fault.within(&place))?,
            });
        }
    }
    Ok(all)
}

fn health(endpoint: &LbEndpoint) -> Result<Health, Fault> {
    match HealthStatus::try_from(endpoint.health_status) {
        Ok(HealthStatus::Draining) => Ok(Health::Draining),
        Ok(HealthStatus::Unhealthy | HealthStatus::Timeout) => Ok(Health::Unhealthy),
        // A state that comes and goes must not keep all addresses of a cluster from being updated.
        Ok(HealthStatus::Unknown | HealthStatus::Healthy | HealthStatus::Degraded) => {
            Ok(Health::Healthy)
        }
        Err(_) => {
            let what = format!("unknown status {}", endpoint.health_status);
            Err(Fault::new("health_status", what))
        }
    }
}

fn address(endpoint: &LbEndpoint) -> Result<String, Fault> {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
        return Err(Fault::new("endpoint", "the field is missing"));
    };
    let address = endpoint.address.as_ref().and_then(|a| a.address.as_ref());
    let socket = match address {
        Some(Address::Pipe(_)) if !endpoint.hostname.is_empty() => {
            return Err(Fault::unsupported("endpoint.hostname"));
        }
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
    // Envoy uses it for rewritten hosts and health checks, for which we use the address.
    if !endpoint.hostname.is_empty() && endpoint.hostname != *host {
        return Err(Fault::new(
            "endpoint.hostname",
            "only the host of the address is supported",
        ));
    }
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
