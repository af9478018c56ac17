//! Alert rules: those of the chart equal the rule file, each has a runbook, and their metrics exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn groups() -> Value {
    let documents =
        maglor_manifests::inject::yaml::documents(&read("deploy/alerts/maglor.rules.yaml"));
    documents.unwrap().remove(0).value["groups"].clone()
}

fn rules() -> Vec<Value> {
    let groups = groups();
    let rules = groups.as_array().unwrap().iter();
    rules
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn the_chart_has_the_rules_of_the_file() {
    let output = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["install", "--set", "alerts.prometheusRule=true"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = maglor_manifests::inject::yaml::documents(&text).unwrap();
    let mut documents = documents.into_iter().map(|one| one.value);
    let rule = documents.find(|one| one["kind"] == "PrometheusRule");
    assert_eq!(rule.unwrap()["spec"]["groups"], groups());
}

/// The names of metrics in an expression of PromQL.
fn metrics(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("maglor_")).collect()
}

/// The metrics of the tables; for a histogram, its parts.
fn documented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for page in ["docs/metrics.md", "docs/controller.md"] {
        for row in read(page)
            .lines()
            .filter(|line| line.starts_with("| `maglor_"))
        {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let name = cells[0].trim_matches('`').to_owned();
            if cells[1] == "histogram" {
                for part in ["bucket", "count", "sum"] {
                    names.insert(format!("{name}_{part}"));
                }
            }
            names.insert(name);
        }
    }
    names
}

#[test]
fn what_is_asked_for_is_measured() {
    let known = documented();
    assert!(known.len() > 50, "{}", known.len());
    for rule in rules() {
        let expression = rule["expr"].as_str().unwrap();
        let asked = metrics(expression);
        assert!(!asked.is_empty(), "{expression}");
        for metric in asked {
            assert!(known.contains(metric), "{}: {metric}", rule["alert"]);
        }
    }
}

/// The heading's anchor, as pages of Markdown have it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_is_rehearsed() {
    let page = read("docs/runbooks.md");
    let anchors: BTreeSet<_> = page
        .lines()
        .filter(|line| line.starts_with("## "))
        .map(anchor)
        .collect();
    let mut names = BTreeSet::new();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        let runbook = rule["annotations"]["runbook"].as_str().unwrap();
        let (file, section) = runbook.split_once('#').unwrap();
        assert_eq!(file, "docs/runbooks.md");
        assert!(anchors.contains(section), "{name}: {runbook}");
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not on the page"
        );
        assert!(rule["annotations"]["summary"].is_string());
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()));
        assert!(names.insert(name));
    }
    // Each section names the test that executes it.
    for section in page.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        let line = section
            .lines()
            .find_map(|line| line.strip_prefix("Rehearsed by "));
        let line = line.unwrap_or_else(|| panic!("{heading}: no rehearsal"));
        let tests = line.split('`').skip(1).step_by(2);
        let mut found = 0;
        for test in tests {
            let (file, function) = test.split_once("::").unwrap();
            let text = read(file);
            assert!(
                text.contains(&format!("fn {function}(")),
                "{heading}: {test}"
            );
            found += 1;
        }
        assert!(found > 0, "{heading}");
    }
}

/// `cargo xtask e2e` runs the tests with promtool.
#[test]
fn each_alert_has_a_test_in_which_it_is_raised_and_one_in_which_it_is_not() {
    let documents =
        maglor_manifests::inject::yaml::documents(&read("deploy/alerts/tests/maglor.tests.yaml"));
    let tests = documents.unwrap().remove(0).value["tests"].clone();
    let mut expected = BTreeSet::new();
    for test in tests.as_array().unwrap() {
        for check in test["alert_rule_test"].as_array().unwrap() {
            let name = check["alertname"].as_str().unwrap().to_owned();
            let is_raised = !check["exp_alerts"].as_array().unwrap().is_empty();
            expected.insert((name, is_raised));
        }
    }
    let names = rules()
        .into_iter()
        .map(|rule| rule["alert"].as_str().unwrap().to_owned());
    let wanted: BTreeSet<_> = names
        .flat_map(|name| [(name.clone(), true), (name, false)])
        .collect();
    assert_eq!(expected, wanted);
}
