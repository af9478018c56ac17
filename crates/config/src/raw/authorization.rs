//! `authorization`: who may do what on a listener.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use super::forms::{WordsOrNumbers, words_or_numbers};

/// Who may do what. First rules that deny are asked, then rules that allow, whatever their order;
/// what none of them takes gets `default`. HTTP is decided by request (403), anything else by
/// connection.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// What no rule takes. Default: `allow` where all rules deny or audit, otherwise `deny`, as in
    /// Istio.
    pub default: Option<Effect>,
    /// Try the rules: nothing is denied, what would be is only logged and counted.
    #[schemars(extend("default" = false))]
    pub audit: Option<bool>,
    /// Who may do what; none: only `default` decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AuthorizationRule>,
}

/// Whether something may be done.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// What a rule does with what it takes.
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

/// A rule takes what comes from one of `from`, from none of `not_from`, and is one of `to`, and none of `not_to`. Texts
/// may have a `*` at the beginning or at the end.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationRule {
    /// Unique in the listener; metrics are labelled with it. Default: the rule's position, `0`, `1`, ….
    pub name: Option<String>,
    /// What happens to what the rule takes.
    #[schemars(extend("default" = "allow"))]
    pub action: Option<AuthorizationAction>,
    /// Where it comes from. Default: anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<AuthorizationSource>,
    /// Where it does not come from. Default: no exception.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_from: Vec<AuthorizationSource>,
    /// What is done. Default: anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<AuthorizationOperation>,
    /// What is not done. Default: no exception.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_to: Vec<AuthorizationOperation>,
}

/// Where something comes from; all that is given must hold, each by one of its values. Who does not
/// come by mesh TLS has no identity, and matches none.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationSource {
    /// SPIFFE ids: `spiffe://mesh.example/ns/shop/sa/cart`, `spiffe://mesh.example/ns/shop/*`, `*` for
    /// any member of the mesh.
    pub identities: Option<OneOrMany>,
    /// Namespaces of ids `…/ns/NAMESPACE/sa/ACCOUNT`.
    pub namespaces: Option<OneOrMany>,
    /// Trust domains.
    pub trust_domains: Option<OneOrMany>,
    /// Client networks, such as `10.0.0.0/8`, or addresses; after the PROXY protocol.
    pub networks: Option<OneOrMany>,
}

/// What is done; all that is given must hold, each by one of its values. Where bytes are passed there
/// are only ports: a rule that allows by anything else takes nothing, one that denies looks only at
/// the rest; and so where it is an exception.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationOperation {
    /// HTTP methods, in upper case. What denies denies them in lower case, too; what allows does not.
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

/// A condition on a header field. Of a field that is there several times, a rule that allows takes the request where each value
/// matches, and all of them joined by commas; a rule that denies where one does, or a member of a list within one. Where it is an
/// exception it is the other way round. A field that is not there matches nothing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationHeader {
    /// Name, in any case. `host` is not one of them: see `hosts`.
    pub name: Option<String>,
    /// One of these must match; `*`: any value, also an empty one.
    pub values: Option<OneOrMany>,
}
