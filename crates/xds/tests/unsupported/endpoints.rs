use maglor_xds::proto::envoy::config::core::v3 as core;
use maglor_xds::proto::envoy::config::endpoint::v3 as endpoint;
use maglor_xds::{Message, decode};

use super::{expect, flag, with};

fn assignment(status: core::HealthStatus, hostname: &str) -> endpoint::ClusterLoadAssignment {
    let address = core::address::Address::SocketAddress(core::SocketAddress {
        address: "10.0.0.1".to_owned(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(80)),
    });
    let server = endpoint::Endpoint {
        address: Some(core::Address {
            address: Some(address),
        }),
        hostname: hostname.to_owned(),
    };
    endpoint::ClusterLoadAssignment {
        cluster_name: "a".to_owned(),
        endpoints: vec![endpoint::LocalityLbEndpoints {
            lb_endpoints: vec![endpoint::LbEndpoint {
                health_status: status.into(),
                host_identifier: Some(endpoint::lb_endpoint::HostIdentifier::Endpoint(server)),
                ..endpoint::LbEndpoint::default()
            }],
            ..endpoint::LocalityLbEndpoints::default()
        }],
        policy: None,
    }
}

#[test]
fn endpoints() {
    let base = assignment(core::HealthStatus::Healthy, "");
    let overprovisioned = |percent| endpoint::ClusterLoadAssignment {
        policy: Some(endpoint::cluster_load_assignment::Policy {
            overprovisioning_factor: Some(percent),
            ..endpoint::cluster_load_assignment::Policy::default()
        }),
        ..base.clone()
    };
    let degraded = assignment(core::HealthStatus::Degraded, "");
    let other = assignment(core::HealthStatus::Healthy, "a.example");
    let same = assignment(core::HealthStatus::Healthy, "10.0.0.1");
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("nothing", base.encode_to_vec(), &[]),
        ("140 %", overprovisioned(140).encode_to_vec(), &[]),
        (
            "100 %",
            overprovisioned(100).encode_to_vec(),
            &["policy.overprovisioning_factor", "only 140"],
        ),
        ("degraded", degraded.encode_to_vec(), &[]),
        (
            "another host",
            other.encode_to_vec(),
            &["endpoint.hostname"],
        ),
        ("the same host", same.encode_to_vec(), &[]),
        (
            "health by weight",
            with(&base, &[4], &flag(6)),
            &["policy.weighted_priority_health"],
        ),
        (
            "the port of checks",
            with(&base, &[2, 2, 1, 2], &flag(1)),
            &["endpoints[1].lb_endpoints[0].endpoint.health_check_config"],
        ),
        (
            "endpoints elsewhere",
            with(&base, &[2, 8], &[]),
            &["endpoints[1].leds_cluster_locality_config"],
        ),
    ];
    for (case, body, parts) in cases {
        expect(decode::endpoints("a", body), parts, case);
    }
}
