//! What LRS has no fields for, as load metrics with names of ours.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{ClusterLoad, MAX_RANGES, Range, RoundTrip, sum};
use crate::proto::envoy::config::core::v3::{self as core, address, socket_address::PortSpecifier};
use crate::proto::envoy::config::endpoint::v3::{EndpointLoadMetricStats, UpstreamEndpointStats};

/// Sum of response times in seconds, of as many requests as were timed.
pub(super) const SECONDS: &str = "maglor.response_seconds";
/// Sum of the bytes of bodies, both ways.
pub(super) const BYTES: &str = "maglor.body_bytes";
/// Requests that took at most so many microseconds, and more than the next lower such metric says.
const TIMES: &str = "maglor.micros_le.";
/// The bound of those that have none.
const NO_BOUND: &str = "inf";
/// Of one server: how long a packet takes there and back, in seconds.
const ROUND_TRIP: &str = "maglor.round_trip_seconds";
/// A way that takes longer was not measured.
const FARTHEST: f64 = 60.0;

fn metric(name: &str, count: u64, value: f64) -> EndpointLoadMetricStats {
    EndpointLoadMetricStats {
        metric_name: name.to_owned(),
        num_requests_finished_with_metric: count,
        total_metric_value: value,
    }
}

/// The metrics of a cluster.
pub(super) fn all(load: &ClusterLoad) -> Vec<EndpointLoadMetricStats> {
    let mut all = vec![
        metric(SECONDS, load.timed, load.seconds),
        metric(BYTES, load.timed, load.bytes as f64),
    ];
    for range in &load.times {
        let mut name = TIMES.to_owned();
        match range.most_micros {
            Some(most) => name += &most.to_string(),
            None => name += NO_BOUND,
        }
        // The sum is in the other metric.
        all.push(metric(&name, range.count, 0.0));
    }
    all
}

/// Takes one; what makes no sense counts as nothing.
pub(super) fn take(load: &mut ClusterLoad, stats: &EndpointLoadMetricStats) {
    let (count, value) = (
        stats.num_requests_finished_with_metric,
        stats.total_metric_value,
    );
    if !(value.is_finite() && value >= 0.0) {
        return;
    }
    match stats.metric_name.as_str() {
        SECONDS => {
            sum(&mut load.timed, count);
            load.seconds += value;
        }
        // Whole numbers up to 2^53 are exact.
        BYTES => sum(&mut load.bytes, value as u64),
        name => {
            if let Some(most_micros) = name.strip_prefix(TIMES).and_then(bound) {
                add(&mut load.times, Range { most_micros, count });
            }
        }
    }
}

fn bound(text: &str) -> Option<Option<u64>> {
    match text {
        NO_BOUND => Some(None),
        text => text.parse().ok().map(Some),
    }
}

fn add(times: &mut Vec<Range>, range: Range) {
    match times.binary_search_by_key(&range.key(), Range::key) {
        Ok(at) => {
            if let Some(own) = times.get_mut(at) {
                sum(&mut own.count, range.count);
            }
        }
        Err(at) if times.len() < MAX_RANGES => times.insert(at, range),
        Err(_) => {}
    }
}

/// The way to one server.
pub(super) fn endpoint(to: &RoundTrip) -> UpstreamEndpointStats {
    let address = core::SocketAddress {
        address: to.address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(to.address.port().into())),
    };
    UpstreamEndpointStats {
        address: Some(core::Address {
            address: Some(address::Address::SocketAddress(address)),
        }),
        load_metric_stats: vec![metric(ROUND_TRIP, 1, to.time.as_secs_f64())],
    }
}

/// The same, read.
pub(super) fn round_trip(stats: &UpstreamEndpointStats) -> Option<RoundTrip> {
    let address = stats.address.as_ref()?.address.as_ref()?;
    let address::Address::SocketAddress(socket) = address;
    let ip: IpAddr = socket.address.parse().ok()?;
    let Some(PortSpecifier::PortValue(port)) = &socket.port_specifier else {
        return None;
    };
    let port = u16::try_from(*port).ok()?;
    let named = |stats: &&EndpointLoadMetricStats| stats.metric_name == ROUND_TRIP;
    let stats = stats.load_metric_stats.iter().find(named)?;
    // The mean, where somebody reports several.
    let seconds = stats.total_metric_value / stats.num_requests_finished_with_metric as f64;
    let seconds = Some(seconds).filter(|seconds| (0.0..=FARTHEST).contains(seconds))?;
    Some(RoundTrip {
        address: SocketAddr::new(ip, port),
        time: Duration::try_from_secs_f64(seconds).ok()?,
    })
}
