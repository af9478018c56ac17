//! `authorization`: rules for the clients of a listener.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use super::forms::{WordsOrNumbers, words_or_numbers};

/// Authorization rules. Deny rules are evaluated first, then allow rules, regardless of their order; if none matches,
/// `default` applies. HTTP is authorized by request (403), other protocols by connection.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// Decision if no rule matches. Default: `allow` where all rules deny or audit, otherwise `deny`, as in
    /// Istio.
    pub default: Option<Effect>,
    /// Dry run: nothing is denied; denials are only logged and counted.
    #[schemars(extend("default" = false))]
    pub audit: Option<bool>,
    /// The rules; without rules, only `default` applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AuthorizationRule>,
}

/// A decision.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthorizationAction {
    /// Allows it, unless another rule denies it.
    Allow,
    /// Logs and counts it; decides nothing.
    Audit,
    /// Denies it, whatever other rules say.
    Deny,
}

/// A rule matches requests from one of `from`, none of `not_from`, to one of `to`, and none of `not_to`. Strings may
/// have a `*` at the start or at the end.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationRule {
    /// Unique in the listener; metrics are labelled with it. Default: the rule's position, `0`, `1`, ….
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

/// A source; all fields that are set must match, each by one of its values. A client without mesh TLS has no identity
/// and matches none.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationSource {
    /// SPIFFE IDs: `spiffe://mesh.example/ns/shop/sa/cart`, `spiffe://mesh.example/ns/shop/*`, `*` for any workload
    /// of the mesh.
    pub identities: Option<OneOrMany>,
    /// Namespaces of IDs `…/ns/NAMESPACE/sa/ACCOUNT`.
    pub namespaces: Option<OneOrMany>,
    /// Trust domains.
    pub trust_domains: Option<OneOrMany>,
    /// Client networks, such as `10.0.0.0/8`, or addresses; after the PROXY protocol.
    pub networks: Option<OneOrMany>,
}

/// An operation; all fields that are set must match, each by one of its values. TCP connections have only ports: an
/// allow rule with other fields never matches, and a deny rule ignores them; the same holds for exceptions.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationOperation {
    /// HTTP methods, in upper case. Deny rules also match lower case; allow rules do not.
    pub methods: Option<OneOrMany>,
    /// Paths without query, as `path_normalization` leaves them.
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

/// A condition on a header field. If a field occurs several times, an allow rule matches if each value matches, and
/// all of them joined by commas; a deny rule matches if any value matches, or a member of a list in it. For
/// exceptions it is the reverse. An absent field does not match.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationHeader {
    /// Name, in any case. `host` is not one of them: see `hosts`.
    pub name: Option<String>,
    /// One of these must match; `*`: any value, also an empty one.
    pub values: Option<OneOrMany>,
}
