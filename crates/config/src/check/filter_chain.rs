//! Validates filter chains: their matches, which must not overlap, and their filters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::listener_context::ListenerContext;
use super::route::Tables;
use super::rule::{self, Unique};
use super::tls::Behind;
use super::{Scope, host, http, sidecar, tcp, tls};
use crate::report::{At, Step};
use crate::tls::MeshMode;
use crate::{Filter, FilterChain, FilterChainMatch, HttpFilter, Termination, raw};

/// The maximum number of combinations of server name, ALPN protocol and source in a listener.
const MAX_COMBINATIONS: usize = 100_000;

/// Validates the chains of a listener, which are written as a list or as a single chain.
pub(super) fn all(
    raw: &raw::Listener,
    at: &At<'_>,
    listener: &Arc<str>,
    scope: &Scope<'_>,
    tables: &Tables,
) -> Vec<FilterChain> {
    // With both of the first, the protocol is detected.
    let set = [
        ("http", raw.http.is_some()),
        ("tcp", raw.tcp.is_some() && raw.http.is_none()),
        ("filter_chains", !raw.filter_chains.is_empty()),
        ("inbound", raw.inbound.is_some()),
        ("outbound", raw.outbound.is_some()),
    ];
    let context = ListenerContext {
        listener,
        scope,
        tables,
    };
    match rule::exactly_one(&set, at) {
        Some("filter_chains") => {
            if raw.tls.is_some() {
                at.field("tls")
                    .error("`tls` has no effect with `filter_chains`")
                    .on_key()
                    .help("move `tls` into the chains that terminate TLS");
            }
            list(&raw.filter_chains, &at.field("filter_chains"), &context)
        }
        Some("inbound") => sidecar::inbound(raw, at, &context),
        Some("outbound") => sidecar::outbound(raw, at, &context),
        Some(_) => {
            let tls = raw.tls.as_ref().map(|tls| &tls.0);
            let (http, tcp) = (raw.http.as_ref(), raw.tcp.as_ref());
            let matches = FilterChainMatch::default();
            let chain = chain(&context, "default".into(), matches, tls, (http, tcp), at);
            chain.into_iter().collect()
        }
        None => Vec::new(),
    }
}

fn list(
    raw: &[raw::FilterChain],
    at: &At<'_>,
    context: &ListenerContext<'_, '_>,
) -> Vec<FilterChain> {
    let (mut names, mut chains) = (Unique::default(), Vec::new());
    let mut taken = Taken::default();
    for (i, raw) in raw.iter().enumerate() {
        let at = at.index(i);
        let name = raw.name.clone().unwrap_or_else(|| i.to_string());
        if rule::well_formed(&name, &at.field("name")) {
            names.check(&name, &at.field("name"), "the filter chain");
        }
        let empty = raw::FilterChainMatch::default();
        let matches = raw.r#match.as_ref().unwrap_or(&empty);
        let matches = chain_match(matches, &at.field("match"));
        if complete(&matches, raw.r#match.as_ref()) {
            taken.check(&matches, &at);
        }
        let tls = raw.tls.as_ref().map(|tls| &tls.0);
        let filters = (raw.http.as_ref(), raw.tcp.as_ref());
        if raw.http.is_none() && raw.tcp.is_none() {
            at.error("`http` or `tcp` is required, or both")
                .when_readable();
        } else {
            chains.extend(chain(context, name.into(), matches, tls, filters, &at));
        }
    }
    chains
}

/// Validates one chain.
fn chain(
    context: &ListenerContext<'_, '_>,
    name: Arc<str>,
    matches: FilterChainMatch,
    tls: Option<&raw::DownstreamTls>,
    (http, tcp): (Option<&raw::Http>, Option<&raw::Tcp>),
    at: &At<'_>,
) -> Option<FilterChain> {
    let http = http.map(|raw| {
        let table = format!("{}/{name}", context.listener);
        http::filter(
            raw,
            &at.field("http"),
            &table,
            context.scope,
            context.tables,
        )
    });
    let discovers = |http: &HttpFilter| {
        let discovery = http.discovery.as_ref();
        discovery.is_some_and(|discovery| discovery.host.is_some())
    };
    let discovers = http.as_ref().is_some_and(discovers);
    let tcp = tcp.map(|raw| tcp::filter(raw, discovers, &at.field("tcp"), context.scope));
    let behind = Behind::of(http.as_ref());
    let is_http = http.is_some();
    let filter = match (http.map(Box::new), tcp) {
        (Some(http), Some(tcp)) => Filter::Detect { http, tcp },
        (Some(http), None) => Filter::Http(http),
        (None, Some(tcp)) => Filter::Tcp(tcp),
        (None, None) => return None,
    };
    let hello = !matches.server_names.is_empty() || !matches.application_protocols.is_empty();
    if hello && tls.is_none() && is_http {
        at.field("http")
            .error("HTTP inside TLS cannot be processed: the chain does not terminate TLS")
            .on_key()
            .help("add `tls: {certificate: FILE, private_key: FILE}`: server names and ALPN are part of TLS");
    }
    let tls = tls.map(|raw| tls::termination(raw, &at.field("tls"), behind, context.scope));
    if let Some(Termination::Mesh(mesh)) = &tls
        && mesh.mode == MeshMode::Permissive
        && hello
    {
        at.field("tls")
            .warning("plain text never matches this chain: it matches on TLS properties")
            .help("write `tls: mesh`, or add a chain without `server_names` and `application_protocols` for plain text");
    }
    Some(FilterChain {
        name,
        matches,
        tls,
        filter,
    })
}

