//! `maglor install` and `maglor uninstall`: render the chart in `deploy/chart` without Helm.
//!
//! The chart's own files are rendered ([`template`]), so that there is a single source of the installation. No
//! cluster is accessed or changed: the output is for kubectl.

mod schema;
mod sidecars;
mod template;
mod values;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use maglor_telemetry::command_line::output;
use serde_json::{Value, json};

use self::template::TemplateError;
use self::values::{Chosen, ValuesError};
use crate::input::read_text;

const VALUES: &str = include_str!("../../../../deploy/chart/values.yaml");

const SCHEMA: &str = include_str!("../../../../deploy/chart/values.schema.json");

/// The chart's templates, in the order in which they are applied.
const TEMPLATES: [(&str, &str); 11] = [
    (
        "templates/rbac.yaml",
        include_str!("../../../../deploy/chart/templates/rbac.yaml"),
    ),
    (
        "templates/features.yaml",
        include_str!("../../../../deploy/chart/templates/features.yaml"),
    ),
    (
        "templates/controller.yaml",
        include_str!("../../../../deploy/chart/templates/controller.yaml"),
    ),
    (
        "templates/network.yaml",
        include_str!("../../../../deploy/chart/templates/network.yaml"),
    ),
    (
        "templates/webhooks.yaml",
        include_str!("../../../../deploy/chart/templates/webhooks.yaml"),
    ),
    (
        "templates/metrics.yaml",
        include_str!("../../../../deploy/chart/templates/metrics.yaml"),
    ),
    (
        "templates/alerts.yaml",
        include_str!("../../../../deploy/chart/templates/alerts.yaml"),
    ),
    (
        "templates/monitoring.yaml",
        include_str!("../../../../deploy/chart/templates/monitoring.yaml"),
    ),
    (
        "templates/dashboards.yaml",
        include_str!("../../../../deploy/chart/templates/dashboards.yaml"),
    ),
    (
        "templates/hooks.yaml",
        include_str!("../../../../deploy/chart/templates/hooks.yaml"),
    ),
    (
        "templates/mesh.yaml",
        include_str!("../../../../deploy/chart/templates/mesh.yaml"),
    ),
];

const INSTALL_EXAMPLES: &str = "\
Examples:
  Install:
    maglor install | kubectl apply --server-side -f -
    kubectl rollout status deployment/maglor-controller -n maglor
  Install with other images and one replica:
    maglor install --set image=registry.example/maglor-controller:1.2 \\
                   --set sidecar.image=registry.example/maglor-proxy:1.2 --set replicas=1 --set minAvailable=0
  Show all values:
    maglor install --values-only
  Require mutual TLS, after the CustomResourceDefinitions are installed:
    maglor install --set meshConfig.mtls=strict | kubectl apply --server-side -f -

Equivalent to `helm template deploy/chart` with these values, preceded by the namespace and the CustomResourceDefinitions.";

const UNINSTALL_EXAMPLES: &str = "\
Example:
  maglor uninstall sidecars
  kubectl delete apiservice -l app.kubernetes.io/part-of=maglor
  maglor uninstall | kubectl delete --ignore-not-found -f -
  kubectl delete configmap -A -l app.kubernetes.io/part-of=maglor

Run `maglor uninstall sidecars` first: it removes sidecars from all pods, and restores the Services of ProxyServices, for which the
controller must be running. Otherwise the webhooks are deleted first, so that pods can be created without the mesh, and pods
keep their sidecars until they are recreated. Policies are deleted with their CustomResourceDefinitions (--definitions);
otherwise both are kept. Delete external metrics (--set externalMetrics=true) first: no namespace can be deleted while a
part of the API is unavailable.";

#[derive(Debug, clap::Args)]
#[command(after_help = INSTALL_EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Print all values with their defaults and meaning, instead of manifests.
    #[arg(long)]
    values_only: bool,
    /// Leave out the CustomResourceDefinitions.
    #[arg(long)]
    skip_definitions: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = UNINSTALL_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct UninstallOptions {
    #[command(subcommand)]
    step: Option<UninstallStep>,

    #[command(flatten)]
    removal: Removal,
}

#[derive(Debug, clap::Args)]
struct Removal {
    #[command(flatten)]
    common: Common,
    /// Include the CustomResourceDefinitions; deleting them deletes all policies.
    #[arg(long)]
    definitions: bool,
}

