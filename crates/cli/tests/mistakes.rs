//! Messages about mistakes on the command line of `maglor` and in resources of a mesh. Those in the proxy's
//! configuration are in `crates/config/tests/mistakes`, those of `maglor-proxy` in `proxy/tests/mistakes.rs`.

use std::path::Path;
use std::process::Command;

const MAGLOR: &str = env!("CARGO_BIN_EXE_maglor");

fn run(args: &[&str], folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(MAGLOR);
    command
        .env("KUBECONFIG", "/nowhere")
        .current_dir(folder)
        .args(args);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// (arguments, expected message).
const COMMAND_LINES: &[(&str, &[&str])] = &[
    ("status", &["`status`", "maglor check", "maglor stat"]),
    ("validate ok.yaml", &["`validate`", "maglor check FILE"]),
    ("run", &["`run`", "maglor-proxy FILE"]),
    ("get routes", &["`get`", "maglor routes"]),
    ("viz", &["`viz`", "maglor dashboard"]),
    ("logs web", &["`logs`", "maglor tap"]),
    ("analyse x.yaml", &["analyze"]),
    ("chekc", &["check"]),
    ("check missing.yaml", &["missing.yaml", "no such file"]),
    ("analyze", &["FILE"]),
    ("analyze missing.yaml", &["missing.yaml"]),
    (
        "stat",
        &["kubeconfig", "--controller HOST:PORT or --proxy HOST:PORT"],
    ),
    ("stat --proxy 127.0.0.1", &["--proxy", "127.0.0.1:15020"]),
    ("stat --proxy 15020", &["--proxy", "127.0.0.1:15020"]),
    (
        "stat --proxy http://127.0.0.1:15020/",
        &["--proxy", "such as 127.0.0.1:15020"],
    ),
    (
        "stat --proxy 127.0.0.1:1",
        &["127.0.0.1:1", "check that it is running", "admin.address"],
    ),
    (
        "stat --controller 127.0.0.1:1",
        &["queries proxies", "--proxy [NAME=]HOST:PORT"],
    ),
    (
        "top --controller 127.0.0.1:1",
        &["queries proxies", "--proxy [NAME=]HOST:PORT"],
    ),
    (
        "tap --controller 127.0.0.1:1",
        &["queries proxies", "--proxy [NAME=]HOST:PORT"],
    ),
    (
        "plan moves --proxy 127.0.0.1:1",
        &["queries the controller", "--controller HOST:PORT"],
    ),
    (
        "graph --proxy 127.0.0.1:1",
        &["queries the controller", "--controller HOST:PORT"],
    ),
    ("check --proxy 127.0.0.1:1", &["127.0.0.1:1", "no response"]),
    (
        "check --controller 127.0.0.1:1",
        &["127.0.0.1:1", "check that it is running"],
    ),
    ("stat --namespce shop", &["--namespace"]),
    ("routes -o xml", &["xml", "json"]),
    ("plan proxy-service --rho 1.5", &["rho", "below 1"]),
    ("plan proxy-service --rho 75%", &["--rho", "such as 0.75"]),
    (
        "plan proxy-service --balancers many",
        &["--balancers", "whole number"],
    ),
    ("plan moves --seed -1", &["--seed", "whole number"]),
    (
        "sim --policy leastconn",
        &["`maglor sim`", "maglor-lab sim --policy leastconn"],
    ),
    ("inject deploy.yaml", &["-f deploy.yaml"]),
    ("demo --replicas 3", &["--replicas", "reviews=3"]),
    ("install --set a", &["--set a", "KEY=VALUE"]),
    ("identity new", &["identity"]),
];

#[test]
fn a_command_line_that_makes_no_sense_gets_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (line, pieces) in COMMAND_LINES {
        let args: Vec<_> = line.split_whitespace().collect();
        let (code, said) = run(&args, folder.path());
        if std::env::var_os("PRINT").is_some() {
            println!("$ maglor {line}\n{said}");
        }
        let good =
            code.is_some_and(|code| code > 0) && pieces.iter().all(|piece| said.contains(piece));
        let names_kubernetes = said.contains("kubeconfig") && line.contains(" --");
        if !good || names_kubernetes {
            wrong.push(format!(
                "$ maglor {line}\n{said}{code:?}, expected {pieces:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// (resource, expected message of `maglor analyze`).
const RESOURCES: &[(&str, &[&str])] = &[
    (
        "apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: web, namespace: shop}
spec:
  targetRefs: [{name: web}]
  cluster: {polcy: lor}
  route: {timeout: 5}",
        &[
            "mesh.yaml:6: error:",
            "spec.cluster.polcy",
            "did you mean `policy`?",
            "mesh.yaml:7: error:",
            "spec.route.timeout",
            "write `5s`",
        ],
    ),
    (
        "apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: web, namespace: shop}
spec:
  targetRef: {name: web}
  cluster: {policy: least_conn}",
        &[
            "mesh.yaml:5: error:",
            "did you mean `targetRefs`?",
            "mesh.yaml:6: error:",
            "lor(choices=all)",
        ],
    ),
    (
        "apiVersion: maglor.dev/v1
kind: TrafficPolicy
metadata: {name: web}",
        &["mesh.yaml:3: error:", "apiVersion: maglor.dev/v1alpha1"],
    ),
    (
        "apiVersion: maglor.dev/v1alpha1
kind: TraficPolicy
metadata: {name: web}",
        &["mesh.yaml:3: error:", "did you mean `TrafficPolicy`?"],
    ),
    (
        "apiVersion: maglor.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  action: ALLOW
  rules: [{from: [{principal: x}], to: [{method: get}]}]",
        &[
            "mesh.yaml:5: error:",
            "spec.action",
            "mesh.yaml:6: error:",
            "did you mean `methods`?",
            "spec.rules[0].from[0].principal",
        ],
    ),
    (
        "apiVersion: maglor.dev/v1alpha1
kind: ProxyService
metadata: {name: web, namespace: shop}
spec: {targetRef: {name: web}, replica: 2}",
        &["mesh.yaml:4: error:", "did you mean `replicas`?"],
    ),
    (
        "apiVersion: maglor.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: all}
spec: {namespaces: [shop], mode: auto}",
        &[
            "mesh.yaml:4: error:",
            "spec.mode",
            "`Apply`, `Observe` or `Recommend`",
        ],
    ),
    (
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http: [{route: [{destination: {host: web}}], timout: 5s}]",
        &[
            "mesh.yaml:6: error:",
            "spec.http[0].timout",
            "did you mean `timeout`?",
        ],
    ),
    (
        "apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web
  trafficPolicy: {loadBalancer: {simple: LEAST_REQ}, connectionPool: {tcp: {maxConnection: 5}}}",
        &[
            "mesh.yaml:6: error:",
            "write `LEAST_REQUEST`",
            "did you mean `maxConnections`?",
        ],
    ),
    (
        "apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRIKT}}",
        &["mesh.yaml:4: error:", "write `STRICT`"],
    ),
    (
        "listeners: []
clusters: []",
        &["mesh.yaml:1: error:", "maglor check FILE"],
    ),
    (
        "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Values.name }}}",
        &["mesh.yaml:3: error:", "template"],
    ),
];

#[test]
fn a_resource_that_would_not_be_done_is_named_with_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let service = "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
                   spec: {ports: [{port: 80, name: http}]}\n";
    let mut wrong = Vec::new();
    for (text, pieces) in RESOURCES {
        std::fs::write(folder.path().join("mesh.yaml"), format!("{text}{service}")).unwrap();
        let (code, said) = run(&["analyze", "mesh.yaml"], folder.path());
        if std::env::var_os("PRINT").is_some() {
            println!("{text}\n{said}");
        }
        if code != Some(1) || !pieces.iter().all(|piece| said.contains(piece)) {
            wrong.push(format!("{text}\n{said}{code:?}, expected {pieces:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
