//! Differences of proxies' counters between two scrapes, by workload and called service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use maglor_telemetry::scrape::{Histogram, Meter, Sample};

use super::LiveError;
use super::access::Instance;
use super::served::{Clusters, Tables};

/// Maximum number of proxies that are queried at the same time.
const AT_ONCE: usize = 16;
/// The only gauge that is read from the metrics of calls.
const EJECTED: &str = "maglor_upstream_ejected_endpoints";

/// The requests of one kind during an interval.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Number of inbound requests, or of attempts of calls: a retried request counts twice.
    pub(super) requests: f64,
    pub(super) failed: f64,
    pub(super) retries: f64,
    pub(super) ejections: f64,
    /// Number of ejected endpoints, as seen by the proxy with the most of them.
    pub(super) ejected: f64,
    pub(super) latencies: Histogram,
    /// Number of client connections since the start, and of those with mutual TLS.
    connections: f64,
    mutual: f64,
    /// Whether calls use mutual TLS; `None` if these are not calls.
    pub(super) mesh: Option<bool>,
    /// Proxies that have counted the requests.
    pub(super) proxies: BTreeSet<String>,
}

impl Flow {
    /// Returns the share of connections from workloads of the mesh; `None` if there are none.
    pub(super) fn mutual_tls(&self) -> Option<f64> {
        (self.connections > 0.0).then(|| (self.mutual / self.connections).min(1.0))
    }

    /// Returns the share of requests that have not failed; `None` if there are none.
    pub(super) fn success(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| (1.0 - self.failed / self.requests).max(0.0))
    }
}

/// A workload of a namespace.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Workload {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// The traffic between two scrapes.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Inbound requests of workloads.
    pub(super) inbound: BTreeMap<Workload, Flow>,
    /// Outbound requests of workloads, by cluster.
    pub(super) outbound: BTreeMap<(Workload, String), Flow>,
    /// Proxies that did not respond, with the errors.
    pub(super) silent: Vec<(String, LiveError)>,
    /// Time between the scrapes.
    pub(super) time: Duration,
}

/// Scrapes proxies repeatedly.
pub(super) struct Observer {
    proxies: Vec<Observed>,
    last: Instant,
}

struct Observed {
    instance: Instance,
    meter: Meter,
    /// When the proxy last responded; `None` if it never has.
    last: Option<Instant>,
    shape: Shape,
}

/// Meaning of the names of a proxy's listeners and clusters.
#[derive(Debug, Default)]
struct Shape {
    /// Names of outbound listeners.
    outbound: BTreeSet<String>,
    /// Names of the clusters of the application itself.
    own: BTreeSet<String>,
    /// Names of the clusters that are reached by mutual TLS.
    mesh: BTreeSet<String>,
}

impl Observer {
    pub(super) fn new(proxies: Vec<Instance>) -> Self {
        let observed = |instance| Observed {
            instance,
            meter: Meter::default(),
            last: None,
            shape: Shape::default(),
        };
        Self {
            proxies: proxies.into_iter().map(observed).collect(),
            last: Instant::now(),
        }
    }

    /// Returns the traffic since the last scrape; at the first scrape, since the start of the proxies.
    ///
    /// # Errors
    /// If no proxy responds.
    pub(super) async fn look(&mut self) -> Result<Traffic, LiveError> {
        let now = Instant::now();
        let mut traffic = Traffic {
            time: now - std::mem::replace(&mut self.last, now),
            ..Traffic::default()
        };
        let asked = self.proxies.iter_mut().map(|proxy| async {
            let page = proxy.page().await;
            (proxy, page)
        });
        let mut answers = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE);
        while let Some((proxy, page)) = answers.next().await {
            match page {
                Ok(page) => {
                    let since = proxy.last.replace(now);
                    let part = since.map_or(1.0, |last| part_of(now - last, traffic.time));
                    traffic.add(proxy, &page, part);
                }
                Err(error) => traffic.silent.push((proxy.instance.name.clone(), error)),
            }
        }
        if traffic.inbound.is_empty()
            && let Some((_, error)) = traffic.silent.pop()
        {
            return Err(error);
        }
        Ok(traffic)
    }
}

/// Returns the part of the growth of a proxy's counters that belongs to the last interval: all of it, unless the
/// proxy did not respond to earlier scrapes.
fn part_of(growth: Duration, interval: Duration) -> f64 {
    match growth.is_zero() {
        true => 1.0,
        false => (interval.as_secs_f64() / growth.as_secs_f64()).min(1.0),
    }
}

