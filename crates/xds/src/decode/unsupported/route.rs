//! Unsupported fields of route tables.

use super::{
    Message,
    When::{NotDefault, NotText, Present},
    headers::HEADER_VALUE_OPTION,
};

/// `RouteConfiguration`
pub(in crate::decode) const ROUTE_CONFIGURATION: Message = Message {
    rejected: &[
        (3, "internal_only_headers", Present),
        (9, "vhds", Present),
        (10, "most_specific_header_mutations_wins", NotDefault),
        (13, "request_mirror_policies", Present),
        (15, "ignore_path_parameters_in_path_matching", NotDefault),
        (16, "typed_per_filter_config", Present),
        (18, "vhost_header", NotDefault),
    ],
    nested: &[(2, "virtual_hosts[]", &VIRTUAL_HOST)],
};

const VIRTUAL_HOST: Message = Message {
    rejected: &[
        (17, "hedge_policy", NotDefault),
        (18, "per_request_buffer_limit_bytes", Present),
        (20, "retry_policy_typed_config", Present),
        (21, "matcher", Present),
        (22, "request_mirror_policies", Present),
        (25, "request_body_buffer_limit", Present),
    ],
    nested: &[
        (3, "routes[]", &ROUTE),
        (7, "request_headers_to_add[]", &HEADER_VALUE_OPTION),
        (10, "response_headers_to_add[]", &HEADER_VALUE_OPTION),
        (16, "retry_policy", &RETRY_POLICY),
    ],
};

const ROUTE: Message = Message {
    rejected: &[
        (16, "per_request_buffer_limit_bytes", Present),
        (17, "filter_action", Present),
        (20, "request_body_buffer_limit", Present),
    ],
    nested: &[
        (1, "match", &ROUTE_MATCH),
        (2, "route", &ROUTE_ACTION),
        (3, "redirect", &REDIRECT),
        (7, "direct_response", &DIRECT_RESPONSE),
        (9, "request_headers_to_add[]", &HEADER_VALUE_OPTION),
        (10, "response_headers_to_add[]", &HEADER_VALUE_OPTION),
    ],
};

const ROUTE_MATCH: Message = Message {
    rejected: &[
        (11, "tls_context", NotDefault),
        (13, "dynamic_metadata", Present),
        (15, "path_match_policy", Present),
        (16, "filter_state", Present),
        (17, "cookies", Present),
    ],
    nested: &[],
};

const ROUTE_ACTION: Message = Message {
    rejected: &[
        (4, "metadata_match", NotDefault),
        (11, "priority", NotDefault),
        (20, "cluster_not_found_response_code", NotDefault),
        (23, "max_grpc_timeout", NotDefault),
        (24, "idle_timeout", NotDefault),
        (26, "internal_redirect_action", NotDefault),
        (27, "hedge_policy", NotDefault),
        (28, "grpc_timeout_offset", NotDefault),
        (33, "retry_policy_typed_config", Present),
        (34, "internal_redirect_policy", Present),
        (35, "host_rewrite_path_regex", Present),
        (39, "inline_cluster_specifier_plugin", Present),
        (41, "path_rewrite_policy", Present),
        (42, "flush_timeout", NotDefault),
        (44, "host_rewrite", Present),
        (45, "path_rewrite", NotDefault),
    ],
    nested: &[
        (3, "weighted_clusters", &WEIGHTED_CLUSTER),
        (9, "retry_policy", &RETRY_POLICY),
        (15, "hash_policy[]", &HASH_POLICY),
        (25, "upgrade_configs[]", &UPGRADE_CONFIG),
        (30, "request_mirror_policies[]", &MIRROR_POLICY),
        (36, "max_stream_duration", &MAX_STREAM_DURATION),
    ],
};

/// `grpc_timeout_header_max` of 0 is what the proxy does: `grpc-timeout` is respected, without a maximum.
const MAX_STREAM_DURATION: Message = Message {
    rejected: &[
        (1, "max_stream_duration", NotDefault),
        (2, "grpc_timeout_header_max", NotDefault),
        (3, "grpc_timeout_header_offset", NotDefault),
    ],
    nested: &[],
};

/// The listener's `upgrades` contain `websocket` by default.
const UPGRADE_CONFIG: Message = Message {
    rejected: &[
        (1, "upgrade_type", NotText("websocket")),
        (2, "enabled", Present),
        (3, "connect_config", Present),
    ],
    nested: &[],
};

const WEIGHTED_CLUSTER: Message = Message {
    rejected: &[
        (4, "header_name", NotDefault),
        (5, "use_hash_policy", NotDefault),
    ],
    nested: &[(1, "clusters[]", &CLUSTER_WEIGHT)],
};

const CLUSTER_WEIGHT: Message = Message {
    rejected: &[
        (3, "metadata_match", NotDefault),
        (10, "typed_per_filter_config", Present),
        (11, "host_rewrite_literal", Present),
        (12, "cluster_header", NotDefault),
    ],
    nested: &[
        (4, "request_headers_to_add[]", &HEADER_VALUE_OPTION),
        (5, "response_headers_to_add[]", &HEADER_VALUE_OPTION),
    ],
};

const HASH_POLICY: Message = Message {
    rejected: &[(6, "filter_state", Present)],
    nested: &[(1, "header", &HASH_HEADER), (2, "cookie", &HASH_COOKIE)],
};

const HASH_HEADER: Message = Message {
    rejected: &[(2, "regex_rewrite", Present)],
    nested: &[],
};

const HASH_COOKIE: Message = Message {
    rejected: &[(4, "attributes", Present)],
    nested: &[],
};

const MIRROR_POLICY: Message = Message {
    rejected: &[
        (5, "cluster_header", NotDefault),
        (7, "request_headers_mutations", Present),
        (8, "host_rewrite_literal", NotDefault),
    ],
    nested: &[],
};

const RETRY_POLICY: Message = Message {
    rejected: &[
        (4, "retry_priority", Present),
        (10, "retriable_request_headers", Present),
        (11, "rate_limited_retry_back_off", Present),
        (12, "retry_options_predicates", Present),
        (13, "per_try_idle_timeout", NotDefault),
        (14, "refresh_cluster_on_retry", NotDefault),
    ],
    nested: &[(5, "retry_host_predicate[]", &RETRY_HOST_PREDICATE)],
};

/// Retries exclude endpoints that have failed.
const RETRY_HOST_PREDICATE: Message = Message {
    rejected: &[(
        1,
        "name",
        NotText("envoy.retry_host_predicates.previous_hosts"),
    )],
    nested: &[],
};

const REDIRECT: Message = Message {
    rejected: &[(10, "path_rewrite", Present)],
    nested: &[],
};

const DIRECT_RESPONSE: Message = Message {
    rejected: &[(3, "body_format", Present)],
    nested: &[(2, "body", &DATA_SOURCE)],
};

const DATA_SOURCE: Message = Message {
    rejected: &[
        (1, "filename", Present),
        (4, "environment_variable", Present),
    ],
    nested: &[],
};
