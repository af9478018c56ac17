//! The endpoints of a port: addresses, places, who drains, and who they have to prove to be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use maglor_config::raw;

use super::local;
use super::members::{self, Member};
use crate::index::facts::{Key, Reach, Service, ServicePort, Slice, SliceEndpoint};
use crate::index::resource::{Consumer, Endpoint, Place};
use crate::index::{Index, links};

/// What a proxy takes for a locality.
const LONGEST_LOCALITY: usize = 253;

/// The endpoints of a port.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    /// By address, so that the order of slices does not matter.
    pub(crate) list: Vec<Endpoint>,
    /// TLS towards them.
    pub(crate) tls: Option<raw::Short<raw::UpstreamTls>>,
    /// Those with a name of their own, in a StatefulSet.
    pub(crate) named: BTreeMap<String, Named>,
    /// What clients of some places get instead of `list`.
    pub(crate) by_place: Vec<(Consumer, Vec<Endpoint>)>,
    /// Endpoints without a sidecar, known to others only by address.
    pub(crate) outside: Vec<Endpoint>,
}

/// The endpoint of a name of its own; while it is replaced there may be two.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) list: Vec<Endpoint>,
    pub(crate) tls: Option<raw::Short<raw::UpstreamTls>>,
}

/// The port of a slice's endpoints for a port of the Service.
///
/// A Service's only port may have no name; then the slice's has none, either.
pub(crate) fn target_port(slice: &Slice, port: &ServicePort) -> Option<u16> {
    let found = slice.ports.iter().find(|(name, _)| *name == port.name);
    found.map(|(_, number)| *number)
}

/// The endpoints of a port, of one address family: each pod once. With `labels`, only pods that have
/// them. With `local_first`, the slack, lists for the nodes from which the Service is called.
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
            // For a moment an endpoint may be in two slices (discovery/v1); who serves, serves.
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
        // What the Service says itself outweighs a policy.
        (Reach::Anywhere, Some(slack), Some(callers)) => {
            local::by_node(&endpoints.list, &places, callers, slack)
        }
        (reach, _, _) => by_place(reach, &endpoints.list, &places),
    };
    if service.reach == Reach::OwnNode {
        // A client whose node is not known has none of its own node.
        endpoints.list.clear();
    }
    for (hostname, named) in &mut endpoints.named {
        let of_name = all().filter(|(_, one)| one.endpoint.hostname.as_ref() == Some(hostname));
        named.tls = tls(index, of_name);
    }
    endpoints
}

/// By whom what is sent is understood.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Understood {
    /// By all endpoints, whatever it is.
    All,
    /// By those that speak mutual TLS.
    Secured,
    /// By those that take plain text.
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

/// Endpoints that take nothing but mutual TLS, beside others that cannot speak it: whatever is sent, some would
/// refuse all of it. One stray pod must not take a Service away from its clients, nor the first of many to get its
/// sidecar: so the part that has more endpoints gets all requests. Draining endpoints do not count.
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

/// The node and the zone of an endpoint.
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

/// What clients get on nodes and in zones where endpoints are; elsewhere they get what everybody does.
/// `places` are those of the endpoints.
fn by_place(reach: Reach, all: &[Endpoint], places: &[Place]) -> Vec<(Consumer, Vec<Endpoint>)> {
    let zones: BTreeSet<&str> = places
        .iter()
        .filter_map(|one| one.zone.as_deref())
        .collect();
    // With the zone, in which a client of the node is, too.
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

/// The endpoints with a priority each: 0 for the lowest rank, without gaps.
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

/// `REGION/ZONE/NODE`; `-` for what is not known, nothing where no part is.
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
    // A node's name alone may be as long as all of it may be.
    (0..=known)
        .rev()
        .map(text)
        .find(|text| text.len() <= LONGEST_LOCALITY)
}

/// Mutual TLS where the sidecar of each endpoint takes what is sent to its port, and proves to be one of the
/// accounts that run the Service. Otherwise plain text: while sidecars come in, those that are there take both.
fn tls<'a>(
    index: &Index,
    endpoints: impl Iterator<Item = (u16, Member<'a>)>,
) -> Option<raw::Short<raw::UpstreamTls>> {
    identities(index, endpoints).and_then(mutual)
}

/// The same for a Service whose requests go through proxies, or will, or did until now: any of the
/// two is an endpoint, the same is used, and either is who is expected.
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

/// Whom endpoints prove to be; `None` = one has no sidecar for its port.
fn identities<'a>(
    index: &Index,
    endpoints: impl Iterator<Item = (u16, Member<'a>)>,
) -> Option<BTreeSet<String>> {
    endpoints
        .map(|(port, one)| one.identity(index, port))
        .collect()
}

/// Mutual TLS with these identities, if there are any.
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

/// The ports of the pods behind a Service that a pod has, with the Service's.
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

/// The pods behind a Service.
pub(crate) fn pods(index: &Index, service: &Key) -> BTreeSet<Key> {
    let slices = index.links.slices_of_service(service);
    let slices = slices.filter_map(|name| index.slices.get_key_value(name));
    slices
        .flat_map(|(key, slice)| links::pods(key, slice))
        .collect()
}
