//! The mesh is installed; the API server calls its webhooks for pods and resources, and continues without it.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

mod istio;

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::support::installed::{Installed, until};
use istio::istio_is_understood;

const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {maglor.dev/inject: enabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: plain}
";

fn pod(namespace: &str, name: &str, labels: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}, labels: {labels}}}, \
         spec: {{{spec}, containers: [{{name: web, image: 'maglor-app:e2e', imagePullPolicy: Never, \
         readinessProbe: {{httpGet: {{port: 80}}}}}}]}}}}"
    )
}

/// The pod as the API server would store it.
fn admitted(kubectl: &Kubectl, pod: &str) -> Result<Value, String> {
    let output = kubectl.with_input(
        &["create", "--dry-run=server", "-o", "json", "-f", "-"],
        pod,
    );
    let text = output.map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&text).unwrap())
}

fn has_sidecar(pod: &Value) -> bool {
    let init = pod["spec"]["initContainers"].as_array();
    init.is_some_and(|init| init.iter().any(|one| one["name"] == "maglor-proxy"))
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn pods_get_sidecars_bad_resources_are_refused_and_without_the_webhook_nothing_else_stands_still() {
    let Some(installed) = Installed::start("webhooks", &[]) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(NAMESPACES).unwrap();

    pods_get_sidecars(kubectl);
    bad_resources_are_refused(kubectl);
    misspelt_keys_are_reported(kubectl);
    istio_is_understood(kubectl);
    the_root_comes_back(kubectl);
    the_webhook_is_down(kubectl);
    everything_goes(&installed);
    installed.stop();
}

fn pods_get_sidecars(kubectl: &Kubectl) {
    let injected = admitted(kubectl, &pod("shop", "web", "{}", "restartPolicy: Always")).unwrap();
    assert!(has_sidecar(&injected), "{injected:#}");
    let init = &injected["spec"]["initContainers"];
    assert_eq!(
        (&init[0]["name"], &init[1]["restartPolicy"]),
        (&"maglor-init".into(), &"Always".into())
    );
    assert_eq!(
        injected["metadata"]["annotations"]["maglor.dev/injected"],
        "true"
    );
    let probe = &injected["spec"]["containers"][0]["readinessProbe"]["httpGet"];
    assert_eq!(
        (&probe["path"], &probe["port"]),
        (&"/probe/web/readiness".into(), &15020.into())
    );

    for (namespace, labels, spec, expected) in [
        (
            "shop",
            "{maglor.dev/inject: disabled}",
            "restartPolicy: Always",
            false,
        ),
        ("shop", "{}", "hostNetwork: true", false),
        ("plain", "{}", "restartPolicy: Always", false),
        (
            "plain",
            "{maglor.dev/inject: enabled}",
            "restartPolicy: Always",
            true,
        ),
        (
            "kube-system",
            "{maglor.dev/inject: enabled}",
            "restartPolicy: Always",
            false,
        ),
    ] {
        let admitted = admitted(kubectl, &pod(namespace, "web", labels, spec)).unwrap();
        assert_eq!(
            has_sidecar(&admitted),
            expected,
            "{namespace} {labels} {spec}"
        );
    }
    let refused = pod("shop", "web", "{}", "securityContext: {runAsUser: 2102}");
    let error = admitted(kubectl, &refused).unwrap_err();
    assert!(
        error.contains("web: runAsUser 2102 is reserved for the sidecar"),
        "{error}"
    );
}

fn bad_resources_are_refused(kubectl: &Kubectl) {
    let policy = |spec: &str| {
        format!(
            "{{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: p, namespace: shop}}, spec: {{{spec}}}}}"
        )
    };
    kubectl
        .apply(&policy("cluster: {policy: bounce(tries=3)}"))
        .unwrap();
    for (text, expected) in [
        (policy("cluster: {policy: nonsense}"), "\"validate.maglor.dev\" denied the request: spec.cluster.policy: there is no policy `nonsense`"),
        (policy("cluster: {policy: 'maglev(table_size=10)'}"), "prime"),
        (policy("route: {retry: {attempts: 99}}"), "spec.route.retry.attempts"),
        (
            "{apiVersion: maglor.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: a, namespace: shop}, \
             spec: {rules: [{from: [{networks: [nowhere]}]}]}}"
                .to_owned(),
            "spec.rules[0].from[0].networks",
        ),
        (
            "{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {name: p, namespace: shop}, \
             spec: {targetRef: {name: web}, policy: nonsense}}"
                .to_owned(),
            "spec.policy: there is no policy `nonsense`",
        ),
    ] {
        let error = kubectl.apply(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let kept = kubectl
        .json(&["get", "trafficpolicy", "p", "-n", "shop"])
        .unwrap();
    assert_eq!(
        kept["spec"]["cluster"]["policy"], "bounce(tries=3)",
        "the last good one stays"
    );
}

/// Unknown labels and annotations cause warnings, on any kind of object.
fn misspelt_keys_are_reported(kubectl: &Kubectl) {
    let strictly = |manifest: &str| {
        let arguments = [
            "create",
            "--dry-run=server",
            "--warnings-as-errors",
            "-f",
            "-",
        ];
        let output = kubectl.with_input(&arguments, manifest);
        output.map(drop).map_err(|error| error.to_string())
    };
    let template = |metadata: &str| {
        format!(
            "{{metadata: {{labels: {{app: keys}}, {metadata}}}, \
             spec: {{restartPolicy: RESTART, containers: [{{name: web, image: 'maglor-app:e2e'}}]}}}}"
        )
    };
    let deployment = |metadata: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: keys, namespace: plain}}, \
             spec: {{selector: {{matchLabels: {{app: keys}}}}, template: {}}}}}",
            template(metadata).replace("RESTART", "Always")
        )
    };
    let job = |metadata: &str| {
        format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: keys, namespace: plain}}, \
             spec: {{schedule: '0 0 1 1 *', jobTemplate: {{spec: {{template: {}}}}}}}}}",
            template(metadata).replace("RESTART", "Never")
        )
    };
    let namespace = |metadata: &str| {
        format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: keys, {metadata}}}}}")
    };
    let wrong = "annotations: {maglor.dev/skip-inbound-port: '22'}";
    for (manifest, expected) in [
        (
            deployment(wrong),
            "did you mean `maglor.dev/skip-inbound-ports`?",
        ),
        (job(wrong), "did you mean `maglor.dev/skip-inbound-ports`?"),
        (
            namespace("annotations: {maglor.dev/inject: enabled}"),
            "metadata.annotations.maglor.dev/inject: ignored here",
        ),
        (
            pod(
                "plain",
                "web",
                "{maglor.dev/injct: enabled}",
                "restartPolicy: Never",
            ),
            "did you mean `maglor.dev/inject`?",
        ),
        (
            namespace("annotations: {maglor.dev/mtls: stict}"),
            "\"keys.maglor.dev\" denied the request: metadata.annotations.maglor.dev/mtls: unknown value `stict`",
        ),
        (
            deployment("annotations: {maglor.dev/cpu-request: much}"),
            "maglor.dev/cpu-request: invalid quantity `much`",
        ),
    ] {
        let error = strictly(&manifest).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let right = "annotations: {maglor.dev/skip-inbound-ports: '22'}";
    for manifest in [
        deployment(right),
        job(right),
        namespace("labels: {maglor.dev/inject: enabled}"),
    ] {
        strictly(&manifest).unwrap();
    }
}

