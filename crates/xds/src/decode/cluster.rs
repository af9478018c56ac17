//! Decodes clusters.

use maglor_balance::PolicySpec;
use maglor_config::Address;
use maglor_config::raw::{self, ClusterType, UpstreamProtocol};
use prost::Message as _;
use prost_types::Any;

use super::{Fault, endpoints, guard, time, unsupported};
use crate::extension_types::{HTTP_OPTIONS, HTTP_OPTIONS_TYPE};
use crate::proto::envoy::config::cluster::v3::{
    self as wire,
    cluster::{
        ClusterDiscoveryType, ClusterProtocolSelection, DiscoveryType, LbPolicy,
        ring_hash_lb_config::HashFunction,
    },
};
use crate::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crate::proto::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions,
    http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
        explicit_http_config::ProtocolConfig,
    },
};

/// The default size of the table of a Maglev policy, and of the ring of a ring-hash policy.
const TABLE_SIZE: u64 = 65_537;
const RING_MIN: u64 = 1024;
const RING_MAX: u64 = 8 << 20;

/// Rejects fields that would change how requests are sent, unless our metadata overrides them.
pub(super) fn refuse(message: &wire::Cluster, mention: &dyn Fn(&str) -> bool) -> Result<(), Fault> {
    if message.transport_socket.is_some() && !mention("tls") {
        return Err(Fault::unsupported("transport_socket"));
    }
    if !message.transport_socket_matches.is_empty() && !mention("tls") {
        return Err(Fault::unsupported("transport_socket_matches"));
    }
    if message.load_balancing_policy.is_some() && !mention("policy") {
        return Err(Fault::new(
            "load_balancing_policy",
            "not supported; use lb_policy",
        ));
    }
    let common = message.common_lb_config.as_ref();
    if common.is_some_and(|common| common.locality_weighted_lb_config.is_some())
        && !mention("locality_weights")
    {
        return Err(Fault::new(
            "common_lb_config.locality_weighted_lb_config",
            "not supported; set locality_weights in the maglor.dev metadata",
        ));
    }
    if !mention("outlier_ejection") {
        guard::refuse(message.outlier_detection.as_ref())?;
    }
    if message.health_checks.len() > 1 && !mention("health_check") {
        return Err(Fault::new(
            "health_checks",
            "only one health check is supported",
        ));
    }
    Ok(())
}

/// Returns the EDS name of the endpoints; `None` if EDS does not provide them.
pub(super) fn eds(message: &wire::Cluster) -> Option<&str> {
    if discovery_type(message).ok()? != DiscoveryType::Eds {
        return None;
    }
    let service = message.eds_cluster_config.as_ref();
    let service = service.map(|config| config.service_name.as_str());
    Some(
        service
            .filter(|name| !name.is_empty())
            .unwrap_or(&message.name),
    )
}

fn discovery_type(message: &wire::Cluster) -> Result<DiscoveryType, Fault> {
    match &message.cluster_discovery_type {
        None => Ok(DiscoveryType::Static),
        Some(ClusterDiscoveryType::Type(number)) => DiscoveryType::try_from(*number)
            .map_err(|_| Fault::new("type", format!("unknown type {number}"))),
        Some(ClusterDiscoveryType::ClusterType(_)) => Err(Fault::unsupported("cluster_type")),
    }
}

