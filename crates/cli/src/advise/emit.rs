//! What is advised, as resources. Reasons are comments.

use std::fmt::Write as _;

use maglor_controller::generated;
use maglor_istio::{Written, destination_rule, virtual_service};
use maglor_mcg::advise::{Advice, TrafficAdvice};
use serde_json::{Map, Value, json};

use super::settings::Setting;
use super::split;

/// TrafficPolicies, and patches of Deployments.
pub(super) fn maglor(advice: &[&Advice], rows: &[Setting], namespace: &str) -> String {
    each(advice, rows, namespace, |text, one, traffic| {
        let (namespace, name) = split(&one.service, namespace);
        let policy = generated::traffic_policy(namespace, name, traffic);
        let policy = serde_json::to_value(policy).unwrap_or_default();
        reasons(text, &one.service, rows, is_traffic);
        document(text, policy);
    })
}

/// DestinationRules and VirtualServices, as in the paper's Fig. 5, and the same patches.
pub(super) fn istio(advice: &[&Advice], rows: &[Setting], namespace: &str) -> String {
    each(advice, rows, namespace, |text, one, traffic| {
        let (namespace, name) = split(&one.service, namespace);
        let rule = destination_rule(name, &generated::cluster(traffic));
        let service = virtual_service(name, &generated::route(traffic));
        reasons(text, &one.service, rows, |setting| {
            setting.starts_with("cluster.")
        });
        resource(text, "DestinationRule", (namespace, name), &rule);
        reasons(text, &one.service, rows, |setting| {
            setting.starts_with("route.")
        });
        resource(text, "VirtualService", (namespace, name), &service);
    })
}

/// The patch of each Deployment, and behind it what is written of the traffic, where something is advised for it.
fn each(
    advice: &[&Advice],
    rows: &[Setting],
    namespace: &str,
    mut write: impl FnMut(&mut String, &Advice, &TrafficAdvice),
) -> String {
    let mut text = String::new();
    for one in advice {
        deployment(&mut text, one, rows, namespace);
        if let Some(traffic) = &one.traffic {
            write(&mut text, one, traffic);
        }
    }
    text
}

fn resource(text: &mut String, kind: &str, (namespace, name): (&str, &str), written: &Written) {
    if !written.left_out.is_empty() {
        let fields = written.left_out.join(", ");
        let _ = writeln!(text, "# Istio has no word for: {fields}");
    }
    document(
        text,
        json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": kind,
            "metadata": {"name": format!("{name}-generated"), "namespace": namespace},
            "spec": written.spec,
        }),
    );
}

/// A patch of the Deployment with the service's name and its container of the same name.
fn deployment(text: &mut String, advice: &Advice, rows: &[Setting], namespace: &str) {
    let (namespace, name) = split(&advice.service, namespace);
    let mut requests = Map::new();
    if let Some(cpu) = &advice.cpu_millis {
        requests.insert("cpu".to_owned(), json!(format!("{}m", cpu.value)));
    }
    if let Some(memory) = &advice.memory_mib {
        requests.insert("memory".to_owned(), json!(format!("{}Mi", memory.value)));
    }
    let mut spec = Map::new();
    if let Some(replicas) = &advice.replicas {
        spec.insert("replicas".to_owned(), json!(replicas.value));
    }
    if !requests.is_empty() {
        let mut resources = json!({"requests": requests});
        if let Some(limit) = &advice.memory_limit_mib {
            resources["limits"] = json!({"memory": format!("{}Mi", limit.value)});
        }
        let containers = json!([{"name": name, "resources": resources}]);
        let template = json!({"spec": {"containers": containers}});
        spec.insert("template".to_owned(), template);
    }
    if spec.is_empty() {
        return;
    }
    reasons(text, &advice.service, rows, |setting| !is_traffic(setting));
    document(
        text,
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }),
    );
}

fn is_traffic(setting: &str) -> bool {
    setting.starts_with("cluster.") || setting.starts_with("route.")
}

/// Begins a document with the reasons of what is in it; each reason once.
fn reasons(text: &mut String, service: &str, rows: &[Setting], of: impl Fn(&str) -> bool) {
    text.push_str("---\n");
    let mut last = "";
    for row in rows
        .iter()
        .filter(|row| row.service == service && of(&row.setting))
    {
        if row.reason != last {
            let _ = writeln!(text, "# {} {}: {}", row.setting, row.advised, row.reason);
        }
        last = &row.reason;
    }
}

fn document(text: &mut String, value: Value) {
    text.push_str(&maglor_inject::yaml::to_string(&pruned(value)).unwrap_or_default());
}

/// Without what is not set.
fn pruned(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(name, value)| (name, pruned(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(pruned).collect()),
        value => value,
    }
}
