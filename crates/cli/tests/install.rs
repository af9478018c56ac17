//! The output of `maglor install` equals that of Helm.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Values that change what there is, and how it is written.
const CASES: [&[&str]; 19] = [
    &[],
    &[
        "replicas=1",
        "minAvailable=0",
        "logLevel=debug",
        "image=registry.example:5000/c@sha256:00",
    ],
    &[
        "sidecar.image=p:1",
        "sidecar.imagePullPolicy=Never",
        "sidecar.skipInboundPorts=22",
        "trustDomain=x.y",
    ],
    &[
        "injection.failurePolicy=Ignore",
        "injection.timeout=5",
        "injection.excludedNamespaces={a,b}",
    ],
    &[
        "meshConfig.mtls=strict",
        "nodeSelector.disk=ssd",
        "nodeSelector.edge=on",
        "resources.limits.cpu=2",
        "extraArgs={--log-format=json,--x=y}",
        "imagePullSecrets[0].name=registry",
    ],
    &["placement.enabled=true", "tuning.enabled=true"],
    &[
        "proxyServices.enabled=true",
        "gateway.enabled=true",
        "externalMetrics=true",
        "gateway.certificates[0].namespace=edge,gateway.certificates[0].name=a.b",
        "gateway.certificates[1].namespace=web,gateway.certificates[1].name=tls",
    ],
    &["networkPolicy.enabled=false"],
    &["signer=clusterissuers.cert-manager.io/mesh"],
    &["dashboard.enabled=false"],
    &["dashboard.https=true", "dashboard.hostNames={mesh.example}"],
    &[
        "proxyServices.enabled=true,proxyServices.namespaces={shop,web}",
        "gateway.enabled=true,gateway.namespaces={edge},gateway.replicas=3,gateway.allCertificates=true",
        "tuning.enabled=true,tuning.namespaces={n1}",
        "placement.namespaces={shop}",
    ],
    &["alerts.prometheusRule=true,alerts.labels.release=monitoring"],
    &[
        "monitoring.podMonitor=true,monitoring.serviceMonitor=true,monitoring.labels.release=monitoring,monitoring.interval=10s",
    ],
    &["monitoring.dashboards=true,monitoring.annotations=false,sidecar.prometheusAnnotations=true"],
    &[
        "revision=canary,monitoring.podMonitor=true,monitoring.serviceMonitor=true,monitoring.dashboards=true",
    ],
    &["revision=canary,image=maglor-controller:next,replicas=1,alerts.prometheusRule=true"],
    &[
        "imageDigest=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "priorityClassName=",
        "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
    ],
    &[
        r"nodeSelector.kubernetes\.io/os=linux,replicas=3,image=c:1",
        r"sidecar.skipInboundPorts=22\,8000-8010,trustDomain=x.y",
        "injection.excludedNamespaces={a,b},minAvailable=2",
    ],
];

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

fn documents(output: &Output) -> Vec<Value> {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    // As Kubernetes reads it.
    let documents = maglor_manifests::inject::yaml::documents(&text).unwrap();
    let mut documents: Vec<_> = documents.into_iter().map(|one| one.value).collect();
    let name = |one: &Value| (one["kind"].to_string(), one["metadata"]["name"].to_string());
    documents.sort_by_key(name);
    documents
}

