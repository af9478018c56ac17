//! Facts of Services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use maglor_config::raw::ApplicationProtocol;
use serde::Deserialize;
use serde_json::Value;

use super::{Meta, ReadError, part};

/// The label of all objects created for a Service with proxies (`ProxyService`); its value is the Service's name.
pub const PROXIED: &str = maglor_manifests::inject::keys::PROXY_SERVICE;
/// The annotation of a target Service that contains the proxies' service account.
pub const PROXY_ACCOUNT: &str = maglor_manifests::inject::keys::PROXY_ACCOUNT;

/// The label of all objects created for a group of Services that share proxies, and of their target Services; its
/// value is the group's name.
pub const PROXY_GROUP: &str = maglor_manifests::inject::keys::PROXY_GROUP;
/// The annotation of a target Service with shared proxies that maps each of the Service's ports to one of the
/// proxies: `80=20001,5432=20002`.
pub const PROXY_PORTS: &str = maglor_manifests::inject::keys::PROXY_PORTS;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protocol {
    /// Not declared; detected from the first bytes.
    #[default]
    Auto,
    /// HTTP/1.1 or HTTP/2.
    Http,
    /// HTTP/2 with prior knowledge, such as gRPC.
    Http2,
    /// TCP without a known protocol.
    Tcp,
    /// TLS that the application terminates.
    Tls,
}

impl Protocol {
    /// Returns the protocol from `appProtocol` (KEP-3726 and the common unprefixed names), or otherwise from the
    /// first word of the port's name, as in Istio: `http-web`, `grpc`, `tcp-db`.
    #[must_use]
    pub fn declared(app_protocol: Option<&str>, port_name: Option<&str>) -> Self {
        let word = match (app_protocol, port_name) {
            (Some(protocol), _) => protocol.rsplit('/').next().unwrap_or(protocol),
            (None, Some(name)) => name.split('-').next().unwrap_or(name),
            (None, None) => "",
        };
        match word.to_ascii_lowercase().as_str() {
            "http" | "http1" | "ws" => Self::Http,
            "h2c" | "http2" | "grpc" => Self::Http2,
            "https" | "tls" | "wss" => Self::Tls,
            "tcp" | "mongo" | "mysql" | "redis" | "postgres" | "postgresql" => Self::Tcp,
            _ => Self::Auto,
        }
    }

    /// Returns whether connections are forwarded without distinguishing requests.
    #[must_use]
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }

    /// Returns the protocol as named in the proxy's configuration.
    #[must_use]
    pub fn word(self) -> ApplicationProtocol {
        match self {
            Self::Auto => ApplicationProtocol::Auto,
            Self::Http => ApplicationProtocol::Http,
            Self::Http2 => ApplicationProtocol::Http2,
            Self::Tcp => ApplicationProtocol::Tcp,
            Self::Tls => ApplicationProtocol::Tls,
        }
    }
}

/// A TCP port of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServicePort {
    /// Name of the port, which is optional for a single port.
    pub name: Option<String>,
    /// Number of the port.
    pub port: u16,
    /// The protocol of the port.
    pub protocol: Protocol,
}

/// A Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Service {
    /// TCP ports of the Service, in the order of the resource.
    pub ports: Vec<ServicePort>,
    /// Cluster IPs, one for each address family; empty for a headless Service.
    pub addresses: Vec<IpAddr>,
    /// Whether the Service is headless (`clusterIP: None`).
    pub headless: bool,
    /// The external name if the type is `ExternalName`, otherwise `None`.
    pub external_name: Option<String>,
    /// Whether the first address family of the Service is IPv6.
    pub prefers_v6: bool,
    /// Whether `sessionAffinity` is `ClientIP`.
    pub client_affinity: bool,
    /// Which endpoints clients use.
    pub reach: Reach,
    /// Addresses and names for external clients (`status.loadBalancer`).
    pub ingress: Vec<String>,
    /// Whether the type is `LoadBalancer`.
    pub load_balancer: bool,
    /// Whether Kubernetes selects the endpoints among the pods, and only ready ones serve.
    pub of_ready_pods: bool,
    /// The proxies, if this is a target Service.
    pub front: Option<FrontProxies>,
}

