//! `maglor plan tuning` on the command line.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// An hour: the cart fails periodically and uses much more memory than it requests.
fn observed() -> String {
    let mut text = "snapshots:\n".to_owned();
    for minute in 0..60 {
        let _ = write!(
            text,
            "- at: {}
  services:
  - {{name: shop/web, replicas: 1, cpu_millis: 500, memory_mib: 256, cpu_used_millis: 100, memory_used_mib: 90}}
  - {{name: shop/cart, replicas: 2, cpu_millis: 500, memory_mib: 64, memory_limit_mib: 128, cpu_limit_millis: 1000,
     cpu_used_millis: 900, memory_used_mib: 100}}
  edges:
  - {{from: shop/web, to: shop/cart, rps: 120, latency_ms: 3.5, failures: 6}}
",
            minute * 60
        );
    }
    text
}

fn maglor(folder: &Path, observed: &str, more: &[&str]) -> Output {
    std::fs::write(folder.join("observed.yaml"), observed).unwrap();
    Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["plan", "tuning", "--observed", "observed.yaml"])
        .args(more)
        .current_dir(folder)
        .output()
        .expect("the binary can be started")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_setting_comes_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let json = stdout(&maglor(folder.path(), &observed(), &["--emit", "json"]));
    let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
    let of = |setting: &str| {
        let row = rows
            .iter()
            .find(|row| row["service"] == "shop/cart" && row["setting"] == setting);
        row.unwrap_or_else(|| panic!("{setting} in {json}"))
    };
    // 1800m at 70 % of a core each.
    assert_eq!(
        (&of("replicas")["now"], &of("replicas")["advised"]),
        (&"2".into(), &"3".into())
    );
    assert!(
        of("replicas")["reason"]
            .as_str()
            .unwrap()
            .contains("more than 50 each")
    );
    assert_eq!(of("requests.memory")["now"], "64Mi");
    assert_eq!(of("route.retry.attempts")["advised"], "2");
    assert!(
        rows.iter()
            .all(|row| row["reason"].as_str().unwrap().len() > 10)
    );

    let table = stdout(&maglor(folder.path(), &observed(), &[]));
    assert!(table.starts_with("SERVICE    SETTING"), "{table}");
    let literal = stdout(&maglor(
        folder.path(),
        &observed(),
        &["--utilization", "none"],
    ));
    assert!(literal.contains("the load alone decides"), "{literal}");
}

#[test]
fn each_container_gets_requests_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let containers = "memory_used_mib: 100, containers: [{name: app, cpu_used_millis: 800, memory_used_mib: 80}, \
                      {name: log, cpu_used_millis: 90, memory_used_mib: 10}, \
                      {name: maglor-proxy, cpu_used_millis: 10, memory_used_mib: 10}]}";
    let observed = observed().replace("memory_used_mib: 100}", containers);
    let text = stdout(&maglor(folder.path(), &observed, &["--emit", "maglor"]));
    let documents = text
        .split("---\n")
        .map(|text| serde_yaml::from_str(text).unwrap());
    let documents: Vec<Value> = documents.collect();
    let cart = documents
        .iter()
        .find(|one| one["kind"] == "Deployment" && one["metadata"]["name"] == "cart");
    let containers = &cart.unwrap()["spec"]["template"]["spec"]["containers"];
    let containers = containers.as_array().unwrap().iter();
    let of: Vec<(&str, &str)> = containers
        .map(|one| {
            let requests = &one["resources"]["requests"];
            (
                one["name"].as_str().unwrap(),
                requests["cpu"].as_str().unwrap(),
            )
        })
        .collect();
    // Divided by three replicas, plus 15 %; the sidecar's request is not part of the Deployment.
    assert_eq!(of, [("app", "615m"), ("log", "70m")]);
    let twice = observed.replace("name: log", "name: app");
    let output = maglor(folder.path(), &twice, &[]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("containers[1].name"),
        "{error}"
    );
}

/// An hour of a cart whose requests are divided among versions; `more` is added to each version.
fn divided(more: &str) -> String {
    let splits = format!(
        "  splits:
  - {{service: shop/cart, port: 80, versions: [
     {{name: cart-v1, weight: 90, replicas: 1, rps: 108, latency_ms: 3.5, failures: 0.1{more}}},
     {{name: cart-v2, weight: 10, replicas: 1, rps: 12, latency_ms: 3.5, failures: 0{more}}}]}}
"
    );
    let text = observed();
    let snapshots = text.split("- at: ").skip(1);
    let snapshots = snapshots.map(|one| format!("- at: {one}{splits}"));
    format!("snapshots:\n{}", snapshots.collect::<String>())
}

