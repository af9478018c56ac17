//! Filter chains: what they match, that no two match the same, and what they do.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::route::Tables;
use super::rule::{self, DAY, HOUR, MILLISECOND, Unique};
use super::tls::Behind;
use super::{Scope, host, http, tls};
use crate::report::{At, Step};
use crate::tls::MeshMode;
use crate::{Filter, FilterChain, FilterChainMatch, TcpFilter, Termination, raw};

/// Combinations of server name, ALPN protocol and source that a listener may distinguish.
const MAX_COMBINATIONS: usize = 100_000;

/// The chains of a listener, written as a list or as a single one.
pub(super) fn all(
    raw: &raw::Listener,
    at: &At<'_>,
    listener: &Arc<str>,
    scope: &Scope<'_>,
    tables: &Tables,
) -> Vec<FilterChain> {
    let given = [
        ("http", raw.http.is_some()),
        ("tcp", raw.tcp.is_some()),
        ("filter_chains", !raw.filter_chains.is_empty()),
    ];
    let context = Context {
        listener,
        scope,
        tables,
    };
    match rule::exactly_one(&given, at) {
        Some("filter_chains") => {
            if raw.tls.is_some() {
                at.field("tls")
                    .error("`tls` beside `filter_chains` has no effect")
                    .on_key()
                    .help("move it into the chains that terminate TLS");
            }
            list(&raw.filter_chains, &at.field("filter_chains"), &context)
        }
        Some(_) => {
            let tls = raw.tls.as_ref().map(|tls| &tls.0);
            let (http, tcp) = (raw.http.as_ref(), raw.tcp.as_ref());
            let matches = FilterChainMatch::default();
            let chain = context.chain("default".into(), matches, tls, (http, tcp), at);
            chain.into_iter().collect()
        }
        None => Vec::new(),
    }
}

fn list(raw: &[raw::FilterChain], at: &At<'_>, context: &Context<'_, '_>) -> Vec<FilterChain> {
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
        let given = [("http", raw.http.is_some()), ("tcp", raw.tcp.is_some())];
        if rule::exactly_one(&given, &at).is_some() {
            chains.extend(context.chain(name.into(), matches, tls, filters, &at));
        }
    }
    chains
}

/// What all chains of a listener refer to.
struct Context<'a, 'b> {
    listener: &'a Arc<str>,
    scope: &'a Scope<'b>,
    tables: &'a Tables,
}

impl Context<'_, '_> {
    fn chain(
        &self,
        name: Arc<str>,
        matches: FilterChainMatch,
        tls: Option<&raw::DownstreamTls>,
        (http, tcp): (Option<&raw::Http>, Option<&raw::Tcp>),
        at: &At<'_>,
    ) -> Option<FilterChain> {
        let (filter, behind) = match (http, tcp) {
            (Some(raw), _) => {
                let table = format!("{}/{name}", self.listener);
                let http = http::filter(raw, &at.field("http"), &table, self.scope, self.tables);
                let behind = Behind::Http(http.protocol);
                (Filter::Http(Box::new(http)), behind)
            }
            (None, Some(raw)) => (
                Filter::Tcp(tcp_filter(raw, &at.field("tcp"), self.scope)),
                Behind::Tcp,
            ),
            (None, None) => return None,
        };
        let hello = !matches.server_names.is_empty() || !matches.application_protocols.is_empty();
        if hello && tls.is_none() && http.is_some() {
            at.field("http")
                .error("HTTP inside TLS that nobody terminates")
                .on_key()
                .help("add `tls: {certificate: FILE, private_key: FILE}`: server names and ALPN are part of TLS");
        }
        let tls = tls.map(|raw| tls::termination(raw, &at.field("tls"), behind, self.scope));
        if let Some(Termination::Mesh(mesh)) = &tls
            && mesh.mode == MeshMode::Permissive
            && hello
        {
            at.field("tls")
                .warning("plain text never comes to this chain: its match is about TLS")
                .help("write `tls: mesh`, or give plain text a chain without `server_names` and `application_protocols`");
        }
        Some(FilterChain {
            name,
            matches,
            tls,
            filter,
        })
    }
}

fn tcp_filter(raw: &raw::Tcp, at: &At<'_>, scope: &Scope<'_>) -> TcpFilter {
    match &raw.cluster {
        Some(name) => {
            scope.cluster(name, &at.field("cluster"));
        }
        None => at.missing("cluster", "write `cluster: NAME`"),
    }
    TcpFilter {
        cluster: raw.cluster.as_deref().unwrap_or_default().into(),
        idle_timeout: rule::time(
            raw.idle_timeout,
            &at.field("idle_timeout"),
            HOUR,
            MILLISECOND..=30 * DAY,
        ),
    }
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
            at.index(i).error("an ALPN protocol has 1 to 255 bytes");
        }
    }
    FilterChainMatch {
        server_names,
        application_protocols: raw.application_protocols.clone(),
        source,
    }
}

/// Whether all of the conditions could be read; without some a match would be too wide.
fn complete(matches: &FilterChainMatch, raw: Option<&raw::FilterChainMatch>) -> bool {
    raw.is_none_or(|raw| {
        matches.server_names.len() == raw.server_names.len()
            && matches.source.len() == raw.source.len()
    })
}

fn network(text: &str, at: &At<'_>) -> Option<IpNet> {
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
            "{network} has bits set behind its prefix; {whole} is meant"
        ));
    }
    Some(whole)
}

/// A server name, an ALPN protocol and a source; `None` = any.
type Combination = (Option<String>, Option<String>, Option<IpNet>);

/// The combinations that earlier chains of a listener take.
#[derive(Default)]
struct Taken {
    by: HashMap<Combination, Arc<[Step]>>,
    too_many: bool,
}

impl Taken {
    /// Two chains with the same combination are ambiguous.
    fn check(&mut self, matches: &FilterChainMatch, at: &At<'_>) {
        let names = any_or(&matches.server_names);
        let protocols = any_or(&matches.application_protocols);
        let sources = any_or(&matches.source);
        let count = names
            .len()
            .saturating_mul(protocols.len())
            .saturating_mul(sources.len());
        if self.by.len().saturating_add(count) > MAX_COMBINATIONS {
            if !std::mem::replace(&mut self.too_many, true) {
                at.error(format!(
                    "more than {MAX_COMBINATIONS} combinations of conditions"
                ));
            }
            return;
        }
        let path: Arc<[Step]> = at.path().into();
        for name in &names {
            for protocol in &protocols {
                for source in &sources {
                    let key = (name.clone(), protocol.clone(), *source);
                    let words = describe(&key);
                    let Some(first) = self.by.insert(key, Arc::clone(&path)) else {
                        continue;
                    };
                    if first != path {
                        at.error(format!("an earlier filter chain takes {words} as well"))
                            .other(first.to_vec(), "the other one begins")
                            .help(
                                "two chains may not have the same match: one could never be taken",
                            );
                        return;
                    }
                }
            }
        }
    }
}

fn any_or<T: Clone>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() {
        return vec![None];
    }
    list.iter().cloned().map(Some).collect()
}

fn describe((name, protocol, source): &Combination) -> String {
    let mut words = vec!["connections".to_owned()];
    words.extend(name.iter().map(|name| format!("to `{name}`")));
    words.extend(
        protocol
            .iter()
            .map(|protocol| format!("with ALPN `{protocol}`")),
    );
    words.extend(source.iter().map(|source| format!("from {source}")));
    if words.len() == 1 {
        return "all connections".into();
    }
    words.join(" ")
}
