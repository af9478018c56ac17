//! The effect of a step of the operator on the fixture.

use maglor_controller::proxy_service::{FIELD_MANAGER, FINALIZER, RECORD, Step};
use serde_json::{Value, json};

use super::{Fixture, bare};

impl Fixture {
    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Apply(resource) => self.apply(resource),
            Step::Delete(resource) => {
                let uid = &resource["metadata"]["uid"];
                let all = [
                    &mut self.target,
                    &mut self.policy,
                    &mut self.sidecar_policy,
                    &mut self.account,
                    &mut self.autoscaler,
                    &mut self.deployment,
                ];
                for there in all {
                    if there
                        .as_ref()
                        .is_some_and(|one| one["metadata"]["uid"] == *uid)
                    {
                        *there = None;
                    }
                }
            }
            Step::Hold(claim) => self.finalize(&claim.name, &json!([FINALIZER])),
            Step::Release(claim) => self.finalize(&claim.name, &json!([])),
            Step::Restore(service) => self.write_service(service, |there, service| {
                let before = bare(there);
                *there = service.clone();
                if bare(there) != before {
                    let fields = there["metadata"]["managedFields"].as_array_mut().unwrap();
                    fields.push(json!({"manager": FIELD_MANAGER, "operation": "Update"}));
                }
            }),
            Step::Switch(service) => self.write_service(service, |there, service| {
                there["spec"]["selector"] = service["spec"]["selector"].clone();
                let record = &service["metadata"]["annotations"][RECORD];
                there["metadata"]["annotations"][RECORD] = record.clone();
                let fields = there["metadata"]["managedFields"].as_array_mut().unwrap();
                fields.push(json!({"manager": FIELD_MANAGER, "operation": "Apply"}));
            }),
        }
    }

    fn finalize(&mut self, name: &str, finalizers: &Value) {
        for claim in self.claims.iter_mut().chain(&mut self.wide) {
            if claim["metadata"]["name"] == name {
                claim["metadata"]["finalizers"] = finalizers.clone();
            }
        }
        self.collect();
    }

    /// Under the version that was seen.
    fn write_service(&mut self, wanted: &Value, write: impl FnOnce(&mut Value, &Value)) {
        let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
        let there = self.service.as_ref();
        if there.is_some_and(|there| version(there) == version(wanted)) {
            self.change_service(|there| write(there, wanted));
        }
    }

    fn apply(&mut self, resource: &Value) {
        let number = self.number();
        let place = match resource["kind"].as_str().unwrap() {
            "Service" => &mut self.target,
            "TrafficPolicy" if resource["metadata"]["name"] == "web-sidecars" => {
                &mut self.sidecar_policy
            }
            "TrafficPolicy" => &mut self.policy,
            "Deployment" => &mut self.deployment,
            "HorizontalPodAutoscaler" => &mut self.autoscaler,
            "ServiceAccount" => &mut self.account,
            other => panic!("{other} is applied"),
        };
        let before = place.take();
        let mut resource = resource.clone();
        let uid = before
            .as_ref()
            .map(|before| before["metadata"]["uid"].clone());
        resource["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("u-{number}")));
        resource["metadata"]["generation"] = json!(number);
        if resource["kind"] == "Deployment" && resource["spec"]["replicas"].is_null() {
            // A field that is no longer applied has its default.
            resource["spec"]["replicas"] = json!(1);
        }
        if let Some(before) = before {
            resource["status"] = before["status"].clone();
        }
        *place = Some(resource);
    }
}

pub(super) fn reported(step: &Step) -> String {
    let named = |what: &str, resource: &Value| {
        let kind = resource["kind"].as_str().unwrap();
        format!(
            "{what} {kind} {}",
            resource["metadata"]["name"].as_str().unwrap()
        )
    };
    match step {
        Step::Apply(resource) => named("apply", resource),
        Step::Delete(resource) => named("delete", resource),
        Step::Hold(_) => "hold".into(),
        Step::Release(_) => "release".into(),
        Step::Restore(_) => "restore".into(),
        Step::Switch(_) => "switch".into(),
    }
}
