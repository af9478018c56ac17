//! `maglor plan proxy-service` on the command line.

use std::process::{Command, Output};

use serde_json::Value;

fn maglor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["plan", "proxy-service"])
        .args(arguments)
        .output()
        .expect("the binary can be started")
}

fn printed(arguments: &[&str]) -> String {
    let output = maglor(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn plan(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

#[test]
fn the_papers_situation_is_worth_it() {
    let with = plan(&[]);
    assert_eq!(with["recommended"], "ledger");
    assert_eq!(with["predictions"].as_array().unwrap().len(), 4);
    assert_eq!(with["requests_per_second"], 1500.0);
    let without = plan(&["--without-sidecars", "--name", "web"]);
    assert_eq!(without["recommended"], "proxy-service");
    let gain = without["gain"].as_f64().unwrap();
    assert!((0.3..0.5).contains(&gain), "{gain}");
    let manifest = &without["manifests"][0];
    assert_eq!(manifest["kind"], "ProxyService");
    assert_eq!(manifest["spec"]["targetRef"]["name"], "web");
    let table = printed(&["--format", "table"]);
    assert!(table.contains("* ledger"), "{table}");
}

#[test]
fn light_loads_are_left_alone() {
    let light = plan(&["--rho", "0.05", "--balancers", "2", "--without-sidecars"]);
    assert_eq!(light["recommended"], "local");
    assert_eq!(light["manifests"], serde_json::json!([]));
}

#[test]
fn a_workload_file_returns_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.yaml");
    let services = "services:\n- {name: web, namespace: shop}\n- {name: cart, rho: 0.05}\n";
    std::fs::write(&file, services).unwrap();
    let file = file.to_str().unwrap();
    let all = plan(&["--workload", file]);
    assert_eq!(all.as_array().unwrap().len(), 2);
    let text = printed(&["--workload", file, "--format", "manifests"]);
    assert!(
        text.starts_with("---\napiVersion: maglor.dev/v1alpha1\nkind: TrafficPolicy\n"),
        "{text}"
    );
    assert!(text.contains("policy: ledger(group=40)"), "{text}");
    std::fs::write(file, "services:\n- {name: web}\n- {name: cart, rho: 2}\n").unwrap();
    let error = String::from_utf8(maglor(&["--workload", file]).stderr).unwrap();
    assert!(
        error.contains("services.yaml:3: services[1]: cart: rho = 2"),
        "{error}"
    );
    std::fs::write(file, "services:\n- {name: web, rho: high}\n").unwrap();
    let output = maglor(&["--workload", file]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("services.yaml:2: "), "{error}");
    assert_eq!(error.trim().lines().count(), 1, "{error}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (arguments, expected) in [
        (["--rho", "1"], "rho = 1"),
        (["--servers", "0"], "must be 1 or more"),
        (["--service-ms", "0"], "service_ms = 0"),
        (["--least-gain", "2"], "least-gain = 2"),
        (["--name", "My_Svc"], "name `My_Svc`: Kubernetes allows"),
    ] {
        let output = maglor(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn without_kubernetes_a_configuration_is_printed_that_holds() {
    let upstreams = ["--upstream", "10.0.0.1:80", "--upstream", "10.0.0.2:80"];
    let text = printed(&[&["config", "--policy", "lor(choices=all)"], &upstreams[..]].concat());
    assert!(text.contains("lor(choices=all)"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("maglor.yaml");
    std::fs::write(&file, &text).unwrap();
    let check = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .arg("check")
        .arg(&file)
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}
