//! Injects sidecars into manifest files: `maglor inject`.
//!
//! Documents are processed one by one; every pod and pod template gets a sidecar unless it disables injection. The
//! command replaces the label of the namespace, which injection in a cluster requires. Comments are lost.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::inject::keys::{self, Fault};
use crate::inject::template::template;
use crate::inject::{Injected, Namespace, Outcome, Refusal, Settings, inject, yaml};

/// The reason why a file cannot be processed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A pod cannot have a sidecar.
    #[error("document {document} at line {line}: {resource}: {source}")]
    Refused {
        /// The number of the document, from 1.
        document: usize,
        /// The line where the document begins, from 1.
        line: usize,
        /// The kind and name of the object, `KIND NAME`.
        resource: String,
        /// The reason why the pod cannot have a sidecar.
        source: Refusal,
    },
    /// The file is not valid YAML for Kubernetes.
    #[error(transparent)]
    Syntax(#[from] yaml::ReadError),
    /// The result cannot be written.
    #[error("document {document}: {source}")]
    Written {
        /// The number of the document, from 1.
        document: usize,
        /// The error of the YAML writer.
        source: serde_yaml::Error,
    },
}

/// A manifest file after injection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    /// All documents as YAML.
    pub text: String,
    /// One line about each pod, `deployment/web: injected`, preceded by the mesh's labels and annotations that are
    /// unknown or misplaced.
    pub report: Vec<String>,
}

/// Injects sidecars into the pods of YAML or JSON documents.
///
/// # Errors
/// The error of the first document that cannot be read, or whose pod cannot have a sidecar.
pub fn inject_all(text: &str, settings: &Settings) -> Result<Manifest, ManifestError> {
    let mut documents = yaml::documents(text)?;
    let mut namespaces = BTreeMap::new();
    for (at, document) in documents.iter().enumerate() {
        for object in objects(&document.value).filter(|one| one["kind"] == "Namespace") {
            let namespace = Namespace::read(object);
            let namespace =
                namespace.map_err(|source| refused(at, document.line, object, source))?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            namespaces.insert(name.to_owned(), namespace);
        }
    }
    let mut manifest = Manifest {
        text: String::new(),
        report: Vec::new(),
    };
    for (at, document) in documents.iter_mut().enumerate() {
        for object in objects_mut(&mut document.value) {
            let misread = misread(object).map_err(|why| refused(at, document.line, object, why))?;
            manifest.report.extend(misread);
            if let Some(line) = inject_one(object, &namespaces, settings)
                .map_err(|source| refused(at, document.line, object, source))?
            {
                manifest.report.push(line);
            }
        }
        let written = yaml::to_string(&document.value);
        let written = written.map_err(|source| ManifestError::Written {
            document: at + 1,
            source,
        })?;
        if at > 0 {
            manifest.text.push_str("---\n");
        }
        manifest.text.push_str(&written);
    }
    Ok(manifest)
}

fn refused(at: usize, line: usize, object: &Value, source: Refusal) -> ManifestError {
    ManifestError::Refused {
        document: at + 1,
        line,
        resource: called(object),
        source,
    }
}

fn called(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("document").to_lowercase();
    let metadata = &object["metadata"];
    let name = metadata["name"]
        .as_str()
        .or_else(|| metadata["generateName"].as_str());
    format!("{kind}/{}", name.unwrap_or("without-name"))
}

/// Returns the unknown and misplaced labels and annotations of an object, one line each.
///
/// # Errors
/// If a value is invalid.
fn misread(object: &Value) -> Result<Vec<String>, Refusal> {
    let name = called(object);
    let line = |finding: keys::Finding| match finding.fault {
        Fault::Value { name, reason } => Err(Refusal::Annotation { name, reason }),
        Fault::Misplaced { .. } | Fault::Unknown { .. } => Ok(format!("{name}: {finding}")),
    };
    keys::check(object).into_iter().map(line).collect()
}

/// Injects a sidecar into the pod of an object. Returns a report; `None` if the object has no pod.
fn inject_one(
    object: &mut Value,
    namespaces: &BTreeMap<String, Namespace>,
    settings: &Settings,
) -> Result<Option<String>, Refusal> {
    let name = called(object);
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    let mut namespace = namespaces.get(namespace).cloned().unwrap_or_default();
    namespace.enabled.get_or_insert(true);
    let Some(pod) = pod(object) else {
        return Ok(None);
    };
    let line = match inject(pod, &namespace, settings)? {
        Outcome::Skipped(why) => format!("{name}: skipped: {why}"),
        Outcome::Injected(injected) => put(&name, "injected", pod, injected),
        Outcome::Repaired(injected) => put(&name, "repaired", pod, injected),
    };
    Ok(Some(line))
}

/// Replaces a pod by the injected one; returns the report.
fn put(name: &str, done: &str, pod: &mut Value, injected: Injected) -> String {
    *pod = injected.pod;
    let notes = injected.notes.iter().map(|note| format!("; {note}"));
    format!("{name}: {done}{}", notes.collect::<String>())
}

/// Returns the pod, or the pod template, of an object.
fn pod(object: &mut Value) -> Option<&mut Value> {
    let path = template(object["kind"].as_str()?)?;
    object.pointer_mut(path)
}

/// Returns the object, or the objects of a list.
fn objects(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value["items"].as_array().filter(|_| is_list(value));
    let one = items.is_none().then_some(value);
    items.into_iter().flatten().chain(one)
}

