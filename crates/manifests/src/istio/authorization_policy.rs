//! Translates `AuthorizationPolicy`, which authorizes requests.
//!
//! Unsupported conditions are safe: an allowing rule with an unsupported condition allows nothing, and a denying rule
//! is applied without the condition and denies more.

mod operation;

use std::collections::BTreeMap;

use maglor_config::raw::{
    AuthorizationAction, AuthorizationRule, AuthorizationSource, Effect as Verdict, OneOrMany,
};
use serde_json::Value;

use self::operation::When;
use crate::istio::block::Block;
use crate::istio::finding::{Effect, Read, Report};
use crate::istio::peer_authentication::selector;

/// A translated `AuthorizationPolicy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthorizationPolicy {
    /// The labels of the selected pods; `None` = all pods of the policy's namespace, or of the mesh.
    pub selector: Option<BTreeMap<String, String>>,
    /// The verdict for requests that no rule matches; `None` if it follows from the rules. It is set for a policy that
    /// allows nothing.
    pub default: Option<Verdict>,
    /// The rules.
    pub rules: Vec<AuthorizationRule>,
}

impl AuthorizationPolicy {
    /// Translates a `spec`.
    #[must_use]
    pub fn read(spec: &Value) -> Read<Self> {
        let report = Report::default();
        let block = Block::new(spec, "spec".to_owned(), &report);
        let action = match block.text("action") {
            None | Some("ALLOW") => AuthorizationAction::Allow,
            Some("DENY") => AuthorizationAction::Deny,
            Some("AUDIT") => AuthorizationAction::Audit,
            Some(other) => {
                block.refuse("action", format!("`{other}` is not supported"));
                AuthorizationAction::Deny
            }
        };
        let selector = selector(&block);
        let mut rules = Vec::new();
        for (i, rule) in block.blocks("rules").iter().enumerate() {
            rules.extend(read_rule(rule, i, action));
        }
        block.without(
            "targetRefs",
            Effect::Refused,
            "not supported; select pods with `selector`",
        );
        block.end(Effect::Refused);
        let policy = Self {
            selector,
            // It allows only requests that match its rules, also when it has none.
            default: (action == AuthorizationAction::Allow).then_some(Verdict::Deny),
            rules,
        };
        drop(block);
        report.read(Some(policy))
    }
}

/// Translates one of Istio's rules into one rule for each source, and for each operation with exceptions.
fn read_rule(block: &Block<'_>, at: usize, action: AuthorizationAction) -> Vec<AuthorizationRule> {
    let mut whole = true;
    let mut to = Vec::new();
    for (i, entry) in block.blocks("to").iter().enumerate() {
        let Some(operation) = entry.block("operation") else {
            entry.refuse("operation", format!("the field is missing in to[{i}]"));
            continue;
        };
        let (read, known) = operation::read(&operation, action);
        if is_bare(entry, "operation") {
            entry.refuse(
                "operation",
                "it has no condition, and would match any request",
            );
        }
        whole &= known;
        to.push(read);
    }
    let when = conditions(block, action);
    whole &= when.known;
    let mut sources = Vec::new();
    for entry in block.blocks("from") {
        let Some(source) = entry.block("source") else {
            entry.refuse("source", "the field is missing");
            continue;
        };
        let read = read_source(&source, action);
        if is_bare(&entry, "source") {
            entry.refuse("source", "it has no condition, and would match any request");
        }
        whole &= read.known;
        if clash(read.from.as_ref(), when.source.from.as_ref()) {
            let what = "not supported together with the same condition in `when`";
            source.ignore("principals", what);
            whole = false;
        }
        sources.push(read);
    }
    block.end(Effect::Refused);
    if sources.is_empty() {
        sources.push(Source::default());
    }
    if !whole && action == AuthorizationAction::Allow {
        return Vec::new();
    }
    let operations = operation::limited(to, &when.operation);
    let mut rules = Vec::new();
    for source in sources {
        let excluded = when.source.not_from.iter().cloned();
        let rule = AuthorizationRule {
            name: None,
            action: Some(action),
            from: both(source.from, when.source.from.clone())
                .into_iter()
                .collect(),
            not_from: source.not_from.into_iter().chain(excluded).collect(),
            ..AuthorizationRule::default()
        };
        rules.extend(operations.iter().map(|one| one.put(&rule)));
    }
    let several = rules.len() > 1;
    for (i, rule) in rules.iter_mut().enumerate() {
        rule.name = Some(match several {
            true => format!("{at}-{i}"),
            false => at.to_string(),
        });
    }
    rules
}

