//! Checks whether the Services that `ProxyService`s name can have proxies, as the operator would.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Place, Problem, Severity, word};
use crate::crd::GROUP;
use crate::index::facts::Key;
use crate::proxy_service::{Refusal, refusal_of};

/// Services, and the `ProxyService`s that name them.
#[derive(Default)]
pub(super) struct Fronts<'a> {
    services: BTreeMap<Key, Value>,
    named: Vec<(Place<'a>, Value)>,
}

fn key(namespace: &Value, name: &Value) -> Key {
    let namespace = Some(word(namespace)).filter(|namespace| !namespace.is_empty());
    Key::new(namespace.unwrap_or("default"), word(name))
}

impl<'a> Fronts<'a> {
    /// Collects a resource if it is a Service or a `ProxyService`.
    pub(super) fn take(&mut self, place: Place<'a>, value: &Value) {
        let meta = &value["metadata"];
        match (word(&value["apiVersion"]), word(&value["kind"])) {
            ("v1", "Service") => {
                let key = key(&meta["namespace"], &meta["name"]);
                self.services.insert(key, value.clone());
            }
            (version, "ProxyService")
                if version.starts_with(GROUP) && value["spec"]["targetRef"].is_object() =>
            {
                self.named.push((place, value.clone()));
            }
            _ => {}
        }
    }

    /// Returns why named Services cannot have proxies. Services that are not in the files are skipped, since they may
    /// exist in the cluster.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.named.iter().filter_map(|(place, value)| {
            let name = &value["spec"]["targetRef"]["name"];
            let service = self
                .services
                .get(&key(&value["metadata"]["namespace"], name));
            let refusal = refusal_of(value, service)?;
            let severity = match refusal {
                Refusal::TargetNotFound(_) => Severity::Warning,
                _ => Severity::Error,
            };
            let message = format!("spec.targetRef: {refusal}");
            Some(place.problem(value, severity, refusal.reason(), message))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::analyze::analyze;

    #[test]
    fn services_that_cannot_have_proxies_are_named() {
        let service = |name: &str, spec: &str| {
            format!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{spec}}}\n"
            )
        };
        let front = |name: &str| {
            format!(
                "---\napiVersion: maglor.dev/v1alpha1\nkind: ProxyService\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec:\n  targetRef: {{name: {name}}}\n"
            )
        };
        let ports = "selector: {app: a}, ports: [{port: 80, appProtocol: http}]";
        let text = [
            service("good", ports),
            front("good"),
            service("headless", &format!("clusterIP: None, {ports}")),
            front("headless"),
            service("undeclared", "selector: {app: a}, ports: [{port: 80}]"),
            front("undeclared"),
            front("missing"),
        ];
        let analysis = analyze(&[("a.yaml".to_owned(), text.concat())]);
        let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a.yaml:22: error: ProxyService headless: spec.targetRef: Service headless is headless: ",
            "a.yaml:33: error: ProxyService undeclared: spec.targetRef: Service undeclared, port 80: the protocol is not declared",
            "a.yaml:39: warning: ProxyService missing: spec.targetRef: there is no Service missing (TargetNotFound)",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