/// The proxies in front of the pods of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FrontProxies {
    /// Name of the Service that clients call.
    pub service: String,
    /// Service account of the proxies; `None` if they have no identity.
    pub account: Option<String>,
    /// Labels of the pods behind the proxies.
    pub selector: BTreeMap<String, String>,
    /// The group of Services that share the proxies; `None` if the proxies are dedicated.
    pub group: Option<String>,
    /// Ports of shared proxies, by the corresponding ports of the Service.
    pub ports: BTreeMap<u16, u16>,
}

/// Parses the value of [`PROXY_PORTS`]; invalid entries are ignored.
#[must_use]
pub fn proxy_ports(text: &str) -> BTreeMap<u16, u16> {
    let one = |pair: &str| {
        let (own, shared) = pair.split_once('=')?;
        Some((own.parse().ok()?, shared.parse().ok()?))
    };
    text.split(',').filter_map(one).collect()
}

/// The endpoints of a Service that clients inside the cluster use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reach {
    /// All endpoints.
    #[default]
    Anywhere,
    /// `internalTrafficPolicy: Local`: only endpoints on the client's node.
    OwnNode,
    /// `trafficDistribution: PreferSameNode`: endpoints on the client's node, otherwise in its zone, otherwise all
    /// (KEP-3015).
    PreferNode,
    /// `trafficDistribution: PreferSameZone`, formerly `PreferClose`: endpoints in the client's zone, otherwise all.
    PreferZone,
}

