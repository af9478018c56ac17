//! What dashboards consist of: titles, units and queries, and the parts that queries have in common.

/// A dashboard.
pub(crate) struct Dashboard {
    /// Of the file and the identifier in Grafana, after `maglor-`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) variables: &'static [Variable],
    pub(crate) panels: Vec<Panel>,
}

/// A selection at the top of a dashboard: a label of a metric.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) label: &'static str,
}

/// A chart, or a number.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// Unit in Grafana.
    pub(crate) unit: &'static str,
    pub(crate) is_number: bool,
    pub(crate) query: String,
}

const fn variable(name: &'static str, metric: &'static str, label: &'static str) -> Variable {
    Variable {
        name,
        metric,
        label,
    }
}

pub(crate) const SERVICE: &[Variable] = &[
    variable(
        "namespace",
        "maglor_upstream_service_info",
        "destination_namespace",
    ),
    variable(
        "service",
        "maglor_upstream_service_info",
        "destination_service",
    ),
];
pub(crate) const WORKLOAD: &[Variable] = &[
    variable("namespace", "maglor_workload_info", "workload_namespace"),
    variable("workload", "maglor_workload_info", "workload"),
];
pub(crate) const INSTANCE: &[Variable] = &[variable("instance", "maglor_worker_tasks", "instance")];

/// Share of responses at or below which a time lies.
pub(crate) const P50: &str = "0.5";
pub(crate) const P99: &str = "0.99";

pub(crate) fn chart(title: &'static str, unit: &'static str, query: impl Into<String>) -> Panel {
    Panel {
        title,
        about: "",
        unit,
        is_number: false,
        query: query.into(),
    }
}

pub(crate) fn number(title: &'static str, unit: &'static str, query: impl Into<String>) -> Panel {
    Panel {
        is_number: true,
        ..chart(title, unit, query)
    }
}

impl Panel {
    pub(crate) fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }
}

pub(crate) fn rate(metric: &str, selector: &str) -> String {
    match selector {
        "" => format!("rate({metric}[$__rate_interval])"),
        _ => format!("rate({metric}{{{selector}}}[$__rate_interval])"),
    }
}

/// Adds the Service of a cluster.
pub(crate) fn service(rate: &str) -> String {
    format!(
        "{rate} * on (job, instance, cluster) group_left (destination_namespace, destination_service) \
         maglor_upstream_service_info{{destination_namespace=~\"$namespace\", destination_service=~\"$service\"}}"
    )
}

/// Adds the Service of a cluster, whichever it is.
pub(crate) fn any_service(rate: &str) -> String {
    format!(
        "{rate} * on (job, instance, cluster) group_left (destination_namespace, destination_service) \
         maglor_upstream_service_info"
    )
}

/// Adds the workload of a proxy.
pub(crate) fn workload(rate: &str) -> String {
    format!(
        "{rate} * on (job, instance) group_left (workload_namespace, workload) \
         maglor_workload_info{{workload_namespace=~\"$namespace\", workload=~\"$workload\"}}"
    )
}

pub(crate) fn sum(by: &str, of: &str) -> String {
    match by {
        "" => format!("sum({of})"),
        _ => format!("sum by ({by}) ({of})"),
    }
}

pub(crate) fn quantile(share: &str, by: &str, of: &str) -> String {
    let by = if by.is_empty() {
        "le".to_owned()
    } else {
        format!("le, {by}")
    };
    format!("histogram_quantile({share}, {})", sum(&by, of))
}

/// The share of a part, without a gap where nothing is counted.
pub(crate) fn share(by: &str, part: &str, all: &str) -> String {
    format!("{} / ({} > 0)", sum(by, part), sum(by, all))
}

pub(crate) const REQUESTS: &str = "maglor_upstream_requests_total";
pub(crate) const TIMES: &str = "maglor_upstream_request_duration_seconds_bucket";
pub(crate) const SERVED: &str = "maglor_http_requests_total";
pub(crate) const SERVED_TIMES: &str = "maglor_http_request_duration_seconds_bucket";
pub(crate) const FAILED: &str = "status=~\"5xx|none\"";
pub(crate) const DESTINATION: &str = "destination_namespace, destination_service";
