//! The registry: creates families, and writes all of them in a format of Prometheus.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buckets::Buckets;
use super::counter::CounterFamily;
use super::exposition::{Exposition, FamilyWriter, Format, Page, Type, Value};
use super::family::{Desc, Family, Kind};
use super::gauge::GaugeFamily;
use super::histogram::HistogramFamily;
use super::process::Process;

/// The prefix of all names except `process_*`, which are the same for all programs.
const NAMESPACE: &str = "maglor";

/// The registry of all metrics of a process. Clones refer to the same registry.
///
/// # Panics
///
/// Names, help texts and label names are constants of the program. So the methods that create families panic if a name
/// is invalid, or if it is registered with another kind, help text or labels. If the same family is registered again,
/// the existing one is returned. The name of a counter ends in `_total`, and no other family has the rest of the name:
/// they would be one family in OpenMetrics.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    workers: usize,
    /// By name in OpenMetrics. The mutex is locked only while a family is created, or the families are listed.
    families: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Clone, Debug)]
enum Entry {
    Process(Arc<Process>),
    Sampled(Arc<Sampled>),
    Stored(Arc<Family>),
}

impl Registry {
    /// Creates a registry for a process with this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                workers,
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
        GaugeFamily(self.family(name, help, labels, Kind::Gauge(1)))
    }

    /// Creates a family of gauges that are set in thousandths and exposed as a ratio, as `maglor_NAME`; the name ends in
    /// `_ratio`.
    #[must_use]
    pub fn ratio_gauge(&self, name: &str, help: &str, labels: &[&str]) -> GaugeFamily {
        GaugeFamily(self.family(name, help, labels, Kind::Gauge(1000)))
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
        let base = desc.header(Type::Gauge).base().to_owned();
        let read = Box::new(read);
        self.register(base, Entry::Sampled(Arc::new(Sampled { desc, read })));
    }

    /// Adds `process_*` (memory, CPU time, file descriptors, start time) and `maglor_build_info`.
    ///
    /// `component` is the name of the program, and `version` is its version.
    pub fn describe_process(&self, component: &str, version: &str) {
        let process = Entry::Process(Arc::new(Process::new()));
        self.register("process".to_owned(), process);
        let (component, version) = (component.to_owned(), version.to_owned());
        self.sampled_gauge(
            "build_info",
            "Constant 1, with build information as labels.",
            &["component", "version", "arch"],
            move |out| out.push(&[&component, &version, std::env::consts::ARCH], 1.0),
        );
    }

    /// Returns all series in the Prometheus text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut page = Page::new(Format::Text);
        self.write(&mut page);
        page.finish()
    }

    /// Returns all series as a response to a request with these values of `accept` and `accept-encoding`, which are empty
    /// if it has none: in OpenMetrics if the client prefers it, compressed if it accepts gzip.
    #[must_use]
    pub fn expose(&self, accept: &str, accept_encoding: &str) -> Exposition {
        Exposition::negotiated(accept, accept_encoding, |page| self.write(page))
    }

    fn write(&self, page: &mut Page) {
        // Not while the mutex is locked: reading may take long.
        let entries: Vec<_> = self.families().values().cloned().collect();
        for entry in entries {
            match entry {
                Entry::Process(process) => process.write(page),
                Entry::Sampled(sampled) => {
                    let to = page.family(sampled.desc.header(Type::Gauge));
                    (sampled.read)(&mut Samples {
                        desc: &sampled.desc,
                        to,
                    });
                }
                Entry::Stored(family) => {
                    let header = family.desc().header(family.kind().word());
                    family.write(&mut page.family(header));
                }
            }
        }
    }

    fn family(&self, name: &str, help: &str, labels: &[&str], kind: Kind) -> Arc<Family> {
        let desc = desc(name, help, labels);
        let header = desc.header(kind.word());
        let is_named = (kind.word() == Type::Counter) == desc.name.ends_with("_total");
        assert!(is_named, "{}: counters end in `_total`", desc.name);
        let base = header.base().to_owned();
        if let Some(Entry::Stored(family)) = self.families().get(&base) {
            let same = *family.desc() == desc
                && std::mem::discriminant(family.kind()) == std::mem::discriminant(&kind);
            assert!(
                same,
                "{} exists with another kind, help or labels",
                desc.name
            );
            return Arc::clone(family);
        }
        let family = Arc::new(Family::new(desc, kind, self.inner.workers));
        self.register(base, Entry::Stored(Arc::clone(&family)));
        family
    }

    fn register(&self, base: String, entry: Entry) {
        let mut families = self.families();
        assert!(
            !families.contains_key(&base),
            "{base}: each name is registered once"
        );
        families.insert(base, entry);
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        let families = self.inner.families.lock();
        families.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The collector of samples for [`Registry::sampled_gauge`].
#[derive(Debug)]
pub struct Samples<'a> {
    desc: &'a Desc,
    to: FamilyWriter<'a>,
}

impl Samples<'_> {
    /// Adds the sample of the series with these label values.
    pub fn push(&mut self, values: &[&str], value: f64) {
        debug_assert_eq!(values.len(), self.desc.labels.len(), "label values");
        let labels = self.desc.labels(values.iter().copied());
        self.to.push(labels, Value::Number(value));
    }
}

struct Sampled {
    desc: Desc,
    read: Box<dyn Fn(&mut Samples<'_>) + Send + Sync>,
}

impl fmt::Debug for Sampled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.desc.fmt(f)
    }
}

/// # Panics
///
/// If a name is not an identifier, or there is no help text: names and texts are constants of the program.
fn desc(name: &str, help: &str, labels: &[&str]) -> Desc {
    let is_identifier = |name: &&str| {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        name.bytes().all(is_part) && name.starts_with(|first: char| first.is_ascii_lowercase())
    };
    let mut names = labels.iter().chain([&name]);
    assert!(names.all(is_identifier), "{name}{labels:?}: identifiers");
    assert!(!help.is_empty(), "{name}: a help text");
    Desc {
        name: format!("{NAMESPACE}_{name}"),
        help: help.to_owned(),
        labels: labels.iter().map(ToString::to_string).collect(),
    }
}
