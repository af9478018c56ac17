//! Pods and what becomes of them, case by case.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use maglor_manifests::inject::{Injected, Namespace, Outcome, Refusal, Settings, Skip, inject};
use serde_json::{Value, json};

fn shop() -> Namespace {
    let namespace =
        json!({"metadata": {"name": "shop", "labels": {"maglor.dev/inject": "enabled"}}});
    Namespace::read(&namespace).unwrap()
}

fn with(pod: &Value, namespace: &Namespace) -> Injected {
    match inject(pod, namespace, &Settings::default()).unwrap() {
        Outcome::Injected(injected) => injected,
        Outcome::Repaired(injected) => panic!("repaired: {injected:?}"),
        Outcome::Skipped(why) => panic!("skipped: {why}"),
    }
}

fn skipped(pod: &Value, namespace: &Namespace) -> Skip {
    match inject(pod, namespace, &Settings::default()).unwrap() {
        Outcome::Injected(injected) | Outcome::Repaired(injected) => {
            panic!("injected: {injected:?}")
        }
        Outcome::Skipped(why) => why,
    }
}

fn refused(pod: &Value) -> Refusal {
    inject(pod, &shop(), &Settings::default()).unwrap_err()
}

fn pod(spec: &Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn web() -> Value {
    pod(&json!({"containers": [{"name": "web"}]}))
}

fn annotated(pairs: &Value) -> Value {
    json!({"metadata": {"name": "web", "annotations": pairs}, "spec": {"containers": [{"name": "web"}]}})
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn the_sidecar_runs_before_everything_else_and_needs_no_privilege() {
    let before = pod(&json!({
        "initContainers": [{"name": "migrate"}],
        "containers": [{"name": "web"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }));
    let Injected { pod, notes } = with(&before, &shop());
    assert!(notes.is_empty());
    let spec = &pod["spec"];
    assert_eq!(
        names(&spec["initContainers"]),
        ["maglor-init", "maglor-proxy", "migrate"]
    );
    assert_eq!(names(&spec["containers"]), ["web"]);
    assert_eq!(
        names(&spec["volumes"]),
        ["data", "maglor-identity", "maglor-cache"]
    );
    let [init, proxy] = [0, 1].map(|at| &spec["initContainers"][at]);
    assert_eq!(
        init["securityContext"]["capabilities"],
        json!({"add": ["NET_ADMIN"], "drop": ["ALL"]})
    );
    assert_eq!(
        init["args"].as_array().unwrap().last().unwrap(),
        "--skip-inbound-ports=15020"
    );
    assert_eq!(proxy["restartPolicy"], "Always");
    assert_eq!(
        proxy["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
    assert_eq!(proxy["securityContext"]["runAsUser"], 2102);
    assert_eq!(
        proxy["resources"],
        json!({"requests": {"cpu": "10m", "memory": "16Mi"}})
    );
    assert_eq!(
        pod["metadata"]["annotations"],
        json!({"maglor.dev/injected": "true"})
    );
    let sources = &spec["volumes"][1]["projected"]["sources"];
    assert_eq!(
        sources[0]["serviceAccountToken"]["audience"],
        "maglor.dev/identity"
    );
    assert_eq!(sources[1]["configMap"]["name"], "maglor-trust-bundle");
}

#[test]
fn older_servers_get_a_plain_container() {
    let job = json!({"metadata": {"annotations": {"maglor.dev/sidecar": "container"}},
        "spec": {"restartPolicy": "Never", "dnsPolicy": "Default",
            "initContainers": [{"name": "fetch"}], "containers": [{"name": "work"}]}});
    let Injected { pod, notes } = with(&job, &shop());
    assert_eq!(
        names(&pod["spec"]["initContainers"]),
        ["fetch", "maglor-init"],
        "connections of the pod's own init containers are not redirected"
    );
    assert_eq!(names(&pod["spec"]["containers"]), ["maglor-proxy", "work"]);
    let proxy = &pod["spec"]["containers"][0];
    assert!(proxy.get("restartPolicy").is_none());
    assert_eq!(
        proxy["lifecycle"]["postStart"]["exec"]["command"],
        json!(["/maglor-proxy", "wait", "--admin-port=15020"]),
        "the application starts when it is ready"
    );
    assert_eq!(
        pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"],
        "work"
    );
    assert!(notes[0].contains("/drain"), "{notes:?}");
    assert!(notes[1].starts_with("dnsPolicy: Default"), "{notes:?}");
}

#[test]
fn without_privileges_the_application_gets_proxy_variables() {
    let mut before = annotated(&json!({"maglor.dev/redirect": "none"}));
    before["spec"]["containers"] = json!([
        {"name": "web", "readinessProbe": {"httpGet": {"port": 80}}},
        {"name": "own", "env": [{"name": "HTTP_PROXY", "value": "http://other"}]},
    ]);
    let pod = with(&before, &shop()).pod;
    assert_eq!(names(&pod["spec"]["initContainers"]), ["maglor-proxy"]);
    let web = &pod["spec"]["containers"][0];
    assert_eq!(
        web["env"][0],
        json!({"name": "http_proxy", "value": "http://127.0.0.1:15001"})
    );
    assert_eq!(
        web["readinessProbe"],
        json!({"httpGet": {"port": 80}}),
        "nothing is in its way"
    );
    assert_eq!(
        names(&pod["spec"]["containers"][1]["env"]),
        ["HTTP_PROXY", "no_proxy"]
    );
    // Peers use no mutual TLS.
    assert_eq!(
        pod["metadata"]["annotations"]["maglor.dev/injected"],
        "outbound"
    );
}

#[test]
fn callers_see_which_ports_are_reached_without_the_sidecar() {
    let mut namespace = shop();
    namespace.annotations.insert(
        "maglor.dev/skip-inbound-ports".to_owned(),
        "22, 8000-8010".to_owned(),
    );
    let pod = with(&web(), &namespace).pod;
    let said = &pod["metadata"]["annotations"]["maglor.dev/skip-inbound-ports"];
    assert_eq!(said, "22,8000-8010");
}

#[test]
fn annotations_of_pod_and_namespace_say_otherwise() {
    let mut namespace = shop();
    let own = ("maglor.dev/log-level".to_owned(), "debug".to_owned());
    namespace.annotations.extend([own]);
    let before = annotated(&json!({
        "maglor.dev/skip-inbound-ports": "22, 8000-8010",
        "maglor.dev/skip-outbound-ports": "3306",
        "maglor.dev/skip-subnets": "10.9.0.0/16",
        "maglor.dev/memory-limit": "64Mi",
    }));
    let pod = with(&before, &namespace).pod;
    let [init, proxy] = [0, 1].map(|at| &pod["spec"]["initContainers"][at]);
    let args = init["args"].to_string();
    for expected in [
        "--skip-inbound-ports=15020,22,8000-8010",
        "--skip-outbound-ports=3306",
        "--skip-subnets=10.9.0.0/16",
    ] {
        assert!(args.contains(expected), "{args}");
    }
    assert!(proxy["args"].to_string().contains("--log-level=debug"));
    assert_eq!(proxy["resources"]["limits"], json!({"memory": "64Mi"}));
}

#[test]
fn a_pod_without_sidecar_gets_the_reason() {
    assert_eq!(skipped(&web(), &Namespace::default()), Skip::NotEnabled);
    assert_eq!(
        skipped(
            &annotated(&json!({"maglor.dev/inject": "disabled"})),
            &shop()
        ),
        Skip::Disabled
    );
    let labelled = json!({"metadata": {"labels": {"maglor.dev/inject": "disabled"},
        "annotations": {"maglor.dev/inject": "enabled"}}, "spec": {"containers": [{"name": "web"}]}});
    assert_eq!(skipped(&labelled, &shop()), Skip::Disabled);
    let host = pod(&json!({"hostNetwork": true, "containers": [{"name": "web"}]}));
    assert_eq!(skipped(&host, &shop()), Skip::HostNetwork);
    let windows = pod(&json!({"os": {"name": "windows"}, "containers": [{"name": "web"}]}));
    assert_eq!(skipped(&windows, &shop()), Skip::OtherSystem);
    let injected = with(&web(), &shop()).pod;
    assert_eq!(skipped(&injected, &shop()), Skip::AlreadyInjected);
    // A pod may request a sidecar itself.
    let off = Namespace {
        enabled: Some(false),
        ..Namespace::default()
    };
    with(&annotated(&json!({"maglor.dev/inject": "enabled"})), &off);
}

#[test]
fn what_a_sidecar_cannot_live_with_is_refused_by_name() {
    for (spec, expected) in [
        (
            json!({"containers": [{"name": "web", "ports": [{"containerPort": 15020}]}]}),
            "web: port 15020 is reserved for the sidecar; choose another one",
        ),
        (
            json!({"securityContext": {"runAsUser": 2102}, "containers": [{"name": "web"}]}),
            "web: runAsUser 2102 is reserved for the sidecar; choose another one",
        ),
        (
            json!({"initContainers": [{"name": "maglor-init"}], "containers": [{"name": "web"}]}),
            "spec.initContainers: the name `maglor-init` is reserved for the sidecar; choose another one",
        ),
        (
            json!({"containers": [{"name": "web"}], "volumes": [{"name": "maglor-cache"}]}),
            "spec.volumes: the name `maglor-cache` is reserved for the sidecar; choose another one",
        ),
        (json!({"containers": {}}), "spec.containers: must be a list"),
        (
            json!({"containers": ["web"]}),
            "spec.containers[0]: must be an object",
        ),
        (json!(null), "spec: must be an object"),
    ] {
        assert_eq!(refused(&pod(&spec)).to_string(), expected);
    }
    let wrong = refused(&annotated(
        &json!({"maglor.dev/skip-inbound-ports": "http"}),
    ));
    let text = wrong.to_string();
    assert!(
        text.starts_with("maglor.dev/skip-inbound-ports: invalid port `http`"),
        "{text}"
    );
    let wrong = Namespace::read(&json!({"metadata": {"labels": {"maglor.dev/inject": "yes"}}}));
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .starts_with("maglor.dev/inject: `yes`")
    );
    // One that runs as another user than its pod is no conflict.
    let own = pod(&json!({"securityContext": {"runAsUser": 2102},
        "containers": [{"name": "web", "securityContext": {"runAsUser": 1}}]}));
    with(&own, &shop());
}

/// Repairs a pod with a sidecar that another webhook has changed; repeating it changes nothing.
fn repaired(pod: &Value) -> Value {
    let repaired = match inject(pod, &shop(), &Settings::default()).unwrap() {
        Outcome::Repaired(repaired) => repaired.pod,
        other => panic!("{other:?}"),
    };
    assert_eq!(skipped(&repaired, &shop()), Skip::AlreadyInjected);
    repaired
}

fn arguments<'a>(proxy: &'a Value, start: &str) -> Vec<&'a str> {
    let all = proxy["args"].as_array().unwrap().iter();
    let all = all.map(|one| one.as_str().unwrap());
    all.filter_map(|one| one.strip_prefix(start)).collect()
}

fn later(pod: &mut Value, list: &str, at: usize, container: Value) {
    let list = pod["spec"][list].as_array_mut().unwrap();
    list.insert(at, container);
}

#[test]
fn containers_added_later_are_adapted_to_the_sidecar() {
    let own = json!({"name": "web", "livenessProbe": {"httpGet": {"port": 8080}}});
    let injected = with(&pod(&json!({"containers": [own]})), &shop()).pod;
    let mut changed = injected.clone();
    // One agent before all other containers, and one next to the application, with a readiness probe.
    later(
        &mut changed,
        "initContainers",
        0,
        json!({"name": "agent-init"}),
    );
    let agent = json!({"name": "agent", "readinessProbe": {"tcpSocket": {"port": 9000}},
        "lifecycle": {"preStop": {"httpGet": {"path": "/bye", "port": 9000}}}});
    later(&mut changed, "containers", 0, agent);
    // Changes of the sidecar by another webhook stay.
    changed["spec"]["initContainers"][2]["image"] = json!("mirror/maglor-proxy");
    let repaired = repaired(&changed);
    let spec = &repaired["spec"];
    assert_eq!(
        names(&spec["initContainers"]),
        ["maglor-init", "maglor-proxy", "agent-init"]
    );
    assert_eq!(names(&spec["containers"]), ["agent", "web"]);
    let proxy = &spec["initContainers"][1];
    assert_eq!(proxy["image"], "mirror/maglor-proxy");
    assert_eq!(
        arguments(proxy, "--probe="),
        [
            "web/liveness=http:8080/",
            "agent/readiness=tcp:9000",
            "agent/pre-stop=http:9000/bye",
        ]
    );
    let asked = json!({"path": "/probe/agent/readiness", "port": 15020});
    assert_eq!(spec["containers"][0]["readinessProbe"]["httpGet"], asked);
    assert!(spec["containers"][0]["readinessProbe"]["tcpSocket"].is_null());
}

#[test]
fn a_probe_that_a_later_webhook_writes_anew_is_asked_anew() {
    let own = json!({"name": "web", "livenessProbe": {"httpGet": {"port": 8080}},
        "readinessProbe": {"httpGet": {"port": 8080}}});
    let mut changed = with(&pod(&json!({"containers": [own]})), &shop()).pod;
    changed["spec"]["containers"][0]["livenessProbe"] =
        json!({"httpGet": {"port": 8081, "path": "/l"}});
    changed["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["true"]}});
    let repaired = repaired(&changed);
    let proxy = &repaired["spec"]["initContainers"][1];
    assert_eq!(arguments(proxy, "--probe="), ["web/liveness=http:8081/l"]);
    assert_eq!(
        repaired["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"],
        "/probe/web/liveness"
    );
}

#[test]
fn a_plain_sidecar_is_first_again_and_redirection_last() {
    let settings = json!({"maglor.dev/sidecar": "container"});
    let mut changed = with(&annotated(&settings), &shop()).pod;
    assert_eq!(
        names(&changed["spec"]["containers"]),
        ["maglor-proxy", "web"]
    );
    later(&mut changed, "containers", 0, json!({"name": "agent"}));
    later(
        &mut changed,
        "initContainers",
        1,
        json!({"name": "agent-init"}),
    );
    let repaired = repaired(&changed);
    assert_eq!(
        names(&repaired["spec"]["containers"]),
        ["maglor-proxy", "agent", "web"]
    );
    assert_eq!(
        names(&repaired["spec"]["initContainers"]),
        ["agent-init", "maglor-init"]
    );
}

#[test]
fn without_redirection_a_later_container_gets_proxy_variables() {
    let mut changed = with(&annotated(&json!({"maglor.dev/redirect": "none"})), &shop()).pod;
    later(&mut changed, "containers", 1, json!({"name": "agent"}));
    let repaired = repaired(&changed);
    let agent = &repaired["spec"]["containers"][1];
    assert_eq!(names(&agent["env"]), ["http_proxy", "no_proxy"]);
    assert_eq!(names(&repaired["spec"]["initContainers"]), ["maglor-proxy"]);
}

#[test]
fn a_later_container_that_takes_what_is_the_sidecars_is_refused() {
    let injected = with(&web(), &shop()).pod;
    for container in [
        json!({"name": "agent", "ports": [{"containerPort": 15001}]}),
        json!({"name": "agent", "securityContext": {"runAsUser": 2102}}),
    ] {
        let mut changed = injected.clone();
        later(&mut changed, "containers", 1, container);
        assert!(refused(&changed).to_string().starts_with("agent: "));
    }
    // The sidecar's volumes are restored if another webhook has replaced them.
    let mut changed = injected;
    changed["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    assert_eq!(
        names(&repaired(&changed)["spec"]["volumes"]),
        ["data", "maglor-identity", "maglor-cache"]
    );
}

/// A container of that name alone is no sidecar of ours, and stays.
#[test]
fn what_was_not_injected_is_not_repaired() {
    let probe = json!({"httpGet": {"port": 8080}});
    let own = pod(&json!({"containers": [
        {"name": "maglor-proxy"}, {"name": "web", "livenessProbe": probe},
    ]}));
    assert_eq!(skipped(&own, &shop()), Skip::AlreadyInjected);
}

#[test]
fn pods_are_annotated_for_prometheus_on_request() {
    let annotations = |settings: &str, own: Value| {
        let settings = Settings::parse(settings).unwrap();
        let pod = json!({"metadata": {"name": "web", "annotations": own}, "spec": {"containers": [{"name": "web"}]}});
        let Ok(Outcome::Injected(injected)) = inject(&pod, &shop(), &settings) else {
            panic!("it is injected");
        };
        let all = injected.pod["metadata"]["annotations"].clone();
        ["scrape", "port", "path"].map(|name| all[format!("prometheus.io/{name}")].clone())
    };
    let on = "{prometheusAnnotations: true}";
    assert_eq!(
        annotations("{}", Value::Null),
        [(); 3].map(|()| Value::Null)
    );
    assert_eq!(
        annotations(on, Value::Null),
        ["true", "15020", "/metrics"].map(Value::from)
    );
    // The application has its own metrics, and Prometheus scrapes one port of a pod.
    let own = json!({"prometheus.io/scrape": "true"});
    assert_eq!(
        annotations(on, own),
        [json!("true"), Value::Null, Value::Null]
    );
}
