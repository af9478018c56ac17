//! Reads Deployments, and builds the patches for them.

use std::collections::BTreeMap;

use maglor_manifests::inject::quantity;
use maglor_service_graph::tune::{Part, Rollout};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{TUNED, TUNING, text};
use crate::conditional_writes::Precondition;
use crate::index::facts::Key;

const MIB: f64 = 1_048_576.0;

/// The resource requests of a container, in Kubernetes' notation. Absent requests are not set.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// CPU request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<String>,
}

/// Requests by container name.
pub type Containers = BTreeMap<String, Requests>;

/// An applied value, and the values before it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Written<T> {
    /// The value before the first change.
    pub original: T,
    /// The value before the last change.
    pub former: T,
    /// The applied value.
    pub value: T,
}

impl<T: Clone> Written<T> {
    /// Returns the record after a further change.
    fn next(before: Option<&Self>, present: T, value: T) -> Self {
        Self {
            original: before.map_or_else(|| present.clone(), |one| one.original.clone()),
            former: present,
            value,
        }
    }
}

/// The record of changes that is stored in the Deployment's annotation.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Ticket {
    /// Name of the policy that has made the changes.
    pub policy: String,
    /// Changes of the number of replicas; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Written<u32>>,
    /// Changes of the resource requests; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containers: Option<Written<Containers>>,
}

/// A container of a Deployment's template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// Name of the container.
    pub name: String,
    /// Requests of the container as written in the template.
    pub requests: Requests,
    /// CPU request in thousandths of a core; 0 if there is none.
    pub cpu_millis: u64,
    /// Memory request in MiB; 0 if there is none.
    pub memory_mib: u64,
    /// CPU limit in thousandths of a core; `None` if there is none.
    pub cpu_limit_millis: Option<u64>,
    /// Memory limit in MiB; `None` if there is none.
    pub memory_limit_mib: Option<u64>,
}

/// The new requests of a container; `None` for those that do not change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Share {
    /// Name of the container.
    pub name: String,
    /// CPU request in thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// Memory request in MiB.
    pub memory_mib: Option<u64>,
    /// Memory limit in MiB, which is raised if the current one is less than a quarter above the request.
    pub memory_limit_mib: Option<u64>,
}

/// A Deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Namespace and name of the Deployment.
    pub key: Key,
    /// Version of the Deployment. A write to any other version fails.
    pub seen: Precondition,
    /// Wanted number of replicas.
    pub replicas: u32,
    /// Progress of the rollout.
    pub rollout: Rollout,
    /// Whether the rollout is paused (`spec.paused`).
    pub paused: bool,
    /// Whether the Deployment opts out of tuning.
    pub disabled: bool,
    /// Kind and name of the owner that manages the Deployment; `None` if there is none.
    pub owner: Option<(String, String)>,
    /// Containers of the template, without injected ones.
    pub containers: Vec<Container>,
    /// Record of changes; `None` if there were none.
    pub ticket: Option<Ticket>,
}

fn millis(value: &Value) -> Option<u64> {
    amount(value, 1e-3)
}

fn mib(value: &Value) -> Option<u64> {
    amount(value, MIB)
}

fn amount(value: &Value, unit: f64) -> Option<u64> {
    Some((quantity(&words(value)?)? / unit).ceil() as u64)
}

/// Formats a quantity, which may be a string or a number.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

impl Container {
    fn read(value: &Value) -> Self {
        let (requests, limits) = (
            &value["resources"]["requests"],
            &value["resources"]["limits"],
        );
        // Kubernetes uses a limit as the request if there is no request.
        let or = |name: &str| match requests[name].is_null() {
            true => limits[name].clone(),
            false => requests[name].clone(),
        };
        Self {
            name: text(&value["name"]).to_owned(),
            requests: Requests {
                cpu: words(&requests["cpu"]),
                memory: words(&requests["memory"]),
                memory_limit: words(&limits["memory"]),
            },
            cpu_millis: millis(&or("cpu")).unwrap_or(0),
            memory_mib: mib(&or("memory")).unwrap_or(0),
            cpu_limit_millis: millis(&limits["cpu"]),
            memory_limit_mib: mib(&limits["memory"]),
        }
    }
}

/// Returns the CPU and memory that a pod's injected containers request. Injected containers are those that are not in
/// the template.
#[must_use]
pub fn injected(pod: &Value, template: &[Container]) -> (u64, u64) {
    let list = |name: &str| pod[name].as_array().into_iter().flatten();
    let beside = list("initContainers").filter(|one| one["restartPolicy"] == "Always");
    let own = |one: &&Value| {
        !template
            .iter()
            .any(|known| known.name == text(&one["name"]))
    };
    let others = list("containers").chain(beside).filter(own);
    others.map(Container::read).fold((0, 0), |sum, one| {
        (sum.0 + one.cpu_millis, sum.1 + one.memory_mib)
    })
}