/// After a writer overwrites the webhook's configuration, the root is restored.
fn the_root_comes_back(kubectl: &Kubectl) {
    let bundle = || {
        let one = kubectl.json(&["get", "mutatingwebhookconfiguration", "maglor-inject"]);
        one.unwrap()["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let before = bundle();
    assert!(!before.is_empty());
    let remove = r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#;
    let patch = [
        "patch",
        "mutatingwebhookconfiguration",
        "maglor-inject",
        "--type=json",
        "-p",
        remove,
    ];
    kubectl.run(&patch).unwrap();
    until("the root is back", || bundle() == before);
    // Without its Secret there is a new certificate, known by its own root, and by the old one until all have it.
    kubectl
        .run(&["delete", "secret", "maglor-webhook", "-n", "maglor"])
        .unwrap();
    until("there is another root", || bundle() != before);
    until("the API server knows it", || {
        admitted(kubectl, &pod("shop", "web", "{}", "restartPolicy: Always"))
            .is_ok_and(|pod| has_sidecar(&pod))
    });
}

fn the_webhook_is_down(kubectl: &Kubectl) {
    let scale = |replicas: &str| {
        kubectl
            .run(&[
                "scale",
                "deployment/maglor-controller",
                "-n",
                "maglor",
                replicas,
            ])
            .unwrap();
    };
    scale("--replicas=0");
    until("the controller is gone", || {
        let pods = kubectl.json(&["get", "pods", "-n", "maglor"]).unwrap();
        pods["items"].as_array().unwrap().is_empty()
    });
    let wants = pod("shop", "web", "{}", "restartPolicy: Always");
    let error = admitted(kubectl, &wants).unwrap_err();
    assert!(error.contains("namespaces.inject.maglor.dev"), "{error}");
    for namespace in ["plain", "kube-system", "maglor"] {
        let labels = "{maglor.dev/inject: disabled}";
        let spec = "securityContext: {runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: RuntimeDefault}}";
        let other = pod(namespace, "web", labels, spec);
        let other = match namespace {
            // Its pods have to be restricted ones.
            "maglor" => other.replace(
                "imagePullPolicy: Never",
                "imagePullPolicy: Never, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}",
            ),
            _ => other,
        };
        assert!(
            !has_sidecar(&admitted(kubectl, &other).unwrap()),
            "{namespace}"
        );
    }
    // An object that cannot be validated is stored; its status reports that.
    let bad = "{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {name: bad, namespace: shop}, \
               spec: {cluster: {policy: nonsense}}}";
    kubectl.apply(bad).unwrap();
    scale("--replicas=2");
    until("the webhook answers again", || {
        admitted(kubectl, &wants).is_ok_and(|pod| has_sidecar(&pod))
    });
    until("the status says what is wrong", || {
        let policy = kubectl
            .json(&["get", "trafficpolicy", "bad", "-n", "shop"])
            .unwrap();
        policy["status"]["conditions"][0]["reason"] == "Invalid"
    });
    // It can still be deleted.
    kubectl
        .run(&["annotate", "trafficpolicy", "bad", "-n", "shop", "seen=yes"])
        .unwrap();
    kubectl
        .run(&["delete", "trafficpolicy", "bad", "-n", "shop"])
        .unwrap();
}

fn everything_goes(installed: &Installed) {
    let kubectl = installed.kubectl();
    let removal = installed.maglor(&["uninstall", "--definitions"]);
    kubectl
        .with_input(
            &["delete", "--ignore-not-found", "--timeout=120s", "-f", "-"],
            &removal,
        )
        .unwrap();
    for kind in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "clusterroles",
        "clusterrolebindings",
        "namespaces",
    ] {
        let left = kubectl
            .run(&[
                "get",
                kind,
                "-l",
                "app.kubernetes.io/part-of=maglor",
                "-o",
                "name",
            ])
            .unwrap();
        assert_eq!(left, "", "{kind}");
    }
    let definitions = kubectl.run(&["get", "crd", "-o", "name"]).unwrap();
    assert!(!definitions.contains("maglor.dev"), "{definitions}");
    // Pods are created without the mesh from then on.
    let alone = admitted(kubectl, &pod("shop", "web", "{}", "restartPolicy: Always")).unwrap();
    assert!(!has_sidecar(&alone));
}