#[derive(Debug, clap::Subcommand)]
enum UninstallStep {
    /// Restart workloads without sidecars, before uninstalling the mesh.
    Sidecars(Box<sidecars::Options>),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Namespace of the mesh.
    #[arg(short, long, value_name = "NAME", default_value = "maglor")]
    namespace: String,
    /// Set a value, such as replicas=3 or sidecar.logLevel=debug. Separate several values with commas; escape with `\,`
    /// and
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Read values from a file; --set takes precedence. May be repeated.
    #[arg(short = 'f', long = "values", value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum InstallError {
    #[error("{0}")]
    Definitions(#[from] maglor_controller::crd::DefinitionError),
    #[error("--namespace: invalid name `{0}`")]
    Namespace(String),
    #[error("{file}: {source}")]
    Read { file: String, source: io::Error },
    #[error("invalid values.schema.json in the chart: {0}")]
    Schema(serde_json::Error),
    #[error("invalid chart: {0}")]
    Template(#[from] TemplateError),
    #[error("invalid chart: {0}")]
    Yaml(#[from] serde_yaml::Error),
    #[error("{0}")]
    Values(#[from] ValuesError),
    #[error("--set sidecar: {0}")]
    Sidecar(#[from] maglor_manifests::inject::SettingsError),
}

/// Prints the installation manifests.
pub(crate) fn run(options: &Options) -> ExitCode {
    if options.values_only {
        output::print(VALUES);
        return ExitCode::SUCCESS;
    }
    print("install", install(options))
}

/// Prints the manifests to delete in order, or removes the sidecars.
pub(crate) fn uninstall(options: &UninstallOptions) -> ExitCode {
    match &options.step {
        None => print("uninstall", removal(&options.removal)),
        Some(UninstallStep::Sidecars(options)) => sidecars::run(options),
    }
}

fn print(command: &str, documents: Result<Vec<Value>, InstallError>) -> ExitCode {
    let text = documents.and_then(|documents| {
        let mut text = String::new();
        for document in documents {
            text.push_str("---\n");
            text.push_str(&maglor_manifests::inject::yaml::to_string(&document)?);
        }
        Ok(text)
    });
    match text {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("maglor {command}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn install(options: &Options) -> Result<Vec<Value>, InstallError> {
    let mut documents = vec![namespace(&options.common)?];
    if !options.skip_definitions {
        documents.extend(definitions()?);
    }
    documents.extend(chart(&options.common)?);
    Ok(documents)
}

fn removal(options: &Removal) -> Result<Vec<Value>, InstallError> {
    let mut documents = chart(&options.common)?;
    // Pods must not wait for a controller that is being deleted, and no namespace can be deleted
    // while an aggregated API server does not respond.
    documents.sort_by_key(|document| {
        let kind = document["kind"].as_str().unwrap_or_default();
        !(kind.ends_with("WebhookConfiguration") || kind == "APIService")
    });
    if options.definitions {
        documents.extend(definitions()?);
    }
    // A revision shares the namespace with the default control plane.
    if values(&options.common)?["revision"] == "" {
        documents.push(namespace(&options.common)?);
    }
    Ok(documents)
}

fn namespace(common: &Common) -> Result<Value, InstallError> {
    let name = &common.namespace;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() > 63
        || !bytes.iter().all(|byte| fits(*byte))
        || !edge(bytes.first())
        || !edge(bytes.last())
    {
        return Err(InstallError::Namespace(name.clone()));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {
            "app.kubernetes.io/part-of": "maglor",
            "pod-security.kubernetes.io/enforce": "restricted",
        }},
    }))
}

fn definitions() -> Result<Vec<Value>, InstallError> {
    let mut documents = Vec::new();
    for (_, text) in maglor_controller::crd::yaml()? {
        documents.push(serde_yaml::from_str(&text)?);
    }
    Ok(documents)
}

/// Returns the values of the chart, overridden by those of the options.
fn values(common: &Common) -> Result<Value, InstallError> {
    let mut chosen = Chosen::default();
    for file in &common.files {
        let place = file.display().to_string();
        let text = read_text(file).map_err(|source| InstallError::Read {
            file: place.clone(),
            source,
        })?;
        chosen.add_file(&place, &text)?;
    }
    for text in &common.sets {
        chosen.add_set(text)?;
    }
    let defaults = values::parse("values.yaml", VALUES)?;
    let schema = serde_json::from_str(SCHEMA).map_err(InstallError::Schema)?;
    Ok(chosen.over(defaults, &schema)?)
}

/// Renders the chart.
fn chart(common: &Common) -> Result<Vec<Value>, InstallError> {
    let chosen = values(common)?;
    // Settings that the controller would reject at its start are rejected here.
    maglor_manifests::inject::Settings::parse(&chosen["sidecar"].to_string())?;
    let data = json!({"Values": chosen, "Release": {"Namespace": common.namespace}});
    let mut documents = Vec::new();
    for (file, text) in TEMPLATES {
        let rendered = template::render(file, text, &data)?;
        for document in serde_yaml::Deserializer::from_str(&rendered) {
            let document = <Value as serde::Deserialize>::deserialize(document)?;
            // Only Helm executes hooks, and their objects do not persist.
            let is_hook = document["metadata"]["annotations"]["helm.sh/hook"].is_string();
            if !document.is_null() && !is_hook {
                documents.push(document);
            }
        }
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(sets: &[&str]) -> Common {
        Common {
            namespace: "maglor".to_owned(),
            sets: sets.iter().map(|text| (*text).to_owned()).collect(),
            files: Vec::new(),
        }
    }

    fn kinds(documents: &[Value]) -> Vec<&str> {
        documents
            .iter()
            .map(|one| one["kind"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn everything_is_ours_and_in_an_order_that_can_be_applied() {
        let options = Options {
            common: common(&[]),
            values_only: false,
            skip_definitions: false,
        };
        let documents = install(&options).unwrap();
        let kinds = kinds(&documents);
        assert_eq!(kinds[0], "Namespace");
        assert_eq!(kinds.last(), Some(&"ValidatingWebhookConfiguration"));
        let defined = kinds
            .iter()
            .rposition(|kind| *kind == "CustomResourceDefinition");
        assert!(defined < kinds.iter().position(|kind| *kind == "Deployment"));
        for document in documents
            .iter()
            .filter(|one| one["kind"] != "CustomResourceDefinition")
        {
            let labels = &document["metadata"]["labels"];
            let bound = document["kind"].as_str().unwrap().ends_with("Binding");
            assert!(
                bound || labels["app.kubernetes.io/part-of"] == "maglor",
                "{document}"
            );
        }
    }

    #[test]
    fn a_revision_is_removed_without_what_it_shares() {
        let options = Removal {
            common: common(&["revision=canary"]),
            definitions: false,
        };
        let documents = removal(&options).unwrap();
        let kinds = kinds(&documents);
        for shared in [
            "Namespace",
            "ServiceAccount",
            "ValidatingWebhookConfiguration",
        ] {
            assert!(!kinds.contains(&shared), "{shared}");
        }
        for document in &documents {
            let name = document["metadata"]["name"].as_str().unwrap();
            assert!(name.ends_with("-canary"), "{name}");
        }
    }

    #[test]
    fn the_webhooks_go_first() {
        let options = Removal {
            common: common(&[]),
            definitions: false,
        };
        let documents = removal(&options).unwrap();
        let kinds = kinds(&documents);
        assert_eq!(
            kinds[..2],
            [
                "MutatingWebhookConfiguration",
                "ValidatingWebhookConfiguration"
            ]
        );
        assert_eq!(kinds.last(), Some(&"Namespace"));
        assert!(!kinds.contains(&"CustomResourceDefinition"));
    }

    #[test]
    fn external_metrics_are_served_where_that_is_wanted() {
        let without = chart(&common(&[])).unwrap();
        assert!(!kinds(&without).contains(&"APIService"));
        let options = Removal {
            common: common(&["externalMetrics=true"]),
            definitions: false,
        };
        let with = removal(&options).unwrap();
        let at = kinds(&with).iter().position(|kind| *kind == "APIService");
        assert!(
            at < Some(3),
            "with the webhooks, before the controller: {at:?}"
        );
        let args = with.iter().find(|one| one["kind"] == "Deployment").unwrap();
        let args = &args["spec"]["template"]["spec"]["containers"][0]["args"];
        let args = args.as_array().unwrap();
        assert!(args.contains(&json!("--external-metrics=0.0.0.0:15013")));
    }

    #[test]
    fn values_reach_what_is_installed() {
        let documents = chart(&common(&[
            "replicas=3",
            "sidecar.logLevel=debug",
            "meshConfig.mtls=strict",
            "injection.failurePolicy=Ignore",
            "extraArgs={--log-format=json}",
        ]));
        let documents = documents.unwrap();
        let find = |kind: &str| documents.iter().find(|one| one["kind"] == kind).unwrap();
        let deployment = &find("Deployment")["spec"];
        assert_eq!(deployment["replicas"], 3);
        let args = &deployment["template"]["spec"]["containers"][0]["args"];
        assert_eq!(
            args.as_array().unwrap().last().unwrap(),
            "--log-format=json"
        );
        let args: Vec<_> = args
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect();
        let at = args.iter().position(|one| *one == "--sidecar").unwrap();
        let settings = maglor_manifests::inject::Settings::parse(args[at + 1]).unwrap();
        assert_eq!(settings.log_level, "debug");
        assert_eq!(find("MeshConfig")["spec"]["mtls"], "strict");
        let webhooks = find("MutatingWebhookConfiguration")["webhooks"]
            .as_array()
            .unwrap();
        assert!(webhooks.iter().all(|one| one["failurePolicy"] == "Ignore"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_it_is_installed() {
        for (set, expected) in [
            (
                "replica=3",
                "replica: unknown key; did you mean `replicas`?",
            ),
            (
                "sidecar.cpuLimit=lots",
                "sidecar.cpuLimit: \"lots\" is not a valid value: CPU",
            ),
            (
                "sidecar.cpuLimit=5m",
                "cpuRequest: `10m` exceeds the limit, `5m`",
            ),
            ("replicas", "must be KEY=VALUE"),
        ] {
            let error = chart(&common(&[set])).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The sidecar's defaults are defined in two places: the code, and the documented values of the chart.
    #[test]
    fn the_chart_has_the_defaults_of_settings() {
        let chosen = values::parse("values.yaml", VALUES).unwrap();
        let settings =
            maglor_manifests::inject::Settings::parse(&chosen["sidecar"].to_string()).unwrap();
        assert_eq!(settings, maglor_manifests::inject::Settings::default());
    }
}