/// Requests are divided by HTTPRoutes among Services, by VirtualServices among subsets, too; a step at a time.
#[test]
fn weights_of_versions_move_by_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let emitted = |subset: &str, what: &str| -> Vec<Value> {
        let text = stdout(&maglor(folder.path(), &divided(subset), &["--emit", what]));
        let documents = text
            .split("---\n")
            .map(|text| serde_yaml::from_str(text).unwrap());
        documents.collect()
    };
    let of = |documents: &[Value], kind: &str| {
        let mut all = documents.iter();
        let found =
            all.find(|one| one["kind"] == kind && one["metadata"]["name"] == "cart-generated");
        found
            .unwrap_or_else(|| panic!("no {kind} in {documents:?}"))
            .clone()
    };
    let route = of(&emitted("", "maglor"), "HTTPRoute");
    let backends = serde_json::json!([{"name": "cart-v1", "port": 80, "weight": 80},
                                      {"name": "cart-v2", "port": 80, "weight": 20}]);
    assert_eq!(route["spec"]["rules"][0]["backendRefs"], backends);
    let among = serde_json::json!([{"destination": {"host": "cart-v1"}, "weight": 80},
                                   {"destination": {"host": "cart-v2"}, "weight": 20}]);
    let rule = of(&emitted("", "istio"), "VirtualService");
    assert_eq!(rule["spec"]["http"][0]["route"], among);
    assert!(!rule["spec"]["http"][0]["timeout"].is_null());
    for what in ["maglor", "istio"] {
        let documents = emitted(", subset: true", what);
        let rule = of(&documents, "VirtualService");
        let first = &rule["spec"]["http"][0]["route"][0]["destination"];
        assert_eq!(
            (&first["host"], &first["subset"]),
            (&"cart".into(), &"cart-v1".into())
        );
    }
    let json = stdout(&maglor(folder.path(), &divided(""), &["--emit", "json"]));
    let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
    let row = rows
        .iter()
        .find(|one| one["setting"] == "splits.cart-v2")
        .unwrap();
    assert_eq!(
        (&row["now"], &row["advised"]),
        (&"10%".into(), &"20%".into())
    );
    assert!(
        row["reason"]
            .as_str()
            .unwrap()
            .contains("1 of 2 replicas, 50 %: 10 more"),
        "{row}"
    );
}