/// Returns whether two sources, whose conditions must both hold, set the same field.
fn clash(one: Option<&AuthorizationSource>, other: Option<&AuthorizationSource>) -> bool {
    one.zip(other).is_some_and(|(one, other)| {
        one.identities.is_some() && other.identities.is_some()
            || one.namespaces.is_some() && other.namespaces.is_some()
            || one.networks.is_some() && other.networks.is_some()
    })
}

/// Combines two sources whose conditions must both hold; a field that is set in both has the values of the second.
fn both(
    one: Option<AuthorizationSource>,
    other: Option<AuthorizationSource>,
) -> Option<AuthorizationSource> {
    match (one, other) {
        (Some(one), Some(other)) => Some(AuthorizationSource {
            identities: other.identities.or(one.identities),
            namespaces: other.namespaces.or(one.namespaces),
            trust_domains: other.trust_domains.or(one.trust_domains),
            networks: other.networks.or(one.networks),
        }),
        (one, other) => one.or(other),
    }
}

/// Reads a list of a condition. An empty one is refused, as are conditions without any: a template whose value is
/// missing renders them, and without the condition the rule would match all requests.
fn listed(block: &Block<'_>, name: &'static str) -> Vec<String> {
    let list = block.texts(name);
    if list.is_empty() && block.value(name).is_some_and(Value::is_array) {
        block.refuse(name, EMPTY);
    }
    list
}

/// Returns whether a block has no condition.
fn is_bare(block: &Block<'_>, name: &'static str) -> bool {
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    let fields = block.value(name).and_then(Value::as_object);
    fields.is_some_and(|fields| fields.values().all(is_empty))
}

const EMPTY: &str = "the list is empty: write what it has to match, or remove the field";

fn some(list: Vec<String>) -> Option<OneOrMany> {
    (!list.is_empty()).then_some(OneOrMany(list))
}

/// Adds the scheme to identities: `cluster.local/ns/a/sa/b` → `spiffe://cluster.local/ns/a/sa/b`. Wildcards are
/// unchanged.
fn identities(list: Vec<String>) -> Option<OneOrMany> {
    let spiffe = |text: String| match text.starts_with('*') {
        true => text,
        false => format!("spiffe://{text}"),
    };
    some(list.into_iter().map(spiffe).collect())
}

/// Reports an unsupported condition, whose effect on the rule depends on the action.
fn unsupported(block: &Block<'_>, name: &'static str, action: AuthorizationAction) -> bool {
    if block.value(name).is_none() {
        return false;
    }
    block.ignore(name, consequence(action));
    true
}

/// The message for an allowing rule with an unsupported condition.
pub const ALLOWS_NOTHING: &str = "not supported, so this rule allows nothing";

fn consequence(action: AuthorizationAction) -> &'static str {
    match action {
        AuthorizationAction::Allow => ALLOWS_NOTHING,
        AuthorizationAction::Audit => "not supported, so this rule logs more",
        AuthorizationAction::Deny => "not supported, so this rule denies more",
    }
}

/// The conditions on the source of a request, with exclusions.
#[derive(Default)]
struct Source {
    from: Option<AuthorizationSource>,
    not_from: Vec<AuthorizationSource>,
    /// Whether all conditions of the source are supported.
    known: bool,
}

