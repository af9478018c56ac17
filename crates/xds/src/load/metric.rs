//! Load metrics with our own names, for values for which LRS has no field.

use std::net::SocketAddr;
use std::time::Duration;

use super::{ClusterLoad, MAX_RANGES, MAX_ROUND_TRIPS, MutualTls, Range, RoundTrip, sum};
use crate::proto::envoy::config::endpoint::v3::EndpointLoadMetricStats;

/// The sum of the measured response times in seconds.
pub(super) const SECONDS: &str = "maglor.response_seconds";
/// The number of body bytes in both directions.
pub(super) const BYTES: &str = "maglor.body_bytes";
/// The prefix of metrics with the number of requests that took at most this number of microseconds, and more than that
/// of the next lower such metric.
const TIMES: &str = "maglor.micros_le.";
/// The suffix for the last range, which has no bound.
const NO_BOUND: &str = "inf";
/// The prefix of metrics with the round-trip time, in seconds, to the server at this address. Envoy's message for
/// statistics per server would add a kilobyte of code to the proxy for each of its parts.
const ROUND_TRIP: &str = "maglor.round_trip_seconds.";
/// The number of retries.
const RETRIES: &str = "maglor.retries";
/// The number of ejected endpoints.
const EJECTED: &str = "maglor.ejected_endpoints";
/// The number of attempts by mutual TLS; the value is the number of such connections that were opened.
const MUTUAL_TLS: &str = "maglor.mutual_tls";
/// The private resident memory of the client, in bytes.
const MEMORY: &str = "maglor.memory_bytes";
/// The maximum plausible round-trip time in seconds; longer ones are ignored.
const FARTHEST: f64 = 60.0;

fn metric(name: &str, count: u64, value: f64) -> EndpointLoadMetricStats {
    EndpointLoadMetricStats {
        metric_name: name.to_owned(),
        num_requests_finished_with_metric: count,
        total_metric_value: value,
    }
}

/// Returns the metrics of a cluster's load.
pub(super) fn all(load: &ClusterLoad) -> Vec<EndpointLoadMetricStats> {
    let mut all = vec![
        metric(SECONDS, load.timed, load.seconds),
        metric(BYTES, load.timed, load.bytes as f64),
    ];
    let counts = [(RETRIES, load.retries), (EJECTED, load.ejected)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    all.extend(counts.map(|(name, count)| metric(name, count, 0.0)));
    if let Some(MutualTls { requests, opened }) = load.mutual_tls {
        all.push(metric(MUTUAL_TLS, requests, opened as f64));
    }
    for range in &load.times {
        let mut name = TIMES.to_owned();
        match range.most_micros {
            Some(most) => name += &most.to_string(),
            None => name += NO_BOUND,
        }
        // The sum is in the other metric.
        all.push(metric(&name, range.count, 0.0));
    }
    for to in &load.round_trips {
        let mut name = ROUND_TRIP.to_owned();
        name += &to.address.to_string();
        all.push(metric(&name, 1, to.time.as_secs_f64()));
    }
    all
}

/// Returns the metric of the client's memory.
pub(super) fn memory(bytes: u64) -> EndpointLoadMetricStats {
    metric(MEMORY, 1, bytes as f64)
}

/// Returns the client's memory if the metric is that.
pub(super) fn memory_of(stats: &EndpointLoadMetricStats) -> Option<u64> {
    let value = stats.total_metric_value;
    // Whole numbers up to 2^53 are exact.
    let valid = stats.metric_name == MEMORY && value.is_finite() && value >= 0.0;
    valid.then_some(value as u64)
}

/// Decodes a metric into the load; invalid values count as zero.
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
        RETRIES => sum(&mut load.retries, count),
        EJECTED => sum(&mut load.ejected, count),
        MUTUAL_TLS => {
            let all = load.mutual_tls.get_or_insert_default();
            sum(&mut all.requests, count);
            sum(&mut all.opened, value as u64);
        }
        name => {
            if let Some(most_micros) = name.strip_prefix(TIMES).and_then(bound) {
                add(&mut load.times, Range { most_micros, count });
            }
            let address = name.strip_prefix(ROUND_TRIP);
            if let Some(address) = address.and_then(|address| address.parse().ok())
                && load.round_trips.len() < MAX_ROUND_TRIPS
            {
                load.round_trips.extend(round_trip(address, count, value));
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

/// Decodes the round-trip time to a server; `None` if it is invalid.
fn round_trip(address: SocketAddr, count: u64, sum: f64) -> Option<RoundTrip> {
    // The mean, if several are reported.
    let seconds = sum / count as f64;
    let seconds = Some(seconds).filter(|seconds| (0.0..=FARTHEST).contains(seconds))?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    Some(RoundTrip { address, time })
}