#[test]
fn what_is_wrong_with_versions_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, expected) in [
        (
            "service: shop/cart, port",
            "service: shop/absent, port",
            "`shop/absent` is not a service of the graph",
        ),
        ("port: 80", "port: 0", "splits[0].port must be a port"),
        (
            "name: cart-v2",
            "name: cart-v1",
            "splits[0].versions[1].name",
        ),
        ("failures: 0.1", "failures: 200", "must be at most `rps`"),
    ] {
        let output = maglor(folder.path(), &divided("").replace(from, to), &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn what_is_emitted_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let emitted = stdout(&maglor(folder.path(), &observed(), &["--emit", "maglor"]));
    assert!(emitted.contains("kind: TrafficPolicy") && emitted.contains("kind: Deployment"));
    assert!(emitted.contains("# replicas 3: "), "{emitted}");
    std::fs::write(folder.path().join("now.yaml"), &emitted).unwrap();
    let same = stdout(&maglor(
        folder.path(),
        &observed(),
        &["--current", "now.yaml"],
    ));
    assert!(
        !same.contains("cluster.") && !same.contains("route."),
        "{same}"
    );
    assert!(same.contains("replicas"), "{same}");
    let changed = emitted.replace("max_pending_requests: ", "max_pending_requests: 9");
    std::fs::write(folder.path().join("now.yaml"), changed).unwrap();
    let diff = stdout(&maglor(
        folder.path(),
        &observed(),
        &["--current", "now.yaml"],
    ));
    let rows: Vec<&str> = diff
        .lines()
        .filter(|line| line.contains("cluster."))
        .collect();
    assert_eq!(rows.len(), 1, "{diff}");
    assert!(
        rows[0].contains("cluster.limits.max_pending_requests"),
        "{diff}"
    );

    let istio = stdout(&maglor(folder.path(), &observed(), &["--emit", "istio"]));
    for part in [
        "kind: DestinationRule",
        "kind: VirtualService",
        "consecutive5xxErrors",
        "perTryTimeout",
        "# Not expressible in Istio: circuit_breaker",
    ] {
        assert!(istio.contains(part), "{part} in {istio}");
    }
    std::fs::write(folder.path().join("istio.yaml"), istio).unwrap();
    let analyzed = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["analyze", "istio.yaml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&analyzed.stdout);
    assert!(!text.contains("error:"), "{text}");
}

/// Names come from files: reasons with any name stay comments.
#[test]
fn comments_stay_comments() {
    let folder = tempfile::tempdir().unwrap();
    let odd = observed().replace("shop/web", "\"web\\nkind: Odd\"");
    for emit in ["maglor", "istio"] {
        let text = stdout(&maglor(folder.path(), &odd, &["--emit", emit]));
        assert!(text.contains("# cluster."), "{text}");
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = <Value as serde::Deserialize>::deserialize(document).unwrap();
            assert!(document["metadata"]["name"].is_string(), "{document}");
        }
    }
}

/// The settings of a service are merged from several policies, field by field; a cluster without policies is no error.
#[test]
fn what_is_in_force_is_of_all_policies() {
    let folder = tempfile::tempdir().unwrap();
    let pending = |current: &str| {
        std::fs::write(folder.path().join("now.yaml"), current).unwrap();
        let more = ["--current", "now.yaml", "--emit", "json"];
        let rows = stdout(&maglor(folder.path(), &observed(), &more));
        let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
        let row = rows
            .iter()
            .find(|row| row["setting"] == "cluster.limits.max_pending_requests")
            .unwrap_or_else(|| panic!("{rows:#?}"));
        row["now"].as_str().map(str::to_owned)
    };
    assert_eq!(pending("{apiVersion: v1, kind: List, items: []}"), None);
    let policy = |name: &str, meta: &str, targets: &str, value: u32| {
        format!(
            "---\nkind: TrafficPolicy\nmetadata: {{name: {name}, namespace: shop{meta}}}\n\
             spec: {{{targets}cluster: {{limits: {{max_pending_requests: {value}}}}}}}\n"
        )
    };
    let to = "targetRefs: [{kind: Service, name: cart}], ";
    let (all, tuned) = ("", ", labels: {maglor.dev/tuned-by: shop}");
    let at = |hour: u32| format!(", creationTimestamp: \"2026-01-01T0{hour}:00:00Z\"");
    let namespace = policy("all", "", all, 501);
    let generated = policy("cart-generated", tuned, to, 502);
    let young = policy("young", &at(3), to, 503);
    let old = policy("old", &at(2), to, 504);
    let other = policy("other", "", "targetRefs: [{name: web}], ", 505);
    for (policies, now) in [
        (vec![&namespace], "501"),
        (vec![&generated, &namespace, &other], "501"),
        (vec![&generated, &other], "502"),
        (vec![&namespace, &young, &old], "504"),
    ] {
        let text: String = policies.into_iter().map(String::as_str).collect();
        assert_eq!(pending(&text).as_deref(), Some(now), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (text, message) in [
        (
            "services:\n- {name: a, replicas: 1, cpu: 5}\n",
            "observed.yaml:2: services[0].cpu is unknown",
        ),
        (
            "snapshots:\n- at: 9\n- at: 3\n",
            "observed.yaml:3: snapshots[1].at: snapshots must be in chronological order",
        ),
        ("", "observed.yaml: the file is empty"),
        ("{}", "observed.yaml: no observations"),
        ("snapshots: []", "observed.yaml: no observations"),
        (
            "5",
            "observed.yaml:1: the file: expected a mapping, found `5`",
        ),
    ] {
        let output = maglor(folder.path(), text, &[]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(message), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let output = maglor(folder.path(), &observed(), &["--error-rate", "2"]);
    assert_eq!(output.status.code(), Some(2));
    std::fs::write(folder.path().join("now.yaml"), "kind: Service\n").unwrap();
    let output = maglor(folder.path(), &observed(), &["--current", "now.yaml"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("now.yaml: the file contains no TrafficPolicy"),
        "{error}"
    );
}
