//! Virtual hosts and their routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{
    ClusterWeight, DirectResponse, Fault, HashPolicy, HeaderRules, Hedge, Mirror, OneOrMany,
    RateLimit, Redirect, Retry, Rewrite, RouteMatch, Short, Size, Sticky, TimeSpan,
};

/// Virtual hosts that several listeners share.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name", "virtual_hosts"]))]
pub struct RouteTable {
    /// Unique name.
    pub name: Option<String>,
    /// Domains and their routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_hosts: Vec<VirtualHost>,
}

/// Domains and their common routes. Requests that match no virtual host get 404.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["domains", "routes"]))]
pub struct VirtualHost {
    /// Name, unique in the table. Default: the first domain.
    pub name: Option<String>,
    /// Domains: `example.com`, `example.com:8080`, `*.example.com`, `www.*` or `*`. The most specific domain wins:
    /// exact, then suffix wildcard, then prefix wildcard (longest first), then `*`.
    pub domains: Option<OneOrMany>,
    /// Routes, evaluated in order; the first match applies. Requests that match no route get 404.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Header changes of each request, applied before those of the route.
    pub request_headers: Option<HeaderRules>,
    /// Header changes of each response, applied after those of the route.
    pub response_headers: Option<HeaderRules>,
}

/// A match and exactly one action: `cluster`, `clusters`, `redirect` or `direct_response`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Name, unique in the table; the label `route` in metrics. Default: `<virtual host>/<position>`.
    pub name: Option<String>,
    /// Requests to match. Default: all.
    pub r#match: Option<RouteMatch>,
    /// Forward requests to this cluster.
    pub cluster: Option<String>,
    /// Forward each request to one of these clusters, by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterWeight>,
    /// Respond with a redirect.
    pub redirect: Option<Redirect>,
    /// Respond from the proxy, without forwarding.
    pub direct_response: Option<DirectResponse>,
    /// Rewrites of path and host of a forwarded request.
    pub rewrite: Option<Rewrite>,
    /// Parts of a request that `maglev` and `ring-hash` hash. Their values are combined, up to the first `terminal`
    /// part that is present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hash_policy: Vec<HashPolicy>,
    /// Timeout from the end of the request to the end of the response, up to 30d; `0s`: none, as for streams.
    #[schemars(extend("default" = "15s"))]
    pub timeout: Option<TimeSpan>,
    /// Retries of failed attempts; a string is a condition. Absent: defaults.
    pub retry: Option<Short<Retry>>,
    /// Further attempts in parallel to a slow one; a string is the `delay`. Absent: disabled.
    pub hedge: Option<Short<Hedge>>,
    /// Maximum size of a request body that is buffered for retries, 0-64MiB. Requests with a larger body are not
    /// retried.
    #[schemars(extend("default" = "64KiB"))]
    pub request_buffer_limit: Option<Size>,
    /// Clusters that get copies of requests; a string is a cluster's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirror: Vec<Short<Mirror>>,
    /// Affinity of clients to one of `clusters`. Absent: the cluster is chosen for each request.
    pub sticky: Option<Sticky>,
    /// Rate limit of requests; a string is a rate such as `100/s`. Absent: no limit.
    pub rate_limit: Option<Short<RateLimit>>,
    /// Fault injection, for tests. Absent: none.
    pub fault: Option<Fault>,
    /// Header changes of the request before it is forwarded.
    pub request_headers: Option<HeaderRules>,
    /// Header changes of the response before it is returned.
    pub response_headers: Option<HeaderRules>,
}
