//! The selector of a Service, which selects its own pods or the proxies, and the ports of shared proxies.
//!
//! The proxies are selected by the label keys of the Service's own selector, with another value. Thus reapplying the
//! Service's manifest with any tool restores exactly its own selector, without an additional label that would match
//! no pod.

use serde_json::{Value, json};

use super::front::Front;
pub(super) use super::front::Selector;
use super::ports::Ports;
use super::{PORTS_RECORD, RECORD};
use crate::index::facts::service::PROXY_GROUP;

/// The decoded selector of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selected {
    /// The Service's own selector; empty if it has none.
    pub own: Selector,
    /// Whether the proxies' selector replaces the Service's own selector.
    pub proxied: bool,
    /// Whether the Service contains data of this controller: a record of the original state, or a part of the
    /// proxies' selector.
    pub touched: bool,
    /// Whether the proxies' selector is combined with the Service's own ports, or the reverse, so that connections
    /// may fail.
    pub mixed: bool,
    /// Ports of the Service.
    pub(super) ports: Ports,
}

impl Selected {
    /// Returns the Service with its own selector and its own ports.
    pub(super) fn own_service(&self, service: &Value) -> Value {
        let mut service = service.clone();
        if !self.own.is_empty() {
            service["spec"]["selector"] = json!(self.own);
        }
        self.ports.restore(&mut service);
        service
    }
}

/// Decodes the selector of a Service. `target` is the target Service, if this controller created it; it also records
/// the Service's own selector.
#[must_use]
pub fn selected(service: &Value, target: Option<&Value>) -> Selected {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let front = Front::found(Some(service), target);
    let front = front.unwrap_or_else(|| Front::Service(name.to_owned()));
    let (ports, shared) = (Ports::read(service, target), front.group().is_some());
    let marker = front.marker();
    let now = of(service);
    let record = record(service);
    let marked = now.values().any(|value| *value == marker);
    let known = || record.clone().or_else(|| target.map(of));
    let known = known().unwrap_or_default();
    let in_place = !now.is_empty() && now == front.in_place(&known);
    let proxied = in_place && (!shared || ports.all_shared());
    let annotations = &service["metadata"]["annotations"];
    let noted = |name: &str| annotations[name].is_string();
    let noted = record.is_some() || noted(PORTS_RECORD) || noted(PROXY_GROUP);
    let some = marked || !ports.shared.is_empty();
    let mut selected = Selected {
        own: known.clone(),
        proxied,
        touched: noted || some,
        mixed: shared && some && !proxied,
        ports,
    };
    if in_place {
        return selected;
    }
    // Another writer may have changed a part of the selector.
    let mut own = Selector::new();
    for (key, value) in now {
        if value != marker {
            own.insert(key, value);
        } else if let Some(value) = known.get(&key) {
            own.insert(key, value.clone());
        }
    }
    selected.own = own;
    selected
}

/// Returns `spec.selector`; empty if there is none.
pub(super) fn of(service: &Value) -> Selector {
    read(&service["spec"]["selector"])
}

fn read(value: &Value) -> Selector {
    let map = value.as_object().into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn record(service: &Value) -> Option<Selector> {
    let text = service["metadata"]["annotations"][RECORD].as_str()?;
    let record = read(&serde_json::from_str(text).ok()?);
    (!record.is_empty()).then_some(record)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(selector: &Value, record: Option<&str>) -> Value {
        let mut service = json!({"metadata": {"name": "web"}, "spec": {"selector": selector}});
        if let Some(record) = record {
            service["metadata"]["annotations"] = json!({RECORD: record});
        }
        service
    }

    fn selector(pairs: &[(&str, &str)]) -> Selector {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_selector_is_its_own_or_the_proxies() {
        let plain = selected(&service(&json!({"app": "web"}), None), None);
        assert_eq!(plain.own, selector(&[("app", "web")]));
        assert!(!plain.proxied && !plain.touched);
        let record = Some(r#"{"app":"web"}"#);
        let proxied = selected(&service(&json!({"app": "web.proxy"}), record), None);
        assert_eq!(proxied.own, selector(&[("app", "web")]));
        assert!(proxied.proxied && proxied.touched);
        let none = selected(&service(&json!(null), None), None);
        assert!(none.own.is_empty() && !none.proxied && !none.touched);
    }

    #[test]
    fn changes_by_others_are_adopted() {
        let record = Some(r#"{"app":"web","version":"v1"}"#);
        let after = |value: Value| selected(&service(&value, record), None);
        // The manifest is applied again completely; another selector; a part of the selector.
        let again = after(json!({"app": "web", "version": "v1"}));
        assert_eq!(again.own, selector(&[("app", "web"), ("version", "v1")]));
        assert!(!again.proxied && again.touched);
        let other = after(json!({"app": "shop"}));
        assert_eq!(other.own, selector(&[("app", "shop")]));
        let part = after(json!({"app": "web.proxy", "version": "v2"}));
        assert_eq!(part.own, selector(&[("app", "web"), ("version", "v2")]));
        let less = after(json!({"app": "web.proxy"}));
        assert_eq!(less.own, selector(&[("app", "web")]));
        assert!(!less.proxied);
    }

    #[test]
    fn of_shared_proxies_there_are_labels_and_ports() {
        let annotations = json!({
            RECORD: r#"{"app":"web","version":"v1"}"#,
            PORTS_RECORD: r#"{"80":{"own":"http","shared":20007}}"#,
            PROXY_GROUP: "low",
        });
        let service = |selector: &Value, port: &Value| {
            json!({
                "metadata": {"name": "web", "annotations": annotations},
                "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": port}]},
            })
        };
        let theirs = json!({"app": "low.group"});
        let own = json!({"app": "web", "version": "v1"});
        for (selector, port, proxied, mixed) in [
            (&theirs, json!(20_007), true, false),
            // The Service's manifest was applied again, without a target port.
            (&own, json!(20_007), false, true),
            (&theirs, json!("http"), false, true),
            (&own, json!("http"), false, false),
        ] {
            let service = service(selector, &port);
            let read = selected(&service, None);
            assert_eq!((read.proxied, read.mixed), (proxied, mixed), "{service}");
            assert!(read.touched);
            let restored = read.own_service(&service);
            assert_eq!(restored["spec"]["selector"], own);
            assert_eq!(restored["spec"]["ports"][0]["targetPort"], "http");
        }
    }

    #[test]
    fn a_lost_record_is_found_in_the_target() {
        let labels = json!({super::super::LABEL: "web"});
        let target = json!({"metadata": {"labels": labels}, "spec": {"selector": {"app": "web"}}});
        let lost = selected(&service(&json!({"app": "web.proxy"}), None), Some(&target));
        assert_eq!(lost.own, selector(&[("app", "web")]));
        assert!(lost.proxied && lost.touched);
        let nonsense = service(&json!({"app": "web.proxy"}), Some("no json"));
        assert_eq!(selected(&nonsense, Some(&target)), lost);
    }
}