fn objects_mut(value: &mut Value) -> Vec<&mut Value> {
    match is_list(value) {
        true => match value.get_mut("items") {
            Some(Value::Array(items)) => items.iter_mut().collect(),
            _ => Vec::new(),
        },
        false => vec![value],
    }
}

fn is_list(value: &Value) -> bool {
    let kind = value["kind"].as_str();
    kind.is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENT: &str = "\
# A comment.
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers: [{name: web}]
";

    fn done(text: &str) -> Manifest {
        inject_all(text, &Settings::default()).unwrap()
    }

    #[test]
    fn every_kind_with_a_pod_gets_a_sidecar() {
        let pod = "spec: {containers: [{name: web}]}";
        for text in [
            format!("{{kind: Pod, metadata: {{name: web}}, {pod}}}"),
            DEPLOYMENT.to_owned(),
            DEPLOYMENT.replace("Deployment", "StatefulSet"),
            DEPLOYMENT.replace("Deployment", "DaemonSet"),
            DEPLOYMENT.replace("Deployment", "ReplicaSet"),
            DEPLOYMENT.replace("Deployment", "Job"),
            format!(
                "{{kind: CronJob, metadata: {{name: web}}, spec: {{jobTemplate: {{spec: {{template: {{{pod}}}}}}}}}}}"
            ),
            format!("{{kind: List, items: [{{kind: Pod, metadata: {{name: web}}, {pod}}}]}}"),
            format!("{{kind: PodList, items: [{{kind: Pod, metadata: {{name: web}}, {pod}}}]}}"),
        ] {
            let manifest = done(&text);
            assert_eq!(manifest.report.len(), 1, "{text}");
            assert!(
                manifest.report[0].ends_with("/web: injected"),
                "{manifest:?}"
            );
            assert!(
                manifest.text.contains("name: maglor-proxy"),
                "{}",
                manifest.text
            );
            let again = done(&manifest.text);
            assert_eq!(again.text, manifest.text, "twice is once");
        }
    }

    #[test]
    fn what_has_no_pod_or_wants_none_stays() {
        let service = "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n";
        let manifest = done(&format!("---\n# nothing\n{service}---\n{DEPLOYMENT}"));
        assert!(
            manifest.text.starts_with("apiVersion: v1\nkind: Service\n"),
            "{}",
            manifest.text
        );
        assert_eq!(manifest.report, ["deployment/web: injected"]);
        let off =
            "kind: Namespace\nmetadata: {name: shop, labels: {maglor.dev/inject: disabled}}\n---\n";
        let manifest = done(&format!("{off}{DEPLOYMENT}"));
        assert!(!manifest.text.contains("maglor-proxy"));
        assert!(manifest.report[0].contains("skipped: `maglor.dev/inject` is `disabled`"));
        assert_eq!(done("").text, "");
    }

    #[test]
    fn what_kubernetes_reads_is_what_it_was() {
        let text = "\
kind: Pod
metadata: {name: web, annotations: {redirect: \"on\"}}
spec:
  containers: [{name: web, stdin: yes, env: [{name: A, value: 'no'}]}]
  volumes: [{name: v, secret: {secretName: s, defaultMode: 0644}}]
";
        let manifest = done(text);
        for line in [
            "    redirect: 'on'",
            "    stdin: true",
            "      value: 'no'",
            "      defaultMode: 420",
        ] {
            let there = manifest.text.lines().any(|one| one == line);
            assert!(there, "{line} in\n{}", manifest.text);
        }
    }

    #[test]
    fn unknown_keys_are_reported_and_invalid_ones_rejected() {
        let said = |line: &str| {
            let metadata = format!("  template:\n    metadata: {{annotations: {{{line}}}}}\n");
            inject_all(
                &DEPLOYMENT.replace("  template:\n", &metadata),
                &Settings::default(),
            )
        };
        let manifest = said("maglor.dev/skip-inbound-port: '22'").unwrap();
        assert_eq!(manifest.report.len(), 2);
        let expected = "deployment/web: spec.template.metadata.annotations.maglor.dev/skip-inbound-port: unknown";
        assert!(manifest.report[0].starts_with(expected), "{manifest:?}");
        assert_eq!(manifest.report[1], "deployment/web: injected");
        for (line, expected) in [
            (
                "maglor.dev/log-level: 1",
                "maglor.dev/log-level: must be a string",
            ),
            (
                "maglor.dev/tuning: 'no'",
                "maglor.dev/tuning: unknown value `no`, expected one of",
            ),
        ] {
            let error = said(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn errors_name_document_and_line() {
        let refused = DEPLOYMENT.replace(
            "{name: web}]",
            "{name: web, ports: [{containerPort: 15001}]}]",
        );
        for (text, expected) in [
            (format!("{DEPLOYMENT}---\na: [\n"), "document 2 at line 1"),
            (
                format!("{DEPLOYMENT}---\n{refused}"),
                "document 2 at line 9: deployment/web: web: port 15001 is reserved for the sidecar",
            ),
            (
                "kind: Pod\nmetadata: {name: a}\nspec: {containers: 1}".to_owned(),
                "document 1 at line 1: pod/a: spec.containers: must be a list",
            ),
        ] {
            let error = inject_all(&text, &Settings::default())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = inject_all(&format!("{DEPLOYMENT}---\na: [\nb\n"), &Settings::default());
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("line 11") || error.contains("line 12"),
            "{error}"
        );
    }
}
