//! Tests that changes of a Deployment are rolled back and distinguished from those of other writers.

use serde_json::json;

use super::*;
use crate::tuning::containers::{Own, share};

fn deployment(replicas: u32, requests: &Value, limits: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7", "generation": 3},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "app", "resources": {"requests": requests, "limits": limits}},
            {"name": "log"},
        ]}}},
        "status": {"observedGeneration": 3, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": replicas},
    })
}

/// Merges the fields of a patch into a Deployment, like an API server.
fn patched(mut deployment: Value, patch: &Value) -> Value {
    deployment["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
    if let Some(replicas) = patch["spec"]["replicas"].as_u64() {
        deployment["spec"]["replicas"] = json!(replicas);
    }
    let changed = patch["spec"]["template"]["spec"]["containers"].as_array();
    for one in changed.into_iter().flatten() {
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array_mut();
        let mut containers = containers.unwrap().iter_mut();
        let into = containers.find(|own| own["name"] == one["name"]).unwrap();
        for (block, amounts) in one["resources"].as_object().unwrap() {
            for (name, amount) in amounts.as_object().unwrap() {
                into["resources"][block][name] = amount.clone();
            }
        }
    }
    deployment
}

#[test]
fn a_deployment_is_read() {
    let value = deployment(
        2,
        &json!({"cpu": 1}),
        &json!({"cpu": "2", "memory": "64Mi"}),
    );
    let read = Workload::read(&value).unwrap();
    assert_eq!((read.replicas, read.rollout), (2, Rollout::COMPLETE));
    let app = &read.containers[0];
    assert_eq!(
        (app.cpu_millis, app.memory_mib),
        (1000, 64),
        "a limit is requested"
    );
    assert_eq!(
        (app.cpu_limit_millis, app.memory_limit_mib),
        (Some(2000), Some(64))
    );
    for (path, other) in [
        ("/status/updatedReplicas", json!(1)),
        ("/status/replicas", json!(3)),
        ("/metadata/generation", json!(4)),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(path).unwrap() = other;
        assert!(!Workload::read(&value).unwrap().rollout.updated, "{path}");
    }
    let mut failing = value.clone();
    failing["status"]["availableReplicas"] = json!(1);
    let rollout = Rollout {
        updated: true,
        unavailable: 1,
    };
    assert_eq!(Workload::read(&failing).unwrap().rollout, rollout);
    let mut gone = value.clone();
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(Workload::read(&gone), None);
    let mut disabled = value;
    disabled["spec"]["template"]["metadata"]["labels"][TUNING] = json!("disabled");
    assert!(Workload::read(&disabled).unwrap().disabled);
    let pod = json!({
        "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"name": "init", "resources": {"requests": {"cpu": "2"}}},
            {"name": "maglor-proxy", "restartPolicy": "Always",
             "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}},
        ],
    });
    assert_eq!(injected(&pod, &read.containers), (10, 16));
}

#[test]
fn what_was_written_is_taken_back() {
    let first = deployment(1, &json!({"cpu": "0.1"}), &json!({"memory": "100M"}));
    let read = |value: &Value| Workload::read(value).unwrap();
    let seen = read(&first);
    assert_eq!(seen.containers[0].memory_mib, 96);
    let shares = share(&seen.containers, (0, 0), (200, 200), &Own::default());
    let patch = seen.request("tune", &shares);
    assert_eq!(seen.seen, Precondition::of_value(&first));
    let resources = &patch["spec"]["template"]["spec"]["containers"][0]["resources"];
    let wanted =
        json!({"requests": {"cpu": "200m", "memory": "200Mi"}, "limits": {"memory": "250Mi"}});
    assert_eq!(*resources, wanted);

    let second = patched(first.clone(), &patch);
    let seen = read(&second);
    assert_eq!(seen.overridden(), []);
    let third = patched(second, &seen.scale("tune", 3));
    let seen = read(&third);
    assert_eq!((seen.replicas, seen.overridden()), (3, vec![]));
    let ticket = seen.ticket.as_ref().unwrap();
    assert_eq!(
        (
            ticket.policy.as_str(),
            ticket.replicas.as_ref().unwrap().original
        ),
        ("tune", 1)
    );

    // Fields that were not set are removed; the others are restored exactly.
    let back = patched(third, &seen.put_back(Part::Requests).unwrap());
    let resources = &back["spec"]["template"]["spec"]["containers"][0]["resources"];
    let before = json!({"requests": {"cpu": "0.1", "memory": null}, "limits": {"memory": "100M"}});
    assert_eq!(*resources, before);
    let seen = read(&back);
    let back = patched(back, &seen.put_back(Part::Replicas).unwrap());
    assert_eq!(
        (read(&back).replicas, read(&back).overridden()),
        (1, vec![])
    );
    assert_eq!(read(&back).put_back(Part::Traffic), None);
    assert_eq!(
        read(&first).put_back(Part::Replicas),
        None,
        "nothing was written"
    );
}

#[test]
fn what_others_write_is_theirs() {
    let first = deployment(1, &json!({"cpu": "100m"}), &json!({}));
    let read = |value: &Value| Workload::read(value).unwrap();
    let shares = share(&read(&first).containers, (0, 0), (200, 0), &Own::default());
    let mut other = patched(first.clone(), &read(&first).request("tune", &shares));
    // Another notation of the same value is not a change.
    other["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
        json!("0.2");
    assert_eq!(read(&other).overridden(), []);
    other["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
        json!("300m");
    assert_eq!(read(&other).overridden(), [Part::Requests]);
    assert_eq!(read(&other).put_back(Part::Requests), None);
    let mut other = patched(first.clone(), &read(&first).scale("tune", 2));
    other["spec"]["replicas"] = json!(5);
    assert_eq!(read(&other).overridden(), [Part::Replicas]);
    assert_eq!(read(&other).put_back(Part::Replicas), None);
}
