//! `authorization`: rules for the clients of a listener.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::OneOrMany;
use super::forms::{WordsOrNumbers, words_or_numbers};

/// Authorization rules. Deny rules are evaluated first, then allow rules, regardless of their order; if none matches,
/// `default` applies. HTTP is authorized by request (403), other protocols by connection.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// Decision if no rule matches. Default: `allow` if every rule denies or audits, otherwise `deny`, as in Istio.
    pub default: Option<Effect>,
    /// Whether denials are only logged and counted, and nothing is denied (dry run).
    #[schemars(extend("default" = false))]
    pub audit: Option<bool>,
    /// The rules; without rules, `default` applies to all requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AuthorizationRule>,
}

/// An authorization decision.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The request or connection is allowed.
    Allow,
    /// The request or connection is denied.
    Deny,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthorizationAction {
    /// Allow matching requests, unless another rule denies them.
    Allow,
    /// Log and count matching requests, without a decision.
    Audit,
    /// Deny matching requests, regardless of other rules.
    Deny,
}

/// A rule matches requests from one of `from` and none of `not_from`, to one of `to` and none of `not_to`. Strings may
/// have a `*` at the start or at the end.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationRule {
    /// Name, unique in the listener; the label `rule` in metrics. Default: the rule's position, `0`, `1`, ….
    pub name: Option<String>,
    /// Action for matching requests.
    #[schemars(extend("default" = "allow"))]
    pub action: Option<AuthorizationAction>,
    /// Sources. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<AuthorizationSource>,
    /// Excluded sources. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_from: Vec<AuthorizationSource>,
    /// Operations. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<AuthorizationOperation>,
    /// Excluded operations. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_to: Vec<AuthorizationOperation>,
}

/// A source; all fields that are set must match, each by one of its values. A client without mesh TLS has no identity:
/// it never matches `identities`, `namespaces` or `trust_domains`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationSource {
    /// SPIFFE IDs: `spiffe://mesh.example/ns/shop/sa/cart`, `spiffe://mesh.example/ns/shop/*`, `*` for any workload
    /// of the mesh.
    pub identities: Option<OneOrMany>,
    /// Namespaces of SPIFFE IDs of the form `…/ns/NAMESPACE/sa/ACCOUNT`.
    pub namespaces: Option<OneOrMany>,
    /// Trust domains of SPIFFE IDs.
    pub trust_domains: Option<OneOrMany>,
    /// Client networks, such as `10.0.0.0/8`, or addresses; after the PROXY protocol.
    pub networks: Option<OneOrMany>,
}

/// An operation; all fields that are set must match, each by one of its values. TCP connections have only ports. With
/// other fields, an operation in `to` of an allow or audit rule never matches them; in `to` of a deny rule, the other
/// fields are ignored. For `not_to` it is the reverse.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationOperation {
    /// HTTP methods, in upper case. Deny rules also match lower case; allow rules do not.
    pub methods: Option<OneOrMany>,
    /// Paths without query, after `path_normalization`.
    pub paths: Option<OneOrMany>,
    /// Ports that the client has connected to.
    #[schemars(with = "Option<WordsOrNumbers>")]
    #[serde(
        default,
        deserialize_with = "words_or_numbers",
        skip_serializing_if = "Option::is_none"
    )]
    pub ports: Option<OneOrMany>,
    /// `Host` without port, in any case.
    pub hosts: Option<OneOrMany>,
    /// Header fields of the request as the client has sent them. All conditions must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<AuthorizationHeader>,
}

/// A condition on a header. If the header occurs several times, an allow rule requires that each of its values matches,
/// and also all of them joined by commas; a deny rule requires only that one value, or one member of a list in a value,
/// matches. For `not_to` it is the reverse. An absent header does not match.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationHeader {
    /// Name of the header, in any case. For `host`, use `hosts`.
    pub name: Option<String>,
    /// Allowed values, one of which must match; `*` matches any value, including an empty one.
    pub values: Option<OneOrMany>,
}
