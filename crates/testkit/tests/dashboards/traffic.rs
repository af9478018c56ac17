//! Dashboards of traffic: the mesh, a service, a workload, a Gateway.

use crate::description::{
    DESTINATION, Dashboard, FAILED, P50, P99, Panel, REQUESTS, SERVED, SERVED_TIMES, SERVICE,
    TIMES, WORKLOAD, any_service, chart, number, quantile, rate, service, share, sum, workload,
};

/// Returns the dashboard.
pub(crate) fn mesh() -> Dashboard {
    let (requests, failed) = (rate(REQUESTS, ""), rate(REQUESTS, FAILED));
    let edges = format!(
        "{} * on (job, instance) group_left (workload_namespace, workload) maglor_workload_info",
        any_service(&requests)
    );
    let by = "workload_namespace, workload, destination_namespace, destination_service";
    Dashboard {
        name: "mesh",
        title: "Maglor / Mesh",
        about: "All calls between workloads, as their callers' proxies count them.",
        variables: &[],
        panels: vec![
            number("Requests", "reqps", sum("", &any_service(&requests))),
            number(
                "Failed requests",
                "percentunit",
                share("", &any_service(&failed), &any_service(&requests)),
            ),
            number(
                "Proxies",
                "none",
                "count(maglor_worker_tasks{worker=\"0\"})",
            ),
            number(
                "Proxies without a control plane",
                "none",
                "sum(1 - maglor_xds_connected)",
            ),
            chart(
                "Requests by service",
                "reqps",
                sum(DESTINATION, &any_service(&requests)),
            ),
            chart(
                "Failed requests by service",
                "percentunit",
                share(DESTINATION, &any_service(&failed), &any_service(&requests)),
            ),
            chart(
                "Response time by service, median",
                "s",
                quantile(P50, DESTINATION, &any_service(&rate(TIMES, ""))),
            ),
            chart(
                "Response time by service, 99th percentile",
                "s",
                quantile(P99, DESTINATION, &any_service(&rate(TIMES, ""))),
            ),
            chart("Calls between workloads", "reqps", sum(by, &edges)),
            chart(
                "Retries by service",
                "reqps",
                sum(
                    DESTINATION,
                    &any_service(&rate("maglor_upstream_retries_total", "")),
                ),
            ),
            chart(
                "Handshakes with mutual TLS",
                "ops",
                sum("kind", &rate("maglor_mesh_handshakes_total", "")),
            ),
            chart(
                "Ejected endpoints by service",
                "none",
                sum(
                    DESTINATION,
                    &any_service("maglor_upstream_ejected_endpoints"),
                ),
            ),
        ],
    }
}

