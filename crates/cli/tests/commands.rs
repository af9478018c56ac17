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
        .args(["partition", "--graph", "-", "--nodes", "-"])
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

fn sim(arguments: &[&str]) -> Output {
    let few = ["sim", "--requests", "20000", "--runs", "4"];
    maglor(&[&few, arguments].concat())
}

#[test]
fn a_simulation_says_what_it_simulated_and_what_came_out() {
    let output = sim(&[
        "--policy",
        "bounce(tries=3)",
        "--balancers",
        "20",
        "--seed",
        "7",
    ]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| {
        json[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key} in {json}"))
    };
    assert_eq!((number("seed"), number("balancers")), (7.0, 20.0));
    assert_eq!(json["policy"], "bounce(tries=3)");
    assert!(
        (number("mean_ms") - 30.3).abs() < 3.0 + number("ci95_ms"),
        "{json}"
    );
    assert!(number("p50_ms") < number("mean_ms") && number("p99_ms") > 90.0);
    assert!((2.0..4.0).contains(&number("messages_per_request")));
    let again = sim(&[
        "--policy",
        "bounce(tries=3)",
        "--balancers",
        "20",
        "--seed",
        "7",
        "--threads",
        "3",
    ]);
    assert_eq!(
        again.stdout, output.stdout,
        "the same on any number of threads"
    );
}

#[test]
fn a_simulation_on_nodes_says_where_calls_went() {
    let nodes = ["--nodes", "3", "--node-callers", "4,1,1"];
    let slack = ["--node-slack", "0", "--servers", "39"];
    let output = sim(&[&nodes[..], &slack].concat());
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["node_callers"], serde_json::json!([4, 1, 1]));
    let share = |from: usize, to: usize| json["node_shares"][from][to].as_f64().unwrap();
    assert!((share(0, 0) - 0.5).abs() < 0.05, "{json}");
    assert!(
        (share(1, 1) - 1.0).abs() < 1e-9 && share(2, 0) == 0.0,
        "{json}"
    );
}

