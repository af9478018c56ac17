//! Actions of a route: clusters by weight, rewriting, hashing, redirects, direct responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{HeaderRules, NotationError, Pairs, Short, Shorthand, TimeSpan};

/// A share of a route's requests, which are forwarded to the cluster `name` or answered with `status`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterWeight {
    /// Name of the cluster.
    pub name: Option<String>,
    /// Response status of this share, 400-599, instead of a cluster; gRPC calls get `UNAVAILABLE`.
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u32>,
    /// Weight of this share, 0-1000000; its fraction of the requests is this weight divided by the sum of all weights,
    /// which must be above 0.
    #[schemars(range(max = 1_000_000), extend("default" = 1))]
    pub weight: Option<u32>,
    /// Header changes of the requests of this share, applied after those of the route.
    pub request_headers: Option<HeaderRules>,
    /// Header changes of the responses of this share, applied before those of the route.
    pub response_headers: Option<HeaderRules>,
}

/// Rewrites of a forwarded request: at most one of `path`, `prefix` and `regex`, and at most one of `host` and
/// `auto_host`. The query is kept.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// New path, which replaces the whole path.
    pub path: Option<String>,
    /// New prefix, which replaces the prefix that the route matched.
    pub prefix: Option<String>,
    /// Regular expression; all of its matches in the path are replaced by `substitution`.
    pub regex: Option<String>,
    /// Replacement for `regex`; `$1` or `${name}` stands for a group, `$$` for `$`.
    pub substitution: Option<String>,
    /// New value of `Host`.
    pub host: Option<String>,
    /// Whether to replace `Host` by the chosen endpoint's DNS name, or its address if it has none.
    #[schemars(extend("default" = false))]
    pub auto_host: Option<bool>,
}

impl Rewrite {
    /// Converts RE2's notation of a `substitution`, which Envoy and Istio use, to ours: `\1` →
    /// `${1}`, `$` → `$$`.
    #[must_use]
    pub fn substitution_from_re2(text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text.chars());
        while let Some(c) = rest.next() {
            match c {
                '$' => out.push_str("$$"),
                '\\' => match rest.next() {
                    Some(digit) if digit.is_ascii_digit() => {
                        out.push_str("${");
                        out.push(digit);
                        out.push('}');
                    }
                    other => out.extend(other),
                },
                c => out.push(c),
            }
        }
        out
    }
}

/// A part of a request to hash; exactly one of the fields other than `terminal`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HashPolicy {
    /// Name of a header whose value is hashed.
    pub header: Option<String>,
    /// Cookie whose value is hashed; a string is the cookie's name.
    pub cookie: Option<Short<Cookie>>,
    /// Name of a query parameter whose value is hashed.
    pub query: Option<String>,
    /// `true`: hash the path without query.
    pub path: Option<bool>,
    /// `true`: hash the client's address.
    pub source_address: Option<bool>,
    /// Whether later parts are ignored if this part is present.
    #[schemars(extend("default" = false))]
    pub terminal: Option<bool>,
}

/// A cookie for session affinity.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Cookie {
    /// Name of the cookie.
    pub name: Option<String>,
    /// `Max-Age` of the cookie that the proxy sets for clients without one, up to 3650d; `0s`: until the browser is
    /// closed. Absent: the proxy sets no cookie.
    pub ttl: Option<TimeSpan>,
    /// `Path` attribute of the cookie that the proxy sets.
    #[schemars(extend("default" = "/"))]
    pub path: Option<String>,
}

impl Shorthand for Cookie {
    const TEXT: &'static str = "a cookie's name";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            name: Some(text.to_owned()),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                name: Some(name),
                ttl: None,
                path: None,
            } => Some(name),
            _ => None,
        }
    }
}

/// A redirect. Absent parts of the location are taken from the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// Response status: 301, 302, 303, 307 or 308.
    #[schemars(extend("default" = 301, "enum" = [301, 302, 303, 307, 308]))]
    pub status: Option<u32>,
    /// Scheme of the location: `http` or `https`.
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// Host of the location, without port.
    pub host: Option<String>,
    /// Port of the location, 1-65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u32>,
    /// Path of the location, which replaces the whole path of the request.
    pub path: Option<String>,
    /// Replacement of the prefix that the route matched.
    pub prefix: Option<String>,
    /// Whether to drop the query.
    #[schemars(extend("default" = false))]
    pub strip_query: Option<bool>,
}

/// A response of the proxy itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["status"]))]
pub struct DirectResponse {
    /// Response status, 200-599.
    #[schemars(range(min = 200, max = 599))]
    pub status: Option<u32>,
    /// Response body, at most 1MiB. Default: empty.
    pub body: Option<String>,
    /// Response headers, name → value. With a body, `content-type` is `text/plain` unless it is set here.
    pub headers: Option<Pairs<String>>,
}
