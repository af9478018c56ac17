//! Finds contradictions between `ProxyService`s that share proxies.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Place, Problem, Severity, word};
use crate::crd::{GROUP, ProxyServiceSpec, check};
use crate::index::facts::Key;
use crate::proxy_service::contradicts;

/// The first `ProxyService` of each group, with its name. The files do not contain creation times; most likely the
/// first one in the files is also the oldest. Of two that contradict each other, one is rejected in either order.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Key, (String, ProxyServiceSpec)>);

impl Groups {
    /// Adds a resource, and returns a problem if it contradicts the first one of its group.
    pub(super) fn join(&mut self, place: Place<'_>, value: &Value) -> Option<Problem> {
        let ours = word(&value["apiVersion"]).starts_with(GROUP);
        if !ours || value["kind"] != "ProxyService" {
            return None;
        }
        let spec: ProxyServiceSpec = check::spec(value).ok()?;
        let (meta, group) = (&value["metadata"], spec.group.as_ref()?);
        let key = Key::new(word(&meta["namespace"]), group);
        let Some((first, older)) = self.0.get(&key) else {
            self.0.insert(key, (word(&meta["name"]).to_owned(), spec));
            return None;
        };
        let (field, severity) = match (contradicts(older, &spec), contradicts(&spec, older)) {
            (Some(field), Some(_)) => (field, Severity::Error),
            (Some(field), None) => (field, Severity::Warning),
            (None, _) => return None,
        };
        let message = format!(
            "spec.{field}: must be equal in all ProxyServices of group {group}; ProxyService {first} has another value"
        );
        Some(place.problem(value, severity, "Contradiction", message))
    }
}

#[cfg(test)]
mod tests {
    use crate::analyze::analyze;

    #[test]
    fn who_says_otherwise_of_what_is_shared_is_named() {
        let one = |name: &str, namespace: &str, more: &str| {
            format!(
                "---
apiVersion: maglor.dev/v1alpha1
kind: ProxyService
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  targetRef: {{name: {name}}}
  group: low
{more}"
            )
        };
        let text = [
            one("web", "shop", "  replicas: 2\n"),
            one("cart", "shop", "  policy: random\n"),
            one("mail", "shop", "  replicas: 3\n"),
            one("user", "shop", "  drainSeconds: 60\n"),
            one("web", "bank", ""),
            one("cart", "bank", "  replicas: 3\n"),
        ];
        let analysis = analyze(&[("a.yaml".to_owned(), text.concat())]);
        let found = analysis.problems.iter();
        // No file contains their Services.
        let found = found.filter(|one| one.reason != "TargetNotFound");
        let found: Vec<String> = found.map(ToString::to_string).collect();
        let says =
            "must be equal in all ProxyServices of group low; ProxyService web has another value";
        let expected = [
            format!("a.yaml:24: error: ProxyService mail: spec.replicas: {says} (Contradiction)"),
            format!(
                "a.yaml:32: error: ProxyService user: spec.drainSeconds: {says} (Contradiction)"
            ),
            format!("a.yaml:47: warning: ProxyService cart: spec.replicas: {says} (Contradiction)"),
        ];
        assert_eq!(found, expected);
    }
}
