//! Translates `trafficPolicy.connectionPool`, `outlierDetection` and `loadBalancer`.

use maglor_balance::PolicySpec;
use maglor_config::raw::{self, HashPolicy, Short};

use crate::istio::block::Block;
use crate::istio::finding::Effect;

/// Translates `connectionPool` into the fields of a cluster.
pub(crate) fn connections(block: &Block<'_>) -> raw::Cluster {
    let mut cluster = raw::Cluster::default();
    let mut limits = raw::Limits::default();
    if let Some(tcp) = block.block("tcp") {
        limits.max_connections = above_zero(tcp.number("maxConnections"));
        cluster.connect_timeout = tcp.time("connectTimeout");
        cluster.idle_timeout = tcp.time("idleTimeout");
        tcp.end(Effect::Ignored);
    }
    if let Some(http) = block.block("http") {
        limits.max_pending_requests = above_zero(http.number("http1MaxPendingRequests"));
        limits.max_requests = above_zero(http.number("http2MaxRequests"));
        limits.max_retries = above_zero(http.number("maxRetries"));
        cluster.max_requests_per_connection = above_zero(http.number("maxRequestsPerConnection"));
        cluster.max_concurrent_streams = above_zero(http.number("maxConcurrentStreams"));
        cluster.idle_timeout = http.time("idleTimeout").or(cluster.idle_timeout);
        match http.text("h2UpgradePolicy") {
            Some("UPGRADE") => cluster.protocol = Some(raw::UpstreamProtocol::Http2),
            None | Some("DEFAULT" | "DO_NOT_UPGRADE") => {}
            Some(other) => http.ignore("h2UpgradePolicy", format!("`{other}` is not known")),
        }
        if http.flag("useClientProtocol") == Some(true) {
            cluster.protocol = Some(raw::UpstreamProtocol::Downstream);
        }
        http.end(Effect::Ignored);
    }
    block.end(Effect::Ignored);
    if limits != raw::Limits::default() {
        cluster.limits = Some(limits);
    }
    cluster
}

/// Returns `None` for 0, which Istio treats as not set.
fn above_zero(number: Option<u32>) -> Option<u32> {
    number.filter(|number| *number > 0)
}

/// Translates `outlierDetection`, with Istio's defaults (5 server errors, at most 10 % of the endpoints but at least
/// one, no comparison of success rates), and the panic threshold.
pub(crate) fn outliers(block: &Block<'_>) -> (raw::OutlierEjection, Option<u32>) {
    let local = block.flag("splitExternalLocalOriginErrors") == Some(true);
    let deprecated = block.number("consecutiveErrors");
    let ejection = raw::OutlierEjection {
        consecutive_5xx: Some(block.number("consecutive5xxErrors").unwrap_or(5)),
        consecutive_gateway_failure: Some(
            block
                .number("consecutiveGatewayErrors")
                .or(deprecated)
                .unwrap_or(0),
        ),
        consecutive_local_origin_failure: Some(
            match block.number("consecutiveLocalOriginFailures") {
                failures if local => failures.unwrap_or(5),
                _ => 0,
            },
        ),
        interval: block.time("interval"),
        base_ejection_time: block.time("baseEjectionTime"),
        max_ejection_percent: Some(block.number("maxEjectionPercent").unwrap_or(10)),
        always_eject_one_host: Some(true),
        enforcing_success_rate: Some(0),
        ..raw::OutlierEjection::default()
    };
    let panic = block.number("minHealthPercent").unwrap_or(0);
    block.end(Effect::Ignored);
    (ejection, Some(panic))
}

/// Translates `loadBalancer` into the policy, slow start, and the parts of a request to hash.
pub(crate) fn balancer(block: &Block<'_>) -> (raw::Cluster, Vec<HashPolicy>) {
    let mut cluster = raw::Cluster::default();
    let mut hash = Vec::new();
    match block.text("simple") {
        None | Some("UNSPECIFIED") => {}
        Some("ROUND_ROBIN") => cluster.policy = policy("round-robin"),
        Some("RANDOM") => cluster.policy = policy("random"),
        Some("LEAST_CONN" | "LEAST_REQUEST") => cluster.policy = policy("lor(choices=2)"),
        Some("PASSTHROUGH") => block.refuse(
            "simple",
            "`PASSTHROUGH` is not supported: call the address instead of the Service",
        ),
        Some(other) => block.refuse(
            "simple",
            format!("`{other}` is not known; write `LEAST_REQUEST`, `RANDOM` or `ROUND_ROBIN`"),
        ),
    }
    if let Some(block) = block.block("consistentHash") {
        (cluster.policy, hash) = consistent_hash(&block);
    }
    if let Some(warmup) = block.block("warmup") {
        cluster.slow_start = Some(raw::SlowStart {
            window: warmup.time("duration"),
            aggression: warmup.float("aggression"),
            min_weight_percent: warmup.float("minimumPercent").map(percent),
        });
        warmup.end(Effect::Ignored);
    }
    if let Some(window) = block.time("warmupDurationSecs") {
        cluster.slow_start = Some(raw::SlowStart {
            window: Some(window),
            ..raw::SlowStart::default()
        });
    }
    block.without(
        "localityLbSetting",
        Effect::Ignored,
        "use the Service's `trafficDistribution` for locality preferences",
    );
    block.end(Effect::Ignored);
    (cluster, hash)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped to 1-100 before"
)]
fn percent(number: f64) -> u32 {
    number.clamp(1.0, 100.0).round() as u32
}

fn policy(text: &str) -> Option<PolicySpec> {
    text.parse().ok()
}

fn consistent_hash(block: &Block<'_>) -> (Option<PolicySpec>, Vec<HashPolicy>) {
    let header = block.text("httpHeaderName").map(|name| HashPolicy {
        header: Some(name.to_owned()),
        ..HashPolicy::default()
    });
    let cookie = block.block("httpCookie").map(|cookie| {
        let read = raw::Cookie {
            name: cookie.text("name").map(str::to_owned),
            ttl: cookie.time("ttl"),
            path: cookie.text("path").map(str::to_owned),
        };
        cookie.end(Effect::Ignored);
        HashPolicy {
            cookie: Some(Short(read)),
            ..HashPolicy::default()
        }
    });
    let source = block
        .flag("useSourceIp")
        .filter(|on| *on)
        .map(|on| HashPolicy {
            source_address: Some(on),
            ..HashPolicy::default()
        });
    let query = block.text("httpQueryParameterName").map(|name| HashPolicy {
        query: Some(name.to_owned()),
        ..HashPolicy::default()
    });
    let hash: Vec<HashPolicy> = [header, cookie, source, query]
        .into_iter()
        .flatten()
        .collect();
    let mut minimum = above_zero(block.number("minimumRingSize"));
    if let Some(ring) = block.block("ringHash") {
        minimum = above_zero(ring.number("minimumRingSize")).or(minimum);
        ring.end(Effect::Ignored);
    }
    let table = block.block("maglev").map(|maglev| {
        let size = maglev.number("tableSize");
        maglev.end(Effect::Ignored);
        size
    });
    let (field, text) = match table {
        Some(Some(size)) => ("maglev", format!("maglev(table_size={size})")),
        Some(None) => ("maglev", "maglev".to_owned()),
        None => {
            let minimum = minimum.unwrap_or(1024);
            ("ringHash", format!("ring-hash(min={minimum})"))
        }
    };
    let spec = text.parse::<PolicySpec>();
    if let Err(error) = &spec {
        block.refuse(field, format!("invalid `{text}`: {error}"));
    }
    let spec = spec.ok();
    block.end(Effect::Ignored);
    (spec, hash)
}