impl Observed {
    async fn page(&mut self) -> Result<String, LiveError> {
        let admin = &self.instance.admin;
        let tables: Tables = admin.json("/routes").await?;
        let clusters: Clusters = admin.json("/clusters").await?;
        self.shape = Shape::of(&tables, &clusters);
        let page = admin.get("/metrics").await?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

impl Shape {
    fn of(tables: &Tables, clusters: &Clusters) -> Self {
        let mut shape = Self::default();
        for listener in &tables.listeners {
            match listener.direction.as_str() {
                "outbound" => drop(shape.outbound.insert(listener.name.clone())),
                "inbound" => shape.own.extend(listener.clusters().map(str::to_owned)),
                _ => {}
            }
        }
        let mesh = clusters.clusters.iter();
        let mesh = mesh.filter(|cluster| cluster.tls.as_deref() == Some("mesh"));
        shape.mesh = mesh.map(|cluster| cluster.name.clone()).collect();
        shape
    }
}

impl Traffic {
    /// Adds the metrics page of a proxy, and this part of the growth of its counters.
    fn add(&mut self, proxy: &mut Observed, page: &str, part: f64) {
        let Observed {
            instance,
            meter,
            shape,
            ..
        } = proxy;
        let whole = Meter::default().grown(page);
        let workload = Workload {
            namespace: instance.namespace.clone(),
            name: instance.workload.clone(),
        };
        let inbound = self.inbound.entry(workload.clone()).or_default();
        inbound.proxies.insert(instance.name.clone());
        let is_inbound = |sample: &Sample<'_>| {
            let listener = sample.label("listener");
            listener.is_some_and(|listener| !shape.outbound.contains(listener))
        };
        for sample in whole.iter().filter(|sample| is_inbound(sample)) {
            inbound.outstanding_of(sample);
        }
        let called = |sample: &Sample<'_>| {
            let cluster = sample.label("cluster")?;
            (!shape.own.contains(cluster)).then(|| cluster.to_owned())
        };
        // Services are shown if they were ever called.
        for sample in &whole {
            let asked = sample.name == "maglor_upstream_requests_total" && sample.value > 0.0;
            if let Some(cluster) = called(sample).filter(|_| asked) {
                let mesh = shape.mesh.contains(&cluster);
                let flow = self
                    .outbound
                    .entry((workload.clone(), cluster))
                    .or_default();
                flow.mesh = Some(mesh);
                flow.proxies.insert(instance.name.clone());
            }
        }
        for mut sample in meter.grown(page) {
            if sample.name != EJECTED {
                sample.value *= part;
            }
            if let Some(cluster) = called(&sample) {
                let of_cluster = (workload.clone(), cluster);
                if let Some(flow) = self.outbound.get_mut(&of_cluster) {
                    flow.call(&sample);
                }
            } else if is_inbound(&sample)
                && let Some(inbound) = self.inbound.get_mut(&workload)
            {
                inbound.arrival(&sample);
            }
        }
    }
}

impl Flow {
    /// Adds a sample of a gauge.
    fn outstanding_of(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "maglor_downstream_connections_total" => self.connections += sample.value,
            "maglor_mesh_handshakes_total" => self.mutual += sample.value,
            _ => {}
        }
    }

    /// Adds a sample of responses to clients.
    fn arrival(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "maglor_http_requests_total" => {
                self.requests += sample.value;
                if sample.label("status") == Some("5xx") {
                    self.failed += sample.value;
                }
            }
            "maglor_http_request_duration_seconds_bucket" => self.latencies.add(sample),
            _ => {}
        }
    }

    /// Adds a sample of responses of endpoints.
    fn call(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "maglor_upstream_requests_total" => {
                self.requests += sample.value;
                if matches!(sample.label("status"), Some("5xx" | "none")) {
                    self.failed += sample.value;
                }
            }
            "maglor_upstream_retries_total" => self.retries += sample.value,
            EJECTED => self.ejected = self.ejected.max(sample.value),
            "maglor_upstream_ejections_total" => self.ejections += sample.value,
            "maglor_upstream_request_duration_seconds_bucket" => self.latencies.add(sample),
            _ => {}
        }
    }
}
