//! The shared proxies of a group of Services.
//!
//! There is one Deployment for all members, created for the first and removed with the last. When a Service joins or
//! leaves, only the Deployment's owners change, so no proxy is restarted: ports are configured by discovery, from the
//! target Services of the members.

use serde_json::{Value, json};

use super::front::SHARED_LABELS;
use super::manifests::{Owned, account_name, marked, pod_labels};
use super::observed::Observed;
use super::ports::{Shared, allot, shared_of};
use super::{Settings, container};
use crate::crd::ProxyServiceSpec;
use crate::proxy_pod;

impl Observed {
    /// Returns the specification in force for the proxies of a Service.
    pub(super) fn in_force(&self, own: &ProxyServiceSpec) -> ProxyServiceSpec {
        match &self.group {
            Some(group) => group.spec(own),
            None => own.clone(),
        }
    }

    /// Returns the owner of the proxies' objects.
    pub(super) fn owned(&self, service: &Value) -> Owned {
        let own = Owned::by_service(self.front.clone(), service);
        match &self.group {
            Some(group) => Owned {
                owners: own
                    .owners
                    .into_iter()
                    .flat_map(|own| group.owners(own))
                    .collect(),
                ..own
            },
            None => own,
        }
    }

    /// Returns the shared proxies' ports for a Service, which has its own target ports; empty if the proxies are
    /// dedicated.
    pub(super) fn allotted(&self, service: &Value) -> Shared {
        let Some(group) = &self.group else {
            return Shared::new();
        };
        let target = self.ours(self.target.as_ref());
        let mut before = target.map(shared_of).unwrap_or_default();
        if let Some(selected) = self.selected() {
            // Clients may already be sent to these ports.
            before.extend(selected.ports.shared);
        }
        allot(service, &before, &group.taken(&self.name, &before))
    }

    /// Returns whether every proxy would accept a connection to the ports.
    pub(super) fn listens(&self, ports: &Shared) -> bool {
        self.group.as_ref().is_none_or(|group| group.listens(ports))
    }
}

/// Returns the Deployment of a group's proxies.
pub(super) fn deployment(owned: &Owned, claim: &ProxyServiceSpec, settings: &Settings) -> Value {
    let (label, group) = owned.front.label();
    let labels = pod_labels(&owned.front, SHARED_LABELS);
    let proxies = json!({label: group});
    let container = container::shared(claim, settings);
    let mut pod = proxy_pod::pod(&proxies, claim.drain_seconds(), &container);
    if let Some(account) = account_name(&owned.front, claim, settings) {
        pod["serviceAccountName"] = json!(account);
    }
    let [identity, cache] = maglor_manifests::inject::volumes();
    // The proxy's ports are configured like those of a workload. Without an identity, it accepts the clients'
    // protocol.
    let (injected, volumes) = match settings.trust_domain.is_some() {
        true => ("true", vec![identity, cache]),
        false => ("outbound", vec![cache]),
    };
    pod["volumes"] = json!(volumes);
    let annotations = json!({maglor_manifests::inject::INJECTED: injected});
    let meta = json!({"labels": labels, "annotations": annotations});
    let mut deployment = owned.resource("apps/v1", "Deployment");
    deployment["spec"] = proxy_pod::rollout(&proxies, &meta, &pod, settings);
    if claim.autoscaling.is_none() {
        deployment["spec"]["replicas"] = json!(claim.replicas());
    }
    marked(deployment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_service::Front;

    fn spec(more: &str) -> ProxyServiceSpec {
        serde_yaml::from_str(&format!("{{targetRef: {{name: web}}, group: low{more}}}")).unwrap()
    }

    #[test]
    fn proxies_do_not_depend_on_the_members() {
        let settings = Settings {
            trust_domain: Some("mesh.example".into()),
            ..Settings::default()
        };
        let owned = |names: &[&str]| Owned {
            front: Front::Group("low".into()),
            namespace: json!("shop"),
            owners: names.iter().map(|name| json!({"name": name})).collect(),
        };
        let one = deployment(&owned(&["web"]), &spec(", replicas: 2"), &settings);
        let two = deployment(&owned(&["cart", "web"]), &spec(", replicas: 2"), &settings);
        assert_eq!(one["spec"], two["spec"]);
        assert_ne!(
            one["metadata"]["ownerReferences"],
            two["metadata"]["ownerReferences"]
        );
        assert_eq!(one["metadata"]["name"], "low-proxy-group");
        let template = &one["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["app"], "low.group");
        assert_eq!(template["spec"]["serviceAccountName"], "low-proxy-group");
        let container = &template["spec"]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        assert_eq!(
            ports.len(),
            1,
            "those of the members come and go: {ports:?}"
        );
        assert_eq!(ports[0]["name"], "maglor-admin");
        let args = container["args"].to_string();
        assert!(
            args.contains("--cache-dir") && !args.contains("--forward"),
            "{args}"
        );
        let plain = deployment(&owned(&["web"]), &spec(""), &Settings::default());
        let args = plain["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(
            args.contains("--plain-text") && args.contains("--cache-dir"),
            "{args}"
        );
    }
}
