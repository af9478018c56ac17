//! Dashboards of processes: proxies, the controller, and what they cost.

use crate::description::{
    Dashboard, INSTANCE, P99, Panel, REQUESTS, SERVED, SERVED_TIMES, TIMES, WORKLOAD, chart,
    number, quantile, rate, sum,
};

/// Returns the dashboard.
pub(crate) fn proxy() -> Dashboard {
    Dashboard {
        name: "proxy",
        title: "Maglor / Proxy",
        about: "Single proxies, of any kind.",
        variables: INSTANCE,
        panels: [proxy_traffic(), proxy_process()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

/// Panels of requests and connections.
fn proxy_traffic() -> Vec<Panel> {
    let own = "instance=~\"$instance\"";
    let of = |metric: &str| rate(metric, own);
    let now = |metric: &str| format!("{metric}{{{own}}}");
    vec![
        chart(
            "Requests by listener",
            "reqps",
            sum("instance, listener", &of(SERVED)),
        ),
        chart(
            "Response time by listener, 99th percentile",
            "s",
            quantile(P99, "instance, listener", &of(SERVED_TIMES)),
        ),
        chart(
            "Attempts by cluster",
            "reqps",
            sum("instance, cluster", &of(REQUESTS)),
        ),
        chart(
            "Time of endpoints by cluster, 99th percentile",
            "s",
            quantile(P99, "instance, cluster", &of(TIMES)),
        ),
        chart(
            "Open connections of clients",
            "none",
            sum(
                "instance, listener",
                &now("maglor_downstream_open_connections"),
            ),
        ),
        chart(
            "Open connections to endpoints",
            "none",
            sum(
                "instance, cluster",
                &now("maglor_upstream_open_connections"),
            ),
        ),
        chart(
            "Connections accepted",
            "ops",
            sum(
                "instance, listener",
                &of("maglor_downstream_connections_total"),
            ),
        ),
        chart(
            "Connections opened",
            "ops",
            sum(
                "instance, cluster",
                &of("maglor_upstream_connections_total"),
            ),
        ),
        chart(
            "Response bytes",
            "Bps",
            sum(
                "instance, listener",
                &of("maglor_http_response_bytes_total"),
            ),
        ),
    ]
}

/// Panels of the process and its configuration.
fn proxy_process() -> Vec<Panel> {
    let own = "instance=~\"$instance\"";
    let of = |metric: &str| rate(metric, own);
    let now = |metric: &str| format!("{metric}{{{own}}}");
    vec![
        chart(
            "CPU",
            "none",
            format!(
                "{} and on (job, instance) maglor_worker_tasks",
                of("process_cpu_seconds_total")
            ),
        ),
        chart(
            "Resident memory",
            "bytes",
            format!(
                "{} and on (job, instance) maglor_worker_tasks",
                now("process_resident_memory_bytes")
            ),
        ),
        chart("Allocated memory", "bytes", now("maglor_memory_heap_bytes")),
        chart(
            "Rejected because of the memory budget",
            "ops",
            sum("instance, what", &of("maglor_memory_shed_total")),
        ),
        chart(
            "Changes of the configuration",
            "none",
            sum(
                "instance, result",
                &format!("increase(maglor_config_reloads_total{{{own}}}[$__rate_interval])"),
            ),
        ),
        chart(
            "Time until the certificate expires",
            "s",
            format!("(maglor_identity_expiry_seconds{{{own}}} > 0) - time()"),
        ),
        chart(
            "Spans dropped",
            "ops",
            sum("instance, reason", &of("maglor_trace_spans_dropped_total")),
        ),
    ]
}

/// Returns the dashboard.
pub(crate) fn controller() -> Dashboard {
    Dashboard {
        name: "controller",
        title: "Maglor / Controller",
        about: "The control plane.",
        variables: &[],
        panels: [controller_state(), controller_operation()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

/// Panels of resources, proxies and certificates.
fn controller_state() -> Vec<Panel> {
    let count = |metric: &str, by: &str| sum(by, &rate(metric, ""));
    vec![
        number(
            "Connected proxies",
            "none",
            "sum(maglor_controller_sessions)",
        ),
        number("Leaders", "none", "sum(maglor_controller_leader)").about("1; 0 with --folder."),
        number(
            "Oldest unacknowledged change",
            "s",
            "max(maglor_controller_push_pending_seconds)",
        ),
        number(
            "Policies that cannot be used",
            "none",
            "sum(max by (kind) (maglor_controller_unusable_policies))",
        ),
        chart(
            "Resources added or removed",
            "ops",
            count("maglor_controller_events_total", "kind"),
        ),
        chart(
            "Published changes",
            "ops",
            count("maglor_controller_changes_total", "kind"),
        ),
        chart(
            "Delay until a change is published, 99th percentile",
            "s",
            quantile(
                P99,
                "",
                &rate("maglor_controller_update_seconds_bucket", ""),
            ),
        ),
        chart(
            "Delay until a change is acknowledged, 99th percentile",
            "s",
            quantile(P99, "", &rate("maglor_controller_push_seconds_bucket", "")),
        ),
        chart(
            "Changes rejected by proxies",
            "ops",
            count("maglor_controller_pushes_refused_total", "kind"),
        ),
        chart(
            "Certificate requests",
            "ops",
            count("maglor_controller_certificates_total", "result"),
        ),
        chart(
            "Time of certificate requests, 99th percentile",
            "s",
            quantile(
                P99,
                "",
                &rate("maglor_controller_certificate_seconds_bucket", ""),
            ),
        ),
        chart(
            "Time until certificates expire",
            "s",
            "min by (certificate) (maglor_controller_expiry_seconds) - time()",
        ),
    ]
}

/// Panels of webhooks, operators and the process.
fn controller_operation() -> Vec<Panel> {
    let count = |metric: &str, by: &str| sum(by, &rate(metric, ""));
    vec![
        chart(
            "Admission requests",
            "ops",
            count("maglor_controller_admissions_total", "webhook, decision"),
        ),
        chart(
            "Age of the state of the cluster",
            "s",
            "max by (kind) (maglor_controller_watch_age_seconds)",
        ),
        chart(
            "Writes",
            "ops",
            count("maglor_controller_writes_total", "result"),
        ),
        chart(
            "Connections closed because of limits",
            "ops",
            count("maglor_controller_connections_shed_total", "port, reason"),
        ),
        chart(
            "Moved pods",
            "ops",
            count("maglor_controller_placement_moves_total", "result"),
        ),
        chart(
            "Changes by TuningPolicies",
            "ops",
            count("maglor_controller_tuning_changes_total", "part, result"),
        ),
        chart("Panics", "ops", count("maglor_controller_panics_total", "")),
        chart(
            "CPU",
            "none",
            "sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) maglor_controller_leader)",
        ),
        chart(
            "Resident memory",
            "bytes",
            "process_resident_memory_bytes and on (job, instance) maglor_controller_leader",
        ),
    ]
}

/// Returns the dashboard.
pub(crate) fn resources() -> Dashboard {
    Dashboard {
        name: "resources",
        title: "Maglor / Resources",
        about: "What the mesh costs.",
        variables: WORKLOAD,
        panels: [resources_in_total(), resources_by_workload()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

/// Panels of all proxies together.
fn resources_in_total() -> Vec<Panel> {
    let proxies = "and on (job, instance) maglor_worker_tasks";
    let cpu = format!("{} {proxies}", rate("process_cpu_seconds_total", ""));
    vec![
        number("CPU of all proxies", "none", format!("sum({cpu})")),
        number(
            "Memory of all proxies",
            "bytes",
            format!("sum(process_resident_memory_bytes {proxies})"),
        ),
        number(
            "CPU for 1000 requests",
            "s",
            format!("1000 * sum({cpu}) / (sum({}) > 0)", rate(SERVED, "")),
        )
        .about("Seconds of CPU time of proxies. A call between two sidecars counts in both."),
        number(
            "CPU of the controller",
            "none",
            "sum(rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) maglor_controller_leader)",
        ),
    ]
}

/// Panels by workload.
fn resources_by_workload() -> Vec<Panel> {
    let proxies = "and on (job, instance) maglor_worker_tasks";
    let cpu = format!("{} {proxies}", rate("process_cpu_seconds_total", ""));
    let info = "* on (job, instance) group_left (workload_namespace, workload) \
                maglor_workload_info{workload_namespace=~\"$namespace\", workload=~\"$workload\"}";
    vec![
        chart(
            "CPU by workload",
            "none",
            sum("workload_namespace, workload", &format!("({cpu}) {info}")),
        ),
        chart(
            "CPU for 1000 requests by workload",
            "s",
            format!(
                "1000 * sum by (workload_namespace, workload) (({cpu}) {info}) / (sum by (workload_namespace, workload) ({} {info}) > 0)",
                rate(SERVED, "")
            ),
        ),
        chart(
            "Memory by workload",
            "bytes",
            format!("sum by (workload_namespace, workload) (process_resident_memory_bytes {info})"),
        ),
        chart(
            "Largest proxy by workload",
            "bytes",
            format!("max by (workload_namespace, workload) (process_resident_memory_bytes {info})"),
        ),
        chart(
            "Share of the memory budget",
            "percentunit",
            format!(
                "max by (workload_namespace, workload) ((maglor_memory_used_bytes / (maglor_memory_budget_bytes > 0)) {info})"
            ),
        ),
        chart(
            "Share of the file descriptors",
            "percentunit",
            format!(
                "max by (workload_namespace, workload) ((process_open_fds / process_max_fds) {info})"
            ),
        ),
        chart(
            "Tasks by workload",
            "none",
            sum(
                "workload_namespace, workload",
                &format!("maglor_worker_tasks {info}"),
            ),
        ),
        chart(
            "Log lines dropped",
            "ops",
            sum(
                "workload_namespace, workload",
                &format!("{} {info}", rate("maglor_access_log_dropped_total", "")),
            ),
        ),
    ]
}
