//! Facts of EndpointSlices.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::{Key, Meta, ReadError, part};

/// The label that contains the name of a slice's Service.
const SERVICE: &str = "kubernetes.io/service-name";
/// The label that names the writer of a slice, and its value for Kubernetes itself.
const WRITTEN_BY: &str = "endpointslice.kubernetes.io/managed-by";
const KUBERNETES: &str = "endpointslice-controller.k8s.io";

/// A part of a Service's endpoints, and their common ports.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Slice {
    /// The Service; slices without one are ignored.
    pub service: Option<Key>,
    /// Ports of the endpoints, each with the name of the Service's port.
    pub ports: Vec<(Option<String>, u16)>,
    /// The endpoints, ready or not.
    pub endpoints: Vec<SliceEndpoint>,
    /// Whether Kubernetes has written the slice, so that it reflects the state of pods.
    pub of_pods: bool,
}

/// Whether an endpoint may get requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Serving {
    /// The endpoint may get requests.
    #[default]
    Yes,
    /// The endpoint is terminating but still serves: its requests may finish, but it gets no new ones.
    Draining,
    /// The endpoint must not get requests.
    No,
}

impl Serving {
    /// Returns the state for the conditions of an endpoint or a pod.
    pub(super) fn of(ready: bool, serving: bool, terminating: bool) -> Self {
        match terminating {
            false if ready => Self::Yes,
            true if ready || serving => Self::Draining,
            _ => Self::No,
        }
    }
}

/// An endpoint in a slice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SliceEndpoint {
    /// Address of the endpoint.
    pub address: IpAddr,
    /// State of the endpoint according to the slice.
    pub serving: Serving,
    /// Node of the endpoint; `None` if unknown.
    pub node: Option<String>,
    /// Zone of the endpoint according to the slice; `None` if unknown.
    pub zone: Option<String>,
    /// Name of the endpoint's pod, in the slice's namespace; `None` if it is not a pod.
    pub pod: Option<String>,
    /// UID of the pod, which distinguishes it from others of the same name; `None` if unknown.
    pub uid: Option<Box<str>>,
    /// Host name of a StatefulSet's pod below that of the Service; `None` for other endpoints.
    pub hostname: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Conditions,
    hostname: Option<String>,
    node_name: Option<String>,
    zone: Option<String>,
    target_ref: Option<TargetRef>,
}

/// Conditions of an endpoint. If absent, `ready` and `serving` are true (discovery/v1).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TargetRef {
    kind: String,
    name: String,
    uid: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Port {
    name: Option<String>,
    /// The API server accepts any number.
    port: Option<i64>,
    protocol: Option<String>,
}

impl Port {
    /// Returns the port as the index stores it; `None` if clients cannot connect to it.
    fn read(self) -> Option<(Option<String>, u16)> {
        let port = u16::try_from(self.port?).ok().filter(|port| *port > 0)?;
        let is_tcp = self.protocol.is_none_or(|protocol| protocol == "TCP");
        is_tcp.then(|| (self.name.filter(|name| !name.is_empty()), port))
    }
}

impl Slice {
    pub(super) fn read(meta: &Meta, value: &Value) -> Result<Self, ReadError> {
        let service = meta.labels.get(SERVICE);
        let ports: Vec<Port> = part(value, "ports")?;
        let endpoints: Vec<Endpoint> = part(value, "endpoints")?;
        Ok(Self {
            service: service.map(|name| Key::new(&meta.namespace, name)),
            ports: ports.into_iter().filter_map(Port::read).collect(),
            endpoints: endpoints.into_iter().filter_map(Endpoint::read).collect(),
            of_pods: meta
                .labels
                .get(WRITTEN_BY)
                .is_some_and(|who| who == KUBERNETES),
        })
    }
}