fn maglor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn helm_renders_the_same() {
    match maglor_testkit::cluster::helm(false) {
        Ok(helm) => compare(&helm),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
#[ignore = "builds Helm the first time, for two minutes: cargo xtask e2e"]
fn helm_is_built_and_renders_the_same() {
    compare(&maglor_testkit::cluster::helm(true).unwrap());
}

fn rendered(helm: &Path, values: &[&str]) -> Output {
    let options = [
        "template",
        "maglor",
        "--namespace=mesh",
        "--include-crds",
        "--kube-version=1.34",
    ];
    Command::new(helm)
        .args(options)
        .args(values)
        .arg(chart())
        .output()
        .unwrap()
}

fn compare(helm: &Path) {
    for sets in CASES {
        let sets: Vec<_> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let ours = maglor(&[&["install", "--namespace=mesh"], &sets[..]].concat());
        let mut ours = documents(&ours);
        // Helm makes the namespace itself.
        ours.retain(|one| one["kind"] != "Namespace");
        let theirs = rendered(helm, &sets);
        let mut theirs = documents(&theirs);
        theirs.retain(|one| !one["metadata"]["annotations"]["helm.sh/hook"].is_string());
        assert_eq!(ours.len(), theirs.len(), "{sets:?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{sets:?}");
        }
    }
    let lint = Command::new(helm)
        .arg("lint")
        .arg(chart())
        .output()
        .unwrap();
    assert!(
        lint.status.success(),
        "{}",
        String::from_utf8_lossy(&lint.stdout)
    );
}

/// Where, group, resource, name, verb.
type Permission = [String; 5];

/// The permissions of the controller's account: everywhere, in its own namespace, or in another one.
fn permissions(documents: &[Value]) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for binding in documents {
        let kind = binding["kind"].as_str().unwrap();
        if !kind.ends_with("Binding") || binding["subjects"][0]["name"] != "maglor-controller" {
            continue;
        }
        let namespace = binding["metadata"]["namespace"].as_str();
        let place = match namespace {
            None => "everywhere",
            Some("maglor") => "own",
            Some(other) => other,
        };
        let role = &binding["roleRef"];
        let found = documents.iter().find(|one| {
            let same = one["kind"] == role["kind"] && one["metadata"]["name"] == role["name"];
            same && (role["kind"] == "ClusterRole"
                || one["metadata"]["namespace"].as_str() == namespace)
        });
        for rule in found.unwrap()["rules"].as_array().unwrap() {
            let words = |field: &str| {
                let list = rule[field].as_array().cloned().unwrap_or_default();
                let words = list.iter().map(|one| one.as_str().unwrap().to_owned());
                words.collect::<Vec<_>>()
            };
            let names = Some(words("resourceNames")).filter(|names| !names.is_empty());
            let names = names.unwrap_or_else(|| vec!["any".to_owned()]);
            let columns = [
                words("apiGroups"),
                words("resources"),
                names,
                words("verbs"),
            ];
            add(&mut all, place, columns);
        }
    }
    all
}

/// Every combination of what the columns list.
fn add(
    all: &mut BTreeSet<Permission>,
    place: &str,
    [groups, resources, names, verbs]: [Vec<String>; 4],
) {
    for group in &groups {
        let group = if group.is_empty() { "core" } else { group };
        for resource in &resources {
            for name in &names {
                for verb in &verbs {
                    all.insert([place, group, resource, name, verb].map(str::to_owned));
                }
            }
        }
    }
}

/// The permissions of a chart value in docs/controller.md.
fn documented(values: &[&str]) -> BTreeSet<Permission> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/controller.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("\n## Permissions\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut all = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [value, place, groups, resources, names, verbs, reason] = cells[..] else {
            panic!("seven columns: {row}");
        };
        assert!(!reason.is_empty(), "{row}");
        let words = |cell: &str| cell.split(", ").map(str::to_owned).collect::<Vec<_>>();
        if values.contains(&value.trim_matches('`')) {
            add(
                &mut all,
                place,
                [groups, resources, names, verbs].map(words),
            );
        }
    }
    all
}

#[test]
fn each_value_grants_the_documented_permissions() {
    let of = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().flat_map(|set| ["--set", set]).collect();
        permissions(&documents(&maglor(&[&["install"], &sets[..]].concat())))
    };
    let none = of(&[]);
    assert_eq!(none, documented(&["always"]));
    for value in [
        "proxyServices.enabled",
        "gateway.enabled",
        "placement.enabled",
        "tuning.enabled",
        "externalMetrics",
        "dashboard.https",
    ] {
        let set = format!("{value}=true");
        assert_eq!(of(&[&set]), documented(&["always", value]), "{value}");
    }
    let gateway = ["always", "gateway.enabled"];
    let certificates = [
        ("gateway.allCertificates=true", "gateway.allCertificates"),
        (
            "gateway.certificates[0].namespace=edge,gateway.certificates[0].name=shop-example",
            "gateway.certificates",
        ),
    ];
    for (set, value) in certificates {
        let documented = documented(&[&gateway[..], &[value]].concat());
        assert_eq!(of(&["gateway.enabled=true", set]), documented, "{value}");
    }
    let signer = of(&["signer=clusterissuers.cert-manager.io/mesh"]);
    assert_eq!(signer, documented(&["always", "signer"]));
    // Permissions that a stolen token must not have.
    let writes = ["create", "delete", "patch", "update"];
    for [place, group, resource, name, verb] in &none {
        let everywhere = place == "everywhere" && name == "any";
        let workloads = [
            "deployments",
            "pods",
            "replicasets",
            "services",
            "serviceaccounts",
        ];
        let writes = writes.contains(&verb.as_str());
        assert!(
            !(everywhere && writes && workloads.contains(&resource.as_str())),
            "{verb} {group}/{resource}"
        );
        let reads = matches!(verb.as_str(), "get" | "list" | "watch" | "*");
        assert!(
            !(resource == "secrets" && name == "any" && reads),
            "{verb} secrets, {place}"
        );
        assert!(verb != "*" && verb != "escalate" && verb != "bind" && verb != "impersonate");
    }
}

