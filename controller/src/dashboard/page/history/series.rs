//! One series over time.

use super::names::Names;
use super::ring::{Ring, Sample};
use super::{COARSE, FINE, History};
use crate::dashboard::page::model::Signals;

/// What a series is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Of<'a> {
    /// Calls from one service to another.
    Edge(&'a str, &'a str),
    /// All calls.
    Mesh,
    /// Calls to a service.
    Vertex(&'a str),
}

/// Golden signals at equal intervals; `None` where there is no sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) from: u64,
    /// Seconds between two points.
    pub(crate) step: u64,
    pub(crate) points: Vec<Option<Signals>>,
}

impl History {
    /// Returns a series between two times with at most `most` points; `None` if there is no such name.
    pub(crate) fn series(&self, of: Of<'_>, from: u64, to: u64, most: usize) -> Option<Series> {
        let known = self
            .generations
            .iter()
            .any(|names| number(names, of) != Number::None);
        if !known {
            return None;
        }
        let fine = self.fine.oldest().map(u64::from);
        // Fine samples, if they cover all of the time that the coarse ones would cover.
        let covered = fine.is_some_and(|oldest| from + COARSE.0 >= oldest);
        let (ring, base) = match covered || self.coarse.len() == 0 {
            true => (&self.fine, FINE.0),
            false => (&self.coarse, COARSE.0),
        };
        let (from, to) = (from - from % base, to.max(from));
        let most = u64::try_from(most.max(1)).unwrap_or(u64::MAX);
        let step = (to - from).div_ceil(most).div_ceil(base).max(1) * base;
        let count = (to - from).div_ceil(step);
        let points = (0..count).map(|point| {
            let begin = from + point * step;
            self.point(ring, of, begin, begin + step)
        });
        Some(Series {
            from,
            step,
            points: points.collect(),
        })
    }

    /// Returns the mean between two times; quantiles are the largest.
    fn point(&self, ring: &Ring, of: Of<'_>, from: u64, to: u64) -> Option<Signals> {
        let seconds = |time: u64| u32::try_from(time).unwrap_or(u32::MAX);
        let (mut sum, mut count) = (Signals::default(), 0.0);
        for sample in ring.between(seconds(from), seconds(to)) {
            let Some(one) = self.sampled(sample, of) else {
                continue;
            };
            count += 1.0;
            sum.rps += one.rps;
            sum.failures += one.failures;
            sum.in_flight += one.in_flight;
            sum.p50_ms = larger(sum.p50_ms, one.p50_ms);
            sum.p99_ms = larger(sum.p99_ms, one.p99_ms);
        }
        (count > 0.0).then(|| Signals {
            rps: sum.rps / count,
            failures: sum.failures / count,
            in_flight: sum.in_flight / count,
            ..sum
        })
    }

    fn sampled(&self, sample: &Sample, of: Of<'_>) -> Option<Signals> {
        let names = self.names(sample)?;
        match number(names, of) {
            Number::None => None,
            Number::One(series) => sample.series(series),
            Number::All => {
                let mut sum = Signals::default();
                for one in names.vertices().filter_map(|series| sample.series(series)) {
                    sum.rps += one.rps;
                    sum.failures += one.failures;
                    sum.in_flight += one.in_flight;
                }
                Some(sum)
            }
        }
    }
}

fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Number {
    All,
    None,
    One(u32),
}

fn number(names: &Names, of: Of<'_>) -> Number {
    let series = match of {
        Of::Mesh => return Number::All,
        Of::Edge(from, to) => names.find_edge(from, to),
        Of::Vertex(name) => names.find_vertex(name),
    };
    series.map_or(Number::None, Number::One)
}
