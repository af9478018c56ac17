//! Any pod gets a sidecar, is unchanged, or is rejected, without a panic or lost fields.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use json_patch::Patch;
use maglor_manifests::inject::{
    Form, Namespace, Outcome, Redirect, Settings, inject, manifest, patch,
};
use maglor_testkit::property::runner;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A pod with a bit of everything.
fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {
            "maglor.dev/skip-inbound-ports": "9000", "maglor.dev/sidecar": "native"}},
        "spec": {
            "securityContext": {"runAsUser": 1000},
            "initContainers": [{"name": "prepare", "image": "i"}],
            "containers": [
                {"name": "web", "image": "i", "env": [{"name": "A", "value": "b"}],
                 "ports": [{"name": "http", "containerPort": 8080}],
                 "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
                 "lifecycle": {"preStop": {"tcpSocket": {"port": 9000}}}},
                {"name": "log", "image": "i", "livenessProbe": {"grpc": {"port": 7000}}},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "os": {"name": "linux"},
            "restartPolicy": "Always",
        },
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let form = prop_oneof![Just(Form::Native), Just(Form::Container)];
    let redirect = prop_oneof![Just(Redirect::Nftables), Just(Redirect::None)];
    (form, redirect).prop_map(|(form, redirect)| Settings {
        form,
        redirect,
        ..Settings::default()
    })
}

/// Odd values, some of them ours.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!(-1)),
        Just(json!(15001)),
        Just(json!(2102)),
        Just(json!("maglor-proxy")),
        Just(json!("maglor-init")),
        Just(json!("maglor-cache")),
        Just(json!("")),
        Just(json!("disabled")),
        Just(json!([])),
        Just(json!([1, {}])),
        Just(json!({})),
        Just(json!({"name": "x"})),
    ]
}

/// Puts a value in place of the one at a position, counted through the tree.
fn replace(value: &mut Value, at: &mut usize, new: &Value) {
    if *at == 0 {
        *value = new.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Array(list) => list.iter_mut().for_each(|inner| replace(inner, at, new)),
        Value::Object(map) => map.values_mut().for_each(|inner| replace(inner, at, new)),
        _ => {}
    }
}

fn enabled() -> Namespace {
    Namespace {
        enabled: Some(true),
        ..Namespace::default()
    }
}

#[test]
fn whatever_stands_in_a_pod_nothing_panics_and_twice_is_once() {
    let cases = (settings(), 0..60usize, odd(), 0..60usize, odd());
    let done = runner(7, 500).run(&cases, |(settings, mut first, one, mut second, other)| {
        let mut before = pod();
        replace(&mut before, &mut first, &one);
        replace(&mut before, &mut second, &other);
        let Ok(Outcome::Injected(injected)) = inject(&before, &enabled(), &settings) else {
            return Ok(());
        };
        // Applying the patch like the API server results in the decided pod.
        let operations = Value::from(patch(&before, &injected.pod));
        let operations: Patch = serde_json::from_value(operations).unwrap();
        let mut patched = before.clone();
        json_patch::patch(&mut patched, &operations).unwrap();
        prop_assert_eq!(&patched, &injected.pod);
        let again = inject(&injected.pod, &enabled(), &settings);
        prop_assert!(matches!(again, Ok(Outcome::Skipped(_))), "{:?}", again);
        // The application's containers keep their names, order and images.
        let own = |pod: &Value| {
            let list = pod["spec"]["containers"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let ours = |one: &Value| one["name"] == "maglor-proxy";
            let kept = list.into_iter().filter(|one| !ours(one));
            kept.map(|one| (one["name"].clone(), one["image"].clone()))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(own(&before), own(&injected.pod));
        Ok(())
    });
    done.unwrap();
}

#[test]
fn any_text_is_a_manifest_or_refused() {
    let piece = prop_oneof![
        Just("---\n".to_owned()),
        Just("kind: Pod\n".to_owned()),
        Just("spec: {containers: [{name: a}]}\n".to_owned()),
        Just("metadata: {name: a}\n".to_owned()),
        Just("kind: List\nitems: [1, {kind: Pod}]\n".to_owned()),
        Just("a: |\n  x\n".to_owned()),
        ".{0,20}\n",
    ];
    let texts = proptest::collection::vec(piece, 0..8);
    let done = runner(7, 500).run(&texts, |pieces| {
        let text = pieces.concat();
        if let Ok(done) = manifest::inject_all(&text, &Settings::default()) {
            let again = manifest::inject_all(&done.text, &Settings::default());
            let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(done.text, again.text);
        }
        Ok(())
    });
    done.unwrap();
}
