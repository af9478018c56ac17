//! Route tables: select the route of a request.
//!
//! A table is compiled when the configuration is applied: hosts into hash maps, clusters and metrics into handles.
//! Routing a request takes one host lookup and a pass over the host's routes, or over those that an index of their
//! paths finds ([`PathIndex`]) if they are many.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;
use maglor_balance::guard::{Percent, split};
use maglor_balance::{Rng, hash_bytes};
use maglor_config::Mirror;
use maglor_config::route::{
    self as config, Destination, Domain, Forward, HeaderMatch, HeaderRules, PathMatch, QueryMatch,
    RouteAction, StringMatch, WeightedCluster,
};
use maglor_identity::SpiffeId;
use percent_encoding::percent_decode_str;

use crate::mesh::authorization::Authorization;
use crate::protocol::fields::Fields;
use crate::protocol::message::Request;
use crate::routing::path_index::PathIndex;
use crate::routing::rate_limit::Limiter;
use crate::telemetry::metrics::{FaultMetrics, Metrics, RouteMetrics};
use crate::telemetry::record::RouteName;
use crate::upstream::{Cluster, Clusters};

/// Number of routes in a table up to which all series of each route exist from the start. Of more routes, only those
/// that have requests have series: six lines each would make every scrape slow.
const SERIES_FROM_START: usize = 1000;

/// A compiled route table.
#[derive(Debug)]
pub(crate) struct Table {
    exact: HashMap<String, usize>,
    /// Index of the host by its domain suffix, such as `.example.com`.
    suffix: HashMap<String, usize>,
    /// Index of the host by its domain prefix, such as `example.`.
    prefix: HashMap<String, usize>,
    any: Option<usize>,
    hosts: Vec<Host>,
    /// Authorization rules of the listener; `None` if there are none.
    pub(crate) authorization: Option<Arc<Authorization>>,
    /// Proxies that are trusted to report the client of a request.
    pub(crate) delegates: Vec<SpiffeId>,
    /// Rate limit of the listener; `None` if there is none.
    pub(crate) rate_limit: Option<Arc<Limiter>>,
}

/// A compiled virtual host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) request_headers: Option<Box<HeaderRules>>,
    pub(crate) response_headers: Option<Box<HeaderRules>>,
    pub(crate) routes: Vec<Route>,
    /// The routes by path; `None` if they are few.
    index: Option<PathIndex>,
}

impl Host {
    fn new(host: &config::VirtualHost, routes: Vec<Route>) -> Self {
        let paths = routes.iter().map(|route| &route.config.matches.path);
        Self {
            request_headers: host.request_headers.clone(),
            response_headers: host.response_headers.clone(),
            index: PathIndex::build(paths),
            routes,
        }
    }

    /// Returns the first route whose conditions a request meets.
    fn route(&self, request: &Request) -> Option<&Route> {
        let meets = |route: &Route| matches(&route.config.matches, request);
        match &self.index {
            None => self.routes.iter().find(|route| meets(route)),
            Some(index) => {
                let at =
                    index.first(request.path(), |at| self.routes.get(at).is_some_and(meets))?;
                self.routes.get(at)
            }
        }
    }
}

/// A compiled route.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) config: Arc<config::Route>,
    pub(crate) metrics: Arc<RouteMetrics>,
    /// Fault metrics; `None` unless the route injects faults.
    pub(crate) faults: Option<FaultMetrics>,
    pub(crate) rate_limit: Option<Arc<Limiter>>,
    /// Clusters that receive copies of requests, each with its share of the requests.
    pub(crate) mirrors: Vec<(Arc<Cluster>, Percent)>,
    /// Clusters in the order of the action's shares, with `None` for a share with a direct response. Empty unless the
    /// action forwards.
    clusters: Vec<Option<Arc<Cluster>>>,
}

impl Route {
    /// Returns the share of a request, selected by the weights of the route, and its cluster. A `key` assigns a
    /// client to one share.
    pub(crate) fn share<'a>(
        &'a self,
        forward: &'a Forward,
        key: Option<u64>,
        rng: &mut Rng,
    ) -> Option<(&'a WeightedCluster, Option<&'a Arc<Cluster>>)> {
        let shares = &forward.clusters;
        let at = match key {
            _ if shares.len() == 1 => 0,
            Some(key) => split::sticky(
                shares.iter().map(|share| (identity(share), share.weight)),
                key,
            )?,
            None => split::random(shares.iter().map(|share| share.weight), rng)?,
        };
        Some((shares.get(at)?, self.clusters.get(at)?.as_ref()))
    }

    /// Returns the matched prefix of the path, for rewrites.
    pub(crate) fn matched_prefix(&self) -> &str {
        match &self.config.matches.path {
            PathMatch::Prefix(prefix) => prefix,
            PathMatch::Exact(_) | PathMatch::Regex(_) => "",
        }
    }
}

/// Returns the identity of a share, which does not depend on the order of shares.
fn identity(share: &WeightedCluster) -> u64 {
    match &share.destination {
        Destination::Answer(status) => status.as_u16().into(),
        Destination::Cluster(name) => hash_bytes(name.as_bytes()),
    }
}

