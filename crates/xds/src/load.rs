//! Load reports of clients, in the format of Envoy's load reporting service (LRS, `envoy.service.load_stats.v3`).
//!
//! A report contains, for each cluster, the number of requests that have ended since the last report. Times and bytes,
//! for which LRS has no fields, are sent as load metrics with our own names. Reports of Envoy and gRPC do not contain
//! them.

mod metric;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use maglor_config::raw::TimeSpan;

use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use crate::proto::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use crate::time;

/// The path of the method in HTTP/2.
pub const PATH: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
/// The client feature of reporting all clusters, without being asked for them by name.
const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// The client feature of omitting reports without load: as long as the stream is open, a missing report is one without
/// load.
const OMITS_EMPTY: &str = "maglor.lrs.omits_empty_reports";
/// The shortest interval of which reports without load are omitted: a server that requests them
/// more often needs them at once.
const OMITTED: Duration = Duration::from_secs(5);
/// The bounds of the interval that a server may request.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(3600);

/// The load of a cluster since the last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterLoad {
    /// The name of the cluster.
    pub name: Arc<str>,
    /// The number of attempts with a response other than 5xx.
    pub succeeded: u64,
    /// The number of attempts with a 5xx response, or without a response.
    pub failed: u64,
    /// The number of requests rejected because there was no endpoint, or because a limit was reached.
    pub dropped: u64,
    /// The number of requests in flight at the time of the report.
    pub in_flight: u64,
    /// The number of requests whose response time was measured: all in our reports, none in Envoy's.
    pub timed: u64,
    /// The sum of the measured response times in seconds.
    pub seconds: f64,
    /// The histogram of the measured response times, in ascending order; at most [`MAX_RANGES`] ranges.
    pub times: Vec<Range>,
    /// The number of bytes in both directions, of bodies and of connections that are not HTTP.
    pub bytes: u64,
    /// The number of connections opened.
    pub opened: u64,
    /// The number of retries, which are included in the attempts.
    pub retries: u64,
    /// The number of endpoints that are ejected at the time of the report.
    pub ejected: u64,
    /// What of it was by mutual TLS between members of the mesh; `None` if the client does not report it.
    pub mutual_tls: Option<MutualTls>,
    /// The round-trip times to servers that were measured; at most [`MAX_ROUND_TRIPS`].
    pub round_trips: Vec<RoundTrip>,
}

/// The part of a cluster's load that was by mutual TLS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MutualTls {
    /// The number of finished attempts.
    pub requests: u64,
    /// The number of connections opened.
    pub opened: u64,
}

/// The maximum number of ranges in a cluster's histogram of response times.
pub const MAX_RANGES: usize = 64;
/// The maximum number of servers of a cluster whose round-trip times are in one report.
pub const MAX_ROUND_TRIPS: usize = 64;

/// A range of response times: above the bound of the previous range, and up to its own bound. An empty range only marks
/// where the next one begins.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Range {
    /// The upper bound in microseconds, inclusive; `None` = no bound.
    pub most_micros: Option<u64>,
    /// The number of requests with response times in this range.
    pub count: u64,
}

impl Range {
    /// Returns the sort key, which is the upper bound.
    fn key(&self) -> u64 {
        self.most_micros.unwrap_or(u64::MAX)
    }
}

/// The round-trip time to a server, as measured by TCP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RoundTrip {
    /// The address of the server.
    pub address: SocketAddr,
    /// The shortest measured round-trip time.
    pub time: Duration,
}

/// The load report of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// The time since the last report.
    pub interval: Duration,
    /// The clusters with finished or in-flight requests, or with measured round-trip times.
    pub clusters: Vec<ClusterLoad>,
    /// The proxy's private resident memory in bytes; `None` if it is unknown, and in a report without clusters.
    pub memory: Option<u64>,
}

/// The request of a server for load reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The interval of reports, 100 ms to an hour.
    pub interval: Duration,
    /// The names of the clusters to report; `None` = all clusters.
    pub clusters: Option<Vec<String>>,
}

impl Wish {
    /// Decodes a server's request; `None` if the interval is not a valid duration.
    #[must_use]
    pub fn read(response: LoadStatsResponse) -> Option<Self> {
        let interval = time::decode(&response.load_reporting_interval?).ok()?.0;
        Some(Self {
            interval: interval.clamp(OFTEN, SELDOM),
            clusters: (!response.send_all_clusters).then_some(response.clusters),
        })
    }

    /// Encodes the request as a message.
    #[must_use]
    pub fn response(&self) -> LoadStatsResponse {
        LoadStatsResponse {
            clusters: self.clusters.clone().unwrap_or_default(),
            load_reporting_interval: Some(time::encode(TimeSpan(self.interval))),
            report_endpoint_granularity: false,
            send_all_clusters: self.clusters.is_none(),
        }
    }
}