pub(super) fn native(message: &wire::Cluster) -> Result<raw::Cluster, Fault> {
    let mut raw = raw::Cluster {
        name: Some(message.name.clone()),
        connect_timeout: time("connect_timeout", message.connect_timeout.as_ref())?,
        outlier_ejection: guard::outlier(message.outlier_detection.as_ref())?,
        health_check: match message.health_checks.first() {
            Some(check) => Some(raw::Short(guard::health(check)?)),
            None => None,
        },
        ..raw::Cluster::default()
    };
    guard::circuit_breakers(message.circuit_breakers.as_ref(), &mut raw);
    let common = message.common_lb_config.as_ref();
    if let Some(percent) = common.and_then(|common| common.healthy_panic_threshold.as_ref()) {
        raw.panic_threshold = Some(whole_percent("common_lb_config", percent.value)?);
    }
    let kind = discovery_type(message)?;
    if kind == DiscoveryType::OriginalDst {
        raw.r#type = Some(ClusterType::OriginalDestination);
    } else {
        raw.policy = policy(message)?;
    }
    discover(message, kind, &mut raw)?;
    http(message, &mut raw)?;
    Ok(raw)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn whole_percent(field: &str, value: f64) -> Result<u32, Fault> {
    match (0.0..=100.0).contains(&value) {
        true => Ok(value.round() as u32),
        false => Err(Fault::new(field, format!("{value} is not a percentage"))),
    }
}

/// Decodes the balancing policy. `None` is the default in both configurations: two choices by outstanding requests.
fn policy(message: &wire::Cluster) -> Result<Option<PolicySpec>, Fault> {
    let Ok(policy) = LbPolicy::try_from(message.lb_policy) else {
        let number = message.lb_policy;
        return Err(Fault::new("lb_policy", format!("unknown policy {number}")));
    };
    let text = match policy {
        LbPolicy::Random => "random".to_owned(),
        LbPolicy::RoundRobin => "round-robin".to_owned(),
        LbPolicy::LeastRequest => {
            let config = message.least_request_lb_config.as_ref();
            match config.and_then(|config| config.choice_count) {
                None | Some(2) => return Ok(None),
                Some(count) => format!("lor(choices={count})"),
            }
        }
        LbPolicy::Maglev => {
            let config = message.maglev_lb_config.as_ref();
            let size = config.and_then(|config| config.table_size);
            format!("maglev(table_size={})", size.unwrap_or(TABLE_SIZE))
        }
        LbPolicy::RingHash => {
            let config = message.ring_hash_lb_config.unwrap_or_default();
            if config.hash_function != i32::from(HashFunction::XxHash) {
                return Err(Fault::unsupported("ring_hash_lb_config.hash_function"));
            }
            let (min, max) = (config.minimum_ring_size, config.maximum_ring_size);
            let (min, max) = (min.unwrap_or(RING_MIN), max.unwrap_or(RING_MAX));
            format!("ring-hash(min={min},max={max})")
        }
        LbPolicy::ClusterProvided | LbPolicy::LoadBalancingPolicyConfig => {
            return Err(Fault::unsupported("lb_policy"));
        }
    };
    let policy = text.parse::<PolicySpec>();
    policy
        .map(Some)
        .map_err(|error| Fault::new("lb_policy", error.to_string()))
}

/// Decodes the source of the endpoints.
fn discover(
    message: &wire::Cluster,
    kind: DiscoveryType,
    raw: &mut raw::Cluster,
) -> Result<(), Fault> {
    match kind {
        DiscoveryType::OriginalDst => {}
        DiscoveryType::Eds => {
            let config = message.eds_cluster_config.as_ref();
            let source = config.and_then(|config| config.eds_config.as_ref());
            let source = source.and_then(|source| source.config_source_specifier.as_ref());
            match source {
                Some(ConfigSourceSpecifier::Ads(_) | ConfigSourceSpecifier::Self_(_)) => {}
                None => {
                    return Err(Fault::new(
                        "eds_cluster_config.eds_config",
                        "the config source must be ads or self",
                    ));
                }
            }
        }
        DiscoveryType::LogicalDns | DiscoveryType::Static | DiscoveryType::StrictDns => {
            let assignment = message.load_assignment.clone().unwrap_or_default();
            let all = endpoints::decode(&assignment);
            let all = all.map_err(|fault| fault.within("load_assignment"))?;
            let usable = all
                .into_iter()
                .filter(|e| e.health == crate::Health::Healthy);
            raw.endpoints = usable.map(|e| raw::Short(e.described)).collect();
            if kind == DiscoveryType::LogicalDns {
                // As in Envoy: the name for a connection would be ambiguous with several.
                if raw.endpoints.len() != 1 {
                    let found = raw.endpoints.len();
                    let what = format!("LOGICAL_DNS needs exactly one endpoint, found {found}");
                    return Err(Fault::new("load_assignment", what));
                }
                let address = raw
                    .endpoints
                    .first()
                    .and_then(|one| one.0.address.as_deref());
                let is_name = address.is_some_and(|one| one.parse::<Address>().is_err());
                raw.dns_addresses = is_name.then_some(raw::DnsAddresses::First);
            }
        }
    }
    Ok(())
}

/// Decodes the HTTP version; the default is HTTP/1.1.
fn http(message: &wire::Cluster, raw: &mut raw::Cluster) -> Result<(), Fault> {
    let options = match message.typed_extension_protocol_options.get(HTTP_OPTIONS) {
        Some(any) => {
            let options = http_options(any);
            options.map_err(|fault| fault.within("typed_extension_protocol_options"))?
        }
        None => deprecated_http_options(message)?,
    };
    raw.max_requests_per_connection = message.max_requests_per_connection;
    if let Some(common) = &options.common_http_protocol_options {
        raw.idle_timeout = time("idle_timeout", common.idle_timeout.as_ref())?;
        if let Some(requests) = common.max_requests_per_connection {
            raw.max_requests_per_connection = Some(requests);
        }
    }
    let (protocol, http2) = match options.upstream_protocol_options {
        None => (None, None),
        Some(UpstreamProtocolOptions::AutoConfig(auto)) => {
            (Some(UpstreamProtocol::Auto), auto.http2_protocol_options)
        }
        Some(UpstreamProtocolOptions::UseDownstreamProtocolConfig(down)) => (
            Some(UpstreamProtocol::Downstream),
            down.http2_protocol_options,
        ),
        Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)) => {
            match explicit.protocol_config {
                Some(ProtocolConfig::Http2ProtocolOptions(http2)) => {
                    (Some(UpstreamProtocol::Http2), Some(http2))
                }
                Some(ProtocolConfig::HttpProtocolOptions(_)) | None => (None, None),
            }
        }
    };
    raw.protocol = protocol;
    raw.max_concurrent_streams = http2.and_then(|http2| http2.max_concurrent_streams);
    Ok(())
}

