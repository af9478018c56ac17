//! Helm and `maglor install` accept and refuse the same values, and render the same of those they accept.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// `--set` with values that are accepted.
const GOOD_SETS: [&str; 47] = [
    "revision=canary",
    "revision=,gateway.enabled=true",
    "",
    "imageDigest=,priorityClassName=",
    "upgrade.definitions=false,uninstall.uninject=false,uninstall.patience=90s",
    "priorityClassName=high-priority.example,affinity.nodeAffinity.a=b",
    "gateway.replicas=1,gateway.namespaces={edge}",
    "placement.namespaces[0]=a",
    "replicas=1,",
    "replicas=+3",
    "replicas=0",
    "minAvailable=50%",
    "minAvailable=100%",
    "image=registry.example:5000/c@sha256:00",
    "imagePullPolicy=Always",
    "imagePullSecrets[0].name=a,imagePullSecrets[1].name=b",
    "logLevel=info\\,maglor_controller=debug",
    "resources.limits=null",
    "resources.limits.memory=null",
    "resources.limits.cpu=2,resources.requests.cpu=100m",
    "resources.requests.hugepages-2Mi=64Mi",
    "nodeSelector.edge=on,nodeSelector.zone=a",
    r"nodeSelector.kubernetes\.io/os=linux",
    "tolerations[0].key=a,tolerations[0].operator=Exists,tolerations[0].effect=NoExecute",
    "tolerations[0].operator=Exists,tolerations[0].tolerationSeconds=30",
    "extraArgs={--x=y,--z}",
    "extraArgs[0]=--x=y",
    "trustDomain=edge.example",
    "sidecar.skipInboundPorts=22",
    r"sidecar.skipOutboundPorts=22\,8000-8010",
    r"sidecar.skipSubnets=10.0.0.0/8\,2001:db8::/32\,192.0.2.1",
    "sidecar.cpuLimit=2,sidecar.memoryLimit=64Mi",
    "sidecar.cpuRequest=",
    "sidecar.controlPlane=c.mesh.svc:15010,sidecar.trustDomain=x.y",
    "sidecar.form=native,sidecar.redirect=none",
    "gateway.enabled=FALSE",
    "gateway.serviceType=NodePort",
    "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=a",
    "networkPolicy.metricsFrom[0].ipBlock.cidr=10.0.0.0/8",
    "injection.timeout=30,validation.timeout=1",
    "injection.excludedNamespaces[0]=a",
    "monitoring.podMonitor=true,monitoring.labels.release=prometheus,monitoring.interval=30s",
    "monitoring.annotations=false,sidecar.prometheusAnnotations=true,monitoring.dashboards=true",
    "meshConfig.mtls=strict",
    "meshConfig.cluster.connect_timeout=3s,externalMetrics=true",
    "dashboard.https=true,dashboard.hostNames={mesh.example}",
    "global.registry=example",
];

