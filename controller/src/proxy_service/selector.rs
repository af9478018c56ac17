//! The selector of a Service: its own, or the proxies' in its place.
//!
//! The proxies are selected by the same labels as the Service's own pods, with another value. So
//! whoever applies the Service's manifest again, by whatever way, gives it exactly its own selector
//! back: no label of ours is left beside it that nothing would match.

use std::collections::BTreeMap;

use serde_json::Value;

use super::RECORD;

/// Labels and their values.
pub type Selector = BTreeMap<String, String>;

/// What the selector of a Service says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selected {
    /// The Service's own; empty = it has none.
    pub own: Selector,
    /// The proxies are in its place.
    pub proxied: bool,
    /// Something of ours stands in the Service: a record of the selector, or a part of the proxies'.
    pub touched: bool,
}

/// The value of the labels by which the proxies of a Service are selected. No name of a Service has a
/// dot, so it is nobody else's by chance.
#[must_use]
pub fn marker(service: &str) -> String {
    format!("{service}.proxy")
}

/// The selector of the proxies in place of a Service's own.
#[must_use]
pub fn in_place(own: &Selector, service: &str) -> Selector {
    own.keys()
        .map(|key| (key.clone(), marker(service)))
        .collect()
}

/// Reads the selector of a Service. `target` is the Service of its endpoints, which knows its own
/// selector, too.
#[must_use]
pub fn selected(service: &Value, target: Option<&Value>) -> Selected {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let marker = marker(name);
    let now = of(service);
    let record = record(service);
    let touched = record.is_some() || now.values().any(|value| *value == marker);
    let known = record.or_else(|| target.map(of)).unwrap_or_default();
    let proxied = !now.is_empty() && now == in_place(&known, name);
    if proxied {
        return Selected {
            own: known,
            proxied,
            touched,
        };
    }
    // Somebody has changed it, perhaps a part of it.
    let mut own = Selector::new();
    for (key, value) in now {
        if value != marker {
            own.insert(key, value);
        } else if let Some(value) = known.get(&key) {
            own.insert(key, value.clone());
        }
    }
    Selected {
        own,
        proxied,
        touched,
    }
}

/// `spec.selector`; empty where there is none.
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
    fn what_somebody_has_changed_is_adopted() {
        let record = Some(r#"{"app":"web","version":"v1"}"#);
        let after = |value: Value| selected(&service(&value, record), None);
        // Applied again as a whole; another selector; a part of it.
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
    fn a_lost_record_is_found_in_the_target() {
        let target = json!({"spec": {"selector": {"app": "web"}}});
        let lost = selected(&service(&json!({"app": "web.proxy"}), None), Some(&target));
        assert_eq!(lost.own, selector(&[("app", "web")]));
        assert!(lost.proxied && lost.touched);
        let nonsense = service(&json!({"app": "web.proxy"}), Some("no json"));
        assert_eq!(selected(&nonsense, Some(&target)), lost);
    }
}
