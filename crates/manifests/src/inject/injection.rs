//! Decides whether a pod gets a sidecar, and injects it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::inject::annotations::{self, Namespace, texts};
use crate::inject::container;
use crate::inject::outcome::{Injected, Outcome, Refusal, Skip};
use crate::inject::pod_spec::{add_variables, check, containers, list, object};
use crate::inject::probe;
use crate::inject::repair::repair;
use crate::inject::settings::{ADMIN_PORT, Form, NAMESPACE, Redirect, Settings, TRUST_DOMAIN};
use crate::inject::{INJECT, INJECTED, INJECTED_BY, PROXY, SKIP_INBOUND_PORTS};

/// Injects a sidecar into a pod or pod template.
///
/// Injection is idempotent: a pod that already has its sidecar is changed only where other webhooks have added
/// something.
///
/// # Errors
/// A feature of the pod that is incompatible with a sidecar, or an invalid setting.
pub fn inject(pod: &Value, namespace: &Namespace, settings: &Settings) -> Result<Outcome, Refusal> {
    let annotations = texts(&pod["metadata"]["annotations"]);
    let label = pod["metadata"]["labels"][INJECT].as_str();
    let label = annotations::enabled(label)?;
    let annotation = annotations::enabled(annotations.get(INJECT).map(String::as_str))?;
    // If label and annotation of a pod differ, the more careful one takes precedence.
    let own = match (label, annotation) {
        (Some(label), Some(annotation)) => Some(label && annotation),
        (label, annotation) => label.or(annotation),
    };
    match own.or(namespace.enabled) {
        Some(true) => {}
        Some(false) => return Ok(Outcome::Skipped(Skip::Disabled)),
        None => return Ok(Outcome::Skipped(Skip::NotEnabled)),
    }
    let spec = &pod["spec"];
    if containers(spec).any(|(_, one)| one["name"] == PROXY) {
        let repaired = repair(pod, namespace, settings, &annotations)?;
        let skipped = Outcome::Skipped(Skip::AlreadyInjected);
        return Ok(repaired.map_or(skipped, Outcome::Repaired));
    }
    if spec["hostNetwork"] == true {
        return Ok(Outcome::Skipped(Skip::HostNetwork));
    }
    let system = spec["os"]["name"].as_str();
    let system = system.or_else(|| spec["nodeSelector"]["kubernetes.io/os"].as_str());
    if system.is_some_and(|system| system != "linux") {
        return Ok(Outcome::Skipped(Skip::OtherSystem));
    }
    check(spec, |_, _| false)?;
    let mut settings = annotations::apply(settings, &namespace.annotations, &annotations)?;
    settings.complete(NAMESPACE, TRUST_DOMAIN);
    add(pod.clone(), &settings, &annotations).map(Outcome::Injected)
}

fn add(
    mut pod: Value,
    settings: &Settings,
    said: &BTreeMap<String, String>,
) -> Result<Injected, Refusal> {
    let mut notes = Vec::new();
    let whole = object(Some(&mut pod), "")?;
    let spec = object(whole.get_mut("spec"), "spec")?;
    let first = spec.get("containers").map(|list| &list[0]["name"]);
    let first = first.and_then(Value::as_str).map(str::to_owned);
    let mut probes = Vec::new();
    for field in ["initContainers", "containers"] {
        for (at, one) in list(spec, field)?.iter_mut().enumerate() {
            let path = format!("spec.{field}[{at}]");
            let one = object(Some(one), &path)?;
            match container::environment(settings) {
                None => probes.extend(probe::rewrite(one, settings, &mut notes)),
                Some(variables) => add_variables(one, variables, &path)?,
            }
        }
    }
    let proxy = container::proxy(settings, probes);
    let mut before = Vec::new();
    if settings.redirect == Redirect::Nftables {
        before.push(container::init(settings));
    }
    match settings.form {
        Form::Container => {
            list(spec, "containers")?.insert(0, proxy);
            let restart = spec.get("restartPolicy").and_then(Value::as_str);
            if restart.is_some_and(|policy| policy != "Always") {
                notes.push(
                    "the pod completes only when the sidecar exits: POST http://localhost:15020/drain at the end".to_owned(),
                );
            }
        }
        Form::Auto | Form::Native => before.push(proxy),
    }
    if spec
        .get("dnsPolicy")
        .is_some_and(|policy| policy == "Default")
    {
        notes.push(
            "dnsPolicy: Default: the sidecar does not become ready if the node's DNS cannot resolve the controller".to_owned(),
        );
    }
    let init = list(spec, "initContainers")?;
    // Redirected connections fail until a plain container runs, so the pod's own init containers run first then.
    let at = match settings.form {
        Form::Container => init.len(),
        Form::Auto | Form::Native => 0,
    };
    init.splice(at..at, before);
    if init.is_empty() {
        spec.remove("initContainers");
    }
    list(spec, "volumes")?.extend(container::volumes());
    mark(whole, settings, said, first)?;
    Ok(Injected { pod, notes })
}

/// The prefix of annotations by which Prometheus finds pods, in its usual configuration for a cluster.
const PROMETHEUS: &str = "prometheus.io/";

/// Returns the annotations by which Prometheus finds the metrics of a proxy.
#[must_use]
pub fn prometheus_annotations() -> Map<String, Value> {
    let all = [
        ("scrape", "true".to_owned()),
        ("port", ADMIN_PORT.to_string()),
        ("path", "/metrics".to_owned()),
    ];
    let named = |(name, value)| (format!("{PROMETHEUS}{name}"), json!(value));
    all.into_iter().map(named).collect()
}

/// Returns whether a pod already has annotations for Prometheus, which can name only one port.
fn is_annotated(annotations: &Map<String, Value>) -> bool {
    annotations.keys().any(|name| name.starts_with(PROMETHEUS))
}

/// Records the injection in the annotations of the pod.
fn mark(
    pod: &mut Map<String, Value>,
    settings: &Settings,
    said: &BTreeMap<String, String>,
    first: Option<String>,
) -> Result<(), Refusal> {
    const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
    let metadata = pod.entry("metadata").or_insert_with(|| json!({}));
    let metadata = object(Some(metadata), "metadata")?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    let annotations = object(Some(annotations), "metadata.annotations")?;
    let word = match settings.redirect {
        // Peers use mutual TLS to pods with the value `true`.
        Redirect::Nftables => "true",
        Redirect::None => "outbound",
    };
    annotations.insert(INJECTED.to_owned(), json!(word));
    if !settings.revision.is_empty() {
        annotations.insert(INJECTED_BY.to_owned(), json!(settings.revision));
    }
    if !settings.skip_inbound_ports.is_empty() {
        let skipped = json!(settings.skip_inbound_ports);
        annotations.insert(SKIP_INBOUND_PORTS.to_owned(), skipped);
    }
    if settings.prometheus_annotations && !is_annotated(annotations) {
        annotations.extend(prometheus_annotations());
    }
    if settings.form == Form::Container
        && !said.contains_key(DEFAULT_CONTAINER)
        && let Some(first) = first
    {
        annotations.insert(DEFAULT_CONTAINER.to_owned(), json!(first));
    }
    Ok(())
}
