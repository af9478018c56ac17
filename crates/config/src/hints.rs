//! Words of other proxies, and what they are called here.

/// (word elsewhere, field here, what to write).
const WORDS: &[(&str, &str, &str)] = &[
    ("address", "endpoints", "write `endpoints: [ADDRESS]`"),
    (
        "auto_host_rewrite",
        "rewrite",
        "write `rewrite: {auto_host: true}`",
    ),
    ("backend", "cluster", "write `cluster: NAME`"),
    ("backend", "clusters", "backends are called `clusters`"),
    ("backends", "clusters", "backends are called `clusters`"),
    ("bind", "address", "write `address: IP:PORT`"),
    ("cert", "certificate", "write `certificate: FILE`"),
    (
        "circuit_breakers",
        "limits",
        "write `limits: {max_connections: N, max_requests: N}`",
    ),
    (
        "connection_pool",
        "limits",
        "write `limits: {max_connections: N, max_pending_requests: N}`",
    ),
    (
        "consecutive_5xx_errors",
        "consecutive_5xx",
        "write `consecutive_5xx: N`",
    ),
    (
        "consecutive_errors",
        "consecutive_5xx",
        "write `consecutive_5xx: N`",
    ),
    (
        "consecutive_gateway_errors",
        "consecutive_gateway_failure",
        "write `consecutive_gateway_failure: N`",
    ),
    (
        "fault_injection",
        "fault",
        "write `fault: {delay: {…}, abort: {…}}`",
    ),
    (
        "health_checks",
        "health_check",
        "there is one: write `health_check: {…}`",
    ),
    ("hedge_policy", "hedge", "write `hedge: {delay: TIME}`"),
    ("host", "domains", "write `domains: [NAME]`"),
    ("host_rewrite", "rewrite", "write `rewrite: {host: NAME}`"),
    (
        "host_rewrite_literal",
        "rewrite",
        "write `rewrite: {host: NAME}`",
    ),
    ("hosts", "domains", "hosts are called `domains`"),
    ("hosts", "endpoints", "hosts are called `endpoints`"),
    (
        "http1_max_pending_requests",
        "max_pending_requests",
        "write `max_pending_requests: N`",
    ),
    (
        "http2_max_requests",
        "max_requests",
        "write `max_requests: N`",
    ),
    ("http_filters", "http", "write `http: {…}`"),
    ("http_status", "abort", "write `abort: {http_status: N}`"),
    ("key", "private_key", "write `private_key: FILE`"),
    (
        "lb_endpoints",
        "endpoints",
        "write `endpoints: [ADDRESS, …]`",
    ),
    ("lb_policy", "policy", "write `policy: NAME(parameters)`"),
    ("listen", "address", "write `address: IP:PORT`"),
    (
        "load_assignment",
        "endpoints",
        "write `endpoints: [ADDRESS, …]`",
    ),
    (
        "load_balancing",
        "policy",
        "write `policy: NAME(parameters)`",
    ),
    (
        "local_rate_limit",
        "rate_limit",
        "write `rate_limit: 100/s`",
    ),
    (
        "max_connections",
        "limits",
        "write `limits: {max_connections: N}`",
    ),
    (
        "max_pending_requests",
        "limits",
        "write `limits: {max_pending_requests: N}`",
    ),
    (
        "max_requests",
        "limits",
        "write `limits: {max_requests: N}`",
    ),
    ("max_retries", "attempts", "write `attempts: N`"),
    ("max_retries", "limits", "write `limits: {max_retries: N}`"),
    ("num_retries", "attempts", "write `attempts: N`"),
    (
        "outlier_detection",
        "outlier_ejection",
        "write `outlier_ejection: {…}`",
    ),
    (
        "outlierDetection",
        "outlier_ejection",
        "write `outlier_ejection: {…}`",
    ),
    ("path", "match", "conditions belong into `match: {path: …}`"),
    (
        "per_request_buffer_limit_bytes",
        "request_buffer_limit",
        "write `request_buffer_limit: SIZE`",
    ),
    (
        "per_try_timeout",
        "retry",
        "write `retry: {per_try_timeout: TIME}`",
    ),
    ("percentage", "percent", "write `percent: N`"),
    (
        "port",
        "address",
        "the port belongs into `address: IP:PORT`",
    ),
    (
        "prefix",
        "match",
        "conditions belong into `match: {path: {prefix: …}}`",
    ),
    (
        "prefix_rewrite",
        "rewrite",
        "write `rewrite: {prefix: PATH}`",
    ),
    (
        "request_headers_to_add",
        "request_headers",
        "write `request_headers: {add: {NAME: VALUE}}`",
    ),
    (
        "request_headers_to_remove",
        "request_headers",
        "write `request_headers: {remove: [NAME]}`",
    ),
    (
        "request_mirror_policies",
        "mirror",
        "write `mirror: [CLUSTER]`",
    ),
    (
        "response_headers_to_add",
        "response_headers",
        "write `response_headers: {add: {NAME: VALUE}}`",
    ),
    (
        "response_headers_to_remove",
        "response_headers",
        "write `response_headers: {remove: [NAME]}`",
    ),
    (
        "retries",
        "retry",
        "write `retry: {attempts: N, retry_on: […]}`",
    ),
    ("retry_on", "retry", "write `retry: {retry_on: […]}`"),
    (
        "retry_policy",
        "retry",
        "write `retry: {attempts: N, retry_on: […]}`",
    ),
    (
        "route",
        "cluster",
        "the cluster stands in the route itself: `cluster: NAME`",
    ),
    (
        "route_config",
        "virtual_hosts",
        "write `virtual_hosts` here, or `routes: NAME` for a route table",
    ),
    (
        "servers",
        "clusters",
        "groups of servers are called `clusters`",
    ),
    ("servers", "endpoints", "servers are called `endpoints`"),
    ("sni", "server_name", "write `server_name: NAME`"),
    ("sni", "server_names", "write `server_names: [NAME]`"),
    ("status", "http_status", "write `http_status: N`"),
    ("status_code", "status", "write `status: CODE`"),
    ("threads", "workers", "threads are called `workers`"),
    ("timeout", "idle_timeout", "write `idle_timeout: TIME`"),
    ("upstream", "cluster", "write `cluster: NAME`"),
    ("upstreams", "clusters", "upstreams are called `clusters`"),
    (
        "weighted_clusters",
        "clusters",
        "write `clusters: [{name: NAME, weight: N}, …]`",
    ),
];

/// Fields of `http` that are easily written beside it or below `tcp`.
const HTTP_ONLY: &[&str] = &[
    "allow_connect",
    "forwarded",
    "header_timeout",
    "max_concurrent_streams",
    "max_connection_age",
    "max_header_bytes",
    "max_headers",
    "preserve_request_id",
    "request_id",
    "routes",
    "server_name",
    "stream_idle_timeout",
    "upgrades",
    "virtual_hosts",
    "x_forwarded",
];

/// What to write instead of a field that is unknown where `known` ones are expected.
pub(crate) fn for_field(found: &str, known: &[&str]) -> Option<String> {
    if found == "<<" {
        return Some("merge keys are not read; name the whole value by an alias".into());
    }
    let word = WORDS
        .iter()
        .find(|(word, here, _)| *word == found && known.contains(here));
    if let Some((_, _, help)) = word {
        return Some((*help).to_owned());
    }
    let beside_http = known.contains(&"http") || known == ["cluster", "idle_timeout"];
    (beside_http && HTTP_ONLY.contains(&found)).then(|| format!("`{found}` is a field of `http`"))
}