fn http_options(any: &Any) -> Result<HttpProtocolOptions, Fault> {
    let fault = |reason: String| Fault::new("HttpProtocolOptions", reason);
    if any.type_url != HTTP_OPTIONS_TYPE {
        return Err(fault(format!("unknown type {}", any.type_url)));
    }
    let options = HttpProtocolOptions::decode(any.value.as_slice());
    let options = options.map_err(|error| fault(error.to_string()))?;
    unsupported::refuse(&unsupported::HTTP_OPTIONS, &any.value)
        .map_err(|fault| fault.within("HttpProtocolOptions"))?;
    Ok(options)
}

/// Returns the deprecated fields as the message that replaces them; Envoy reads them only without that message.
fn deprecated_http_options(message: &wire::Cluster) -> Result<HttpProtocolOptions, Fault> {
    let (http1, http2) = (
        message.http_protocol_options,
        message.http2_protocol_options,
    );
    let upstream = match (message.protocol_selection(), http1, http2) {
        (ClusterProtocolSelection::UseDownstreamProtocol, http1, http2) => {
            UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
                http_protocol_options: http1,
                http2_protocol_options: http2,
            })
        }
        (ClusterProtocolSelection::UseConfiguredProtocol, Some(_), Some(_)) => {
            let what = "cannot be combined with http_protocol_options";
            return Err(Fault::new("http2_protocol_options", what));
        }
        (ClusterProtocolSelection::UseConfiguredProtocol, _, http2) => {
            let protocol_config = http2.map(ProtocolConfig::Http2ProtocolOptions);
            UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig { protocol_config })
        }
    };
    Ok(HttpProtocolOptions {
        common_http_protocol_options: message.common_http_protocol_options,
        upstream_protocol_options: Some(upstream),
    })
}
