//! Schedules of updates, status writes and restarts: replicas that start and running ones have the same result.

use maglor_controller::index::facts::{Kind, Object};
use maglor_controller::index::{Index, Resource, ResourceId};
use serde_json::{Value, json};

use super::{AROUND, Draw, draw, size, templates};
use crate::support;

/// Schedules; `ROUNDS=` for more.
const ROUNDS: usize = 4;
const STEPS: usize = 15;

/// The stored objects, and two replicas of the controller that read them.
struct Cluster {
    stored: Vec<Value>,
    replicas: [Index; 2],
    /// Files have neither versions nor statuses.
    is_folder: bool,
}

fn start(stored: &[Value]) -> Index {
    let mut index = Index::default();
    for object in support::objects(AROUND) {
        index.apply(object);
    }
    for value in stored {
        if let Ok(object) = Object::read(value) {
            index.apply(object);
        }
    }
    index.changes();
    index
}

/// All that proxies get.
fn answers(index: &Index) -> Vec<(ResourceId, Resource)> {
    let all = index.resources();
    all.map(|(id, resource)| (id.clone(), resource.clone()))
        .collect()
}

/// Without pages of resources in a failure.
fn same<T: std::fmt::Debug + PartialEq>(one: &[T], other: &[T], what: &str) {
    assert_eq!(one.len(), other.len(), "{what}");
    for (one, other) in one.iter().zip(other) {
        assert_eq!(one, other, "{what}");
    }
}

impl Cluster {
    fn new(is_folder: bool) -> Self {
        let mut stored = templates::all();
        if !is_folder {
            for value in &mut stored {
                value["metadata"]["generation"] = json!(1);
            }
        }
        let replicas = [start(&stored), start(&stored)];
        Self {
            stored,
            replicas,
            is_folder,
        }
    }

    fn deliver(&mut self, at: usize) {
        let Ok(object) = Object::read(&self.stored[at]) else {
            return;
        };
        for replica in &mut self.replicas {
            replica.apply(object.clone());
        }
    }

    fn settle(&mut self) {
        for replica in &mut self.replicas {
            replica.changes();
        }
    }

    fn update(&mut self, at: usize, spec: Value) {
        let value = &mut self.stored[at];
        value["spec"] = spec;
        if !self.is_folder {
            let generation = value["metadata"]["generation"].as_i64().unwrap();
            value["metadata"]["generation"] = json!(generation + 1);
        }
        self.deliver(at);
        self.settle();
    }

    /// One replica, which holds the Lease, writes all statuses; all replicas read them.
    fn write(&mut self, leader: usize) {
        for at in 0..self.stored.len() {
            let Ok(object) = Object::read(&self.stored[at]) else {
                continue;
            };
            let mut all = self.replicas[leader].statuses();
            let own = all.find(|(kind, key, _)| (*kind, *key) == (object.kind, &object.key));
            let Some(status) = own.map(|(_, _, status)| status.to_json()) else {
                continue;
            };
            drop(all);
            self.stored[at]["status"] = status;
            self.deliver(at);
        }
        self.settle();
    }

    fn agree(&self, what: &str) {
        let restarted = start(&self.stored);
        for replica in &self.replicas {
            same(&answers(replica), &answers(&restarted), what);
            let statuses = |index: &Index| -> Vec<(Kind, String, Value)> {
                let all = index.statuses();
                all.map(|(kind, key, status)| (kind, key.to_string(), status.to_json()))
                    .collect()
            };
            same(&statuses(replica), &statuses(&restarted), what);
        }
    }
}

/// A version of a template: unchanged, changed at random, or with an unknown field.
fn version(draw: &mut Draw, template: &Value) -> (&'static str, Value) {
    let mut spec = template["spec"].clone();
    match draw.below(3) {
        0 => ("as it is", spec),
        1 => {
            let mut place = draw.below(size(&spec));
            draw.change(&mut spec, &mut place);
            ("changed", spec)
        }
        _ => {
            for field in ["moonPhase", "selector", "host", "parentRefs"] {
                if field == "moonPhase" || (draw.below(4) == 0 && spec.get(field).is_some()) {
                    spec[field] = json!(5);
                }
            }
            ("unusable", spec)
        }
    }
}

fn play(is_folder: bool) {
    let (mut draw, rounds) = draw(ROUNDS);
    let templates = templates::all();
    for _ in 0..rounds {
        let mut cluster = Cluster::new(is_folder);
        let mut reported = Vec::new();
        cluster.agree("at the start");
        for _ in 0..STEPS {
            let at = draw.below(cluster.stored.len());
            match draw.below(4) {
                0 => {
                    let replica = draw.below(2);
                    cluster.replicas[replica] = start(&cluster.stored);
                    reported.push(format!("restart {replica}"));
                }
                1 if !is_folder => {
                    let leader = draw.below(2);
                    cluster.write(leader);
                    reported.push(format!("statuses by {leader}"));
                    cluster.agree(&reported.join(", "));
                }
                _ => {
                    let (what, spec) = version(&mut draw, &templates[at]);
                    let value = &cluster.stored[at];
                    reported.push(format!(
                        "{} {}: {what}",
                        value["kind"], value["metadata"]["name"]
                    ));
                    cluster.update(at, spec);
                }
            }
            // A folder has no statuses that could be waited for.
            if is_folder {
                cluster.agree(&reported.join(", "));
            }
        }
        if !is_folder {
            cluster.write(0);
        }
        cluster.agree(&reported.join(", "));
    }
}

#[test]
fn replicas_agree_after_each_status_whatever_was_stored_and_restarted() {
    play(false);
}

#[test]
fn replicas_of_a_folder_agree_whatever_was_written_and_restarted() {
    play(true);
}

/// Each resource separately: its last valid version, or its replacement, is the same before and after a
/// restart.
#[test]
fn an_unusable_version_of_each_kind_means_the_same_after_a_restart() {
    let kept = ["AuthorizationPolicy", "MeshConfig", "TrafficPolicy"];
    for at in 0..templates::all().len() {
        for is_folder in [false, true] {
            let mut cluster = Cluster::new(is_folder);
            if !is_folder {
                cluster.write(0);
            }
            let good = answers(&cluster.replicas[0]);
            let template = &templates::all()[at];
            let mut spec = template["spec"].clone();
            spec["moonPhase"] = json!(5);
            if template["kind"] == "DestinationRule" {
                spec["host"] = json!(5);
            }
            if template["kind"] == "PeerAuthentication" {
                spec["mtls"]["mode"] = json!("MOON");
            }
            cluster.update(at, spec);
            let (kind, name) = (&template["kind"], &template["metadata"]["name"]);
            let what = format!("{kind} {name}");
            if !is_folder {
                let own = template["apiVersion"] == "maglor.dev/v1alpha1";
                if own && kept.iter().any(|one| kind == one) {
                    same(&answers(&cluster.replicas[0]), &good, &what);
                }
                cluster.agree(&what);
                cluster.write(1);
            }
            cluster.agree(&what);
        }
    }
}
