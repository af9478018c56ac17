//! Virtual hosts and routes: how requests are handled.
//!
//! The virtual host is chosen by the host of a request, in the order (papers/004, §"routes"): exact, suffix wildcard
//! `*.x` (longest first), prefix wildcard `x.*` (longest first), `*`. Inside a host the first route that matches is
//! taken.

mod condition_text;
mod matching;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use maglor_balance::guard::retry::HedgePolicy;
use regex::Regex;

pub use self::matching::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, StringMatch};
use crate::traffic::{Fault, Mirror, RateLimit, Retry};

/// The virtual hosts of an HTTP filter.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// The unique name; the label `route_table` in `/config`.
    pub name: Arc<str>,
    /// The virtual hosts in the order of the file; domains are unique over the table.
    pub virtual_hosts: Vec<VirtualHost>,
}

/// A set of domains with common routes.
#[derive(Clone, Debug)]
pub struct VirtualHost {
    /// The name, unique in the table.
    pub name: Arc<str>,
    /// The domains, at least one.
    pub domains: Vec<Domain>,
    /// The routes; the first match wins.
    pub routes: Vec<Arc<Route>>,
    /// Header changes of each request to this host, applied before those of the route; `None` = none.
    pub request_headers: Option<Box<HeaderRules>>,
    /// Header changes of each response of this host, applied after those of the route; `None` = none.
    pub response_headers: Option<Box<HeaderRules>>,
}

/// A host pattern in lower case, without port unless the pattern contains one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Domain {
    /// `a.example.com` or `a.example.com:8080`.
    Exact(String),
    /// `*.example.com`, stored as `.example.com`; the wildcard stands for one or more labels.
    Suffix(String),
    /// `example.*`, stored as `example.`.
    Prefix(String),
    /// `*`.
    Any,
}

/// A match and its action.
#[derive(Clone, Debug)]
pub struct Route {
    /// The name, unique in the table (`<virtual host>/<index>` by default); the label `route` in metrics.
    pub name: Arc<str>,
    /// The conditions; all must hold.
    pub matches: RouteMatch,
    /// The action for matching requests.
    pub action: RouteAction,
    /// The rate limit, checked first; `None` = no limit.
    pub rate_limit: Option<RateLimit>,
    /// The fault injected before the action; `None` = none.
    pub fault: Option<Fault>,
    /// Header changes of the request before it is forwarded; `None` = none.
    pub request_headers: Option<Box<HeaderRules>>,
    /// Header changes of the response before it is returned; `None` = none.
    pub response_headers: Option<Box<HeaderRules>>,
}

/// The action of a route.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// Respond from the proxy.
    Direct(DirectResponse),
    /// Forward to a cluster.
    Forward(Box<Forward>),
    /// Redirect the client.
    Redirect(Redirect),
}

/// The destination of a share of a route's requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    /// A response with this status, 400 to 599, because there is no cluster to forward to.
    Answer(StatusCode),
    /// The cluster with this name.
    Cluster(Arc<str>),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(status) => write!(f, "answer {}", status.as_u16()),
            Self::Cluster(name) => f.write_str(name),
        }
    }
}

/// A share of a route's requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WeightedCluster {
    /// The destination.
    pub destination: Destination,
    /// The weight: the share is weight / sum of weights. The sum is above 0.
    pub weight: u32,
    /// Header changes of the request, applied after those of the route; `None` = none.
    pub request_headers: Option<Box<HeaderRules>>,
    /// Header changes of the response, applied before those of the route; `None` = none.
    pub response_headers: Option<Box<HeaderRules>>,
}

impl WeightedCluster {
    /// Returns the name of the cluster; `None` if requests are answered with a status.
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<str>> {
        match &self.destination {
            Destination::Answer(_) => None,
            Destination::Cluster(name) => Some(name),
        }
    }
}

/// Forwarding to clusters.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The weighted clusters, at least one.
    pub clusters: Vec<WeightedCluster>,
    /// The rewrite of the path; `None` = the path is unchanged.
    pub path_rewrite: Option<PathRewrite>,
    /// The rewrite of the host; `None` = the host is unchanged.
    pub host_rewrite: Option<HostRewrite>,
    /// The sources of the hash for `maglev` and `ring-hash`. Their values are combined, up to the first `terminal`
    /// source that yields a value.
    pub hash_policy: Vec<HashSource>,
    /// The timeout from the end of the request to the end of the response; `None` = no limit.
    pub timeout: Option<Duration>,
    /// The retries of failed attempts.
    pub retry: Retry,
    /// The further attempts in parallel to a slow one; `None` = disabled.
    pub hedge: Option<HedgePolicy>,
    /// The maximum size in bytes of a request's body that is kept for further attempts; a request with a larger body
    /// has a single attempt.
    pub request_buffer_limit: usize,
    /// The clusters that get copies of the requests.
    pub mirrors: Vec<Mirror>,
    /// The header or cookie that assigns a client to a cluster; `None` = the cluster is chosen for each request.
    pub sticky: Option<HashKind>,
}

/// A rewrite of the path; the query is kept.
#[derive(Clone, Debug)]
pub enum PathRewrite {
    /// Replaces the whole path.
    Full(String),
    /// Replaces the matched prefix.
    Prefix(String),
    /// Replaces the matches of the expression; in the replacement, `$1` refers to a group.
    Regex(Regex, String),
}

/// A rewrite of the `Host` header and `:authority`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostRewrite {
    /// The endpoint's DNS name (its address if it has none).
    Endpoint,
    /// A fixed value.
    Literal(HeaderValue),
}

/// A source of the hash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HashSource {
    /// The part of the request.
    pub kind: HashKind,
    /// Whether later sources are ignored if this one yields a value.
    pub terminal: bool,
}

/// The hashed part of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HashKind {
    /// The value of a cookie. With a `ttl`, the proxy sets the cookie for clients without it.
    Cookie {
        /// The name of the cookie.
        name: String,
        /// `Max-Age` of the cookie that the proxy sets; zero = until the browser is closed; `None` = the proxy sets no
        /// cookie.
        ttl: Option<Duration>,
        /// `Path` of the cookie that the proxy sets.
        path: String,
    },
    /// A header's value.
    Header(HeaderName),
    /// The path without query.
    Path,
    /// A query parameter's value.
    Query(String),
    /// The client's address.
    SourceAddress,
}

/// A redirect. Parts of the location that are `None` are taken from the request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// The scheme of the location: `http` or `https`.
    pub scheme: Option<String>,
    /// The host of the location, without port.
    pub host: Option<String>,
    /// The port of the location, which is omitted if it is the scheme's default.
    pub port: Option<u16>,
    /// The path of the location.
    pub path: Option<RedirectPath>,
    /// Whether to drop the query.
    pub strip_query: bool,
}

/// The path of a redirect's location.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedirectPath {
    /// Replaces the whole path.
    Full(String),
    /// Replaces the matched prefix.
    Prefix(String),
}

/// A response made by the proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectResponse {
    /// The status, 200 to 599.
    pub status: StatusCode,
    /// The body, empty by default.
    pub body: Arc<str>,
    /// The headers of the response. With a body, `content-type: text/plain` is added if none is set.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Header changes, applied in the order remove, set, add.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderRules {
    /// Names of headers to remove.
    pub remove: Vec<HeaderName>,
    /// Headers to set; each value replaces all fields of its name.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Headers to append.
    pub add: Vec<(HeaderName, HeaderValue)>,
}
