//! Builds the endpoints of a port: addresses, locations, draining states, and expected identities.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use maglor_config::raw;

use super::local;
use super::members::{self, Member};
use crate::index::facts::{Key, Reach, Service, ServicePort, Slice, SliceEndpoint};
use crate::index::resource::{Consumer, Endpoint, Place};
use crate::index::{Index, links};

/// Maximum length of a locality that proxies accept, in bytes.
const LONGEST_LOCALITY: usize = 253;

/// The endpoints of a port.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    /// The endpoints, sorted by address, so that the order of slices does not matter.
    pub(crate) list: Vec<Endpoint>,
    /// TLS of connections to the endpoints; `None` for plain text.
    pub(crate) tls: Option<raw::Short<raw::UpstreamTls>>,
    /// Endpoints that have their own name, in a StatefulSet.
    pub(crate) named: BTreeMap<String, Named>,
    /// Lists for clients in some places, which replace `list`.
    pub(crate) by_place: Vec<(Consumer, Vec<Endpoint>)>,
    /// Endpoints without a sidecar, which clients call by address only.
    pub(crate) outside: Vec<Endpoint>,
}

/// The endpoints of one name; there may be two while a pod is replaced.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) list: Vec<Endpoint>,
    pub(crate) tls: Option<raw::Short<raw::UpstreamTls>>,
}

/// Returns the port of a slice's endpoints that corresponds to a port of the Service.
///
/// If a Service's only port has no name, neither has that of the slice.
pub(crate) fn target_port(slice: &Slice, port: &ServicePort) -> Option<u16> {
    let found = slice.ports.iter().find(|(name, _)| *name == port.name);
    found.map(|(_, number)| *number)
}

/// Returns the endpoints of a port in one address family, with each pod once. If `labels` is set, only pods with
/// these labels are included. If `local_first` is set, which is the slack, the result also contains lists for the
/// nodes from which the Service is called.
pub(crate) fn of(
    index: &Index,
    key: &Key,
    service: &Service,
    port: &ServicePort,
    labels: Option<&BTreeMap<String, String>>,
    local_first: Option<f64>,
) -> Endpoints {
    let with_family = |v6: bool| -> BTreeMap<SocketAddr, Member<'_>> {
        let mut found: BTreeMap<SocketAddr, Member<'_>> = BTreeMap::new();
        for member in members::of(index, key) {
            let Some(target) = target_port(member.slice, port) else {
                continue;
            };
            let wanted = labels.is_none_or(|labels| member.has_labels(labels));
            let address = member.endpoint.address;
            if address.is_ipv6() != v6 || !wanted {
                continue;
            }
            // An endpoint may briefly be in two slices (discovery/v1). It serves if either slice lists it as serving.
            let entry = found
                .entry(SocketAddr::new(address, target))
                .or_insert(member);
            if entry.draining && !member.draining {
                *entry = member;
            }
        }
        found
    };
    let mut found = with_family(service.prefers_v6);
    if found.is_empty() {
        found = with_family(!service.prefers_v6);
    }
    let understood = match index.behind(key) {
        None => understood(index, &found),
        Some(_) => Understood::All,
    };
    let mut endpoints = Endpoints::default();
    let mut places = Vec::new();
    for (address, member) in &found {
        let one = member.endpoint;
        let endpoint = Endpoint {
            described: raw::Endpoint {
                address: Some(address.to_string()),
                locality: locality(index, one),
                ..raw::Endpoint::default()
            },
            draining: member.draining,
        };
        if let Some(hostname) = &one.hostname {
            let named = endpoints.named.entry(hostname.clone()).or_default();
            named.list.push(endpoint.clone());
        }
        if member.pod.is_none_or(|pod| !pod.has_sidecar) {
            endpoints.outside.push(endpoint.clone());
        }
        if understood.by(index, address.port(), *member) {
            places.push(place(index, one));
            endpoints.list.push(endpoint);
        }
    }
    let all = || found.iter().map(|(address, one)| (address.port(), *one));
    endpoints.tls = match index.behind(key).filter(|_| labels.is_none()) {
        None => tls(
            index,
            all().filter(|(port, one)| understood.by(index, *port, *one)),
        ),
        Some((target, account)) => tls_by_proxies(index, all(), &target, port, account),
    };
    endpoints.by_place = match (service.reach, local_first, index.callers.get(key)) {
        // Settings of the Service itself take precedence over a policy.
        (Reach::Anywhere, Some(slack), Some(callers)) => {
            local::by_node(&endpoints.list, &places, callers, slack)
        }
        (reach, _, _) => by_place(reach, &endpoints.list, &places),
    };
    if service.reach == Reach::OwnNode {
        // A client on an unknown node has no endpoints on its own node.
        endpoints.list.clear();
    }
    for (hostname, named) in &mut endpoints.named {
        let of_name = all().filter(|(_, one)| one.endpoint.hostname.as_ref() == Some(hostname));
        named.tls = tls(index, of_name);
    }
    endpoints
}

