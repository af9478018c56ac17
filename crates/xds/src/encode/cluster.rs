//! Encodes clusters.

use maglor_balance::PolicySpec;
use maglor_config::raw::{self, ClusterType, UpstreamProtocol};

use super::{EncodeError, ads, any, endpoints, guard};
use crate::extension_types::{HTTP_OPTIONS, HTTP_OPTIONS_TYPE};
use crate::proto::envoy::config::cluster::v3::{
    self as wire,
    cluster::{
        ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
        LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig,
        common_lb_config::LocalityWeightedLbConfig,
    },
};
use crate::proto::envoy::config::core::v3 as core;
use crate::proto::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions,
    http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
        explicit_http_config::ProtocolConfig,
    },
};
use crate::proto::envoy::r#type::v3::Percent;
use crate::{Kind, decode, maglor_metadata, time};

pub(super) fn encode(raw: &raw::Cluster) -> Result<(String, wire::Cluster), EncodeError> {
    let Some(name) = raw.name.clone() else {
        return Err(EncodeError::Missing {
            kind: Kind::Cluster,
            name: String::new(),
            field: "name".to_owned(),
        });
    };
    let mut message = native(raw, &name);
    let said = decode::native_cluster(&message)?;
    message.metadata =
        maglor_metadata::beyond(raw, &said).map_err(|source| EncodeError::Words {
            kind: Kind::Cluster,
            name: name.clone(),
            source,
        })?;
    Ok((name, message))
}

fn native(raw: &raw::Cluster, name: &str) -> wire::Cluster {
    let mut message = wire::Cluster {
        name: name.to_owned(),
        connect_timeout: raw.connect_timeout.map(time::encode),
        circuit_breakers: guard::circuit_breakers(raw),
        outlier_detection: guard::outlier(raw.outlier_ejection.as_ref()),
        health_checks: raw
            .health_check
            .iter()
            .filter_map(|check| guard::health(&check.0))
            .collect(),
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: raw.panic_threshold.map(|percent| Percent {
                value: f64::from(percent),
            }),
            locality_weighted_lb_config: raw
                .locality_weights
                .as_ref()
                .map(|_| LocalityWeightedLbConfig {}),
        }),
        typed_extension_protocol_options: [(
            HTTP_OPTIONS.to_owned(),
            any(HTTP_OPTIONS_TYPE, &http_options(raw)),
        )]
        .into(),
        ..wire::Cluster::default()
    };
    balancing(raw, &mut message);
    discovery(raw, name, &mut message);
    message
}

/// Encodes the balancing policy, or the most similar policy that Envoy has.
fn balancing(raw: &raw::Cluster, message: &mut wire::Cluster) {
    let policy = match raw.policy.clone().unwrap_or_default() {
        PolicySpec::Random => LbPolicy::Random,
        PolicySpec::RoundRobin => LbPolicy::RoundRobin,
        PolicySpec::Maglev(params) => {
            message.maglev_lb_config = Some(MaglevLbConfig {
                table_size: Some(params.table_size.into()),
            });
            LbPolicy::Maglev
        }
        PolicySpec::RingHash(params) => {
            message.ring_hash_lb_config = Some(RingHashLbConfig {
                minimum_ring_size: Some(params.min.into()),
                maximum_ring_size: Some(params.max.into()),
                ..RingHashLbConfig::default()
            });
            LbPolicy::RingHash
        }
        PolicySpec::LeastOutstanding { choices } => match choices.to_string().parse() {
            Ok(1) => LbPolicy::Random,
            count => {
                let choice_count = count.ok();
                message.least_request_lb_config = Some(LeastRequestLbConfig { choice_count });
                LbPolicy::LeastRequest
            }
        },
        // Also by load, though with less information.
        _ => LbPolicy::LeastRequest,
    };
    message.lb_policy = policy.into();
}

fn discovery(raw: &raw::Cluster, name: &str, message: &mut wire::Cluster) {
    let kind = match raw.r#type {
        Some(ClusterType::OriginalDestination) => {
            message.lb_policy = LbPolicy::ClusterProvided.into();
            DiscoveryType::OriginalDst
        }
        Some(ClusterType::Static) | None if raw.endpoints.is_empty() => {
            message.eds_cluster_config = Some(EdsClusterConfig {
                eds_config: Some(ads()),
                service_name: String::new(),
            });
            DiscoveryType::Eds
        }
        Some(ClusterType::Static) | None => {
            let (assignment, names) = endpoints::inline(name, &raw.endpoints);
            message.load_assignment = Some(assignment);
            match names {
                true if raw.dns_addresses == Some(raw::DnsAddresses::First)
                    && raw.endpoints.len() == 1 =>
                {
                    DiscoveryType::LogicalDns
                }
                true => DiscoveryType::StrictDns,
                false => DiscoveryType::Static,
            }
        }
    };
    message.cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind.into()));
}

fn http_options(raw: &raw::Cluster) -> HttpProtocolOptions {
    let http2 = || core::Http2ProtocolOptions {
        max_concurrent_streams: raw.max_concurrent_streams,
    };
    let explicit = |config| {
        UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(config),
        })
    };
    let version = match raw.protocol {
        Some(UpstreamProtocol::Http2) => explicit(ProtocolConfig::Http2ProtocolOptions(http2())),
        Some(UpstreamProtocol::Downstream) => {
            UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
                http_protocol_options: None,
                http2_protocol_options: Some(http2()),
            })
        }
        // `auto` uses ALPN, for which Envoy needs TLS of its own.
        Some(UpstreamProtocol::Auto | UpstreamProtocol::Http1) | None => {
            let http1 = core::Http1ProtocolOptions {};
            explicit(ProtocolConfig::HttpProtocolOptions(http1))
        }
    };
    HttpProtocolOptions {
        common_http_protocol_options: Some(core::HttpProtocolOptions {
            idle_timeout: raw.idle_timeout.map(time::encode),
            max_requests_per_connection: raw.max_requests_per_connection,
        }),
        upstream_protocol_options: Some(version),
    }
}
