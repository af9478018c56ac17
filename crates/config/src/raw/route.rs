//! Virtual hosts and their routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ClusterWeight, DirectResponse, Fault, HashPolicy, HeaderRules, Hedge, Mirror, OneOrMany,
    RateLimit, Redirect, Retry, Rewrite, RouteMatch, Short, Size, Sticky, TimeSpan,
};

/// Virtual hosts that several listeners share.
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

/// Domains and their common routes. Requests without a virtual host get 404.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["domains", "routes"]))]
pub struct VirtualHost {
    /// Unique in the table. Default: the first domain.
    pub name: Option<String>,
    /// `example.com`, `example.com:8080`, `*.example.com`, `www.*` or `*`; the most specific wins:
    /// exact, then suffix wildcard, then prefix wildcard (longest first), then `*`.
    pub domains: Option<OneOrMany>,
    /// Evaluated in order; the first match applies. Without a match: 404.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Changes of each request, before the route's own.
    pub request_headers: Option<HeaderRules>,
    /// Changes of each response, after the route's own.
    pub response_headers: Option<HeaderRules>,
}

/// A match and one action: `cluster`, `clusters`, `redirect` or `direct_response`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Label in metrics, unique in the table. Default: `<virtual host>/<position>`.
    pub name: Option<String>,
    /// Requests to match. Default: all.
    pub r#match: Option<RouteMatch>,
    /// Forward to this cluster.
    pub cluster: Option<String>,
    /// Forward to one of these clusters, by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterWeight>,
    /// Respond with a redirect.
    pub redirect: Option<Redirect>,
    /// Respond directly.
    pub direct_response: Option<DirectResponse>,
    /// Changes of path and host of a forwarded request.
    pub rewrite: Option<Rewrite>,
    /// Hash input of `maglev` and `ring-hash`; values are combined up to the first `terminal` one found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hash_policy: Vec<HashPolicy>,
    /// Timeout from the end of the request to the end of the response, up to 30d; `0s`: none, for streams.
    #[schemars(extend("default" = "15s"))]
    pub timeout: Option<TimeSpan>,
    /// Retries of failed attempts; a string is the conditions. Absent: defaults.
    pub retry: Option<Short<Retry>>,
    /// Start another attempt in parallel to a slow one; a string is the `delay`. Absent: disabled.
    pub hedge: Option<Short<Hedge>>,
    /// Maximum bytes of a request body buffered for retries, 0-64MiB. Requests with a longer body are not retried.
    #[schemars(extend("default" = "64KiB"))]
    pub request_buffer_limit: Option<Size>,
    /// Send copies of requests to these clusters; a string is a cluster's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirror: Vec<Short<Mirror>>,
    /// Affinity of clients to one of `clusters`. Absent: drawn for each request.
    pub sticky: Option<Sticky>,
    /// Limit the rate of requests; a string is a rate such as `100/s`. Absent: no limit.
    pub rate_limit: Option<Short<RateLimit>>,
    /// Fault injection, for tests. Absent: none.
    pub fault: Option<Fault>,
    /// Changes of the request before it is forwarded.
    pub request_headers: Option<HeaderRules>,
    /// Changes of the response before it is returned.
    pub response_headers: Option<HeaderRules>,
}
