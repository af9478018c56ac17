use maglor_config::raw::{self, UpstreamProtocol};
use maglor_config::resource;
use maglor_xds::proto::envoy::config::cluster::v3::{self as cluster, cluster as of_cluster};
use maglor_xds::proto::envoy::config::core::v3 as core;
use maglor_xds::{Message, decode, encode};
use prost_types::{Any, Struct, Value};

use super::{at, expect, number, text, with};

fn cluster() -> cluster::Cluster {
    cluster::Cluster {
        name: "a".to_owned(),
        ..cluster::Cluster::default()
    }
}

fn metadata(field: &str) -> Option<core::Metadata> {
    let value = Value {
        kind: Some(prost_types::value::Kind::NullValue(0)),
    };
    let fields = [(field.to_owned(), value)].into();
    Some(core::Metadata {
        filter_metadata: [("maglor.dev".to_owned(), Struct { fields })].into(),
    })
}

#[test]
fn clusters() {
    let options = |inner: Vec<u8>| {
        let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        let any = Any {
            type_url: format!("type.googleapis.com/{name}"),
            value: inner,
        };
        let mut message = cluster();
        message
            .typed_extension_protocol_options
            .insert(name.to_owned(), any);
        message.encode_to_vec()
    };
    let base = cluster();
    let at_check = |field: &[u8]| with(&base, &[8, 8], field);
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("nothing", base.encode_to_vec(), &[]),
        (
            "lb_subset_config",
            with(&base, &[22, 3], &text(1, "k")),
            &["cluster `a`: lb_subset_config"],
        ),
        ("filters", with(&base, &[40], &text(1, "f")), &["filters"]),
        (
            "zone awareness",
            with(&base, &[27, 2], &[]),
            &["common_lb_config.zone_aware_lb_config"],
        ),
        (
            "slow start",
            with(&base, &[37, 3], &text(1, "x")),
            &["least_request_lb_config.slow_start_config"],
        ),
        ("GET", at_check(&number(13, 1)), &[]),
        (
            "HEAD",
            at_check(&number(13, 2)),
            &["health_checks[0].http_health_check.method"],
        ),
        (
            "the port of a check",
            with(&base, &[8, 6], &number(1, 81)),
            &["health_checks[0].alt_port"],
        ),
        (
            "headers of a check",
            at_check(&at(&[6], &[])),
            &["health_checks[0].http_health_check.request_headers_to_add"],
        ),
        (
            "HTTP/3",
            options(at(&[3, 3], &[])),
            &["explicit_http_config.http3_protocol_options"],
        ),
        (
            "title case",
            options(at(&[3, 1, 4], &[])),
            &["http_protocol_options.header_key_format"],
        ),
        (
            "upstream filters",
            options(at(&[6], &[])),
            &["HttpProtocolOptions.http_filters"],
        ),
        ("statistics", with(&base, &[], &text(28, "stats")), &[]),
        ("windows of HTTP/2", options(at(&[3, 2, 3], &[8, 1])), &[]),
    ];
    for (case, body, parts) in cases {
        expect(decode::cluster("a", body), parts, case);
    }
}

#[test]
fn locality_weights_need_metadata() {
    let mut message = cluster();
    message.common_lb_config = Some(of_cluster::CommonLbConfig {
        healthy_panic_threshold: None,
        locality_weighted_lb_config: Some(
            of_cluster::common_lb_config::LocalityWeightedLbConfig {},
        ),
    });
    let decoded = |message: &cluster::Cluster| decode::cluster("a", &message.encode_to_vec());
    let field = "common_lb_config.locality_weighted_lb_config";
    expect(decoded(&message), &[field, "locality_weights"], "alone");
    message.metadata = metadata("locality_weights");
    expect(decoded(&message), &[], "with metadata");
}

#[test]
fn failures_without_a_response_are_server_errors() {
    let mut message = cluster();
    message.outlier_detection = Some(cluster::OutlierDetection {
        consecutive_5xx: Some(3),
        consecutive_local_origin_failure: Some(2),
        ..cluster::OutlierDetection::default()
    });
    let decoded = |message: &cluster::Cluster| decode::cluster("a", &message.encode_to_vec());
    let ejection = decoded(&message).unwrap().raw.outlier_ejection.unwrap();
    // As in Envoy, the threshold has no effect without the field.
    assert_eq!(ejection.consecutive_local_origin_failure, Some(0));
    assert_eq!(ejection.consecutive_5xx, Some(3));
    let detection = message.outlier_detection.as_mut().unwrap();
    detection.split_external_local_origin_errors = true;
    let field = "outlier_detection.split_external_local_origin_errors";
    expect(decoded(&message), &[field, "outlier_ejection"], "alone");
    message.metadata = metadata("outlier_ejection");
    expect(decoded(&message), &[], "with metadata");
    // The default of our earlier versions.
    message.metadata = None;
    message.outlier_detection = Some(cluster::OutlierDetection {
        max_ejection_percent: Some(50),
        enforcing_consecutive_gateway_failure: Some(100),
        split_external_local_origin_errors: true,
        ..cluster::OutlierDetection::default()
    });
    let decoded = decoded(&message).unwrap();
    assert!(decoded.raw.outlier_ejection.is_none());
}

#[test]
fn deprecated_http_options_are_implemented() {
    let http2 = core::Http2ProtocolOptions {
        max_concurrent_streams: Some(7),
    };
    let decoded = |message: &cluster::Cluster| decode::cluster("a", &message.encode_to_vec());
    let mut message = cluster();
    message.http2_protocol_options = Some(http2);
    message.max_requests_per_connection = Some(9);
    message.common_http_protocol_options = Some(core::HttpProtocolOptions {
        idle_timeout: Some(prost_types::Duration {
            seconds: 5,
            nanos: 0,
        }),
        max_requests_per_connection: None,
    });
    let raw = decoded(&message).unwrap().raw;
    assert_eq!(raw.protocol, Some(UpstreamProtocol::Http2));
    assert_eq!(raw.max_concurrent_streams, Some(7));
    assert_eq!(raw.max_requests_per_connection, Some(9));
    assert_eq!(raw.idle_timeout.unwrap().0.as_secs(), 5);
    message.http_protocol_options = Some(core::Http1ProtocolOptions {});
    expect(decoded(&message), &["http2_protocol_options"], "both");
    message.protocol_selection = of_cluster::ClusterProtocolSelection::UseDownstreamProtocol.into();
    let raw = decoded(&message).unwrap().raw;
    assert_eq!(raw.protocol, Some(UpstreamProtocol::Downstream));
    // The message that replaces them takes precedence.
    let text = "{name: a, protocol: http1}";
    let own = encode::cluster(&resource::read::<raw::Cluster>(text, "x").unwrap()).unwrap();
    message.typed_extension_protocol_options = cluster::Cluster::decode(&*own.body)
        .unwrap()
        .typed_extension_protocol_options;
    assert_eq!(decoded(&message).unwrap().raw.protocol, None);
}
