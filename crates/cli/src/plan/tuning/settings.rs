//! Recommended and current value of each setting.

use maglor_controller::recommended_policy;
use maglor_manifests::inject::keys::TUNED_BY;
use maglor_manifests::inject::yaml;
use maglor_service_graph::advise::{Advice, Advised, ContainerAdvice, Snapshot, TrafficAdvice};
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::split;
use crate::live::table::{Column, Row, or_dash};

/// A setting of a service.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    pub(super) service: String,
    /// Path of the setting in the resource.
    pub(super) setting: String,
    /// Current value; `None` if unknown.
    pub(super) now: Option<String>,
    pub(super) advised: String,
    pub(super) reason: String,
}

impl Row for Setting {
    const COLUMNS: &'static [Column] = &[
        Column::text("SERVICE"),
        Column::text("SETTING"),
        Column::number("NOW"),
        Column::number("ADVISED"),
        Column::text("REASON"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.service.clone(),
            self.setting.clone(),
            or_dash(self.now.clone()),
            self.advised.clone(),
            self.reason.clone(),
        ]
    }
}

/// Reason why current policies cannot be compared.
#[derive(Debug, Error)]
pub(super) enum CurrentError {
    #[error("{0}")]
    Yaml(#[from] yaml::ReadError),
    #[error("the file contains no TrafficPolicy")]
    Nothing,
}

/// The current policies.
#[derive(Debug)]
pub(super) struct Current {
    /// The policies, ordered by precedence.
    policies: Vec<Policy>,
}

#[derive(Debug)]
struct Policy {
    namespace: String,
    /// Services that the policy names; empty for all of the namespace.
    services: Vec<String>,
    level: Level,
    spec: Value,
}

/// How specific a policy is for a Service ("TrafficPolicy" in docs/policies.md).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Level {
    Service,
    Namespace,
    Generated,
}

impl Current {
    /// Parses documents or a list from kubectl, which may be empty.
    pub(super) fn read(text: &str, namespace: &str) -> Result<Self, CurrentError> {
        let (mut documents, mut lists) = (Vec::new(), false);
        for document in yaml::documents(text)? {
            let value = document.value;
            match value.get("items").and_then(Value::as_array) {
                Some(items) => {
                    lists |= items.is_empty();
                    documents.extend(items.iter().cloned());
                }
                None => documents.push(value),
            }
        }
        documents.retain(|document| document["kind"] == "TrafficPolicy");
        if documents.is_empty() && !lists {
            return Err(CurrentError::Nothing);
        }
        // Of two policies on one level, the older one takes precedence. The sort is stable.
        let age = |document: &Value| document["metadata"]["creationTimestamp"].to_string();
        documents.sort_by_key(age);
        let policies = documents.iter().map(|one| Policy::of(one, namespace));
        let mut policies: Vec<Policy> = policies.collect();
        policies.sort_by_key(|policy| policy.level);
        Ok(Self { policies })
    }

    /// Returns the effective settings of a Service, in which each field is that of the most specific policy that sets
    /// it.
    fn of(&self, namespace: &str, service: &str) -> Value {
        let names = |policy: &&Policy| {
            let all = policy.services.is_empty();
            policy.namespace == namespace
                && (all || policy.services.iter().any(|one| one == service))
        };
        let mut about: Vec<&Policy> = self.policies.iter().filter(names).collect();
        about.dedup_by_key(|policy| policy.level);
        let mut held = json!({"cluster": {}, "route": {}});
        for (policy, block) in about
            .iter()
            .rev()
            .flat_map(|policy| ["cluster", "route"].map(|block| (policy, block)))
        {
            for (field, value) in policy.spec[block].as_object().into_iter().flatten() {
                held[block][field] = value.clone();
            }
        }
        held
    }
}

impl Policy {
    fn of(document: &Value, namespace: &str) -> Self {
        let meta = &document["metadata"];
        let targets = document["spec"]["targetRefs"].as_array();
        let services = targets.into_iter().flatten();
        let services =
            services.map(|target| target["name"].as_str().unwrap_or_default().to_owned());
        let services: Vec<String> = services.collect();
        Self {
            namespace: meta["namespace"].as_str().unwrap_or(namespace).to_owned(),
            level: match (meta["labels"][TUNED_BY].is_null(), services.is_empty()) {
                (false, _) => Level::Generated,
                (true, false) => Level::Service,
                (true, true) => Level::Namespace,
            },
            services,
            spec: document["spec"].clone(),
        }
    }
}

/// Returns the settings of a service. If there are current policies, returns only settings that differ from them.
pub(super) fn rows(
    advice: &Advice,
    last: &Snapshot,
    current: Option<&Current>,
    namespace: &str,
) -> Vec<Setting> {
    let mut rows = resources(advice, last);
    if let Some(traffic) = &advice.traffic {
        let (namespace, name) = split(&advice.service, namespace);
        let spec = current.map(|current| current.of(namespace, name));
        rows.extend(self::traffic(&advice.service, traffic, spec.as_ref()));
    }
    for one in advice.split.iter().flat_map(|split| &split.versions) {
        rows.push(Setting {
            service: advice.service.clone(),
            setting: format!("splits.{}", one.name),
            now: Some(format!("{}%", one.present)),
            advised: format!("{}%", one.weight.value),
            reason: one.weight.reason.clone(),
        });
    }
    if current.is_some() {
        rows.retain(|row| row.now.as_ref() != Some(&row.advised));
    }
    rows
}

