//! Statistics of an edge of the graph, from the sidecars at both ends.

use std::collections::BTreeMap;
use std::time::Duration;

use maglor_telemetry::scrape::{Histogram, Sample};

use super::services::{Edge, SERVICES, edges};

/// The name of the sidecars' listener for other workloads of the mesh.
pub(super) const INBOUND: &str = "inbound";

/// The counts of all proxies during an interval.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    pub(super) edges: Vec<(Edge, Flow)>,
    /// The requests handled by proxies: a page is handled by several.
    pub(super) handled: f64,
    /// Processor time of all proxies, in seconds.
    pub(super) cpu: f64,
    /// The clients rejected by a handshake, by reason.
    pub(super) refused: BTreeMap<String, f64>,
    /// The requests rejected by authorization.
    pub(super) denied: f64,
    /// The spans that the collector accepted, and those that were dropped.
    pub(super) spans: (f64, f64),
}

/// One edge.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    attempts: f64,
    /// Attempts with a 5xx response, or without one.
    pub(super) failed_attempts: f64,
    pub(super) retries: f64,
    pub(super) ejections: f64,
    /// Ejected replicas, as seen by the caller with the most of them.
    pub(super) ejected: f64,
    /// Mutual TLS handshakes with the callers, including resumed sessions.
    pub(super) handshakes: f64,
    /// The requests at the applications, and those of them whose caller was authenticated as this
    /// one.
    pub(super) arrived: f64,
    pub(super) proved: f64,
    /// The latencies of attempts.
    latencies: Histogram,
}

impl Flows {
    pub(super) fn new() -> Self {
        let edges = edges().into_iter();
        Self {
            edges: edges.map(|edge| (edge, Flow::default())).collect(),
            handled: 0.0,
            cpu: 0.0,
            refused: BTreeMap::new(),
            denied: 0.0,
            spans: (0.0, 0.0),
        }
    }

    /// Adds the counts of a proxy of `service` (or of the ingress).
    pub(super) fn add(&mut self, service: &str, samples: &[Sample<'_>]) {
        for sample in samples {
            match sample.name {
                "maglor_authorization_total" if sample.label("decision") == Some("deny") => {
                    self.denied += sample.value;
                }
                "maglor_http_requests_total" => self.handled += sample.value,
                "maglor_mesh_refused_total" => {
                    let reason = sample.label("reason").unwrap_or_default();
                    *self.refused.entry(reason.into()).or_default() += sample.value;
                }
                "maglor_trace_spans_dropped_total" => self.spans.1 += sample.value,
                "maglor_trace_spans_exported_total" => self.spans.0 += sample.value,
                "process_cpu_seconds_total" => self.cpu += sample.value,
                _ => {}
            }
            for (edge, flow) in &mut self.edges {
                let called = SERVICES[edge.to].name;
                // A discovered cluster has the name of the Service, such as reviews.bookinfo.svc.cluster.local:80.
                let cluster = sample
                    .label("cluster")
                    .and_then(|name| name.split('.').next());
                if edge.from == service && cluster == Some(called) {
                    flow.call(sample);
                }
                if called == service && sample.label("listener") == Some(INBOUND) {
                    flow.arrival(sample);
                }
            }
        }
    }

    /// Adds the counts of another interval.
    pub(super) fn merge(&mut self, other: &Self) {
        self.handled += other.handled;
        self.cpu += other.cpu;
        self.denied += other.denied;
        self.spans.0 += other.spans.0;
        self.spans.1 += other.spans.1;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
        for ((_, flow), (_, other)) in self.edges.iter_mut().zip(&other.edges) {
            flow.merge(other);
        }
    }

    /// Adds the counts of a service's applications since the last time.
    pub(super) fn add_arrivals(&mut self, service: &str, arrived: u64, proved: u64) {
        for (edge, flow) in &mut self.edges {
            if SERVICES[edge.to].name == service {
                flow.arrived += arrived as f64;
                flow.proved += proved as f64;
            }
        }
    }
}

impl Flow {
    /// Adds a sample of the calling side.
    fn call(&mut self, sample: &Sample<'_>) {
        let value = sample.value;
        match sample.name {
            "maglor_upstream_requests_total" => {
                self.attempts += value;
                if matches!(sample.label("status"), Some("5xx" | "none")) {
                    self.failed_attempts += value;
                }
            }
            "maglor_upstream_retries_total" => self.retries += value,
            "maglor_upstream_ejected_endpoints" => self.ejected = self.ejected.max(value),
            "maglor_upstream_ejections_total" => self.ejections += value,
            "maglor_upstream_request_duration_seconds_bucket" => {
                self.latencies.add(sample);
            }
            _ => {}
        }
    }

