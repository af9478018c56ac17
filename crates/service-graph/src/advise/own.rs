//! The failures and response times that a service causes itself, without those of called services.

use maglor_balance::Time;

use super::endless::endless;
use super::histogram::{Histogram, Share};
use super::hold::Hold;
use super::observed::{Around, EdgeUse};
use super::params::{Params, Traffic};

/// The failures and response times that a service causes itself, over time.
#[derive(Clone, Debug)]
pub(super) struct Own {
    failed: Share,
    time: Histogram,
    /// The share of its calls that a service fails on its own.
    pub(super) failures: Hold,
    /// The part of r that a service causes itself, in milliseconds, for the caller with the highest r.
    pub(super) latency_ms: Hold,
}

impl Own {
    pub(super) fn new(params: &Traffic) -> Self {
        Self {
            failed: Share::default(),
            time: Histogram::new(params.half_life),
            failures: Hold::default(),
            latency_ms: Hold::default(),
        }
    }

    pub(super) fn observe<'a>(
        &mut self,
        now: Time,
        name: &str,
        around: &Around<'a>,
        params: &Params,
    ) {
        let others = |edges: &[&'a EdgeUse]| -> Vec<&'a EdgeUse> {
            let others = edges.iter().filter(|edge| edge.from != edge.to);
            others.copied().collect()
        };
        let (mut into, out) = (others(around.into(name)), others(around.out(name)));
        let p = &params.traffic;
        let sum = |edges: &[&EdgeUse], of: fn(&EdgeUse) -> f64| -> f64 {
            edges.iter().map(|edge| of(edge)).sum()
        };
        let calls = sum(&into, |edge| edge.rps);
        let failed = sum(&into, |edge| edge.failures) - sum(&out, |edge| edge.failures);
        self.failed.add(now, p.half_life, calls, failed.max(0.0));
        self.failures.follow(now, self.failed.get(), p.band);
        // Streams take as long as they do.
        into.retain(|edge| endless(edge, params) <= 0.0);
        if calls > 0.0 {
            self.time.add(now, latency_ms(calls, &into, &out));
        }
        self.latency_ms
            .follow(now, self.time.quantile(p.quantile), p.band);
    }
}

/// Returns r without the time of calls to other services. These are assumed to be sequential; if their sum exceeds r,
/// they are concurrent, and the longest one counts.
fn latency_ms(calls: f64, into: &[&EdgeUse], out: &[&EdgeUse]) -> f64 {
    let whole = into.iter().map(|edge| edge.latency_ms).fold(0.0, f64::max);
    let waits = out.iter().map(|edge| edge.rps / calls * edge.latency_ms);
    let (all, longest) = waits.fold((0.0, 0.0_f64), |(all, longest), wait| {
        (all + wait, longest.max(wait))
    });
    let waited = if all <= whole { all } else { longest };
    (whole - waited).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(rps: f64, latency_ms: f64) -> EdgeUse {
        EdgeUse {
            rps,
            latency_ms,
            ..EdgeUse::default()
        }
    }

    #[test]
    fn what_calls_take_is_not_a_service_s_own() {
        let own = |into: &[EdgeUse], out: &[EdgeUse]| {
            let (into, out): (Vec<_>, Vec<_>) = (into.iter().collect(), out.iter().collect());
            latency_ms(into.iter().map(|edge| edge.rps).sum(), &into, &out)
        };
        assert_eq!(own(&[edge(10.0, 80.0)], &[]), 80.0);
        assert_eq!(own(&[edge(5.0, 80.0), edge(5.0, 90.0)], &[]), 90.0);
        // One after the other, the second for every other request.
        let calls = [edge(10.0, 30.0), edge(5.0, 40.0)];
        assert_eq!(own(&[edge(10.0, 80.0)], &calls), 30.0);
        // At the same time.
        let calls = [edge(10.0, 60.0), edge(10.0, 70.0)];
        assert_eq!(own(&[edge(10.0, 80.0)], &calls), 10.0);
        // It calls by itself, too.
        assert_eq!(own(&[edge(1.0, 80.0)], &[edge(100.0, 70.0)]), 0.0);
    }
}