fn chain_match(raw: &raw::FilterChainMatch, at: &At<'_>) -> FilterChainMatch {
    let mut server_names = Vec::new();
    for (i, text) in raw.server_names.iter().enumerate() {
        match host::server_name(text) {
            Ok(name) => server_names.push(name),
            Err(help) => {
                let text = crate::yaml::short(text);
                at.field("server_names")
                    .index(i)
                    .error(format!("`{text}` is not a server name"))
                    .help(help);
            }
        }
    }
    let mut source = Vec::new();
    for (i, text) in raw.source.iter().enumerate() {
        source.extend(network(text, &at.field("source").index(i)));
    }
    for (i, text) in raw.application_protocols.iter().enumerate() {
        if text.is_empty() || text.len() > 255 {
            let at = at.field("application_protocols");
            at.index(i)
                .error("an ALPN protocol must have 1 to 255 bytes");
        }
    }
    let networks = at.field("destination_networks");
    let mut destination_networks = Vec::new();
    for (i, text) in raw.destination_networks.iter().enumerate() {
        destination_networks.extend(network(text, &networks.index(i)));
    }
    let ports = at.field("destination_ports");
    let port = |(i, &port): (usize, &u32)| {
        let port = rule::number(Some(port), &ports.index(i), 1, 1..=65_535);
        u16::try_from(port).unwrap_or(1)
    };
    FilterChainMatch {
        destination_ports: raw.destination_ports.iter().enumerate().map(port).collect(),
        destination_networks,
        server_names,
        application_protocols: raw.application_protocols.clone(),
        source,
    }
}

/// Returns whether all of the conditions could be read; a match without some of them would be too wide.
fn complete(matches: &FilterChainMatch, raw: Option<&raw::FilterChainMatch>) -> bool {
    raw.is_none_or(|raw| {
        matches.server_names.len() == raw.server_names.len()
            && matches.source.len() == raw.source.len()
            && matches.destination_networks.len() == raw.destination_networks.len()
    })
}

pub(super) fn network(text: &str, at: &At<'_>) -> Option<IpNet> {
    let network = match text.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => {
                at.error(format!("`{}` is not a network", crate::yaml::short(text)))
                    .help("write `10.0.0.0/8`, `2001:db8::/32` or an address");
                return None;
            }
        },
    };
    let whole = network.trunc();
    if whole != network {
        at.warning(format!(
            "{network} has bits set beyond its prefix; did you mean {whole}?"
        ));
    }
    Some(whole)
}

/// The matched properties of a connection; `None` = any.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
struct Combination {
    port: Option<u16>,
    destination: Option<IpNet>,
    name: Option<String>,
    protocol: Option<String>,
    source: Option<IpNet>,
}

/// The combinations used by earlier chains of a listener.
#[derive(Default)]
struct Taken {
    by: HashMap<Combination, Arc<[Step]>>,
    too_many: bool,
}

impl Taken {
    /// Rejects a chain with the same combination as an earlier one, which would be ambiguous.
    fn check(&mut self, matches: &FilterChainMatch, at: &At<'_>) {
        let lengths = [
            matches.destination_ports.len(),
            matches.destination_networks.len(),
            matches.server_names.len(),
            matches.application_protocols.len(),
            matches.source.len(),
        ];
        let count = lengths.into_iter().map(|n| n.max(1));
        let count = count.fold(1, usize::saturating_mul);
        if self.by.len().saturating_add(count) > MAX_COMBINATIONS {
            if !std::mem::replace(&mut self.too_many, true) {
                at.error(format!(
                    "more than {MAX_COMBINATIONS} combinations of conditions"
                ));
            }
            return;
        }
        let path: Arc<[Step]> = at.path().into();
        for key in combinations(matches) {
            let words = describe(&key);
            let Some(first) = self.by.insert(key, Arc::clone(&path)) else {
                continue;
            };
            if first != path {
                at.error(format!("an earlier filter chain also matches {words}"))
                    .other(first.to_vec(), "the other chain starts")
                    .help(
                        "two chains must not have the same match: the second would never be used",
                    );
                return;
            }
        }
    }
}

fn combinations(matches: &FilterChainMatch) -> Vec<Combination> {
    let mut all = vec![Combination::default()];
    expand(&mut all, &matches.destination_ports, |c, port| {
        c.port = Some(port);
    });
    let networks = &matches.destination_networks;
    expand(&mut all, networks, |c, net| c.destination = Some(net));
    expand(&mut all, &matches.server_names, |c, name| {
        c.name = Some(name);
    });
    let protocols = &matches.application_protocols;
    expand(&mut all, protocols, |c, name| c.protocol = Some(name));
    expand(&mut all, &matches.source, |c, net| c.source = Some(net));
    all
}

/// Combines each combination with each of the values; without values, the property stays `None`.
fn expand<T: Clone>(all: &mut Vec<Combination>, values: &[T], set: impl Fn(&mut Combination, T)) {
    if values.is_empty() {
        return;
    }
    let mut expanded = Vec::with_capacity(all.len() * values.len());
    for combination in all.iter() {
        for value in values {
            let mut combination = combination.clone();
            set(&mut combination, value.clone());
            expanded.push(combination);
        }
    }
    *all = expanded;
}

fn describe(what: &Combination) -> String {
    let mut words = vec!["connections".to_owned()];
    words.extend(what.port.map(|port| format!("to port {port}")));
    words.extend(what.destination.map(|net| format!("to {net}")));
    words.extend(what.name.iter().map(|name| format!("to `{name}`")));
    let protocol = what.protocol.iter();
    words.extend(protocol.map(|protocol| format!("with ALPN `{protocol}`")));
    words.extend(what.source.map(|source| format!("from {source}")));
    if words.len() == 1 {
        return "all connections".into();
    }
    words.join(" ")
}