    fn merge(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.failed_attempts += other.failed_attempts;
        self.retries += other.retries;
        self.ejections += other.ejections;
        self.ejected = self.ejected.max(other.ejected);
        self.handshakes += other.handshakes;
        self.arrived += other.arrived;
        self.proved += other.proved;
        self.latencies.merge(&other.latencies);
    }

    /// Adds a sample of the called side.
    fn arrival(&mut self, sample: &Sample<'_>) {
        if sample.name == "maglor_mesh_handshakes_total" {
            self.handshakes += sample.value;
        }
    }

    /// Returns the requests, each counted once regardless of its attempts.
    pub(super) fn requests(&self) -> f64 {
        (self.attempts - self.retries).max(0.0)
    }

    /// Returns a percentile of the latency of attempts.
    pub(super) fn percentile(&self, percent: f64) -> Option<Duration> {
        self.latencies.percentile(percent)
    }

    /// Returns the share of requests whose caller was authenticated, in percent; `None` without
    /// any.
    pub(super) fn mutual_tls(&self) -> Option<f64> {
        (self.arrived > 0.0).then(|| self.proved / self.arrived * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maglor_telemetry::scrape::Meter;

    fn flows(service: &str, page: &str) -> Flows {
        let mut flows = Flows::new();
        flows.add(service, &Meter::default().grown(page));
        flows
    }

    fn flow<'a>(flows: &'a Flows, edge: &str) -> &'a Flow {
        let mut all = flows.edges.iter();
        let found = all.find(|(this, _)| this.to_string() == edge);
        &found.unwrap().1
    }

    #[test]
    fn calls_belong_to_the_edge_of_caller_and_cluster() {
        let flows = flows(
            "productpage",
            "maglor_upstream_requests_total{cluster=\"reviews\",status=\"2xx\"} 90\n\
             maglor_upstream_requests_total{cluster=\"reviews\",status=\"5xx\"} 8\n\
             maglor_upstream_requests_total{cluster=\"reviews\",status=\"none\"} 2\n\
             maglor_upstream_requests_total{cluster=\"ratings\",status=\"2xx\"} 5\n\
             maglor_upstream_retries_total{cluster=\"reviews\"} 10\n\
             maglor_mesh_handshakes_total{listener=\"inbound\",kind=\"full\"} 4\n\
             maglor_mesh_refused_total{listener=\"inbound\",reason=\"plaintext\"} 1\n\
             process_cpu_seconds_total 0.5\n",
        );
        let reviews = flow(&flows, "productpage → reviews");
        assert_eq!((reviews.requests(), reviews.failed_attempts), (90.0, 10.0));
        assert_eq!(flow(&flows, "reviews → ratings").requests(), 0.0);
        assert_eq!(flow(&flows, "ingress → productpage").handshakes, 4.0);
        assert_eq!((flows.cpu, flows.refused["plaintext"]), (0.5, 1.0));
        let mut twice = flows.clone();
        twice.merge(&flows);
        assert_eq!(flow(&twice, "productpage → reviews").requests(), 180.0);
        assert_eq!((twice.cpu, twice.refused["plaintext"]), (1.0, 2.0));
    }
}
