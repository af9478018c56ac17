//! Virtual hosts and routes: the handling of requests.
//!
//! Virtual hosts are chosen by the host's form, in this order (papers/004, §"routes"): exact,
//! suffix wildcard `*.x` (longest first), prefix wildcard `x.*` (longest first), `*`. Inside a host
//! the first route that matches is taken.

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
    pub routes: Vec<Route>,
    /// Header changes of each request of this host, before the route's own.
    pub request_headers: HeaderRules,
    /// Header changes of each response of this host, after the route's own.
    pub response_headers: HeaderRules,
}

/// A host pattern, lower case, without port unless the pattern names one.
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
    /// The label `route` in metrics; unique in the table (`<virtual host>/<index>` by default).
    pub name: Arc<str>,
    /// The conditions; all must hold.
    pub matches: RouteMatch,
    /// The action.
    pub action: RouteAction,
    /// The rate limit, checked first; `None` = no limit.
    pub rate_limit: Option<RateLimit>,
    /// The fault injected before the action; `None` = none.
    pub fault: Option<Fault>,
    /// Header changes of the request before it is forwarded.
    pub request_headers: HeaderRules,
    /// Header changes of the response before it is returned.
    pub response_headers: HeaderRules,
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
    /// A response with a status of 400 to 599, since there is no cluster to forward to.
    Answer(StatusCode),
    /// The cluster of this name.
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
    /// The weight: share = weight / sum of weights; the sum is above 0.
    pub weight: u32,
    /// Header changes of the request after the route's own.
    pub request_headers: HeaderRules,
    /// Header changes of the response before the route's own.
    pub response_headers: HeaderRules,
}

impl WeightedCluster {
    /// Returns the cluster's name; `None` if nothing is forwarded.
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
    /// The change of the path.
    pub path_rewrite: Option<PathRewrite>,
    /// The change of the host.
    pub host_rewrite: Option<HostRewrite>,
    /// The sources of the hash for `maglev` and `ring-hash`; the first source that yields a value
    /// ends the list if it is `terminal`, otherwise values are combined.
    pub hash_policy: Vec<HashSource>,
    /// The timeout from the end of the request to the end of the response head and body; `None` =
    /// no limit.
    pub timeout: Option<Duration>,
    /// The retries.
    pub retry: Retry,
    /// When another attempt is started in parallel to a slow one; `None` = never.
    pub hedge: Option<HedgePolicy>,
    /// The maximum bytes of a request's body that are kept for another attempt; a request with a
    /// longer one has a single attempt.
    pub request_buffer_limit: usize,
    /// The clusters that get copies of the requests.
    pub mirrors: Vec<Mirror>,
    /// The header or cookie that assigns a client to a cluster; `None` = drawn for each request.
    pub sticky: Option<HashKind>,
}

/// A change of the path; the query stays.
#[derive(Clone, Debug)]
pub enum PathRewrite {
    /// Replaces the whole path.
    Full(String),
    /// Replaces the matched prefix.
    Prefix(String),
    /// Replaces the matches of the expression; `$1` refers to a group.
    Regex(Regex, String),
}

/// A change of the `Host` header and `:authority`.
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
    /// Whether a value of this source ends the list.
    pub terminal: bool,
}

/// The hashed part of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HashKind {
    /// A cookie; with a time to live the proxy sets it if the client has none.
    Cookie {
        /// Its name.
        name: String,
        /// `Max-Age` of a cookie that the proxy sets; `None` = the proxy sets none. Zero = session.
        ttl: Option<Duration>,
        /// `Path` of a cookie that the proxy sets.
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

/// A redirect. Parts that are `None` keep the request's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// The scheme: `http` or `https`.
    pub scheme: Option<String>,
    /// The host without port.
    pub host: Option<String>,
    /// The port; omitted from the location if it is the scheme's default.
    pub port: Option<u16>,
    /// The new path.
    pub path: Option<RedirectPath>,
    /// Whether to drop the query.
    pub strip_query: bool,
}

/// A change of the path in a redirect.
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
    /// The headers of the response, `content-type: text/plain` if none is given and there is a
    /// body.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Header changes, applied in the order remove, set, add.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderRules {
    /// Names to remove.
    pub remove: Vec<HeaderName>,
    /// Fields that replace all fields of that name.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields to append.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}
