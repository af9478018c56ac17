//! The registry: creates families, and writes all of them in the Prometheus text format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::TextEncoder;
use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::buckets::Buckets;
use super::counter::CounterFamily;
use super::family::{Family, Kind, Registered, label, metric_family};
use super::gauge::GaugeFamily;
use super::histogram::HistogramFamily;
use super::process::Process;

/// The prefix of all names except `process_*`, which are the same for all programs.
const NAMESPACE: &str = "maglor";

/// The `content-type` of the result of [`Registry::encode`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The registry of all metrics of a process. Clones refer to the same registry.
///
/// # Panics
///
/// Names, help texts and label names are constants of the program. So the methods that create families panic if a name
/// is invalid, or if it is registered with another kind, help text or labels. If the same family is registered again,
/// the existing one is returned.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    workers: usize,
    prometheus: prometheus::Registry,
    /// The families by full name. The mutex is locked only while a family is created.
    families: Mutex<BTreeMap<String, Arc<Family>>>,
}

impl Registry {
    /// Creates a registry for a process with this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                workers,
                prometheus: prometheus::Registry::new(),
                families: Mutex::default(),
            }),
        }
    }

    /// Creates a family of counters, exposed as `maglor_NAME`; a counter's name ends in `_total`.
    #[must_use]
    pub fn counter(&self, name: &str, help: &str, labels: &[&str]) -> CounterFamily {
        CounterFamily(self.family(name, help, labels, Kind::Counter))
    }

    /// Creates a family of gauges, exposed as `maglor_NAME`.
    #[must_use]
    pub fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> GaugeFamily {
        GaugeFamily(self.family(name, help, labels, Kind::Gauge))
    }

    /// Creates a family of histograms of times, exposed as `maglor_NAME`; the name ends in
    /// `_seconds`.
    #[must_use]
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Buckets,
    ) -> HistogramFamily {
        let family = self.family(name, help, labels, Kind::Histogram(Arc::new(buckets)));
        let Kind::Histogram(buckets) = family.kind() else {
            unreachable!("family() checks the kind");
        };
        HistogramFamily {
            buckets: Arc::clone(buckets),
            family,
        }
    }

    /// Creates a family of gauges that are computed during a scrape, from existing state.
    ///
    /// `read` is called for each exposition, on the thread that calls [`Registry::encode`], and
    /// pushes one sample for each series. It must not use the registry.
    ///
    /// ```
    /// # use maglor_telemetry::Registry;
    /// let registry = Registry::new(1);
    /// registry.sampled_gauge("endpoint_outstanding", "Requests under way.", &["endpoint"], |out| {
    ///     out.push(&["10.0.0.1:80"], 3.0);
    /// });
    /// assert!(registry.encode().contains("outstanding{endpoint=\"10.0.0.1:80\"} 3"));
    /// ```
    pub fn sampled_gauge(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        read: impl Fn(&mut Samples<'_>) + Send + Sync + 'static,
    ) {
        let desc = desc(name, help, labels);
        self.register(Box::new(Sampled {
            desc,
            read: Box::new(read),
        }));
    }

    /// Adds `process_*` (memory, CPU time, file descriptors, start time) and `maglor_build_info`.
    ///
    /// `component` is the name of the program, and `version` is its version.
    pub fn describe_process(&self, component: &str, version: &str) {
        self.register(Box::new(Process::new()));
        let (component, version) = (component.to_owned(), version.to_owned());
        self.sampled_gauge(
            "build_info",
            "Constant 1, with build information as labels.",
            &["component", "version", "arch"],
            move |out| out.push(&[&component, &version, std::env::consts::ARCH], 1.0),
        );
    }

    /// Returns all series in the Prometheus text format; see [`CONTENT_TYPE`].
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let families = self.inner.prometheus.gather();
        TextEncoder::new()
            .encode_utf8(&families, &mut text)
            .expect("families have names and samples, and a string can always be written to");
        text
    }

    fn family(&self, name: &str, help: &str, labels: &[&str], kind: Kind) -> Arc<Family> {
        let desc = desc(name, help, labels);
        let mut families = self
            .inner
            .families
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(family) = families.get(&desc.fq_name) {
            let same = family.desc().dim_hash == desc.dim_hash
                && std::mem::discriminant(family.kind()) == std::mem::discriminant(&kind);
            assert!(
                same,
                "{} exists with another kind, help or labels",
                desc.fq_name
            );
            return Arc::clone(family);
        }
        let full_name = desc.fq_name.clone();
        let family = Arc::new(Family::new(desc, kind, self.inner.workers));
        self.register(Box::new(Registered(Arc::clone(&family))));
        families.insert(full_name, Arc::clone(&family));
        family
    }

    fn register(&self, collector: Box<dyn Collector>) {
        self.inner
            .prometheus
            .register(collector)
            .expect("each name is registered once, with one help text and one list of labels");
    }
}

/// The collector of samples for [`Registry::sampled_gauge`].
#[derive(Debug)]
pub struct Samples<'a> {
    labels: &'a [String],
    metrics: Vec<proto::Metric>,
}

impl Samples<'_> {
    /// Adds the sample of the series with these label values.
    pub fn push(&mut self, values: &[&str], value: f64) {
        debug_assert_eq!(values.len(), self.labels.len(), "label values");
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        let mut metric = proto::Metric::from_gauge(gauge);
        let labels = self.labels.iter().zip(values);
        metric.set_label(labels.map(|(name, value)| label(name, value)).collect());
        self.metrics.push(metric);
    }
}

struct Sampled {
    desc: Desc,
    read: Box<dyn Fn(&mut Samples<'_>) + Send + Sync>,
}

impl Collector for Sampled {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut samples = Samples {
            labels: &self.desc.variable_labels,
            metrics: Vec::new(),
        };
        (self.read)(&mut samples);
        vec![metric_family(
            &self.desc,
            proto::MetricType::GAUGE,
            samples.metrics,
        )]
    }
}

fn desc(name: &str, help: &str, labels: &[&str]) -> Desc {
    Desc::new(
        format!("{NAMESPACE}_{name}"),
        help.to_owned(),
        labels.iter().map(ToString::to_string).collect(),
        std::collections::HashMap::new(),
    )
    .expect("names of metrics and labels are identifiers written in the program")
}
