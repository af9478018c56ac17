use serde_json::json;

use super::*;

fn reported(object: &Value) -> Vec<String> {
    check(object).iter().map(ToString::to_string).collect()
}

#[test]
fn misspelt_keys_are_named_with_what_was_meant() {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"labels": {"maglor.dev/tunning": "disabled"}},
        "spec": {"template": {"metadata": {
            "labels": {"app": "web", "maglor.dev/injct": "enabled"},
            "annotations": {
                "maglor.dev/skip-inbound-port": "22",
                "maglor.dev/skipOutboundPorts": "22",
                "sidecar.maglor.dev/log-level": "debug",
                "maglor.dev/zebra": "",
                "example.com/skip-inbound-port": "",
                "notmaglor.dev/inject": "",
            },
        }}},
    });
    let mut found = reported(&deployment);
    found.sort();
    let pod = "spec.template.metadata";
    let expected = [
        "metadata.labels.maglor.dev/tunning: unknown key; did you mean `maglor.dev/tuning`?"
            .to_owned(),
        format!(
            "{pod}.annotations.maglor.dev/skip-inbound-port: unknown key; did you mean `maglor.dev/skip-inbound-ports`?"
        ),
        format!(
            "{pod}.annotations.maglor.dev/skipOutboundPorts: unknown key; did you mean `maglor.dev/skip-outbound-ports`?"
        ),
        format!("{pod}.annotations.maglor.dev/zebra: unknown key"),
        format!(
            "{pod}.annotations.sidecar.maglor.dev/log-level: unknown key; did you mean `maglor.dev/log-level`?"
        ),
        format!("{pod}.labels.maglor.dev/injct: unknown key; did you mean `maglor.dev/inject`?"),
    ];
    assert_eq!(found, expected);
    assert!(check(&deployment).iter().all(|one| !one.is_error()));
}

#[test]
fn misplaced_keys_are_reported_with_their_place() {
    let namespace = json!({"kind": "Namespace", "metadata": {
        "annotations": {"maglor.dev/inject": "enabled", "maglor.dev/mtls": "strict"}}});
    let expected = "metadata.annotations.maglor.dev/inject: ignored here; allowed as label of namespaces \
                        or label of pods and their templates or annotation of pods and their templates";
    assert_eq!(reported(&namespace), [expected]);
    let above = |labels: Value| {
        json!({"kind": "StatefulSet", "metadata": {"annotations": {"maglor.dev/skip-subnets": "10.0.0.0/8"}},
            "spec": {"template": {"metadata": {"annotations": labels}}}})
    };
    let found = reported(&above(json!({})));
    assert!(
        found[0].starts_with("metadata.annotations.maglor.dev/skip-subnets: ignored here; allowed as annotation of namespaces"),
        "{found:?}"
    );
    let both = above(json!({"maglor.dev/skip-subnets": "10.0.0.0/8"}));
    assert!(check(&both).is_empty(), "the pods have it, too");
    let everything =
        json!({"kind": "ConfigMap", "metadata": {"labels": {"maglor.dev/inject": "enabled"}}});
    assert!(check(&everything).is_empty());
    let foreign = json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service",
        "metadata": {"annotations": {"maglor.dev/auto-proxies": "odd"}}});
    assert!(check(&foreign).is_empty(), "not a Service of the core");
}

#[test]
fn what_cannot_be_used_is_an_error_as_it_is_of_pods() {
    for (object, expected) in [
        (
            json!({"kind": "Namespace", "metadata": {"annotations": {"maglor.dev/mtls": "stict"}}}),
            "metadata.annotations.maglor.dev/mtls: unknown value `stict`, expected one of `permissive`, `strict`",
        ),
        (
            json!({"kind": "Service", "metadata": {"annotations": {"maglor.dev/auto-proxies": "off"}}}),
            "metadata.annotations.maglor.dev/auto-proxies: unknown value `off`, expected one of `disabled`, `enabled`",
        ),
        (
            json!({"kind": "Pod", "metadata": {"annotations": {"maglor.dev/skip-inbound-ports": "22, x"}}}),
            "metadata.annotations.maglor.dev/skip-inbound-ports: invalid port `x`",
        ),
        (
            json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"metadata": {
                "labels": {"maglor.dev/inject": true}}}}}}}),
            "spec.jobTemplate.spec.template.metadata.labels.maglor.dev/inject: must be a string",
        ),
        (
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"annotations": {"maglor.dev/service-type": "Moon"}}}),
            "metadata.annotations.maglor.dev/service-type: unknown value `Moon`, expected one of `ClusterIP`",
        ),
    ] {
        let found = check(&object);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].is_error());
        assert!(found[0].to_string().starts_with(expected), "{}", found[0]);
    }
    let fine = json!({"kind": "Pod", "metadata": {
        "labels": {"maglor.dev/inject": "true", "maglor.dev/proxy-service": "web"},
        "annotations": {"maglor.dev/injected": "outbound", "maglor.dev/sidecar": "native"}}});
    assert_eq!(check(&fine), []);
}

#[test]
fn the_number_of_reported_keys_is_bounded() {
    let many = (0..5000).map(|at| (format!("maglor.dev/{at}-{}", "x".repeat(50)), json!("")));
    let many: serde_json::Map<String, Value> = many.collect();
    let pod = json!({"kind": "Pod", "metadata": {"annotations": many}});
    assert_eq!(check(&pod).len(), MOST);
}

#[test]
fn each_key_is_there_once_in_the_domain() {
    let mut names: Vec<&str> = all().map(|key| key.name).collect();
    assert!(names.iter().all(|name| is_ours(name)));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
