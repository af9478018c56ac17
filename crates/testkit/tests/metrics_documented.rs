//! docs/metrics.md against the code that registers metrics, name by name, in both directions.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose files register metrics.
const FOLDERS: [&str; 2] = [
    "proxy/src/telemetry/metrics",
    "crates/telemetry/src/metrics",
];

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let documented = documented(&read("docs/metrics.md"));
    assert!(
        documented.len() > 20,
        "the tables were found: {documented:?}"
    );
    let mut wrong = Vec::new();
    let registered = registered();
    for (name, kind) in &registered {
        match documented.get(name) {
            None => wrong.push(format!("{name} is not in docs/metrics.md")),
            Some((documented, _)) if documented != kind => {
                wrong.push(format!("{name} is a {kind}, not a {documented}"));
            }
            Some(_) => {}
        }
    }
    let unknown = documented
        .keys()
        .filter(|name| !registered.contains_key(*name));
    wrong.extend(unknown.map(|name| format!("{name} is documented, but not registered")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn labels_and_their_values_are_those_of_the_code() {
    let code = sources().concat();
    let mut labels: Vec<_> = documented(&read("docs/metrics.md"))
        .into_values()
        .flat_map(|(_, labels)| labels)
        .collect();
    labels.sort();
    labels.dedup();
    assert!(labels.len() > 8, "labels were found: {labels:?}");
    for label in labels {
        assert!(
            code.contains(&format!("\"{label}\"")),
            "no metric registers a label {label}"
        );
    }
    let page = read("docs/metrics.md");
    let values = strings(&code, "refused(").chain(strings(&code, ".with(&["));
    for value in values {
        assert!(
            page.contains(&format!("`{value}`")),
            "the value {value} is not documented"
        );
    }
}

/// The rules of `promtool check metrics`, which `cargo xtask e2e` runs on real pages.
#[test]
fn names_follow_the_conventions_of_prometheus() {
    const UNITS: [&str; 16] = [
        "bits",
        "days",
        "hours",
        "kb",
        "kib",
        "kilobytes",
        "mb",
        "megabytes",
        "microseconds",
        "milliseconds",
        "minutes",
        "ms",
        "nanoseconds",
        "percent",
        "permille",
        "us",
    ];
    const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];
    let mut families = BTreeMap::new();
    for page in ["docs/metrics.md", "docs/controller.md"] {
        let metrics = documented(&read(page)).into_iter();
        let metrics =
            metrics.filter(|(name, _)| name.starts_with("maglor_") || name.starts_with("process_"));
        for (name, (kind, _)) in metrics {
            let mut parts = name.split('_');
            let wrong = parts.find(|part| UNITS.contains(part) || TYPES.contains(part));
            assert_eq!(wrong, None, "{name}");
            let reserved = ["_bucket", "_count", "_sum"];
            assert!(!reserved.iter().any(|end| name.ends_with(end)), "{name}");
            assert_eq!(
                kind == "counter",
                name.ends_with("_total"),
                "{name} is a {kind}"
            );
            if kind == "histogram" {
                assert!(name.ends_with("_seconds"), "{name}: its unit");
            }
            // In OpenMetrics a family has no suffix, so a counter and a gauge may be one family.
            let base = name.strip_suffix("_total").unwrap_or(&name).to_owned();
            let other = families.insert(base, name.clone());
            assert_eq!(other, None, "{name} is the same family");
        }
    }
    assert!(families.len() > 100, "{}", families.len());
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Name → type and labels, from the tables.
fn documented(page: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let name = cells.next().unwrap_or_default().trim_end_matches('`');
        let kind = cells.next().unwrap_or_default().to_owned();
        let labels = cells.next().unwrap_or_default().split(", ");
        let labels = labels.map(|label| label.trim_matches('`').to_owned());
        (
            name.to_owned(),
            (kind, labels.filter(|label| !label.is_empty()).collect()),
        )
    })
    .collect()
}

/// The texts of all files that register metrics.
fn sources() -> Vec<String> {
    let folders = FOLDERS.iter().map(|folder| root().join(folder));
    let mut files: Vec<_> = folders
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .collect();
    files.sort();
    // Registrations in tests do not count.
    let text = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]").next().unwrap().to_owned()
    };
    files.iter().map(text).collect()
}

/// Name → type of everything that the code registers.
fn registered() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for text in sources() {
        // Nor do those in documentation.
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: String = lines.map(|line| format!("{}\n", line.trim())).collect();
        for (call, kind) in [
            ("counter(", "counter"),
            ("of_cluster(", "counter"),
            ("of_listener(", "counter"),
            ("gauge(", "gauge"),
            ("histogram(", "histogram"),
            ("latency(", "histogram"),
        ] {
            for name in strings(&code, call) {
                all.insert(format!("maglor_{name}"), kind.to_owned());
            }
        }
        for name in strings(&code, "(").filter(|name| name.starts_with("process_")) {
            let after = code.split(&format!("\"{name}\"")).nth(1).unwrap();
            let kind = after.split("Type::").nth(1).unwrap();
            let kind = if kind.starts_with("Counter") {
                "counter"
            } else {
                "gauge"
            };
            all.insert(name.to_owned(), kind.to_owned());
        }
    }
    assert!(all.len() > 20, "the registrations were found: {all:?}");
    all
}

/// The string literals that directly follow `call`, white space aside.
fn strings<'a>(code: &'a str, call: &'a str) -> impl Iterator<Item = &'a str> {
    let calls = code.split(call).skip(1);
    calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}
