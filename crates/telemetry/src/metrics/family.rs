//! A family: its name, label names and live series, which are rendered as a Prometheus collector.
//!
//! A family holds its series weakly. Dead entries are removed when the family is gathered, and when the map has doubled
//! since the last removal, so that the memory of a process that is not scraped does not grow.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::buckets::Buckets;
use super::cells::{Cells, Layout};
use super::histogram_row;

/// The terminator of each label value inside a key. In values that contain this character, it is replaced.
const END: char = '\0';

/// The number of entries below which dead ones are removed only when the family is gathered.
const PRUNE_FLOOR: usize = 32;

/// The meaning of the words of a series.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram(Arc<Buckets>),
}

/// The part of a family that its handles and the registry share.
#[derive(Debug)]
pub(crate) struct Family {
    desc: Desc,
    kind: Kind,
    layout: Layout,
    series: Mutex<Series>,
}

#[derive(Debug, Default)]
struct Series {
    alive: BTreeMap<Box<str>, Weak<[AtomicU64]>>,
    /// The number of entries at which `with` removes dead ones.
    prune_at: usize,
}

impl Series {
    fn prune(&mut self) {
        self.alive.retain(|_, words| words.strong_count() > 0);
        self.prune_at = (self.alive.len() * 2).max(PRUNE_FLOOR);
    }
}

impl Family {
    pub(crate) fn new(desc: Desc, kind: Kind, workers: usize) -> Self {
        let width = match &kind {
            Kind::Counter | Kind::Gauge => 1,
            Kind::Histogram(buckets) => histogram_row::width(buckets),
        };
        Self {
            desc,
            kind,
            layout: Layout::new(workers, width),
            series: Mutex::default(),
        }
    }

    pub(crate) fn desc(&self) -> &Desc {
        &self.desc
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the words of the series with these label values.
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of labels of the family; both are constants of the program.
    pub(crate) fn with(&self, values: &[&str]) -> Cells {
        assert_eq!(
            values.len(),
            self.desc.variable_labels.len(),
            "label values of {}",
            self.desc.fq_name
        );
        let key = key(values);
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = series.alive.get(&key)
            && let Some(cells) = self.layout.revive(words)
        {
            return cells;
        }
        if series.alive.len() >= series.prune_at {
            series.prune();
        }
        let cells = self.layout.allocate();
        series.alive.insert(key, cells.downgrade());
        cells
    }

    /// Returns all live series, sorted by label values, and drops the others.
    fn gather(&self) -> Vec<(Box<str>, Cells)> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.prune();
        series
            .alive
            .iter()
            .filter_map(|(key, words)| Some((key.clone(), self.layout.revive(words)?)))
            .collect()
    }

    fn metric(&self, key: &str, cells: &Cells) -> proto::Metric {
        let mut metric = proto::Metric::from_label(
            key.split_terminator(END)
                .zip(&self.desc.variable_labels)
                .map(|(value, name)| label(name, value))
                .collect(),
        );
        match &self.kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(cells.sum(0) as f64);
                metric.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(cells.sum(0).cast_signed() as f64);
                metric.set_gauge(gauge);
            }
            Kind::Histogram(buckets) => {
                metric.set_histogram(histogram_row::render(buckets, cells));
            }
        }
        metric
    }
}

/// The family in the form that the registry of the `prometheus` crate requires.
pub(crate) struct Registered(pub(crate) Arc<Family>);

impl Collector for Registered {
    fn desc(&self) -> Vec<&Desc> {
        vec![self.0.desc()]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let metrics = self
            .0
            .gather()
            .iter()
            .map(|(key, cells)| self.0.metric(key, cells))
            .collect();
        let field_type = match self.0.kind {
            Kind::Counter => proto::MetricType::COUNTER,
            Kind::Gauge => proto::MetricType::GAUGE,
            Kind::Histogram(_) => proto::MetricType::HISTOGRAM,
        };
        vec![metric_family(self.0.desc(), field_type, metrics)]
    }
}

pub(crate) fn metric_family(
    desc: &Desc,
    field_type: proto::MetricType,
    metrics: Vec<proto::Metric>,
) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(desc.fq_name.clone());
    family.set_help(desc.help.clone());
    family.set_field_type(field_type);
    family.set_metric(metrics);
    family
}

pub(crate) fn label(name: &str, value: &str) -> proto::LabelPair {
    let mut pair = proto::LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// Joins label values into one string, so that a series needs one allocation for all of them.
fn key(values: &[&str]) -> Box<str> {
    let mut key = String::with_capacity(values.iter().map(|value| value.len() + 1).sum());
    for value in values {
        if value.contains(END) {
            key.push_str(&value.replace(END, "\u{fffd}"));
        } else {
            key.push_str(value);
        }
        key.push(END);
    }
    key.into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(labels: &[&str]) -> Family {
        let labels = labels.iter().map(ToString::to_string).collect();
        let desc = Desc::new("t".into(), "help".into(), labels, Default::default()).unwrap();
        Family::new(desc, Kind::Counter, 1)
    }

    #[test]
    fn the_key_keeps_values_apart() {
        assert_ne!(key(&["a", "bc"]), key(&["ab", "c"]));
        assert_ne!(key(&["", "a"]), key(&["a", ""]));
        assert_ne!(key(&["a\0", "b"]), key(&["a", "\0b"]));
    }

    #[test]
    fn dead_series_are_forgotten_without_a_scrape() {
        let family = family(&["endpoint"]);
        let kept = family.with(&["kept"]);
        for n in 0..10_000 {
            family.with(&[&n.to_string()]);
        }
        assert!(family.series.lock().unwrap().alive.len() <= PRUNE_FLOOR * 2);
        assert_eq!(family.gather().len(), 1);
        drop(kept);
        assert!(family.gather().is_empty());
    }

    #[test]
    #[should_panic(expected = "label values of t")]
    fn a_missing_label_value_is_a_bug_in_the_program() {
        family(&["a", "b"]).with(&["only one"]);
    }
}