impl Reach {
    /// Reads the two fields. An unknown distribution is ignored, since Kubernetes may add values.
    fn read(internal_policy: Option<&str>, distribution: Option<&str>) -> Self {
        match (internal_policy, distribution) {
            (Some("Local"), _) => Self::OwnNode,
            (_, Some("PreferSameNode")) => Self::PreferNode,
            (_, Some("PreferSameZone" | "PreferClose")) => Self::PreferZone,
            _ => Self::Anywhere,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    ip_families: Vec<String>,
    external_name: Option<String>,
    session_affinity: Option<String>,
    internal_traffic_policy: Option<String>,
    traffic_distribution: Option<String>,
    r#type: Option<String>,
    selector: Option<BTreeMap<String, String>>,
    publish_not_ready_addresses: bool,
    ports: Vec<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    load_balancer: LoadBalancer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Vec<Ingress>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ingress {
    ip: Option<String>,
    hostname: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    name: Option<String>,
    port: u16,
    protocol: Option<String>,
    app_protocol: Option<String>,
}

impl Service {
    pub(super) fn read(meta: &Meta, value: &Value) -> Result<Self, ReadError> {
        let spec: Spec = part(value, "spec")?;
        let status: Status = part(value, "status")?;
        let ingress = status.load_balancer.ingress.into_iter();
        let external = spec.r#type.as_deref() == Some("ExternalName");
        let mut ips = spec.cluster_ips;
        if ips.is_empty() {
            ips.extend(spec.cluster_ip);
        }
        let addresses: Vec<IpAddr> = ips.iter().filter_map(|text| text.parse().ok()).collect();
        let prefers_v6 = match spec.ip_families.first() {
            Some(family) => family == "IPv6",
            None => addresses.first().is_some_and(IpAddr::is_ipv6),
        };
        let tcp = |port: &Port| port.port > 0 && port.protocol.as_deref().unwrap_or("TCP") == "TCP";
        let ports = spec.ports.into_iter().filter(tcp).map(|port| ServicePort {
            protocol: Protocol::declared(port.app_protocol.as_deref(), port.name.as_deref()),
            name: port.name.filter(|name| !name.is_empty()),
            port: port.port,
        });
        let selects = spec
            .selector
            .as_ref()
            .is_some_and(|labels| !labels.is_empty());
        Ok(Self {
            ingress: ingress.filter_map(|one| one.ip.or(one.hostname)).collect(),
            load_balancer: spec.r#type.as_deref() == Some("LoadBalancer"),
            ports: ports.collect(),
            of_ready_pods: selects && !external && !spec.publish_not_ready_addresses,
            headless: !external && ips.iter().any(|text| text == "None"),
            addresses,
            external_name: spec.external_name.filter(|_| external),
            prefers_v6,
            front: meta.labels.get(PROXIED).map(|service| FrontProxies {
                service: service.clone(),
                account: meta.annotations.get(PROXY_ACCOUNT).cloned(),
                selector: spec.selector.unwrap_or_default(),
                group: meta.labels.get(PROXY_GROUP).cloned(),
                ports: meta
                    .annotations
                    .get(PROXY_PORTS)
                    .map_or_else(BTreeMap::new, |text| proxy_ports(text)),
            }),
            client_affinity: spec.session_affinity.as_deref() == Some("ClientIP"),
            reach: Reach::read(
                spec.internal_traffic_policy.as_deref(),
                spec.traffic_distribution.as_deref(),
            ),
        })
    }

    /// Returns the port with this number.
    #[must_use]
    pub fn port(&self, number: u16) -> Option<&ServicePort> {
        self.ports.iter().find(|port| port.port == number)
    }

    /// Returns whether there are ports in the list, all of which are declared as TCP or TLS.
    #[must_use]
    pub fn carries_only_bytes(&self, ports: &[u16]) -> bool {
        let of_bytes = |port: &u16| self.port(*port).is_some_and(|one| one.protocol.is_bytes());
        !ports.is_empty() && ports.iter().all(of_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_declared() {
        for (app_protocol, name, expected) in [
            (None, None, Protocol::Auto),
            (None, Some("web"), Protocol::Auto),
            (None, Some("http-web"), Protocol::Http),
            (None, Some("grpc"), Protocol::Http2),
            (None, Some("tcp-db"), Protocol::Tcp),
            (None, Some("https"), Protocol::Tls),
            (Some("kubernetes.io/h2c"), Some("http"), Protocol::Http2),
            (Some("kubernetes.io/ws"), None, Protocol::Http),
            (Some("HTTP"), None, Protocol::Http),
            (Some("example.com/own"), Some("http"), Protocol::Auto),
        ] {
            let found = Protocol::declared(app_protocol, name);
            assert_eq!(found, expected, "{app_protocol:?} {name:?}");
        }
    }

    #[test]
    fn shared_ports_are_read() {
        let ports = proxy_ports("80=20001,5432=20002,odd,81=,x=1,82=99999");
        assert_eq!(ports, BTreeMap::from([(80, 20_001), (5432, 20_002)]));
        assert_eq!(proxy_ports(""), BTreeMap::new());
    }

    #[test]
    fn services_are_read() {
        let read = |text: &str| {
            let value: Value = serde_yaml::from_str(text).unwrap();
            Service::read(&Meta::default(), &value).unwrap()
        };
        let dual = read(
            "spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6],
             ports: [{port: 80, name: http}, {port: 53, protocol: UDP}]}",
        );
        assert_eq!(dual.addresses.len(), 2);
        assert_eq!(
            (dual.ports.len(), dual.prefers_v6, dual.headless),
            (1, false, false)
        );
        let headless = read("spec: {clusterIP: None, clusterIPs: [None], ports: [{port: 80}]}");
        assert!(headless.headless && headless.addresses.is_empty());
        let external = read("spec: {type: ExternalName, externalName: db.example.com}");
        assert_eq!(external.external_name.as_deref(), Some("db.example.com"));
        let v6 = read("spec: {clusterIP: 'fd00::1', ports: [{port: 80}]}");
        assert!(v6.prefers_v6);
        for (text, reach) in [
            ("internalTrafficPolicy: Cluster", Reach::Anywhere),
            (
                "internalTrafficPolicy: Local, trafficDistribution: PreferSameZone",
                Reach::OwnNode,
            ),
            ("trafficDistribution: PreferClose", Reach::PreferZone),
            ("trafficDistribution: PreferSameNode", Reach::PreferNode),
            ("trafficDistribution: PreferSameMoon", Reach::Anywhere),
        ] {
            let read = read(&format!("spec: {{{text}, ports: [{{port: 80}}]}}"));
            assert_eq!(read.reach, reach, "{text}");
        }
    }
}
