//! Unsupported fields of clusters.

use super::{
    Message,
    When::{Not, NotDefault, Present},
    endpoints::ASSIGNMENT,
};

/// `Cluster`
pub(in crate::decode) const CLUSTER: Message = Message {
    rejected: &[
        // `AUTO`, `V4_ONLY` and `V4_PREFERRED`: IPv6 addresses are used only if a name has no others.
        (17, "dns_lookup_family", Not(&[0, 1, 3])),
        (18, "dns_resolvers", Present),
        (21, "upstream_bind_config", NotDefault),
        (22, "lb_subset_config", NotDefault),
        (31, "close_connections_on_host_health_failure", NotDefault),
        (34, "original_dst_lb_config", NotDefault),
        (40, "filters", Present),
        (48, "upstream_config", Present),
        (51, "connection_pool_per_downstream_connection", NotDefault),
        (53, "dns_resolution_config", NotDefault),
        (55, "typed_dns_resolver_config", Present),
        (56, "round_robin_lb_config", NotDefault),
        (59, "transport_socket_matcher", Present),
    ],
    nested: &[
        (8, "health_checks[]", &HEALTH_CHECK),
        (10, "circuit_breakers", &CIRCUIT_BREAKERS),
        (13, "http_protocol_options", &HTTP1),
        (19, "outlier_detection", &OUTLIER_DETECTION),
        (27, "common_lb_config", &COMMON_LB),
        (29, "common_http_protocol_options", &COMMON_HTTP),
        (33, "load_assignment", &ASSIGNMENT),
        (37, "least_request_lb_config", &LEAST_REQUEST),
    ],
};

const HEALTH_CHECK: Message = Message {
    rejected: &[
        (6, "alt_port", NotDefault),
        (13, "custom_health_check", Present),
        (15, "unhealthy_edge_interval", NotDefault),
        (16, "healthy_edge_interval", NotDefault),
        (21, "tls_options", NotDefault),
        (23, "transport_socket_match_criteria", NotDefault),
    ],
    nested: &[
        (8, "http_health_check", &HTTP_HEALTH_CHECK),
        (9, "tcp_health_check", &TCP_HEALTH_CHECK),
        (11, "grpc_health_check", &GRPC_HEALTH_CHECK),
    ],
};

const HTTP_HEALTH_CHECK: Message = Message {
    rejected: &[
        (3, "send", Present),
        (4, "receive", Present),
        (6, "request_headers_to_add", Present),
        (8, "request_headers_to_remove", Present),
        (10, "codec_client_type", NotDefault),
        (11, "service_name_matcher", Present),
        (12, "retriable_statuses", Present),
        // `GET`
        (13, "method", Not(&[0, 1])),
    ],
    nested: &[],
};

const TCP_HEALTH_CHECK: Message = Message {
    rejected: &[(3, "proxy_protocol_config", Present)],
    nested: &[],
};

const GRPC_HEALTH_CHECK: Message = Message {
    rejected: &[(3, "initial_metadata", Present)],
    nested: &[],
};

const CIRCUIT_BREAKERS: Message = Message {
    rejected: &[],
    nested: &[(1, "thresholds[]", &THRESHOLDS)],
};

const THRESHOLDS: Message = Message {
    rejected: &[(7, "max_connection_pools", Present)],
    nested: &[(8, "retry_budget", &RETRY_BUDGET)],
};

const RETRY_BUDGET: Message = Message {
    rejected: &[(3, "budget_interval", NotDefault)],
    nested: &[],
};

const OUTLIER_DETECTION: Message = Message {
    rejected: &[
        (24, "monitors", Present),
        (26, "detect_degraded_hosts", NotDefault),
    ],
    nested: &[],
};

const COMMON_LB: Message = Message {
    rejected: &[
        (2, "zone_aware_lb_config", Present),
        (5, "ignore_new_hosts_until_first_hc", NotDefault),
        (6, "close_connections_on_host_set_change", NotDefault),
        (7, "consistent_hashing_lb_config", NotDefault),
    ],
    nested: &[],
};

const LEAST_REQUEST: Message = Message {
    rejected: &[
        (2, "active_request_bias", NotDefault),
        (3, "slow_start_config", NotDefault),
    ],
    nested: &[],
};

/// `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`
pub(in crate::decode) const HTTP_OPTIONS: Message = Message {
    rejected: &[
        (6, "http_filters", Present),
        (7, "header_validation_config", Present),
        (8, "outlier_detection", NotDefault),
        (9, "request_mirror_policies", Present),
        (10, "hash_policy", Present),
        (11, "retry_policy", Present),
    ],
    nested: &[
        (1, "common_http_protocol_options", &COMMON_HTTP),
        (3, "explicit_http_config", &HTTP_CONFIG),
        (4, "use_downstream_protocol_config", &DOWNSTREAM_CONFIG),
        (5, "auto_config", &HTTP_CONFIG),
    ],
};

const HTTP_CONFIG: Message = Message {
    rejected: &[(3, "http3_protocol_options", Present)],
    nested: &[(1, "http_protocol_options", &HTTP1)],
};

/// Options of HTTP/3 have no effect: no listener accepts it.
const DOWNSTREAM_CONFIG: Message = Message {
    rejected: &[],
    nested: &[(1, "http_protocol_options", &HTTP1)],
};

const HTTP1: Message = Message {
    rejected: &[
        (4, "header_key_format", Present),
        (6, "allow_chunked_length", NotDefault),
        (8, "send_fully_qualified_url", NotDefault),
    ],
    nested: &[],
};

/// `envoy.config.core.v3.HttpProtocolOptions`
pub(super) const COMMON_HTTP: Message = Message {
    rejected: &[
        (2, "max_headers_count", Present),
        (3, "max_connection_duration", NotDefault),
        (4, "max_stream_duration", NotDefault),
        (5, "headers_with_underscores_action", NotDefault),
        (7, "max_response_headers_kb", Present),
    ],
    nested: &[],
};
