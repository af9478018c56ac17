//! Virtual hosts and routes: what happens to a request.
//!
//! Virtual hosts are chosen by the host's form, in this order (papers/004, §"routes"): exact,
//! suffix wildcard `*.x` (longest first), prefix wildcard `x.*` (longest first), `*`.
//! Inside a host the first route that matches is taken.

mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use maglor_balance::guard::retry::HedgePolicy;
use regex::Regex;

use crate::traffic::{Fault, Mirror, RateLimit, Retry};

/// The virtual hosts of an HTTP filter.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// Unique; label `route_table` in `/config`.
    pub name: Arc<str>,
    /// In the order of the file; domains are unique over the table.
    pub virtual_hosts: Vec<VirtualHost>,
}

/// Names and the routes that they share.
#[derive(Clone, Debug)]
pub struct VirtualHost {
    /// Unique in the table.
    pub name: Arc<str>,
    /// At least one.
    pub domains: Vec<Domain>,
    /// First match wins.
    pub routes: Vec<Route>,
    /// Applied to each request of this host before the route's own.
    pub request_headers: HeaderRules,
    /// Applied to each response of this host after the route's own.
    pub response_headers: HeaderRules,
}

/// A host pattern, lower case, without port unless the pattern names one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Domain {
    /// `a.example.com` or `a.example.com:8080`.
    Exact(String),
    /// `*.example.com`, held as `.example.com`; the wildcard stands for one or more labels.
    Suffix(String),
    /// `example.*`, held as `example.`.
    Prefix(String),
    /// `*`.
    Any,
}

/// A match and its action.
#[derive(Clone, Debug)]
pub struct Route {
    /// Label `route` in metrics; unique in the table (`<virtual host>/<index>` by default).
    pub name: Arc<str>,
    /// All parts must match.
    pub matches: RouteMatch,
    /// What is done.
    pub action: RouteAction,
    /// Checked before anything is done; `None` = no limit.
    pub rate_limit: Option<RateLimit>,
    /// Injected before the action; `None` = none.
    pub fault: Option<Fault>,
    /// Applied to the request before it is forwarded.
    pub request_headers: HeaderRules,
    /// Applied to the response before it is returned.
    pub response_headers: HeaderRules,
}

/// Conditions on a request; all must hold.
#[derive(Clone, Debug, Default)]
pub struct RouteMatch {
    /// On the path, without query.
    pub path: PathMatch,
    /// Empty = any method.
    pub methods: Vec<Method>,
    /// All must hold.
    pub headers: Vec<HeaderMatch>,
    /// All must hold.
    pub query: Vec<QueryMatch>,
    /// Only gRPC requests (`content-type: application/grpc…`).
    pub grpc: bool,
}

/// A condition on the path.
#[derive(Clone, Debug)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole segments: `/api` matches `/api` and `/api/x`, not `/apix`; `/api/` only `/api/x`.
    Prefix(String),
    /// The whole path matches (anchored at both ends). Linear time.
    Regex(Regex),
}

impl Default for PathMatch {
    fn default() -> Self {
        Self::Prefix("/".into())
    }
}

/// A condition on a text.
#[derive(Clone, Debug)]
pub enum StringMatch {
    /// Contains this.
    Contains(String),
    /// Equals this.
    Exact(String),
    /// Starts with this.
    Prefix(String),
    /// Is there, with any value.
    Present,
    /// The whole text matches (anchored at both ends).
    Regex(Regex),
    /// Ends with this.
    Suffix(String),
}

/// A condition on a header; several fields of one name are compared joined by `,`.
#[derive(Clone, Debug)]
pub struct HeaderMatch {
    /// Which header.
    pub name: HeaderName,
    /// On its value; an absent header matches only an inverted condition.
    pub value: StringMatch,
    /// The condition must not hold.
    pub invert: bool,
}

/// A condition on a query parameter (its first value, percent-decoded).
#[derive(Clone, Debug)]
pub struct QueryMatch {
    /// Which parameter, decoded, case-sensitive.
    pub name: String,
    /// On its value.
    pub value: StringMatch,
    /// The condition must not hold.
    pub invert: bool,
}

/// What a route does.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// Answer from the proxy.
    Direct(DirectResponse),
    /// To a cluster.
    Forward(Box<Forward>),
    /// Send the client elsewhere.
    Redirect(Redirect),
}

/// What becomes of a share of a route's requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    /// They get a status of 400 to 599, since there is no cluster to forward to.
    Answer(StatusCode),
    /// They go to the cluster of this name.
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
    /// What becomes of it.
    pub destination: Destination,
    /// Share = weight / sum of weights; the sum is above 0.
    pub weight: u32,
    /// Applied to the request after the route's own.
    pub request_headers: HeaderRules,
    /// Applied to the response before the route's own.
    pub response_headers: HeaderRules,
}

impl WeightedCluster {
    /// The cluster's name; `None` where nothing is forwarded.
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
    /// At least one.
    pub clusters: Vec<WeightedCluster>,
    /// Changes of the path.
    pub path_rewrite: Option<PathRewrite>,
    /// Changes of the host.
    pub host_rewrite: Option<HostRewrite>,
    /// What is hashed for `maglev` and `ring-hash`; the first source that yields a value ends the
    /// list when it is `terminal`, otherwise values are combined.
    pub hash_policy: Vec<HashSource>,
    /// From the end of the request to the end of the response head and body; `None` = no limit.
    pub timeout: Option<Duration>,
    /// When a failed try is repeated.
    pub retry: Retry,
    /// When another try is started beside a slow one; `None` = never.
    pub hedge: Option<HedgePolicy>,
    /// Bytes of a request's body that are kept for another try; a request with a longer one has a
    /// single try.
    pub request_buffer_limit: usize,
    /// Who gets copies of the requests.
    pub mirrors: Vec<Mirror>,
    /// The header or cookie that keeps a client at its cluster; `None` = drawn for each request.
    pub sticky: Option<HashKind>,
}

/// A change of the path; the query stays.
#[derive(Clone, Debug)]
pub enum PathRewrite {
    /// The whole path becomes this.
    Full(String),
    /// The matched prefix becomes this.
    Prefix(String),
    /// What the expression finds is replaced; `$1` names a group.
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

/// One part of the request that is hashed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HashSource {
    /// Which part.
    pub kind: HashKind,
    /// A value of this source ends the list.
    pub terminal: bool,
}

/// Which part of a request is hashed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HashKind {
    /// A cookie; with a time to live the proxy sets it where the client has none.
    Cookie {
        /// Its name.
        name: String,
        /// `Max-Age` of a cookie that the proxy makes; `None` = the proxy makes none. Zero = session.
        ttl: Option<Duration>,
        /// `Path` of a cookie that the proxy makes.
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
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// Host without port.
    pub host: Option<String>,
    /// Port; left out of the location where it is the scheme's default.
    pub port: Option<u16>,
    /// New path.
    pub path: Option<RedirectPath>,
    /// Drop the query.
    pub strip_query: bool,
}

/// A change of the path in a redirect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedirectPath {
    /// The whole path becomes this.
    Full(String),
    /// The matched prefix becomes this.
    Prefix(String),
}

/// A response made by the proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectResponse {
    /// 200 to 599.
    pub status: StatusCode,
    /// Body, empty by default.
    pub body: Arc<str>,
    /// Headers of the response, `content-type: text/plain` where none is given and there is a body.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Header changes, applied in the order remove, set, add.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderRules {
    /// Names to remove.
    pub remove: Vec<HeaderName>,
    /// Replace all fields of that name.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Append a field.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}