/// Which endpoints can handle the connections that clients open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Understood {
    /// All endpoints.
    All,
    /// Only endpoints that accept mutual TLS.
    Secured,
    /// Only endpoints that accept plain text.
    Plain,
}

impl Understood {
    fn by(self, index: &Index, port: u16, one: Member<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Secured => one.is_secured(port),
            Self::Plain => !one.is_strict(index, port),
        }
    }
}

/// Determines which endpoints are used. If some endpoints accept only mutual TLS and others do not support it, either
/// choice fails for some of them. A single pod, or the first of many pods that gets a sidecar, must not make a
/// Service unreachable for its clients. Therefore the larger group gets all requests. Draining endpoints do not
/// count.
fn understood(index: &Index, found: &BTreeMap<SocketAddr, Member<'_>>) -> Understood {
    let all = || found.iter().map(|(address, one)| (address.port(), *one));
    let mixed = all().any(|(port, one)| !one.is_secured(port));
    if !(mixed && all().any(|(port, one)| one.is_strict(index, port))) {
        return Understood::All;
    }
    let (secured, plain): (Vec<_>, Vec<_>) = all()
        .filter(|(_, one)| !one.draining)
        .partition(|(port, one)| one.is_secured(*port));
    match secured.len() >= plain.len() {
        true => Understood::Secured,
        false => Understood::Plain,
    }
}

/// Returns the node and the zone of an endpoint.
fn place(index: &Index, endpoint: &SliceEndpoint) -> Place {
    let node = endpoint.node.clone();
    let facts = node
        .as_deref()
        .and_then(|name| index.nodes.get(&Key::new("", name)));
    let of_node = || facts.and_then(|node| node.zone.clone());
    Place {
        zone: endpoint.zone.clone().or_else(of_node),
        node,
    }
}

/// Returns the lists for clients on nodes and in zones with endpoints; other clients get the general list. `places`
/// are the places of the endpoints.
fn by_place(reach: Reach, all: &[Endpoint], places: &[Place]) -> Vec<(Consumer, Vec<Endpoint>)> {
    let zones: BTreeSet<&str> = places
        .iter()
        .filter_map(|one| one.zone.as_deref())
        .collect();
    // Including the node's zone, which also applies to the node's clients.
    let nodes: BTreeMap<&str, Option<&str>> = places
        .iter()
        .filter_map(|one| Some((one.node.as_deref()?, one.zone.as_deref())))
        .collect();
    let same = |own: Option<&str>, other: &Option<String>| own.is_some() && own == other.as_deref();
    let by_rank = |node: Option<&str>, zone: Option<&str>| {
        let ranks = places.iter().map(|place| match () {
            () if same(node, &place.node) => 0,
            () if same(zone, &place.zone) => 1,
            () => 2,
        });
        prioritized(all, &ranks.collect::<Vec<u32>>())
    };
    let zone_lists = || {
        let of_zone = |zone: &&str| {
            (
                Consumer::Zone((*zone).to_owned()),
                by_rank(None, Some(*zone)),
            )
        };
        zones.iter().map(of_zone).collect::<Vec<_>>()
    };
    match reach {
        Reach::Anywhere => Vec::new(),
        Reach::OwnNode => {
            let own = |node: &str| {
                let pairs = all.iter().zip(places);
                let own = pairs.filter(|(_, place)| same(Some(node), &place.node));
                own.map(|(endpoint, _)| endpoint.clone()).collect()
            };
            let nodes = nodes
                .keys()
                .map(|node| (Consumer::Node((*node).to_owned()), own(node)));
            nodes.collect()
        }
        Reach::PreferNode => {
            let of_node = |(node, zone): (&&str, &Option<&str>)| {
                (
                    Consumer::Node((*node).to_owned()),
                    by_rank(Some(*node), *zone),
                )
            };
            let mut lists = zone_lists();
            lists.extend(nodes.iter().map(of_node));
            lists
        }
        Reach::PreferZone => zone_lists(),
    }
}

/// Returns the endpoints with their priorities: 0 for the lowest rank, without gaps.
fn prioritized(all: &[Endpoint], ranks: &[u32]) -> Vec<Endpoint> {
    let levels: BTreeSet<u32> = ranks.iter().copied().collect();
    let levels: BTreeMap<u32, u32> = levels.into_iter().zip(0..).collect();
    let with_priority = |(endpoint, rank): (&Endpoint, &u32)| {
        let mut endpoint = endpoint.clone();
        endpoint.described.priority = levels.get(rank).copied().filter(|level| *level > 0);
        endpoint
    };
    all.iter().zip(ranks).map(with_priority).collect()
}