impl Table {
    /// Compiles a validated table, all of whose clusters exist.
    pub(crate) fn compile(
        table: &config::RouteTable,
        listener: &Arc<str>,
        clusters: &Clusters,
        metrics: &Metrics,
        rate_limit: Option<&Arc<Limiter>>,
        before: Option<&Self>,
    ) -> Self {
        let mut compiled = Self {
            exact: HashMap::new(),
            suffix: HashMap::new(),
            prefix: HashMap::new(),
            any: None,
            hosts: Vec::with_capacity(table.virtual_hosts.len()),
            authorization: None,
            delegates: Vec::new(),
            rate_limit: rate_limit.cloned(),
        };
        let before = before.map(Self::by_name).unwrap_or_default();
        let routes: usize = table
            .virtual_hosts
            .iter()
            .map(|host| host.routes.len())
            .sum();
        let from_start = routes <= SERIES_FROM_START;
        for host in &table.virtual_hosts {
            let index = compiled.hosts.len();
            for domain in &host.domains {
                match domain {
                    Domain::Exact(name) => drop(compiled.exact.insert(name.clone(), index)),
                    Domain::Suffix(name) => drop(compiled.suffix.insert(name.clone(), index)),
                    Domain::Prefix(name) => drop(compiled.prefix.insert(name.clone(), index)),
                    Domain::Any => compiled.any = Some(index),
                }
            }
            let domains: Vec<_> = host.domains.iter().map(domain_text).collect();
            let domains: Arc<str> = domains.join(", ").into();
            let route = |route: &Arc<config::Route>| {
                let before = before.get(&*route.name).copied();
                let names = (listener, &domains, from_start);
                compile_route(route, names, clusters, metrics, before)
            };
            let routes = host.routes.iter().map(route).collect();
            compiled.hosts.push(Host::new(host, routes));
        }
        compiled
    }

    /// Returns the virtual hosts in order, each with its domains.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (Vec<String>, &Host)> {
        let exact = self.exact.iter().map(|(name, at)| (*at, name.clone()));
        let suffix = self
            .suffix
            .iter()
            .map(|(name, at)| (*at, format!("*{name}")));
        let prefix = self
            .prefix
            .iter()
            .map(|(name, at)| (*at, format!("{name}*")));
        let mut domains: Vec<Vec<String>> = vec![Vec::new(); self.hosts.len()];
        for (at, domain) in exact.chain(suffix).chain(prefix) {
            if let Some(domains) = domains.get_mut(at) {
                domains.push(domain);
            }
        }
        domains
            .into_iter()
            .zip(&self.hosts)
            .enumerate()
            .map(|(at, (mut domains, host))| {
                domains.sort_unstable();
                domains.extend((self.any == Some(at)).then(|| "*".to_owned()));
                (domains, host)
            })
    }

    /// Returns the routes by their names, which are unique in a table.
    fn by_name(&self) -> HashMap<&str, &Route> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        routes.map(|route| (&*route.config.name, route)).collect()
    }

    /// Returns the virtual host and the route of a request; `None` if no route matches.
    pub(crate) fn find(&self, request: &Request) -> Option<(&Host, &Route)> {
        let host = self.host(request.host().unwrap_or_default())?;
        Some((host, host.route(request)?))
    }

    /// Returns whether there is a virtual host for this name, other than the one for all names.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let found = self.host(name).map(std::ptr::from_ref);
        let any = self.any.and_then(|any| self.hosts.get(any));
        found.is_some() && found != any.map(std::ptr::from_ref)
    }

    /// Returns the virtual host of a name: exact, longest suffix, longest prefix, any.
    pub(crate) fn host(&self, name: &[u8]) -> Option<&Host> {
        if self.exact.is_empty() && self.suffix.is_empty() && self.prefix.is_empty() {
            return self.hosts.get(self.any?);
        }
        let name = text(name);
        let name = lower_case(&name);
        let bare = without_port(&name);
        let index = self
            .exact
            .get(&*name)
            .or_else(|| self.exact.get(bare))
            .or_else(|| longest_suffix(&self.suffix, bare))
            .or_else(|| longest_prefix(&self.prefix, bare))
            .copied()
            .or(self.any)?;
        self.hosts.get(index)
    }
}

fn compile_route(
    route: &Arc<config::Route>,
    (listener, domains, from_start): (&Arc<str>, &Arc<str>, bool),
    clusters: &Clusters,
    metrics: &Metrics,
    before: Option<&Route>,
) -> Route {
    let (shares, mirrors) = match &route.action {
        RouteAction::Forward(forward) => (forward.clusters.as_slice(), &*forward.mirrors),
        RouteAction::Direct(_) | RouteAction::Redirect(_) => (&[][..], &[][..]),
    };
    let mirror = |mirror: &Mirror| Some((clusters.get(&mirror.cluster)?, mirror.percent));
    let limited = before.and_then(|before| before.rate_limit.as_ref());
    let named = RouteName {
        host: Arc::clone(domains),
        name: Arc::clone(&route.name),
        path: path_pattern(&route.matches.path),
    };
    Route {
        config: Arc::clone(route),
        metrics: metrics.route(listener, &route.name, Some(named), from_start),
        faults: route
            .fault
            .as_ref()
            .map(|_| metrics.faults(listener, &route.name)),
        rate_limit: route
            .rate_limit
            .as_ref()
            .map(|config| Limiter::build(config, limited)),
        mirrors: mirrors.iter().filter_map(mirror).collect(),
        clusters: shares
            .iter()
            .map(|share| share.cluster().and_then(|name| clusters.get(name)))
            .collect(),
    }
}