#[test]
fn a_simulation_that_ends_too_early_says_so() {
    for (rho, steady) in [("0.5", true), ("0.99", false)] {
        let output = maglor(&["sim", "--policy", "random", "--rho", rho]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["steady"], steady, "{value}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.starts_with("note: not steady"), !steady, "{said}");
        assert_eq!(said.lines().count(), usize::from(!steady), "{said}");
        assert!(output.status.success());
    }
}

#[test]
fn every_part_of_a_scenario_can_be_given() {
    let output = sim(&[
        "--policy",
        "ledger(group=5,fallback=probe)",
        "--balancers",
        "3",
        "--servers",
        "10",
        "--rho",
        "0.5",
        "--service-ms",
        "5",
        "--arrivals",
        "lognormal:2",
        "--service",
        "bimodal:0.1:10",
        "--discipline",
        "ps",
        "--speeds",
        "1,2",
        "--delay-ms",
        "0.1",
        "--loss",
        "0.01",
        "--graph",
        "chain:3",
        "--antagonist",
        "5:0.5:1000",
        "--change",
        "100:leave:3",
        "--change",
        "500:ledger-dies:0",
        "--proxies",
        "2",
        "--proxy-ms",
        "1",
        "--timing",
        "--faults",
        "2:0.3:1",
        "--retries",
        "2",
        "--eject",
        "--breaker",
        "--max-requests",
        "1000",
        "--fault-status",
        "404",
        "--weights",
        "2,1",
        "--silent",
        "2",
        "--rollout-ms",
        "100",
        "--report-loss",
        "0.5",
        "--view-lag-ms",
        "10",
        "--timeline-ms",
        "1000",
        "--change",
        "200:silent:0",
        "--change",
        "300:ledger-stalls:0",
        "--change",
        "310:ledger-resumes:0",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("million/s"));
}

#[test]
fn impossible_simulations_are_refused_in_one_line() {
    for (arguments, part) in [
        (["--rho", "1"], "below 1"),
        (["--rho", "NaN"], "below 1"),
        (["--balancers", "0"], "balancers = 0"),
        (["--servers", "0"], "servers = 0"),
        (["--policy", "lor(choices=0)"], "choices=0"),
        (["--policy", "lore"], "did you mean `lor`?"),
        (["--service", "normal"], "lognormal:CV"),
        (["--service-ms", "-1"], "--service-ms -1"),
        (["--loss", "1"], "loss = 1"),
        (["--speeds", "0"], "speeds"),
        (["--change", "1:leave:40"], "no server 40"),
        (["--nodes", "1"], "on one node all calls are local"),
        (["--nodes", "41"], "there are 40 servers"),
        (["--slow-start-ms", "1000"], "no server returns"),
    ] {
        let argument = arguments.join("=");
        let output = sim(&[&argument]);
        assert_eq!(output.status.code(), Some(2), "{argument}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(error.contains(part), "{argument}: {error}");
    }
}

#[test]
fn the_model_says_what_the_paper_says() {
    let arguments = "model --choices 2 --rho 0.75 --service-ms 20 --balancers";
    for (balancers, mean, corrected) in [("1", 35.17, 35.17), ("20", 70.76, 60.76)] {
        let arguments: Vec<_> = arguments.split(' ').chain([balancers]).collect();
        let output = maglor(&arguments);
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for (field, expected) in [("mean_ms", mean), ("corrected_ms", corrected)] {
            let actual = result[field].as_f64().unwrap();
            assert!((actual - expected).abs() < 0.05, "{field}: {result}");
        }
        assert_eq!(result["random_ms"], 80.0);
    }
}

#[test]
fn the_model_makes_tables_of_lists() {
    let common = [
        "model",
        "--balancers",
        "1,20",
        "--rho",
        "0.75,0.9",
        "--format",
    ];
    let with = |format| stdout(&maglor(&[&common[..], &[format]].concat()));
    let json: serde_json::Value = serde_json::from_str(&with("json")).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(4));
    let csv = with("csv");
    assert!(csv.starts_with("choices,balancers,rho,"), "{csv}");
    assert_eq!(csv.lines().count(), 5);
    let table = with("table");
    let second = table.lines().nth(2).unwrap_or_default();
    let cells: Vec<_> = second.split_whitespace().collect();
    assert_eq!(
        cells,
        ["2", "20", "0.75", "20", "many", "70.76", "60.76", "80.00"]
    );
}

#[test]
fn the_model_refuses_the_impossible_in_one_line() {
    for (arguments, said) in [
        (["--rho", "1"], "utilisation (rho) = 1 is out of range"),
        (["--rho", "-0.5"], "utilisation (rho) = -0.5"),
        (["--choices", "0"], "choices (d) = 0"),
        (["--choices", "-2"], "choices (d) = -2"),
        (["--balancers", "0"], "balancers (M) = 0"),
        (["--servers", "0"], "servers (N) = 0"),
        (["--service-ms", "0"], "service-ms = 0"),
    ] {
        let output = maglor(&[&["model"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn figures_are_drawn_into_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/folder");
    let out = out.to_str().unwrap();
    let output = maglor(&["figures", "--out", out, "--quick", "--only", "3a"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.starts_with("1 figure in "), "{text}");
    assert!(text.contains("seed 1"), "{text}");
    assert_eq!(output.stderr, b"", "no progress bar without a terminal");
    let read = |name: &str| std::fs::read(format!("{out}/{name}")).unwrap();
    let csv = String::from_utf8(read("3a.csv")).unwrap();
    assert!(csv.contains("paper's model,20,70.76"), "{csv}");
    assert!(read("3a.svg").starts_with(b"<svg"));
    assert_eq!(&read("3a.png")[1..4], b"PNG");

    // Known before anything is simulated.
    let output = maglor(&["figures", "--out", "/proc"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot write /proc/"), "{errors}");

    let output = maglor(&["figures", "--out", out, "--only", "12"]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no figure starts with 12"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
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
fn impossible_input_is_refused_in_one_line() {
    for (command, passed) in [
        ("model", "--choices=0.5"),
        ("model", "--choices=0"),
        ("model", "--balancers=0"),
        ("model", "--rho=1"),
        ("model", "--rho=x"),
        ("model", "--service-ms=1e300"),
        ("sim", "--policy=foo"),
        ("sim", "--policy=lor(choices=0)"),
        ("sim", "--servers=0"),
        ("sim", "--balancers=-1"),
        ("sim", "--rho=1.5"),
        ("sim", "--faults=41:0.3:1"),
        ("sim", "--silent=41"),
        ("sim", "--report-loss=2"),
        ("sim", "--weights=0"),
        ("sim", "--retries=21"),
        ("sim", "--max-requests=0"),
        ("sim", "--requests=500"),
    ] {
        let output = maglor(&[command, passed]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command} {passed}");
        assert_eq!(text.lines().count(), 1, "{command} {passed}:\n{text}");
    }
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