/// Replaces a reason that equals that of the previous line, for readability.
pub(super) fn each_reason_once(rows: &[Setting]) -> Vec<Setting> {
    let mut last = "";
    let mut once = rows.to_vec();
    for (shown, row) in once.iter_mut().zip(rows) {
        if row.reason == last {
            shown.reason = "as above".to_owned();
        }
        last = &row.reason;
    }
    once
}

/// Returns the containers with known usage, except the sidecar, whose requests the mesh sets.
pub(super) fn own(advice: &Advice) -> impl Iterator<Item = &ContainerAdvice> {
    let containers = advice.containers.iter();
    containers.filter(|one| one.name != maglor_manifests::inject::PROXY)
}

fn resources(advice: &Advice, last: &Snapshot) -> Vec<Setting> {
    let now = last.services.iter().find(|one| one.name == advice.service);
    let mut rows = Vec::new();
    let mut row =
        |setting: &str, now: Option<u64>, advised: Option<(String, &String)>, unit: &str| {
            if let Some((value, reason)) = advised {
                rows.push(Setting {
                    service: advice.service.clone(),
                    setting: setting.to_owned(),
                    now: now.filter(|now| *now > 0).map(|now| format!("{now}{unit}")),
                    advised: format!("{value}{unit}"),
                    reason: reason.clone(),
                });
            }
        };
    let replicas = now.map(|now| u64::from(now.replicas));
    let cpu = now.map(|now| now.cpu_millis);
    let memory = now.map(|now| now.memory_mib);
    let limit = now.and_then(|now| now.memory_limit_mib);
    row("replicas", replicas, said(advice.replicas.as_ref()), "");
    row("requests.cpu", cpu, said(advice.cpu_millis.as_ref()), "m");
    row(
        "requests.memory",
        memory,
        said(advice.memory_mib.as_ref()),
        "Mi",
    );
    row(
        "limits.memory",
        limit,
        said(advice.memory_limit_mib.as_ref()),
        "Mi",
    );
    for one in own(advice) {
        let setting = |what: &str| format!("containers.{}.{what}", one.name);
        row(&setting("cpu"), None, said(one.cpu_millis.as_ref()), "m");
        row(
            &setting("memory"),
            None,
            said(one.memory_mib.as_ref()),
            "Mi",
        );
    }
    rows
}

fn said<T: ToString>(advised: Option<&Advised<T>>) -> Option<(String, &String)> {
    advised.map(|advised| (advised.value.to_string(), &advised.reason))
}

/// Returns the fields of the policy, each with its reason.
fn traffic(service: &str, advice: &TrafficAdvice, spec: Option<&Value>) -> Vec<Setting> {
    let value = |block: Result<Value, _>| block.unwrap_or(Value::Null);
    let mut leaves = Vec::new();
    let cluster = value(serde_json::to_value(recommended_policy::cluster(advice)));
    let route = value(serde_json::to_value(recommended_policy::route(advice)));
    flatten("cluster", &cluster, &mut leaves);
    flatten("route", &route, &mut leaves);
    let row = |(path, value): (String, Value)| {
        let reason = reason(&path, advice)?;
        let now = spec.and_then(|spec| spec.pointer(&format!("/{}", path.replace('.', "/"))));
        Some(Setting {
            service: service.to_owned(),
            now: now.filter(|now| !now.is_null()).map(text),
            advised: text(&value),
            setting: path,
            reason,
        })
    };
    leaves.into_iter().filter_map(row).collect()
}

fn flatten(path: &str, value: &Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&format!("{path}.{name}"), value, leaves);
            }
        }
        value => leaves.push((path.to_owned(), value.clone())),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        // 50.0 and 50 are the same number.
        value => value
            .as_f64()
            .map_or_else(|| value.to_string(), |number| number.to_string()),
    }
}

/// Returns the reason of a field; `None` for fields that only qualify another one.
fn reason(path: &str, advice: &TrafficAdvice) -> Option<String> {
    let breaker = || Some(advice.breaker.as_ref()?.reason.clone());
    let retry = || Some(advice.retry.as_ref()?.reason.clone());
    match path {
        "cluster.limits.max_connections" => Some(advice.max_connections.reason.clone()),
        "cluster.limits.max_pending_requests" => Some(advice.max_pending_requests.reason.clone()),
        "cluster.limits.max_requests" => Some(advice.max_requests.reason.clone()),
        "cluster.limits.queue_timeout" => Some(advice.queue_timeout.reason.clone()),
        "cluster.max_idle_connections" => Some(advice.max_idle_connections.reason.clone()),
        "cluster.slow_start.window" => Some(advice.slow_start.reason.clone()),
        "route.timeout" => Some(advice.timeout.reason.clone()),
        "cluster.panic_threshold" => breaker(),
        path if path.starts_with("cluster.circuit_breaker.") => breaker(),
        path if path.starts_with("cluster.outlier_ejection.") => breaker(),
        path if path.starts_with("cluster.retry_budget.") => retry(),
        path if path.starts_with("route.retry.") => retry(),
        _ => None,
    }
}
