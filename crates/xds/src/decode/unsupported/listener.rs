//! Unsupported fields of listeners.
//!
//! A discovered listener has no socket: fields of sockets, of TLS and of the HTTP connections of clients belong to the
//! proxy's own listener.

use super::{
    Message,
    When::{Not, NotDefault, NotText, Present},
    cluster::COMMON_HTTP,
    route::ROUTE_CONFIGURATION,
};

/// `Listener`
pub(in crate::decode) const LISTENER: Message = Message {
    rejected: &[
        (9, "listener_filters", Present),
        (25, "default_filter_chain", Present),
        (32, "filter_chain_matcher", Present),
        (36, "fcds_config", Present),
    ],
    nested: &[(3, "filter_chains[]", &FILTER_CHAIN)],
};

const FILTER_CHAIN: Message = Message {
    rejected: &[
        (1, "filter_chain_match", NotDefault),
        (4, "use_proxy_proto", NotDefault),
        (6, "transport_socket", Present),
    ],
    nested: &[(3, "filters[]", &FILTER)],
};

const FILTER: Message = Message {
    rejected: &[(5, "config_discovery", Present)],
    nested: &[],
};

/// `HttpConnectionManager`
pub(in crate::decode) const HTTP_CONNECTION_MANAGER: Message = Message {
    rejected: &[
        (6, "add_user_agent", NotDefault),
        (10, "server_name", NotDefault),
        (14, "use_remote_address", NotDefault),
        (16, "forward_client_cert_details", NotDefault),
        (18, "proxy_100_continue", NotDefault),
        (19, "xff_num_trusted_hops", NotDefault),
        (21, "skip_xff_append", NotDefault),
        (22, "via", NotDefault),
        (24, "stream_idle_timeout", NotDefault),
        (25, "internal_address_config", NotDefault),
        (28, "request_timeout", NotDefault),
        (29, "max_request_headers_kb", Present),
        (30, "normalize_path", NotDefault),
        (31, "scoped_routes", Present),
        (33, "merge_slashes", NotDefault),
        (34, "server_header_transformation", NotDefault),
        (38, "local_reply_config", NotDefault),
        (39, "strip_matching_host_port", NotDefault),
        (41, "request_headers_timeout", NotDefault),
        (42, "strip_any_host_port", NotDefault),
        (43, "path_normalization_options", NotDefault),
        // `KEEP_UNCHANGED`
        (45, "path_with_escaped_slashes_action", Not(&[0, 1])),
        (46, "original_ip_detection_extensions", Present),
        (47, "strip_trailing_host_dot", NotDefault),
        (48, "scheme_header_transformation", NotDefault),
        (49, "proxy_status_config", Present),
        (50, "typed_header_validation_config", Present),
        (51, "append_x_forwarded_port", NotDefault),
        (52, "early_header_mutation_extensions", Present),
        (60, "forward_client_cert_matcher", Present),
        (61, "forward_proto_config", Present),
    ],
    nested: &[
        (4, "route_config", &ROUTE_CONFIGURATION),
        (5, "http_filters[]", &HTTP_FILTER),
        (23, "upgrade_configs[]", &UPGRADE_CONFIG),
        (35, "common_http_protocol_options", &COMMON_HTTP),
    ],
};

const HTTP_FILTER: Message = Message {
    rejected: &[(5, "config_discovery", Present)],
    nested: &[],
};

/// The listener's `upgrades` contain `websocket` by default.
const UPGRADE_CONFIG: Message = Message {
    rejected: &[
        (1, "upgrade_type", NotText("websocket")),
        (2, "filters", Present),
        (3, "enabled", Present),
    ],
    nested: &[],
};

/// `envoy.extensions.filters.http.router.v3.Router`
pub(in crate::decode) const ROUTER: Message = Message {
    rejected: &[
        (5, "strict_check_headers", Present),
        (8, "upstream_http_filters", Present),
    ],
    nested: &[],
};

/// `TcpProxy`
pub(in crate::decode) const TCP_PROXY: Message = Message {
    rejected: &[
        (3, "downstream_idle_timeout", NotDefault),
        (4, "upstream_idle_timeout", NotDefault),
        (7, "max_connect_attempts", NotDefault),
        (8, "idle_timeout", NotDefault),
        (9, "metadata_match", NotDefault),
        (10, "weighted_clusters", Present),
        (11, "hash_policy", Present),
        (12, "tunneling_config", Present),
        (13, "max_downstream_connection_duration", NotDefault),
        (19, "proxy_protocol_tlvs", Present),
        (21, "upstream_connect_mode", NotDefault),
    ],
    nested: &[],
};
