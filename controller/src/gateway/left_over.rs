//! Finds objects of a Gateway that are left over from a change of its class. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::index::facts::gateway::GATEWAY_NAME;
use crate::index::made_name;

/// Namespace and name of an object.
pub(super) type Name = (String, String);

/// The state that determines whether objects under a Gateway's former name may be deleted.
pub(super) struct Successors {
    /// The existing Gateways, and the current names of their proxies; the latter is `None` if another controller
    /// serves the Gateway.
    wanted: Vec<(Name, Option<String>)>,
    /// Deployments of proxies with at least one available replica.
    ready: BTreeSet<Name>,
}

impl Successors {
    /// Collects the state from all Gateways, the mesh's classes, and the existing Deployments.
    pub(super) fn new(gateways: &[Value], own: &BTreeSet<&str>, deployments: &[Value]) -> Self {
        let wanted = |gateway: &Value| {
            let class = gateway["spec"]["gatewayClassName"].as_str();
            let class = class.filter(|class| own.contains(class));
            let name = name(gateway);
            let made = class.map(|class| made_name(&name.1, class));
            (name, made)
        };
        let available = |one: &&Value| one["status"]["availableReplicas"].as_u64() > Some(0);
        Self {
            wanted: gateways.iter().map(wanted).collect(),
            ready: deployments.iter().filter(available).map(name).collect(),
        }
    }

    /// Returns whether an object of a Gateway may be deleted. Objects of a deleted Gateway are left to the garbage
    /// collector.
    pub(super) fn outlive(&self, made: &Value) -> bool {
        let (namespace, own) = name(made);
        let gateway = made["metadata"]["labels"][GATEWAY_NAME].as_str();
        let is_its = |of: &Name| of.0 == namespace && Some(of.1.as_str()) == gateway;
        let mut wanted = self.wanted.iter();
        match wanted.find(|(of, _)| is_its(of)) {
            None => false,
            Some((_, None)) => true,
            Some((_, Some(now))) => *now != own && self.ready.contains(&(namespace, now.clone())),
        }
    }
}

/// Returns the namespace and name of an object.
pub(super) fn name(resource: &Value) -> Name {
    let meta = &resource["metadata"];
    let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(name: &str, available: u32) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "edge", "labels": {GATEWAY_NAME: "web"}},
            "status": {"availableReplicas": available},
        })
    }

    /// Returns the names of objects that can be deleted when the Gateway has this class.
    fn can_go(class: &str, made: &[Value]) -> Vec<String> {
        let gateway = json!({
            "metadata": {"name": "web", "namespace": "edge"},
            "spec": {"gatewayClassName": class},
        });
        let own = BTreeSet::from(["maglor", "ours"]);
        let successors = Successors::new(&[gateway], &own, made);
        let gone = made.iter().filter(|one| successors.outlive(one));
        gone.map(|one| name(one).1).collect()
    }

    #[test]
    fn what_has_the_old_name_goes_when_the_new_one_serves() {
        let [old, waiting, ready] = [
            made("web-maglor", 1),
            made("web-ours", 0),
            made("web-ours", 1),
        ];
        assert!(can_go("maglor", std::slice::from_ref(&old)).is_empty());
        assert!(can_go("ours", &[old.clone(), waiting]).is_empty());
        assert_eq!(can_go("ours", &[old.clone(), ready]), ["web-maglor"]);
        assert_eq!(can_go("another", &[old]), ["web-maglor"]);
    }

    #[test]
    fn a_gateway_that_has_gone_takes_along_what_is_its() {
        let own = BTreeSet::from(["maglor"]);
        let made = made("web-maglor", 1);
        assert!(!Successors::new(&[], &own, std::slice::from_ref(&made)).outlive(&made));
    }
}
