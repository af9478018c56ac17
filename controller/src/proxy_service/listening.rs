//! The ports on which dedicated proxies listen: the Service's target ports, so that the Service's ports need not
//! change.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::index::facts::Protocol;
use crate::index::spoken;

/// The first port number for named target ports.
const NAMED_PORTS: u16 = 20_000;

/// The `targetPort` of a Service's port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum TargetPort {
    /// A container port by name.
    Name(String),
    /// A port by number.
    Number(u16),
}

pub(super) fn target_port(port: &Value) -> TargetPort {
    let number = |value: &Value| value.as_u64().and_then(|one| u16::try_from(one).ok());
    if let Some(name) = port["targetPort"].as_str() {
        return TargetPort::Name(name.to_owned());
    }
    let target = number(&port["targetPort"]).filter(|target| *target > 0);
    TargetPort::Number(target.or_else(|| number(&port["port"])).unwrap_or_default())
}

/// A port on which proxies listen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Listening {
    pub(super) number: u16,
    /// Name of the target port; `None` if it is given by number.
    pub(super) name: Option<String>,
    pub(super) protocol: Protocol,
    /// The corresponding port of the target Service.
    pub(super) service_port: u64,
}

/// Returns each target port once. Ports of the Service that share a target port have the same endpoints anyway.
pub(super) fn listening(service: &Value) -> Vec<Listening> {
    let mut found: BTreeMap<TargetPort, Listening> = BTreeMap::new();
    let ports = || service["spec"]["ports"].as_array().into_iter().flatten();
    let numbers: Vec<TargetPort> = ports().map(target_port).collect();
    let mut next = NAMED_PORTS;
    for port in ports() {
        let target = target_port(port);
        let (number, name) = match &target {
            TargetPort::Number(number) => (*number, None),
            TargetPort::Name(name) => {
                while numbers.contains(&TargetPort::Number(next)) {
                    next += 1;
                }
                next += 1;
                (next - 1, Some(name.clone()))
            }
        };
        let protocol = declared(port);
        let service_port = port["port"].as_u64().unwrap_or_default();
        let one = found.entry(target).or_insert(Listening {
            number,
            name,
            protocol,
            service_port,
        });
        // An HTTP server also accepts HTTP/2, but not the reverse.
        if protocol == Protocol::Http && one.protocol == Protocol::Http2 {
            (one.protocol, one.service_port) = (protocol, service_port);
        }
    }
    found.into_values().collect()
}

/// Returns the protocol of a port of a Service.
pub(super) fn declared(port: &Value) -> Protocol {
    Protocol::declared(port["appProtocol"].as_str(), port["name"].as_str())
}

/// Formats the ports for the annotation of a Deployment.
pub(super) fn written(listening: &[Listening]) -> String {
    let one = |one: &Listening| {
        let name = one.name.as_deref().unwrap_or_default();
        format!(
            "{name}={}/{}>{}",
            one.number,
            spoken(one.protocol),
            one.service_port
        )
    };
    listening.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that detects HTTP/1.1 and gRPC is called with either protocol, regardless of the order of ports.
    #[test]
    fn a_target_port_takes_all_that_is_declared_for_it() {
        let grpc = "{port: 90, name: grpc, targetPort: 8080}";
        let http = "{port: 80, name: http, targetPort: 8080}";
        for ports in [[grpc, http], [http, grpc]] {
            let text = format!("{{spec: {{ports: [{}]}}}}", ports.join(", "));
            let service: Value = serde_yaml::from_str(&text).unwrap();
            assert_eq!(written(&listening(&service)), "=8080/http>80", "{text}");
        }
    }
}
