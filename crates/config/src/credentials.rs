//! Removes credentials in header fields from a configuration that is shown to operators.
//!
//! A configuration contains only the names of files with keys and tokens.

use serde_yaml::{Mapping, Value};

/// The text that replaces a hidden value.
const HIDDEN: &str = "(not shown)";
/// Header fields whose values are credentials.
const FIELDS: [&str; 7] = [
    "api-key",
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-api-key",
    "x-auth-token",
];
/// Fields of a condition on a header that contain the header's value.
const CONDITIONS: [&str; 5] = ["contains", "exact", "prefix", "regex", "suffix"];

/// Returns the same YAML text with `(not shown)` in place of credentials; only a note if the text cannot be parsed.
#[must_use]
pub fn without_credentials(yaml: &str) -> String {
    let hidden = serde_yaml::from_str(yaml).and_then(|mut value: Value| {
        hide(&mut value);
        serde_yaml::to_string(&value)
    });
    hidden.unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

fn hide(value: &mut Value) {
    match value {
        Value::Mapping(map) => {
            if map.get("name").is_some_and(is_credential) {
                for field in CONDITIONS {
                    map.entry(field.into()).and_modify(cover);
                }
            }
            for (key, value) in map {
                match (key.as_str(), value) {
                    (Some("set" | "add" | "headers"), Value::Mapping(fields)) => {
                        hide_fields(fields);
                    }
                    (_, value) => hide(value),
                }
            }
        }
        Value::Sequence(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Replaces the values of header fields whose names are in [`FIELDS`].
fn hide_fields(fields: &mut Mapping) {
    let credentials = fields.iter_mut().filter(|(name, _)| is_credential(name));
    credentials.for_each(|(_, value)| cover(value));
}

fn is_credential(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name))
}

fn cover(value: &mut Value) {
    match value {
        Value::Sequence(values) => values.iter_mut().for_each(cover),
        value => *value = HIDDEN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        let yaml = "
listeners:
- name: web
  authorization: {rules: [{name: cookie, action: deny, to: [{paths: /x}]}]}
  http:
    virtual_hosts:
    - domains: ['*']
      request_headers: {set: {Authorization: Bearer s3cret, x-zone: a}, add: {cookie: [s3cret, s3cret]}, remove: [cookie]}
      routes:
      - match: {headers: [{name: X-Api-Key, exact: s3cret}, {name: x-zone, prefix: b}]}
        direct_response: {status: 200, headers: {set-cookie: s3cret, x-a: c}}
        hash: [{cookie: session}]
";
        let shown = without_credentials(yaml);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert_eq!(shown.matches(HIDDEN).count(), 5, "{shown}");
        for kept in [
            "x-zone: a",
            "prefix: b",
            "x-a: c",
            "cookie: session",
            "paths: /x",
            "- cookie",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        assert!(without_credentials("a: [").starts_with("# cannot be shown"));
    }
}
