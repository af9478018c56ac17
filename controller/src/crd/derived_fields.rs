//! Fields of the proxy's configuration that resources must not set, because they are derived from a Service or its
//! routes.

use maglor_config::raw;
use serde_json::Value;

/// Fields of a cluster whose values are determined by the Service.
pub(super) const OF_THE_SERVICE: [&str; 7] = [
    "address",
    "dns_addresses",
    "dns_refresh",
    "endpoints",
    "name",
    "tls",
    "type",
];
/// Fields of a route whose values are determined by HTTPRoute, GRPCRoute and the Service.
pub(super) const OF_THE_ROUTE: [&str; 11] = [
    "cluster",
    "clusters",
    "direct_response",
    "match",
    "mirror",
    "name",
    "redirect",
    "request_headers",
    "response_headers",
    "rewrite",
    "sticky",
];

/// Returns the fields that are set but not allowed in a policy, such as `cluster.endpoints`.
pub(super) fn set_in(cluster: Option<&raw::Cluster>, route: Option<&raw::Route>) -> Vec<String> {
    let set = |block: &str, value: Option<Value>, names: &[&str]| -> Vec<String> {
        let Some(Value::Object(map)) = value else {
            return Vec::new();
        };
        let is_set = |name: &&&str| map.get(**name).is_some_and(|value| !value.is_null());
        let found = names.iter().filter(is_set);
        found.map(|name| format!("{block}.{name}")).collect()
    };
    let cluster = cluster.and_then(|cluster| serde_json::to_value(cluster).ok());
    let route = route.and_then(|route| serde_json::to_value(route).ok());
    let mut found = set("cluster", cluster, &OF_THE_SERVICE);
    found.extend(set("route", route, &OF_THE_ROUTE));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::TrafficPolicySpec;

    #[test]
    fn what_is_the_services_is_named() {
        let spec: TrafficPolicySpec = serde_yaml::from_str(
            "{cluster: {name: a, policy: random, endpoints: ['10.0.0.1:80']}, route: {cluster: b}}",
        )
        .unwrap();
        let found = set_in(spec.cluster.as_ref(), spec.route.as_ref());
        assert_eq!(
            found,
            ["cluster.endpoints", "cluster.name", "route.cluster"]
        );
    }
}
