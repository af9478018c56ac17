//! Actions of a route: clusters by weight, rewriting, hashing, redirects, direct responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HeaderRules, NotationError, Pairs, Short, Shorthand, TimeSpan};

/// A share of a route's requests, with the cluster `name` or a response `status`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterWeight {
    /// Name of the cluster.
    pub name: Option<String>,
    /// Respond with this status, 400-599, if there is no cluster to forward to; `UNAVAILABLE` in gRPC.
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u32>,
    /// Share = weight / sum of the weights; 0 for none, as long as the sum is above 0. 0-1000000.
    #[schemars(range(max = 1_000_000), extend("default" = 1))]
    pub weight: Option<u32>,
    /// Changes of the requests of this share, after the route's own.
    pub request_headers: Option<HeaderRules>,
    /// Changes of the responses of this share, before the route's own.
    pub response_headers: Option<HeaderRules>,
}

/// Changes of a forwarded request: at most one of `path`, `prefix`, `regex`; and of `host`,
/// `auto_host`. The query stays.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// Replaces the whole path.
    pub path: Option<String>,
    /// Replaces the prefix that the route matched.
    pub prefix: Option<String>,
    /// Replaces the match of this expression in the path by `substitution`.
    pub regex: Option<String>,
    /// Replacement for `regex`; `$1` or `${name}` stands for a group, `$$` for `$`.
    pub substitution: Option<String>,
    /// Replaces `Host`.
    pub host: Option<String>,
    /// Replaces `Host` by the chosen endpoint's DNS name, or its address if it has none.
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

/// One part of a request that is hashed; one of the fields other than `terminal`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HashPolicy {
    /// The value of this header.
    pub header: Option<String>,
    /// The value of this cookie; a text is the cookie's name.
    pub cookie: Option<Short<Cookie>>,
    /// The value of this query parameter.
    pub query: Option<String>,
    /// `true`: the path without query.
    pub path: Option<bool>,
    /// `true`: the client's address.
    pub source_address: Option<bool>,
    /// If this part is present, later ones are ignored.
    #[schemars(extend("default" = false))]
    pub terminal: Option<bool>,
}

/// A cookie for session affinity.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Cookie {
    /// Its name.
    pub name: Option<String>,
    /// `Max-Age` of the cookie that the proxy sets for clients without one, up to 3650d; `0s`: until the browser is
    /// closed. Absent: the proxy sets none.
    pub ttl: Option<TimeSpan>,
    /// `Path` of a cookie that the proxy sets.
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

/// A redirect; absent parts are those of the request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    #[schemars(extend("default" = 301, "enum" = [301, 302, 303, 307, 308]))]
    pub status: Option<u32>,
    /// `http` or `https`.
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// Host without port.
    pub host: Option<String>,
    /// Port, 1-65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u32>,
    /// Replaces the whole path.
    pub path: Option<String>,
    /// Replaces the prefix that the route matched.
    pub prefix: Option<String>,
    /// Drop the query.
    #[schemars(extend("default" = false))]
    pub strip_query: Option<bool>,
}

/// A response of the proxy itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["status"]))]
pub struct DirectResponse {
    /// 200-599.
    #[schemars(range(min = 200, max = 599))]
    pub status: Option<u32>,
    /// Body, at most 1MiB. Default: empty.
    pub body: Option<String>,
    /// Name → value; `content-type` is `text/plain` by default where there is a body.
    pub headers: Option<Pairs<String>>,
}
