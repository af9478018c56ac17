//! Formats recommendations as resources, with reasons as comments.

use std::fmt::Write as _;

use maglor_controller::recommended_policy;
use maglor_manifests::istio::{Written, destination_rule, virtual_service};
use maglor_service_graph::advise::{Advice, Advised, SplitAdvice};
use serde_json::{Map, Value, json};

use super::settings::{Setting, own};
use super::split;

/// Writes TrafficPolicies, routes that split requests, and patches of Deployments.
pub(super) fn maglor(advice: &[&Advice], rows: &[Setting], namespace: &str) -> String {
    each(advice, rows, namespace, |text, one| {
        let (namespace, name) = split(&one.service, namespace);
        if let Some(traffic) = &one.traffic {
            let policy = recommended_policy::traffic_policy(namespace, name, traffic);
            let policy = serde_json::to_value(policy).unwrap_or_default();
            reasons(text, &one.service, rows, is_traffic);
            document(text, policy);
        }
        if let Some(divided) = &one.split {
            reasons(text, &one.service, rows, is_split);
            // The Gateway API has no subsets.
            match divided.versions.iter().any(|version| version.subset) {
                true => document(text, virtual_service_of(namespace, name, divided)),
                false => document(text, http_route(namespace, name, divided)),
            }
        }
    })
}

/// Writes DestinationRules and VirtualServices, as in Fig. 5 of the paper, and the same patches.
pub(super) fn istio(advice: &[&Advice], rows: &[Setting], namespace: &str) -> String {
    each(advice, rows, namespace, |text, one| {
        let (namespace, name) = split(&one.service, namespace);
        let Some(traffic) = &one.traffic else {
            if let Some(divided) = &one.split {
                reasons(text, &one.service, rows, is_split);
                document(text, virtual_service_of(namespace, name, divided));
            }
            return;
        };
        let mut rule = destination_rule(name, &recommended_policy::cluster(traffic));
        let mut service = virtual_service(name, &recommended_policy::route(traffic));
        if let Some(divided) = &one.split {
            let subsets = subsets(divided);
            if !subsets.is_empty() {
                rule.spec["subsets"] = json!(subsets);
            }
            service.spec["http"][0]["route"] = destinations(name, divided);
        }
        reasons(text, &one.service, rows, |setting| {
            setting.starts_with("cluster.")
        });
        resource(text, "DestinationRule", (namespace, name), &rule);
        reasons(text, &one.service, rows, |setting| {
            setting.starts_with("route.") || is_split(setting)
        });
        resource(text, "VirtualService", (namespace, name), &service);
    })
}

/// Returns a route that splits requests among Services.
fn http_route(namespace: &str, name: &str, divided: &SplitAdvice) -> Value {
    let backends = divided.versions.iter().map(|version| {
        json!({"name": version.name, "port": divided.port, "weight": version.weight.value})
    });
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": format!("{name}-generated"), "namespace": namespace},
        "spec": {
            "parentRefs": [{"group": "", "kind": "Service", "name": name, "port": divided.port}],
            "rules": [{"backendRefs": backends.collect::<Vec<Value>>()}],
        },
    })
}

/// Returns a route that splits requests among Services or subsets.
fn virtual_service_of(namespace: &str, name: &str, divided: &SplitAdvice) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": format!("{name}-generated"), "namespace": namespace},
        "spec": {"hosts": [name], "http": [{"route": destinations(name, divided)}]},
    })
}

fn destinations(name: &str, divided: &SplitAdvice) -> Value {
    let each = divided.versions.iter().map(|version| {
        let destination = match version.subset {
            true => json!({"host": name, "subset": version.name}),
            false => json!({"host": version.name}),
        };
        json!({"destination": destination, "weight": version.weight.value})
    });
    Value::Array(each.collect())
}

/// Returns subsets, selected by the label that Istio's own examples use.
fn subsets(divided: &SplitAdvice) -> Vec<Value> {
    let subsets = divided.versions.iter().filter(|version| version.subset);
    let subset = |name: &str| json!({"name": name, "labels": {"version": name}});
    subsets.map(|version| subset(&version.name)).collect()
}