/// Returns the dashboard.
pub(crate) fn of_service() -> Dashboard {
    Dashboard {
        name: "service",
        title: "Maglor / Service",
        about: "Calls to a Service, as the proxies of its callers count them.",
        variables: SERVICE,
        panels: [service_requests(), service_failures()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

/// Panels of requests.
fn service_requests() -> Vec<Panel> {
    let of = |metric: &str, selector: &str| service(&rate(metric, selector));
    vec![
        chart("Requests by status", "reqps", sum("status", &of(REQUESTS, ""))),
        chart("Failed requests", "percentunit", share("", &of(REQUESTS, FAILED), &of(REQUESTS, ""))),
        chart("Response time, median", "s", quantile(P50, "", &of(TIMES, ""))),
        chart("Response time, 99th percentile", "s", quantile(P99, "", &of(TIMES, ""))),
        chart(
            "Requests by caller",
            "reqps",
            sum(
                "workload_namespace, workload",
                &format!(
                    "{} * on (job, instance) group_left (workload_namespace, workload) maglor_workload_info",
                    of(REQUESTS, "")
                ),
            ),
        ),
        chart(
            "Requests in progress by endpoint",
            "none",
            sum(
                "endpoint",
                "maglor_upstream_outstanding_requests * on (job, instance, cluster) group_left () \
                 maglor_upstream_service_info{destination_namespace=~\"$namespace\", destination_service=~\"$service\"}",
            ),
        )
        .about("From the callers' proxies. They differ if the load is uneven."),
    ]
}

/// Panels of balancing and failures.
fn service_failures() -> Vec<Panel> {
    let of = |metric: &str, selector: &str| service(&rate(metric, selector));
    vec![
        chart(
            "Imbalance",
            "percentunit",
            "max by (destination_namespace, destination_service) (maglor_upstream_imbalance_ratio \
             * on (job, instance, cluster) group_left (destination_namespace, destination_service) \
             maglor_upstream_service_info{destination_namespace=~\"$namespace\", destination_service=~\"$service\"})",
        )
        .about("0 = all endpoints have equally many requests."),
        chart("Retries", "reqps", sum("", &of("maglor_upstream_retries_total", ""))),
        chart("Failed connections", "ops", sum("", &of("maglor_upstream_connect_failures_total", ""))),
        chart("Requests rejected because of a limit", "reqps", sum("reason", &of("maglor_upstream_overflows_total", ""))),
        chart(
            "Available endpoints",
            "none",
            "min by (destination_namespace, destination_service) (maglor_upstream_available_endpoints \
             * on (job, instance, cluster) group_left (destination_namespace, destination_service) \
             maglor_upstream_service_info{destination_namespace=~\"$namespace\", destination_service=~\"$service\"})",
        )
        .about("As the caller that knows the fewest of them sees it."),
        chart("Circuit breakers that are not closed", "none", format!(
            "sum({} > bool 0)", service("maglor_upstream_circuit_breaker_state")
        )),
    ]
}

/// Returns the dashboard.
pub(crate) fn of_workload() -> Dashboard {
    let of = |metric: &str, selector: &str| workload(&rate(metric, selector));
    let outbound = |metric: &str, selector: &str| any_service(&rate(metric, selector));
    let calls = format!(
        "{} * on (job, instance) group_left () maglor_workload_info{{workload_namespace=~\"$namespace\", workload=~\"$workload\"}}",
        outbound(REQUESTS, "")
    );
    let inbound = "listener=\"inbound\"";
    Dashboard {
        name: "workload",
        title: "Maglor / Workload",
        about: "Requests that a workload gets and makes, as its own proxies count them.",
        variables: WORKLOAD,
        panels: vec![
            chart(
                "Requests received, by status",
                "reqps",
                sum("status", &of(SERVED, inbound)),
            ),
            chart(
                "Response time, median",
                "s",
                quantile(P50, "", &of(SERVED_TIMES, inbound)),
            ),
            chart(
                "Response time, 99th percentile",
                "s",
                quantile(P99, "", &of(SERVED_TIMES, inbound)),
            ),
            chart(
                "Requests made, by destination",
                "reqps",
                sum(DESTINATION, &calls),
            ),
            chart(
                "Requests received, by pod",
                "reqps",
                sum(
                    "workload_pod",
                    &format!(
                        "{} * on (job, instance) group_left (workload_pod) \
                          maglor_workload_info{{workload_namespace=~\"$namespace\", workload=~\"$workload\"}}",
                        rate(SERVED, inbound)
                    ),
                ),
            ),
            chart(
                "Bytes through TCP connections",
                "Bps",
                sum("direction", &of("maglor_tcp_bytes_total", "")),
            ),
            chart(
                "Decisions of authorization",
                "ops",
                sum("decision, rule", &of("maglor_authorization_total", "")),
            ),
            chart(
                "Connections rejected",
                "ops",
                sum(
                    "listener, reason",
                    &of("maglor_downstream_connections_refused_total", ""),
                ),
            ),
            chart(
                "Open connections of clients",
                "none",
                sum("listener", &workload("maglor_downstream_open_connections")),
            ),
            chart(
                "CPU",
                "none",
                sum("workload", &of("process_cpu_seconds_total", "")),
            )
            .about("Processors in use by the proxies."),
        ],
    }
}

/// Returns the dashboard.
pub(crate) fn gateway() -> Dashboard {
    let of = |metric: &str, selector: &str| {
        let own = "listener!~\"inbound|outbound\"";
        let selector = if selector.is_empty() {
            own.to_owned()
        } else {
            format!("{own}, {selector}")
        };
        workload(&rate(metric, &selector))
    };
    Dashboard {
        name: "gateway",
        title: "Maglor / Gateway",
        about: "Proxies of Gateways and of ProxyServices: select their workloads.",
        variables: WORKLOAD,
        panels: vec![
            chart(
                "Requests by status",
                "reqps",
                sum("status", &of(SERVED, "")),
            ),
            chart(
                "Failed requests",
                "percentunit",
                share("", &of(SERVED, FAILED), &of(SERVED, "")),
            ),
            chart(
                "Requests by route",
                "reqps",
                sum("listener, route", &of(SERVED, "")),
            ),
            chart(
                "Response time by listener, median",
                "s",
                quantile(P50, "listener", &of(SERVED_TIMES, "")),
            ),
            chart(
                "Response time by listener, 99th percentile",
                "s",
                quantile(P99, "listener", &of(SERVED_TIMES, "")),
            ),
            chart(
                "Response bytes",
                "Bps",
                sum("listener", &of("maglor_http_response_bytes_total", "")),
            ),
            chart(
                "Connections accepted",
                "ops",
                sum("listener", &of("maglor_downstream_connections_total", "")),
            ),
            chart(
                "Connections rejected",
                "ops",
                sum(
                    "listener, reason",
                    &of("maglor_downstream_connections_refused_total", ""),
                ),
            ),
            chart(
                "Open connections of clients",
                "none",
                sum(
                    "listener",
                    &workload("maglor_downstream_open_connections{listener!~\"inbound|outbound\"}"),
                ),
            ),
            chart(
                "Requests by destination",
                "reqps",
                sum(
                    DESTINATION,
                    &format!(
                        "{} * on (job, instance) group_left () \
                         maglor_workload_info{{workload_namespace=~\"$namespace\", workload=~\"$workload\"}}",
                        any_service(&rate(REQUESTS, ""))
                    ),
                ),
            ),
        ],
    }
}
