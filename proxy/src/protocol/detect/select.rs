//! Selects the filter chain of a connection.
//!
//! A chain matches a connection if all conditions of its match are met. Of the matching chains, the most specific one
//! is selected: by destination port (equal, then any), then by the longest prefix of the destination, then by server
//! name (exact, then the longest suffix wildcard, then any), then by application protocol (the client's first choice,
//! then its next ones, then any), then by the longest source prefix; finally, the first one listed.

use std::cmp::Reverse;
use std::net::IpAddr;

use hashbrown::HashMap;
use ipnet::IpNet;
use maglor_config::listener::FilterChainMatch;

use super::ClientHello;
use crate::protocol::proxy_protocol::Addresses;

/// Selects among a listener's filter chains; built with the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainSelector {
    /// Chains for one address; a sidecar may have thousands.
    hosts: HashMap<(Option<u16>, IpAddr), Group>,
    /// Chains for networks and for any address (`None`), ordered from the longest prefix.
    networks: HashMap<Option<u16>, Vec<(Option<IpNet>, Group)>>,
}

/// The chains of one destination.
#[derive(Clone, Debug, Default)]
struct Group {
    exact: HashMap<String, Vec<Candidate>>,
    /// Chains for suffix wildcards: `*.example.com` is under `example.com`.
    suffix: HashMap<String, Vec<Candidate>>,
    any: Vec<Candidate>,
    needs_client_hello: bool,
}

/// A chain for one of its server names.
#[derive(Clone, Debug)]
struct Candidate {
    chain: usize,
    /// ALPN protocols; empty if any matches.
    alpn: Vec<Box<[u8]>>,
    /// Source networks; empty if any matches.
    source: Vec<IpNet>,
}

impl ChainSelector {
    /// Compiles the matches of a listener's chains; results are indices into them.
    pub(crate) fn new<'a>(matches: impl IntoIterator<Item = &'a FilterChainMatch>) -> Self {
        let mut this = Self::default();
        for (chain, matches) in matches.into_iter().enumerate() {
            let ports = any_or(&matches.destination_ports);
            let networks = any_or(&matches.destination_networks);
            for port in &ports {
                for network in &networks {
                    this.group(*port, *network).insert(chain, matches);
                }
            }
        }
        for networks in this.networks.values_mut() {
            // "Any address" is less specific than a prefix of length 0.
            networks.sort_by_key(|(net, _)| Reverse(net.map(|net| net.prefix_len())));
        }
        this
    }

    fn group(&mut self, port: Option<u16>, network: Option<IpNet>) -> &mut Group {
        if let Some(net) = network.filter(|net| net.prefix_len() == net.max_prefix_len()) {
            return self.hosts.entry((port, net.addr())).or_default();
        }
        let networks = self.networks.entry(port).or_default();
        let at = networks.iter().position(|(net, _)| *net == network);
        let at = at.unwrap_or_else(|| {
            networks.push((network, Group::default()));
            networks.len() - 1
        });
        &mut networks[at].1
    }

    /// Returns the groups of a destination, the most specific first.
    fn groups(&self, addresses: Option<Addresses>) -> impl Iterator<Item = &Group> {
        let destination = addresses.map(|both| both.destination);
        let ip = destination.map(|destination| destination.ip().to_canonical());
        let port = destination.map(|destination| Some(destination.port()));
        port.into_iter().chain([None]).flat_map(move |port| {
            let host = ip.and_then(|ip| self.hosts.get(&(port, ip)));
            let networks = self.networks.get(&port).into_iter().flatten();
            let containing = networks.filter(move |(net, _)| is_within(*net, ip));
            host.into_iter().chain(containing.map(|(_, group)| group))
        })
    }

    /// Returns whether the selection depends on the ClientHello; otherwise there is no need to wait for it.
    pub(crate) fn needs_client_hello(&self, addresses: Option<Addresses>) -> bool {
        let mut groups = self.groups(addresses);
        groups
            .find_map(|group| match group.needs_client_hello {
                true => Some(true),
                // A group that matches every connection hides the less specific groups.
                false => group.takes_all().then_some(false),
            })
            .unwrap_or(false)
    }

    /// Returns whether the selection depends on the ClientHello for any destination.
    pub(crate) fn may_need_client_hello(&self) -> bool {
        let networks = self.networks.values().flatten().map(|(_, group)| group);
        let mut groups = self.hosts.values().chain(networks);
        groups.any(|group| group.needs_client_hello)
    }

    /// Returns the chain for a connection; `None` if no chain matches.
    ///
    /// For clients that do not use TLS, the ClientHello is empty. A connection over a Unix socket has no addresses,
    /// and only chains without conditions on addresses match it.
    pub(crate) fn select(
        &self,
        hello: &ClientHello,
        addresses: Option<Addresses>,
    ) -> Option<usize> {
        let source = addresses.map(|both| both.source.ip().to_canonical());
        let name = hello.server_name.as_deref();
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name));
        self.groups(addresses)
            .find_map(|group| group.select(name, &hello.alpn, source))
    }
}