/// Formats a locality as `REGION/ZONE/NODE`, with `-` for an unknown part; `None` if all parts are unknown.
fn locality(index: &Index, endpoint: &SliceEndpoint) -> Option<String> {
    let node = endpoint.node.as_deref();
    let facts = node.and_then(|name| index.nodes.get(&Key::new("", name)));
    let region = facts.and_then(|node| node.region.as_deref());
    let zone = endpoint.zone.as_deref();
    let zone = zone.or_else(|| facts.and_then(|node| node.zone.as_deref()));
    let parts = [region, zone, node];
    let known = parts.iter().rposition(Option::is_some)?;
    let text = |last: usize| {
        let parts = parts[..=last].iter().map(|part| part.unwrap_or("-"));
        parts.collect::<Vec<&str>>().join("/")
    };
    // The name of a node may already have the maximum length.
    (0..=known)
        .rev()
        .map(text)
        .find(|text| text.len() <= LONGEST_LOCALITY)
}

/// Returns mutual TLS, with the service accounts of the Service as expected identities, if each endpoint has a
/// sidecar for its port. Otherwise returns plain text, which existing sidecars accept while others are being added.
fn tls<'a>(
    index: &Index,
    endpoints: impl Iterator<Item = (u16, Member<'a>)>,
) -> Option<raw::Short<raw::UpstreamTls>> {
    identities(index, endpoints).and_then(mutual)
}

/// Like [`tls`], but for a Service whose requests go through proxies now, soon or until recently. Both the pods and
/// the proxies may be endpoints, so both must support mutual TLS, and the identities of both are expected.
fn tls_by_proxies<'a>(
    index: &'a Index,
    endpoints: impl Iterator<Item = (u16, Member<'a>)>,
    target: &Key,
    port: &ServicePort,
    account: &str,
) -> Option<raw::Short<raw::UpstreamTls>> {
    let behind =
        members::of(index, target).filter_map(|one| Some((target_port(one.slice, port)?, one)));
    let mut identities = identities(index, endpoints.chain(behind))?;
    identities.insert(index.identity(&target.namespace, account));
    mutual(identities)
}

/// Returns the identities of endpoints; `None` if any of them has no sidecar for its port.
fn identities<'a>(
    index: &Index,
    endpoints: impl Iterator<Item = (u16, Member<'a>)>,
) -> Option<BTreeSet<String>> {
    endpoints
        .map(|(port, one)| one.identity(index, port))
        .collect()
}

/// Returns mutual TLS with these identities; `None` if there are none.
pub(crate) fn mutual(identities: BTreeSet<String>) -> Option<raw::Short<raw::UpstreamTls>> {
    if identities.is_empty() {
        return None;
    }
    Some(raw::Short(raw::UpstreamTls {
        mesh: Some(raw::MeshPeers {
            identities: identities.into_iter().collect(),
        }),
        ..raw::UpstreamTls::default()
    }))
}

/// Returns the ports of a pod that are targets of Services, each with the Service's port.
pub(crate) fn ports_of_pod<'a>(
    index: &'a Index,
    pod: &'a Key,
) -> impl Iterator<Item = (&'a Key, &'a Service, &'a ServicePort, u16, IpAddr)> {
    let slices = index.links.slices_of_pod(pod);
    slices.flat_map(move |name| {
        let slice = index.slices.get(name);
        let service = slice.and_then(|slice| slice.service.as_ref());
        let service = service.and_then(|key| index.services.get_key_value(key));
        let found = slice.zip(service).into_iter();
        found.flat_map(move |(slice, (key, service))| {
            let workload = index.workloads.get(pod);
            let endpoint = slice.endpoints.iter().find(|one| {
                one.pod.as_deref() == Some(pod.name.as_str())
                    && workload.is_some_and(|workload| !members::is_another(one, workload))
            });
            endpoint.into_iter().flat_map(move |endpoint| {
                let with_target = move |port: &'a ServicePort| {
                    let target = target_port(slice, port)?;
                    Some((key, service, port, target, endpoint.address))
                };
                service.ports.iter().filter_map(with_target)
            })
        })
    })
}

/// Returns the pods behind a Service.
pub(crate) fn pods(index: &Index, service: &Key) -> BTreeSet<Key> {
    let slices = index.links.slices_of_service(service);
    let slices = slices.filter_map(|name| index.slices.get_key_value(name));
    slices
        .flat_map(|(key, slice)| links::pods(key, slice))
        .collect()
}