/// Writes the patch of each Deployment, followed by the traffic settings.
fn each(
    advice: &[&Advice],
    rows: &[Setting],
    namespace: &str,
    mut write: impl FnMut(&mut String, &Advice),
) -> String {
    let mut text = String::new();
    for one in advice {
        deployment(&mut text, one, rows, namespace);
        write(&mut text, one);
    }
    text
}

fn resource(text: &mut String, kind: &str, (namespace, name): (&str, &str), written: &Written) {
    if !written.left_out.is_empty() {
        let fields = written.left_out.join(", ");
        let _ = writeln!(text, "# Not expressible in Istio: {fields}");
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

/// Returns the requests of the Deployment's containers: those of each container if they are known, otherwise all of
/// them for the container with the service's name.
fn containers(advice: &Advice, name: &str) -> Vec<Value> {
    let amounts = |cpu: Option<&Advised<u64>>, memory: Option<&Advised<u64>>| {
        let cpu = cpu.map(|cpu| ("cpu", json!(format!("{}m", cpu.value))));
        let memory = memory.map(|memory| ("memory", json!(format!("{}Mi", memory.value))));
        let amounts: Map<String, Value> = cpu
            .into_iter()
            .chain(memory)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        (!amounts.is_empty()).then_some(amounts)
    };
    let each = own(advice).filter_map(|one| {
        let requests = amounts(one.cpu_millis.as_ref(), one.memory_mib.as_ref())?;
        Some(json!({"name": one.name, "resources": {"requests": requests}}))
    });
    let mut containers: Vec<Value> = each.collect();
    if own(advice).next().is_none() {
        let requests = amounts(advice.cpu_millis.as_ref(), advice.memory_mib.as_ref());
        containers.extend(
            requests.map(|requests| json!({"name": name, "resources": {"requests": requests}})),
        );
    }
    // The container that has the limit is known only if there is a single one.
    if let (Some(limit), [one]) = (&advice.memory_limit_mib, &mut containers[..]) {
        one["resources"]["limits"] = json!({"memory": format!("{}Mi", limit.value)});
    }
    containers
}

/// Writes a patch of the Deployment with the service's name.
fn deployment(text: &mut String, advice: &Advice, rows: &[Setting], namespace: &str) {
    let (namespace, name) = split(&advice.service, namespace);
    let mut spec = Map::new();
    if let Some(replicas) = &advice.replicas {
        spec.insert("replicas".to_owned(), json!(replicas.value));
    }
    let containers = containers(advice, name);
    if !containers.is_empty() {
        let template = json!({"spec": {"containers": containers}});
        spec.insert("template".to_owned(), template);
    }
    if spec.is_empty() {
        return;
    }
    reasons(text, &advice.service, rows, |setting| {
        !is_traffic(setting) && !is_split(setting)
    });
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

fn is_split(setting: &str) -> bool {
    setting.starts_with("splits.")
}

fn is_traffic(setting: &str) -> bool {
    setting.starts_with("cluster.") || setting.starts_with("route.")
}

/// Begins a document with a comment that contains the reasons of its contents without repetitions.
fn reasons(text: &mut String, service: &str, rows: &[Setting], of: impl Fn(&str) -> bool) {
    text.push_str("---\n");
    let mut last = "";
    for row in rows
        .iter()
        .filter(|row| row.service == service && of(&row.setting))
    {
        if row.reason != last {
            let line = format!("# {} {}: {}", row.setting, row.advised, row.reason);
            // Names come from a file, and a line break would end the comment.
            text.push_str(&line.replace(char::is_control, " "));
            text.push('\n');
        }
        last = &row.reason;
    }
}

fn document(text: &mut String, value: Value) {
    text.push_str(&maglor_manifests::inject::yaml::to_string(&pruned(value)).unwrap_or_default());
}

/// Removes fields that are not set.
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