/// Returns a domain as it is configured.
fn domain_text(domain: &Domain) -> String {
    match domain {
        Domain::Any => "*".to_owned(),
        Domain::Exact(name) => name.clone(),
        Domain::Prefix(name) => format!("{name}*"),
        Domain::Suffix(name) => format!("*{name}"),
    }
}

fn path_pattern(path: &PathMatch) -> String {
    match path {
        PathMatch::Exact(path) => path.clone(),
        PathMatch::Prefix(prefix) => format!("{}/*", prefix.trim_end_matches('/')),
        PathMatch::Regex(regex) => regex.as_str().to_owned(),
    }
}

fn lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// Returns the name without `:port` and trailing dots (the root); the brackets of an IPv6 address are kept.
pub(crate) fn without_port(name: &str) -> &str {
    let host = match name.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(':') => {
            if host.starts_with('[') == host.ends_with(']') {
                host
            } else {
                name
            }
        }
        _ => name,
    };
    host.trim_end_matches('.')
}

/// Looks up `a.b.c` as `.b.c`, then `.c`: the longest suffix wins.
fn longest_suffix<'a>(map: &'a HashMap<String, usize>, name: &str) -> Option<&'a usize> {
    if map.is_empty() {
        return None;
    }
    name.match_indices('.')
        .filter(|(at, _)| *at > 0)
        .find_map(|(at, _)| map.get(&name[at..]))
}

/// Looks up `a.b.c` as `a.b.`, then `a.`: the longest prefix wins.
fn longest_prefix<'a>(map: &'a HashMap<String, usize>, name: &str) -> Option<&'a usize> {
    if map.is_empty() {
        return None;
    }
    let dots = name
        .rmatch_indices('.')
        .filter(|(at, _)| at + 1 < name.len());
    dots.into_iter().find_map(|(at, _)| map.get(&name[..=at]))
}

fn matches(conditions: &config::RouteMatch, request: &Request) -> bool {
    path_matches(&conditions.path, request.path())
        && (conditions.methods.is_empty() || conditions.methods.contains(&request.method))
        && conditions
            .headers
            .iter()
            .all(|header| header_matches(header, &request.fields))
        && conditions
            .query
            .iter()
            .all(|query| query_matches(query, request.query()))
        && (!conditions.grpc || request.is_grpc())
}

/// Returns whether a path meets a condition.
pub(crate) fn path_matches(condition: &PathMatch, path: &[u8]) -> bool {
    match condition {
        PathMatch::Exact(exact) => path == exact.as_bytes(),
        // Matches any path, including that of `OPTIONS *`.
        PathMatch::Prefix(prefix) if prefix == "/" => true,
        PathMatch::Prefix(prefix) => path
            .strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with(b"/")),
        PathMatch::Regex(regex) => regex.is_match(&text(path)),
    }
}

/// Returns whether a message's fields meet a condition.
pub(crate) fn header_matches(condition: &HeaderMatch, fields: &Fields) -> bool {
    let mut values = fields.all(&condition.name);
    let found = match (values.next(), values.next()) {
        (None, _) => false,
        (Some(value), None) => string_matches(&condition.value, &text(value)),
        (Some(_), Some(_)) => {
            let all: Vec<_> = fields.all(&condition.name).map(text).collect();
            string_matches(&condition.value, &all.join(","))
        }
    };
    found != condition.invert
}

fn text(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}

fn query_matches(condition: &QueryMatch, query: Option<&[u8]>) -> bool {
    let query = query.map(text);
    let value = query
        .as_ref()
        .and_then(|query| query_value(query, &condition.name));
    let found = value.is_some_and(|value| string_matches(&condition.value, &value));
    found != condition.invert
}

/// Returns the first value of a query parameter, decoded; `None` if the query does not contain it.
pub(crate) fn query_value<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name).then(|| decode(value))
    })
}

fn decode(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned());
    }
    percent_decode_str(text).decode_utf8_lossy()
}

fn string_matches(condition: &StringMatch, value: &str) -> bool {
    match condition {
        StringMatch::Contains(part) => value.contains(part.as_str()),
        StringMatch::Exact(exact) => value == exact,
        StringMatch::Prefix(prefix) => value.starts_with(prefix.as_str()),
        StringMatch::Present => true,
        StringMatch::Regex(regex) => regex.is_match(value),
        StringMatch::Suffix(suffix) => value.ends_with(suffix.as_str()),
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
