//! Samples in the order of time.

use std::collections::VecDeque;

use super::code::Record;
use crate::dashboard::page::model::Signals;

/// All series at one time.
#[derive(Debug)]
pub(super) struct Sample {
    /// Unix seconds.
    pub(super) at: u32,
    /// Generation of the series' numbers.
    pub(super) generation: u32,
    records: Box<[Record]>,
}

impl Sample {
    /// Creates a sample of `count` series, of which some are known.
    pub(super) fn new(at: u32, generation: u32, count: usize, known: &[(u32, Signals)]) -> Self {
        let mut records = vec![Record::ABSENT; count].into_boxed_slice();
        for (series, signals) in known {
            if let Some(record) = records.get_mut(*series as usize) {
                *record = Record::of(signals);
            }
        }
        Self {
            at,
            generation,
            records,
        }
    }

    /// Returns a series; `None` if it did not exist.
    pub(super) fn series(&self, series: u32) -> Option<Signals> {
        self.records.get(series as usize)?.signals()
    }

    /// Returns all series that existed.
    pub(super) fn signals(&self) -> impl Iterator<Item = (u32, Signals)> {
        let all = (0_u32..).zip(&self.records);
        all.filter_map(|(series, record)| Some((series, record.signals()?)))
    }

    fn size(&self) -> usize {
        size_of_val(&*self.records)
    }
}

/// Samples of one interval.
#[derive(Debug)]
pub(super) struct Ring {
    step: u64,
    most: usize,
    samples: VecDeque<Sample>,
    bytes: usize,
}

impl Ring {
    /// Creates an empty ring with an interval in seconds and a maximum number of samples.
    pub(super) fn new((step, most): (u64, usize)) -> Self {
        Self {
            step,
            most,
            samples: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, sample: Sample) {
        if self.samples.len() == self.most {
            self.drop_oldest();
        }
        self.bytes += sample.size();
        self.samples.push_back(sample);
    }

    pub(super) fn drop_oldest(&mut self) {
        if let Some(sample) = self.samples.pop_front() {
            self.bytes -= sample.size();
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.step
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        Some(self.samples.front()?.at)
    }

    pub(super) fn newest(&self) -> Option<u32> {
        Some(self.samples.back()?.at)
    }

    pub(super) fn oldest_generation(&self) -> Option<u32> {
        Some(self.samples.front()?.generation)
    }

    /// Returns the last sample until a time, or the first one after it.
    pub(super) fn at(&self, time: u32) -> Option<&Sample> {
        let after = self.samples.partition_point(|sample| sample.at <= time);
        self.samples.get(after.saturating_sub(1))
    }

    /// Returns the samples after a time and until another one.
    pub(super) fn between(&self, from: u32, to: u32) -> impl Iterator<Item = &Sample> {
        let begin = self.samples.partition_point(|sample| sample.at <= from);
        let end = self.samples.partition_point(|sample| sample.at <= to);
        self.samples.range(begin..end.max(begin))
    }

    pub(super) fn size(&self) -> usize {
        self.samples.capacity() * size_of::<Sample>() + self.bytes
    }
}

/// Sums over the samples of the present minute.
#[derive(Debug, Default)]
pub(super) struct Minute {
    generation: u32,
    begun: Option<u32>,
    count: f64,
    sums: Vec<Option<Sum>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    rps: f64,
    failures: f64,
    in_flight: f64,
    /// The sum of medians, weighted by rates, and the sum of the weights.
    p50: (f64, f64),
    p99: Option<f64>,
}

impl Minute {
    /// Adds a sample; returns the mean of the minute if this is its last sample.
    pub(super) fn add(
        &mut self,
        step: u64,
        sample: &Sample,
        known: &[(u32, Signals)],
    ) -> Option<Sample> {
        let begun = *self.begun.get_or_insert(sample.at);
        self.generation = sample.generation;
        self.count += 1.0;
        self.sums
            .resize(self.sums.len().max(sample.records.len()), None);
        for (series, signals) in known {
            let Some(sum) = self.sums.get_mut(*series as usize) else {
                continue;
            };
            sum.get_or_insert_default().add(signals);
        }
        // The samples at 0, 10, … 50 s are a minute.
        if u64::from(sample.at - begun) + super::FINE.0 < step {
            return None;
        }
        let means = (0_u32..).zip(&self.sums);
        let means: Vec<(u32, Signals)> = means
            .filter_map(|(series, sum)| Some((series, sum.as_ref()?.mean(self.count))))
            .collect();
        let minute = Sample::new(sample.at, self.generation, self.sums.len(), &means);
        (self.begun, self.count) = (None, 0.0);
        self.sums.clear();
        Some(minute)
    }

    pub(super) fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Option<Sum>>()
    }
}

impl Sum {
    fn add(&mut self, signals: &Signals) {
        self.rps += signals.rps;
        self.failures += signals.failures;
        self.in_flight += signals.in_flight;
        if let Some(p50) = signals.p50_ms {
            self.p50.0 += p50 * signals.rps;
            self.p50.1 += signals.rps;
        }
        if let Some(p99) = signals.p99_ms {
            self.p99 = Some(self.p99.unwrap_or(0.0).max(p99));
        }
    }

    fn mean(&self, count: f64) -> Signals {
        Signals {
            rps: self.rps / count,
            failures: self.failures / count,
            in_flight: self.in_flight / count,
            mean_ms: None,
            p50_ms: (self.p50.1 > 0.0).then(|| self.p50.0 / self.p50.1),
            p99_ms: self.p99,
        }
    }
}
