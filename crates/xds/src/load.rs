//! Reports of load: what a client has sent where, in the words of Envoy's load reporting service
//! (LRS, `envoy.service.load_stats.v3`).
//!
//! A report counts what has ended since the last one, by cluster. What LRS has no field for, times and
//! bytes, are load metrics with names of ours; Envoy and gRPC report without them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use maglor_config::raw::TimeSpan;

use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UpstreamLocalityStats,
};
use crate::proto::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use crate::time;

/// The method, as a path.
pub const PATH: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
/// What a client says that can report about clusters that it is not asked about by name.
const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// Load metric: sum of response times in seconds, of as many requests as were timed.
const SECONDS: &str = "maglor.response_seconds";
/// Load metric: sum of the bytes of bodies, both ways.
const BYTES: &str = "maglor.body_bytes";
/// Bounds of what a server may ask for.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(3600);

/// What has gone to a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterLoad {
    /// The cluster.
    pub name: Arc<str>,
    /// Tries that were answered, since the last report, and not with 5xx.
    pub succeeded: u64,
    /// Tries that were answered with 5xx, or not at all.
    pub failed: u64,
    /// Requests for which there was no endpoint, or no place.
    pub dropped: u64,
    /// Requests in flight at the time of the report.
    pub in_flight: u64,
    /// How many of them were timed: all of ours, none of Envoy's.
    pub timed: u64,
    /// Sum of their response times in seconds.
    pub seconds: f64,
    /// Bytes of bodies, both ways.
    pub bytes: u64,
}

/// What a client has sent where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Since the last report.
    pub interval: Duration,
    /// Clusters to which something has gone, or is on its way.
    pub clusters: Vec<ClusterLoad>,
}

/// What a server wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// How often; 100 ms to an hour.
    pub interval: Duration,
    /// About which clusters; `None` = all.
    pub clusters: Option<Vec<String>>,
}

impl Wish {
    /// What a server has asked for; `None` where the interval is no length of time.
    #[must_use]
    pub fn read(response: LoadStatsResponse) -> Option<Self> {
        let interval = time::decode(&response.load_reporting_interval?).ok()?.0;
        Some(Self {
            interval: interval.clamp(OFTEN, SELDOM),
            clusters: (!response.send_all_clusters).then_some(response.clusters),
        })
    }

    /// The same as a message.
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

/// The first message of a stream: who reports.
#[must_use]
pub fn introduction(mut node: Node) -> LoadStatsRequest {
    node.client_features.push(ALL_CLUSTERS.to_owned());
    LoadStatsRequest {
        node: Some(node),
        cluster_stats: Vec::new(),
    }
}

impl LoadReport {
    /// As a message.
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
        LoadStatsRequest {
            node: None,
            cluster_stats: stats.collect(),
        }
    }

    /// From a message; what makes no sense counts as nothing. A cluster that is named twice is added up.
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
        Self {
            interval,
            clusters: clusters.into_values().collect(),
        }
    }
}

impl ClusterLoad {
    fn stats(&self) -> UpstreamLocalityStats {
        let metric = |name: &str, count, value| EndpointLoadMetricStats {
            metric_name: name.to_owned(),
            num_requests_finished_with_metric: count,
            total_metric_value: value,
        };
        UpstreamLocalityStats {
            total_successful_requests: self.succeeded,
            total_error_requests: self.failed,
            total_requests_in_progress: self.in_flight,
            load_metric_stats: vec![
                metric(SECONDS, self.timed, self.seconds),
                metric(BYTES, self.timed, self.bytes as f64),
            ],
            ..UpstreamLocalityStats::default()
        }
    }

    fn add(&mut self, part: &UpstreamLocalityStats) {
        let sum = |own: &mut u64, more: u64| *own = own.saturating_add(more);
        sum(&mut self.succeeded, part.total_successful_requests);
        sum(&mut self.failed, part.total_error_requests);
        sum(&mut self.in_flight, part.total_requests_in_progress);
        for metric in &part.load_metric_stats {
            let value = metric.total_metric_value;
            if !(value.is_finite() && value >= 0.0) {
                continue;
            }
            match metric.metric_name.as_str() {
                SECONDS => {
                    sum(&mut self.timed, metric.num_requests_finished_with_metric);
                    self.seconds += value;
                }
                // Whole numbers up to 2^53 are exact.
                BYTES => sum(&mut self.bytes, value as u64),
                _ => {}
            }
        }
    }

    /// Tries that have ended.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.succeeded.saturating_add(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

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
                    bytes: 1 << 40,
                },
                ClusterLoad {
                    name: "web.shop.svc.cluster.local:80".into(),
                    in_flight: 1,
                    ..ClusterLoad::default()
                },
            ],
        };
        let bytes = report.request().encode_to_vec();
        let request = LoadStatsRequest::decode(&bytes[..]).unwrap();
        assert_eq!(LoadReport::read(&request), report);
        assert_eq!(report.clusters[0].requests(), 103);
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
