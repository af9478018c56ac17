//! Virtual hosts, routes and what they match.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ClusterWeight, DirectResponse, Fault, HashPolicy, Hedge, Mirror, NotationError, OneOrMany,
    Pairs, RateLimit, Redirect, Retry, Rewrite, Short, Shorthand, Size, Sticky, TimeSpan,
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

/// Header changes, applied in the order remove, set, add. Headers that frame a message
/// (`content-length`, `transfer-encoding`, `connection`, …) cannot be changed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRules {
    /// Names to remove.
    pub remove: Option<OneOrMany>,
    /// Name → value; replaces all fields of that name.
    pub set: Option<Pairs<String>>,
    /// Name → value or list of values; appended.
    pub add: Option<Pairs<OneOrMany>>,
}

/// Conditions on a request; all must match.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RouteMatch {
    /// Path without query; a string is a prefix. Default: any.
    pub path: Option<Short<PathMatch>>,
    /// A method, or a list. Default: any.
    pub methods: Option<OneOrMany>,
    /// Conditions on headers; all must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// Conditions on query parameters; all must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<QueryMatch>,
    /// Only gRPC requests (`content-type: application/grpc…`).
    #[schemars(extend("default" = false))]
    pub grpc: Option<bool>,
}

/// A condition on the path; one of the fields.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PathMatch {
    /// The whole path.
    pub exact: Option<String>,
    /// Prefix of whole segments: `/api` matches `/api` and `/api/x`, not `/apix`; `/api/` only `/api/x`.
    pub prefix: Option<String>,
    /// The whole path matches this regular expression (linear time; no look-around).
    pub regex: Option<String>,
}

impl Shorthand for PathMatch {
    const TEXT: &'static str = "a path prefix such as `/api`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            prefix: Some(text.to_owned()),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                exact: None,
                prefix: Some(prefix),
                regex: None,
            } => Some(prefix),
            _ => None,
        }
    }
}

/// A condition on a header; one of `exact`, `prefix`, `suffix`, `contains`, `regex`, `present`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct HeaderMatch {
    /// The header's name; several fields of one name are compared joined by `,`.
    pub name: Option<String>,
    /// The value equals this.
    pub exact: Option<String>,
    /// The value starts with this.
    pub prefix: Option<String>,
    /// The value ends with this.
    pub suffix: Option<String>,
    /// The value contains this.
    pub contains: Option<String>,
    /// The whole value matches this regular expression.
    pub regex: Option<String>,
    /// `true`: present; `false`: absent.
    pub present: Option<bool>,
    /// Inverts the condition. An absent header satisfies an inverted condition.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

/// A condition on a query parameter; one of `exact`, `prefix`, `suffix`, `contains`, `regex`,
/// `present`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct QueryMatch {
    /// The parameter's name, percent-decoded, case-sensitive; its first value counts.
    pub name: Option<String>,
    /// The value equals this.
    pub exact: Option<String>,
    /// The value starts with this.
    pub prefix: Option<String>,
    /// The value ends with this.
    pub suffix: Option<String>,
    /// The value contains this.
    pub contains: Option<String>,
    /// The whole value matches this regular expression.
    pub regex: Option<String>,
    /// `true`: present; `false`: absent.
    pub present: Option<bool>,
    /// Inverts the condition.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

/// Common fields of conditions on headers and query parameters.
#[derive(Clone, Copy, Debug)]
pub struct StringMatch<'a> {
    /// Equals this.
    pub exact: Option<&'a str>,
    /// Starts with this.
    pub prefix: Option<&'a str>,
    /// Ends with this.
    pub suffix: Option<&'a str>,
    /// Contains this.
    pub contains: Option<&'a str>,
    /// Matches this.
    pub regex: Option<&'a str>,
    /// Is present, or absent.
    pub present: Option<bool>,
    /// Inverts the condition.
    pub invert: bool,
}

macro_rules! string_match {
    ($type:ty) => {
        impl $type {
            /// The condition on the value.
            #[must_use]
            pub fn value(&self) -> StringMatch<'_> {
                StringMatch {
                    exact: self.exact.as_deref(),
                    prefix: self.prefix.as_deref(),
                    suffix: self.suffix.as_deref(),
                    contains: self.contains.as_deref(),
                    regex: self.regex.as_deref(),
                    present: self.present,
                    invert: self.invert.unwrap_or(false),
                }
            }
        }
    };
}

string_match!(HeaderMatch);
string_match!(QueryMatch);
