//! Dependencies between the settings of edges: attribution of failures, where retries are allowed on a call path, and
//! timeouts within those of callers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::number_format::round_up;
use super::params::Params;
use super::track::{EdgeTrack, ServiceTrack};

type Services = BTreeMap<String, ServiceTrack>;
type Edges = BTreeMap<(String, String), EdgeTrack>;

/// The graph, with the results that depend on the graph as a whole.
pub(super) struct Calls<'a> {
    pub(super) services: Vec<(&'a str, &'a ServiceTrack)>,
    /// The calls into each service: the index of the caller, and the edge.
    pub(super) into: Vec<Vec<(usize, &'a EdgeTrack)>>,
    /// The plan of further attempts for each service; `None` = no retries.
    pub(super) retry_plans: Vec<Option<RetryPlan>>,
    pub(super) timeouts: Vec<Limit>,
}

/// The further attempts of a service: their number, and the time for each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RetryPlan {
    pub(super) attempts: u32,
    pub(super) each: Duration,
}

/// The maximum duration of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    pub(super) time: Duration,
    /// The bound that determines the duration; `None` if it is the service's own.
    pub(super) of: Option<Bound>,
}

/// The bound that determines the maximum duration of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// The maximum duration of calls to this caller.
    Caller(usize),
    /// The deadline that this caller sends.
    Deadline(usize),
}

impl<'a> Calls<'a> {
    pub(super) fn new(services: &'a Services, edges: &'a Edges, params: &Params) -> Self {
        let services: Vec<_> = services
            .iter()
            .map(|(name, track)| (&**name, track))
            .collect();
        let index = |name: &str| {
            services
                .binary_search_by(|(other, _)| (*other).cmp(name))
                .ok()
        };
        let mut into = vec![Vec::new(); services.len()];
        for ((from, to), edge) in edges {
            // A caller that is no vertex has no limits of its own to keep.
            if let (Some(from), Some(to)) = (index(from), index(to)) {
                into[to].push((from, edge));
            }
        }
        let mut calls = Self {
            retry_plans: vec![None; services.len()],
            timeouts: Vec::new(),
            services,
            into,
        };
        let reach = calls.reach();
        calls.choose_retries(&reach, params);
        calls.timeouts = calls.limits(&reach, params);
        calls.fit_retries();
        calls
    }

    /// Returns the tail latency, in milliseconds, of the calls of the slowest caller.
    pub(super) fn tail(&self, service: usize) -> f64 {
        let tails = self.into[service]
            .iter()
            .map(|(_, edge)| edge.tail_ms.get());
        tails.fold(0.0, f64::max)
    }

    /// Returns whether the duration of calls is known and bounded; otherwise nothing is recommended for the service.
    pub(super) fn is_timed(&self, service: usize) -> bool {
        let into = self.into.get(service).into_iter().flatten();
        let (mut timed, mut streams) = (false, false);
        for (_, edge) in into {
            timed |= edge.timed;
            streams |= edge.streams;
        }
        timed && !streams
    }

    /// Returns the share of its calls that a service fails on its own, without a failure of a called service.
    pub(super) fn failures(&self, service: usize) -> f64 {
        self.services
            .get(service)
            .map_or(0.0, |(_, track)| track.own.failures.get())
    }

    /// Chooses the services whose callers retry: those that fail on their own, in descending order of failures, with at
    /// most one on each call path. So attempts never multiply: below a service with retries, there are no others.
    fn choose_retries(&mut self, reach: &[Vec<bool>], params: &Params) {
        let threshold = params.thresholds.error_rate;
        let mut order: Vec<usize> = (0..self.services.len())
            .filter(|at| self.is_timed(*at))
            // Above half failures, retries only add load.
            .filter(|at| (threshold..=0.5).contains(&self.failures(*at)))
            .filter(|at| self.failures(*at) > threshold && !reach[*at][*at])
            .collect();
        order.sort_by(|a, b| self.failures(*b).total_cmp(&self.failures(*a)));
        for at in order {
            let apart = |(other, retry_plans): (usize, &Option<RetryPlan>)| {
                retry_plans.is_none() || !(reach[at][other] || reach[other][at])
            };
            if !self.retry_plans.iter().enumerate().all(apart) {
                continue;
            }
            let attempts = attempts(self.failures(at), params);
            let each = time(self.tail(at) * params.traffic.timeout_margin);
            let each = each.max(params.traffic.least_timeout);
            self.retry_plans[at] = (attempts > 0).then_some(RetryPlan { attempts, each });
        }
    }

