//! A family: its name, label names and live series, which are written to a page.
//!
//! A family holds its series weakly. Dead entries are removed when the family is gathered, and when the map has doubled
//! since the last removal, so that the memory of a process that is not scraped does not grow.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::buckets::Buckets;
use super::cells::{Cells, Layout};
use super::exemplar::Exemplars;
use super::exposition::{FamilyWriter, Header, Type, Value};
use super::histogram_row;

/// The terminator of each label value inside a key. In values that contain this character, it is replaced.
const END: char = '\0';

/// The number of entries below which dead ones are removed only when the family is gathered.
const PRUNE_FLOOR: usize = 32;

/// The meaning of the words of a series.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Counter,
    /// Exposed as the word divided by this number.
    Gauge(u16),
    Histogram(Arc<Buckets>),
}

impl Kind {
    pub(crate) fn word(&self) -> Type {
        match self {
            Self::Counter => Type::Counter,
            Self::Gauge(_) => Type::Gauge,
            Self::Histogram(_) => Type::Histogram,
        }
    }
}

/// The name, help text and label names of a family.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Desc {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) labels: Vec<String>,
}

impl Desc {
    pub(crate) fn header(&self, kind: Type) -> Header<'_> {
        Header {
            name: &self.name,
            help: &self.help,
            kind,
        }
    }

    /// Pairs the label names with values.
    pub(crate) fn labels<'a>(
        &'a self,
        values: impl Iterator<Item = &'a str> + Clone,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
        self.labels.iter().map(String::as_str).zip(values)
    }
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
    alive: BTreeMap<Box<str>, Entry>,
    /// The number of entries at which `with` removes dead ones.
    prune_at: usize,
}

/// One series; it is alive as long as its words are.
#[derive(Debug)]
struct Entry {
    words: Weak<[AtomicU64]>,
    /// Those of a histogram, if it has any.
    exemplars: Weak<Exemplars>,
}

impl Series {
    fn prune(&mut self) {
        self.alive.retain(|_, entry| entry.words.strong_count() > 0);
        self.prune_at = (self.alive.len() * 2).max(PRUNE_FLOOR);
    }
}

impl Family {
    pub(crate) fn new(desc: Desc, kind: Kind, workers: usize) -> Self {
        let width = match &kind {
            Kind::Counter | Kind::Gauge(_) => 1,
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
        self.series(values, |_| {})
    }

    /// The same with the exemplars of the series, which live as long as a handle to them.
    pub(crate) fn with_exemplars(&self, values: &[&str]) -> (Cells, Arc<Exemplars>) {
        let mut exemplars = None;
        let cells = self.series(values, |entry| {
            let new = || Arc::new(Exemplars::new(self.layout.workers(), self.buckets()));
            let shared = entry.exemplars.upgrade().unwrap_or_else(new);
            entry.exemplars = Arc::downgrade(&shared);
            exemplars = Some(shared);
        });
        (cells, exemplars.expect("series() updates the entry"))
    }

    fn buckets(&self) -> usize {
        match &self.kind {
            Kind::Histogram(buckets) => buckets.count(),
            Kind::Counter | Kind::Gauge(_) => 0,
        }
    }

    /// Returns the words of a series, with which `update` updates its entry.
    fn series(&self, values: &[&str], update: impl FnOnce(&mut Entry)) -> Cells {
        assert_eq!(
            values.len(),
            self.desc.labels.len(),
            "label values of {}",
            self.desc.name
        );
        let key = key(values);
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = series.alive.get_mut(&key)
            && let Some(cells) = self.layout.revive(&entry.words)
        {
            update(entry);
            return cells;
        }
        if series.alive.len() >= series.prune_at {
            series.prune();
        }
        let cells = self.layout.allocate();
        let mut entry = Entry {
            words: cells.downgrade(),
            exemplars: Weak::new(),
        };
        update(&mut entry);
        series.alive.insert(key, entry);
        cells
    }

    /// Returns all live series, sorted by label values, and drops the others.
    fn gather(&self) -> Vec<(Box<str>, Cells, Option<Arc<Exemplars>>)> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.prune();
        let alive = series.alive.iter();
        alive
            .filter_map(|(key, entry)| {
                let cells = self.layout.revive(&entry.words)?;
                Some((key.clone(), cells, entry.exemplars.upgrade()))
            })
            .collect()
    }

    /// Writes all live series.
    pub(crate) fn write(&self, to: &mut FamilyWriter<'_>) {
        for (key, cells, exemplars) in self.gather() {
            let labels = self.desc.labels(key.split_terminator(END));
            match &self.kind {
                Kind::Counter => to.push(labels, Value::Count(cells.sum(0))),
                Kind::Gauge(divisor) => {
                    let value = cells.sum(0).cast_signed() as f64;
                    to.push(labels, Value::Number(value / f64::from(*divisor)));
                }
                Kind::Histogram(buckets) => {
                    histogram_row::write(buckets, &cells, exemplars.as_deref(), &labels, to);
                }
            }
        }
    }
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
        let (name, help) = ("t_total".to_owned(), "help".to_owned());
        Family::new(Desc { name, help, labels }, Kind::Counter, 1)
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
    #[should_panic(expected = "label values of t_total")]
    fn a_missing_label_value_is_a_bug_in_the_program() {
        family(&["a", "b"]).with(&["only one"]);
    }
}
