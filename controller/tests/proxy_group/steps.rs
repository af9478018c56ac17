//! The effect of a step of the operator on the fixture.

use maglor_controller::proxy_service::{FIELD_MANAGER, FINALIZER, Step};
use serde_json::{Value, json};

use super::{Fixture, NAMES, bare};

impl Fixture {
    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Apply(resource) => self.apply(resource),
            Step::Delete(resource) => {
                let uid = &resource["metadata"]["uid"];
                self.store.retain(|_, one| one["metadata"]["uid"] != *uid);
            }
            Step::Hold(claim) => self.finalize(&claim.name, &json!([FINALIZER])),
            Step::Release(claim) => self.finalize(&claim.name, &json!([])),
            Step::Restore(service) => self.write(service, |there, service| {
                let before = bare(there);
                *there = service.clone();
                if bare(there) != before {
                    let fields = there["metadata"]["managedFields"].as_array_mut().unwrap();
                    fields.push(json!({"manager": FIELD_MANAGER, "operation": "Update"}));
                }
            }),
            Step::Switch(service) => self.write(service, |there, service| {
                there["spec"]["selector"] = service["spec"]["selector"].clone();
                let annotations = service["metadata"]["annotations"].as_object().unwrap();
                for (name, value) in annotations {
                    there["metadata"]["annotations"][name] = value.clone();
                }
                // A list by port and protocol.
                let wanted = service["spec"]["ports"].as_array().into_iter().flatten();
                for wanted in wanted {
                    let mut ports = there["spec"]["ports"].as_array_mut().unwrap().iter_mut();
                    let same = |port: &&mut Value| port["port"] == wanted["port"];
                    ports.find(same).unwrap()["targetPort"] = wanted["targetPort"].clone();
                }
                let fields = there["metadata"]["managedFields"].as_array_mut().unwrap();
                fields.push(json!({"manager": FIELD_MANAGER, "operation": "Apply"}));
            }),
        }
    }

    fn finalize(&mut self, name: &str, finalizers: &Value) {
        for claim in &mut self.claims {
            if claim["metadata"]["name"] == name {
                claim["metadata"]["finalizers"] = finalizers.clone();
            }
        }
        self.collect();
    }

    /// Under the version that was seen.
    fn write(&mut self, wanted: &Value, write: impl FnOnce(&mut Value, &Value)) {
        let name = wanted["metadata"]["name"].as_str().unwrap();
        let at = NAMES.iter().position(|one| *one == name).unwrap();
        let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
        let live = self.services[at].live.as_ref();
        if live.is_some_and(|live| version(live) == version(wanted)) {
            self.change(at, |live| write(live, wanted));
        }
    }

    fn apply(&mut self, resource: &Value) {
        let number = self.number();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let key = (text(&resource["kind"]), text(&resource["metadata"]["name"]));
        let before = self.store.remove(&key);
        let mut resource = resource.clone();
        let uid = before
            .as_ref()
            .map(|before| before["metadata"]["uid"].clone());
        resource["metadata"]["uid"] = uid.unwrap_or_else(|| json!(format!("u-{number}")));
        resource["metadata"]["generation"] = json!(number);
        if let Some(before) = before {
            resource["status"] = before["status"].clone();
        }
        self.store.insert(key, resource);
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
