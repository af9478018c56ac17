//! The commands on the command line.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn maglor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(arguments)
        .output()
        .expect("the binary can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_demo_shows_every_policy_and_succeeds() {
    let output = maglor(&["demo", "balancing", "--for", "4", "--servers", "3"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{output:?}");
    for part in [
        "lor(choices=2)\n",
        "random\n",
        "round-robin\n",
        "outstanding",
        "times that with lor(choices=2)",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "a pipe is not a terminal:\n{text}");
    assert!(!text.contains("error under"), "{text}");
}

#[test]
fn an_interrupted_demo_ends_cleanly() {
    let child = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["demo", "balancing", "--for", "60"])
        .args(["--policy", "maglev(table_size=251)"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    std::thread::sleep(Duration::from_secs(2));
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{output:?}");
    assert!(text.contains("Ended early."), "{text}");
}

#[test]
fn standard_input_is_one_file() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["plan", "placement", "--graph", "-", "--nodes", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let mut input = child.stdin.take().expect("it is piped");
    let graph = b"services: [{name: web, replicas: 1, cpu_millis: 100, memory_mib: 10}]";
    input.write_all(graph).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("-: only one file can be standard input"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
}

#[test]
fn check_says_what_the_proxy_would_say() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.yaml");
    let bad = folder.path().join("bad.yaml");
    let text = "listeners: [{name: web, address: 127.0.0.1:8080, tcp: {cluster: backend}}]
clusters: [{name: backend, endpoints: [127.0.0.1:9001]}]";
    std::fs::write(&good, text).unwrap();
    std::fs::write(
        &bad,
        text.replace("{cluster: backend}", "{cluster: bakend}"),
    )
    .unwrap();
    let (good, bad) = (good.display().to_string(), bad.display().to_string());

    let output = maglor(&["check", &good]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("configuration is valid"));

    let output = maglor(&["check", &bad, &good]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("did you mean `backend`?"), "{errors}");
    assert!(stdout(&output).contains("good.yaml: configuration is valid"));
}

#[test]
fn check_reads_standard_input() {
    for (text, code) in [
        (
            "\u{feff}listeners: [{name: web, address: 127.0.0.1:0, tcp: {cluster: a}}]\n\
             clusters: [{name: a, endpoints: [127.0.0.1:9001]}]\n",
            0,
        ),
        ("listeners: 5\n", 2),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_maglor"))
            .args(["check", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let mut input = child.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = [output.stdout, output.stderr].concat();
        assert!(
            said.starts_with(b"-:"),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
}

#[test]
fn the_schema_is_that_of_the_configuration() {
    let output = maglor(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema, maglor_config::schema());
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&maglor(&["completions", shell]));
        assert!(text.contains("demo") && text.contains("check"), "{shell}");
    }
}

#[test]
fn the_examples_of_the_readme_are_valid() {
    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let blocks = readme.split("```yaml\n").skip(1);
    let examples: Vec<_> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let loaded = maglor_config::parse(example, "README.md").unwrap();
        assert_eq!(loaded.warnings, [], "{example}");
    }
}

/// Commands of the last release: old words, and the new command line.
const MOVED: [(&str, &str); 9] = [
    (
        "partition --graph g.yaml --nodes n.yaml",
        "maglor plan placement --graph g.yaml --nodes n.yaml",
    ),
    (
        "advise --observed day.yaml",
        "maglor plan tuning --observed day.yaml",
    ),
    (
        "proxy-service plan --rho 0.9",
        "maglor plan proxy-service --rho 0.9",
    ),
    (
        "proxy-service config --upstream 10.0.0.1:80",
        "maglor plan proxy-service config --upstream 10.0.0.1:80",
    ),
    (
        "model --balancers 1,20",
        "maglor-lab model --balancers 1,20",
    ),
    (
        "sim --policy lor(choices=2)",
        "maglor-lab sim --policy 'lor(choices=2)'",
    ),
    (
        "figures --out /tmp/figures",
        "maglor-lab figures --out /tmp/figures",
    ),
    (
        "plan --without edge-2",
        "maglor plan moves --without edge-2",
    ),
    (
        "uninject --patience 5m",
        "maglor uninstall sidecars --patience 5m",
    ),
];

#[test]
fn commands_of_the_last_release_answer_with_the_new_ones() {
    for (old, new) in MOVED {
        let output = maglor(&old.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{old}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("error: ") && text.contains(new), "{text}");
        assert_eq!(output.stdout, b"", "{old}");
    }
}

#[test]
fn the_help_is_one_screen() {
    let text = stdout(&maglor(&["--help"]));
    assert!(text.lines().count() <= 44, "{text}");
    for part in [
        "Install:\n",
        "Inspect:\n",
        "Plan:\n",
        "Identity:\n",
        "Options:\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("partition"), "{text}");
}

/// A full disk is an error; a closed reader is not.
#[test]
fn write_errors_are_reported() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .arg("schema")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.starts_with("maglor: standard output: No space left"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");

    let mut child = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .arg("schema")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn resources_are_analyzed_before_they_are_applied() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let bad = write(
        "bad.yaml",
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec:\n  hosts: [a]\n  tcp: [{}]\n",
    );
    let output = maglor(&["analyze", &bad]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(
        text.starts_with(&format!(
            "{bad}:6: error: VirtualService shop/a: spec.tcp: "
        )),
        "{text}"
    );
    let output = maglor(&["analyze", "-o", "json", &bad]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(value["problems"][0]["line"], 6);
    let good = write(
        "good.yaml",
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: istio-system}\nspec: {mtls: {mode: STRICT}}\n",
    );
    let output = maglor(&["analyze", &good]);
    assert!(output.status.success());
    assert_eq!(
        stdout(&output),
        "1 resources, 0 of other kinds: 0 errors, 0 warnings\n"
    );
    assert_eq!(maglor(&["analyze", "/nowhere.yaml"]).status.code(), Some(2));
}