/// Returns the first message of a stream, which identifies the client.
#[must_use]
pub fn introduction(mut node: Node) -> LoadStatsRequest {
    let features = [ALL_CLUSTERS, OMITS_EMPTY];
    node.client_features.extend(features.map(ToOwned::to_owned));
    LoadStatsRequest {
        node: Some(node),
        cluster_stats: Vec::new(),
    }
}

/// Returns whether a client omits reports without load.
#[must_use]
pub fn omits_empty(node: &Node) -> bool {
    node.client_features
        .iter()
        .any(|feature| feature == OMITS_EMPTY)
}

impl LoadReport {
    /// Returns whether the report may be omitted at this interval: it and the one before (`previous` is whether that
    /// one had any) have no load.
    #[must_use]
    pub fn may_be_omitted(&self, previous: bool, interval: Duration) -> bool {
        self.clusters.is_empty() && !previous && interval >= OMITTED
    }

    /// Encodes the report as a message.
    #[must_use]
    pub fn request(&self) -> LoadStatsRequest {
        let interval = time::encode(TimeSpan(self.interval));
        let stats = self.clusters.iter().map(|load| ClusterStats {
            cluster_name: load.name.to_string(),
            upstream_locality_stats: vec![load.stats()],
            total_dropped_requests: load.dropped,
            load_report_interval: Some(interval),
            ..ClusterStats::default()
        });
        let mut stats: Vec<ClusterStats> = stats.collect();
        // LRS has no fields for the client itself.
        let first = stats
            .first_mut()
            .and_then(|one| one.upstream_locality_stats.first_mut());
        if let (Some(first), Some(memory)) = (first, self.memory) {
            first.load_metric_stats.push(metric::memory(memory));
        }
        LoadStatsRequest {
            node: None,
            cluster_stats: stats,
        }
    }

    /// Decodes a report. Invalid values count as zero; duplicate clusters are added up.
    #[must_use]
    pub fn read(request: &LoadStatsRequest) -> Self {
        let intervals = request.cluster_stats.iter().filter_map(|stats| {
            let interval = stats.load_report_interval.as_ref()?;
            Some(time::decode(interval).ok()?.0)
        });
        let interval = intervals.max().unwrap_or_default().min(SELDOM);
        let mut clusters: BTreeMap<&str, ClusterLoad> = BTreeMap::new();
        for stats in &request.cluster_stats {
            let load = clusters.entry(&stats.cluster_name).or_default();
            load.name = stats.cluster_name.as_str().into();
            load.dropped = load.dropped.saturating_add(stats.total_dropped_requests);
            for part in &stats.upstream_locality_stats {
                load.add(part);
            }
        }
        let parts = request
            .cluster_stats
            .iter()
            .flat_map(|stats| &stats.upstream_locality_stats);
        let metrics = parts.flat_map(|part| &part.load_metric_stats);
        Self {
            interval,
            clusters: clusters.into_values().collect(),
            memory: metrics.filter_map(metric::memory_of).max(),
        }
    }
}

impl ClusterLoad {
    fn stats(&self) -> UpstreamLocalityStats {
        UpstreamLocalityStats {
            total_successful_requests: self.succeeded,
            total_error_requests: self.failed,
            total_requests_in_progress: self.in_flight,
            total_new_connections: self.opened,
            load_metric_stats: metric::all(self),
            ..UpstreamLocalityStats::default()
        }
    }

    fn add(&mut self, part: &UpstreamLocalityStats) {
        sum(&mut self.succeeded, part.total_successful_requests);
        sum(&mut self.failed, part.total_error_requests);
        sum(&mut self.in_flight, part.total_requests_in_progress);
        sum(&mut self.opened, part.total_new_connections);
        for stats in &part.load_metric_stats {
            metric::take(self, stats);
        }
    }

    /// Returns whether there were no requests, and no round-trip time was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let counts = [
            self.requests(),
            self.dropped,
            self.in_flight,
            self.bytes,
            self.opened,
        ];
        counts == [0; 5] && self.round_trips.is_empty()
    }

    /// Returns the number of finished attempts.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.succeeded.saturating_add(self.failed)
    }
}