    /// Returns, for each service, the services that it calls, directly or indirectly.
    fn reach(&self) -> Vec<Vec<bool>> {
        let count = self.services.len();
        let mut calls = vec![Vec::new(); count];
        for (to, edges) in self.into.iter().enumerate() {
            for (from, _) in edges {
                calls[*from].push(to);
            }
        }
        let from = |start: usize| {
            let mut seen = vec![false; count];
            let mut open: Vec<usize> = calls[start].clone();
            while let Some(at) = open.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    open.extend(&calls[at]);
                }
            }
            seen
        };
        (0..count).map(from).collect()
    }

    /// Computes the maximum durations: a call takes its tail latency and the time of the further attempts of its own
    /// and of called services, but no longer than the limit of the caller with the longest one.
    fn limits(&self, reach: &[Vec<bool>], params: &Params) -> Vec<Limit> {
        let p = &params.traffic;
        let own = |at: usize| {
            let one = time(self.tail(at) * p.timeout_margin).max(p.least_timeout);
            let more = self.more(at, reach);
            Limit {
                time: one.saturating_add(more).min(p.most_timeout),
                of: None,
            }
        };
        let mut limits: Vec<Limit> = (0..self.services.len()).map(own).collect();
        // Limits only fall, and each round settles one more step from the callers without callers.
        for _ in 0..limits.len() {
            let mut changed = false;
            for at in 0..limits.len() {
                let bounds = self.into[at]
                    .iter()
                    .map(|(from, edge)| match edge.deadline_ms {
                        Some(deadline) => (exact(deadline), Bound::Deadline(*from)),
                        // A service without callers has no limit, and the limits of others are
                        // unknown.
                        None if !self.is_timed(*from) => (Duration::MAX, Bound::Caller(*from)),
                        None => (limits[*from].time, Bound::Caller(*from)),
                    });
                let bound = bounds.max_by_key(|(time, _)| *time);
                if let Some((time, of)) = bound.filter(|(time, _)| *time < limits[at].time) {
                    limits[at] = Limit { time, of: Some(of) };
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        limits
    }

    /// Returns the time that further attempts of a service, or of a service that it calls, may take in addition to the
    /// first attempt; a path has further attempts at most once.
    fn more(&self, at: usize, reach: &[Vec<bool>]) -> Duration {
        let retry_plans = self.retry_plans.iter().enumerate();
        let on_the_way = retry_plans.filter(|(other, _)| *other == at || reach[at][*other]);
        let more = on_the_way.filter_map(|(_, retry_plans)| {
            retry_plans.map(|retry_plans| retry_plans.each * retry_plans.attempts)
        });
        more.max().unwrap_or_default()
    }

    /// Removes further attempts for which there is not enough time.
    fn fit_retries(&mut self) {
        for (retry_plans, limit) in self.retry_plans.iter_mut().zip(&self.timeouts) {
            let Some(wanted) = retry_plans else { continue };
            let each = wanted.each.as_secs_f64().max(1e-3);
            // As many as there is time for, including the first attempt.
            let fit = (limit.time.as_secs_f64() / each + 1e-9).floor() as u32;
            let attempts = wanted.attempts.min(fit.saturating_sub(1));
            *retry_plans = (attempts > 0).then_some(RetryPlan {
                attempts,
                ..*wanted
            });
        }
    }
}

/// Returns the number of further attempts after which the share of failures is at most a tenth of the threshold: fᵏ⁺¹ ≤
/// P/10.
fn attempts(failures: f64, params: &Params) -> u32 {
    let target = params.thresholds.error_rate.max(1e-6) / 10.0;
    let retry_plans = (target.ln() / failures.ln() - 1e-9).ceil();
    (retry_plans as u32)
        .saturating_sub(1)
        .clamp(1, params.traffic.most_attempts.max(1))
        .min(params.traffic.most_attempts)
}

/// Converts milliseconds to a time that is rounded up.
fn time(ms: f64) -> Duration {
    Duration::from_millis(round_up(ms.min(1e12)) as u64)
}

fn exact(ms: f64) -> Duration {
    Duration::from_millis(ms.clamp(1.0, 1e12) as u64)
}
