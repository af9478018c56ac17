//! Metrics of endpoints, whose number is bounded: the endpoints above the limit share one series a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maglor_balance::EndpointStats;
use maglor_config::Address;
use maglor_telemetry::{Gauge, GaugeFamily, Registry};

/// The maximum number of endpoints of a process with series of their own. With 1000, they take about 150 kB in the process, and
/// 100 kB on the page.
const LIMIT: usize = 1000;

/// The label `endpoint` of the endpoints above the limit.
const OTHERS: &str = "other";

/// Metric families with a label for the endpoint.
#[derive(Debug)]
pub(super) struct Families {
    outstanding: GaugeFamily,
    aggregated: GaugeFamily,
    /// The number of endpoints with series of their own.
    own: Arc<AtomicUsize>,
    limit: usize,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            outstanding: registry.gauge(
                "upstream_outstanding_requests",
                "Requests in progress at an endpoint; `other` = at all endpoints without a series.",
                &["cluster", "endpoint"],
            ),
            aggregated: registry.gauge(
                "upstream_aggregated_endpoints",
                "Endpoints without series of their own, because the proxy has too many.",
                &["cluster"],
            ),
            own: Arc::default(),
            limit: LIMIT,
        }
    }

    pub(super) fn endpoint(
        &self,
        cluster: &str,
        address: &Address,
        stats: &Arc<EndpointStats>,
    ) -> EndpointMetrics {
        // Relaxed, here and below: only the count matters.
        let count = self.own.fetch_add(1, Ordering::Relaxed);
        let series = if count < self.limit {
            let outstanding = self.outstanding.with(&[cluster, &address.to_string()]);
            Series::Own {
                outstanding,
                count: Arc::clone(&self.own),
            }
        } else {
            self.own.fetch_sub(1, Ordering::Relaxed);
            let aggregated = self.aggregated.with(&[cluster]);
            aggregated.add_shared(1);
            Series::Shared {
                outstanding: self.outstanding.with(&[cluster, OTHERS]),
                aggregated,
            }
        };
        EndpointMetrics {
            series,
            stats: Arc::clone(stats),
        }
    }
}

/// Handles of an endpoint.
#[derive(Debug)]
pub(crate) struct EndpointMetrics {
    series: Series,
    stats: Arc<EndpointStats>,
}

#[derive(Debug)]
enum Series {
    Own {
        outstanding: Gauge,
        count: Arc<AtomicUsize>,
    },
    /// With other endpoints of the cluster.
    Shared {
        outstanding: Gauge,
        aggregated: Gauge,
    },
}

impl EndpointMetrics {
    /// Clears values that several endpoints add to; called for all endpoints before [`EndpointMetrics::refresh`].
    pub(crate) fn clear(&self) {
        if let Series::Shared { outstanding, .. } = &self.series {
            outstanding.set(0);
        }
    }

    /// Copies values that the balancer counts; called before the metrics are exposed.
    pub(crate) fn refresh(&self) {
        let requests = i64::from(self.stats.outstanding());
        match &self.series {
            Series::Own { outstanding, .. } => outstanding.set(requests),
            Series::Shared { outstanding, .. } => outstanding.add_shared(requests),
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        match self {
            Self::Own { count, .. } => {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            Self::Shared { aggregated, .. } => aggregated.add_shared(-1),
        }
    }
}

#[cfg(test)]
mod tests {
    use maglor_balance::Time;

    use super::*;

    #[test]
    fn endpoints_above_the_limit_share_a_series() {
        let registry = Registry::new(1);
        let families = Families {
            limit: 2,
            ..Families::new(&registry)
        };
        let stats = Arc::new(EndpointStats::new());
        let endpoint = |port: u16| {
            let address = Address::Ip(([10, 0, 0, 1], port).into());
            families.endpoint("web", &address, &stats)
        };
        let mut endpoints: Vec<_> = (1..=5).map(endpoint).collect();
        let shown = |endpoints: &[EndpointMetrics]| {
            endpoints.iter().for_each(EndpointMetrics::clear);
            endpoints.iter().for_each(EndpointMetrics::refresh);
            registry.encode()
        };
        let _requests = [Time::ZERO; 2].map(|now| stats.begin(now));
        let page = shown(&endpoints);
        for line in [
            "maglor_upstream_outstanding_requests{cluster=\"web\",endpoint=\"10.0.0.1:1\"} 2\n",
            "maglor_upstream_outstanding_requests{cluster=\"web\",endpoint=\"10.0.0.1:2\"} 2\n",
            "maglor_upstream_outstanding_requests{cluster=\"web\",endpoint=\"other\"} 6\n",
            "maglor_upstream_aggregated_endpoints{cluster=\"web\"} 3\n",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
        endpoints.drain(1..4);
        let page = shown(&endpoints);
        assert!(page.contains("endpoint=\"other\"} 2\n"), "{page}");
        endpoints.push(endpoint(6));
        let page = shown(&endpoints);
        assert!(page.contains("endpoint=\"10.0.0.1:6\"} 2\n"), "{page}");
        assert!(
            page.contains("aggregated_endpoints{cluster=\"web\"} 1\n"),
            "{page}"
        );
        endpoints.clear();
        assert!(
            !registry.encode().contains("endpoint"),
            "all series have ended"
        );
    }
}
