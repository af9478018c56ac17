//! The commands on the command line.

use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maglor-lab"))
        .args(arguments)
        .output()
        .expect("the binary can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sim(arguments: &[&str]) -> Output {
    let few = ["sim", "--requests", "20000", "--runs", "4"];
    lab(&[&few, arguments].concat())
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
        let output = lab(&["sim", "--policy", "random", "--rho", rho]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["steady"], steady, "{value}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.starts_with("note: not steady"), !steady, "{said}");
        assert_eq!(said.lines().count(), usize::from(!steady), "{said}");
        assert!(output.status.success());
    }
}

#[test]
fn a_sweep_simulates_every_combination() {
    let common = [
        "--policy",
        "random",
        "--policy",
        "lor(choices=2)",
        "--balancers",
        "1,20",
    ];
    let with = |more: &[&str]| stdout(&sim(&[&common, more].concat()));
    let csv = with(&["--rho", "0.5:0.7:0.1", "-o", "csv"]);
    let mut lines = csv.lines();
    let header = lines.next().unwrap_or_default();
    assert!(header.starts_with("policy,balancers,servers,rho,"), "{csv}");
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 12, "{csv}");
    assert!(
        rows.iter()
            .all(|row| row.len() == header.split(',').count()),
        "{csv}"
    );
    let of = |row: &Vec<&str>| row[..4].iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(of(&rows[1]), ["random", "20", "40", "0.5"]);
    assert_eq!(of(&rows[10]), ["lor(choices=2)", "1", "40", "0.7"]);

    // Each is the simulation that runs alone.
    let json: serde_json::Value = serde_json::from_str(&with(&[])).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(4));
    let alone = stdout(&sim(&["--policy", "random", "--balancers", "20"]));
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    assert_eq!(json[1], alone);

    let table = with(&["--delay-ms", "0,1", "-o", "table"]);
    let header: Vec<_> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        header[..6],
        [
            "policy",
            "balancers",
            "servers",
            "rho",
            "delay_ms",
            "mean_ms"
        ]
    );
    assert_eq!(table.lines().count(), 9, "{table}");
}

#[test]
fn a_sweep_that_is_too_long_is_refused() {
    let output = sim(&["--balancers", "1:1000", "--rho", "0.01:0.99:0.01"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("99000 combinations; at most 10000"),
        "{errors}"
    );
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
        (
            ["--nodes", "41"],
            "must not exceed the number of servers (40)",
        ),
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
        let output = lab(&arguments);
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
    let with = |format| stdout(&lab(&[&common[..], &[format]].concat()));
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
        let output = lab(&[&["model"], &arguments[..]].concat());
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
    let output = lab(&["figures", "--out", out, "--quick", "--only", "3a"]);
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
    let output = lab(&["figures", "--out", "/proc"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot write /proc/"), "{errors}");

    let output = lab(&["figures", "--out", out, "--only", "12"]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no figure starts with 12"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
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
        ("sim", "--rho=75%"),
        ("sim", "--balancers=many"),
        ("sim", "--balancers=20:1"),
        ("sim", "--seed=-1"),
        ("sim", "--policy=leastconn"),
    ] {
        let output = lab(&[command, passed]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command} {passed}");
        assert_eq!(text.lines().count(), 1, "{command} {passed}:\n{text}");
    }
}

/// Typical mistakes, and what the message has to name.
#[test]
fn messages_name_what_to_write() {
    for (argument, parts) in [
        ("--policy=leastconn", ["leastconn", "lor(choices=all)"]),
        ("--rho=1.5", ["rho", "below 1"]),
        ("--rho=75%", ["--rho", "such as 0.75"]),
        ("--balancers=many", ["--balancers", "whole number"]),
        ("--seed=-1", ["--seed", "whole number"]),
    ] {
        let output = lab(&["sim", argument]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{argument}: {text}"
        );
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&lab(&["completions", shell]));
        assert!(
            text.contains("figures") && text.contains("balancers"),
            "{shell}"
        );
    }
}