/// `--set` with values that are refused.
const BAD_SETS: [&str; 93] = [
    "monitoring.interval=often",
    "monitoring.podMonitor=sometimes",
    "monitoring.labels.release=1",
    "revision=Canary",
    "revision=abcdefghijklmnopqrstuvwxyz",
    "revision=canary,gateway.enabled=true",
    "revision=canary,externalMetrics=true",
    "revision=canary,meshConfig.mtls=strict",
    "imageDigest=sha256:00",
    "uninstall.patience=long",
    "priorityClassName=High",
    "affinity.nodes=a",
    "gateway.replicas=0",
    "gateway.namespaces=edge",
    "proxyServices.namespaces={Shop}",
    "a.b=1",
    "replica=1",
    "sidecar.loglevel=info",
    "gateway.enable=true",
    "placement.on=true",
    "resources.limit.cpu=1",
    "tolerations[0].keys=a",
    "imagePullSecrets[0].nam=a",
    "networkPolicy.metricsFrom[0].podselector.matchLabels.a=b",
    "meshConfig.mtl=strict",
    "meshConfig.cluster.connectTimeout=3s",
    "replicas",
    "replicas=many",
    "replicas=-1",
    "replicas=1001",
    "replicas=true",
    "replicas=null",
    "replicas={1}",
    "replicas.a=1",
    "minAvailable=101%",
    "minAvailable=-1",
    "minAvailable=half",
    "image=",
    "image=a b",
    "image=5",
    "image=null",
    "imagePullPolicy=always",
    "imagePullSecrets={a}",
    "imagePullSecrets={}",
    "imagePullSecrets=a",
    "logLevel=loud",
    "logLevel=",
    "resources=none",
    "resources.limits.cpu=lots",
    "resources.limits.cpu=-1",
    "resources.limits.memory=16MB",
    "resources=null",
    "nodeSelector.a=true",
    "nodeSelector.a=5",
    "nodeSelector.a=null",
    "nodeSelector={a}",
    "tolerations=x",
    "tolerations[0].operator=Is",
    "tolerations[0].effect=Never",
    "tolerations[0].tolerationSeconds=long",
    "extraArgs=--x",
    "extraArgs={1}",
    "extraArgs[1]=x",
    "trustDomain=Edge",
    "trustDomain=",
    "trustDomain=null",
    "sidecar=5",
    "sidecar=null",
    "sidecar.image=null",
    "sidecar.form=other",
    "sidecar.redirect=iptables",
    "sidecar.skipInboundPorts=0",
    "sidecar.skipInboundPorts=65536",
    "sidecar.skipInboundPorts={22,80}",
    r"sidecar.skipInboundPorts=22\,x",
    "sidecar.skipOutboundPorts=8000-70000",
    "sidecar.skipSubnets=10.0.0.0/33",
    "sidecar.skipSubnets=300.0.0.0/8",
    "sidecar.cpuLimit=lots",
    "sidecar.memoryRequest=16 MB",
    "gateway=true",
    "gateway.enabled=yes",
    "gateway.serviceType=Loadbalancer",
    "injection.failurePolicy=fail",
    "injection.timeout=0",
    "injection.timeout=31",
    "validation.timeout=1.5",
    "injection.excludedNamespaces={Kube_System}",
    "dashboard.https=1",
    "dashboard.port=1",
    "externalMetrics=1",
    "meshConfig.mtls=on",
    "meshConfig.cluster.connect_timeout=soon",
];

/// Files with values that are accepted.
const GOOD_FILES: [&str; 9] = [
    "",
    "{}",
    "replicas: 3.0",
    "sidecar: {cpuRequest: 0.5, memoryRequest: 16777216}",
    "resources: {limits: {memory: null, cpu: 1000000}}",
    "tuning: {enabled: on}",
    "networkPolicy: {metricsFrom: [{podSelector: {}}]}",
    "meshConfig: {cluster: {circuit_breaker: {consecutive_failures: 3}}}",
    "tolerations: [{key: 'yes', operator: Exists, tolerationSeconds: 5}]\nextraArgs: ['--a', \"--b\"]",
];

/// Files with values that are refused.
const BAD_FILES: [&str; 12] = [
    "- a",
    "replicas: 1.5",
    "replicas: '2'",
    "replicas:",
    "sidecar:\n  logLevel: off",
    "sidecar: {skipInboundPorts: [22]}",
    "sidecar: {cpuRequest: -0.5}",
    "networkPolicy: {metricsFrom: [{}]}",
    "networkPolicy: {metricsFrom: [{ipBlock: {cidr: 10.0.0.0}}]}",
    "injection: {excludedNamespaces: [null]}",
    "nodeSelector: {a: null}",
    "a: [",
];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

fn maglor(values: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["install", "--namespace=mesh", "--skip-definitions"])
        .args(values)
        .output()
        .unwrap()
}

fn helm(program: &Path, values: &[&str]) -> Output {
    Command::new(program)
        .args([
            "template",
            "maglor",
            "--namespace=mesh",
            "--kube-version=1.34",
        ])
        .args(values)
        .arg(chart())
        .output()
        .unwrap()
}

/// The objects without the namespace, which Helm creates itself; the message if they are rejected.
fn outcome(output: &Output) -> Result<Vec<Value>, String> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let documents = maglor_manifests::inject::yaml::documents(&text).unwrap();
    let objects = documents.into_iter().map(|one| one.value);
    let is_hook = |one: &Value| one["metadata"]["annotations"]["helm.sh/hook"].is_string();
    let mut objects: Vec<_> = objects
        .filter(|one| one["kind"] != "Namespace" && !is_hook(one))
        .collect();
    objects.sort_by_key(|one| (one["kind"].to_string(), one["metadata"]["name"].to_string()));
    Ok(objects)
}