impl Endpoint {
    fn read(self) -> Option<SliceEndpoint> {
        let ready = self.conditions.ready.unwrap_or(true);
        let serving = self.conditions.serving.unwrap_or(ready);
        let terminating = self.conditions.terminating.unwrap_or(false);
        let pod = self.target_ref.filter(|target| target.kind == "Pod");
        Some(SliceEndpoint {
            // All addresses of an endpoint are equivalent, and clients use the first one (discovery/v1).
            address: address(self.addresses.first()?)?,
            serving: Serving::of(ready, serving, terminating),
            node: self.node_name.filter(|node| is_place(node)),
            zone: self.zone.filter(|zone| is_place(zone)),
            uid: pod.as_ref().and_then(|target| target.uid.clone()),
            pod: pod.map(|target| target.name),
            hostname: self.hostname.filter(|name| !name.is_empty()),
        })
    }
}

/// Parses an address; `None` if it cannot be connected to.
fn address(text: &str) -> Option<IpAddr> {
    text.parse()
        .ok()
        .filter(|address: &IpAddr| !address.is_unspecified())
}

/// Returns whether a text is a valid name of a node or zone. The API server accepts any text as a zone, and proxies
/// that cannot decode it would get no endpoints at all.
fn is_place(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serving_endpoints_are_reported() {
        let value: Value = serde_yaml::from_str(
            "
            ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
            endpoints:
            - {addresses: [10.1.0.1], nodeName: a, zone: z, targetRef: {kind: Pod, name: p1, uid: u}}
            - {addresses: [10.1.0.2], conditions: {ready: false}}
            - {addresses: [10.1.0.3], conditions: {ready: false, serving: true, terminating: true}}
            - {addresses: [10.1.0.4], conditions: {ready: false, serving: false, terminating: true}}
            - {addresses: [10.1.0.5], conditions: {ready: true, terminating: true}}
            ",
        )
        .unwrap();
        let meta = Meta {
            namespace: "shop".into(),
            labels: [(SERVICE.to_owned(), "cart".to_owned())].into(),
            ..Meta::default()
        };
        let slice = Slice::read(&meta, &value).unwrap();
        assert_eq!(slice.service, Some(Key::new("shop", "cart")));
        assert_eq!(slice.ports, [(Some("http".to_owned()), 8080)]);
        let found: Vec<_> = slice
            .endpoints
            .iter()
            .map(|endpoint| (endpoint.address.to_string(), endpoint.serving))
            .collect();
        let address = |n: u8| format!("10.1.0.{n}");
        assert_eq!(
            found,
            [
                (address(1), Serving::Yes),
                (address(2), Serving::No),
                (address(3), Serving::Draining),
                (address(4), Serving::No),
                (address(5), Serving::Draining),
            ]
        );
        assert_eq!(slice.endpoints[0].pod.as_deref(), Some("p1"));
        assert_eq!(slice.endpoints[0].uid.as_deref(), Some("u"));
        assert!(!slice.of_pods, "no owner is set");
    }

    /// Entries that the API server accepts but that are unusable are omitted, without affecting others.
    #[test]
    fn what_cannot_be_used_is_left_out_by_itself() {
        let value: Value = serde_yaml::from_str(
            "
            ports: [{name: a, port: 0}, {name: b, port: -1}, {name: c, port: 65536}, {name: d}, {name: http, port: 8080}]
            endpoints:
            - {addresses: [0.0.0.0]}
            - {addresses: ['::']}
            - {addresses: [a.example]}
            - {addresses: [10.1.0.1], zone: a/b, nodeName: ''}
            - {addresses: [10.1.0.2], zone: ' ', nodeName: node-2.example}
            - {addresses: [10.1.0.3], zone: ''}
            ",
        )
        .unwrap();
        let slice = Slice::read(&Meta::default(), &value).unwrap();
        assert_eq!(slice.ports, [(Some("http".to_owned()), 8080)]);
        let place = |one: &SliceEndpoint| (one.zone.clone(), one.node.clone());
        let places: Vec<_> = slice.endpoints.iter().map(place).collect();
        let second = (None, Some("node-2.example".to_owned()));
        assert_eq!(places, [(None, None), second, (None, None)]);
    }
}
