//! The proxies in front of a Service: dedicated proxies, or those of a group.
//!
//! Both are selected by the label keys of the Service's own selector, with another value ([`super::selector`]).
//! Shared proxies cannot have the label keys of every Service that may join the group, since new labels require new
//! pods. They have the common label keys, and the selector of a Service in a group must contain one of these.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{LABEL, RECORD};
use crate::crd::ProxyServiceSpec;
use crate::index::facts::service::PROXY_GROUP;

/// Label keys of shared proxies; the selector of each Service of a group must contain one of them.
pub const SHARED_LABELS: [&str; 11] = [
    "app",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/name",
    "component",
    "k8s-app",
    "name",
    "role",
    "run",
    "service",
    "tier",
];

/// Labels and their values.
pub type Selector = BTreeMap<String, String>;

/// The owner of proxies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Front {
    /// A group, by its name.
    Group(String),
    /// A single Service, by its name.
    Service(String),
}

impl Default for Front {
    fn default() -> Self {
        Self::Service(String::new())
    }
}

impl Front {
    /// Returns the wanted owner for a Service.
    #[must_use]
    pub fn of(service: &str, spec: &ProxyServiceSpec) -> Self {
        match &spec.group {
            Some(group) => Self::Group(group.clone()),
            None => Self::Service(service.to_owned()),
        }
    }

    /// Returns the existing owner, which a Service records, and also its target Service if this controller created
    /// it; `None` if there are no objects.
    #[must_use]
    pub fn found(service: Option<&Value>, target: Option<&Value>) -> Option<Self> {
        let meta = |resource: Option<&Value>| resource.map(|one| one["metadata"].clone());
        let (own, behind) = (meta(service), meta(target));
        let name = own.as_ref().and_then(|meta| meta["name"].as_str());
        let named = behind
            .as_ref()
            .and_then(|meta| meta["labels"][LABEL].as_str());
        let name = name.or(named)?;
        let annotations = own.as_ref().map(|meta| &meta["annotations"]);
        let recorded = annotations.and_then(|all| all[PROXY_GROUP].as_str());
        let labelled = behind
            .as_ref()
            .and_then(|meta| meta["labels"][PROXY_GROUP].as_str());
        if let Some(group) = recorded.or(labelled) {
            return Some(Self::Group(group.to_owned()));
        }
        let touched = annotations.is_some_and(|all| all[RECORD].is_string());
        (touched || named.is_some()).then(|| Self::Service(name.to_owned()))
    }

    /// Returns a group whose last member was this Service: the Service owns an object of the group, and there is no
    /// target Service. `made` are the objects of groups in the namespace; `targets` are the target Services of all
    /// groups.
    #[must_use]
    pub fn left_behind(service: &Value, made: &[Value], targets: &[Value]) -> Option<Self> {
        let uid = &service["metadata"]["uid"];
        let owns = |one: &&Value| {
            let owners = one["metadata"]["ownerReferences"].as_array();
            owners
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == *uid)
        };
        let group = |one: &Value| one["metadata"]["labels"][PROXY_GROUP].clone();
        let empty = |of: &Value| targets.iter().all(|target| group(target) != *of);
        let mut left = made.iter().filter(owns).map(group).filter(empty);
        Some(Self::Group(left.next()?.as_str()?.to_owned()))
    }

    /// Returns the value of the labels that select the proxies. The name of a Service cannot contain a dot, so other
    /// pods do not have this value by chance.
    #[must_use]
    pub fn marker(&self) -> String {
        match self {
            Self::Group(group) => format!("{group}.group"),
            Self::Service(service) => format!("{service}.proxy"),
        }
    }

    /// Returns the selector of the proxies that replaces a Service's own selector. For a group it may have fewer
    /// keys; reapplying the Service's manifest overwrites these and adds the others.
    #[must_use]
    pub fn in_place(&self, own: &Selector) -> Selector {
        let has = |key: &&String| match self {
            Self::Group(_) => SHARED_LABELS.contains(&key.as_str()),
            Self::Service(_) => true,
        };
        let keys = own.keys().filter(has);
        keys.map(|key| (key.clone(), self.marker())).collect()
    }

    /// Returns the name of the proxies' Deployment, service account and autoscaler.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Group(group) => format!("{group}-proxy-group"),
            Self::Service(service) => format!("{service}-proxy-service"),
        }
    }

    /// Returns the label of the proxies and their objects.
    pub(super) fn label(&self) -> (&'static str, &str) {
        match self {
            Self::Group(group) => (PROXY_GROUP, group),
            Self::Service(service) => (LABEL, service),
        }
    }

    /// Returns the group's name; `None` for dedicated proxies.
    pub(super) fn group(&self) -> Option<&str> {
        match self {
            Self::Group(group) => Some(group),
            Self::Service(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_found_by_what_stands_in_the_services() {
        let group = || Front::Group("low".into());
        let own = || Front::Service("web".into());
        let service =
            |annotations: Value| json!({"metadata": {"name": "web", "annotations": annotations}});
        let target = |labels: Value| json!({"metadata": {"name": "web-target", "labels": labels}});
        let plain = service(json!({}));
        assert_eq!(Front::found(Some(&plain), None), None);
        let switched = service(json!({RECORD: "{}", PROXY_GROUP: "low"}));
        assert_eq!(Front::found(Some(&switched), None), Some(group()));
        let proxied = service(json!({RECORD: "{}"}));
        assert_eq!(Front::found(Some(&proxied), None), Some(own()));
        let behind = target(json!({LABEL: "web", PROXY_GROUP: "low"}));
        assert_eq!(Front::found(Some(&plain), Some(&behind)), Some(group()));
        assert_eq!(Front::found(None, Some(&behind)), Some(group()));
        let behind = target(json!({LABEL: "web"}));
        assert_eq!(Front::found(Some(&plain), Some(&behind)), Some(own()));
    }

    #[test]
    fn a_group_uses_common_labels() {
        let own = |pairs: &[(&str, &str)]| -> Selector {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            pairs.iter().map(owned).collect()
        };
        let group = Front::Group("low".into());
        let selector = own(&[("app", "web"), ("version", "v1")]);
        assert_eq!(group.in_place(&selector), own(&[("app", "low.group")]));
        assert!(group.in_place(&own(&[("version", "v1")])).is_empty());
        let alone = Front::Service("web".into()).in_place(&selector);
        assert_eq!(
            alone,
            own(&[("app", "web.proxy"), ("version", "web.proxy")])
        );
    }
}