/// Adds `more` to `own`, with saturation.
fn sum(own: &mut u64, more: u64) {
    *own = own.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::metric::{BYTES, SECONDS};
    use super::*;
    use crate::proto::envoy::config::endpoint::v3::EndpointLoadMetricStats;

    fn range(most: u64, count: u64) -> Range {
        Range {
            most_micros: Some(most),
            count,
        }
    }

    fn above(count: u64) -> Range {
        Range {
            most_micros: None,
            count,
        }
    }

    fn round_trip(address: &str, micros: u64) -> RoundTrip {
        RoundTrip {
            address: address.parse().unwrap(),
            time: Duration::from_micros(micros),
        }
    }

    #[test]
    fn what_is_reported_is_read() {
        let report = LoadReport {
            interval: Duration::from_millis(10_250),
            clusters: vec![
                ClusterLoad {
                    name: "cart.shop.svc.cluster.local:80".into(),
                    succeeded: 100,
                    failed: 3,
                    dropped: 1,
                    in_flight: 7,
                    timed: 103,
                    seconds: 1.25,
                    times: vec![range(10_000, 0), range(25_000, 102), above(1)],
                    bytes: 1 << 40,
                    opened: 4,
                    retries: 2,
                    ejected: 1,
                    mutual_tls: Some(MutualTls {
                        requests: 90,
                        opened: 3,
                    }),
                    round_trips: vec![
                        round_trip("10.0.0.7:8080", 350),
                        round_trip("[fd00::7]:8080", 20_000),
                    ],
                },
                ClusterLoad {
                    name: "web.shop.svc.cluster.local:80".into(),
                    in_flight: 1,
                    ..ClusterLoad::default()
                },
            ],
            memory: Some(9 << 20),
        };
        let bytes = report.request().encode_to_vec();
        let request = LoadStatsRequest::decode(&bytes[..]).unwrap();
        assert_eq!(LoadReport::read(&request), report);
        assert_eq!(report.clusters[0].requests(), 103);
        // A range takes about as much as a number and its name.
        let of = |load: &ClusterLoad| load.stats().encoded_len();
        let bare = ClusterLoad {
            times: Vec::new(),
            round_trips: Vec::new(),
            ..report.clusters[0].clone()
        };
        let times = of(&report.clusters[0]) - of(&bare);
        assert!(times < 3 * 32 + 2 * 72, "{times}");
    }

    #[test]
    fn ranges_of_several_localities_are_put_together() {
        let part = |times: Vec<Range>| {
            let load = ClusterLoad {
                times,
                ..ClusterLoad::default()
            };
            load.stats()
        };
        let mut load = ClusterLoad::default();
        load.add(&part(vec![range(500, 0), range(1000, 5), above(2)]));
        load.add(&part(vec![range(250, 1), range(1000, 7)]));
        let together = [range(250, 1), range(500, 0), range(1000, 12), above(2)];
        assert_eq!(load.times, together);
        // No client has so many.
        load.add(&part((0..1000).map(|most| range(most, 1)).collect()));
        assert_eq!(load.times.len(), MAX_RANGES);
        assert!(load.times.is_sorted_by_key(Range::key));
        let far = (0..1000).map(|port| RoundTrip {
            address: SocketAddr::from(([10, 0, 0, 1], port)),
            time: Duration::from_millis(1),
        });
        let many = ClusterLoad {
            round_trips: far.collect(),
            ..ClusterLoad::default()
        };
        load.add(&many.stats());
        load.add(&many.stats());
        assert_eq!(load.round_trips.len(), MAX_ROUND_TRIPS);
    }

    #[test]
    fn odd_values_count_as_nothing() {
        let metric = |name: &str, value| EndpointLoadMetricStats {
            metric_name: name.to_owned(),
            num_requests_finished_with_metric: u64::MAX,
            total_metric_value: value,
        };
        let part = UpstreamLocalityStats {
            total_successful_requests: u64::MAX,
            load_metric_stats: vec![
                metric(SECONDS, f64::NAN),
                metric(SECONDS, -1.0),
                metric(BYTES, f64::INFINITY),
                metric("maglor.micros_le.", 1.0),
                metric("maglor.micros_le.-1", 1.0),
                metric("maglor.round_trip_seconds.10.0.0.7:8080", f64::NAN),
                metric("maglor.round_trip_seconds.10.0.0.7", 1.0),
                metric("other", 5.0),
            ],
            ..UpstreamLocalityStats::default()
        };
        let stats = ClusterStats {
            cluster_name: "a".to_owned(),
            upstream_locality_stats: vec![part.clone(), part],
            load_report_interval: Some(prost_types::Duration {
                seconds: -5,
                nanos: 0,
            }),
            ..ClusterStats::default()
        };
        let read = LoadReport::read(&LoadStatsRequest {
            node: None,
            cluster_stats: vec![stats],
        });
        assert_eq!(read.interval, Duration::ZERO);
        let load = &read.clusters[0];
        assert_eq!((load.succeeded, load.timed, load.bytes), (u64::MAX, 0, 0));
        assert_eq!((load.seconds, load.requests()), (0.0, u64::MAX));
        assert!(load.times.is_empty() && load.round_trips.is_empty());
    }

    #[test]
    fn wishes_are_kept_within_bounds() {
        let wish = Wish {
            interval: Duration::from_secs(10),
            clusters: None,
        };
        assert_eq!(Wish::read(wish.response()), Some(wish.clone()));
        let hasty = Wish {
            interval: Duration::from_nanos(1),
            clusters: Some(vec!["a".to_owned()]),
        };
        let read = Wish::read(hasty.response()).unwrap();
        assert_eq!((read.interval, read.clusters), (OFTEN, hasty.clusters));
        assert_eq!(Wish::read(LoadStatsResponse::default()), None);
    }
}
