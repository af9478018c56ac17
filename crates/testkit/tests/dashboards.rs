//! The dashboards for Grafana in deploy/dashboards, and the chart's ConfigMaps of them, are made from a description here:
//! `UPDATE=1 cargo test -p maglor-testkit --test dashboards` writes them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "dashboards/description.rs"]
mod description;
#[path = "dashboards/grafana.rs"]
mod grafana;
#[path = "dashboards/processes.rs"]
mod processes;
#[path = "dashboards/traffic.rs"]
mod traffic;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use description::Dashboard;

const FOLDER: &str = "deploy/dashboards";
const TEMPLATE: &str = "deploy/chart/templates/dashboards.yaml";

fn all() -> [Dashboard; 7] {
    [
        traffic::mesh(),
        traffic::of_service(),
        traffic::of_workload(),
        processes::proxy(),
        processes::controller(),
        traffic::gateway(),
        processes::resources(),
    ]
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// Compares a kept file with what is made, or replaces it.
fn keep(path: &str, made: &str) {
    let file = root().join(path);
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, made).unwrap();
        return;
    }
    let kept = fs::read_to_string(file).unwrap_or_default();
    assert!(
        kept == made,
        "{path} is not made from the description; UPDATE=1 writes it"
    );
}

#[test]
fn the_files_are_made_from_the_description() {
    let mut names = BTreeSet::new();
    for dashboard in all() {
        let text = serde_json::to_string_pretty(&grafana::dashboard(&dashboard)).unwrap();
        keep(
            &format!("{FOLDER}/maglor-{}.json", dashboard.name),
            &format!("{text}\n"),
        );
        names.insert(format!("maglor-{}.json", dashboard.name));
    }
    let files = fs::read_dir(root().join(FOLDER)).unwrap();
    let files: BTreeSet<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, names, "a file of no dashboard");
}

/// Helm reads no file outside of its chart, so the dashboards are in the template.
#[test]
fn the_chart_has_the_dashboards() {
    let mut text = String::from(
        "{{- if .Values.revision }}\n{{- else }}\n{{- if .Values.monitoring.dashboards }}\n\
         # Made from the files in deploy/dashboards; a test compares them.\n",
    );
    for (at, dashboard) in all().iter().enumerate() {
        let json = grafana::dashboard(dashboard).to_string();
        assert!(!json.contains("{{"), "Helm would evaluate it: {json}");
        let separator = if at == 0 { "" } else { "---\n" };
        let name = dashboard.name;
        text += &format!(
            "{separator}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: maglor-dashboard-{name}\n  \
             namespace: {{{{ .Release.Namespace }}}}\n  labels:\n    app.kubernetes.io/part-of: maglor\n    \
             grafana_dashboard: \"1\"\ndata:\n  maglor-{name}.json: |\n    {json}\n"
        );
    }
    text += "{{- end }}\n{{- end }}\n";
    keep(TEMPLATE, &text);
}

/// The names of metrics in a query.
fn metrics(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("maglor_") || word.starts_with("process_"))
}

/// The metrics of the tables; for a histogram, its parts.
fn documented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for page in ["docs/metrics.md", "docs/controller.md"] {
        let page = fs::read_to_string(root().join(page)).unwrap();
        for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().unwrap().trim_end_matches('`').to_owned();
            if cells.next() == Some("histogram") {
                names.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")));
            }
            names.insert(name);
        }
    }
    names
}

#[test]
fn what_is_shown_is_measured() {
    let known = documented();
    assert!(known.len() > 100, "{}", known.len());
    for dashboard in all() {
        let of_panels = dashboard.panels.iter().map(|panel| panel.query.as_str());
        let of_variables = dashboard.variables.iter().map(|variable| variable.metric);
        for query in of_panels.chain(of_variables) {
            assert!(metrics(query).next().is_some(), "{query}");
            for metric in metrics(query) {
                assert!(known.contains(metric), "{}: {metric}", dashboard.name);
            }
        }
    }
}

#[test]
fn titles_are_unique_and_variables_are_those_of_the_dashboard() {
    for dashboard in all() {
        let name = dashboard.name;
        let titles: BTreeSet<_> = dashboard.panels.iter().map(|panel| panel.title).collect();
        assert_eq!(
            titles.len(),
            dashboard.panels.len(),
            "{name}: a title twice"
        );
        for panel in &dashboard.panels {
            for variable in panel.query.split('$').skip(1) {
                let end = variable.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let variable = &variable[..end.unwrap_or(variable.len())];
                let mut declared = dashboard.variables.iter();
                assert!(
                    variable == "__rate_interval" || declared.any(|one| one.name == variable),
                    "{name}: {}: ${variable}",
                    panel.title
                );
            }
        }
    }
}