/// A feature enabled for some namespaces has its permissions only in these, and nothing
/// elsewhere.
#[test]
fn namespaces_bound_what_a_feature_may_do() {
    let of = |sets: &[&str]| {
        let sets: Vec<_> = sets.iter().flat_map(|set| ["--set", set]).collect();
        permissions(&documents(&maglor(&[&["install"], &sets[..]].concat())))
    };
    let none = of(&[]);
    for feature in ["proxyServices", "gateway", "placement", "tuning"] {
        let on = format!("{feature}.enabled=true");
        let here = format!("{feature}.namespaces={{shop}}");
        let everywhere: BTreeSet<_> = of(&[&on]).difference(&none).cloned().collect();
        let bounded: BTreeSet<_> = of(&[&on, &here]).difference(&none).cloned().collect();
        assert_eq!(of(&[&here]), none, "{feature}: it is off");
        // A resource without a namespace cannot be bounded by one.
        let moved = everywhere
            .into_iter()
            .map(|[place, group, resource, name, verb]| {
                let place = if resource == "gatewayclasses" {
                    place
                } else {
                    "shop".to_owned()
                };
                [place, group, resource, name, verb]
            });
        assert_eq!(bounded, moved.collect(), "{feature}");
    }
}

/// `off` without quotes is false in Kubernetes, so a definition cannot list it as a keyword.
#[test]
fn words_stay_words() {
    fn words(value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(words),
            Value::Object(map) => {
                for (name, inner) in map {
                    if let ("enum", Value::Array(list)) = (name.as_str(), inner) {
                        assert!(list.iter().all(Value::is_string), "{list:?}");
                    }
                    words(inner);
                }
            }
            _ => {}
        }
    }
    let documents = documents(&maglor(&["install", "--set", "nodeSelector.edge=on"]));
    documents.iter().for_each(words);
    let all = serde_json::to_string(&documents).unwrap();
    assert!(all.contains("\"edge\":\"on\"") && all.contains("\"off\""));
}

#[test]
fn errors_are_one_line_that_names_what_is_wrong() {
    for (arguments, expected) in [
        (
            &["install", "--set", "a.b=1"][..],
            "maglor install: --set a.b=1: a: unknown key; expected `affinity`, ",
        ),
        (
            &["install", "-f", "/nowhere.yaml"],
            "maglor install: /nowhere.yaml: ",
        ),
        (
            &["install", "--set", "replicas=many"],
            "maglor install: --set replicas=many: replicas: expected a whole number from 0 to 1000, found \"many\"",
        ),
        (
            &["install", "-n", "Not_A_Name"],
            "maglor install: --namespace: invalid name `Not_A_Name`",
        ),
        (
            &["install", "--set", "sidecar.loglevel=info"],
            "maglor install: --set sidecar.loglevel=info: sidecar.loglevel: unknown key; did you mean `logLevel`?",
        ),
        (
            &["uninstall", "--set", "sidecar.cpuLimit=5m"],
            "maglor uninstall: --set sidecar: sidecar settings: cpuRequest",
        ),
        (
            &["inject", "-f", "/nowhere.yaml"],
            "maglor inject: /nowhere.yaml: ",
        ),
    ] {
        let output = maglor(arguments);
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with(expected) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn files_get_sidecars() {
    let folder = std::env::temp_dir().join(format!("maglor-inject-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("pod.yaml");
    let pod = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web}]}\n";
    std::fs::write(&file, pod).unwrap();
    let path = file.to_str().unwrap();
    let output = maglor(&[
        "inject",
        "-f",
        path,
        "--image",
        "p:1",
        "--sidecar",
        "container",
    ]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said, "pod/web: injected\n");
    let pod = &documents(&output)[0];
    assert_eq!(pod["spec"]["containers"][0]["image"], "p:1");
    std::fs::write(&file, "kind: Pod\n---\nkind: List\n").unwrap();
    let output = maglor(&["inject", "-f", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("pod.yaml: document 1 at line 1: pod/without-name: spec: must be an object"),
        "{said}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