impl Workload {
    /// Reads a Deployment; `None` if it is being deleted.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        let (meta, spec, status) = (&value["metadata"], &value["spec"], &value["status"]);
        if !meta["deletionTimestamp"].is_null() {
            return None;
        }
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let replicas = spec["replicas"].as_u64().unwrap_or(1);
        let all = |name: &str| number(&status[name]) == replicas;
        let known = number(&status["observedGeneration"]) >= number(&meta["generation"]);
        let counts = ["replicas", "updatedReplicas"];
        let unavailable = replicas.saturating_sub(number(&status["availableReplicas"]));
        let template = &spec["template"]["metadata"];
        let said =
            [meta, template].map(|meta| [&meta["labels"][TUNING], &meta["annotations"][TUNING]]);
        let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.find(|one| one["controller"] == true);
        let containers = spec["template"]["spec"]["containers"].as_array();
        let written = meta["annotations"][TUNED].as_str();
        Some(Self {
            key: Key::new(text(&meta["namespace"]), text(&meta["name"])),
            seen: Precondition::of_value(value),
            replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
            rollout: Rollout {
                updated: known && counts.into_iter().all(all),
                unavailable: u32::try_from(unavailable).unwrap_or(u32::MAX),
            },
            paused: spec["paused"] == true,
            disabled: said.as_flattened().iter().any(|one| **one == "disabled"),
            owner: owner.map(|one| (text(&one["kind"]).to_owned(), text(&one["name"]).to_owned())),
            containers: containers
                .into_iter()
                .flatten()
                .map(Container::read)
                .collect(),
            ticket: written.and_then(|written| serde_json::from_str(written).ok()),
        })
    }

    fn present(&self) -> Containers {
        let each = self.containers.iter();
        each.map(|one| (one.name.clone(), one.requests.clone()))
            .collect()
    }

    /// Returns the parts that this controller has written and another writer has changed since.
    #[must_use]
    pub fn overridden(&self) -> Vec<Part> {
        let Some(ticket) = &self.ticket else {
            return Vec::new();
        };
        let replicas = ticket
            .replicas
            .as_ref()
            .is_some_and(|one| one.value != self.replicas);
        // Requests are compared by amount, not by notation.
        let amounts = |one: &Requests| {
            let all = [&one.cpu, &one.memory, &one.memory_limit];
            all.map(|text| text.as_deref().map(quantity))
        };
        let same = |one: &Container, wanted: &Requests| amounts(&one.requests) == amounts(wanted);
        let changed = |value: &Containers| {
            let known = self.containers.iter();
            known
                .filter_map(|one| Some((one, value.get(&one.name)?)))
                .any(|(one, wanted)| !same(one, wanted))
        };
        let containers = ticket
            .containers
            .as_ref()
            .is_some_and(|one| changed(&one.value));
        let parts = [(replicas, Part::Replicas), (containers, Part::Requests)];
        let parts = parts.into_iter().filter(|(other, _)| *other);
        parts.map(|(_, part)| part).collect()
    }

    /// Returns the patch that changes the number of replicas.
    #[must_use]
    pub fn scale(&self, policy: &str, to: u32) -> Value {
        let mut ticket = self.ticket_of(policy);
        ticket.replicas = Some(Written::next(ticket.replicas.as_ref(), self.replicas, to));
        self.patch(&ticket, &json!({"replicas": to}))
    }

    /// Returns the patch that changes the requests of containers.
    #[must_use]
    pub fn request(&self, policy: &str, shares: &[Share]) -> Value {
        let mut wanted = self.present();
        for share in shares {
            let one = wanted.entry(share.name.clone()).or_default();
            let set = |into: &mut Option<String>, value: Option<u64>, unit: &str| {
                if let Some(value) = value {
                    *into = Some(format!("{value}{unit}"));
                }
            };
            set(&mut one.cpu, share.cpu_millis, "m");
            set(&mut one.memory, share.memory_mib, "Mi");
            set(&mut one.memory_limit, share.memory_limit_mib, "Mi");
        }
        let mut ticket = self.ticket_of(policy);
        let before = ticket.containers.as_ref();
        ticket.containers = Some(Written::next(before, self.present(), wanted.clone()));
        self.patch(&ticket, &self.template(&wanted))
    }

    /// Returns the patch that restores a part to its value before the last change; `None` if nothing was changed, or
    /// if another writer has changed the value since.
    #[must_use]
    pub fn put_back(&self, part: Part) -> Option<Value> {
        if self.overridden().contains(&part) {
            return None;
        }
        let mut ticket = self.ticket.clone()?;
        let spec = match part {
            Part::Replicas => {
                let written = ticket.replicas.as_mut()?;
                written.value = written.former;
                json!({"replicas": written.former})
            }
            Part::Requests => {
                let written = ticket.containers.as_mut()?;
                written.value = written.former.clone();
                self.template(&written.former)
            }
            Part::Traffic => return None,
        };
        Some(self.patch(&ticket, &spec))
    }

    fn ticket_of(&self, policy: &str) -> Ticket {
        // A value changed by another writer becomes the new original value.
        let overridden = self.overridden();
        let mut ticket = self.ticket.clone().unwrap_or_default();
        if overridden.contains(&Part::Replicas) {
            ticket.replicas = None;
        }
        if overridden.contains(&Part::Requests) {
            ticket.containers = None;
        }
        policy.clone_into(&mut ticket.policy);
        ticket
    }

    /// Returns a template patch that contains only the differences; `null` removes a field (strategic merge patch).
    fn template(&self, wanted: &Containers) -> Value {
        let mut containers = Vec::new();
        for one in &self.containers {
            let Some(to) = wanted.get(&one.name).filter(|to| **to != one.requests) else {
                continue;
            };
            let mut resources = json!({});
            let fields = [
                ("requests", "cpu", &one.requests.cpu, &to.cpu),
                ("requests", "memory", &one.requests.memory, &to.memory),
                (
                    "limits",
                    "memory",
                    &one.requests.memory_limit,
                    &to.memory_limit,
                ),
            ];
            for (block, name, from, to) in fields {
                if from != to {
                    resources[block][name] = json!(to);
                }
            }
            containers.push(json!({"name": one.name, "resources": resources}));
        }
        json!({"template": {"spec": {"containers": containers}}})
    }

    fn patch(&self, ticket: &Ticket, spec: &Value) -> Value {
        let ticket = serde_json::to_string(ticket).unwrap_or_default();
        json!({
            "metadata": {"annotations": {TUNED: ticket}},
            "spec": spec,
        })
    }
}

#[cfg(test)]
mod tests;
