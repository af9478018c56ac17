//! Translates our configuration into a `DestinationRule` and a `VirtualService`, as in the paper's Fig. 5.
//!
//! Fields that Istio does not have are omitted and listed. Reading the written fields yields the original ones.

use maglor_config::raw::{self, TimeSpan};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::istio::{DestinationRule, VirtualService};

/// A written `spec`, with the fields that it omits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// The `spec` of the resource.
    pub spec: Value,
    /// The paths of our fields that Istio does not have, or interprets differently.
    pub left_out: Vec<String>,
}

/// Writes the settings of connections to a host as a `DestinationRule`.
#[must_use]
pub fn destination_rule(host: &str, cluster: &raw::Cluster) -> Written {
    let limits = cluster.limits.clone().unwrap_or_default();
    let tcp = block([
        ("maxConnections", limits.max_connections.map(Value::from)),
        ("connectTimeout", time(cluster.connect_timeout)),
    ]);
    let http = block([
        (
            "http1MaxPendingRequests",
            limits.max_pending_requests.map(Value::from),
        ),
        ("http2MaxRequests", limits.max_requests.map(Value::from)),
        ("maxRetries", limits.max_retries.map(Value::from)),
        (
            "maxRequestsPerConnection",
            cluster.max_requests_per_connection.map(Value::from),
        ),
        (
            "maxConcurrentStreams",
            cluster.max_concurrent_streams.map(Value::from),
        ),
        ("idleTimeout", time(cluster.idle_timeout)),
    ]);
    let policy = block([
        ("connectionPool", block([("tcp", tcp), ("http", http)])),
        ("outlierDetection", outliers(cluster)),
        ("loadBalancer", balancer(cluster)),
    ]);
    let spec = block([("host", Some(json!(host))), ("trafficPolicy", policy)]).unwrap_or_default();
    let read = DestinationRule::read(&spec).value.unwrap_or_default();
    let left_out = differences(cluster, &read.settings(80, None).cluster);
    Written { spec, left_out }
}

/// Writes the routing of requests to a host as a `VirtualService` with one route.
#[must_use]
pub fn virtual_service(host: &str, route: &raw::Route) -> Written {
    let retries = route.retry.as_ref().and_then(|raw::Short(retry)| {
        let words = retry.retry_on.as_ref().map(|list| json!(list.0.join(",")));
        block([
            ("attempts", retry.attempts.map(Value::from)),
            ("perTryTimeout", time(retry.per_try_timeout)),
            ("retryOn", words),
        ])
    });
    let rule = block([
        ("route", Some(json!([{"destination": {"host": host}}]))),
        ("timeout", time(route.timeout)),
        ("retries", retries),
    ]);
    let spec = json!({"hosts": [host], "http": [rule]});
    let read = VirtualService::read(&spec).value.unwrap_or_default();
    let read = read.rules.into_iter().next().unwrap_or_default().action;
    let left_out = differences(route, &read);
    Written { spec, left_out }
}

fn outliers(cluster: &raw::Cluster) -> Option<Value> {
    let ejection = cluster.outlier_ejection.as_ref()?;
    block([
        (
            "consecutive5xxErrors",
            ejection.consecutive_5xx.map(Value::from),
        ),
        (
            "consecutiveGatewayErrors",
            ejection.consecutive_gateway_failure.map(Value::from),
        ),
        ("interval", time(ejection.interval)),
        ("baseEjectionTime", time(ejection.base_ejection_time)),
        (
            "maxEjectionPercent",
            ejection.max_ejection_percent.map(Value::from),
        ),
        ("minHealthPercent", cluster.panic_threshold.map(Value::from)),
    ])
}

fn balancer(cluster: &raw::Cluster) -> Option<Value> {
    let simple = cluster.policy.as_ref().and_then(|policy| {
        let text = policy.to_string();
        match text.split('(').next() {
            Some("round-robin") => Some(json!("ROUND_ROBIN")),
            Some("random") => Some(json!("RANDOM")),
            Some("lor") => Some(json!("LEAST_REQUEST")),
            _ => None,
        }
    });
    let warmup = cluster.slow_start.as_ref().and_then(|ramp| {
        block([
            ("duration", time(ramp.window)),
            ("aggression", ramp.aggression.map(Value::from)),
            ("minimumPercent", ramp.min_weight_percent.map(Value::from)),
        ])
    });
    block([("simple", simple), ("warmup", warmup)])
}

/// Returns an object with the fields that are set; `None` if none is.
fn block<const N: usize>(fields: [(&str, Option<Value>); N]) -> Option<Value> {
    let there = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let map: Map<String, Value> = there.collect();
    (!map.is_empty()).then_some(Value::Object(map))
}

/// Writes a duration in seconds, which both Go's and protobuf's parsers accept.
fn time(time: Option<TimeSpan>) -> Option<Value> {
    Some(json!(format!("{}s", time?.0.as_secs_f64())))
}

/// Returns the paths of fields of `ours` that are different or absent in `read`, the result of reading them back.
fn differences(ours: &impl Serialize, read: &impl Serialize) -> Vec<String> {
    let value = |result: Result<Value, _>| result.unwrap_or(Value::Null);
    let mut found = Vec::new();
    let read = value(serde_json::to_value(read));
    differ(
        String::new(),
        &value(serde_json::to_value(ours)),
        &read,
        &mut found,
    );
    found
}

fn differ(path: String, ours: &Value, read: &Value, found: &mut Vec<String>) {
    match ours {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = match path.is_empty() {
                    true => name.clone(),
                    false => format!("{path}.{name}"),
                };
                differ(path, value, read.get(name).unwrap_or(&Value::Null), found);
            }
        }
        value if value == read => {}
        _ => found.push(path),
    }
}