fn read_source(block: &Block<'_>, action: AuthorizationAction) -> Source {
    let own = AuthorizationSource {
        identities: identities(listed(block, "principals")),
        namespaces: some(listed(block, "namespaces")),
        trust_domains: None,
        networks: some(listed(block, "ipBlocks")),
    };
    let mut not = Vec::new();
    let excluded = [
        AuthorizationSource {
            identities: identities(block.texts("notPrincipals")),
            ..AuthorizationSource::default()
        },
        AuthorizationSource {
            namespaces: some(block.texts("notNamespaces")),
            ..AuthorizationSource::default()
        },
        AuthorizationSource {
            networks: some(block.texts("notIpBlocks")),
            ..AuthorizationSource::default()
        },
    ];
    not.extend(
        excluded
            .into_iter()
            .filter(|one| *one != AuthorizationSource::default()),
    );
    let mut known = true;
    for name in [
        "requestPrincipals",
        "notRequestPrincipals",
        "remoteIpBlocks",
        "notRemoteIpBlocks",
        "serviceAccounts",
        "notServiceAccounts",
    ] {
        known &= !unsupported(block, name, action);
    }
    block.end(Effect::Refused);
    Source {
        from: (own != AuthorizationSource::default()).then_some(own),
        not_from: not,
        known,
    }
}

/// The translated conditions of `when`.
struct Conditions {
    source: Source,
    operation: When,
    known: bool,
}

/// Translates the conditions of `when`, by their keys. Conditions on the source, the port, and header fields are
/// supported.
fn conditions(block: &Block<'_>, action: AuthorizationAction) -> Conditions {
    let (mut from, mut not, mut operation, mut known) = (None, Vec::new(), When::default(), true);
    for entry in block.blocks("when") {
        let key = entry.text("key").unwrap_or_default();
        let (values, excluded) = (listed(&entry, "values"), entry.texts("notValues"));
        if values.is_empty() && excluded.is_empty() {
            entry.refuse("values", "a condition has `values` or `notValues`");
        }
        let source = |list: Vec<String>| match key {
            "source.principal" => AuthorizationSource {
                identities: identities(list),
                ..AuthorizationSource::default()
            },
            "source.namespace" => AuthorizationSource {
                namespaces: some(list),
                ..AuthorizationSource::default()
            },
            _ => AuthorizationSource {
                networks: some(list),
                ..AuthorizationSource::default()
            },
        };
        match key {
            "source.principal" | "source.namespace" | "source.ip" => {
                if !values.is_empty() {
                    let also = source(values);
                    // Both would have to hold, but a rule has only one list of values.
                    if clash(from.as_ref(), Some(&also)) {
                        let what = format!("`{key}` is defined twice: {}", consequence(action));
                        entry.ignore("key", what);
                        known = false;
                    }
                    from = both(from, Some(also));
                }
                if !excluded.is_empty() {
                    not.push(source(excluded));
                }
            }
            "destination.port" => operation.port(values, excluded),
            other => match header_of(other) {
                Some(Ok(name)) => operation.header(name, values, excluded),
                Some(Err(instead)) => {
                    let what = format!("`{other}`: write {instead}; {}", consequence(action));
                    entry.ignore("key", what);
                    known = false;
                }
                None => {
                    let what = format!("`{other}`: {}", consequence(action));
                    entry.ignore("key", what);
                    known = false;
                }
            },
        }
        entry.end(Effect::Refused);
    }
    Conditions {
        source: Source {
            from,
            not_from: not,
            known,
        },
        operation,
        known,
    }
}

/// Returns the name in `request.headers[NAME]`, or, as an error, the replacement for a pseudo-header; `None` for other
/// keys.
fn header_of(key: &str) -> Option<Result<&str, &'static str>> {
    let name = key.strip_prefix("request.headers[")?.strip_suffix(']')?;
    Some(match name.to_ascii_lowercase().as_str() {
        ":authority" | "host" => Err("`hosts` of an operation"),
        ":method" => Err("`methods` of an operation"),
        ":path" => Err("`paths` of an operation"),
        _ => Ok(name),
    })
}