fn check(program: Option<&Path>, values: &[&str], good: bool, wrong: &mut Vec<String>) {
    let ours = outcome(&maglor(values));
    if ours.is_ok() != good {
        wrong.push(format!("{values:?}: maglor install: {:?}", ours.err()));
        return;
    }
    if let Err(message) = &ours
        && message.trim_end().lines().count() != 1
    {
        wrong.push(format!("{values:?}: more than one line: {message}"));
    }
    let Some(program) = program else { return };
    let theirs = outcome(&helm(program, values));
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if ours != theirs => {
            wrong.push(format!("{values:?}: rendered differently"));
        }
        (Ok(_), Err(message)) => wrong.push(format!("{values:?}: Helm refuses: {message}")),
        (Err(message), Ok(_)) => wrong.push(format!("{values:?}: Helm accepts: {message}")),
        _ => {}
    }
}

#[test]
fn helm_accepts_and_refuses_the_same() {
    let program = maglor_testkit::cluster::helm(false);
    let program = program.inspect_err(|missing| println!("without Helm: {missing}"));
    let program = program.as_deref().ok();
    let mut wrong = Vec::new();
    for (sets, good) in [(&GOOD_SETS[..], true), (&BAD_SETS, false)] {
        for text in sets {
            check(program, &["--set", text], good, &mut wrong);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    for (files, good) in [(&GOOD_FILES[..], true), (&BAD_FILES, false)] {
        for text in files {
            std::fs::write(&file, text).unwrap();
            check(program, &["-f", file.to_str().unwrap()], good, &mut wrong);
        }
    }
    // Sources one over the other: the last one counts.
    std::fs::write(
        &file,
        "replicas: many\nsidecar: {image: p:1}\nextraArgs: [--a]",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    for (values, good) in [
        (&["-f", file, "--set", "replicas=2"][..], true),
        (&["-f", file, "--set", "replicas=null"], false),
        (&["-f", file, "--set", "replicas=2,extraArgs[1]=--b"], true),
        (&["--set", "replicas=many", "--set", "replicas=2"], true),
        (&["--set", "replicas=2", "--set", "replicas.a=2"], false),
        (
            &[
                "--set",
                "resources.limits=null",
                "--set",
                "resources.limits.cpu=1",
            ],
            false,
        ),
    ] {
        check(program, values, good, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The schema of `meshConfig` is that of the definition. `UPDATE=1` rewrites it.
#[test]
fn the_schema_has_the_definition_of_mesh_configs() {
    let path = chart().join("values.schema.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    let definitions = maglor_controller::crd::definitions().unwrap();
    let definition = definitions
        .iter()
        .find(|one| one.spec.names.kind == "MeshConfig");
    let mut definition = serde_json::to_value(definition.unwrap()).unwrap();
    let mut spec =
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].take();
    closed(&mut spec);
    spec["description"] = json!("Spec of the MeshConfig named `default`; empty: none is created.");
    // Empty means none, although a MeshConfig has required fields.
    spec.as_object_mut().unwrap().remove("required");
    schema["properties"]["meshConfig"] = spec;
    let mut expected = serde_json::to_string_pretty(&schema).unwrap();
    expected.push('\n');
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    assert!(
        there == expected,
        "{} is stale: run with UPDATE=1",
        path.display()
    );
}

/// A schema of Kubernetes' as JSON Schema, without unknown fields.
fn closed(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    map.remove("format");
    if map.remove("x-kubernetes-int-or-string").is_some() {
        map.insert("type".to_owned(), json!(["integer", "string"]));
    }
    if let Some(fields) = map.get_mut("properties") {
        fields
            .as_object_mut()
            .unwrap()
            .values_mut()
            .for_each(closed);
        map.insert("additionalProperties".to_owned(), json!(false));
    } else if let Some(values) = map.get_mut("additionalProperties") {
        closed(values);
    }
    if let Some(items) = map.get_mut("items") {
        closed(items);
    }
}