/// Returns whether an address is in a network. No network (`None`) stands for all addresses, known or not; an unknown
/// address is in no network.
fn is_within(network: Option<IpNet>, ip: Option<IpAddr>) -> bool {
    network.is_none_or(|network| ip.is_some_and(|ip| network.contains(&ip)))
}

fn any_or<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() {
        return vec![None];
    }
    list.iter().copied().map(Some).collect()
}

impl Group {
    fn insert(&mut self, chain: usize, matches: &FilterChainMatch) {
        let protocols = &matches.application_protocols;
        self.needs_client_hello |= !matches.server_names.is_empty() || !protocols.is_empty();
        let candidate = Candidate {
            chain,
            alpn: protocols
                .iter()
                .map(|name| name.as_bytes().into())
                .collect(),
            source: matches.source.clone(),
        };
        for name in &matches.server_names {
            let (map, key) = match name.strip_prefix("*.") {
                Some(suffix) => (&mut self.suffix, suffix),
                None => (&mut self.exact, name.as_str()),
            };
            map.entry_ref(key).or_default().push(candidate.clone());
        }
        if matches.server_names.is_empty() {
            self.any.push(candidate);
        }
    }

    /// Returns whether every connection to this destination matches.
    fn takes_all(&self) -> bool {
        let open = |c: &Candidate| c.alpn.is_empty() && c.source.is_empty();
        self.any.iter().any(open)
    }

    fn select(
        &self,
        name: Option<&str>,
        alpn: &[Vec<u8>],
        source: Option<IpAddr>,
    ) -> Option<usize> {
        let best = |candidates: &Vec<Candidate>| {
            let ranked = candidates
                .iter()
                .filter_map(|c| Some((c.rank(alpn, source)?, c.chain)));
            ranked.min().map(|(_, chain)| chain)
        };
        let exact = || self.exact.get(name?).and_then(best);
        let suffix = || suffixes(name?).find_map(|suffix| self.suffix.get(suffix).and_then(best));
        exact().or_else(suffix).or_else(|| best(&self.any))
    }
}

/// Returns `b.c` and `c` for `a.b.c`.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let dots = memchr::memchr_iter(b'.', name.as_bytes());
    dots.filter(|dot| *dot > 0).map(|dot| &name[dot + 1..])
}

/// How specific a match is; smaller values are more specific.
type Rank = (usize, Reverse<u8>);

impl Candidate {
    /// Returns how specific this is for a connection; `None` if it does not match.
    fn rank(&self, alpn: &[Vec<u8>], source: Option<IpAddr>) -> Option<Rank> {
        let protocol = if self.alpn.is_empty() {
            usize::MAX
        } else {
            alpn.iter()
                .position(|offered| self.alpn.iter().any(|name| **name == **offered))?
        };
        // "Any address" is less specific than a prefix of length 0, hence the offset of 1.
        let prefix = if self.source.is_empty() {
            0
        } else {
            let source = source?;
            let containing = self.source.iter().filter(|net| net.contains(&source));
            containing.map(|net| net.prefix_len() + 1).max()?
        };
        Some((protocol, Reverse(prefix)))
    }
}
