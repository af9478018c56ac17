//! Unsupported fields of endpoints.

use super::{
    Message,
    When::{NotDefault, Present},
};

/// `ClusterLoadAssignment`
pub(in crate::decode) const ASSIGNMENT: Message = Message {
    rejected: &[(5, "named_endpoints", Present)],
    nested: &[(2, "endpoints[]", &LOCALITY), (4, "policy", &POLICY)],
};

const POLICY: Message = Message {
    rejected: &[
        (4, "endpoint_stale_after", NotDefault),
        (6, "weighted_priority_health", NotDefault),
    ],
    nested: &[],
};

const LOCALITY: Message = Message {
    rejected: &[
        (7, "load_balancer_endpoints", Present),
        (8, "leds_cluster_locality_config", Present),
    ],
    nested: &[(2, "lb_endpoints[]", &LB_ENDPOINT)],
};

const LB_ENDPOINT: Message = Message {
    rejected: &[(5, "endpoint_name", Present)],
    nested: &[(1, "endpoint", &ENDPOINT)],
};

const ENDPOINT: Message = Message {
    rejected: &[
        (2, "health_check_config", NotDefault),
        (4, "additional_addresses", Present),
    ],
    nested: &[(1, "address", &ADDRESS)],
};

const ADDRESS: Message = Message {
    rejected: &[(3, "envoy_internal_address", Present)],
    nested: &[(1, "socket_address", &SOCKET_ADDRESS)],
};

const SOCKET_ADDRESS: Message = Message {
    rejected: &[
        // UDP
        (1, "protocol", NotDefault),
        (5, "resolver_name", NotDefault),
        (7, "network_namespace_filepath", NotDefault),
    ],
    nested: &[],
};
