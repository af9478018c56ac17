//! `ProxyService`s for many Services, of which the fixture has one.

use maglor_controller::proxy_service::{Claim, Land, OPT_OUT, Step};
use serde_json::{Value, json};

use super::Fixture;

/// The controller's namespace.
pub(super) const ROOT: &str = "maglor";

impl Fixture {
    pub(super) fn claim_all(&mut self, which: u8) {
        let name = format!("wide-{which}");
        if self
            .wide
            .iter()
            .any(|claim| claim["metadata"]["name"] == name.as_str())
        {
            return;
        }
        let number = self.number();
        let namespace = if which == 2 { ROOT } else { "shop" };
        let meta = json!({"name": name, "namespace": namespace, "uid": format!("u-{number}")});
        let spec = json!({"mode": "Auto", "dryRun": which == 0, "sidecarPolicies": true});
        self.wide.push(json!({"metadata": meta, "spec": spec}));
    }

    pub(super) fn unclaim_all(&mut self, which: u8) {
        let name = format!("wide-{which}");
        for claim in &mut self.wide {
            if claim["metadata"]["name"] == name.as_str() {
                claim["metadata"]["deletionTimestamp"] = json!("now");
            }
        }
        self.collect();
    }

    pub(super) fn opt_out(&mut self, out: bool) {
        let set = |service: &mut Value| {
            if out {
                service["metadata"]["annotations"][OPT_OUT] = json!("disabled");
                return;
            }
            let meta = service["metadata"].as_object_mut().unwrap();
            let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut)
            else {
                return;
            };
            annotations.remove(OPT_OUT);
            if annotations.is_empty() {
                meta.remove("annotations");
            }
        };
        set(&mut self.intended);
        self.change_service(set);
    }

    /// Finalizers are removed once none of the created objects is left.
    pub(super) fn look_around(&mut self) {
        let claims = self.claims.iter().chain(&self.wide).map(Claim::read);
        let with_place = |resource: &Option<Value>| {
            let mut resource = resource.clone()?;
            resource["metadata"]["namespace"] = json!("shop");
            Some(resource)
        };
        let land = Land {
            claims: claims.collect(),
            services: [&self.service, &self.target]
                .into_iter()
                .filter_map(with_place)
                .collect(),
            policies: with_place(&self.sidecar_policy).into_iter().collect(),
            root: ROOT.to_owned(),
            ..Land::default()
        };
        let finished = land.finished().into_iter();
        let steps: Vec<Step> = finished
            .map(|claim| Step::Release(claim.key.clone()))
            .collect();
        for step in steps {
            self.take(&step);
        }
    }
}
